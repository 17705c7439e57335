//! Which blocks are free.

use super::Extent;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Free ranges of blocks, by place and by size. Ranges never touch: neighbours are merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FreeSpace {
    /// Start of a range to its length.
    by_place: BTreeMap<u64, u64>,
    /// Length and start.
    by_size: BTreeSet<(u64, u64)>,
    blocks: u64,
}

impl FreeSpace {
    /// Free blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Ranges in order of place.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Extent> {
        self.by_place.iter().map(|(&start, &blocks)| Extent { start, blocks })
    }

    /// The parts of free ranges that lie within `window`, in order of place.
    pub(super) fn ranges_within(&self, window: Range<u64>) -> impl Iterator<Item = Extent> {
        let before = self.by_place.range(..window.start).next_back();
        let first =
            before.filter(|(start, blocks)| *start + *blocks > window.start).map_or(window.start, |(start, _)| *start);
        let window_end = window.end.max(window.start);
        self.by_place.range(first..window_end.max(first)).filter_map(move |(&start, &blocks)| {
            let (from, until) = (start.max(window.start), (start + blocks).min(window_end));
            (from < until).then(|| Extent { start: from, blocks: until - from })
        })
    }

    /// Ranges, largest first.
    pub(super) fn ranges_by_size(&self) -> impl Iterator<Item = Extent> {
        self.by_size.iter().rev().map(|&(blocks, start)| Extent { start, blocks })
    }

    /// Free blocks from `start` on without a gap.
    pub(super) fn blocks_from(&self, start: u64) -> u64 {
        self.by_place.range(..=start).next_back().map_or(0, |(&found, &blocks)| (found + blocks).saturating_sub(start))
    }

    fn insert(&mut self, start: u64, blocks: u64) {
        if blocks > 0 {
            self.by_place.insert(start, blocks);
            self.by_size.insert((blocks, start));
        }
    }

    fn delete(&mut self, start: u64, blocks: u64) {
        self.by_place.remove(&start);
        self.by_size.remove(&(blocks, start));
    }

    /// Takes blocks out; false, and nothing happens, when not all of them are free.
    pub(super) fn take(&mut self, extent: Extent) -> bool {
        let Some((&start, &blocks)) = self.by_place.range(..=extent.start).next_back() else { return false };
        let Some(end) = extent.start.checked_add(extent.blocks) else { return false };
        if end > start + blocks || extent.blocks == 0 {
            return false;
        }
        self.delete(start, blocks);
        self.insert(start, extent.start - start);
        self.insert(end, start + blocks - end);
        self.blocks -= extent.blocks;
        true
    }

    /// Puts blocks back; false, and nothing happens, when some of them are free already.
    pub(super) fn release(&mut self, extent: Extent) -> bool {
        let Some(end) = extent.start.checked_add(extent.blocks) else { return false };
        if extent.blocks == 0 {
            return true;
        }
        let before = self.by_place.range(..end).next_back().map(|(&start, &blocks)| (start, blocks));
        if before.is_some_and(|(start, blocks)| start + blocks > extent.start) {
            return false;
        }
        let (mut start, mut blocks) = (extent.start, extent.blocks);
        if let Some((left, left_blocks)) = before.filter(|(left, blocks)| left + blocks == extent.start) {
            self.delete(left, left_blocks);
            start = left;
            blocks += left_blocks;
        }
        if let Some(&right_blocks) = self.by_place.get(&end) {
            self.delete(end, right_blocks);
            blocks += right_blocks;
        }
        self.insert(start, blocks);
        self.blocks += extent.blocks;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    #[test]
    fn behaves_like_a_set_of_blocks() {
        let seed = 5;
        let mut random = Random::seeded(seed);
        let mut free = FreeSpace::default();
        let mut model = [false; 96];
        for step in 0..20_000 {
            let start = random.below(96);
            let blocks = random.below(97 - start);
            let extent = Extent { start, blocks };
            let range = start as usize..(start + blocks) as usize;
            if random.chance(1, 2) {
                let possible = blocks > 0 && model[range.clone()].iter().all(|&free| free);
                assert_eq!(free.take(extent), possible, "seed {seed} step {step}");
                if possible {
                    model[range].fill(false);
                }
            } else {
                let possible = model[range.clone()].iter().all(|&free| !free);
                assert_eq!(free.release(extent), possible, "seed {seed} step {step}");
                if possible {
                    model[range].fill(true);
                }
            }
            assert_eq!(free.blocks(), model.iter().filter(|&&free| free).count() as u64);
            let mut found = [false; 96];
            let mut last_end = None;
            for range in free.ranges() {
                assert!(last_end.is_none_or(|end| end < range.start), "seed {seed} step {step}: neighbours not merged");
                last_end = Some(range.start + range.blocks);
                found[range.start as usize..(range.start + range.blocks) as usize].fill(true);
            }
            assert_eq!(found, model, "seed {seed} step {step}");
            assert_eq!(free.ranges_by_size().count(), free.ranges().count());
            let (low, high) = (random.below(96), random.below(97));
            let within: u64 = free.ranges_within(low..high).map(|range| range.blocks).sum();
            let expected = (low..high).filter(|&block| model[block as usize]).count() as u64;
            assert_eq!(within, expected, "seed {seed} step {step}: within {low}..{high}");
            let run = model[low as usize..].iter().take_while(|&&free| free).count() as u64;
            assert_eq!(free.blocks_from(low), run);
        }
    }
}
