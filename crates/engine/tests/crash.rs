//! Power cuts at every persistence point of a workload that flushes and compacts, and at every
//! persistence point of the recoveries after them.
//!
//! After each: what was acknowledged as durable is there, the state is that after some number of
//! whole batches, in order, and `check` finds nothing. How many points, images and recoveries that
//! must be is asserted, so that a change of the workload cannot quietly test less.

#[path = "suite/history.rs"]
mod history;
#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;
#[path = "suite/options.rs"]
mod options;
#[path = "suite/parallel.rs"]
mod parallel;
#[path = "suite/seeds.rs"]
mod seeds;
#[path = "suite/totals.rs"]
mod totals;
#[path = "suite/trees.rs"]
#[allow(dead_code)]
mod trees;

use history::{History, Step};
use medium::{CrashState, FULL_DISK_BALLAST, Image, Kind, Point, Recorder, check_ballast, imr_kinds};
use options::short_option_set;
use parallel::in_parallel;
use parking_lot::Mutex;
use seeds::{Reached, run_seeds};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use totals::verify_totals;
use varve_engine::{Db, Error, ErrorKind, Options, TreeKind, WriteOptions};
use varve_env::{Env, Random, SimOptions};
use varve_media::{CrashVariant, Fault, FaultEffect, FaultInjector, FaultPlan, FaultTrigger, IoClass, Operation};
use varve_store::{FileStore, Severity, StoreMeasure};

const UNIVERSE: u64 = 64;

/// Images of every point, at least: the variants, those that differ by seed once more where they are few.
const IMAGES_PER_POINT_MIN: usize = 6;

/// Tops that a workload on an interlaced disk must make a store save, at least.
const REWRITES_MIN: u64 = 8;

/// Crashed states from which recoveries are crashed, at least.
const CRASHED_STATES_MIN: usize = 200;

/// Points of a workload that flushes ranges of keys, at least, at which one waits and others have entries.
const POINTS_BESIDE_MIN: usize = 10;

/// The same at which all others wait behind one, where all are flushed now and then.
const POINTS_BEHIND_MIN: usize = 3;

/// Workloads whose options a seed draws, and their batches.
const DRAWN_SEEDS: u64 = 16;
/// Points of a drawn workload on an array at which the power is cut, about.
const DRAWN_ARRAY_POINTS: usize = 400;
const DRAWN_BATCHES: usize = 40;

/// Points of a workload on an array at which the power is cut.
const ARRAY_POINTS: usize = 600;

/// Virtual time no run here needs: a run that takes it hangs.
const TIME_LIMIT: Duration = Duration::from_secs(3600);

fn simulation(seed: u64, perturb: bool) -> Env {
    Env::sim_with(SimOptions { seed, perturb, time_limit: Some(TIME_LIMIT), ..SimOptions::default() })
}

fn open(env: &Env, image: &Image, history: &History) -> Result<Db, Error> {
    Db::open(env, image.media(env)?, history.options.clone())
}

/// As [`open`], once what is beside the database on an interlaced disk was found whole.
fn open_beside(env: &Env, image: &Image, history: &History) -> Result<Db, String> {
    let media = image.media(env).map_err(|error| format!("the store does not open: {error}"))?;
    if image.part(0).has_tracks() {
        check_ballast(&**media.files.as_ref().expect("files"), FULL_DISK_BALLAST)?;
    }
    Db::open(env, media, history.options.clone()).map_err(|error| format!("open failed: {error}"))
}

/// What a workload on a store of interlaced disks did to it.
#[derive(Clone, Copy, Debug, Default)]
struct Strain {
    /// Tops saved and restored.
    rewrites: u64,
    /// Percent of the tracks that held live tables, at the fullest moment seen.
    fullest_percent: u64,
}

impl Strain {
    fn see_space(&mut self, files: &dyn FileStore) {
        let space = files.space().expect("space");
        let live = space.total_bytes - space.available_bytes;
        self.fullest_percent = self.fullest_percent.max(live * 100 / space.total_bytes.max(1));
    }

    fn see_end(&mut self, files: &dyn FileStore) {
        let of_rewrites = |measure: &&StoreMeasure| measure.name == "rewrites";
        self.rewrites += files.statistics().iter().find(of_rewrites).map_or(0, |measure| measure.value);
    }
}

/// A workload that ran: what a power cut at each point could leave, and what it did.
struct Run {
    points: Vec<Point>,
    strain: Strain,
    work: Work,
    /// Of tables.
    written_bytes: u64,
}

/// What databases counted from opening to opening.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    flushes: u64,
    range_flushes: u64,
    compactions: u64,
    pieces: u64,
    bursts: u64,
    log_waits: u64,
}

impl Work {
    fn add(&mut self, db: &Db) {
        let counters = db.statistics().counters;
        self.flushes += counters.flushes;
        self.range_flushes += counters.range_flushes;
        self.compactions += counters.compactions;
        self.pieces += counters.compaction_pieces;
        self.bursts += counters.bursts;
        self.log_waits += counters.log_waits_for_bursts;
    }
}

/// A point while a range of keys waits for its flush, or is flushed, and two other memtables or more have entries.
const BESIDE_A_RANGE: u64 = 1;

/// A point while all other memtables wait behind a range.
const ALL_BEHIND_A_RANGE: u64 = 2;

/// What a point is called at which memory holds this, as `varve.memtables` lists it.
fn tag_of(memtables: &str) -> u64 {
    let groups: Vec<Vec<&str>> = memtables.lines().map(|line| line.split(' ').collect()).collect();
    let filled = |group: &[&str]| group[4].parse::<u64>().expect("memtables that have entries");
    match &groups[..] {
        [range, others @ ..] if range[..2] == ["waiting", "some"] => {
            let are_beside = others.iter().map(|group| filled(group)).sum::<u64>() >= 2;
            let are_behind = others.len() > 1 && others[0][..2] == ["waiting", "all"];
            (u64::from(are_beside) * BESIDE_A_RANGE) | (u64::from(are_behind) * ALL_BEHIND_A_RANGE)
        }
        _ => 0,
    }
}

/// Runs the workload under `faults`, which must flush and compact some times.
fn record(kind: Kind, seed: u64, history: &History, faults: FaultPlan) -> (Vec<Point>, Strain) {
    let Run { points, strain, work, written_bytes } = run(kind, seed, history, faults);
    let Work { flushes, range_flushes, compactions, pieces, bursts, log_waits } = work;
    let (flushes_min, compactions_min) = match history.options.tree_kind() {
        tree if !trees::fixture(tree).has_tables => (0, 4),
        _ if kind.is_imr() => (4, 2),
        _ => (8, 4),
    };
    assert!(
        flushes >= flushes_min && compactions >= compactions_min,
        "{flushes} flushes and {compactions} compactions are too few"
    );
    if history.options.flush_key_ranges.unwrap_or_default() {
        println!("{kind:?} seed {seed}: {range_flushes} of {flushes} flushes are of ranges");
        assert!(range_flushes >= 5, "{range_flushes} of {flushes} flushes are of ranges");
        let count = |tag: u64| points.iter().filter(|point| point.tag & tag != 0).count();
        let (beside, behind) = (count(BESIDE_A_RANGE), count(ALL_BEHIND_A_RANGE));
        println!("{kind:?} seed {seed}: {beside} points beside a range that waits, {behind} of all behind one");
        assert!(beside >= POINTS_BESIDE_MIN, "{beside} points while a range waits and others have entries are too few");
        let flushes_all = history.steps.contains(&Step::Flush);
        assert!(
            !flushes_all || behind >= POINTS_BEHIND_MIN,
            "{behind} points while all wait behind a range are too few"
        );
    }
    if history.options.pace_background_work.unwrap_or_default()
        && history.options.max_write_stall_ms.unwrap_or_default() > 0
    {
        println!("{kind:?} seed {seed}: {bursts} bursts, for which {log_waits} log writes waited");
        assert!(bursts >= 5 && log_waits > 0, "{bursts} bursts, for which {log_waits} log writes waited, are too few");
    }
    if history.options.compact_in_pieces.unwrap_or_default() {
        println!("{kind:?} seed {seed}: {pieces} pieces of {compactions} compactions");
        assert!(pieces >= 20, "{pieces} pieces of {compactions} compactions are too few");
    }
    let around = kind != Kind::EXTENT_NEXT_FIT || written_bytes > medium::SMALL_DEVICE_FREE_BYTES;
    assert!(around, "{written_bytes} bytes of tables do not go around the device");
    if kind.is_imr() {
        println!("{kind:?} seed {seed}: {strain:?}");
        assert!(strain.rewrites >= REWRITES_MIN && strain.fullest_percent >= 90, "{kind:?}: {strain:?} is too little");
    }
    (points, strain)
}

/// Runs the workload under `faults`.
fn run(kind: Kind, seed: u64, history: &History, faults: FaultPlan) -> Run {
    let env = simulation(seed, true);
    let recorder = Arc::new(Recorder::default());
    let observation = Image::fresh(&env, kind).observed(&env, &recorder);
    let image = &observation.image;
    let injector = FaultInjector::new(&env, faults);
    let open = || {
        let media = image.media_under(&env, Some(&injector)).expect("media");
        let files = media.files.clone().expect("files");
        (Db::open(&env, media, history.options.clone()).expect("open"), files)
    };
    let (mut db, mut files) = open();
    let mut strain = Strain::default();
    let mut work = Work::default();
    // Nobody else may hold it when it is dropped.
    let watched: Arc<Mutex<Option<Db>>> = Arc::default();
    if history.options.flush_key_ranges.unwrap_or_default() {
        let watched = watched.clone();
        let tag = move |db: &Db| tag_of(&db.property("varve.memtables").expect("of trees of tables"));
        *recorder.sampler.lock() = Some(Box::new(move || Some(watched.lock().as_ref().map_or(0, tag))));
    }
    let mut written = 0;
    for step in history.steps.iter().copied().chain([Step::Reopen { close: true }]) {
        watched.lock().get_or_insert_with(|| db.clone());
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
                work.add(&db);
                *watched.lock() = None;
                if close {
                    db.close().expect("close");
                }
                strain.see_end(&*files);
                drop((db, files));
                (db, files) = open();
                recorder.synced.store(written, Ordering::SeqCst);
                history.compare(&db, written).expect("state after reopening");
            }
        }
        strain.see_space(&*files);
    }
    db.close().expect("close");
    strain.see_end(&*files);
    drop((db, files));
    assert_eq!(image.destroyed_bytes(), 0, "live data was destroyed");
    let points = std::mem::take(&mut *recorder.points.lock());
    assert_eq!(points.len() as u64, observation.points(), "points of {kind:?} that nobody recorded");
    let written_bytes = image.table_bytes_written();
    Run { points, strain, work, written_bytes }
}

/// A power cut can come before every operation that persists something.
fn assert_all_operations(kind: Kind, points: &[Point]) {
    use Operation::{Open, Remove, Rename, Sync, SyncDirectory, Write};
    // On a device renames and deletes are writes and syncs too.
    let operations: &[Operation] =
        if kind.is_plain() { &[Open, Write, Sync, Rename, Remove, SyncDirectory] } else { &[Write, Sync] };
    for &operation in operations {
        let count = points.iter().filter(|point| point.operation == operation).count();
        assert!(count >= 3, "{count} points before a {operation} of {kind:?} are too few");
    }
}

/// The database is in an allowed state, and whole, and what it counted is what was done; the number of batches it has
/// seen.
fn examine(db: &Db, history: &History, allowed: RangeInclusive<usize>) -> Result<usize, String> {
    let count = history.verify(db, allowed)?;
    let totals = verify_totals(db)?;
    let (entries, bytes) = history.written(count);
    if totals.flush_user_entries == entries && totals.flush_user_bytes != bytes || totals.flush_user_entries > entries {
        return Err(format!("{entries} entries of {bytes} bytes were written, and the totals are {totals:?}"));
    }
    let findings = db.check().map_err(|error| format!("check failed: {error}"))?;
    if !findings.is_empty() {
        return Err(format!("check found {findings:?}"));
    }
    Ok(count)
}

/// What an opening for reading finds, which changes nothing; `None` before there is a database.
fn read_only(
    env: &Env,
    image: &Image,
    history: &History,
    allowed: RangeInclusive<usize>,
) -> Result<Option<usize>, String> {
    let before = image.changes();
    let media = image.only_read().media(env).map_err(|error| format!("the store does not open: {error}"))?;
    let db = match Db::open_read_only(env, media, history.options.clone()) {
        Ok(db) => db,
        Err(error) if error.kind() == ErrorKind::NotFound && *allowed.start() == 0 => return Ok(None),
        Err(error) => return Err(format!("open_read_only failed: {error}")),
    };
    let count = history.verify(&db, allowed)?;
    verify_totals(&db)?;
    let findings = db.check().map_err(|error| format!("check failed: {error}"))?;
    if findings.iter().any(|finding| finding.severity >= Severity::Error) {
        return Err(format!("check for reading found {findings:?}"));
    }
    drop(db);
    match image.changes() - before {
        0 => Ok(Some(count)),
        changes => Err(format!("{changes} changes by an opening for reading")),
    }
}

/// Opens an image and verifies it.
fn recover(image: &Image, seed: u64, history: &History, allowed: RangeInclusive<usize>) -> Result<usize, String> {
    let env = simulation(seed, seed.is_multiple_of(4));
    let read = if seed.is_multiple_of(6) { read_only(&env, image, history, allowed.clone())? } else { None };
    let db = open_beside(&env, image, history)?;
    let count = examine(&db, history, allowed)?;
    if read.is_some_and(|read| read != count) {
        return Err(format!("an opening for reading found {read:?} batches, one for writing {count}"));
    }
    if seed.is_multiple_of(5) {
        // Life goes on: what is written now is there after another opening.
        db.put_with(b"after", b"the crash", &WriteOptions { sync: true })
            .map_err(|error| format!("a write after recovery failed: {error}"))?;
        drop(db);
        let db = open(&env, image, history).map_err(|error| format!("the second open failed: {error}"))?;
        let found = db.get(b"after").map_err(|error| error.to_string())?;
        if found.as_deref() != Some(b"the crash") {
            return Err(format!("a synced write after recovery is gone: {found:?}"));
        }
        db.delete(b"after").map_err(|error| error.to_string())?;
        history.compare(&db, count)?;
    }
    Ok(count)
}

/// A recovery, seen from its media.
struct Recovery {
    /// Batches it found.
    count: usize,
    /// Every persistence point of it.
    points: Vec<Point>,
    /// What a power cut right after it could leave.
    end: CrashState,
}

/// As [`recover`], with every point of the opening recorded.
fn recover_observed(
    image: &Image,
    seed: u64,
    history: &History,
    allowed: RangeInclusive<usize>,
) -> Result<Recovery, String> {
    let env = simulation(seed, seed.is_multiple_of(4));
    let recorder = Arc::new(Recorder::default());
    let observation = image.observed(&env, &recorder);
    let db = open_beside(&env, &observation.image, history)?;
    let opened = recorder.points.lock().len();
    let end = observation.capture();
    // Workers may have begun meanwhile.
    let passed = observation.points() as usize;
    let mut points = std::mem::take(&mut *recorder.points.lock());
    // A recovery writes a manifest and a log, whatever it finds.
    if opened < 4 || !(opened..=points.len()).contains(&passed) {
        return Err(format!("{opened} to {} of {passed} points of a recovery were recorded", points.len()));
    }
    points.truncate(opened);
    let count = examine(&db, history, allowed)?;
    Ok(Recovery { count, points, end })
}

/// Crashes a workload at every point, in every variant; how many points and images that were.
fn crash_at_every_point(kind: Kind, seed: u64, history: History, faults: FaultPlan) -> (usize, usize) {
    let history = Arc::new(history);
    let points = Arc::new(record(kind, seed, &history, faults).0);
    assert_all_operations(kind, &points);
    // Variants that differ by seed come twice where there are fewer than eight, or several media.
    let repeats = move |variant: CrashVariant| if variant.is_random() && kind != Kind::PLAIN { 2 } else { 1 };
    let per_point: usize = kind.variants().iter().map(|&variant| repeats(variant)).sum();
    assert!(per_point >= IMAGES_PER_POINT_MIN, "{per_point} images of a point are too few");
    let images = Arc::new(AtomicUsize::new(0));
    let (count, counted) = (points.len(), images.clone());
    in_parallel(count, move |number| {
        let point = &points[number];
        for (position, &variant) in kind.variants().iter().enumerate() {
            for repeat in 0..repeats(variant) {
                let image_seed = seed ^ (number * 64 + position * 2 + repeat) as u64;
                let image = point.state.image(variant, image_seed);
                if let Err(what) = recover(&image, image_seed, &history, point.synced..=point.begun) {
                    panic!(
                        "{kind:?} seed {seed} point {number} ({}) {variant:?} image seed {image_seed}: {what}",
                        point.note
                    );
                }
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let images = images.load(Ordering::Relaxed);
    println!("reached: crash/{}: {count} points, {images} images", kind.name());
    assert_eq!(images, count * per_point, "images that nobody looked at");
    (count, images)
}

/// Crashes a workload at every point, in `images_per_point` variants of each, all of them in turn; how many
/// images that were.
fn crash_at_every_point_in_turn(kind: Kind, seed: u64, history: History, images_per_point: usize) -> usize {
    crash_in_turn_under(FaultPlan::default(), kind, seed, history, images_per_point)
}

/// The same of a workload under `faults`.
fn crash_in_turn_under(faults: FaultPlan, kind: Kind, seed: u64, history: History, images_per_point: usize) -> usize {
    let history = Arc::new(history);
    let points = Arc::new(record(kind, seed, &history, faults).0);
    assert_all_operations(kind, &points);
    let (count, images) = (points.len(), Arc::new(AtomicUsize::new(0)));
    let counted = images.clone();
    in_parallel(count * images_per_point, move |number| {
        let (point, variants) = (&points[number / images_per_point], kind.variants());
        let variant = variants[number % variants.len()];
        let image_seed = seed ^ (number as u64) << 8;
        let image = point.state.image(variant, image_seed);
        if let Err(what) = recover(&image, image_seed, &history, point.synced..=point.begun) {
            panic!("{kind:?} seed {seed} image {number} ({}) {variant:?} image seed {image_seed}: {what}", point.note);
        }
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let images = images.load(Ordering::Relaxed);
    println!("reached: crash/{}: {count} points, {images} images", kind.name());
    assert_eq!(images, count * images_per_point, "images that nobody looked at");
    images
}

/// Crashes a workload whose medium and options a seed draws, at every point, in one variant each, all of them in turn.
fn crash_under_drawn_options(seed: u64) -> Result<Reached, String> {
    let mut random = Random::named(seed, "crashes");
    let mut kinds = medium::kinds(|_| true);
    kinds.push(imr_kinds()[random.index(imr_kinds().len())]);
    let kind = kinds[random.index(kinds.len())];
    let tree = trees::draw(&mut random);
    let drawn = short_option_set(tree, seed);
    // Little is written: tables are small where they come one by one.
    let options = match drawn.compact_in_pieces.unwrap_or_default() && trees::fixture(tree).has_ranges_and_pieces {
        true => Options { target_file_size_base: 1 << 10, max_subcompactions: 1, ..drawn },
        false => drawn,
    };
    let history = History { options, ..History::new(seed, DRAWN_BATCHES, UNIVERSE) };
    let faults = if random.chance(1, 3) { slow_flushes() } else { FaultPlan::default() };
    let ran = run(kind, seed, &history, faults);
    let mut reached = Reached::from([
        ("flushes", ran.work.flushes),
        ("range flushes", ran.work.range_flushes),
        ("compactions", ran.work.compactions),
        ("pieces", ran.work.pieces),
    ]);
    // A write of an array is many of its members.
    let stride = if kind.is_array() { 1 + ran.points.len() / DRAWN_ARRAY_POINTS } else { 1 };
    for (number, point) in ran.points.iter().enumerate().step_by(stride) {
        let variant = kind.variants()[number / stride % kind.variants().len()];
        let image_seed = seed ^ (number as u64) << 8;
        let image = point.state.image(variant, image_seed);
        recover(&image, image_seed, &history, point.synced..=point.begun).map_err(|what| {
            let place = format!("point {number} ({}) {variant:?}", point.note);
            format!("{kind:?} {place} image seed {image_seed}: {what}\n  {:?}", history.options)
        })?;
        *reached.entry("images").or_default() += 1;
    }
    Ok(reached)
}

/// The same with memtables divided by keys, several of which wait for a flush of some.
fn with_key_ranges(history: History) -> History {
    let options = Options {
        tree: Some(TreeKind::TwoLevel),
        flush_key_ranges: Some(true),
        write_buffer_size: 6 << 10,
        // Logs that nobody synced are what a table of some keys must not be ahead of.
        log_buffer_size: None,
        ..history.options
    };
    let steps = history.steps.into_iter().filter(|step| !matches!(step, Step::Flush | Step::CompactAll)).collect();
    History { options, steps, ..history }
}

/// The same with all that is in memory flushed a few times, and all keys compacted, while a range waits or not.
fn with_flushes_of_all(history: History) -> History {
    let followed = |(number, step): (usize, Step)| match number % 90 {
        44 => vec![step, Step::Flush],
        89 => vec![step, Step::CompactAll],
        _ => vec![step],
    };
    let steps = history.steps.into_iter().enumerate().flat_map(followed).collect();
    History { steps, ..history }
}

#[test]
fn any_crash_leaves_a_prefix_of_the_history_where_ranges_of_keys_are_flushed() {
    for (seed, kind) in [(300, Kind::PLAIN), (301, Kind::EXTENT), (302, Kind::BAND)] {
        let history = with_key_ranges(History::new(seed, 160, UNIVERSE));
        assert!(crash_at_every_point_in_turn(kind, seed, history, 3) > 1000);
    }
}

/// A flush of all, or a compaction of all keys, finds a range that waits for a slow one.
#[test]
fn any_crash_leaves_a_prefix_of_the_history_where_all_is_flushed_behind_a_range() {
    for (seed, kind) in [(303, Kind::PLAIN), (304, Kind::EXTENT)] {
        let history = with_flushes_of_all(with_key_ranges(History::new(seed, 400, UNIVERSE)));
        let compactions = history.steps.iter().filter(|step| **step == Step::CompactAll).count();
        assert!(compactions >= 4, "{compactions} compactions of all keys are too few");
        assert!(crash_in_turn_under(slow_flushes(), kind, seed, history, 3) > 1000);
    }
}

#[test]
fn crashes_during_recovery_where_ranges_of_keys_are_flushed() {
    for (seed, kind) in [(310, Kind::EXTENT), (311, Kind::BAND)] {
        crash_during_recovery(kind, seed, with_key_ranges(History::new(seed, 240, UNIVERSE)), 15);
    }
}

/// The same with tables so small that a compaction writes many, each of which becomes part of the tree when it is written.
fn in_pieces(history: History) -> History {
    let options = Options {
        tree: Some(TreeKind::TwoLevel),
        compact_in_pieces: Some(true),
        target_file_size_base: 1 << 10,
        max_subcompactions: 1,
        ..history.options
    };
    History { options, ..history }
}

#[test]
fn any_crash_between_pieces_of_compactions_leaves_a_prefix_of_the_history() {
    for (seed, kind) in [(320, Kind::PLAIN), (321, Kind::EXTENT)] {
        let history = in_pieces(History::new(seed, 120, UNIVERSE));
        assert!(crash_at_every_point_in_turn(kind, seed, history, 2) > 700);
    }
    let history = in_pieces(with_key_ranges(History::new(322, 200, UNIVERSE)));
    assert!(crash_at_every_point_in_turn(Kind::PLAIN, 322, history, 2) > 700);
}

#[test]
fn crashes_during_recovery_between_pieces_of_compactions() {
    crash_during_recovery(Kind::EXTENT, 330, in_pieces(History::new(330, 160, UNIVERSE)), 15);
}

#[test]
fn any_options_survive_a_crash_at_every_point() {
    let least = [("images", 4000), ("flushes", 60), ("range flushes", 1), ("compactions", 30), ("pieces", 1)];
    let test = ("crash", "any_options_survive_a_crash_at_every_point");
    run_seeds(test, 500_000, DRAWN_SEEDS, &least, crash_under_drawn_options);
}

/// Crashes during recoveries from seeded crashed states, at every point of each, and in each of
/// those recoveries once more, at a seeded point.
fn crash_during_recovery(kind: Kind, seed: u64, history: History, states: usize) {
    let history = Arc::new(history);
    let points = Arc::new(record(kind, seed, &history, slow_flushes()).0);
    assert_all_operations(kind, &points);
    let crashed: Arc<Mutex<BTreeSet<(usize, CrashVariant, u64)>>> = Arc::default();
    let counts: Arc<[AtomicUsize; 3]> = Arc::default();
    let (counted, seen) = (counts.clone(), crashed.clone());
    in_parallel(states, move |number| {
        let mut random = Random::named(seed, &format!("crashed state {number}"));
        let variants = kind.variants();
        let (position, variant, image_seed) = loop {
            let (position, variant) = (random.index(points.len()), variants[random.index(variants.len())]);
            let image_seed = random.next_u64();
            // The seed makes no other state of a variant that is not random.
            if seen.lock().insert((position, variant, if variant.is_random() { image_seed } else { 0 })) {
                break (position, variant, image_seed);
            }
        };
        let point = &points[position];
        let allowed = point.synced..=point.begun;
        let state = format!("{kind:?} seed {seed} state {number} ({}, {variant:?}, {image_seed})", point.note);
        let image = point.state.image(variant, image_seed);
        let first = recover_observed(&image, image_seed, &history, allowed.clone())
            .unwrap_or_else(|what| panic!("{state}: {what}"));
        counted[0].fetch_add(first.points.len(), Ordering::Relaxed);
        // What a recovery found stays.
        let (variant, image_seed) = (variants[random.index(variants.len())], random.next_u64());
        let _ = recover(&first.end.image(variant, image_seed), image_seed, &history, first.count..=first.count)
            .unwrap_or_else(|what| panic!("{state}, after the recovery ({variant:?}, {image_seed}): {what}"));
        for (at, during) in first.points.iter().enumerate() {
            let (variant, image_seed) = (variants[random.index(variants.len())], random.next_u64());
            let state = format!("{state}, again at point {at} ({}, {variant:?}, {image_seed})", during.note);
            let image = during.state.image(variant, image_seed);
            let second = recover_observed(&image, image_seed, &history, allowed.clone())
                .unwrap_or_else(|what| panic!("{state}: {what}"));
            counted[1].fetch_add(1, Ordering::Relaxed);
            let during = &second.points[random.index(second.points.len())];
            let (variant, image_seed) = (variants[random.index(variants.len())], random.next_u64());
            let image = during.state.image(variant, image_seed);
            let _ = recover(&image, image_seed, &history, allowed.clone()).unwrap_or_else(|what| {
                panic!("{state}, once more ({}, {variant:?}, {image_seed}): {what}", during.note)
            });
            counted[2].fetch_add(1, Ordering::Relaxed);
        }
    });
    let [during, once, twice] = [0, 1, 2].map(|place: usize| counts[place].load(Ordering::Relaxed));
    println!(
        "reached: crash/recoveries of {}: {states} crashed states, {once} crashes of recoveries, {twice} of second ones",
        kind.name()
    );
    assert!(crashed.lock().len() == states, "{} of {states} crashed states differ", crashed.lock().len());
    assert!(once == during && twice == during, "of {during} points of recoveries {once} and {twice} were crashed");
    assert!(during > 4 * states, "{during} points of {states} recoveries are too few");
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
    let history = History::new(1, 160, UNIVERSE);
    let (points, images) = crash_at_every_point(Kind::PLAIN, 1, history, FaultPlan::default());
    assert!(points >= 1500 && images >= 15_000, "{points} points and {images} images are too few");
}

#[test]
fn extent_survives_a_crash_at_every_point() {
    let history = History::new(2, 160, UNIVERSE);
    let (points, images) = crash_at_every_point(Kind::EXTENT, 2, history, FaultPlan::default());
    assert!(points >= 1000 && images >= 12_000, "{points} points and {images} images are too few");
}

#[test]
fn next_fit_placement_survives_a_crash_at_every_point() {
    let history = History::new(11, 110, UNIVERSE);
    crash_at_every_point(Kind::EXTENT_NEXT_FIT, 11, history, FaultPlan::default());
}

#[test]
fn logs_in_another_directory_survive_a_crash_at_every_point() {
    let history = History::new(12, 80, UNIVERSE);
    crash_at_every_point(Kind::PLAIN_LOGS_APART, 12, history, FaultPlan::default());
}

#[test]
fn logs_on_another_device_survive_a_crash_at_every_point() {
    let history = History::new(13, 70, UNIVERSE);
    crash_at_every_point(Kind::EXTENT_LOGS_APART, 13, history, FaultPlan::default());
}

#[test]
fn ext4_layout_survives_a_crash_at_every_point() {
    crash_at_every_point(Kind::EXTENT_EXT4, 3, History::new(3, 100, UNIVERSE), FaultPlan::default());
}

#[test]
fn persistent_memory_survives_a_crash_at_every_point() {
    crash_at_every_point(Kind::EXTENT_MEMORY, 14, History::new(14, 80, UNIVERSE), FaultPlan::default());
}

#[test]
fn plain_survives_a_crash_while_logs_pile_up() {
    crash_at_every_point(Kind::PLAIN, 6, hurried(6, 160), slow_flushes());
}

#[test]
fn extent_survives_a_crash_while_logs_pile_up() {
    crash_at_every_point(Kind::EXTENT, 7, hurried(7, 160), slow_flushes());
}

/// Unsynced writes wait in the process until they are many, or one is synced.
#[test]
fn a_log_that_is_held_back_loses_nothing_that_was_synced() {
    let held_back = |seed: u64| {
        let history = hurried(seed, 160);
        History { options: Options { log_buffer_size: Some(2 << 10), ..history.options }, ..history }
    };
    assert!(crash_in_turn_under(slow_flushes(), Kind::PLAIN, 24, held_back(24), 3) > 1000);
    assert!(crash_in_turn_under(slow_flushes(), Kind::EXTENT, 10, held_back(10), 3) > 1000);
    let behind = |seed: u64| {
        let history = held_back(seed);
        History { options: Options { log_write_behind_size: Some(6 << 10), ..history.options }, ..history }
    };
    assert!(crash_in_turn_under(slow_flushes(), Kind::PLAIN, 11, behind(11), 3) > 1000);
    assert!(crash_in_turn_under(slow_flushes(), Kind::BAND, 12, behind(12), 3) > 1000);
}

/// Jobs move in bursts, which whatever is written to the log waits for.
#[test]
fn a_crash_during_bursts_loses_nothing_that_was_synced() {
    let of_batches = |seed: u64, batches: usize, log_write_behind_size: usize| {
        let history = hurried(seed, batches);
        let options = Options {
            pace_background_work: Some(true),
            max_write_stall_ms: Some(5),
            log_buffer_size: Some(2 << 10),
            log_write_behind_size: Some(log_write_behind_size),
            ..history.options
        };
        History { options, ..history }
    };
    let in_bursts = |seed, log_write_behind_size| of_batches(seed, 160, log_write_behind_size);
    assert!(crash_in_turn_under(slow_flushes(), Kind::PLAIN, 25, in_bursts(25, 6 << 10), 2) > 700);
    assert!(crash_in_turn_under(slow_flushes(), Kind::EXTENT, 26, in_bursts(26, 0), 2) > 700);
    assert!(crash_in_turn_under(slow_flushes(), Kind::BAND, 27, in_bursts(27, 6 << 10), 2) > 700);
    let two_levels = in_bursts(28, 0).in_tree(TreeKind::TwoLevel);
    assert!(crash_in_turn_under(slow_flushes(), Kind::BAND, 28, two_levels, 2) > 700);
    // Ranges of keys that wait for slow flushes, and merges in pieces, all of it in bursts.
    for (seed, kind) in [(29, Kind::PLAIN), (30, Kind::EXTENT)] {
        let history = in_pieces(with_key_ranges(of_batches(seed, 260, 6 << 10)));
        assert!(crash_in_turn_under(slow_flushes(), kind, seed, history, 2) > 700);
    }
}

#[test]
fn plain_survives_crashes_during_recovery() {
    crash_during_recovery(Kind::PLAIN, 4, History::new(4, 120, UNIVERSE), CRASHED_STATES_MIN);
}

#[test]
fn extent_survives_crashes_during_recovery() {
    crash_during_recovery(Kind::EXTENT, 5, History::new(5, 120, UNIVERSE), CRASHED_STATES_MIN);
}

#[test]
fn logs_in_another_directory_survive_crashes_during_recovery() {
    crash_during_recovery(Kind::PLAIN_LOGS_APART, 14, History::new(14, 80, UNIVERSE), 40);
}

#[test]
fn other_trees_survive_a_crash_at_every_point() {
    for ((kind, tree), seed) in
        trees::on(&[Kind::PLAIN, Kind::EXTENT], trees::others_with_tables()).into_iter().zip(90..)
    {
        let history = History::new(seed, 100, UNIVERSE).in_tree(tree);
        assert!(crash_at_every_point_in_turn(kind, seed, history, 3) > 1500);
    }
}

#[test]
fn other_trees_survive_crashes_during_recovery() {
    for tree in trees::others_with_tables() {
        crash_during_recovery(Kind::PLAIN, 92, History::new(92, 100, UNIVERSE).in_tree(tree), 20);
    }
}

#[test]
fn trees_without_tables_survive_a_crash_at_every_point() {
    let kinds = [Kind::PLAIN, Kind::EXTENT, Kind::PLAIN_LOGS_APART];
    for ((kind, tree), seed) in trees::on(&kinds, trees::without_tables()).into_iter().zip(190..) {
        let history = History::new(seed, 100, UNIVERSE).in_tree(tree);
        assert!(crash_at_every_point_in_turn(kind, seed, history, 3) > 500);
    }
}

#[test]
fn trees_without_tables_survive_crashes_during_recovery() {
    for tree in trees::without_tables() {
        crash_during_recovery(Kind::PLAIN, 193, History::new(193, 100, UNIVERSE).in_tree(tree), 20);
    }
}

#[test]
fn band_survives_a_crash_at_every_point() {
    crash_at_every_point(Kind::BAND, 15, History::new(15, 100, UNIVERSE), FaultPlan::default());
    for tree in trees::others_with_tables() {
        let history = History::new(17, 100, UNIVERSE).in_tree(tree);
        assert!(crash_at_every_point_in_turn(Kind::BAND, 17, history, 3) > 1000);
    }
}

#[test]
fn band_survives_crashes_during_recovery() {
    crash_during_recovery(Kind::BAND, 16, History::new(16, 80, UNIVERSE), 25);
    for tree in trees::others_with_tables() {
        crash_during_recovery(Kind::BAND, 18, History::new(18, 80, UNIVERSE).in_tree(tree), 15);
    }
}

#[test]
fn bands_of_variable_size_survive_a_crash_at_every_point() {
    let kind = Kind::VARIABLE_BANDS;
    assert!(crash_at_every_point_in_turn(kind, 93, History::new(93, 100, UNIVERSE), 3) > 1000);
    for tree in trees::others_with_tables() {
        let history = History::new(94, 100, UNIVERSE).in_tree(tree);
        assert!(crash_at_every_point_in_turn(kind, 94, history, 3) > 1000);
    }
}

#[test]
fn bands_of_variable_size_survive_crashes_during_recovery() {
    let kind = Kind::VARIABLE_BANDS;
    crash_during_recovery(kind, 95, History::new(95, 80, UNIVERSE), 15);
    for tree in trees::others_with_tables() {
        crash_during_recovery(kind, 96, History::new(96, 80, UNIVERSE).in_tree(tree), 15);
    }
}

/// Power cuts while members are lost and rebuilt, at points spread over all, in all variants in turn.
#[test]
fn arrays_survive_crashes_while_members_fail_and_are_rebuilt() {
    for (seed, kind) in (60..).zip(medium::kinds(Kind::is_array)) {
        let history = Arc::new(History::new(seed, 120, UNIVERSE));
        let points = Arc::new(record(kind, seed, &history, FaultPlan::default()).0);
        assert_all_operations(kind, &points);
        let stride = points.len() / ARRAY_POINTS;
        assert!(stride > 0, "{} points of {kind:?} are too few", points.len());
        in_parallel(ARRAY_POINTS, move |number| {
            let point = &points[number * stride];
            let variant = kind.variants()[number % kind.variants().len()];
            let image_seed = seed ^ (number as u64) << 8;
            let image = point.state.image(variant, image_seed);
            let _ = recover(&image, image_seed, &history, point.synced..=point.begun).unwrap_or_else(|what| {
                panic!(
                    "{kind:?} seed {seed} image {number} ({}) {variant:?} image seed {image_seed}: {what}",
                    point.note
                )
            });
        });
        println!("reached: crash/{}: {ARRAY_POINTS} images", kind.name());
    }
    let (failed, rebuilt) = medium::failed_and_rebuilt();
    println!("reached: crash/arrays: {failed} members failed, {rebuilt} were rebuilt");
    assert!(failed > 100 && rebuilt >= 4, "{failed} members failed, {rebuilt} were rebuilt");
}

/// Every policy with both rewrites, logs on the disk and apart, on disks that are nearly full.
#[test]
fn interlaced_tracks_survive_a_crash_at_every_point() {
    let images: usize = (20..)
        .zip(imr_kinds())
        .map(|(seed, kind)| crash_at_every_point_in_turn(kind, seed, History::new(seed, 48, UNIVERSE), 1))
        .sum();
    assert!(images >= 600 * imr_kinds().len(), "{images} images are too few");
}

/// The same, while recoveries are crashed.
#[test]
fn interlaced_tracks_survive_crashes_during_recovery() {
    for (seed, kind) in (50..).zip(imr_kinds()) {
        crash_during_recovery(kind, seed, History::new(seed, 60, UNIVERSE), 2);
    }
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
        let (points, _) = record(Kind::PLAIN, 8, &history, FaultPlan::of(fault));
        let wrong = points.iter().any(|point| {
            Kind::PLAIN.variants().iter().any(|&variant| {
                let image = point.state.image(variant, 8);
                recover(&image, 1, &history, point.synced..=point.begun).is_err()
            })
        });
        assert!(wrong, "{operation} of {class:?} is not needed");
    }
}
