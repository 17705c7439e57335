//! A store that panics in a worker, or in a writer that leads others: nobody waits forever, writes
//! are refused with the reason, reads go on, and the next open finds everything acknowledged.

#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;
#[path = "suite/options.rs"]
mod options;
#[path = "suite/seeds.rs"]
mod seeds;
#[path = "suite/trees.rs"]
#[allow(dead_code)]
mod trees;
#[path = "suite/watched_store.rs"]
mod watched_store;

use medium::{Image, Kind};
use options::short_option_set;
use seeds::{Reached, run_seeds};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use varve_engine::{Db, Error, ErrorKind, Media, Options, TreeKind, Value, WriteOptions};
use varve_env::channel::{self, RecvError};
use varve_env::{Env, SimOptions};
use varve_store::IoClass;
use watched_store::{Append, WatchedStore};

/// Stores and trees on them.
fn on_stores() -> Vec<(Kind, TreeKind)> {
    let mut all = vec![(Kind::PLAIN, TreeKind::Leveled)];
    all.extend(trees::on(&[Kind::BAND, Kind::VARIABLE_BANDS], trees::with_tables()));
    all.push((Kind::KVIMR, TreeKind::Leveled));
    all
}

/// Space of an interlaced disk.
const ROOM_BYTES: u64 = 4 << 20;

/// What the panic says.
const MESSAGE: &str = "the store broke down";

/// A wait that takes this long hangs.
const HANG: Duration = Duration::from_secs(120);

/// Appends of a class until one panics, in a store that is watched; below zero none does.
struct Fuse {
    class: IoClass,
    left: AtomicI64,
    /// Panic when the append is done, not before.
    after: bool,
    /// Time before the panic, in which others begin to wait.
    delay: Duration,
    env: Env,
}

impl Fuse {
    fn light(&self, left: i64) {
        self.left.store(left, Ordering::SeqCst);
    }

    fn burn(&self, append: &Append<'_>) {
        if append.context.class == self.class
            && append.is_done == self.after
            && self.left.load(Ordering::SeqCst) >= 0
            && self.left.fetch_sub(1, Ordering::SeqCst) == 0
        {
            self.env.sleep(self.delay);
            panic!("{MESSAGE}");
        }
    }
}

fn options(tree: TreeKind, workers: usize) -> Options {
    Options {
        tree: Some(tree),
        write_buffer_size: 4 << 10,
        max_write_buffer_number: 2,
        level0_file_num_compaction_trigger: 2,
        level0_slowdown_writes_trigger: 3,
        level0_stop_writes_trigger: 4,
        max_bytes_for_level_base: 8 << 10,
        max_background_jobs: workers,
        max_subcompactions: workers,
        ..Options::default()
    }
}

/// A database on a store that will panic, its fuse, and what it stands on.
fn database(env: &Env, kind: Kind, options: &Options, class: IoClass, after: bool) -> (Db, Arc<Fuse>, Image) {
    let image = if kind.is_imr() { Image::fresh_of(env, kind, ROOM_BYTES) } else { Image::fresh(env, kind) };
    let delay = Duration::from_millis(20);
    let fuse = Arc::new(Fuse { class, left: AtomicI64::new(-1), after, delay, env: env.clone() });
    let inner = image.store(env, None).expect("store");
    let burning = fuse.clone();
    let store = WatchedStore::new(inner, move |append| {
        burning.burn(append);
        Ok(())
    });
    let db = Db::open(env, Media::of_files(Arc::new(store)), options.clone()).expect("open");
    (db, fuse, image)
}

/// The result of `work`, done in a thread that must end.
fn ends<T: Send + 'static>(env: &Env, what: &'static str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel::bounded(env, "result", 1);
    let thread = env.spawn(what, move || {
        let _ = sender.send(work());
    });
    match receiver.recv_until(env.now() + HANG) {
        Ok(value) => {
            thread.join().unwrap_or_else(|panic| panic.resume());
            value
        }
        Err(RecvError::Timeout) => panic!("{what} hangs"),
        Err(_) => thread.join().map_or_else(|panic| panic.resume(), |()| panic!("{what} said nothing")),
    }
}

fn expect_poisoned(note: &str, what: &str, error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{note}, {what}: {error}");
    assert!(error.to_string().contains(MESSAGE), "{note}, {what}: {error}");
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

/// Writes until it is refused; how many writes were acknowledged, and why no more.
fn write_until_refused(db: &Db) -> (u32, Error) {
    for number in 0..100_000u32 {
        // Every key twice, so that compactions have work.
        if let Err(error) = db.put(&key(number % 500), &[number as u8; 100]) {
            return (number, error);
        }
    }
    panic!("writes go on as if nothing had happened");
}

fn a_worker_panics(env: &Env, (kind, tree): (Kind, TreeKind), class: IoClass, workers: usize) {
    a_worker_panics_with(env, kind, &options(tree, workers), class);
}

fn a_worker_panics_with(env: &Env, kind: Kind, options: &Options, class: IoClass) {
    let workers = options.max_background_jobs;
    let note = format!("{kind:?} {class:?} simulated {}, {options:?}", env.is_virtual());
    let (db, fuse, image) = database(env, kind, options, class, workers == 2);
    fuse.light(3);
    let writer = db.clone();
    let (written, error) = ends(env, "writing", move || write_until_refused(&writer));
    expect_poisoned(&note, "write", &error);
    for (what, call) in [
        ("wait_idle", (|db: &Db| db.wait_idle()) as fn(&Db) -> Result<(), Error>),
        ("flush", |db| db.flush()),
        ("compact_range", |db| db.compact_range(None, None)),
        ("put", |db| db.put_with(b"late", b"", &WriteOptions { sync: true })),
    ] {
        let db = db.clone();
        let error = ends(env, what, move || call(&db)).expect_err(what);
        expect_poisoned(&note, what, &error);
    }
    let newest = |number: u32| {
        (0..written).rev().find(|written| written % 500 == number).map(|last| Value::from(vec![last as u8; 100]))
    };
    for number in 0..500 {
        assert_eq!(db.get(&key(number)).expect("get"), newest(number), "{note}: {number}");
    }
    let closing = db.clone();
    let error = ends(env, "close", move || closing.close()).expect_err("close tells of the panic");
    expect_poisoned(&note, "close", &error);
    drop(db);
    let db = Db::open(env, image.media(env).expect("store"), options.clone()).expect("open");
    for number in 0..500 {
        assert_eq!(db.get(&key(number)).expect("get"), newest(number), "{note}: {number} after reopening");
    }
    assert_eq!(db.get(b"late").expect("get"), None);
    assert_eq!(db.check().expect("check"), []);
    db.put(b"late", b"now").expect("put");
    db.wait_idle().expect("idle");
    db.close().expect("close");
}

#[test]
fn a_worker_that_panics_poisons_the_database_and_nobody_waits_for_it() {
    for seed in 0..4 {
        for class in [IoClass::Flush, IoClass::Compaction] {
            for workers in [1, 2, 4] {
                a_worker_panics(&simulation(seed), on_stores()[0], class, workers);
            }
        }
    }
    // On each device with other seeds.
    for (seed, on) in (4..).zip(on_stores().split_off(1)) {
        for class in [IoClass::Flush, IoClass::Compaction] {
            for workers in [1, 2, 4] {
                a_worker_panics(&simulation(seed), on, class, workers);
            }
        }
    }
}

#[test]
fn a_worker_that_panics_poisons_the_database_under_any_options() {
    let test = ("panics", "a_worker_that_panics_poisons_the_database_under_any_options");
    run_seeds(test, 200_000, 40, &[("panics", 40)], |seed| {
        let all = on_stores();
        let (kind, tree) = all[(seed % all.len() as u64) as usize];
        let class = if seed % 4 < 2 { IoClass::Flush } else { IoClass::Compaction };
        a_worker_panics_with(&simulation(seed), kind, &short_option_set(tree, seed), class);
        Ok(Reached::from([("panics", 1)]))
    });
}

#[test]
fn a_worker_that_panics_poisons_the_database_in_real_time_too() {
    for class in [IoClass::Flush, IoClass::Compaction] {
        for workers in [1, 2] {
            a_worker_panics(&Env::real(), on_stores()[0], class, workers);
        }
        a_worker_panics(&Env::real(), on_stores()[2], class, 2);
    }
}

fn simulation(seed: u64) -> Env {
    Env::sim_with(SimOptions {
        seed,
        perturb: true,
        time_limit: Some(Duration::from_secs(3600)),
        ..SimOptions::default()
    })
}

/// Those who wait behind a writer are told when it panics.
fn a_writer_panics(env: &Env, (kind, tree): (Kind, TreeKind), after: bool, append: i64) {
    let options = options(tree, 2);
    let (db, fuse, image) = database(env, kind, &options, IoClass::Log, after);
    db.put_with(b"before", b"1", &WriteOptions { sync: true }).expect("put");
    fuse.light(append);
    let writers: Vec<_> = (0..4u32)
        .map(|number| {
            let db = db.clone();
            env.spawn("writer", move || db.put(&key(number), b"2"))
        })
        .collect();
    let outcomes =
        ends(env, "waiting writers", move || writers.into_iter().map(|writer| writer.join()).collect::<Vec<_>>());
    let panicked = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    assert_eq!(panicked, 1, "{kind:?} {tree:?}: {outcomes:?}");
    for error in outcomes.iter().flatten().map(|outcome| outcome.as_ref().expect_err("a write behind a panic")) {
        expect_poisoned("a writer", "put", error);
    }
    assert_eq!(db.get(b"before").expect("get").as_deref(), Some(&b"1"[..]));
    let closing = db.clone();
    let _ = ends(env, "close", move || closing.close());
    drop(db);
    let db = Db::open(env, image.media(env).expect("store"), options.clone()).expect("open");
    assert_eq!(db.get(b"before").expect("get").as_deref(), Some(&b"1"[..]));
    // The write that panicked may be there, whole; those behind it never began.
    let there = (0..4).filter(|&number| db.get(&key(number)).expect("get").is_some()).count();
    assert!(there <= 1, "{there} writes that failed are there");
    assert_eq!(db.check().expect("check"), []);
    db.close().expect("close");
}

#[test]
fn writers_behind_one_that_panics_are_told() {
    for seed in 0..8 {
        // The head of a record, and what follows it.
        for append in [0, 1] {
            for on in on_stores() {
                a_writer_panics(&simulation(seed), on, seed % 2 == 0, append);
            }
        }
    }
    for on in on_stores().into_iter().take(3) {
        a_writer_panics(&Env::real(), on, false, 0);
        a_writer_panics(&Env::real(), on, true, 1);
    }
}
