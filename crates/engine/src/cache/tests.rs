//! The caches with real tables.

use super::*;
use crate::error::ErrorKind;
use crate::key::{self, EntryKind};
use crate::options::Compression;
use crate::table::observed_file::{ObservedFile, SlowStore};
use crate::table::tests::{build, build_options, context, internal, open, open_numbered};
use crate::table::{FileAccess, Table, TableBuildOptions, TableCache, TableHandle, TableRef, key_hash};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use varve_env::{Env, Random, SimOptions};
use varve_store::IoContext;

fn user(n: u64) -> Vec<u8> {
    format!("{n:08}").into_bytes()
}

/// A table of `count` keys, about four to a block.
fn table_file(count: u64, compression: Compression) -> ObservedFile {
    let entries = (0..count).map(|n| (internal(&user(n), 1, EntryKind::Put), vec![n as u8; 100])).collect();
    build(&entries, &TableBuildOptions { compression, ..build_options() }).0
}

fn read(table: &Table, n: u64, fill_cache: bool) {
    let found = table.get(&key::lookup_key(&user(n), 9), key_hash(&user(n)), &context(fill_cache));
    assert_eq!(&*found.expect("sound").expect("there").value, vec![n as u8; 100].as_slice());
}

#[test]
fn usage_is_what_blocks_take_and_stays_within_the_capacity() {
    let file = table_file(4000, Compression::None);
    for capacity in [0, 2000, 50_000, 200_000] {
        let cache = Arc::new(BlockCache::new(capacity, None, None));
        let table = open(&file, &cache).expect("sound");
        let mut random = Random::seeded(capacity as u64);
        for _ in 0..3000 {
            read(&table, random.below(4000), true);
            let statistics = cache.statistics();
            assert!(statistics.usage_bytes <= capacity);
            // Each block takes a bit more than its 512 bytes.
            assert!(statistics.usage_bytes >= statistics.blocks * 500);
        }
        let statistics = cache.statistics();
        assert_eq!(statistics.blocks as u64, statistics.insertions - statistics.evictions);
        assert!(capacity < 1000 || statistics.usage_bytes > capacity - 800, "{statistics:?}");
        drop(table);
        assert_eq!((cache.statistics().usage_bytes, cache.statistics().blocks), (0, 0));
    }
}

#[test]
fn books_balance_while_tables_come_and_go() {
    let files: Vec<ObservedFile> = (0..6).map(|n| table_file(200 + n, Compression::None)).collect();
    for seed in 0..20 {
        let mut random = Random::seeded(seed);
        let cache = Arc::new(BlockCache::new(60_000, Some(random.below(3) as u32), None));
        let mut tables = BTreeMap::new();
        for round in 0..3000u64 {
            let number = random.below(6);
            if random.chance(1, 40) {
                tables.remove(&number);
            }
            let table = tables
                .entry(number)
                .or_insert_with(|| open_numbered(&files[number as usize], &cache, round).expect("sound"));
            read(table, random.below(200), random.chance(9, 10));
            assert!(cache.statistics().usage_bytes <= 60_000, "seed {seed}");
        }
        tables.clear();
        assert_eq!((cache.statistics().usage_bytes, cache.statistics().blocks), (0, 0), "seed {seed}");
    }
}

#[test]
fn what_is_used_again_survives_a_scan() {
    let file = table_file(8000, Compression::None);
    let cache = Arc::new(BlockCache::new(100_000, None, None));
    let table = open(&file, &cache).expect("sound");
    for _ in 0..4 {
        (0..200).for_each(|n| read(&table, n, true));
    }
    // A scan looks at each block once.
    (1000..8000).step_by(5).for_each(|n| read(&table, n, true));
    let before = file.reads();
    (0..200).for_each(|n| read(&table, n, true));
    let missed = file.reads() - before;
    assert!(missed <= 10, "{missed} of about 50 hot blocks were lost");
}

#[test]
fn a_block_that_comes_back_soon_stays() {
    let file = table_file(8000, Compression::None);
    let cache = Arc::new(BlockCache::new(40_000, None, None));
    let table = open(&file, &cache).expect("sound");
    // Fills the main queue, so that the small one gives room.
    for _ in 0..4 {
        (4000..4200).for_each(|n| read(&table, n, true));
    }
    // Read once, pushed out of the small queue, and read again while its note is fresh.
    read(&table, 0, true);
    (1000..1100).step_by(5).for_each(|n| read(&table, n, true));
    let before = file.reads();
    read(&table, 0, true);
    assert_eq!(file.reads() - before, 1, "was pushed out");
    (1200..1400).step_by(5).for_each(|n| read(&table, n, true));
    let before = file.reads();
    read(&table, 0, true);
    assert_eq!(file.reads() - before, 0, "is in the main queue");
}

#[test]
fn blocks_in_use_are_not_dropped() {
    let file = table_file(400, Compression::None);
    let cache = Arc::new(BlockCache::new(3000, None, None));
    let table = open(&file, &cache).expect("sound");
    let held: Vec<_> = (0..400)
        .step_by(4)
        .map(|n| table.get(&key::lookup_key(&user(n), 9), key_hash(&user(n)), &context(true)).expect("sound"))
        .collect();
    let statistics = cache.statistics();
    assert!(statistics.refusals > 0 && statistics.usage_bytes <= 3000 && statistics.evictions == 0, "{statistics:?}");
    drop(held);
    (0..400).for_each(|n| read(&table, n, true));
    assert!(cache.statistics().evictions > 0);
}

#[derive(Default)]
struct Collector {
    evicted: Mutex<Vec<(String, u64, Vec<u8>)>>,
}

impl EvictionSink for Collector {
    fn try_send(&self, evicted: EvictedBlock) {
        let evicted = (evicted.file().to_owned(), evicted.offset_bytes(), evicted.bytes().to_vec());
        self.evicted.lock().push(evicted);
    }
}

#[test]
fn evicted_blocks_are_handed_over_as_they_are_on_the_medium() {
    for compression in [Compression::None, Compression::Lz4] {
        let file = table_file(1000, compression);
        let run = || {
            let sink = Arc::new(Collector::default());
            let cache = Arc::new(BlockCache::new(20_000, Some(1), Some(sink.clone())));
            let table = open(&file, &cache).expect("sound");
            (0..1000).for_each(|n| read(&table, n * 7 % 1000, true));
            assert_eq!(sink.evicted.lock().len() as u64, cache.statistics().evictions);
            drop(table);
            assert_eq!(sink.evicted.lock().len() as u64, cache.statistics().evictions, "closing evicts nothing");
            std::mem::take(&mut *sink.evicted.lock())
        };
        let evicted = run();
        let bytes = file.bytes();
        assert!(evicted.len() > 100);
        for (name, offset, block) in &evicted {
            assert_eq!((name.as_str(), &bytes[*offset as usize..][..block.len()]), ("tested", block.as_slice()));
        }
        assert_eq!(evicted, run(), "the same reads evict the same blocks");
    }
}

#[test]
fn an_eviction_queue_drops_what_does_not_fit() {
    let (queue, receiver) = EvictionQueue::new(&Env::real(), 3);
    let cache = Arc::new(BlockCache::new(3000, None, Some(queue)));
    let table = open(&table_file(1000, Compression::None), &cache).expect("sound");
    (0..1000).for_each(|n| read(&table, n, true));
    assert!(cache.statistics().evictions > 3);
    assert_eq!(receiver.len(), 3);
    drop(receiver);
    (0..1000).for_each(|n| read(&table, n, true));
}

#[test]
fn threads_share_a_small_cache() {
    let files: Vec<ObservedFile> = (0..3).map(|_| table_file(400, Compression::None)).collect();
    let cache = Arc::new(BlockCache::new(30_000, Some(1), None));
    let tables: Vec<Mutex<Arc<Table>>> =
        files.iter().map(|file| Mutex::new(open(file, &cache).expect("sound"))).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (tables, files, cache) = (&tables, &files, &cache);
            scope.spawn(move || {
                let mut random = Random::seeded(thread);
                for round in 0..8000 {
                    let at = random.index(3);
                    if round % 500 == 499 {
                        *tables[at].lock() = open(&files[at], cache).expect("sound");
                    }
                    let table = tables[at].lock().clone();
                    // Mostly a few keys, so that threads meet on one block.
                    let n = if random.chance(1, 2) { random.below(8) } else { random.below(400) };
                    read(&table, n, true);
                }
            });
        }
    });
    assert!(cache.statistics().usage_bytes <= 30_000);
    drop(tables);
    assert_eq!(cache.statistics().usage_bytes, 0);
}

fn store(env: &Env, tables: u64) -> (Arc<SlowStore>, Vec<TableHandle>) {
    let store = Arc::new(SlowStore::new(env));
    let handles = (0..tables)
        .map(|number| {
            let file = table_file(20 + number, Compression::None);
            store.put(&crate::file_name::table(number), file.clone());
            TableHandle::new(number, varve_store::ReadableFile::size_bytes(&file))
        })
        .collect();
    (store, handles)
}

fn table_cache(env: &Env, store: &Arc<SlowStore>, max_open_files: usize) -> TableCache {
    let blocks = Arc::new(BlockCache::new(1 << 20, None, None));
    TableCache::new(
        env,
        store.clone(),
        max_open_files,
        FileAccess { direct: false, map: true },
        IoContext::default(),
        blocks,
    )
}

#[test]
fn tables_are_pinned_while_there_is_room_and_take_turns_then() {
    let env = Env::real();
    let (store, mut handles) = store(&env, 40);
    let cache = table_cache(&env, &store, 16);
    for round in 0..3 {
        for (number, handle) in handles.iter().enumerate() {
            let table = cache.table(handle, || None).expect("sound");
            assert_eq!(matches!(table, TableRef::Pinned(_)), number < 14, "round {round} table {number}");
            read(&table, number as u64, true);
            assert!(cache.open_tables() <= 16);
        }
    }
    assert_eq!(store.opens(), 14 + 3 * 26);
    // Used tables get a second chance.
    for _ in 0..10 {
        cache.table(&handles[20], || None).expect("sound");
        cache.table(&handles[20], || None).expect("sound");
        cache.table(&handles[21], || None).expect("sound");
    }
    assert_eq!(store.opens(), 14 + 3 * 26 + 2);
    // What is in use stays open though the cache has closed it.
    let held = cache.table(&handles[30], || None).expect("sound");
    for handle in &handles[31..] {
        cache.table(handle, || None).expect("sound");
    }
    read(&held, 3, true);
    drop(held);
    cache.remove(39);
    assert_eq!(cache.open_tables(), 15);
    assert!(cache.memory_bytes() > 0);
    // Room that is given back is pinned again.
    handles.drain(..10);
    assert!(matches!(cache.table(&handles[29], || None).expect("sound"), TableRef::Pinned(_)));
    handles.clear();
    for number in 0..40 {
        cache.remove(number);
    }
    assert_eq!((cache.open_tables(), cache.memory_bytes()), (0, 0));
}

#[test]
fn a_table_is_opened_once_however_many_wait_for_it() {
    for seed in 0..30 {
        let env = Env::sim_with(SimOptions { seed, perturb: seed % 2 == 1, ..SimOptions::default() });
        let (store, handles) = store(&env, 4);
        let handles = Arc::new(handles);
        let cache = Arc::new(table_cache(&env, &store, if seed % 3 == 0 { 1 } else { 100 }));
        if seed % 5 == 4 {
            store.fail_opens(1);
        }
        let actors: Vec<_> = (0..8u64)
            .map(|actor| {
                let (cache, handles) = (cache.clone(), handles.clone());
                env.spawn("reader", move || {
                    let handle = &handles[actor as usize % 2];
                    match cache.table(handle, || None) {
                        Ok(table) => read(&table, actor, true),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidArgument),
                    }
                })
            })
            .collect();
        for actor in actors {
            actor.join().expect("no panic");
        }
        // With room for one, tables may have been closed in between.
        let limit = if seed % 3 == 0 { 8 } else { 2 };
        assert!((2..=limit).contains(&store.opens()), "seed {seed}: {} opens", store.opens());
    }
}

#[test]
fn a_missing_table_is_an_error_each_time() {
    let env = Env::real();
    let (store, _) = store(&env, 1);
    let cache = table_cache(&env, &store, 4);
    let handle = TableHandle::new(99, 1000);
    for _ in 0..3 {
        assert_eq!(cache.table(&handle, || None).err().expect("missing").kind(), ErrorKind::Corruption);
    }
}
