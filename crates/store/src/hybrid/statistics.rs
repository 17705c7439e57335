//! What the store counts.

use crate::occupancy::StoreMeasure;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the store did since it was opened, beside what its devices count. Counters never decrease.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Tables that were placed on the fast tier, and on the slow one.
    pub(super) placed_fast: AtomicU64,
    pub(super) placed_slow: AtomicU64,
    /// Files that went on on another device.
    pub(super) continued: AtomicU64,
    pub(super) moved_down: AtomicU64,
    pub(super) moved_up: AtomicU64,
    /// Those that moved between tiers behind the first.
    pub(super) moved_behind: AtomicU64,
    pub(super) moved_bytes: AtomicU64,
    /// Migrations that were given up.
    pub(super) abandoned: AtomicU64,
    /// Reads of users that reached the store, of which tier.
    pub(super) reads_fast: AtomicU64,
    pub(super) reads_slow: AtomicU64,
    /// Reads that found their block in the cache.
    pub(super) cache_hits: AtomicU64,
    /// Those of them that found a record alone.
    pub(super) record_hits: AtomicU64,
    pub(super) cached_blocks: AtomicU64,
    pub(super) cached_bytes: AtomicU64,
    /// Those of a zone that went which were written again.
    pub(super) rewritten_blocks: AtomicU64,
    /// Those that an earlier open had left.
    pub(super) found_blocks: AtomicU64,
    /// Evicted blocks for which there was no space.
    pub(super) dropped_blocks: AtomicU64,
    /// Cache zones that were given up.
    pub(super) dropped_zones: AtomicU64,
    /// Zones that tables shared and that were emptied.
    pub(super) cleaned_zones: AtomicU64,
    /// Bytes of tables copied for that.
    pub(super) cleaned_bytes: AtomicU64,
    /// Writers that waited until another zone was finished.
    pub(super) zone_waits: AtomicU64,
    /// Removals that are kept on another device than that of the file, which refuses.
    pub(super) removals_elsewhere: AtomicU64,
}

pub(super) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

impl Counts {
    /// What was counted, in an order that does not change.
    pub(super) fn measures(&self) -> Vec<StoreMeasure> {
        let count = |name, counter: &AtomicU64| StoreMeasure::count(name, counter.load(Ordering::Relaxed));
        let bytes = |name, counter: &AtomicU64| StoreMeasure::bytes(name, counter.load(Ordering::Relaxed));
        vec![
            count("tables placed on the fast tier", &self.placed_fast),
            count("tables placed on the slow tier", &self.placed_slow),
            count("files that went on on another device", &self.continued),
            count("tables moved to the slow tier", &self.moved_down),
            count("tables moved to the fast tier", &self.moved_up),
            count("tables moved between slower tiers", &self.moved_behind),
            bytes("bytes moved", &self.moved_bytes),
            count("migrations given up", &self.abandoned),
            count("user reads of the fast tier", &self.reads_fast),
            count("user reads of the slow tier", &self.reads_slow),
            count("user reads of cached blocks", &self.cache_hits),
            count("user reads of records alone", &self.record_hits),
            count("blocks cached", &self.cached_blocks),
            bytes("bytes cached", &self.cached_bytes),
            count("cached blocks written again", &self.rewritten_blocks),
            count("cached blocks found at opening", &self.found_blocks),
            count("evicted blocks dropped", &self.dropped_blocks),
            count("cache zones given up", &self.dropped_zones),
            count("zones of tables emptied", &self.cleaned_zones),
            bytes("bytes copied to empty zones", &self.cleaned_bytes),
            count("waits for a zone", &self.zone_waits),
            count("removals kept for devices that refuse", &self.removals_elsewhere),
        ]
    }
}
