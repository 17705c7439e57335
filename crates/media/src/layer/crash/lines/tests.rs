use super::*;
use crate::context::IoContext;
use crate::device::{BlockDeviceExt, Geometry};
use crate::emulated::Emulated;
use crate::layer::{BlockBytes, CrashDevice};
use crate::memory::PersistentMemory;
use crate::{ByteAddressable, FlushQueue};
use std::collections::BTreeSet;
use std::sync::Arc;
use varve_env::Env;

const LINE: u64 = 64;

fn memory(env: &Env) -> Device {
    let geometry = Geometry { capacity_bytes: 1 << 20, sector_bytes: 512, physical_sector_bytes: 512 };
    PersistentMemory::emulated(env, "memory", 1 << 20).unwrap().into_device(&geometry).unwrap()
}

fn bytes(device: &Device) -> &dyn ByteAddressable {
    &**device.bytes.as_ref().expect("memory")
}

fn store(device: &Device, line: u64, word: u64, value: u64) {
    bytes(device).store(line * LINE + word * WORD_BYTES, &value.to_le_bytes()).unwrap();
}

fn persist(device: &Device, line: u64) {
    let mut queue = FlushQueue::default();
    bytes(device).flush(line * LINE..(line + 1) * LINE, &mut queue).unwrap();
    bytes(device).fence(&mut queue).unwrap();
}

/// The words of the first lines.
fn words(device: &Device, lines: u64) -> Vec<u64> {
    let mut data = vec![0; (lines * LINE) as usize];
    bytes(device).load(0, &mut data).unwrap();
    data.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("a word"))).collect()
}

#[test]
fn every_combination_of_beginnings_is_an_image_once() {
    let env = Env::real();
    let layer = CrashDevice::new(&env, &memory(&env)).unwrap();
    let device = layer.device();
    store(&device, 0, 0, 1);
    persist(&device, 0);
    store(&device, 0, 0, 2);
    store(&device, 1, 3, 3);
    store(&device, 1, 4, 4);
    store(&device, 1, 3, 5);
    let images = layer.capture().line_images(1, 7);
    assert!(images.is_complete());
    assert_eq!(images.open_lines().collect::<Vec<_>>(), [0, 1]);
    let expected: BTreeSet<(u64, u64, u64)> =
        [1, 2].into_iter().flat_map(|first| [(first, 0, 0), (first, 3, 0), (first, 3, 4), (first, 5, 4)]).collect();
    let found: Vec<Vec<u64>> = images.map(|image| words(&image, 2)).collect();
    assert_eq!(found.len(), 8);
    let found: BTreeSet<(u64, u64, u64)> = found.iter().map(|words| (words[0], words[11], words[12])).collect();
    assert_eq!(found, expected);
    assert_eq!(layer.capture().line_images(1, 7).len(), 8);
}

#[test]
fn eight_open_lines_give_every_image_and_nine_are_sampled() {
    let env = Env::real();
    let layer = CrashDevice::new(&env, &memory(&env)).unwrap();
    let device = layer.device();
    (0..8).for_each(|line| store(&device, line, line, 7));
    let images = layer.capture().line_images(1, 100);
    assert!(images.is_complete());
    let distinct: BTreeSet<Vec<u64>> = images.map(|image| words(&image, 8)).collect();
    assert_eq!(distinct.len(), 256);
    store(&device, 8, 1, 8);
    let images = layer.capture().line_images(1, 100);
    assert!(!images.is_complete());
    assert_eq!((images.len(), images.open_lines().len()), (100, 9));
    let sampled: Vec<Vec<u64>> = images.map(|image| words(&image, 9)).collect();
    assert!(sampled.iter().collect::<BTreeSet<_>>().len() > 60);
    let again: Vec<Vec<u64>> = layer.capture().line_images(1, 100).map(|image| words(&image, 9)).collect();
    assert_eq!(sampled, again, "the same seed");
}

#[test]
fn a_long_store_is_cut_between_words() {
    let env = Env::real();
    let layer = CrashDevice::new(&env, &memory(&env)).unwrap();
    let device = layer.device();
    bytes(&device).store(4, &[7; 24]).unwrap();
    let images = layer.capture().line_images(1, 0);
    assert!(images.is_complete());
    let lengths: Vec<usize> = images
        .map(|image| {
            let mut data = [0; 64];
            bytes(&image).load(0, &mut data).unwrap();
            assert!(data[..4] == [0; 4]);
            let length = data[4..].iter().take_while(|&&byte| byte == 7).count();
            assert!(data[4 + length..].iter().all(|&byte| byte == 0), "{data:?}");
            length
        })
        .collect();
    assert_eq!(lengths, [0, 4, 12, 20, 24]);
}

#[test]
fn many_words_are_cut_between_stores() {
    let env = Env::real();
    let layer = CrashDevice::new(&env, &memory(&env)).unwrap();
    let device = layer.device();
    // Nine beginnings each by words: 9^6 is more than are made.
    bytes(&device).store(0, &[7; 6 * LINE as usize]).unwrap();
    let images = layer.capture().line_images(1, 0);
    assert!(images.is_complete());
    assert_eq!(images.len(), 64);
}

#[test]
fn a_line_keeps_unsynced_blocks_below_its_stores() {
    let env = Env::real();
    let mut below = Device::of_blocks(Arc::new(Emulated::immediate(&env, "blocks", 1 << 20)));
    below.bytes = Some(BlockBytes::facet(&below.block, bytes(&memory(&env))));
    let layer = CrashDevice::new(&env, &below).unwrap();
    let device = layer.device();
    device.block.write_at(0, &[9; 512], &IoContext::default()).unwrap();
    store(&device, 1, 0, 1);
    let found: Vec<Vec<u64>> = layer.capture().line_images(1, 0).map(|image| words(&image, 2)).collect();
    let nines = u64::from_le_bytes([9; 8]);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0], [0; 16]);
    assert_eq!((found[1][0], found[1][8], found[1][9]), (0, 1, nines));
}

#[test]
fn missing_and_needless_flushes_are_counted() {
    let env = Env::real();
    let layer = CrashDevice::new(&env, &memory(&env)).unwrap();
    let device = layer.device();
    let mut queue = FlushQueue::default();
    let audit = |needless_flushes, needless_fences, missing_flushes, missing_fences| {
        let expected = FlushAudit { needless_flushes, needless_fences, missing_flushes, missing_fences };
        assert_eq!(layer.flush_audit(), expected);
    };
    audit(0, 0, 0, 0);
    store(&device, 0, 0, 1);
    store(&device, 1, 0, 1);
    audit(0, 0, 2, 0);
    // Two of the four lines were stored to.
    bytes(&device).flush(0..4 * LINE, &mut queue).unwrap();
    audit(2, 0, 0, 2);
    bytes(&device).flush(0..1, &mut queue).unwrap();
    audit(3, 0, 0, 2);
    // The fence does not cover a store after the flush.
    store(&device, 1, 0, 2);
    audit(3, 0, 1, 1);
    bytes(&device).fence(&mut queue).unwrap();
    audit(3, 0, 1, 0);
    bytes(&device).fence(&mut queue).unwrap();
    audit(3, 1, 1, 0);
    persist(&device, 1);
    audit(3, 1, 0, 0);
    persist(&device, 1);
    audit(4, 1, 0, 0);
    // Blocks are durable when their write completes, and with them what was stored there.
    store(&device, 2, 0, 1);
    device.block.write_at(0, &[0; 512], &IoContext::default()).unwrap();
    audit(4, 1, 0, 0);
}
