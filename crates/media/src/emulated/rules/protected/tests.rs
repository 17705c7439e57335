//! What a protected drive verifies, generates and keeps.

use crate::context::IoContext;
use crate::device::{BlockDevice, BlockDeviceExt, Geometry};
use crate::emulated::{Backing, Conventional, Emulated, Immediate, NoBacking, Pacing, RamBacking, Zoned};
use crate::error::{MediaError, MediaErrorKind, Operation};
use crate::presets::Preset;
use crate::protection::{GuardKind, ProtectionFormat, ProtectionTag, ProtectionType};
use crate::request::{Request, Transfer};
use crate::zones::{ZoneGeometry, ZoneId};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use varve_env::{Env, Random};

const CAPACITY_BYTES: u64 = 1 << 20;
const TYPES: [ProtectionType; 3] = [ProtectionType::Type1, ProtectionType::Type2, ProtectionType::Type3];

struct Drive {
    device: Emulated,
    data: Arc<RamBacking>,
    tuples: Arc<RamBacking>,
    format: ProtectionFormat,
}

impl Drive {
    fn new(env: &Env, protection_type: ProtectionType, guard: GuardKind, sector_bytes: u32) -> Self {
        let (data, tuples) = (Arc::new(RamBacking::new()), Arc::new(RamBacking::new()));
        let geometry = Geometry { capacity_bytes: CAPACITY_BYTES, sector_bytes, physical_sector_bytes: 4096 };
        let device = Emulated::new(
            env,
            "drive",
            geometry,
            Box::new(Conventional),
            Box::<Immediate>::default(),
            Box::new(data.clone()),
        );
        let device = device.with_protection(protection_type, guard, Box::new(tuples.clone()));
        let format = device.capabilities().protection.unwrap();
        Drive { device, data, tuples, format }
    }

    fn write(&self, at: u64, data: &[u8], tuples: &[u8]) -> Result<(), MediaError> {
        let slices = [IoSlice::new(data)];
        let transfer = Transfer::Write { data: &slices, protection: Some(tuples), durable: false };
        self.device.execute(&mut [Request { offset_bytes: at, transfer, outcome: Ok(()) }], &IoContext::default())
    }

    fn read(&self, at: u64, length: usize) -> Result<(Vec<u8>, Vec<u8>), MediaError> {
        let (mut data, mut tuples) = (vec![1; length], vec![2; self.format.tuples_bytes(length as u64) as usize]);
        let mut slices = [IoSliceMut::new(&mut data)];
        let transfer = Transfer::Read { data: &mut slices, protection: Some(&mut tuples) };
        self.device.execute(&mut [Request { offset_bytes: at, transfer, outcome: Ok(()) }], &IoContext::default())?;
        Ok((data, tuples))
    }

    fn tuples_of(&self, at: u64, data: &[u8], application_tag: u16) -> Vec<u8> {
        let mut tuples = vec![0; self.format.tuples_bytes(data.len() as u64) as usize];
        self.format.generate(at, application_tag, [data], &mut tuples);
        tuples
    }
}

fn drives(env: &Env) -> impl Iterator<Item = Drive> {
    TYPES.into_iter().flat_map(move |of| {
        [(GuardKind::Crc, 512), (GuardKind::IpChecksum, 512), (GuardKind::Crc, 4096)]
            .map(|(guard, sector_bytes)| Drive::new(env, of, guard, sector_bytes))
    })
}

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Random::seeded(seed).fill_bytes(&mut bytes);
    bytes
}

fn tag_of(error: &MediaError) -> (Operation, u64, ProtectionTag) {
    match error {
        MediaError::Protection { device, operation, offset_bytes, tag, .. } if device == "drive" => {
            (*operation, *offset_bytes, *tag)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn keeps_tuples_and_generates_missing_ones() {
    let env = Env::sim(1);
    for drive in drives(&env) {
        let data = bytes(1, 16 << 10);
        let tuples = drive.tuples_of(8192, &data, 0x4711);
        drive.write(8192, &data, &tuples).unwrap();
        assert_eq!(drive.read(8192, data.len()).unwrap(), (data.clone(), tuples));
        // A write without tuples.
        drive.device.write_at(8192, &data[..4096], &IoContext::default()).unwrap();
        assert_eq!(drive.read(8192, 4096).unwrap().1, drive.tuples_of(8192, &data[..4096], 0));
        // A read without tuples.
        let mut found = vec![0; 4096];
        drive.device.read_at(8192, &mut found, &IoContext::default()).unwrap();
        assert_eq!(found, data[..4096]);
        // Never written, and discarded.
        let unwritten =
            |length: usize| (vec![0; length], vec![0xFF; drive.format.tuples_bytes(length as u64) as usize]);
        assert_eq!(drive.read(0, 8192).unwrap(), unwritten(8192));
        drive.device.discard_at(12_288, 4096, &IoContext::default()).unwrap();
        assert_eq!(drive.read(12_288, 4096).unwrap(), unwritten(4096));
        assert_eq!(drive.read(8192, 4096).unwrap().0, data[..4096]);
        assert!(drive.device.stored_bytes() > drive.data.stored_bytes());
    }
}

#[test]
fn refuses_wrong_tuples_and_changes_nothing() {
    let env = Env::sim(1);
    for drive in drives(&env) {
        let interval = u64::from(drive.format.interval_bytes);
        let (old, new) = (bytes(1, 16 << 10), bytes(2, 16 << 10));
        let tuples = drive.tuples_of(0, &old, 1);
        drive.write(0, &old, &tuples).unwrap();
        let good = drive.tuples_of(0, &new, 2);
        let second = |byte: usize| {
            let mut wrong = good.clone();
            wrong[8 + byte] ^= 1;
            wrong
        };
        let error = drive.write(0, &new, &second(0)).unwrap_err();
        assert_eq!(tag_of(&error), (Operation::Write, interval, ProtectionTag::Guard));
        assert_eq!(error.kind(), MediaErrorKind::Protection);
        if drive.format.protection_type != ProtectionType::Type3 {
            let error = drive.write(0, &new, &second(7)).unwrap_err();
            assert_eq!(tag_of(&error), (Operation::Write, interval, ProtectionTag::Reference));
            // The right data in the wrong place.
            let error = drive.write(interval * 2, &new[..interval as usize], &good[..8]).unwrap_err();
            assert_eq!(tag_of(&error), (Operation::Write, interval * 2, ProtectionTag::Reference));
        }
        assert!(matches!(drive.write(0, &new, &good[8..]), Err(MediaError::Rule { .. })));
        assert_eq!(drive.read(0, old.len()).unwrap(), (old, tuples));
    }
}

/// Damage of the medium, below the drive: in data, in a tuple, and a write that reached only one of both.
#[test]
fn finds_damage_of_data_and_tuples_when_it_reads() {
    let env = Env::sim(1);
    for drive in drives(&env) {
        let interval = u64::from(drive.format.interval_bytes);
        let data = bytes(3, 16 << 10);
        drive.device.write_at(0, &data, &IoContext::default()).unwrap();
        let fails = |tag| {
            let mut found = vec![0; data.len()];
            let error = drive.device.read_at(0, &mut found, &IoContext::default()).unwrap_err();
            assert_eq!(tag_of(&error), (Operation::Read, interval, tag), "{:?}", drive.format);
            assert_eq!(tag_of(&drive.read(0, data.len()).unwrap_err()), (Operation::Read, interval, tag));
            drive.read(0, interval as usize).unwrap();
        };
        let at = interval + 100;
        drive.data.write_at(at, &[!data[at as usize]]).unwrap();
        fails(ProtectionTag::Guard);
        drive.data.write_at(at, &data[at as usize..at as usize + 1]).unwrap();
        drive.read(0, data.len()).unwrap();
        let mut tuple = [0; 8];
        drive.tuples.read_at(8, &mut tuple).unwrap();
        drive.tuples.write_at(9, &[tuple[1] ^ 0x10]).unwrap();
        fails(ProtectionTag::Guard);
        drive.tuples.write_at(9, &[tuple[1]]).unwrap();
        if drive.format.protection_type != ProtectionType::Type3 {
            drive.tuples.write_at(15, &[tuple[7] ^ 2]).unwrap();
            fails(ProtectionTag::Reference);
        }
        // Writing the sector again repairs it.
        let sector = data[interval as usize..2 * interval as usize].to_vec();
        drive.device.write_at(interval, &sector, &IoContext::default()).unwrap();
        assert_eq!(drive.read(0, data.len()).unwrap().0, data);
    }
}

/// Writers of the same sectors on several threads, and readers: data and tuple are always of one write.
#[test]
fn data_and_tuples_of_concurrent_writes_stay_together() {
    let env = Env::real();
    let drive = Arc::new(Drive::new(&env, ProtectionType::Type1, GuardKind::Crc, 512));
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let drive = drive.clone();
            std::thread::spawn(move || {
                for round in 0..300 {
                    let data = bytes(number * 1000 + round, 8192);
                    drive.device.write_at(0, &data, &IoContext::default()).unwrap();
                    drive.read(0, 8192).unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_drive_without_bytes_has_no_tuples_to_contradict_them() {
    let env = Env::sim(1);
    let geometry = Geometry { capacity_bytes: CAPACITY_BYTES, sector_bytes: 512, physical_sector_bytes: 4096 };
    let timing = Box::<Immediate>::default();
    let device = Emulated::new(&env, "drive", geometry, Box::new(Conventional), timing, Box::new(NoBacking));
    let device = device.with_protection(ProtectionType::Type1, GuardKind::Crc, Box::new(NoBacking));
    device.write_at(0, &[7; 4096], &IoContext::default()).unwrap();
    device.read_at(0, &mut [0; 4096], &IoContext::default()).unwrap();
}

#[test]
fn rules_over_a_protected_device_show_no_tuples_above_the_write_pointer() {
    let env = Env::sim(1);
    let drive = Drive::new(&env, ProtectionType::Type1, GuardKind::Crc, 512);
    let context = IoContext::default();
    let (data, tuples) = ([1; 8192], drive.tuples_of(0, &[1; 8192], 5));
    drive.device.write_at(0, &[9; 64 << 10], &context).unwrap();
    let inner: Arc<dyn BlockDevice> = Arc::new(drive.device);
    let rules = Zoned::new(&ZoneGeometry::fit(CAPACITY_BYTES, 64 << 10).unwrap());
    let ruled = rules.over(&inner);
    assert_eq!(ruled.block.capabilities().protection, inner.capabilities().protection);
    ruled.block.write_protected_at(0, &data[..4096], &tuples[..64], &context).unwrap();
    let (mut found, mut found_tuples) = ([7; 8192], [7; 128]);
    ruled.block.read_protected_at(0, &mut found, &mut found_tuples, &context).unwrap();
    assert!(found[..4096] == [1; 4096] && found[4096..] == [0; 4096]);
    assert!(found_tuples[..64] == tuples[..64] && found_tuples[64..] == [0xFF; 64]);
    // A write with wrong tuples does not move the pointer.
    let refused = ruled.block.write_protected_at(4096, &data[4096..], &tuples[..64], &context);
    assert_eq!(refused.unwrap_err().kind(), MediaErrorKind::Protection);
    ruled.block.write_protected_at(4096, &data[4096..], &tuples[64..], &context).unwrap();
    ruled.zones.unwrap().reset(ZoneId(0), &context).unwrap();
    ruled.block.read_protected_at(0, &mut found, &mut found_tuples, &context).unwrap();
    assert!(found == [0; 8192] && found_tuples == [0xFF; 128]);
}

/// A sector takes (sector + 8) / sector of the time under the head.
#[test]
fn tuples_take_their_time_of_the_platter() {
    let nanos_per_byte = |protected: bool| {
        let env = Env::sim(1);
        let preset = Preset::find("st500dm002").unwrap();
        let preset = match protected {
            true => preset.with_protection(),
            false => preset,
        };
        let device = preset.build(&env, "disk", Box::new(NoBacking), Pacing::Account);
        let mut data = vec![0; 1 << 20];
        for at in 0..64 {
            device.read_at(at << 20, &mut data, &IoContext::default()).unwrap();
        }
        let sector = f64::from(device.geometry().sector_bytes);
        let counters = device.counters();
        // Read-ahead moves bytes too.
        let nanos_per_byte = counters.time.transfer_nanos as f64 / counters.media_read_bytes as f64;
        (nanos_per_byte, (sector + 8.0) / sector, device.geometry().capacity_bytes)
    };
    let (plain, ratio, capacity_bytes) = nanos_per_byte(false);
    let (protected, _, same_bytes) = nanos_per_byte(true);
    assert!((protected / plain / ratio - 1.0).abs() < 1e-3, "{protected} / {plain}, expected {ratio}");
    assert_eq!(capacity_bytes, same_bytes);
}
