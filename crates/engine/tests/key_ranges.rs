//! Flushes of key ranges: what is read across them, what iterators show under which they happen, how skew that moves is followed, and how little of the keys tables hold.

#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;
#[path = "suite/walk.rs"]
mod walk;

use medium::{Image, Kind};
use std::collections::{BTreeMap, BTreeSet};
use varve_engine::{Db, DbIterator, ExperimentOptions, Options, ReadOptions, Snapshot, TreeKind, WriteOptions};
use varve_env::{Env, Random, SimOptions};
use walk::compare_forward;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const WRITES: u64 = 6000;
const KEYS: u64 = 4000;

fn simulation(seed: u64) -> Env {
    Env::sim_with(SimOptions { seed, perturb: seed % 2 == 1, ..SimOptions::default() })
}

/// A pool of 64 KiB, tables of up to 32.
fn options() -> Options {
    Options {
        tree: Some(TreeKind::TwoLevel),
        write_buffer_size: 32 << 10,
        max_write_buffer_number: 2,
        flush_key_ranges: Some(true),
        overlap_depth_max: Some(4),
        block_size: 512,
        block_cache_capacity: 64 << 10,
        log_buffer_size: Some(2 << 10),
        max_manifest_file_size: 16 << 10,
        ..Options::default()
    }
}

fn open(env: &Env, image: &Image, options: &Options) -> Db {
    Db::open(env, image.media(env).expect("media"), options.clone()).expect("open")
}

/// Keys in some order.
#[derive(Clone, Copy, Debug)]
enum Order {
    Uniform,
    Ascending,
    Descending,
    /// Nine of ten in a narrow range, which moves.
    HotRange,
    /// Half of them the same key.
    HotKey,
}

impl Order {
    const ALL: [Order; 5] = [Order::Uniform, Order::Ascending, Order::Descending, Order::HotRange, Order::HotKey];

    fn key(self, number: u64, random: &mut Random) -> Vec<u8> {
        let key = match self {
            Order::Uniform => random.below(KEYS),
            Order::Ascending => number,
            Order::Descending => WRITES - number,
            Order::HotRange if random.chance(9, 10) => (number / 1000 * 977 + random.below(40)) % KEYS,
            Order::HotKey if random.chance(1, 2) => 77,
            Order::HotRange | Order::HotKey => random.below(KEYS),
        };
        format!("key{key:06}").into_bytes()
    }
}

fn compare(db: &Db, model: &Model, snapshot: Option<&Snapshot>, note: &str) {
    let read = ReadOptions { snapshot, ..ReadOptions::default() };
    let mut walk = db.iterator(&read).expect("iterator");
    compare_forward(&mut walk, model, note);
    for key in model.keys().step_by(7) {
        let found = db.get_with(key, &read).expect("get");
        assert_eq!(found.as_deref(), model.get(key).map(Vec::as_slice), "{note}");
    }
}

/// A table, and its smallest and largest key.
struct Table {
    level: u64,
    number: u64,
    smallest: String,
    largest: String,
}

fn tables(db: &Db) -> Vec<Table> {
    let text = db.property("varve.tables").expect("a property");
    let table = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let number = |field: usize| fields[field].parse().expect("a number");
        let (level, number) = (number(0), number(1));
        Table { level, number, smallest: fields[4].to_owned(), largest: fields[5].to_owned() }
    };
    text.lines().map(table).collect()
}

#[test]
fn reads_are_right_across_flushes_in_any_order_of_keys() {
    for (seed, order) in (1..).zip(Order::ALL) {
        let (env, mut random) = (simulation(seed), Random::named(seed, "keys"));
        let image = Image::fresh(&env, Kind::PLAIN);
        let (mut db, mut model) = (open(&env, &image, &options()), Model::new());
        let mut held: Vec<(Snapshot, Model)> = Vec::new();
        let (mut range_flushes, mut flushes) = (0, 0);
        for number in 0..WRITES {
            let key = order.key(number, &mut random);
            let note = format!("{order:?} seed {seed} write {number}");
            if random.chance(1, 8) {
                db.delete(&key).expect("delete");
                model.remove(&key);
            } else {
                let value = vec![number as u8; 20 + random.index(100)];
                db.put_with(&key, &value, &WriteOptions { sync: random.chance(1, 50) }).expect("put");
                model.insert(key, value);
            }
            if number % 500 == 0 {
                held.push((db.snapshot(), model.clone()));
            }
            if number % 700 == 0 {
                compare(&db, &model, None, &note);
                let (snapshot, then) = &held[random.index(held.len())];
                compare(&db, then, Some(snapshot), &note);
            }
            if number % 2500 == 2499 {
                held.clear();
                let counters = db.statistics().counters;
                (range_flushes, flushes) = (range_flushes + counters.range_flushes, flushes + counters.flushes);
                // Without closing: logs are replayed.
                drop(db);
                db = open(&env, &image, &options());
                compare(&db, &model, None, &note);
                let memory = db.statistics().memtable_bytes;
                assert!(memory < 4 * (64 << 10), "{note}: {memory} bytes of memtables");
            }
        }
        compare(&db, &model, None, "at the end");
        let findings = db.check().expect("check");
        assert!(findings.is_empty(), "{findings:?}");
        let counters = db.statistics().counters;
        (range_flushes, flushes) = (range_flushes + counters.range_flushes, flushes + counters.flushes);
        println!("{order:?}: {range_flushes} flushes of ranges, {flushes} of all");
        // One key is not divided: its versions are a range of their own.
        assert!(range_flushes >= 8 && flushes >= range_flushes, "{order:?}: {range_flushes} of {flushes}");
    }
}

/// Numbers of tables of level 0, and how much of all keys each lies over.
fn widths(db: &Db) -> Vec<(u64, f64)> {
    let number = |key: &str| key.trim_start_matches("key").parse::<u64>().expect("a number");
    let flushed = tables(db).into_iter().filter(|table| table.level == 0);
    let width = |table: Table| (number(&table.largest) - number(&table.smallest)) as f64 / KEYS as f64;
    flushed.map(|table| (table.number, width(table))).collect()
}

/// About half of the keys where they are uniform: a table is as narrow as a pool of two tables allows.
#[test]
fn tables_of_uniform_keys_are_narrow() {
    let (env, mut random) = (simulation(3), Random::named(3, "keys"));
    let image = Image::fresh(&env, Kind::PLAIN);
    let db = open(&env, &image, &Options { disable_auto_compactions: true, ..options() });
    for number in 0..WRITES {
        db.put(&Order::Uniform.key(number, &mut random), &[number as u8; 100]).expect("put");
    }
    let widths: Vec<f64> = widths(&db).into_iter().map(|(_, width)| width).collect();
    let mean = widths.iter().sum::<f64>() / widths.len() as f64;
    println!("{} tables, {mean:.3} of the keys each", widths.len());
    assert!(widths.len() > 15 && mean < 0.55, "{mean} {widths:?}");
}

/// Nine of ten writes go to a hundredth of the keys, and after each move to another one. Some of the tables lie there alone wherever it is, and the
/// others have what is written to the rest as well; where ranges stay as they were a table of the hot keys has a range's share of the others, too.
#[test]
fn ranges_follow_skew_that_moves() {
    const STAY: u64 = 4000;
    let (env, mut random) = (simulation(3), Random::named(3, "keys"));
    let image = Image::fresh(&env, Kind::PLAIN);
    // Merged at once, a place has as many bytes of tables as keys, whatever was written to it: by these widths are told.
    let db =
        open(&env, &image, &Options { level0_file_num_compaction_trigger: 1, overlap_depth_max: Some(1), ..options() });
    let (mut seen, mut range_flushes) = (BTreeSet::new(), 0);
    for place in [0, 1, 3, 2, 3, 0] {
        let mut flushed = Vec::new();
        for number in 0..STAY {
            let key = if random.chance(9, 10) { place * 977 + random.below(KEYS / 100) } else { random.below(KEYS) };
            db.put(format!("key{key:06}").as_bytes(), &[number as u8; 100]).expect("put");
            let now = db.statistics().counters.range_flushes;
            if now > range_flushes {
                range_flushes = now;
                let new = widths(&db).into_iter().filter(|(table, _)| seen.insert(*table)).map(|(_, width)| width);
                if number >= STAY / 4 {
                    flushed.extend(new);
                }
            }
        }
        println!("place {place}: {flushed:.3?}");
        let narrow = flushed.iter().filter(|width| **width < 0.02).count();
        assert!(
            flushed.len() >= 10 && narrow * 4 >= flushed.len(),
            "place {place}: {narrow} are narrow of {flushed:?}"
        );
    }
}

/// Iterators and what they show, of which each went half of its way.
fn half_way(db: &Db, model: &Model, snapshot: Option<&Snapshot>, note: &str) -> [DbIterator; 2] {
    let read = ReadOptions { snapshot, ..ReadOptions::default() };
    let mut walks = [(); 2].map(|()| db.iterator(&read).expect("iterator"));
    walks[0].seek_to_first();
    walks[1].seek_to_last();
    compare_on(&mut walks[0], model.iter().take(model.len() / 2), DbIterator::next, note);
    compare_on(&mut walks[1], model.iter().rev().take(model.len() / 2), DbIterator::previous, note);
    walks
}

fn compare_on<'m>(
    walk: &mut DbIterator,
    expected: impl Iterator<Item = (&'m Vec<u8>, &'m Vec<u8>)>,
    go_on: fn(&mut DbIterator),
    note: &str,
) {
    for (key, value) in expected {
        assert!(walk.valid(), "{note}: {} is missing, {:?}", key.escape_ascii(), walk.status());
        assert_eq!((walk.key(), walk.value()), (&**key, &**value), "{note}");
        go_on(walk);
    }
}

/// The other half of their ways.
fn go_on_to_the_end(walks: [DbIterator; 2], model: &Model, note: &str) {
    let [mut forward, mut backward] = walks;
    compare_on(&mut forward, model.iter().skip(model.len() / 2), DbIterator::next, note);
    compare_on(&mut backward, model.iter().rev().skip(model.len() / 2), DbIterator::previous, note);
    for walk in [forward, backward] {
        assert!(!walk.valid() && walk.status().is_ok(), "{note}: more than there was, {:?}", walk.status());
    }
}

/// Memtables are divided, taken and joined under them, and tables merged.
#[test]
fn iterators_that_are_open_across_flushes_show_what_was_there() {
    let kinds = [Kind::PLAIN, Kind::EXTENT, Kind::BAND, Kind::PLAIN];
    for ((seed, kind), order) in (20..).zip(kinds).zip([Order::Uniform, Order::Uniform, Order::HotRange, Order::HotKey])
    {
        let (env, mut random) = (simulation(seed), Random::named(seed, "keys"));
        let image = Image::fresh(&env, kind);
        let (db, mut model) = (open(&env, &image, &options()), Model::new());
        let note = format!("{kind:?} {order:?} seed {seed}");
        let mut number = 0;
        let mut write = |model: &mut Model, count: u64| {
            for _ in 0..count {
                let key = order.key(number % WRITES, &mut random);
                number += 1;
                if random.chance(1, 6) {
                    db.delete(&key).expect("delete");
                    model.remove(&key);
                } else {
                    let value = vec![number as u8; 20 + random.index(100)];
                    db.put(&key, &value).expect("put");
                    model.insert(key, value);
                }
            }
        };
        write(&mut model, 1700);
        let (snapshot, at_snapshot) = (db.snapshot(), model.clone());
        write(&mut model, 300);
        for round in 0..3 {
            let note = format!("{note} round {round}");
            let (live, at_opening) = (half_way(&db, &model, None, &note), model.clone());
            let held = half_way(&db, &at_snapshot, Some(&snapshot), &note);
            let before = db.statistics().counters;
            let grown = || {
                let now = db.statistics().counters;
                (now.range_flushes - before.range_flushes, now.compactions - before.compactions)
            };
            for _ in 0..100 {
                write(&mut model, 100);
                if grown().0 >= 4 && grown().1 >= 1 {
                    break;
                }
            }
            let (range_flushes, compactions) = grown();
            println!("{note}: {range_flushes} flushes of ranges and {compactions} compactions under iterators");
            assert!(range_flushes >= 3 && compactions >= 1, "{note}: {range_flushes} and {compactions} are too few");
            go_on_to_the_end(live, &at_opening, &note);
            go_on_to_the_end(held, &at_snapshot, &note);
        }
        compare(&db, &model, None, &note);
    }
}

/// A range that is seldom written does not keep logs for ever.
#[test]
fn logs_end_where_some_keys_are_cold() {
    let (env, mut random) = (simulation(5), Random::named(5, "keys"));
    let image = Image::fresh(&env, Kind::PLAIN);
    let db = open(&env, &image, &options());
    let store = image.store(&env, None).expect("store");
    let mut most = 0;
    for number in 0..4 * WRITES {
        let key = if number % 200 == 0 { random.below(KEYS) } else { 1000 + random.below(20) };
        db.put(format!("key{key:06}").as_bytes(), &[number as u8; 100]).expect("put");
        if number % 100 == 0 {
            let logs = store.list().expect("list").into_iter().filter(|entry| entry.name.ends_with(".log"));
            most = most.max(logs.map(|entry| entry.size_bytes).sum::<u64>());
        }
    }
    println!("{most} bytes of logs at most");
    assert!(db.statistics().counters.range_flushes > 20);
    assert!(most < 6 * (64 << 10), "{most} bytes of logs");
}

#[test]
fn trees_that_search_level_0_by_age_are_refused_it() {
    let env = simulation(1);
    let refused = |options: Options| {
        let image = Image::fresh(&env, Kind::PLAIN);
        Db::open(&env, image.media(&env).expect("media"), options).err().expect("refused").to_string()
    };
    let leveled = refused(Options { tree: Some(TreeKind::Leveled), ..options() });
    assert!(leveled.contains("flush_key_ranges") && leveled.contains("leveled"), "{leveled}");
    let merging = ExperimentOptions { min_write_buffer_number_to_merge: 2, ..ExperimentOptions::default() };
    let merged = refused(Options { max_write_buffer_number: 3, experiment: merging, ..options() });
    assert!(merged.contains("min_write_buffer_number_to_merge"), "{merged}");
}

/// Written with ranges, opened without them, and with them again.
#[test]
fn the_option_may_come_and_go() {
    let (env, mut random) = (simulation(9), Random::named(9, "keys"));
    let image = Image::fresh(&env, Kind::PLAIN);
    let mut model = Model::new();
    for round in 0..6 {
        let flush_key_ranges = round % 2 == 0;
        let db = open(&env, &image, &Options { flush_key_ranges: Some(flush_key_ranges), ..options() });
        compare(&db, &model, None, &format!("round {round}"));
        for number in 0..1500u64 {
            let (key, value) = (Order::Uniform.key(number, &mut random), vec![number as u8; 80]);
            db.put(&key, &value).expect("put");
            model.insert(key, value);
        }
        assert_eq!(db.statistics().counters.range_flushes > 0, flush_key_ranges);
        compare(&db, &model, None, &format!("round {round}"));
        if round % 3 == 2 {
            db.close().expect("close");
        }
    }
}

/// What a lost table of a flushed range had is still in logs that other ranges need: a repair finds it there.
#[test]
fn a_repair_takes_from_logs_what_a_lost_table_had() {
    let (env, mut random) = (simulation(11), Random::named(11, "keys"));
    let image = Image::fresh(&env, Kind::PLAIN);
    let options = Options { disable_auto_compactions: true, ..options() };
    let (db, mut model) = (open(&env, &image, &options), Model::new());
    for number in 0u64.. {
        let (key, value) = (Order::Uniform.key(number, &mut random), vec![number as u8; 80]);
        db.put(&key, &value).expect("put");
        model.insert(key, value);
        if db.statistics().counters.range_flushes > 0 {
            break;
        }
    }
    db.put_with(b"last", b"put", &WriteOptions { sync: true }).expect("put");
    model.insert(b"last".to_vec(), b"put".to_vec());
    drop(db);
    let store = image.store(&env, None).expect("store");
    // Names are numbers of one width.
    let name =
        store.list().expect("list").into_iter().map(|entry| entry.name).filter(|name| name.ends_with(".sst")).max();
    store.remove(&name.expect("a table")).expect("remove");
    drop(store);
    assert!(Db::open(&env, image.media(&env).expect("media"), options.clone()).is_err(), "a table is missing");
    varve_engine::repair(&env, image.media(&env).expect("media"), options.clone()).expect("repair");
    compare(&open(&env, &image, &options), &model, None, "repaired");
}
