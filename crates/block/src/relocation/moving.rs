//! What is known of the zone that is being relocated.

use std::collections::BTreeMap;
use std::ops::Range;
use varve_media::ZoneId;

/// Ranges that are copied once more, from the start of the zone: merged where they touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rewritten {
    ranges: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Rewritten {
    pub(super) fn insert(&mut self, range: Range<u64>) {
        let (mut start, mut end) = (range.start, range.end);
        if start >= end {
            return;
        }
        while let Some((&before, &until)) = self.ranges.range(..=end).next_back().filter(|&(_, &until)| until >= start)
        {
            self.ranges.remove(&before);
            self.bytes -= until - before;
            (start, end) = (start.min(before), end.max(until));
        }
        self.ranges.insert(start, end);
        self.bytes += end - start;
    }

    pub(super) fn take(&mut self) -> Vec<Range<u64>> {
        self.bytes = 0;
        std::mem::take(&mut self.ranges).into_iter().map(|(start, end)| start..end).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A relocation under way.
#[derive(Clone, Debug)]
pub(super) struct Moving {
    pub(super) logical: ZoneId,
    /// What lies before it was read, or is being read: writes there are copied once more.
    pub(super) front_bytes: u64,
    pub(super) rewritten: Rewritten,
    /// Writes to the zone wait until it has been moved, or given up.
    pub(super) is_held: bool,
    /// The zone was reset, finished, opened or closed: what was copied counts for nothing.
    pub(super) is_cancelled: bool,
}

impl Moving {
    pub(super) fn new(logical: ZoneId) -> Moving {
        Moving { logical, front_bytes: 0, rewritten: Rewritten::default(), is_held: false, is_cancelled: false }
    }

    /// Follows a write to the zone.
    pub(super) fn written(&mut self, range: &Range<u64>) {
        self.rewritten.insert(range.start..range.end.min(self.front_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use varve_env::Random;

    #[test]
    fn rewritten_ranges_are_the_union_of_what_was_written() {
        for seed in 1..=20 {
            let mut random = Random::seeded(seed);
            let (mut found, mut model) = (Rewritten::default(), BTreeSet::new());
            for step in 0..40 {
                let start = random.below(200);
                let range = start..start + random.below(12);
                found.insert(range.clone());
                model.extend(range);
                assert_eq!(found.bytes(), model.len() as u64, "seed {seed} step {step}");
            }
            let ranges = found.take();
            assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "seed {seed}: {ranges:?}");
            assert!(ranges.into_iter().flatten().eq(model), "seed {seed}");
            assert_eq!((found.len(), found.bytes()), (0, 0));
        }
    }

    #[test]
    fn what_is_not_read_yet_is_not_copied_twice() {
        let mut moving = Moving::new(ZoneId(3));
        moving.written(&(0..8));
        moving.front_bytes = 16;
        moving.written(&(12..20));
        moving.written(&(40..48));
        assert_eq!((moving.rewritten.len(), moving.rewritten.bytes()), (1, 4));
        assert_eq!(moving.rewritten.take().first(), Some(&(12..16)));
    }
}
