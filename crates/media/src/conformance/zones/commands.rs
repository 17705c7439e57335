//! What the device says about its zones, and what commands change.

use super::super::subject::{context, pattern};
use super::super::{Clause, Violation};
use super::{REFUSED, ZONE_SECTORS_MIN, Zones};
use crate::context::{IoClass, IoContext};
use crate::device::BlockDeviceExt;
use crate::error::MediaError;
use crate::zones::{ZoneCondition, ZoneId, ZoneRefusal, ZoneType};

pub(super) fn description(zones: &Zones) -> Result<(), Violation> {
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

pub(super) fn conditions(zones: &Zones) -> Result<(), Violation> {
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

pub(super) fn filling(zones: &Zones) -> Result<(), Violation> {
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

pub(super) fn open_limit(zones: &Zones) -> Result<(), Violation> {
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
    // One more can be opened by closing what was implicitly opened, unless the zone that would be closed stays active
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

pub(super) fn active_limit(zones: &Zones) -> Result<(), Violation> {
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
    // An active zone can still be written; a finish or a reset lets another become active.
    zones.write(clause, zones.start(within[1]) + zones.sector, &data)?;
    zones.command(clause, "finish", within[0])?;
    zones.write(clause, zones.start(over[0]), &data)?;
    zones.command(clause, "reset", within[1])?;
    zones.write(clause, zones.start(over[1]), &data)
}

pub(super) fn resets(zones: &Zones) -> Result<(), Violation> {
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

pub(super) fn counters(zones: &Zones) -> Result<(), Violation> {
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
