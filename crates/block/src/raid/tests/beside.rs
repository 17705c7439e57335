//! Arrays of plain members with tuples beside the data.

use super::*;
use varve_media::{Geometry, MediaErrorKind, ProtectionType};

fn beside(level: RaidLevel) -> ArrayParameters {
    ArrayParameters { protection: Some(ProtectionPlace::Beside), ..parameters(level) }
}

/// Space for the journal, the data, and the blocks of their tuples, in bytes.
fn space_bytes(count: usize, data_bytes: u64) -> u64 {
    let level = RaidLevel::Raid5;
    let geometry = super::super::geometry::ArrayGeometry { level, members: count, chunk_bytes: CHUNK, stripes: 1 };
    2 * super::super::stripe_journal::area_bytes(&geometry, 0) + data_bytes + (4 << 10) * data_bytes.div_ceil(256 << 10)
}

fn open_beside(env: &Env, level: RaidLevel, members: &[Option<Device>]) -> Result<(Device, Array), ArrayError> {
    Array::open(env, members, &beside(level), &ArrayOpening::default())
}

#[test]
fn every_level_is_a_protected_device_whole_and_degraded() {
    let mut checked = 0;
    for (level, count) in SHAPES {
        let tolerated = level.tolerated(count);
        let cases = [vec![], vec![count - 1], vec![0, 2]];
        for lost in cases.into_iter().filter(|lost| lost.len() <= tolerated && lost.iter().all(|slot| *slot < count)) {
            let make = |env: &Env| {
                let members = members(env, count, space_bytes(count, 300 << 10));
                let (device, array) = open_beside(env, level, &all(&members)).expect("an array of blank members");
                lost.iter().for_each(|slot| array.fail(*slot).expect("a member that may be lost"));
                device
            };
            let keeps_application_tags = lost.is_empty();
            let options = BlockDeviceCheck { steps: 60, keeps_application_tags, ..BlockDeviceCheck::default() };
            if let Err(broken) = check_block_device(&make, &options) {
                panic!("{level} of {count} without {lost:?}: {broken:?}");
            }
            checked += 1;
        }
    }
    println!("reached: block raid/beside conformance: {checked} arrays");
    assert!(checked > 15);
}

/// Any byte of data or tuples of one member at a time.
#[test]
fn damage_of_a_member_is_found_and_repaired() {
    let mut repaired = 0;
    for (number, (level, count)) in SHAPES.into_iter().enumerate().filter(|(_, (level, _))| *level != RaidLevel::Raid0)
    {
        repaired += in_simulation(number as u64, move |env| {
            let members = members(env, count, space_bytes(count, 40 << 10));
            let (device, array) = open_beside(env, level, &all(&members)).unwrap();
            let mut host = Host::new(device, number as u64);
            host.write(0..host.stamps.len()).unwrap();
            let data_offset = array.front.shared.data_offset;
            let end = members[0].block.geometry().capacity_bytes;
            drop(array);
            let expected = host.stamps.clone();
            drop(host);
            let mut random = Random::named(number as u64, "damage");
            let mut repaired = 0;
            for round in 0..30 {
                let slot = random.index(count);
                let at = data_offset + random.below((end - data_offset) / SECTOR) * SECTOR;
                let mut sector = [0; SECTOR as usize];
                let context = IoContext::default();
                members[slot].block.read_at(at, &mut sector, &context).unwrap();
                sector[random.index(SECTOR as usize)] ^= 1 << random.below(8);
                members[slot].block.write_at(at, &sector, &context).unwrap();
                let (device, array) = open_beside(env, level, &all(&members)).unwrap();
                let what = format!("{level} of {count}, round {round}, member {slot} at {at}");
                if random.chance(1, 2) {
                    assert_eq!(stamps(&device).unwrap().unwrap(), expected, "{what}");
                }
                array.scrub(true, &context).unwrap();
                repaired += array.incidents().iter().filter(|incident| incident.is_repaired).count() as u64;
                let report = array.scrub(false, &context).unwrap();
                assert_eq!((report.mismatched_stripes, report.unreadable_stripes), (0, 0), "{what}: {report:?}");
                assert_eq!(stamps(&device).unwrap().unwrap(), expected, "{what}");
                assert_eq!(array.degraded_members(), 0, "{what}");
            }
            repaired
        });
    }
    println!("reached: block raid/beside: {repaired} parts repaired");
    assert!(repaired > 80, "{repaired}");
}

#[test]
fn a_member_is_replaced_and_rebuilt_with_its_tuples() {
    for (number, (level, count)) in SHAPES.into_iter().enumerate().filter(|(_, (level, _))| *level != RaidLevel::Raid0)
    {
        in_simulation(number as u64, move |env| {
            let space = space_bytes(count, 600 << 10);
            let members = members(env, count, space);
            let (device, array) = open_beside(env, level, &all(&members)).unwrap();
            let mut host = Host::new(device, number as u64);
            (0..30).for_each(|_| host.step().unwrap());
            array.fail(1).unwrap();
            (0..10).for_each(|_| host.step().unwrap());
            // The new member has other data.
            let spare = member(env, "spare", space);
            let junk = vec![0xA5; spare.block.geometry().capacity_bytes as usize];
            spare.block.write_at(0, &junk, &IoContext::default()).unwrap();
            array.replace(1, &spare).unwrap();
            (0..10).for_each(|_| host.step().unwrap());
            array.wait_for_maintenance();
            assert_eq!(array.degraded_members(), 0);
            let report = array.scrub(false, &IoContext::default()).unwrap();
            assert_eq!((report.mismatched_stripes, report.unreadable_stripes), (0, 0), "{level}: {report:?}");
            array.fail(0).unwrap();
            host.check();
        });
    }
}

#[test]
fn members_that_were_in_use_are_made_blank() {
    for level in RaidLevel::ALL {
        let env = Env::sim(1);
        let count = level.members_min();
        let members = members(&env, count, space_bytes(count, 100 << 10));
        for member in &members {
            let junk = vec![0x5A; member.block.geometry().capacity_bytes as usize];
            member.block.write_at(0, &junk, &IoContext::default()).unwrap();
        }
        let opening = ArrayOpening { format: true, ..ArrayOpening::default() };
        let (device, array) = Array::open(&env, &all(&members), &beside(level), &opening).unwrap();
        assert!(stamps(&device).unwrap().unwrap().iter().all(|stamp| *stamp == 0), "{level}");
        let report = array.scrub(false, &IoContext::default()).unwrap();
        assert_eq!((report.mismatched_stripes, report.unreadable_stripes), (0, 0), "{level}: {report:?}");
    }
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_written() {
    let env = Env::real();
    let level = RaidLevel::Raid5;
    let blank = || members(&env, 3, space_bytes(3, 100 << 10));
    let devices = blank();
    let without_journal = ArrayParameters { journal: Some(StripeJournal::None), ..beside(level) };
    let error = Array::open(&env, &all(&devices), &without_journal, &ArrayOpening::default()).err().unwrap();
    assert!(matches!(error, ArrayError::NeedsJournal { .. }), "{error}");
    assert!(error.to_string().contains("array: tuples beside the data need a journal"), "{error}");
    assert_eq!(devices[0].block.counters().writes, 0);
    drop(open_beside(&env, level, &all(&devices)).unwrap());
    // Without a word an array is opened as it is.
    let (device, array) = open(&env, level, &all(&devices)).unwrap();
    let status = array.status();
    assert_eq!((status.protection_place, status.journal), (ProtectionPlace::Beside, StripeJournal::Members));
    let format = device.block.capabilities().protection.expect("protection information");
    assert_eq!((format.protection_type, format.interval_bytes), (ProtectionType::Type1, 512));
    drop((device, array));
    let of_members = ArrayParameters { protection: Some(ProtectionPlace::Members), ..parameters(level) };
    let error = Array::open(&env, &all(&devices), &of_members, &ArrayOpening::default()).err().unwrap();
    assert!(matches!(error, ArrayError::OtherParameters { what: "protection information", .. }), "{error}");
    // Members that keep protection information need nothing beside it.
    let protected = super::protection::protected(&env, 3, space_bytes(3, 100 << 10), super::protection::TYPE_1);
    let error = open_beside(&env, level, &all(&protected.devices)).err().unwrap();
    assert!(matches!(error, ArrayError::Unsuitable { .. }), "{error}");
    // Too small for a block and a chunk.
    let small = members(&env, 3, space_bytes(3, 0));
    let error = open_beside(&env, level, &all(&small)).err().unwrap();
    assert!(matches!(error, ArrayError::Unsuitable { .. }), "{error}");
    let geometry: Geometry = small[0].block.geometry().clone();
    assert_eq!(geometry.capacity_bytes, DATA_OFFSET + space_bytes(3, 0));
}

/// Tuples that a power cut left beside other data are not judged before the journal is replayed.
#[test]
fn reading_alone_needs_a_journal_without_records() {
    let env = Env::sim(3);
    let level = RaidLevel::Raid5;
    let members = members(&env, 3, space_bytes(3, 100 << 10));
    let (device, array) = open_beside(&env, level, &all(&members)).unwrap();
    device.block.write_at(0, &[1; 4096], &IoContext::default()).unwrap();
    // What is there without a close.
    let copies: Vec<Device> = members
        .iter()
        .map(|of| {
            let mut bytes = vec![0; of.block.geometry().capacity_bytes as usize];
            of.block.read_at(0, &mut bytes, &IoContext::default()).unwrap();
            let copy = Device::of_blocks(Arc::new(Emulated::immediate(&env, "copy", bytes.len() as u64)));
            copy.block.write_at(0, &bytes, &IoContext::default()).unwrap();
            copy
        })
        .collect();
    drop((device, array));
    let opening = ArrayOpening { is_read_only: true, ..ArrayOpening::default() };
    let error = Array::open(&env, &all(&copies), &beside(level), &opening).err().expect("records in the journal");
    assert!(matches!(error, ArrayError::Unreplayed { records: 1.., .. }), "{error}");
    // A closed one can be read.
    let (device, _array) = Array::open(&env, &all(&members), &beside(level), &opening).unwrap();
    let mut data = [0; 4096];
    device.block.read_at(0, &mut data, &IoContext::default()).unwrap();
    assert_eq!(data, [1; 4096]);
    let error = device.block.write_at(0, &data, &IoContext::default()).expect_err("read only");
    assert_eq!(error.kind(), MediaErrorKind::InvalidRequest);
}
