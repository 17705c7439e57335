//! What memory did, counted without threads getting into each other's way.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What byte-addressable memory did, through loads and stores and as a block device. All zero on
/// other devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCounters {
    /// Loads and borrowed reads.
    pub loads: u64,
    /// Lines of these; a line that two of them touch counts twice.
    pub loaded_lines: u64,
    /// Bytes of these.
    pub loaded_bytes: u64,
    /// Stores.
    pub stores: u64,
    /// Lines of these.
    pub stored_lines: u64,
    /// Bytes of these.
    pub stored_bytes: u64,
    /// Lines whose write-back was started.
    pub flushed_lines: u64,
    /// Fences.
    pub fences: u64,
}

/// Copies of the counters; more than processors that count at the same time.
const SHARDS: usize = 16;

#[derive(Clone, Copy)]
pub(super) enum Event {
    Load { lines: u64, bytes: u64 },
    Store { lines: u64, bytes: u64 },
    Flush { lines: u64 },
    Fence,
}

/// Counters of one group of threads, on cache lines of their own.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    loads: AtomicU64,
    loaded_lines: AtomicU64,
    loaded_bytes: AtomicU64,
    stores: AtomicU64,
    stored_lines: AtomicU64,
    stored_bytes: AtomicU64,
    flushed_lines: AtomicU64,
    fences: AtomicU64,
    nanos: AtomicU64,
}

/// Sums over shards: a thread adds to its own.
#[derive(Default)]
pub(super) struct Tally {
    shards: [Shard; SHARDS],
}

impl Tally {
    pub(super) fn count(&self, event: Event, nanos: u64) {
        let shard = &self.shards[shard_of_thread()];
        let add = |counter: &AtomicU64, count: u64| counter.fetch_add(count, Ordering::Relaxed);
        match event {
            Event::Load { lines, bytes } => {
                add(&shard.loads, 1);
                add(&shard.loaded_lines, lines);
                add(&shard.loaded_bytes, bytes);
            }
            Event::Store { lines, bytes } => {
                add(&shard.stores, 1);
                add(&shard.stored_lines, lines);
                add(&shard.stored_bytes, bytes);
            }
            Event::Flush { lines } => {
                add(&shard.flushed_lines, lines);
            }
            Event::Fence => {
                add(&shard.fences, 1);
            }
        }
        if nanos > 0 {
            add(&shard.nanos, nanos);
        }
    }

    pub(super) fn counters(&self) -> MemoryCounters {
        let sum = |of: fn(&Shard) -> &AtomicU64| self.sum(of);
        MemoryCounters {
            loads: sum(|shard| &shard.loads),
            loaded_lines: sum(|shard| &shard.loaded_lines),
            loaded_bytes: sum(|shard| &shard.loaded_bytes),
            stores: sum(|shard| &shard.stores),
            stored_lines: sum(|shard| &shard.stored_lines),
            stored_bytes: sum(|shard| &shard.stored_bytes),
            flushed_lines: sum(|shard| &shard.flushed_lines),
            fences: sum(|shard| &shard.fences),
        }
    }

    /// Time charged, in nanoseconds.
    pub(super) fn nanos(&self) -> u64 {
        self.sum(|shard| &shard.nanos)
    }

    fn sum(&self, of: fn(&Shard) -> &AtomicU64) -> u64 {
        self.shards.iter().map(|shard| of(shard).load(Ordering::Relaxed)).sum()
    }
}

/// The shard of this thread. Actors of a simulation share one; nothing but sums hangs on it.
fn shard_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    SHARD.with(|shard| {
        if shard.get() == usize::MAX {
            shard.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        shard.get()
    })
}
