//! Chains as a whole, on a store in memory.

use super::*;
use crate::batch::{self, WriteBatch};
use crate::db_iterator::DbIterator;
use crate::key::EntryKind;
use crate::manifest::Manifest;
use crate::memory_file::MemoryFile;
use crate::memtable::MemTable;
use crate::numbers::Numbers;
use crate::operation::ReadOptions;
use crate::test_store::MemoryStore;

const OPTIONS: LogChainOptions =
    LogChainOptions { database: 7, buffer_bytes: 1 << 20, expected_bytes: 1 << 20, map: false };

fn chain() -> LogChain {
    let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new());
    LogChain::new(&Env::sim(1), &store, OPTIONS, &Arc::new(LogBacklog::new(0, LogGate::default())), 1)
}

/// Appends a batch of one put.
fn append(head: &mut LogHead, chain: &LogChain, sequence: u64) -> Result<(), Error> {
    let mut batch = WriteBatch::new();
    batch.put(format!("key{sequence}").as_bytes(), b"value").expect("batch");
    head.append(chain, &[&batch::record_header(sequence, 1), batch.encoded_entries()])
}

fn replayed(chain: &LogChain, logs: &[u64]) -> Result<Vec<u64>, Error> {
    let mut found = Vec::new();
    let result = replay(&chain.replay_from(logs, 1, 0), &mut |batch| {
        found.push(batch.first_sequence);
        Ok(())
    })?;
    assert_eq!(result.last_sequence, found.last().copied().unwrap_or(0));
    Ok(found)
}

fn first_log(chain: &LogChain) -> LogHead {
    LogHead::new(Some((1, chain.create(1, 11, None).expect("log"))))
}

#[test]
fn what_was_appended_comes_back_in_order_over_all_logs() {
    let chain = chain();
    let mut head = first_log(&chain);
    for sequence in 1..=9 {
        if sequence % 3 == 0 {
            head.begin_next(&chain, sequence, 100 + sequence).expect("next log");
        }
        append(&mut head, &chain, sequence).expect("append");
    }
    assert_eq!(head.unsynced(&chain).len(), 3, "nobody synced");
    head.sync(&chain).expect("sync");
    assert_eq!(head.unsynced(&chain).len(), 0);
    head.close(&chain, || (20, 120)).expect("close");
    assert!(matches!(append(&mut head, &chain, 10), Err(Error::Closed)));
    assert_eq!(replayed(&chain, &[1, 3, 6, 9, 20]).expect("sound"), (1..=9).collect::<Vec<_>>());
    assert!(matches!(replayed(&chain, &[1, 3, 9, 20]), Err(Error::Corruption { .. })), "one is missing");
    assert!(matches!(replayed(&chain, &[1, 3, 6, 20]), Err(Error::Corruption { .. })), "the last is missing");
    assert_eq!(chain.retire(6), [1, 3]);
    assert!(!chain.is_needed(3) && chain.is_needed(6));
    assert_eq!(chain.retire(21), [6, 9, 20]);
}

#[test]
fn a_chain_without_a_log_begins_with_the_first_write() {
    let chain = chain();
    let mut head = LogHead::new(None);
    assert!(head.is_broken());
    assert!(matches!(append(&mut head, &chain, 1), Err(Error::Closed)));
    head.begin_next(&chain, 1, 11).expect("log");
    append(&mut head, &chain, 1).expect("append");
    head.close(&chain, || (2, 12)).expect("close");
    assert_eq!(replayed(&chain, &[1, 2]).expect("sound"), [1]);
}

/// Logs that are in tables keep no space, and are not synced any more.
#[test]
fn what_is_not_needed_is_let_go_of() {
    let chain = chain();
    let mut head = first_log(&chain);
    append(&mut head, &chain, 1).expect("append");
    head.begin_next(&chain, 2, 12).expect("next log");
    assert_eq!(head.unsynced(&chain).len(), 1);
    assert_eq!(chain.retire(2), [1]);
    append(&mut head, &chain, 2).expect("append");
    head.begin_next(&chain, 3, 13).expect("next log");
    assert_eq!(head.unsynced(&chain), [2]);
    head.break_off();
    assert!(head.is_broken());
    head.close(&chain, || unreachable!("a log that broke gets no seal")).expect("close");
}

/// A sync of theirs that failed is no sync for whoever asks next, and those behind it wait on.
#[test]
fn a_sync_that_failed_is_not_forgotten() {
    let chain = chain();
    let mut head = first_log(&chain);
    let file = MemoryFile::default();
    let header =
        LogHeader { purpose: Purpose::WriteAhead, number: 2, salt: 12, database: OPTIONS.database, previous: None };
    let mut log = LogWriter::create(file.writer(), &header, Arc::default()).expect("log");
    log.append(&[b"what nobody synced"]).expect("append");
    file.fail_sync();
    let behind = chain.create(3, 13, None).expect("log");
    chain.unsynced.lock().extend([(2, log), (3, behind)]);
    for _ in 0..2 {
        assert!(chain.sync_before(4).is_err() && head.sync(&chain).is_err());
        assert_eq!(head.unsynced(&chain), [2, 3]);
    }
    assert!(chain.sync_before(2).is_ok(), "it is not asked for");
    chain.retire(3);
    assert!(chain.sync_before(4).is_ok(), "what is in tables needs no sync");
}

/// Only the header of the next log says how far a log was synced; an empty file in between once hid it.
#[test]
fn a_log_that_was_never_begun_does_not_hide_that_the_one_before_it_was_cut() {
    let chain = chain();
    let mut head = first_log(&chain);
    for sequence in 1..=4 {
        append(&mut head, &chain, sequence).expect("append");
    }
    head.sync(&chain).expect("sync");
    head.begin_next(&chain, 3, 103).expect("next log");
    let create = |name: &str, bytes: &[u8]| {
        let mut file = chain.store.create(name, &CreateOptions::default()).expect("create");
        file.append(bytes, &Default::default()).and_then(|()| file.finish(&Default::default())).expect("written");
    };
    create(&file_name::log(2), &[]);
    assert_eq!(replayed(&chain, &[1, 2, 3]).expect("sound"), [1, 2, 3, 4]);
    let file = chain.store.open(&file_name::log(1), &Default::default()).expect("open");
    let mut bytes = vec![0; file.size_bytes() as usize - 5];
    file.read_at(0, &mut bytes, &Default::default()).expect("read");
    chain.store.remove(&file_name::log(1)).expect("remove");
    create(&file_name::log(1), &bytes);
    assert!(matches!(replayed(&chain, &[1, 2, 3]), Err(Error::Corruption { .. })));
    let (replayed, faults) = salvage(&chain.replay_from(&[1, 2, 3], 1, 0), &mut |_| Ok(())).expect("salvaged");
    assert_eq!((replayed.last_sequence, faults.len()), (3, 1));
    assert_eq!((faults[0].number, faults[0].kind), (1, LogFaultKind::Damaged));
}

/// One that was not switched to is nothing: no manifest names it, and it continues no log.
#[test]
fn a_rewrite_takes_the_place_of_what_was_there_when_it_is_switched_to() {
    let chain = chain();
    let (store, mut head) = (&*chain.store, first_log(&chain));
    append(&mut head, &chain, 1).expect("append");
    let entries = Arc::new(MemTable::new(0, 1 << 20, 1));
    entries.insert(1, EntryKind::Put, b"key1", b"value");
    let (numbers, mut state) = (Numbers::new(&Env::sim(1), 7, 2), RewriteState::new(None, 1000));
    let target = RewriteTarget { files: store, logs: store, tree: "tree", database: 7 };
    let prepare = || {
        let walk = DbIterator::of_memtable(entries.clone(), 1, &ReadOptions::default());
        LogRewrite::prepare(&target, &numbers, 1, walk).expect("prepared")
    };
    drop(prepare());
    let held = |oldest, last_sequence| {
        let database = OPTIONS.database;
        LogsOfManifest { database, oldest, last_sequence, hold_everything: true, ..LogsOfManifest::default() }
    };
    let replayed = replay(&chain.replay_of(&[1, 2], held(1, 0)), &mut |_| Ok(())).expect("sound");
    assert_eq!((replayed.last_sequence, replayed.unused), (1, vec![2]));
    assert!(matches!(Manifest::recover(store, "tree"), Err(Error::Missing { .. })));
    assert_eq!(prepare().switch(store, &chain, &mut head, &mut state).expect("switched"), 2);
    assert_eq!((chain.oldest(), state.manifest), (4, Some(5)));
    assert!(store.list().expect("list").iter().all(|entry| entry.name != file_name::log(1)), "it is removed");
    let manifest = Manifest::recover(store, "tree").expect("manifest");
    assert_eq!((manifest.number, manifest.contents.log_number, manifest.contents.last_sequence), (5, 4, 1));
    append(&mut head, &chain, 3).expect("append");
    head.close(&chain, || (6, 16)).expect("close");
    let mut found = Vec::new();
    let result = replay(&chain.replay_of(&[4, 6], held(4, 1)), &mut |batch| {
        found.push(batch.first_sequence);
        Ok(())
    });
    assert_eq!((result.expect("sound").last_sequence, found), (3, vec![2, 3]));
}

#[test]
fn a_rewrite_is_due_when_the_log_has_grown_to_twice_what_it_began_with() {
    let chain = chain();
    let (store, mut head) = (&*chain.store, LogHead::new(None));
    let mut state = RewriteState::new(None, 1000);
    assert!(!state.is_due());
    state.note_written(1);
    assert!(state.is_due(), "nobody knows what it began with");
    let target = RewriteTarget { files: store, logs: store, tree: "tree", database: 7 };
    let nothing = DbIterator::of_memtable(Arc::new(MemTable::new(0, 1 << 20, 1)), 0, &ReadOptions::default());
    let rewrite = LogRewrite::prepare(&target, &Numbers::new(&Env::sim(1), 7, 2), 0, nothing).expect("prepared");
    rewrite.switch(store, &chain, &mut head, &mut state).expect("switched");
    state.note_written(1000);
    assert!(!state.is_due());
    state.note_written(1);
    assert!(state.is_due());
    state.postpone();
    assert!(!state.is_due(), "it failed");
}
