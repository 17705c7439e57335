//! Tables whose files are mapped into memory, in a real directory: read in every way, damaged, cut short, overwritten.

use super::mapped::Waits;
use super::tests::{
    BLOCKWISE, Entries, build, build_options, cache, check_found, check_walks, context, everything, expected, get,
    internal, random_build_options, random_entries, read_options, walk_options,
};
use super::*;
use crate::cache::BlockCache;
use crate::error::{Error, ErrorKind};
use crate::iterator::InternalIterator;
use crate::key::{self, EntryKind};
use crate::options::Compression;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use varve_env::{Env, Random};
use varve_media::OsDirectory;
use varve_store::{FileStore, OpenOptions, PlainOptions, PlainStore, StoreError};

/// A directory with one table in it.
struct Place {
    directory: tempfile::TempDir,
    size_bytes: u64,
}

impl Place {
    fn new(bytes: &[u8]) -> Place {
        let directory = tempfile::tempdir().expect("a place for files");
        std::fs::write(directory.path().join("table"), bytes).expect("written");
        Place { directory, size_bytes: bytes.len() as u64 }
    }

    fn file(&self) -> std::fs::File {
        std::fs::File::options().write(true).open(self.directory.path().join("table")).expect("there")
    }

    fn open(&self, cache: &Arc<BlockCache>, map: bool) -> Result<Arc<Table>, Error> {
        let directory = OsDirectory::open(self.directory.path()).expect("a directory");
        let store = PlainStore::open(&Env::real(), Arc::new(directory), PlainOptions::default());
        let file = store.open("table", &OpenOptions::default()).expect("there");
        let options = TableReadOptions { map, ..read_options(1) };
        Table::open(file, "tested", 1, self.size_bytes, &options, cache.clone())
    }

    fn mapped(&self, cache: &Arc<BlockCache>) -> Arc<Table> {
        let table = self.open(cache, true).expect("sound");
        assert!(table.mapped.is_some());
        table
    }
}

fn numbered_entries(count: u32, value_bytes: usize) -> Entries {
    let key = |number: u32| internal(format!("key{number:05}").as_bytes(), 1, EntryKind::Put);
    (0..count).map(|number| (key(number), vec![b'a' + (number % 26) as u8; value_bytes])).collect()
}

#[test]
fn mapped_or_not_tables_answer_alike() {
    for seed in 0..60 {
        let mut random = Random::seeded(seed);
        let count = 1 + random.below(400);
        let entries = random_entries(&mut random, count);
        let options = random_build_options(&mut random);
        let place = Place::new(&build(&entries, &options).0.bytes());
        for capacity in [0, 20_000, 1 << 20] {
            for map in [true, false] {
                let what = format!("seed {seed} {options:?} cache {capacity} map {map}");
                let table = place.open(&cache(capacity), map).expect("sound");
                assert_eq!(table.mapped.is_some(), map && options.compression == Compression::None, "{what}");
                everything(&table, &entries, &what).expect("sound");
                for readahead in [BLOCKWISE, Readahead::growing(3000), Readahead::Fixed { bytes: 3000 }] {
                    check_walks(&table, &entries, readahead, &mut random, &what);
                }
                let users: Vec<&[u8]> = entries.iter().map(|entry| key::user_key(&entry.0)).collect();
                let keys: Vec<Vec<u8>> = users.iter().map(|user| key::lookup_key(user, u64::from(u32::MAX))).collect();
                let mut lookups: Vec<Lookup<'_>> = users
                    .iter()
                    .zip(&keys)
                    .map(|(user, key)| Lookup { internal_key: key, key_hash: key_hash(user), found: None })
                    .collect();
                table.get_many(&mut lookups, &context(false)).expect("sound");
                for (lookup, user) in lookups.into_iter().zip(users) {
                    check_found(lookup.found, expected(&entries, user, u64::from(u32::MAX)), &what);
                }
            }
        }
    }
}

#[test]
fn what_does_not_fit_into_the_cache_is_read_where_it_lies() {
    let entries = numbered_entries(200, 90);
    let (file, _) = build(&entries, &build_options());
    let (small, large) = (cache(2000), cache(1 << 20));
    for blocks in [&small, &large] {
        everything(&Place::new(&file.bytes()).mapped(blocks), &entries, "mapped").expect("sound");
    }
    // Nothing is pushed out for it, and what there is room for is kept.
    assert_eq!((small.statistics().evictions, large.statistics().evictions), (0, 0));
    let blocks = Place::new(&file.bytes()).mapped(&large).block_count() as u64;
    assert_eq!(large.statistics().insertions, blocks);
    assert!(small.statistics().insertions < blocks / 4);
}

#[test]
fn every_flipped_byte_of_a_mapped_table_is_found() {
    let mut entries = random_entries(&mut Random::seeded(1), 30);
    entries.iter_mut().for_each(|entry| entry.1.truncate(60));
    let options = TableBuildOptions { block_size: 300, ..build_options() };
    let bytes = build(&entries, &options).0.bytes();
    for position in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[position] ^= 1 << (position % 8);
        let what = format!("byte {position} of {}", bytes.len());
        for capacity in [0, 1 << 20] {
            let result =
                Place::new(&damaged).open(&cache(capacity), true).and_then(|table| everything(&table, &entries, &what));
            let error = result.expect_err(&what);
            assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Foreign), "{what}: {error:?}");
            assert!(error.to_string().contains("tested"), "{what}: {error}");
        }
    }
}

#[test]
fn of_a_file_cut_short_there_are_errors_and_no_wrong_answers() {
    let entries = numbered_entries(1000, 90);
    let bytes = build(&entries, &build_options()).0.bytes();
    let mut random = Random::seeded(5);
    for round in 0..60 {
        let place = Place::new(&bytes);
        let table = place.mapped(&cache(0));
        let what = format!("round {round}");
        let mut walk = table.iterator(walk_options(Readahead::growing(64 << 10)));
        // Some blocks were verified before, or all, or none.
        for _ in 0..[0, 30, 3000][round % 3] {
            let entry = &entries[random.index(entries.len())];
            check_found(get(&table, key::user_key(&entry.0), 1).expect("sound"), Some(entry), &what);
        }
        walk.seek(&entries[random.index(entries.len())].0);
        assert!(walk.valid());
        let left = random.below(place.size_bytes);
        place.file().set_len(left).expect("cut");
        if round % 4 == 0 {
            place.file().set_len(place.size_bytes).expect("zeros");
        }
        let mut failed = 0;
        for entry in &entries {
            match get(&table, key::user_key(&entry.0), 1) {
                Ok(found) => check_found(found, Some(entry), &what),
                Err(Error::Store(StoreError::PastEnd { .. })) => failed += 1,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}");
                    failed += 1;
                }
            }
        }
        assert!(failed > 0 || left as usize > bytes.len() * 3 / 4, "{what}: {left} bytes were left");
        // The walk that was under way ends with an error, or with the end, past right answers only.
        let mut seen = 0;
        while walk.valid() {
            let at = entries.partition_point(|entry| key::compare(&entry.0, walk.key()) == std::cmp::Ordering::Less);
            assert_eq!((walk.key(), walk.value()), (entries[at].0.as_slice(), entries[at].1.as_slice()), "{what}");
            seen = at;
            walk.next();
        }
        assert!(walk.status().is_err() || seen == entries.len() - 1, "{what}: ended at {seen}");
    }
}

#[test]
fn bytes_that_change_after_they_were_verified_are_borne() {
    for seed in 0..40 {
        let mut random = Random::seeded(seed);
        let entries = random_entries(&mut random, 200);
        let options = TableBuildOptions { compression: Compression::None, ..random_build_options(&mut random) };
        let place = Place::new(&build(&entries, &options).0.bytes());
        let table = place.mapped(&cache(0));
        everything(&table, &entries, "as it was").expect("sound");
        let data_bytes = table.index.data_end();
        for _ in 0..30 {
            let mut noise = vec![[0, 0xff, random.next_u64() as u8][random.index(3)]; 1 + random.index(64)];
            if random.chance(1, 2) {
                random.fill_bytes(&mut noise);
            }
            let at = random.below(data_bytes);
            noise.truncate((data_bytes - at) as usize);
            std::os::unix::fs::FileExt::write_all_at(&place.file(), &noise, at).expect("written");
            // Whatever is answered: nothing panics, and every walk ends.
            for entry in &entries {
                let _ = get(&table, key::user_key(&entry.0), key::sequence(&entry.0));
            }
            let mut walk = table.iterator(walk_options(BLOCKWISE));
            walk.seek_to_first();
            let mut steps = 0;
            while walk.valid() {
                let _ = (walk.key().len(), walk.value().len());
                walk.next();
                steps += 1;
                assert!(steps <= 1_000_000, "seed {seed}: a walk without end");
            }
        }
    }
}

/// Reads once trusted a block for as long as its table was open: after a first read of everything, all damage was served.
#[test]
fn bytes_that_change_after_they_were_verified_are_found_by_every_read() {
    for seed in 0..20 {
        let mut random = Random::seeded(seed);
        let entries = numbered_entries(600, 1 + random.index(150));
        let place = Place::new(&build(&entries, &build_options()).0.bytes());
        let table = place.mapped(&cache(0));
        everything(&table, &entries, "as it was").expect("sound");
        let flips = 1 + random.index(8);
        let mut damaged = std::collections::BTreeSet::new();
        for _ in 0..flips {
            let at = random.below(table.index.data_end());
            let path = place.directory.path().join("table");
            let byte = std::fs::read(path).expect("read")[at as usize] ^ 1 << random.below(8);
            std::os::unix::fs::FileExt::write_all_at(&place.file(), &[byte], at).expect("written");
            damaged.extend((0..table.block_count()).find(|block| table.index.handle(*block).range().contains(&at)));
        }
        let mut errors = 0;
        for entry in &entries {
            let block = table.find_block(key::user_key(&entry.0), key::trailer(&entry.0));
            match get(&table, key::user_key(&entry.0), 1) {
                Ok(found) => {
                    assert!(!damaged.contains(&block), "seed {seed}: block {block} is damaged");
                    check_found(found, Some(entry), "beside damage");
                }
                Err(error) => {
                    assert!(damaged.contains(&block) && error.kind() == ErrorKind::Corruption, "seed {seed}: {error}");
                    errors += 1;
                }
            }
        }
        assert!(errors >= damaged.len(), "seed {seed}");
        // Walks that go block by block, over blocks they know, meet the same.
        let mut walk = table.iterator(walk_options(Readahead::growing(0)));
        for block in 0..table.block_count() {
            walk.seek_to_block(block);
            assert_eq!(walk.status().is_err(), damaged.contains(&block), "seed {seed}: block {block}");
        }
    }
}

#[test]
fn readers_on_many_threads_meet_a_cut() {
    let entries = numbered_entries(2000, 90);
    let bytes = build(&entries, &build_options()).0.bytes();
    for round in 0..10 {
        let place = Place::new(&bytes);
        let table = place.mapped(&cache(0));
        let is_cut = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (table, entries, is_cut) = (&table, &entries, &is_cut);
                scope.spawn(move || {
                    let mut random = Random::seeded(round * 10 + thread);
                    let mut after = 0;
                    while after < 300 {
                        after += u32::from(is_cut.load(Ordering::Relaxed));
                        let entry = &entries[random.index(entries.len())];
                        if let Ok(found) = get(table, key::user_key(&entry.0), 1) {
                            check_found(found, Some(entry), "beside a cut");
                        }
                    }
                });
            }
            place.file().set_len(place.size_bytes / 2).expect("cut");
            is_cut.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn a_removed_file_stays_readable_while_it_is_mapped() {
    let entries = numbered_entries(300, 90);
    let place = Place::new(&build(&entries, &build_options()).0.bytes());
    let table = place.mapped(&cache(0));
    std::fs::remove_file(place.directory.path().join("table")).expect("removed");
    everything(&table, &entries, "removed").expect("sound");
}

#[test]
fn whoever_verifies_checksums_does_so_after_others_that_do_not() {
    let entries = numbered_entries(100, 90);
    let mut bytes = build(&entries, &build_options()).0.bytes();
    // A value, which no other check looks at.
    bytes[20] ^= 1;
    let table = Place::new(&bytes).mapped(&cache(0));
    let user = key::user_key(&entries[0].0);
    let lookup = |verify_checksums| {
        let context = ReadContext { verify_checksums, ..context(false) };
        table.get(&key::lookup_key(user, 1), key_hash(user), &context)
    };
    assert_ne!(lookup(false).expect("not looked at").expect("there").value, entries[0].1);
    assert_eq!(lookup(true).expect_err("damaged").kind(), ErrorKind::Corruption);
    assert!(lookup(false).is_ok());
}

#[test]
fn a_walk_that_waited_counts_as_waiting_and_is_asked_rarely() {
    let mut looks = 0;
    let mut walk = |waited_at: u32| {
        let mut waits = Waits::default();
        (6..200).find(|&block| {
            waits.were_met(block, || {
                looks += 1;
                u64::from(block > waited_at)
            })
        })
    };
    assert_eq!((walk(u32::MAX), walk(6), walk(100)), (None, Some(7), Some(120)));
    assert!(looks < 22, "{looks}");
    let mut waits = Waits::default();
    assert!(!waits.were_met(6, || 3) && waits.were_met(7, || 4));
    assert!((8..100).all(|block| waits.were_met(block, || unreachable!("it did wait"))));
}
