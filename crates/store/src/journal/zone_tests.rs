//! A journal in zones: which generation counts, whatever was interrupted or is damaged.

use super::*;
use crate::identity::{DeviceShape, Member};
use std::ops::Range;
use varve_env::Env;
use varve_media::BlockDeviceExt;
use varve_media::conformance::devices::{NAMESPACE, SMALL_NAMESPACE, TestedDevice};
use varve_media::{
    Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, Geometry, Operation,
    ZoneCondition, ZoneId,
};

const KIND: StoreKind = StoreKind(*b"test\0\0\0\0");
pub(super) const UNIT_BYTES: u32 = 4096;
/// Groups of journals of one copy and of two.
const GROUPS: [u8; 2] = [SINGLE_GROUPS, MIRRORED_GROUPS];

pub(super) fn formatted(env: &Env, device: TestedDevice, groups: u8, group_zones: u32) -> Device {
    let asked = Geometry { capacity_bytes: 8 << 20, sector_bytes: 512, physical_sector_bytes: UNIT_BYTES };
    let device = (device.make)(env, "drive", &asked);
    format(&device, groups, group_zones, b"state 0").unwrap();
    device
}

pub(super) fn format(device: &Device, groups: u8, group_zones: u32, state: &[u8]) -> Result<(), StoreError> {
    let members = vec![Member { id: 0x1234, capacity_bytes: device.block.geometry().capacity_bytes }];
    let identity = Identity { shape: DeviceShape::of(device), members, index: 0 };
    let formatting = Formatting::begin_in_order(device, "drive", KIND, 0xabcd, identity)?;
    let regions = JournalRegions { unit_bytes: UNIT_BYTES, group_zones, groups, ..JournalRegions::default() };
    formatting.finish(&regions, b"parameters", state)
}

pub(super) fn recover(device: &Device) -> Result<(Journal, Recovered), StoreError> {
    Journal::recover(device, "drive", &OpenedAs::in_order(KIND, device))
}

pub(super) fn opened(device: &Device) -> Journal {
    let (mut journal, _) = recover(device).unwrap();
    journal.begin(None).unwrap();
    journal
}

/// The state of the checkpoint, and the commits behind it.
pub(super) fn contents(device: &Device) -> Result<(String, Vec<String>), StoreError> {
    let (_, recovered) = recover(device)?;
    assert_eq!(recovered.parameters, b"parameters");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((text(recovered.checkpoint), recovered.commits.into_iter().map(text).collect()))
}

pub(super) fn of(state: &str, commits: &[&str]) -> (String, Vec<String>) {
    (state.to_owned(), commits.iter().map(|&commit| commit.to_owned()).collect())
}

fn active_zones(device: &Device) -> usize {
    let zones = device.zones.as_ref().unwrap().report(ZoneId(0), 128, &METADATA).unwrap();
    zones.iter().filter(|zone| zone.condition.is_active()).count()
}

/// The device, on which nothing can be read of these bytes.
pub(super) fn with_bad_bytes(env: &Env, device: &Device, bad: &[Range<u64>]) -> Device {
    let faults = bad.iter().map(|range| Fault {
        range: Some(range.clone()),
        ..Fault::new(Operation::Read, FaultTrigger::From(0), FaultEffect::Fail(FaultError::Unreadable))
    });
    let plan = FaultPlan { faults: faults.collect(), ..FaultPlan::default() };
    FaultDevice::device(&FaultInjector::new(env, plan), device)
}

#[test]
fn generations_take_turns_and_one_zone_of_each_copy_is_active() {
    let env = Env::sim(1);
    let layouts = [(NAMESPACE, 7), (NAMESPACE, 12), (SMALL_NAMESPACE, 20)];
    for (groups, (tested, group_zones)) in GROUPS.into_iter().flat_map(|groups| layouts.map(|layout| (groups, layout)))
    {
        let device = formatted(&env, tested, groups, group_zones);
        let active_max = usize::from(groups) - 1;
        assert_eq!((contents(&device).unwrap(), active_zones(&device)), (of("state 0", &[]), 0));
        let mut journal = opened(&device);
        let mut rolls = 0;
        for number in 0..300 {
            let commit = format!("commit {number}");
            let state = format!("state {number}");
            match journal.fits(commit.len(), CommitStyle::Single) {
                true => assert_eq!(journal.commit(commit.as_bytes(), CommitStyle::Single).unwrap(), Committed::Durable),
                false => {
                    journal.begin(Some(state.as_bytes())).unwrap();
                    rolls += 1;
                }
            }
            let (found, commits) = contents(&device).unwrap();
            assert_eq!(commits.last().unwrap_or(&found), if commits.is_empty() { &state } else { &commit });
            let active = active_zones(&device);
            assert!(active <= active_max, "{active} zones of a journal are active");
            assert_eq!(journal.check_medium(), []);
        }
        assert!(rolls > 1, "{rolls}");
        // A log fills its last zone, of which a part may be left over.
        let mut again = recover(&device).unwrap().0;
        again.begin(Some(b"state again")).unwrap();
        assert_eq!(again.generation(), journal.generation() + 1);
        again.commit(b"after", CommitStyle::Single).unwrap();
        assert_eq!(contents(&device).unwrap().1, ["after"]);
    }
}

#[test]
fn whatever_a_roll_fails_at_one_of_two_generations_is_there() {
    let env = Env::sim(1);
    let faults = |operation, trigger| {
        [FaultEffect::Fail(FaultError::Io), FaultEffect::FailAfter(FaultError::Io)]
            .map(|effect| Fault::new(operation, trigger, effect))
    };
    let mut begun = 0;
    for (groups, operation) in GROUPS
        .into_iter()
        .flat_map(|groups| [Operation::Write, Operation::Sync, Operation::Zone].map(|operation| (groups, operation)))
    {
        for number in 0..32 {
            for fault in faults(operation, FaultTrigger::From(number)) {
                let device = formatted(&env, NAMESPACE, groups, 7);
                let mut journal = opened(&device);
                journal.commit(b"kept", CommitStyle::Single).unwrap();
                drop(journal);
                let what = format!("{fault:?}");
                let injector = FaultInjector::new(&env, FaultPlan::of(fault));
                let faulty = FaultDevice::device(&injector, &device);
                let Ok((mut journal, recovered)) = recover(&faulty) else {
                    assert!(operation == Operation::Zone, "{what}");
                    continue;
                };
                assert_eq!(recovered.commits, [b"kept"]);
                let is_begun = journal.begin(Some(b"state and kept")).is_ok();
                begun += u32::from(is_begun);
                let found = contents(&device).unwrap();
                let (before, after) = (of("state 0", &["kept"]), of("state and kept", &[]));
                assert!(found == after || (!is_begun && found == before), "{what}: {found:?}");
                assert!(is_begun || journal.begin(Some(b"more")).is_err(), "{what}: not poisoned");
                // The next one goes on from there.
                let mut next = recover(&device).unwrap().0;
                next.begin(Some(b"state 2")).unwrap();
                next.commit(b"two", CommitStyle::Single).unwrap();
                assert_eq!(contents(&device).unwrap(), of("state 2", &["two"]), "{what}");
            }
        }
    }
    assert!((80..300).contains(&begun), "{begun}");
}

#[test]
fn damage_of_the_newest_generation_does_not_bring_the_one_before_it_back() {
    let env = Env::sim(1);
    let device = formatted(&env, NAMESPACE, SINGLE_GROUPS, 7);
    let mut journal = opened(&device);
    journal.commit(b"one", CommitStyle::Single).unwrap();
    journal.begin(Some(b"state 1")).unwrap();
    journal.commit(b"two", CommitStyle::Single).unwrap();
    let place = journal.place.clone();
    let bytes_at = |offset: u64, length: u64| {
        let start = place.device_offset(offset);
        start..start + length
    };
    let read = |bad: &[Range<u64>]| contents(&with_bad_bytes(&env, &device, bad));
    let superblocks = SUPERBLOCK_OFFSETS.map(|offset| bytes_at(offset, 512));
    let unit = |number: u64| {
        bytes_at(journal.regions().log.offset_bytes + number * u64::from(UNIT_BYTES), u64::from(UNIT_BYTES))
    };
    let all = of("state 1", &["two"]);
    for bad in [&superblocks[0], &superblocks[1], &unit(0), &unit(1), &unit(2), &unit(3)] {
        assert_eq!(read(std::slice::from_ref(bad)).unwrap(), all);
    }
    assert!(matches!(read(&superblocks), Err(StoreError::Media { .. })));
    assert!(matches!(read(&[unit(0), unit(1)]), Err(StoreError::Unreadable { .. })));
    assert!(matches!(read(&[bytes_at(SUPERBLOCK_RESERVED_BYTES, 512)]), Err(StoreError::Media { .. })));
    // What the zones are in cannot be asked.
    let fault = Fault::new(Operation::Zone, FaultTrigger::From(0), FaultEffect::Fail(FaultError::Io));
    let unasked = FaultDevice::device(&FaultInjector::new(&env, FaultPlan::of(fault)), &device);
    assert!(matches!(contents(&unasked), Err(StoreError::Media { .. })));
    assert!(presence(&unasked, "drive", &OpenedAs::in_order(KIND, &device)).is_err());
}

#[test]
fn a_store_that_is_made_anew_is_the_old_one_or_none_until_it_is_there() {
    let env = Env::sim(1);
    // The store before has groups of another size, and its newest generation is in the first or in the second.
    let interrupted = |device: &Device, groups, operation, number| {
        let fault = Fault::new(operation, FaultTrigger::From(number), FaultEffect::FailAfter(FaultError::Io));
        format(&FaultDevice::device(&FaultInjector::new(&env, FaultPlan::of(fault)), device), groups, 7, b"new").is_ok()
    };
    let (single, mirrored) = (SINGLE_GROUPS, MIRRORED_GROUPS);
    let before =
        [(single, 7, 1), (single, 9, 2), (mirrored, 7, 1), (mirrored, 7, 2), (mirrored, 7, 3), (mirrored, 5, 2)];
    for (groups, (old_groups, old_zones, begins)) in
        GROUPS.into_iter().flat_map(|groups| before.map(|before| (groups, before)))
    {
        for (operation, number) in (0..60).flat_map(|number| {
            [Operation::Zone, Operation::Write, Operation::Sync].map(|operation| (operation, number))
        }) {
            let device = formatted(&env, NAMESPACE, old_groups, old_zones);
            let mut old = recover(&device).unwrap().0;
            (0..begins).for_each(|begin| old.begin(Some(format!("old {begin}").as_bytes())).unwrap());
            let is_made = interrupted(&device, groups, operation, number);
            let newest = format!("old {}", begins - 1);
            let opened_as = OpenedAs::in_order(KIND, &device);
            match contents(&device) {
                Ok(found) if is_made => assert_eq!(found, of("new", &[])),
                // Before anything was reset, or whole although what came last failed.
                Ok(found) => assert!([of(&newest, &[]), of("new", &[])].contains(&found), "{number}: {found:?}"),
                Err(error) => {
                    assert!(!is_made, "{number}: {error}");
                    let found = presence(&device, "drive", &opened_as).unwrap();
                    assert!(matches!(found, Presence::Unfinished | Presence::Blank), "{number}: {found:?}");
                    // It can be made again, however often that is interrupted.
                    for again in 0..12 {
                        let was_marked = presence(&device, "drive", &opened_as).unwrap() == Presence::Unfinished;
                        let is_made = interrupted(&device, groups, operation, again);
                        let found = presence(&device, "drive", &opened_as);
                        assert!(is_made || found.is_ok(), "{operation:?} {number} {again}: {found:?}");
                        if was_marked && !is_made {
                            presence_on_device(&device, "drive", &opened_as).unwrap();
                        }
                    }
                    format(&device, groups, 7, b"again").unwrap();
                    assert_eq!(contents(&device).unwrap(), of("again", &[]));
                }
            }
        }
    }
}

/// Once such a superblock made every format of the device fail.
#[test]
fn groups_that_cannot_be_are_damage_and_are_formatted_over() {
    let env = Env::sim(1);
    let device = formatted(&env, NAMESPACE, SINGLE_GROUPS, 7);
    let journal = opened(&device);
    let mut absurd = journal.superblock.clone();
    for group_zones in [64, 65, u32::MAX, 3, 8] {
        absurd.regions.group_zones = group_zones;
        let place = &journal.place;
        place.reset().unwrap();
        place.write(0, &superblock::header(place, superblock::encode(&absurd)), false).unwrap();
        device.zones.as_ref().unwrap().reset(ZoneId(7), &METADATA).unwrap();
        contents(&device).unwrap_err();
        format(&device, SINGLE_GROUPS, 7, b"new").unwrap();
        assert_eq!(contents(&device).unwrap(), of("new", &[]));
    }
}

#[test]
fn a_device_that_others_left_with_all_its_active_zones_can_be_formatted() {
    let env = Env::sim(1);
    let asked = Geometry { capacity_bytes: 8 << 20, sector_bytes: 512, physical_sector_bytes: UNIT_BYTES };
    let device = (SMALL_NAMESPACE.make)(&env, "drive", &asked);
    let zones = device.block.capabilities().zones.clone().unwrap();
    for zone in 100..100 + zones.active_zones_max {
        device.block.write_at(zones.start_bytes(ZoneId(zone)), &[1; 4096], &METADATA).unwrap();
    }
    format(&device, MIRRORED_GROUPS, 20, b"state 0").unwrap();
    opened(&device).commit(b"one", CommitStyle::Single).unwrap();
    assert_eq!(contents(&device).unwrap(), of("state 0", &["one"]));
}

#[test]
fn the_bytes_of_both_versions_do_not_change() {
    let env = Env::sim(1);
    for (groups, expected) in [(SINGLE_GROUPS, 0xdc82_121e), (MIRRORED_GROUPS, 0x2484_6cef)] {
        let device = formatted(&env, NAMESPACE, groups, 7);
        let mut journal = opened(&device);
        journal.commit(b"a commit", CommitStyle::Single).unwrap();
        let mut bytes = vec![0; 160 << 10];
        journal.place.read(0, &mut bytes).unwrap();
        assert_eq!(crc32c::crc32c(&bytes), expected, "{groups} groups");
        let zones = device.zones.as_ref().unwrap().report(ZoneId(0), 21, &METADATA).unwrap();
        assert!(zones.iter().all(|zone| zone.condition != ZoneCondition::Offline));
    }
}

/// Zones with bytes up to the end of the device, on which nothing can be read: the places of superblocks that would lie behind it
/// are not asked for.
#[test]
fn nothing_is_read_behind_the_end_of_a_device_that_cannot_be_read() {
    let env = Env::sim(1);
    let asked = Geometry { capacity_bytes: 3 << 19, sector_bytes: 512, physical_sector_bytes: UNIT_BYTES };
    let device = (SMALL_NAMESPACE.make)(&env, "drive", &asked);
    format(&device, SINGLE_GROUPS, 20, b"state 0").unwrap();
    let zones = device.block.capabilities().zones.clone().unwrap();
    assert!(zones.zone_bytes <= SUPERBLOCK_OFFSETS[1] && (41..64).contains(&zones.zone_count));
    for zone in 40..zones.zone_count {
        let start = zones.start_bytes(ZoneId(zone));
        device.block.write_at(start, &[7; UNIT_BYTES as usize], &METADATA).unwrap();
        device.zones.as_ref().unwrap().finish(ZoneId(zone), &METADATA).unwrap();
    }
    let fails = Fault::new(Operation::Read, FaultTrigger::From(0), FaultEffect::FailAfter(FaultError::Io));
    let injector = FaultInjector::new(&env, FaultPlan::of(fails));
    assert!(recover(&FaultDevice::device(&injector, &device)).is_err());
    assert!(injector.injected() > 0);
    assert_eq!(device.block.counters().errors, 0);
}
