//! What may be written where.

use super::super::subject::{context, pattern};
use super::super::{Clause, Violation};
use super::{FILLED_BYTES_MAX, REFUSED, ZONE_SECTORS_MIN, Zones};
use crate::buffer::AlignedBuffer;
use crate::device::BlockDeviceExt;
use crate::request::Request;
use crate::zones::ZoneCondition;
use std::io::IoSlice;
use varve_env::Random;

pub(super) fn zeros_where_nothing_was_written(zones: &Zones) -> Result<(), Violation> {
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

pub(super) fn writes_at_the_pointer(zones: &Zones) -> Result<(), Violation> {
    let clause = Clause("a write at the pointer is done and moves it");
    for &zone in &zones.required {
        let mut random = Random::named(zones.seed, "sequential");
        let start = zones.start(zone);
        let limit = zones.geometry.zone_capacity_bytes.min(64 * zones.sector);
        let mut written = Vec::new();
        while (written.len() as u64) < limit {
            let space_sectors = (limit - written.len() as u64) / zones.sector;
            let data = pattern(space_sectors, ((1 + random.below(space_sectors.min(9))) * zones.sector) as usize);
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

pub(super) fn refuses_other_writes(zones: &Zones) -> Result<(), Violation> {
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

pub(super) fn one_batch(zones: &Zones) -> Result<(), Violation> {
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

pub(super) fn appends(zones: &Zones) -> Result<(), Violation> {
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

pub(super) fn conventional_zones(zones: &Zones) -> Result<(), Violation> {
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

pub(super) fn preferred_zones(zones: &Zones) -> Result<(), Violation> {
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
