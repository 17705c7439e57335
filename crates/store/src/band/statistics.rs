//! What the store counts.

use super::open_store::OpenStore;
use crate::occupancy::StoreMeasure;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the store did since it was opened. Counters never decrease.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) resets: AtomicU64,
    /// Zones finished before they were full, because the device limits how many are active.
    pub(super) finishes: AtomicU64,
    /// Log bands begun.
    pub(super) log_bands: AtomicU64,
    /// Bytes of small files copied out of log bands.
    pub(super) copied_bytes: AtomicU64,
    /// Log bands emptied by copying.
    pub(super) cleaned_bands: AtomicU64,
    /// Writes that failed and were done again.
    pub(super) repeated_writes: AtomicU64,
    /// Writes that failed and went on in another band.
    pub(super) moved_writes: AtomicU64,
    /// Bands retired since the store was opened.
    pub(super) retired_bands: AtomicU64,
    /// Requests for a band that were refused.
    pub(super) refusals: AtomicU64,
}

pub(super) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// What was counted, in an order that does not change.
pub(super) fn measures(core: &OpenStore) -> Vec<StoreMeasure> {
    let counts = &core.counts;
    let count = |name, counter: &AtomicU64| StoreMeasure::count(name, counter.load(Ordering::Relaxed));
    let mut measures = core.measures();
    measures.extend([
        count("zone resets", &counts.resets),
        count("zone finishes", &counts.finishes),
        count("log bands begun", &counts.log_bands),
        count("log bands emptied", &counts.cleaned_bands),
        StoreMeasure::bytes("bytes copied forward", counts.copied_bytes.load(Ordering::Relaxed)),
        count("writes repeated", &counts.repeated_writes),
        count("writes moved to another band", &counts.moved_writes),
        count("bands retired", &counts.retired_bands),
        count("bands refused", &counts.refusals),
    ]);
    measures
}
