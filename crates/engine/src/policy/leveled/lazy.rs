//! Lazy leveling (Dayan and Idreos, "Dostoevsky", SIGMOD 2018): the last level is one run, and levels above it hold a run each
//! that was written once and waits until merging it into the last one pays.
//!
//! To merge `u` bytes into the `n` of the last level writes `n + u`, less what they replace: the more gathers, the less each of them
//! costs, and the more of what it replaces is kept meanwhile. So:
//!
//! - Tables of level 0 become a run of the deepest level that is free, together with the runs they meet that are not
//!   larger than what goes along (half of it, where few runs gather), and with as many more as leaves [`RUNS_MAX`].
//! - In a tree that one compaction may take, level 0 is merged with all of it once enough has gathered ([`gathered_bytes`]).
//! - In a larger one columns of keys go into the last level, the one first of which a rewritten byte takes most, as long as more
//!   is above it than the options allow. Runs are cut where the tables of older ones and of the last level are, so that a column is
//!   whole in all of them.
//!
//! A plan takes all that its tables overlap of the levels below them: what is newer stays above what is older.

use super::PolicyOptions;
use crate::shape::{Busy, CompactionPlan, FileMeta, Reason, Shortage, Version};
use std::sync::Arc;

/// Runs between level 0 and the last level. Reads look into each.
const RUNS_MAX: usize = 3;

/// A tree of so many times `max_compaction_bytes` is merged whole.
const WHOLE_COMPACTIONS: u64 = 2;

/// What gathers above a last level that is small beside it, in `max_bytes_for_level_base`; but never more than so many quarters of that
/// level.
const GATHERED_BASES: u64 = 2;
const GATHERED_QUARTERS: u64 = 3;

/// Whether the options ask for it. It needs a level between level 0 and the last.
pub(super) fn is_lazy(version: &Version, options: &PolicyOptions) -> bool {
    options.dynamic_level_bytes && options.max_size_amplification_percent > 0 && version.levels.len() > 2
}

/// The next compaction worth doing that writes no more than `space_bytes`: of level 0 and of what gathered above the last level
/// first of that of which there is more beside what there may be. Where that space is less than the tree has, less is left to
/// gather.
pub(super) fn pick(
    version: &Version,
    busy: &Busy,
    options: &PolicyOptions,
    space_bytes: u64,
) -> Option<CompactionPlan> {
    let tree = Tree::new(version, busy, options, space_bytes);
    let (level0, column) = (|| tree.pick_level0(space_bytes), || tree.pick_column(space_bytes));
    match tree.column_is_first() {
        true => column().or_else(level0),
        false => level0().or_else(column),
    }
}

/// Bytes that compactions must still move until nothing is due.
pub(super) fn pending_bytes(version: &Version, options: &PolicyOptions) -> u64 {
    let busy = Busy::default();
    let tree = Tree::new(version, &busy, options, u64::MAX);
    let level0_bytes = if tree.level0_is_due() { version.level_bytes(0) } else { 0 };
    let above = tree.above_weight();
    let excess = above.saturating_sub(tree.allowed_bytes());
    if excess == 0 || tree.is_whole(tree.total_bytes()) {
        return level0_bytes;
    }
    level0_bytes.saturating_add((excess as f64 * (1.0 + tree.last_bytes() as f64 / above as f64)) as u64)
}

/// While writers are refused for want of space: a table of the deepest run into the last level, since what it replaces is given
/// back.
pub(super) fn reclaim(version: &Version, shortage: &Shortage) -> Option<CompactionPlan> {
    let last = version.levels.len() - 1;
    let deepest = (1..last).rev().find(|&level| !version.levels[level].is_empty())?;
    let down = |file: &Arc<FileMeta>| {
        super::finish(version, Reason::Space, deepest, last, vec![file.clone()], &Busy::default())
    };
    let plans = version.levels[deepest].iter().filter_map(down).filter(|plan| shortage.fits(version, plan));
    plans.min_by_key(CompactionPlan::written_bytes_max)
}

/// What a plan that takes tables of more than two levels begins with: its tables of the upmost two, or of the lowest ones if it
/// takes none of level 0.
pub(super) fn first_step(version: &Version, plan: &CompactionPlan) -> Option<CompactionPlan> {
    let (deepest, _) = plan.between.last()?;
    if plan.input_level == 0 {
        let upmost = plan.between[0].0;
        return super::finish(version, plan.reason, 0, upmost, plan.inputs.clone(), &Busy::default());
    }
    let of_deepest = plan.between.iter().filter(|(level, _)| level == deepest).map(|(_, file)| file.clone()).collect();
    super::finish(version, plan.reason, *deepest, plan.output_level, of_deepest, &Busy::default())
}

/// A tree, and how much may gather in it.
struct Tree<'a> {
    version: &'a Version,
    busy: &'a Busy,
    options: &'a PolicyOptions,
    /// Share of what the options allow that is left where there is little space.
    share: f64,
    /// Of the last level.
    pair_bytes: u64,
}

/// Tables by level, from above, and all that they overlap below them.
#[derive(Clone)]
struct Column<'a> {
    tables: Vec<(usize, Vec<Arc<FileMeta>>)>,
    smallest: &'a [u8],
    largest: &'a [u8],
    /// Of tables above the last level, each deletion with the pair it deletes.
    weight: u64,
    total_bytes: u64,
}

impl<'a> Tree<'a> {
    fn new(version: &'a Version, busy: &'a Busy, options: &'a PolicyOptions, space_bytes: u64) -> Self {
        let last = &version.levels[version.levels.len() - 1];
        let entries = last.iter().fold(0u64, |sum, file| sum.saturating_add(file.entries));
        let pair_bytes = version.level_bytes(version.levels.len() - 1) / entries.max(1);
        let mut tree = Tree { version, busy, options, share: 1.0, pair_bytes };
        tree.share = (space_bytes as f64 / tree.total_bytes().max(1) as f64).min(1.0);
        tree
    }

    fn last(&self) -> usize {
        self.version.levels.len() - 1
    }

    fn last_bytes(&self) -> u64 {
        self.version.level_bytes(self.last())
    }

    fn total_bytes(&self) -> u64 {
        (0..=self.last()).fold(0u64, |sum, level| sum.saturating_add(self.version.level_bytes(level)))
    }

    fn is_whole(&self, bytes: u64) -> bool {
        bytes <= self.options.max_compaction_bytes.saturating_mul(WHOLE_COMPACTIONS)
    }

    fn weight(&self, file: &FileMeta) -> u64 {
        file.size_bytes.saturating_add(file.deletions.saturating_mul(self.pair_bytes))
    }

    /// Of runs that no compaction takes.
    fn above_weight(&self) -> u64 {
        let tables = self.version.levels[1..self.last()].iter().flat_map(|level| level.iter());
        let idle = tables.filter(|file| !self.busy.contains(file.number));
        idle.fold(0u64, |sum, file| sum.saturating_add(self.weight(file)))
    }

    /// How much may be above the last level: what the options say.
    fn allowed_bytes(&self) -> u64 {
        let percent = self.options.max_size_amplification_percent as f64 * self.share;
        (self.last_bytes() as f64 * percent / 100.0) as u64
    }

    /// How much gathers above the last level before all is merged: what the options say, or twice the base size if that
    /// is more; never much beside the last level.
    fn gathered_bytes(&self) -> u64 {
        self.allowed_bytes().max(self.usual_bytes())
    }

    /// How much gathers if the options say less.
    fn usual_bytes(&self) -> u64 {
        let bases = self.options.max_bytes_for_level_base.saturating_mul(GATHERED_BASES) as f64 * self.share;
        (bases as u64).min(self.last_bytes() / 4 * GATHERED_QUARTERS)
    }

    /// Runs of level 0 are written quickly: without this, what gathered would never be merged while many write.
    fn column_is_first(&self) -> bool {
        let trigger = self.options.level0_file_num_compaction_trigger.max(1);
        let level0_score = self.version.levels[0].len() as f64 / trigger as f64;
        self.above_weight() as f64 > self.allowed_bytes() as f64 * level0_score.max(1.0)
    }

    fn runs(&self, from: usize) -> usize {
        (from..self.last()).filter(|&level| !self.version.levels[level].is_empty()).count()
    }

    /// Tables of a level and nothing below them.
    fn column(&self, level: usize, files: &'a [Arc<FileMeta>]) -> Option<Column<'a>> {
        let smallest = files.iter().map(|file| file.smallest_user_key()).min()?;
        let largest = files.iter().map(|file| file.largest_user_key()).max()?;
        let mut column = Column { tables: Vec::new(), smallest, largest, weight: 0, total_bytes: 0 };
        self.take(&mut column, level, files.to_vec());
        Some(column)
    }

    fn overlapping(&self, column: &Column<'_>, level: usize) -> &'a [Arc<FileMeta>] {
        let files = &self.version.levels[level][self.version.find(level, column.smallest)..];
        &files[..files.partition_point(|file| file.smallest_user_key() <= column.largest)]
    }

    fn take(&self, column: &mut Column<'a>, level: usize, files: Vec<Arc<FileMeta>>) {
        for file in &files {
            column.total_bytes = column.total_bytes.saturating_add(file.size_bytes);
            if level < self.last() {
                column.weight = column.weight.saturating_add(self.weight(file));
            }
        }
        column.tables.push((level, files));
    }

    /// Takes what is overlapped of the next level; false where a compaction has one of these tables.
    fn descend(&self, column: &mut Column<'a>, level: usize) -> bool {
        let found = self.overlapping(column, level);
        let (Some(first), Some(last)) = (found.first(), found.last()) else { return true };
        if found.iter().any(|file| self.busy.contains(file.number)) {
            return false;
        }
        column.smallest = column.smallest.min(first.smallest_user_key());
        column.largest = column.largest.max(last.largest_user_key());
        self.take(column, level, found.to_vec());
        true
    }

    /// With everything below it, down to the last level.
    fn to_the_last(&self, mut column: Column<'a>, from: usize) -> Option<Column<'a>> {
        (from..=self.last()).all(|level| self.descend(&mut column, level)).then_some(column)
    }

    /// Whether level 0 waits no longer. In a tree that is merged whole a run of its tables would be written to be merged soon
    /// after: they wait for that merge where they are, as long as there may be more of them and they are not many.
    fn level0_is_due(&self) -> bool {
        let tables = self.version.levels[0].len();
        let trigger = self.options.level0_file_num_compaction_trigger.max(1);
        if tables < trigger {
            return false;
        }
        let level0_bytes = self.version.level_bytes(0);
        let with_one_more = level0_bytes.saturating_add(self.level0_table_bytes());
        let waits = tables < self.options.level0_waiting_max
            && self.level0_may_wait()
            && self.is_whole(self.total_bytes())
            && self.above_weight().saturating_add(with_one_more) <= self.allowed_bytes();
        !waits
    }

    /// The options say much more than gathers anyway, which are some runs of level 0 and what lies above them by the merge.
    fn level0_may_wait(&self) -> bool {
        self.allowed_bytes() / 3 >= self.usual_bytes() / 2
    }

    /// The mean.
    fn level0_table_bytes(&self) -> u64 {
        self.version.level_bytes(0) / self.version.levels[0].len().max(1) as u64
    }

    fn pick_level0(&self, space_bytes: u64) -> Option<CompactionPlan> {
        let level0 = &self.version.levels[0];
        if !self.level0_is_due() || level0.iter().any(|file| self.busy.contains(file.number)) {
            return None;
        }
        let column = self.column(0, level0)?;
        let fits = |plan: &CompactionPlan| plan.written_bytes_max() <= space_bytes;
        let whole = self.to_the_last(column.clone(), 1).filter(|whole| self.pays(whole));
        let merged = whole.and_then(|whole| self.plan(Reason::Level0Tables, whole, self.last())).filter(fits);
        merged.or_else(|| self.run_of(column).filter(fits))
    }

    /// Whether as much has gathered above the tables of the last level that a column takes as their share of what may; or all
    /// but a table, where level 0 has waited for it.
    fn pays(&self, column: &Column<'_>) -> bool {
        let below = column.tables.last().filter(|(level, _)| *level == self.last());
        let below_bytes: u64 = below.map_or(0, |(_, files)| files.iter().map(|file| file.size_bytes).sum());
        let share = below_bytes as f64 / self.last_bytes().max(1) as f64;
        let gathered_bytes = self.gathered_bytes();
        let next_bytes = if self.level0_may_wait() { self.level0_table_bytes() } else { 0 };
        let weight = column.weight.saturating_add(next_bytes);
        below_bytes == 0 || (weight as f64 >= gathered_bytes as f64 * share && self.is_whole(column.total_bytes))
    }

    /// Level 0 into the deepest level that is free of what it overlaps.
    fn run_of(&self, mut column: Column<'a>) -> Option<CompactionPlan> {
        // Of a few runs each is written once; more of them are kept few by merging equal ones.
        let are_few = self.gathered_bytes() <= (RUNS_MAX as u64 + 1).saturating_mul(column.total_bytes);
        let mut output_level = 0;
        for level in 1..self.last() {
            let found = self.overlapping(&column, level);
            let bytes: u64 = found.iter().map(|file| file.size_bytes).sum();
            // What is in the first level has to go along.
            let goes =
                bytes <= column.total_bytes / if are_few { 2 } else { 1 } || self.runs(level) >= RUNS_MAX || level == 1;
            if !goes || !self.descend(&mut column, level) {
                break;
            }
            output_level = level;
        }
        if output_level == 0 {
            return None;
        }
        let mut plan = self.plan(Reason::Level0Tables, column, output_level)?;
        if !self.is_whole(self.total_bytes()) {
            plan.cuts = self.cuts(&plan);
        }
        Some(plan)
    }

    /// What goes into the last level of a tree that is too large to be merged whole.
    fn pick_column(&self, space_bytes: u64) -> Option<CompactionPlan> {
        let is_due = self.above_weight() > self.allowed_bytes() && !self.is_whole(self.total_bytes());
        if !is_due {
            return None;
        }
        let mut best: Option<((bool, u128), CompactionPlan)> = None;
        for level in 1..self.last() {
            for file in self.version.levels[level].iter() {
                if self.busy.contains(file.number) {
                    continue;
                }
                let column = self.column(level, std::slice::from_ref(file));
                let Some(column) = column.and_then(|column| self.to_the_last(column, level + 1)) else { continue };
                let is_large = column.total_bytes > self.options.max_compaction_bytes;
                let cost = match is_large {
                    true => u128::from(column.total_bytes),
                    false => u128::from(column.total_bytes) * 1024 / u128::from(column.weight.max(1)),
                };
                if best.as_ref().is_some_and(|(least, _)| (is_large, cost) >= *least) {
                    continue;
                }
                let Some(plan) = self.plan(Reason::LevelSize, column, self.last()) else { continue };
                if plan.written_bytes_max() <= space_bytes {
                    best = Some(((is_large, cost), plan));
                }
            }
        }
        best.map(|(_, plan)| plan)
    }

    fn plan(&self, reason: Reason, column: Column<'a>, output_level: usize) -> Option<CompactionPlan> {
        if self.busy.writes_into(output_level, column.smallest, column.largest) {
            return None;
        }
        let mut tables = column.tables.into_iter();
        let (input_level, inputs) = tables.next()?;
        let (mut between, mut overlapping) = (Vec::new(), Vec::new());
        for (level, files) in tables {
            match level == output_level {
                true => overlapping = files,
                false => between.extend(files.into_iter().map(|file| (level, file))),
            }
        }
        Some(CompactionPlan { reason, input_level, output_level, inputs, overlapping, between, cuts: Vec::new() })
    }

    /// Where a new run is cut: where neither tables of older runs nor of the last level lie across, a table of either begins,
    /// and about half a compaction of the last level lies between; a quarter, where it is a run's that begins.
    fn cuts(&self, plan: &CompactionPlan) -> Vec<Vec<u8>> {
        let column_bytes = self.options.max_compaction_bytes / 2;
        let runs = plan.output_level + 1..self.last();
        let of_runs = runs.clone().flat_map(|level| self.version.levels[level].iter());
        let mut starts: Vec<(&[u8], u64)> = of_runs.map(|file| (file.smallest_user_key(), 0)).collect();
        let of_last = self.version.levels[self.last()].iter();
        starts.extend(of_last.map(|file| (file.smallest_user_key(), file.size_bytes)));
        starts.sort();
        let lies_across = |level: usize, key: &[u8]| {
            let found = self.version.levels[level].get(self.version.find(level, key));
            found.is_some_and(|file| file.smallest_user_key() < key)
        };
        let (mut cuts, mut bytes): (Vec<Vec<u8>>, u64) = (Vec::new(), 0);
        for (key, table_bytes) in starts {
            let least_bytes = if table_bytes > 0 { column_bytes } else { column_bytes / 2 };
            if bytes >= least_bytes && !runs.clone().chain([self.last()]).any(|level| lies_across(level, key)) {
                cuts.push(key.to_vec());
                bytes = 0;
            }
            bytes = bytes.saturating_add(table_bytes);
        }
        cuts
    }
}
