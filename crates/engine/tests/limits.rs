//! The largest and the smallest that is taken, and memory that does not grow with the data.

#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;
#[path = "suite/trees.rs"]
#[allow(dead_code)]
mod trees;

use medium::{Image, Kind};
use varve_engine::{
    Db, ErrorKind, KEY_BYTES_MAX, Options, ReadOptions, TreeKind, VALUE_BYTES_MAX, WriteBatch, WriteOptions,
};
use varve_env::Env;

/// Stores and trees on them. The logs of an interlaced disk have a device of their own, large enough for a log of the
/// largest value here.
fn with_tables() -> Vec<(Kind, TreeKind)> {
    let mut all = trees::on(&[Kind::BAND, Kind::VARIABLE_BANDS], trees::with_tables());
    all.extend([Kind::PLAIN, Kind::KVIMR_LOGS_APART].map(|kind| (kind, TreeKind::Leveled)));
    all
}

/// Space of the devices: for hundreds of tables, and for values that fill hundreds of bands.
const ROOM_BYTES: u64 = 64 << 20;

#[test]
fn keys_and_values_at_their_limits_survive_flushing_compacting_and_reopening() {
    let others = trees::on(&[Kind::PLAIN, Kind::EXTENT], trees::without_tables());
    with_tables().into_iter().chain(others).for_each(|(kind, tree)| keys_and_values_at_their_limits(kind, tree));
}

fn keys_and_values_at_their_limits(kind: Kind, tree: TreeKind) {
    let env = Env::sim(1);
    let image = Image::fresh_of(&env, kind, ROOM_BYTES);
    let media = || image.media(&env).expect("store");
    let options =
        Options { tree: Some(tree), write_buffer_size: 1 << 20, target_file_size_base: 64 << 10, ..Options::default() };
    let db = Db::open(&env, media(), options.clone()).expect("open");
    assert_eq!(KEY_BYTES_MAX, 64 << 10);
    let longest = vec![b'k'; KEY_BYTES_MAX];
    let mut nearly = longest.clone();
    nearly[KEY_BYTES_MAX - 1] = b'l';
    let large: Vec<u8> = (0..5 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let pairs: [(&[u8], &[u8]); 5] = [
        (b"", b"value of the empty key"),
        (b"empty value", b""),
        (&longest, b"1"),
        (&nearly, &longest),
        (b"large", &large),
    ];
    for (key, value) in pairs {
        db.put_with(key, value, &WriteOptions { sync: true }).expect("put");
    }
    let too_long = vec![b'k'; KEY_BYTES_MAX + 1];
    for error in [
        db.put(&too_long, b"1").expect_err("a key that is too long"),
        db.delete(&too_long).expect_err("a key that is too long"),
        db.get(&too_long).expect_err("a key that is too long"),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("65537") && error.to_string().contains("65536"), "{error}");
    }
    let compare = |db: &Db, when: &str| {
        let note = format!("{kind:?} {tree:?}, {when}");
        for (key, value) in pairs {
            assert_eq!(db.get(key).expect("get").as_deref(), Some(value), "{note}");
        }
        let mut walk = db.iterator(&ReadOptions::default()).expect("iterator");
        walk.seek_to_first();
        let mut count = 0;
        while walk.valid() {
            let expected = pairs.iter().find(|(key, _)| *key == walk.key()).expect("a key that was put");
            assert_eq!(walk.value(), expected.1, "{note}");
            count += 1;
            walk.next();
        }
        walk.status().expect("status");
        assert_eq!(count, pairs.len(), "{note}");
    };
    compare(&db, "in the memtable");
    db.flush().expect("flush");
    compare(&db, "in level 0");
    db.compact_range(None, None).expect("compact_range");
    compare(&db, "compacted");
    db.close().expect("close");
    drop(db);
    let db = Db::open(&env, media(), options).expect("reopen");
    compare(&db, "reopened");
    assert_eq!(db.check().expect("check"), [], "{kind:?} {tree:?}");
    db.close().expect("close");
}

/// Pages of zeros that nobody touches cost no memory: the value is refused by its length.
#[test]
fn a_value_beyond_the_limit_is_refused_before_it_is_copied() {
    assert_eq!(VALUE_BYTES_MAX as u64, u64::from(u32::MAX));
    let Ok(length) = usize::try_from(1u64 << 32) else { return };
    let mut value: Vec<u8> = Vec::new();
    if value.try_reserve_exact(length).is_err() {
        return;
    }
    drop(value);
    // Allocated zeroed: mapped, not touched.
    let value = vec![0u8; length];
    let mut batch = WriteBatch::new();
    let error = batch.put(b"key", &value).expect_err("a value that is too long");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("4294967296") && error.to_string().contains("4294967295"), "{error}");
    assert!(batch.is_empty());
    let env = Env::sim(2);
    let media = Image::fresh(&env, Kind::PLAIN).media(&env).expect("store");
    let db = Db::open(&env, media, Options::default()).expect("open");
    let error = db.put(b"key", &value).expect_err("a value that is too long");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    db.close().expect("close");
}

/// A store of many tables, as one of 100 GB has them (1,600 of 64 MiB): what open tables cost is
/// bounded by how many may be open. On devices fewer: 400.
#[test]
fn memory_of_tables_is_bounded_by_the_table_cache() {
    for (kind, tree) in with_tables() {
        let tables = if kind == Kind::PLAIN { 1600 } else { 400 };
        memory_of_tables_is_bounded(kind, tree, tables);
    }
}

fn memory_of_tables_is_bounded(kind: Kind, tree: TreeKind, tables_min: usize) {
    const OPEN_FILES: usize = 16;
    let env = Env::sim(3);
    let image = Image::fresh_of(&env, kind, ROOM_BYTES);
    let media = || image.media(&env).expect("store");
    let options = Options {
        tree: Some(tree),
        write_buffer_size: 4 << 10,
        target_file_size_base: 1 << 10,
        block_size: 256,
        disable_auto_compactions: true,
        max_bytes_for_level_base: 64 << 20,
        max_open_files: OPEN_FILES,
        block_cache_capacity: 64 << 10,
        level_compaction_dynamic_level_bytes: false,
        ..Options::default()
    };
    let db = Db::open(&env, media(), options.clone()).expect("open");
    let value = [7; 100];
    let mut keys = 0u32;
    let tables = |db: &Db| db.statistics().levels().iter().map(|level| level.tables).sum::<usize>();
    while tables(&db) < tables_min {
        db.put(format!("{keys:08}").as_bytes(), &value).expect("put");
        keys += 1;
        assert!(keys < 200_000, "{} tables of {keys} keys", tables(&db));
    }
    // Tables that do not overlap only move.
    db.compact_range(None, None).expect("compact_range");
    assert!(tables(&db) >= tables_min, "{kind:?} {tree:?}: {} tables", tables(&db));
    db.close().expect("close");
    drop(db);

    let db = Db::open(&env, media(), options).expect("reopen");
    let opened = db.statistics().tables.expect("of tables");
    assert!(opened.open_tables <= OPEN_FILES, "{} tables are open after opening", opened.open_tables);
    let mut largest_bytes = 0;
    for number in (0..keys).step_by(37) {
        assert!(db.get(format!("{number:08}").as_bytes()).expect("get").is_some());
        let now = db.statistics().tables.expect("of tables");
        assert!(now.open_tables <= OPEN_FILES, "{} tables are open", now.open_tables);
        largest_bytes = largest_bytes.max(now.table_memory_bytes);
    }
    let mut walk = db.iterator(&ReadOptions::default()).expect("iterator");
    walk.seek_to_first();
    let mut count = 0;
    while walk.valid() {
        count += 1;
        if count % 500 == 0 {
            let now = db.statistics().tables.expect("of tables");
            assert!(now.open_tables <= OPEN_FILES, "{} tables are open in a walk", now.open_tables);
            largest_bytes = largest_bytes.max(now.table_memory_bytes);
        }
        walk.next();
    }
    walk.status().expect("status");
    drop(walk);
    assert_eq!(count, keys);
    let table_count = tables(&db) as u64;
    // Index, filter and properties of a table of a kilobyte.
    let bound = OPEN_FILES as u64 * 4096;
    assert!(largest_bytes > 0 && largest_bytes <= bound, "{kind:?} {tree:?}: {largest_bytes} bytes of open tables");
    println!(
        "{kind:?} {tree:?}: {table_count} tables, at most {OPEN_FILES} open, at most {largest_bytes} bytes of them in memory"
    );
    db.close().expect("close");
}
