//! Counts of the newest values in a memtable: what a log that begins with everything has to hold.

use super::skip_list::{Neighbours, Node};
use crate::batch::put_bytes;
use crate::key::{self, EntryKind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys whose newest entry is a put, and the bytes these puts take in a batch. Exact as soon as no insert is running, in
/// whatever order entries were added. Thread-safe.
#[derive(Debug, Default)]
pub(super) struct LiveEntries {
    keys: AtomicU64,
    bytes: AtomicU64,
}

/// A count that threads add to and take from in any order may be below zero for a moment.
fn settled(count: &AtomicU64) -> u64 {
    let value = count.load(Ordering::Relaxed);
    if value > u64::MAX / 2 { 0 } else { value }
}

/// Bytes of the put that an entry is; `None` for a delete.
fn bytes_of(node: Node<'_>) -> Option<u64> {
    let is_put = key::kind_number(node.internal_key()) == EntryKind::Put as u8;
    is_put.then(|| put_bytes(node.user_key().len(), node.value().len()))
}

impl LiveEntries {
    /// An entry of `user_key` was added between `neighbours`. Versions of one key follow each other, the newest first.
    pub(super) fn note(&self, kind: EntryKind, user_key: &[u8], value_bytes: usize, neighbours: Neighbours<'_>) {
        let is_same = |node: &Node<'_>| node.user_key() == user_key;
        if neighbours.before.as_ref().is_some_and(is_same) {
            // A newer version was there first.
            return;
        }
        if let Some(hidden_bytes) = neighbours.after.filter(is_same).and_then(bytes_of) {
            self.keys.fetch_sub(1, Ordering::Relaxed);
            self.bytes.fetch_sub(hidden_bytes, Ordering::Relaxed);
        }
        if kind == EntryKind::Put {
            self.keys.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(put_bytes(user_key.len(), value_bytes), Ordering::Relaxed);
        }
    }

    /// Keys that have a value.
    pub(super) fn keys(&self) -> u64 {
        settled(&self.keys)
    }

    /// Bytes of their puts in a batch.
    pub(super) fn bytes(&self) -> u64 {
        settled(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::MemTable;
    use crate::batch::WriteBatch;
    use crate::key::EntryKind;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use varve_env::Random;

    /// Entries in any order, as threads may add them, and what is left when hidden versions are dropped.
    #[test]
    fn counts_the_newest_values_whatever_the_order_of_inserts() {
        let rounds = if cfg!(miri) { 2 } else { 40 };
        for seed in 0..rounds {
            let mut random = Random::seeded(seed);
            let table = Arc::new(MemTable::new(1, 64 << 10, seed).counting_live());
            let mut newest: BTreeMap<Vec<u8>, (u64, Option<Vec<u8>>)> = BTreeMap::new();
            let mut sequences: Vec<u64> = (1..300).collect();
            while !sequences.is_empty() {
                // Mostly in order, as a few threads at a time.
                let sequence = sequences.remove(random.index(sequences.len().min(4)));
                let key = format!("key{}", random.below(40)).into_bytes();
                let value = (!random.chance(1, 3)).then(|| vec![7; random.below(300) as usize]);
                let kind = if value.is_some() { EntryKind::Put } else { EntryKind::Delete };
                table.insert(sequence, kind, &key, value.as_deref().unwrap_or_default());
                let known = newest.entry(key).or_default();
                if known.0 < sequence {
                    *known = (sequence, value);
                }
            }
            let mut batch = WriteBatch::new();
            for (key, (_, value)) in &newest {
                if let Some(value) = value {
                    batch.put(key, value).expect("put");
                }
            }
            let expected = Some((batch.count(), batch.size_bytes() as u64));
            assert_eq!(table.live(), expected, "seed {seed}");
            assert_eq!(table.visible(vec![300]).live(), expected, "seed {seed}");
            assert_eq!(table.visible(vec![100, 300]).live(), expected, "seed {seed}");
        }
    }

    #[test]
    fn counts_are_exact_after_threads_wrote_the_same_keys() {
        let each = if cfg!(miri) { 30 } else { 5000 };
        let table = MemTable::new(1, 64 << 10, 3).counting_live();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let table = &table;
                scope.spawn(move || {
                    for index in 0..each {
                        let sequence = 1 + index * 4 + thread;
                        let kind = if sequence % 5 == 0 { EntryKind::Delete } else { EntryKind::Put };
                        let value = if kind == EntryKind::Put { vec![1; (sequence % 17) as usize] } else { Vec::new() };
                        table.insert(sequence, kind, format!("{}", sequence % 13).as_bytes(), &value);
                    }
                });
            }
        });
        let mut batch = WriteBatch::new();
        for key in 0..13 {
            let newest = (1..=4 * each).rev().find(|sequence| sequence % 13 == key).expect("a version");
            if newest % 5 > 0 {
                batch.put(format!("{key}").as_bytes(), &vec![1; (newest % 17) as usize]).expect("put");
            }
        }
        assert_eq!(table.live(), Some((batch.count(), batch.size_bytes() as u64)));
    }
}
