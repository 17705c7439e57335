//! What only this store promises: calls of the directory, poisoning, sharing, left-overs.

use super::*;
use crate::conformance::content;
use crate::error::StoreErrorKind;
use varve_media::{
    Fault, FaultDirectory, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, MemoryDirectory,
    MemoryDirectoryOptions, Operation, OsDirectory,
};

const CONTEXT: IoContext = IoContext::of(varve_media::IoClass::Log);

/// A store whose calls are counted and can fail.
fn counted(env: &Env) -> (PlainStore, FaultInjector) {
    let injector = FaultInjector::new(env, FaultPlan::default());
    let directory = FaultDirectory::new(&injector, Arc::new(MemoryDirectory::new("ram")));
    (PlainStore::open(env, Arc::new(directory), PlainOptions::default()), injector)
}

/// Writes, syncs and directory syncs made meanwhile.
fn calls(injector: &FaultInjector, work: impl FnOnce()) -> [u64; 3] {
    let of = |operation| injector.calls().get(&operation).copied().unwrap_or(0);
    let operations = [Operation::Write, Operation::Sync, Operation::SyncDirectory];
    let before = operations.map(of);
    work();
    let after = operations.map(of);
    std::array::from_fn(|index| after[index] - before[index])
}

fn log_options() -> CreateOptions {
    CreateOptions { kind: FileKind::Log, ..CreateOptions::default() }
}

#[test]
fn a_flush_is_one_write_and_only_the_first_sync_syncs_the_directory() {
    let env = Env::sim(1);
    let (store, injector) = counted(&env);
    let mut log = store.create("log", &log_options()).unwrap();
    let mut append = |count: u64, sync: bool| {
        calls(&injector, || {
            for number in 0..count {
                log.append(&content(1, number, 100), &CONTEXT).unwrap();
            }
            if sync { log.sync(&CONTEXT) } else { log.flush(&CONTEXT) }.unwrap();
        })
    };
    assert_eq!(append(50, false), [1, 0, 0]);
    assert_eq!(append(0, false), [0, 0, 0]);
    assert_eq!(append(0, true), [0, 1, 1]);
    assert_eq!(append(3, true), [1, 1, 0]);
    assert_eq!(append(0, true), [0, 0, 0]);
}

#[test]
fn one_directory_sync_serves_all_files_created_before_it() {
    let env = Env::sim(1);
    let (store, injector) = counted(&env);
    let mut first = store.create("first", &log_options()).unwrap();
    let mut second = store.create("second", &log_options()).unwrap();
    assert_eq!(calls(&injector, || first.sync(&CONTEXT).unwrap()), [0, 1, 1]);
    assert_eq!(calls(&injector, || second.sync(&CONTEXT).unwrap()), [0, 1, 0]);
    assert_eq!(calls(&injector, || store.sync_names().unwrap()), [0, 0, 0]);
    // A rename syncs what the file has not synced, and the directory.
    second.append(b"more", &CONTEXT).unwrap();
    second.finish(&CONTEXT).unwrap();
    assert_eq!(calls(&injector, || store.rename("second", "third").unwrap()), [0, 1, 1]);
    assert_eq!(calls(&injector, || store.rename("third", "fourth").unwrap()), [0, 0, 1]);
}

#[test]
fn a_large_append_is_written_without_a_copy_and_a_table_in_pieces_of_the_buffer() {
    let env = Env::sim(1);
    let (store, injector) = counted(&env);
    let mut table = store.create("table", &CreateOptions { kind: FileKind::Table, ..Default::default() }).unwrap();
    let large = content(1, 0, 1 << 20);
    assert_eq!(calls(&injector, || table.append(&large, &CONTEXT).unwrap()), [1, 0, 0]);
    let counts = calls(&injector, || {
        for _ in 0..1024 {
            table.append(&large[..1024], &CONTEXT).unwrap();
        }
        table.flush(&CONTEXT).unwrap();
    });
    assert_eq!(counts, [4, 0, 0]);
}

fn fail_once(operation: Operation, effect: FaultEffect) -> FaultPlan {
    FaultPlan::of(Fault::new(operation, FaultTrigger::Once(0), effect))
}

#[test]
fn a_failed_sync_poisons_the_file_and_a_failed_directory_sync_the_names() {
    let env = Env::sim(1);
    let (store, injector) = counted(&env);
    let mut log = store.create("log", &log_options()).unwrap();
    let mut other = store.create("other", &log_options()).unwrap();
    log.append(b"lost", &CONTEXT).unwrap();
    injector.set_plan(fail_once(Operation::Sync, FaultEffect::Fail(FaultError::Io)));
    assert_eq!(log.sync(&CONTEXT).unwrap_err().kind(), StoreErrorKind::Io);
    assert_eq!(log.sync(&CONTEXT).unwrap_err().kind(), StoreErrorKind::Poisoned);
    log.append(b"more", &CONTEXT).unwrap();
    assert_eq!(log.sync(&CONTEXT).unwrap_err().kind(), StoreErrorKind::Poisoned);
    assert_eq!(store.rename("log", "new").unwrap_err().kind(), StoreErrorKind::Poisoned);
    // Others go on.
    other.sync(&CONTEXT).unwrap();

    injector.set_plan(fail_once(Operation::SyncDirectory, FaultEffect::Fail(FaultError::Io)));
    store.remove("other").unwrap();
    assert_eq!(store.sync_names().unwrap_err().kind(), StoreErrorKind::Io);
    assert_eq!(store.sync_names().unwrap_err().kind(), StoreErrorKind::Poisoned);
    assert_eq!(store.create("a", &log_options()).err().unwrap().kind(), StoreErrorKind::Poisoned);
    assert_eq!(store.remove("log").unwrap_err().kind(), StoreErrorKind::Poisoned);
}

#[test]
fn a_full_directory_refuses_and_goes_on_when_there_is_space() {
    let env = Env::sim(1);
    let options = MemoryDirectoryOptions { capacity_bytes: Some(1 << 20), direct_alignment_bytes: 1 };
    let store = PlainStore::open(&env, Arc::new(MemoryDirectory::with_options("ram", options)), Default::default());
    let mut filler = store.create("filler", &CreateOptions::default()).unwrap();
    filler.append(&content(1, 0, 900_000), &CONTEXT).unwrap();
    filler.finish(&CONTEXT).unwrap();
    let mut table = store.create("table", &CreateOptions::default()).unwrap();
    table.append(&content(2, 0, 5000), &CONTEXT).unwrap();
    for _ in 0..3 {
        let error = table.append(&content(2, 5000, 500_000), &CONTEXT).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::NoSpace);
        assert_eq!(table.size_bytes(), 5000);
    }
    store.remove("filler").unwrap();
    table.append(&content(2, 5000, 500_000), &CONTEXT).unwrap();
    table.sync(&CONTEXT).unwrap();
    table.finish(&CONTEXT).unwrap();
    let reader = store.open("table", &OpenOptions::default()).unwrap();
    let mut data = vec![0; 505_000];
    reader.read_at(0, &mut data, &CONTEXT).unwrap();
    assert!(data == content(2, 0, 505_000));
}

#[test]
fn a_finished_file_holds_no_more_room_than_it_needs() {
    let env = Env::sim(1);
    let options = MemoryDirectoryOptions { capacity_bytes: Some(1 << 20), direct_alignment_bytes: 1 };
    let store = PlainStore::open(&env, Arc::new(MemoryDirectory::with_options("ram", options)), Default::default());
    let expecting = CreateOptions { expected_size_bytes: Some(500_000), ..CreateOptions::default() };
    for finish in [true, false] {
        let mut file = store.create(&format!("{finish}"), &expecting).unwrap();
        file.append(&content(1, 0, 4096), &CONTEXT).unwrap();
        let before = store.space().unwrap().available_bytes;
        file.flush(&CONTEXT).unwrap();
        assert!(before - store.space().unwrap().available_bytes >= 500_000, "nothing was reserved");
        if finish {
            file.finish(&CONTEXT).unwrap()
        } else {
            drop(file)
        }
        assert_eq!(before - store.space().unwrap().available_bytes, 4096);
    }
}

#[test]
fn preallocates_logs_only_while_much_is_free() {
    let env = Env::sim(1);
    let taken_bytes = |capacity_bytes: u64, kind: FileKind| {
        let options = MemoryDirectoryOptions { capacity_bytes: Some(capacity_bytes), direct_alignment_bytes: 1 };
        let store = PlainStore::open(&env, Arc::new(MemoryDirectory::with_options("ram", options)), Default::default());
        let options = CreateOptions { kind, expected_size_bytes: Some(500_000), ..CreateOptions::default() };
        let mut file = store.create("file", &options).unwrap();
        let before = store.space().unwrap().available_bytes;
        file.append(&content(1, 0, 4096), &CONTEXT).unwrap();
        file.flush(&CONTEXT).unwrap();
        before - store.space().unwrap().available_bytes
    };
    assert_eq!(taken_bytes(12 << 20, FileKind::Log), 4096);
    assert!(taken_bytes(20 << 20, FileKind::Log) >= 500_000);
    assert!(taken_bytes(12 << 20, FileKind::Table) >= 500_000, "a table becomes as large");
}

/// A log is longer in the directory than what was written to it, and nobody can tell by its readers.
#[test]
fn a_log_is_kept_longer_than_its_contents_for_nobody_to_see() {
    let env = Env::sim(1);
    for alignment_bytes in [1, 512] {
        let options = MemoryDirectoryOptions { capacity_bytes: None, direct_alignment_bytes: alignment_bytes };
        let directory = MemoryDirectory::with_options("ram", options);
        let store = PlainStore::open(&env, Arc::new(directory.clone()), PlainOptions::default());
        let options = CreateOptions {
            kind: FileKind::Log,
            expected_size_bytes: Some(500_000),
            direct: alignment_bytes > 1,
            ..CreateOptions::default()
        };
        let mut log = store.create("log", &options).unwrap();
        let before = store.open("log", &OpenOptions::default()).unwrap();
        let mut written = 0;
        for round in 0..20u64 {
            let length = 1000 + round;
            log.append(&content(1, written, length), &CONTEXT).unwrap();
            written += length;
            log.sync(&CONTEXT).unwrap();
            assert_eq!(directory.list().unwrap()[0].size_bytes, 500_000, "it grows with every sync");
            assert_eq!(store.list().unwrap()[0].size_bytes, written);
            for reader in [before.clone(), store.open("log", &OpenOptions::default()).unwrap()] {
                assert_eq!(reader.size_bytes(), written);
                let mut data = vec![0; written as usize];
                reader.read_at(0, &mut data, &CONTEXT).unwrap();
                assert!(data == content(1, 0, written));
                let past = reader.read_at(written, &mut [0], &CONTEXT).unwrap_err();
                assert!(matches!(past, StoreError::PastEnd { .. }), "{past}");
            }
        }
        // More than was expected is only more.
        log.append(&content(1, written, 600_000), &CONTEXT).unwrap();
        written += 600_000;
        log.flush(&CONTEXT).unwrap();
        assert_eq!(before.size_bytes(), written);
        log.finish(&CONTEXT).unwrap();
        assert_eq!(directory.list().unwrap()[0].size_bytes, written);
        assert_eq!(before.size_bytes(), written);
    }
}

#[test]
fn a_failed_create_leaves_the_old_file() {
    let env = Env::sim(1);
    for call in 0..4 {
        for operation in [Operation::Open, Operation::Rename] {
            let (store, injector) = counted(&env);
            let mut old = store.create("a", &log_options()).unwrap();
            old.append(b"old", &CONTEXT).unwrap();
            old.finish(&CONTEXT).unwrap();
            let fault = Fault::new(operation, FaultTrigger::Once(call), FaultEffect::Fail(FaultError::Io));
            injector.set_plan(FaultPlan::of(fault));
            let outcome = store.create("a", &log_options());
            injector.set_plan(FaultPlan::default());
            let size = store.open("a", &OpenOptions::default()).unwrap().size_bytes();
            assert_eq!(size, if outcome.is_ok() { 0 } else { 3 }, "{operation:?} {call}");
        }
    }
}

#[test]
fn left_overs_are_hidden_reported_and_removed_by_the_next_lock() {
    let env = Env::sim(1);
    let directory = MemoryDirectory::new("ram");
    let create = OpenMode { write: true, create: true, ..OpenMode::default() };
    directory.open("%new-3", create).unwrap();
    directory.open("100%", create).unwrap();
    let store = PlainStore::open(&env, Arc::new(directory.clone()), PlainOptions::default());
    assert_eq!(store.list().unwrap(), []);
    let codes: Vec<_> = store.check().unwrap().iter().map(|finding| finding.code).collect();
    assert_eq!(codes, ["temporary-left-over", "foreign-file"]);
    let _lock = store.lock("LOCK").unwrap();
    let names: Vec<_> = directory.list().unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["100%", "LOCK"]);
}

#[test]
fn on_a_real_file_system_files_are_shared_by_link_and_reservations_given_back() {
    let env = Env::real();
    let place = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        let directory = OsDirectory::create(place.path().join(name)).unwrap();
        PlainStore::open(&env, Arc::new(directory), PlainOptions::default())
    };
    let (store, backup) = (open("store"), open("backup"));
    for direct in [false, true] {
        let name = format!("a/{direct}");
        let options = CreateOptions {
            kind: FileKind::Table,
            direct,
            expected_size_bytes: Some(8 << 20),
            ..CreateOptions::default()
        };
        let mut table = store.create(&name, &options).unwrap();
        for number in 0..100u64 {
            table.append(&content(1, number * 5001, 5001), &CONTEXT).unwrap();
            if number % 30 == 0 {
                table.sync(&CONTEXT).unwrap();
            }
        }
        table.sync(&CONTEXT).unwrap();
        table.finish(&CONTEXT).unwrap();
        assert!(store.share(&name, &backup.properties().location, &name).unwrap());
        store.remove(&name).unwrap();
        let reader = backup.open(&name, &OpenOptions { direct }).unwrap();
        assert_eq!(reader.size_bytes(), 500_100);
        let mut data = vec![0; 500_100];
        reader.read_at(0, &mut data, &CONTEXT).unwrap();
        assert!(data == content(1, 0, 500_100));
        let mut data = vec![0; 777];
        reader.read_at(4099, &mut data, &CONTEXT).unwrap();
        assert!(data == content(1, 4099, 777));
    }
    let lock = store.lock("LOCK").unwrap();
    assert_eq!(open("store").lock("LOCK").err().unwrap().kind(), StoreErrorKind::Locked);
    drop(lock);
    open("store").lock("LOCK").unwrap();
    assert!(store.space().unwrap().available_bytes > 0);
}
