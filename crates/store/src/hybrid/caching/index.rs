//! Where the copies of blocks are: eight bytes to a block.
//!
//! An entry has a part of the block's hash, the zone and where in it the copy begins. It does not have the whole key: the copy
//! carries a [check](super::batch::check_of) of it, and whoever reads the copy looks at that. So one of some thousand blocks that
//! have no copy seems to have one, which costs a read of the fast tier; none is taken for another.
//!
//! A zone goes at once and its entries bit by bit: none of them answers any more, and its number in the index is another zone's
//! only when the last is [swept](BlockIndex::sweep).

use std::collections::VecDeque;

/// Where a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hybrid) struct CopyPlace {
    /// Number of the zone in this index, 1 or more.
    pub(in crate::hybrid) slot: u16,
    /// Where it begins in the zone, in units of [`COPY_UNIT_BYTES`].
    pub(in crate::hybrid) unit: u32,
}

/// Copies begin at multiples of so many bytes.
pub(in crate::hybrid) const COPY_UNIT_BYTES: u64 = 16;

const TAG_BITS: u32 = 24;
const SLOT_BITS: u32 = 12;
const UNIT_BITS: u32 = 28;

/// Slots go from 1 to this.
pub(in crate::hybrid) const SLOTS_MAX: u16 = (1 << SLOT_BITS) - 1;

/// Bytes of a zone that copies may lie in.
pub(in crate::hybrid) const ZONE_BYTES_MAX: u64 = COPY_UNIT_BYTES << UNIT_BITS;

/// Entries of a bucket: a line of the processor's cache.
const BUCKET: usize = 8;

/// Blocks for which there is one segment: few, so that growing one costs little.
const BLOCKS_OF_SEGMENT: u64 = 4096;

/// A table of buckets. Every block may be in two of them.
#[derive(Clone, Debug, Default)]
struct Segment {
    entries: Vec<u64>,
    used: u32,
}

fn entry(tag: u32, place: CopyPlace) -> u64 {
    (u64::from(tag) << (SLOT_BITS + UNIT_BITS)) | (u64::from(place.slot) << UNIT_BITS) | u64::from(place.unit)
}

fn tag_of(entry: u64) -> u32 {
    (entry >> (SLOT_BITS + UNIT_BITS)) as u32
}

fn place_of(entry: u64) -> CopyPlace {
    let slot = (entry >> UNIT_BITS) as u16 & SLOTS_MAX;
    CopyPlace { slot, unit: (entry & ((1 << UNIT_BITS) - 1)) as u32 }
}

impl Segment {
    /// The two buckets of a tag: its place in the segment follows from nothing else, so that a segment can be laid anew.
    fn buckets(&self, tag: u32) -> [usize; 2] {
        let count = (self.entries.len() / BUCKET) as u64;
        let of = |scattered: u32| ((u64::from(scattered) * count) >> 32) as usize * BUCKET;
        let scattered = tag.wrapping_mul(0x9e37_79b1);
        [of(scattered ^ (scattered >> 15)), of((scattered.rotate_left(16) ^ tag).wrapping_mul(0x85eb_ca6b))]
    }

    fn of_tag(&self, tag: u32) -> impl Iterator<Item = u64> {
        let [one, other] = if self.entries.is_empty() { [0, 0] } else { self.buckets(tag) };
        let bucket = |start: usize| self.entries.get(start..start + BUCKET).unwrap_or(&[]);
        let second = if one == other { &[] } else { bucket(other) };
        bucket(one).iter().chain(second).copied().filter(move |entry| *entry != 0 && tag_of(*entry) == tag)
    }

    /// False when both buckets are full.
    fn put(&mut self, entry: u64) -> bool {
        if self.entries.is_empty() {
            return false;
        }
        let [one, other] = self.buckets(tag_of(entry));
        let used = |start: usize| self.entries[start..start + BUCKET].iter().filter(|entry| **entry != 0).count();
        let emptier = if used(other) < used(one) { other } else { one };
        let free = self.free_in(emptier).or_else(|| self.make_room(one)).or_else(|| self.make_room(other));
        let Some(free) = free else { return false };
        self.entries[free] = entry;
        self.used += 1;
        true
    }

    fn free_in(&self, bucket: usize) -> Option<usize> {
        self.entries[bucket..bucket + BUCKET].iter().position(|entry| *entry == 0).map(|at| bucket + at)
    }

    /// Moves one entry of a full bucket to the other one that it may be in.
    fn make_room(&mut self, bucket: usize) -> Option<usize> {
        let moves = (bucket..bucket + BUCKET).find_map(|from| {
            let [one, other] = self.buckets(tag_of(self.entries[from]));
            self.free_in(if one == bucket { other } else { one }).map(|to| (from, to))
        });
        let (from, to) = moves?;
        self.entries[to] = std::mem::take(&mut self.entries[from]);
        Some(from)
    }

    /// Lays it out anew with so many buckets, or a few more.
    fn resize(&mut self, mut buckets: usize) {
        loop {
            let mut laid = Segment { entries: Vec::new(), used: 0 };
            laid.entries.reserve_exact(buckets * BUCKET);
            laid.entries.resize(buckets * BUCKET, 0);
            if self.entries.iter().filter(|entry| **entry != 0).all(|entry| laid.put(*entry)) {
                *self = laid;
                return;
            }
            buckets += 1 + buckets / 16;
        }
    }

    /// False when it is not there.
    fn remove(&mut self, entry: u64) -> bool {
        let buckets = if self.entries.is_empty() { [0, 0] } else { self.buckets(tag_of(entry)) };
        for start in buckets {
            let bucket = self.entries.get_mut(start..start + BUCKET).unwrap_or_default();
            if let Some(found) = bucket.iter_mut().find(|found| **found == entry) {
                *found = 0;
                self.used -= 1;
                return true;
            }
        }
        false
    }

    fn insert(&mut self, entry: u64) {
        while !self.put(entry) {
            let buckets = self.entries.len() / BUCKET;
            self.resize(buckets + 1 + buckets / 16);
        }
    }
}

/// Where copies are, by the hashes of their blocks.
#[derive(Clone, Debug)]
pub(in crate::hybrid) struct BlockIndex {
    segments: Vec<Segment>,
    /// Copies in each zone, by its slot less 1.
    copies: Vec<u64>,
    len: u64,
    /// Zones that are gone of which there may be entries: with the number of segments that were swept before.
    gone: VecDeque<(u16, u64)>,
    /// Segments that were swept, all in turn.
    swept: u64,
}

impl BlockIndex {
    /// For up to so many blocks: more are slower to add, not refused.
    pub(in crate::hybrid) fn new(blocks_max: u64) -> BlockIndex {
        let segments = blocks_max.div_ceil(BLOCKS_OF_SEGMENT).clamp(1, 1 << 20) as usize;
        BlockIndex {
            segments: vec![Segment::default(); segments],
            copies: Vec::new(),
            len: 0,
            gone: VecDeque::new(),
            swept: 0,
        }
    }

    fn address(&self, hash: u64) -> (usize, u32) {
        let segment = ((hash >> 32) * self.segments.len() as u64) >> 32;
        (segment as usize, (hash & ((1 << TAG_BITS) - 1)) as u32)
    }

    /// Copies.
    pub(in crate::hybrid) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of memory.
    pub(in crate::hybrid) fn memory_bytes(&self) -> u64 {
        let of_segments = self.segments.len() * size_of::<Segment>();
        let of_entries: usize = self.segments.iter().map(|segment| segment.entries.capacity() * 8).sum();
        (of_segments + of_entries + self.copies.capacity() * 8) as u64
    }

    /// Where the copy of a block may be; more than one place where hashes are alike.
    pub(in crate::hybrid) fn find(&self, hash: u64) -> impl Iterator<Item = CopyPlace> {
        let (segment, tag) = self.address(hash);
        self.segments[segment].of_tag(tag).map(place_of).filter(|place| !self.is_gone(place.slot))
    }

    pub(in crate::hybrid) fn contains(&self, hash: u64) -> bool {
        self.find(hash).next().is_some()
    }

    fn is_gone(&self, slot: u16) -> bool {
        self.gone.iter().any(|(gone, _)| *gone == slot)
    }

    /// There is a copy. Slot and unit are within their limits.
    pub(in crate::hybrid) fn insert(&mut self, hash: u64, place: CopyPlace) {
        let (segment, tag) = self.address(hash);
        self.segments[segment].insert(entry(tag, place));
        self.len += 1;
        let at = usize::from(place.slot) - 1;
        if self.copies.len() <= at {
            self.copies.resize(at + 1, 0);
        }
        self.copies[at] += 1;
    }

    /// The copy there is none any more; false when it was not.
    pub(in crate::hybrid) fn remove(&mut self, hash: u64, place: CopyPlace) -> bool {
        if self.is_gone(place.slot) {
            return false;
        }
        let (segment, tag) = self.address(hash);
        if !self.segments[segment].remove(entry(tag, place)) {
            return false;
        }
        self.len -= 1;
        self.copies[usize::from(place.slot) - 1] -= 1;
        true
    }

    /// There are no copies of a block any more.
    pub(in crate::hybrid) fn remove_all(&mut self, hash: u64) {
        let places: Vec<CopyPlace> = self.find(hash).collect();
        places.into_iter().for_each(|place| {
            self.remove(hash, place);
        });
    }

    /// Forgets every copy of a zone. Its entries stay until they are [swept](Self::sweep), and answer nothing; till then the slot
    /// is no other zone's.
    pub(in crate::hybrid) fn remove_zone(&mut self, slot: u16) {
        if let Some(copies) = self.copies.get_mut(usize::from(slot) - 1) {
            self.len -= std::mem::take(copies);
        }
        self.gone.push_back((slot, self.swept));
    }

    /// Whether there may be entries of zones that are gone.
    pub(in crate::hybrid) fn has_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Goes on taking away entries of zones that are gone, and looks at about so many. Slots that are free now are added to
    /// `free`.
    pub(in crate::hybrid) fn sweep(&mut self, entries_max: usize, free: &mut Vec<u16>) {
        let mut seen = 0;
        while self.has_gone() && seen < entries_max {
            let at = (self.swept % self.segments.len() as u64) as usize;
            let (segment, gone) = (&mut self.segments[at], &self.gone);
            seen += segment.entries.len() + 1;
            let is_gone = |entry: u64| gone.iter().any(|(slot, _)| *slot == place_of(entry).slot);
            for entry in segment.entries.iter_mut().filter(|entry| **entry != 0 && is_gone(**entry)) {
                *entry = 0;
                segment.used -= 1;
            }
            if segment.used as usize * 4 < segment.entries.len() * 3 {
                let buckets = (segment.used as usize * 8 / 7).div_ceil(BUCKET);
                segment.resize(buckets);
            }
            self.swept += 1;
            // The first that went is the first of which every segment was looked at.
            while let Some((slot, since)) = self.gone.front().copied() {
                if self.swept - since < self.segments.len() as u64 {
                    break;
                }
                self.gone.pop_front();
                free.push(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hybrid::caching::hash_of;

    #[test]
    fn copies_are_found_until_their_zone_goes() {
        let mut index = BlockIndex::new(10_000);
        let place = |block: u64| CopyPlace { slot: 1 + (block % 3) as u16, unit: block as u32 };
        (0..20_000).for_each(|block| index.insert(hash_of((7, block * 4096)), place(block)));
        let is_found =
            |index: &BlockIndex, block: u64| index.find(hash_of((7, block * 4096))).any(|found| found == place(block));
        assert!((0..20_000).all(|block| is_found(&index, block)));
        let alike = (0..20_000).filter(|block| index.contains(hash_of((8, block * 4096)))).count();
        assert!(alike < 200, "{alike} blocks that have no copy seem to have one");
        index.remove_zone(2);
        // Entries that are still there do not answer.
        assert!((0..20_000).all(|block| is_found(&index, block) == (place(block).slot != 2)));
        assert!(!index.remove(hash_of((7, 4096)), place(1)));
        assert_eq!(sweep_all(&mut index), [2]);
        assert_eq!(index.len(), (0..20_000).filter(|block| place(*block).slot != 2).count() as u64);
        assert!((0..20_000).all(|block| is_found(&index, block) == (place(block).slot != 2)));
        assert!(index.remove(hash_of((7, 0)), place(0)) && !index.remove(hash_of((7, 0)), place(0)));
        assert!(!is_found(&index, 0));
        [1, 3].into_iter().for_each(|slot| index.remove_zone(slot));
        assert_eq!(index.len(), 0);
        assert!(!index.contains(hash_of((7, 4096))));
        assert_eq!(sweep_all(&mut index), [1, 3]);
        assert!(index.segments.iter().all(|segment| segment.used == 0));
        assert!(!index.contains(hash_of((7, 4096))));
    }

    /// Sweeps step by step to the end; the slots that are free then.
    fn sweep_all(index: &mut BlockIndex) -> Vec<u16> {
        let mut free = Vec::new();
        while index.has_gone() {
            index.sweep(1000, &mut free);
        }
        free
    }

    /// Who drops a zone waits for no more than a step, however many copies there are, and a zone that goes meanwhile is swept to
    /// its end too.
    #[test]
    fn zones_are_swept_in_steps() {
        let blocks = 40 * BLOCKS_OF_SEGMENT;
        let mut index = BlockIndex::new(blocks);
        let place = |block: u64| CopyPlace { slot: 1 + (block % 4) as u16, unit: block as u32 };
        (0..blocks).for_each(|block| index.insert(hash_of((1, block)), place(block)));
        let used = |index: &BlockIndex| index.segments.iter().map(|segment| u64::from(segment.used)).sum::<u64>();
        index.remove_zone(1);
        assert_eq!((index.len(), used(&index)), (blocks * 3 / 4, blocks));
        let (mut free, mut steps) = (Vec::new(), 0);
        while index.has_gone() {
            let (before, segments) = (used(&index), index.swept);
            index.sweep(10_000, &mut free);
            assert!(index.swept - segments <= 4 && before - used(&index) <= 10_000, "too much at once");
            steps += 1;
            // Half way on another goes.
            if steps == 8 {
                index.remove_zone(3);
            }
            let answers =
                (0..blocks).step_by(997).filter(|block| index.find(hash_of((1, *block))).any(|at| at == place(*block)));
            let gone: &[u16] = if steps < 8 { &[1] } else { &[1, 3] };
            assert!(answers.map(|block| place(block).slot).all(|slot| !gone.contains(&slot)), "step {steps}");
        }
        assert_eq!((free, index.len(), used(&index)), (vec![1, 3], blocks / 2, blocks / 2));
        assert!(steps > 10, "{steps} steps");
    }

    #[test]
    fn a_copy_takes_little_memory_at_any_number() {
        let mut index = BlockIndex::new(300_000);
        for block in 0..300_000u64 {
            index.insert(hash_of((3, block * 4096)), CopyPlace { slot: SLOTS_MAX, unit: (1 << UNIT_BITS) - 1 });
            if block > 50_000 && block % 10_000 == 0 {
                let of_copy = index.memory_bytes() as f64 / index.len() as f64;
                assert!(of_copy < 11.0, "{of_copy} bytes to a copy at {block}");
            }
        }
        let last = index.find(hash_of((3, 0))).next().expect("a copy");
        assert_eq!(last, CopyPlace { slot: SLOTS_MAX, unit: (1 << UNIT_BITS) - 1 });
    }
}
