//! What readers see while memtables are switched, flushed, and rid of versions that nobody sees.
//!
//! All writes are of one key; the version of sequence number n is n.

use super::Model;
use crate::exploration::{Fault, is_planted};
use crate::snapshot::{SnapshotList, VersionFilter};
use crate::sync::{ArcSwap, AtomicU64, Mutex};
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) const MODELS: &[Model] = &[
    Model {
        name: "read state: a reader finds the newest version there was when it began, or a newer one it may see",
        run: |_| reader_and_flush(),
        seeds: 1,
        finds: &[Fault::SequenceFirst, Fault::RelaxedLoads, Fault::RelaxedStores],
    },
    Model {
        name: "read state: a snapshot shows the same version whatever is written and flushed",
        run: |_| snapshot_and_flush(),
        seeds: 1,
        finds: &[Fault::UnheldSnapshot, Fault::RelaxedLoads, Fault::RelaxedStores],
    },
];

/// Versions in memory: 0, or the one that was written.
type Memtable = [AtomicU64; 3];

fn memtable() -> Arc<Memtable> {
    Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)])
}

/// As the engine's: memtables from new to old, then what is in tables.
struct ReadState {
    memtables: Vec<Arc<Memtable>>,
    tables: Vec<u64>,
}

struct Tree {
    state: ArcSwap<ReadState>,
    snapshots: Arc<SnapshotList>,
    /// Orders replacements of the state.
    core: Mutex<()>,
}

impl Tree {
    /// Version 1 is in memory.
    fn new() -> Arc<Self> {
        let first = memtable();
        first[1].store(1, Ordering::Relaxed);
        Arc::new(Tree {
            state: ArcSwap::from_pointee(ReadState { memtables: vec![first], tables: Vec::new() }),
            snapshots: SnapshotList::new(1),
            core: Mutex::new(()),
        })
    }

    /// Writes version 2, and switches memtables.
    fn write_and_switch(&self) {
        let state = self.state.load();
        state.memtables[0][2].store(2, Ordering::Relaxed);
        self.snapshots.publish(2);
        let _core = self.core.lock();
        let state = self.state.load();
        let memtables = std::iter::once(memtable()).chain(state.memtables.iter().cloned()).collect();
        self.state.store(Arc::new(ReadState { memtables, tables: state.tables.clone() }));
    }

    /// Puts the memtable that takes no more writes into a table, if there is one, without the versions nobody sees.
    fn flush(&self) {
        let state = self.state.load();
        let [active, full] = &state.memtables[..] else { return };
        let mut filter = VersionFilter::new(self.snapshots.boundaries());
        filter.begin_key();
        let versions = full.iter().map(|version| version.load(Ordering::Relaxed)).rev().filter(|version| *version > 0);
        let tables = versions.filter(|version| !filter.is_hidden(*version)).collect();
        let _core = self.core.lock();
        self.state.store(Arc::new(ReadState { memtables: vec![active.clone()], tables }));
    }

    /// The newest version at `sequence` or before.
    fn find(state: &ReadState, sequence: u64) -> Option<u64> {
        let in_memory = state.memtables.iter().flat_map(|memtable| memtable.iter().rev());
        in_memory
            .map(|version| version.load(Ordering::Relaxed))
            .chain(state.tables.iter().copied())
            .find(|version| (1..=sequence).contains(version))
    }

    fn read(&self) -> Option<u64> {
        if is_planted(Fault::SequenceFirst) {
            let sequence = self.snapshots.visible();
            return Self::find(&self.state.load(), sequence);
        }
        let (state, sequence) = self.snapshots.view(&self.state, None);
        Self::find(&state, sequence)
    }
}

fn reader_and_flush() {
    let tree = Tree::new();
    let writer = {
        let tree = tree.clone();
        thread::spawn(move || tree.write_and_switch())
    };
    let flusher = {
        let tree = tree.clone();
        thread::spawn(move || tree.flush())
    };
    let visible = tree.snapshots.visible();
    let first = tree.read();
    let second = tree.read();
    assert!(first >= Some(visible), "version {first:?} was found when {visible} was visible before");
    assert!(second >= first, "version {first:?} was found, and then {second:?}");
    writer.join().unwrap();
    flusher.join().unwrap();
    tree.flush();
    assert_eq!(tree.read(), Some(2));
}

fn snapshot_and_flush() {
    let tree = Tree::new();
    let writer = {
        let tree = tree.clone();
        thread::spawn(move || {
            tree.write_and_switch();
            tree.flush();
        })
    };
    let snapshot = tree.snapshots.take();
    let sequence = snapshot.sequence();
    let snapshot = Some(snapshot).filter(|_| !is_planted(Fault::UnheldSnapshot));
    for _ in 0..2 {
        let (state, at) = tree.snapshots.view(&tree.state, snapshot.as_ref());
        let at = if snapshot.is_some() { at } else { sequence };
        assert_eq!(Tree::find(&state, at), Some(sequence), "what the snapshot shows");
    }
    drop(snapshot);
    writer.join().unwrap();
    assert_eq!((tree.read(), tree.snapshots.len()), (Some(2), 0));
}
