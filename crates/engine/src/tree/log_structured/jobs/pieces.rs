//! How the tables that a compaction writes become part of the tree: one after another, while it goes on.
//!
//! Installed all at once, inputs and outputs are both there until the last table is written, and readers look through all inputs
//! as long. Where tables of the output level may overlap (`policy/two_level`) that need not be. Each *piece* is an edit of the manifest:
//!
//! - a table that was written joins the tree,
//! - inputs that end before the next key to be merged leave it,
//! - of the others only entries from that key on count from now on ([`FileMeta::begin`]).
//!
//! So each entry of the inputs is at any moment either in an input, where it counts, or was merged. What the merge dropped does not come
//! back: a deletion and what it hides leave with the same piece, as both have one key. A crash, a failure or a close between two pieces leaves a tree
//! that says the same as before and after, with less to merge.
//!
//! Inputs that left are let go of at once (`level_iterator::sources_once`), and their files go with their last reader.

use super::super::catalog::Change;
use super::JobContext;
use super::output::Outputs;
use crate::error::Error;
use crate::shape::{CompactionPlan, FileMeta, Version};
use crate::statistics::Totals;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_env::Instant;

/// What is left in the tree of a compaction's inputs, and what it did so far.
pub(super) struct Pieces {
    left: Vec<(usize, Arc<FileMeta>)>,
    installed: Installed,
}

/// Sums over pieces.
#[derive(Clone, Copy, Debug, Default)]
struct Installed {
    pieces: u64,
    read_bytes: u64,
    written_bytes: u64,
    read_entries: u64,
    dropped_entries: u64,
    is_whole: bool,
}

impl Pieces {
    /// Whether a plan may be installed in pieces: an output and the rest of an input may overlap.
    pub(super) fn are_possible(version: &Version, plan: &CompactionPlan) -> bool {
        let levels = plan.inputs_by_level().map(|(level, _)| level);
        levels.chain([plan.output_level]).all(|level| level < version.disjoint_from()) && version.disjoint_from() > 1
    }

    pub(super) fn new(plan: &CompactionPlan) -> Pieces {
        let left = plan.inputs_by_level().map(|(level, file)| (level, file.clone())).collect();
        Pieces { left, installed: Installed::default() }
    }

    /// Makes what was written since the last time part of the tree; all inputs were merged up to a user key, exclusive, or as a whole.
    ///
    /// Errors: those of [`JobContext::install`]. The tree is then as it was.
    pub(super) fn install(
        &mut self,
        context: &JobContext,
        outputs: &mut Outputs,
        level: usize,
        end: Option<&[u8]>,
    ) -> Result<(), Error> {
        let (mut removed, mut added, mut left) = (Vec::new(), Vec::new(), Vec::new());
        let mut work = Totals { compactions: u64::from(end.is_none()), ..Totals::default() };
        for (of, file) in &self.left {
            match end {
                Some(end) if file.largest_user_key() >= end => {
                    let is_cut = file.smallest_user_key() < end;
                    let rest = if is_cut { file.rest_from(end) } else { file.clone() };
                    if is_cut {
                        removed.push((*of, file.clone()));
                        added.push((*of, rest.clone()));
                    }
                    left.push((*of, rest));
                }
                _ => {
                    work.compaction_read_tables += 1;
                    work.compaction_read_bytes += file.size_bytes;
                    removed.push((*of, file.clone()));
                }
            }
        }
        let written = &outputs.tables[outputs.installed..];
        work.compaction_written_tables = written.len() as u64;
        work.compaction_written_bytes = written.iter().map(|file| file.size_bytes).sum();
        added.extend(written.iter().map(|file| (level, file.clone())));
        // On failure they stay as files: the manifest may or may not name them.
        outputs.installed = outputs.tables.len();
        context.install(Change { removed, added, work, ..Change::default() })?;
        self.left = left;
        let installed = &mut self.installed;
        installed.pieces += 1;
        installed.read_bytes += work.compaction_read_bytes;
        installed.written_bytes += work.compaction_written_bytes;
        (installed.read_entries, installed.dropped_entries) = (outputs.read_entries, outputs.dropped_entries);
        installed.is_whole = end.is_none();
        context.files.tables.collect();
        Ok(())
    }

    /// Counts what was done since `start`, if anything came of it.
    pub(super) fn count(&self, context: &JobContext, start: Instant) {
        let Installed { pieces, read_bytes, written_bytes, read_entries, dropped_entries, is_whole } = self.installed;
        let counters = &context.catalog.counters;
        counters.compactions.fetch_add(u64::from(is_whole), Ordering::Relaxed);
        counters.compaction_pieces.fetch_add(pieces - u64::from(is_whole), Ordering::Relaxed);
        counters.compaction_read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
        counters.compaction_written_bytes.fetch_add(written_bytes, Ordering::Relaxed);
        counters.compaction_read_entries.fetch_add(read_entries, Ordering::Relaxed);
        counters.compaction_dropped_entries.fetch_add(dropped_entries, Ordering::Relaxed);
        if pieces > 0 {
            let nanos = context.files.env.now().as_nanos() - start.as_nanos();
            counters.compaction_nanos.fetch_add(nanos, Ordering::Relaxed);
        }
    }
}
