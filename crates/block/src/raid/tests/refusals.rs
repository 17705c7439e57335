//! What opening refuses, and that it then writes nothing.

use super::*;
use varve_media::{CrashDevice, Geometry};

/// Opens members, and checks that a refusal changed nothing on any of them.
fn refused(env: &Env, level: RaidLevel, given: &[Option<Device>], opening: &ArrayOpening) -> ArrayError {
    let watched: Vec<Option<CrashDevice>> =
        given.iter().map(|device| device.as_ref().map(|device| CrashDevice::new(env, device).unwrap())).collect();
    let devices: Vec<Option<Device>> = watched.iter().map(|device| device.as_ref().map(CrashDevice::device)).collect();
    let result = Array::open(env, &devices, &parameters(level), opening);
    let points: u64 = watched.iter().flatten().map(CrashDevice::persistence_points).sum();
    match result {
        Ok(_) => panic!("{level} was opened"),
        Err(error) => {
            assert_eq!(points, 0, "{error}: something was written");
            error
        }
    }
}

fn made(env: &Env, level: RaidLevel, count: usize) -> Vec<Device> {
    let members = members(env, count, 8 * CHUNK);
    let (device, _array) = open(env, level, &all(&members)).unwrap();
    device.block.write_at(0, &content(&[5; 40]), &IoContext::default()).unwrap();
    members
}

#[test]
fn refuses_what_is_no_array() {
    let env = Env::real();
    let default = ArrayOpening::default();
    let level = RaidLevel::Raid5;
    let blank = members(&env, 3, 8 * CHUNK);
    let no_create = ArrayOpening { create: false, ..ArrayOpening::default() };
    assert!(matches!(refused(&env, level, &all(&blank), &no_create), ArrayError::NotThere { .. }));
    assert!(matches!(refused(&env, level, &without(&blank, &[1]), &default), ArrayError::NotThere { .. }));
    assert!(matches!(refused(&env, level, &all(&blank[..2]), &default), ArrayError::MemberCount { found: 2, .. }));
    let mut unequal = blank.clone();
    unequal[1] = member(&env, "m1", 9 * CHUNK);
    assert!(matches!(refused(&env, level, &all(&unequal), &default), ArrayError::OtherSize { .. }));
    let tiny: Vec<Device> = members(&env, 3, CHUNK - 4096);
    assert!(matches!(refused(&env, level, &all(&tiny), &default), ArrayError::Unsuitable { .. }));
    // Something else on a device that looks blank at its start.
    let other = members(&env, 3, 8 * CHUNK);
    other[2].block.write_at(4 * CHUNK, &[1; 4096], &IoContext::default()).unwrap();
    assert!(
        matches!(refused(&env, level, &all(&other), &default), ArrayError::NotBlank { offset_bytes, .. } if offset_bytes == 4 * CHUNK)
    );
    let bad = ArrayParameters { chunk_bytes: Some(5000), ..parameters(level) };
    let refusal = Array::open(&env, &all(&blank), &bad, &default).err().expect("a chunk of 5000 bytes");
    assert!(matches!(refusal, ArrayError::Chunk { found: 5000, .. }), "{refusal}");
    let zoned = varve_media::conformance::devices::TRANSLATED_ZONES;
    let geometry = Geometry { capacity_bytes: 4 << 20, sector_bytes: 512, physical_sector_bytes: 4096 };
    let mut with_zones = blank;
    with_zones[0] = (zoned.make)(&env, "zones", &geometry);
    assert!(matches!(refused(&env, level, &all(&with_zones), &default), ArrayError::Unsuitable { .. }));
}

#[test]
fn refuses_members_that_do_not_belong_together() {
    let env = Env::real();
    let default = ArrayOpening::default();
    let level = RaidLevel::Raid5;
    let members = made(&env, level, 4);
    assert!(matches!(
        refused(&env, level, &without(&members, &[0, 2]), &default),
        ArrayError::TooFew { expected: 3, found: 2, ref missing, .. } if missing == &[0, 2]
    ));
    assert!(matches!(
        refused(&env, RaidLevel::Raid6, &all(&members), &default),
        ArrayError::OtherParameters { what: "level", .. }
    ));
    let parameters = ArrayParameters { chunk_bytes: Some(4096), ..parameters(level) };
    assert!(matches!(
        Array::open(&env, &all(&members), &parameters, &default),
        Err(ArrayError::OtherParameters { .. })
    ));
    assert!(matches!(
        refused(&env, level, &all(&members[..3]), &default),
        ArrayError::OtherParameters { what: "members", .. }
    ));

    let replaced_by = |device: Device| {
        let mut given = members.clone();
        given[2] = device;
        all(&given)
    };
    let own_sim = Env::sim(3);
    let foreign = made(&own_sim, level, 4)[2].clone();
    let foreign_content = {
        let device = member(&env, "foreign", 8 * CHUNK);
        let mut bytes = vec![0; (DATA_OFFSET + 8 * CHUNK) as usize];
        foreign.block.read_at(0, &mut bytes, &IoContext::default()).unwrap();
        device.block.write_at(0, &bytes, &IoContext::default()).unwrap();
        device
    };
    assert!(matches!(refused(&env, level, &replaced_by(foreign_content), &default), ArrayError::Foreign { .. }));
    assert!(matches!(
        refused(&env, level, &replaced_by(members[1].clone()), &default),
        ArrayError::Duplicate { slot: 1, .. }
    ));
    let blank = member(&env, "blank", 8 * CHUNK);
    assert!(matches!(refused(&env, level, &replaced_by(blank), &default), ArrayError::BlankMember { slot: 2, .. }));
    // Both copies damaged, one copy damaged.
    let bytes = |device: &Device| {
        let mut bytes = vec![0; 8192];
        device.block.read_at(0, &mut bytes, &IoContext::default()).unwrap();
        bytes
    };
    let sound = bytes(&members[2]);
    for (copies, is_refused) in [(&[0][..], false), (&[1], false), (&[0, 1], true)] {
        let mut damaged = sound.clone();
        copies.iter().for_each(|copy| damaged[copy * 4096 + 40] ^= 1);
        members[2].block.write_at(0, &damaged, &IoContext::default()).unwrap();
        match is_refused {
            true => {
                assert!(matches!(refused(&env, level, &all(&members), &default), ArrayError::Damaged { .. }));
                members[2].block.write_at(0, &sound, &IoContext::default()).unwrap();
            }
            false => {
                drop(open(&env, level, &all(&members)).unwrap());
                assert_eq!(bytes(&members[2]), sound, "the damaged copy was not written again");
            }
        }
    }
}

#[test]
fn refuses_a_member_that_was_left_behind() {
    let env = Env::real();
    let (level, default) = (RaidLevel::Raid5, ArrayOpening::default());
    let members = made(&env, level, 3);
    {
        let (device, _array) = open(&env, level, &without(&members, &[1])).unwrap();
        device.block.write_at(0, &content(&[6; 40]), &IoContext::default()).unwrap();
    }
    let stale = refused(&env, level, &all(&members), &default);
    assert!(matches!(stale, ArrayError::Stale { slot: 1, expected: 2, found: 1, .. }), "{stale}");
    // Rebuilt, when asked for.
    let opening = ArrayOpening { replace: vec![1], ..ArrayOpening::default() };
    let (device, array) = Array::open(&env, &all(&members), &parameters(level), &opening).unwrap();
    array.wait_for_maintenance();
    assert_eq!(array.degraded_members(), 0);
    array.fail(0).unwrap();
    assert_eq!(stamps(&device).unwrap().unwrap()[..40], [6; 40]);
    drop((device, array));

    // Mirrors that went on without each other.
    let mirrors = made(&env, RaidLevel::Raid1, 2);
    for lost in [0, 1] {
        drop(open(&env, RaidLevel::Raid1, &without(&mirrors, &[lost])).unwrap());
    }
    let diverged = refused(&env, RaidLevel::Raid1, &all(&mirrors), &default);
    assert!(matches!(diverged, ArrayError::Diverged { generation: 2, .. }), "{diverged}");
}

#[test]
fn format_makes_an_array_of_anything_and_resyncs_it() {
    for (level, count) in SHAPES {
        in_simulation(1, move |env| {
            let members = members(env, count, 8 * CHUNK);
            let mut random = Random::seeded(1);
            for member in &members {
                let mut noise = vec![0; (8 * CHUNK) as usize];
                random.fill_bytes(&mut noise);
                member.block.write_at(DATA_OFFSET, &noise, &IoContext::default()).unwrap();
            }
            assert!(matches!(open(env, level, &all(&members)), Err(ArrayError::NotBlank { .. })));
            let opening = ArrayOpening { format: true, ..ArrayOpening::default() };
            let (device, array) = Array::open(env, &all(&members), &parameters(level), &opening).unwrap();
            device.block.write_at(0, &content(&[3; 7]), &IoContext::default()).unwrap();
            array.wait_for_maintenance();
            let report = array.scrub(false, &IoContext::default()).unwrap();
            assert_eq!(report.mismatched_stripes, 0, "{level}");
            let resynced = array.statistics().resynced_stripes;
            assert_eq!(resynced, if level == RaidLevel::Raid0 { 0 } else { 8 }, "{level}");
        });
    }
}

#[test]
fn read_only_opening_writes_nothing() {
    let env = Env::real();
    let members = made(&env, RaidLevel::Raid5, 3);
    let watched: Vec<CrashDevice> = members.iter().map(|device| CrashDevice::new(&env, device).unwrap()).collect();
    let devices: Vec<Option<Device>> = watched.iter().skip(1).map(|device| Some(device.device())).collect();
    let given = [vec![None], devices].concat();
    let opening = ArrayOpening { is_read_only: true, ..ArrayOpening::default() };
    let (device, array) = Array::open(&env, &given, &parameters(RaidLevel::Raid5), &opening).unwrap();
    assert_eq!(stamps(&device).unwrap().unwrap()[..41], [[5; 40].as_slice(), &[0]].concat());
    array.wait_for_maintenance();
    assert!(device.block.write_at(0, &[1; 512], &IoContext::default()).is_err());
    drop((device, array));
    assert_eq!(watched.iter().map(CrashDevice::persistence_points).sum::<u64>(), 0);
}
