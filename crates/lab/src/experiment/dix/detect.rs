//! `dix/detect`: which faults are found, repaired and missed.

use super::array::Dix;
use super::faults::{Armed, Drive, Fault, InArray, SECTOR_BYTES};
use super::{Experiment, Run, Scale};
use crate::error::LabError;
use crate::experiment::simulate;
use crate::report::{Report, Row};
use parking_lot::Mutex;
use std::sync::Arc;
use varve::block::raid::{self, Array, ArrayOpening, ArrayParameters, RaidLevel};
use varve::env::{Env, Random};
use varve::media::emulated::Conventional;
use varve::media::{
    BlockDevice, BlockDeviceExt, Device, Emulated, Geometry, GuardKind, Immediate, IoContext, MediaError,
    ProtectionType, RamBacking,
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "dix/detect",
    title: "faults found, repaired and missed, by kind and boundary: off, paper, on",
    description: "One fault at a time at each boundary between a caller and the media of a RAID 6 of 4+2 with type 1 and the Internet checksum: in \
                  the array (the paper's test: guard and reference tag of 4 KiB writes), on the way to and from a drive, in the drive, on the \
                  medium. After each fault everything is read twice and compared, and scrubbed with repair. Repaired: found by a request or the scrub, and \
                  everything is right afterwards. Found: reported, and something is not right. Missed: wrong bytes were returned without an error. Scale divides the faults of a cell (10,000).",
    default_scale: Scale::one_in(10),
    run,
};

/// Faults of a cell in full.
const FAULTS: u64 = 10_000;
const MEMBERS: usize = 6;
const CHUNK_BYTES: u64 = 4 << 10;
const STRIPES: u64 = 4;
/// Where the data of an array begin on small members, in bytes.
const DATA_OFFSET: u64 = 128 << 10;
const SECTORS_OF_REQUEST: usize = (CHUNK_BYTES / SECTOR_BYTES) as usize;

/// Number of faults of a cell by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcomes {
    repaired: u64,
    found: u64,
    missed: u64,
    /// Nothing was wrong, and nothing was said.
    harmless: u64,
}

struct Rig {
    device: Device,
    array: Array,
    drives: Vec<Arc<Drive>>,
    armed: Arc<Mutex<Armed>>,
    random: Random,
    /// Contents of each sector.
    stamps: Vec<u64>,
    next: u64,
}

fn content(stamps: &[u64]) -> Vec<u8> {
    stamps
        .iter()
        .flat_map(|stamp| stamp.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes().repeat(SECTOR_BYTES as usize / 8))
        .collect()
}

impl Rig {
    fn new(env: &Env, dix: Dix, seed: u64) -> Result<Rig, LabError> {
        let armed = Arc::new(Mutex::new(Armed::new(seed)));
        let capacity_bytes = DATA_OFFSET + STRIPES * CHUNK_BYTES;
        let geometry = Geometry { capacity_bytes, sector_bytes: SECTOR_BYTES as u32, physical_sector_bytes: 4096 };
        let drive = |number: usize| {
            let [data, tuples] = [(); 2].map(|()| Arc::new(RamBacking::new()));
            let (rules, timing) = (Box::new(Conventional), Box::<Immediate>::default());
            let name = format!("member {number}");
            let emulated = Emulated::new(env, &name, geometry.clone(), rules, timing, Box::new(Arc::clone(&data)));
            let (kind, guard) = (ProtectionType::Type1, GuardKind::IpChecksum);
            let emulated = emulated.with_protection(kind, guard, Box::new(Arc::clone(&tuples)));
            let inner = Device::of_blocks(Arc::new(emulated));
            Arc::new(Drive { inner, armed: Arc::clone(&armed), data, tuples, data_offset: DATA_OFFSET })
        };
        let drives: Vec<Arc<Drive>> = (0..MEMBERS).map(drive).collect();
        let given: Vec<Option<Device>> =
            drives.iter().map(|drive| Some(Device::of_blocks(Arc::clone(drive) as Arc<dyn BlockDevice>))).collect();
        let parameters = ArrayParameters {
            name: "array".to_owned(),
            level: RaidLevel::Raid6,
            chunk_bytes: Some(CHUNK_BYTES),
            dix: match dix {
                Dix::Off => raid::Dix::Off,
                Dix::Paper => raid::Dix::Paper,
                Dix::On => raid::Dix::On,
            },
            journal: None,
            protection: None,
        };
        let opened = Array::open(env, &given, &parameters, &ArrayOpening::default());
        let (device, array) = opened.map_err(|error| LabError::invalid("array", error.to_string()))?;
        array.strike_buffers(Arc::new(InArray(Arc::clone(&armed))));
        let sectors = device.block.geometry().capacity_bytes / SECTOR_BYTES;
        let stamps = vec![0; sectors as usize];
        Ok(Rig { device, array, drives, armed, random: Random::named(seed, "trials"), stamps, next: 0 })
    }

    /// Writes everything, in whole stripes.
    fn reset(&mut self) -> Result<(), MediaError> {
        for stamp in &mut self.stamps {
            self.next += 1;
            *stamp = self.next;
        }
        self.device.block.write_at(0, &content(&self.stamps), &IoContext::default())
    }

    /// Signs that something was found.
    fn signs(&self) -> u64 {
        let statistics = self.array.statistics();
        let of_array = statistics.mismatches + statistics.redone_requests + statistics.rewritten_columns;
        of_array + statistics.recovered_reads + self.armed.lock().drive_errors
    }

    /// Reads sectors as a caller who verifies tuples where there are some. `strike` changes the data on their way.
    fn read(&self, sectors: std::ops::Range<usize>, strikes: bool) -> Result<Vec<u8>, MediaError> {
        let at = sectors.start as u64 * SECTOR_BYTES;
        let mut data = vec![0; sectors.len() * SECTOR_BYTES as usize];
        let Some(format) = self.device.block.capabilities().protection else {
            self.device.block.read_at(at, &mut data, &IoContext::default())?;
            if strikes {
                self.armed.lock().flip_data(&mut data);
            }
            return Ok(data);
        };
        let mut tuples = vec![0; format.tuples_bytes(data.len() as u64) as usize];
        self.device.block.read_protected_at(at, &mut data, &mut tuples, &IoContext::default())?;
        if strikes {
            self.armed.lock().flip_data(&mut data);
        }
        let verified = format.verify(at, None, [&data[..]], &tuples);
        verified.map_err(|mismatch| mismatch.at("caller", varve::media::Operation::Read))?;
        Ok(data)
    }

    /// Writes new data to sectors, with tuples where the array takes some. `strikes` changes the data on their way.
    fn write(&mut self, sectors: std::ops::Range<usize>, strikes: bool) -> Result<(), MediaError> {
        self.next += 1;
        let mut data = content(&vec![self.next; sectors.len()]);
        let at = sectors.start as u64 * SECTOR_BYTES;
        let format = self.device.block.capabilities().protection;
        let mut tuples = Vec::new();
        if let Some(format) = format {
            tuples.resize(format.tuples_bytes(data.len() as u64) as usize, 0);
            format.generate(at, 0, [&data[..]], &mut tuples);
        }
        if strikes {
            self.armed.lock().flip_data(&mut data);
        }
        match format {
            Some(_) => self.device.block.write_protected_at(at, &data, &tuples, &IoContext::default())?,
            None => self.device.block.write_at(at, &data, &IoContext::default())?,
        }
        self.stamps[sectors].fill(self.next);
        Ok(())
    }

    /// Scrubs, and makes right what does not fit. Returns the stripes that did not.
    fn scrub_and_repair(&self) -> Result<u64, MediaError> {
        let report = self.array.scrub(true, &IoContext::default())?;
        Ok(report.mismatched_stripes + report.unreadable_stripes)
    }

    /// One fault. `None` if it struck nothing.
    fn trial(&mut self, fault: Fault) -> Result<Option<fn(&mut Outcomes)>, LabError> {
        self.reset()?;
        let before = self.signs();
        let request = self.random.index(self.stamps.len() / SECTORS_OF_REQUEST);
        let sectors = request * SECTORS_OF_REQUEST..(request + 1) * SECTORS_OF_REQUEST;
        let is_caller = matches!(fault, Fault::CallerWrite | Fault::CallerRead);
        let drive = Arc::clone(&self.drives[self.random.index(MEMBERS)]);
        let sector = (DATA_OFFSET / SECTOR_BYTES) + self.random.below(STRIPES * CHUNK_BYTES / SECTOR_BYTES);
        match fault {
            Fault::RottenData | Fault::RottenTuple => drive.rot(sector, fault == Fault::RottenTuple),
            Fault::StaleParity => drive.replace(sector * SECTOR_BYTES, &[0x77; SECTOR_BYTES as usize]),
            Fault::CallerWrite | Fault::CallerRead => {}
            _ => self.armed.lock().arm(fault, self.random.below(3)),
        }
        let (mut has_error, mut is_wrong) = (false, false);
        if fault.strikes_writes() {
            let before = self.stamps.clone();
            let written = self.write(sectors.clone(), is_caller);
            has_error |= written.is_err();
            if written.is_err() {
                self.stamps = before;
            }
        }
        if !self.armed.lock().disarm() && fault.strikes_writes() {
            return Ok(None);
        }
        // Everything twice: what was repaired stays so. A fault of reads strikes the first one.
        if !fault.strikes_writes()
            && !is_caller
            && !matches!(fault, Fault::RottenData | Fault::RottenTuple | Fault::StaleParity)
        {
            self.armed.lock().arm(fault, self.random.below(3));
        }
        let (mut signs, mut is_right) = (before, true);
        for pass in 0..2 {
            let all = 0..self.stamps.len();
            match self.read(all, fault == Fault::CallerRead && pass == 0) {
                Err(_) => (has_error, is_right) = (true, false),
                Ok(data) => {
                    is_right = data == content(&self.stamps);
                    // A write that was refused may have been done in part.
                    is_wrong |= !(is_right || has_error && fault.strikes_writes());
                }
            }
            if pass == 0 && !self.armed.lock().disarm() {
                return Ok(None);
            }
            signs = self.signs();
        }
        if fault == Fault::StaleParity && is_wrong {
            // It struck data: a write that was lost elsewhere.
            return Ok(None);
        }
        let is_found = has_error || signs > before || self.scrub_and_repair()? > 0;
        if is_found {
            self.scrub_and_repair()?;
        }
        is_right &= self.read(0..self.stamps.len(), false).is_ok_and(|data| data == content(&self.stamps));
        let is_consistent = self.scrub_and_repair()? == 0;
        Ok(Some(match (is_found, is_wrong, is_right && is_consistent) {
            (true, false, true) => |outcomes| outcomes.repaired += 1,
            (true, false, false) => |outcomes| outcomes.found += 1,
            (false, false, true) => |outcomes| outcomes.harmless += 1,
            _ => |outcomes| outcomes.missed += 1,
        }))
    }
}

fn cell(env: &Env, dix: Dix, fault: Fault, faults: u64, seed: u64) -> Result<Outcomes, LabError> {
    let mut rig = Rig::new(env, dix, seed)?;
    let mut outcomes = Outcomes::default();
    let mut done = 0;
    while done < faults {
        if let Some(count) = rig.trial(fault)? {
            count(&mut outcomes);
            done += 1;
        }
    }
    Ok(outcomes)
}

fn run(run: &Run<'_>) -> Result<Report, LabError> {
    let mut report = run.report();
    let faults = run.scale.of(FAULTS);
    report.condition("faults of a cell", faults);
    report.condition("array", "RAID 6 of 4+2, chunks of 4 KiB, type 1, Internet checksum, 4 KiB requests");
    run.settings.progress.begin("striking", Some(3 * Fault::ALL.len() as u64));
    let mut done = 0;
    for (fault, name) in Fault::ALL {
        for dix in [Dix::Off, Dix::Paper, Dix::On] {
            done += 1;
            run.settings.progress.advance(done);
            if dix == Dix::Off && fault.strikes_tuples_in_flight() {
                continue;
            }
            let seed = run.settings.seed;
            let outcomes = simulate(seed, move |env| cell(env, dix, fault, faults, seed))?;
            let note =
                format!("found {}, missed {}, without effect {}", outcomes.found, outcomes.missed, outcomes.harmless);
            let repaired = outcomes.repaired as f64 / faults as f64 * 100.0;
            report.rows.push(Row::new(name, format!("{}, repaired", dix.word()), "%", repaired).with_note(note));
            let missed = outcomes.missed as f64 / faults as f64 * 100.0;
            report.rows.push(Row::new(name, format!("{}, missed", dix.word()), "%", missed));
        }
    }
    run.settings.progress.end();
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(dix: Dix, fault: Fault) -> Outcomes {
        simulate(1, move |env| cell(env, dix, fault, 60, 1)).unwrap()
    }

    #[test]
    fn detects_faults_that_guards_and_reference_tags_can_see() {
        for (fault, name) in Fault::ALL {
            let on = outcomes(Dix::On, fault);
            match fault {
                // Old data have a tuple that fits; parity shows them to a scrub that knows which of the two to believe.
                Fault::LostWrite | Fault::StaleParity => {}
                // A misdirected write leaves old data where it should have been.
                Fault::MisdirectedWrite => assert!(on.missed < 60, "{name}: {on:?}"),
                _ => assert_eq!(on.missed, 0, "{name}: {on:?}"),
            }
            // In the drive and on the medium a drive without an array's help finds as much.
            let is_in_flight =
                matches!(fault, Fault::CallerWrite | Fault::BuiltPlace | Fault::SentData | Fault::SentPlace);
            if is_in_flight || matches!(fault, Fault::BuiltData | Fault::ReturnedData | Fault::ArrivedData) {
                // The scrub finds and repairs those that strike parity.
                assert!(outcomes(Dix::Off, fault).missed > 10, "{name}");
            }
        }
        assert_eq!(outcomes(Dix::Paper, Fault::BuiltPlace).missed, 0);
    }
}
