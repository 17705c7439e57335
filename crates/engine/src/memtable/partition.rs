//! Memtables side by side, each with the keys of one range.

use super::table::{Found, MemTable, MemTableIterator};
use crate::batch::BatchEntry;
use crate::error::Error;
use crate::iterator::{BlockPlace, InternalIterator};
use crate::key::{self, Sequence};
use std::ops::Range;
use std::sync::Arc;

/// Where a range of keys ends; nothing is without end.
pub(crate) type RangeEnd = Option<Box<[u8]>>;

/// Memtables of ranges of keys that follow on one another. Thread-safe as a [`MemTable`] is; which ranges there are never changes: one
/// that has others is another partition, with the same memtables where they are the same.
#[derive(Clone)]
pub(crate) struct Partition {
    /// First key of each part.
    begins: Vec<Box<[u8]>>,
    end: RangeEnd,
    memtables: Vec<Arc<MemTable>>,
    /// What its maker said when each began to be without entries.
    begun: Vec<u64>,
}

impl Partition {
    /// One memtable with all keys.
    pub(crate) fn whole(memtable: Arc<MemTable>) -> Partition {
        Partition { begins: vec![Box::default()], end: None, memtables: vec![memtable], begun: vec![0] }
    }

    /// It has every key.
    pub(crate) fn is_whole(&self) -> bool {
        self.end.is_none() && self.begins[0].is_empty()
    }

    /// First key of its range.
    pub(crate) fn begin(&self) -> &[u8] {
        &self.begins[0]
    }

    /// Where its range ends, exclusively.
    pub(crate) fn end(&self) -> Option<&[u8]> {
        self.end.as_deref()
    }

    /// First key of each part.
    pub(crate) fn begins(&self) -> &[Box<[u8]>] {
        &self.begins
    }

    /// In the order of their keys.
    pub(crate) fn memtables(&self) -> &[Arc<MemTable>] {
        &self.memtables
    }

    /// When each part began to be without entries: what was given then.
    pub(crate) fn begun(&self) -> &[u64] {
        &self.begun
    }

    /// The part that has a key, if one does. Cost: a binary search over the parts.
    #[inline]
    fn part_of(&self, user_key: &[u8]) -> Option<usize> {
        if self.begins.len() == 1 && self.is_whole() {
            return Some(0);
        }
        let behind = self.begins.partition_point(|begin| **begin <= *user_key);
        behind.checked_sub(1).filter(|_| self.end.as_deref().is_none_or(|end| user_key < end))
    }

    /// Adds entries, all of whose keys are in its range; the i-th gets the sequence number `first_sequence + i`. Returns the next one.
    pub(crate) fn apply<'e>(
        &self,
        entries: impl IntoIterator<Item = BatchEntry<'e>>,
        first_sequence: Sequence,
    ) -> Sequence {
        if let ([memtable], true) = (&*self.memtables, self.is_whole()) {
            return memtable.apply(entries, first_sequence);
        }
        let mut sequence = first_sequence;
        for entry in entries {
            let (kind, key, value) = entry.parts();
            debug_assert!(self.part_of(key).is_some());
            if let Some(part) = self.part_of(key) {
                self.memtables[part].insert(sequence, kind, key, value);
            }
            sequence += 1;
        }
        sequence
    }

    /// As [`MemTable::get`].
    #[inline]
    pub(crate) fn get(&self, lookup_key: &[u8]) -> Option<Found<'_>> {
        self.memtables[self.part_of(key::user_key(lookup_key))?].get(lookup_key)
    }

    /// An iterator over the entries; those added later may or may not be seen.
    pub(crate) fn iterator(self: &Arc<Self>) -> Box<dyn InternalIterator> {
        match &*self.memtables {
            [memtable] => Box::new(memtable.iterator()),
            [..] => Box::new(PartitionIterator { partition: self.clone(), position: 0, current: None }),
        }
    }

    /// Memory taken, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memtables.iter().map(|memtable| memtable.memory_bytes()).sum()
    }

    /// Memory held, in bytes.
    pub(crate) fn reserved_bytes(&self) -> usize {
        self.memtables.iter().map(|memtable| memtable.reserved_bytes()).sum()
    }

    /// Entries, deletions included.
    pub(crate) fn entries(&self) -> u64 {
        self.memtables.iter().map(|memtable| memtable.entries()).sum()
    }

    /// Entries that are deletes.
    pub(crate) fn deletions(&self) -> u64 {
        self.memtables.iter().map(|memtable| memtable.deletions()).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.memtables.iter().all(|memtable| memtable.is_empty())
    }

    /// Smallest sequence number, if there are entries.
    pub(crate) fn first_sequence(&self) -> Option<Sequence> {
        self.memtables.iter().filter_map(|memtable| memtable.first_sequence()).min()
    }

    fn end_of(&self, part: usize) -> RangeEnd {
        self.begins.get(part + 1).cloned().or_else(|| self.end.clone())
    }

    /// Takes some of its parts out: these, and the partition that follows, in which parts without entries stand for them. Of those with
    /// less than `least_bytes` several become one, and so do neighbours that have had no entries for as long as they were there.
    /// [`Partition::begun`] says `now` of those that are new. With `least_bytes` of 0 there are as many parts as before, or fewer.
    pub(crate) fn take(
        &self,
        parts: Range<usize>,
        (log_number, now): (u64, u64),
        least_bytes: usize,
    ) -> (Partition, Partition) {
        let taken = Partition {
            begins: self.begins[parts.clone()].to_vec(),
            end: self.end_of(parts.end - 1),
            memtables: self.memtables[parts.clone()].to_vec(),
            begun: self.begun[parts.clone()].to_vec(),
        };
        let mut rest =
            Partition { begins: Vec::new(), end: self.end.clone(), memtables: Vec::new(), begun: Vec::new() };
        let (mut gathered_bytes, mut was_empty) = (usize::MAX, false);
        for (part, (begin, memtable)) in self.begins.iter().zip(&self.memtables).enumerate() {
            let is_taken = parts.contains(&part);
            let is_empty = !is_taken && memtable.is_empty();
            let is_joined = match is_taken {
                true => part > parts.start && gathered_bytes < least_bytes,
                false => is_empty && was_empty,
            };
            gathered_bytes = match (is_taken, is_joined) {
                (true, true) => gathered_bytes.saturating_add(memtable.entry_bytes()),
                (true, false) => memtable.entry_bytes(),
                (false, _) => usize::MAX,
            };
            was_empty = is_empty;
            if !is_joined {
                rest.begins.push(begin.clone());
                rest.begun.push(if is_taken { now } else { self.begun[part] });
                rest.memtables.push(match is_taken {
                    true => Arc::new(memtable.successor(log_number)),
                    false => memtable.clone(),
                });
            }
        }
        // Keys that come in order come behind what is taken, and to no memtable that lies over its table.
        if least_bytes > 0
            && parts.end == self.memtables.len()
            && self.end.is_none()
            && let Some(behind) = behind(&self.memtables[parts.end - 1])
        {
            rest.begins.push(behind);
            rest.begun.push(now);
            rest.memtables.push(Arc::new(self.memtables[parts.end - 1].successor(log_number)));
        }
        (taken, rest)
    }

    /// The partition with one part divided in two: where it ends, when it is the last, so that keys that come in order are never copied; else
    /// in the middle of its entries. Nothing when it cannot be. No entry is added meanwhile.
    pub(crate) fn divided(&self, part: usize) -> Option<Partition> {
        let memtable = &self.memtables[part];
        let mut next = self.clone();
        if part + 1 == self.memtables.len() && self.end.is_none() {
            next.begins.push(behind(memtable)?);
            next.memtables.push(Arc::new(memtable.successor(0)));
            next.begun.push(self.begun[part]);
            return Some(next);
        }
        let middle = middle(memtable)?;
        let (low, high) = (Arc::new(memtable.successor(0)), Arc::new(memtable.successor(0)));
        memtable.copy_into(|user_key| if *user_key < *middle { &low } else { &high });
        next.begins.insert(part + 1, middle);
        next.memtables.splice(part..=part, [low, high]);
        next.begun.insert(part + 1, self.begun[part]);
        Some(next)
    }

    /// The partition with two neighbours made one: those that have least together, if that is at most `most_bytes`. No entry is added meanwhile.
    pub(crate) fn joined(&self, most_bytes: usize) -> Option<Partition> {
        let bytes_of = |pair: &[Arc<MemTable>]| pair[0].memory_bytes() + pair[1].memory_bytes();
        let pairs = self.memtables.windows(2).map(bytes_of).enumerate();
        let (first, _) = pairs.min_by_key(|(_, bytes)| *bytes).filter(|(_, bytes)| *bytes <= most_bytes)?;
        let one = Arc::new(self.memtables[first].successor(0));
        for memtable in &self.memtables[first..first + 2] {
            memtable.copy_into(|_| &one);
        }
        let mut next = self.clone();
        next.begins.remove(first + 1);
        next.memtables.splice(first..first + 2, [one]);
        let later = next.begun.remove(first + 1);
        next.begun[first] = next.begun[first].min(later);
        Some(next)
    }
}

/// The least key behind all of a memtable's entries; nothing when it has none.
fn behind(memtable: &Arc<MemTable>) -> Option<Box<[u8]>> {
    let mut walk = memtable.iterator();
    walk.seek_to_last();
    let last = key::user_key(Some(walk.key()).filter(|_| walk.valid())?);
    Some([last, &[0]].concat().into())
}

/// The key in the middle of a memtable's entries, or the next one if that is its first; nothing when it has one key.
fn middle(memtable: &Arc<MemTable>) -> Option<Box<[u8]>> {
    let mut walk = memtable.iterator();
    walk.seek_to_last();
    let last: Box<[u8]> = key::user_key(Some(walk.key()).filter(|_| walk.valid())?).into();
    walk.seek_to_first();
    let first: Box<[u8]> = key::user_key(walk.key()).into();
    if first == last {
        return None;
    }
    (0..memtable.entries() / 2).for_each(|_| walk.next());
    while walk.valid() && *key::user_key(walk.key()) == *first {
        walk.next();
    }
    Some(Some(key::user_key(walk.key())).filter(|_| walk.valid()).map_or(last, Box::from))
}

/// Walks over the parts one after the other.
struct PartitionIterator {
    partition: Arc<Partition>,
    /// Part that `current` walks over.
    position: usize,
    current: Option<MemTableIterator>,
}

impl PartitionIterator {
    fn enter(&mut self, position: usize) -> &mut MemTableIterator {
        self.position = position;
        self.current.insert(self.partition.memtables[position].iterator())
    }

    /// Goes on to the first entry of a later part if this one has none ahead.
    fn skip_forward(&mut self) {
        while !self.valid() && self.position + 1 < self.partition.memtables.len() {
            self.enter(self.position + 1).seek_to_first();
        }
    }

    fn skip_backward(&mut self) {
        while !self.valid() && self.position > 0 {
            self.enter(self.position - 1).seek_to_last();
        }
    }

    /// The part a key is in, or would be in if the range had no ends.
    fn position_of(&self, internal_key: &[u8]) -> usize {
        let user_key = key::user_key(internal_key);
        self.partition.begins.partition_point(|begin| **begin <= *user_key).saturating_sub(1)
    }
}

impl InternalIterator for PartitionIterator {
    #[inline]
    fn valid(&self) -> bool {
        self.current.as_ref().is_some_and(InternalIterator::valid)
    }

    fn seek_to_first(&mut self) {
        self.enter(0).seek_to_first();
        self.skip_forward();
    }

    fn seek_to_last(&mut self) {
        self.enter(self.partition.memtables.len() - 1).seek_to_last();
        self.skip_backward();
    }

    fn seek(&mut self, internal_key: &[u8]) {
        self.enter(self.position_of(internal_key)).seek(internal_key);
        self.skip_forward();
    }

    fn seek_for_previous(&mut self, internal_key: &[u8]) {
        self.enter(self.position_of(internal_key)).seek_for_previous(internal_key);
        self.skip_backward();
    }

    #[inline]
    fn next(&mut self) {
        if let Some(current) = &mut self.current {
            current.next();
        }
        self.skip_forward();
    }

    fn previous(&mut self) {
        if let Some(current) = &mut self.current {
            current.previous();
        }
        self.skip_backward();
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], InternalIterator::key)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], InternalIterator::value)
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
    use crate::key::EntryKind;
    use varve_env::Random;

    const POOL_BYTES: usize = 1 << 20;

    fn fresh() -> Partition {
        Partition::whole(Arc::new(MemTable::of_pool(POOL_BYTES, 16 << 10, 1)))
    }

    fn insert(partition: &Partition, sequence: Sequence, user_key: &[u8]) {
        let part = partition.part_of(user_key).unwrap();
        partition.memtables[part].insert(sequence, EntryKind::Put, user_key, &sequence.to_le_bytes());
    }

    fn keys(partition: &Partition) -> Vec<Vec<u8>> {
        let mut walk = Arc::new(partition.clone()).iterator();
        let mut found = Vec::new();
        walk.seek_to_first();
        while walk.valid() {
            found.push(walk.key().to_vec());
            walk.next();
        }
        let mut back = Vec::new();
        walk.seek_to_last();
        while walk.valid() {
            back.push(walk.key().to_vec());
            walk.previous();
        }
        back.reverse();
        assert_eq!(found, back);
        found
    }

    fn check_parts(partition: &Partition) {
        assert_eq!(partition.begins.len(), partition.memtables.len());
        assert_eq!(partition.begun.len(), partition.memtables.len());
        assert!(partition.begins.windows(2).all(|pair| pair[0] < pair[1]));
        for (part, memtable) in partition.memtables.iter().enumerate() {
            let mut walk = memtable.iterator();
            walk.seek_to_first();
            while walk.valid() {
                assert_eq!(partition.part_of(key::user_key(walk.key())), Some(part));
                walk.next();
            }
        }
    }

    /// Divided, joined and taken from at random it has what one memtable has.
    #[test]
    fn it_is_one_memtable_however_it_is_divided() {
        for seed in 0..if cfg!(miri) { 1 } else { 20 } {
            let mut random = Random::seeded(seed);
            let (mut partition, model) = (fresh(), Arc::new(MemTable::new(1, POOL_BYTES, seed)));
            let mut taken: Vec<Partition> = Vec::new();
            for sequence in 1..=if cfg!(miri) { 60 } else { 2000 } {
                let user_key = format!("{:04}", random.below(3000)).into_bytes();
                insert(&partition, sequence, &user_key);
                model.insert(sequence, EntryKind::Put, &user_key, &sequence.to_le_bytes());
                let part = random.index(partition.memtables.len());
                match random.below(60) {
                    0..5 => partition = partition.divided(part).unwrap_or(partition),
                    5 => partition = partition.joined(usize::MAX).unwrap_or(partition),
                    6 => {
                        let end = part + 1 + random.index(partition.memtables.len() - part);
                        let (out, rest) = partition.take(part..end, (2, sequence), random.index(2000));
                        assert!(rest.is_whole() && rest.part_of(out.begin()).is_some());
                        (partition, _) = (rest, taken.push(out));
                    }
                    _ => {}
                }
                check_parts(&partition);
            }
            taken.iter().for_each(check_parts);
            let mut found: Vec<Vec<u8>> = taken.iter().chain([&partition]).flat_map(keys).collect();
            found.sort_by(|a, b| key::compare(a, b));
            assert_eq!(found, keys(&Partition::whole(model.clone())), "seed {seed}");
            let lookup = |user_key: &[u8]| key::lookup_key(user_key, key::SEQUENCE_MAX);
            for number in 0..3000 {
                let wanted = lookup(format!("{number:04}").as_bytes());
                let all = taken.iter().chain([&partition]);
                let newest = all.filter_map(|partition| partition.get(&wanted)).map(|found| found.sequence).max();
                assert_eq!(newest, model.get(&wanted).map(|found| found.sequence), "seed {seed}");
            }
            let entries: u64 = taken.iter().chain([&partition]).map(Partition::entries).sum();
            assert_eq!(entries, model.entries());
        }
    }

    #[test]
    fn seeks_find_what_is_in_a_later_part() {
        let partition = fresh();
        ["b", "d", "f", "h"]
            .iter()
            .zip(1..)
            .for_each(|(user_key, sequence)| insert(&partition, sequence, user_key.as_bytes()));
        let partition = partition.divided(0).and_then(|two| two.divided(0)).and_then(|three| three.divided(0)).unwrap();
        assert!(partition.memtables.len() > 3);
        let (_, rest) = partition.take(1..2, (2, 1), 0);
        let rest = Arc::new(rest);
        let left = keys(&rest);
        let mut walk = rest.iterator();
        for sought in ["a", "b", "c", "d", "e", "f", "g", "h", "i"] {
            let wanted = key::lookup_key(sought.as_bytes(), key::SEQUENCE_MAX);
            walk.seek(&wanted);
            let next = left.iter().find(|key| key::compare(key, &wanted).is_ge());
            assert_eq!(Some(walk.key()).filter(|_| walk.valid()), next.map(|key| &**key), "{sought}");
            walk.seek_for_previous(&wanted);
            let before = left.iter().rev().find(|key| key::compare(key, &wanted).is_le());
            assert_eq!(Some(walk.key()).filter(|_| walk.valid()), before.map(|key| &**key), "{sought}");
        }
    }

    #[test]
    fn what_comes_in_order_is_never_copied_and_leaves_no_parts_behind() {
        let mut partition = fresh();
        for sequence in 1..=1000 {
            insert(&partition, sequence, format!("{sequence:06}").as_bytes());
            let last = partition.memtables.len() - 1;
            if sequence % 50 == 0 {
                let before = partition.memtables[last].clone();
                partition = partition.divided(last).unwrap();
                assert!(Arc::ptr_eq(&before, &partition.memtables[last]));
            }
            if sequence % 200 == 0 {
                partition = partition.take(0..partition.memtables.len() - 1, (2, 1), 1).1;
                assert!(partition.memtables.len() <= 10, "{}", partition.memtables.len());
            }
        }
        let one = fresh();
        assert!(one.divided(0).is_none(), "nothing to divide");
        insert(&one, 1, b"a");
        insert(&one, 2, b"a");
        let two = one.divided(0).unwrap();
        assert!(two.divided(0).is_none(), "versions of one key stay together");
        assert_eq!(keys(&two).len(), 2);
    }
}
