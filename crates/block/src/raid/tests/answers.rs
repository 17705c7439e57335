//! Readers with checksums over arrays without protection information, whose members have wrong bytes.

use super::*;
use std::ops::Range;
use varve_media::{Attempt, find_sound_answer};

/// Levels with redundancy. RAID 1 of three has a copy that neither answer is from.
const REDUNDANT: [(RaidLevel, usize); 6] = [
    (RaidLevel::Raid1, 2),
    (RaidLevel::Raid1, 3),
    (RaidLevel::Raid4, 3),
    (RaidLevel::Raid5, 4),
    (RaidLevel::Raid6, 4),
    (RaidLevel::Raid6, 6),
];

fn read(device: &Device, range: &Range<u64>, context: &IoContext) -> Vec<u8> {
    let mut data = vec![0; (range.end - range.start) as usize];
    device.block.read_at(range.start, &mut data, context).unwrap();
    data
}

/// Reads as a reader does who knows what is right. Returns whether the first answer was.
fn read_checked(device: &Device, range: &Range<u64>, expected: &[u8], what: &str) -> bool {
    let mut data = read(device, range, &IoContext::default());
    let is_right = data == expected;
    if !is_right {
        let again = |data: &mut [u8], context: &IoContext| device.block.read_at(range.start, data, context);
        let is_found = find_sound_answer(&mut data, &IoContext::default(), again, |data| data == expected);
        assert!(is_found, "{what}: no sound answer");
    }
    is_right
}

fn flip(member: &Device, at: u64) {
    let start = at / SECTOR * SECTOR;
    let mut sector = vec![0; SECTOR as usize];
    member.block.read_at(start, &mut sector, &IoContext::default()).unwrap();
    sector[(at - start) as usize] ^= 0x40;
    member.block.write_at(start, &sector, &IoContext::default()).unwrap();
}

/// An array full of stamps, with `flips` places wrong, each in its own member: slots and offsets in the data of a member.
fn damaged(env: &Env, (level, count): (RaidLevel, usize), flips: &[(usize, u64)]) -> (Device, Array, Vec<Device>) {
    let members = members(env, count, 4 * CHUNK);
    let (device, array) = open(env, level, &all(&members)).unwrap();
    let sectors = device.block.geometry().capacity_bytes / SECTOR;
    let stamps: Vec<u64> = (1..=sectors).collect();
    device.block.write_at(0, &content(&stamps), &IoContext::default()).unwrap();
    device.block.sync(&IoContext::default()).unwrap();
    flips.iter().for_each(|(slot, at)| flip(&members[*slot], DATA_OFFSET + at));
    (device, array, members)
}

/// Each member in turn, each level, reads of sectors, of parts that cross chunks, and of everything.
#[test]
fn readers_get_the_right_copy_and_the_wrong_one_is_repaired() {
    let mut repaired = 0;
    for (level, count) in REDUNDANT {
        for slot in 0..count {
            repaired += in_simulation(slot as u64, move |env| {
                let mut repaired = 0;
                for at in [700, 2 * CHUNK - 100, 3 * CHUNK + 5000] {
                    let (device, array, _members) = damaged(env, (level, count), &[(slot, at)]);
                    let capacity = device.block.geometry().capacity_bytes;
                    let what = format!("{level} of {count}, member {slot} at {at}");
                    let sectors = capacity / SECTOR;
                    let stamps: Vec<u64> = (1..=sectors).collect();
                    let expected = content(&stamps);
                    // Of sectors, across chunks, and everything.
                    let length = [SECTOR, CHUNK / 2 + SECTOR, capacity][repaired % 3];
                    let mut wrong = 0;
                    for start in (0..capacity).step_by(length as usize) {
                        let range = start..(start + length).min(capacity);
                        let part = &expected[range.start as usize..range.end as usize];
                        wrong += u64::from(!read_checked(&device, &range, part, &what));
                    }
                    assert!(wrong <= 1, "{what}: {wrong} reads were wrong");
                    let statistics = array.statistics();
                    assert_eq!((statistics.accepted_answers, statistics.rewritten_columns), (wrong, wrong), "{what}");
                    let report = array.scrub(false, &IoContext::default()).unwrap();
                    // What no reader looks at stays wrong: parity, and the other copies of a mirror.
                    assert_eq!(report.mismatched_stripes, 1 - wrong, "{what}: {report:?}");
                    if wrong == 1 {
                        let incidents = array.incidents();
                        assert!(incidents.len() == 1 && incidents[0].is_repaired, "{what}: {incidents:?}");
                        assert_eq!(incidents[0].slot, slot, "{what}");
                        assert_eq!(read(&device, &(0..capacity), &IoContext::default()), expected, "{what}");
                        repaired += 1;
                    }
                }
                repaired
            });
        }
    }
    println!("reached: block raid/answers: {repaired} wrong copies repaired");
    assert!(repaired > 25, "{repaired}");
}

/// Two members are wrong in one place, or one is and another is lost.
#[test]
fn raid_6_answers_with_two_columns_wrong() {
    let mut repaired = 0;
    for first in 0..5 {
        for second in first + 1..6 {
            for is_lost in [false, true] {
                repaired += in_simulation(1, move |env| {
                    let at = 2 * CHUNK + 1000;
                    let flips = [(first, at), (second, at + 3)];
                    let count = if is_lost { 1 } else { 2 };
                    let (device, array, _members) = damaged(env, (RaidLevel::Raid6, 6), &flips[..count]);
                    if is_lost {
                        array.fail(second).unwrap();
                    }
                    let capacity = device.block.geometry().capacity_bytes;
                    let expected = content(&(1..=capacity / SECTOR).collect::<Vec<u64>>());
                    let what = format!("{first} and {second}, lost: {is_lost}");
                    for start in (0..capacity).step_by(SECTOR as usize) {
                        let part = &expected[start as usize..][..SECTOR as usize];
                        read_checked(&device, &(start..start + SECTOR), part, &what);
                    }
                    assert_eq!(read(&device, &(0..capacity), &IoContext::default()), expected, "{what}");
                    array.statistics().accepted_answers
                });
            }
        }
    }
    assert!(repaired > 20, "{repaired}");
}

#[test]
fn nothing_is_written_before_a_reader_accepts() {
    let env = Env::real();
    // Stripe 0 of RAID 5 has its first chunk on member 0.
    let (device, array, _members) = damaged(&env, (RaidLevel::Raid5, 3), &[(0, 100)]);
    let right = content(&[1]);
    let again = IoContext { attempt: Attempt::Again(1), ..IoContext::default() };
    let accepted = IoContext { attempt: Attempt::Accepted, ..IoContext::default() };
    let first = read(&device, &(0..SECTOR), &IoContext::default());
    assert_ne!(first, right);
    // Acceptance of what was not answered, or of another range, does nothing.
    assert_eq!(read(&device, &(0..SECTOR), &accepted), first);
    assert_eq!(read(&device, &(0..SECTOR), &again), right);
    read(&device, &(0..2 * SECTOR), &accepted);
    assert_eq!(read(&device, &(0..SECTOR), &IoContext::default()), first);
    assert_eq!(array.scrub(false, &IoContext::default()).unwrap().mismatched_stripes, 1);
    // There is no second other answer.
    let second = IoContext { attempt: Attempt::Again(2), ..IoContext::default() };
    assert_eq!(read(&device, &(0..SECTOR), &second), first);
    assert_eq!(read(&device, &(0..SECTOR), &again), right);
    assert_eq!(read(&device, &(0..SECTOR), &accepted), right);
    assert_eq!(read(&device, &(0..SECTOR), &IoContext::default()), right);
    assert_eq!(array.scrub(false, &IoContext::default()).unwrap().mismatched_stripes, 0);
    let statistics = array.statistics();
    assert_eq!((statistics.other_answers, statistics.accepted_answers), (2, 1));
}

/// An array of arrays: the outer one has no redundancy, the inner ones answer.
#[test]
fn arrays_pass_on_what_they_cannot_answer() {
    let env = Env::real();
    let bare = members(&env, 4, DATA_OFFSET + 8 * CHUNK);
    let mirrors: Vec<Device> = bare.chunks(2).map(|pair| open(&env, RaidLevel::Raid1, &all(pair)).unwrap().0).collect();
    let (device, _array) = open(&env, RaidLevel::Raid0, &all(&mirrors)).unwrap();
    let capacity = device.block.geometry().capacity_bytes;
    let expected = content(&(1..=capacity / SECTOR).collect::<Vec<u64>>());
    device.block.write_at(0, &expected, &IoContext::default()).unwrap();
    // One of the copies is that which is read.
    for member in &bare[..2] {
        flip(member, 2 * DATA_OFFSET + 100);
        let before = read_checked(&device, &(0..capacity), &expected, "RAID 10");
        println!("first answer right: {before}");
        assert_eq!(read(&device, &(0..capacity), &IoContext::default()), expected);
    }
}
