//! Every I/O call of a workload fails, once and for good, with each kind of error: no panic, no
//! hang, no wrong answer, and what was acknowledged is there once the medium works again.

#[path = "suite/history.rs"]
#[allow(dead_code)]
mod history;
#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;
#[path = "suite/outcome.rs"]
#[allow(dead_code)]
mod outcome;

use history::{History, State, small_options};
use medium::{Image, Kind};
use outcome::{MayLose, Outcome, UNIVERSE, run, walk_all};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use varve_engine::{Db, ErrorKind, WriteOptions};
use varve_env::{Env, SimOptions};
use varve_media::{
    Fault, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, IoClass, MemoryDirectory,
    MemoryDirectoryOptions, Operation,
};
use varve_store::{CreateOptions, FileStore, IoContext};

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
    let may_lose = matches!(fault.effect, FaultEffect::FailDroppingUnsynced(_));
    let media = image.media(&env).map_err(|error| format!("the store does not open afterwards: {error}"))?;
    let db = Db::open(&env, media, small_options()).map_err(|error| format!("does not open afterwards: {error}"))?;
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
    outcome.acknowledged.clear();
    Ok(outcome)
}

fn effects(operation: Operation) -> Vec<FaultEffect> {
    use FaultEffect::{Fail, FailAfter, FailDroppingUnsynced, FailPartly, FlipBits, ShortRead};
    let mut effects = vec![Fail(FaultError::Io)];
    match operation {
        Operation::Read => effects.extend([Fail(FaultError::Unreadable), ShortRead, FlipBits(3)]),
        Operation::Write => effects.extend([
            Fail(FaultError::NoSpace),
            FailAfter(FaultError::Io),
            FailPartly(FaultError::Io),
            FailPartly(FaultError::NoSpace),
            Fail(FaultError::ReadOnly),
        ]),
        Operation::Sync => effects.extend([FailAfter(FaultError::Io), FailDroppingUnsynced(FaultError::Io)]),
        Operation::Lock => {}
        Operation::List => {}
        _ => effects.extend([Fail(FaultError::NoSpace), FailAfter(FaultError::Io)]),
    }
    effects
}

fn short_history() -> History {
    History::new(SEED, 48, UNIVERSE)
}

fn every_call_fails(kind: Kind) {
    let history = Arc::new(short_history());
    let calls = {
        let env = simulation(SEED);
        let image = Image::fresh(&env, kind);
        let injector = FaultInjector::new(&env, FaultPlan::default());
        let outcome = run(&env, &image, &injector, &history, MayLose::Unsynced).expect("no fault, no error");
        assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
        injector.calls()
    };
    let mut faults = Vec::new();
    for (&operation, &count) in &calls {
        for index in 0..count {
            for effect in effects(operation) {
                for trigger in [FaultTrigger::Once(index), FaultTrigger::From(index)] {
                    faults.push(Fault::new(operation, trigger, effect.clone()));
                }
            }
        }
    }
    let total = faults.len();
    let (faults, next) = (Arc::new(faults), Arc::new(AtomicUsize::new(0)));
    let env = Env::real();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (faults, next, history) = (faults.clone(), next.clone(), history.clone());
            env.spawn("faults", move || {
                let mut errors: BTreeMap<String, usize> = BTreeMap::new();
                let mut wrong = Vec::new();
                while let Some(fault) = faults.get(next.fetch_add(1, Ordering::SeqCst)) {
                    match run_with_fault(kind, &history, fault.clone()) {
                        Ok(outcome) => outcome
                            .errors
                            .into_iter()
                            .for_each(|(kind, count)| *errors.entry(kind).or_default() += count),
                        Err(what) => {
                            wrong.push(format!("{:?} {:?} {:?}: {what}", fault.operation, fault.trigger, fault.effect))
                        }
                    }
                }
                (errors, wrong)
            })
        })
        .collect();
    let mut all: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for thread in threads {
        let (errors, mut found) = thread.join().unwrap_or_else(|panic| panic.resume());
        errors.into_iter().for_each(|(kind, count)| *all.entry(kind).or_default() += count);
        wrong.append(&mut found);
    }
    println!("{kind:?}: {total} faults at {calls:?}; errors {all:?}");
    wrong.sort();
    assert!(
        wrong.is_empty(),
        "{} of {total} faults on {kind:?}:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(40)].join("\n")
    );
    assert!(!all.contains_key("InvalidArgument"), "a failing medium is no wrong argument: {all:?}");
    assert!(all.len() >= 4, "too few kinds of errors: {all:?}");
}

#[test]
fn every_call_of_plain_fails_once_and_for_good() {
    every_call_fails(Kind::Plain);
}

#[test]
fn every_call_of_extent_fails_once_and_for_good() {
    every_call_fails(Kind::Extent);
}

fn sync() -> WriteOptions {
    WriteOptions { sync: true }
}

/// Writes until the medium is full, then makes room and goes on with the same database.
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

/// Logs that are in tables give their room back although nobody ever syncs.
#[test]
fn writing_without_syncs_takes_no_more_room_than_what_is_there() {
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
    for kind in [Kind::Plain, Kind::Extent] {
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
        assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Latched), "{kind:?}: {error}");
        for options in [sync(), WriteOptions::default()] {
            let error = db.put_with(b"c", b"3", &options).expect_err("a write after a failed sync");
            assert_eq!(error.kind(), ErrorKind::Latched, "{kind:?}: {error}");
        }
        assert_eq!(db.flush().expect_err("a flush after a failed sync").kind(), ErrorKind::Latched);
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
    for kind in [Kind::Plain, Kind::Extent] {
        let env = simulation(24);
        let image = Image::fresh(&env, kind);
        let injector = FaultInjector::new(&env, FaultPlan::default());
        let db =
            Db::open(&env, image.media_under(&env, Some(&injector)).expect("media"), small_options()).expect("open");
        db.put(b"a", b"1").expect("put");
        // The store on a device tries a failed write of a log once more.
        let tries = if kind == Kind::Plain { 1 } else { 2 };
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
    for kind in [Kind::Plain, Kind::Extent] {
        let env = simulation(25);
        let image = Image::fresh(&env, kind);
        let media = image.media(&env).expect("media");
        let db = Db::open(&env, media.clone(), small_options()).expect("open");
        let second = if kind == Kind::Plain { image.media(&env).expect("media") } else { media.clone() };
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
    let image = Image::fresh(&env, Kind::Plain);
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
