//! `dix/overheads`: processor time of an array on RAM devices, in real time.

use super::{Experiment, KIB, Run, Scale};
use crate::error::LabError;
use crate::host;
use crate::report::{Report, Row};
use parking_lot::Mutex;
use std::sync::Arc;
use varve::block::raid::{Array, ArrayOpening, ArrayParameters, Dix, ProtectionPlace, RaidLevel};
use varve::env::Env;
use varve::media::{
    BlockDevice, BlockDeviceExt, Capabilities, Counters, Device, Geometry, GuardKind, IoContext, MediaError,
    ProtectionFormat, ProtectionType, Request, Transfer, check_request,
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "dix/overheads",
    title: "processor time of an array on RAM devices: off, paper, on, beside, and the guards that each needs",
    description: "In real time: sequential writes and reads of whole stripes and of 64 KiB on RAID 5 of 4+1 and RAID 6 of 8+2, chunks of 64 KiB, on memory that \
                  keeps data and tuples and does nothing else. A row is the processor time of a KiB of the caller, over that of dix=off; its note \
                  has what was added in passes of a guard over the data. Schemes take turns; the median of the rounds counts. The guards that a design needs: for a \
                  write one for data that come without tuples, one to verify each member's part, one for parity; for a read one. Scale divides the bytes.",
    default_scale: Scale::one_in(4),
    run,
};

/// Bytes of a cell.
const CELL_BYTES: u64 = 1 << 30;
const CHUNK_BYTES: u64 = 64 * KIB;
const ROUNDS: usize = 5;
const DATA_OFFSET: u64 = 128 << 10;

/// Memory that keeps data and tuples.
struct Memory {
    name: String,
    geometry: Geometry,
    capabilities: Capabilities,
    bytes: Mutex<(Vec<u8>, Vec<u8>)>,
}

impl Memory {
    fn device(number: usize, capacity_bytes: u64, protection: Option<ProtectionFormat>) -> Device {
        let tuples = protection.map_or(0, |format| format.tuples_bytes(capacity_bytes));
        Device::of_blocks(Arc::new(Memory {
            name: format!("memory {number}"),
            geometry: Geometry { capacity_bytes, sector_bytes: 512, physical_sector_bytes: 4096 },
            capabilities: Capabilities { protection, queue_depth: 32, ..Capabilities::of_blocks() },
            // Unwritten tuples are escapes.
            bytes: Mutex::new((vec![0; capacity_bytes as usize], vec![0xFF; tuples as usize])),
        }))
    }

    fn transfer(&self, request: &mut Request<'_>) {
        let mut state = self.bytes.lock();
        let (bytes, tuples) = &mut *state;
        let mut at = request.offset_bytes as usize;
        let of_tuples = at / 512 * 8;
        match &mut request.transfer {
            Transfer::Read { data, protection } => {
                for slice in data.iter_mut() {
                    let end = at + slice.len();
                    slice.copy_from_slice(&bytes[at..end]);
                    at = end;
                }
                if let Some(own) = protection {
                    own.copy_from_slice(&tuples[of_tuples..of_tuples + own.len()]);
                }
            }
            Transfer::Write { data, protection, .. } => {
                for slice in data.iter() {
                    bytes[at..at + slice.len()].copy_from_slice(slice);
                    at += slice.len();
                }
                if let Some(own) = protection {
                    tuples[of_tuples..of_tuples + own.len()].copy_from_slice(own);
                }
            }
            Transfer::Discard { length_bytes } => bytes[at..at + *length_bytes as usize].fill(0),
        }
    }
}

impl BlockDevice for Memory {
    fn name(&self) -> &str {
        &self.name
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn execute(&self, requests: &mut [Request<'_>], _: &IoContext) -> Result<(), MediaError> {
        for request in requests.iter_mut() {
            request.outcome = check_request(self, request);
            if request.outcome.is_ok() {
                self.transfer(request);
            }
        }
        requests.iter().find_map(|request| request.outcome.clone().err()).map_or(Ok(()), Err)
    }

    fn sync(&self, _: &IoContext) -> Result<(), MediaError> {
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Off,
    Paper,
    On,
    Beside,
}

impl Scheme {
    const ALL: [(Scheme, &'static str); 4] = [
        (Scheme::Off, "off"),
        (Scheme::Paper, "paper"),
        (Scheme::On, "on"),
        (Scheme::Beside, "beside, with its journal"),
    ];
}

fn format() -> ProtectionFormat {
    ProtectionFormat { protection_type: ProtectionType::Type1, guard: GuardKind::Crc, interval_bytes: 512 }
}

fn array(env: &Env, scheme: Scheme, (level, members): (RaidLevel, usize)) -> Result<(Device, Array), LabError> {
    let protection = (scheme != Scheme::Beside).then(format);
    let capacity_bytes = DATA_OFFSET + (24 << 20);
    let devices = (0..members).map(|number| Some(Memory::device(number, capacity_bytes, protection)));
    let devices: Vec<Option<Device>> = devices.collect();
    let parameters = ArrayParameters {
        name: "array".to_owned(),
        level,
        chunk_bytes: Some(CHUNK_BYTES),
        dix: match scheme {
            Scheme::Off => Dix::Off,
            Scheme::Paper => Dix::Paper,
            Scheme::On | Scheme::Beside => Dix::On,
        },
        journal: None,
        protection: (scheme == Scheme::Beside).then_some(ProtectionPlace::Beside),
    };
    let opened = Array::open(env, &devices, &parameters, &ArrayOpening::default());
    opened.map_err(|error| LabError::invalid("array", error.to_string()))
}

/// Processor time of a KiB in nanoseconds.
fn measure(env: &Env, device: &Device, bytes: u64, is_read: bool, total_bytes: u64) -> Result<f64, LabError> {
    let places = device.block.geometry().capacity_bytes / bytes;
    let mut data = vec![0x5A; bytes as usize];
    let begun = env.process_cpu_nanos().unwrap_or(0);
    let requests = (total_bytes / bytes).max(1);
    for request in 0..requests {
        let at = request % places * bytes;
        match is_read {
            true => device.block.read_at(at, &mut data, &IoContext::default())?,
            false => device.block.write_at(at, &data, &IoContext::default())?,
        }
    }
    let used = env.process_cpu_nanos().unwrap_or(0).saturating_sub(begun);
    Ok(used as f64 / (requests * bytes / KIB) as f64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Time of one pass of a guard over data in the processor's cache, in nanoseconds a KiB.
fn guard_pass(env: &Env) -> f64 {
    let data = vec![0x5A; CHUNK_BYTES as usize];
    let mut tuples = vec![0; format().tuples_bytes(CHUNK_BYTES) as usize];
    let mut pass = || {
        let begun = env.now();
        for number in 0..200 {
            format().generate(number * CHUNK_BYTES, 0, [&data[..]], &mut tuples);
        }
        (env.now() - begun).as_nanos() as f64 / (200 * CHUNK_BYTES / KIB) as f64
    };
    median((0..9).map(|_| pass()).collect())
}

fn run(run: &Run<'_>) -> Result<Report, LabError> {
    let mut report = run.report();
    report.condition("machine", host::description());
    let env = Env::real();
    let pass = guard_pass(&env);
    report.condition("one pass of a guard", format!("{pass:.1} ns a KiB"));
    let total_bytes = run.scale.of(CELL_BYTES);
    if env.process_cpu_nanos().is_none() {
        report.skipped = Some("this system does not count the processor time of a process".to_owned());
        return Ok(report);
    }
    for (shape, name) in [((RaidLevel::Raid5, 5), "RAID 5 of 4+1"), ((RaidLevel::Raid6, 10), "RAID 6 of 8+2")] {
        let data_columns = (shape.1 - if shape.0 == RaidLevel::Raid6 { 2 } else { 1 }) as u64;
        let arrays = Scheme::ALL.map(|(scheme, _)| array(&env, scheme, shape));
        let arrays = arrays.into_iter().collect::<Result<Vec<_>, _>>()?;
        for (bytes, size) in [(data_columns * CHUNK_BYTES * 2, "two stripes"), (64 * KIB, "64 KiB")] {
            for (is_read, direction) in [(false, "write"), (true, "read")] {
                let mut found: Vec<Vec<f64>> = Scheme::ALL.iter().map(|_| Vec::new()).collect();
                for _ in 0..ROUNDS {
                    for ((device, _), found) in arrays.iter().zip(&mut found) {
                        found.push(measure(&env, device, bytes, is_read, total_bytes)?);
                    }
                }
                let medians: Vec<f64> = found.into_iter().map(median).collect();
                for ((_, scheme), nanos) in Scheme::ALL.into_iter().zip(&medians) {
                    let added = (nanos - medians[0]) / pass;
                    let note = format!("{nanos:.0} ns a KiB, {added:+.2} passes of a guard");
                    let metric = format!("{direction} of {size}, {scheme}");
                    report.rows.push(Row::new(name, metric, "1", nanos / medians[0]).with_note(note));
                }
            }
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_returns_what_was_written() {
        let env = Env::real();
        for (scheme, name) in Scheme::ALL {
            let (device, _array) = array(&env, scheme, (RaidLevel::Raid5, 5)).unwrap();
            let data: Vec<u8> = (0..600 * KIB).map(|byte| (byte * 7 / 3) as u8).collect();
            device.block.write_at(4096, &data, &IoContext::default()).unwrap();
            let mut found = vec![0; data.len()];
            device.block.read_at(4096, &mut found, &IoContext::default()).unwrap();
            assert!(found == data, "{name}");
        }
    }
}
