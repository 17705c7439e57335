//! Power cuts at every persistence point of a checkpoint and of a repair.
//!
//! A checkpoint cut short leaves its source whole, and itself either does not open or is complete. A
//! repair cut short is run again and comes to the same end.
//!
//! On directories every point is met in every variant; on devices, whose images are dear, in one variant each, all
//! of them in turn.

#[path = "suite/history.rs"]
#[allow(dead_code)]
mod history;
#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;
#[path = "suite/parallel.rs"]
mod parallel;
#[path = "suite/trees.rs"]
#[allow(dead_code)]
mod trees;

use history::{History, State, small_options};
use medium::{CrashState, FULL_DISK_BALLAST, Image, Kind, Recorder, TRACK_BYTES, check_ballast};
use parallel::in_parallel;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use varve_engine::{Db, Error, ErrorKind, Options, ReadOptions, RepairReport, TreeKind, repair};
use varve_env::{Env, SimOptions};
use varve_media::{CrashVariant, IoContext, Operation};
use varve_store::{CreateOptions, FileKind, FileStore, OpenOptions};

const UNIVERSE: u64 = 64;

/// The stores that stand on devices, with the trees on them, and trees without tables also in a directory.
fn on_devices() -> Vec<(Kind, TreeKind)> {
    let mut all = trees::on(&[Kind::BAND], trees::with_tables());
    all.push((Kind::KVIMR, TreeKind::Leveled));
    all.extend(trees::on(&[Kind::VARIABLE_BANDS], trees::with_tables()));
    all.extend(trees::on(&[Kind::PLAIN, Kind::EXTENT], trees::without_tables()));
    all
}

/// The variants in which point `number` is met.
fn variants_at(kind: Kind, number: usize) -> Vec<(usize, CrashVariant)> {
    let all = kind.variants().iter().copied().enumerate();
    match kind.is_plain() {
        true => all.collect(),
        false => all.skip(number % kind.variants().len()).take(1).collect(),
    }
}

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
    let db = open(env, image, history.options.clone()).map_err(|error| format!("open failed: {error}"))?;
    let count = history.verify(&db, allowed)?;
    let findings = db.check().map_err(|error| format!("check failed: {error}"))?;
    if !findings.is_empty() {
        return Err(format!("check found {findings:?}"));
    }
    Ok(count)
}

fn names(env: &Env, image: &Image) -> Vec<String> {
    let store = image.store(env, None).expect("the store opens");
    store.list().expect("list").into_iter().map(|entry| entry.name).collect()
}

/// Batches written before the checkpoint; the others are written while it runs and after it.
const BATCHES_BEFORE: usize = 50;

/// The images that were complete, and those that did not open.
fn crash_during_checkpoint(kind: Kind, tree: TreeKind, seed: u64) -> [usize; 2] {
    let env = simulation(seed, true);
    let history = Arc::new(History::new(seed, BATCHES_BEFORE + 40, UNIVERSE).in_tree(tree));
    // What becomes a checkpoint is empty, also where the source is on a disk with much else.
    let target = if kind.is_imr() { Image::fresh_of(&env, kind, 200 * TRACK_BYTES) } else { Image::fresh(&env, kind) };
    let media = Image::Several(vec![Image::fresh(&env, kind), target]);
    let recorder = Arc::new(Recorder::default());
    let observation = media.observed(&env, &recorder);
    let db = open(&env, observation.image.part(0), history.options.clone()).expect("open");
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
    let recorded_before = std::mem::take(&mut *recorder.points.lock()).len() as u64;
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
    drop(target);
    let finished_at = recorder.points.lock().len();
    let begun = recorder.begun.load(Ordering::SeqCst);
    writer.join().unwrap_or_else(|panic| panic.resume());
    db.close().expect("close");
    drop(db);
    let points = std::mem::take(&mut *recorder.points.lock());
    let recorded = recorded_before + points.len() as u64;
    assert_eq!(recorded, observation.points(), "points that nobody recorded");
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
        for (position, variant) in variants_at(kind, number) {
            let image_seed = seed ^ (number * 16 + position) as u64;
            let note = format!(
                "{kind:?} {tree:?} seed {seed} point {number} ({}) {variant:?} image seed {image_seed}",
                point.note
            );
            let image = point.state.image(variant, image_seed);
            let env = simulation(image_seed, false);
            let source = recover(&env, image.part(0), &history, point.synced..=point.begun);
            let _ = source.unwrap_or_else(|what| panic!("{note}: the source: {what}"));
            let target = image.part(1);
            let had_tables = names(&env, target).iter().any(|name| name.ends_with(".sst"));
            let exists = Options { create_if_missing: false, ..history.options.clone() };
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
                    let created = open(&env, target, history.options.clone()).is_ok();
                    assert!(!created || !had_tables, "{note}: half a checkpoint opens as an empty database");
                    met_here[1].fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    });
    let [complete, refused] = [0, 1].map(|place: usize| met[place].load(Ordering::Relaxed));
    println!(
        "reached: maintenance/checkpoints of {}: {count} points, {complete} images complete, {refused} images refused",
        kind.name()
    );
    assert_eq!(complete + refused, count * variants_at(kind, 0).len());
    [complete, refused]
}

#[test]
fn a_checkpoint_survives_a_crash_at_every_point_or_does_not_open() {
    for seed in [31, 32] {
        let [complete, refused] = crash_during_checkpoint(Kind::PLAIN, TreeKind::Leveled, seed);
        assert!(complete > 50 && refused > 50, "{complete} complete, {refused} refused");
    }
}

#[test]
fn a_checkpoint_between_devices_survives_a_crash_at_every_point_or_does_not_open() {
    for (seed, (kind, tree)) in (33..).zip(on_devices()) {
        let [complete, refused] = crash_during_checkpoint(kind, tree, seed);
        assert!(complete > 10 && refused > 10, "{kind:?} {tree:?}: {complete} complete, {refused} refused");
    }
}

/// A database of several levels with writes in its log, as a crash left it or closed.
fn sample(seed: u64, kind: Kind, tree: TreeKind, close: bool) -> (CrashState, History) {
    let env = simulation(seed, false);
    let observation = Image::fresh(&env, kind).observed(&env, &Arc::default());
    let history = History::new(seed, 70, UNIVERSE).in_tree(tree);
    // Flushes and compactions only when the steps say so, and a log that holds many writes.
    let options = Options { disable_auto_compactions: true, write_buffer_size: 256 << 10, ..history.options.clone() };
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

/// The stores of an image.
fn stores(env: &Env, image: &Image) -> Vec<Arc<dyn FileStore>> {
    let media = image.media(env).expect("the store opens");
    media.files.into_iter().chain(media.logs).collect()
}

/// Every file with its size; `LOCK` may be there twice.
fn sizes(env: &Env, image: &Image) -> BTreeMap<String, u64> {
    let entries = stores(env, image).into_iter().flat_map(|store| store.list().expect("list"));
    entries.map(|entry| (entry.name, entry.size_bytes)).collect()
}

/// Flips all bits of one byte, counted from the end when negative; without a place, removes the file.
fn damage(env: &Env, image: &Image, name: &str, place: Option<i64>) {
    let holds = |store: &Arc<dyn FileStore>| store.list().expect("list").iter().any(|entry| entry.name == name);
    let store = stores(env, image).into_iter().find(holds).expect("a file of this name");
    let context = IoContext::default();
    if let Some(place) = place {
        // No store writes into a file: another takes its place.
        let file = store.open(name, &OpenOptions::default()).expect("open");
        let mut bytes = vec![0; file.size_bytes() as usize];
        file.read_at(0, &mut bytes, &context).expect("read");
        let at = if place < 0 { bytes.len() as i64 + place } else { place } as usize;
        bytes[at] = !bytes[at];
        let kind = match name.rsplit('.').next() {
            Some("sst") => FileKind::Table,
            Some("log") => FileKind::Log,
            _ => FileKind::Manifest,
        };
        let mut damaged = store.create("being-damaged", &CreateOptions { kind, ..Default::default() }).expect("create");
        damaged.append(&bytes, &context).expect("append");
        damaged.sync(&context).expect("sync");
        damaged.finish(&context).expect("finish");
        store.rename("being-damaged", name).expect("rename");
    } else {
        store.remove(name).expect("remove");
    }
    store.sync_names().expect("sync_names");
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

/// The name a file had before a repair set it aside.
fn original(name: &str) -> Option<&str> {
    name.strip_prefix("damaged-").or_else(|| name.strip_prefix("replaced-"))
}

/// Repairs and opens: what is there then, the report, and the files that were kept.
fn repaired(
    env: &Env,
    image: &Image,
    options: &Options,
) -> Result<(State, RepairReport, BTreeMap<String, u64>), String> {
    let media = image.media(env).map_err(|error| error.to_string())?;
    if image.part(0).has_tracks() {
        check_ballast(&**media.files.as_ref().expect("files"), FULL_DISK_BALLAST)?;
    }
    let report = repair(env, media, options.clone()).map_err(|error| format!("repair failed: {error}"))?;
    let db = open(env, image, options.clone()).map_err(|error| format!("does not open after repair: {error}"))?;
    let found = walk_all(&db);
    let findings = db.check().map_err(|error| error.to_string())?;
    if !findings.is_empty() {
        return Err(format!("check after repair found {findings:?}"));
    }
    db.close().map_err(|error| error.to_string())?;
    drop(db);
    let kept = sizes(env, image).into_iter().filter(|(name, _)| original(name).is_some());
    Ok((found, report, kept.collect()))
}

/// Cuts a repair of `damaged` short at every point and repairs what is left.
fn crash_during_repair(kind: Kind, what: &str, seed: u64, damaged: &CrashState, history: &History) -> (usize, usize) {
    let env = simulation(seed, false);
    let (newest, options) = (history.states.last().expect("a state"), history.options.clone());
    let (expected, report, kept) =
        repaired(&env, &copy(damaged), &options).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(kept.keys().cloned().collect::<Vec<_>>(), {
        let mut names = report.set_aside.clone();
        names.sort();
        names
    });
    let lost = newest.iter().filter(|(key, value)| expected.get(*key) != Some(value)).count();
    // A tree in memory has one log, and of that nothing behind the first damage.
    let may_lose_all = !trees::fixture(options.tree_kind()).has_tables && what.contains("log");
    let is_left = lost < newest.len() && !expected.is_empty();
    assert!(is_left || may_lose_all, "{what}: {lost} of {} keys lost", newest.len());
    let recorder = Arc::new(Recorder::default());
    let observation = copy(damaged).observed(&env, &recorder);
    let media = observation.image.media(&env).expect("media");
    let _ = repair(&env, media, options.clone()).expect("repair");
    let mut points = std::mem::take(&mut *recorder.points.lock());
    assert_eq!(points.len() as u64, observation.points(), "points that nobody recorded");
    // The power may also go right after it.
    let end = medium::Point {
        state: observation.capture(),
        operation: Operation::Sync,
        note: "the end".to_owned(),
        synced: 0,
        begun: 0,
        tag: 0,
    };
    points.push(end);
    drop(observation);
    let (count, what_here) = (points.len(), what.to_owned());
    in_parallel(count, move |number| {
        let point = &points[number];
        for (position, variant) in variants_at(kind, number) {
            let image_seed = seed ^ (number * 16 + position) as u64;
            let note = format!("{what_here}, point {number} ({}) {variant:?} image seed {image_seed}", point.note);
            let image = point.state.image(variant, image_seed);
            let env = simulation(image_seed, false);
            let (found, report, kept_now) =
                repaired(&env, &image, &options).unwrap_or_else(|error| panic!("{note}: {error}"));
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
            for (name, size_bytes) in kept.iter().filter(|(name, _)| original(name).is_some_and(|was| was != "CURRENT"))
            {
                // What one repair replaced the next one, if the first was cut short, may find unused.
                let was = original(name).unwrap_or(name);
                let is_kept = |(now, size): (&String, &u64)| now.contains(was) && size == size_bytes;
                assert!(kept_now.iter().any(is_kept), "{note}: '{name}' was not kept: {kept_now:?}; {report:?}");
            }
        }
    });
    println!("{what}: {lost} of {} keys lost by the damage", newest.len());
    println!("reached: maintenance/repairs of {}: {count} points", kind.name());
    (count, lost)
}

/// Damages a database of this kind in many ways and cuts each repair short at every point; how many points that was.
fn crash_during_repairs(seed: u64, kind: Kind, tree: TreeKind, close: bool, only_of_logs: bool) -> usize {
    let (state, history) = sample(seed, kind, tree, close);
    let env = simulation(seed, false);
    let sizes = sizes(&env, &copy(&state));
    let named = |part: &str| -> Vec<String> { sizes.keys().filter(|name| name.contains(part)).cloned().collect() };
    let tables = named(".sst");
    let manifest = named("MANIFEST").pop().expect("a manifest");
    let log = named(".log").into_iter().max_by_key(|name| sizes[name]).expect("a log");
    let tables_min = match tree {
        tree if !trees::fixture(tree).has_tables => 0,
        // Of the size of a band there are fewer.
        _ if [Kind::BAND, Kind::VARIABLE_BANDS].contains(&kind) => 3,
        _ => 4,
    };
    assert!(tables.len() >= tables_min && sizes[&log] > 1000, "{sizes:?}");
    let mut cases: Vec<(String, Vec<(String, Option<i64>)>)> = vec![
        ("nothing damaged".to_owned(), vec![]),
        ("no pointer".to_owned(), vec![("CURRENT".to_owned(), None)]),
        ("a damaged manifest".to_owned(), vec![(manifest, Some(100))]),
        ("a damaged log".to_owned(), vec![(log.clone(), Some(sizes[&log] as i64 / 2))]),
        ("a lost log header".to_owned(), vec![(log.clone(), Some(20))]),
    ];
    for table in [tables.first(), tables.last()].into_iter().flatten() {
        cases.push((format!("{table} damaged in a block"), vec![(table.clone(), Some(30))]));
        cases.push((format!("{table} damaged in its footer"), vec![(table.clone(), Some(-4))]));
    }
    cases.push((
        "no pointer, a damaged log and a damaged table, if there is one".to_owned(),
        [("CURRENT".to_owned(), None), (log, Some(500))]
            .into_iter()
            .chain(tables.first().map(|table| (table.clone(), Some(30))))
            .collect(),
    ));
    if only_of_logs {
        cases.retain(|(what, _)| what.contains("log"));
    }
    let mut all = 0;
    for (what, damages) in cases {
        let observation = copy(&state).observed(&env, &Arc::default());
        damages.iter().for_each(|(name, place)| damage(&env, &observation.image, name, *place));
        let what = format!("{kind:?} {tree:?} seed {seed}: {what}");
        let (points, lost) = crash_during_repair(kind, &what, seed, &observation.capture(), &history);
        assert!(points >= 10, "{what}: {points} points of a repair are too few");
        assert!(lost == 0 || !damages.is_empty(), "{what}: a repair of a sound database lost {lost} keys");
        all += points;
    }
    all
}

#[test]
fn a_repair_cut_short_at_every_point_is_run_again_and_finds_the_same() {
    let samples = [(41, Kind::PLAIN, true), (42, Kind::PLAIN, false), (43, Kind::PLAIN_LOGS_APART, true)];
    let points: usize = samples
        .into_iter()
        .map(|(seed, kind, close)| crash_during_repairs(seed, kind, TreeKind::Leveled, close, seed != 41))
        .sum();
    assert!(points >= 600, "{points} points of repairs are too few");
}

#[test]
fn a_repair_on_a_device_cut_short_at_every_point_is_run_again_and_finds_the_same() {
    for (seed, (kind, tree)) in (44..).zip(on_devices()) {
        let points = crash_during_repairs(seed, kind, tree, seed % 2 == 0, false);
        let points_min = if !trees::fixture(tree).has_tables { 50 } else { 200 };
        assert!(points >= points_min, "{kind:?} {tree:?}: {points} points of repairs are too few");
    }
}

/// Whoever repairs with the wrong tree would otherwise take every table there ever was for part of the database, and
/// bring back what was deleted.
#[test]
fn a_sound_database_of_another_tree_is_not_repaired() {
    let env = simulation(40, false);
    let image = Image::fresh(&env, Kind::PLAIN);
    let two_level = Options { tree: Some(TreeKind::TwoLevel), ..small_options() };
    let db = open(&env, &image, two_level.clone()).expect("open");
    db.put(b"key", b"value").expect("put");
    db.close().expect("close");
    drop(db);
    let refused = repair(&env, image.media(&env).expect("media"), small_options()).expect_err("the wrong tree");
    assert_eq!(refused.kind(), ErrorKind::Foreign, "{refused}");
    assert!(repair(&env, image.media(&env).expect("media"), two_level).is_ok());
}
