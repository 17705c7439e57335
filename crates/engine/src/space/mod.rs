//! Space on the medium: what is free, who may have it, and what is left for whom.
//!
//! - [`headroom`]: which writes are taken, and what compactions may write, as pure functions.
//! - [`log_headroom`]: the same for a tree that keeps everything in its logs.
//! - [`sizes`]: how large tables may be where there is little.
//! - [`reservation`]: what running compactions were given.
//! - [`shortfalls`]: which of them ran out of space.
//!
//! [`SpaceBudget`] has their state and asks the store.

mod headroom;
mod log_headroom;
mod reservation;
mod shortfalls;
mod sizes;

pub(crate) use headroom::{Admission, Headroom};
pub(crate) use log_headroom::{LogHeadroom, LogWrite, Rewritten};
pub(crate) use reservation::Reservation;
pub(crate) use shortfalls::Attempt;
pub(crate) use sizes::Sizes;

use crate::error::Error;
use crate::options::Options;
use crate::shape::{CompactionPlan, FileMeta, Version, filled_bytes};
use headroom::{KEPT_PART, PROPERTIES_BYTES};
use parking_lot::Mutex;
use reservation::Reservations;
use shortfalls::Shortfalls;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use varve_store::{FileStore, Space};

/// Bytes of memtables: what they will become has to find space.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unflushed {
    /// Of those that wait for their flush.
    pub(crate) waiting_bytes: u64,
    /// Of the one that is written.
    pub(crate) active_bytes: u64,
}

/// Sizes from the options, and fixed overheads of tables.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    sizes: Sizes,
    histogram_bytes: u64,
    /// Option `compaction_buffer_size`.
    compaction_buffer_bytes: Option<u64>,
}

/// The space of one medium, for one tree of tables; see the module. Thread-safe.
pub(crate) struct SpaceBudget {
    files: Arc<dyn FileStore>,
    wanted: Wanted,
    /// There was too little for puts when a writer last looked: the next one looks again.
    is_short: AtomicBool,
    reservations: Arc<Reservations>,
    /// Replaced when it changes: who plans keeps what there was.
    remembered: Mutex<Arc<Remembered>>,
}

/// What came of compactions that gave nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remembered {
    pub(crate) shortfalls: Shortfalls,
    /// Tables that coalescing left as many as they were.
    pub(crate) unhelpful: BTreeSet<u64>,
}

/// Upper bound on the tables that merging all levels adds, as a fraction of the tables it reads (1/32), on media where each table
/// takes as much space. Outputs end at the cuts of their plan and before the first entry that does not fit, so full tables become
/// more of them, and only [`KEPT_TABLES`](headroom) of a small tree are there for that.
const GROWTH_TABLES_DIVISOR: u64 = 32;

impl SpaceBudget {
    /// Of the medium of these files. Cost: asks the store.
    pub(crate) fn new(files: &Arc<dyn FileStore>, options: &Options, histogram_bytes: usize) -> SpaceBudget {
        let wanted = Wanted {
            sizes: Sizes::new(options, &**files),
            histogram_bytes: histogram_bytes as u64,
            compaction_buffer_bytes: options.compaction_buffer_size,
        };
        SpaceBudget {
            files: files.clone(),
            wanted,
            is_short: AtomicBool::new(false),
            reservations: Arc::default(),
            remembered: Mutex::default(),
        }
    }

    /// Sizes of what is written.
    pub(crate) fn sizes(&self) -> &Sizes {
        &self.wanted.sizes
    }

    /// Name of the store.
    fn store_name(&self) -> &str {
        self.files.name()
    }

    /// Each table takes as much, however little is in it.
    pub(crate) fn is_in_tables(&self) -> bool {
        self.files.properties().preferred_table_bytes.is_some()
    }

    /// What the store says now; `None` where it cannot tell.
    pub(crate) fn ask(&self) -> Option<Space> {
        self.files.space().ok()
    }

    /// Asks the store to give back space that it holds without need. Whether it did: one that fails says so to the next write.
    pub(crate) fn reclaim(&self) -> bool {
        self.files.reclaim_space().unwrap_or(false)
    }

    /// What is free of that, beside what running compactions were given but for `own_bytes` of it.
    pub(crate) fn headroom(&self, space: Space, version: &Version, unflushed: Unflushed, own_bytes: u64) -> Headroom {
        let preferred = self.files.properties().preferred_table_bytes;
        let sizes = &self.wanted.sizes;
        let table_bytes = || {
            let cut_bytes = sizes.table_bytes.max(sizes.memtable_bytes as u64);
            cut_bytes.max(version.largest_table_bytes())
        };
        let properties_bytes = PROPERTIES_BYTES.min(sizes.table_bytes / 2);
        let mut headroom = Headroom {
            total_bytes: space.total_bytes,
            available_bytes: space.available_bytes,
            reserve_bytes: space.reserve_bytes,
            reserved_bytes: self.reservations.left_bytes().saturating_sub(own_bytes),
            table_bytes: preferred.unwrap_or_else(table_bytes).max(1),
            is_in_tables: preferred.is_some(),
            cut_bytes: sizes.table_bytes - properties_bytes,
            beside_bytes: space.block_bytes + properties_bytes + self.wanted.histogram_bytes,
            owed_bytes: 0,
            block_bytes: space.block_bytes,
            growth_bytes: 0,
            asked_bytes: self.wanted.compaction_buffer_bytes,
            zones: space.zones,
        };
        let Unflushed { waiting_bytes, active_bytes } = unflushed;
        headroom.owed_bytes = headroom.whole_tables(waiting_bytes).saturating_add(headroom.whole_tables(active_bytes));
        if headroom.is_in_tables {
            let tables: u64 = version.levels.iter().map(|level| level.len() as u64).sum();
            // One more is among the tables that puts leave in any case.
            let growth_tables = (tables / GROWTH_TABLES_DIVISOR).saturating_sub(1);
            headroom.growth_bytes = growth_tables.saturating_mul(headroom.table_bytes);
        } else {
            // A manifest grows to twice what names all tables before another takes its place.
            headroom.owed_bytes = headroom.owed_bytes.saturating_add(version.listed_bytes().saturating_mul(2));
            // Else what puts left could be gone once tables end elsewhere in their last blocks.
            headroom.growth_bytes = version.growth_bytes(space.block_bytes).min(space.total_bytes / KEPT_PART.0);
        }
        headroom
    }

    /// Some writes were refused, or waited, when a writer last looked.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::SeqCst)
    }

    /// [`SpaceBudget::is_short`] for every write: it may learn of it a little later.
    #[inline]
    pub(crate) fn was_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// A writer looked.
    pub(crate) fn note_admission(&self, admission: Admission) {
        self.is_short.store(admission != Admission::Open, Ordering::SeqCst);
    }

    /// Reserves bytes for outputs until the returned reservation is dropped.
    pub(crate) fn reserve(&self, bytes: u64) -> Arc<Reservation> {
        Arc::new(Reservation::new(&self.reservations, bytes))
    }

    /// What a table of so many bytes is counted as where space was reserved: where each takes as much, never less than
    /// tables surely hold.
    pub(crate) fn counted_bytes(&self, size_bytes: u64) -> u64 {
        self.files.properties().preferred_table_bytes.map_or(size_bytes, |bytes| size_bytes.max(filled_bytes(bytes)))
    }

    /// Why a write, or a compaction that would leave more than it read, is refused.
    pub(crate) fn refusal(&self, headroom: &Headroom, has_puts: bool) -> Error {
        Error::OutOfSpace {
            store: self.store_name().to_owned(),
            available_bytes: headroom.available_bytes,
            left_bytes: if has_puts { headroom.left_by_puts_bytes() } else { headroom.left_by_deletes_bytes() },
            zones: headroom.zones,
        }
    }

    /// What came of compactions that gave nothing.
    pub(crate) fn remembered(&self) -> Arc<Remembered> {
        self.remembered.lock().clone()
    }

    /// Returns the error with which a plan ended before, if it had at least this space.
    pub(crate) fn known_shortfall(&self, plan: &CompactionPlan, space_bytes: u64) -> Option<Error> {
        self.remembered.lock().shortfalls.error_of(plan, space_bytes).cloned()
    }

    /// Records a compaction that ran out of `space_bytes`.
    pub(crate) fn note_shortfall(&self, attempt: Attempt, space_bytes: u64, error: Error) {
        Arc::make_mut(&mut self.remembered.lock()).shortfalls.note(attempt, space_bytes, error);
    }

    /// What came of coalescing `inputs`: what did not help, or failed, is not tried again.
    pub(crate) fn note_coalesced(&self, inputs: &[u64], outputs: Result<&[Arc<FileMeta>], ()>) {
        match outputs {
            Ok(outputs) if outputs.len() < inputs.len() => {}
            Ok(outputs) => self.note_unhelpful(outputs.iter().map(|file| file.number)),
            Err(()) => self.note_unhelpful(inputs.iter().copied()),
        }
    }

    fn note_unhelpful(&self, tables: impl Iterator<Item = u64>) {
        Arc::make_mut(&mut self.remembered.lock()).unhelpful.extend(tables);
    }
}
