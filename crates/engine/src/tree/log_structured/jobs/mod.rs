//! Jobs: what is done beside writers and readers. Each gets a [`JobContext`], does its work, and returns what came of it; when
//! and in which thread is decided above.
//!
//! - [`flush`]: memtables become tables of level 0.
//! - [`compaction`]: tables of two levels become tables of one.
//! - [`pieces`]: how the tables of a compaction become part of the tree one after another.
//! - [`output`]: how tables are written.

pub(super) mod compaction;
pub(super) mod flush;
pub(super) mod output;
mod pieces;

use super::board::JobBoard;
use super::catalog::{Catalog, Change, ReadState};
use super::files::TableFiles;
use crate::error::Error;
use crate::memtable::Partition;
use crate::snapshot::SnapshotList;
use crate::space::{Headroom, SpaceBudget, Unflushed};
use crate::throttle::Throttle;
use std::sync::Arc;

/// What a job may use of a tree. Cloned for each thread of a job.
#[derive(Clone)]
pub(super) struct JobContext {
    pub(super) files: Arc<TableFiles>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) space: Arc<SpaceBudget>,
    pub(super) throttle: Arc<Throttle>,
    pub(super) snapshots: Arc<SnapshotList>,
    pub(super) board: Arc<JobBoard>,
}

impl JobContext {
    /// See [`Catalog::install`].
    pub(super) fn install(&self, change: Change) -> Result<(), Error> {
        self.catalog.install(&self.files, &self.board, change)
    }

    /// See [`Catalog::settle_doubts`].
    pub(super) fn settle_doubts(&self) -> Result<(), Error> {
        self.catalog.settle_doubts(&self.files, &self.board)
    }
}

/// Bytes of memtables when `active` is the one that is written, and gets `more_bytes`.
pub(super) fn unflushed(state: &ReadState, active: &Partition, more_bytes: u64) -> Unflushed {
    let bytes_of = |memtables: &Partition| if memtables.is_empty() { 0 } else { memtables.memory_bytes() as u64 };
    Unflushed {
        waiting_bytes: state.immutables.iter().map(|memtables| bytes_of(memtables)).sum(),
        active_bytes: bytes_of(active).saturating_add(more_bytes),
    }
}

/// What the smallest write would meet, and the bytes that outputs of compactions may have, of which one that runs has
/// reserved `own_bytes`. Cost: asks the store once.
pub(super) fn space_now(catalog: &Catalog, budget: &SpaceBudget, own_bytes: u64) -> (Option<Headroom>, u64) {
    let Some(space) = budget.ask() else { return (None, u64::MAX) };
    let state = catalog.read_state.load();
    let of = |more_bytes| {
        let unflushed = unflushed(&state, &state.active, more_bytes);
        budget.headroom(space, &state.version, unflushed, own_bytes)
    };
    (Some(of(1)), of(0).compaction_bytes())
}
