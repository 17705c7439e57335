//! How the tables that a compaction writes become part of the tree: one after another, while it goes on.
//!
//! If all outputs are installed at the end, inputs and outputs take space until the last table is written, and readers look through
//! all inputs until then. A *piece* is an edit of the manifest that installs one output earlier:
//!
//! - the table that was written joins the tree,
//! - inputs that end before the next key to be merged leave it,
//! - of the other inputs only entries from that key on count from now on ([`FileMeta::begin`]).
//!
//! At any moment each entry of the inputs is either in an input, where it counts, or was merged. Entries that the merge dropped do not
//! come back: a deletion and the versions it hides have one key, so they leave with the same piece. A crash, a failure or a close
//! between two pieces leaves a tree with the same contents and less to merge.
//!
//! The inputs that left are let go of at once (`level_iterator::sources_once`), and their files go with their last reader.
//!
//! Two kinds of compactions are done in pieces:
//!
//! - those that do not fit in the space that is left: beside its inputs such a compaction takes one table that is written, one that
//!   is partly merged, and a copy of what tables hold that reach beyond the piece ([`reserved_bytes`]);
//! - all those between overlapping levels, if the options ask for it ([`Pieces::are_short`]).
//!
//! To the store each piece is a compaction of its own ([`Hint::CompactionBegin`]): a band that an output took counts against the
//! reserve only until the inputs that it replaces leave.

use super::super::catalog::Change;
use super::JobContext;
use super::compaction::hinted_inputs;
use super::output::{Outputs, hinted};
use crate::error::Error;
use crate::shape::{CompactionPlan, FileMeta, Version};
use crate::space::Reservation;
use crate::statistics::Totals;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_env::Instant;
use varve_store::{Hint, JobId};

/// Space that a plan takes while it is done in pieces: for the table that is written, and for a copy of what tables hold that
/// reach beyond the piece. Tables of overlapping levels stay until the end, of a disjoint one a table at a time does.
fn needed_bytes(version: &Version, plan: &CompactionPlan) -> u64 {
    let sizes = |files: &[Arc<FileMeta>]| -> (u64, u64) {
        files
            .iter()
            .fold((0, 0), |(sum, largest), file| (sum.saturating_add(file.size_bytes), largest.max(file.size_bytes)))
    };
    let ((inputs_bytes, input_bytes), (_, below_bytes)) = (sizes(&plan.inputs), sizes(&plan.overlapping));
    let staying_bytes = if plan.input_level < version.disjoint_from() { inputs_bytes } else { input_bytes };
    staying_bytes.saturating_add(below_bytes).saturating_add(plan.between_bytes())
}

/// Share of the available space that is reserved for a compaction in pieces. If each table takes a band of its own, the share is
/// all of it: writers leave compactions a reserve there.
pub(super) fn reserved_bytes(version: &Version, plan: &CompactionPlan, space_bytes: u64, is_in_tables: bool) -> u64 {
    let share_bytes = if is_in_tables { space_bytes } else { space_bytes / 2 };
    needed_bytes(version, plan).max(share_bytes).min(space_bytes)
}

/// The inputs of a compaction that are left in the tree, and what it did so far.
pub(super) struct Pieces<'a> {
    job: JobId,
    output_level: usize,
    left: Vec<(usize, Arc<FileMeta>)>,
    reservation: &'a Reservation,
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

impl<'a> Pieces<'a> {
    /// True if pieces keep reads short: the levels of a plan overlap, so readers look through all of its inputs.
    pub(super) fn are_short(version: &Version, plan: &CompactionPlan) -> bool {
        let levels = plan.inputs_by_level().map(|(level, _)| level);
        levels.chain([plan.output_level]).all(|level| level < version.disjoint_from()) && version.disjoint_from() > 1
    }

    pub(super) fn new(job: JobId, plan: &CompactionPlan, reservation: &'a Reservation) -> Pieces<'a> {
        let left = plan.inputs_by_level().map(|(level, file)| (level, file.clone())).collect();
        Pieces { job, output_level: plan.output_level, left, reservation, installed: Installed::default() }
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
        let mut freed_bytes = 0u64;
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
                    freed_bytes = freed_bytes.saturating_add(context.space.counted_bytes(file.size_bytes));
                    removed.push((*of, file.clone()));
                }
            }
        }
        let written = &outputs.tables[outputs.installed..];
        work.compaction_written_tables = written.len() as u64;
        work.compaction_written_bytes = written.iter().map(|file| file.size_bytes).sum();
        added.extend(written.iter().map(|file| (level, file.clone())));
        let written = written.to_vec();
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
        self.reservation.regain(freed_bytes);
        if end.is_some() {
            self.begin_next(context, &written);
        }
        context.board.note_step();
        Ok(())
    }

    /// Tells the store that a piece ended and that the next one begins.
    fn begin_next(&self, context: &JobContext, written: &[Arc<FileMeta>]) {
        let (files, level) = (&context.files.media.files, self.output_level);
        let outputs: Vec<_> = written.iter().map(|file| hinted(file, level)).collect();
        files.hint(&Hint::CompactionEnd { job: self.job, outputs: &outputs, succeeded: true });
        let inputs = hinted_inputs(self.left.iter().map(|(level, file)| (*level, file)));
        files.hint(&Hint::CompactionBegin { job: self.job, inputs: &inputs, output_level: Some(level as u8) });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Reason;
    use crate::shape::tests::table;

    #[test]
    fn reserves_space_for_copies_and_not_all_of_it() {
        let plan = |input_level: usize| {
            let inputs = vec![table(10, "a-m", 10, 0), table(11, "n-z", 30, 0)];
            let overlapping = vec![table(1, "a-k", 50, 0), table(2, "l-z", 60, 0)];
            CompactionPlan::new(Reason::Space, (input_level, inputs), (input_level + 1, overlapping))
        };
        let version = Version::empty(4, 1);
        let given = |input_level, space_bytes| reserved_bytes(&version, &plan(input_level), space_bytes, false);
        assert_eq!((given(0, 140), given(1, 140)), (100, 90), "of level 0 all stay, below it one at a time");
        assert_eq!((given(0, 240), given(0, 90)), (120, 90), "half of much, all of little");
        assert_eq!(reserved_bytes(&version, &plan(0), 140, true), 140);
    }
}
