//! Power cuts at every persistence point of a workload that flushes and compacts, and at every
//! persistence point of the recoveries after them.
//!
//! After each: what was acknowledged as durable is there, the state is that after some number of
//! whole batches, in order, and `check` finds nothing.

#[path = "suite/history.rs"]
mod history;
#[path = "suite/medium.rs"]
mod medium;

use history::{History, Step, small_options};
use medium::{Image, Kind, Point, Recorder};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use varve_engine::{Db, Error, Options, WriteOptions};
use varve_env::{Env, Random, SimOptions};
use varve_media::{Fault, FaultEffect, FaultInjector, FaultPlan, FaultTrigger, IoClass, Operation};

const UNIVERSE: u64 = 64;

/// Virtual time no run here needs: a run that takes it hangs.
const TIME_LIMIT: Duration = Duration::from_secs(3600);

/// Threads that verify images.
const THREADS: usize = 2;

fn simulation(seed: u64, perturb: bool) -> Env {
    Env::sim_with(SimOptions { seed, perturb, time_limit: Some(TIME_LIMIT), ..SimOptions::default() })
}

fn open(env: &Env, image: &Image) -> Result<Db, Error> {
    Db::open(env, image.media(env)?, small_options())
}

/// Runs the workload under `faults` and returns what a power cut at each point could leave.
fn record(kind: Kind, seed: u64, history: &History, faults: FaultPlan, options: &Options) -> Vec<Point> {
    let env = simulation(seed, true);
    let recorder = Arc::new(Recorder::default());
    let image = Image::fresh(&env, kind).observed(&env, &recorder);
    let injector = FaultInjector::new(&env, faults);
    let open = |env: &Env, image: &Image| -> Result<Db, Error> {
        Db::open(env, image.media_under(env, Some(&injector))?, options.clone())
    };
    let mut db = open(&env, &image).expect("open");
    let (mut flushes, mut compactions) = (0, 0);
    let mut written = 0;
    for step in history.steps.iter().copied().chain([Step::Reopen { close: true }]) {
        match step {
            Step::Write { sync } => {
                written += 1;
                recorder.begun.store(written, Ordering::SeqCst);
                history.write(&db, written, sync).expect("write");
                if sync {
                    recorder.synced.store(written, Ordering::SeqCst);
                }
            }
            Step::Flush => {
                db.flush().expect("flush");
                recorder.synced.store(written, Ordering::SeqCst);
            }
            Step::CompactAll => {
                db.compact_range(None, None).expect("compact_range");
                recorder.synced.store(written, Ordering::SeqCst);
            }
            Step::WaitIdle => db.wait_idle().expect("wait_idle"),
            Step::Sleep => env.sleep(Duration::from_millis(1)),
            Step::Reopen { close } => {
                let counters = db.statistics().counters;
                flushes += counters.flushes;
                compactions += counters.compactions;
                if close {
                    db.close().expect("close");
                }
                drop(db);
                db = open(&env, &image).expect("reopen");
                recorder.synced.store(written, Ordering::SeqCst);
                history.compare(&db, written).expect("state after reopening");
            }
        }
    }
    db.close().expect("close");
    drop(db);
    assert!(flushes >= 8 && compactions >= 4, "{flushes} flushes and {compactions} compactions are too few");
    std::mem::take(&mut recorder.points.lock())
}

/// Opens an image and verifies it; the points of that recovery when `recorder` is given.
fn recover(
    image: &Image,
    seed: u64,
    history: &History,
    allowed: RangeInclusive<usize>,
    recorder: Option<&Arc<Recorder>>,
) -> Result<usize, String> {
    let env = simulation(seed, seed.is_multiple_of(4));
    let observed = recorder.map(|recorder| image.observed(&env, recorder));
    let image = observed.as_ref().unwrap_or(image);
    let db = open(&env, image).map_err(|error| format!("open failed: {error}"))?;
    let points = recorder.map(|recorder| recorder.points.lock().len());
    let count = history.verify(&db, allowed)?;
    let findings = db.check().map_err(|error| format!("check failed: {error}"))?;
    if !findings.is_empty() {
        return Err(format!("check found {findings:?}"));
    }
    if let (Some(recorder), Some(points)) = (recorder, points) {
        recorder.points.lock().truncate(points);
    } else if seed.is_multiple_of(5) {
        // Life goes on: what is written now is there after another opening.
        db.put_with(b"after", b"the crash", &WriteOptions { sync: true })
            .map_err(|error| format!("a write after recovery failed: {error}"))?;
        drop(db);
        let db = open(&env, image).map_err(|error| format!("the second open failed: {error}"))?;
        let found = db.get(b"after").map_err(|error| error.to_string())?;
        if found.as_deref() != Some(b"the crash") {
            return Err(format!("a synced write after recovery is gone: {found:?}"));
        }
        db.delete(b"after").map_err(|error| error.to_string())?;
        history.compare(&db, count)?;
    }
    Ok(count)
}

/// Calls `work` for each number below `count`, on several threads.
fn in_parallel(count: usize, work: impl Fn(usize) + Send + Sync + 'static) {
    let env = Env::real();
    let (work, next) = (Arc::new(work), Arc::new(AtomicUsize::new(0)));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (work, next) = (work.clone(), next.clone());
            env.spawn("verifier", move || {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= count {
                        return;
                    }
                    work(number);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap_or_else(|panic| panic.resume());
    }
}

fn crash_at_every_point(kind: Kind, seed: u64, history: History, faults: FaultPlan, options: &Options) {
    let history = Arc::new(history);
    let points = Arc::new(record(kind, seed, &history, faults, options));
    let images = Arc::new(AtomicUsize::new(0));
    let (count, counted) = (points.len(), images.clone());
    in_parallel(count, move |number| {
        let point = &points[number];
        for (position, &variant) in kind.variants().iter().enumerate() {
            // Variants that differ by seed come twice where there are fewer than eight.
            let repeats = if variant.is_random() && kind != Kind::Plain { 2 } else { 1 };
            for repeat in 0..repeats {
                let image_seed = seed ^ (number * 64 + position * 2 + repeat) as u64;
                let image = point.state.image(variant, image_seed);
                if let Err(what) = recover(&image, image_seed, &history, point.synced..=point.begun, None) {
                    panic!(
                        "{kind:?} seed {seed} point {number} ({}) {variant:?} image seed {image_seed}: {what}",
                        point.note
                    );
                }
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    println!("{kind:?} seed {seed}: {count} points, {} images", images.load(Ordering::Relaxed));
}

/// Crashes during recoveries from seeded crashed states, at every point, and once more during the
/// recovery after each.
fn crash_during_recovery(kind: Kind, seed: u64, batches: usize, states: usize) {
    let history = Arc::new(History::new(seed, batches, UNIVERSE));
    let points = Arc::new(record(kind, seed, &history, slow_flushes(), &small_options()));
    let counts: Arc<[AtomicUsize; 3]> = Arc::default();
    let counted = counts.clone();
    in_parallel(states, move |number| {
        let mut random = Random::named(seed, &format!("crashed state {number}"));
        let point = &points[random.index(points.len())];
        let allowed = point.synced..=point.begun;
        let variants = kind.variants();
        let (variant, image_seed) = (variants[random.index(variants.len())], random.next_u64());
        let state = format!("{kind:?} seed {seed} state {number} ({}, {variant:?}, {image_seed})", point.note);
        let image = point.state.image(variant, image_seed);
        let first = Arc::new(Recorder::default());
        let _ = recover(&image, image_seed, &history, allowed.clone(), Some(&first))
            .unwrap_or_else(|what| panic!("{state}: {what}"));
        let first = std::mem::take(&mut *first.points.lock());
        for (at, during) in first.iter().enumerate() {
            let (variant, image_seed) = (variants[random.index(variants.len())], random.next_u64());
            let state = format!("{state}, again at point {at} ({}, {variant:?}, {image_seed})", during.note);
            let image = during.state.image(variant, image_seed);
            let second = Arc::new(Recorder::default());
            let _ = recover(&image, image_seed, &history, allowed.clone(), Some(&second))
                .unwrap_or_else(|what| panic!("{state}: {what}"));
            counted[0].fetch_add(1, Ordering::Relaxed);
            let second = std::mem::take(&mut *second.points.lock());
            if second.is_empty() {
                continue;
            }
            let during = &second[random.index(second.len())];
            let (variant, image_seed) = (variants[random.index(variants.len())], random.next_u64());
            let image = during.state.image(variant, image_seed);
            let _ = recover(&image, image_seed, &history, allowed.clone(), None).unwrap_or_else(|what| {
                panic!("{state}, once more ({}, {variant:?}, {image_seed}): {what}", during.note)
            });
            counted[1].fetch_add(1, Ordering::Relaxed);
        }
    });
    let [once, twice, _] = &*counts;
    let (once, twice) = (once.load(Ordering::Relaxed), twice.load(Ordering::Relaxed));
    println!("{kind:?} seed {seed}: {states} crashed states, {once} crashes of recoveries, {twice} of second ones");
    assert!(once > 4 * states && twice > 4 * states, "{once} and {twice} crashes during recoveries are too few");
}

/// Flushes so slow that several memtables wait and their logs pile up.
fn slow_flushes() -> FaultPlan {
    let stall = FaultEffect::Stall(Duration::from_millis(3));
    FaultPlan::of(Fault::new(Operation::Write, FaultTrigger::From(0), stall).on_class(IoClass::Flush))
}

/// A history that is not interrupted by waits for flushes.
fn hurried(seed: u64, batches: usize) -> History {
    let mut history = History::new(seed, batches, UNIVERSE);
    history.steps.retain(|step| !matches!(step, Step::Flush | Step::CompactAll | Step::WaitIdle));
    history
}

#[test]
fn plain_survives_a_crash_at_every_point() {
    crash_at_every_point(Kind::Plain, 1, History::new(1, 160, UNIVERSE), FaultPlan::default(), &small_options());
}

#[test]
fn extent_survives_a_crash_at_every_point() {
    crash_at_every_point(Kind::Extent, 2, History::new(2, 160, UNIVERSE), FaultPlan::default(), &small_options());
}

#[test]
fn ext4_layout_survives_a_crash_at_every_point() {
    crash_at_every_point(Kind::ExtentExt4, 3, History::new(3, 100, UNIVERSE), FaultPlan::default(), &small_options());
}

#[test]
fn plain_survives_a_crash_while_logs_pile_up() {
    crash_at_every_point(Kind::Plain, 6, hurried(6, 160), slow_flushes(), &small_options());
}

#[test]
fn extent_survives_a_crash_while_logs_pile_up() {
    crash_at_every_point(Kind::Extent, 7, hurried(7, 160), slow_flushes(), &small_options());
}

/// Unsynced writes wait in the process until they are many, or one is synced.
#[test]
fn a_log_that_is_held_back_loses_nothing_that_was_synced() {
    let options = Options { log_buffer_size: Some(2 << 10), ..small_options() };
    crash_at_every_point(Kind::Plain, 9, hurried(9, 160), slow_flushes(), &options);
    crash_at_every_point(Kind::Extent, 10, hurried(10, 160), slow_flushes(), &options);
}

#[test]
fn plain_survives_crashes_during_recovery() {
    crash_during_recovery(Kind::Plain, 4, 120, 200);
}

#[test]
fn extent_survives_crashes_during_recovery() {
    crash_during_recovery(Kind::Extent, 5, 120, 200);
}

/// What the suite would say of a database that does not sync: here the medium lies to it.
#[test]
fn a_medium_that_loses_syncs_is_noticed() {
    let lose = |operation| Fault::new(operation, FaultTrigger::From(0), FaultEffect::Lose);
    for (operation, class) in [
        (Operation::Sync, Some(IoClass::Log)),
        (Operation::Sync, Some(IoClass::Flush)),
        (Operation::SyncDirectory, None),
    ] {
        let history = History::new(8, 80, UNIVERSE);
        let fault = Fault { class, ..lose(operation) };
        let points = record(Kind::Plain, 8, &history, FaultPlan::of(fault), &small_options());
        let wrong = points.iter().any(|point| {
            Kind::Plain.variants().iter().any(|&variant| {
                let image = point.state.image(variant, 8);
                recover(&image, 1, &history, point.synced..=point.begun, None).is_err()
            })
        });
        assert!(wrong, "{operation} of {class:?} is not needed");
    }
}
