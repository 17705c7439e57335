//! Search in many sorted numbers, a cache line at a time.

/// Numbers of one cache line.
const FANOUT: usize = 8;

/// One cache line of sorted numbers.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line([u64; FANOUT]);

impl Line {
    /// How many of them are at most `number`.
    #[inline(always)]
    fn count_at_most(&self, number: u64) -> usize {
        // Eight comparisons that do not wait for each other, and no branch to mispredict.
        self.0.iter().map(|known| usize::from(*known <= number)).sum()
    }
}

/// Sorted numbers in lines, below lines with the last number of each line, and so on up to one line.
/// A search loads one line per level: five for 30,000 numbers, where halving would load eleven.
pub(super) struct PrefixSearch {
    /// Levels from the top to the numbers themselves, padded with the largest number.
    lines: Box<[Line]>,
    /// Where each level begins, and how many lines it has.
    levels: Box<[(u32, u32)]>,
    count: usize,
}

impl PrefixSearch {
    /// Takes sorted numbers.
    pub(super) fn new(numbers: &[u64]) -> Self {
        let mut levels: Vec<Vec<Line>> = Vec::new();
        let mut below: Vec<u64> = numbers.to_vec();
        while !below.is_empty() {
            let lines: Vec<Line> = below
                .chunks(FANOUT)
                .map(|chunk| {
                    let mut line = Line([u64::MAX; FANOUT]);
                    line.0[..chunk.len()].copy_from_slice(chunk);
                    line
                })
                .collect();
            below = if lines.len() > 1 { lines.iter().map(|line| line.0[FANOUT - 1]).collect() } else { Vec::new() };
            levels.push(lines);
        }
        let mut begin = 0;
        let mut places = Vec::with_capacity(levels.len());
        let mut lines = Vec::with_capacity(levels.iter().map(Vec::len).sum());
        for level in levels.iter().rev() {
            places.push((begin, level.len() as u32));
            begin += level.len() as u32;
            lines.extend_from_slice(level);
        }
        PrefixSearch { lines: lines.into(), levels: places.into(), count: numbers.len() }
    }

    /// How many numbers there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The number at `position`.
    #[inline]
    pub(super) fn get(&self, position: usize) -> u64 {
        let begin = self.levels.last().map_or(0, |level| level.0 as usize);
        self.lines[begin + position / FANOUT].0[position % FANOUT]
    }

    /// How many numbers are at most `number`.
    #[inline]
    pub(super) fn count_at_most(&self, number: u64) -> usize {
        let mut position = 0;
        for (begin, lines) in &self.levels {
            // Past the last line only the largest number of all can lead.
            let line = position.min(*lines as usize - 1);
            position = line * FANOUT + self.lines[*begin as usize + line].count_at_most(number);
        }
        position.min(self.count)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.lines) + size_of_val(&*self.levels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    #[test]
    fn counts_like_a_plain_search() {
        let mut random = Random::seeded(1);
        for count in (0..80).chain([511, 512, 513, 4095, 4096, 4097, 5000]) {
            for spread in [1, 3, 10_000, u64::MAX] {
                let mut numbers: Vec<u64> = (0..count)
                    .map(|_| if spread == u64::MAX { random.next_u64() } else { random.below(spread) })
                    .collect();
                if random.chance(1, 2) {
                    numbers.push(u64::MAX);
                }
                numbers.sort();
                let search = PrefixSearch::new(&numbers);
                assert_eq!(search.len(), numbers.len());
                for (position, number) in numbers.iter().enumerate() {
                    assert_eq!(search.get(position), *number);
                }
                let targets = numbers.iter().take(60).copied().collect::<Vec<_>>();
                let random_targets = (0..60).map(|_| random.below(spread)).collect::<Vec<_>>();
                for target in targets.into_iter().chain(random_targets).chain([0, 1, u64::MAX - 1, u64::MAX]) {
                    for target in [target, target.saturating_sub(1), target.saturating_add(1)] {
                        let expected = numbers.partition_point(|number| *number <= target);
                        assert_eq!(search.count_at_most(target), expected, "{count} below {spread}, {target}");
                    }
                }
            }
        }
    }
}
