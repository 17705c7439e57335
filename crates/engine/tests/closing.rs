//! Closing ends every wait of a job, a writer or a caller, however little a rate lets through: all in virtual time, where
//! what is not ended takes days.

use std::sync::Arc;
use std::time::Duration;
use varve_engine::{Compression, Db, Error, ErrorKind, Media, Options, TreeKind, WriteOptions};
use varve_env::{Env, JoinHandle, Random, SimOptions};
use varve_media::{
    Directory, Fault, FaultDirectory, FaultEffect, FaultInjector, FaultPlan, FaultTrigger, IoClass, MemoryDirectory,
    MemoryDirectoryOptions, Operation,
};
use varve_store::{PlainOptions, PlainStore};

/// What closing may take: job and writers that pace themselves look up every few milliseconds.
const PROMPTLY: Duration = Duration::from_millis(250);

/// At a byte a second the first mebibyte takes twelve days.
const SLOWEST: u64 = 1;

fn simulation(seed: u64) -> Env {
    Env::sim_with(SimOptions { seed, time_limit: Some(Duration::from_secs(366 * 24 * 3600)), ..SimOptions::default() })
}

fn options(tree: TreeKind) -> Options {
    Options {
        tree: Some(tree),
        write_buffer_size: 4 << 20,
        target_file_size_base: 2 << 20,
        max_bytes_for_level_base: 4 << 20,
        max_background_jobs: 2,
        compression: Compression::None,
        ..Options::default()
    }
}

/// A database in a directory, with the threads that use it.
struct Scene {
    env: Env,
    directory: Arc<dyn Directory>,
    options: Options,
    db: Db,
    callers: Vec<(&'static str, JoinHandle<Result<(), Error>>)>,
    note: String,
}

impl Scene {
    fn on(directory: Arc<dyn Directory>, env: Env, options: Options, note: &str) -> Scene {
        let db = open(&env, &directory, &options);
        Scene { env, directory, db, callers: Vec::new(), note: format!("{:?}, {note}", options.tree_kind()), options }
    }

    fn new(options: Options, note: &str) -> Scene {
        Scene::on(Arc::new(MemoryDirectory::new("ram")), simulation(1), options, note)
    }

    /// The same with other options, closed and opened again.
    fn reopen(self, options: Options) -> Scene {
        self.db.close().expect("close");
        let Scene { env, directory, db, callers, note, .. } = self;
        drop(db);
        let db = open(&env, &directory, &options);
        Scene { env, directory, options, db, callers, note }
    }

    fn put(&self, number: u32, bytes: usize) {
        put(&self.db, number, bytes).unwrap_or_else(|error| panic!("{}: put: {error}", self.note));
    }

    /// A thread that does something with the database until it is closed.
    fn call(&mut self, what: &'static str, call: impl FnOnce(&Db, &Env) -> Result<(), Error> + Send + 'static) {
        let (db, env) = (self.db.clone(), self.env.clone());
        self.callers.push((what, self.env.spawn(what, move || call(&db, &env))));
    }

    /// Closes after a while and finds that this takes no time, that all who waited were told, and that nothing is lost.
    fn closes_promptly(self, wait: Duration) {
        let note = &self.note;
        self.env.sleep(wait);
        let begin = self.env.now();
        self.db.close().unwrap_or_else(|error| panic!("{note}: close: {error}"));
        for (what, caller) in self.callers {
            let result = caller.join().unwrap_or_else(|panic| panic.resume());
            assert_eq!(result.expect_err(what).kind(), ErrorKind::Closed, "{note}: {what}");
        }
        let took = self.env.now().duration_since(begin);
        assert!(took < PROMPTLY, "{note}: closing took {took:?}");
        drop(self.db);
        let unlimited = Options { rate_limit_bytes_per_second: 0, delayed_write_rate: 1 << 30, ..self.options };
        let db = open(&self.env, &self.directory, &unlimited);
        assert!(db.get(&key(0)).expect("get").is_some(), "{note}: what was written first is gone");
        assert_eq!(db.check().expect("check"), [], "{note}");
        db.close().expect("close");
    }
}

fn open(env: &Env, directory: &Arc<dyn Directory>, options: &Options) -> Db {
    let store = PlainStore::open(env, directory.clone(), PlainOptions::default());
    Db::open(env, Media::of_files(Arc::new(store)), options.clone()).expect("open")
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

/// A value that does not compress.
fn put(db: &Db, number: u32, bytes: usize) -> Result<(), Error> {
    put_with(db, number, bytes, false)
}

fn put_with(db: &Db, number: u32, bytes: usize, sync: bool) -> Result<(), Error> {
    let mut value = vec![0; bytes];
    Random::named(number.into(), "value").fill_bytes(&mut value);
    db.put_with(&key(number), &value, &WriteOptions { sync })
}

/// The estimate of a table shrinks when a block that is gathered for compression is compressed: what was let through
/// then was more than there was, and the difference below nothing.
#[test]
fn a_job_does_not_wait_for_centuries_when_its_blocks_shrink() {
    for compression in [Compression::Lz4, Compression::Zstd] {
        for (pace_background_work, max_write_stall_ms) in [(false, 0), (true, 0), (true, 50)] {
            let options = Options {
                compression,
                compression_per_level: Vec::new(),
                rate_limit_bytes_per_second: 1 << 20,
                write_buffer_size: 32 << 20,
                block_size: 4 << 20,
                pace_background_work: Some(pace_background_work),
                max_write_stall_ms: Some(max_write_stall_ms),
                ..options(TreeKind::Leveled)
            };
            let note = format!("{compression:?}, paced {pace_background_work}, bursts of {max_write_stall_ms} ms");
            let scene = Scene::new(options, &note);
            let begin = scene.env.now();
            for round in 0..2 {
                for number in 0..6 {
                    scene.db.put(&key(number), &vec![round; 6 << 20]).expect("put");
                    for small in 0..20 {
                        scene.db.put(&key(1000 * (number + 1) + small), &[round; 100 << 10]).expect("put");
                    }
                }
                scene.db.flush().expect("flush");
            }
            scene.db.compact_range(None, None).expect("compact");
            let took = scene.env.now().duration_since(begin);
            assert!(took < Duration::from_secs(10), "{}: {took:?}", scene.note);
            scene.closes_promptly(Duration::ZERO);
        }
    }
}

/// Tables smaller than a step of the limiter were not held to the rate at all.
#[test]
fn small_tables_are_held_to_the_rate_together() {
    for target_file_size_base in [16 << 10, 256 << 10, 4 << 20] {
        let options = Options { target_file_size_base, disable_auto_compactions: true, ..options(TreeKind::Leveled) };
        let scene = Scene::new(options.clone(), &format!("tables of {target_file_size_base}"));
        for round in 0..2 {
            (0..60).for_each(|number| scene.put(2 * number + round, 64 << 10));
            scene.db.flush().expect("flush");
        }
        let scene = scene.reopen(Options { rate_limit_bytes_per_second: 1 << 20, ..options });
        let begin = scene.env.now();
        scene.db.compact_range(None, None).expect("compact");
        let took = scene.env.now().duration_since(begin).as_secs_f64();
        let written = scene.db.statistics().counters.compaction_written_bytes as f64 / (1 << 20) as f64;
        // The first step goes at once, and the last one is not full.
        assert!((written - 2.5..=written).contains(&took), "{}: {written} MiB in {took} s", scene.note);
        scene.closes_promptly(Duration::ZERO);
    }
}

#[test]
fn closing_ends_a_flush_that_waits_for_its_rate() {
    for tree in TreeKind::OF_TABLES {
        let mut scene =
            Scene::new(Options { rate_limit_bytes_per_second: SLOWEST, ..options(tree) }, "a flush at a limited rate");
        (0..80).for_each(|number| scene.put(number, 64 << 10));
        scene.call("flush", |db, _| db.flush());
        scene.call("wait_idle", |db, _| db.wait_idle());
        scene.call("compact_range", |db, _| db.compact_range(None, None));
        scene.closes_promptly(Duration::from_secs(10));
    }
}

/// A database with work for compactions, opened again with other options.
fn with_tables(options: Options, limited: Options, note: &str) -> Scene {
    let scene = Scene::new(Options { disable_auto_compactions: true, ..options }, note);
    for round in 0..6 {
        (0..60).for_each(|number| scene.put(6 * number + round, 64 << 10));
        scene.db.flush().expect("flush");
    }
    scene.reopen(limited)
}

#[test]
fn closing_ends_compactions_that_wait_for_their_rate() {
    for tree in TreeKind::OF_TABLES {
        for max_subcompactions in [1, 4] {
            let limited = Options {
                rate_limit_bytes_per_second: SLOWEST,
                max_subcompactions,
                max_bytes_for_level_base: 1 << 20,
                ..options(tree)
            };
            let note = format!("compactions in {max_subcompactions} parts at a limited rate");
            let mut scene = with_tables(options(tree), limited.clone(), &note);
            scene.call("wait_idle", |db, _| db.wait_idle());
            scene.call("compact_range", |db, _| db.compact_range(None, None));
            scene.call("another compact_range", |db, env| {
                env.sleep(Duration::from_secs(1));
                db.compact_range(None, None)
            });
            scene.closes_promptly(Duration::from_secs(10));
            let limited = Options { disable_auto_compactions: true, ..limited };
            let mut scene = with_tables(options(tree), limited, &format!("{note}, called for"));
            scene.call("compact_range", |db, _| db.compact_range(None, None));
            scene.closes_promptly(Duration::from_secs(10));
        }
    }
}

/// A compaction whose outputs are small, or nothing, looks up as well.
#[test]
fn closing_ends_a_compaction_of_small_tables_on_a_slow_medium() {
    let slow = Fault::new(Operation::Write, FaultTrigger::From(0), FaultEffect::Stall(Duration::from_millis(100)));
    let slow_reads = Fault::new(Operation::Read, FaultTrigger::From(0), FaultEffect::Stall(Duration::from_millis(5)));
    for (fault, deletes) in
        [(slow.on_class(IoClass::Compaction), false), (slow_reads.on_class(IoClass::Compaction), true)]
    {
        let env = simulation(1);
        let options = Options {
            target_file_size_base: 8 << 10,
            disable_auto_compactions: true,
            compaction_readahead_size: Some(4 << 10),
            ..options(TreeKind::TwoLevel)
        };
        let directory: Arc<dyn Directory> = Arc::new(FaultDirectory::new(
            &FaultInjector::new(&env, FaultPlan::of(fault)),
            Arc::new(MemoryDirectory::new("ram")),
        ));
        let mut scene = Scene::on(directory, env, options, &format!("a slow medium, everything deleted: {deletes}"));
        for round in 0..2 {
            (0..3000u32).for_each(|number| scene.put(2 * number + round, 2 << 10));
            scene.db.flush().expect("flush");
        }
        if deletes {
            (1..6000).for_each(|number| scene.db.delete(&key(number)).expect("delete"));
        }
        scene.call("compact_range", |db, _| db.compact_range(None, None));
        // Half a mebibyte of input, or so many requests, between two looks.
        let begin = scene.env.now();
        scene.env.sleep(Duration::from_millis(500));
        scene.db.close().expect("close");
        for (what, caller) in std::mem::take(&mut scene.callers) {
            let result = caller.join().unwrap_or_else(|panic| panic.resume());
            assert_eq!(result.expect_err(what).kind(), ErrorKind::Closed, "{}: {what}", scene.note);
        }
        let took = scene.env.now().duration_since(begin);
        assert!(took < Duration::from_secs(20), "{}: {took:?}", scene.note);
    }
}

#[test]
fn closing_ends_a_job_that_keeps_pace_with_writes() {
    for (tree, max_write_stall_ms) in
        TreeKind::OF_TABLES.into_iter().flat_map(|tree| [0, 100].map(|stall| (tree, stall)))
    {
        let paced = Options {
            pace_background_work: Some(true),
            max_write_stall_ms: Some(max_write_stall_ms),
            level0_file_num_compaction_trigger: 2,
            ..options(tree)
        };
        let mut scene = with_tables(options(tree), paced, &format!("paced, bursts of {max_write_stall_ms} ms"));
        scene.call("writes", |db, env| {
            // Synced: jobs are held for those who wait for the log.
            for number in 0.. {
                put_with(db, 10_000 + number, 1 << 10, true)?;
                env.sleep(Duration::from_millis(10));
            }
            Ok(())
        });
        scene.closes_promptly(Duration::from_secs(3));
    }
}

#[test]
fn closing_ends_writers_that_are_slowed() {
    for tree in TreeKind::OF_TABLES {
        let slowed = Options {
            delayed_write_rate: 1,
            level0_file_num_compaction_trigger: 1,
            level0_slowdown_writes_trigger: 1,
            rate_limit_bytes_per_second: SLOWEST,
            ..options(tree)
        };
        let mut scene = with_tables(options(tree), slowed, "slowed writers");
        for what in ["first", "second", "third"] {
            scene.call(what, |db, _| {
                for number in 0.. {
                    put(db, 10_000 + number, 100 << 10)?;
                }
                Ok(())
            });
        }
        scene.closes_promptly(Duration::from_secs(10));
    }
}

#[test]
fn closing_ends_writers_that_are_stopped() {
    for tree in TreeKind::OF_TABLES {
        let stopped = Options {
            level0_file_num_compaction_trigger: 2,
            level0_slowdown_writes_trigger: 2,
            level0_stop_writes_trigger: 2,
            rate_limit_bytes_per_second: SLOWEST,
            ..options(tree)
        };
        let mut scene = with_tables(options(tree), stopped, "stopped writers");
        for what in ["first", "second"] {
            scene.call(what, |db, _| put(db, 10_000, 100));
        }
        scene.closes_promptly(Duration::from_secs(10));
    }
}

#[test]
fn closing_ends_writers_that_wait_for_a_flush() {
    for (tree, log_write_behind_size) in TreeKind::OF_TABLES.into_iter().flat_map(|tree| [(tree, 0), (tree, 1 << 20)]) {
        let limited = Options {
            rate_limit_bytes_per_second: SLOWEST,
            max_write_buffer_number: 2,
            log_buffer_size: Some(64 << 10),
            log_write_behind_size: Some(log_write_behind_size),
            ..options(tree)
        };
        let mut scene = Scene::new(limited, &format!("writers, {log_write_behind_size} bytes of the log behind"));
        for what in ["first", "second"] {
            scene.call(what, |db, _| {
                for number in 0.. {
                    put(db, number, 32 << 10)?;
                }
                Ok(())
            });
        }
        scene.closes_promptly(Duration::from_secs(10));
    }
}

#[test]
fn closing_ends_writers_that_wait_for_space() {
    for tree in TreeKind::OF_TABLES {
        let env = simulation(1);
        let space = MemoryDirectoryOptions { capacity_bytes: Some(64 << 20), ..MemoryDirectoryOptions::default() };
        let directory = Arc::new(MemoryDirectory::with_options("ram", space));
        let full = Options { compaction_buffer_size: Some(40 << 20), disable_auto_compactions: true, ..options(tree) };
        let scene = Scene::on(directory, env, full.clone(), "writers on a full medium");
        // Each table overlaps all others: none is just moved, and there is much to wait for.
        let refused = (0..4000).find(|number| put(&scene.db, number * 7919 % 4001, 32 << 10).is_err());
        assert!(refused.is_some(), "{}: it never becomes full", scene.note);
        let limited = Options {
            rate_limit_bytes_per_second: SLOWEST,
            level0_file_num_compaction_trigger: 1,
            disable_auto_compactions: false,
            ..full
        };
        let mut scene = scene.reopen(limited);
        for (what, bytes) in [("first", 32 << 10), ("second", 1 << 10)] {
            scene.call(what, move |db, _| {
                for number in 10_000.. {
                    put(db, number, bytes)?;
                }
                Ok(())
            });
        }
        scene.closes_promptly(Duration::from_secs(10));
    }
}

/// What failed is tried again after a while that grows.
#[test]
fn closing_ends_the_wait_for_another_try() {
    for class in [IoClass::Flush, IoClass::Compaction] {
        let env = simulation(1);
        let injector = FaultInjector::new(&env, FaultPlan::default());
        let directory: Arc<dyn Directory> =
            Arc::new(FaultDirectory::new(&injector, Arc::new(MemoryDirectory::new("ram"))));
        let scene = Scene::on(directory, env, options(TreeKind::Leveled), &format!("failing {class:?}"));
        let fault = Fault::new(Operation::Write, FaultTrigger::From(0), FaultEffect::Fail(varve_media::FaultError::Io));
        injector.set_plan(FaultPlan::of(fault.on_class(class)));
        for round in 0..5 {
            (0..10).for_each(|number| scene.put(5 * number + round, 64 << 10));
            let _ = scene.db.flush();
        }
        scene.env.sleep(Duration::from_secs(100));
        injector.set_plan(FaultPlan::default());
        scene.closes_promptly(Duration::ZERO);
    }
}
