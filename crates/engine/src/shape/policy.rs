//! What tells one log-structured tree from another: pure functions from its shape.

use super::file::FileMeta;
use super::plan::{Busy, CompactionPlan, JobClaim};
use super::shortage::Shortage;
use super::version::Version;
use crate::key::Sequence;
use crate::options::Options;
use std::sync::Arc;

/// How the tables of a log-structured tree are organised. Nothing here does I/O, takes a lock or looks at a
/// clock. What readers see does not depend on it: of all versions of a key the one with the largest sequence
/// number counts, wherever it is.
pub(crate) trait CompactionPolicy: Send + Sync {
    /// As these options ask.
    fn new(options: &Options) -> Self
    where
        Self: Sized;

    /// Name in manifests.
    fn name(&self) -> &'static str;

    /// Levels of the tree, level 0 among them; at least 2.
    fn level_count(&self) -> usize;

    /// The first level whose tables do not overlap each other, and nor do those of deeper ones; at least 1.
    /// There a deeper level holds older versions of a key than one above it. [`CompactionPolicy::level_count`]
    /// when there is none.
    fn disjoint_from(&self) -> usize;

    /// Bytes of a histogram of each table's keys, which plans may look at; 0 is none.
    fn histogram_bytes(&self) -> usize;

    /// The next compaction worth doing that writes no more than `space_bytes`, if any. Every reader sees what is up to `oldest_view`:
    /// later deletions cannot be dropped yet.
    fn pick(&self, version: &Version, busy: &Busy, oldest_view: Sequence, space_bytes: u64) -> Option<CompactionPlan>;

    /// The next compaction of those that order every table with keys in `[begin, end]` (all when `None`),
    /// after `last`, the one before it. Nothing else runs.
    fn next_of_range(
        &self,
        version: &Version,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
        last: Option<&JobClaim>,
    ) -> Option<CompactionPlan>;

    /// What to do first of a plan that writes more than `space_bytes`; `None` when nothing less would help. Nothing else
    /// runs. Once it is done what made the plan is asked again; parts of parts end.
    fn split(&self, version: &Version, plan: &CompactionPlan, space_bytes: u64) -> Option<CompactionPlan>;

    /// The next step of those that bring deletions to what they delete, when nothing is due and space is short; `None`
    /// when no step is left that would change anything. Nothing else runs.
    fn reclaim(&self, version: &Version, shortage: &Shortage) -> Option<CompactionPlan>;

    /// Plans one compaction that merges deletions through all levels with the pairs they delete. Used when every single step of
    /// [`reclaim`](Self::reclaim) failed for want of space. `None` if the policy has no such plan.
    fn reclaim_through(&self, version: &Version, shortage: &Shortage) -> Option<CompactionPlan>;

    /// The compaction that takes the deletions of one table a step closer to what they delete, with the tables that must go along; it
    /// drops them where nothing lies below. `None` when a running compaction is in the way. Repeated for its outputs, it ends.
    fn relieve(&self, version: &Version, busy: &Busy, table: (usize, &Arc<FileMeta>)) -> Option<CompactionPlan>;

    /// Tables in level 0, as what slows and stops writers counts them.
    fn level0_tables(&self, version: &Version) -> usize;

    /// Bytes that compactions must still move until nothing is due.
    fn pending_bytes(&self, version: &Version) -> u64;
}
