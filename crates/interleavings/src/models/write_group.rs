//! The write group: one leads at a time, everybody is committed once and told, nobody waits for ever.

use super::Model;
use crate::batch::WriteBatch;
use crate::commit::write_group::{Commit, Committer, Group, WriteGroup};
use crate::error::Error;
use crate::exploration::Fault;
use crate::key::Sequence;
use crate::snapshot::SnapshotList;
use crate::sync::waiting::{Condvar, Env, Mutex};
use crate::sync::{AtomicUsize, Published};
use loom::cell::UnsafeCell;
use loom::thread;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) const MODELS: &[Model] = &[
    Model {
        name: "write group: of three writers everyone is committed once, before it is told so",
        run: |_| three_write(),
        seeds: 1,
        finds: &[Fault::LostNotifications],
    },
    Model {
        name: "write group: of what two writers put in place beside each other a reader sees what is before what it sees",
        run: |_| two_apply(),
        seeds: 1,
        finds: &[Fault::RelaxedStores, Fault::RelaxedLoads],
    },
    Model {
        name: "write group: puts that wait for space let deletes go first that bring it",
        run: |_| puts_wait_for_deletes(),
        seeds: 1,
        finds: &[Fault::LostNotifications, Fault::RelaxedStores],
    },
    Model {
        name: "write group: after a commit that panicked everyone is told, and nothing is committed any more",
        run: |_| one_panics(),
        seeds: 1,
        finds: &[Fault::LostNotifications],
    },
];

/// What a log and its memtable are here: written by leaders without a lock, which shows whether there is one at a time.
struct Log {
    written: UnsafeCell<Vec<u32>>,
    /// The same as bits, for those who are told.
    committed: AtomicUsize,
    poisoned: AtomicUsize,
    /// Batches of this id panic.
    panics_at: Published<Option<u32>>,
}

// SAFETY: loom watches the cell, and ends a run in which two threads reach it at once.
unsafe impl Sync for Log {}

impl Log {
    fn new(panics_at: Option<u32>) -> Self {
        Log {
            written: UnsafeCell::new(Vec::new()),
            committed: AtomicUsize::new(0),
            poisoned: AtomicUsize::new(0),
            panics_at: Published::new(panics_at),
        }
    }

    fn write(&self, first: &WriteBatch, others: &[WriteBatch]) -> Result<Commit, Error> {
        if self.poisoned.load(Ordering::Relaxed) > 0 {
            return Err(Error::Poisoned);
        }
        // SAFETY: one leader at a time, which loom watches.
        let before = self.written.with(|written| unsafe { (*written).len() }) as u64;
        for id in std::iter::once(first).chain(others).filter_map(WriteBatch::id) {
            // SAFETY: one leader at a time, which loom watches.
            self.written.with_mut(|written| unsafe { (*written).push(id) });
            if *self.panics_at.get() == Some(id) {
                resume_unwind(Box::new("planted"));
            }
        }
        Ok(Commit::Logged { first_sequence: before + 1, count: 1 + others.len() as u64 })
    }

    fn apply(&self, first: &WriteBatch, others: &[WriteBatch]) {
        for id in std::iter::once(first).chain(others).filter_map(WriteBatch::id) {
            self.committed.fetch_add(1 << id, Ordering::Relaxed);
        }
    }

    fn assert_told(&self, id: u32) {
        assert!(self.committed.load(Ordering::Relaxed) & (1 << id) != 0, "{id} was told before it was committed");
    }

    /// When all have ended.
    fn written(&self) -> Vec<u32> {
        // SAFETY: as in `write`.
        let mut written = self.written.with(|written| unsafe { (*written).clone() });
        written.sort_unstable();
        written
    }
}

struct Plain(Log);

impl Committer for Plain {
    fn write_log(&self, group: &Group<'_>) -> Result<Commit, Error> {
        self.0.write(group.first, group.others)
    }

    fn apply(&self, group: &Group<'_>, _: Sequence) {
        self.0.apply(group.first, group.others);
    }

    fn is_short_of_space(&self) -> bool {
        false
    }

    fn delete_waits(&self) {}

    fn panicked(&self, _: &(dyn Any + Send)) -> Error {
        self.0.poisoned.store(1, Ordering::Relaxed);
        Error::Poisoned
    }
}

fn three_write() {
    let path = Arc::new((WriteGroup::new(&Env, &SnapshotList::new(0)), Plain(Log::new(None))));
    let write = |path: &(WriteGroup, Plain), id: u32| {
        assert_eq!(path.0.write(&path.1, WriteBatch::put(id), id == 1), Ok(()));
        path.1.0.assert_told(id);
    };
    let writers: Vec<_> = (1..3)
        .map(|id| {
            let path = path.clone();
            thread::spawn(move || write(&path, id))
        })
        .collect();
    write(&path, 0);
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(path.1.0.written(), [0, 1, 2]);
}

/// Writers that put entries in place beside each other, as into a memtable.
struct Entries {
    log: Log,
    snapshots: Arc<SnapshotList>,
    group: WriteGroup,
    /// Of each sequence number, written before it is visible.
    places: [UnsafeCell<u32>; 3],
}

// SAFETY: loom watches the cells.
unsafe impl Sync for Entries {}

impl Committer for Entries {
    fn write_log(&self, group: &Group<'_>) -> Result<Commit, Error> {
        self.log.write(group.first, group.others)
    }

    fn apply(&self, group: &Group<'_>, first_sequence: Sequence) {
        let ids = std::iter::once(group.first).chain(group.others).filter_map(WriteBatch::id);
        for (id, place) in ids.zip(&self.places[first_sequence as usize..]) {
            // SAFETY: each place is of one writer until it is visible, which loom watches.
            place.with_mut(|entry| unsafe { *entry = id + 1 });
        }
    }

    fn is_short_of_space(&self) -> bool {
        false
    }

    fn delete_waits(&self) {}

    fn panicked(&self, _: &(dyn Any + Send)) -> Error {
        Error::Poisoned
    }
}

impl Entries {
    /// What is visible, each of which is in its place. The number of the newest.
    fn look(&self) -> u64 {
        let visible = self.snapshots.visible();
        for place in &self.places[1..=visible as usize] {
            // SAFETY: as above.
            assert!(place.with(|entry| unsafe { *entry }) > 0, "a place is empty below {visible}");
        }
        visible
    }
}

fn two_apply() {
    let snapshots = SnapshotList::new(0);
    let entries = Arc::new(Entries {
        log: Log::new(None),
        group: WriteGroup::new(&Env, &snapshots),
        snapshots,
        places: [0; 3].map(UnsafeCell::new),
    });
    let write = |entries: &Entries, id: u32| {
        assert_eq!(entries.group.write(entries, WriteBatch::put(id), false), Ok(()));
        assert!(entries.look() > 0, "what was written cannot be seen");
    };
    let writer = {
        let entries = entries.clone();
        thread::spawn(move || write(&entries, 1))
    };
    let reader = {
        let entries = entries.clone();
        thread::spawn(move || entries.look())
    };
    write(&entries, 0);
    writer.join().unwrap();
    assert!(reader.join().unwrap() <= 2);
    assert_eq!(entries.look(), 2);
}

/// As a tree that is full until something is deleted.
struct Full {
    log: Log,
    is_short: AtomicUsize,
    has_space: Mutex<bool>,
    done: Condvar,
    group: WriteGroup,
}

impl Committer for Full {
    fn write_log(&self, group: &Group<'_>) -> Result<Commit, Error> {
        let Group { first, others, .. } = *group;
        let has_puts = first.has_puts() || others.iter().any(WriteBatch::has_puts);
        let is_mixed = others.iter().any(|other| other.has_puts() != first.has_puts());
        if has_puts {
            self.is_short.store(usize::from(!*self.has_space.lock()), Ordering::SeqCst);
            let mut has_space = self.has_space.lock();
            while !*has_space {
                if is_mixed || self.group.has_waiting_deletes() {
                    return Ok(Commit::Yields);
                }
                self.done.wait(&mut has_space);
            }
        }
        let committed = self.log.write(first, others);
        if !has_puts {
            *self.has_space.lock() = true;
            self.done.notify_all();
        }
        committed
    }

    fn apply(&self, group: &Group<'_>, _: Sequence) {
        self.log.apply(group.first, group.others);
    }

    fn is_short_of_space(&self) -> bool {
        self.is_short.load(Ordering::SeqCst) > 0
    }

    fn delete_waits(&self) {
        drop(self.has_space.lock());
        self.done.notify_all();
    }

    fn panicked(&self, _: &(dyn Any + Send)) -> Error {
        Error::Poisoned
    }
}

fn puts_wait_for_deletes() {
    let path = Arc::new(Full {
        log: Log::new(None),
        is_short: AtomicUsize::new(0),
        has_space: Mutex::new(&Env, "space", false),
        done: Condvar::new(&Env, "space"),
        group: WriteGroup::new(&Env, &SnapshotList::new(0)),
    });
    let putters: Vec<_> = (0..2)
        .map(|id| {
            let path = path.clone();
            thread::spawn(move || {
                assert_eq!(path.group.write(&*path, WriteBatch::put(id), false), Ok(()));
                path.log.assert_told(id);
            })
        })
        .collect();
    assert_eq!(path.group.write(&*path, WriteBatch::delete(2), false), Ok(()));
    path.log.assert_told(2);
    for putter in putters {
        putter.join().unwrap();
    }
    assert_eq!(path.log.written(), [0, 1, 2]);
    assert!(!path.group.has_waiting_deletes());
}

fn one_panics() {
    let path = Arc::new((WriteGroup::new(&Env, &SnapshotList::new(0)), Plain(Log::new(Some(1)))));
    let write = |path: &(WriteGroup, Plain), id: u32| {
        catch_unwind(AssertUnwindSafe(|| path.0.write(&path.1, WriteBatch::put(id), false)))
            .unwrap_or(Err(Error::Poisoned))
    };
    let writers: Vec<_> = (1..3)
        .map(|id| {
            let path = path.clone();
            thread::spawn(move || write(&path, id))
        })
        .collect();
    let first = write(&path, 0);
    let others: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    assert_eq!(others[0], Err(Error::Poisoned));
    for (id, result) in [(0, first), (2, others[1].clone())] {
        if result.is_ok() {
            path.1.0.assert_told(id);
        }
    }
    assert_eq!(write(&path, 3), Err(Error::Poisoned));
}
