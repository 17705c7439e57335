//! What readers see must not depend on which tables are merged, where levels overlap.

use super::jobs::compaction::{self, Grant};
use super::*;
use crate::batch;
use crate::db::Db;
use crate::error::ErrorKind;
use crate::file_name;
use crate::log::{LogHeader, LogWriter, Purpose};
use crate::manifest::Manifest;
use crate::media::Media;
use crate::operation::{ReadOptions, WriteOptions};
use crate::options::{ExperimentOptions, TreeKind};
use crate::policy::TwoLevel;
use crate::shape::{CompactionPlan, CompactionPolicy, FileMeta, Reason, Version};
use crate::test_store::MemoryStore;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;
use varve_env::{Random, SimOptions};
use varve_store::{CreateOptions, FileKind};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A tree of two overlapping levels that compacts only what it is told to.
fn tree(seed: u64) -> (Env, LogStructuredTree) {
    tree_on(seed, MemoryStore::new())
}

fn tree_on(seed: u64, store: MemoryStore) -> (Env, LogStructuredTree) {
    tree_on_store(seed, Arc::new(store))
}

fn tree_on_store(seed: u64, store: Arc<MemoryStore>) -> (Env, LogStructuredTree) {
    let env = Env::sim_with(SimOptions { seed, ..SimOptions::default() });
    let options = Options {
        tree: Some(TreeKind::TwoLevel),
        disable_auto_compactions: true,
        target_file_size_base: 1 << 10,
        block_size: 64,
        level0_slowdown_writes_trigger: 1000,
        level0_stop_writes_trigger: 1000,
        ..Options::default()
    };
    let policy = TwoLevel::new(&options);
    let media = FileMedia::of_files(store);
    let tree = LogStructuredTree::open(&env, media, options, Box::new(policy)).expect("open");
    (env, tree)
}

fn compact(parts: &TreeParts, version: Arc<Version>, plan: CompactionPlan) -> Result<(), Error> {
    let grant = Grant::new(&parts.space, &version, &plan, u64::MAX, true);
    compaction::compact(&parts.jobs(), version, plan, &grant)
}

fn write(tree: &LogStructuredTree, pairs: &[(&[u8], Option<&[u8]>)]) {
    let mut batch = WriteBatch::new();
    for (key, value) in pairs {
        match value {
            Some(value) => batch.put(key, value).expect("put"),
            None => batch.delete(key).expect("delete"),
        }
    }
    tree.write(batch, &WriteOptions::default()).expect("write");
}

/// Merges the tables that `chosen` says yes to into level 1.
fn merge(tree: &LogStructuredTree, mut chosen: impl FnMut(&FileMeta) -> bool) {
    let version = tree.parts.catalog.version();
    let mut of_level = |level: usize| -> Vec<Arc<FileMeta>> {
        version.levels[level].iter().filter(|file| chosen(file)).cloned().collect()
    };
    let (level0, level1) = (of_level(0), of_level(1));
    let (input_level, inputs, overlapping) =
        if level0.is_empty() { (1, level1, Vec::new()) } else { (0, level0, level1) };
    if inputs.is_empty() {
        return;
    }
    let plan = CompactionPlan::new(Reason::Manual, (input_level, inputs), (1, overlapping));
    compact(&tree.parts, version, plan).expect("compact");
}

fn compare(tree: &LogStructuredTree, model: &Model, options: &ReadOptions<'_>, note: &str) {
    let mut walk = tree.iterator(options).expect("iterator");
    walk.seek_to_first();
    for (key, value) in model {
        assert!(walk.valid(), "{note}: the walk ended before {}", key.escape_ascii());
        assert_eq!((walk.key(), walk.value()), (&key[..], &value[..]), "{note}");
        walk.next();
    }
    assert!(!walk.valid(), "{note}: {} should not be there", walk.key().escape_ascii());
    let keys: Vec<Vec<u8>> = (0..40).map(|number| format!("k{number:02}").into_bytes()).collect();
    let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    for (key, many) in asked.iter().zip(tree.multi_get(&asked, options)) {
        let one = tree.get(key, options).expect("get");
        assert_eq!(one.as_deref(), model.get(*key).map(Vec::as_slice), "{note}: {}", key.escape_ascii());
        assert_eq!(many.expect("multi_get").as_deref(), one.as_deref(), "{note}: {}", key.escape_ascii());
    }
}

/// L, N and M are of rising age, N overlaps both others. Merging a new table with L and N makes N's old version of
/// `o` part of the newest table, while M, which took no part, holds a newer one.
#[test]
fn a_merged_table_that_looks_newest_does_not_hide_a_newer_version() {
    let (_env, tree) = tree(1);
    for pairs in [
        &[(&b"a"[..], Some(&b"L"[..])), (b"h", Some(b"L"))],
        &[(&b"g"[..], Some(&b"N"[..])), (b"o", Some(b"N"))],
        &[(&b"n"[..], Some(&b"M"[..])), (b"o", Some(b"M"))],
        &[(&b"b"[..], Some(&b"D"[..])), (b"c", Some(b"D"))],
    ] {
        write(&tree, pairs);
        tree.flush().expect("flush");
    }
    let takes_part = |file: &FileMeta| file.smallest_user_key() != b"n";
    merge(&tree, takes_part);
    let version = tree.parts.catalog.version();
    let newest = version.levels[1].iter().map(|file| file.newest_sequence).max();
    assert!(newest > version.levels[0].iter().map(|file| file.newest_sequence).max(), "the output looks newest");
    assert_eq!(tree.get(b"o", &ReadOptions::default()).expect("get").as_deref(), Some(&b"M"[..]));
    // The same with a deletion in M: it may not go while the output holds what it hides.
    write(&tree, &[(b"o", None)]);
    tree.flush().expect("flush");
    merge(&tree, |file| file.smallest_user_key() == b"n" || file.deletions > 0);
    assert_eq!(tree.get(b"o", &ReadOptions::default()).expect("get").as_deref(), None);
    merge(&tree, |_| true);
    assert_eq!(tree.get(b"o", &ReadOptions::default()).expect("get").as_deref(), None);
    let deletions: u64 = tree.statistics().levels().iter().map(|level| level.deletions).sum();
    assert_eq!(deletions, 0, "nothing is left for it to hide");
    tree.close().expect("close");
}

/// Whatever pairs, options and compression make of them: what is left over of a band is wasted, and what does not
/// fit takes another one.
#[test]
fn tables_fill_bands_and_do_not_outgrow_them() {
    const BAND_BYTES: u64 = 64 << 10;
    for (seed, value_bytes) in [(1, 20), (2, 100), (3, 4096), (4, 9000)] {
        let (_env, tree) = tree_on(seed, MemoryStore::of_bands(BAND_BYTES));
        let mut random = Random::named(seed, "bands");
        for _ in 0..6 * BAND_BYTES / (value_bytes + 16) {
            let key = format!("{:016}", random.below(1 << 40)).into_bytes();
            write(&tree, &[(&key, Some(&vec![7; random.index(2 * value_bytes as usize)]))]);
        }
        tree.flush().expect("flush");
        let sizes = |level: usize| -> Vec<u64> {
            let version = tree.parts.catalog.version();
            version.levels[level].iter().map(|file| file.size_bytes).collect()
        };
        let flushed = sizes(0);
        assert!(
            flushed.len() >= 4 && flushed.iter().all(|bytes| *bytes <= BAND_BYTES),
            "{value_bytes}: {} tables",
            flushed.len()
        );
        merge(&tree, |_| true);
        let merged = sizes(1);
        assert!(merged.iter().all(|bytes| *bytes <= BAND_BYTES), "{value_bytes}: {merged:?}");
        let filled: u64 = merged.iter().sum();
        let most = merged.len() as u64 - 1;
        assert!(filled >= most * (BAND_BYTES - 5000 - 3 * value_bytes), "{value_bytes}: {merged:?}");
        tree.close().expect("close");
    }
}

/// Memtables that were a little too large for a band became a band and a crumb: with aligned blocks, and with batches
/// that are large for a band.
#[test]
fn a_memtable_becomes_one_band() {
    const BAND_BYTES: u64 = 256 << 10;
    for (block_align, value_bytes, batch) in [(0, 100, 100), (512, 700, 1), (4096, 3000, 1), (4096, 100, 7)] {
        let env = Env::sim(1);
        let options = Options {
            tree: Some(TreeKind::TwoLevel),
            disable_auto_compactions: true,
            block_align,
            level0_slowdown_writes_trigger: 1000,
            level0_stop_writes_trigger: 1000,
            ..Options::default()
        };
        let media = FileMedia::of_files(Arc::new(MemoryStore::of_bands(BAND_BYTES)));
        let policy = TwoLevel::new(&options);
        let tree = LogStructuredTree::open(&env, media, options, Box::new(policy)).expect("open");
        let mut number = 0u64;
        for _ in 0..8 * BAND_BYTES / (value_bytes * batch) {
            let keys: Vec<Vec<u8>> = (0..batch).map(|of| format!("{:016}", number + of).into_bytes()).collect();
            number += batch;
            let value = vec![7; value_bytes as usize];
            let pairs: Vec<(&[u8], Option<&[u8]>)> = keys.iter().map(|key| (&key[..], Some(&value[..]))).collect();
            write(&tree, &pairs);
        }
        tree.flush().expect("flush");
        let version = tree.parts.catalog.version();
        let mut sizes: Vec<u64> = version.levels[0].iter().map(|file| file.size_bytes).collect();
        sizes.remove(0);
        let least = sizes.iter().min().copied().unwrap_or(0);
        assert!(sizes.len() >= 6 && least > BAND_BYTES / 2, "{block_align} {value_bytes} {batch}: {sizes:?}");
        tree.close().expect("close");
    }
}

#[test]
fn memtables_are_flushed_together() {
    let env = Env::sim(1);
    let options = Options {
        disable_auto_compactions: true,
        write_buffer_size: 64 << 10,
        max_write_buffer_number: 4,
        experiment: ExperimentOptions { min_write_buffer_number_to_merge: 3, ..ExperimentOptions::default() },
        ..Options::default()
    };
    let policy = TwoLevel::new(&options);
    let media = FileMedia::of_files(Arc::new(MemoryStore::new()));
    let tree = LogStructuredTree::open(&env, media, options, Box::new(policy)).expect("open");
    let waiting = || tree.parts.board.lock().immutables.len();
    let tables = || tree.parts.catalog.version().levels[0].iter().map(|file| file.entries).collect::<Vec<u64>>();
    let mut switches = 0;
    for round in 0u64.. {
        let before = waiting();
        let value = [round as u8; 1000];
        write(&tree, &[(format!("{:04}", round % 80).as_bytes(), Some(&value))]);
        switches += usize::from(waiting() > before);
        if switches == 2 {
            break;
        }
    }
    // Nothing is due, and nobody waits for what is not.
    env.sleep(Duration::from_secs(1));
    assert_eq!((waiting(), tables().len()), (2, 0));
    let (jobs, is_idle) = background::is_idle(&tree.parts, tree.parts.board.lock());
    drop(jobs);
    assert!(is_idle);
    for round in 0u64.. {
        write(&tree, &[(format!("{:04}", round % 80).as_bytes(), Some(&[1; 1000]))]);
        if waiting() != 2 {
            break;
        }
    }
    env.sleep(Duration::from_secs(1));
    // What was replaced among them is left out.
    assert_eq!((waiting(), tables()), (0, vec![80]));
    // Who wants a flush gets it.
    tree.flush().expect("flush");
    assert_eq!((waiting(), tables().len()), (0, 2));
    tree.close().expect("close");
}

#[test]
fn any_tables_may_be_merged_in_any_order() {
    let mut merged_apart = 0;
    for seed in 0..24 {
        let (_env, tree) = tree(seed);
        let mut random = Random::named(seed, "merges");
        let mut model = Model::new();
        let mut held: Option<(Snapshot, Model)> = None;
        for step in 0..120 {
            let note = format!("seed {seed} step {step}");
            for _ in 0..random.below(6) {
                let key = format!("k{:02}", random.below(40)).into_bytes();
                if random.chance(1, 3) {
                    write(&tree, &[(&key, None)]);
                    model.remove(&key);
                } else {
                    let value = format!("{step} {}", "v".repeat(random.index(60))).into_bytes();
                    write(&tree, &[(&key, Some(&value))]);
                    model.insert(key, value);
                }
            }
            match random.below(8) {
                0..3 => tree.flush().expect("flush"),
                3..6 => {
                    let share = 1 + random.below(4);
                    merge(&tree, |_| random.chance(share, 4));
                    let version = tree.parts.catalog.version();
                    merged_apart += usize::from(version.levels[1].len() > 1);
                }
                6 => held = Some((tree.snapshot(), model.clone())),
                _ => held = None,
            }
            compare(&tree, &model, &ReadOptions::default(), &note);
            if let Some((snapshot, then)) = &held {
                compare(&tree, then, &ReadOptions::at(snapshot), &note);
            }
        }
        drop(held);
        tree.close().expect("close");
    }
    assert!(merged_apart > 200, "{merged_apart} merges left tables beside theirs");
}

#[test]
fn every_table_is_listed_with_its_keys() {
    let (_env, tree) = tree(1);
    for pairs in [&[(&b"a b"[..], Some(&b"1"[..])), (b"\xff", Some(b"1"))], &[(b"c", Some(b"2")), (b"d", Some(b"2"))]] {
        write(&tree, pairs);
        tree.flush().expect("flush");
    }
    merge(&tree, |file| file.smallest_user_key() == b"a b");
    let tables = tree.property("varve.tables").expect("known");
    let lines: Vec<Vec<&str>> = tables.lines().map(|line| line.split(' ').collect()).collect();
    let found: Vec<_> = lines.iter().map(|fields| (fields[0], fields[3], fields[4], fields[5])).collect();
    assert_eq!(found, [("0", "2", "c", "d"), ("1", "2", "a\\x20b", "\\xff")], "{tables}");
    assert!(lines.iter().all(|fields| fields.len() == 6 && fields[2].parse::<u64>().is_ok_and(|bytes| bytes > 0)));
    tree.close().expect("close");
}

#[test]
fn memtables_are_listed_in_the_order_of_their_flushes() {
    let (_env, tree) = tree(1);
    let listed = || tree.property("varve.memtables").expect("known");
    assert!(listed().starts_with("active all ") && listed().ends_with(" 0 0\n"), "{}", listed());
    write(&tree, &[(b"a", Some(b"1")), (b"b", Some(b"2"))]);
    assert!(listed().ends_with(" 2 1\n"), "{}", listed());
    tree.flush().expect("flush");
    assert!(listed().ends_with(" 0 0\n"), "{}", listed());
    tree.close().expect("close");
}

/// What a suite passes means little where numbers that fall below nothing go unnoticed.
#[test]
fn tests_run_with_overflow_checks() {
    let below_nothing = || std::hint::black_box(1u64) - std::hint::black_box(2);
    let panicked = std::panic::catch_unwind(below_nothing).is_err();
    assert_eq!(panicked, cfg!(debug_assertions), "the profiles in Cargo.toml say overflow-checks = true");
}

/// Once it went from step to step while tables it had replaced were still looked at, and a full medium had no space for the
/// next one.
#[test]
fn a_manual_compaction_waits_for_those_who_look_at_tables() {
    let (env, tree) = tree(1);
    write(&tree, &[(b"a", Some(b"A")), (b"b", Some(b"A"))]);
    tree.flush().expect("flush");
    write(&tree, &[(b"a", Some(b"B")), (b"c", Some(b"B"))]);
    tree.flush().expect("flush");
    let parts = tree.parts.clone();
    let compactions = || parts.catalog.counters.compactions.load(Ordering::Relaxed);
    parts.board.lock().planning += 1;
    let manual = {
        let parts = parts.clone();
        env.spawn("manual compaction", move || manual::compact_range(&parts, None, None))
    };
    env.sleep(std::time::Duration::from_secs(60));
    assert_eq!((compactions(), parts.board.lock().running_compactions), (0, 0));
    parts.board.lock().planning -= 1;
    parts.board.done.notify_all();
    manual.join().unwrap_or_else(|panic| panic.resume()).expect("compact");
    assert_eq!(compactions(), 1);
    tree.close().expect("close");
}

/// What ends a compaction that found no space.
fn no_space() -> Error {
    let (store, name) = ("full".to_owned(), "1.sst".to_owned());
    Error::from(varve_store::StoreError::NoSpace { store, name, requested_bytes: 1, available_bytes: 0, zones: None })
}

/// On a busy machine one compaction failed again and again beside another that had nearly ended and would have given back what
/// a delete needed, which was refused meanwhile.
#[test]
fn who_waits_for_space_waits_for_compactions_that_run_beside_one_that_failed() {
    let (env, tree) = tree(1);
    let parts = tree.parts.clone();
    let fail = || {
        parts.board.lock().note_compaction(Some(no_space()));
        parts.board.done.notify_all();
        env.sleep(std::time::Duration::from_secs(1));
    };
    parts.board.lock().running_compactions += 1;
    let ended = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let waiting: Vec<_> = [false, true]
        .into_iter()
        .map(|is_idle| {
            let (parts, ended) = (parts.clone(), ended.clone());
            env.spawn("waiting", move || {
                let result = match is_idle {
                    true => background::wait_until_idle(&parts).map(|()| true),
                    false => write_space::wait_for_job(&parts, || false),
                };
                ended.fetch_add(1, Ordering::Relaxed);
                result
            })
        })
        .collect();
    (0..20).for_each(|_| fail());
    assert_eq!(ended.load(Ordering::Relaxed), 0);
    let mut jobs = parts.board.lock();
    jobs.running_compactions -= 1;
    jobs.note_compaction(None);
    drop(jobs);
    parts.board.done.notify_all();
    for waiting in waiting {
        assert!(waiting.join().unwrap_or_else(|panic| panic.resume()).expect("one ended well"));
    }
    // With nothing beside it that may give space back, it is told.
    parts.board.lock().manual += 1;
    let told = {
        let parts = parts.clone();
        env.spawn("told", move || background::wait_until_idle(&parts))
    };
    (0..20).for_each(|_| fail());
    let told = told.join().unwrap_or_else(|panic| panic.resume());
    assert_eq!(told.expect_err("no space").kind(), ErrorKind::NoSpace);
    parts.board.lock().manual -= 1;
    tree.close().expect("close");
}

/// Waiters and workers once woke each other without end while a worker read histograms, and the virtual clock stood still.
#[test]
fn waiters_sleep_while_histograms_are_read() {
    let store = Arc::new(MemoryStore::new());
    let (_env, tree) = tree_on_store(1, store.clone());
    for round in 0..20u8 {
        write(&tree, &[(b"a", Some(&[round])), (b"b", Some(&[round]))]);
        tree.flush().expect("flush");
    }
    tree.close().expect("close");
    drop(tree);
    // Tables that were there when a tree is opened have no histograms yet.
    let env = Env::sim(1);
    let options = Options { tree: Some(TreeKind::TwoLevel), ..Options::default() };
    let policy = TwoLevel::new(&options);
    let tree = LogStructuredTree::open(&env, FileMedia::of_files(store), options, Box::new(policy)).expect("open");
    let parts = tree.parts.clone();
    parts.board.lock().sampling = true;
    let compactions = || parts.catalog.counters.compactions.load(Ordering::Relaxed);
    let waits: [fn(&TreeParts) -> Result<bool, Error>; 2] =
        [|parts| background::wait_until_idle(parts).map(|()| true), |parts| write_space::wait_for_job(parts, || false)];
    let waiting = waits.map(|wait| {
        let parts = parts.clone();
        env.spawn("waiting", move || wait(&parts))
    });
    env.sleep(Duration::from_secs(1));
    assert_eq!(compactions(), 0, "a compaction began without its histograms");
    assert!(!background::is_idle(&parts, parts.board.lock()).1, "no compaction is due");
    parts.board.lock().sampling = false;
    parts.board.work.notify_all();
    for waiting in waiting {
        assert!(waiting.join().unwrap_or_else(|panic| panic.resume()).expect("a compaction"));
    }
    assert!(compactions() > 0);
    tree.close().expect("close");
}

/// Once they stayed until the next opening, on a medium that may have been full for that.
#[test]
fn tables_of_a_change_that_failed_are_given_up_when_the_next_one_settles_it() {
    let store = Arc::new(MemoryStore::new());
    let (_env, tree) = tree_on_store(9, store.clone());
    for round in 0..3u8 {
        write(&tree, &[(b"a", Some(&[round; 100])), (b"z", Some(&[round; 100]))]);
        tree.flush().expect("flush");
    }
    let tables = || {
        let listing = store.list().expect("list");
        listing.iter().filter(|entry| entry.name.ends_with(".sst")).count()
    };
    let in_tree = || tree.parts.catalog.read_state.load().version.files().count();
    assert_eq!((tables(), in_tree()), (3, 3));
    let mut left = 0;
    // Every change of the store that a compaction makes fails once, those of its manifest among them.
    for change in 1..40 {
        let version = tree.parts.catalog.version();
        let plan = CompactionPlan::new(Reason::Manual, (0, version.levels[0].to_vec()), (1, Vec::new()));
        store.fail_from(Some(store.changes() + change));
        let result = compact(&tree.parts, version, plan);
        store.fail_from(None);
        if result.is_ok() {
            break;
        }
        tree.parts.files.tables.collect();
        left = left.max(tables() - in_tree());
        tree.parts.jobs().settle_doubts().expect("a manifest");
        tree.parts.files.tables.collect();
        assert_eq!((tables(), in_tree()), (3, 3), "change {change}");
    }
    assert!(left > 0, "no change of the manifest failed");
    assert_eq!(in_tree(), 1, "the last one succeeded");
    tree.close().expect("close");
}

/// After an append that was refused the next log begins with the numbers of what that left.
#[test]
fn a_repair_reads_logs_with_the_same_numbers() {
    for tree in TreeKind::OF_TABLES {
        let (env, store) = (Env::sim(1), Arc::new(MemoryStore::new()));
        let media = || Media::of_files(store.clone());
        let options = || Options { tree: Some(tree), ..Options::default() };
        let db = Db::open(&env, media(), options()).expect("open");
        db.put(b"a", b"first").expect("put");
        db.close().expect("close");
        let database = Manifest::recover(&*store, tree.name()).expect("a manifest").database;
        for (number, value) in [(100, b"refused"), (101, b"in use!")] {
            let create = CreateOptions { kind: FileKind::Log, ..CreateOptions::default() };
            let file = store.create(&file_name::log(number), &create).expect("create");
            let header = LogHeader { purpose: Purpose::WriteAhead, number, salt: number, database, previous: None };
            let mut log = LogWriter::create(file, &header, Arc::default()).expect("a log");
            let mut batch = WriteBatch::new();
            batch.put(b"b", value).expect("put");
            log.append(&[&batch::record_header(2, 1), batch.encoded_entries()]).expect("append");
            log.finish().expect("finish");
        }
        let report = crate::repair(&env, media(), options()).expect("repair");
        assert_eq!(report.entries, 2, "{tree:?}");
        let db = Db::open(&env, media(), options()).expect("open");
        let get = |key: &[u8]| db.get(key).expect("get").map(|value| value.to_vec()).unwrap_or_default();
        assert_eq!(get(b"a"), b"first", "{tree:?}");
        // Once it was the first of the two, which was refused.
        assert_eq!(get(b"b"), b"in use!", "{tree:?}");
    }
}

/// A log that broke for want of space may hold less than readers see. Closing flushes the rest to tables, or returns an error.
#[test]
fn close_flushes_the_records_of_a_broken_log() {
    let (mut closed_whole, mut refused) = (0, 0);
    for from in 1.. {
        let mut is_reached = false;
        for comes_back in [true, false] {
            let store = Arc::new(MemoryStore::holding_back());
            let (_, tree) = tree_on_store(from as u64, store.clone());
            store.fail_from(Some(store.changes() + from));
            let put = |number: u32| {
                let mut batch = WriteBatch::new();
                batch.put(&number.to_le_bytes(), b"value").expect("put");
                tree.write(batch, &WriteOptions::default()).is_ok()
            };
            let taken: Vec<u32> = (0..6).filter(|number| put(*number)).collect();
            is_reached |= taken.len() < 6;
            if comes_back {
                store.fail_from(None);
            }
            let closed = tree.close();
            store.fail_from(None);
            drop(tree);
            let (_, tree) = tree_on_store(from as u64, store);
            let is_there = |key: [u8; 4]| tree.get(&key, &ReadOptions::default()).expect("get").is_some();
            let found: Vec<u32> = (0..6u32).filter(|number| is_there(number.to_le_bytes())).collect();
            let is_whole = taken.iter().all(|number| found.contains(number));
            assert!(
                is_whole || closed.is_err(),
                "change {from}, {comes_back}: {taken:?} were taken, {found:?} are there"
            );
            assert!(!comes_back || closed.is_ok(), "change {from}: {closed:?}, and there is space");
            closed_whole += u32::from(is_reached && closed.is_ok());
            refused += u32::from(closed.is_err());
        }
        if !is_reached {
            break;
        }
    }
    assert!(closed_whole > 5 && refused > 5, "{closed_whole} closed whole after a failure, {refused} closings refused");
}
