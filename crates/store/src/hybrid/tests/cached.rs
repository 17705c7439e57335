//! Cached blocks: what of them outlives the store that cached them.

use crate::file_store::{CreateOptions, FileKind, FileStore, OpenOptions};
use crate::hint::Hint;
use crate::hybrid::conformance::zoned;
use crate::{
    CachingName, HybridDriver, HybridFormatOptions, HybridOpenOptions, HybridStore, PieceUsage, PlacementName,
};
use varve_env::Env;
use varve_media::{Device, IoClass, IoContext};

const TIERS: [u8; 2] = [1, 0];
const BLOCK_BYTES: usize = 1500;

fn devices() -> Vec<Device> {
    let devices = vec![zoned("slow", 80, 16, 0), zoned("fast", 40, 0, 8)];
    let options = HybridFormatOptions { tiers: Some(TIERS.to_vec()), ..HybridFormatOptions::default() };
    HybridStore::format(&Env::real(), &devices, &options).expect("format");
    devices
}

/// Tables of high levels go to the slow device.
fn open(devices: &[Device], caching: CachingName) -> HybridStore {
    let options = HybridOpenOptions {
        placement: PlacementName::Auto,
        caching,
        tiers: Some(TIERS.to_vec()),
        driver: HybridDriver::Caller,
        ..HybridOpenOptions::default()
    };
    HybridStore::open(&Env::real(), devices.to_vec(), &options).expect("open")
}

fn measure_of(store: &HybridStore, name: &str) -> u64 {
    store.statistics().iter().find(|measure| measure.name == name).expect("a number of that name").value
}

fn block(table: u8, number: usize) -> Vec<u8> {
    (0..BLOCK_BYTES).map(|at| table ^ (number * 31 + at) as u8).collect()
}

/// A table of blocks on the slow device.
fn write(store: &HybridStore, name: &str, table: u8, blocks: usize) {
    let options = CreateOptions { kind: FileKind::Table, level: Some(9), ..CreateOptions::default() };
    let mut writer = store.create(name, &options).expect("create");
    for number in 0..blocks {
        writer.append(&block(table, number), &IoContext::default()).expect("append");
    }
    writer.sync(&IoContext::default()).expect("sync");
    writer.finish(&IoContext::default()).expect("finish");
}

fn read(store: &HybridStore, name: &str, table: u8, blocks: usize) {
    let file = store.open(name, &OpenOptions::default()).expect("open a table");
    for number in 0..blocks {
        let mut data = vec![0; BLOCK_BYTES];
        file.read_at((number * BLOCK_BYTES) as u64, &mut data, &IoContext::of(IoClass::UserRead)).expect("read");
        assert!(data == block(table, number), "block {number} of {name}");
    }
}

fn evict(store: &HybridStore, name: &str, table: u8, blocks: usize) {
    for number in 0..blocks {
        let (offset_bytes, bytes) = ((number * BLOCK_BYTES) as u64, block(table, number));
        store.hint(&Hint::CacheEvicted { file: name, offset_bytes, bytes: &bytes });
    }
}

#[test]
fn cached_blocks_are_found_by_the_next_open() {
    for caching in [CachingName::Fifo, CachingName::Frequency] {
        let devices = devices();
        let store = open(&devices, caching);
        write(&store, "table", 7, 20);
        read(&store, "table", 7, 20);
        evict(&store, "table", 7, 20);
        read(&store, "table", 7, 20);
        assert_eq!(measure_of(&store, "user reads of cached blocks"), 20);
        drop(store);
        let store = open(&devices, caching);
        // What an earlier open left is taken in by whoever changes something.
        write(&store, "other", 9, 1);
        let slow_reads = devices[0].block.counters().reads;
        read(&store, "table", 7, 20);
        let cached = measure_of(&store, "user reads of cached blocks");
        assert!(cached >= 16, "{cached} of 20 with {caching:?}");
        assert_eq!(devices[0].block.counters().reads - slow_reads, 20 - cached);
        drop(store);
        // Without a cache nothing of it stays.
        let free = |store: &HybridStore| store.space().expect("space").available_bytes;
        let (with, without) = (free(&open(&devices, caching)), free(&open(&devices, CachingName::None)));
        assert!(without > with, "{without} bytes are free, {with} with cached blocks");
    }
}

/// Whoever draws the store tells zones of the cache from those of tables.
#[test]
fn zones_of_cached_blocks_are_told_as_such() {
    let devices = devices();
    let store = open(&devices, CachingName::Fifo);
    let of_use = |store: &HybridStore, usage: PieceUsage| {
        let pieces = store.occupancy().pieces;
        pieces.iter().filter(|piece| piece.usage == usage).map(|piece| piece.device).collect::<Vec<u16>>()
    };
    write(&store, "table", 7, 20);
    assert_eq!((of_use(&store, PieceUsage::CachedBlocks), of_use(&store, PieceUsage::Table)), (vec![], vec![0]));
    evict(&store, "table", 7, 20);
    // Blocks that wait are written when something changes.
    write(&store, "other", 9, 1);
    assert_eq!((of_use(&store, PieceUsage::CachedBlocks), of_use(&store, PieceUsage::Table)), (vec![1], vec![0, 0]));
    let files = store.occupancy().files;
    assert!(files.iter().any(|file| file.name.starts_with("cache-")), "{files:?}");
}

/// A number that only a cache zone still has is not given to another table, whose blocks the copies would be taken for.
#[test]
fn copies_of_what_was_removed_are_never_taken_for_another_table() {
    let devices = devices();
    let store = open(&devices, CachingName::Fifo);
    write(&store, "first", 1, 8);
    evict(&store, "first", 1, 8);
    write(&store, "more 0", 3, 1);
    // Its number is higher than that of the cache zone.
    write(&store, "second", 2, 8);
    evict(&store, "second", 2, 8);
    (1..3).for_each(|table| write(&store, &format!("more {table}"), 3, 1));
    assert!(measure_of(&store, "blocks cached") > 8);
    for name in ["first", "second", "more 0", "more 1", "more 2"] {
        store.remove(name).expect("remove");
    }
    store.sync_names().expect("sync");
    drop(store);
    let store = open(&devices, CachingName::Fifo);
    (0..8u8).for_each(|table| write(&store, &format!("new {table}"), 10 + table, 8));
    drop(store);
    let store = open(&devices, CachingName::Fifo);
    write(&store, "other", 9, 1);
    (0..8u8).for_each(|table| read(&store, &format!("new {table}"), 10 + table, 8));
    assert_eq!(measure_of(&store, "cached blocks found at opening"), 0);
}
