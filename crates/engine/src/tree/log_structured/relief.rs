//! Deletions that scans of a tree step over: the counts that flushes and compactions are decided by (`policy/tombstones`).

use super::level_iterator::Pinned;
use super::parts::TreeParts;
use crate::key::Sequence;
use crate::memtable::Partition;
use crate::policy::tombstones::{self, TableSteps};
use crate::scans::{ScanObserver, ScanReport};
use crate::shape::Version;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Counts over all scans of one tree. Thread-safe; its lock is held for a few steps at most.
#[derive(Default)]
pub(super) struct Scans {
    /// The tree that is relieved; none where nothing is written.
    tree: OnceLock<Weak<TreeParts>>,
    steps: parking_lot::Mutex<Steps>,
    is_flush_due: AtomicBool,
}

#[derive(Default)]
struct Steps {
    /// The memtables that were written when the steps below were counted.
    active: Weak<Partition>,
    /// Steps over deletions in memtables.
    in_memtables: u64,
    /// Smallest and largest user key of those.
    keys: Option<(Vec<u8>, Vec<u8>)>,
    /// Steps by table; may include tables that left the tree.
    in_tables: TableSteps,
}

impl Scans {
    /// Has `tree` relieved from now on.
    pub(super) fn relieve(&self, tree: &Arc<TreeParts>) {
        let _ = self.tree.set(Arc::downgrade(tree));
    }

    fn tree(&self) -> Option<Arc<TreeParts>> {
        self.tree.get().and_then(Weak::upgrade)
    }

    /// True if scans stepped over deletions in memtables often enough for a flush. Cost: reads a flag.
    #[inline]
    pub(super) fn is_flush_due(&self) -> bool {
        self.is_flush_due.load(Ordering::Relaxed)
    }

    /// The parts of `active` that are flushed now, if it is due. Counts from zero again.
    pub(super) fn take_flush(&self, active: &Arc<Partition>) -> Option<Range<usize>> {
        let mut steps = self.steps.lock();
        self.is_flush_due.store(false, Ordering::Relaxed);
        steps.in_memtables = 0;
        let is_of_active = std::ptr::eq(steps.active.as_ptr(), Arc::as_ptr(active));
        let (smallest, largest) = steps.keys.take().filter(|_| is_of_active)?;
        let part_of = |key: &[u8]| active.begins().partition_point(|begin| **begin <= *key).saturating_sub(1);
        Some(part_of(&smallest)..part_of(&largest) + 1)
    }

    fn note_in_memtables(&self, active: &Arc<Partition>, report: &ScanReport) {
        let mut steps = self.steps.lock();
        if !std::ptr::eq(steps.active.as_ptr(), Arc::as_ptr(active)) {
            (steps.active, steps.in_memtables, steps.keys) = (Arc::downgrade(active), 0, None);
        }
        steps.in_memtables = steps.in_memtables.saturating_add(report.memtable_deletions);
        if let Some((smallest, largest)) = &report.memtable_keys {
            steps.keys = Some(match steps.keys.take() {
                None => (smallest.clone(), largest.clone()),
                Some((low, high)) => (low.min(smallest.clone()), high.max(largest.clone())),
            });
        }
        if tombstones::is_flush_due(steps.in_memtables, active.entries()) {
            self.is_flush_due.store(true, Ordering::Relaxed);
        }
    }

    /// True if a table may have become worth a compaction.
    fn note_in_tables(&self, report: &ScanReport) -> bool {
        let mut steps = self.steps.lock();
        let mut has_grown = false;
        for (number, deletions) in report.tables() {
            let of_table = steps.in_tables.entry(number).or_default();
            let before = *of_table / tombstones::STEPS_MIN;
            *of_table = of_table.saturating_add(deletions);
            has_grown |= *of_table / tombstones::STEPS_MIN > before;
        }
        has_grown
    }

    /// Steps over the deletions of each table of a version, if there are dense ones. Forgets those of others.
    pub(super) fn table_steps(&self, version: &Version) -> TableSteps {
        let mut steps = self.steps.lock();
        if !steps.in_tables.values().any(|steps| tombstones::is_dense(*steps)) {
            return TableSteps::new();
        }
        let numbers: std::collections::BTreeSet<u64> = version.files().map(|(_, file)| file.number).collect();
        steps.in_tables.retain(|number, _| numbers.contains(number));
        steps.in_tables.clone()
    }

    /// A compaction of these tables begins. Their counts begin again, so that one that fails is not repeated at once.
    pub(super) fn forget(&self, tables: impl Iterator<Item = u64>) {
        let mut steps = self.steps.lock();
        for number in tables {
            steps.in_tables.remove(&number);
        }
    }
}

/// Receiver of the reports of one iterator. It reaches the tree through the iterator's pinned state, so that readers write no
/// shared reference count.
pub(super) struct ScanOfTree(pub(super) Arc<Pinned>);

impl ScanObserver for ScanOfTree {
    fn oldest_view(&self) -> Sequence {
        self.0.state.scans.tree().map_or(0, |tree| tree.snapshots.oldest())
    }

    fn note(&self, report: ScanReport) {
        let Some(tree) = self.0.state.scans.tree() else { return };
        tree.catalog.counters.scan_skipped_entries.fetch_add(report.skipped_entries, Ordering::Relaxed);
        let is_relieved = !tree.files.options.disable_auto_compactions && !tree.board.is_cancelled();
        if !is_relieved {
            return;
        }
        let state = tree.catalog.read_state.load();
        // Memtables that are not written any more are flushed anyway.
        if report.memtable_deletions > 0 && Arc::ptr_eq(&state.active, &self.0.state.active) {
            tree.scans.note_in_memtables(&state.active, &report);
        }
        if tree.scans.note_in_tables(&report) {
            tree.board.lock().dense_tables += 1;
            tree.board.work.notify_all();
        }
    }
}
