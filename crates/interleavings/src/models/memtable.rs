//! A skip list and its key filter, filled and read at once.

use super::Model;
use crate::arena::ChunkPool;
use crate::exploration::Fault;
use crate::key::{self, EntryKind};
use crate::key_filter::KeyFilter;
use crate::skip_list::SkipList;
use crate::sync::AtomicU64;
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) const MODELS: &[Model] = &[
    Model {
        name: "skip list: two threads that insert side by side lose nothing",
        run: two_insert,
        seeds: 2,
        finds: &[Fault::SplitPointerExchanges, Fault::RelaxedLoads, Fault::RelaxedStores],
    },
    Model {
        name: "skip list: what is there is found while others are inserted around it",
        run: one_inserts_one_reads,
        seeds: 2,
        finds: &[Fault::IgnoredMinimum, Fault::RelaxedLoads, Fault::RelaxedStores],
    },
    Model {
        name: "skip list: two threads insert and one reads: entries are whole and in order",
        run: two_insert_one_reads,
        seeds: 1,
        finds: &[Fault::RelaxedLoads, Fault::RelaxedStores],
    },
    Model {
        name: "key filter: whoever learns of a sequence number finds its key",
        run: |_| filter_knows_what_was_published(),
        seeds: 1,
        finds: &[Fault::SplitExchanges, Fault::RelaxedLoads, Fault::RelaxedStores],
    },
];

const PUT: u8 = EntryKind::Put as u8;

fn list(seed: u64) -> SkipList {
    SkipList::new(&Arc::new(ChunkPool::new(4 << 10, 0)), b"", seed)
}

/// Keys that are in the list now, each with the value it has to have, in order.
fn walk(list: &SkipList) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut next = list.first();
    while let Some(node) = next {
        assert_eq!(node.user_key(), node.value(), "an entry is not whole");
        keys.push(node.user_key().to_vec());
        next = list.after(node);
    }
    assert!(keys.is_sorted(), "{keys:?} are not in order");
    keys
}

/// Looks a key up as a reader does.
fn has(list: &SkipList, key: &[u8]) -> bool {
    let found = list.at_or_after(key, key::pack_trailer(key::SEQUENCE_MAX, EntryKind::LARGEST));
    found.is_some_and(|node| {
        assert!(node.user_key() >= key, "found {:?} at or after {key:?}", node.user_key());
        node.user_key() == key
    })
}

fn insert(list: &SkipList, key: &[u8], sequence: u64) {
    list.insert(key, sequence, PUT, key);
    assert!(has(list, key), "{key:?} is not found by the thread that inserted it");
}

/// Both into the same gap, so that they meet at the same links.
fn two_insert(seed: u64) {
    let list = Arc::new(list(seed));
    list.insert(b"m", 1, PUT, b"m");
    let other = {
        let list = list.clone();
        thread::spawn(move || insert(&list, b"b", 2))
    };
    insert(&list, b"a", 3);
    other.join().unwrap();
    assert_eq!(walk(&list), [b"a", b"b", b"m"]);
    assert!(has(&list, b"a") && has(&list, b"b") && has(&list, b"m"));
    assert_eq!(list.last().map(|node| node.user_key()), Some(&b"m"[..]));
}

fn one_inserts_one_reads(seed: u64) {
    let list = Arc::new(list(seed));
    list.insert(b"c", 1, PUT, b"c");
    list.insert(b"x", 2, PUT, b"x");
    let writer = {
        let list = list.clone();
        thread::spawn(move || insert(&list, b"d", 3))
    };
    assert!(has(&list, b"c") && has(&list, b"x"), "what was there is not found any more");
    let seen = has(&list, b"d");
    let keys = walk(&list);
    assert!(!seen || keys.contains(&b"d".to_vec()), "an entry was seen, and then it was not");
    let before = list.before(b"x", key::pack_trailer(key::SEQUENCE_MAX, EntryKind::LARGEST));
    assert!(before.is_some_and(|node| node.user_key() >= b"c".as_slice()), "what was before is not found any more");
    writer.join().unwrap();
    assert_eq!(walk(&list), [b"c", b"d", b"x"]);
}

fn two_insert_one_reads(seed: u64) {
    let list = Arc::new(list(seed));
    let writers: Vec<_> = [b"a", b"b"]
        .into_iter()
        .zip(1..)
        .map(|(key, sequence)| {
            let list = list.clone();
            thread::spawn(move || {
                list.insert(key, sequence, PUT, key);
            })
        })
        .collect();
    let first = walk(&list);
    let second = walk(&list);
    assert!(first.iter().all(|key| second.contains(key)), "{first:?} were seen, and then {second:?}");
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(walk(&list), [b"a", b"b"]);
}

fn filter_knows_what_was_published() {
    /// A filter of the fewest words, so that some keys of the two threads are in one.
    const CAPACITY_BYTES: usize = 1;
    const KEYS: usize = 4;
    let filter = Arc::new(KeyFilter::new(CAPACITY_BYTES));
    let published = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let keys = |thread: usize| (0..KEYS).map(move |number| [b'a' + thread as u8, number as u8]);
    let writers: Vec<_> = (0..2)
        .map(|thread| {
            let (filter, published) = (filter.clone(), published.clone());
            loom::thread::spawn(move || {
                keys(thread).for_each(|key| filter.add(&key));
                published[thread].store(1, Ordering::Release);
            })
        })
        .collect();
    for (thread, published) in published.iter().enumerate() {
        let is_published = published.load(Ordering::Acquire) == 1;
        let knows = || keys(thread).all(|key| filter.may_contain(&key));
        assert!(!is_published || knows(), "a key that was published is not in the filter");
    }
    for writer in writers {
        writer.join().unwrap();
    }
    assert!((0..2).flat_map(keys).all(|key| filter.may_contain(&key)), "a key was lost");
}
