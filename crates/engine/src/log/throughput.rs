//! How fast something goes, of late.

use std::sync::atomic::{AtomicU64, Ordering};

/// Measurements that count: of what came before so many, next to nothing is left.
const MEASUREMENTS: u64 = 64;

/// Bytes per second over the latest measurements. Any thread may note one; one that is noted at the same moment as another
/// may be lost.
#[derive(Debug, Default)]
pub(crate) struct Throughput {
    bytes: AtomicU64,
    nanos: AtomicU64,
}

impl Throughput {
    /// So many bytes took so long.
    pub(crate) fn note(&self, bytes: u64, nanos: u64) {
        for (sum, more) in [(&self.bytes, bytes), (&self.nanos, nanos)] {
            let before = sum.load(Ordering::Relaxed);
            sum.store((before - before / MEASUREMENTS).saturating_add(more), Ordering::Relaxed);
        }
    }

    /// Nothing before the first measurement.
    pub(crate) fn bytes_per_second(&self) -> Option<u64> {
        let (bytes, nanos) = (self.bytes.load(Ordering::Relaxed), self.nanos.load(Ordering::Relaxed));
        let rate = u128::from(bytes) * 1_000_000_000 / u128::from(nanos.max(1));
        (bytes > 0).then(|| u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_follows_what_is_measured() {
        let rate = Throughput::default();
        assert_eq!(rate.bytes_per_second(), None);
        rate.note(1000, 1_000_000_000);
        assert_eq!(rate.bytes_per_second(), Some(1000));
        for _ in 0..1000 {
            // As much in a tenth of the time every other time: time counts, not rates.
            rate.note(4000, 1_000_000_000);
            rate.note(4000, 100_000_000);
        }
        assert!((7000..=7600).contains(&rate.bytes_per_second().unwrap()), "{rate:?}");
        rate.note(0, 0);
        rate.note(u64::MAX, 1);
        rate.note(1, u64::MAX);
        assert!(rate.bytes_per_second().is_some(), "neither nothing nor too much breaks it");
    }
}
