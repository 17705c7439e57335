//! Numbers of records inserted while a workload runs.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Gives out record numbers and knows up to which one every insert has been acknowledged, so that
/// readers choose only among records that are there (YCSB's `AcknowledgedCounterGenerator`).
///
/// Thread-safe. One short lock per acknowledgement.
#[derive(Debug)]
pub struct AcknowledgedCounter {
    next: AtomicU64,
    acknowledged: AtomicU64,
    pending: Mutex<BTreeSet<u64>>,
}

impl AcknowledgedCounter {
    /// A counter whose first number is `first`; all smaller ones count as acknowledged.
    pub fn new(first: u64) -> AcknowledgedCounter {
        AcknowledgedCounter {
            next: AtomicU64::new(first),
            acknowledged: AtomicU64::new(first),
            pending: Mutex::new(BTreeSet::new()),
        }
    }

    /// The next number; no other caller gets it.
    pub fn take(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Says that the record `number`, taken before, is stored.
    pub fn acknowledge(&self, number: u64) {
        let mut pending = self.pending.lock();
        let mut limit = self.acknowledged.load(Ordering::Relaxed);
        if number != limit {
            pending.insert(number);
            return;
        }
        limit += 1;
        while pending.remove(&limit) {
            limit += 1;
        }
        self.acknowledged.store(limit, Ordering::Release);
    }

    /// Every number below this is stored.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_waits_for_gaps() {
        let counter = AcknowledgedCounter::new(10);
        let taken: Vec<u64> = (0..4).map(|_| counter.take()).collect();
        assert_eq!(taken, [10, 11, 12, 13]);
        counter.acknowledge(12);
        counter.acknowledge(11);
        assert_eq!(counter.acknowledged(), 10);
        counter.acknowledge(10);
        assert_eq!(counter.acknowledged(), 13);
        counter.acknowledge(13);
        assert_eq!(counter.acknowledged(), 14);
    }
}
