//! Sets of byte ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// Byte ranges that do not touch, by their start. About 40 bytes of memory for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// The set of ranges that follow each other in ascending order and do not overlap, which is made faster than by inserting
    /// them.
    pub(crate) fn of_ascending(ranges: impl Iterator<Item = Range<u64>>) -> RangeSet {
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for range in ranges.filter(|range| !range.is_empty()) {
            match joined.last_mut() {
                Some((_, end)) if *end == range.start => *end = range.end,
                _ => joined.push((range.start, range.end)),
            }
        }
        RangeSet { ranges: joined.into_iter().collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&at, &until)) = self.ranges.range(..=end).next_back()
            && until >= start
        {
            start = start.min(at);
            end = end.max(until);
            self.ranges.remove(&at);
        }
        self.ranges.insert(start, end);
    }

    pub(crate) fn remove(&mut self, range: Range<u64>) {
        while let Some((&at, &until)) = self.ranges.range(..range.end).next_back()
            && until > range.start
            && !range.is_empty()
        {
            self.ranges.remove(&at);
            if at < range.start {
                self.ranges.insert(at, range.start);
            }
            if until > range.end {
                self.ranges.insert(range.end, until);
            }
        }
    }

    /// The parts of `range` that are in the set, in ascending order.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.ranges.range(..range.start).next_back();
        let inside = self.ranges.range(range.start..range.end.max(range.start));
        before
            .into_iter()
            .chain(inside)
            .map(move |(&at, &until)| at.max(range.start)..until.min(range.end))
            .filter(|part| !part.is_empty())
    }

    /// The first byte of `range` that is in the set.
    pub(crate) fn first_within(&self, range: &Range<u64>) -> Option<u64> {
        self.within(range.clone()).next().map(|part| part.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    #[test]
    fn behaves_like_a_set_of_bytes() {
        let seed = 3;
        let mut random = Random::seeded(seed);
        let mut set = RangeSet::default();
        let mut model = [false; 64];
        for step in 0..5_000 {
            let start = random.below(65);
            let end = start + random.below(65 - start);
            let bytes = start as usize..end as usize;
            match random.below(3) {
                0 => {
                    set.insert(start..end);
                    model[bytes].fill(true);
                }
                1 => {
                    set.remove(start..end);
                    model[bytes].fill(false);
                }
                _ => {
                    let expected = bytes.clone().find(|&byte| model[byte]).map(|byte| byte as u64);
                    assert_eq!(set.first_within(&(start..end)), expected, "seed {seed} step {step}");
                    assert_eq!(RangeSet::of_ascending(set.within(0..64)), set, "seed {seed} step {step}");
                    let bytewise = set.within(0..64).flatten().map(|byte| byte..byte + 1);
                    assert_eq!(RangeSet::of_ascending(bytewise), set, "seed {seed} step {step}");
                    let found: Vec<u64> = set.within(start..end).flatten().collect();
                    let expected: Vec<u64> = (start..end).filter(|&byte| model[byte as usize]).collect();
                    assert_eq!(found, expected, "seed {seed} step {step}");
                }
            }
        }
    }
}
