//! Tables as a whole: built, opened, read in every way, damaged.

use super::observed_file::ObservedFile;
use super::*;
use crate::cache::BlockCache;
use crate::error::{Error, ErrorKind};
use crate::fuzzing::whole_table;
use crate::iterator::InternalIterator;
use crate::key::{self, EntryKind};
use crate::options::{Compression, GrowingReadahead};
use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicUsize};
use varve_env::{Env, Random};
use varve_store::{IoContext, ReadableFile, WritableFile};

pub(super) type Entries = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) fn internal(user: &[u8], sequence: u64, kind: EntryKind) -> Vec<u8> {
    let mut out = Vec::new();
    key::append_internal_key(&mut out, user, sequence, kind as u8);
    out
}

pub(crate) fn build_options() -> TableBuildOptions {
    TableBuildOptions {
        block_size: 512,
        block_restart_interval: 4,
        block_align: 0,
        bloom_bits_per_key: 10,
        compression: Compression::None,
        table_id: 77,
        histogram_bytes: 0,
    }
}

pub(crate) fn build(entries: &Entries, options: &TableBuildOptions) -> (ObservedFile, TableSummary) {
    let file = ObservedFile::default();
    let mut builder = TableBuilder::new(Box::new(file.clone()), "built", options, IoContext::default(), Env::real());
    for (internal, value) in entries {
        builder.add(internal, value).expect("in order");
    }
    assert_eq!(builder.entries(), entries.len() as u64);
    let summary = builder.finish().expect("memory");
    assert_eq!(summary.size_bytes, ReadableFile::size_bytes(&file));
    (file, summary)
}

pub(super) fn read_options(alignment: usize) -> TableReadOptions {
    TableReadOptions {
        map: true,
        env: Env::real(),
        read_alignment_bytes: alignment,
        io: IoContext::default(),
        memory: Arc::new(AtomicUsize::new(0)),
    }
}

pub(crate) fn open(file: &ObservedFile, cache: &Arc<BlockCache>) -> Result<Arc<Table>, Error> {
    open_numbered(file, cache, 1)
}

pub(crate) fn open_numbered(file: &ObservedFile, cache: &Arc<BlockCache>, number: u64) -> Result<Arc<Table>, Error> {
    let size = ReadableFile::size_bytes(file);
    Table::open(Arc::new(file.clone()), "tested", number, size, &read_options(1), cache.clone())
}

pub(crate) fn cache(capacity: usize) -> Arc<BlockCache> {
    Arc::new(BlockCache::new(capacity, None, None))
}

pub(crate) fn context(fill_cache: bool) -> ReadContext {
    ReadContext { fill_cache, verify_checksums: true, order: KeyOrder::Checked, io: IoContext::default() }
}

pub(crate) fn walk_options(readahead: Readahead) -> TableIteratorOptions {
    TableIteratorOptions {
        fill_cache: true,
        verify_checksums: true,
        readahead,
        order: KeyOrder::Checked,
        io: IoContext::default(),
    }
}

pub(super) const BLOCKWISE: Readahead = Readahead::growing(0);

pub(super) fn get(table: &Table, user: &[u8], sequence: u64) -> Result<Option<Found>, Error> {
    table.get(&key::lookup_key(user, sequence), key_hash(user), &context(true))
}

/// Sorted entries with several versions of some keys, deletions, empty keys and values.
pub(super) fn random_entries(random: &mut Random, count: u64) -> Entries {
    let alphabet = 1 + random.below(5);
    let longest = 1 + random.below(20);
    let head = vec![b'k'; random.below(20) as usize];
    let value_limit = [1, 30, 200, 1500][random.below(4) as usize];
    let mut entries: Entries = (1..=count)
        .map(|sequence| {
            let mut user = if random.chance(1, 20) { Vec::new() } else { head.clone() };
            for _ in 0..random.below(longest) {
                user.push(random.below(alphabet) as u8 * 50);
            }
            if random.chance(1, 8) {
                return (internal(&user, sequence, EntryKind::Delete), Vec::new());
            }
            let mut value = vec![0; random.below(value_limit) as usize];
            if random.chance(1, 2) {
                random.fill_bytes(&mut value);
            }
            (internal(&user, sequence, EntryKind::Put), value)
        })
        .collect();
    entries.sort_by(|a, b| key::compare(&a.0, &b.0));
    entries
}

pub(super) fn random_build_options(random: &mut Random) -> TableBuildOptions {
    TableBuildOptions {
        block_size: [64, 300, 4096][random.below(3) as usize],
        block_restart_interval: [1, 2, 16, 100_000][random.below(4) as usize],
        block_align: [0, 1, 512, 4096][random.below(4) as usize],
        bloom_bits_per_key: [0, 10, 10, 3, 20][random.below(5) as usize],
        compression: [Compression::None, Compression::None, Compression::Lz4, Compression::Zstd]
            [random.below(4) as usize],
        table_id: random.next_u64(),
        histogram_bytes: [0, 0, 300, 4096][random.below(4) as usize],
    }
}

fn random_target(random: &mut Random, entries: &Entries) -> Vec<u8> {
    let mut target = entries[random.index(entries.len())].0.clone();
    if random.chance(2, 3) {
        let mut user = key::user_key(&target).to_vec();
        match random.below(4) {
            0 => user.push(random.below(5) as u8 * 50),
            1 => user.truncate(random.below(user.len() as u64 + 1) as usize),
            2 => user = vec![random.below(256) as u8],
            _ => {}
        }
        target = key::lookup_key(&user, random.below(entries.len() as u64 + 2));
    }
    target
}

/// What a lookup has to find.
pub(super) fn expected<'a>(entries: &'a Entries, user: &[u8], sequence: u64) -> Option<&'a (Vec<u8>, Vec<u8>)> {
    let target = key::lookup_key(user, sequence);
    let position = entries.partition_point(|entry| key::compare(&entry.0, &target) == Ordering::Less);
    entries.get(position).filter(|entry| key::user_key(&entry.0) == user)
}

pub(super) fn check_found(found: Option<Found>, expected: Option<&(Vec<u8>, Vec<u8>)>, what: &str) {
    match (found, expected) {
        (None, None) => {}
        (Some(found), Some((internal, value))) => {
            assert_eq!(found.sequence, key::sequence(internal), "{what}");
            assert_eq!(found.kind as u8, key::kind_number(internal), "{what}");
            assert_eq!(&*found.value, value.as_slice(), "{what}");
        }
        (found, expected) => panic!("{what}: found {found:?}, expected {expected:?}"),
    }
}

#[test]
fn a_small_table_is_these_bytes() {
    let entries: Entries = (0..40u64)
        .map(|n| {
            let kind = if n % 7 == 3 { EntryKind::Delete } else { EntryKind::Put };
            let value = if kind == EntryKind::Put { format!("value {n}").repeat(5).into_bytes() } else { Vec::new() };
            (internal(format!("key{:03}", n * 3).as_bytes(), 1000 - n, kind), value)
        })
        .collect();
    let golden = |block_align| {
        let options = TableBuildOptions { block_align, ..build_options() };
        let bytes = build(&entries, &options).0.bytes();
        (bytes.len(), crate::checksum::crc32c(&bytes[..bytes.len() - 8]))
    };
    assert_eq!([golden(0), golden(512)], [(2088, 562_736_770), (2841, 1_646_321_223)]);
}

#[test]
fn random_tables_answer_like_the_sorted_entries() {
    for seed in 0..150 {
        let mut random = Random::seeded(seed);
        let count = 1 + random.below(300);
        let entries = random_entries(&mut random, count);
        let options = random_build_options(&mut random);
        let what = format!("seed {seed} {options:?}");
        let (file, summary) = build(&entries, &options);
        assert_eq!(summary.properties.smallest, entries[0].0, "{what}");
        assert_eq!(summary.properties.largest, entries[entries.len() - 1].0, "{what}");
        let table = open(&file, &cache([0, 3000, 1 << 20][random.below(3) as usize])).expect("sound");
        assert_eq!(*table.properties(), summary.properties, "{what}");
        assert!(table.verify(IoContext::default()).is_empty(), "{what}: {:?}", table.verify(IoContext::default()));
        for _ in 0..300 {
            let target = random_target(&mut random, &entries);
            let (user, sequence) = (key::user_key(&target), key::sequence(&target));
            let found = get(&table, user, sequence).expect("sound");
            check_found(found, expected(&entries, user, sequence), &what);
        }
        let mut targets: Vec<Vec<u8>> = (0..40).map(|_| random_target(&mut random, &entries)).collect();
        targets.iter_mut().for_each(|target| *target = key::lookup_key(key::user_key(target), random.below(400)));
        targets.sort_by(|a, b| key::compare(a, b));
        let mut lookups: Vec<Lookup<'_>> = targets
            .iter()
            .map(|target| Lookup { internal_key: target, key_hash: key_hash(key::user_key(target)), found: None })
            .collect();
        table.get_many(&mut lookups, &context(random.chance(1, 2))).expect("sound");
        for lookup in lookups {
            let (user, sequence) = (key::user_key(lookup.internal_key), key::sequence(lookup.internal_key));
            check_found(lookup.found, expected(&entries, user, sequence), &what);
        }
    }
}

#[test]
fn random_walks_agree_with_the_sorted_entries() {
    for seed in 0..150 {
        let mut random = Random::seeded(1000 + seed);
        let count = 1 + random.below(400);
        let entries = random_entries(&mut random, count);
        let options = random_build_options(&mut random);
        let (file, _) = build(&entries, &options);
        let readahead = match random.below(4) {
            0 => BLOCKWISE,
            1 => Readahead::Growing(GrowingReadahead {
                blocks_before: random.below(4) as u32,
                first_bytes: random.below(20_000) as usize,
                max_bytes: 64 << 10,
            }),
            2 => Readahead::Fixed { bytes: 0 },
            _ => Readahead::Fixed { bytes: 1 + random.below(20_000) as usize },
        };
        let what = format!("seed {seed} {options:?} {readahead:?}");
        let table = open(&file, &cache([0, 20_000, 1 << 20][random.below(3) as usize])).expect("sound");
        check_walks(&table, &entries, readahead, &mut random, &what);
    }
}

/// That walks over a table find its entries, there and back.
pub(super) fn check_walks(
    table: &Arc<Table>,
    entries: &Entries,
    readahead: Readahead,
    random: &mut Random,
    what: &str,
) {
    let mut walk = table.iterator(walk_options(readahead));
    assert!(!walk.valid());
    let mut model: Option<usize> = None;
    for step in 0..400 {
        match random.below(20) {
            0 => {
                walk.seek_to_first();
                model = Some(0);
            }
            1 => {
                walk.seek_to_last();
                model = Some(entries.len() - 1);
            }
            2 => {
                let target = random_target(random, entries);
                walk.seek(&target);
                let at = entries.partition_point(|entry| key::compare(&entry.0, &target) == Ordering::Less);
                model = (at < entries.len()).then_some(at);
            }
            3 => {
                let target = random_target(random, entries);
                walk.seek_for_previous(&target);
                let at = entries.partition_point(|entry| key::compare(&entry.0, &target) != Ordering::Greater);
                model = at.checked_sub(1);
            }
            4..=12 if walk.valid() => {
                walk.next();
                model = model.and_then(|at| (at + 1 < entries.len()).then_some(at + 1));
            }
            _ if walk.valid() => {
                walk.previous();
                model = model.and_then(|at| at.checked_sub(1));
            }
            _ => {}
        }
        walk.status().expect("sound");
        let found = walk.valid().then(|| (walk.key(), walk.value()));
        let expected = model.map(|at| (entries[at].0.as_slice(), entries[at].1.as_slice()));
        assert_eq!(found, expected, "{what} step {step}");
    }
    // Whole walks, where windows grow.
    walk.seek_to_first();
    for entry in entries {
        assert_eq!((walk.key(), walk.value()), (entry.0.as_slice(), entry.1.as_slice()), "{what}");
        walk.next();
    }
    assert!(!walk.valid() && walk.status().is_ok(), "{what}");
    walk.seek_to_last();
    for entry in entries.iter().rev() {
        assert_eq!((walk.key(), walk.value()), (entry.0.as_slice(), entry.1.as_slice()), "{what}");
        walk.previous();
    }
    assert!(!walk.valid() && walk.status().is_ok(), "{what}");
}

#[test]
fn a_walk_goes_on_with_another_table() {
    let one: Entries = (0..50u8).map(|n| (internal(&[1, n], 1, EntryKind::Put), vec![n; 90])).collect();
    let two: Entries = (0..50u8).map(|n| (internal(&[2, n], 1, EntryKind::Put), vec![n; 90])).collect();
    let cache = cache(1 << 20);
    let first = open_numbered(&build(&one, &build_options()).0, &cache, 1).expect("sound");
    let second = open_numbered(&build(&two, &build_options()).0, &cache, 2).expect("sound");
    let mut walk = first.iterator(walk_options(Readahead::Fixed { bytes: 2000 }));
    walk.seek_to_last();
    walk.set_table(second.clone());
    assert!(!walk.valid());
    walk.seek_to_first();
    assert_eq!((walk.key(), walk.value()), (two[0].0.as_slice(), two[0].1.as_slice()));
}

/// Everything a table answers, or the first error.
pub(super) fn everything(table: &Arc<Table>, entries: &Entries, what: &str) -> Result<(), Error> {
    let mut walk = table.iterator(walk_options(BLOCKWISE));
    walk.seek_to_first();
    for (internal, value) in entries {
        walk.status()?;
        assert!(walk.valid(), "{what}: ends early");
        assert_eq!((walk.key(), walk.value()), (internal.as_slice(), value.as_slice()), "{what}");
        walk.next();
    }
    walk.status()?;
    assert!(!walk.valid(), "{what}: ends late");
    for entry in entries {
        let user = key::user_key(&entry.0);
        let found = get(table, user, key::sequence(&entry.0))?;
        check_found(found, expected(entries, user, key::sequence(&entry.0)), what);
    }
    Ok(())
}

#[test]
fn every_flipped_byte_gives_an_error_or_the_right_answer() {
    for (seed, compression, block_align) in
        [(1, Compression::None, 0), (2, Compression::Lz4, 0), (3, Compression::Zstd, 512), (4, Compression::None, 512)]
    {
        let mut entries = random_entries(&mut Random::seeded(seed), 30);
        entries.iter_mut().for_each(|entry| entry.1.truncate(60));
        let options = TableBuildOptions { compression, block_align, block_size: 300, ..build_options() };
        let bytes = build(&entries, &options).0.bytes();
        let mut harmless = 0;
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1 << (position % 8);
            let what = format!("seed {seed} byte {position} of {}", bytes.len());
            let file = ObservedFile::of(&damaged);
            let result = open(&file, &cache(1 << 20)).and_then(|table| everything(&table, &entries, &what));
            match result {
                Ok(()) => harmless += 1,
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Foreign), "{what}: {error:?}");
                    assert!(error.to_string().contains("tested"), "{what}: {error}");
                }
            }
        }
        assert_eq!(harmless, 0, "seed {seed}: every byte is covered by a checksum");
    }
}

#[test]
fn every_cut_is_an_error() {
    let entries = random_entries(&mut Random::seeded(9), 60);
    let bytes = build(&entries, &build_options()).0.bytes();
    for length in 0..bytes.len() {
        let file = ObservedFile::of(&bytes[..length]);
        assert!(open(&file, &cache(0)).is_err(), "cut to {length}");
        // The manifest knows the size: a file that is shorter is refused before it is read.
        let size = bytes.len() as u64;
        let result = Table::open(Arc::new(file), "cut", 1, size, &read_options(1), cache(0));
        assert_eq!(result.expect_err("cut").kind(), ErrorKind::Corruption);
    }
    // Bytes after the table are not part of it.
    let longer = ObservedFile::of(&[&bytes[..], &[7; 5000]].concat());
    let table = Table::open(Arc::new(longer), "longer", 1, bytes.len() as u64, &read_options(1), cache(0));
    everything(&table.expect("sound"), &entries, "longer").expect("sound");
}

#[test]
fn damage_behind_the_checksums_never_panics() {
    for seed in 0..300 {
        let mut random = Random::seeded(seed);
        let entries = random_entries(&mut random, 80);
        let mut options = random_build_options(&mut random);
        options.block_size = 300;
        let (file, summary) = build(&entries, &options);
        let mut bytes = file.bytes();
        for _ in 0..1 + random.below(6) {
            let position = random.below(summary.properties.data_bytes) as usize;
            bytes[position] = random.next_u64() as u8;
        }
        whole_table(&bytes);
        fuzzing::parts(&bytes[random.index(bytes.len())..]);
    }
}

/// Anywhere in the table, with checksums that fit afterwards.
#[test]
fn sealed_damage_never_panics_and_every_walk_ends() {
    for seed in 0..600 {
        let mut random = Random::seeded(seed);
        let entries = random_entries(&mut random, 60);
        let mut options = random_build_options(&mut random);
        options.block_size = [64, 300][random.index(2)];
        options.block_align = [0, 64][random.index(2)];
        let (file, summary) = build(&entries, &options);
        let mut bytes = file.bytes();
        for _ in 0..1 + random.below(4) {
            let properties = &summary.properties;
            let position = match random.below(4) {
                0 => random.below(properties.data_bytes),
                1 => properties.data_bytes + random.below(bytes.len() as u64 - properties.data_bytes),
                // The index, or what is before the properties.
                2 => properties.data_bytes + properties.filter_bytes + random.below(properties.index_bytes),
                _ => bytes.len() as u64 - 1 - random.below(bytes.len().min(300) as u64),
            };
            // Neighbours of what was there, ends of ranges, anything.
            let byte = &mut bytes[position as usize];
            *byte = match random.below(4) {
                0 => byte.wrapping_add(1),
                1 => byte.wrapping_sub(1),
                2 => [0, 1, 0x7f, 0x80, 0xff][random.index(5)],
                _ => random.next_u64() as u8,
            };
        }
        fuzzing::seal(&mut bytes);
        whole_table(&bytes);
    }
}

/// A table of keys `k00` to `k39`, stored whole, and what became of it when some of them were replaced.
fn with_keys_replaced(replaced: &[(&str, &str)]) -> Arc<Table> {
    let entries: Entries = (0..40u64)
        .map(|n| (internal(format!("k{n:02}").as_bytes(), 7, EntryKind::Put), format!("v{n}").into_bytes()))
        .collect();
    let options =
        TableBuildOptions { block_size: 128, block_restart_interval: 1, bloom_bits_per_key: 0, ..build_options() };
    let (file, summary) = build(&entries, &options);
    assert!(summary.properties.data_blocks > 3);
    let sound = file.bytes();
    let mut bytes = sound.clone();
    for (key, other) in replaced {
        let data = &sound[..summary.properties.data_bytes as usize];
        let at = data.windows(key.len()).position(|window| window == key.as_bytes()).expect("stored whole");
        bytes[at..at + key.len()].copy_from_slice(other.as_bytes());
    }
    fuzzing::seal(&mut bytes);
    open(&ObservedFile::of(&bytes), &cache(1 << 20)).expect("opens")
}

#[test]
fn keys_out_of_order_or_out_of_place_are_corruption_to_every_reader() {
    type Replaced = &'static [(&'static str, &'static str)];
    let cases: [(&str, Replaced, &str); 5] = [
        ("twice in a block", &[("k01", "k00")], "keys out of order"),
        ("descending in a block", &[("k00", "k01"), ("k01", "k00")], "keys out of order"),
        ("of a later block", &[("k39", "k99"), ("k02", "k39")], "keys out of order"),
        ("the last of its block belongs to another", &[("k06", "k17")], "as the index says"),
        ("not the smallest the properties name", &[("k00", "j00")], "which the properties name"),
    ];
    for (what, replaced, said) in cases {
        let table = with_keys_replaced(replaced);
        let mut found = Vec::new();
        for readahead in [BLOCKWISE, Readahead::Fixed { bytes: 1 << 20 }] {
            let mut walk = table.iterator(walk_options(readahead));
            walk.seek_to_first();
            while walk.valid() {
                walk.next();
            }
            found.push(walk.status().map(drop));
        }
        let errors = (0..40).filter_map(|n| get(&table, format!("k{n:02}").as_bytes(), 9).err());
        found.extend(errors.map(Err));
        assert!(found.len() > 2, "{what}: no get notices");
        for result in found {
            let error = result.expect_err(what);
            assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}");
            assert!(error.to_string().contains("tested"), "{what}: {error}");
        }
        let mut walk = table.iterator(walk_options(BLOCKWISE));
        walk.seek(&key::lookup_key(b"k00", 9));
        while walk.valid() {
            walk.next();
        }
        let error = walk.status().expect_err(what).to_string();
        assert!(error.contains(said), "{what}: {error}");
        assert!(!table.verify(IoContext::default()).is_empty(), "{what}");
    }
}

/// Fences that the blocks do not keep once sent a walk that skips by seeking back to where it came from, for ever.
#[test]
fn a_walk_that_skips_by_seeking_ends_whatever_the_index_says() {
    let versions: Entries = (1..=40u64).rev().map(|n| (internal(b"key", n, EntryKind::Put), vec![7; 20])).collect();
    let options = TableBuildOptions { block_size: 300, bloom_bits_per_key: 0, ..build_options() };
    let (file, summary) = build(&versions, &options);
    let mut bytes = file.bytes();
    let index = summary.properties.data_bytes as usize;
    // The second block's fence, `key` and a trailer, becomes one without sense: `kez`.
    let at = index + bytes[index..].windows(3).position(|window| window == b"key").expect("a fence");
    bytes[at + 2] = b'z';
    fuzzing::seal(&mut bytes);
    whole_table(&bytes);
    if let Ok(table) = open(&ObservedFile::of(&bytes), &cache(1 << 20)) {
        let source = Box::new(table.iterator(walk_options(BLOCKWISE)));
        let mut walk = crate::db_iterator::DbIterator::new(source, 100, None, None, Box::new(()));
        walk.seek_to_first();
        while walk.valid() {
            walk.next();
        }
        assert_eq!(walk.status().expect_err("misplaced").kind(), ErrorKind::Corruption);
    }
}

/// Once refused as damaged when it was opened: fences took more than was thought a compressed block can hold.
#[test]
fn long_keys_that_compress_well_are_read_back() {
    for compression in [Compression::Lz4, Compression::Zstd] {
        let entries: Entries = (0..200u64)
            .map(|n| {
                let mut user = vec![b'a'; 60_000];
                user.extend_from_slice(format!("{n:08}").as_bytes());
                (internal(&user, 1, EntryKind::Put), Vec::new())
            })
            .collect();
        let (file, _) = build(&entries, &TableBuildOptions { compression, ..build_options() });
        let table = open(&file, &cache(1 << 20)).unwrap_or_else(|error| panic!("{compression:?}: {error}"));
        everything(&table, &entries, "long keys").expect("sound");
        assert!(table.verify(IoContext::default()).is_empty());
    }
}

#[test]
fn empty_keys_long_keys_empty_values_and_large_values() {
    let long = |first: u8, last: u8| {
        let mut user = vec![first; key::KEY_BYTES_MAX];
        user[key::KEY_BYTES_MAX - 1] = last;
        user
    };
    for (compression, block_align) in
        [(Compression::None, 0), (Compression::None, 4096), (Compression::Lz4, 0), (Compression::Zstd, 512)]
    {
        let mut large = vec![0; 6 << 20];
        Random::seeded(1).fill_bytes(&mut large);
        let entries: Entries = vec![
            (internal(b"", 9, EntryKind::Put), b"of the empty key".to_vec()),
            (internal(b"", 3, EntryKind::Put), Vec::new()),
            (internal(b"\0", 3, EntryKind::Put), Vec::new()),
            (internal(b"a", 3, EntryKind::Put), large.clone()),
            (internal(b"b", 3, EntryKind::Put), b"small".to_vec()),
            (internal(&long(b'b', 1), 3, EntryKind::Put), b"long".to_vec()),
            (internal(&long(b'b', 2), key::SEQUENCE_MAX, EntryKind::Put), large.clone()),
            (internal(&long(b'b', 2), 0, EntryKind::Delete), Vec::new()),
            (internal(&long(0xff, 0xff), 0, EntryKind::Put), vec![0; 3 << 20]),
        ];
        let options = TableBuildOptions { compression, block_align, ..build_options() };
        let (file, summary) = build(&entries, &options);
        assert!(summary.properties.largest_block_bytes >= 6 << 20);
        let table = open(&file, &cache(1 << 20)).expect("sound");
        everything(&table, &entries, &format!("{compression:?}")).expect("sound");
        assert!(table.verify(IoContext::default()).is_empty());
        assert!(get(&table, &long(b'b', 3), 5).expect("sound").is_none());
        // The small neighbour of a large value is read without it.
        let (before, start) = (file.read_bytes(), open(&file, &cache(0)).expect("sound"));
        let opened = file.read_bytes() - before;
        get(&start, b"b", 5).expect("sound").expect("there");
        assert!(file.read_bytes() - before - opened < 1 << 20);
    }
}

#[test]
fn keys_and_values_that_are_too_long_are_refused() {
    let file = ObservedFile::default();
    let mut builder =
        TableBuilder::new(Box::new(file), "refusing", &build_options(), IoContext::default(), Env::real());
    let too_long = internal(&vec![1; key::KEY_BYTES_MAX + 1], 1, EntryKind::Put);
    assert_eq!(builder.add(&too_long, b"").expect_err("too long").kind(), ErrorKind::InvalidArgument);
    assert!(builder.finish().is_err(), "after an error");
    let file = ObservedFile::default();
    let empty = TableBuilder::new(Box::new(file), "empty", &build_options(), IoContext::default(), Env::real());
    assert_eq!(empty.finish().expect_err("empty").kind(), ErrorKind::InvalidArgument);
}

fn add_out_of_order(second: &[u8]) -> Result<(), Error> {
    let file = Box::new(ObservedFile::default());
    let mut builder = TableBuilder::new(file, "disorder", &build_options(), IoContext::default(), Env::real());
    builder.add(&internal(b"m", 5, EntryKind::Put), b"").expect("first");
    builder.add(second, b"")
}

/// Once an assertion: a damaged table could reach it through a compaction.
#[test]
fn disorder_is_refused() {
    for second in
        [internal(b"a", 6, EntryKind::Put), internal(b"m", 5, EntryKind::Put), internal(b"m", 6, EntryKind::Put)]
    {
        assert_eq!(add_out_of_order(&second).expect_err("disorder").kind(), ErrorKind::Corruption);
    }
}

#[test]
fn a_cold_get_of_an_aligned_table_is_one_aligned_read() {
    let entries: Entries =
        (0..400u64).map(|n| (internal(format!("{n:08}").as_bytes(), n, EntryKind::Put), vec![n as u8; 1000])).collect();
    for block_size in [4096, 16384] {
        let options = TableBuildOptions { block_size, block_align: 4096, ..build_options() };
        let (file, summary) = build(&entries, &options);
        assert_eq!(summary.properties.data_bytes % 4096, 0);
        assert_eq!(summary.properties.largest_block_bytes, block_size as u64);
        let size = ReadableFile::size_bytes(&file);
        let table = Table::open(Arc::new(file.clone()), "aligned", 1, size, &read_options(4096), cache(8 << 20))
            .expect("sound");
        file.require_alignment(4096);
        for n in [0u64, 17, 399] {
            let (reads, bytes) = (file.reads(), file.read_bytes());
            let user = format!("{n:08}");
            for _ in 0..3 {
                let found = get(&table, user.as_bytes(), 1000).expect("sound").expect("there");
                assert_eq!(&*found.value, vec![n as u8; 1000].as_slice());
            }
            assert_eq!((file.reads() - reads, file.read_bytes() - bytes), (1, block_size as u64));
        }
        // Windows are aligned too.
        for readahead in [Readahead::growing(100_000), Readahead::Fixed { bytes: 100_000 }] {
            let mut walk = table.iterator(TableIteratorOptions { fill_cache: false, ..walk_options(readahead) });
            walk.seek_to_first();
            let mut count = 0;
            while walk.valid() {
                count += 1;
                walk.next();
            }
            assert_eq!((count, walk.status().is_ok()), (entries.len(), true));
        }
    }
}

#[test]
fn a_compaction_reads_much_at_once_and_leaves_the_cache_alone() {
    let entries: Entries =
        (0..2000u64).map(|n| (internal(format!("{n:08}").as_bytes(), n, EntryKind::Put), vec![n as u8; 100])).collect();
    let (file, summary) = build(&entries, &build_options());
    let cache = cache(1 << 20);
    let table = open(&file, &cache).expect("sound");
    let reads = file.reads();
    let mut walk = table.iterator(walk_options(Readahead::Fixed { bytes: 64 << 10 }));
    walk.seek_to_first();
    while walk.valid() {
        walk.next();
    }
    walk.status().expect("sound");
    assert!(file.reads() - reads <= summary.properties.data_bytes / (60 << 10) + 1);
    assert_eq!(cache.statistics().insertions, 0);
}

#[test]
fn a_long_walk_reads_ahead_and_stops_filling_the_cache() {
    let entries: Entries =
        (0..8000u64).map(|n| (internal(format!("{n:08}").as_bytes(), n, EntryKind::Put), vec![n as u8; 100])).collect();
    let (file, summary) = build(&entries, &build_options());
    let cache = cache(320 << 10);
    let table = open(&file, &cache).expect("sound");
    let reads = file.reads();
    let mut walk = table.iterator(walk_options(Readahead::growing(256 << 10)));
    walk.seek_to_first();
    for entry in &entries {
        assert_eq!((walk.key(), walk.value()), (entry.0.as_slice(), entry.1.as_slice()));
        walk.next();
    }
    assert!(!walk.valid());
    assert!(file.reads() - reads < 12, "{} reads", file.reads() - reads);
    let kept = cache.statistics().insertions * 512;
    assert!(kept > 200 << 10 && kept < 320 << 10, "{kept} bytes kept: what there was room for, and a share");
    assert!(cache.statistics().usage_bytes > 300 << 10 && summary.properties.data_bytes > 800 << 10);
    // Where there is room for all, all is kept, and read no more.
    let cache = super::tests::cache(2 << 20);
    let table = open(&file, &cache).expect("sound");
    for round in 0..2 {
        let reads = file.reads();
        let mut walk = table.iterator(walk_options(Readahead::growing(256 << 10)));
        walk.seek_to_first();
        while walk.valid() {
            walk.next();
        }
        assert!(if round == 0 { file.reads() - reads < 12 } else { file.reads() == reads });
    }
}

/// Where positioning is dear a short walk reads once; what it walked over is in the cache, as after other walks.
#[test]
fn a_walk_may_begin_with_a_large_read() {
    let entries: Entries =
        (0..8000u64).map(|n| (internal(format!("{n:08}").as_bytes(), n, EntryKind::Put), vec![n as u8; 100])).collect();
    let (file, _) = build(&entries, &build_options());
    let table = open(&file, &cache(1 << 20)).expect("sound");
    let large = GrowingReadahead { blocks_before: 0, first_bytes: 64 << 10, max_bytes: 256 << 10 };
    for (range, expected) in [(1000..1100usize, 1), (1010..1090, 0), (7900..8000, 1)] {
        let reads = file.reads();
        let mut walk = table.iterator(walk_options(Readahead::Growing(large)));
        walk.seek(&entries[range.start].0);
        for entry in &entries[range.clone()] {
            assert_eq!((walk.key(), walk.value()), (entry.0.as_slice(), entry.1.as_slice()));
            walk.next();
        }
        assert_eq!(file.reads() - reads, expected, "{range:?}");
    }
    // 0 is never ahead.
    let (reads, bytes) = (file.reads(), file.read_bytes());
    let mut walk = table.iterator(walk_options(Readahead::Growing(GrowingReadahead { first_bytes: 0, ..large })));
    walk.seek(&entries[4000].0);
    (0..20).for_each(|_| walk.next());
    assert!(file.reads() - reads > 2 && file.read_bytes() - bytes < 4096, "{} reads", file.reads() - reads);
}

#[test]
fn a_walk_over_several_tables_keeps_its_pace() {
    let cache = cache(0);
    let tables: Vec<(ObservedFile, Arc<Table>)> = (0..4u8)
        .map(|n| {
            let entries = (0..2000u64).map(|m| {
                let user = [&[n][..], format!("{m:06}").as_bytes()].concat();
                (internal(&user, m, EntryKind::Put), vec![n; 100])
            });
            let (file, _) = build(&entries.collect(), &build_options());
            (file.clone(), open(&file, &cache).expect("sound"))
        })
        .collect();
    let mut walk = tables[0].1.iterator(walk_options(Readahead::growing(128 << 10)));
    for (number, (file, table)) in tables.iter().enumerate() {
        let reads = file.reads();
        walk.continue_in(table.clone());
        walk.seek_to_first();
        while walk.valid() {
            walk.next();
        }
        let reads = file.reads() - reads;
        assert!(if number == 0 { reads > 4 } else { reads <= 2 }, "table {number}: {reads} reads");
    }
    // Seeks of their own start over.
    let reads = tables[3].0.read_bytes();
    walk.seek_to_first();
    assert!(tables[3].0.read_bytes() - reads < 1000);
    let reads = tables[2].0.read_bytes();
    walk.set_table(tables[2].1.clone());
    walk.seek_to_first();
    assert!(tables[2].0.read_bytes() - reads < 1000);
}

#[test]
fn cached_blocks_are_not_read_again() {
    let entries = random_entries(&mut Random::seeded(4), 300);
    let (file, _) = build(&entries, &build_options());
    let table = open(&file, &cache(1 << 20)).expect("sound");
    everything(&table, &entries, "cold").expect("sound");
    let reads = file.reads();
    everything(&table, &entries, "warm").expect("sound");
    assert_eq!(file.reads(), reads);
    let table = open(&file, &cache(1 << 20)).expect("sound");
    let reads = file.reads();
    for _ in 0..3 {
        table.get(&entries[0].0, key_hash(key::user_key(&entries[0].0)), &context(false)).expect("sound");
    }
    assert_eq!(file.reads() - reads, 3);
}

#[test]
fn failing_writes_and_reads_are_errors() {
    let entries = random_entries(&mut Random::seeded(6), 120);
    for successes in 0.. {
        let file = ObservedFile::default();
        file.fail_appends_after(successes);
        let mut builder =
            TableBuilder::new(Box::new(file.clone()), "failing", &build_options(), IoContext::default(), Env::real());
        let added = entries.iter().try_for_each(|(internal, value)| builder.add(internal, value));
        match (added, builder.finish()) {
            (Ok(()), Ok(_)) => break,
            (Err(error), finished) => {
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "the store's own error");
                assert!(finished.is_err());
            }
            (Ok(()), Err(_)) => {}
        }
        assert!(successes < 1000);
    }
    let (file, _) = build(&entries, &build_options());
    for successes in 0.. {
        file.fail_reads_after(successes);
        let result = open(&file, &cache(1 << 20)).and_then(|table| everything(&table, &entries, "failing"));
        file.reads_succeed();
        if result.is_ok() {
            break;
        }
        assert!(successes < 1000);
    }
    // A walk that failed goes on after a seek.
    let table = open(&file, &cache(0)).expect("sound");
    let mut walk = table.iterator(walk_options(BLOCKWISE));
    file.fail_reads_after(1);
    walk.seek_to_first();
    while walk.valid() {
        walk.next();
    }
    assert!(walk.status().is_err());
    file.reads_succeed();
    walk.seek_to_first();
    assert!(walk.valid() && walk.status().is_ok());
}

#[test]
fn verify_names_what_is_wrong() {
    use super::format::{FOOTER_BYTES, Footer};
    use crate::block::{BLOCK_TRAILER_BYTES, block_trailer};
    let entries = random_entries(&mut Random::seeded(8), 200);
    let (file, summary) = build(&entries, &build_options());
    let bytes = file.bytes();
    let footer = Footer::decode(bytes.last_chunk::<FOOTER_BYTES>().expect("long"), bytes.len() as u64).expect("sound");
    let codes = |bytes: &[u8]| {
        let table = open(&ObservedFile::of(bytes), &cache(0)).expect("opens");
        let mut codes: Vec<_> = table.verify(IoContext::default()).into_iter().map(|finding| finding.code).collect();
        codes.dedup();
        codes
    };
    // Replaces the contents of a block by others of the same length, with a right checksum.
    let replace = |handle: super::format::BlockHandle, change: &dyn Fn(&mut [u8])| {
        let mut bytes = bytes.clone();
        let start = handle.offset_bytes as usize;
        let end = start + handle.length_bytes as usize - BLOCK_TRAILER_BYTES;
        change(&mut bytes[start..end]);
        let checksum = crate::checksum::crc32c(&bytes[start..end]);
        let trailer = block_trailer(Compression::None, checksum, footer.table_id, handle.offset_bytes);
        bytes[end..end + BLOCK_TRAILER_BYTES].copy_from_slice(&trailer);
        bytes
    };
    assert!(codes(&bytes).is_empty());
    let mut flipped = bytes.clone();
    flipped[summary.properties.data_bytes as usize / 2] ^= 1;
    assert_eq!(codes(&flipped), ["table-block"]);
    let emptied = replace(footer.filter, &|contents| {
        let lines = contents.len() - 8;
        contents[..lines].fill(0);
    });
    assert_eq!(codes(&emptied), ["table-filter", "table-more"]);
    // Number of entries is the first property: two bytes from the third on.
    let counted = replace(footer.properties, &|contents| contents[2] ^= 1);
    assert_eq!(codes(&counted), ["table-properties"]);
}

#[test]
fn offsets_grow_with_keys_and_end_with_the_data() {
    let entries = random_entries(&mut Random::seeded(11), 300);
    let (file, summary) = build(&entries, &build_options());
    let table = open(&file, &cache(0)).expect("sound");
    let offsets: Vec<u64> = entries.iter().map(|entry| table.approximate_offset_of(&entry.0)).collect();
    assert!(offsets.is_sorted());
    assert_eq!(offsets[0], 0);
    assert!(offsets[299] < summary.properties.data_bytes);
    assert_eq!(table.approximate_offset_of(&key::lookup_key(&[0xff; 30], 1)), summary.properties.data_bytes);
}

#[test]
fn memory_is_counted_while_tables_are_open() {
    let entries = random_entries(&mut Random::seeded(12), 300);
    let (file, summary) = build(&entries, &build_options());
    let options = read_options(1);
    let size = ReadableFile::size_bytes(&file);
    let open = || Table::open(Arc::new(file.clone()), "counted", 1, size, &options, cache(0)).expect("sound");
    let (one, two) = (open(), open());
    let counted = || options.memory.load(atomic::Ordering::Relaxed);
    assert_eq!(counted(), one.memory_bytes() + two.memory_bytes());
    let blocks = summary.properties.data_blocks as usize;
    assert!(one.memory_bytes() > blocks * 24 + summary.properties.filter_bytes as usize - 5);
    assert!(one.memory_bytes() < blocks * 70 + summary.properties.filter_bytes as usize + 1500);
    drop(one);
    assert_eq!(counted(), two.memory_bytes());
    drop(two);
    assert_eq!(counted(), 0);
}

#[test]
fn estimates_are_close() {
    let entries = random_entries(&mut Random::seeded(13), 400);
    let file = ObservedFile::default();
    let mut builder =
        TableBuilder::new(Box::new(file), "estimated", &build_options(), IoContext::default(), Env::real());
    for (internal, value) in &entries {
        builder.add(internal, value).expect("in order");
    }
    let estimate = builder.estimated_bytes();
    let summary = builder.finish().expect("memory");
    assert!(summary.size_bytes.abs_diff(estimate) < summary.size_bytes / 10, "{estimate} for {}", summary.size_bytes);
}

#[test]
fn processor_time_is_charged_only_in_a_simulation() {
    let entries = random_entries(&mut Random::seeded(14), 100);
    let env = Env::sim(1);
    let file = ObservedFile::default();
    let mut builder =
        TableBuilder::new(Box::new(file.clone()), "charged", &build_options(), IoContext::default(), env.clone());
    for (internal, value) in &entries {
        builder.add(internal, value).expect("in order");
    }
    builder.finish().expect("memory");
    env.settle();
    let built = env.charged_total_nanos();
    assert!(built > 0);
    let options = TableReadOptions { env: env.clone(), ..read_options(1) };
    let size = ReadableFile::size_bytes(&file);
    let table = Table::open(Arc::new(file), "charged", 1, size, &options, cache(1 << 20)).expect("sound");
    everything(&table, &entries, "charged").expect("sound");
    env.settle();
    assert!(env.charged_total_nanos() > built);
}

#[test]
fn a_pinned_value_outlives_cache_and_table() {
    let entries: Entries = (0..50u8).map(|n| (internal(&[n], 3, EntryKind::Put), vec![n; 60])).collect();
    let (file, _) = build(&entries, &build_options());
    let table = open(&file, &cache(1 << 20)).expect("sound");
    let (internal, value) = &entries[20];
    let found = get(&table, key::user_key(internal), key::sequence(internal)).expect("sound").expect("there");
    drop(table);
    drop(file);
    assert_eq!(&*found.value, value.as_slice());
}

#[test]
fn builder_leaves_a_file_behind_when_it_gives_up() {
    let file = ObservedFile::default();
    let mut builder =
        TableBuilder::new(Box::new(file.clone()), "given up", &build_options(), IoContext::default(), Env::real());
    for (internal, value) in random_entries(&mut Random::seeded(16), 50) {
        builder.add(&internal, &value).expect("in order");
    }
    builder.abandon();
    assert!(open(&file, &cache(0)).is_err());
    let _: &dyn WritableFile = &file;
}

/// Tiny pairs were short of some hundred bytes, and large keys of one key: tables outgrew their bands.
#[test]
fn a_table_is_not_larger_than_was_said_before_its_last_entry() {
    for seed in 0..200 {
        let mut random = Random::seeded(seed);
        let mut options = random_build_options(&mut random);
        options.histogram_bytes = [0, 300, 4096][random.index(3)];
        let (key_bytes, value_bytes) = [(4, 1), (30, 100), (64 << 10, 10), (20, 5000)][random.index(4)];
        if key_bytes > 1000 {
            options.block_size = 128 << 10;
        }
        let name = format!("bound {seed}");
        let file = ObservedFile::default();
        let mut builder = TableBuilder::new(Box::new(file), &name, &options, IoContext::default(), Env::real());
        let count = if key_bytes > 1000 { 1 + random.below(6) } else { 1 + random.below(400) };
        let mut bound = 0;
        for number in 0..count {
            let mut user = format!("{number:04}").into_bytes();
            user.resize(4 + random.index(key_bytes - 3), b'x');
            let internal = internal(&user, 1 + random.below(1 << 50), EntryKind::Put);
            let value = vec![b'v'; random.index(value_bytes + 1)];
            bound = builder.bytes_bound_with(internal.len(), value.len());
            builder.add(&internal, &value).expect("add");
        }
        let summary = builder.finish().expect("finish");
        assert!(summary.size_bytes <= bound, "seed {seed}: {} bytes, bound {bound}, {options:?}", summary.size_bytes);
        let slack = bound - summary.size_bytes;
        assert!(
            key_bytes > 1000 || slack < 20_000 + 2 * (options.block_align + options.block_size) as u64,
            "seed {seed}: {slack} too careful"
        );
    }
}
