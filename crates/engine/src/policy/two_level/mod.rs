//! Two levels whose tables may both overlap (SMRDB-SOC: Pitchumani et al., "SMRDB: Key-Value Data Store for
//! Shingled Magnetic Recording Disks", SYSTOR 2015, sections 4.2 and 4.3).
//!
//! Level 0 buffers what memtables were written as; level 1 is kept mostly in order. A compaction takes the oldest
//! tables of level 0 and, of the tables of level 1 they overlap, only those it pays to reorder: the least
//! sequential one and the newer ones it overlaps. When tables of level 1 overlap too much they are reordered
//! among themselves. With a bound on the depth (`overlap_depth_max`) tables are selected otherwise: see [`depth`], [`worth`] and [`deletions`].
//!
//! # Why reads are right
//!
//! The paper keeps the newest version of a key in the highest level, and there in the newest band; which
//! selections keep this is subtle. Say key `k` has version 5 in band A and version 9 in band B of level 1, and
//! a compaction merges A with a new band of level 0 that does not hold `k`: its output is newer than B as a
//! band and holds the older version.
//!
//! We rely on sequence numbers instead. *Invariant*: of all versions of a key in memtables and tables that some
//! reader may see, every one stays in some table until a newer one, which every such reader sees instead, or a
//! deletion that hides it, is in the tree.
//!
//! - *Get* looks for the version with the largest sequence number that is not after the reader's, in every
//!   table whose range holds the key, from the largest newest sequence number to the smallest, and stops when
//!   what it found is at or above the newest of the next table. Memtables come first: all they hold is newer
//!   than what is in tables, because tables are made from memtables in order.
//! - *Scan* merges all tables by key and descending sequence number.
//! - *A compaction* drops a version only for a newer one among its own inputs that every reader who could see
//!   the older one sees instead. That one is in its output, or was a deletion dropped as follows.
//! - *A deletion* is dropped when no reader stands before it and no table outside the compaction can hold an
//!   older version: none whose range holds the key and whose oldest sequence number is below the deletion's.
//!   A compaction that runs at the same time is no exception: the tables it reads are part of the tree until
//!   its outputs are, so one of both is outside. Nor is a flush, which only brings newer versions.
//!
//! So any set of tables may be merged in any order, at once with others; selections decide about cost only. This is
//! also why a selection may be cut short: to what `max_compaction_bytes` allows, or to what there is space for.
//!
//! # Why it ends
//!
//! Let the width of a table be the number of different keys of the database within its range. A compaction of level 1
//! takes two tables at least that overlap, and its outputs do not overlap each other, as all versions of a key are
//! written to one of them: the sum of all widths falls with each, whatever it took, and so there is a last one.

mod deletions;
mod depth;
mod reclaim;
#[cfg(test)]
mod replay;
mod selection;
mod sequentiality;
#[cfg(test)]
mod tests;
mod worth;

use crate::key::Sequence;
use crate::options::Options;
use crate::shape::{Busy, CompactionPlan, CompactionPolicy, FileMeta, JobClaim, Reason, Shortage, Version};
use depth::Bound;
use selection::overlap;
use std::sync::Arc;

/// Bytes of a table's histogram (SMRDB, section 4.3).
const HISTOGRAM_BYTES: usize = 4096;

/// The two-level compaction policy.
pub(crate) struct TwoLevel {
    /// Tables in level 0 that start a compaction.
    level0_trigger: usize,
    /// Tables of level 0 that one compaction takes.
    level0_tables_max: usize,
    /// Tables of level 1 that overlap one of them and start a compaction within the level.
    overlap_trigger: usize,
    /// Bytes that one compaction reads, but for the least that changes anything: one table of level 0, or two of
    /// level 1.
    compaction_bytes_max: u64,
    /// Tables that may overlap in one key; 0 selects as the paper does.
    depth_max: usize,
    /// Tables in level 0 from which on, with a bound on the depth, only what takes some of them is merged.
    level0_urgent: usize,
    /// Tables of level 0 are narrow: what counts is how many of them lie over a key.
    counts_layers: bool,
    /// With a bound on the depth: merges what is worth most, as merges give back what they read on the way.
    by_worth: bool,
}

impl TwoLevel {
    fn plan_level0(&self, version: &Version, busy: &Busy) -> Option<CompactionPlan> {
        let inputs = selection::level0(version, busy, self.level0_tables_max, self.compaction_bytes_max);
        let left_bytes = self.compaction_bytes_max.saturating_sub(selection::bytes_of(&inputs));
        let under = selection::level1_under(version, busy, &inputs);
        let overlapping = selection::pruned(version, busy, &under, left_bytes);
        (!inputs.is_empty()).then_some(CompactionPlan::new(Reason::Level0Tables, (0, inputs), (1, overlapping)))
    }

    /// The oldest table of level 0, which is moved, when enough of them are there.
    fn oldest_to_level1(&self, version: &Version, busy: &Busy) -> Option<CompactionPlan> {
        let mut idle = version.levels[0].iter().filter(|file| !busy.contains(file.number));
        let oldest = idle.next_back()?;
        (idle.count() + 1 >= self.level0_trigger)
            .then(|| CompactionPlan::new(Reason::Level0Tables, (0, vec![oldest.clone()]), (1, Vec::new())))
    }

    /// `most` is the table of level 1 that overlaps most.
    fn plan_level1(&self, version: &Version, busy: &Busy, most: &Arc<FileMeta>) -> Option<CompactionPlan> {
        let candidates = selection::level1_under(version, busy, std::slice::from_ref(most));
        let mut inputs = selection::pruned(version, busy, &candidates, self.compaction_bytes_max);
        if inputs.len() < 2 {
            // The least sequential one is the newest: what it overlaps is as good to merge it with.
            let others = candidates.iter().rev().filter(|file| file.number != most.number);
            let chosen = selection::within(std::iter::once(most).chain(others), 2, self.compaction_bytes_max);
            inputs = chosen.into_iter().cloned().collect();
            inputs.sort_by_key(|file| std::cmp::Reverse((file.newest_sequence, file.number)));
        }
        (inputs.len() > 1).then_some(CompactionPlan::new(Reason::Overlap, (1, inputs), (1, Vec::new())))
    }
}

impl CompactionPolicy for TwoLevel {
    fn new(options: &Options) -> Self {
        TwoLevel {
            level0_trigger: options.level0_file_num_compaction_trigger.max(1),
            level0_tables_max: options.max_level0_compaction_tables,
            overlap_trigger: options.level1_overlap_compaction_trigger.max(1),
            compaction_bytes_max: options.max_compaction_bytes,
            depth_max: options.overlap_depth_max.unwrap_or_default(),
            level0_urgent: options.level0_slowdown_writes_trigger,
            counts_layers: options.flush_key_ranges.unwrap_or_default(),
            by_worth: options.compact_in_pieces.unwrap_or_default(),
        }
    }

    fn name(&self) -> &'static str {
        "two_level"
    }

    fn level_count(&self) -> usize {
        2
    }

    fn disjoint_from(&self) -> usize {
        2
    }

    fn histogram_bytes(&self) -> usize {
        HISTOGRAM_BYTES
    }

    fn pick(&self, version: &Version, busy: &Busy, oldest_view: Sequence, space_bytes: u64) -> Option<CompactionPlan> {
        if self.depth_max > 0 {
            let is_urgent = self.level0_tables(version) >= self.level0_urgent;
            let bound = Bound { depth_max: self.depth_max, is_urgent, is_by_worth: self.by_worth };
            let due = depth::pick((version, busy), bound, oldest_view, self.compaction_bytes_max, space_bytes);
            return due.or_else(|| self.oldest_to_level1(version, busy));
        }
        let fits = |plan: &CompactionPlan| plan.written_bytes_max() <= space_bytes;
        let idle = version.levels[0].iter().filter(|file| !busy.contains(file.number)).count();
        let (overlaps, most) = selection::most_overlapped(version, busy).unzip();
        let overlaps = overlaps.unwrap_or(0);
        let level0 = || {
            let plan = (idle >= self.level0_trigger).then(|| self.plan_level0(version, busy)).flatten()?;
            [plan.clone(), without_level1(&plan), of_the_oldest(plan)].into_iter().find(fits)
        };
        let level1 = || {
            let most = most.filter(|_| overlaps >= self.overlap_trigger)?;
            let plan = self.plan_level1(version, busy, most)?;
            [plan.clone(), of_two(plan)].into_iter().find(fits)
        };
        // Whichever is further over its trigger.
        match idle.saturating_mul(self.overlap_trigger) >= overlaps.saturating_mul(self.level0_trigger) {
            true => level0().or_else(level1),
            false => level1().or_else(level0),
        }
    }

    /// Everything connected by overlaps is merged at once, which needs as much space again: the tables in order, with
    /// no key in two of them, and no deletion left.
    fn next_of_range(
        &self,
        version: &Version,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
        last: Option<&JobClaim>,
    ) -> Option<CompactionPlan> {
        let done = last.and_then(|last| last.key_range.as_ref()).map(|(_, largest)| largest.as_slice());
        let is_due = |tables: &[(usize, Arc<FileMeta>)]| {
            tables.len() > 1 || tables.iter().any(|(level, file)| *level == 0 || file.deletions > 0)
        };
        let in_range = |file: &FileMeta| {
            end.is_none_or(|end| file.smallest_user_key() <= end)
                && begin.is_none_or(|begin| file.largest_user_key() >= begin)
                && done.is_none_or(|done| file.smallest_user_key() > done)
        };
        let tables = connected(version)
            .into_iter()
            .find(|tables| is_due(tables) && tables.iter().any(|(_, file)| in_range(file)))?;
        let of_level = |wanted: usize| {
            tables.iter().filter(|(level, _)| *level == wanted).map(|(_, file)| file.clone()).collect::<Vec<_>>()
        };
        let (level0, level1) = (of_level(0), of_level(1));
        Some(match level0.is_empty() {
            false => CompactionPlan::new(Reason::Manual, (0, level0), (1, level1)),
            true => CompactionPlan::new(Reason::Manual, (1, level1), (1, Vec::new())),
        })
    }

    fn split(&self, _version: &Version, plan: &CompactionPlan, space_bytes: u64) -> Option<CompactionPlan> {
        reclaim::split(plan, space_bytes)
    }

    fn reclaim(&self, version: &Version, shortage: &Shortage) -> Option<CompactionPlan> {
        reclaim::reclaim(version, shortage)
    }

    fn reclaim_through(&self, _: &Version, _: &Shortage) -> Option<CompactionPlan> {
        None
    }

    fn relieve(&self, version: &Version, busy: &Busy, table: (usize, &Arc<FileMeta>)) -> Option<CompactionPlan> {
        reclaim::relieve(version, busy, table, self.compaction_bytes_max)
    }

    fn level0_tables(&self, version: &Version) -> usize {
        if self.counts_layers { version.layers(0) } else { version.levels[0].len() }
    }

    /// What level 0 holds when it is due, and as much of level 1.
    fn pending_bytes(&self, version: &Version) -> u64 {
        let due = self.level0_tables(version) >= self.level0_trigger;
        if due { version.level_bytes(0) + version.level_bytes(0).min(version.level_bytes(1)) } else { 0 }
    }
}

/// Of a plan that does not fit: the tables of level 0 alone, ...
fn without_level1(plan: &CompactionPlan) -> CompactionPlan {
    CompactionPlan { overlapping: Vec::new(), ..plan.clone() }
}

/// only the oldest of them, ...
fn of_the_oldest(plan: CompactionPlan) -> CompactionPlan {
    let oldest = plan.inputs.last().cloned().into_iter().collect();
    CompactionPlan { inputs: oldest, overlapping: Vec::new(), ..plan }
}

/// or the two smallest tables of level 1 of it that overlap: merging others would gain nothing, again and again.
fn of_two(plan: CompactionPlan) -> CompactionPlan {
    let inputs = &plan.inputs;
    let pairs = (1..inputs.len()).flat_map(|second| (0..second).map(move |first| (first, second)));
    let smallest = pairs
        .filter(|&(first, second)| overlap(&inputs[first], &inputs[second]))
        .min_by_key(|&(first, second)| (inputs[first].size_bytes + inputs[second].size_bytes, first, second));
    match smallest {
        Some((first, second)) => CompactionPlan { inputs: vec![inputs[first].clone(), inputs[second].clone()], ..plan },
        None => plan,
    }
}

/// All tables with their levels, in groups connected by overlaps, in key order.
fn connected(version: &Version) -> Vec<Vec<(usize, Arc<FileMeta>)>> {
    let mut tables: Vec<(usize, Arc<FileMeta>)> = version.files().map(|(level, file)| (level, file.clone())).collect();
    tables.sort_by(|(_, a), (_, b)| a.smallest_user_key().cmp(b.smallest_user_key()).then(a.number.cmp(&b.number)));
    let mut groups: Vec<Vec<(usize, Arc<FileMeta>)>> = Vec::new();
    for (level, file) in tables {
        match groups.last_mut() {
            Some(group) if group.iter().any(|(_, member)| overlap(member, &file)) => group.push((level, file)),
            _ => groups.push(vec![(level, file)]),
        }
    }
    groups
}
