//! What is compacted next: a pure function from a snapshot of state to a choice. It calls no store and takes no lock; whoever
//! carries a choice out looks first whether the state is still the one it was made for.

use crate::key::Sequence;
use crate::policy;
use crate::shape::{Busy, CompactionPlan, CompactionPolicy, Shortage, Version, deleted_bytes};
use crate::space::{Headroom, Remembered};

/// What a choice depends on.
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
pub(crate) struct Choice {
    pub(crate) plan: CompactionPlan,
    /// Bytes its outputs may take.
    pub(crate) space_bytes: u64,
    /// It needs all the space there is.
    pub(crate) is_alone: bool,
    /// Writers are refused for want of space. Elsewhere what is known of space may be wrong, as under a quota, and what
    /// failed is tried again.
    pub(crate) is_short: bool,
}

/// What is due and fits. Else, as long as no other compaction runs and what there is does not fit as a whole or writers are
/// refused: tables that coalesce into fewer, the first part of what is due, or a step that brings deletions to what they delete;
/// and for whoever waits, what is due although it may not fit.
pub(crate) fn next_compaction(state: &CompactionState<'_>, policy: &dyn CompactionPolicy) -> Option<Choice> {
    let CompactionState { version, busy, space, .. } = state;
    let (space_bytes, is_short) = (space.bytes, space.is_short());
    let shortfalls = &space.remembered.shortfalls;
    let may_fit = |plan: &CompactionPlan| !is_short || shortfalls.error_of(plan, space_bytes).is_none();
    if let Some(plan) = policy.pick(version, busy, space_bytes).filter(may_fit) {
        return Some(Choice { plan, space_bytes, is_alone: false, is_short });
    }
    let bytes = (0..version.levels.len()).fold(0u64, |sum, level| sum.saturating_add(version.level_bytes(level)));
    if state.others_run || (space_bytes >= bytes && !is_short) {
        return None;
    }
    let due = policy.pick(version, busy, u64::MAX);
    let part = |space_bytes| {
        let due = due.as_ref()?;
        let whole = || due.is_divisible(version).then(|| due.clone());
        policy.split(version, due, space_bytes).or_else(whole)
    };
    // What ran out of space, although it should have fitted, may fit with fewer tables.
    let shares = [space_bytes, space_bytes / 2, space_bytes / 4];
    let coalescing = || coalescing(space, version).filter(|_| is_short);
    let first_part = || shares.into_iter().find_map(|bytes| part(bytes).filter(may_fit));
    let reclaiming = || {
        let shortage = |space_bytes| Shortage { space_bytes, ..shortage(state) };
        let step = |bytes| policy.reclaim(version, &shortage(bytes)).filter(may_fit);
        if is_short { shares.into_iter().find_map(step) } else { None }
    };
    // It may need less than it reads, and who waits for it must be told how it ended; without them it is not begun.
    let hoped_for = || part(space_bytes).or_else(|| due.clone()).filter(|_| state.is_waited_for);
    let plan = coalescing().or_else(first_part).or_else(reclaiming).or_else(hoped_for)?;
    Some(Choice { plan, space_bytes, is_alone: true, is_short })
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
