//! What a stack is made of, for people and programs.

use crate::spec::ByteSize;
use serde::Serialize;
use std::fmt;
use varve_media::{Device, TrackTier};

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
    /// Where bytes are: `ram`, `compressed`, `none`, `file:PATH`, or the hardware itself.
    pub backing: String,
    /// How time passes: `virtual`, `paced`, `accounted` or `real`.
    pub time: String,
    /// Sizes and times are divided by this.
    pub scale_divisor: u64,
    /// Constants of the timing model, one to a line; empty when there is none.
    pub timing: String,
    /// Interlaced tracks, if it has them.
    pub tracks: Option<TracksDescription>,
    /// Zones, if it has them.
    pub zones: Option<ZonesDescription>,
    /// Members of an array, in the order of the spec; empty for a device that is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<DeviceDescription>,
    /// T10 protection information; `None` if the device keeps none.
    pub protection: Option<ProtectionDescription>,
    /// What a fence of byte-addressable memory buys; `None` of a device without such memory.
    pub fence: Option<String>,
}

/// Format of the T10 protection information that a device keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ProtectionDescription {
    /// T10 protection type, from 1 to 3.
    pub protection_type: u8,
    /// Checksum of the guard tags: `crc` or `ip`.
    pub guard: String,
    /// Data bytes of one 8-byte tuple.
    pub interval_bytes: u32,
}

impl ProtectionDescription {
    fn of(device: &Device) -> Option<Self> {
        let format = device.block.capabilities().protection?;
        Some(ProtectionDescription {
            protection_type: format.protection_type.number(),
            guard: format.guard.name().to_owned(),
            interval_bytes: format.interval_bytes,
        })
    }
}

impl fmt::Display for ProtectionDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProtectionDescription { protection_type, guard, interval_bytes } = self;
        writeln!(f, "  protection information of type {protection_type}, guard {guard}: 8 B per {interval_bytes} B")
    }
}

/// The zones of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ZonesDescription {
    /// Zones of all types.
    pub zones: u32,
    /// Distance between the starts of zones.
    pub zone_bytes: u64,
    /// Writable bytes of a sequential zone.
    pub zone_capacity_bytes: u64,
    /// Conventional zones at the start.
    pub conventional_zones: u32,
    /// Writable bytes of the conventional zones.
    pub conventional_bytes: u64,
    /// Writable bytes of the others.
    pub sequential_bytes: u64,
    /// How the others may be written.
    pub sequential_type: String,
    /// Zones that may be open at once; 0 is no limit.
    pub open_zones_max: u32,
    /// Zones that may be active at once; 0 is no limit.
    pub active_zones_max: u32,
    /// Tracks that a write destroys the same span of, behind its own; 0 where none overlap.
    pub overlap_tracks: u32,
}

impl ZonesDescription {
    pub(crate) fn of(device: &Device) -> Option<Self> {
        let zones = device.block.capabilities().zones.as_ref()?;
        Some(ZonesDescription {
            zones: zones.zone_count,
            zone_bytes: zones.zone_bytes,
            zone_capacity_bytes: zones.zone_capacity_bytes,
            conventional_zones: zones.conventional_zones,
            conventional_bytes: zones.zone_bytes.saturating_mul(u64::from(zones.conventional_zones)),
            sequential_bytes: zones.zone_capacity_bytes.saturating_mul(u64::from(zones.sequential_zones())),
            sequential_type: zones.sequential_type.to_string(),
            open_zones_max: zones.open_zones_max,
            active_zones_max: zones.active_zones_max,
            overlap_tracks: zones.track_overlap.map_or(0, |overlap| overlap.tracks),
        })
    }
}

impl fmt::Display for ZonesDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sequential = self.zones.saturating_sub(self.conventional_zones);
        let size = ByteSize(self.zone_bytes);
        write!(f, "  {} zones of {size}: ", self.zones)?;
        if self.conventional_zones > 0 {
            write!(f, "{} conventional, together {}; ", self.conventional_zones, capacity(self.conventional_bytes))?;
        }
        write!(f, "{sequential} {}, ", self.sequential_type)?;
        if self.zone_capacity_bytes < self.zone_bytes {
            write!(f, "{} writable of each, ", ByteSize(self.zone_capacity_bytes))?;
        }
        writeln!(f, "together {}", capacity(self.sequential_bytes))?;
        if self.overlap_tracks > 0 {
            writeln!(f, "  a write destroys the same span of the {} tracks after it in its zone", self.overlap_tracks)?;
        }
        let limit = |limit: u32| if limit == 0 { "any number".to_owned() } else { limit.to_string() };
        writeln!(f, "  open at once: {}; active: {}", limit(self.open_zones_max), limit(self.active_zones_max))
    }
}

/// The interlaced tracks of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TracksDescription {
    /// Tracks of both tiers.
    pub tracks: u32,
    /// Bottom tracks: writing one destroys the same span of its neighbours.
    pub bottom_tracks: u32,
    /// Bytes of a bottom track.
    pub bottom_track_bytes: u64,
    /// Bytes of all bottom tracks.
    pub bottom_bytes: u64,
    /// Top tracks: freely updatable.
    pub top_tracks: u32,
    /// Bytes of a top track.
    pub top_track_bytes: u64,
    /// Bytes of all top tracks.
    pub top_bytes: u64,
    /// Writes that would destroy live data are refused.
    pub strict: bool,
}

impl TracksDescription {
    fn of(device: &Device) -> Option<Self> {
        let tracks = device.block.capabilities().tracks.as_ref()?;
        Some(TracksDescription {
            tracks: tracks.track_count,
            bottom_tracks: tracks.tracks_of(TrackTier::Bottom),
            bottom_track_bytes: tracks.bottom_track_bytes,
            bottom_bytes: tracks.tier_bytes(TrackTier::Bottom),
            top_tracks: tracks.tracks_of(TrackTier::Top),
            top_track_bytes: tracks.top_track_bytes,
            top_bytes: tracks.tier_bytes(TrackTier::Top),
            strict: device.tracks.as_ref().is_some_and(|control| control.is_strict()),
        })
    }
}

impl fmt::Display for TracksDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes| ByteSize(bytes).to_string();
        writeln!(
            f,
            "  {} interlaced tracks: {} bottom of {}, together {}; {} top of {}, together {}",
            self.tracks,
            self.bottom_tracks,
            size(self.bottom_track_bytes),
            capacity(self.bottom_bytes),
            self.top_tracks,
            size(self.top_track_bytes),
            capacity(self.top_bytes)
        )?;
        let fate = if self.strict { "refused" } else { "counted" };
        writeln!(f, "  a write to a bottom track destroys the same span of the tops beside it; of live data: {fate}")
    }
}

impl DeviceDescription {
    /// Whether its bytes outlast the process.
    pub fn keeps_bytes(&self) -> bool {
        !matches!(self.backing.as_str(), "ram" | "compressed" | "none")
    }

    /// What a device says of itself; real hardware unless changed.
    pub(crate) fn of(device: &Device) -> Self {
        let geometry = device.block.geometry();
        let capabilities = device.block.capabilities();
        let nominal = capabilities.nominal;
        DeviceDescription {
            name: device.block.name().to_owned(),
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
            tracks: TracksDescription::of(device),
            zones: ZonesDescription::of(device),
            members: Vec::new(),
            protection: ProtectionDescription::of(device),
            fence: device.bytes.as_ref().map(|bytes| bytes.persistence().to_string()),
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
    /// Store or device of logs, when they live elsewhere.
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
        } else if let Some(random) = self.random_reads_per_second {
            writeln!(f, "  promises {random} random 4 KiB reads/s, as given")?;
        }
        if let Some(tracks) = &self.tracks {
            tracks.fmt(f)?;
        }
        if let Some(zones) = &self.zones {
            zones.fmt(f)?;
        }
        if let Some(protection) = &self.protection {
            protection.fmt(f)?;
        }
        if let Some(fence) = &self.fence {
            writeln!(f, "  what a fence buys: {fence}")?;
        }
        write!(f, "  bytes in {}, {} time", self.backing, self.time)?;
        if self.scale_divisor != 1 {
            write!(f, ", scale 1/{}", self.scale_divisor)?;
        }
        writeln!(f)?;
        for member in &self.members {
            member.to_string().lines().try_for_each(|line| writeln!(f, "    {line}"))?;
        }
        Ok(())
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
