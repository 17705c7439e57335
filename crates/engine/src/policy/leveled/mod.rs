//! Levels of disjoint tables, each a multiple of the one above: what to compact, as a pure function from the
//! shape of the tree to a plan.
//!
//! Leveled compaction as in LevelDB and RocksDB: level 0 holds overlapping tables by age, deeper
//! levels hold disjoint tables. A level whose score reaches 1 gives tables to the next one, or, where options allow that space is
//! given for it, many levels wait for the last one ([`lazy`]).

mod lazy;
mod reclaim;

use crate::key::Sequence;
use crate::options::{CompactionPriority, Options};
use crate::shape::{Busy, CompactionPlan, CompactionPolicy, FileMeta, JobClaim, Reason, Shortage, Version};
use std::sync::Arc;

/// The leveled compaction policy.
pub(crate) struct Leveled {
    options: PolicyOptions,
    level_count: usize,
}

impl CompactionPolicy for Leveled {
    fn new(options: &Options) -> Self {
        Leveled {
            options: PolicyOptions {
                level0_file_num_compaction_trigger: options.level0_file_num_compaction_trigger,
                level0_score_by_bytes: options.experiment.level0_score_by_bytes,
                level0_waiting_max: options.level0_slowdown_writes_trigger / 5 * 3,
                max_bytes_for_level_base: options.max_bytes_for_level_base,
                max_bytes_for_level_multiplier: options.max_bytes_for_level_multiplier,
                dynamic_level_bytes: options.level_compaction_dynamic_level_bytes,
                max_compaction_bytes: options.max_compaction_bytes,
                max_size_amplification_percent: options.max_size_amplification_percent,
                priority: options.compaction_pri,
            },
            level_count: options.num_levels,
        }
    }

    fn name(&self) -> &'static str {
        "leveled"
    }

    fn level_count(&self) -> usize {
        self.level_count
    }

    fn disjoint_from(&self) -> usize {
        1
    }

    fn histogram_bytes(&self) -> usize {
        0
    }

    fn pick(&self, version: &Version, busy: &Busy, _oldest_view: Sequence, space_bytes: u64) -> Option<CompactionPlan> {
        pick_within(version, busy, &self.options, space_bytes)
    }

    fn next_of_range(
        &self,
        version: &Version,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
        last: Option<&JobClaim>,
    ) -> Option<CompactionPlan> {
        next_of_range(version, begin, end, last, &self.options)
    }

    fn split(&self, version: &Version, plan: &CompactionPlan, space_bytes: u64) -> Option<CompactionPlan> {
        reclaim::split(version, plan, space_bytes)
    }

    fn reclaim(&self, version: &Version, shortage: &Shortage) -> Option<CompactionPlan> {
        reclaim::reclaim(version, shortage, &self.options)
    }

    fn reclaim_through(&self, version: &Version, shortage: &Shortage) -> Option<CompactionPlan> {
        reclaim::through(version, shortage)
    }

    fn relieve(&self, version: &Version, busy: &Busy, table: (usize, &Arc<FileMeta>)) -> Option<CompactionPlan> {
        reclaim::relieve(version, busy, table, &self.options)
    }

    fn level0_tables(&self, version: &Version) -> usize {
        version.levels[0].len()
    }

    fn pending_bytes(&self, version: &Version) -> u64 {
        match lazy::is_lazy(version, &self.options) {
            true => lazy::pending_bytes(version, &self.options),
            false => pending_bytes(version, &level_targets(version, &self.options), &self.options),
        }
    }
}

/// The part of the options the policy looks at.
#[derive(Clone, Debug)]
struct PolicyOptions {
    level0_file_num_compaction_trigger: usize,
    /// Whether its bytes count beside its tables.
    level0_score_by_bytes: bool,
    /// So many tables of level 0 wait at most where they may ([`lazy`]).
    level0_waiting_max: usize,
    max_bytes_for_level_base: u64,
    max_bytes_for_level_multiplier: u64,
    dynamic_level_bytes: bool,
    max_compaction_bytes: u64,
    max_size_amplification_percent: u64,
    priority: CompactionPriority,
}

/// Size each level should have, and the level that level 0 compacts into.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LevelTargets {
    base_level: usize,
    /// Bytes by level; level 0 has no size target.
    target_bytes: Vec<u64>,
}

impl LevelTargets {
    /// Where tables of level 0 go. While a level above the base still holds tables, they are older than level 0 and newer
    /// than the base.
    fn below_level0(&self, version: &Version) -> usize {
        (1..self.base_level).find(|&level| !version.levels[level].is_empty()).unwrap_or(self.base_level)
    }
}

/// Sizes the levels should have. With dynamic level bytes the last level holds what it holds and
/// each level above is smaller by the multiplier, down to the first one not larger than
/// `max_bytes_for_level_base`; a level that would be smaller than a share of the base is skipped,
/// because moving data through it costs more than it saves.
fn level_targets(version: &Version, options: &PolicyOptions) -> LevelTargets {
    let last = version.levels.len() - 1;
    let multiplier = options.max_bytes_for_level_multiplier.max(2);
    let base_bytes = options.max_bytes_for_level_base.max(1);
    let mut target_bytes = vec![u64::MAX; last + 1];
    if !options.dynamic_level_bytes {
        let mut target = base_bytes;
        for slot in target_bytes.iter_mut().skip(1) {
            *slot = target;
            target = target.saturating_mul(multiplier);
        }
        return LevelTargets { base_level: 1.min(last), target_bytes };
    }
    if lazy::is_lazy(version, options) {
        return LevelTargets { base_level: last, target_bytes };
    }
    let first_non_empty = (1..=last).find(|&level| version.level_bytes(level) > 0).unwrap_or(last);
    let largest = (1..=last).map(|level| version.level_bytes(level)).max().unwrap_or(0);
    let mut base_level = last;
    target_bytes[last] = largest.max(base_bytes);
    // A new level appears only once it would hold a fair share of the base.
    while base_level > 1 {
        let above = target_bytes[base_level] / multiplier;
        if target_bytes[base_level] <= base_bytes || (above < base_bytes / 2 && base_level <= first_non_empty) {
            break;
        }
        base_level -= 1;
        target_bytes[base_level] = above.max(base_bytes / 2).min(target_bytes[base_level + 1]);
    }
    LevelTargets { base_level, target_bytes }
}

/// What level 0 wants: 1 or more is a compaction. `tables` and `bytes` are those that count; bytes are measured against the base
/// where options say so, else tables alone.
fn level0_score(tables: usize, bytes: u64, options: &PolicyOptions) -> f64 {
    let by_tables = tables as f64 / options.level0_file_num_compaction_trigger.max(1) as f64;
    match options.level0_score_by_bytes {
        true => by_tables.max(bytes as f64 / options.max_bytes_for_level_base.max(1) as f64),
        false => by_tables,
    }
}

/// Scores by level: 1 or more wants compaction.
fn scores(version: &Version, targets: &LevelTargets, busy: &Busy, options: &PolicyOptions) -> Vec<f64> {
    let last = version.levels.len() - 1;
    let idle = |level: usize| version.levels[level].iter().filter(|file| !busy.contains(file.number));
    let idle_bytes = |level: usize| idle(level).map(|file| file.size_bytes).sum::<u64>();
    (0..=last)
        .map(|level| {
            if level == 0 {
                level0_score(idle(0).count(), idle_bytes(0), options)
            } else if level == last {
                0.0
            } else if level < targets.base_level {
                // Above the base nothing should remain.
                if idle(level).next().is_some() { 1.5 } else { 0.0 }
            } else {
                idle_bytes(level) as f64 / targets.target_bytes[level] as f64
            }
        })
        .collect()
}

/// Bytes that compactions must still move until every score is below 1: the excess of each level
/// times what moving a byte of it costs (KVIMR and RocksDB slow writers by such an estimate).
fn pending_bytes(version: &Version, targets: &LevelTargets, options: &PolicyOptions) -> u64 {
    let last = version.levels.len() - 1;
    let mut pending: u64 = 0;
    let mut carried: u64 = 0;
    if level0_score(version.levels[0].len(), version.level_bytes(0), options) >= 1.0 {
        carried = version.level_bytes(0);
        pending = carried;
    }
    for level in targets.base_level..last {
        let size = version.level_bytes(level) + carried;
        let target = targets.target_bytes[level];
        carried = size.saturating_sub(target);
        if carried > 0 {
            let below = version.level_bytes(level + 1);
            let ratio = if size > 0 { below as f64 / size as f64 } else { 0.0 };
            pending = pending.saturating_add((carried as f64 * (1.0 + ratio)) as u64);
        }
    }
    pending
}

/// The next compaction worth doing that writes no more than `space_bytes`, if any: on a medium that is nearly
/// full a small compaction may free the space that a more urgent one needs.
fn pick_within(version: &Version, busy: &Busy, options: &PolicyOptions, space_bytes: u64) -> Option<CompactionPlan> {
    if lazy::is_lazy(version, options) {
        return lazy::pick(version, busy, options, space_bytes);
    }
    let targets = level_targets(version, options);
    let scores = scores(version, &targets, busy, options);
    let mut order: Vec<usize> = (0..scores.len()).filter(|&level| scores[level] >= 1.0).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    order.into_iter().find_map(|level| match level {
        0 => pick_level0(version, &targets, busy).filter(|plan| plan.written_bytes_max() <= space_bytes),
        _ => pick_level(version, level, &targets, busy, options, space_bytes),
    })
}

fn pick_level0(version: &Version, targets: &LevelTargets, busy: &Busy) -> Option<CompactionPlan> {
    // Tables leave level 0 oldest first and together; a second compaction of level 0 would break
    // the order of ages.
    if version.levels[0].is_empty() || version.levels[0].iter().any(|file| busy.contains(file.number)) {
        return None;
    }
    let output_level = targets.below_level0(version);
    let inputs = version.levels[0].to_vec();
    finish(version, Reason::Level0Tables, 0, output_level, inputs, busy)
}

fn pick_level(
    version: &Version,
    level: usize,
    targets: &LevelTargets,
    busy: &Busy,
    options: &PolicyOptions,
    space_bytes: u64,
) -> Option<CompactionPlan> {
    let output_level = (level + 1).max(targets.base_level.min(next_non_empty(version, level)));
    let last_key = busy.last_key(level);
    let below = &version.levels[output_level];
    // Both levels are in the order of keys: what a table overlaps begins and ends no earlier than what the one before it does.
    let (mut begin, mut end) = (0, 0);
    let mut best: Option<(u128, CompactionPlan)> = None;
    for (position, file) in version.levels[level].iter().enumerate() {
        // Deletions free space below: they count as if the table were larger.
        let weight = u128::from(file.size_bytes.max(1))
            + u128::from(file.size_bytes.max(1)) * u128::from(file.deletions) / u128::from(file.entries.max(1));
        let cost = match options.priority {
            CompactionPriority::MinOverlappingRatio => {
                begin += run_length(&below[begin..], |other| other.largest_user_key() < file.smallest_user_key());
                end = end.max(begin);
                end += run_length(&below[end..], |other| other.smallest_user_key() <= file.largest_user_key());
                let overlap: u64 = below[begin..end].iter().map(|other| other.size_bytes).sum();
                u128::from(overlap) * 1024 / weight
            }
            CompactionPriority::ByCompensatedSize => u128::MAX - weight,
            CompactionPriority::RoundRobin => {
                let is_behind = last_key.is_none_or(|last| file.smallest_user_key() > last);
                position as u128 + if is_behind { 0 } else { version.levels[level].len() as u128 }
            }
        };
        // A plan is made for those only that would be the best: most are not.
        if best.as_ref().is_some_and(|(least, _)| cost >= *least) {
            continue;
        }
        let plan = finish(version, Reason::LevelSize, level, output_level, vec![file.clone()], busy);
        if let Some(plan) = plan.filter(|plan| plan.written_bytes_max() <= space_bytes) {
            best = Some((cost, plan));
        }
    }
    let bytes_max = options.max_compaction_bytes.min(space_bytes);
    best.map(|(_, plan)| grow(version, plan, busy, bytes_max))
}

/// How many tables at the beginning of a run are such ones.
fn run_length(run: &[Arc<FileMeta>], is_such: impl Fn(&FileMeta) -> bool) -> usize {
    run.iter().take_while(|file| is_such(file)).count()
}

fn next_non_empty(version: &Version, level: usize) -> usize {
    (level + 1..version.levels.len())
        .find(|&below| !version.levels[below].is_empty())
        .unwrap_or(version.levels.len() - 1)
}

/// Adds input tables that need no further output tables, so that one pass moves more.
fn grow(version: &Version, plan: CompactionPlan, busy: &Busy, bytes_max: u64) -> CompactionPlan {
    let (Some(first), Some(last)) = (plan.overlapping.first(), plan.overlapping.last()) else {
        return plan;
    };
    let inputs: Vec<Arc<FileMeta>> = version.levels[plan.input_level]
        .iter()
        .filter(|file| {
            file.smallest_user_key() >= first.smallest_user_key() && file.largest_user_key() <= last.largest_user_key()
                || plan.inputs.iter().any(|input| input.number == file.number)
        })
        .cloned()
        .collect();
    if inputs.len() == plan.inputs.len() {
        return plan;
    }
    match finish(version, plan.reason, plan.input_level, plan.output_level, inputs, busy) {
        Some(larger) if larger.overlapping.len() == plan.overlapping.len() && larger.input_bytes() <= bytes_max => {
            larger
        }
        _ => plan,
    }
}

/// Completes a plan with the overlapping tables of the output level; `None` when one is busy, or
/// when a running compaction writes into the same range of the output level.
fn finish(
    version: &Version,
    reason: Reason,
    input_level: usize,
    output_level: usize,
    inputs: Vec<Arc<FileMeta>>,
    busy: &Busy,
) -> Option<CompactionPlan> {
    let smallest = inputs.iter().map(|file| file.smallest_user_key()).min()?;
    let largest = inputs.iter().map(|file| file.largest_user_key()).max()?;
    if inputs.iter().any(|file| busy.contains(file.number)) {
        return None;
    }
    let overlapping =
        if output_level == input_level { Vec::new() } else { version.overlapping(output_level, smallest, largest) };
    if overlapping.iter().any(|file| busy.contains(file.number)) {
        return None;
    }
    let plan = CompactionPlan::new(reason, (input_level, inputs), (output_level, overlapping));
    let (smallest, largest) = plan.key_range()?;
    (!busy.writes_into(output_level, smallest, largest)).then_some(plan)
}

/// The step of a manual compaction after `last`: level by level down to the deepest tables of the range, which are
/// rewritten once where they are, to drop what their deletions hid.
fn next_of_range(
    version: &Version,
    begin: Option<&[u8]>,
    end: Option<&[u8]>,
    last: Option<&JobClaim>,
    options: &PolicyOptions,
) -> Option<CompactionPlan> {
    let first = match last {
        None => 0,
        // It was the rewriting in place.
        Some(done) if done.input_level == done.output_level => return None,
        Some(done) if done.input_level == 0 => done.output_level,
        Some(done) => done.input_level + 1,
    };
    let rewrote_into = last.filter(|done| !done.is_trivial_move).map(|done| done.output_level);
    let deepest = version.levels.len() - 1;
    let (level, plan) = (first..=deepest)
        .find_map(|level| plan_range(version, level, begin, end, options).map(|plan| (level, plan)))?;
    let nothing_below = (level + 1..=deepest).all(|below| version.overlapping_bounds(below, begin, end).is_empty());
    if level > 0 && nothing_below {
        let dirty = plan.inputs.iter().any(|file| file.deletions > 0);
        let in_place = CompactionPlan { output_level: level, overlapping: Vec::new(), ..plan };
        return (dirty && rewrote_into != Some(level)).then_some(in_place);
    }
    Some(plan)
}

/// A plan that moves every table of `level` overlapping `[smallest, largest]` (unbounded when
/// `None`) to the next level that holds anything or is a target. For manual compaction.
fn plan_range(
    version: &Version,
    level: usize,
    smallest: Option<&[u8]>,
    largest: Option<&[u8]>,
    options: &PolicyOptions,
) -> Option<CompactionPlan> {
    let targets = level_targets(version, options);
    let mut inputs = version.overlapping_bounds(level, smallest, largest);
    if inputs.is_empty() {
        return None;
    }
    if level == 0 {
        // Ages must not be mixed: everything in level 0 that touches the range, transitively.
        inputs = version.closure(level, smallest, largest);
    }
    let last = version.levels.len() - 1;
    let output_level = if level == last {
        last
    } else if level == 0 {
        targets.below_level0(version)
    } else {
        (level + 1).max(targets.base_level.min(next_non_empty(version, level)))
    };
    finish(version, Reason::Manual, level, output_level, inputs, &Busy::default())
}

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod tests;
