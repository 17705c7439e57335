//! Counts of the deletions that scans step over, and their way from an iterator to its tree.
//!
//! A deletion stays in the tree until a compaction brings it to what it deletes, and a scan steps over it until then. An iterator
//! counts such steps by where the deletion is, in a memtable or in which table, and reports them to its tree now and then. What
//! the tree does about it is decided by `policy/tombstones`. A scan over live entries counts and reports nothing.

use crate::file_name::FileName;
use crate::iterator::BlockPlace;
use crate::key::{self, Sequence};
use crate::snapshot::SnapshotList;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Deletions stepped over between two reports of an iterator that goes on.
const REPORTED_AT: u64 = 4096;

/// Receiver of the reports of iterators.
pub(crate) trait ScanObserver: Send + Sync {
    /// Newest sequence number that every reader sees. Deletions behind it cannot be dropped.
    fn oldest_view(&self) -> Sequence;

    /// Takes a report.
    fn note(&self, report: ScanReport);
}

/// Counts over all scans of a tree that keeps everything in one memtable.
pub(crate) struct MemtableSteps {
    snapshots: Arc<SnapshotList>,
    steps: AtomicU64,
    skipped_entries: AtomicU64,
}

impl MemtableSteps {
    pub(crate) fn new(snapshots: Arc<SnapshotList>) -> Arc<MemtableSteps> {
        Arc::new(MemtableSteps { snapshots, steps: AtomicU64::new(0), skipped_entries: AtomicU64::new(0) })
    }

    /// Steps over deletions since the last reset.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Entries that were stepped over and not shown.
    pub(crate) fn skipped_entries(&self) -> u64 {
        self.skipped_entries.load(Ordering::Relaxed)
    }

    /// The deletions were dropped.
    pub(crate) fn reset(&self) {
        self.steps.store(0, Ordering::Relaxed);
    }
}

impl ScanObserver for MemtableSteps {
    fn oldest_view(&self) -> Sequence {
        self.snapshots.oldest()
    }

    fn note(&self, report: ScanReport) {
        self.steps.fetch_add(report.memtable_deletions, Ordering::Relaxed);
        self.skipped_entries.fetch_add(report.skipped_entries, Ordering::Relaxed);
    }
}

/// Entries that an iterator stepped over since its last report.
#[derive(Debug, Default)]
pub(crate) struct ScanReport {
    /// Entries no reader at this place sees: deletions, what they delete, older versions, and versions that are too new.
    pub(crate) skipped_entries: u64,
    /// Deletions in memtables that every reader sees.
    pub(crate) memtable_deletions: u64,
    /// Smallest and largest user key of those.
    pub(crate) memtable_keys: Option<(Vec<u8>, Vec<u8>)>,
    /// The same deletions in tables, by the table's name.
    tables: Vec<(Arc<str>, u64)>,
}

impl ScanReport {
    /// Numbers of tables, and the deletions stepped over in each.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (u64, u64)> {
        self.tables.iter().filter_map(|(name, deletions)| Some((FileName::parse(name)?.number()?, *deletions)))
    }

    fn deletions(&self) -> u64 {
        self.tables.iter().fold(self.memtable_deletions, |sum, (_, deletions)| sum + deletions)
    }
}

/// Counts for one iterator; reports what is left when it is dropped.
pub(crate) struct ScanTally {
    observer: Arc<dyn ScanObserver>,
    /// Asked for at the first deletion.
    oldest_view: Option<Sequence>,
    report: ScanReport,
    /// Place in the report of the table of the last deletion.
    last_table: usize,
    unreported: u64,
}

impl ScanTally {
    pub(crate) fn new(observer: Arc<dyn ScanObserver>) -> ScanTally {
        ScanTally { observer, oldest_view: None, report: ScanReport::default(), last_table: 0, unreported: 0 }
    }

    /// The iterator left an entry that it does not show.
    #[inline]
    pub(crate) fn skip(&mut self) {
        self.report.skipped_entries += 1;
    }

    /// The iterator stands on a deletion, in this block or in a memtable.
    pub(crate) fn note_deletion(&mut self, internal_key: &[u8], place: Option<BlockPlace<'_>>) {
        let oldest_view = *self.oldest_view.get_or_insert_with(|| self.observer.oldest_view());
        if key::sequence(internal_key) > oldest_view {
            return;
        }
        match place {
            None => self.note_in_memtable(key::user_key(internal_key)),
            Some(place) => {
                let is_it = |(name, _): &(Arc<str>, u64)| Arc::ptr_eq(name, place.table);
                let tables = &mut self.report.tables;
                if !tables.get(self.last_table).is_some_and(is_it) {
                    self.last_table = tables.iter().position(is_it).unwrap_or_else(|| {
                        tables.push((place.table.clone(), 0));
                        tables.len() - 1
                    });
                }
                tables[self.last_table].1 += 1;
            }
        }
        self.unreported += 1;
        if self.unreported >= REPORTED_AT {
            self.send();
        }
    }

    fn note_in_memtable(&mut self, user_key: &[u8]) {
        self.report.memtable_deletions += 1;
        match &mut self.report.memtable_keys {
            None => self.report.memtable_keys = Some((user_key.to_vec(), user_key.to_vec())),
            Some((smallest, _)) if user_key < smallest.as_slice() => {
                smallest.clear();
                smallest.extend_from_slice(user_key);
            }
            Some((_, largest)) if user_key > largest.as_slice() => {
                largest.clear();
                largest.extend_from_slice(user_key);
            }
            Some(_) => {}
        }
    }

    fn send(&mut self) {
        let report = std::mem::take(&mut self.report);
        debug_assert_eq!(report.deletions(), self.unreported);
        (self.unreported, self.last_table) = (0, 0);
        // Views that were dropped since then hold nothing back any more.
        self.oldest_view = None;
        self.observer.note(report);
    }
}

impl Drop for ScanTally {
    fn drop(&mut self) {
        if self.report.skipped_entries > 0 {
            self.send();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::EntryKind;
    use parking_lot::Mutex;

    #[derive(Default)]
    struct Reports {
        oldest_view: Sequence,
        reports: Mutex<Vec<ScanReport>>,
    }

    impl ScanObserver for Reports {
        fn oldest_view(&self) -> Sequence {
            self.oldest_view
        }
        fn note(&self, report: ScanReport) {
            self.reports.lock().push(report);
        }
    }

    fn deletion(user_key: &str, sequence: Sequence) -> Vec<u8> {
        let mut internal = Vec::new();
        key::append_internal_key(&mut internal, user_key.as_bytes(), sequence, EntryKind::Delete as u8);
        internal
    }

    #[test]
    fn deletions_are_counted_by_place_unless_a_reader_stands_before_them() {
        let reports = Arc::new(Reports { oldest_view: 50, ..Reports::default() });
        let mut tally = ScanTally::new(reports.clone());
        let tables: [Arc<str>; 3] = ["000007.sst".into(), "000008.sst".into(), "what.is.this".into()];
        for (key, sequence, table) in
            [("c", 50, None), ("a", 1, None), ("x", 51, None), ("b", 9, Some(1)), ("d", 9, Some(0)), ("e", 9, Some(1))]
        {
            tally.skip();
            let place = |table: usize| BlockPlace { table: &tables[table], offset_bytes: 0, records: None };
            tally.note_deletion(&deletion(key, sequence), table.map(place));
        }
        tally.note_deletion(&deletion("z", 1), Some(BlockPlace { table: &tables[2], offset_bytes: 0, records: None }));
        drop(tally);
        let reports = reports.reports.lock();
        let [report] = &reports[..] else { panic!("one report") };
        assert_eq!((report.skipped_entries, report.memtable_deletions), (6, 2));
        assert_eq!(report.memtable_keys, Some((b"a".to_vec(), b"c".to_vec())));
        assert_eq!(report.tables().collect::<Vec<_>>(), [(8, 2), (7, 1)]);
    }

    #[test]
    fn long_scans_report_on_the_way_and_live_ones_never() {
        let reports = Arc::new(Reports { oldest_view: u64::MAX, ..Reports::default() });
        drop(ScanTally::new(reports.clone()));
        assert!(reports.reports.lock().is_empty());
        let mut tally = ScanTally::new(reports.clone());
        for _ in 0..REPORTED_AT + 1 {
            tally.skip();
            tally.note_deletion(&deletion("a", 1), None);
        }
        assert_eq!(reports.reports.lock().len(), 1);
        drop(tally);
        let sum: u64 = reports.reports.lock().iter().map(|report| report.memtable_deletions).sum();
        assert_eq!(sum, REPORTED_AT + 1);
    }
}
