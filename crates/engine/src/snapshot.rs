//! Snapshots: sequence numbers that compactions must keep readable.

use crate::key::Sequence;
use crate::sync::{Arc, ArcSwap, AtomicU64, Guard, Mutex};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Newest visible sequence number, and which older ones are still read.
#[derive(Debug)]
pub(crate) struct SnapshotList {
    visible: AtomicU64,
    held: Mutex<BTreeMap<Sequence, usize>>,
}

impl SnapshotList {
    pub(crate) fn new(visible: Sequence) -> Arc<Self> {
        Arc::new(SnapshotList { visible: AtomicU64::new(visible), held: Mutex::new(BTreeMap::new()) })
    }

    /// Newest sequence number readers may see.
    #[inline]
    pub(crate) fn visible(&self) -> Sequence {
        self.visible.load(Ordering::Acquire)
    }

    /// The state readers use now, and the sequence number to read it at: the snapshot's, or else the newest visible one.
    ///
    /// The state is loaded first. Then every write up to that number is either in this state or came after the
    /// memtables of this state were complete, and no version that shows at that number was dropped on the way to this
    /// state.
    #[inline]
    pub(crate) fn view<S>(&self, state: &ArcSwap<S>, snapshot: Option<&Snapshot>) -> (Guard<Arc<S>>, Sequence) {
        let state = state.load();
        (state, snapshot.map_or_else(|| self.visible(), Snapshot::sequence))
    }

    /// Makes writes up to `sequence` visible.
    #[inline]
    pub(crate) fn publish(&self, sequence: Sequence) {
        self.visible.store(sequence, Ordering::Release);
    }

    /// Holds the newest visible state.
    pub(crate) fn take(self: &Arc<Self>) -> Snapshot {
        let mut held = self.held.lock();
        // Read under the lock: a compaction that lists snapshots after this sees it.
        let sequence = self.visible();
        *held.entry(sequence).or_insert(0) += 1;
        Snapshot { sequence, list: self.clone() }
    }

    /// Held sequence numbers ascending, then the newest visible one: what a compaction starting
    /// now must keep readable.
    pub(crate) fn boundaries(&self) -> Vec<Sequence> {
        let held = self.held.lock();
        let visible = self.visible();
        let mut all: Vec<Sequence> = held.keys().copied().collect();
        if all.last() != Some(&visible) {
            all.push(visible);
        }
        all
    }

    /// The first of the boundaries: what every reader sees, now and from now on.
    pub(crate) fn oldest(&self) -> Sequence {
        self.held.lock().keys().next().copied().unwrap_or_else(|| self.visible())
    }

    pub(crate) fn len(&self) -> usize {
        self.held.lock().values().sum()
    }
}

/// A moment of the database. Reads given it see what was visible when it was taken, until it is
/// dropped. Cheap to take; holding it keeps overwritten data on the medium.
#[derive(Debug)]
pub struct Snapshot {
    sequence: Sequence,
    list: Arc<SnapshotList>,
}

impl Snapshot {
    /// Sequence number of the newest write it sees.
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    pub(crate) fn belongs_to(&self, list: &Arc<SnapshotList>) -> bool {
        Arc::ptr_eq(&self.list, list)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let mut held = self.list.held.lock();
        if let Some(count) = held.get_mut(&self.sequence) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.sequence);
            }
        }
    }
}

/// Decides, version by version of a key from newest to oldest, which no reader can see any more.
/// Readers stand at the `boundaries`; of all versions between two of them only the newest shows.
#[derive(Debug)]
pub(crate) struct VersionFilter {
    boundaries: Vec<Sequence>,
    /// Boundary through which the last version of the current key is seen.
    last: Option<usize>,
}

impl VersionFilter {
    pub(crate) fn new(boundaries: Vec<Sequence>) -> Self {
        VersionFilter { boundaries, last: None }
    }

    /// Tells that the next version belongs to another key.
    #[inline]
    pub(crate) fn begin_key(&mut self) {
        self.last = None;
    }

    /// Whether a version is hidden from every reader by a newer one.
    #[inline]
    pub(crate) fn is_hidden(&mut self, sequence: Sequence) -> bool {
        let boundary = self.boundary(sequence);
        let hidden = self.last == Some(boundary);
        self.last = Some(boundary);
        hidden
    }

    /// No reader stands before this version: what it deletes is deleted for all.
    #[inline]
    pub(crate) fn is_oldest_view(&self, sequence: Sequence) -> bool {
        self.boundary(sequence) == 0
    }

    #[inline]
    fn boundary(&self, sequence: Sequence) -> usize {
        if self.boundaries.len() == 1 {
            return usize::from(sequence > self.boundaries[0]);
        }
        self.boundaries.partition_point(|&boundary| boundary < sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_version_per_boundary_shows() {
        let mut filter = VersionFilter::new(vec![5, 10, 20]);
        filter.begin_key();
        let hidden: Vec<bool> = [25, 22, 15, 11, 10, 6, 5, 1].iter().map(|&s| filter.is_hidden(s)).collect();
        assert_eq!(hidden, [false, true, false, true, false, true, false, true]);
        assert!(filter.is_oldest_view(5) && !filter.is_oldest_view(6));
    }

    #[test]
    fn a_snapshot_counts_until_its_last_drop() {
        let list = SnapshotList::new(7);
        let (first, second) = (list.take(), list.take());
        list.publish(9);
        assert_eq!(list.boundaries(), [7, 9]);
        drop(first);
        assert_eq!(list.boundaries(), [7, 9]);
        drop(second);
        assert_eq!(list.boundaries(), [9]);
    }
}
