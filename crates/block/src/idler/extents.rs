//! Extents of the map of a media cache, counted as a drive counts them.

use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    end: u64,
    /// Where it lies in the log.
    at: u64,
}

/// Which bytes are taken to lie in the media cache. What is written over takes no extent any more, and what continues an extent in both
/// spaces, as writes in order do that nothing came between, is one with it.
///
/// 32 bytes for each extent; what comes when there are `extents_max` is not followed, and each write then counts as one.
#[derive(Clone, Debug)]
pub(super) struct CachedExtents {
    extents: BTreeMap<u64, Extent>,
    extents_max: usize,
    /// Where the next byte of the log goes.
    head_bytes: u64,
}

impl CachedExtents {
    pub(super) fn new(extents_max: usize) -> Self {
        CachedExtents { extents: BTreeMap::new(), extents_max, head_bytes: 0 }
    }

    /// Memory it takes at most.
    pub(super) fn memory_bytes_max(&self) -> usize {
        // Nodes of the tree are three quarters full.
        self.extents_max.saturating_mul(size_of::<(u64, Extent)>() * 4 / 3)
    }

    /// Follows a write of some bytes of one zone, of which `own` are all; gives by how many extents there are more.
    pub(super) fn written(&mut self, range: &Range<u64>, own: &Range<u64>) -> i64 {
        if self.extents.len() >= self.extents_max {
            return 1;
        }
        let mut more = self.remove(range);
        let at = self.head_bytes;
        self.head_bytes += range.end - range.start;
        match self.extents.range_mut(own.start..range.start).next_back() {
            Some((&start, before)) if before.end == range.start && before.at + (before.end - start) == at => {
                before.end = range.end;
            }
            _ => {
                self.extents.insert(range.start, Extent { end: range.end, at });
                more += 1;
            }
        }
        more
    }

    /// Forgets some bytes; gives by how many extents there are more.
    pub(super) fn remove(&mut self, range: &Range<u64>) -> i64 {
        let before = self.extents.len();
        if let Some((&start, extent)) = self.extents.range_mut(..range.start).next_back()
            && extent.end > range.start
        {
            let Extent { end, at } = *extent;
            extent.end = range.start;
            self.insert_rest(range.end, start, Extent { end, at });
        }
        while let Some((&start, &extent)) = self.extents.range(range.clone()).next() {
            self.extents.remove(&start);
            self.insert_rest(range.end, start, extent);
        }
        self.extents.len() as i64 - before as i64
    }

    /// What is left from `from` on of an extent that began at `start`.
    fn insert_rest(&mut self, from: u64, start: u64, Extent { end, at }: Extent) {
        if end > from {
            self.extents.insert(from, Extent { end, at: at + (from - start) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    #[test]
    fn as_many_are_counted_as_say_where_each_byte_lies() {
        for seed in 1..=8 {
            let mut random = Random::seeded(seed);
            let (mut extents, mut model) = (CachedExtents::new(usize::MAX), vec![None; 200]);
            let (mut count, mut log) = (0, 0u64);
            for step in 0..1000 {
                let start = random.below(199);
                let zone = start / 50 * 50..(start / 50 + 1) * 50;
                let range = start..(start + 1 + random.below(20)).min(zone.end);
                if random.chance(1, 4) {
                    count += extents.remove(&range);
                    model[range.start as usize..range.end as usize].fill(None);
                } else {
                    count += extents.written(&range, &zone);
                    for byte in range {
                        model[byte as usize] = Some(log);
                        log += 1;
                    }
                }
                let begins = |byte: &usize| {
                    let before = if byte.is_multiple_of(50) { None } else { model[byte - 1] };
                    model[*byte].is_some_and(|at: u64| before != Some(at.wrapping_sub(1)))
                };
                let wanted = (0..200).filter(begins).count();
                assert_eq!(count, wanted as i64, "seed {seed} step {step}");
            }
        }
    }

    #[test]
    fn what_is_written_over_takes_none() {
        let mut extents = CachedExtents::new(4);
        let zone = 0..1000;
        assert_eq!(extents.written(&(100..200), &zone), 1);
        assert_eq!(extents.written(&(200..300), &zone), 0, "it goes on");
        assert_eq!(extents.written(&(120..130), &zone), 2, "it is split");
        assert_eq!(extents.written(&(100..300), &zone), -2);
        assert_eq!(extents.remove(&(0..1000)), -1);
        assert_eq!(extents.written(&(1000..1010), &(1000..2000)), 1, "another zone");
    }

    #[test]
    fn a_full_map_counts_writes() {
        let mut extents = CachedExtents::new(2);
        let zone = 0..1000;
        assert_eq!([0, 10, 20, 0].map(|start| extents.written(&(start..start + 5), &zone)), [1, 1, 1, 1]);
    }
}
