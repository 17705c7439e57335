//! What a stack is made of, for people and programs.

use crate::spec::ByteSize;
use serde::Serialize;
use std::fmt;
use varve_media::BlockDevice;

/// One device of a stack.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DeviceDescription {
    /// Name in messages: the part of the spec.
    pub name: String,
    /// Model it imitates, or what it is.
    pub model: String,
    /// One line about the model.
    pub summary: String,
    /// Addressable bytes.
    pub capacity_bytes: u64,
    /// Logical sector.
    pub sector_bytes: u32,
    /// Physical sector.
    pub physical_sector_bytes: u32,
    /// Positioning costs time.
    pub rotational: bool,
    /// Requests it works on at once.
    pub queue_depth: u32,
    /// Data-sheet sequential read rate, if known.
    pub sequential_read_bytes_per_second: Option<u64>,
    /// Data-sheet sequential write rate, if known.
    pub sequential_write_bytes_per_second: Option<u64>,
    /// Data-sheet random 4 KiB reads per second, one at a time, if known.
    pub random_reads_per_second: Option<u64>,
    /// Where bytes are: `ram`, `none`, `file:PATH`, or the hardware itself.
    pub backing: String,
    /// How time passes: `virtual`, `paced`, `accounted` or `real`.
    pub time: String,
    /// Sizes and times are divided by this.
    pub scale_divisor: u64,
    /// Constants of the timing model, one to a line; empty when there is none.
    pub timing: String,
}

impl DeviceDescription {
    /// What a device says of itself; real hardware unless changed.
    pub(crate) fn of(device: &dyn BlockDevice) -> Self {
        let geometry = device.geometry();
        let capabilities = device.capabilities();
        let nominal = capabilities.nominal;
        DeviceDescription {
            name: device.name().to_owned(),
            model: String::new(),
            summary: String::new(),
            capacity_bytes: geometry.capacity_bytes,
            sector_bytes: geometry.sector_bytes,
            physical_sector_bytes: geometry.physical_sector_bytes,
            rotational: capabilities.rotational,
            queue_depth: capabilities.queue_depth,
            sequential_read_bytes_per_second: nominal.map(|nominal| nominal.sequential_read_bytes_per_second),
            sequential_write_bytes_per_second: nominal.map(|nominal| nominal.sequential_write_bytes_per_second),
            random_reads_per_second: nominal.map(|nominal| nominal.random_reads_per_second),
            backing: "the device".to_owned(),
            time: "real".to_owned(),
            scale_divisor: 1,
            timing: String::new(),
        }
    }
}

/// What a stack is made of.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StackDescription {
    /// The spec, in its canonical spelling.
    pub spec: String,
    /// Store of tables and everything else.
    pub files: String,
    /// Store of logs, when they live elsewhere.
    pub logs: Option<String>,
    /// Devices below the stores.
    pub devices: Vec<DeviceDescription>,
}

/// A capacity in the units of data sheets, and exactly when that rounds.
fn capacity(bytes: u64) -> String {
    let (unit, name) = match bytes {
        1_000_000_000_000.. => (1_000_000_000_000, "TB"),
        1_000_000_000.. => (1_000_000_000, "GB"),
        _ => return ByteSize(bytes).to_string(),
    };
    let hundredths = (bytes / (unit / 200)).div_ceil(2);
    let (whole, fraction) = (hundredths / 100, hundredths % 100);
    match (fraction, bytes.is_multiple_of(unit)) {
        (0, true) => format!("{whole} {name}"),
        _ => format!("{whole}.{fraction:02} {name} ({bytes} B)"),
    }
}

impl fmt::Display for DeviceDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.summary)?;
        let rotational = if self.rotational { "rotational" } else { "not rotational" };
        writeln!(
            f,
            "  capacity {}, sectors {} B ({} B physical), queue depth {}, {rotational}",
            capacity(self.capacity_bytes),
            self.sector_bytes,
            self.physical_sector_bytes,
            self.queue_depth
        )?;
        if let (Some(read), Some(write), Some(random)) = (
            self.sequential_read_bytes_per_second,
            self.sequential_write_bytes_per_second,
            self.random_reads_per_second,
        ) {
            let megabytes = |rate: u64| format!("{}.{} MB/s", rate / 1_000_000, rate / 100_000 % 10);
            let (read, write) = (megabytes(read), megabytes(write));
            writeln!(f, "  promises {read} sequential read, {write} write, {random} random 4 KiB reads/s")?;
        }
        write!(f, "  bytes in {}, {} time", self.backing, self.time)?;
        if self.scale_divisor != 1 {
            write!(f, ", scale 1/{}", self.scale_divisor)?;
        }
        writeln!(f)
    }
}

impl fmt::Display for StackDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.spec)?;
        if let Some(logs) = &self.logs {
            writeln!(f, "logs in {logs}")?;
        }
        self.devices.iter().try_for_each(|device| device.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_as_data_sheets_have_them() {
        for (bytes, text) in [
            (4096, "4KiB"),
            (1 << 26, "64MiB"),
            (500_000_000_000, "500 GB"),
            (9_999_998_976, "10.00 GB (9999998976 B)"),
            (1 << 40, "1.10 TB (1099511627776 B)"),
            (u64::MAX, "18446744.07 TB (18446744073709551615 B)"),
        ] {
            assert_eq!(capacity(bytes), text);
        }
    }
}
