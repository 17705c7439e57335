//! The write group: writers queue up, and one of them leads and commits for all who wait.
//!
//! A leader whose puts wait for space yields for deletes that come behind it: for these there may be space, and they
//! may bring some. Nothing of its group was written then, and it queues up again.

use crate::batch::WriteBatch;
use crate::error::Error;
use crate::sync::waiting::{Condvar, Env, Mutex, MutexGuard};
use crate::sync::{self, Arc, AtomicUsize};
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;

/// Bytes of batches one leader gathers.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// What became of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commit {
    Done,
    /// It waits for space that others in the queue do not need.
    Yields,
}

/// What is committed together.
#[derive(Clone, Copy)]
pub(crate) struct Group<'a> {
    /// The leader's.
    pub(crate) first: &'a WriteBatch,
    /// Those of its followers.
    pub(crate) others: &'a [WriteBatch],
    /// Of all of them.
    pub(crate) bytes: usize,
    /// Durably.
    pub(crate) sync: bool,
}

/// What leaders do. One at a time calls it.
pub(crate) trait Committer {
    /// Commits a group. Nothing was done when it yields.
    fn commit(&self, group: &Group<'_>) -> Result<Commit, Error>;

    /// Puts may have to wait for space. Set before a leader asks [`WriteGroup::has_waiting_deletes`] and waits.
    fn is_short_of_space(&self) -> bool;

    /// Wakes a leader that waits for space: a batch of deletes came into the queue.
    fn delete_waits(&self);

    /// Ends writing after a commit panicked; what those are told who were in the group.
    fn panicked(&self, payload: &(dyn Any + Send)) -> Error;
}

/// A writer that waits to be led, or to lead.
struct Waiter {
    state: sync::Mutex<WaiterState>,
    called: Condvar,
}

struct WaiterState {
    batch: Option<WriteBatch>,
    sync: bool,
    result: Option<Result<(), Error>>,
    leads: bool,
}

impl WaiterState {
    /// Waits to delete, and nothing else.
    fn is_delete(&self) -> bool {
        self.batch.as_ref().is_some_and(|batch| !batch.is_empty() && !batch.has_puts())
    }
}

#[derive(Default)]
struct Queue {
    led: bool,
    waiting: VecDeque<Arc<Waiter>>,
}

/// How a lead ended.
enum Led<'a> {
    Done(Result<(), Error>),
    /// Its puts wait for space, and let deletes go before them: nothing of its group was written.
    Yielded(MutexGuard<'a, Queue>, WriteBatch),
}

/// The queue of writers and its leader. Thread-safe; a write costs one lock where nobody else writes.
pub(crate) struct WriteGroup {
    env: Env,
    queue: Mutex<Queue>,
    /// Batches of nothing but deletes in the queue. Changes under the lock of the queue.
    waiting_deletes: AtomicUsize,
}

impl WriteGroup {
    pub(crate) fn new(env: &Env) -> Self {
        WriteGroup {
            env: env.clone(),
            queue: Mutex::new(env, "write group", Queue::default()),
            waiting_deletes: AtomicUsize::new(0),
        }
    }

    /// Whether batches of nothing but deletes are in the queue.
    pub(crate) fn has_waiting_deletes(&self) -> bool {
        self.waiting_deletes.load(Ordering::SeqCst) > 0
    }

    /// Applies a batch; see [`crate::tree::Tree::write`].
    pub(crate) fn write(&self, committer: &impl Committer, mut batch: WriteBatch, sync: bool) -> Result<(), Error> {
        let mut queue = self.queue.lock();
        let mut waits = queue.led;
        queue.led = true;
        loop {
            if waits {
                let waiter = Arc::new(Waiter {
                    state: sync::Mutex::new(WaiterState { batch: Some(batch), sync, result: None, leads: false }),
                    called: Condvar::new(&self.env, "write group"),
                });
                self.join(committer, &mut queue, waiter.clone());
                batch = loop {
                    waiter.called.wait(&mut queue);
                    let mut state = waiter.state.lock();
                    if let Some(result) = state.result.take() {
                        return result;
                    }
                    if state.leads {
                        break state.batch.take().unwrap_or_default();
                    }
                };
            }
            (queue, batch) = match self.lead(committer, queue, batch, sync) {
                Led::Done(result) => return result,
                Led::Yielded(queue, batch) => (queue, batch),
            };
            // It goes behind those who are in the queue.
            waits = self.hand_on(&mut queue);
            queue.led = true;
        }
    }

    fn join(&self, committer: &impl Committer, queue: &mut Queue, waiter: Arc<Waiter>) {
        let is_delete = waiter.state.lock().is_delete();
        queue.waiting.push_back(waiter);
        if is_delete {
            self.waiting_deletes.fetch_add(1, Ordering::SeqCst);
            // The leader may wait for space that this one does not need.
            if committer.is_short_of_space() {
                committer.delete_waits();
            }
        }
    }

    fn take(&self, queue: &mut Queue) -> Option<Arc<Waiter>> {
        let next = queue.waiting.pop_front()?;
        if next.state.lock().is_delete() {
            self.waiting_deletes.fetch_sub(1, Ordering::SeqCst);
        }
        Some(next)
    }

    /// The next one in the queue leads; false when there is none.
    fn hand_on(&self, queue: &mut Queue) -> bool {
        let next = self.take(queue);
        if let Some(next) = &next {
            next.state.lock().leads = true;
            next.called.notify_one();
        }
        queue.led = next.is_some();
        queue.led
    }

    /// Commits `batch` and as many waiting ones as fit, then hands the lead on.
    fn lead<'a>(
        &'a self,
        committer: &impl Committer,
        mut queue: MutexGuard<'a, Queue>,
        batch: WriteBatch,
        mut sync: bool,
    ) -> Led<'a> {
        let mut followers: Vec<Arc<Waiter>> = Vec::new();
        let mut batches = Vec::new();
        let mut bytes = batch.size_bytes();
        while let Some(next) = queue.waiting.front() {
            let state = next.state.lock();
            let next_bytes = state.batch.as_ref().map_or(0, WriteBatch::size_bytes);
            // Deletes may be taken where puts are not.
            let is_apart = committer.is_short_of_space()
                && state.batch.as_ref().is_some_and(|next| next.has_puts() != batch.has_puts());
            if bytes + next_bytes > GROUP_BYTES_MAX || is_apart {
                break;
            }
            bytes += next_bytes;
            sync |= state.sync;
            drop(state);
            let Some(follower) = self.take(&mut queue) else { break };
            batches.extend(follower.state.lock().batch.take());
            followers.push(follower);
        }
        drop(queue);

        let group = Group { first: &batch, others: &batches, bytes, sync };
        let committed = catch_unwind(AssertUnwindSafe(|| committer.commit(&group)));
        let (result, panicked) = match committed {
            Ok(Ok(Commit::Yields)) => {
                let mut queue = self.queue.lock();
                for (follower, batch) in followers.into_iter().zip(batches) {
                    follower.state.lock().batch = Some(batch);
                    self.join(committer, &mut queue, follower);
                }
                return Led::Yielded(queue, batch);
            }
            Ok(result) => (result.map(|_| ()), None),
            Err(payload) => (Err(committer.panicked(&*payload)), Some(payload)),
        };

        let mut queue = self.queue.lock();
        for follower in followers {
            follower.state.lock().result = Some(result.clone());
            follower.called.notify_one();
        }
        self.hand_on(&mut queue);
        drop(queue);
        if let Some(payload) = panicked {
            resume_unwind(payload);
        }
        Led::Done(result)
    }
}
