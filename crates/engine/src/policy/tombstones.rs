//! Flushes and compactions that relieve scans of the deletions they step over.
//!
//! Pure: from counts of steps and the shape of the tree to a decision. It follows the rule of ski rental: work that ends the steps is
//! done once they have cost about as much as it does, so that both together cost at most about twice the least. Each count begins
//! again once its memtable was flushed or its table compacted, and only deletions count that can be dropped, so that no work is
//! repeated for deletions that a snapshot keeps.

use crate::key::Sequence;
use crate::shape::{Busy, CompactionPlan, CompactionPolicy, FileMeta, Version};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Steps over deletions that cost as much as the smallest flush or compaction: three syncs of a solid-state drive take about 10 ms, in
/// which a scan steps over about this many.
pub(crate) const STEPS_MIN: u64 = 1 << 17;

/// Steps that cost as much as flushing an entry before its memtable is full: it is merged about ten times more often than it
/// would have been, and each merge of an entry costs several steps.
const STEPS_PER_FLUSHED_ENTRY: u64 = 64;

/// Steps that cost as much as reading, merging and writing an entry once.
const STEPS_PER_COMPACTED_ENTRY: u64 = 16;

/// Steps over the deletions of each table, by its number.
pub(crate) type TableSteps = BTreeMap<u64, u64>;

/// True if memtables with `entries` are to be flushed because of `steps` over their deletions.
pub(crate) fn is_flush_due(steps: u64, entries: u64) -> bool {
    steps >= STEPS_MIN.max(entries.saturating_mul(STEPS_PER_FLUSHED_ENTRY))
}

/// True if a table whose deletions were stepped over this often may be worth a compaction.
pub(crate) fn is_dense(steps: u64) -> bool {
    steps >= STEPS_MIN
}

/// The compaction that takes the deletions of a dense table closer to what they delete, or drops them: of the table with most steps
/// for which one is worth it and fits in `space_bytes`. Tables with deletions that some reader does not see wait until all do.
pub(crate) fn relieving(
    (version, busy): (&Version, &Busy),
    steps: &TableSteps,
    oldest_view: Sequence,
    space_bytes: u64,
    policy: &dyn CompactionPolicy,
) -> Option<CompactionPlan> {
    if !steps.values().any(|steps| is_dense(*steps)) {
        return None;
    }
    let of = |file: &FileMeta| steps.get(&file.number).copied().unwrap_or(0);
    let is_candidate =
        |file: &FileMeta| is_dense(of(file)) && file.deletions > 0 && file.newest_sequence <= oldest_view;
    let mut dense: Vec<(usize, &Arc<FileMeta>)> = version.files().filter(|(_, file)| is_candidate(file)).collect();
    dense.sort_by_key(|(_, file)| (Reverse(of(file)), file.number));
    let is_worth_it = |plan: &CompactionPlan| {
        let sum = |count: fn(&FileMeta) -> u64| plan.all_inputs().map(|file| count(file)).fold(0, u64::saturating_add);
        let steps = plan.all_inputs().map(|file| of(file)).fold(0, u64::saturating_add);
        plan.is_trivial_move() || steps >= sum(|file| file.entries).saturating_mul(STEPS_PER_COMPACTED_ENTRY)
    };
    dense.into_iter().find_map(|(level, file)| {
        let plan = policy.relieve(version, busy, (level, file))?;
        Some(plan).filter(|plan| plan.written_bytes_max() <= space_bytes && is_worth_it(plan))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::policy::Leveled;
    use crate::shape::tests::table;

    #[test]
    fn a_flush_is_due_once_steps_cost_as_much() {
        assert!(!is_flush_due(STEPS_MIN - 1, 0) && is_flush_due(STEPS_MIN, 0));
        assert!(is_flush_due(STEPS_MIN, STEPS_MIN / STEPS_PER_FLUSHED_ENTRY));
        assert!(!is_flush_due(STEPS_MIN, STEPS_MIN / STEPS_PER_FLUSHED_ENTRY + 1));
        assert!(!is_flush_due(u64::MAX - 1, u64::MAX));
    }

    /// A table of level 0 over two hundred tables, of 100 entries each.
    #[test]
    fn a_compaction_is_due_once_steps_cost_as_much() {
        let below = (0..200).map(|number| table(number + 1, &format!("{number:03}a-{number:03}z"), 1, 0)).collect();
        let version = Version::new(vec![vec![table(300, "000-200", 1, 50)], below], 1);
        let plan = |steps: u64, oldest_view: Sequence| {
            let steps = TableSteps::from([(300, steps), (1, STEPS_MIN), (999, u64::MAX)]);
            let policy = Leveled::new(&Options { num_levels: 2, ..Options::default() });
            relieving((&version, &Busy::default()), &steps, oldest_view, u64::MAX, &policy)
        };
        let least = 201 * 100 * STEPS_PER_COMPACTED_ENTRY;
        assert!(least > STEPS_MIN, "its size decides");
        assert!(plan(least - 1 - STEPS_MIN, 300).is_none());
        assert_eq!(plan(least, 300).map(|plan| plan.all_inputs().count()), Some(201));
        assert!(plan(least, 299).is_none(), "some reader does not see all of its deletions");
    }
}
