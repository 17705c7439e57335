//! What simulated actors wait on: queues of waiters, and locks made of them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Actor, ActorId, Reason, Simulation, WaitPoint, Wake};

/// Actors waiting for something to happen, in order of arrival.
pub(crate) struct WaitQueue {
    simulation: Arc<Simulation>,
    point: Arc<QueuePoint>,
}

struct QueuePoint {
    /// For example `waits on condvar`.
    action: &'static str,
    name: &'static str,
    waiters: Mutex<VecDeque<ActorId>>,
}

impl WaitPoint for QueuePoint {
    fn describe(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        write!(f, "{} {:?}", self.action, self.name)
    }

    fn holders(&self) -> Vec<ActorId> {
        Vec::new()
    }
}

impl WaitQueue {
    pub(crate) fn new(simulation: &Arc<Simulation>, action: &'static str, name: &'static str) -> WaitQueue {
        let point = QueuePoint { action, name, waiters: Mutex::new(VecDeque::new()) };
        WaitQueue { simulation: Arc::clone(simulation), point: Arc::new(point) }
    }

    pub(crate) fn simulation(&self) -> &Arc<Simulation> {
        &self.simulation
    }

    /// Puts the calling actor at the end; `wait` must follow.
    pub(crate) fn enqueue(&self, actor: &Actor) {
        self.point.waiters.lock().push_back(actor.id);
    }

    /// Waits to be taken from the queue, or until `deadline`. The actor is no longer in the queue
    /// afterwards. True if it was taken; the error is a deadlock report.
    pub(crate) fn wait(&self, actor: &Actor, deadline: Option<u64>) -> Result<bool, Wake> {
        let reason = Reason::Point(Arc::clone(&self.point) as Arc<dyn WaitPoint>);
        let wake = self.simulation.block(actor, reason, deadline);
        // A timeout and a notification may both have come; the notification must not be lost,
        // so being taken from the queue counts, not the reason of the wake.
        let mut waiters = self.point.waiters.lock();
        let position = waiters.iter().position(|&id| id == actor.id);
        if let Some(position) = position {
            waiters.remove(position);
        }
        drop(waiters);
        match wake {
            Wake::Failed(_) => Err(wake),
            _ => Ok(position.is_none()),
        }
    }

    /// Lets one waiter go on: the first, or any when perturbation is on.
    pub(crate) fn wake_one(&self) {
        let len = self.point.waiters.lock().len();
        if len == 0 {
            return;
        }
        let chosen = self.simulation.choose(len);
        let removed = self.point.waiters.lock().remove(chosen);
        if let Some(id) = removed {
            self.simulation.wake(id);
        }
    }

    /// Lets all waiters go on.
    pub(crate) fn wake_all(&self) {
        let waiters = std::mem::take(&mut *self.point.waiters.lock());
        for id in waiters {
            self.simulation.wake(id);
        }
    }
}

/// A lock for one writer or many readers. Fair: whoever lets go hands it to who waits longest.
pub(crate) struct SimLock {
    simulation: Arc<Simulation>,
    point: Arc<LockPoint>,
}

struct LockPoint {
    /// `mutex` or `rwlock`.
    kind: &'static str,
    name: &'static str,
    state: Mutex<LockState>,
}

#[derive(Default)]
struct LockState {
    writer: Option<ActorId>,
    readers: Vec<ActorId>,
    waiters: VecDeque<(ActorId, bool)>,
}

impl LockState {
    fn is_free_for(&self, exclusive: bool) -> bool {
        self.writer.is_none() && (!exclusive || self.readers.is_empty())
    }

    fn grant(&mut self, id: ActorId, exclusive: bool) {
        if exclusive {
            self.writer = Some(id);
        } else {
            self.readers.push(id);
        }
    }

    fn is_held_by(&self, id: ActorId, exclusive: bool) -> bool {
        if exclusive { self.writer == Some(id) } else { self.readers.contains(&id) }
    }

    fn release(&mut self, id: ActorId, exclusive: bool) {
        if exclusive {
            self.writer = None;
        } else if let Some(position) = self.readers.iter().position(|&reader| reader == id) {
            self.readers.swap_remove(position);
        }
    }
}

impl WaitPoint for LockPoint {
    fn describe(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        write!(f, "waits for {} {:?}", self.kind, self.name)
    }

    fn holders(&self) -> Vec<ActorId> {
        let state = self.state.lock();
        state.writer.iter().chain(&state.readers).copied().collect()
    }
}

impl SimLock {
    pub(crate) fn new(simulation: &Arc<Simulation>, kind: &'static str, name: &'static str) -> SimLock {
        let point = LockPoint { kind, name, state: Mutex::new(LockState::default()) };
        SimLock { simulation: Arc::clone(simulation), point: Arc::new(point) }
    }

    /// Takes the lock, waiting for it. Panics with a report on a deadlock.
    pub(crate) fn acquire(&self, exclusive: bool) {
        let actor = self.simulation.sync_point();
        self.acquire_as(&actor, exclusive);
    }

    /// Takes the lock without being a sync point.
    pub(crate) fn acquire_as(&self, actor: &Actor, exclusive: bool) {
        {
            let mut state = self.point.state.lock();
            if state.waiters.is_empty() && state.is_free_for(exclusive) {
                state.grant(actor.id, exclusive);
                return;
            }
            state.waiters.push_back((actor.id, exclusive));
        }
        loop {
            let reason = Reason::Point(Arc::clone(&self.point) as Arc<dyn WaitPoint>);
            let wake = self.simulation.block(actor, reason, None);
            let mut state = self.point.state.lock();
            let waiting = state.waiters.iter().position(|&(id, _)| id == actor.id);
            if let Wake::Failed(_) = wake {
                match waiting {
                    Some(position) => drop(state.waiters.remove(position)),
                    None => state.release(actor.id, exclusive),
                }
                drop(state);
                self.hand_over();
                self.simulation.fail_on(wake);
            } else if waiting.is_none() && state.is_held_by(actor.id, exclusive) {
                return;
            }
        }
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_acquire(&self, exclusive: bool) -> bool {
        let actor = self.simulation.sync_point();
        let mut state = self.point.state.lock();
        let free = state.waiters.is_empty() && state.is_free_for(exclusive);
        if free {
            state.grant(actor.id, exclusive);
        }
        free
    }

    /// Lets go; `unlock` releases the data's own lock, after the work charged under it is done.
    pub(crate) fn release(&self, exclusive: bool, unlock: impl FnOnce()) {
        let (actor, wake) = self.simulation.sync_point_on_drop();
        unlock();
        if let Some(actor) = actor {
            self.release_as(&actor, exclusive);
        }
        self.simulation.fail_on(wake);
    }

    /// Lets go without being a sync point.
    pub(crate) fn release_as(&self, actor: &Actor, exclusive: bool) {
        let mut state = self.point.state.lock();
        state.release(actor.id, exclusive);
        if !state.waiters.is_empty() {
            drop(state);
            self.hand_over();
        }
    }

    fn hand_over(&self) {
        loop {
            let next = {
                let state = self.point.state.lock();
                match state.waiters.front() {
                    Some(&(_, exclusive)) if state.is_free_for(exclusive) => state.waiters.len(),
                    _ => return,
                }
            };
            // Any waiter may be chosen under perturbation, but only one that can have it.
            let chosen = self.simulation.choose(next);
            let mut state = self.point.state.lock();
            let chosen = match state.waiters.get(chosen) {
                Some(&(_, exclusive)) if state.is_free_for(exclusive) => chosen,
                _ => 0,
            };
            let Some((id, exclusive)) = state.waiters.remove(chosen) else {
                return;
            };
            state.grant(id, exclusive);
            drop(state);
            self.simulation.wake(id);
        }
    }
}
