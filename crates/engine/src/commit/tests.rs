//! Commits without a tree: what is applied, seen and replayed.

use super::publication::Publication;
use super::*;
use crate::key::EntryKind;
use crate::log::{LogBacklog, LogGate};
use crate::log_chain::{LogChainOptions, replay};
use crate::memtable::MemTable;
use crate::snapshot::SnapshotList;
use crate::test_store::MemoryStore;
use std::sync::Arc;
use varve_store::FileStore;

fn batch(keys: &[&str]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    keys.iter().for_each(|key| batch.put(key.as_bytes(), b"value").expect("batch"));
    batch
}

fn deletes(key: &str) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.delete(key.as_bytes()).expect("batch");
    batch
}

fn chain(env: &Env) -> LogChain {
    let options = LogChainOptions { database: 7, buffer_bytes: 1 << 20, expected_bytes: 1 << 20, map: false };
    let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new());
    LogChain::new(env, &store, options, &Arc::new(LogBacklog::new(0, LogGate::default())), 1)
}

fn head(chain: &LogChain, last_sequence: Sequence) -> CommitHead {
    CommitHead { log: LogHead::new(Some((1, chain.create(1, 11, None).expect("log")))), last_sequence }
}

/// A group is one record, and its batches follow each other.
#[test]
fn a_group_is_applied_seen_and_replayed_as_a_whole() {
    let env = Env::sim(1);
    let (chain, counters) = (chain(&env), Counters::default());
    let mut head = head(&chain, 0);
    let (first, others) = (batch(&["a", "b"]), [batch(&["c"]), deletes("a")]);
    let group = Group { first: &first, others: &others, bytes: 60, sync: true };
    assert!(group.has_puts() && group.is_mixed());
    let logged = head.write_log(&env, &chain, &counters, &group).expect("logged");
    assert_eq!(logged, Commit::Logged { first_sequence: 1, count: 4 });
    let memtable = MemTable::new(1, 4096, 1);
    group.apply(&env, 1, |batch, next| memtable.apply(batch.iter(), next));
    let seen = |key: &str, sequence| {
        let found = memtable.get(&crate::key::lookup_key(key.as_bytes(), sequence));
        found.map(|found| (found.sequence, found.kind))
    };
    let (put, delete) = (EntryKind::Put, EntryKind::Delete);
    assert_eq!((seen("a", 4), seen("a", 3)), (Some((4, delete)), Some((1, put))));
    assert_eq!((seen("b", 4), seen("c", 4), memtable.entries()), (Some((2, put)), Some((3, put)), 4));
    // A sync of nothing is no record.
    let nothing = WriteBatch::new();
    let group = Group { first: &nothing, others: &[], bytes: 0, sync: true };
    let synced = head.write_log(&env, &chain, &counters, &group).expect("synced");
    assert_eq!(synced, Commit::Logged { first_sequence: 5, count: 0 });
    head.log.close(&chain, || (2, 12)).expect("close");
    let mut found = Vec::new();
    let result = replay(&chain.replay_from(&[1, 2], 1, 0), &mut |batch| {
        found.push((batch.first_sequence, batch.count));
        Ok(())
    });
    assert_eq!((result.expect("sound").last_sequence, found), (4, vec![(1, 4)]));
}

/// What fails is not applied and not seen, and a failed sync is told from a refusal.
#[test]
fn what_is_not_committed_is_not_seen() {
    let env = Env::sim(1);
    let (chain, counters) = (chain(&env), Counters::default());
    let one = batch(&["a"]);
    let group = |sync| Group { first: &one, others: &[], bytes: 10, sync };
    let mut all_used = head(&chain, SEQUENCE_MAX);
    let result = all_used.write_log(&env, &chain, &counters, &group(false));
    assert!(matches!(result, Err(CommitFailure::Refused(Error::InvalidArgument { .. }))));
    let mut ended = CommitHead::without_log(0);
    let result = ended.write_log(&env, &chain, &counters, &group(false));
    assert!(matches!(result, Err(CommitFailure::Refused(Error::Closed))));
    let nothing = WriteBatch::new();
    let only_sync = Group { first: &nothing, others: &[], bytes: 0, sync: true };
    let result = ended.write_log(&env, &chain, &counters, &only_sync);
    assert!(matches!(result, Err(CommitFailure::InDoubt(Error::Closed))));
    assert_eq!(ended.last_sequence, 0);
}

/// Whoever is done first, what is visible is a prefix; and those behind what is never applied are told so.
#[test]
fn commits_become_visible_in_their_order() {
    let env = Env::sim(1);
    let snapshots = SnapshotList::new(10);
    let publication = Arc::new(Publication::new(&env, &snapshots));
    let (seen, woken) = (Arc::new(parking_lot::Mutex::new(Vec::new())), snapshots.clone());
    let publish = |first, last| {
        let (publication, snapshots, seen) = (publication.clone(), woken.clone(), seen.clone());
        env.spawn("writer", move || {
            let is_visible = publication.publish(first, last).is_ok();
            seen.lock().push((last, is_visible, snapshots.visible()));
        })
    };
    let ahead = [publish(15, 15), publish(13, 14), publish(17, 20)];
    env.sleep(std::time::Duration::from_secs(1));
    assert_eq!((snapshots.visible(), seen.lock().len()), (10, 0));
    publication.publish(11, 12).and_then(|()| publication.settle(15)).expect("visible");
    env.sleep(std::time::Duration::from_secs(1));
    assert_eq!(snapshots.visible(), 15);
    publication.break_off();
    ahead.into_iter().for_each(|thread| assert!(thread.join().is_ok()));
    seen.lock().sort_unstable();
    assert_eq!(*seen.lock(), [(14, true, 15), (15, true, 15), (20, false, 15)]);
    publication.settle(15).expect("visible");
    publication.settle(16).expect_err("what broke");
    // What is before it still comes.
    publication.publish(16, 16).expect("visible");
    assert_eq!(snapshots.visible(), 20);
}
