//! The contract of zones: what may be written where, and what the device says about it.

mod commands;
mod walk;
mod writes;

use super::block_device::BlockDeviceCheck;
use super::subject::{context, pattern};
use super::{Clause, Violation};
use crate::buffer::AlignedBuffer;
use crate::device::{BlockDevice, BlockDeviceExt, Device};
use crate::error::{MediaError, MediaErrorKind};
use crate::zones::{ZoneCondition, ZoneControl, ZoneDescription, ZoneGeometry, ZoneId, ZoneType};
use std::sync::Arc;
use varve_env::Env;

/// Bytes of a zone that the checks fill; longer ones are finished by command.
const FILLED_BYTES_MAX: u64 = 4 << 20;
/// Sectors a zone must be able to hold.
const ZONE_SECTORS_MIN: u64 = 24;
/// Zones the checks use, when there are as many.
const ZONES_MAX: usize = 8;

const REFUSED: MediaErrorKind = MediaErrorKind::InvalidRequest;

/// Checks the contracts of [`BlockDevice`] and [`ZoneControl`] on devices with zones that `make` makes, one
/// for each check: at least four sequential zones that can hold 24 sectors. The zones the checks use, the
/// first of each type, and zones that are active, which would count for limits, are reset first, so that a real device
/// can be checked, again and again; what is on it is lost. Zones that must be written in order and zones that may be
/// written anywhere are both checked where there are some.
///
/// # Errors
/// The first clause that is broken.
pub fn check_zoned_device(make: &dyn Fn(&Env) -> Device, options: &BlockDeviceCheck) -> Result<(), Violation> {
    let checks: [Check; 15] = [
        commands::description,
        writes::zeros_where_nothing_was_written,
        writes::writes_at_the_pointer,
        writes::refuses_other_writes,
        writes::one_batch,
        commands::conditions,
        commands::filling,
        commands::open_limit,
        commands::active_limit,
        commands::resets,
        writes::appends,
        writes::conventional_zones,
        writes::preferred_zones,
        commands::counters,
        walk::random_walk,
    ];
    for simulated in [false, true] {
        let env = || if simulated { Env::sim(options.seed) } else { Env::real() };
        for check in checks {
            let env = env();
            check(&Zones::new(make(&env), options)?)?;
        }
        let env = env();
        several_threads(&env, make(&env), options)?;
    }
    let hash = || {
        let env = Env::sim(options.seed);
        several_threads(&env, make(&env), options).map(|()| env.event_hash())
    };
    let (first, second) = (hash()?, hash()?);
    Clause("repeats by seed").require(first == second, || {
        format!("the same simulation ended with the event hash {first:#x} and then with {second:#x}")
    })
}

type Check = fn(&Zones) -> Result<(), Violation>;

/// A device with zones under check.
struct Zones {
    device: Device,
    control: Arc<dyn ZoneControl>,
    geometry: ZoneGeometry,
    sector: u64,
    seed: u64,
    steps: u32,
    /// Zones to write in order, all empty; none on a device of preferred zones.
    required: Vec<ZoneId>,
    /// Zones to write anywhere that have a pointer.
    preferred: Vec<ZoneId>,
    conventional: Vec<ZoneId>,
}

impl Zones {
    fn new(device: Device, options: &BlockDeviceCheck) -> Result<Self, Violation> {
        let clause = Clause("scope of the suite");
        let (Some(geometry), Some(control)) = (device.block.capabilities().zones.clone(), device.zones.clone()) else {
            return clause.broken("the device has no zones");
        };
        let sector = u64::from(device.block.geometry().sector_bytes.max(1));
        let all = clause.succeed("a report", control.report(ZoneId(0), u32::MAX, &context()))?;
        let of_type = |zone_type| {
            let zones = (0..).map(ZoneId).zip(&all).filter(move |(_, description)| description.zone_type == zone_type);
            zones.map(|(zone, _)| zone).take(ZONES_MAX).collect::<Vec<_>>()
        };
        let zones = Zones {
            required: of_type(ZoneType::SequentialWriteRequired),
            preferred: of_type(ZoneType::SequentialWritePreferred),
            conventional: of_type(ZoneType::Conventional),
            geometry,
            control,
            sector,
            seed: options.seed,
            steps: options.steps,
            device,
        };
        let sequential = zones.required.len().max(zones.preferred.len());
        clause.require(sequential >= 4 && zones.geometry.zone_capacity_bytes >= ZONE_SECTORS_MIN * sector, || {
            format!("the suite needs four zones of {ZONE_SECTORS_MIN} sectors, found {:?}", zones.geometry)
        })?;
        let active = (0..).map(ZoneId).zip(&all).filter(|(_, description)| description.condition.is_active());
        for zone in zones.required.iter().chain(&zones.preferred).copied().chain(active.map(|(zone, _)| zone)) {
            clause.succeed("a reset", zones.control.reset(zone, &context()))?;
        }
        Ok(zones)
    }

    fn block(&self) -> &dyn BlockDevice {
        &*self.device.block
    }

    fn buffer(&self, data: &[u8]) -> AlignedBuffer {
        AlignedBuffer::copy_of(data, self.block().capabilities().buffer_alignment_bytes.max(1) as usize)
    }

    fn describe(&self, clause: Clause, zone: ZoneId) -> Result<ZoneDescription, Violation> {
        let reported = clause.succeed("a report of one zone", self.control.report(zone, 1, &context()))?;
        match <[ZoneDescription; 1]>::try_from(reported) {
            Ok([description]) => Ok(description),
            Err(other) => clause.broken(format!("a report of zone {zone} has {} zones, expected 1", other.len())),
        }
    }

    fn start(&self, zone: ZoneId) -> u64 {
        self.geometry.start_bytes(zone)
    }

    fn write(&self, clause: Clause, offset_bytes: u64, data: &[u8]) -> Result<(), Violation> {
        let result = self.block().write_at(offset_bytes, &self.buffer(data), &context());
        clause.succeed(&format!("a write of {} bytes at {offset_bytes}", data.len()), result)
    }

    /// A write that must be refused.
    fn refuse(&self, clause: Clause, offset_bytes: u64, sectors: u64) -> Result<(), Violation> {
        let data = self.buffer(&vec![0xBB; (sectors * self.sector) as usize]);
        let result = self.block().write_at(offset_bytes, &data, &context());
        clause.fail(&format!("a write of {sectors} sectors at {offset_bytes}"), REFUSED, result)
    }

    fn expect(&self, clause: Clause, offset_bytes: u64, expected: &[u8]) -> Result<(), Violation> {
        let mut found = self.buffer(&vec![0xEE; expected.len()]);
        let result = self.block().read_at(offset_bytes, &mut found, &context());
        clause.succeed(&format!("a read of {} bytes at {offset_bytes}", expected.len()), result)?;
        clause.same(&format!("{} bytes at {offset_bytes}", expected.len()), expected, &found)
    }

    fn expect_zeros(&self, clause: Clause, offset_bytes: u64, sectors: u64) -> Result<(), Violation> {
        self.expect(clause, offset_bytes, &vec![0; (sectors * self.sector) as usize])
    }

    /// The zone must be in `condition`, its pointer `written_bytes` from its start where it has one.
    fn expect_state(
        &self,
        clause: Clause,
        zone: ZoneId,
        condition: ZoneCondition,
        written_bytes: u64,
    ) -> Result<(), Violation> {
        let found = self.describe(clause, zone)?;
        let points = (condition.is_active() || condition == ZoneCondition::Empty) && !found.non_sequential;
        let pointer = found.start_bytes + written_bytes;
        let fits = found.condition == condition && (!points || found.write_pointer_bytes == pointer);
        clause.require(fits, || {
            format!("zone {zone}: expected {condition}, the pointer at {pointer} if it has one, found {found:?}")
        })
    }

    fn command(&self, clause: Clause, name: &str, zone: ZoneId) -> Result<(), Violation> {
        clause.succeed(&format!("the command to {name} zone {zone}"), self.try_command(name, zone))
    }

    fn try_command(&self, name: &str, zone: ZoneId) -> Result<(), MediaError> {
        match name {
            "open" => self.control.open(zone, &context()),
            "close" => self.control.close(zone, &context()),
            "finish" => self.control.finish(zone, &context()),
            _ => self.control.reset(zone, &context()),
        }
    }

    /// Makes a zone full: by writing, where that does not take too long.
    fn fill(&self, clause: Clause, zone: ZoneId) -> Result<(), Violation> {
        let description = self.describe(clause, zone)?;
        let rest = description.end_bytes() - description.write_pointer_bytes;
        if rest > FILLED_BYTES_MAX {
            return self.command(clause, "finish", zone);
        }
        self.write(clause, description.write_pointer_bytes, &pattern(u64::from(zone.0), rest as usize))
    }
}

/// Threads with zones of their own, and all of them appending to a shared one.
fn several_threads(env: &Env, device: Device, options: &BlockDeviceCheck) -> Result<(), Violation> {
    let clause = Clause("serves several threads");
    const ROUNDS: u64 = 5;
    let zones = Arc::new(Zones::new(device, options)?);
    if zones.required.is_empty() {
        return Ok(());
    }
    let threads = (zones.required.len() as u64 - 1).min(3);
    let length = zones.sector as usize;
    let handles: Vec<_> = (0..threads)
        .map(|number| {
            let zones = zones.clone();
            env.spawn("zones", move || {
                let (shared, own) = (zones.required[0], zones.required[number as usize + 1]);
                let mut appended = Vec::new();
                for round in 0..ROUNDS {
                    let salt = number * ROUNDS + round;
                    let data = pattern(salt, length);
                    let at = zones.start(own) + round * zones.sector;
                    zones.write(clause, at, &data)?;
                    zones.expect(clause, at, &data)?;
                    let at = zones.control.append(shared, &zones.buffer(&data), &context());
                    appended.push((clause.succeed("an append", at)?, salt));
                    if round % 2 == number % 2 {
                        clause.succeed("a sync", zones.block().sync(&context()))?;
                    }
                }
                Ok(appended)
            })
        })
        .collect();
    let mut appended = Vec::new();
    for handle in handles {
        appended.extend(handle.join().unwrap_or_else(|_| clause.broken("a thread panicked"))?);
    }
    appended.sort_unstable();
    let start = zones.start(zones.required[0]);
    for (index, (at, salt)) in appended.iter().enumerate() {
        let expected = start + index as u64 * zones.sector;
        clause.require(*at == expected, || format!("an append went to {at}, expected one at {expected}"))?;
        zones.expect(clause, *at, &pattern(*salt, length))?;
    }
    Ok(())
}
