//! Latencies of operations.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest latency told apart: an hour. Longer ones count as an hour, except in the maximum.
const LATENCY_NANOS_MAX: u64 = 3_600_000_000_000;

/// Latencies of one kind of operation: a high dynamic range histogram with three significant
/// digits from 1 ns to an hour, about 280 KB, made when the first latency comes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies {
    histogram: Option<Histogram<u64>>,
    max_nanos: u64,
    sum_nanos: u128,
}

impl Latencies {
    pub(crate) fn record(&mut self, nanos: u64) {
        self.max_nanos = self.max_nanos.max(nanos);
        self.sum_nanos += u128::from(nanos);
        self.histogram
            .get_or_insert_with(|| Histogram::new_with_bounds(1, LATENCY_NANOS_MAX, 3).expect("bounds are constants"))
            .saturating_record(nanos.max(1));
    }

    pub(crate) fn merge(&mut self, other: &Latencies) {
        self.max_nanos = self.max_nanos.max(other.max_nanos);
        self.sum_nanos += other.sum_nanos;
        match (&mut self.histogram, &other.histogram) {
            (_, None) => {}
            (None, Some(histogram)) => self.histogram = Some(histogram.clone()),
            // Both have the same bounds, so adding cannot fail.
            (Some(ours), Some(theirs)) => ours.add(theirs).expect("bounds are equal"),
        }
    }

    /// Percentiles, when anything was recorded.
    pub(crate) fn summary(&self) -> Option<LatencySummary> {
        let histogram = self.histogram.as_ref()?;
        // A bucket's upper end may lie above the largest latency there was.
        let at = |percentile| histogram.value_at_percentile(percentile).min(self.max_nanos);
        Some(LatencySummary {
            count: histogram.len(),
            mean_nanos: (self.sum_nanos / u128::from(histogram.len().max(1))) as u64,
            min_nanos: histogram.min(),
            p50_nanos: at(50.0),
            p90_nanos: at(90.0),
            p99_nanos: at(99.0),
            p999_nanos: at(99.9),
            p9999_nanos: at(99.99),
            max_nanos: self.max_nanos,
        })
    }
}

/// Percentiles of latencies, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct LatencySummary {
    pub count: u64,
    pub mean_nanos: u64,
    pub min_nanos: u64,
    pub p50_nanos: u64,
    pub p90_nanos: u64,
    pub p99_nanos: u64,
    pub p999_nanos: u64,
    pub p9999_nanos: u64,
    pub max_nanos: u64,
}

/// Buckets of a [`CoarseHistogram`]: 16 to each power of two.
const COARSE_BUCKETS: usize = 61 * 16;

/// A small histogram for the intervals of a timeline: relative error at most 1/16, 4 KB.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CoarseHistogram {
    counts: Box<[u32]>,
}

impl CoarseHistogram {
    pub(crate) fn new() -> CoarseHistogram {
        CoarseHistogram { counts: vec![0; COARSE_BUCKETS].into() }
    }

    fn bucket(nanos: u64) -> usize {
        if nanos < 16 {
            return nanos as usize;
        }
        let power = nanos.ilog2() as usize;
        (power - 3) * 16 + ((nanos >> (power - 4)) & 15) as usize
    }

    /// Largest latency that falls into a bucket.
    fn upper_nanos(bucket: usize) -> u64 {
        if bucket < 16 {
            return bucket as u64;
        }
        let power = bucket / 16 + 3;
        let low = (16 + (bucket % 16) as u64) << (power - 4);
        low + ((1u64 << (power - 4)) - 1)
    }

    pub(crate) fn record(&mut self, nanos: u64) {
        let count = &mut self.counts[Self::bucket(nanos)];
        *count = count.saturating_add(1);
    }

    pub(crate) fn merge(&mut self, other: &CoarseHistogram) {
        for (ours, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *ours = ours.saturating_add(*theirs);
        }
    }

    /// Upper end of the bucket in which the percentile lies; `None` when nothing was recorded.
    pub(crate) fn percentile(&self, percent: u64) -> Option<u64> {
        let total: u64 = self.counts.iter().map(|&count| u64::from(count)).sum();
        let wanted = (total * percent).div_ceil(100).max(1);
        let mut passed = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            passed += u64::from(count);
            if passed >= wanted && count > 0 {
                return Some(Self::upper_nanos(bucket));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_known_latencies() {
        let mut latencies = Latencies::default();
        assert!(latencies.summary().is_none());
        (1..=10_000u64).for_each(|us| latencies.record(us * 1000));
        let summary = latencies.summary().unwrap();
        assert_eq!(summary.count, 10_000);
        assert_eq!(summary.max_nanos, 10_000_000);
        assert_eq!(summary.mean_nanos, 5_000_500);
        for (found, expected) in [(summary.p50_nanos, 5e6), (summary.p99_nanos, 9.9e6), (summary.p9999_nanos, 9.999e6)]
        {
            assert!((found as f64 / expected - 1.0).abs() < 0.001, "{found} against {expected}");
        }
        let mut more = Latencies::default();
        more.record(7_200_000_000_000);
        latencies.merge(&more);
        assert_eq!(latencies.summary().unwrap().max_nanos, 7_200_000_000_000);
        assert_eq!(latencies.summary().unwrap().count, 10_001);
    }

    #[test]
    fn coarse_buckets_hold_what_they_say() {
        for nanos in (0..5000).chain([u64::MAX, u64::MAX / 3, 1 << 40]) {
            let bucket = CoarseHistogram::bucket(nanos);
            assert!(bucket < COARSE_BUCKETS);
            let upper = CoarseHistogram::upper_nanos(bucket);
            assert!(upper >= nanos && (upper - nanos) as f64 <= nanos as f64 / 16.0, "{nanos}: {upper}");
        }
    }

    #[test]
    fn coarse_percentile() {
        let mut histogram = CoarseHistogram::new();
        assert_eq!(histogram.percentile(99), None);
        (0..99).for_each(|_| histogram.record(10));
        histogram.record(1 << 30);
        assert_eq!(histogram.percentile(99), Some(10));
        assert!(histogram.percentile(100).unwrap() >= 1 << 30);
    }
}
