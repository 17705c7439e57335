//! Publication: commits become visible in the order of their sequence numbers, whoever puts them where readers look, and
//! whoever is done first.

use crate::error::Error;
use crate::key::Sequence;
use crate::snapshot::SnapshotList;
use crate::sync::Arc;
use crate::sync::waiting::{Condvar, Env, Mutex, spin_until};

/// What is applied and cannot be seen yet, as something before it is still being applied.
#[derive(Default)]
struct Ahead {
    /// First and last sequence number of each, in no order: there are no more than writers.
    applied: Vec<(Sequence, Sequence)>,
    waiting: usize,
    /// What will never be applied begins after what is visible.
    is_broken: bool,
}

/// See the module. Thread-safe; a commit costs one lock, and waits only for those before it.
pub(super) struct Publication {
    env: Env,
    snapshots: Arc<SnapshotList>,
    ahead: Mutex<Ahead>,
    changed: Condvar,
}

impl Publication {
    /// Behind what `snapshots` say is visible.
    pub(super) fn new(env: &Env, snapshots: &Arc<SnapshotList>) -> Self {
        Publication {
            env: env.clone(),
            snapshots: snapshots.clone(),
            ahead: Mutex::new(env, "publication", Ahead::default()),
            changed: Condvar::new(env, "published"),
        }
    }

    /// The entries with these sequence numbers are where readers look. Returns when they are visible, with all before them.
    ///
    /// Errors: they never will be.
    pub(super) fn publish(&self, first: Sequence, last: Sequence) -> Result<(), Error> {
        let mut ahead = self.ahead.lock();
        if first != self.snapshots.visible() + 1 {
            ahead.applied.push((first, last));
            drop(ahead);
            return self.settle(last);
        }
        let mut visible = last;
        while let Some(at) = ahead.applied.iter().position(|(first, _)| *first == visible + 1) {
            visible = ahead.applied.swap_remove(at).1;
        }
        self.snapshots.publish(visible);
        if ahead.waiting > 0 {
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Returns when everything up to `last` is visible.
    ///
    /// Errors: that will never be.
    pub(super) fn settle(&self, last: Sequence) -> Result<(), Error> {
        if spin_until(&self.env, || self.snapshots.visible() >= last) {
            return Ok(());
        }
        let mut ahead = self.ahead.lock();
        ahead.waiting += 1;
        while self.snapshots.visible() < last && !ahead.is_broken {
            self.changed.wait(&mut ahead);
        }
        ahead.waiting -= 1;
        if self.snapshots.visible() >= last { Ok(()) } else { Err(Error::broken_off()) }
    }

    /// Something that has its sequence numbers will not be applied: nothing behind it is ever visible.
    pub(super) fn break_off(&self) {
        self.ahead.lock().is_broken = true;
        self.changed.notify_all();
    }
}
