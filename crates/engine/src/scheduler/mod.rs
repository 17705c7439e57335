//! What runs next: a pure function from a snapshot of state to a choice. It calls no store and takes no lock; whoever
//! carries a choice out looks first whether the state is still the one it was made for.

use crate::key::Sequence;
use crate::policy;
use crate::policy::tombstones::{self, TableSteps};
use crate::shape::{Busy, CompactionPlan, CompactionPolicy, FileMeta, JobClaim, Shortage, Version, deleted_bytes};
use crate::space::{Headroom, Remembered};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a worker may take on. One worker keeps itself free for flushes, so that writers never
/// wait for a compaction to end before their memtable is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Flushes,
    Compactions,
    Everything,
}

/// What runs and what waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobsState {
    /// Of who asks.
    pub(crate) role: Role,
    /// Memtables wait for a flush that may begin.
    pub(crate) flush_is_due: bool,
    /// None may begin: they are switched off, or one runs that wants to be alone.
    pub(crate) compactions_are_held: bool,
    /// Somebody reads histograms.
    pub(crate) sampling: bool,
    /// Files wait to be removed.
    pub(crate) has_garbage: bool,
}

/// What is done next.
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    /// All memtables that wait.
    Flush,
    /// Look at tables and space, which is done without the lock, and ask again with that.
    Look,
    Compact(ChosenCompaction),
    /// Read the histograms of these tables, which a plan needs.
    Sample(Vec<Arc<FileMeta>>),
    /// Remove files.
    Collect,
    Nothing,
}

/// What a worker does next. `compaction` is what compactions depend on, once that was looked at.
pub(crate) fn schedule(
    jobs: &JobsState,
    compaction: Option<&CompactionState<'_>>,
    policy: &dyn CompactionPolicy,
) -> Choice {
    if jobs.role != Role::Compactions && jobs.flush_is_due {
        return Choice::Flush;
    }
    if jobs.role != Role::Flushes && !jobs.compactions_are_held {
        let Some(state) = compaction else { return Choice::Look };
        if let Some(chosen) = next_compaction(state, policy) {
            let tables = unsampled(state.version, &chosen.plan, policy);
            if tables.is_empty() {
                return Choice::Compact(chosen);
            }
            // One worker reads what others wait for.
            if !jobs.sampling {
                return Choice::Sample(tables);
            }
        }
    }
    if jobs.has_garbage { Choice::Collect } else { Choice::Nothing }
}

/// Tables a plan depends on whose histograms were not read yet.
fn unsampled(version: &Version, plan: &CompactionPlan, policy: &dyn CompactionPolicy) -> Vec<Arc<FileMeta>> {
    if policy.histogram_bytes() == 0 {
        return Vec::new();
    }
    let Some((smallest, largest)) = plan.key_range() else { return Vec::new() };
    let near = version.overlapping(plan.output_level, smallest, largest);
    near.iter().chain(plan.all_inputs()).filter(|file| file.histogram.get().is_none()).cloned().collect()
}

/// What the choice of a compaction depends on.
pub(crate) struct CompactionState<'a> {
    pub(crate) version: &'a Version,
    /// What running compactions touch.
    pub(crate) busy: &'a Busy,
    pub(crate) others_run: bool,
    pub(crate) space: SpaceState<'a>,
    /// Newest sequence number that every reader sees.
    pub(crate) oldest_view: Sequence,
    /// Somebody waits for a job to end.
    pub(crate) is_waited_for: bool,
    /// Steps of scans over deletions.
    pub(crate) steps: &'a TableSteps,
}

/// What is known of the space on the medium.
pub(crate) struct SpaceState<'a> {
    /// Of the smallest write; nothing where the store cannot tell.
    pub(crate) headroom: Option<Headroom>,
    /// Bytes that outputs may take.
    pub(crate) bytes: u64,
    /// A writer was refused, or waited, when it last looked.
    pub(crate) was_short: bool,
    /// Size of a table where each takes all of it, however little is in it.
    pub(crate) table_bytes: Option<u64>,
    /// What came of earlier compactions.
    pub(crate) remembered: &'a Remembered,
}

impl SpaceState<'_> {
    /// Writers are refused. Where tables have any size, one may have been that wanted more than the smallest write.
    fn is_short(&self) -> bool {
        self.headroom.is_some_and(|headroom| headroom.is_short() || (!headroom.is_in_tables && self.was_short))
    }
}

/// A compaction to do now.
#[derive(Clone, Debug)]
pub(crate) struct ChosenCompaction {
    pub(crate) plan: CompactionPlan,
    /// Bytes its outputs may take.
    pub(crate) space_bytes: u64,
    /// It needs all the space there is.
    pub(crate) is_alone: bool,
    /// Writers are refused for want of space. Elsewhere what is known of space may be wrong, as under a quota, and what
    /// failed is tried again.
    pub(crate) is_short: bool,
}

/// Chooses the next compaction. First the due one, or one that relieves scans of deletions, if it fits into the free space.
/// Otherwise, while no other compaction runs and the tree does not fit into the free space or writers are refused: tables that
/// coalesce into fewer, the first part of the due compaction, or a step that brings deletions to the entries they delete. For a
/// waiting thread also the due compaction that may not fit.
pub(crate) fn next_compaction(state: &CompactionState<'_>, policy: &dyn CompactionPolicy) -> Option<ChosenCompaction> {
    let CompactionState { version, busy, space, .. } = state;
    let (space_bytes, is_short) = (space.bytes, space.is_short());
    let shortfalls = &space.remembered.shortfalls;
    let may_fit = |plan: &CompactionPlan| !is_short || shortfalls.error_of(plan, space_bytes).is_none();
    if let Some(plan) = policy.pick(version, busy, state.oldest_view, space_bytes).filter(may_fit) {
        return Some(ChosenCompaction { plan, space_bytes, is_alone: false, is_short });
    }
    let relieving = tombstones::relieving((version, busy), state.steps, state.oldest_view, space_bytes, policy);
    if let Some(plan) = relieving.filter(may_fit) {
        return Some(ChosenCompaction { plan, space_bytes, is_alone: false, is_short });
    }
    let bytes = (0..version.levels.len()).fold(0u64, |sum, level| sum.saturating_add(version.level_bytes(level)));
    if state.others_run || (space_bytes >= bytes && !is_short) {
        return None;
    }
    let due = policy.pick(version, busy, state.oldest_view, u64::MAX);
    let part = |space_bytes| part_within(version, due.as_ref()?, space_bytes, policy);
    // What ran out of space, although it should have fitted, may fit with fewer tables.
    let shares = [space_bytes, space_bytes / 2, space_bytes / 4];
    let coalescing = || coalescing(space, version).filter(|_| is_short);
    let first_part = || shares.into_iter().find_map(|bytes| part(bytes).filter(may_fit));
    let reclaiming = || {
        let shortage = |space_bytes| Shortage { space_bytes, ..shortage(state) };
        let step = |bytes| policy.reclaim(version, &shortage(bytes)).filter(may_fit);
        let through = || policy.reclaim_through(version, &shortage(space_bytes)).filter(may_fit);
        if is_short { shares.into_iter().find_map(step).or_else(through) } else { None }
    };
    // It may need less than it reads, and who waits for it must be told how it ended; without them it is not begun.
    let hoped_for = || part(space_bytes).or_else(|| due.clone()).filter(|_| state.is_waited_for);
    let plan = coalescing().or_else(first_part).or_else(reclaiming).or_else(hoped_for)?;
    Some(ChosenCompaction { plan, space_bytes, is_alone: true, is_short })
}

/// The part of a plan that fits into `space_bytes`: a smaller plan, or the plan itself if it runs in pieces.
fn part_within(
    version: &Version,
    plan: &CompactionPlan,
    space_bytes: u64,
    policy: &dyn CompactionPolicy,
) -> Option<CompactionPlan> {
    let whole = || plan.is_divisible(version).then(|| plan.clone());
    policy.split(version, plan, space_bytes).or_else(whole)
}

/// A key range whose tables are compacted because somebody asked for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedRange<'a> {
    pub(crate) begin: Option<&'a [u8]>,
    pub(crate) end: Option<&'a [u8]>,
    /// What was done of it last, if something was.
    pub(crate) done: Option<&'a JobClaim>,
    /// Numbers of tables that parts of overlapping levels leave out: merging them took more space than there was.
    pub(crate) left_out: &'a BTreeSet<u64>,
    /// Bytes that a step of overlapping levels reads at most: a larger one took more space than there was.
    pub(crate) part_bytes_max: u64,
}

/// The next compaction of a key range.
#[derive(Clone, Debug)]
pub(crate) struct ChosenStep {
    pub(crate) plan: CompactionPlan,
    /// What is claimed by the plan of which this is a part; `None` where it is all of it.
    pub(crate) whole: Option<JobClaim>,
}

/// What is next of a range, while nothing else is compacted. Where there is no space to put everything in order at once, a
/// part; where none surely fits, first what gives tables back, then one that may. Tables of overlapping levels of which no part
/// may fit stay as they are, and those behind them are next. When nothing is left to do and puts are refused, what gives tables back.
pub(crate) fn next_of_range(
    version: &Version,
    space: &SpaceState<'_>,
    range: &WantedRange<'_>,
    policy: &dyn CompactionPolicy,
) -> Option<ChosenStep> {
    let WantedRange { begin, end, done, left_out, part_bytes_max } = *range;
    let is_short = space.headroom.is_some_and(|headroom| headroom.is_short());
    let hoped_bytes = space.headroom.map_or(0, |headroom| headroom.hoped_bytes());
    let whole = |plan| ChosenStep { plan, whole: None };
    let mut passed: Option<JobClaim> = None;
    while let Some(plan) = policy.next_of_range(version, begin, end, passed.as_ref().or(done)) {
        let is_overlapping = plan.output_level < version.disjoint_from();
        let limit_bytes = if is_overlapping { part_bytes_max } else { u64::MAX };
        let is_whole = !is_overlapping || plan.all_inputs().all(|file| !left_out.contains(&file.number));
        if plan.written_bytes_max() <= space.bytes.min(limit_bytes) && is_whole {
            return Some(whole(plan));
        }
        let divided = if is_overlapping { plan.without(left_out) } else { plan.clone() };
        let split = |bytes: u64| policy.split(version, &divided, bytes.min(limit_bytes));
        let part = split(space.bytes).or_else(|| coalescing(space, version)).or_else(|| split(hoped_bytes));
        match part {
            Some(part) => return Some(ChosenStep { whole: Some(plan.claim()), plan: part }),
            None if !is_overlapping => return Some(whole(plan)),
            None => passed = Some(plan.claim()),
        }
    }
    let is_of_all = begin.is_none() && end.is_none();
    (is_of_all && is_short).then(|| coalescing(space, version)).flatten().map(whole)
}

fn coalescing(space: &SpaceState<'_>, version: &Version) -> Option<CompactionPlan> {
    policy::coalescing(version, space.table_bytes?, space.bytes, &space.remembered.unhelpful)
}

fn shortage(state: &CompactionState<'_>) -> Shortage {
    let worth_bytes = state.space.headroom.map_or(0, |headroom| headroom.worth_bytes());
    Shortage {
        space_bytes: state.space.bytes,
        table_bytes: state.space.table_bytes,
        brings_deletions: deleted_bytes(state.version, 0, state.oldest_view) >= worth_bytes,
        oldest_view: state.oldest_view,
    }
}

#[cfg(test)]
mod tests;
