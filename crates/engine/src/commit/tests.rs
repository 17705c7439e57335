//! Commits without a tree: what is applied, seen and replayed.

use super::*;
use crate::log::LogBacklog;
use crate::log_chain::{LogChainOptions, replay};
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
    let options = LogChainOptions { database: 7, buffer_bytes: 1 << 20, expected_bytes: 1 << 20 };
    let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new());
    LogChain::new(env, &store, options, &Arc::new(LogBacklog::new(0)), 1)
}

fn head(chain: &LogChain, last_sequence: Sequence) -> CommitHead {
    CommitHead { log: LogHead::new(Some((1, chain.create(1, 11, None).expect("log")))), last_sequence }
}

/// A group is one record, and its batches follow each other.
#[test]
fn a_group_is_applied_seen_and_replayed_as_a_whole() {
    let env = Env::sim(1);
    let (chain, snapshots, counters) = (chain(&env), SnapshotList::new(0), Counters::default());
    let mut head = head(&chain, 0);
    let (first, others) = (batch(&["a", "b"]), [batch(&["c"]), deletes("a")]);
    let mut applied = Vec::new();
    let group = Group { first: &first, others: &others, bytes: 60, sync: true };
    assert!(group.has_puts() && group.is_mixed());
    let count = head
        .commit(&env, &chain, &snapshots, &counters, &group, |batch, sequence| applied.push((batch.count(), sequence)));
    assert_eq!(count.expect("committed"), 4);
    assert_eq!((applied, snapshots.visible()), (vec![(2, 1), (1, 3), (1, 4)], 4));
    // A sync of nothing is no record.
    let nothing = WriteBatch::new();
    let group = Group { first: &nothing, others: &[], bytes: 0, sync: true };
    assert_eq!(head.commit(&env, &chain, &snapshots, &counters, &group, |_, _| {}).expect("committed"), 0);
    head.log.close(&chain, || (2, 12)).expect("close");
    let mut found = Vec::new();
    let result = replay(&chain.replay_of(&[1, 2], 1, 0), &mut |batch| {
        found.push((batch.first_sequence, batch.count));
        Ok(())
    });
    assert_eq!((result.expect("sound").last_sequence, found), (4, vec![(1, 4)]));
}

/// What fails is not applied and not seen, and a failed sync is told from a refusal.
#[test]
fn what_is_not_committed_is_not_seen() {
    let env = Env::sim(1);
    let (chain, snapshots, counters) = (chain(&env), SnapshotList::new(0), Counters::default());
    let one = batch(&["a"]);
    let group = |sync| Group { first: &one, others: &[], bytes: 10, sync };
    let mut all_used = head(&chain, SEQUENCE_MAX);
    let result =
        all_used.commit(&env, &chain, &snapshots, &counters, &group(false), |_, _| unreachable!("nothing is applied"));
    assert!(matches!(result, Err(CommitFailure::Refused(Error::InvalidArgument { .. }))));
    let mut ended = CommitHead::without_log(0);
    let result =
        ended.commit(&env, &chain, &snapshots, &counters, &group(false), |_, _| unreachable!("nothing is applied"));
    assert!(matches!(result, Err(CommitFailure::Refused(Error::Closed))));
    let nothing = WriteBatch::new();
    let only_sync = Group { first: &nothing, others: &[], bytes: 0, sync: true };
    let result = ended.commit(&env, &chain, &snapshots, &counters, &only_sync, |_, _| {});
    assert!(matches!(result, Err(CommitFailure::InDoubt(Error::Closed))));
    assert_eq!((snapshots.visible(), ended.last_sequence), (0, 0));
}
