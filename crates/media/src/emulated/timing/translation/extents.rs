//! Which bytes of the address space lie in the media cache, and where.

use std::collections::BTreeMap;
use std::ops::Range;

/// A part of a range, and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Bytes of the address space.
    pub(super) range: Range<u64>,
    /// First byte in the cache; `None` where they lie in their place.
    pub(super) cached_at: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    end: u64,
    at: u64,
}

/// The map: extents do not overlap, and those that continue each other in both spaces are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExtentMap {
    extents: BTreeMap<u64, Extent>,
}

impl ExtentMap {
    pub(super) fn len(&self) -> usize {
        self.extents.len()
    }

    /// All extents in ascending order, and where they lie.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Range<u64>, u64)> + '_ {
        self.extents.iter().map(|(&start, extent)| (start..extent.end, extent.at))
    }

    /// Adds an extent behind all others, as [`ExtentMap::iter`] gave it.
    pub(super) fn push(&mut self, range: Range<u64>, at: u64) {
        self.extents.insert(range.start, Extent { end: range.end, at });
    }

    /// Notes that `range` lies at `at`, whatever was noted of it.
    pub(super) fn insert(&mut self, range: Range<u64>, at: u64) {
        if range.is_empty() {
            return;
        }
        self.remove(&range);
        if let Some((&start, before)) = self.extents.range_mut(..range.start).next_back()
            && before.end == range.start
            && before.at + (before.end - start) == at
        {
            before.end = range.end;
            return;
        }
        self.extents.insert(range.start, Extent { end: range.end, at });
    }

    /// Forgets `range`.
    pub(super) fn remove(&mut self, range: &Range<u64>) {
        if let Some((&start, extent)) = self.extents.range_mut(..range.start).next_back()
            && extent.end > range.start
        {
            let Extent { end, at } = *extent;
            extent.end = range.start;
            if end > range.end {
                self.extents.insert(range.end, Extent { end, at: at + (range.end - start) });
            }
        }
        while let Some((&start, &Extent { end, at })) = self.extents.range(range.clone()).next() {
            self.extents.remove(&start);
            if end > range.end {
                self.extents.insert(range.end, Extent { end, at: at + (range.end - start) });
            }
        }
    }

    /// `range` in parts by where they lie.
    pub(super) fn pieces(&self, range: &Range<u64>) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut from = range.start;
        for (overlap, at) in self.within(range) {
            if from < overlap.start {
                pieces.push(Piece { range: from..overlap.start, cached_at: None });
            }
            from = overlap.end;
            pieces.push(Piece { range: overlap, cached_at: Some(at) });
        }
        if from < range.end {
            pieces.push(Piece { range: from..range.end, cached_at: None });
        }
        pieces
    }

    /// Parts of `range` that are in the cache, ascending, and where.
    pub(super) fn within(&self, range: &Range<u64>) -> impl Iterator<Item = (Range<u64>, u64)> + '_ {
        let Range { start, end } = range.clone();
        let before = self.extents.range(..start).next_back();
        let inside = self.extents.range(start..end.max(start));
        before.into_iter().chain(inside).filter_map(move |(&first, extent)| {
            let part = first.max(start)..extent.end.min(end);
            (part.start < part.end).then(|| (part.clone(), extent.at + (part.start - first)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    #[test]
    fn the_map_says_what_was_noted_last() {
        for seed in 1..=4 {
            let mut random = Random::seeded(seed);
            let (mut map, mut model) = (ExtentMap::default(), vec![None; 200]);
            for step in 0..2000u64 {
                let start = random.below(200);
                let end = (start + 1 + random.below(30)).min(200);
                if random.chance(1, 4) {
                    map.remove(&(start..end));
                    model[start as usize..end as usize].fill(None);
                } else {
                    let at = 1000 * step;
                    map.insert(start..end, at);
                    (start..end).for_each(|byte| model[byte as usize] = Some(at + byte - start));
                }
                let asked = random.below(100)..100 + random.below(101);
                let mut found = vec![None; 200];
                let mut reached = asked.start;
                for Piece { range, cached_at } in map.pieces(&asked) {
                    assert_eq!(range.start, reached, "seed {seed} step {step}");
                    reached = range.end;
                    for byte in range.clone() {
                        found[byte as usize] = cached_at.map(|at| at + byte - range.start);
                    }
                }
                assert_eq!(reached, asked.end, "seed {seed} step {step}");
                let asked = asked.start as usize..asked.end as usize;
                assert_eq!(found[asked.clone()], model[asked], "seed {seed} step {step}");
                // As few extents as say it.
                let breaks = (0..200).filter(|&byte| {
                    let before = if byte == 0 { None } else { model[byte - 1] };
                    model[byte].is_some_and(|at: u64| before != Some(at.wrapping_sub(1)))
                });
                assert_eq!(map.len(), breaks.count(), "seed {seed} step {step}");
            }
        }
    }

    #[test]
    fn what_is_written_on_behind_is_one_extent() {
        let mut map = ExtentMap::default();
        for block in 0..10 {
            map.insert(block * 10..(block + 1) * 10, 500 + block * 10);
        }
        assert_eq!(map.len(), 1);
        map.insert(30..35, 9000);
        assert_eq!(map.len(), 3);
        map.remove(&(0..100));
        assert_eq!(map.len(), 0);
    }
}
