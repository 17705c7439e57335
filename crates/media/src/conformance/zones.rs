//! The contract of zones: what may be written where, and what the device says about it.

use super::block_device::BlockDeviceCheck;
use super::subject::{context, pattern};
use super::{Clause, Violation};
use crate::buffer::AlignedBuffer;
use crate::context::{IoClass, IoContext};
use crate::device::{BlockDevice, BlockDeviceExt, Device};
use crate::error::{MediaError, MediaErrorKind};
use crate::request::Request;
use crate::zones::{ZoneCondition, ZoneControl, ZoneDescription, ZoneGeometry, ZoneId, ZoneRefusal, ZoneType};
use std::io::IoSlice;
use std::sync::Arc;
use varve_env::{Env, Random};

/// Bytes of a zone that the checks fill; longer ones are finished by command.
const FILLED_BYTES_MAX: u64 = 4 << 20;
/// Sectors a zone must be able to hold.
const ZONE_SECTORS_MIN: u64 = 24;
/// Zones the checks use, when there are as many.
const ZONES_MAX: usize = 8;

const REFUSED: MediaErrorKind = MediaErrorKind::InvalidRequest;

/// Checks the contracts of [`BlockDevice`] and [`ZoneControl`] on devices with zones that `make` makes, one
/// for each check: at least four sequential zones that can hold 24 sectors. The zones the checks use, the
/// first of each type, are reset first, so that a real device can be checked; what is on it is lost. Zones that
/// must be written in order and zones that may be written anywhere are both checked where there are some.
///
/// # Errors
/// The first clause that is broken.
pub fn check_zoned_device(make: &dyn Fn(&Env) -> Device, options: &BlockDeviceCheck) -> Result<(), Violation> {
    let checks: [Check; 15] = [
        description,
        zeros_where_nothing_was_written,
        writes_at_the_pointer,
        refuses_other_writes,
        one_batch,
        conditions,
        filling,
        open_limit,
        active_limit,
        resets,
        appends,
        conventional_zones,
        preferred_zones,
        counters,
        random_walk,
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
        for &zone in zones.required.iter().chain(&zones.preferred) {
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
        let points = condition.is_active() || condition == ZoneCondition::Empty;
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

fn description(zones: &Zones) -> Result<(), Violation> {
    let clause = Clause("describes its zones");
    let geometry = &zones.geometry;
    let capacity_bytes = zones.block().geometry().capacity_bytes;
    let last_starts = geometry.start_bytes(ZoneId(geometry.zone_count.saturating_sub(1)));
    clause.require(capacity_bytes > last_starts && capacity_bytes <= geometry.address_bytes(), || {
        format!("zones {geometry:?} do not fit a device of {capacity_bytes} bytes")
    })?;
    let physical = u64::from(zones.block().geometry().physical_sector_bytes);
    for bytes in [geometry.zone_bytes, geometry.zone_capacity_bytes] {
        clause.require(bytes > 0 && bytes.is_multiple_of(physical), || {
            format!("zones of {bytes} bytes are not whole physical sectors of {physical}")
        })?;
    }
    let all = clause.succeed("a report", zones.control.report(ZoneId(0), u32::MAX, &context()))?;
    clause.require(all.len() == geometry.zone_count as usize, || {
        format!("a report of everything has {} of {} zones", all.len(), geometry.zone_count)
    })?;
    for (zone, found) in (0..).map(ZoneId).zip(&all) {
        let leading = zone.0 < geometry.conventional_zones;
        let is_conventional = found.zone_type == ZoneType::Conventional;
        let fits = found.start_bytes == geometry.start_bytes(zone)
            && found.length_bytes <= geometry.zone_bytes
            && (is_conventional || found.capacity_bytes <= geometry.zone_capacity_bytes)
            && found.capacity_bytes <= found.length_bytes
            && (is_conventional || (!leading && found.zone_type == geometry.sequential_type))
            && (!is_conventional || found.condition == ZoneCondition::NotWritePointer);
        clause.require(fits, || format!("zone {zone} is {found:?}, the geometry says {geometry:?}"))?;
    }
    let first = ZoneId(geometry.zone_count - 3);
    let last = clause.succeed("a report beyond the last zone", zones.control.report(first, 9, &context()))?;
    clause.require(last == all[first.0 as usize..], || format!("a report of the last three zones has {last:?}"))?;
    let missing = ZoneId(geometry.zone_count);
    clause.fail("a report from behind the last zone", REFUSED, zones.control.report(missing, 1, &context()))?;
    for name in ["open", "close", "finish", "reset"] {
        clause.fail(
            &format!("the command to {name} a zone behind the last"),
            REFUSED,
            zones.try_command(name, missing),
        )?;
    }
    let data = zones.buffer(&vec![0; zones.sector as usize]);
    clause.fail("an append behind the last zone", REFUSED, zones.control.append(missing, &data, &context()))?;
    let facets = (zones.device.zones.is_some(), zones.device.tracks.is_some());
    clause.require(facets == (true, zones.block().capabilities().tracks.is_some()), || {
        format!("facets (zones, tracks) are {facets:?}, the capabilities say otherwise")
    })
}

fn zeros_where_nothing_was_written(zones: &Zones) -> Result<(), Violation> {
    let clause = Clause("reads zeros where nothing was written");
    let sector = zones.sector;
    for &zone in zones.required.iter().chain(&zones.preferred).take(4) {
        let start = zones.start(zone);
        zones.expect_zeros(clause, start, ZONE_SECTORS_MIN)?;
        let data = pattern(u64::from(zone.0), 3 * sector as usize);
        zones.write(clause, start, &data)?;
        // Across the pointer in one read.
        let mut expected = data.clone();
        expected.resize(10 * sector as usize, 0);
        zones.expect(clause, start, &expected)?;
        let end = zones.describe(clause, zone)?.end_bytes();
        zones.expect_zeros(clause, end - 4 * sector, 4)?;
        // Behind the capacity, if the zone goes on there.
        if end + 2 * sector <= zones.geometry.range(zone).end {
            zones.expect_zeros(clause, end - sector, 3)?;
        }
        zones.command(clause, "finish", zone)?;
        zones.expect(clause, start, &expected)?;
        zones.expect_zeros(clause, end - 4 * sector, 4)?;
    }
    Ok(())
}

fn writes_at_the_pointer(zones: &Zones) -> Result<(), Violation> {
    let clause = Clause("a write at the pointer is done and moves it");
    for &zone in &zones.required {
        let mut random = Random::named(zones.seed, "sequential");
        let start = zones.start(zone);
        let limit = zones.geometry.zone_capacity_bytes.min(64 * zones.sector);
        let mut written = Vec::new();
        while (written.len() as u64) < limit {
            let room = (limit - written.len() as u64) / zones.sector;
            let data = pattern(room, ((1 + random.below(room.min(9))) * zones.sector) as usize);
            zones.write(clause, start + written.len() as u64, &data)?;
            written.extend_from_slice(&data);
            let is_full = written.len() as u64 == zones.geometry.zone_capacity_bytes;
            let condition = if is_full { ZoneCondition::Full } else { ZoneCondition::ImplicitlyOpened };
            zones.expect_state(clause, zone, condition, written.len() as u64)?;
            if random.chance(1, 3) {
                clause.succeed("a sync", zones.block().sync(&context()))?;
            }
            zones.expect(clause, start, &written)?;
        }
        zones.fill(clause, zone)?;
        zones.expect(clause, start, &written)?;
    }
    Ok(())
}

fn refuses_other_writes(zones: &Zones) -> Result<(), Violation> {
    let clause = Clause("refuses writes beside the pointer and changes nothing");
    let Some(&zone) = zones.required.first() else { return Ok(()) };
    let (sector, start) = (zones.sector, zones.start(zone));
    let length = zones.geometry.zone_bytes;
    zones.refuse(clause, start + sector, 1)?;
    zones.expect_state(clause, zone, ZoneCondition::Empty, 0)?;
    let data = pattern(3, 8 * sector as usize);
    zones.write(clause, start, &data)?;
    let pointer = start + 8 * sector;
    for at in [start, pointer - sector, pointer + sector, start + length - sector] {
        zones.refuse(clause, at, 1)?;
    }
    zones.refuse(clause, pointer - sector, 2)?;
    // From before the zone into it.
    if start >= sector {
        zones.refuse(clause, start - sector, 2)?;
    }
    zones.expect_state(clause, zone, ZoneCondition::ImplicitlyOpened, 8 * sector)?;
    zones.expect(clause, start, &data)?;
    zones.expect_zeros(clause, pointer, 4)?;
    // Beyond the capacity, into the next zone or not.
    let capacity = zones.geometry.zone_capacity_bytes;
    if capacity <= FILLED_BYTES_MAX {
        let rest = capacity - 8 * sector;
        zones.refuse(clause, pointer, rest / sector + 1)?;
        zones.expect_state(clause, zone, ZoneCondition::ImplicitlyOpened, 8 * sector)?;
        zones.write(clause, pointer, &pattern(4, rest as usize))?;
        zones.expect_state(clause, zone, ZoneCondition::Full, capacity)?;
        zones.expect(clause, start, &data)?;
        zones.expect(clause, pointer, &pattern(4, rest as usize))?;
    } else {
        zones.command(clause, "finish", zone)?;
    }
    for at in [start, pointer, start + capacity - sector] {
        zones.refuse(clause, at, 1)?;
    }
    let discard = zones.block().discard_at(start, sector, &context());
    clause.fail("a discard in a sequential zone", REFUSED, discard)?;
    // Not whole sectors.
    let other = zones.required[1];
    let bytes = zones.buffer(&vec![1; sector as usize / 2]);
    if sector > 1 {
        clause.fail("half a sector", REFUSED, zones.block().write_at(zones.start(other), &bytes, &context()))?;
        clause.fail("an append of half a sector", REFUSED, zones.control.append(other, &bytes, &context()))?;
    }
    zones.expect_state(clause, other, ZoneCondition::Empty, 0)
}

fn one_batch(zones: &Zones) -> Result<(), Violation> {
    let clause = Clause("judges the writes of a batch in their order");
    let (Some(&zone), Some(&other)) = (zones.required.first(), zones.required.get(1)) else { return Ok(()) };
    let (sector, start) = (zones.sector, zones.start(zone));
    let data: Vec<AlignedBuffer> = (0..6).map(|salt| zones.buffer(&pattern(salt, 2 * sector as usize))).collect();
    let slices: Vec<[IoSlice<'_>; 1]> = data.iter().map(|data| [IoSlice::new(data)]).collect();
    let at = |index: u64| start + index * 2 * sector;
    let mut batch = [
        Request::write(at(0), &slices[0]),
        Request::write(at(1), &slices[1]),
        Request::write(zones.start(other), &slices[5]),
        Request::write(at(3), &slices[3]),
        Request::write(at(2), &slices[2]),
    ];
    let result = zones.block().execute(&mut batch, &context());
    clause.fail("a batch with a write beyond the pointer", REFUSED, result)?;
    let outcomes = batch.each_ref().map(|request| request.outcome.is_ok());
    clause.require(outcomes == [true, true, true, false, true], || format!("the requests ended so: {outcomes:?}"))?;
    for (index, data) in data.iter().enumerate().take(3) {
        zones.expect(clause, at(index as u64), data)?;
    }
    zones.expect_zeros(clause, at(3), 2)?;
    zones.expect(clause, zones.start(other), &data[5])?;
    zones.expect_state(clause, zone, ZoneCondition::ImplicitlyOpened, 6 * sector)
}

fn conditions(zones: &Zones) -> Result<(), Violation> {
    use ZoneCondition::{Closed, Empty, ExplicitlyOpened, Full, ImplicitlyOpened};
    let clause = Clause("commands change conditions");
    let Some(&zone) = zones.required.first().or(zones.preferred.first()) else { return Ok(()) };
    let (sector, start) = (zones.sector, zones.start(zone));
    let mut written = 0;
    let data = pattern(7, sector as usize);
    for (step, expected) in [
        ("close?", Empty),
        ("reset", Empty),
        ("open", ExplicitlyOpened),
        ("open", ExplicitlyOpened),
        ("close", Empty),
        ("write", ImplicitlyOpened),
        ("open", ExplicitlyOpened),
        ("write", ExplicitlyOpened),
        ("close", Closed),
        ("close", Closed),
        ("write", ImplicitlyOpened),
        ("close", Closed),
        ("open", ExplicitlyOpened),
        ("reset", Empty),
        ("write", ImplicitlyOpened),
        ("reset", Empty),
        ("write", ImplicitlyOpened),
        ("close", Closed),
        ("reset", Empty),
        ("finish", Full),
        ("finish", Full),
        ("open?", Full),
        ("close?", Full),
        ("reset", Empty),
        ("write", ImplicitlyOpened),
        ("finish", Full),
        ("reset", Empty),
        ("open", ExplicitlyOpened),
        ("finish", Full),
        ("reset", Empty),
        ("write", ImplicitlyOpened),
        ("close", Closed),
        ("finish", Full),
        ("reset", Empty),
    ] {
        match step {
            "write" => {
                zones.write(clause, start + written, &data)?;
                written += sector;
            }
            // Devices differ in whether they refuse what would change nothing.
            "close?" | "open?" => {
                if let Err(error) = zones.try_command(step.trim_end_matches('?'), zone) {
                    clause.require(error.kind() == REFUSED, || format!("expected kind {REFUSED:?}, found: {error}"))?;
                }
            }
            step => zones.command(clause, step, zone)?,
        }
        written = if step == "reset" { 0 } else { written };
        zones.expect_state(clause, zone, expected, written)?;
    }
    Ok(())
}

fn filling(zones: &Zones) -> Result<(), Violation> {
    let clause = Clause("a zone written to its end is full");
    for &zone in zones.required.iter().chain(&zones.preferred).take(3) {
        zones.command(clause, "open", zone)?;
        zones.write(clause, zones.start(zone), &pattern(1, zones.sector as usize))?;
        zones.fill(clause, zone)?;
        zones.expect_state(clause, zone, ZoneCondition::Full, 0)?;
        zones.expect(clause, zones.start(zone), &pattern(1, zones.sector as usize))?;
    }
    Ok(())
}

/// Sequential zones beyond a limit, if the device has a limit and as many zones that are not too long.
fn beyond(zones: &Zones, limit: u32) -> Option<Vec<ZoneId>> {
    let first = zones.required.first()?.0;
    let is_required = |zone: &ZoneId| zones.geometry.zone_type(*zone) == ZoneType::SequentialWriteRequired;
    let found: Vec<ZoneId> = (first..zones.geometry.zone_count).map(ZoneId).filter(is_required).collect();
    let wanted = limit as usize + 2;
    (limit > 0 && found.len() >= wanted).then(|| found[..wanted].to_vec())
}

fn open_limit(zones: &Zones) -> Result<(), Violation> {
    let clause = Clause("holds its limit of open zones");
    let limit = zones.geometry.open_zones_max;
    let Some(found) = beyond(zones, limit) else { return Ok(()) };
    for &zone in &found {
        zones.command(clause, "reset", zone)?;
    }
    let data = zones.buffer(&pattern(1, zones.sector as usize));
    let (within, over) = found.split_at(limit as usize);
    for &zone in within {
        zones.command(clause, "open", zone)?;
    }
    let refused = [
        zones.block().write_at(zones.start(over[0]), &data, &context()),
        zones.control.open(over[0], &context()),
        zones.control.append(over[0], &data, &context()).map(drop),
    ];
    for result in refused {
        clause.fail("opening one zone more than can be explicitly open", REFUSED, result)?;
    }
    zones.expect_state(clause, over[0], ZoneCondition::Empty, 0)?;
    zones.command(clause, "close", within[0])?;
    zones.write(clause, zones.start(over[0]), &data)?;
    // Room for one is made by closing what was implicitly opened, unless the zone that would be closed stays active
    // and there may be no more.
    let result = zones.control.open(over[1], &context());
    let active_zones_max = zones.geometry.active_zones_max;
    if active_zones_max == 0 || active_zones_max > limit {
        clause.succeed("opening a zone while another is implicitly open", result)?;
        zones.expect_state(clause, over[0], ZoneCondition::Closed, zones.sector)?;
    } else {
        clause.fail("activating one zone too many", REFUSED, result)?;
    }
    Ok(())
}

fn active_limit(zones: &Zones) -> Result<(), Violation> {
    let clause = Clause("holds its limit of active zones");
    let limit = zones.geometry.active_zones_max;
    let Some(found) = beyond(zones, limit) else { return Ok(()) };
    for &zone in &found {
        zones.command(clause, "reset", zone)?;
    }
    let data = zones.buffer(&pattern(1, zones.sector as usize));
    let (within, over) = found.split_at(limit as usize);
    for &zone in within {
        zones.write(clause, zones.start(zone), &data)?;
        zones.command(clause, "close", zone)?;
    }
    for result in [
        zones.block().write_at(zones.start(over[0]), &data, &context()),
        zones.control.open(over[0], &context()),
        zones.control.append(over[0], &data, &context()).map(drop),
    ] {
        if let Err(MediaError::Zone { refusal, .. }) = &result {
            let expected = ZoneRefusal::ActiveLimit { limit };
            clause.require(*refusal == expected, || format!("expected '{expected}', found '{refusal}'"))?;
        }
        clause.fail("activating one zone more than can be active", REFUSED, result)?;
    }
    zones.expect_state(clause, over[0], ZoneCondition::Empty, 0)?;
    // An active zone can still be written; room comes from a finish or a reset.
    zones.write(clause, zones.start(within[1]) + zones.sector, &data)?;
    zones.command(clause, "finish", within[0])?;
    zones.write(clause, zones.start(over[0]), &data)?;
    zones.command(clause, "reset", within[1])?;
    zones.write(clause, zones.start(over[1]), &data)
}

fn resets(zones: &Zones) -> Result<(), Violation> {
    let clause = Clause("a reset empties a zone");
    let sector = zones.sector;
    let &zone = zones.required.first().or(zones.preferred.first()).unwrap_or(&ZoneId(0));
    let neighbour = ZoneId(zone.0 + 1);
    let start = zones.start(zone);
    let kept = pattern(1, 4 * sector as usize);
    zones.write(clause, zones.start(neighbour), &kept)?;
    for round in 0..3 {
        let data = pattern(10 + round, (9 * sector - round * 3 * sector) as usize);
        zones.write(clause, start, &data)?;
        zones.expect(clause, start, &data)?;
        if round == 1 {
            zones.command(clause, "finish", zone)?;
        }
        // What was there before must not show through.
        zones.expect_zeros(clause, start + data.len() as u64, 9)?;
        zones.command(clause, "reset", zone)?;
        zones.expect_state(clause, zone, ZoneCondition::Empty, 0)?;
        zones.expect_zeros(clause, start, ZONE_SECTORS_MIN)?;
    }
    zones.expect(clause, zones.start(neighbour), &kept)
}

fn appends(zones: &Zones) -> Result<(), Violation> {
    let clause = Clause("an append goes to the pointer");
    let sector = zones.sector;
    let data = zones.buffer(&pattern(5, 2 * sector as usize));
    for &zone in zones.preferred.first().iter().chain(&zones.conventional.first()) {
        let result = zones.control.append(*zone, &data, &context());
        clause.fail("an append to a zone that may be written anywhere", REFUSED, result)?;
    }
    let Some(&zone) = zones.required.first() else { return Ok(()) };
    let start = zones.start(zone);
    zones.write(clause, start, &data)?;
    for round in 1..6 {
        let data = zones.buffer(&pattern(round, 2 * sector as usize));
        let at = clause.succeed("an append", zones.control.append(zone, &data, &context()))?;
        clause.require(at == start + round * 2 * sector, || {
            format!("append {round} went to {at}, the zone is at {start}")
        })?;
        zones.expect(clause, at, &data)?;
    }
    zones.expect_state(clause, zone, ZoneCondition::ImplicitlyOpened, 12 * sector)?;
    let limit = zones.geometry.append_bytes_max;
    let too_long = if limit > 0 { limit + sector } else { zones.geometry.zone_capacity_bytes };
    if too_long <= FILLED_BYTES_MAX {
        let data = zones.buffer(&vec![1; too_long as usize]);
        clause.fail("an append that does not fit", REFUSED, zones.control.append(zone, &data, &context()))?;
    }
    zones.command(clause, "finish", zone)?;
    clause.fail("an append to a full zone", REFUSED, zones.control.append(zone, &data, &context()))?;
    zones.expect(clause, start, &data)
}

fn conventional_zones(zones: &Zones) -> Result<(), Violation> {
    let clause = Clause("conventional zones are written as any disk");
    let sector = zones.sector;
    let Some(&zone) = zones.conventional.first() else { return Ok(()) };
    for name in ["open", "close", "finish", "reset"] {
        clause.fail(&format!("the command to {name} a conventional zone"), REFUSED, zones.try_command(name, zone))?;
    }
    let start = zones.start(zone);
    let mut random = Random::named(zones.seed, "conventional");
    let mut model = vec![0; (64 * sector).min(zones.geometry.zone_bytes) as usize];
    zones.write(clause, start, &model)?;
    for step in 0..40 {
        let sectors = model.len() as u64 / sector;
        let first = random.below(sectors);
        let count = (1 + random.below(8)).min(sectors - first);
        let bytes = (first * sector) as usize..((first + count) * sector) as usize;
        if zones.block().capabilities().discard && random.chance(1, 4) {
            let result = zones.block().discard_at(start + first * sector, count * sector, &context());
            clause.succeed("a discard in a conventional zone", result)?;
            model[bytes].fill(0);
        } else {
            let data = pattern(step, bytes.len());
            zones.write(clause, start + first * sector, &data)?;
            model[bytes].copy_from_slice(&data);
        }
        zones.expect(clause, start, &model)?;
    }
    zones.expect_state(clause, zone, ZoneCondition::NotWritePointer, 0)?;
    // From one conventional zone into the next, and not from the last into a zone to be written in order.
    if let Some(&next) = zones.conventional.get(1).filter(|next| next.0 == zone.0 + 1) {
        let data = pattern(99, 4 * sector as usize);
        zones.write(clause, zones.start(next) - 2 * sector, &data)?;
        zones.expect(clause, zones.start(next) - 2 * sector, &data)?;
    }
    match zones.required.first() {
        Some(&first) if first.0 > 0 => zones.refuse(clause, zones.start(first) - sector, 2),
        _ => Ok(()),
    }
}

fn preferred_zones(zones: &Zones) -> Result<(), Violation> {
    let clause = Clause("preferred zones are written anywhere and their pointer follows");
    let sector = zones.sector;
    for &zone in &zones.preferred {
        let start = zones.start(zone);
        let mut model = vec![0; ZONE_SECTORS_MIN as usize * sector as usize];
        let mut highest = 0;
        for (salt, first, count) in [(1, 4, 2), (2, 0, 3), (3, 9, 1), (4, 8, 2), (5, 20, 3)] {
            let data = pattern(salt, (count * sector) as usize);
            zones.write(clause, start + first * sector, &data)?;
            model[(first * sector) as usize..((first + count) * sector) as usize].copy_from_slice(&data);
            highest = highest.max((first + count) * sector);
            zones.expect_state(clause, zone, ZoneCondition::ImplicitlyOpened, highest)?;
            zones.expect(clause, start, &model)?;
        }
        zones.command(clause, "finish", zone)?;
        zones.write(clause, start + sector, &vec![9; sector as usize])?;
        zones.expect_state(clause, zone, ZoneCondition::Full, 0)?;
        zones.command(clause, "reset", zone)?;
        zones.expect_zeros(clause, start, ZONE_SECTORS_MIN)?;
        zones.write(clause, start + 22 * sector, &vec![9; sector as usize])?;
        zones.expect_zeros(clause, start, 22)?;
    }
    Ok(())
}

fn counters(zones: &Zones) -> Result<(), Violation> {
    let clause = Clause("counts what it did");
    let Some(&zone) = zones.required.first() else { return Ok(()) };
    let before = zones.block().counters();
    let data = zones.buffer(&pattern(1, 3 * zones.sector as usize));
    let log = IoContext::of(IoClass::Log);
    clause.succeed("a write", zones.block().write_at(zones.start(zone), &data, &log))?;
    clause.succeed("an append", zones.control.append(zone, &data, &log))?;
    zones.refuse(clause, zones.start(zone), 1)?;
    zones.command(clause, "finish", zone)?;
    zones.command(clause, "reset", zone)?;
    let after = zones.block().counters();
    let class = IoClass::Log.index();
    let length = data.len() as u64;
    for (what, found, expected) in [
        ("writes", after.writes - before.writes, 2),
        ("written bytes", after.written_bytes - before.written_bytes, 2 * length),
        ("bytes of the log", after.written_bytes_by_class[class] - before.written_bytes_by_class[class], 2 * length),
        ("errors", after.errors - before.errors, 1),
        ("resets", after.zone_resets - before.zone_resets, 1),
        ("finishes", after.zone_finishes - before.zone_finishes, 1),
    ] {
        clause.require(found == expected, || format!("{what}: expected {expected}, found {found}"))?;
    }
    Ok(())
}

/// What is known of a zone in the random walk.
#[derive(Clone, Default)]
struct Model {
    data: Vec<u8>,
    is_full: bool,
    is_closed: bool,
}

/// Random commands and writes against vectors that grow.
fn random_walk(zones: &Zones) -> Result<(), Violation> {
    let clause = Clause("behaves like growing vectors");
    let mut random = Random::named(zones.seed, "zones");
    let sector = zones.sector;
    let capacity = zones.geometry.zone_capacity_bytes;
    // As many as can be active, so that limits are met elsewhere only.
    let limits = [zones.geometry.active_zones_max, zones.geometry.open_zones_max];
    let most = limits.into_iter().filter(|&limit| limit > 0).min().unwrap_or(u32::MAX) as usize;
    let used: Vec<ZoneId> = zones.required.iter().copied().take(most).collect();
    let mut models = vec![Model::default(); used.len()];
    let told = |step: u32, broken: Violation| Violation {
        detail: format!("seed {} step {step}: {}", zones.seed, broken.detail),
        ..broken
    };
    for step in 0..if used.is_empty() { 0 } else { zones.steps } {
        let index = random.index(used.len());
        let (zone, model) = (used[index], &mut models[index]);
        let start = zones.start(zone);
        let pointer = start + model.data.len() as u64;
        let data = pattern(u64::from(step), ((1 + random.below(12)) * sector) as usize);
        let fits = !model.is_full && model.data.len() + data.len() <= capacity as usize;
        let outcome = match random.below(12) {
            0 => {
                *model = Model::default();
                zones.command(clause, "reset", zone)
            }
            1 => {
                model.is_full = true;
                zones.command(clause, "finish", zone)
            }
            2 if !model.is_full && !model.data.is_empty() => {
                model.is_closed = true;
                zones.command(clause, "close", zone)
            }
            3 => zones.refuse(clause, pointer + sector, 1),
            4 if !fits => zones.refuse(clause, pointer, data.len() as u64 / sector),
            5 if fits => {
                let at = clause.succeed("an append", zones.control.append(zone, &zones.buffer(&data), &context()));
                model.data.extend_from_slice(&data);
                model.is_closed = false;
                at.and_then(|at| clause.require(at == pointer, || format!("an append at {pointer} went to {at}")))
            }
            _ if fits => {
                model.data.extend_from_slice(&data);
                model.is_closed = false;
                zones.write(clause, pointer, &data)
            }
            _ => clause.succeed("a sync", zones.block().sync(&context())),
        };
        outcome.map_err(|broken| told(step, broken))?;
        let (zone, model) = (used[index], &mut models[index]);
        model.is_full |= model.data.len() as u64 == capacity;
        let found = zones.describe(clause, zone)?;
        let condition_fits = match found.condition {
            ZoneCondition::Full => model.is_full,
            ZoneCondition::Empty => !model.is_full && model.data.is_empty(),
            ZoneCondition::Closed => model.is_closed && !model.is_full,
            ZoneCondition::ImplicitlyOpened => !model.is_closed && !model.is_full && !model.data.is_empty(),
            _ => false,
        };
        let pointer_fits = model.is_full || found.write_pointer_bytes == start + model.data.len() as u64;
        clause
            .require(condition_fits && pointer_fits, || format!("zone {zone} is {found:?}"))
            .map_err(|broken| told(step, broken))?;
        let mut expected = model.data.clone();
        expected.resize((model.data.len() + 2 * sector as usize).min(capacity as usize), 0);
        let from = random.below(expected.len() as u64 / sector) * sector;
        zones.expect(clause, start + from, &expected[from as usize..]).map_err(|broken| told(step, broken))?;
    }
    Ok(())
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
