use super::*;
use crate::device::{BlockDeviceExt, Device, Geometry};
use crate::layer::{CrashVariant, OverlayDevice};
use crate::memory::PersistentMemory;
use std::collections::BTreeSet;
use varve_env::{Env, Random};

const LINE: u64 = 64;
const WORD: u64 = 8;

fn memory(env: &Env) -> Device {
    let geometry = Geometry { capacity_bytes: 1 << 20, sector_bytes: 512, physical_sector_bytes: 4096 };
    PersistentMemory::emulated(env, "memory", 1 << 20).unwrap().into_device(&geometry).unwrap()
}

fn bytes(device: &Device) -> &Arc<dyn ByteAddressable> {
    device.bytes.as_ref().expect("memory")
}

fn word(device: &Device, offset_bytes: u64) -> u64 {
    let mut data = [0; WORD as usize];
    bytes(device).load(offset_bytes, &mut data).unwrap();
    u64::from_le_bytes(data)
}

/// The stores to one line, in order, and how many of them a power cut must leave.
#[derive(Clone, Default)]
struct LineModel {
    stores: Vec<(u64, u64)>,
    durable: usize,
}

impl LineModel {
    /// The words of the line after a number of stores.
    fn after(&self, count: usize) -> [u64; (LINE / WORD) as usize] {
        let mut words = [0; (LINE / WORD) as usize];
        self.stores[..count].iter().for_each(|&(place, value)| words[place as usize] = value);
        words
    }
}

#[test]
fn a_line_keeps_what_was_fenced_and_a_beginning_of_the_rest() {
    const LINES: u64 = 5;
    let env = Env::real();
    let (mut dropped, mut kept) = (0, 0);
    for seed in 0..40 {
        let mut random = Random::named(seed, "stores");
        let layer = CrashDevice::new(&env, &memory(&env)).unwrap();
        let device = layer.device();
        let mut lines = vec![LineModel::default(); LINES as usize];
        let mut queues: [(FlushQueue, Vec<(usize, usize)>); 2] = Default::default();
        for value in 1..=120 {
            let line = random.index(lines.len());
            match random.below(10) {
                0..7 => {
                    let place = random.below(LINE / WORD);
                    let offset_bytes = line as u64 * LINE + place * WORD;
                    bytes(&device).store(offset_bytes, &u64::to_le_bytes(value)).unwrap();
                    lines[line].stores.push((place, value));
                }
                7 | 8 => {
                    let (queue, flushed) = &mut queues[random.index(2)];
                    // Any part of a line flushes the line.
                    let first = line as u64 * LINE + random.below(LINE);
                    bytes(&device).flush(first..first + 1, queue).unwrap();
                    flushed.push((line, lines[line].stores.len()));
                }
                _ => {
                    let (queue, flushed) = &mut queues[random.index(2)];
                    bytes(&device).fence(queue).unwrap();
                    assert!(queue.is_empty());
                    for (line, count) in flushed.drain(..) {
                        lines[line].durable = lines[line].durable.max(count);
                    }
                }
            }
            if value % 10 == 0 {
                let state = layer.capture();
                for (image_seed, variant) in (value..).zip(CrashVariant::OF_DEVICES) {
                    let image = state.image(variant, image_seed);
                    for (number, line) in lines.iter().enumerate() {
                        let words =
                            std::array::from_fn(|place| word(&image, number as u64 * LINE + place as u64 * WORD));
                        let fits = (line.durable..=line.stores.len()).find(|&count| line.after(count) == words);
                        let count =
                            fits.unwrap_or_else(|| panic!("seed {seed}, value {value}, {variant:?}, line {number}"));
                        dropped += usize::from(count < line.stores.len());
                        kept += usize::from(line.after(line.durable) != words);
                    }
                }
            }
        }
    }
    assert!(dropped > 1000 && kept > 1000, "{dropped} lines lost stores, {kept} kept some that were not fenced");
}

#[test]
fn a_long_store_is_torn_between_words_and_never_within_one() {
    let env = Env::real();
    let layer = CrashDevice::new(&env, &memory(&env)).unwrap();
    let device = layer.device();
    bytes(&device).store(32, &[7; 160]).unwrap();
    let state = layer.capture();
    let mut kept = BTreeSet::new();
    for seed in 0..400 {
        let image = state.image(CrashVariant::TearRandom, seed);
        let mut data = [0; 192];
        bytes(&image).load(0, &mut data).unwrap();
        assert!(data.chunks(8).all(|word| word == [0; 8] || word == [7; 8]), "{data:?}");
        kept.insert(data.iter().filter(|&&byte| byte == 7).count());
    }
    assert!(kept.contains(&0) && kept.contains(&160) && kept.len() > 10, "{kept:?}");
}

#[test]
fn a_fence_covers_its_own_queue_and_the_stores_before_the_flush() {
    let env = Env::real();
    let layer = CrashDevice::new(&env, &memory(&env)).unwrap();
    let device = layer.device();
    let store = |offset_bytes: u64, value: u64| bytes(&device).store(offset_bytes, &value.to_le_bytes()).unwrap();
    let durable = || [0, LINE].map(|place| word(&layer.capture().image(CrashVariant::DropAll, 0), place));
    let (mut own, mut other) = (FlushQueue::default(), FlushQueue::default());
    store(0, 1);
    store(LINE, 1);
    bytes(&device).flush(0..8, &mut own).unwrap();
    bytes(&device).flush(LINE..LINE + 8, &mut other).unwrap();
    store(0, 2);
    assert_eq!(durable(), [0, 0], "nothing was fenced");
    bytes(&device).fence(&mut own).unwrap();
    assert_eq!(durable(), [1, 0], "the second store came after the flush, and the other line is in another queue");
    device.block.sync(&IoContext::default()).unwrap();
    assert_eq!(durable(), [1, 0], "a sync of blocks does not flush lines");
    bytes(&device).fence(&mut other).unwrap();
    assert_eq!(durable(), [1, 1]);
}

#[test]
fn a_write_of_blocks_supersedes_earlier_stores() {
    let env = Env::real();
    let layer = CrashDevice::new(&env, &memory(&env)).unwrap();
    let device = layer.device();
    bytes(&device).store(8, &[1; 8]).unwrap();
    device.block.write_at(0, &[2; 4096], &IoContext::default()).unwrap();
    device.block.sync(&IoContext::default()).unwrap();
    for (seed, variant) in (0..).zip(CrashVariant::OF_DEVICES) {
        assert_eq!(word(&layer.capture().image(variant, seed), 8), u64::from_le_bytes([2; 8]), "{variant:?}");
    }
}

#[test]
fn images_and_overlays_are_memory_for_further_layers() {
    let env = Env::real();
    let layer = CrashDevice::new(&env, &memory(&env)).unwrap();
    bytes(&layer.device()).store(100, &[5; 100]).unwrap();
    let image = layer.capture().image(CrashVariant::KeepAll, 1);
    let over = OverlayDevice::device(&image).unwrap();
    bytes(&over).store(100, &[6; 50]).unwrap();
    let load = |device: &Device| {
        let mut data = [0; 100];
        bytes(device).load(100, &mut data).unwrap();
        data
    };
    assert_eq!(load(&image), [5; 100], "the overlay wrote through");
    assert_eq!((&load(&over)[..50], &load(&over)[50..]), (&[6; 50][..], &[5; 50][..]));
    let again = CrashDevice::new(&env, &image).unwrap();
    bytes(&again.device()).store(0, &[9; 8]).unwrap();
    assert_eq!(word(&again.capture().image(CrashVariant::DropAll, 1), 0), 0);
    assert_eq!(load(&again.capture().image(CrashVariant::DropAll, 1)), [5; 100]);
    let end = bytes(&image).capacity_bytes();
    assert!(bytes(&image).load(end - 4, &mut [0; 8]).is_err() && bytes(&image).store(u64::MAX, &[0; 8]).is_err());
}
