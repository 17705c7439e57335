//! Merges of tables that overlap become part of the tree in pieces: what is read across them, failures, openings and repairs between them.

#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;
#[path = "suite/walk.rs"]
mod walk;

use medium::{Image, Kind};
use std::collections::BTreeMap;
use std::time::Duration;
use varve_engine::{Db, Options, ReadOptions, Snapshot, TreeKind, WriteOptions};
use varve_env::{Env, Random, SimOptions};
use varve_media::{Fault, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, IoClass, Operation};
use walk::compare_forward;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const KEYS: u64 = 700;

fn simulation(seed: u64) -> Env {
    Env::sim_with(SimOptions {
        seed,
        perturb: seed % 2 == 1,
        time_limit: Some(Duration::from_secs(24 * 3600)),
        ..SimOptions::default()
    })
}

/// Tables of a few kibibytes, many of them to a merge.
fn options() -> Options {
    Options {
        tree: Some(TreeKind::TwoLevel),
        compact_in_pieces: Some(true),
        write_buffer_size: 12 << 10,
        target_file_size_base: 3 << 10,
        max_level0_compaction_tables: 8,
        block_size: 256,
        block_cache_capacity: 16 << 10,
        log_buffer_size: Some(2 << 10),
        max_manifest_file_size: 4 << 10,
        // Walks open tables again, which must be there.
        max_open_files: 4,
        max_subcompactions: 1,
        ..Options::default()
    }
}

fn compare(db: &Db, model: &Model, snapshot: Option<&Snapshot>, note: &str) {
    let read = ReadOptions { snapshot, ..ReadOptions::default() };
    let mut walk = db.iterator(&read).expect("iterator");
    compare_forward(&mut walk, model, note);
    walk.seek_to_last();
    for (key, value) in model.iter().rev() {
        assert!(walk.valid(), "{note}: {} is missing backward", key.escape_ascii());
        assert_eq!((walk.key(), walk.value()), (&**key, &**value), "{note}, backward");
        walk.previous();
    }
    assert!(!walk.valid() && walk.status().is_ok(), "{note}: {:?}", walk.status());
    for number in (0..KEYS).step_by(5) {
        let key = key(number);
        let found = db.get_with(&key, &read).expect("get");
        assert_eq!(found.as_deref(), model.get(&key).map(Vec::as_slice), "{note}: {}", key.escape_ascii());
        // Turns between two keys.
        walk.seek(&key);
        let at = model.range(key.clone()..).next();
        assert_eq!(walk.valid().then(|| walk.key()), at.map(|(key, _)| &key[..]), "{note}");
        walk.seek_for_previous(&key);
        let at = model.range(..=key).next_back();
        assert_eq!(walk.valid().then(|| walk.key()), at.map(|(key, _)| &key[..]), "{note}");
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:04}").into_bytes()
}

/// One put or delete of a random key.
fn write(db: &Db, model: &mut Model, random: &mut Random) {
    let key = key(random.below(KEYS));
    if random.chance(1, 4) {
        db.delete(&key).expect("delete");
        model.remove(&key);
    } else {
        let mut value = vec![0; 10 + random.index(90)];
        random.fill_bytes(&mut value);
        db.put_with(&key, &value, &WriteOptions { sync: random.chance(1, 30) }).expect("put");
        model.insert(key, value);
    }
}

/// Compactions so slow that much happens between two pieces.
fn slow_compactions() -> FaultPlan {
    let stall = FaultEffect::Stall(Duration::from_millis(2));
    FaultPlan::of(Fault::new(Operation::Write, FaultTrigger::From(0), stall).on_class(IoClass::Compaction))
}

#[test]
fn reads_snapshots_and_iterators_are_right_across_pieces() {
    for (seed, kind) in [(1, Kind::PLAIN), (2, Kind::EXTENT), (3, Kind::BAND), (4, Kind::PLAIN)] {
        let (env, mut random) = (simulation(seed), Random::named(seed, "pieces"));
        let image = Image::fresh(&env, kind);
        let injector = FaultInjector::new(&env, slow_compactions());
        let options = Options {
            overlap_depth_max: Some(if seed == 4 { 3 } else { 0 }),
            flush_key_ranges: Some(seed == 4),
            ..options()
        };
        let open = || {
            let media = image.media_under(&env, Some(&injector)).expect("media");
            Db::open(&env, media, options.clone()).expect("open")
        };
        let (mut db, mut model, mut pieces, mut range_flushes) = (open(), Model::new(), 0, 0);
        let mut held: Vec<(Snapshot, Model)> = Vec::new();
        for round in 0..60 {
            let note = format!("{kind:?} seed {seed} round {round}");
            // A walk that goes on while pieces are installed.
            let then = model.clone();
            let mut walk = db.iterator(&ReadOptions::default()).expect("iterator");
            walk.seek_to_first();
            for (position, (key, value)) in then.iter().enumerate() {
                assert_eq!((walk.key(), walk.value()), (&**key, &**value), "{note}");
                walk.next();
                if position % 4 == 0 {
                    write(&db, &mut model, &mut random);
                }
            }
            assert!(!walk.valid() && walk.status().is_ok(), "{note}: {:?}", walk.status());
            (0..80).for_each(|_| write(&db, &mut model, &mut random));
            compare(&db, &model, None, &note);
            if round % 7 == 3 {
                held.push((db.snapshot(), model.clone()));
            }
            if let Some((snapshot, then)) = held.get(random.index(held.len().max(1))) {
                compare(&db, then, Some(snapshot), &note);
            }
            drop(walk);
            if round % 20 == 19 {
                held.clear();
                pieces += db.statistics().counters.compaction_pieces;
                range_flushes += db.statistics().counters.range_flushes;
                // Without closing, in the middle of whatever goes on.
                drop(db);
                db = open();
                compare(&db, &model, None, &format!("{note}, opened"));
            }
        }
        db.wait_idle().expect("wait_idle");
        db.compact_range(None, None).expect("compact_range");
        compare(&db, &model, None, "at the end");
        let findings = db.check().expect("check");
        assert!(findings.is_empty(), "{findings:?}");
        pieces += db.statistics().counters.compaction_pieces;
        range_flushes += db.statistics().counters.range_flushes;
        println!("{kind:?} seed {seed}: {pieces} pieces, {range_flushes} flushes of ranges");
        assert!(
            range_flushes >= if options.flush_key_ranges.unwrap_or_default() { 20 } else { 0 },
            "{range_flushes} flushes of ranges"
        );
        assert!(pieces >= if kind == Kind::BAND { 0 } else { 20 }, "{kind:?} seed {seed}: {pieces} pieces");
    }
}

/// Tables of puts and of deletes, none of them compacted.
fn load(env: &Env, image: &Image, model: &mut Model) {
    let mut random = Random::named(7, "load");
    let options = Options { disable_auto_compactions: true, ..options() };
    let db = Db::open(env, image.media(env).expect("media"), options).expect("open");
    (0..1500).for_each(|_| write(&db, model, &mut random));
    db.flush().expect("flush");
    db.close().expect("close");
}

/// Tables of which not all entries count.
fn cut_tables(db: &Db) -> u64 {
    db.statistics().counters.compaction_pieces
}

/// A compaction of everything fails at one call after the other, between all its pieces.
fn fail_everywhere(class: IoClass, operation: Operation, effect: &FaultEffect, repairs: bool) -> (u64, u64) {
    let (mut failures, mut between) = (0, 0);
    for number in 0.. {
        let env = simulation(50 + number);
        let (image, mut model) = (Image::fresh(&env, Kind::PLAIN), Model::new());
        load(&env, &image, &mut model);
        let note = format!("{class:?} {operation:?} {number} {effect:?}");
        let options = Options { disable_auto_compactions: true, ..options() };
        let fault = Fault::new(operation, FaultTrigger::Once(number), effect.clone()).on_class(class);
        let injector = FaultInjector::new(&env, FaultPlan::default());
        let db =
            Db::open(&env, image.media_under(&env, Some(&injector)).expect("media"), options.clone()).expect("open");
        let snapshot = db.snapshot();
        let then = model.clone();
        for number in (0..KEYS).step_by(3) {
            db.delete(&key(number)).expect("delete");
            model.remove(&key(number));
        }
        db.flush().expect("flush");
        injector.set_plan(FaultPlan::of(fault));
        let failed = db.compact_range(None, None).is_err();
        failures += u64::from(failed);
        between += u64::from(failed && cut_tables(&db) > 0);
        compare(&db, &model, None, &note);
        compare(&db, &then, Some(&snapshot), &note);
        drop(snapshot);
        injector.set_plan(FaultPlan::default());
        if number % 2 == 0 && !repairs {
            // It goes on where it was.
            db.compact_range(None, None).expect("compact_range");
            compare(&db, &model, None, &note);
        }
        drop(db);
        if repairs {
            varve_engine::repair(&env, image.media(&env).expect("media"), options.clone()).expect("repair");
        }
        let db = Db::open(&env, image.media(&env).expect("media"), options.clone()).expect("open");
        compare(&db, &model, None, &note);
        db.compact_range(None, None).expect("compact_range");
        compare(&db, &model, None, &note);
        assert_eq!(db.property("varve.estimate-num-keys"), Some(model.len().to_string()), "{note}");
        let findings = db.check().expect("check");
        assert!(findings.is_empty(), "{note}: {findings:?}");
        let listed = db.property("varve.tables").expect("a property").lines().count();
        drop(db);
        let store = image.store(&env, None).expect("store");
        let tables = store.list().expect("list").into_iter().filter(|entry| entry.name.ends_with(".sst")).count();
        // A repair sets files aside.
        assert!(tables == listed || repairs, "{note}: {tables} files of {listed} tables");
        if !failed {
            return (failures, between);
        }
    }
    unreachable!("it succeeds once the fault comes after its last call")
}

#[test]
fn a_failed_write_between_pieces_changes_nothing() {
    let (failures, between) =
        fail_everywhere(IoClass::Compaction, Operation::Write, &FaultEffect::Fail(FaultError::Io), false);
    println!("{failures} failures, {between} of them between pieces");
    assert!(failures > 10 && between > 8, "{failures} failures, {between} of them between pieces");
}

/// Of a piece whose edit failed it is open whether a crash would find it.
#[test]
fn a_failed_edit_of_a_piece_changes_nothing() {
    for effect in [FaultEffect::Fail(FaultError::Io), FaultEffect::FailAfter(FaultError::Io)] {
        for operation in [Operation::Write, Operation::Sync] {
            let (failures, between) = fail_everywhere(IoClass::Metadata, operation, &effect, false);
            println!("{operation:?} {effect:?}: {failures} failures, {between} of them between pieces");
            assert!(failures > 5 && between > 3, "{failures} failures, {between} of them between pieces");
        }
    }
}

/// What a merge has dropped so far does not come back.
#[test]
fn a_repair_between_pieces_finds_what_was_there() {
    let (failures, between) =
        fail_everywhere(IoClass::Compaction, Operation::Write, &FaultEffect::Fail(FaultError::Io), true);
    assert!(failures > 10 && between > 8, "{failures} failures, {between} of them between pieces");
}
