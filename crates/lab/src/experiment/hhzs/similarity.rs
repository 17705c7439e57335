//! What a smaller run has to be so that the memory cache and the first touches of blocks have the shares of the full size.
//!
//! Zipf's distribution has no similarity: over fewer records a get asks for something that was asked for before less often, and
//! a cache of the same share of them answers less. Both are sums over the ranks, with the records of a block scattered
//! over all ranks: a block of `k` records is untouched by requests of which none was for one of them.

use crate::generator::{Permutation, exp, ln};

/// Ranks that are summed one by one; those behind in groups.
const HEAD: u64 = 2048;

/// Groups to a doubling of the rank.
const GROUP_GROWTH: f64 = 1.02;

/// Zipf over records, in groups of ranks that are asked for alike.
#[derive(Clone, Debug)]
pub(super) struct Popularity {
    records: f64,
    records_of_block: f64,
    /// Ranks, the probability of one of them, and the first rank.
    groups: Vec<(f64, f64, f64)>,
    /// Ranks are hashed to records; otherwise each record has one rank.
    is_hashed: bool,
}

impl Popularity {
    /// Records by rank with probabilities proportional to `rank^-exponent`, so many to a block.
    pub(super) fn new(records: u64, exponent: f64, records_of_block: f64) -> Popularity {
        let height = |rank: f64| exp(-exponent * ln(rank));
        let integral = |rank: f64| match (1.0 - exponent).abs() < 1e-9 {
            true => ln(rank),
            false => exp((1.0 - exponent) * ln(rank)) / (1.0 - exponent),
        };
        let mut groups: Vec<(f64, f64, f64)> =
            (1..=records.min(HEAD)).map(|rank| (1.0, height(rank as f64), rank as f64)).collect();
        let mut first = HEAD + 1;
        while first <= records {
            let last = ((first as f64 * GROUP_GROWTH) as u64).clamp(first, records);
            let count = (last - first + 1) as f64;
            let weight = integral(last as f64 + 0.5) - integral(first as f64 - 0.5);
            groups.push((count, weight / count, first as f64));
            first = last + 1;
        }
        let sum: f64 = groups.iter().map(|(count, weight, _)| count * weight).sum();
        groups.iter_mut().for_each(|group| group.1 /= sum);
        Popularity { records: records as f64, records_of_block, groups, is_hashed: false }
    }

    /// The same with `ranks` ranks hashed to the records: a record has several ranks or none.
    pub(super) fn hashed(records: u64, ranks: u64, exponent: f64, records_of_block: f64) -> Popularity {
        let of_ranks = Popularity::new(ranks, exponent, records_of_block);
        Popularity { records: records as f64, is_hashed: true, ..of_ranks }
    }

    /// Share of the records that `requests` requests leave untouched.
    fn untouched(&self, requests: f64) -> f64 {
        if self.is_hashed {
            // Each rank that was drawn touches one of n records: the product over the ranks of 1 - (1 - e^-qw) / n, for large n.
            let touched: f64 = self.groups.iter().map(|(count, share, _)| count * (1.0 - exp(-requests * share))).sum();
            return exp(-touched / self.records);
        }
        self.groups.iter().map(|(count, share, _)| count * exp(-requests * share)).sum::<f64>() / self.records
    }

    /// Blocks that so many requests touch.
    fn touched_blocks(&self, requests: f64) -> f64 {
        let untouched = exp(self.records_of_block * ln(self.untouched(requests).max(1e-300)));
        self.records / self.records_of_block * (1.0 - untouched)
    }

    /// Share of the requests that are for one of the records of the first ranks, about so many.
    pub(super) fn share_of_first(&self, records: f64) -> f64 {
        let first = self.groups.iter().filter(|(_, _, first)| *first <= records);
        first.map(|(count, share, _)| count * share).sum()
    }

    /// Share of the requests that touch a block first.
    pub(super) fn first_touches(&self, requests: f64) -> f64 {
        self.touched_blocks(requests) / requests.max(1.0)
    }

    /// The same of blocks whose records all have ranks above `rank`.
    pub(super) fn first_touches_above(&self, requests: f64, rank: f64) -> f64 {
        let above = || self.groups.iter().filter(|(_, _, first)| *first > rank);
        let records: f64 = above().map(|(count, _, _)| count).sum();
        let untouched = above().map(|(count, share, _)| count * exp(-requests * share)).sum::<f64>() / records.max(1.0);
        let blocks = 1.0 - exp(self.records_of_block * ln(untouched.max(1e-300)));
        records / self.records_of_block * blocks / requests.max(1.0)
    }

    /// Share of the requests that a cache of so many blocks answers which drops what was unused for longest (the approximation of
    /// Che, Tung and Wang, 2002).
    pub(super) fn cache_hits(&self, blocks: f64) -> f64 {
        let window = bisect(0.0, 1e15, |window| self.touched_blocks(window) < blocks);
        // Another rank of the same record touches the block as another record does.
        let mates = self.records_of_block - if self.is_hashed { 0.0 } else { 1.0 };
        let mates = exp(mates * ln(self.untouched(window).max(1e-300)));
        1.0 - self.groups.iter().map(|(count, share, _)| count * share * exp(-window * share)).sum::<f64>() * mates
    }

    /// Blocks of the cache that answers this share of the requests.
    pub(super) fn blocks_for_hits(&self, hits: f64) -> f64 {
        bisect(0.0, self.records, |blocks| self.cache_hits(blocks) < hits)
    }

    /// Number of requests of which this share are first touches.
    pub(super) fn requests_for_first_touches(&self, share: f64) -> f64 {
        bisect(1.0, self.records * 1e3, |requests| self.first_touches(requests) > share)
    }
}

/// Share of the requests that the `best` most popular blocks answer, with one rank per record and records scattered over the blocks.
///
/// Takes time in proportion to the records, and four bytes of memory per block.
pub(super) fn share_of_best_blocks(records: u64, exponent: f64, records_of_block: u64, best: u64) -> f64 {
    let places = Permutation::new(records, 1);
    let mut blocks = vec![0.0_f32; records.div_ceil(records_of_block.max(1)) as usize];
    let mut sum = 0.0;
    for rank in 0..records {
        let weight = exp(-exponent * ln((rank + 1) as f64));
        sum += weight;
        blocks[(places.of(rank) / records_of_block.max(1)) as usize] += weight as f32;
    }
    let best = (best as usize).min(blocks.len());
    if best < blocks.len() {
        blocks.select_nth_unstable_by(best, |one, other| other.total_cmp(one));
    }
    blocks[..best].iter().map(|weight| f64::from(*weight)).sum::<f64>() / sum
}

/// The number up to which `is_below` holds.
fn bisect(mut low: f64, mut high: f64, is_below: impl Fn(f64) -> bool) -> f64 {
    // By halves of the logarithm while the ends are far apart.
    for _ in 0..80 {
        let middle = if low > 0.0 && high / low > 2.0 { exp((ln(low) + ln(high)) / 2.0) } else { (low + high) / 2.0 };
        let middle = if low == 0.0 && high > 1.0 { high / 1024.0 } else { middle };
        if is_below(middle) { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::hhzs::settings::PAIRS;
    use crate::generator::{HashedZipf, Zipf};
    use std::collections::BTreeSet;
    use varve::env::Random;

    #[test]
    fn sums_over_hashed_ranks_match_draws() {
        let (records, ranks, requests) = (50_000u64, 2_400_000u64, 60_000);
        let popularity = Popularity::hashed(records, ranks, 0.9, 4.0);
        let (zipf, places) = (HashedZipf::new(records, ranks, 0.9).unwrap(), Permutation::new(records, 3));
        let mut random = Random::seeded(5);
        let blocks: Vec<u64> = (0..requests).map(|_| places.of(zipf.next(&mut random)) / 4).collect();
        let first = blocks.iter().collect::<BTreeSet<_>>().len() as f64 / requests as f64;
        assert!((popularity.first_touches(requests as f64) - first).abs() < 0.01, "{first}");
        let hits = lru_hits(&blocks, 300);
        assert!((popularity.cache_hits(300.0) - hits).abs() < 0.015, "{hits}: {}", popularity.cache_hits(300.0));
        // The skew is less than with one rank per record.
        assert!(popularity.cache_hits(300.0) < Popularity::new(records, 0.9, 4.0).cache_hits(300.0) - 0.05);
    }

    /// Hit ratio of an LRU cache of `capacity` blocks after the first 10,000 requests.
    fn lru_hits(blocks: &[u64], capacity: usize) -> f64 {
        let (mut cache, mut hits) = (Vec::new(), 0);
        for (number, block) in blocks.iter().enumerate() {
            if let Some(at) = cache.iter().position(|held| held == block) {
                cache.remove(at);
                hits += u64::from(number >= 10_000);
            }
            cache.insert(0, *block);
            cache.truncate(capacity);
        }
        hits as f64 / (blocks.len() - 10_000) as f64
    }

    #[test]
    fn sums_are_what_draws_are() {
        let (records, requests) = (200_000u64, 50_000);
        for exponent in [0.9, 1.0, 1.2] {
            let popularity = Popularity::new(records, exponent, 4.0);
            let (zipf, places) = (Zipf::new(records, exponent).unwrap(), Permutation::new(records, 3));
            let mut random = Random::seeded(5);
            let blocks: Vec<u64> = (0..requests).map(|_| places.of(zipf.next(&mut random)) / 4).collect();
            let first = blocks.iter().collect::<BTreeSet<_>>().len() as f64 / requests as f64;
            assert!((popularity.first_touches(requests as f64) - first).abs() < 0.01, "{exponent}: {first}");
            let hits = lru_hits(&blocks, 300);
            assert!((popularity.cache_hits(300.0) - hits).abs() < 0.01, "{exponent}: {hits}");
        }
    }

    /// What the shares are at full size and at 1/64, with the cache scaled alike.
    #[test]
    fn a_smaller_run_is_not_similar_and_can_be_made_so() {
        let blocks = |scale: f64| 8.0 * 1048576.0 / 4140.0 / scale;
        for (exponent, in_full, scaled) in [(0.9, 0.115, 0.037), (1.2, 0.764, 0.445)] {
            let full = Popularity::new(PAIRS, exponent, 4.0);
            let small = Popularity::new(PAIRS / 64, exponent, 4.0);
            assert!((full.cache_hits(blocks(1.0)) - in_full).abs() < 0.02, "{}", full.cache_hits(blocks(1.0)));
            assert!((small.cache_hits(blocks(64.0)) - scaled).abs() < 0.02, "{}", small.cache_hits(blocks(64.0)));
            let made = small.blocks_for_hits(in_full);
            assert!((small.cache_hits(made) - in_full).abs() < 0.001);
        }
        let (full, small) = (Popularity::new(PAIRS, 0.9, 4.0), Popularity::new(PAIRS / 64, 0.9, 4.0));
        assert!((full.first_touches(1e6) - 0.67).abs() < 0.01, "{}", full.first_touches(1e6));
        assert!((small.first_touches(1e6 / 64.0) - 0.73).abs() < 0.01, "{}", small.first_touches(1e6 / 64.0));
        let made = small.requests_for_first_touches(0.67);
        assert!((small.first_touches(made) - 0.67).abs() < 0.001 && made > 1e6 / 64.0, "{made}");
    }
}
