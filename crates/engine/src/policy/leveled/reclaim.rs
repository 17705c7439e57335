//! Space on a medium that has little left: deletions go down to what they delete, a table at a time.

use super::{PolicyOptions, finish, lazy, level_targets, next_non_empty};
use crate::shape::{Busy, CompactionPlan, FileMeta, Reason, Shortage, Version, in_place};
use std::cmp::Reverse;
use std::sync::Arc;

/// Of a plan that takes several tables of level 0 the oldest: the others stay newer than what is below. Others are done
/// in pieces, from one table of the output level to the next; where the inputs there are so large that a
/// part does not fit, one input is taken, of which less than any other must be rewritten. Of several levels two are taken.
pub(super) fn split(version: &Version, plan: &CompactionPlan, space_bytes: u64) -> Option<CompactionPlan> {
    if !plan.between.is_empty() {
        let step = lazy::first_step(version, plan)?;
        return split(version, &step, space_bytes).or(Some(step));
    }
    if plan.inputs.len() < 2 || plan.output_level == plan.input_level {
        return None;
    }
    let of = |file: &Arc<FileMeta>| {
        finish(version, plan.reason, plan.input_level, plan.output_level, vec![file.clone()], &Busy::default())
    };
    if plan.input_level == 0 {
        let most = oldest_within(plan, space_bytes).max(1);
        let oldest = plan.inputs[plan.inputs.len() - most..].to_vec();
        let is_all = most == plan.inputs.len();
        return finish(version, plan.reason, 0, plan.output_level, oldest, &Busy::default()).filter(|_| !is_all);
    }
    if parts_bytes(plan).into_iter().all(|bytes| bytes <= space_bytes) {
        return None;
    }
    let parts = plan.inputs.iter().filter_map(of);
    parts.min_by_key(|part| (part.written_bytes_max(), part.inputs[0].number))
}

/// How many of the oldest inputs may be there twice while they are merged table by table of the output level.
fn oldest_within(plan: &CompactionPlan, space_bytes: u64) -> usize {
    let below_bytes = plan.overlapping.iter().map(|file| file.size_bytes).max().unwrap_or(0);
    let sums = plan.inputs.iter().rev().scan(below_bytes, |sum, file| {
        *sum = sum.saturating_add(file.size_bytes);
        Some(*sum)
    });
    sums.take_while(|sum| *sum <= space_bytes).count()
}

/// Bytes of each part: of a table of the output level, and about those of the inputs from its beginning to that of the next
/// one, before the first and behind the last as well.
fn parts_bytes(plan: &CompactionPlan) -> Vec<u64> {
    let mut bytes: Vec<u64> = plan.overlapping.iter().map(|below| below.size_bytes).collect();
    let place =
        |key: &[u8]| plan.overlapping.partition_point(|below| below.smallest_user_key() <= key).saturating_sub(1);
    for file in &plan.inputs {
        let (first, last) = (place(file.smallest_user_key()), place(file.largest_user_key()));
        let share_bytes = file.size_bytes / (last - first + 1) as u64;
        bytes.iter_mut().skip(first).take(last - first + 1).for_each(|sum| *sum = sum.saturating_add(share_bytes));
    }
    bytes
}

/// The next step: the oldest table of level 0 as long as one there has deletions, then of the highest level with
/// deletions the table with most. Where nothing is below it is rewritten, which drops them if every reader has seen
/// them; else it goes down one level. At last tables leave level 0 that need none of their own below. Only what there is
/// space for.
///
/// It ends: each step takes deletions one level down, or away, or a table out of level 0.
pub(super) fn reclaim(version: &Version, shortage: &Shortage, options: &PolicyOptions) -> Option<CompactionPlan> {
    let targets = level_targets(version, options);
    let fits = |plan: &CompactionPlan| shortage.fits(version, plan);
    let down = |level: usize, output_level: usize, file: &Arc<FileMeta>| {
        finish(version, Reason::Space, level, output_level, vec![file.clone()], &Busy::default()).filter(fits)
    };
    let oldest = || version.levels[0].last().and_then(|file| down(0, targets.below_level0(version), file));
    let gathered = || lazy::reclaim(version, shortage).filter(|_| lazy::is_lazy(version, options));
    if !shortage.brings_deletions {
        return oldest().filter(|plan| shortage.saves_tables(plan)).or_else(gathered);
    }
    let has_deletions = version.levels[0].iter().any(|file| file.deletions > 0);
    if let Some(plan) = oldest().filter(|_| has_deletions) {
        return Some(plan);
    }
    let last = version.levels.len() - 1;
    let step = |level: usize| {
        let mut files: Vec<&Arc<FileMeta>> = version.levels[level].iter().filter(|file| file.deletions > 0).collect();
        files.sort_by_key(|file| Reverse(file.deletions));
        files.into_iter().find_map(|file| {
            let (smallest, largest) = (file.smallest_user_key(), file.largest_user_key());
            if (level + 1..=last).all(|below| version.overlapping(below, smallest, largest).is_empty()) {
                return shortage.is_seen_by_all(file).then(|| in_place(level, vec![file.clone()])).filter(fits);
            }
            down(level, (level + 1).max(targets.base_level.min(next_non_empty(version, level))), file)
        })
    };
    (1..=last).find_map(step).or_else(|| oldest().filter(|plan| shortage.saves_tables(plan))).or_else(gathered)
}

/// Plans one compaction from the uppermost level with deletions to the deepest level it overlaps. Inputs are all tables of level 0, or
/// the table with most deletions of a deeper level, and everything they overlap between. Done in pieces, it frees space from the first
/// piece on, where single steps down would take a table each.
pub(super) fn through(version: &Version, shortage: &Shortage) -> Option<CompactionPlan> {
    let with_deletions = |level: &usize| version.levels[*level].iter().any(|file| file.deletions > 0);
    let input_level = (0..version.levels.len()).find(with_deletions).filter(|_| shortage.brings_deletions)?;
    let inputs = match input_level {
        0 => version.levels[0].to_vec(),
        _ => vec![version.levels[input_level].iter().max_by_key(|file| file.deletions)?.clone()],
    };
    let key_min = inputs.iter().map(|file| file.smallest_user_key().to_vec()).min()?;
    let key_max = inputs.iter().map(|file| file.largest_user_key().to_vec()).max()?;
    let (mut smallest, mut largest) = (key_min, key_max);
    let mut below = Vec::new();
    for level in input_level + 1..version.levels.len() {
        for file in version.overlapping(level, &smallest, &largest) {
            smallest = smallest.min(file.smallest_user_key().to_vec());
            largest = largest.max(file.largest_user_key().to_vec());
            below.push((level, file));
        }
    }
    let (output_level, _) = below.last()?.clone();
    let (overlapping, between): (Vec<_>, Vec<_>) = below.into_iter().partition(|(level, _)| *level == output_level);
    let overlapping = overlapping.into_iter().map(|(_, file)| file).collect();
    let plan = CompactionPlan::new(Reason::Space, (input_level, inputs), (output_level, overlapping));
    Some(CompactionPlan { between, ..plan }).filter(|plan| shortage.fits(version, plan))
}

/// One table to the next level that holds anything of its keys, or where none does rewritten in place. Of level 0 all tables that
/// are connected with it by overlaps go, as ages must not be mixed.
pub(super) fn relieve(
    version: &Version,
    busy: &Busy,
    (level, file): (usize, &Arc<FileMeta>),
    options: &PolicyOptions,
) -> Option<CompactionPlan> {
    let (smallest, largest) = (file.smallest_user_key(), file.largest_user_key());
    let is_lowest =
        (level + 1..version.levels.len()).all(|below| version.overlapping(below, smallest, largest).is_empty());
    if level > 0 && is_lowest {
        let in_place = CompactionPlan { reason: Reason::Tombstones, ..in_place(level, vec![file.clone()]) };
        let is_free = !busy.contains(file.number) && !busy.writes_into(level, smallest, largest);
        return Some(in_place).filter(|_| is_free);
    }
    let targets = level_targets(version, options);
    let (inputs, output_level) = match level {
        0 => (version.closure(0, Some(smallest), Some(largest)), targets.below_level0(version)),
        _ => (vec![file.clone()], (level + 1).max(targets.base_level.min(next_non_empty(version, level)))),
    };
    finish(version, Reason::Tombstones, level, output_level, inputs, busy)
}
