//! Databases on media that run out of space: writers are told, what was acknowledged stays, and deletes and compactions
//! bring the space back.

#[path = "suite/history.rs"]
#[allow(dead_code)]
mod history;
#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;
#[path = "suite/outcome.rs"]
#[allow(dead_code)]
mod outcome;
#[path = "suite/trees.rs"]
#[allow(dead_code)]
mod trees;

use history::{History, State, small_options};
use medium::{BAND_BYTES, Image, Kind, Point, Recorder};
use outcome::{MayLose, UNIVERSE, run, walk_all};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use varve_engine::{Db, Error, ErrorKind, Options, TreeKind, WriteBatch, WriteOptions, WriteState};
use varve_env::{Env, Random, SimOptions};
use varve_media::{Fault, FaultEffect, FaultInjector, FaultPlan, FaultTrigger, IoClass, Operation};

fn simulation(seed: u64) -> Env {
    Env::sim_with(SimOptions { seed, time_limit: Some(Duration::from_secs(24 * 3600)), ..SimOptions::default() })
}

/// Histories on devices from too small to large enough, whatever becomes of the writes.
#[test]
fn histories_on_nearly_full_bands_lose_nothing_that_was_acknowledged() {
    for tree in trees::with_tables() {
        let (mut refused, mut untroubled) = (0, 0);
        for (bands, seed) in
            (8..20).step_by(3).flat_map(|bands| (0..4).map(move |seed| (bands, 700 + 10 * bands + seed)))
        {
            let env = simulation(seed);
            let image = Image::fresh_of(&env, Kind::BAND, bands * BAND_BYTES);
            let history = History::new(seed, 150, UNIVERSE).in_tree(tree);
            let injector = FaultInjector::new(&env, FaultPlan::default());
            let note = format!("{tree:?}, {bands} bands, seed {seed}");
            let outcome = run(&env, &image, &injector, &history, MayLose::Nothing)
                .unwrap_or_else(|what| panic!("{note}: {what}"));
            let media = image.media(&env).unwrap_or_else(|error| panic!("{note}: {error}"));
            let db = Db::open(&env, media, history.options.clone()).unwrap_or_else(|error| panic!("{note}: {error}"));
            let (found, error) = walk_all(&db);
            assert!(error.is_none() && outcome.allows(&found, false), "{note}: {error:?}");
            assert_eq!(db.check().expect("check"), [], "{note}");
            db.close().expect("close");
            assert_eq!(image.device_errors(), 0, "{note}: a rule of the device was broken");
            println!("{note}: {} acknowledged, {:?}", outcome.acknowledged.len(), outcome.errors);
            assert!(outcome.errors.keys().all(|kind| kind == "NoSpace"), "{note}: {:?}", outcome.errors);
            refused += usize::from(!outcome.errors.is_empty());
            untroubled += usize::from(outcome.errors.is_empty());
        }
        assert!(refused >= 3 && untroubled >= 3, "{tree:?}: {refused} devices were too small, {untroubled} were not");
    }
}

/// Options of a small medium: tables as large as a band.
fn options(tree: TreeKind) -> Options {
    Options {
        tree: Some(tree),
        write_buffer_size: 28 << 10,
        log_buffer_size: Some(4 << 10),
        target_file_size_base: 32 << 10,
        max_bytes_for_level_base: 64 << 10,
        max_manifest_file_size: 8 << 10,
        ..small_options()
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

/// A database on a small medium, and what it must hold.
struct Filled {
    env: Env,
    image: Image,
    options: Options,
    db: Db,
    model: State,
    random: Random,
    in_order: bool,
    next: u32,
    /// Fewest bytes of a value; the most are three times as many.
    value_bytes: u64,
    note: String,
}

impl Filled {
    fn new(kind: Kind, space_bytes: u64, tree: TreeKind, in_order: bool, seed: u64) -> Filled {
        let env = simulation(seed);
        let image = Image::fresh_of(&env, kind, space_bytes);
        let note = format!("{kind:?}, {} KiB", space_bytes >> 10);
        Filled::on(env, image, tree, in_order, seed, &note)
    }

    fn on(env: Env, image: Image, tree: TreeKind, in_order: bool, seed: u64, note: &str) -> Filled {
        let options = options(tree);
        let media = image.media(&env).expect("store");
        let db = Db::open(&env, media, options.clone()).expect("open");
        let order = if in_order { "in order" } else { "at random" };
        let note = format!("{note}, {tree:?}, {order}, seed {seed}");
        let random = Random::named(seed, "room");
        let model = State::new();
        Filled { env, image, options, db, model, random, in_order, next: 0, value_bytes: 200, note }
    }

    fn state(&self) -> WriteState {
        self.db.statistics().write_state
    }

    fn verify(&self, when: &str) {
        let (found, error) = walk_all(&self.db);
        assert!(error.is_none() && found == self.model, "{}, {when}: {error:?}", self.note);
    }

    /// Puts pairs until one is refused, and says how many were taken.
    fn fill(&mut self) -> (usize, Error) {
        let mut taken = 0;
        loop {
            self.next += 1;
            let number = if self.in_order { self.next } else { self.random.below(100_000) as u32 };
            let mut value = vec![0; (self.value_bytes + self.random.below(2 * self.value_bytes)) as usize];
            self.random.fill_bytes(&mut value);
            let options = WriteOptions { sync: self.random.chance(1, 8) };
            match self.db.put_with(&key(number), &value, &options) {
                Ok(()) => drop(self.model.insert(key(number), value)),
                Err(error) => return (taken, error),
            }
            taken += 1;
            assert!(taken < 20_000, "{}: it never becomes full", self.note);
        }
    }

    /// Deletes every other key, in batches.
    fn delete_half(&mut self) {
        let doomed: Vec<Vec<u8>> = self.model.keys().step_by(2).cloned().collect();
        for keys in doomed.chunks(16) {
            let mut batch = WriteBatch::new();
            keys.iter().for_each(|key| batch.delete(key).expect("delete"));
            let options = WriteOptions { sync: self.random.chance(1, 8) };
            if let Err(error) = self.db.write(batch, &options) {
                panic!("{}: delete: {error}\n{}", self.note, self.db.property("varve.stats").expect("stats"));
            }
            keys.iter().for_each(|key| drop(self.model.remove(key)));
        }
    }

    fn reopen(self) -> Filled {
        let Filled { env, image, options, db, model, random, in_order, next, value_bytes, note } = self;
        db.close().unwrap_or_else(|error| panic!("{note}: close: {error}"));
        // The store goes with it.
        drop(db);
        let media = image.media(&env).expect("store");
        let db = Db::open(&env, media, options.clone()).unwrap_or_else(|error| panic!("{note}: open: {error}"));
        Filled { env, image, options, db, model, random, in_order, next, value_bytes, note }
    }

    /// Left alone, it comes to rest, although it is full: nothing is tried again and again.
    fn rests(&self) {
        self.env.sleep(Duration::from_secs(200));
        let done = || {
            let counters = self.db.statistics().counters;
            (counters.compactions, counters.background_errors, self.image.table_bytes_written())
        };
        let before = done();
        self.env.sleep(Duration::from_secs(200));
        assert_eq!(done(), before, "{}", self.note);
    }

    fn end(self) {
        self.verify("at the end");
        assert_eq!(self.db.check().expect("check"), [], "{}", self.note);
        self.db.close().expect("close");
        assert_eq!(self.image.device_errors(), 0, "{}: a rule of the device was broken", self.note);
    }
}

/// What is done after the deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Nothing,
    Wait,
    Compact,
    Reopen,
}

fn fill_and_recover(kind: Kind, space_bytes: u64, tree: TreeKind, in_order: bool, after: After, seed: u64) {
    let mut filled = Filled::new(kind, space_bytes, tree, in_order, seed);
    filled.note = format!("{}, then {after:?}", filled.note);
    let note = filled.note.clone();
    assert_eq!(filled.state(), WriteState::Open, "{note}");
    let (_, error) = filled.fill();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{note}: {error}");
    assert!(matches!(error, Error::OutOfSpace { .. }), "{note}: {error}");
    // Elsewhere a smaller write may still be taken.
    if kind != Kind::EXTENT {
        assert!(matches!(filled.state(), WriteState::DeletesOnly | WriteState::Full), "{note}: {:?}", filled.state());
        let text = filled.db.property("varve.write-state").expect("property");
        assert!(text.contains("bytes are available"), "{note}: {text}");
    }
    filled.verify("when full");
    let full = filled.model.len();
    if after == After::Reopen {
        filled = filled.reopen();
        filled.verify("reopened when full");
        let (_, error) = filled.fill();
        assert!(matches!(error, Error::OutOfSpace { .. }), "{note}: {error}");
    }
    filled.delete_half();
    let kept = filled.model.len();
    let available = |filled: &Filled| filled.db.statistics().space.expect("space").available_bytes;
    let before = available(&filled);
    match after {
        After::Nothing => {}
        After::Wait => filled.db.wait_idle().unwrap_or_else(|error| panic!("{note}: {error}")),
        After::Compact => {
            filled.db.compact_range(None, None).unwrap_or_else(|error| panic!("{note}: {error}"));
            let deletions: u64 = filled.db.statistics().levels().iter().map(|level| level.deletions).sum();
            assert_eq!(deletions, 0, "{note}");
            assert!(available(&filled) > before, "{note}: {before}, {}", available(&filled));
        }
        After::Reopen => filled = filled.reopen(),
    }
    filled.verify("after deletes");
    let (taken, error) = filled.fill();
    println!("{note}: {full} pairs, {kept} after deletes, {taken} more");
    assert!(matches!(error, Error::OutOfSpace { .. }), "{note}: {error}");
    // With so few bands a part of one is much.
    let is_tiny = kind != Kind::EXTENT && space_bytes < 14 * BAND_BYTES;
    let stats = filled.db.property("varve.stats").expect("stats");
    assert!(is_tiny || taken * 3 >= full - kept, "{note}: {full} pairs, {kept} kept, {taken} more\n{stats}");
    filled.verify("full again");
    filled.rests();
    filled.reopen().end();
}

#[test]
fn deletes_bring_back_the_space_of_a_device_out_of_bands() {
    for tree in trees::with_tables() {
        for (bands, in_order) in [12, 14, 24].into_iter().flat_map(|bands| [(bands, true), (bands, false)]) {
            for (after, seed) in [After::Nothing, After::Wait, After::Compact, After::Reopen].into_iter().zip(0..) {
                fill_and_recover(Kind::BAND, bands * BAND_BYTES, tree, in_order, after, 10 * bands + seed);
            }
        }
    }
}

#[test]
fn deletes_bring_back_the_space_of_bands_of_variable_size() {
    for (tree, seed) in trees::with_tables_and_seeds(600, 20) {
        for (bands, in_order) in [14, 24].into_iter().flat_map(|bands| [(bands, true), (bands, false)]) {
            for (after, seed) in [After::Nothing, After::Compact, After::Reopen].into_iter().zip(seed..) {
                fill_and_recover(Kind::VARIABLE_BANDS, bands * BAND_BYTES, tree, in_order, after, bands + seed);
            }
        }
    }
}

/// Values so large that a table has one or two, and most of its band is empty, yet nothing can be packed.
#[test]
fn large_values_fill_bands_and_make_no_work_without_end() {
    for (tree, seed) in trees::with_tables_and_seeds(400, 10) {
        for (value_bytes, seed) in [BAND_BYTES / 4, BAND_BYTES / 7, BAND_BYTES / 12].into_iter().zip(seed..) {
            let mut filled = Filled::new(Kind::BAND, 20 * BAND_BYTES, tree, false, seed);
            filled.note = format!("{}, values of {value_bytes} bytes and more", filled.note);
            filled.value_bytes = value_bytes;
            let (_, error) = filled.fill();
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{}: {error}", filled.note);
            filled.rests();
            filled.delete_half();
            filled.rests();
            filled.verify("after deletes");
            let (_, error) = filled.fill();
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{}: {error}", filled.note);
            filled.rests();
            filled.reopen().end();
        }
    }
}

#[test]
fn deletes_bring_back_the_space_of_a_full_disk() {
    for (tree, seed) in trees::with_tables_and_seeds(0, 1) {
        for (after, seed) in [After::Nothing, After::Compact, After::Reopen].into_iter().zip(10 * seed..) {
            fill_and_recover(Kind::EXTENT, 2 << 20, tree, seed % 2 == 0, after, seed);
        }
    }
}

/// A put waits as long as a compaction may bring space; a delete that comes behind it does not.
#[test]
fn deletes_go_before_puts_that_wait_for_space() {
    let mut tried = 0;
    for (tree, seed) in trees::with_tables().flat_map(|tree| (800..830).map(move |seed| (tree, seed))) {
        let mut filled = Filled::new(Kind::BAND, 24 * BAND_BYTES, tree, false, seed);
        let (_, error) = filled.fill();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{}: {error}", filled.note);
        filled.db.close().expect("close");
        let Filled { env, image, options, db, model, note, .. } = filled;
        drop(db);
        let slow = FaultEffect::Stall(Duration::from_millis(20));
        let slow = Fault::new(Operation::Write, FaultTrigger::From(0), slow).on_class(IoClass::Compaction);
        let media = image.media_under(&env, Some(&FaultInjector::new(&env, FaultPlan::of(slow)))).expect("store");
        let db = Db::open(&env, media, options).unwrap_or_else(|error| panic!("{note}: open: {error}"));
        let compacted = Arc::new(AtomicBool::new(false));
        let (of_compaction, has_compacted) = (db.clone(), compacted.clone());
        let compaction = env.spawn("compaction", move || {
            let result = of_compaction.compact_range(None, None);
            has_compacted.store(true, Ordering::SeqCst);
            result
        });
        env.sleep(Duration::from_millis(1));
        let of_put = db.clone();
        let put = env.spawn("put", move || of_put.put(b"put", &[7; 600]));
        env.sleep(Duration::from_millis(5));
        let doomed: Vec<Vec<u8>> = model.keys().take(5).cloned().collect();
        // Some trees have nothing to compact when they are full.
        let is_over = compacted.load(Ordering::SeqCst);
        tried += u32::from(!is_over);
        for key in &doomed {
            db.delete(key).unwrap_or_else(|error| panic!("{note}: delete: {error}"));
            assert!(is_over || !compacted.load(Ordering::SeqCst), "{note}: the delete waited for the compaction");
        }
        compaction.join().expect("compaction").unwrap_or_else(|error| panic!("{note}: compact: {error}"));
        let taken = put.join().expect("put");
        assert!(taken.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::NoSpace), "{note}: {taken:?}");
        let mut expected = model;
        doomed.iter().for_each(|key| drop(expected.remove(key)));
        if taken.is_ok() {
            expected.insert(b"put".to_vec(), vec![7; 600]);
        }
        let (found, error) = walk_all(&db);
        assert!(error.is_none() && found == expected, "{note}: {error:?}");
        db.close().expect("close");
    }
    assert!(tried >= 45, "deletes beside a compaction were tried {tried} times only");
}

/// A group of writes that is refused for its puts is not refused for its deletes.
#[test]
fn deletes_beside_puts_that_are_refused_are_taken() {
    for (tree, seed) in trees::with_tables().flat_map(|tree| (500..506).map(move |seed| (tree, seed))) {
        let filled = Filled::new(Kind::BAND, 16 * BAND_BYTES, tree, false, seed);
        let (db, note) = (filled.db.clone(), filled.note.clone());
        let putters: Vec<_> = (0..3)
            .map(|thread| {
                let db = db.clone();
                filled.env.spawn(&format!("puts {thread}"), move || {
                    let mut taken = 0;
                    while db.put(&key(10_000 * thread + taken), &[thread as u8; 400]).is_ok() {
                        taken += 1;
                    }
                    taken
                })
            })
            .collect();
        let (env, counted) = (filled.env.clone(), Arc::new(AtomicU32::new(0)));
        let ended = counted.clone();
        let deletes = filled.env.spawn("deletes", move || {
            let mut deleted = 0;
            while ended.load(Ordering::SeqCst) == 0 && deleted < 500 {
                db.delete(&key(200_000 + deleted)).unwrap_or_else(|error| panic!("{note}: delete {deleted}: {error}"));
                deleted += 1;
                env.sleep(Duration::from_micros(5));
            }
            deleted
        });
        let taken: u32 = putters.into_iter().map(|thread| thread.join().expect("puts")).sum();
        counted.store(1, Ordering::SeqCst);
        let deleted = deletes.join().expect("deletes");
        assert!(taken > 200 && deleted > 20, "{}: {taken} puts, {deleted} deletes", filled.note);
        assert!(filled.db.statistics().counters.writes_out_of_space > 0, "{}", filled.note);
    }
}

/// Opens what a power cut left at some of these moments: it is one of two states, the later one having one write more.
fn crash(kind: Kind, points: Vec<Point>, options: &Options, states: [&State; 2], random: &mut Random, note: &str) {
    for point in points {
        let variant = kind.variants()[random.index(kind.variants().len())];
        let seed = random.next_u64();
        let note = format!("{note}, crashed before {} as {variant:?}, image {seed}", point.note);
        let image = point.state.image(variant, seed);
        let env = simulation(seed);
        let media = image.media(&env).unwrap_or_else(|error| panic!("{note}: {error}"));
        let db = Db::open(&env, media, options.clone()).unwrap_or_else(|error| panic!("{note}: {error}"));
        let (found, error) = walk_all(&db);
        assert!(error.is_none() && states.contains(&&found), "{note}: {error:?}");
        assert_eq!(db.check().expect("check"), [], "{note}");
        db.close().unwrap_or_else(|error| panic!("{note}: close: {error}"));
    }
}

/// Some of the moments since the last call.
fn some_of(recorder: &Recorder, random: &mut Random, count: usize) -> Vec<Point> {
    let mut points = std::mem::take(&mut *recorder.points.lock());
    random.shuffle(&mut points);
    points.truncate(count);
    points
}

fn crash_while_space_comes_back(tree: TreeKind, in_order: bool, seed: u64) {
    let kind = Kind::BAND;
    let env = simulation(seed);
    let recorder = Arc::new(Recorder::default());
    let observation = Image::fresh_of(&env, kind, 16 * BAND_BYTES).observed(&env, &recorder);
    let mut filled = Filled::on(env, observation.image.clone(), tree, in_order, seed, "16 bands, crashing");
    let (mut random, note) = (Random::named(seed, "crashes"), filled.note.clone());
    let (_, error) = filled.fill();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{note}: {error}");
    let synced = WriteOptions { sync: true };
    filled.db.write(WriteBatch::new(), &synced).expect("sync");
    some_of(&recorder, &mut random, 0);
    let doomed: Vec<Vec<u8>> = filled.model.keys().step_by(2).cloned().collect();
    for keys in doomed.chunks(8) {
        let before = filled.model.clone();
        let mut batch = WriteBatch::new();
        keys.iter().for_each(|key| batch.delete(key).expect("delete"));
        filled.db.write(batch, &synced).unwrap_or_else(|error| panic!("{note}: delete: {error}"));
        keys.iter().for_each(|key| drop(filled.model.remove(key)));
        let points = some_of(&recorder, &mut random, 2);
        crash(kind, points, &filled.options, [&before, &filled.model], &mut random, &format!("{note}, deleting"));
    }
    filled.db.compact_range(None, None).unwrap_or_else(|error| panic!("{note}: {error}"));
    let points = some_of(&recorder, &mut random, 30);
    let states = [&filled.model, &filled.model];
    crash(kind, points, &filled.options, states, &mut random, &format!("{note}, compacting"));
    for number in 0.. {
        let (key, before) = (key(200_000 + number), filled.model.clone());
        if filled.db.put_with(&key, &[7; 300], &synced).is_err() {
            break;
        }
        filled.model.insert(key, vec![7; 300]);
        let count = usize::from(random.chance(1, 4));
        let points = some_of(&recorder, &mut random, count);
        crash(kind, points, &filled.options, [&before, &filled.model], &mut random, &format!("{note}, putting"));
    }
    drop(observation);
    filled.end();
}

#[test]
fn what_was_synced_survives_crashes_while_space_comes_back() {
    for (tree, seed) in trees::with_tables_and_seeds(300, 10) {
        for (in_order, seed) in [true, false].into_iter().zip(seed..) {
            crash_while_space_comes_back(tree, in_order, seed);
        }
    }
}
