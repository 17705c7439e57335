//! Cached blocks: what of them outlives the store that cached them.

use crate::file_store::{CreateOptions, FileKind, FileStore, OpenOptions};
use crate::hint::{BlockOrigin, Hint};
use crate::hybrid::conformance::zoned;
use crate::{
    CachingName, HybridDriver, HybridFormatOptions, HybridOpenOptions, HybridStore, PieceUsage, PlacementName,
};
use varve_env::Env;
use varve_media::{
    Device, Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, IoClass, IoContext,
    Operation,
};

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
    write_of_level(store, name, 9, table, blocks);
}

/// The same on the fast device.
fn write_fast(store: &HybridStore, name: &str, table: u8, blocks: usize) {
    write_of_level(store, name, 0, table, blocks);
}

fn write_of_level(store: &HybridStore, name: &str, level: u8, table: u8, blocks: usize) {
    let options = CreateOptions { kind: FileKind::Table, level: Some(level), ..CreateOptions::default() };
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

/// What a compaction would: a table of blocks of another one, each as the tree tells it. It is finished or not.
fn rewrite(store: &HybridStore, from: &str, name: &str, table: u8, blocks: usize, is_finished: bool) {
    let options = CreateOptions { kind: FileKind::Table, level: Some(9), ..CreateOptions::default() };
    let mut writer = store.create(name, &options).expect("create");
    for number in 0..blocks {
        let (offset_bytes, bytes) = ((number * BLOCK_BYTES) as u64, block(table, number));
        writer.append(&bytes, &IoContext::default()).expect("append");
        let origins = [BlockOrigin { file: from.into(), offset_bytes, entries: 4 }];
        store.hint(&Hint::BlockRewritten { file: name, offset_bytes, bytes: &bytes, origins: &origins });
    }
    if is_finished {
        writer.sync(&IoContext::default()).expect("sync");
        writer.finish(&IoContext::default()).expect("finish");
    }
}

/// Blocks that were read stay cached when a compaction writes them to another table, and those that were not do not come in.
#[test]
fn what_was_cached_of_a_table_is_cached_of_the_one_that_takes_its_place() {
    let devices = devices();
    let store = open(&devices, CachingName::Frequency);
    write(&store, "old", 7, 40);
    read(&store, "old", 7, 20);
    evict(&store, "old", 7, 20);
    read(&store, "old", 7, 20);
    assert_eq!(measure_of(&store, "user reads of cached blocks"), 20);
    rewrite(&store, "old", "new", 7, 40, true);
    store.remove("old").expect("remove");
    let slow_reads = devices[0].block.counters().reads;
    read(&store, "new", 7, 20);
    assert_eq!(
        (measure_of(&store, "user reads of cached blocks"), devices[0].block.counters().reads),
        (40, slow_reads)
    );
    read(&store, "new", 7, 40);
    assert_eq!(measure_of(&store, "user reads of cached blocks"), 60);
    assert!(devices[0].block.counters().reads >= slow_reads + 20, "what was never read was not cached");
}

/// Blocks of a table that was never finished are cached, and their number is not given to another one.
#[test]
fn copies_of_a_table_that_was_not_finished_are_never_taken_for_another() {
    let devices = devices();
    let store = open(&devices, CachingName::Frequency);
    write(&store, "old", 7, 20);
    read(&store, "old", 7, 20);
    rewrite(&store, "old", "new", 7, 20, false);
    // What waits is written when something changes.
    write(&store, "other", 9, 1);
    assert!(measure_of(&store, "blocks cached") > 0);
    drop(store);
    for table in 0..4u8 {
        let store = open(&devices, CachingName::Frequency);
        write(&store, &format!("new {table}"), 10 + table, 20);
        (0..=table).for_each(|table| read(&store, &format!("new {table}"), 10 + table, 20));
        read(&store, "old", 7, 20);
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

/// Reads the record that block `number` is asked for, and offers it where it was found in the block. True when it was there alone.
fn read_record(store: &HybridStore, name: &str, table: u8, number: usize) -> bool {
    let file = store.open(name, &OpenOptions::default()).expect("open a table");
    let records = file.records().expect("records of tables are kept");
    let (mut data, mut record) = (vec![0; BLOCK_BYTES], Vec::new());
    let (label, offset_bytes) = ((number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15), (number * BLOCK_BYTES) as u64);
    let context = IoContext::of(IoClass::UserRead);
    let is_alone = records.read_record(label, offset_bytes, &mut data, &mut record, &context).expect("read");
    if is_alone {
        assert!(records.follows_record(label, 0) && record == record_of(table, number), "record {number} of {name}");
    } else {
        assert!(data == block(table, number), "block {number} of {name}");
        records.keep_record(label, &record_of(table, number));
    }
    is_alone
}

fn record_of(table: u8, number: usize) -> Vec<u8> {
    block(table, number)[..200 + number].to_vec()
}

fn alone(store: &HybridStore, name: &str, table: u8, blocks: usize) -> usize {
    (0..blocks).filter(|number| read_record(store, name, table, *number)).count()
}

#[test]
fn records_that_are_read_again_are_kept_and_found_by_the_next_open() {
    let devices = devices();
    let store = open(&devices, CachingName::Records);
    write(&store, "table", 7, 20);
    let [first, second, third] = [(); 3].map(|()| alone(&store, "table", 7, 20));
    // Each is read twice before it comes in, but where the sketch takes some for another.
    assert!((first, third) == (0, 20) && second <= 3, "{second}");
    let slow_reads = devices[0].block.counters().reads;
    // What waits is written when something changes.
    write(&store, "other", 9, 1);
    assert_eq!((alone(&store, "table", 7, 20), devices[0].block.counters().reads), (20, slow_reads));
    assert_eq!(measure_of(&store, "user reads of cached blocks"), 40 + second as u64);
    assert!(measure_of(&store, "blocks cached") >= 12, "{:?}", store.statistics());
    drop(store);
    let store = open(&devices, CachingName::Records);
    write(&store, "another", 9, 1);
    assert_eq!(alone(&store, "table", 7, 20), 20);
    // A table that takes the name has none of them.
    write(&store, "table", 8, 20);
    assert_eq!(alone(&store, "table", 8, 20), 0);
    drop(store);
    // Blocks alone know of no records.
    let store = open(&devices, CachingName::Frequency);
    write(&store, "last", 9, 1);
    assert!(store.open("table", &OpenOptions::default()).expect("open").records().is_none());
    read(&store, "table", 8, 20);
}

#[test]
fn records_are_only_kept_of_tables_of_the_slow_tier_and_no_longer_than_may_be() {
    let devices = devices();
    let store = open(&devices, CachingName::Records);
    write_fast(&store, "fast", 1, 1);
    let slow_reads = devices[0].block.counters().reads;
    (0..4).for_each(|_| assert!(!read_record(&store, "fast", 1, 0)));
    assert_eq!(devices[0].block.counters().reads, slow_reads, "it lies on the fast one");
    write(&store, "slow", 2, 1);
    let file = store.open("slow", &OpenOptions::default()).expect("open");
    let records = file.records().expect("records");
    let read = || {
        let (mut data, mut record) = (vec![0; BLOCK_BYTES], Vec::new());
        let context = IoContext::of(IoClass::UserRead);
        records.read_record(5, 0, &mut data, &mut record, &context).expect("read").then_some(record)
    };
    for _ in 0..4 {
        assert_eq!(read(), None);
        records.keep_record(5, &vec![1; crate::RECORD_BYTES_MAX + 1]);
    }
    // One of any length up to the limit comes back, also where it is longer than what was read before.
    let longest = vec![3; crate::RECORD_BYTES_MAX];
    records.keep_record(5, &longest);
    assert_eq!(read().as_ref(), Some(&longest));
    // Others than users take blocks.
    let (mut data, mut record) = (vec![0; BLOCK_BYTES], Vec::new());
    let context = IoContext::of(IoClass::Compaction);
    assert!(!records.read_record(5, 0, &mut data, &mut record, &context).expect("read") && data == block(2, 0));
}

/// A compaction takes records along, and of a table that was never finished none is found.
#[test]
fn records_of_a_table_are_kept_of_the_one_that_takes_its_place() {
    let devices = devices();
    let store = open(&devices, CachingName::Records);
    write(&store, "old", 7, 20);
    (0..3).for_each(|_| _ = alone(&store, "old", 7, 20));
    let options = CreateOptions { kind: FileKind::Table, level: Some(9), ..CreateOptions::default() };
    let mut writer = store.create("new", &options).expect("create");
    for number in 0..20 {
        writer.append(&block(7, number), &IoContext::default()).expect("append");
        let record = record_of(7, number);
        let label = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        store.hint(&Hint::RecordRewritten { file: "new", label, record: &record });
        store.hint(&Hint::RecordRewritten { file: "no such file", label, record: &record });
    }
    writer.sync(&IoContext::default()).expect("sync");
    writer.finish(&IoContext::default()).expect("finish");
    store.remove("old").expect("remove");
    let slow_reads = devices[0].block.counters().reads;
    assert_eq!((alone(&store, "new", 7, 20), devices[0].block.counters().reads), (20, slow_reads));
}

/// What is read much of the fast tier comes in when a compaction writes it to the slow one.
#[test]
fn records_that_were_read_of_the_fast_tier_follow_to_the_slow_one() {
    let devices = devices();
    let store = open(&devices, CachingName::Records);
    write_fast(&store, "fast", 7, 4);
    let label = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let follows = |store: &HybridStore, number: u64| {
        let file = store.open("fast", &OpenOptions::default()).expect("open");
        file.records().expect("records").follows_record(label(number), 200)
    };
    assert!(!follows(&store, 1) && !follows(&store, 2));
    (0..3).for_each(|_| assert!(!read_record(&store, "fast", 7, 1), "tables of the fast tier have no copies"));
    assert!(follows(&store, 1) && !follows(&store, 2));
}

/// A record that was written again is of use in its newest version alone: older copies make way, be they found by a newer one that
/// is kept or by a read of the fast tier, and do not come back with the next open.
#[test]
fn a_record_has_one_copy_that_of_its_newest_version() {
    let devices = devices();
    let store = open(&devices, CachingName::Records);
    write(&store, "old", 7, 20);
    (0..3).for_each(|_| _ = alone(&store, "old", 7, 20));
    write(&store, "other", 9, 1);
    assert_eq!(alone(&store, "old", 7, 20), 20);
    write_fast(&store, "fast", 6, 6);
    assert!(!read_record(&store, "fast", 6, 5));
    let is_alone = |store: &HybridStore, number: usize| read_record(store, "old", 7, number);
    assert!(is_alone(&store, 4) && !is_alone(&store, 5), "there is a newer one on the fast tier");
    // Newer versions of all are kept, and those that left memory made their older ones go.
    write(&store, "new", 8, 20);
    (0..3).for_each(|_| _ = alone(&store, "new", 8, 20));
    write(&store, "another", 9, 1);
    assert_eq!(alone(&store, "new", 8, 20), 20);
    let left = (0..20).filter(|number| is_alone(&store, *number)).count();
    assert!(left <= 8, "{left} of 20");
    drop(store);
    // What is found is right, whatever is.
    let store = open(&devices, CachingName::Records);
    write(&store, "last", 9, 1);
    assert!(alone(&store, "old", 7, 20) + alone(&store, "new", 8, 20) >= 20);
}

/// Reads that nobody made say nothing of what will be read.
#[test]
fn reads_that_stand_for_others_are_not_counted() {
    let devices = devices();
    let store = open(&devices, CachingName::Frequency);
    write(&store, "table", 7, 20);
    let file = store.open("table", &OpenOptions::default()).expect("open");
    let mut data = vec![0; BLOCK_BYTES];
    let context = IoContext { cause: varve_media::IoCause::Synthetic, ..IoContext::of(IoClass::UserRead) };
    (0..5).for_each(|_| file.read_at(0, &mut data, &context).expect("read"));
    assert_eq!((measure_of(&store, "user reads of the slow tier"), data == block(7, 0)), (0, true));
    evict(&store, "table", 7, 1);
    read(&store, "table", 7, 1);
    assert_eq!(measure_of(&store, "user reads of cached blocks"), 0, "nobody had read it");
}

/// What of a copy rotted, or cannot be read, is found in its block.
#[test]
fn a_record_whose_copy_is_bad_is_read_of_its_block() {
    for effect in [FaultEffect::FlipBits(400), FaultEffect::Fail(FaultError::Io)] {
        let env = Env::real();
        let injector = FaultInjector::new(&env, FaultPlan::default());
        let mut devices = devices();
        devices[1] = FaultDevice::device(&injector, &devices[1]);
        let store = open(&devices, CachingName::Records);
        write(&store, "table", 7, 20);
        (0..3).for_each(|_| _ = alone(&store, "table", 7, 20));
        write(&store, "other", 9, 1);
        assert_eq!(alone(&store, "table", 7, 20), 20);
        injector.set_plan(FaultPlan::of(Fault::new(Operation::Read, FaultTrigger::From(0), effect.clone())));
        let slow_reads = devices[0].block.counters().reads;
        // Some wait in memory still.
        let waiting = alone(&store, "table", 7, 20) as u64;
        assert!(waiting <= 4, "{waiting} with {effect:?}");
        assert_eq!(devices[0].block.counters().reads, slow_reads + 20 - waiting);
        injector.set_plan(FaultPlan::default());
        assert_eq!(alone(&store, "table", 7, 20), 20);
    }
}
