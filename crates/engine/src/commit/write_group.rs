//! The write group: writers queue up, and one of them leads and commits for all who wait.
//!
//! A leader leads until its group is in the log. What is left, to put it where readers look, it does beside those who lead after
//! it. Who finds another one leading tries again for as long as that takes where nothing is synced; then it queues up. Whoever
//! leads next commits for those in the queue: nobody waits for one of them to wake up.
//!
//! A leader whose puts wait for space yields for deletes that come behind it: for these there may be space, and they
//! may bring some. Nothing of its group was written then, and it queues up again. As long as space is short all queue up.

use super::gathering::Gathering;
use super::publication::Publication;
use crate::batch::WriteBatch;
use crate::error::Error;
use crate::key::Sequence;
use crate::snapshot::SnapshotList;
use crate::sync::waiting::{
    Condvar, Env, Mutex, MutexGuard, can_yield, now_nanos, spin_until, wait_until, yield_until,
};
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
    /// It is in the log, with these sequence numbers: it has to be put where readers look.
    Logged { first_sequence: Sequence, count: u64 },
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

/// What leaders do.
pub(crate) trait Committer {
    /// Writes a group to the log. Nothing was done when it yields. One at a time calls it.
    fn write_log(&self, group: &Group<'_>) -> Result<Commit, Error>;

    /// Puts a group that is in the log where readers look. Any number call it at a time, each for its own group.
    fn apply(&self, group: &Group<'_>, first_sequence: Sequence);

    /// Puts may have to wait for space. Set before a leader asks [`WriteGroup::has_waiting_deletes`] and waits.
    fn is_short_of_space(&self) -> bool;

    /// Wakes a leader that waits for space: a batch of deletes came into the queue.
    fn delete_waits(&self);

    /// Ends writing after one of its calls panicked; what those are told who were in the group.
    fn panicked(&self, payload: &(dyn Any + Send)) -> Error;
}

/// A writer in the queue, or one of a group.
struct Waiter {
    state: sync::Mutex<WaiterState>,
    called: Condvar,
}

struct WaiterState {
    /// Gone when it is in a group.
    batch: Option<WriteBatch>,
    sync: bool,
    result: Option<Result<(), Error>>,
}

impl WaiterState {
    /// Waits to delete, and nothing else.
    fn is_delete(&self) -> bool {
        self.batch.as_ref().is_some_and(|batch| !batch.is_empty() && !batch.has_puts())
    }
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Arc<Waiter>>,
    gathering: Gathering,
    /// A leader waits until so many are in the queue.
    awaited: Option<usize>,
}

/// What a call panicked with.
type Panic = Box<dyn Any + Send>;

/// What went wrong, and what a call panicked with if that was it.
type Failure = (Error, Option<Panic>);

/// How far a write has come.
enum Progress<'a> {
    /// It is committed, or failed.
    Done(Result<(), Error>),
    /// It has the queue, and is not in it: because nobody leads, or because its puts wait for space and let deletes go before
    /// them. Nothing of it was written.
    HoldsQueue(MutexGuard<'a, Queue>, WriteBatch),
}

/// Whom a leader commits for beside itself.
struct Followers {
    waiters: Vec<Arc<Waiter>>,
    /// Theirs, in that order.
    batches: Vec<WriteBatch>,
    /// Of these and the leader's.
    bytes: usize,
    /// One of them, or the leader, wants it durable.
    sync: bool,
}

/// Nobody leads.
const FREE: usize = 0;
/// Somebody does, and writes to memory.
const LED: usize = 1;
/// Somebody does, and waits for the medium.
const SYNCS: usize = 2;

/// The queue of writers and its leader. Thread-safe; a write costs three locks, that of its publication included, where
/// nobody else writes.
pub(crate) struct WriteGroup {
    env: Env,
    queue: Mutex<Queue>,
    gathered: Condvar,
    /// Whether somebody leads. Changes under the lock of the queue.
    lead: AtomicUsize,
    /// Writers in the queue. Changes under its lock.
    queued: AtomicUsize,
    /// Batches of nothing but deletes in the queue. Changes under the lock of the queue.
    waiting_deletes: AtomicUsize,
    publication: Publication,
}

impl WriteGroup {
    /// Writes are visible when `snapshots` say so.
    pub(crate) fn new(env: &Env, snapshots: &Arc<SnapshotList>) -> Self {
        WriteGroup {
            env: env.clone(),
            queue: Mutex::new(env, "write group", Queue::default()),
            gathered: Condvar::new(env, "writers to sync with"),
            lead: AtomicUsize::new(FREE),
            queued: AtomicUsize::new(0),
            waiting_deletes: AtomicUsize::new(0),
            publication: Publication::new(env, snapshots),
        }
    }

    /// Whether batches of nothing but deletes are in the queue.
    pub(crate) fn has_waiting_deletes(&self) -> bool {
        self.waiting_deletes.load(Ordering::SeqCst) > 0
    }

    /// Returns when everything up to `last` is where readers look, and visible. It is in the log already, and nobody who puts it
    /// there waits for more than those before. Called by leaders, and by whoever keeps others from leading.
    ///
    /// Errors: that will never be.
    pub(crate) fn settle(&self, last: Sequence) -> Result<(), Error> {
        self.publication.settle(last)
    }

    /// Applies a batch; see [`crate::tree::Tree::write`].
    pub(crate) fn write(&self, committer: &impl Committer, mut batch: WriteBatch, sync: bool) -> Result<(), Error> {
        if self.lead.load(Ordering::Relaxed) == LED {
            spin_until(&self.env, || self.lead.load(Ordering::Relaxed) != LED);
        }
        let mut queue = self.queue.lock();
        // Those in the queue are committed for by whoever leads; but where space is short by nobody who comes later.
        let may_lead = queue.waiting.is_empty() || !committer.is_short_of_space();
        let mut waits = self.is_led() || !may_lead;
        loop {
            if waits {
                (queue, batch) = match self.wait(committer, queue, batch, sync) {
                    Progress::Done(result) => return result,
                    Progress::HoldsQueue(queue, batch) => (queue, batch),
                };
            }
            (queue, batch) = match self.lead(committer, queue, batch, sync) {
                Progress::Done(result) => return result,
                Progress::HoldsQueue(queue, batch) => (queue, batch),
            };
            // It goes behind those who are in the queue.
            waits = !queue.waiting.is_empty();
            self.release(&queue);
        }
    }

    fn is_led(&self) -> bool {
        self.lead.load(Ordering::Relaxed) != FREE
    }

    /// Waits in the queue until nobody leads, or until somebody has committed for it.
    fn wait<'a>(
        &'a self,
        committer: &impl Committer,
        mut queue: MutexGuard<'a, Queue>,
        batch: WriteBatch,
        sync: bool,
    ) -> Progress<'a> {
        let waiter = Arc::new(Waiter {
            state: sync::Mutex::new(WaiterState { batch: Some(batch), sync, result: None }),
            called: Condvar::new(&self.env, "write group"),
        });
        self.join(committer, &mut queue, waiter.clone());
        loop {
            waiter.called.wait(&mut queue);
            if let Some(result) = waiter.state.lock().result.take() {
                return Progress::Done(result);
            }
            if self.is_led() {
                continue;
            }
            // In no group: it is in the queue.
            if let Some(at) = queue.waiting.iter().position(|other| Arc::ptr_eq(other, &waiter))
                && (at == 0 || !committer.is_short_of_space())
            {
                self.remove(&mut queue, at);
                let batch = waiter.state.lock().batch.take().unwrap_or_default();
                return Progress::HoldsQueue(queue, batch);
            }
        }
    }

    fn join(&self, committer: &impl Committer, queue: &mut Queue, waiter: Arc<Waiter>) {
        let is_delete = waiter.state.lock().is_delete();
        queue.waiting.push_back(waiter);
        self.queued.store(queue.waiting.len(), Ordering::Relaxed);
        if is_delete {
            self.waiting_deletes.fetch_add(1, Ordering::SeqCst);
            // The leader may wait for space that this one does not need.
            if committer.is_short_of_space() {
                committer.delete_waits();
            }
        }
        if queue.awaited.is_some_and(|awaited| queue.waiting.len() >= awaited) {
            self.gathered.notify_one();
        }
    }

    /// Waits for those who are likely to come, so that one sync does for all.
    fn gather<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        let Some((writers, nanos)) = queue.gathering.plan(1 + queue.waiting.len()) else { return queue };
        let deadline_nanos = now_nanos(&self.env) + nanos;
        if can_yield(&self.env) {
            drop(queue);
            yield_until(&self.env, deadline_nanos, || self.queued.load(Ordering::Relaxed) + 1 >= writers);
            queue = self.queue.lock();
        } else {
            queue.awaited = Some(writers - 1);
            while queue.waiting.len() + 1 < writers && !wait_until(&self.gathered, &mut queue, deadline_nanos) {}
            queue.awaited = None;
        }
        let all_came = queue.waiting.len() + 1 >= writers;
        queue.gathering.note_wait(all_came);
        queue
    }

    fn remove(&self, queue: &mut Queue, at: usize) -> Option<Arc<Waiter>> {
        let waiter = queue.waiting.remove(at)?;
        self.queued.store(queue.waiting.len(), Ordering::Relaxed);
        if waiter.state.lock().is_delete() {
            self.waiting_deletes.fetch_sub(1, Ordering::SeqCst);
        }
        Some(waiter)
    }

    /// Nobody leads any more: the first in the queue may, or whoever comes before it is awake.
    fn release(&self, queue: &Queue) {
        self.lead.store(FREE, Ordering::Release);
        if let Some(next) = queue.waiting.front() {
            next.called.notify_one();
        }
    }

    /// Takes as many out of the queue as fit into a group with `batch`.
    fn take_followers(
        &self,
        committer: &impl Committer,
        queue: &mut Queue,
        batch: &WriteBatch,
        sync: bool,
    ) -> Followers {
        let mut taken = Followers { waiters: Vec::new(), batches: Vec::new(), bytes: batch.size_bytes(), sync };
        while let Some(next) = queue.waiting.front() {
            let state = next.state.lock();
            let next_bytes = state.batch.as_ref().map_or(0, WriteBatch::size_bytes);
            // Deletes may be taken where puts are not.
            let is_apart = committer.is_short_of_space()
                && state.batch.as_ref().is_some_and(|next| next.has_puts() != batch.has_puts());
            if taken.bytes + next_bytes > GROUP_BYTES_MAX || is_apart {
                break;
            }
            taken.bytes += next_bytes;
            taken.sync |= state.sync;
            drop(state);
            let Some(follower) = self.remove(queue, 0) else { break };
            taken.batches.extend(follower.state.lock().batch.take());
            taken.waiters.push(follower);
        }
        taken
    }

    /// Commits `batch` and as many waiting ones as fit.
    fn lead<'a>(
        &'a self,
        committer: &impl Committer,
        mut queue: MutexGuard<'a, Queue>,
        batch: WriteBatch,
        sync: bool,
    ) -> Progress<'a> {
        if sync {
            self.lead.store(SYNCS, Ordering::Relaxed);
            queue = self.gather(queue);
        }
        let Followers { waiters, batches, bytes, sync } = self.take_followers(committer, &mut queue, &batch, sync);
        self.lead.store(if sync { SYNCS } else { LED }, Ordering::Relaxed);
        drop(queue);

        let group = Group { first: &batch, others: &batches, bytes, sync };
        let begin_nanos = if sync { now_nanos(&self.env) } else { 0 };
        let logged = match catch_unwind(AssertUnwindSafe(|| committer.write_log(&group))) {
            Ok(Ok(Commit::Yields)) => {
                let mut queue = self.queue.lock();
                for (waiter, batch) in waiters.into_iter().zip(batches) {
                    waiter.state.lock().batch = Some(batch);
                    self.join(committer, &mut queue, waiter);
                }
                return Progress::HoldsQueue(queue, batch);
            }
            Ok(Ok(Commit::Logged { first_sequence, count })) => Ok((first_sequence, count)),
            Ok(Err(error)) => Err((error, None)),
            Err(payload) => Err(self.end(committer, payload)),
        };
        let mut queue = self.queue.lock();
        if sync {
            let writers = 1 + waiters.len() + queue.waiting.len();
            queue.gathering.note_sync(writers, now_nanos(&self.env) - begin_nanos);
        }
        self.release(&queue);
        drop(queue);

        let applied = logged.and_then(|(first, count)| self.apply(committer, &group, first, count));
        let (result, panicked) = match applied {
            Ok(()) => (Ok(()), None),
            Err((error, payload)) => (Err(error), payload),
        };
        self.answer(&waiters, &result);
        if let Some(payload) = panicked {
            resume_unwind(payload);
        }
        Progress::Done(result)
    }

    /// Puts a group that is in the log where readers look, and makes it visible.
    fn apply(&self, committer: &impl Committer, group: &Group<'_>, first: Sequence, count: u64) -> Result<(), Failure> {
        if count == 0 {
            return Ok(());
        }
        match catch_unwind(AssertUnwindSafe(|| committer.apply(group, first))) {
            Ok(()) => self.publication.publish(first, first + count - 1).map_err(|error| (error, None)),
            Err(payload) => Err(self.end(committer, payload)),
        }
    }

    /// Tells followers what became of their group.
    fn answer(&self, followers: &[Arc<Waiter>], result: &Result<(), Error>) {
        if followers.is_empty() {
            return;
        }
        let _queue = self.queue.lock();
        for follower in followers {
            follower.state.lock().result = Some(result.clone());
            follower.called.notify_one();
        }
    }

    /// Nothing is written any more after a panic.
    fn end(&self, committer: &impl Committer, payload: Panic) -> Failure {
        let error = committer.panicked(&*payload);
        // Last: whoever waits finds out why.
        self.publication.break_off();
        (error, Some(payload))
    }
}
