//! Torn or damaged, stale or present: what a journal believes.

use super::*;
use crate::identity::{DeviceShape, Member};
use std::sync::Arc;
use varve_env::Env;
use varve_media::{
    Emulated, Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, Operation,
};

const KIND: StoreKind = StoreKind(*b"test\0\0\0\0");
const UNIT: u64 = 4096;
const LOG_UNITS: u64 = 16;
const REGIONS: JournalRegions = JournalRegions {
    log: Region { offset_bytes: 128 << 10, length_bytes: LOG_UNITS * UNIT },
    checkpoints: [
        Region { offset_bytes: 256 << 10, length_bytes: 64 << 10 },
        Region { offset_bytes: 320 << 10, length_bytes: 64 << 10 },
    ],
    unit_bytes: UNIT as u32,
    group_zones: 0,
    groups: 0,
};

fn formatted(env: &Env) -> Device {
    let device = Device::of_blocks(Arc::new(Emulated::immediate(env, "disk", 1 << 20)));
    let members = vec![Member { id: 0x1234, capacity_bytes: 1 << 20 }];
    let identity = Identity { shape: DeviceShape::of(&device), members, index: 0 };
    let formatting = Formatting::begin(&device, "disk", KIND, 0xabcd, identity).unwrap();
    formatting.finish(&REGIONS, b"parameters", b"state 0").unwrap();
    device
}

fn opened_as(device: &Device) -> OpenedAs {
    OpenedAs::new(KIND, device)
}

fn opened(device: &Device) -> Journal {
    let (mut journal, _) = Journal::recover(device, "disk", &opened_as(device)).unwrap();
    journal.begin(None).unwrap();
    journal
}

fn commits(device: &Device) -> Result<Vec<String>, StoreError> {
    let (_, recovered) = Journal::recover(device, "disk", &opened_as(device))?;
    assert_eq!(recovered.parameters, b"parameters");
    Ok(recovered.commits.iter().map(|commit| String::from_utf8_lossy(commit).into_owned()).collect())
}

fn unit_offset(unit: u64) -> u64 {
    REGIONS.log.offset_bytes + unit * UNIT
}

fn read_at(device: &Device, offset: u64, length: usize) -> Vec<u8> {
    let mut data = vec![0; length];
    Place::whole(device, "disk").read(offset, &mut data).unwrap();
    data
}

fn write_at(device: &Device, offset: u64, data: &[u8]) {
    Place::whole(device, "disk").write(offset, data, false).unwrap();
}

fn flip(device: &Device, offset: u64) {
    let start = offset / 512 * 512;
    let mut sector = read_at(device, start, 512);
    sector[(offset - start) as usize] ^= 0x10;
    write_at(device, start, &sector);
}

fn expect_corruption<T>(result: Result<T, StoreError>, structure: &str, offset: u64) {
    match result {
        Err(StoreError::Corruption { structure: found, offset_bytes, .. }) => {
            assert_eq!((found.as_str(), offset_bytes), (structure, offset));
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("{structure} at {offset} was believed"),
    }
}

#[test]
fn commits_come_back_in_order_and_a_checkpoint_begins_a_new_log() {
    let env = Env::sim(1);
    let device = formatted(&env);
    let mut journal = opened(&device);
    let long = "x".repeat(9000);
    for payload in ["one", "two", &long] {
        journal.commit(payload.as_bytes(), CommitStyle::Single).unwrap();
    }
    assert_eq!(commits(&device).unwrap(), ["one", "two", &long]);
    // 2 + 2 + 6 units of 16 are used.
    assert!(journal.fits(2 * 4048, CommitStyle::Single));
    assert!(!journal.fits(3 * 4048 + 1, CommitStyle::Single));
    journal.begin(Some(b"state 1")).unwrap();
    assert_eq!(commits(&device).unwrap(), [""; 0]);
    journal.commit(b"four", CommitStyle::Ordered { units_min: 5 }).unwrap();
    let (again, recovered) = Journal::recover(&device, "disk", &opened_as(&device)).unwrap();
    assert_eq!((recovered.checkpoint, recovered.commits), (b"state 1".to_vec(), vec![b"four".to_vec()]));
    assert_eq!((again.position_units, again.generation()), (5, journal.generation()));
    assert_eq!(journal.check_medium(), []);
}

#[test]
fn any_one_damaged_unit_of_the_log_changes_nothing() {
    let env = Env::sim(1);
    let device = formatted(&env);
    let mut journal = opened(&device);
    let long = "y".repeat(9000);
    journal.commit(long.as_bytes(), CommitStyle::Single).unwrap();
    journal.commit(b"marked", CommitStyle::Ordered { units_min: 0 }).unwrap();
    journal.commit(b"last", CommitStyle::Single).unwrap();
    for unit in 0..12 {
        for byte in [0, 5, 20, 33, 41, 44, 46, 60, 4095] {
            flip(&device, unit_offset(unit) + byte);
            assert_eq!(commits(&device).unwrap(), [&long, "marked", "last"], "unit {unit} byte {byte}");
            flip(&device, unit_offset(unit) + byte);
        }
    }
    // Both copies of a part, and commits behind: that is not a torn tail.
    flip(&device, unit_offset(1));
    flip(&device, unit_offset(4));
    expect_corruption(commits(&device), "metadata log", unit_offset(0));
}

#[test]
fn a_torn_commit_is_the_end_and_what_is_behind_it_is_not_replayed() {
    let env = Env::sim(1);
    let device = formatted(&env);
    // An older generation leaves its units in the log.
    let mut journal = opened(&device);
    for number in 0..8 {
        journal.commit(format!("old {number}").as_bytes(), CommitStyle::Single).unwrap();
    }
    journal.begin(Some(b"state 1")).unwrap();
    journal.commit(b"kept", CommitStyle::Single).unwrap();
    let torn = "z".repeat(9000);
    let before: Vec<u8> = read_at(&device, unit_offset(2), 6 * UNIT as usize);
    journal.commit(torn.as_bytes(), CommitStyle::Single).unwrap();
    let after: Vec<u8> = read_at(&device, unit_offset(2), 6 * UNIT as usize);
    for kept in 0..64u32 {
        for unit in 0..6 {
            let range = unit * UNIT as usize..(unit + 1) * UNIT as usize;
            let bytes = if kept >> unit & 1 == 1 { &after[range] } else { &before[range] };
            write_at(&device, unit_offset(2 + unit as u64), bytes);
        }
        let whole = (kept | kept >> 3) & 7 == 7;
        let expected = if whole { vec!["kept", &torn] } else { vec!["kept"] };
        assert_eq!(commits(&device).unwrap(), expected, "units {kept:#08b}");
    }
    // Without its marks an ordered commit is torn, though all of its payload is there.
    let mut journal = opened_with_state(&device, b"state 2");
    journal.commit(b"ordered", CommitStyle::Ordered { units_min: 0 }).unwrap();
    assert_eq!(commits(&device).unwrap(), ["ordered"]);
    write_at(&device, unit_offset(2), &before[..2 * UNIT as usize]);
    assert_eq!(commits(&device).unwrap(), [""; 0]);
}

fn opened_with_state(device: &Device, state: &[u8]) -> Journal {
    let (mut journal, _) = Journal::recover(device, "disk", &opened_as(device)).unwrap();
    journal.begin(Some(state)).unwrap();
    journal
}

#[test]
fn one_superblock_is_enough_and_none_is_an_error() {
    let env = Env::sim(1);
    let device = formatted(&env);
    let mut journal = opened(&device);
    journal.commit(b"one", CommitStyle::Single).unwrap();
    for slot in SUPERBLOCK_OFFSETS {
        for byte in [0, 9, 13, 17, 30, 35, 60, 101, 130, 511] {
            flip(&device, slot + byte);
            let (_, recovered) = Journal::recover(&device, "disk", &opened_as(&device)).unwrap();
            assert_eq!(recovered.commits, [b"one"]);
            let codes: Vec<_> = recovered.findings.iter().map(|finding| finding.code).collect();
            assert_eq!(codes, ["superblock-damaged"], "byte {byte}");
            flip(&device, slot + byte);
        }
    }
    for slot in SUPERBLOCK_OFFSETS {
        flip(&device, slot + 40);
    }
    expect_corruption(commits(&device), "superblock", 0);
    assert!(presence(&device, "disk", &opened_as(&device)).is_err());
    // Opening and beginning mends a single one.
    flip(&device, 40);
    let journal = opened_with_state(&device, b"state 1");
    assert_eq!(journal.check_medium(), []);
}

#[test]
fn a_damaged_checkpoint_is_an_error_that_says_where() {
    let env = Env::sim(1);
    let device = formatted(&env);
    for byte in [0, 6, 10, 20, 30] {
        flip(&device, REGIONS.checkpoints[0].offset_bytes + byte);
        expect_corruption(commits(&device), "checkpoint", REGIONS.checkpoints[0].offset_bytes);
        flip(&device, REGIONS.checkpoints[0].offset_bytes + byte);
    }
    flip(&device, REGIONS.checkpoints[0].offset_bytes + 66);
    expect_corruption(commits(&device), "checkpoint", REGIONS.checkpoints[0].offset_bytes + 64);
}

#[test]
fn another_kind_of_store_is_foreign() {
    let env = Env::sim(1);
    let device = formatted(&env);
    let other = OpenedAs { kind: StoreKind(*b"other\0\0\0"), ..opened_as(&device) };
    let error = Journal::recover(&device, "disk", &other).err().unwrap();
    let StoreError::Foreign { expected, found, .. } = &error else { panic!("{error}") };
    assert_eq!(expected, "a store of kind 'other' on a conventional device of 1048576 bytes");
    assert_eq!(found, "a store of kind 'test' on a conventional device of 1048576 bytes");
}

#[test]
fn a_state_that_does_not_fit_its_area_is_refused_and_poisons() {
    let env = Env::sim(1);
    let device = formatted(&env);
    let mut journal = opened(&device);
    let large = vec![7; journal.state_bytes_max() as usize + 1];
    assert!(matches!(journal.begin(Some(&large)), Err(StoreError::NoSpace { .. })));
    assert!(matches!(journal.commit(b"more", CommitStyle::Single), Err(StoreError::Poisoned { .. })));
    let mut journal = opened(&device);
    journal.begin(Some(&large[..large.len() - 1])).unwrap();
    assert_eq!(Journal::recover(&device, "disk", &opened_as(&device)).unwrap().1.checkpoint.len(), large.len() - 1);
}

#[test]
fn the_bytes_of_version_2_do_not_change() {
    let env = Env::sim(1);
    let device = formatted(&env);
    let mut journal = opened(&device);
    journal.commit(b"golden", CommitStyle::Ordered { units_min: 0 }).unwrap();
    let checksum = |offset, length| crc32c::crc32c(&read_at(&device, offset, length));
    // A difference means that stores of others cannot be read any more.
    let found = [
        checksum(0, 4096),
        checksum(SUPERBLOCK_OFFSETS[1], 4096),
        checksum(REGIONS.log.offset_bytes, 4 * UNIT as usize),
        checksum(REGIONS.checkpoints[0].offset_bytes, 4096),
    ];
    assert_eq!(found.map(|checksum| format!("{checksum:08x}")), ["80c8a97b", "80c8a97b", "8d177128", "2e6a8a99"]);
    let superblock = read_at(&device, 0, 512);
    assert_eq!(superblock[..12], *b"VARVE\0SB\x02\0\0\0");
    assert_eq!(superblock[16..40], *b"test\0\0\0\0\xcd\xab\0\0\0\0\0\0\x02\0\0\0\0\0\0\0");
    assert_eq!(read_at(&device, unit_offset(0), 512)[4..8], *b"VLOG");
    assert_eq!(read_at(&device, unit_offset(0), 512)[48..54], *b"golden");
}

/// A device of which these bytes cannot be read.
fn with_bad_bytes(env: &Env, device: &Device, ranges: &[std::ops::Range<u64>]) -> Device {
    let unreadable = FaultEffect::Fail(FaultError::Unreadable);
    let fault = Fault::new(Operation::Read, FaultTrigger::From(0), unreadable);
    let faults = ranges.iter().map(|range| fault.clone().on_range(range.clone())).collect();
    FaultDevice::device(&FaultInjector::new(env, FaultPlan { seed: 0, faults }), device)
}

fn unit(number: u64) -> std::ops::Range<u64> {
    unit_offset(number)..unit_offset(number + 1)
}

fn expect_unreadable<T>(result: Result<T, StoreError>, offset: u64) {
    match result {
        Err(StoreError::Unreadable { offset_bytes, .. }) => assert_eq!(offset_bytes, offset),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("what cannot be read at {offset} was taken for the end"),
    }
}

#[test]
fn units_that_cannot_be_read_are_not_the_end_of_the_log() {
    let env = Env::sim(1);
    let device = formatted(&env);
    // An older generation leaves its units behind the end.
    let mut journal = opened(&device);
    (0..7).for_each(|_| _ = journal.commit(b"old", CommitStyle::Single).unwrap());
    journal.begin(Some(b"state 1")).unwrap();
    let long = "x".repeat(9000);
    journal.commit(b"one", CommitStyle::Single).unwrap();
    journal.commit(long.as_bytes(), CommitStyle::Single).unwrap();
    let all = vec!["one".to_owned(), long];
    let read = |bad: &[std::ops::Range<u64>]| commits(&with_bad_bytes(&env, &device, bad));
    // Each part is there twice, and nobody's units are behind the end.
    for number in 0..LOG_UNITS {
        assert_eq!(read(&[unit(number)]).unwrap(), all, "unit {number}");
    }
    for (one, other) in [(0, 1), (2, 5), (3, 6), (4, 7)] {
        expect_unreadable(read(&[unit(one), unit(other)]), unit_offset(one));
    }
    assert_eq!(read(&[unit(2), unit(6), unit(4)]).unwrap(), all);
    // One of the first two units of the next commit says that there is none.
    assert_eq!(read(&[unit(8), unit_offset(10)..unit_offset(LOG_UNITS)]).unwrap(), all);
    assert_eq!(read(&[unit(9), unit_offset(10)..unit_offset(LOG_UNITS)]).unwrap(), all);
    expect_unreadable(read(&[unit(8), unit(9)]), unit_offset(8));
    expect_unreadable(read(&[unit(0), unit_offset(1)..unit_offset(LOG_UNITS)]), unit_offset(0));
    // A torn commit has a unit that can be read and is not of it.
    let before = read_at(&device, unit_offset(8), 4 * UNIT as usize);
    journal.commit(&[7; 5000], CommitStyle::Single).unwrap();
    write_at(&device, unit_offset(9), &before[UNIT as usize..]);
    assert_eq!(read(&[unit(8)]).unwrap(), all);
    assert_eq!(read(&[unit(9), unit(11)]).unwrap(), all);
    expect_unreadable(read(&[unit(9), unit(10), unit(11)]), unit_offset(9));
}

/// A generation was begun in one superblock when its writer was interrupted. That one cannot be read for a while: the
/// other one has everything, and whatever happens then to the next generation, nothing is lost.
#[test]
fn one_superblock_that_can_be_read_is_enough_even_if_it_is_the_older_one() {
    for newer in [0, 1] {
        for failing_write in 0..6 {
            let env = Env::sim(1);
            let device = formatted(&env);
            let mut journal = opened(&device);
            journal.commit(b"kept", CommitStyle::Single).unwrap();
            let older = read_at(&device, SUPERBLOCK_OFFSETS[1 - newer], 4096);
            journal.begin(Some(b"state with more")).unwrap();
            write_at(&device, SUPERBLOCK_OFFSETS[1 - newer], &older);
            // The newer one is read when it can be.
            assert_eq!(
                Journal::recover(&device, "disk", &opened_as(&device)).unwrap().1.checkpoint,
                b"state with more"
            );
            let place = SUPERBLOCK_OFFSETS[newer]..SUPERBLOCK_OFFSETS[newer] + 512;
            let bad = with_bad_bytes(&env, &device, &[place]);
            let fault =
                Fault::new(Operation::Write, FaultTrigger::From(failing_write), FaultEffect::Fail(FaultError::Io));
            let injector = FaultInjector::new(&env, FaultPlan::of(fault));
            let (mut journal, recovered) =
                Journal::recover(&FaultDevice::device(&injector, &bad), "disk", &opened_as(&device)).unwrap();
            assert_eq!((recovered.checkpoint, recovered.commits), (b"state 0".to_vec(), vec![b"kept".to_vec()]));
            assert_eq!(recovered.findings.len(), 1);
            let begun = journal.begin(Some(b"state 0 and kept")).is_ok();
            let (_, recovered) = Journal::recover(&device, "disk", &opened_as(&device)).unwrap();
            let found = (recovered.checkpoint.as_slice(), recovered.commits.len());
            let allowed: &[(&[u8], usize)] = match begun {
                true => &[(b"state 0 and kept", 0)],
                false => &[(b"state 0", 1), (b"state 0 and kept", 0), (b"state with more", 0)],
            };
            assert!(allowed.contains(&found), "newer {newer}, write {failing_write}: {found:?}");
        }
    }
    let env = Env::sim(1);
    let device = formatted(&env);
    let both: Vec<_> = SUPERBLOCK_OFFSETS.iter().map(|&at| at..at + 512).collect();
    let error = commits(&with_bad_bytes(&env, &device, &both)).unwrap_err();
    assert!(matches!(error, StoreError::Media { .. }), "{error}");
    assert!(presence(&with_bad_bytes(&env, &device, &both), "disk", &opened_as(&device)).is_err());
}
