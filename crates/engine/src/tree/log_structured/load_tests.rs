//! Loads in virtual time on a store that takes none: what options allow, and what they refuse.

use crate::db::Db;
use crate::error::ErrorKind;
use crate::media::Media;
use crate::operation::ReadOptions;
use crate::options::{ExperimentOptions, Options, TreeKind};
use crate::test_store::MemoryStore;
use std::sync::Arc;
use std::time::Duration;
use varve_env::{Env, Random, SimOptions};

fn simulation(seed: u64) -> Env {
    Env::sim_with(SimOptions { seed, ..SimOptions::default() })
}

fn open(env: &Env, options: &Options) -> Db {
    Db::open(env, Media::of_files(Arc::new(MemoryStore::new())), options.clone()).expect("open")
}

/// Memtables of a few dozen puts.
fn small_options(tree: TreeKind) -> Options {
    Options {
        tree: Some(tree),
        write_buffer_size: 32 << 10,
        target_file_size_base: 16 << 10,
        max_bytes_for_level_base: 64 << 10,
        block_size: 1 << 10,
        ..Options::default()
    }
}

/// Flushes of any size, one after the other and during compactions, with compactions in pieces and by several threads.
#[test]
fn all_background_bytes_count_towards_the_rate_limit() {
    for seed in 0..24 {
        let mut random = Random::named(seed, "rates");
        let env = simulation(seed);
        let rate = [1000, 20_000, 200_000][random.index(3)];
        let options = Options {
            rate_limit_bytes_per_second: rate,
            max_write_buffer_number: 16,
            max_background_jobs: [1, 2, 4][random.index(3)],
            max_subcompactions: [1, 3][random.index(2)],
            compact_in_pieces: Some(random.chance(1, 2)),
            pace_background_work: Some(random.chance(1, 4)),
            disable_auto_compactions: random.chance(1, 4),
            write_buffer_size: [4 << 10, 32 << 10, 256 << 10][random.index(3)],
            ..small_options(TreeKind::OF_TABLES[random.index(TreeKind::OF_TABLES.len())])
        };
        let db = open(&env, &options);
        let start = env.now();
        for number in 0..1500 {
            let value = vec![7; random.below(400) as usize];
            db.put(format!("{:08}", random.below(100_000)).as_bytes(), &value).expect("put");
            if number % 300 == 299 {
                db.flush().expect("flush");
            }
        }
        db.flush().expect("flush");
        db.wait_idle().expect("wait");
        let nanos = (env.now() - start).as_nanos();
        let counters = db.statistics().counters;
        let bytes = counters.flush_written_bytes + counters.compaction_written_bytes;
        // Of the threads that write at last each is two steps, a block and the end of a table ahead.
        let threads = match options.disable_auto_compactions {
            true => 1,
            false => (options.max_background_jobs * options.max_subcompactions) as u64 + 1,
        };
        let ahead_bytes = threads * (2 * (rate / 10).clamp(4 << 10, 1 << 20) + (8 << 10));
        let least_nanos = u128::from(bytes.saturating_sub(ahead_bytes)) * 1_000_000_000 / u128::from(rate);
        assert!(bytes > 100_000, "seed {seed}: {bytes} bytes are too few");
        assert!(nanos >= least_nanos, "seed {seed}: {bytes} bytes in {nanos} ns at {rate} B/s, with {options:?}");
        db.close().expect("close");
    }
}

/// Number of options at the head of [`EXTREMES`] that say when writers are held back, and what ends that.
const STALL_OPTIONS: usize = 15;

/// Options by name with their extremes, as TOML. `tree` is drawn apart.
const EXTREMES: [(&str, &[&str]); 34] = [
    ("level0_file_num_compaction_trigger", &["1", "12", "30", "36", "100000"]),
    ("level0_slowdown_writes_trigger", &["1", "2", "4", "100000"]),
    ("level0_stop_writes_trigger", &["1", "4", "20", "100000"]),
    ("soft_pending_compaction_bytes_limit", &["0", "1", "100000", "4611686018427387904"]),
    ("hard_pending_compaction_bytes_limit", &["0", "1", "100000", "4611686018427387904"]),
    ("max_level0_compaction_tables", &["1", "1000"]),
    ("level1_overlap_compaction_trigger", &["1", "1000"]),
    ("overlap_depth_max", &["0", "1", "30", "100000"]),
    ("max_size_amplification_percent", &["0", "10000"]),
    ("max_compaction_bytes", &["1", "4611686018427387904"]),
    ("pace_background_work", &["true"]),
    ("max_write_stall_ms", &["1", "60000"]),
    ("delayed_write_rate", &["1", "16384", "4611686018427387904"]),
    ("max_write_buffer_number", &["2", "1000"]),
    ("flush_key_ranges", &["true"]),
    ("write_buffer_size", &["4096", "1073741824"]),
    ("compact_in_pieces", &["true"]),
    ("num_levels", &["2", "3", "64"]),
    ("max_bytes_for_level_base", &["1", "1099511627776"]),
    ("max_bytes_for_level_multiplier", &["2", "4611686018427387904"]),
    ("level_compaction_dynamic_level_bytes", &["false"]),
    ("target_file_size_base", &["1024", "1099511627776"]),
    ("max_background_jobs", &["1", "16"]),
    ("max_subcompactions", &["1", "16"]),
    ("block_size", &["64", "67108864"]),
    ("block_align", &["0", "1048576"]),
    ("bloom_bits_per_key", &["0", "64"]),
    ("block_cache_capacity", &["0", "1099511627776"]),
    ("max_open_files", &["1"]),
    ("log_buffer_size", &["0", "1073741824"]),
    ("log_write_behind_size", &["0", "1", "1073741824"]),
    ("rate_limit_bytes_per_second", &["100000000"]),
    ("max_manifest_file_size", &["1"]),
    ("compaction_pri", &["\"round_robin\"", "\"by_compensated_size\""]),
];

/// Writes 768 KiB; the virtual time it took, or nothing if the options are refused.
fn load(seed: u64, options: &Options) -> Option<Duration> {
    let env =
        Env::sim_with(SimOptions { seed, time_limit: Some(Duration::from_secs(100_000)), ..SimOptions::default() });
    let media = Media::of_files(Arc::new(MemoryStore::new()));
    let db = match Db::open(&env, media, options.clone()) {
        Ok(db) => db,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            return None;
        }
    };
    let (start, mut random) = (env.now(), Random::named(seed, "load"));
    for _ in 0..768 {
        db.put(format!("{:08}", random.below(1 << 20)).as_bytes(), &[7; 1000]).expect("put");
    }
    let time = env.now() - start;
    db.close().expect("close");
    Some(time)
}

/// Pairs of options at their extremes: a load ends soon, or the options are refused. Writers that are slowed until nothing is due,
/// and for whom nothing is, would take 40 s. With `VARVE_SEED` for other pairs.
#[test]
fn no_pair_of_options_holds_writers_back_for_ever() {
    const TIME_MAX: Duration = Duration::from_secs(20);
    let (mut loads, mut refused) = (0, 0);
    let first: u64 = std::env::var("VARVE_SEED").map_or(0, |seed| seed.parse().expect("a number"));
    for seed in first..first + 160 {
        let mut random = Random::named(seed, "pairs");
        let tree = TreeKind::OF_TABLES[random.index(TreeKind::OF_TABLES.len())];
        // Rates of slowed writers fall with each table that is added to level 0: there have to be many.
        let base = Options { write_buffer_size: 4 << 10, max_bytes_for_level_base: 32 << 10, ..small_options(tree) };
        let mut table: toml::Table = base.to_toml().expect("TOML").parse().expect("TOML");
        let mut text = String::new();
        // Half of the pairs are of options that say when writers are held back, and what ends that.
        let of_stalls = random.chance(1, 2);
        for _ in 0..2 {
            let (name, values) = match of_stalls {
                true => EXTREMES[..STALL_OPTIONS][random.index(STALL_OPTIONS)],
                false => EXTREMES[random.index(EXTREMES.len())],
            };
            let value = values[random.index(values.len())];
            text.push_str(&format!("{name} = {value}\n"));
            table.extend(format!("{name} = {value}").parse::<toml::Table>().expect("TOML"));
        }
        let Ok(mut options) = Options::from_toml(&toml::to_string(&table).expect("TOML")) else {
            refused += 1;
            continue;
        };
        options.experiment.level0_score_by_bytes = random.chance(1, 8);
        if random.chance(1, 8) {
            options.experiment.min_write_buffer_number_to_merge = [2, 900][random.index(2)];
        }
        let experiment = options.experiment;
        match load(seed, &options) {
            None => refused += 1,
            Some(time) => {
                loads += 1;
                assert!(time <= TIME_MAX, "seed {seed}: {tree:?} takes {time:?} with\n{text}{experiment:?}");
            }
        }
    }
    println!("reached: pairs of options: {loads} loads, {refused} refused");
    assert!(loads > 80 && refused > 5, "{loads} loads, {refused} refused");
}

#[test]
fn options_that_contradict_each_other_are_refused_by_name() {
    let contradictions = [
        ("level0_slowdown_writes_trigger = 2\nlevel0_file_num_compaction_trigger = 12", ["2", "12"]),
        ("level0_stop_writes_trigger = 10\nlevel0_slowdown_writes_trigger = 12", ["10", "12"]),
        ("level0_stop_writes_trigger = 10\nlevel0_file_num_compaction_trigger = 12", ["20", "10"]),
        ("hard_pending_compaction_bytes_limit = 10\nsoft_pending_compaction_bytes_limit = 11", ["10", "11"]),
    ];
    for tree in TreeKind::OF_TABLES {
        for (text, values) in contradictions {
            let options = Options { tree: Some(tree), ..Options::from_toml(text).expect("each is sound alone") };
            let media = Media::of_files(Arc::new(MemoryStore::new()));
            let error = Db::open(&Env::sim(1), media, options).err().expect("refused").to_string();
            let names = text.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
            for named in names.clone().take(1).chain(values) {
                assert!(error.contains(named), "{error} does not say {named}, for {text}");
            }
            assert!(names.skip(1).any(|name| error.contains(name)) || error.contains("slowdown"), "{error}");
            assert!(error.contains("; "), "{error} does not say what to do");
        }
        let experiment = ExperimentOptions { min_write_buffer_number_to_merge: 5, ..ExperimentOptions::default() };
        let merged = Options { tree: Some(tree), max_write_buffer_number: 5, experiment, ..Options::default() };
        let media = Media::of_files(Arc::new(MemoryStore::new()));
        let error = Db::open(&Env::sim(1), media, merged).err().expect("refused").to_string();
        assert!(error.contains("min_write_buffer_number_to_merge = 5") && error.contains("; "), "{error}");
        let sound = "hard_pending_compaction_bytes_limit = 10\nsoft_pending_compaction_bytes_limit = 0";
        let options = Options { tree: Some(tree), ..Options::from_toml(sound).expect("sound") };
        open(&Env::sim(1), &options).close().expect("close");
    }
}

/// A queue of `live` pairs: puts at its tail, pops the first pair, forward or backward. Returns the most entries per pop that scans
/// stepped over in a tenth of all pops.
fn run_queue(db: &Db, live: u64, pops: u64, is_backward: bool) -> u64 {
    // Backward, keys fall.
    let key = |number: u64| format!("{:016}", if is_backward { u64::MAX / 4 - number } else { number }).into_bytes();
    for number in 0..live {
        db.put(&key(number), &[7; 20]).expect("put");
    }
    let skipped = || db.statistics().counters.scan_skipped_entries;
    let (mut before, mut most) = (0, 0);
    for number in 0..pops {
        db.put(&key(live + number), &[7; 20]).expect("put");
        let mut walk = db.iterator(&ReadOptions::default()).expect("iterator");
        if is_backward {
            walk.seek_to_last()
        } else {
            walk.seek_to_first()
        }
        assert_eq!(walk.key(), key(number), "pop {number}");
        let first = walk.key().to_vec();
        drop(walk);
        db.delete(&first).expect("delete");
        if (number + 1) % (pops / 10) == 0 {
            let now = skipped();
            most = most.max((now - before) / (pops / 10));
            before = now;
        }
    }
    most
}

/// Entries per pop that scans may step over: [`tombstones::STEPS_MIN`](crate::policy::tombstones::STEPS_MIN) steps are over the
/// deletions of about 500 pops and what they delete, in a memtable, and again in tables.
const SKIPPED_PER_POP_MAX: u64 = 2500;

/// With `VARVE_POPS=500000` for as many pops.
#[test]
fn a_queue_does_not_slow_down() {
    let pops: u64 = std::env::var("VARVE_POPS").map_or(4_000, |pops| pops.parse().expect("a number"));
    for (tree, is_backward) in TreeKind::ALL.into_iter().flat_map(|tree| [(tree, false), (tree, true)]) {
        for options in [Options { tree: Some(tree), ..Options::default() }, small_options(tree)] {
            let env = simulation(5);
            let db = open(&env, &options);
            let most = run_queue(&db, 1000, pops, is_backward);
            let counters = db.statistics().counters;
            let (flushes, compactions) = (counters.scan_flushes, counters.scan_compactions);
            println!(
                "{tree:?}, backward {is_backward}: {most} entries per pop, {flushes} flushes, {compactions} compactions"
            );
            assert!(most <= SKIPPED_PER_POP_MAX, "{tree:?}, {is_backward}: {most} entries per pop: {counters:?}");
            db.close().expect("close");
        }
    }
}

/// Scans 4,000 keys again and again, forward and backward, between random puts and deletes that leave half of them live. Returns the
/// entries that scans stepped over.
fn scan_while_deleting(options: &Options) -> u64 {
    const KEYS: u64 = 4000;
    let (env, mut random) = (simulation(9), Random::named(9, "range"));
    let db = open(&env, options);
    let key = |number: u64| format!("{number:08}").into_bytes();
    let mut live = std::collections::BTreeSet::new();
    for round in 0..1200 {
        for _ in 0..5 {
            let (put, deleted) = (random.below(KEYS), random.below(KEYS));
            db.put(&key(put), &[7; 50]).expect("put");
            live.insert(put);
            db.delete(&key(deleted)).expect("delete");
            live.remove(&deleted);
        }
        let mut walk = db.iterator(&ReadOptions::default()).expect("iterator");
        let mut found = 0;
        if round % 2 == 0 {
            walk.seek_to_first()
        } else {
            walk.seek_to_last()
        }
        while walk.valid() {
            found += 1;
            if round % 2 == 0 { walk.next() } else { walk.previous() }
        }
        assert_eq!(found, live.len(), "round {round}");
    }
    let counters = db.statistics().counters;
    let relieved = counters.scan_flushes + counters.scan_compactions;
    if !options.disable_auto_compactions {
        // Small memtables are full, and level 0 is, before scans have stepped over much.
        let is_small = options.write_buffer_size < Options::default().write_buffer_size;
        assert!((3..40).contains(&relieved) || is_small, "{:?}: {counters:?}", options.tree_kind());
    }
    db.close().expect("close");
    counters.scan_skipped_entries
}

#[test]
fn a_scanned_range_does_not_keep_its_deletions() {
    for tree in TreeKind::OF_TABLES {
        for options in [Options { tree: Some(tree), ..Options::default() }, small_options(tree)] {
            let unrelieved =
                Options { disable_auto_compactions: true, level0_stop_writes_trigger: 1000, ..options.clone() };
            let (with, without) = (scan_while_deleting(&options), scan_while_deleting(&unrelieved));
            println!("{tree:?}: {with} entries stepped over, {without} without compactions");
            assert!(with < without / 2, "{tree:?}: {with} entries stepped over, {without} without compactions");
        }
    }
}

/// Puts keys in random order, deletes most of them in random order, and scans once. Returns the entries that the scan stepped over
/// and those it showed.
fn scan_after_deletes(options: &Options, seed: u64) -> (u64, u64) {
    const KEYS: u64 = 4000;
    const KEPT: usize = 800;
    let env = simulation(seed);
    let db = open(&env, options);
    let mut keys: Vec<u64> = (0..KEYS).collect();
    Random::named(seed, "puts").shuffle(&mut keys);
    let key = |number: u64| format!("{number:08}").into_bytes();
    keys.iter().for_each(|number| db.put(&key(*number), &[7; 200]).expect("put"));
    Random::named(seed, "deletes").shuffle(&mut keys);
    keys[KEPT..].iter().for_each(|number| db.delete(&key(*number)).expect("delete"));
    db.flush().expect("flush");
    db.wait_idle().expect("wait");
    let before = db.statistics().counters.scan_skipped_entries;
    let mut walk = db.iterator(&ReadOptions::default()).expect("iterator");
    let mut shown = 0;
    walk.seek_to_first();
    while walk.valid() {
        shown += 1;
        walk.next();
    }
    drop(walk);
    assert_eq!(shown, KEPT as u64);
    let skipped = db.statistics().counters.scan_skipped_entries - before;
    db.close().expect("close");
    (skipped, shown)
}

/// A scan steps over no more dead pairs than it shows live ones, and each of them has a deletion.
#[test]
fn a_scan_after_random_deletes_skips_at_most_a_deleted_pair_for_each_live_one() {
    for seed in 1..4 {
        for (key_ranges, pieces) in [(false, false), (false, true), (true, true)] {
            let leveled = small_options(TreeKind::Leveled);
            let two_level = Options {
                overlap_depth_max: Some(11),
                flush_key_ranges: Some(key_ranges),
                compact_in_pieces: Some(pieces),
                ..small_options(TreeKind::TwoLevel)
            };
            let (skipped, shown) = scan_after_deletes(&two_level, seed);
            let (leveled, _) = scan_after_deletes(&leveled, seed);
            println!("seed {seed}, {key_ranges}, {pieces}: {skipped} skipped for {shown}, leveled {leveled}");
            assert!(skipped <= 2 * shown, "seed {seed}, {key_ranges}, {pieces}: {skipped} skipped, {shown} shown");
        }
    }
}

/// While a snapshot is held, deletions after it cause no flush or compaction that frees nothing.
#[test]
fn deletions_that_a_snapshot_keeps_cause_no_work() {
    for tree in TreeKind::OF_TABLES {
        let env = simulation(11);
        let db = open(&env, &Options { tree: Some(tree), ..Options::default() });
        let key = |number: u64| format!("{number:08}").into_bytes();
        for number in 0..3000 {
            db.put(&key(number), &[7; 50]).expect("put");
        }
        let snapshot = db.snapshot();
        for number in 0..2900 {
            db.delete(&key(number)).expect("delete");
        }
        let scan = |scans: u64, options: &ReadOptions<'_>| {
            for _ in 0..scans {
                let mut walk = db.iterator(options).expect("iterator");
                walk.seek_to_first();
                assert!(walk.valid());
            }
            db.wait_idle().expect("wait");
            let counters = db.statistics().counters;
            (counters.flushes, counters.scan_flushes, counters.scan_compactions)
        };
        let newest = ReadOptions::default();
        assert_eq!(scan(300, &newest), (0, 0, 0), "{tree:?}: memtables stay while the snapshot is held");
        db.flush().expect("flush");
        assert_eq!(scan(300, &newest), (1, 0, 0), "{tree:?}: and so do tables");
        // An iterator of before goes on over the deletions for as long as it likes.
        let mut old = db.iterator(&newest).expect("iterator");
        drop(snapshot);
        let (_, _, compactions) = scan(300, &newest);
        assert!((1..=3).contains(&compactions), "{tree:?}: {compactions} compactions once it was dropped");
        let before = db.statistics().counters.scan_skipped_entries;
        let after = scan(10, &newest);
        assert!(db.statistics().counters.scan_skipped_entries - before < 100, "{tree:?}: the deletions are gone");
        for _ in 0..300 {
            old.seek_to_first();
            assert_eq!(old.key(), key(2900));
        }
        drop(old);
        assert_eq!(scan(10, &newest), after, "{tree:?}: an iterator over old tables causes no work");
        db.close().expect("close");
    }
}

/// A scan of live entries counts nothing and causes nothing.
#[test]
fn live_scans_cause_no_work() {
    for tree in TreeKind::ALL {
        let env = simulation(13);
        let db = open(&env, &Options { tree: Some(tree), ..Options::default() });
        for number in 0..2000u64 {
            db.put(&number.to_le_bytes(), &[7; 50]).expect("put");
        }
        for _ in 0..300 {
            let mut walk = db.iterator(&ReadOptions::default()).expect("iterator");
            walk.seek_to_first();
            while walk.valid() {
                walk.next();
            }
        }
        let counters = db.statistics().counters;
        assert_eq!((counters.flushes, counters.scan_skipped_entries), (0, 0), "{tree:?}: {counters:?}");
        db.close().expect("close");
    }
}

/// Queues of several threads in one database, each in its own range of keys, with and without memtables of ranges.
#[test]
fn queues_of_several_threads_are_relieved_together() {
    for (seed, tree, flush_key_ranges) in
        [(1, TreeKind::Leveled, false), (2, TreeKind::TwoLevel, false), (3, TreeKind::TwoLevel, true)]
    {
        let env = Env::sim_with(SimOptions { seed, perturb: true, ..SimOptions::default() });
        let options = Options {
            flush_key_ranges: Some(flush_key_ranges),
            // Small enough that it is divided.
            write_buffer_size: if flush_key_ranges { 64 << 10 } else { 1 << 20 },
            max_write_buffer_number: 2,
            tree: Some(tree),
            ..Options::default()
        };
        let db = Arc::new(open(&env, &options));
        let threads: Vec<_> = ["a", "b", "c"]
            .map(|queue| {
                let db = db.clone();
                env.spawn(queue, move || {
                    let key = |number: u64| format!("{queue}{number:08}").into_bytes();
                    let options = ReadOptions {
                        lower_bound: Some(key(0)),
                        upper_bound: Some(format!("{queue}~").into_bytes()),
                        ..ReadOptions::default()
                    };
                    for number in 0..1500 {
                        db.put(&key(number), &[7; 20]).expect("put");
                        if number < 50 {
                            continue;
                        }
                        let mut walk = db.iterator(&options).expect("iterator");
                        walk.seek_to_first();
                        assert_eq!(walk.key(), key(number - 50), "seed {seed}");
                        drop(walk);
                        db.delete(&key(number - 50)).expect("delete");
                    }
                })
            })
            .into_iter()
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap_or_else(|panic| panic.resume()));
        let counters = db.statistics().counters;
        println!("{tree:?}, ranges {flush_key_ranges}: {counters:?}");
        let relieved = counters.scan_flushes + counters.scan_compactions;
        assert!(relieved >= if flush_key_ranges { 1 } else { 6 }, "seed {seed}: {counters:?}");
        assert!(counters.range_flushes > 0 || !flush_key_ranges, "seed {seed}: {counters:?}");
        assert!(counters.scan_skipped_entries < 3 * 1500 * SKIPPED_PER_POP_MAX, "seed {seed}: {counters:?}");
        db.wait_idle().expect("wait");
        db.close().expect("close");
    }
}

/// Wherever values and their deletions are: together in memory, in memory and a table, in two levels, and in none.
#[test]
fn deletions_lower_the_estimated_number_of_keys() {
    for tree in TreeKind::ALL {
        let env = simulation(17);
        let db = open(&env, &Options { tree: Some(tree), ..Options::default() });
        let estimate =
            || -> u64 { db.property("varve.estimate-num-keys").and_then(|text| text.parse().ok()).expect("a number") };
        let key = |number: u64| number.to_le_bytes();
        let delete = |numbers: std::ops::Range<u64>| {
            for number in numbers {
                let before = estimate();
                db.delete(&key(number)).expect("delete");
                assert!(
                    estimate() < before || before == 0,
                    "{tree:?}: {number} was deleted, {before} became {}",
                    estimate()
                );
            }
        };
        for number in 0..1000 {
            db.put(&key(number), b"value").expect("put");
        }
        delete(0..250);
        assert_eq!(estimate(), 750, "{tree:?}, in memory");
        db.compact_range(None, None).expect("compact");
        assert_eq!(estimate(), 750, "{tree:?}, compacted");
        delete(250..500);
        assert_eq!(estimate(), 500, "{tree:?}, deletions in memory");
        db.flush().expect("flush");
        assert_eq!(estimate(), 500, "{tree:?}, deletions in a table");
        db.compact_range(None, None).expect("compact");
        assert_eq!(estimate(), 500, "{tree:?}, compacted again");
        db.close().expect("close");
    }
}
