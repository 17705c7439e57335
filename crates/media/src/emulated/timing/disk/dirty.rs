//! What the write cache holds and the medium does not have yet.

use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes accepted from the host and not yet written, by address, each with the *generation* in
/// which it came: the number of flushes asked for before. A flush is done when no byte of its
/// generation or an older one is left.
#[derive(Debug, Default)]
pub(super) struct DirtyExtents {
    /// Start to (end, generation); extents do not overlap, and touch only with unequal generations.
    extents: BTreeMap<u64, (u64, u64)>,
    bytes_by_generation: BTreeMap<u64, u64>,
    bytes: u64,
}

impl DirtyExtents {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether bytes of `generation` or an older one are left.
    pub(super) fn holds_up_to(&self, generation: u64) -> bool {
        self.bytes_by_generation.first_key_value().is_some_and(|(&oldest, _)| oldest <= generation)
    }

    /// Whether all of `range` is here.
    pub(super) fn covers(&self, range: &Range<u64>) -> bool {
        let mut at = range.start;
        while at < range.end {
            match self.extents.range(..=at).next_back() {
                Some((_, &(end, _))) if end > at => at = end,
                _ => return false,
            }
        }
        true
    }

    /// Bytes of `range` that are not here.
    pub(super) fn missing_bytes(&self, range: &Range<u64>) -> u64 {
        let before = self.extents.range(..range.start).next_back();
        let present: u64 = before
            .into_iter()
            .chain(self.extents.range(range.clone()))
            .map(|(&start, &(end, _))| end.min(range.end).saturating_sub(start.max(range.start)))
            .sum();
        range.end - range.start - present
    }

    /// Takes in `range`. Bytes that are here already keep their older generation: whoever waits for
    /// them waits for what is written in their place too.
    pub(super) fn insert(&mut self, range: Range<u64>, generation: u64) {
        let mut at = range.start;
        while at < range.end {
            if let Some((_, &(end, _))) = self.extents.range(..=at).next_back()
                && end > at
            {
                at = end;
                continue;
            }
            let next = self.extents.range(at..).next().map_or(u64::MAX, |(&start, _)| start);
            let end = next.min(range.end);
            self.insert_gap(at..end, generation);
            at = end;
        }
    }

    /// Takes in a range of which nothing is here.
    fn insert_gap(&mut self, gap: Range<u64>, generation: u64) {
        let bytes = gap.end - gap.start;
        self.bytes += bytes;
        *self.bytes_by_generation.entry(generation).or_default() += bytes;
        let (mut start, mut end) = (gap.start, gap.end);
        if let Some((&before, &(until, of))) = self.extents.range(..start).next_back()
            && until == start
            && of == generation
        {
            start = before;
        }
        if let Some(&(until, of)) = self.extents.get(&end)
            && of == generation
        {
            self.extents.remove(&end);
            end = until;
        }
        self.extents.insert(start, (end, generation));
    }

    /// Takes out `range`.
    pub(super) fn remove(&mut self, range: &Range<u64>) {
        while let Some((&start, &(end, generation))) = self.extents.range(..range.end).next_back()
            && end > range.start
            && range.start < range.end
        {
            self.extents.remove(&start);
            if start < range.start {
                self.extents.insert(start, (range.start, generation));
            }
            if end > range.end {
                self.extents.insert(range.end, (end, generation));
            }
            let bytes = end.min(range.end) - start.max(range.start);
            self.bytes -= bytes;
            if let Some(left) = self.bytes_by_generation.get_mut(&generation) {
                *left -= bytes;
                if *left == 0 {
                    self.bytes_by_generation.remove(&generation);
                }
            }
        }
    }

    /// The run the elevator comes to next: the first byte at or behind `from`, or else the first of
    /// all, of a generation up to `generation_max`; with what follows it without a gap.
    pub(super) fn next_run(&self, from: u64, generation_max: u64) -> Option<Range<u64>> {
        let wanted = |&(_, &(_, generation)): &(&u64, &(u64, u64))| generation <= generation_max;
        let inside = self.extents.range(..from).next_back().filter(|&(_, &(end, _))| end > from).filter(wanted);
        let (start, mut end) = match inside {
            Some((_, &(end, _))) => (from, end),
            None => {
                let (&start, &(end, _)) =
                    self.extents.range(from..).find(wanted).or_else(|| self.extents.iter().find(wanted))?;
                (start, end)
            }
        };
        while let Some(&(until, _)) = self.extents.get(&end) {
            end = until;
        }
        Some(start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    #[test]
    fn behaves_like_an_array_of_generations() {
        let seed = 11;
        let mut random = Random::seeded(seed);
        let mut dirty = DirtyExtents::default();
        let mut model = [None; 96];
        let mut generation = 0;
        for step in 0..20_000 {
            let start = random.below(97);
            let end = start + random.below(97 - start).min(12);
            let (range, bytes) = (start..end, start as usize..end as usize);
            match random.below(6) {
                0 | 1 => {
                    dirty.insert(range, generation);
                    for slot in &mut model[bytes] {
                        slot.get_or_insert(generation);
                    }
                }
                2 => {
                    dirty.remove(&range);
                    model[bytes].fill(None);
                }
                3 => {
                    let missing = model[bytes].iter().filter(|slot| slot.is_none()).count() as u64;
                    assert_eq!(dirty.missing_bytes(&range), missing, "seed {seed} step {step}");
                    assert_eq!(dirty.covers(&range), missing == 0, "seed {seed} step {step}");
                }
                4 => {
                    let asked = random.below(generation + 1);
                    let is = |slot: &Option<u64>| slot.is_some_and(|of| of <= asked);
                    assert_eq!(dirty.holds_up_to(asked), model.iter().any(is), "seed {seed} step {step}");
                    let first = (start as usize..96).find(|&at| is(&model[at]));
                    let expected = first.or_else(|| (0..96).find(|&at| is(&model[at]))).map(|first| {
                        let behind = (first..96).find(|&at| model[at].is_none()).unwrap_or(96);
                        first as u64..behind as u64
                    });
                    assert_eq!(dirty.next_run(start, asked), expected, "seed {seed} step {step}");
                }
                _ => generation += 1,
            }
            assert_eq!(dirty.bytes(), model.iter().flatten().count() as u64, "seed {seed} step {step}");
        }
    }
}
