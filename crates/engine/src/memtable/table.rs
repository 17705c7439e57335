//! A memtable: the entries of one write-ahead log, in order.

use super::arena::ChunkPool;
use super::key_filter::KeyFilter;
use super::live::LiveEntries;
use super::skip_list::{Node, SkipList};
use crate::batch::BatchEntry;
use crate::error::Error;
use crate::iterator::{BlockPlace, InternalIterator};
use crate::key::{self, EntryKind, Sequence};
use crate::snapshot::VersionFilter;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Smallest and largest piece of memory a memtable takes at once, in bytes.
const CHUNK_BYTES: (usize, usize) = (4 << 10, 1 << 20);

/// Chunks a full memtable consists of, about.
const CHUNKS: usize = 32;

/// What a lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    pub(crate) sequence: Sequence,
    pub(crate) kind: EntryKind,
    /// Empty for a delete. Lives in the memtable; not copied.
    pub(crate) value: &'a [u8],
}

/// Entries in memory. Any number of threads may insert and read at once: inserts do not wait for
/// each other, reads wait for nothing. Entries are never changed or removed.
///
/// An insert is seen by every read that begins after it returned. Which entries of a batch being
/// applied are seen meanwhile is not said: readers look up at a sequence number published later.
pub(crate) struct MemTable {
    list: SkipList,
    filter: KeyFilter,
    #[cfg_attr(not(test), allow(dead_code, reason = "tells memtables apart in tests and debuggers"))]
    log_number: u64,
    capacity_bytes: usize,
    /// Memory of the list before the first entry.
    empty_bytes: usize,
    pool: Arc<ChunkPool>,
    seed: u64,
    entries: AtomicU64,
    deletions: AtomicU64,
    first_sequence: AtomicU64,
    last_sequence: AtomicU64,
    /// Counted only where it was asked for.
    live: Option<LiveEntries>,
}

/// Chunks for memtables of `capacity_bytes`, of which those that are dropped leave up to `kept_bytes`.
fn chunks(capacity_bytes: usize, kept_bytes: usize) -> Arc<ChunkPool> {
    let chunk_bytes = (capacity_bytes / CHUNKS).clamp(CHUNK_BYTES.0, CHUNK_BYTES.1);
    Arc::new(ChunkPool::new(chunk_bytes, kept_bytes))
}

impl MemTable {
    /// An empty memtable for the entries of log `log_number`. `capacity_bytes` is the size at which
    /// the caller will start another one; it only decides how much memory is taken at once. `seed`
    /// decides the list's shape.
    pub(crate) fn new(log_number: u64, capacity_bytes: usize, seed: u64) -> Self {
        Self::with_pool(log_number, capacity_bytes, seed, &[], chunks(capacity_bytes, capacity_bytes))
    }

    /// An empty memtable of one range of keys, of about `capacity_bytes`. With its successors it shares memory of up to `pool_bytes`.
    pub(crate) fn of_pool(pool_bytes: usize, capacity_bytes: usize, seed: u64) -> Self {
        Self::with_pool(0, capacity_bytes, seed, &[], chunks(capacity_bytes, pool_bytes))
    }

    /// Puts each of its entries into the memtable `of` its user key.
    pub(super) fn copy_into<'t>(self: &Arc<Self>, of: impl Fn(&[u8]) -> &'t MemTable) {
        let mut walk = self.iterator();
        walk.seek_to_first();
        while walk.valid() {
            let (user_key, sequence) = (key::user_key(walk.key()), key::sequence(walk.key()));
            let kind = EntryKind::from_number(key::kind_number(walk.key())).unwrap_or(EntryKind::Put);
            of(user_key).insert(sequence, kind, user_key, walk.value());
            walk.next();
        }
    }

    /// An empty memtable of the same capacity for the entries of a later log. It learns from this
    /// one's keys what keys begin with, and memtables of one line of succession share memory: one
    /// that is dropped leaves up to its capacity to those that follow.
    pub(crate) fn successor(&self, log_number: u64) -> Self {
        let mut prefix: &[u8] = &[];
        if let (Some(first), Some(last)) = (self.list.first(), self.list.last()) {
            let (first, last) = (first.user_key(), last.user_key());
            let length = first.iter().zip(last).take_while(|(a, b)| a == b).count();
            prefix = &first[..length];
        }
        let seed = self.seed.wrapping_add(1);
        Self::with_pool(log_number, self.capacity_bytes, seed, prefix, self.pool.clone())
    }

    fn with_pool(log_number: u64, capacity_bytes: usize, seed: u64, prefix: &[u8], pool: Arc<ChunkPool>) -> Self {
        let list = SkipList::new(&pool, prefix, seed);
        MemTable {
            empty_bytes: list.used_bytes(),
            list,
            filter: KeyFilter::new(capacity_bytes),
            log_number,
            capacity_bytes,
            pool,
            seed,
            entries: AtomicU64::new(0),
            deletions: AtomicU64::new(0),
            first_sequence: AtomicU64::new(u64::MAX),
            last_sequence: AtomicU64::new(0),
            live: None,
        }
    }

    /// An empty memtable that counts its newest values; so do those that [`Self::visible`] makes of it.
    pub(crate) fn counting_live(self) -> Self {
        MemTable { live: Some(LiveEntries::default()), ..self }
    }

    /// A memtable with the versions that readers at these `boundaries` see, ascending, and no deletion that hides nothing.
    pub(crate) fn visible(self: &Arc<Self>, boundaries: Vec<Sequence>) -> MemTable {
        let (mut new, mut filter) = (self.successor(self.log_number), VersionFilter::new(boundaries));
        new.live = self.live.as_ref().map(|_| LiveEntries::default());
        let mut walk = self.iterator();
        let mut last: Option<Vec<u8>> = None;
        walk.seek_to_first();
        while walk.valid() {
            let (user_key, sequence) = (key::user_key(walk.key()), key::sequence(walk.key()));
            if last.as_deref() != Some(user_key) {
                filter.begin_key();
                last = Some(user_key.to_vec());
            }
            let kind = EntryKind::from_number(key::kind_number(walk.key())).unwrap_or(EntryKind::Put);
            let is_hidden = filter.is_hidden(sequence);
            let is_needless = kind == EntryKind::Delete && filter.is_oldest_view(sequence);
            if !is_hidden && !is_needless {
                new.insert(sequence, kind, user_key, walk.value());
            }
            walk.next();
        }
        new
    }

    /// Adds one entry. Lengths are within the limits of [`crate::key`], and no entry with this key
    /// and sequence number is there.
    pub(crate) fn insert(&self, sequence: Sequence, kind: EntryKind, key: &[u8], value: &[u8]) {
        self.add(sequence, kind, key, value);
        self.count(1, u64::from(kind == EntryKind::Delete), sequence, sequence);
    }

    /// Adds entries; the i-th gets the sequence number `first_sequence + i`. Returns the next one.
    pub(crate) fn apply<'e>(
        &self,
        entries: impl IntoIterator<Item = BatchEntry<'e>>,
        first_sequence: Sequence,
    ) -> Sequence {
        let mut sequence = first_sequence;
        let mut deletions = 0;
        for entry in entries {
            let (kind, key, value) = entry.parts();
            self.add(sequence, kind, key, value);
            deletions += u64::from(kind == EntryKind::Delete);
            sequence += 1;
        }
        if sequence > first_sequence {
            self.count(sequence - first_sequence, deletions, first_sequence, sequence - 1);
        }
        sequence
    }

    #[inline]
    fn add(&self, sequence: Sequence, kind: EntryKind, key: &[u8], value: &[u8]) {
        self.filter.add(key);
        let neighbours = self.list.insert(key, sequence, kind as u8, value);
        if let Some(live) = &self.live {
            live.note(kind, key, value.len(), neighbours);
        }
    }

    fn count(&self, entries: u64, deletions: u64, first: Sequence, last: Sequence) {
        self.entries.fetch_add(entries, Ordering::Relaxed);
        if deletions > 0 {
            self.deletions.fetch_add(deletions, Ordering::Relaxed);
        }
        if self.first_sequence.load(Ordering::Relaxed) > first {
            self.first_sequence.fetch_min(first, Ordering::Relaxed);
        }
        if self.last_sequence.load(Ordering::Relaxed) < last {
            self.last_sequence.fetch_max(last, Ordering::Relaxed);
        }
    }

    /// The newest entry of the user key of `lookup_key` that is visible at its sequence number
    /// (see [`key::lookup_key`]).
    #[inline]
    pub(crate) fn get(&self, lookup_key: &[u8]) -> Option<Found<'_>> {
        let user_key = key::user_key(lookup_key);
        if !self.filter.may_contain(user_key) {
            return None;
        }
        let node = self.list.at_or_after(user_key, key::trailer(lookup_key))?;
        let found = node.internal_key();
        if key::user_key(found) != user_key {
            return None;
        }
        let kind = EntryKind::from_number(key::kind_number(found))?;
        Some(Found { sequence: key::sequence(found), kind, value: node.value() })
    }

    /// An iterator over the entries; those added later may or may not be seen.
    pub(crate) fn iterator(self: &Arc<Self>) -> MemTableIterator {
        MemTableIterator { table: self.clone(), node: None }
    }

    /// Memory taken, in bytes.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.list.used_bytes() + self.filter.size_bytes()
    }

    /// Memory that entries take, in bytes.
    #[inline]
    pub(crate) fn entry_bytes(&self) -> usize {
        self.list.used_bytes().saturating_sub(self.empty_bytes)
    }

    /// Memory held, in bytes; at least [`Self::memory_bytes`].
    pub(crate) fn reserved_bytes(&self) -> usize {
        self.list.reserved_bytes() + self.filter.size_bytes()
    }

    /// Entries, deletions included.
    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Keys whose newest entry is a put, and the bytes of these puts in a batch. `None` unless they are
    /// [counted](Self::counting_live).
    pub(crate) fn live(&self) -> Option<(u64, u64)> {
        self.live.as_ref().map(|live| (live.keys(), live.bytes()))
    }

    /// Entries that are deletes.
    pub(crate) fn deletions(&self) -> u64 {
        self.deletions.load(Ordering::Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// Smallest sequence number, if there are entries.
    pub(crate) fn first_sequence(&self) -> Option<Sequence> {
        Some(self.first_sequence.load(Ordering::Relaxed)).filter(|_| !self.is_empty())
    }

    /// Largest sequence number, if there are entries.
    pub(crate) fn last_sequence(&self) -> Option<Sequence> {
        Some(self.last_sequence.load(Ordering::Relaxed)).filter(|_| !self.is_empty())
    }

    /// The log whose entries these are.
    #[cfg(test)]
    pub(crate) fn log_number(&self) -> u64 {
        self.log_number
    }
}

/// Walks a memtable; keeps it alive. A step back costs a search.
pub(crate) struct MemTableIterator {
    table: Arc<MemTable>,
    node: Option<NonNull<()>>,
}

// SAFETY: the node belongs to the memtable this iterator keeps alive, which is Sync.
unsafe impl Send for MemTableIterator {}

impl MemTableIterator {
    #[inline]
    fn current(&self) -> Option<Node<'_>> {
        // SAFETY: the pointer came from a node of this table's list, which lives as long as `self`.
        self.node.map(|node| unsafe { Node::from_raw(node) })
    }
}

impl InternalIterator for MemTableIterator {
    #[inline]
    fn valid(&self) -> bool {
        self.node.is_some()
    }

    fn seek_to_first(&mut self) {
        self.node = self.table.list.first().map(Node::as_raw);
    }

    fn seek_to_last(&mut self) {
        self.node = self.table.list.last().map(Node::as_raw);
    }

    fn seek(&mut self, internal_key: &[u8]) {
        let found = self.table.list.at_or_after(key::user_key(internal_key), key::trailer(internal_key));
        self.node = found.map(Node::as_raw);
    }

    fn seek_for_previous(&mut self, internal_key: &[u8]) {
        let (user_key, trailer) = (key::user_key(internal_key), key::trailer(internal_key));
        let exact = self.table.list.at_or_after(user_key, trailer).filter(|node| node.internal_key() == internal_key);
        self.node = exact.or_else(|| self.table.list.before(user_key, trailer)).map(Node::as_raw);
    }

    #[inline]
    fn next(&mut self) {
        let next = self.current().and_then(|node| self.table.list.after(node));
        if let Some(node) = next {
            self.table.list.prefetch_after(node);
        }
        self.node = next.map(Node::as_raw);
    }

    fn previous(&mut self) {
        let before = self.current().and_then(|node| {
            let found = node.internal_key();
            self.table.list.before(key::user_key(found), key::trailer(found))
        });
        self.node = before.map(Node::as_raw);
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.current().map_or(&[], |node| node.internal_key())
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.current().map_or(&[], |node| node.value())
    }

    fn block(&self) -> Option<BlockPlace<'_>> {
        None
    }

    fn status(&self) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::{Ordering as KeyOrdering, Reverse};
    use std::collections::BTreeMap;
    use varve_env::Random;

    type Model = BTreeMap<(Vec<u8>, Reverse<u64>), Vec<u8>>;

    /// Under Miri everything is some thousand times slower.
    const ROUNDS: usize = if cfg!(miri) { 150 } else { 20_000 };

    fn internal(user_key: &[u8], trailer: u64) -> Vec<u8> {
        [user_key, &trailer.to_le_bytes()].concat()
    }

    fn random_key(random: &mut Random) -> Vec<u8> {
        // Short alphabets make equal hints, equal keys and prefixes of each other; some keys leave
        // the shared prefix.
        let mut key = if random.chance(4, 5) { b"common/".to_vec() } else { Vec::new() };
        let length = random.below(14);
        key.extend((0..length).map(|_| [0, b'a', b'b', 0xff][random.index(4)]));
        key
    }

    fn check_against_model(table: &Arc<MemTable>, model: &Model, random: &mut Random, seed: u64) {
        let mut iterator = table.iterator();
        iterator.seek_to_first();
        for ((user_key, Reverse(trailer)), value) in model {
            assert!(iterator.valid(), "seed {seed}");
            assert_eq!(iterator.key(), internal(user_key, *trailer), "seed {seed}");
            assert_eq!(iterator.value(), value, "seed {seed}");
            iterator.next();
        }
        assert!(!iterator.valid());
        iterator.seek_to_last();
        for ((user_key, Reverse(trailer)), _) in model.iter().rev() {
            assert_eq!(iterator.key(), internal(user_key, *trailer), "seed {seed}");
            iterator.previous();
        }
        assert!(!iterator.valid());
        for _ in 0..ROUNDS / 10 {
            let user_key = random_key(random);
            let trailer = key::pack_trailer(random.below(ROUNDS as u64 + 2), key::EntryKind::LARGEST);
            let wanted = internal(&user_key, trailer);
            let at = (user_key.clone(), Reverse(trailer));
            iterator.seek(&wanted);
            let next = model.range(at.clone()..).next();
            assert_eq!(iterator.valid(), next.is_some(), "seed {seed}");
            if let Some(((found, Reverse(trailer)), _)) = next {
                assert_eq!(iterator.key(), internal(found, *trailer), "seed {seed}");
                let exact = iterator.key().to_vec();
                iterator.seek_for_previous(&exact);
                assert_eq!(iterator.key(), exact, "an entry is at or before itself; seed {seed}");
            }
            iterator.seek_for_previous(&wanted);
            let before = model.range(..=at).next_back();
            assert_eq!(iterator.valid(), before.is_some(), "seed {seed}");
            if let Some(((found, Reverse(trailer)), _)) = before {
                assert_eq!(iterator.key(), internal(found, *trailer), "seed {seed}");
            }
            let expected = next.filter(|((found, _), _)| *found == user_key);
            let found = table.get(&wanted);
            assert_eq!(found.is_some(), expected.is_some(), "seed {seed}");
            if let (Some(found), Some(((_, Reverse(trailer)), value))) = (found, expected) {
                assert_eq!(key::pack_trailer(found.sequence, found.kind as u8), *trailer, "seed {seed}");
                assert_eq!(found.value, value, "seed {seed}");
            }
        }
    }

    #[test]
    fn answers_like_an_ordered_map() {
        for seed in 0..3 {
            let mut random = Random::seeded(seed);
            let mut table = Arc::new(MemTable::new(7, 64 << 10, seed));
            if seed > 0 {
                table.insert(1, EntryKind::Put, b"common/a", b"");
                table.insert(2, EntryKind::Put, b"common/b", b"");
                table = Arc::new(table.successor(8));
            }
            let mut model = Model::new();
            for sequence in 1..=ROUNDS as u64 {
                let key = random_key(&mut random);
                let kind = if random.chance(1, 5) { EntryKind::Delete } else { EntryKind::Put };
                let length = if kind == EntryKind::Delete { 0 } else { random.below(40) };
                let value: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
                table.insert(sequence, kind, &key, &value);
                model.insert((key, Reverse(key::pack_trailer(sequence, kind as u8))), value);
            }
            check_against_model(&table, &model, &mut random, seed);
            assert_eq!(table.entries(), ROUNDS as u64);
            assert_eq!((table.first_sequence(), table.last_sequence()), (Some(1), Some(ROUNDS as u64)));
            let deletions = model.keys().filter(|(_, Reverse(trailer))| *trailer as u8 == 0).count();
            assert_eq!(table.deletions(), deletions as u64);
            let payload: usize = model.iter().map(|((key, _), value)| key.len() + 8 + value.len()).sum();
            assert!(table.memory_bytes() > payload && table.memory_bytes() <= table.reserved_bytes());
        }
    }

    #[test]
    fn threads_insert_and_read_at_once() {
        const THREADS: u64 = 4;
        let each = if cfg!(miri) { 40 } else { 20_000 };
        for seed in 0..if cfg!(miri) { 1 } else { 4 } {
            let table = Arc::new(MemTable::new(1, 256 << 10, seed));
            // Written before the readers start: they must see all of it, always.
            for sequence in 1..=each {
                let key = format!("{:06}", sequence * 37 % 1000);
                table.insert(sequence, EntryKind::Put, key.as_bytes(), &sequence.to_le_bytes());
            }
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let table = &table;
                    scope.spawn(move || {
                        let mut random = Random::seeded(seed * 100 + thread);
                        for index in 0..each {
                            let sequence = each + 1 + index * THREADS + thread;
                            let key = format!("{:06}", random.below(1000));
                            table.insert(sequence, EntryKind::Put, key.as_bytes(), &sequence.to_le_bytes());
                            let lookup = key::lookup_key(key.as_bytes(), sequence);
                            let found = table.get(&lookup).expect("a thread sees its own insert");
                            assert_eq!(found.sequence, sequence);
                            assert_eq!(found.value, sequence.to_le_bytes());
                        }
                    });
                }
                for reader in 0..2 {
                    let table = &table;
                    scope.spawn(move || {
                        for _ in 0..2 {
                            let mut iterator = table.iterator();
                            let mut old = 0;
                            let mut last: Option<Vec<u8>> = None;
                            if reader == 0 {
                                iterator.seek_to_first()
                            } else {
                                iterator.seek_to_last()
                            }
                            while iterator.valid() {
                                let expected = if reader == 0 { KeyOrdering::Less } else { KeyOrdering::Greater };
                                if let Some(last) = &last {
                                    assert_eq!(key::compare(last, iterator.key()), expected);
                                }
                                assert_eq!(iterator.value(), key::sequence(iterator.key()).to_le_bytes());
                                old += u64::from(key::sequence(iterator.key()) <= each);
                                last = Some(iterator.key().to_vec());
                                if reader == 0 { iterator.next() } else { iterator.previous() }
                            }
                            assert_eq!(old, each, "entries there before are never missed");
                        }
                    });
                }
            });
            let mut sequences = Vec::new();
            let mut iterator = table.iterator();
            iterator.seek_to_first();
            while iterator.valid() {
                sequences.push(key::sequence(iterator.key()));
                iterator.next();
            }
            sequences.sort_unstable();
            assert!(sequences.into_iter().eq(1..=each * (1 + THREADS)), "seed {seed}");
        }
    }

    #[test]
    fn a_batch_gets_consecutive_sequence_numbers() {
        let mut batch = crate::batch::WriteBatch::new();
        batch.put(b"k", b"1").unwrap();
        batch.delete(b"k").unwrap();
        batch.put(b"k", &[5; 100_000]).unwrap();
        let table = MemTable::new(3, 1 << 20, 0);
        assert!(table.is_empty() && table.first_sequence().is_none());
        assert_eq!(table.apply(&batch, 10), 13);
        let at = |sequence| table.get(&key::lookup_key(b"k", sequence)).map(|found| (found.kind, found.value.len()));
        assert_eq!(at(9), None);
        assert_eq!(at(10), Some((EntryKind::Put, 1)));
        assert_eq!(at(11), Some((EntryKind::Delete, 0)));
        assert_eq!(at(99), Some((EntryKind::Put, 100_000)));
        assert_eq!((table.entries(), table.deletions(), table.log_number()), (3, 1, 3));
        assert!(table.memory_bytes() >= 100_000);
    }
}
