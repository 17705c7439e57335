use super::*;
use crate::device::{Device, Geometry};
use crate::error::MediaErrorKind;
use crate::layer::{CrashDevice, DeviceCrashState};
use crate::memory::PersistentMemory;
use std::sync::Arc;
use varve_env::Env;

const CAPACITY_BYTES: u64 = 64 << 10;

fn memory(env: &Env) -> Device {
    let capacity_bytes = CAPACITY_BYTES + TRAILER_BYTES;
    let geometry = Geometry { capacity_bytes, sector_bytes: 512, physical_sector_bytes: 512 };
    PersistentMemory::emulated(env, "memory", capacity_bytes).unwrap().into_device(&geometry).unwrap()
}

fn bytes(device: &Device) -> &dyn ByteAddressable {
    &**device.bytes.as_ref().expect("memory")
}

/// The layer, and what a power cut could leave before each of the flushes and fences from now on.
fn watched(env: &Env, device: &Device) -> (CrashDevice, Arc<Mutex<Vec<DeviceCrashState>>>) {
    let layer = CrashDevice::new(env, device).unwrap();
    let states = Arc::new(Mutex::new(Vec::new()));
    let states_of_layer = states.clone();
    layer.on_persistence_point(move |point| states_of_layer.lock().push(point.capture()));
    (layer, states)
}

/// What is there, where a part is all of one byte.
fn found(device: &Device, offset_bytes: u64, length: usize) -> u8 {
    let mut data = vec![0; length];
    bytes(device).load(offset_bytes, &mut data).unwrap();
    assert!(data.iter().all(|byte| *byte == data[0]), "torn at {offset_bytes}");
    data[0]
}

#[test]
fn a_power_cut_leaves_each_part_old_or_new() {
    const PARTS: [(u64, usize); 3] = [(512, 512), (8192, 4096), (CAPACITY_BYTES - 64, 64)];
    let env = Env::real();
    let mut images = 0;
    for (offset_bytes, length) in PARTS {
        let (layer, states) = watched(&env, &memory(&env));
        let device = layer.device();
        let journal = SectorJournal::open(bytes(&device), CAPACITY_BYTES).unwrap();
        let mut seen = [false; 3];
        journal.write(bytes(&device), offset_bytes, &vec![1; length]).unwrap();
        let first = states.lock().len();
        journal.write(bytes(&device), offset_bytes, &vec![2; length]).unwrap();
        assert_eq!(layer.flush_audit(), Default::default(), "every store is flushed and fenced, and once");
        let states = std::mem::take(&mut *states.lock());
        for (place, state) in states.into_iter().enumerate() {
            for image in state.line_images(place as u64, 60).take(300) {
                // The recovery is cut too.
                let (again, cuts) = watched(&env, &image);
                SectorJournal::open(bytes(&again.device()), CAPACITY_BYTES).unwrap();
                let value = found(&image, offset_bytes, length);
                assert!(if place < first { value < 2 } else { value > 0 }, "{value} at point {place}");
                seen[usize::from(value)] = true;
                for cut in std::mem::take(&mut *cuts.lock()) {
                    for image in cut.line_images(place as u64, 3).take(5) {
                        SectorJournal::open(bytes(&image), CAPACITY_BYTES).unwrap();
                        assert_eq!(found(&image, offset_bytes, length), value);
                    }
                }
                images += 1;
            }
        }
        assert_eq!(seen, [true; 3]);
    }
    assert!(images > 500, "{images}");
}

#[test]
fn slots_are_empty_after_a_write_so_that_later_stores_stay() {
    let env = Env::real();
    let device = memory(&env);
    let journal = SectorJournal::open(bytes(&device), CAPACITY_BYTES).unwrap();
    for round in 0..40 {
        journal.write(bytes(&device), round * 512, &[1; 512]).unwrap();
        bytes(&device).store(round * 512, &[3; 512]).unwrap();
    }
    SectorJournal::open(bytes(&device), CAPACITY_BYTES).unwrap();
    assert!((0..40).all(|round| found(&device, round * 512, 512) == 3));
}

#[test]
fn a_slot_without_a_sound_checksum_changes_nothing() {
    let env = Env::real();
    let device = memory(&env);
    let (header_at, data_at) = (CAPACITY_BYTES + SLOT_HEADERS_OFFSET, CAPACITY_BYTES + HEADER_BYTES);
    let mut header = [0; 16];
    header[..8].copy_from_slice(&512_u64.to_le_bytes());
    header[8..12].copy_from_slice(&512_u32.to_le_bytes());
    let checksum = slot_checksum(&header[..12], &[5; 512]);
    header[12..].copy_from_slice(&checksum.to_le_bytes());
    bytes(&device).store(data_at, &[5; 512]).unwrap();
    for bit in 0..128 {
        let mut bad = header;
        bad[bit / 8] ^= 1 << (bit % 8);
        bytes(&device).store(header_at, &bad).unwrap();
        SectorJournal::open(bytes(&device), CAPACITY_BYTES).unwrap();
        assert_eq!(found(&device, 0, 2048), 0, "bit {bit}");
    }
    bytes(&device).store(header_at, &header).unwrap();
    SectorJournal::open(bytes(&device), CAPACITY_BYTES).unwrap();
    assert_eq!(found(&device, 512, 512), 5);
}

#[test]
fn the_trailer_says_whose_file_it_is() {
    // Golden: version 1 of the format.
    let golden = b"VARVPMEM\x01\0\0\0\x10\0\0\0\0\0\0\x01\0\0\0\0\0\x10\0\0";
    let header = header(16 << 20);
    assert_eq!(header[..28], golden[..]);
    assert_eq!(header[28..], crc32c::crc32c(golden).to_le_bytes());
    assert!(check_header("file", &header, 16 << 20).is_ok());
    let kind = |header: &[u8; 32], capacity| check_header("file", header, capacity).unwrap_err().kind();
    assert_eq!(kind(&[0; 32], 16 << 20), MediaErrorKind::InvalidRequest, "foreign");
    assert_eq!(kind(&header, 8 << 20), MediaErrorKind::Damaged, "of another length");
    for bit in 0..256 {
        let mut bad = header;
        bad[bit / 8] ^= 1 << (bit % 8);
        let expected = match bit / 8 {
            0..8 => MediaErrorKind::InvalidRequest,
            8..12 if bit != 64 => MediaErrorKind::OtherVersion,
            _ => MediaErrorKind::Damaged,
        };
        assert_eq!(kind(&bad, 16 << 20), expected, "bit {bit}");
    }
}
