//! Flushes of key ranges: what is read across them, how skew that moves is followed, and how little of the keys tables hold.

#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;
#[path = "suite/walk.rs"]
mod walk;

use medium::{Image, Kind};
use std::collections::BTreeMap;
use varve_engine::{Db, Options, ReadOptions, Snapshot, TreeKind, WriteOptions};
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
        tree: TreeKind::TwoLevel,
        write_buffer_size: 32 << 10,
        max_write_buffer_number: 2,
        flush_key_ranges: true,
        overlap_depth_max: 4,
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

/// Smallest and largest key of each table, and its level.
fn tables(db: &Db) -> Vec<(usize, String, String)> {
    let text = db.property("varve.tables").expect("a property");
    let table = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        (fields[0].parse().expect("a level"), fields[4].to_owned(), fields[5].to_owned())
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

/// With uniform keys a table has less than half of them, and with a hot range little more than that.
#[test]
fn tables_are_narrow() {
    for (order, mean_most) in [(Order::Uniform, 0.55), (Order::HotRange, 0.45)] {
        let (env, mut random) = (simulation(3), Random::named(3, "keys"));
        let image = Image::fresh(&env, Kind::PLAIN);
        let options = Options { disable_auto_compactions: true, ..options() };
        let db = open(&env, &image, &options);
        for number in 0..WRITES {
            db.put(&order.key(number, &mut random), &[number as u8; 100]).expect("put");
        }
        let number = |key: &str| key.trim_start_matches("key").parse::<u64>().expect("a number");
        let widths: Vec<f64> = tables(&db)
            .iter()
            .map(|(_, smallest, largest)| (number(largest) - number(smallest)) as f64 / KEYS as f64)
            .collect();
        let mean = widths.iter().sum::<f64>() / widths.len() as f64;
        println!("{order:?}: {} tables, {mean:.3} of the keys each", widths.len());
        assert!(widths.len() > 15 && mean < mean_most, "{order:?}: {mean} {widths:?}");
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
    let leveled = refused(Options { tree: TreeKind::Leveled, ..options() });
    assert!(leveled.contains("flush_key_ranges") && leveled.contains("leveled"), "{leveled}");
    let merged = refused(Options { max_write_buffer_number: 3, min_write_buffer_number_to_merge: 2, ..options() });
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
        let db = open(&env, &image, &Options { flush_key_ranges, ..options() });
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
