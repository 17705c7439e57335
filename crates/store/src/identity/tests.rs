//! Devices that hold something, and formats that are interrupted.

use super::block::IdentityBlock;
use super::*;
use crate::error::{StoreError, StoreErrorKind};
use crate::{
    AllocationName, BandFormatOptions, BandStore, ExtentFormatOptions, ExtentStore, ImrDevices, ImrFormatOptions,
    ImrOpenOptions, ImrStore,
};
use parking_lot::Mutex;
use std::sync::Arc;
use varve_env::{Env, Random};
use varve_media::{
    BlockDevice, BlockDeviceExt, CrashDevice, CrashVariant, DeviceCrashState, Emulated, Fault, FaultDevice,
    FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, Geometry, Immediate, Interlaced, IoContext,
    Operation, RamBacking, ZoneId, Zoned,
};

const CAPACITY_BYTES: u64 = 16 << 20;
const CONTEXT: IoContext = crate::journal::METADATA;

fn blocks(env: &Env, capacity_bytes: u64) -> Arc<dyn BlockDevice> {
    let geometry = Geometry { capacity_bytes, sector_bytes: 512, physical_sector_bytes: 4096 };
    let (timing, backing) = (Box::<Immediate>::default(), Box::new(RamBacking::new()));
    Arc::new(Emulated::new(env, "device", geometry, Box::new(varve_media::emulated::Conventional), timing, backing))
}

fn tracks(top_track_bytes: u64) -> TrackGeometry {
    TrackGeometry::fit(CAPACITY_BYTES, top_track_bytes, top_track_bytes).unwrap()
}

fn zones() -> ZoneGeometry {
    let all = ZoneGeometry::fit(CAPACITY_BYTES, 256 << 10).unwrap();
    ZoneGeometry { conventional_zones: 4, ..all }
}

/// A kind of store on a kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    Extent,
    Band,
    /// An interlaced disk with tracks of so many bytes.
    Imr {
        top_track_bytes: u64,
    },
    ImrConventional,
    ImrWithLogs,
}

const ALL: [Made; 6] = [
    Made::Extent,
    Made::Band,
    Made::Imr { top_track_bytes: 8 << 10 },
    Made::Imr { top_track_bytes: 256 << 10 },
    Made::ImrConventional,
    Made::ImrWithLogs,
];

impl Made {
    /// The same bytes under the rules this store wants.
    fn over(self, bytes: &Arc<dyn BlockDevice>) -> Device {
        match self {
            Made::Extent | Made::ImrConventional => Device::of_blocks(bytes.clone()),
            Made::Band => Zoned::new(&zones()).over(bytes),
            Made::Imr { top_track_bytes } => Interlaced::new(&tracks(top_track_bytes), 4096, true).over(bytes),
            Made::ImrWithLogs => Interlaced::new(&tracks(8 << 10), 4096, true).over(bytes),
        }
    }

    fn devices(self, env: &Env) -> Vec<Device> {
        let disk = self.over(&blocks(env, CAPACITY_BYTES));
        let logs = (self == Made::ImrWithLogs).then(|| Device::of_blocks(blocks(env, 8 << 20)));
        [disk].into_iter().chain(logs).collect()
    }

    fn of_imr(devices: &[Device]) -> ImrDevices {
        ImrDevices { disk: devices[0].clone(), logs: devices.get(1).cloned() }
    }

    fn format(self, env: &Env, devices: &[Device], overwrite: bool) -> Result<(), StoreError> {
        let disk = &devices[0];
        match self {
            Made::Extent => {
                ExtentStore::format(env, disk, &ExtentFormatOptions { overwrite, ..ExtentFormatOptions::default() })
            }
            Made::Band => {
                BandStore::format(env, disk, &BandFormatOptions { overwrite, ..BandFormatOptions::default() })
            }
            Made::Imr { .. } | Made::ImrConventional | Made::ImrWithLogs => {
                let options = ImrFormatOptions {
                    table_bytes_max: Some(64 << 10),
                    small_files_bytes: Some(2 << 20),
                    persists_max: 1,
                    conventional_track_bytes: (self == Made::ImrConventional).then_some(8 << 10),
                    allocation: AllocationName::Sequential,
                    overwrite,
                    ..ImrFormatOptions::default()
                };
                ImrStore::format(env, Made::of_imr(devices), &options)
            }
        }
    }

    fn probe(self, devices: &[Device]) -> Result<bool, StoreError> {
        match self {
            Made::Extent => ExtentStore::probe(&devices[0]),
            Made::Band => BandStore::probe(&devices[0]),
            _ => ImrStore::probe(&devices[0]),
        }
    }

    fn open(self, env: &Env, devices: &[Device]) -> Result<(), StoreError> {
        match self {
            Made::Extent => ExtentStore::open(env, devices[0].clone()).map(drop),
            Made::Band => BandStore::open(env, devices[0].clone()).map(drop),
            _ => ImrStore::open(env, Made::of_imr(devices), &ImrOpenOptions::default()).map(drop),
        }
    }

    /// As whoever opens a spec does it: what is not there is made, and what is there is opened.
    fn opened_or_made(self, env: &Env, devices: &[Device]) -> Result<bool, StoreError> {
        let is_there = self.probe(devices)?;
        if !is_there {
            self.format(env, devices, false)?;
        }
        self.open(env, devices)?;
        Ok(is_there)
    }
}

fn bytes_of(block: &Arc<dyn BlockDevice>) -> Vec<u8> {
    let mut bytes = vec![0; block.geometry().capacity_bytes as usize];
    block.read_at(0, &mut bytes, &CONTEXT).unwrap();
    bytes
}

/// Every store on every kind of device is refused as every other, by both names, and not a byte changes.
#[test]
fn what_was_formatted_as_one_thing_is_not_taken_for_another() {
    let env = Env::sim(1);
    for one in ALL {
        let bytes = blocks(&env, CAPACITY_BYTES);
        let logs = (one == Made::ImrWithLogs).then(|| Device::of_blocks(blocks(&env, 8 << 20)));
        let devices: Vec<Device> = [one.over(&bytes)].into_iter().chain(logs).collect();
        one.format(&env, &devices, false).unwrap();
        one.open(&env, &devices).unwrap();
        let before = bytes_of(&bytes);
        let same_disk = |other: Made| {
            let with_logs = [Made::ImrWithLogs, Made::Imr { top_track_bytes: 8 << 10 }];
            other == one || with_logs.contains(&one) && with_logs.contains(&other)
        };
        for other in ALL.into_iter().filter(|other| !same_disk(*other)) {
            let devices: Vec<Device> = [other.over(&bytes)]
                .into_iter()
                .chain((other == Made::ImrWithLogs).then(|| Device::of_blocks(blocks(&env, 8 << 20))))
                .collect();
            let refusals = [
                other.probe(&devices).map(drop),
                other.open(&env, &devices),
                other.format(&env, &devices, false),
                other.opened_or_made(&env, &devices).map(drop),
            ];
            for refusal in refusals {
                let error = refusal.unwrap_err();
                assert_eq!(error.kind(), StoreErrorKind::Foreign, "{one:?} as {other:?}: {error}");
                let StoreError::Foreign { expected, found, .. } = &error else { panic!("{error}") };
                let (one_shape, other_shape) = (DeviceShape::of(&one.over(&bytes)), DeviceShape::of(&devices[0]));
                assert!(found.contains(&one_shape.to_string()), "{one:?} as {other:?}: {error}");
                assert!(expected.contains(&other_shape.to_string()), "{one:?} as {other:?}: {error}");
            }
            assert!(bytes_of(&bytes) == before, "{one:?} as {other:?}");
        }
        // Overwriting is what one may ask for; then it is the other.
        for other in ALL.into_iter().filter(|other| *other != one && *other != Made::ImrWithLogs) {
            let devices = [other.over(&bytes)];
            other.format(&env, &devices, true).unwrap();
            other.open(&env, &devices).unwrap();
        }
    }
}

/// Another capacity, of a store that could live with it.
#[test]
fn a_device_of_another_size_is_refused_with_both_sizes() {
    let env = Env::sim(1);
    let small = blocks(&env, 4 << 20);
    Made::Extent.format(&env, &[Device::of_blocks(small.clone())], false).unwrap();
    let large = blocks(&env, 8 << 20);
    large.write_at(0, &bytes_of(&small), &CONTEXT).unwrap();
    let error = Made::Extent.opened_or_made(&env, &[Device::of_blocks(large)]).unwrap_err().to_string();
    assert!(error.contains("8388608 bytes") && error.contains("the 4194304 bytes it was formatted with"), "{error}");
}

/// Anything that is not zeros in the first two mebibytes or the last one, a zone that was written, and what cannot be
/// read keep every store off.
#[test]
fn what_is_not_blank_is_not_formatted() {
    let env = Env::sim(1);
    let mut random = Random::seeded(7);
    for made in ALL {
        let edge = 512 * random.below(2 << 11);
        for at in [0, 512, 4096, 65_536, (1 << 20) - 512, 1 << 20, (1 << 20) + 1024, edge, CAPACITY_BYTES - 4096] {
            let bytes = blocks(&env, CAPACITY_BYTES);
            bytes.write_at(at, &[0x21; 512], &CONTEXT).unwrap();
            let before = bytes_of(&bytes);
            let mut devices = made.devices(&env);
            devices[0] = made.over(&bytes);
            let error = made.opened_or_made(&env, &devices).err();
            // The end of a zoned device is a zone, whose bytes count by its pointer.
            if made == Made::Band && at >= 1 << 20 {
                continue;
            }
            let error = error.unwrap_or_else(|| panic!("{made:?}, byte {at}"));
            assert_eq!(error.kind(), StoreErrorKind::Foreign, "{made:?}, byte {at}: {error}");
            assert!(bytes_of(&bytes) == before);
        }
        let injector = FaultInjector::new(&env, FaultPlan::default());
        for call in 0..4 {
            let mut devices = made.devices(&env);
            devices[0] = FaultDevice::device(&injector, &devices[0]);
            let unreadable = FaultEffect::Fail(FaultError::Unreadable);
            injector.set_plan(FaultPlan::of(Fault::new(Operation::Read, FaultTrigger::From(call), unreadable)));
            let before = devices[0].block.counters().writes;
            made.probe(&devices).unwrap_err();
            made.format(&env, &devices, false).unwrap_err();
            assert_eq!(devices[0].block.counters().writes, before, "{made:?}, read {call}");
        }
    }
    let devices = Made::Band.devices(&env);
    let at = zones().start_bytes(ZoneId(20));
    devices[0].block.write_at(at, &[0; 4096], &CONTEXT).unwrap();
    let error = Made::Band.opened_or_made(&env, &devices).unwrap_err().to_string();
    assert!(error.contains("zone 20"), "{error}");
}

/// What a format left behind is done again, and only as what it was.
#[test]
fn a_format_that_ends_at_any_write_or_sync_is_done_again() {
    for made in ALL {
        let (mut unfinished, mut struck_all) = (0, false);
        'calls: for operation in [Operation::Write, Operation::Sync] {
            for call in 0.. {
                let env = Env::sim(1);
                let devices = made.devices(&env);
                let fault = Fault::new(operation, FaultTrigger::From(call), FaultEffect::Fail(FaultError::Io));
                let injector = FaultInjector::new(&env, FaultPlan::of(fault));
                let faulty: Vec<Device> = devices.iter().map(|device| FaultDevice::device(&injector, device)).collect();
                let outcome = made.format(&env, &faulty, false);
                if injector.injected() == 0 {
                    outcome.unwrap();
                    struck_all = true;
                    continue 'calls;
                }
                outcome.unwrap_err();
                if call < 4 && made != Made::Extent && operation == Operation::Sync {
                    // Another kind of store is told what it was to be, or that it is blank.
                    let other = Device::of_blocks(devices[0].block.clone());
                    let found = ExtentStore::probe(&other);
                    assert!(!matches!(found, Ok(true)), "{made:?}, {operation} {call}");
                }
                let is_there = made
                    .opened_or_made(&env, &devices)
                    .unwrap_or_else(|error| panic!("{made:?}, {operation} {call}: {error}"));
                unfinished += u32::from(!is_there);
                assert!(made.opened_or_made(&env, &devices).unwrap());
            }
        }
        assert!(struck_all && unfinished > 4, "{made:?}: {unfinished}");
    }
}

/// The same after a power cut, which may leave any part of what was not synced.
#[test]
fn a_format_that_a_power_cut_ends_is_done_again() {
    type Captured = Vec<Vec<DeviceCrashState>>;
    for (number, made) in ALL.into_iter().enumerate() {
        let env = Env::sim(1);
        let devices = made.devices(&env);
        let layers: Vec<Arc<CrashDevice>> =
            devices.iter().map(|device| Arc::new(CrashDevice::new(&env, device).unwrap())).collect();
        let captured: Arc<Mutex<Captured>> = Arc::default();
        for (index, layer) in layers.iter().enumerate() {
            let (captured, others) = (captured.clone(), layers.clone());
            layer.on_persistence_point(move |point| {
                let state = |other: usize| if other == index { point.capture() } else { others[other].capture() };
                captured.lock().push((0..others.len()).map(state).collect());
            });
        }
        let over: Vec<Device> = layers.iter().map(|layer| layer.device()).collect();
        made.format(&env, &over, false).unwrap();
        let captured = std::mem::take(&mut *captured.lock());
        assert!(captured.len() > 8);
        let mut random = Random::seeded(number as u64);
        for (point, states) in captured.iter().enumerate() {
            for variant in CrashVariant::OF_DEVICES {
                let seed = random.next_u64();
                let images: Vec<Device> = states.iter().map(|state| state.image(variant, seed)).collect();
                made.opened_or_made(&env, &images)
                    .unwrap_or_else(|error| panic!("{made:?}, point {point}, {variant:?}, seed {seed}: {error}"));
            }
        }
    }
}

/// A format that was asked to overwrite a store and ended somewhere leaves the one or the other, or is refused by name
/// until it is asked again.
#[test]
fn overwriting_that_ends_anywhere_can_be_done_again() {
    for one in ALL {
        for other in ALL.into_iter().filter(|other| *other != Made::ImrWithLogs) {
            for call in 0..12 {
                let env = Env::sim(1);
                let bytes = blocks(&env, CAPACITY_BYTES);
                let logs = (one == Made::ImrWithLogs).then(|| Device::of_blocks(blocks(&env, 8 << 20)));
                let devices: Vec<Device> = [one.over(&bytes)].into_iter().chain(logs).collect();
                one.format(&env, &devices, false).unwrap();
                let fault = Fault::new(Operation::Write, FaultTrigger::From(call), FaultEffect::Fail(FaultError::Io));
                let injector = FaultInjector::new(&env, FaultPlan::of(fault));
                let plain = [other.over(&bytes)];
                let faulty = [FaultDevice::device(&injector, &plain[0])];
                let _ = other.format(&env, &faulty, true);
                if let Err(error) = other.opened_or_made(&env, &plain) {
                    assert!(matches!(error.kind(), StoreErrorKind::Foreign | StoreErrorKind::Corruption), "{error}");
                    other.format(&env, &plain, true).unwrap();
                    other.open(&env, &plain).unwrap();
                }
            }
        }
    }
}

/// Losing the device of logs is told by its name and id, and nobody advises to format.
#[test]
fn a_lost_device_of_logs_is_told() {
    let env = Env::sim(1);
    let mut devices = Made::ImrWithLogs.devices(&env);
    Made::ImrWithLogs.format(&env, &devices, false).unwrap();
    Made::ImrWithLogs.open(&env, &devices).unwrap();
    devices[1] = Device::of_blocks(blocks(&env, 8 << 20));
    for refusal in [Made::ImrWithLogs.open(&env, &devices), Made::ImrWithLogs.opened_or_made(&env, &devices).map(drop)]
    {
        let error = refusal.unwrap_err().to_string();
        assert!(error.contains("which is blank") && error.contains("restore the device of its logs"), "{error}");
        assert!(!error.contains("format"), "{error}");
    }
    assert!(bytes_of(&devices[1].block).iter().all(|byte| *byte == 0));
}

#[test]
fn one_damaged_identity_block_does_not_keep_the_store_from_opening() {
    let env = Env::sim(1);
    for made in [Made::Imr { top_track_bytes: 8 << 10 }, Made::Imr { top_track_bytes: 256 << 10 }] {
        let bytes = blocks(&env, CAPACITY_BYTES);
        let devices = [made.over(&bytes)];
        made.format(&env, &devices, false).unwrap();
        let mut sector = [0; 512];
        bytes.read_at(0, &mut sector, &CONTEXT).unwrap();
        for at in [0, 9, 20, 40, 130, 200, 500] {
            let mut damaged = sector;
            damaged[at] ^= 0x40;
            bytes.write_at(0, &damaged, &CONTEXT).unwrap();
            let findings = ImrStore::inspect(&devices[0]);
            assert_eq!(findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), ["identity-damaged"]);
            made.open(&env, &devices).unwrap();
            // Nobody else takes it for blank.
            let error = ExtentStore::probe(&Device::of_blocks(bytes.clone())).unwrap_err();
            assert!(matches!(error.kind(), StoreErrorKind::Foreign | StoreErrorKind::Corruption), "{error}");
        }
    }
}

/// Once an interlaced disk was opened whose identity block only another version understands.
#[test]
fn an_identity_block_of_another_version_keeps_the_store_from_opening() {
    let env = Env::sim(1);
    let bytes = blocks(&env, CAPACITY_BYTES);
    let made = Made::Imr { top_track_bytes: 8 << 10 };
    let devices = [made.over(&bytes)];
    made.format(&env, &devices, false).unwrap();
    let mut block = [0; block::BLOCK_BYTES];
    bytes.read_at(0, &mut block, &CONTEXT).unwrap();
    block[8] = 2;
    crate::journal::seal(&mut block);
    bytes.write_at(0, &block, &CONTEXT).unwrap();
    let before = bytes_of(&bytes);
    for refusal in [made.open(&env, &devices), made.opened_or_made(&env, &devices).map(drop)] {
        let error = refusal.unwrap_err();
        assert!(matches!(&error, StoreError::Foreign { found, .. } if found == "version 2"), "{error}");
    }
    assert!(bytes_of(&bytes) == before);
}

fn examples() -> Vec<IdentityBlock> {
    let env = Env::sim(1);
    let member = |id, capacity_bytes| Member { id, capacity_bytes };
    let shapes = [Made::Extent, Made::Band, Made::Imr { top_track_bytes: 8 << 10 }].map(|made| {
        let shape = DeviceShape::of(&made.devices(&env)[0]);
        let members = vec![member(0x0102_0304_0506_0708, shape.capacity_bytes), member(9, 1 << 30)];
        Identity { shape, members, index: 0 }
    });
    let block = |identity| IdentityBlock {
        kind: StoreKind(*b"example\0"),
        store_id: 0x1112_1314_1516_1718,
        generation: 3,
        is_unfinished: true,
        identity,
    };
    shapes.into_iter().map(block).collect()
}

#[test]
fn blocks_come_back_and_nothing_else_is_taken() {
    for block in examples() {
        let bytes = block.encode();
        assert_eq!(IdentityBlock::decode(&bytes), Some(block.clone()));
        for length in 0..bytes.len() {
            assert_eq!(IdentityBlock::decode(&bytes[..length]), None);
        }
        // Zeros that are not, and numbers that cannot be.
        for at in [40, 41, 127, 128, 129, 130, 131, 148 + 28, 128 + 63, 255, 256, 511] {
            let mut wrong = bytes;
            wrong[at] ^= 0xf4;
            assert_eq!(IdentityBlock::decode(&wrong), None, "byte {at}");
        }
    }
}

/// Devices of a set of more than four know their own capacity and the ids of all.
#[test]
fn descriptions_of_large_sets_come_back() {
    let env = Env::sim(1);
    let shape = DeviceShape::of(&Made::Band.devices(&env)[0]);
    for count in 1..=MEMBERS_MAX {
        let members = Member::draw_set(&mut env.random("a set"), (0..count).map(|_| shape.capacity_bytes));
        for index in 0..count {
            let identity = Identity { shape: shape.clone(), members: members.clone(), index };
            let bytes = identity.encode();
            assert_eq!(Identity::decode(&bytes), Some(identity), "{index} of {count}");
            for at in [2, 56] {
                let mut wrong = bytes;
                wrong[at] ^= 0x50;
                assert_eq!(Identity::decode(&wrong), None, "{index} of {count}, byte {at}");
            }
        }
    }
}

#[test]
fn the_bytes_of_version_1_do_not_change() {
    let checksums: Vec<String> =
        examples().iter().map(|block| format!("{:08x}", crc32c::crc32c(&block.encode()[16..]))).collect();
    // A difference means that devices of others cannot be told any more.
    assert_eq!(checksums, ["9b4d0ef1", "187363f3", "1c191587"]);
    let bytes = examples()[2].encode();
    assert_eq!(bytes[..12], *b"VARVE\0ID\x01\0\0\0");
    assert_eq!(bytes[16..41], *b"example\0\x18\x17\x16\x15\x14\x13\x12\x11\x03\0\0\0\0\0\0\0\x01");
    assert_eq!(bytes[128..148], *b"\x01\0\x02\0\0\x02\0\0\0\x10\0\0\0\x08\0\0\0\0\0\0");
    assert_eq!(bytes[192..200], *b"\x08\x07\x06\x05\x04\x03\x02\x01");
}
