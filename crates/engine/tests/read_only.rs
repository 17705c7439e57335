//! Opening for reading only: beside a writer, on what a crash left, and without a change to the medium.

#[path = "suite/history.rs"]
#[allow(dead_code)]
mod history;
#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;

use history::{History, Step};
use medium::{Image, Kind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use varve_engine::{Db, ErrorKind, Options, WriteBatch, WriteOptions};
use varve_env::{Env, Random, SimOptions};
use varve_media::{Fault, FaultEffect, FaultInjector, FaultPlan, FaultTrigger, MemoryDirectory, Operation};
use varve_store::Severity;

const UNIVERSE: u64 = 64;

/// Virtual time no run here needs: a run that takes it hangs.
const TIME_LIMIT: Duration = Duration::from_secs(3600);

fn simulation(seed: u64) -> Env {
    Env::sim_with(SimOptions { seed, perturb: true, time_limit: Some(TIME_LIMIT), ..SimOptions::default() })
}

/// Calls that take time, so that others come between: any of them, now and then.
fn interruptions(seed: u64) -> FaultPlan {
    use Operation::{Lock, Open, Read, Remove, Rename, Sync, SyncDirectory, Truncate, Write};
    let stalled = |operation| {
        let often = FaultTrigger::Random { numerator: 1, denominator: 3 };
        Fault::new(operation, often, FaultEffect::Stall(Duration::from_micros(20)))
    };
    let operations = [Lock, Open, Read, Remove, Rename, Sync, SyncDirectory, Truncate, Write, Operation::List];
    FaultPlan { seed, faults: operations.map(stalled).to_vec() }
}

/// What a writer has done so far.
#[derive(Default)]
struct Progress {
    /// Batches acknowledged.
    written: AtomicUsize,
    /// Batches begun.
    begun: AtomicUsize,
    ended: AtomicBool,
}

/// The steps of a history, while others look on.
fn write_all(env: &Env, image: &Image, history: &History, seed: u64, progress: &Progress) {
    let injector = FaultInjector::new(env, interruptions(seed));
    let open = || {
        let media = image.media_under(env, Some(&injector)).expect("media");
        Db::open(env, media, history.options.clone()).expect("open")
    };
    let mut db = open();
    let mut number = 0;
    for step in &history.steps {
        match *step {
            Step::Write { sync } => {
                number += 1;
                progress.begun.store(number, Ordering::SeqCst);
                history.write(&db, number, sync).expect("write");
                progress.written.store(number, Ordering::SeqCst);
            }
            Step::Flush => db.flush().expect("flush"),
            Step::CompactAll => db.compact_range(None, None).expect("compact_range"),
            Step::WaitIdle => db.wait_idle().expect("wait_idle"),
            Step::Sleep => env.sleep(Duration::from_millis(1)),
            Step::Reopen { close } => {
                if close {
                    db.close().expect("close");
                }
                drop(db);
                db = open();
            }
        }
    }
    db.close().expect("close");
    progress.ended.store(true, Ordering::SeqCst);
}

/// Opens again and again while a writer is at work; how many openings that were, and how many distinct states.
fn read_beside_a_writer(kind: Kind, seed: u64, history: History) -> (usize, usize) {
    let env = simulation(seed);
    let history = Arc::new(history);
    let image = Image::fresh(&env, kind);
    let progress = Arc::new(Progress::default());
    let writer = {
        let (env, image, history, progress) = (env.clone(), image.clone(), history.clone(), progress.clone());
        env.clone().spawn("writer", move || write_all(&env, &image, &history, seed, &progress))
    };
    let injector = FaultInjector::new(&env, interruptions(seed ^ 1));
    let mut random = Random::named(seed, "reader");
    let (mut openings, mut states) = (0, std::collections::BTreeSet::new());
    let mut held: Vec<(Db, usize)> = Vec::new();
    loop {
        let is_last = progress.ended.load(Ordering::SeqCst);
        let acknowledged = progress.written.load(Ordering::SeqCst);
        let media = image.media_under(&env, Some(&injector)).expect("media");
        match Db::open_read_only(&env, media, history.options.clone()) {
            Ok(db) => {
                openings += 1;
                let begun = progress.begun.load(Ordering::SeqCst);
                let note = format!("{kind:?} seed {seed} opening {openings}");
                let seen = history.verify(&db, acknowledged..=begun).unwrap_or_else(|what| panic!("{note}: {what}"));
                states.insert(seen);
                if random.chance(1, 4) {
                    let findings = db.check().expect("check");
                    let worst = findings.iter().map(|finding| finding.severity).max();
                    assert!(worst.is_none_or(|severity| severity < Severity::Error), "{note}: {findings:?}");
                }
                held.push((db, seen));
            }
            Err(error) if error.kind() == ErrorKind::NotFound && acknowledged == 0 => {}
            Err(error) => panic!("{kind:?} seed {seed}: open after {acknowledged} batches: {error}"),
        }
        if is_last {
            break;
        }
        env.sleep(Duration::from_micros(random.below(400)));
        // What was opened stays as it was, whatever the writer removed since.
        if held.len() > random.index(6) {
            let (db, seen) = held.swap_remove(random.index(held.len()));
            history.compare(&db, seen).unwrap_or_else(|what| panic!("{kind:?} seed {seed}: a state changed: {what}"));
        }
    }
    writer.join().unwrap_or_else(|panic| panic.resume());
    assert!(states.contains(&history.batches.len()), "the last state was not seen");
    (openings, states.len())
}

#[test]
fn beside_a_writer_every_opening_finds_one_state_no_older_than_itself() {
    let (mut openings, mut states) = (0, 0);
    for seed in 0..40 {
        let kind = if seed % 4 == 3 { Kind::PLAIN_LOGS_APART } else { Kind::PLAIN };
        let history = History::new(seed, 120, UNIVERSE);
        let options = Options {
            use_direct_io_for_flush_and_compaction: seed % 3 == 1,
            use_direct_reads: seed % 5 == 1,
            max_subcompactions: 1 + (seed % 2) as usize,
            ..history.options
        };
        let (opened, seen) = read_beside_a_writer(kind, seed, History { options, ..history });
        openings += opened;
        states += seen;
    }
    println!("reached: read_only: {openings} openings, {states} states");
    assert!(openings >= 1000 && states >= 500, "{openings} openings and {states} states are too few");
}

#[test]
fn nothing_is_changed_and_writes_are_refused() {
    let imr = medium::imr_kinds().into_iter().take(2);
    for kind in medium::kinds(|kind| kind != Kind::EXTENT_NEXT_FIT).into_iter().chain(imr) {
        let env = simulation(1);
        let image = Image::fresh(&env, kind);
        let open =
            |env: &Env| Db::open_read_only(env, image.only_read().media(env).expect("media"), Options::default());
        let nothing = image.changes();
        assert_eq!(open(&env).err().map(|error| error.kind()), Some(ErrorKind::NotFound));
        assert_eq!(image.changes(), nothing, "{kind:?}: an opening of nothing made something");
        let db = Db::open(&env, image.media(&env).expect("media"), Options::default()).expect("open");
        for number in 0..50u32 {
            db.put(&number.to_le_bytes(), b"value").expect("put");
            if number % 20 == 0 {
                db.flush().expect("flush");
            }
        }
        db.close().expect("close");
        let before = image.changes();
        let db = open(&env).expect("open_read_only");
        assert_eq!(db.get(&7u32.to_le_bytes()).expect("get").as_deref(), Some(&b"value"[..]));
        assert_eq!(db.check().expect("check"), []);
        let _ = (db.statistics(), db.property("varve.stats"));
        let mut batch = WriteBatch::new();
        batch.put(b"key", b"value").expect("put in batch");
        let other = Image::plain(MemoryDirectory::new("checkpoint")).media(&env).expect("media").files.expect("files");
        for refused in [
            db.put(b"key", b"value"),
            db.delete(b"key"),
            db.write(batch, &WriteOptions { sync: true }),
            db.flush(),
            db.compact_range(None, None),
            db.checkpoint(&*other),
        ] {
            assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::ReadOnly));
        }
        db.wait_idle().expect("wait_idle");
        let after = image.changes();
        assert!(after == before && before > nothing, "{kind:?}: {nothing}, {before} and {after} changes");
        if !kind.is_plain() {
            continue;
        }
        // Several at a time, and a writer beside them.
        let writer = Db::open(&env, image.media(&env).expect("media"), Options::default()).expect("a writer beside");
        writer.wait_idle().expect("wait_idle");
        let after_opening = image.changes();
        let second = open(&env).expect("a second reader");
        assert_eq!(second.get(b"key").expect("get"), None);
        second.close().expect("close");
        assert_eq!(second.get(b"key").map_err(|error| error.kind()), Err(ErrorKind::Closed));
        drop((second, db));
        assert_eq!(image.changes(), after_opening);
        drop(writer);
    }
}

/// The file system is asked for what is not there any more: it was removed, and not damaged.
#[test]
fn a_table_that_the_writer_removed_is_not_damage() {
    let env = simulation(2);
    let image = Image::fresh(&env, Kind::PLAIN);
    let options = Options { max_open_files: 1, ..history::small_options() };
    let writer = Db::open(&env, image.media(&env).expect("media"), options.clone()).expect("open");
    let put_all = |value: &[u8]| {
        for number in 0..200u32 {
            writer.put(&number.to_le_bytes(), &value.repeat(20)).expect("put");
        }
        writer.compact_range(None, None).expect("compact_range");
    };
    put_all(b"old");
    let media = image.media(&env).expect("media");
    let few = Db::open_read_only(&env, media, options.clone()).expect("open_read_only");
    let media = image.media(&env).expect("media");
    let all = Db::open_read_only(&env, media, Options { max_open_files: 1000, ..options }).expect("open_read_only");
    assert!(few.statistics().levels().iter().map(|level| level.tables).sum::<usize>() > 3, "too few tables");
    put_all(b"new");
    let mut refused = 0;
    for number in 0..200u32 {
        let expected = Some(b"old".repeat(20));
        assert_eq!(all.get(&number.to_le_bytes()).expect("a table that is held").as_deref(), expected.as_deref());
        match few.get(&number.to_le_bytes()) {
            Ok(found) => assert_eq!(found.as_deref(), expected.as_deref()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
                assert!(error.to_string().contains("open it again"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "no table was removed");
}
