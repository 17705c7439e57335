//! Power cuts at every persistence point of a checkpoint and of a repair.
//!
//! A checkpoint cut short leaves its source whole, and itself either does not open or is complete. A
//! repair cut short is run again and comes to the same end.

#[path = "suite/history.rs"]
#[allow(dead_code)]
mod history;
#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;
#[path = "suite/parallel.rs"]
mod parallel;

use history::{History, State, small_options};
use medium::{CrashState, Image, Kind, Recorder};
use parallel::in_parallel;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use varve_engine::{Db, Error, ErrorKind, Options, ReadOptions, RepairReport, TreeKind, repair};
use varve_env::{Env, SimOptions};
use varve_media::{CrashVariant, Directory, IoContext, MemoryDirectory, OpenMode, Operation};

const UNIVERSE: u64 = 64;

fn simulation(seed: u64, perturb: bool) -> Env {
    let time_limit = Some(Duration::from_secs(3600));
    Env::sim_with(SimOptions { seed, perturb, time_limit, ..SimOptions::default() })
}

fn open(env: &Env, image: &Image, options: Options) -> Result<Db, Error> {
    Db::open(env, image.media(env)?, options)
}

/// Opens, compares with the states that are allowed, and checks; the batches it has seen.
fn recover(
    env: &Env,
    image: &Image,
    history: &History,
    allowed: std::ops::RangeInclusive<usize>,
) -> Result<usize, String> {
    let db = open(env, image, small_options()).map_err(|error| format!("open failed: {error}"))?;
    let count = history.verify(&db, allowed)?;
    let findings = db.check().map_err(|error| format!("check failed: {error}"))?;
    if !findings.is_empty() {
        return Err(format!("check found {findings:?}"));
    }
    Ok(count)
}

fn names(image: &Image) -> Vec<String> {
    let Image::Directory(directory) = image else { panic!("a directory") };
    directory.list().expect("list").into_iter().map(|entry| entry.name).collect()
}

/// Batches written before the checkpoint; the others are written while it runs and after it.
const BATCHES_BEFORE: usize = 50;

fn crash_during_checkpoint(seed: u64) {
    let env = simulation(seed, true);
    let history = Arc::new(History::new(seed, BATCHES_BEFORE + 40, UNIVERSE));
    let media = Image::Several(vec![Image::directory("source"), Image::directory("checkpoint")]);
    let recorder = Arc::new(Recorder::default());
    let observation = media.observed(&env, &recorder);
    let db = open(&env, observation.image.part(0), small_options()).expect("open");
    for number in 1..=BATCHES_BEFORE {
        history.write(&db, number, false).expect("write");
        if number % 16 == 0 {
            db.flush().expect("flush");
        }
    }
    db.wait_idle().expect("idle");
    recorder.begun.store(BATCHES_BEFORE, Ordering::SeqCst);
    // So that the source has something of its own to lose.
    db.flush().expect("flush");
    recorder.synced.store(BATCHES_BEFORE, Ordering::SeqCst);
    let passed_before = observation.points();
    recorder.points.lock().clear();
    let writer = {
        let (db, history, recorder, env) = (db.clone(), history.clone(), recorder.clone(), env.clone());
        env.clone().spawn("writer", move || {
            for number in BATCHES_BEFORE + 1..=history.batches.len() {
                recorder.begun.store(number, Ordering::SeqCst);
                let sync = number % 5 == 0;
                history.write(&db, number, sync).expect("write");
                if sync {
                    recorder.synced.store(number, Ordering::SeqCst);
                }
                env.sleep(Duration::from_micros(50));
            }
        })
    };
    let target = observation.image.part(1).store(&env, None).expect("store");
    db.checkpoint(&*target).expect("checkpoint");
    let finished_at = recorder.points.lock().len();
    let begun = recorder.begun.load(Ordering::SeqCst);
    writer.join().unwrap_or_else(|panic| panic.resume());
    db.close().expect("close");
    let points = std::mem::take(&mut *recorder.points.lock());
    assert_eq!(points.len() as u64, observation.points() - passed_before, "points that nobody recorded");
    let of_target = points.iter().filter(|point| point.note.starts_with("medium 1")).count();
    assert!(of_target >= 20 && finished_at < points.len(), "{of_target} points of the checkpoint");
    // What the checkpoint holds, in every image in which it opens.
    let whole = observation.capture().image(CrashVariant::KeepAll, 0);
    let held = recover(&env, whole.part(1), &history, BATCHES_BEFORE..=begun).expect("the checkpoint");
    drop(observation);
    let count = points.len();
    let met: Arc<[AtomicUsize; 2]> = Arc::default();
    let met_here = met.clone();
    in_parallel(count, move |number| {
        let point = &points[number];
        for (position, &variant) in Kind::Plain.variants().iter().enumerate() {
            let image_seed = seed ^ (number * 16 + position) as u64;
            let note = format!("seed {seed} point {number} ({}) {variant:?} image seed {image_seed}", point.note);
            let image = point.state.image(variant, image_seed);
            let env = simulation(image_seed, false);
            let source = recover(&env, image.part(0), &history, point.synced..=point.begun);
            let _ = source.unwrap_or_else(|what| panic!("{note}: the source: {what}"));
            let target = image.part(1);
            let had_tables = names(target).iter().any(|name| name.ends_with(".sst"));
            let exists = Options { create_if_missing: false, ..small_options() };
            match open(&env, target, exists) {
                Ok(db) => {
                    let found = history.verify(&db, held..=held).and_then(|_| {
                        let findings = db.check().map_err(|error| error.to_string())?;
                        if findings.is_empty() { Ok(()) } else { Err(format!("check found {findings:?}")) }
                    });
                    found.unwrap_or_else(|what| panic!("{note}: the checkpoint: {what}"));
                    met_here[0].fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    assert!(number < finished_at, "{note}: a checkpoint that was made does not open: {error}");
                    assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corruption), "{note}: {error}");
                    let created = open(&env, target, small_options()).is_ok();
                    assert!(!created || !had_tables, "{note}: half a checkpoint opens as an empty database");
                    met_here[1].fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    });
    let [complete, refused] = [0, 1].map(|place: usize| met[place].load(Ordering::Relaxed));
    println!("checkpoint seed {seed}: {count} points; {complete} images complete, {refused} do not open");
    assert_eq!(complete + refused, count * Kind::Plain.variants().len());
    assert!(complete > 50 && refused > 50, "{complete} complete, {refused} refused");
}

#[test]
fn a_checkpoint_survives_a_crash_at_every_point_or_does_not_open() {
    crash_during_checkpoint(31);
    crash_during_checkpoint(32);
}

/// A database of several levels with writes in its log, as a crash left it or closed.
fn sample(seed: u64, kind: Kind, close: bool) -> (CrashState, History) {
    let env = simulation(seed, false);
    let observation = Image::fresh(&env, kind).observed(&env, &Arc::default());
    let history = History::new(seed, 70, UNIVERSE);
    // Flushes and compactions only when the steps say so, and a log that holds many writes.
    let options = Options { disable_auto_compactions: true, write_buffer_size: 256 << 10, ..small_options() };
    let db = open(&env, &observation.image, options).expect("open");
    for number in 1..=history.batches.len() {
        history.write(&db, number, number % 6 == 0).expect("write");
        match number {
            30 => db.compact_range(None, None).expect("compact_range"),
            45 | 60 => db.flush().expect("flush"),
            _ => {}
        }
    }
    if close {
        db.close().expect("close");
    }
    (observation.capture(), history)
}

fn copy(state: &CrashState) -> Image {
    state.image(CrashVariant::KeepAll, 0)
}

/// The directories of an image.
fn directories(image: &Image) -> Vec<&MemoryDirectory> {
    match image {
        Image::Directory(directory) => vec![directory],
        Image::Several(parts) => parts.iter().flat_map(directories).collect(),
        Image::Device(_) => panic!("a directory"),
    }
}

/// Every file with its size; `LOCK` may be there twice.
fn sizes(image: &Image) -> BTreeMap<String, u64> {
    let entries = directories(image).into_iter().flat_map(|directory| directory.list().expect("list"));
    entries.map(|entry| (entry.name, entry.size_bytes)).collect()
}

/// Flips all bits of one byte, counted from the end when negative; without a place, removes the file.
fn damage(image: &Image, name: &str, place: Option<i64>) {
    let holds = |directory: &&MemoryDirectory| directory.list().expect("list").iter().any(|entry| entry.name == name);
    let directory = directories(image).into_iter().find(holds).expect("a file of this name");
    let Some(place) = place else {
        directory.remove(name).expect("remove");
        return directory.sync().expect("sync");
    };
    let file = directory.open(name, OpenMode { write: true, ..OpenMode::default() }).expect("open");
    let size = file.size_bytes().expect("size") as i64;
    let offset = if place < 0 { size + place } else { place } as u64;
    let mut byte = [0];
    assert_eq!(file.read_at(offset, &mut byte, &IoContext::default()).expect("read"), 1);
    file.write_at(offset, &[IoSlice::new(&[!byte[0]])], &IoContext::default()).expect("write");
    file.sync(&IoContext::default()).expect("sync");
}

fn walk_all(db: &Db) -> State {
    let mut found = State::new();
    let mut walk = db.iterator(&ReadOptions::default()).expect("iterator");
    walk.seek_to_first();
    while walk.valid() {
        found.insert(walk.key().to_vec(), walk.value().to_vec());
        walk.next();
    }
    walk.status().expect("status");
    found
}

/// Repairs and opens: what is there then, the report, and the files that were kept.
fn repaired(env: &Env, image: &Image) -> Result<(State, RepairReport, BTreeMap<String, u64>), String> {
    let media = image.media(env).map_err(|error| error.to_string())?;
    let report = repair(env, media, small_options()).map_err(|error| format!("repair failed: {error}"))?;
    let db = open(env, image, small_options()).map_err(|error| format!("does not open after repair: {error}"))?;
    let found = walk_all(&db);
    let findings = db.check().map_err(|error| error.to_string())?;
    if !findings.is_empty() {
        return Err(format!("check after repair found {findings:?}"));
    }
    db.close().map_err(|error| error.to_string())?;
    let kept = sizes(image).into_iter().filter(|(name, _)| name.starts_with("damaged-"));
    Ok((found, report, kept.collect()))
}

/// Cuts a repair of `damaged` short at every point and repairs what is left.
fn crash_during_repair(what: &str, seed: u64, damaged: &CrashState, newest: &State) -> (usize, usize) {
    let env = simulation(seed, false);
    let (expected, report, kept) = repaired(&env, &copy(damaged)).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(kept.keys().cloned().collect::<Vec<_>>(), {
        let mut names = report.set_aside.clone();
        names.sort();
        names
    });
    let lost = newest.iter().filter(|(key, value)| expected.get(*key) != Some(value)).count();
    assert!(lost < newest.len() && !expected.is_empty(), "{what}: {lost} of {} keys lost", newest.len());
    let recorder = Arc::new(Recorder::default());
    let observation = copy(damaged).observed(&env, &recorder);
    let media = observation.image.media(&env).expect("media");
    let _ = repair(&env, media, small_options()).expect("repair");
    let mut points = std::mem::take(&mut *recorder.points.lock());
    assert_eq!(points.len() as u64, observation.points(), "points that nobody recorded");
    // The power may also go right after it.
    let end = medium::Point {
        state: observation.capture(),
        operation: Operation::Sync,
        note: "the end".to_owned(),
        synced: 0,
        begun: 0,
    };
    points.push(end);
    drop(observation);
    let (count, what_here) = (points.len(), what.to_owned());
    in_parallel(count, move |number| {
        let point = &points[number];
        for (position, &variant) in Kind::Plain.variants().iter().enumerate() {
            let image_seed = seed ^ (number * 16 + position) as u64;
            let note = format!("{what_here}, point {number} ({}) {variant:?} image seed {image_seed}", point.note);
            let image = point.state.image(variant, image_seed);
            let env = simulation(image_seed, false);
            let (found, report, kept_now) = repaired(&env, &image).unwrap_or_else(|error| panic!("{note}: {error}"));
            if found != expected {
                let differs = |key: &&Vec<u8>| found.get(*key) != expected.get(*key);
                let keys: Vec<String> = expected
                    .keys()
                    .chain(found.keys())
                    .filter(differs)
                    .map(|key| key.escape_ascii().to_string())
                    .collect();
                panic!("{note}: another answer than without the power cut for {keys:?}; {report:?}");
            }
            for (name, size_bytes) in &kept {
                assert_eq!(kept_now.get(name), Some(size_bytes), "{note}: '{name}' was not kept; {report:?}");
            }
        }
    });
    println!("{what}: {count} points, {lost} of {} keys lost by the damage", newest.len());
    (count, lost)
}

#[test]
fn a_repair_cut_short_at_every_point_is_run_again_and_finds_the_same() {
    let mut all = 0;
    for (seed, kind, close) in [(41, Kind::Plain, true), (42, Kind::Plain, false), (43, Kind::PlainLogsApart, true)] {
        let (state, history) = sample(seed, kind, close);
        let newest = history.states.last().expect("a state");
        let sizes = sizes(&copy(&state));
        let named = |part: &str| -> Vec<String> { sizes.keys().filter(|name| name.contains(part)).cloned().collect() };
        let tables = named(".sst");
        let manifest = named("MANIFEST").pop().expect("a manifest");
        let log = named(".log").into_iter().max_by_key(|name| sizes[name]).expect("a log");
        assert!(tables.len() >= 4 && sizes[&log] > 1000, "{sizes:?}");
        let mut cases: Vec<(String, Vec<(String, Option<i64>)>)> = vec![
            ("nothing damaged".to_owned(), vec![]),
            ("no pointer".to_owned(), vec![("CURRENT".to_owned(), None)]),
            ("a damaged manifest".to_owned(), vec![(manifest, Some(100))]),
            ("a damaged log".to_owned(), vec![(log.clone(), Some(sizes[&log] as i64 / 2))]),
            ("a lost log header".to_owned(), vec![(log.clone(), Some(20))]),
        ];
        for table in [&tables[0], &tables[tables.len() - 1]] {
            cases.push((format!("{table} damaged in a block"), vec![(table.clone(), Some(30))]));
            cases.push((format!("{table} damaged in its footer"), vec![(table.clone(), Some(-4))]));
        }
        cases.push((
            "no pointer, a damaged log and a damaged table".to_owned(),
            vec![("CURRENT".to_owned(), None), (log, Some(500)), (tables[0].clone(), Some(30))],
        ));
        if (kind, close) != (Kind::Plain, true) {
            cases.retain(|(what, _)| what.contains("log"));
        }
        for (what, damages) in cases {
            let observation = copy(&state).observed(&simulation(seed, false), &Arc::default());
            damages.iter().for_each(|(name, place)| damage(&observation.image, name, *place));
            let what = format!("{kind:?} seed {seed}: {what}");
            let (points, lost) = crash_during_repair(&what, seed, &observation.capture(), newest);
            assert!(points >= 10, "{what}: {points} points of a repair are too few");
            assert!(lost == 0 || !damages.is_empty(), "{what}: a repair of a sound database lost {lost} keys");
            all += points;
        }
    }
    assert!(all >= 600, "{all} points of repairs are too few");
}

/// Whoever repairs with the wrong tree would otherwise take every table there ever was for part of the database, and
/// bring back what was deleted.
#[test]
fn a_sound_database_of_another_tree_is_not_repaired() {
    let env = simulation(40, false);
    let image = Image::fresh(&env, Kind::Plain);
    let two_level = Options { tree: TreeKind::TwoLevel, ..small_options() };
    let db = open(&env, &image, two_level.clone()).expect("open");
    db.put(b"key", b"value").expect("put");
    db.close().expect("close");
    drop(db);
    let refused = repair(&env, image.media(&env).expect("media"), small_options()).expect_err("the wrong tree");
    assert_eq!(refused.kind(), ErrorKind::Foreign, "{refused}");
    assert!(repair(&env, image.media(&env).expect("media"), two_level).is_ok());
}
