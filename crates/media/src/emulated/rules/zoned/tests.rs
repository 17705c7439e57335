//! The state machine by itself, and rules over a device that remembers.

use super::table::{Refused, ZonePlan};
use super::*;
use crate::device::BlockDeviceExt;
use crate::zones::{ZoneCondition, ZoneId, ZoneRefusal, ZoneType};
use crate::{IoContext, MediaErrorKind};
use varve_env::{Env, Random};

const SECTOR: u64 = 4096;
const ZONE: u64 = 16 * SECTOR;

fn geometry() -> ZoneGeometry {
    let fit = ZoneGeometry::fit(12 * ZONE, ZONE).unwrap();
    ZoneGeometry {
        zone_capacity_bytes: 10 * SECTOR,
        conventional_zones: 2,
        open_zones_max: 2,
        active_zones_max: 3,
        ..fit
    }
}

fn write(table: &mut ZoneTable, zone: u32, sector: u64, count: u64) -> Result<(), ZoneRefusal> {
    let start = u64::from(zone) * ZONE + sector * SECTOR;
    let written = start..start + count * SECTOR;
    table.admit_write(&written).map_err(|refused| refused.refusal)?;
    table.written(&written);
    Ok(())
}

/// As many devices as a spec names are described at once.
#[test]
fn zones_that_are_as_at_first_take_no_memory() {
    let mut table = ZoneTable::new(&ZoneGeometry { zone_count: ZoneGeometry::ZONES_MAX, ..geometry() });
    assert_eq!(table.memory_bytes(), 0);
    let conditions = [0, 2, ZoneGeometry::ZONES_MAX - 1].map(|zone| condition(&table, zone));
    assert_eq!(conditions, [ZoneCondition::NotWritePointer, ZoneCondition::Empty, ZoneCondition::Empty]);
    write(&mut table, 5, 0, 1).unwrap();
    assert!((6 * 32..4096).contains(&table.memory_bytes()), "{}", table.memory_bytes());
    let conditions = [1, 4, 5, 6].map(|zone| condition(&table, zone));
    let (empty, open) = (ZoneCondition::Empty, ZoneCondition::ImplicitlyOpened);
    assert_eq!(conditions, [ZoneCondition::NotWritePointer, empty, open, empty]);
}

fn command(table: &mut ZoneTable, command: ZoneCommand, zone: u32) -> Result<(), ZoneRefusal> {
    let plan = table.plan(command, ZoneId(zone)).map_err(|refused| refused.refusal)?;
    if let Some(plan) = plan {
        table.apply(ZoneId(zone), plan);
    }
    Ok(())
}

fn condition(table: &ZoneTable, zone: u32) -> ZoneCondition {
    table.state(ZoneId(zone)).condition
}

#[test]
fn the_zone_implicitly_opened_first_makes_room() {
    let mut table = ZoneTable::new(&geometry());
    for zone in [2, 3] {
        write(&mut table, zone, 0, 1).unwrap();
    }
    write(&mut table, 2, 1, 1).unwrap();
    write(&mut table, 4, 0, 1).unwrap();
    assert_eq!([2, 3, 4].map(|zone| condition(&table, zone).is_open()), [false, true, true]);
    assert_eq!(table.counts(), (2, 3));
    // Three zones are active, so a fourth is refused. Writing to the closed one opens it
    // again and closes another.
    assert_eq!(write(&mut table, 5, 0, 1), Err(ZoneRefusal::ActiveLimit { limit: 3 }));
    write(&mut table, 2, 2, 1).unwrap();
    assert_eq!([2, 3, 4].map(|zone| condition(&table, zone).is_open()), [true, false, true]);
    // What was opened explicitly stays.
    command(&mut table, ZoneCommand::Open, 2).unwrap();
    command(&mut table, ZoneCommand::Open, 4).unwrap();
    assert_eq!(write(&mut table, 3, 1, 1), Err(ZoneRefusal::OpenLimit { limit: 2 }));
    assert_eq!(command(&mut table, ZoneCommand::Finish, 3), Err(ZoneRefusal::OpenLimit { limit: 2 }));
    command(&mut table, ZoneCommand::Close, 4).unwrap();
    command(&mut table, ZoneCommand::Finish, 3).unwrap();
    assert_eq!(table.counts(), (1, 2));
    write(&mut table, 5, 0, 10).unwrap();
    assert_eq!((condition(&table, 5), table.counts()), (ZoneCondition::Full, (1, 2)));
}

#[test]
fn writes_that_span_zones_or_ends_are_refused_where_order_matters() {
    let mut table = ZoneTable::new(&geometry());
    write(&mut table, 0, 15, 3).unwrap();
    let refused = table.admit_write(&(2 * ZONE - SECTOR..2 * ZONE + SECTOR)).unwrap_err();
    let refusal = ZoneRefusal::Boundary { length_bytes: 2 * SECTOR, end_bytes: 2 * ZONE };
    assert_eq!(refused, Refused { zone: ZoneId(2), refusal });
    write(&mut table, 2, 0, 9).unwrap();
    let refusal = ZoneRefusal::Boundary { length_bytes: 2 * SECTOR, end_bytes: 2 * ZONE + 10 * SECTOR };
    assert_eq!(write(&mut table, 2, 9, 2), Err(refusal));
    write(&mut table, 2, 9, 1).unwrap();
    assert_eq!(write(&mut table, 2, 10, 1), Err(ZoneRefusal::Full));
    assert_eq!(write(&mut table, 3, 1, 1), Err(ZoneRefusal::WritePointer { write_pointer_bytes: 3 * ZONE }));
}

#[test]
fn worn_and_dead_zones_refuse_and_leave_the_counts() {
    for (worn, refusal) in
        [(ZoneCondition::ReadOnly, ZoneRefusal::ReadOnly), (ZoneCondition::Offline, ZoneRefusal::Offline)]
    {
        let mut table = ZoneTable::new(&geometry());
        write(&mut table, 2, 0, 1).unwrap();
        table.degrade(ZoneId(2), worn).unwrap();
        table.degrade(ZoneId(0), worn).unwrap();
        assert_eq!(table.counts(), (0, 0));
        for zone in [0, 2] {
            assert_eq!(write(&mut table, zone, 1, 1), Err(refusal));
        }
        for each in [ZoneCommand::Open, ZoneCommand::Close, ZoneCommand::Finish, ZoneCommand::Reset] {
            assert_eq!(command(&mut table, each, 2), Err(refusal));
        }
        assert_eq!(table.admit_append(ZoneId(2), SECTOR).unwrap_err().refusal, refusal);
        assert_eq!(table.check_read(&(2 * ZONE..3 * ZONE)).is_err(), worn == ZoneCondition::Offline);
    }
}

#[test]
fn a_retracted_write_leaves_no_trace_unless_another_follows() {
    let mut table = ZoneTable::new(&geometry());
    let at = |sector: u64| 2 * ZONE + sector * SECTOR;
    table.admit_write(&(at(0)..at(2))).unwrap();
    table.retract(&(at(0)..at(2)));
    assert_eq!((condition(&table, 2), table.counts()), (ZoneCondition::Empty, (0, 0)));
    write(&mut table, 2, 0, 4).unwrap();
    table.admit_write(&(at(4)..at(10))).unwrap();
    assert_eq!(condition(&table, 2), ZoneCondition::Full);
    table.retract(&(at(4)..at(10)));
    let expected = ZoneState {
        condition: ZoneCondition::Closed,
        pointer_bytes: 4 * SECTOR,
        written_bytes: 4 * SECTOR,
        non_sequential: false,
    };
    assert_eq!(table.state(ZoneId(2)), expected);
    table.admit_write(&(at(4)..at(5))).unwrap();
    table.admit_write(&(at(5)..at(6))).unwrap();
    table.retract(&(at(4)..at(5)));
    assert_eq!(table.state(ZoneId(2)).pointer_bytes, 6 * SECTOR);
}

#[test]
fn preferred_zones_refuse_no_write() {
    let fit = ZoneGeometry::fit(4 * ZONE, ZONE).unwrap();
    let preferred = ZoneGeometry {
        sequential_type: ZoneType::SequentialWritePreferred,
        open_zones_max: 1,
        zone_capacity_bytes: SECTOR,
        ..fit
    };
    let mut table = ZoneTable::new(&preferred);
    // From the middle of one into the next, which leaves the first full.
    write(&mut table, 0, 10, 20).unwrap();
    let pointers = [0, 1].map(|zone| table.state(ZoneId(zone)).pointer_bytes);
    assert_eq!((pointers, condition(&table, 0)), ([ZONE, 14 * SECTOR], ZoneCondition::Full));
    write(&mut table, 0, 3, 1).unwrap();
    write(&mut table, 2, 3, 1).unwrap();
    assert_eq!(table.counts(), (2, 2));
}

/// After any commands and writes, the counts of open and active zones and the order of implicit openings are
/// what the conditions of the zones say.
#[test]
fn counts_follow_from_conditions() {
    for seed in 0..30 {
        let mut random = Random::seeded(seed);
        let mut table = ZoneTable::new(&geometry());
        for step in 0..400 {
            let zone = random.below(13) as u32;
            let before: Vec<ZoneState> = (0..12).map(|zone| table.state(ZoneId(zone))).collect();
            let changed = match random.below(10) {
                0..4 => {
                    let sector = before.get(zone as usize).map_or(0, |state| state.pointer_bytes / SECTOR);
                    let length = (1 + random.below(4)) * SECTOR;
                    let start = u64::from(zone) * ZONE + sector * SECTOR + random.below(8) / 7 * SECTOR;
                    table.admit_write(&(start..(start + length).min(12 * ZONE))).is_ok()
                }
                4 => table.admit_append(ZoneId(zone), random.below(3) * SECTOR).is_ok(),
                other => {
                    let commands = [ZoneCommand::Open, ZoneCommand::Close, ZoneCommand::Finish, ZoneCommand::Reset];
                    command(&mut table, commands[other as usize % 4], zone).is_ok()
                }
            };
            let after: Vec<ZoneState> = (0..12).map(|zone| table.state(ZoneId(zone))).collect();
            assert!(changed || before == after, "seed {seed} step {step}: a refusal changed something");
            let open = after.iter().filter(|state| state.condition.is_open()).count() as u32;
            let active = after.iter().filter(|state| state.condition.is_active()).count() as u32;
            assert_eq!(table.counts(), (open, active), "seed {seed} step {step}");
            assert!(open <= 2 && active <= 3, "seed {seed} step {step}");
        }
    }
}

#[test]
fn plans_are_values() {
    let table = ZoneTable::new(&geometry());
    let plan: Option<ZonePlan> = table.plan(ZoneCommand::Finish, ZoneId(2)).unwrap();
    assert_eq!(plan.map(|plan| plan.condition), Some(ZoneCondition::Full));
    assert_eq!(condition(&table, 2), ZoneCondition::Empty);
}

/// A device below that still has what a reset made zero.
#[test]
fn bytes_of_the_device_below_do_not_show_through() {
    let env = Env::real();
    let inner: Arc<dyn BlockDevice> = Arc::new(Emulated::immediate(&env, "disk", 12 * ZONE));
    let context = IoContext::default();
    inner.write_at(0, &vec![7; 12 * ZONE as usize], &context).unwrap();
    let device = Zoned::new(&geometry()).over(&inner);
    let zones = device.zones.clone().unwrap();
    let mut data = vec![1; ZONE as usize];
    device.block.read_at(2 * ZONE, &mut data, &context).unwrap();
    assert!(data.iter().all(|&byte| byte == 0));
    device.block.write_at(2 * ZONE, &[5; 4096], &context).unwrap();
    zones.finish(ZoneId(2), &context).unwrap();
    device.block.read_at(2 * ZONE, &mut data, &context).unwrap();
    assert!(data[..4096] == [5; 4096] && data[4096..].iter().all(|&byte| byte == 0));
    device.block.read_at(0, &mut data, &context).unwrap();
    assert!(data.iter().all(|&byte| byte == 7), "a conventional zone is the disk's");
    let error = device.block.write_at(2 * ZONE, &[5; 4096], &context).unwrap_err();
    assert_eq!(error.kind(), MediaErrorKind::InvalidRequest);
    assert!(error.to_string().contains("zone 2") && error.to_string().contains("full"), "{error}");
}
