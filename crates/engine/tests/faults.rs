//! Every I/O call of a workload fails, once and for good, with each kind of error: no panic, no
//! hang, no wrong answer, and what was acknowledged is there once the medium works again.

#[path = "suite/effects.rs"]
#[allow(dead_code)]
mod effects;
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

use effects::effects;
use history::{History, State, small_options};
use medium::{FULL_DISK_BALLAST, FULL_DISK_FREE_TRACKS, Image, Kind, TRACK_BYTES, check_ballast, imr_kinds};
use outcome::{MayLose, Outcome, UNIVERSE, run, walk_all};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use varve_engine::{Db, ErrorKind, Options, TreeKind, WriteOptions};
use varve_env::{Env, SimOptions};
use varve_media::{
    BlockDeviceExt, Fault, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, IoClass, MemoryDirectory,
    MemoryDirectoryOptions, Operation,
};
use varve_store::{
    AllocationName, CreateOptions, FileKind, FileStore, IoContext, OccupancyPiece, PieceUsage, RewriteName,
    StoreErrorKind,
};

const THREADS: usize = 2;
const SEED: u64 = 11;

fn simulation(seed: u64) -> Env {
    Env::sim_with(SimOptions { seed, time_limit: Some(Duration::from_secs(24 * 3600)), ..SimOptions::default() })
}

/// One run with one fault, and the opening after it without.
fn run_with_fault(kind: Kind, history: &History, fault: Fault) -> Result<Outcome, String> {
    let env = simulation(SEED);
    let image = Image::fresh(&env, kind);
    let injector = FaultInjector::new(&env, FaultPlan::of(fault.clone()));
    let mut outcome = run(&env, &image, &injector, history, MayLose::Unsynced)?;
    let may_lose = fault.effect.drops_unsynced();
    let media = image.media(&env).map_err(|error| format!("the store does not open afterwards: {error}"))?;
    if kind.is_imr() {
        check_ballast(&**media.files.as_ref().expect("files"), FULL_DISK_BALLAST)?;
    }
    let db =
        Db::open(&env, media, history.options.clone()).map_err(|error| format!("does not open afterwards: {error}"))?;
    let (found, error) = walk_all(&db);
    if let Some(error) = error {
        return Err(format!("reading afterwards failed: {error}"));
    }
    if !outcome.allows(&found, may_lose) {
        let count =
            |state: &State| state.get(history::COUNT_KEY).map(|count| String::from_utf8_lossy(count).into_owned());
        let allowed: Vec<_> = [outcome.last()].into_iter().chain(&outcome.failed).map(count).collect();
        return Err(format!(
            "wrong state afterwards: batch {:?}, allowed {allowed:?}, synced {:?}",
            count(&found),
            count(&outcome.acknowledged[outcome.synced])
        ));
    }
    let findings = db.check().map_err(|error| error.to_string())?;
    if !findings.is_empty() {
        return Err(format!("check found {findings:?}"));
    }
    db.close().map_err(|error| format!("close afterwards failed: {error}"))?;
    if image.destroyed_bytes() > 0 {
        return Err(format!("{} bytes of live data were destroyed", image.destroyed_bytes()));
    }
    outcome.acknowledged.clear();
    Ok(outcome)
}

fn short_history() -> History {
    History::new(SEED, 48, UNIVERSE)
}

/// Every `stride`-th fault.
fn every_call_fails(kind: Kind, tree: TreeKind, stride: usize) {
    let history = short_history().in_tree(tree);
    every_call_of_history_fails(kind, kind.name(), history, stride);
}

/// The same of this history, under this name; how many flushes of ranges, pieces of compactions and bursts it has without a fault, and how many
/// with all of them.
fn every_call_of_history_fails(kind: Kind, name: &str, history: History, stride: usize) -> [[u64; 3]; 2] {
    let history = Arc::new(history);
    let tree = history.options.tree_kind();
    let (calls, without_fault) = {
        let env = simulation(SEED);
        let image = Image::fresh(&env, kind);
        let injector = FaultInjector::new(&env, FaultPlan::default());
        let outcome = run(&env, &image, &injector, &history, MayLose::Unsynced).expect("no fault, no error");
        assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
        (injector.calls(), [outcome.range_flushes, outcome.pieces, outcome.bursts])
    };
    let mut faults = Vec::new();
    for (&operation, &count) in &calls {
        for index in 0..count {
            for effect in effects(operation) {
                // What was read wrong without an error is written so: damage that silent.rs is about.
                if kind.spreads_flipped_bits() && matches!(effect, FaultEffect::FlipBits(_)) {
                    continue;
                }
                for trigger in [FaultTrigger::Once(index), FaultTrigger::From(index)] {
                    faults.push(Fault::new(operation, trigger, effect.clone()));
                }
            }
        }
    }
    // Each stride meets all effects: it has no divisor in common with their number.
    let faults: Vec<Fault> = faults.into_iter().skip(kind.number() % stride).step_by(stride).collect();
    let total = faults.len();
    let (faults, next) = (Arc::new(faults), Arc::new(AtomicUsize::new(0)));
    let env = Env::real();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (faults, next, history) = (faults.clone(), next.clone(), history.clone());
            env.spawn("faults", move || {
                let mut errors: BTreeMap<String, usize> = BTreeMap::new();
                let mut wrong = Vec::new();
                let mut counted = [0; 3];
                while let Some(fault) = faults.get(next.fetch_add(1, Ordering::SeqCst)) {
                    match run_with_fault(kind, &history, fault.clone()) {
                        Ok(outcome) => {
                            counted[0] += outcome.range_flushes;
                            counted[1] += outcome.pieces;
                            counted[2] += outcome.bursts;
                            outcome
                                .errors
                                .into_iter()
                                .for_each(|(kind, count)| *errors.entry(kind).or_default() += count);
                        }
                        Err(what) => {
                            wrong.push(format!("{:?} {:?} {:?}: {what}", fault.operation, fault.trigger, fault.effect))
                        }
                    }
                }
                (errors, wrong, counted)
            })
        })
        .collect();
    let mut all: BTreeMap<String, usize> = BTreeMap::new();
    let (mut wrong, mut with_faults) = (Vec::new(), [0; 3]);
    for thread in threads {
        let (errors, mut found, counted) = thread.join().unwrap_or_else(|panic| panic.resume());
        errors.into_iter().for_each(|(kind, count)| *all.entry(kind).or_default() += count);
        wrong.append(&mut found);
        (0..3).for_each(|what| with_faults[what] += counted[what]);
    }
    println!("{kind:?}: {total} faults at {calls:?}; errors {all:?}");
    let errors = all.values().sum::<usize>();
    match with_faults {
        [0, 0, 0] => println!("reached: faults/{name}: {total} faults, {errors} errors"),
        [range_flushes, pieces, bursts] => println!(
            "reached: faults/{name}: {total} faults, {errors} errors, {range_flushes} range flushes, {pieces} pieces, {bursts} bursts"
        ),
    }
    wrong.sort();
    assert!(
        wrong.is_empty(),
        "{} of {total} faults on {kind:?}:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(40)].join("\n")
    );
    assert!(!all.contains_key("InvalidArgument"), "a failing medium is no wrong argument: {all:?}");
    // A tree in memory reads when it is opened, and never again.
    let kinds_min = if stride > 1 { 2 } else { 4 - usize::from(!trees::fixture(tree).has_tables) };
    assert!(all.len() >= kinds_min, "too few kinds of errors: {all:?}");
    [without_fault, with_faults]
}

#[test]
fn every_call_of_plain_fails_once_and_for_good() {
    every_call_fails(Kind::PLAIN, TreeKind::Leveled, 1);
}

#[test]
fn every_call_of_extent_fails_once_and_for_good() {
    every_call_fails(Kind::EXTENT, TreeKind::Leveled, 1);
}

/// Of every policy, rewrite and place of the logs others, on disks that are nearly full.
#[test]
fn every_call_may_fail_in_other_trees() {
    for tree in trees::others_with_tables() {
        every_call_fails(Kind::PLAIN, tree, 7);
        every_call_fails(Kind::EXTENT, tree, 23);
    }
}

/// Ranges of keys are flushed, compactions make one table after another part of the tree, and jobs move in bursts.
#[test]
fn every_call_may_fail_where_ranges_are_flushed_and_merged_in_pieces() {
    for (kind, stride) in [(Kind::PLAIN, 37), (Kind::EXTENT, 83)] {
        let history = History::new(SEED, 120, UNIVERSE);
        let options = Options {
            tree: Some(TreeKind::TwoLevel),
            flush_key_ranges: Some(true),
            compact_in_pieces: Some(true),
            target_file_size_base: 1 << 10,
            max_subcompactions: 1,
            pace_background_work: Some(true),
            max_write_stall_ms: Some(5),
            ..history.options
        };
        let name = format!("{} in ranges and pieces", kind.name());
        let counts = every_call_of_history_fails(kind, &name, History { options, ..history }, stride);
        println!("{kind:?}: range flushes, pieces and bursts without a fault and with all: {counts:?}");
        assert!(counts[0].iter().all(|count| *count >= 3), "{counts:?}");
    }
}

#[test]
fn every_call_may_fail_in_trees_without_tables() {
    for tree in trees::without_tables() {
        every_call_fails(Kind::PLAIN, tree, 1);
        every_call_fails(Kind::EXTENT, tree, 3);
    }
}

#[test]
fn calls_of_interlaced_disks_fail_once_and_for_good() {
    for kind in imr_kinds() {
        every_call_fails(kind, TreeKind::Leveled, 127);
    }
}

/// Zone commands are among them.
#[test]
fn every_call_of_band_fails_once_and_for_good() {
    every_call_fails(Kind::BAND, TreeKind::Leveled, 1);
    trees::others_with_tables().for_each(|tree| every_call_fails(Kind::BAND, tree, 2));
}

#[test]
fn calls_of_bands_of_variable_size_fail_once_and_for_good() {
    every_call_fails(Kind::VARIABLE_BANDS, TreeKind::Leveled, 3);
    trees::others_with_tables().for_each(|tree| every_call_fails(Kind::VARIABLE_BANDS, tree, 5));
}

/// Members fail and are rebuilt meanwhile, so a fault may be the one that the array does not tolerate.
#[test]
fn calls_of_arrays_fail_once_and_for_good() {
    for kind in medium::kinds(Kind::is_array) {
        every_call_fails(kind, TreeKind::Leveled, 127);
    }
    let (failed, rebuilt) = medium::failed_and_rebuilt();
    println!("reached: faults/arrays: {failed} members failed, {rebuilt} were rebuilt");
    assert!(failed > 100 && rebuilt > 20, "{failed} {rebuilt}");
}

fn sync() -> WriteOptions {
    WriteOptions { sync: true }
}

/// Writes until the medium is full, then makes space and goes on with the same database.
fn full_and_back(env: &Env, files: Arc<dyn FileStore>, ballast_bytes: usize) {
    let context = IoContext::default();
    let mut ballast = files.create("ballast", &CreateOptions::default()).expect("ballast");
    ballast.append(&vec![1; ballast_bytes], &context).expect("ballast");
    ballast.sync(&context).expect("ballast");
    ballast.finish(&context).expect("ballast");
    let media = varve_engine::Media::of_files(files.clone());
    let db = Db::open(env, media.clone(), small_options()).expect("open");
    let mut model = State::new();
    let put = |db: &Db, model: &mut State, number: u32, sync: bool| {
        let (key, value) = (format!("k{number:06}").into_bytes(), vec![number as u8; 500]);
        let result = db.put_with(&key, &value, &WriteOptions { sync });
        if result.is_ok() {
            model.insert(key, value);
        }
        result
    };
    let mut number = 0;
    let error = loop {
        number += 1;
        assert!(number < 20_000, "the medium never becomes full");
        if let Err(error) = put(&db, &mut model, number, number % 3 == 0) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    let listed = || files.list().expect("list").len();
    let (before, mut taken) = (listed(), 0);
    for _ in 0..50 {
        number += 1;
        match put(&db, &mut model, number, number % 3 == 0) {
            Ok(()) => taken += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}"),
        }
    }
    println!("full after {} writes; {taken} of 50 more were taken", model.len());
    assert!(listed() < before + 10, "{before} files became {}: tries on a full medium pile up", listed());
    let (found, error) = walk_all(&db);
    assert!(error.is_none() && found == model, "reads while full: {error:?}");
    db.close().expect("close");
    drop(db);

    // Nothing at all is left, and the logs hold what is in no table: it opens, twice, and is read.
    let mut filler = files.create("filler", &CreateOptions::default()).expect("filler");
    while filler.append(&[1; 512], &context).and_then(|()| filler.sync(&context)).is_ok() {}
    drop(filler);
    for _ in 0..2 {
        let db = Db::open(env, media.clone(), small_options()).expect("open while full");
        let (found, error) = walk_all(&db);
        assert!(error.is_none() && found == model, "reads of what was opened while full: {error:?}");
        let error = db.put(b"k", b"v").expect_err("a write while full");
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        db.wait_idle().expect("idle");
        db.close().expect("close");
    }
    let db = Db::open(env, media.clone(), small_options()).expect("open while full");
    files.remove("filler").expect("remove");
    files.remove("ballast").expect("remove");
    files.sync_names().expect("sync_names");
    for _ in 0..100 {
        number += 1;
        put(&db, &mut model, number, number % 3 == 0).expect("a write after room came back");
    }
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    assert_eq!(walk_all(&db).0, model);
    assert_eq!(db.check().expect("check"), []);
    db.close().expect("close");
    drop(db);
    let db = Db::open(env, media, small_options()).expect("reopen");
    assert_eq!(walk_all(&db).0, model);
    db.close().expect("close");
}

#[test]
fn a_full_directory_fails_cleanly_and_goes_on_when_space_is_back() {
    let env = simulation(21);
    let options = MemoryDirectoryOptions { capacity_bytes: Some(1 << 20), ..MemoryDirectoryOptions::default() };
    let directory = Arc::new(MemoryDirectory::with_options("small", options));
    let store = varve_store::PlainStore::open(&env, directory, varve_store::PlainOptions::default());
    full_and_back(&env, Arc::new(store), 512 << 10);
}

#[test]
fn a_full_device_fails_cleanly_and_goes_on_when_space_is_back() {
    let env = simulation(22);
    let emulated = varve_media::Emulated::immediate(&env, "small", 4 << 20);
    let device = varve_media::Device::of_blocks(Arc::new(emulated));
    varve_store::ExtentStore::format(&env, &device, &varve_store::ExtentFormatOptions::default()).expect("format");
    let store = varve_store::ExtentStore::open(&env, device).expect("open");
    full_and_back(&env, Arc::new(store), 1536 << 10);
}

#[test]
fn a_full_zoned_device_fails_cleanly_and_goes_on_when_space_is_back() {
    for kind in [Kind::BAND, Kind::VARIABLE_BANDS] {
        let env = simulation(23);
        let image = Image::fresh(&env, kind);
        full_and_back(&env, image.media(&env).expect("media").files.expect("files"), 8 << 20);
        assert_eq!(image.device_errors(), 0, "a rule of the device was broken: {kind:?}");
    }
}

/// Tables have no space left, or everything else has none.
#[test]
fn a_full_interlaced_disk_fails_cleanly_and_goes_on_when_space_is_back() {
    for (seed, kind) in (30..).zip(imr_kinds()) {
        let env = simulation(seed);
        let image = Image::fresh(&env, kind);
        let files = image.media(&env).expect("media").files.expect("files");
        full_of_tables_and_back(&env, files.clone());
        check_ballast(&*files, FULL_DISK_BALLAST).unwrap_or_else(|what| panic!("{kind:?}: {what}"));
        assert_eq!(image.destroyed_bytes(), 0, "{kind:?}");
    }
}

/// Tables have space, logs and manifests have none.
#[test]
fn an_interlaced_disk_without_space_for_logs_fails_cleanly_and_goes_on_when_space_is_back() {
    for (seed, kind) in (30..).zip(imr_kinds().into_iter().filter(|kind| kind.number() % 5 == 0)) {
        let env = simulation(seed);
        let image = Image::fresh(&env, kind);
        let media = image.media(&env).expect("media");
        let files = media.files.clone().expect("files");
        let db = Db::open(&env, media.clone(), small_options()).expect("open");
        let mut model = State::new();
        for number in 0..20u32 {
            let (key, value) = (format!("k{number:04}").into_bytes(), vec![number as u8; 300]);
            db.put_with(&key, &value, &sync()).expect("put");
            model.insert(key, value);
        }
        let context = IoContext::default();
        let mut filler = files.create("filler", &CreateOptions::default()).expect("filler");
        while filler.append(&[1; 512], &context).and_then(|()| filler.sync(&context)).is_ok() {}
        drop(filler);
        let mut refused = None;
        for number in 20..200u32 {
            let (key, value) = (format!("k{number:04}").into_bytes(), vec![number as u8; 300]);
            match db.put_with(&key, &value, &sync()) {
                Ok(()) => drop(model.insert(key, value)),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let error = refused.unwrap_or_else(|| panic!("{kind:?}: logs go on without room"));
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{kind:?}: {error}");
        assert!(walk_all(&db).0 == model, "{kind:?}");
        let _ = db.close();
        drop(db);
        let db = Db::open(&env, media.clone(), small_options()).expect("open while full");
        assert!(walk_all(&db).0 == model, "{kind:?}: what was opened while full");
        db.close().expect("close");
        drop(db);
        files.remove("filler").expect("remove");
        files.sync_names().expect("sync_names");
        let db = Db::open(&env, media, small_options()).expect("open");
        db.put_with(b"k", b"v", &sync()).expect("a write after room came back");
        model.insert(b"k".to_vec(), b"v".to_vec());
        assert!(walk_all(&db).0 == model, "{kind:?}");
        assert_eq!(db.check().expect("check"), []);
        db.close().expect("close");
        check_ballast(&*files, FULL_DISK_BALLAST).unwrap_or_else(|what| panic!("{kind:?}: {what}"));
    }
}

/// Writes until no track is free for a table; what is there stays, and goes on once tables are removed.
fn full_of_tables_and_back(env: &Env, files: Arc<dyn FileStore>) {
    let fill = |name: &str, tracks: u64| {
        let options = CreateOptions { kind: FileKind::Table, ..CreateOptions::default() };
        let mut filler = files.create(name, &options).expect("filler");
        let context = IoContext::default();
        filler.append(&vec![7; (tracks * TRACK_BYTES) as usize], &context).expect("append");
        filler.sync(&context).and_then(|()| filler.finish(&context))
    };
    fill("filler", FULL_DISK_FREE_TRACKS - 6).expect("room for the filler");
    // More than there is: refused as a whole, with what was asked and what there is.
    let error = fill("too large", 7).expect_err("a table larger than the free tracks");
    assert!(
        matches!(&error, varve_store::StoreError::NoSpace { requested_bytes, available_bytes, .. }
        if *requested_bytes == 7 * TRACK_BYTES && *available_bytes == 6 * TRACK_BYTES),
        "{error}"
    );
    files.remove("too large").expect("remove");
    let media = varve_engine::Media::of_files(files.clone());
    let options = Options {
        level0_file_num_compaction_trigger: 100,
        level0_slowdown_writes_trigger: 100,
        level0_stop_writes_trigger: 100,
        ..small_options()
    };
    let db = Db::open(env, media.clone(), options.clone()).expect("open");
    let mut model = State::new();
    let mut error = None;
    for number in 0..400u32 {
        let (key, value) = (format!("k{number:06}").into_bytes(), vec![number as u8; 300]);
        match db.put_with(&key, &value, &WriteOptions { sync: number % 3 == 0 }) {
            Ok(()) => drop(model.insert(key, value)),
            Err(refused) => {
                error = Some(refused);
                break;
            }
        }
    }
    let error = error.expect("writes go on although no table fits");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    let (found, error) = walk_all(&db);
    assert!(error.is_none() && found == model, "reads while full: {error:?}");
    db.close().expect("close");
    drop(db);
    let db = Db::open(env, media, options).expect("open while full");
    let (found, error) = walk_all(&db);
    assert!(error.is_none() && found == model, "reads of what was opened while full: {error:?}");
    files.remove("filler").expect("remove");
    db.flush().expect("flush");
    db.put(b"k", b"v").expect("a write after room came back");
    db.compact_range(None, None).expect("compact_range");
    model.insert(b"k".to_vec(), b"v".to_vec());
    assert!(walk_all(&db).0 == model);
    assert_eq!(db.check().expect("check"), []);
    db.close().expect("close");
}

/// A sector below a table cannot be read: the error says which file and where, everything else is there.
#[test]
fn an_unreadable_sector_below_a_table_is_named_and_the_rest_is_there() {
    for (seed, kind) in (60..).zip(imr_kinds()) {
        let env = simulation(seed);
        let image = Image::fresh(&env, kind);
        let injector = FaultInjector::new(&env, FaultPlan::default());
        let media = image.media_under(&env, Some(&injector)).expect("media");
        let files = media.files.clone().expect("files");
        let options = Options { block_cache_capacity: 0, max_open_files: 2, ..small_options() };
        let db = Db::open(&env, media, options).expect("open");
        let mut model = State::new();
        for number in 0..60u32 {
            let (key, value) = (format!("k{number:04}").into_bytes(), vec![number as u8; 200]);
            db.put(&key, &value).expect("put");
            model.insert(key, value);
        }
        db.compact_range(None, None).expect("compact_range");
        db.wait_idle().expect("idle");
        let occupancy = files.occupancy();
        let of_table = |piece: &&OccupancyPiece| {
            piece.usage == PieceUsage::Table
                && piece.file.is_some_and(|file| occupancy.files[file as usize].name.ends_with(".sst"))
        };
        let piece = occupancy.pieces.iter().find(of_table).expect("a table");
        let name = &occupancy.files[piece.file.expect("a file") as usize].name;
        // Its second sector: the first of it holds data too, and stays readable.
        let range = piece.offset_bytes + 512..piece.offset_bytes + 1024;
        let unreadable = FaultEffect::Fail(FaultError::Unreadable);
        injector.set_plan(FaultPlan::of(
            Fault::new(Operation::Read, FaultTrigger::From(0), unreadable).on_range(range.clone()),
        ));
        let (mut right, mut failed) = (0, 0);
        for (key, value) in &model {
            match db.get(key) {
                Ok(found) => {
                    assert_eq!(found.as_deref(), Some(value.as_slice()), "{kind:?}");
                    right += 1;
                }
                Err(error) => {
                    let text = error.to_string();
                    assert_eq!(error.kind(), ErrorKind::Corruption, "{kind:?}: {text}");
                    assert!(text.contains(name.as_str()) && text.contains("offset"), "{kind:?}: {text}");
                    failed += 1;
                }
            }
        }
        assert!(failed >= 1 && right >= 40, "{kind:?}: {right} right, {failed} failed");
        let findings = db.check().expect("check");
        assert!(
            findings.iter().any(|finding| format!("{finding:?}").contains(name.as_str())),
            "{kind:?}: {findings:?}"
        );
        // The medium reads again: nothing was lost.
        injector.set_plan(FaultPlan::default());
        let (found, error) = walk_all(&db);
        assert!(error.is_none() && found == model, "{kind:?}: {error:?}");
        db.close().expect("close");
    }
}

/// Somebody else's bytes where the store begins, and damaged ones.
#[test]
fn a_foreign_or_damaged_superblock_is_a_typed_error_and_nothing_is_lost() {
    let kind = Kind::KVIMR;
    let env = simulation(70);
    let image = Image::fresh(&env, kind);
    let Image::Device(_, device) = &image else { panic!("a device") };
    let db = Db::open(&env, image.media(&env).expect("media"), small_options()).expect("open");
    db.put_with(b"a", b"1", &sync()).expect("put");
    db.close().expect("close");
    drop(db);
    // The tops follow each other: the superblocks are on the first of them and 64 KiB further.
    let slots = [TRACK_BYTES, 2 * (64 << 10) + TRACK_BYTES];
    let context = IoContext::default();
    let read = || {
        slots.map(|at| {
            let mut sector = [0; 512];
            device.block.read_at(at, &mut sector, &context).expect("read");
            sector
        })
    };
    let overwrite = |sectors: [[u8; 512]; 2]| {
        for (at, sector) in slots.iter().zip(sectors) {
            device.block.write_at(*at, &sector, &context).expect("write");
        }
    };
    let kind_of_open = || image.media(&env).err().map(|error| (error.kind(), error.to_string()));
    let damage = |mut sector: [u8; 512]| {
        sector[200] ^= 0x40;
        sector
    };
    type Change = fn([u8; 512]) -> [u8; 512];
    let changes: [(Change, StoreErrorKind); 3] = [
        // The disk says that a store is there.
        (|_| [0; 512], StoreErrorKind::Corruption),
        (|_| [0x5a; 512], StoreErrorKind::Foreign),
        (damage, StoreErrorKind::Corruption),
    ];
    for (change, expected) in changes {
        // An open writes both anew.
        let kept = read();
        overwrite(kept.map(change));
        let (kind, text) = kind_of_open().expect("it opens");
        assert!(kind == expected && text.contains("crashed"), "{expected:?}: {text}");
        overwrite(kept);
        let db = Db::open(&env, image.media(&env).expect("media"), small_options()).expect("open");
        assert_eq!(db.get(b"a").expect("get").as_deref(), Some(&b"1"[..]));
        db.close().expect("close");
    }
}

/// Logs that are in tables give their space back although nobody ever syncs.
#[test]
fn writing_without_syncs_takes_no_more_space_than_what_is_there() {
    let env = simulation(24);
    let options = MemoryDirectoryOptions { capacity_bytes: Some(3 << 20), ..MemoryDirectoryOptions::default() };
    let directory = Arc::new(MemoryDirectory::with_options("small", options));
    let plain = varve_store::PlainStore::open(&env, directory, varve_store::PlainOptions::default());
    let emulated = varve_media::Emulated::immediate(&env, "small", 8 << 20);
    let device = varve_media::Device::of_blocks(Arc::new(emulated));
    varve_store::ExtentStore::format(&env, &device, &varve_store::ExtentFormatOptions::default()).expect("format");
    let extent = varve_store::ExtentStore::open(&env, device).expect("open");
    let stores: [Arc<dyn FileStore>; 2] = [Arc::new(plain), Arc::new(extent)];
    for files in stores {
        let name = files.name().to_owned();
        let db = Db::open(&env, varve_engine::Media::of_files(files), small_options()).expect("open");
        for number in 0..5_000u32 {
            let key = (number % 200).to_le_bytes();
            db.put(&key, &[number as u8; 500]).unwrap_or_else(|error| panic!("{name}, write {number}: {error}"));
        }
        db.close().expect("close");
    }
}

#[test]
fn after_a_failed_log_sync_writes_are_refused_until_reopened() {
    for kind in [Kind::PLAIN, Kind::EXTENT] {
        let env = simulation(23);
        let image = Image::fresh(&env, kind);
        let injector = FaultInjector::new(&env, FaultPlan::default());
        let db =
            Db::open(&env, image.media_under(&env, Some(&injector)).expect("media"), small_options()).expect("open");
        db.put_with(b"a", b"1", &sync()).expect("put");
        let effect = FaultEffect::FailDroppingUnsynced(FaultError::Io);
        injector
            .set_plan(FaultPlan::of(Fault::new(Operation::Sync, FaultTrigger::Once(0), effect).on_class(IoClass::Log)));
        let error = db.put_with(b"b", b"2", &sync()).expect_err("a failed sync");
        assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned), "{kind:?}: {error}");
        for options in [sync(), WriteOptions::default()] {
            let error = db.put_with(b"c", b"3", &options).expect_err("a write after a failed sync");
            assert_eq!(error.kind(), ErrorKind::Poisoned, "{kind:?}: {error}");
        }
        assert_eq!(db.flush().expect_err("a flush after a failed sync").kind(), ErrorKind::Poisoned);
        assert_eq!(db.get(b"a").expect("get").as_deref(), Some(&b"1"[..]));
        assert_eq!(db.get(b"b").expect("get"), None, "{kind:?}: a write that failed is visible");
        let _ = db.close();
        drop(db);
        let db = Db::open(&env, image.media(&env).expect("media"), small_options()).expect("reopen");
        assert_eq!(db.get(b"a").expect("get").as_deref(), Some(&b"1"[..]));
        assert_eq!(db.get(b"c").expect("get"), None);
        db.put_with(b"c", b"3", &sync()).expect("put");
        db.close().expect("close");
    }
}

/// A write whose append failed may lie whole in the log. A flush then must not let a newer log take
/// writes that recovery could not put behind it.
#[test]
fn a_flush_that_fails_after_a_failed_append_lets_no_write_through_that_recovery_would_lose() {
    for kind in [Kind::PLAIN, Kind::EXTENT, Kind::imr(AllocationName::default(), RewriteName::Merged)] {
        let env = simulation(24);
        let image = Image::fresh(&env, kind);
        let injector = FaultInjector::new(&env, FaultPlan::default());
        let db =
            Db::open(&env, image.media_under(&env, Some(&injector)).expect("media"), small_options()).expect("open");
        db.put(b"a", b"1").expect("put");
        // The store on a device tries a failed write of a log once more.
        let tries = if kind == Kind::PLAIN { 1 } else { 2 };
        let mut faults: Vec<Fault> = (0..tries)
            .map(|index| {
                Fault::new(Operation::Write, FaultTrigger::Once(index), FaultEffect::FailAfter(FaultError::Io))
            })
            .map(|append| append.on_class(IoClass::Log))
            .collect();
        let table = Fault::new(Operation::Write, FaultTrigger::From(0), FaultEffect::Fail(FaultError::Io));
        faults.push(table.on_class(IoClass::Flush));
        injector.set_plan(FaultPlan { seed: 0, faults });
        db.put(b"b", b"2").expect_err("a failed append");
        db.flush().expect_err("a failed flush");
        let taken = db.put_with(b"c", b"3", &sync()).is_ok();
        drop(db);
        let db = Db::open(&env, image.media(&env).expect("media"), small_options())
            .unwrap_or_else(|error| panic!("{kind:?}: does not open: {error}"));
        assert_eq!(db.get(b"a").expect("get").as_deref(), Some(&b"1"[..]));
        assert_eq!(db.get(b"c").expect("get").is_some(), taken, "{kind:?}");
        db.close().expect("close");
    }
}

#[test]
fn a_second_open_is_refused() {
    for kind in [Kind::PLAIN, Kind::EXTENT, Kind::imr(AllocationName::default(), RewriteName::Merged)] {
        let env = simulation(25);
        let image = Image::fresh(&env, kind);
        let media = image.media(&env).expect("media");
        let db = Db::open(&env, media.clone(), small_options()).expect("open");
        let second = if kind == Kind::PLAIN { image.media(&env).expect("media") } else { media.clone() };
        let error = Db::open(&env, second.clone(), small_options()).err().expect("a second open");
        assert_eq!(error.kind(), ErrorKind::Locked, "{kind:?}: {error}");
        let error =
            varve_engine::repair(&env, second.clone(), small_options()).expect_err("repair of an open database");
        assert_eq!(error.kind(), ErrorKind::Locked, "{kind:?}: {error}");
        db.put(b"a", b"1").expect("put");
        db.close().expect("close");
        let db = Db::open(&env, second, small_options()).expect("open after close");
        assert_eq!(db.get(b"a").expect("get").as_deref(), Some(&b"1"[..]));
        db.close().expect("close");
    }
}

/// Once `close` returned, nothing of the old database changes files: the next one owns them.
#[test]
fn close_waits_for_a_compaction_a_caller_runs() {
    let env = simulation(26);
    let image = Image::fresh(&env, Kind::PLAIN);
    let injector = FaultInjector::new(&env, FaultPlan::default());
    let media = image.media_under(&env, Some(&injector)).expect("media");
    let db = Db::open(&env, media, small_options()).expect("open");
    let mut model = State::new();
    for number in 0..200u32 {
        let (key, value) = (format!("k{:04}", number % 120).into_bytes(), vec![number as u8; 200]);
        db.put(&key, &value).expect("put");
        model.insert(key, value);
    }
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    let stall = FaultEffect::Stall(Duration::from_millis(5));
    injector.set_plan(FaultPlan::of(
        Fault::new(Operation::Write, FaultTrigger::From(0), stall).on_class(IoClass::Compaction),
    ));
    db.put(b"k0000", b"newest").expect("put");
    model.insert(b"k0000".to_vec(), b"newest".to_vec());
    let compacting = {
        let db = db.clone();
        env.spawn("caller", move || db.compact_range(None, None))
    };
    env.sleep(Duration::from_millis(7));
    db.close().expect("close");
    let db = Db::open(&env, image.media(&env).expect("media"), small_options()).expect("open");
    let _ = compacting.join().unwrap_or_else(|panic| panic.resume());
    env.sleep(Duration::from_secs(5));
    let (found, error) = walk_all(&db);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(found, model);
    assert_eq!(db.check().expect("check"), []);
    db.close().expect("close");
}
