//! Bounded queues between actors.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::environment::Env;
use crate::instant::Instant;
use crate::sim::WaitQueue;

/// A queue of at most `capacity` values (at least 1), for any number of senders and receivers, first in,
/// first out. `name` appears in deadlock reports.
///
/// A send waits while the queue is full, a receive while it is empty. When the last receiver is
/// gone sends fail; when the last sender is gone what was sent can still be received, then
/// receives fail.
pub fn bounded<T>(env: &Env, name: &'static str, capacity: usize) -> (Sender<T>, Receiver<T>) {
    let waiters = match env.simulation() {
        Some(simulation) => Waiters::Sim {
            senders: WaitQueue::new(simulation, "waits to send into channel", name),
            receivers: WaitQueue::new(simulation, "waits to receive from channel", name),
        },
        None => Waiters::Real { senders: Condvar::new(), receivers: Condvar::new(), begin: env.begin() },
    };
    let state = ChannelState { values: VecDeque::new(), senders: 1, receivers: 1 };
    let shared = Arc::new(Channel { capacity: capacity.max(1), state: Mutex::new(state), waiters });
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared })
}

struct Channel<T> {
    capacity: usize,
    state: Mutex<ChannelState<T>>,
    waiters: Waiters,
}

struct ChannelState<T> {
    values: VecDeque<T>,
    senders: usize,
    receivers: usize,
}

enum Waiters {
    Real { senders: Condvar, receivers: Condvar, begin: std::time::Instant },
    Sim { senders: WaitQueue, receivers: WaitQueue },
}

#[derive(Clone, Copy)]
enum Side {
    Senders,
    Receivers,
}

impl<T> Channel<T> {
    fn sync_point(&self) {
        if let Waiters::Sim { senders, .. } = &self.waiters {
            senders.simulation().sync_point();
        }
    }

    /// Unlocks, waits for the side to be woken, locks again. True if the deadline came first.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, ChannelState<T>>,
        side: Side,
        deadline: Option<Instant>,
    ) -> (MutexGuard<'a, ChannelState<T>>, bool) {
        match &self.waiters {
            Waiters::Real { senders, receivers, begin } => {
                let condvar = match side {
                    Side::Senders => senders,
                    Side::Receivers => receivers,
                };
                let deadline = deadline
                    .and_then(|deadline| begin.checked_add(std::time::Duration::from_nanos(deadline.as_nanos())));
                let timed_out = match deadline {
                    Some(deadline) => condvar.wait_until(&mut state, deadline).timed_out(),
                    None => {
                        condvar.wait(&mut state);
                        false
                    }
                };
                (state, timed_out)
            }
            Waiters::Sim { senders, receivers } => {
                let queue = match side {
                    Side::Senders => senders,
                    Side::Receivers => receivers,
                };
                let simulation = queue.simulation();
                let actor = simulation.current();
                queue.enqueue(&actor);
                drop(state);
                match queue.wait(&actor, deadline.map(Instant::as_nanos)) {
                    Ok(taken) => (self.state.lock(), !taken),
                    Err(failure) => {
                        simulation.fail_on(failure);
                        (self.state.lock(), true)
                    }
                }
            }
        }
    }

    /// Lets one of the side go on. The state must not be locked.
    fn wake_one(&self, side: Side) {
        match (&self.waiters, side) {
            (Waiters::Real { senders, .. }, Side::Senders) => {
                senders.notify_one();
            }
            (Waiters::Real { receivers, .. }, Side::Receivers) => {
                receivers.notify_one();
            }
            (Waiters::Sim { senders, .. }, Side::Senders) => senders.wake_one(),
            (Waiters::Sim { receivers, .. }, Side::Receivers) => receivers.wake_one(),
        }
    }

    /// Lets all of the side go on. The state must not be locked.
    fn wake_all(&self, side: Side) {
        match (&self.waiters, side) {
            (Waiters::Real { senders, .. }, Side::Senders) => {
                senders.notify_all();
            }
            (Waiters::Real { receivers, .. }, Side::Receivers) => {
                receivers.notify_all();
            }
            (Waiters::Sim { senders, .. }, Side::Senders) => senders.wake_all(),
            (Waiters::Sim { receivers, .. }, Side::Receivers) => receivers.wake_all(),
        }
    }
}

/// The sending end. Clones are further senders.
pub struct Sender<T> {
    shared: Arc<Channel<T>>,
}

impl<T> Sender<T> {
    /// Puts `value` into the queue, waiting while it is full.
    ///
    /// # Errors
    /// [`SendError`] with the value if there is no receiver any more.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.shared.sync_point();
        let mut state = self.shared.state.lock();
        loop {
            if state.receivers == 0 {
                return Err(SendError(value));
            }
            if state.values.len() < self.shared.capacity {
                state.values.push_back(value);
                drop(state);
                self.shared.wake_one(Side::Receivers);
                return Ok(());
            }
            state = self.shared.wait(state, Side::Senders, None).0;
        }
    }

    /// Puts `value` into the queue if there is space.
    ///
    /// # Errors
    /// [`TrySendError`] with the value if the queue is full or there is no receiver any more.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.shared.sync_point();
        let mut state = self.shared.state.lock();
        if state.receivers == 0 {
            return Err(TrySendError::Disconnected(value));
        }
        if state.values.len() >= self.shared.capacity {
            return Err(TrySendError::Full(value));
        }
        state.values.push_back(value);
        drop(state);
        self.shared.wake_one(Side::Receivers);
        Ok(())
    }

    /// How many values are in the queue.
    pub fn len(&self) -> usize {
        self.shared.state.lock().values.len()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.shared.state.lock().senders += 1;
        Sender { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.senders -= 1;
        let last = state.senders == 0;
        drop(state);
        if last {
            self.shared.wake_all(Side::Receivers);
        }
    }
}

/// The receiving end. Clones are further receivers; each value goes to one of them.
pub struct Receiver<T> {
    shared: Arc<Channel<T>>,
}

impl<T> Receiver<T> {
    /// Takes the oldest value, waiting while there is none.
    ///
    /// # Errors
    /// [`RecvError::Disconnected`] if there is none and no sender any more.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.receive(None)
    }

    /// Like [`recv`](Receiver::recv), but waits no longer than until `deadline`.
    ///
    /// # Errors
    /// [`RecvError::Timeout`] if the deadline came first, else as `recv`.
    pub fn recv_until(&self, deadline: Instant) -> Result<T, RecvError> {
        self.receive(Some(deadline))
    }

    fn receive(&self, deadline: Option<Instant>) -> Result<T, RecvError> {
        self.shared.sync_point();
        let mut state = self.shared.state.lock();
        let mut timed_out = false;
        loop {
            if let Some(value) = state.values.pop_front() {
                drop(state);
                self.shared.wake_one(Side::Senders);
                return Ok(value);
            }
            if state.senders == 0 {
                return Err(RecvError::Disconnected);
            }
            if timed_out {
                return Err(RecvError::Timeout);
            }
            (state, timed_out) = self.shared.wait(state, Side::Receivers, deadline);
        }
    }

    /// Takes the oldest value if there is one.
    ///
    /// # Errors
    /// [`TryRecvError`] if there is none.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.shared.sync_point();
        let mut state = self.shared.state.lock();
        match state.values.pop_front() {
            Some(value) => {
                drop(state);
                self.shared.wake_one(Side::Senders);
                Ok(value)
            }
            None if state.senders == 0 => Err(TryRecvError::Disconnected),
            None => Err(TryRecvError::Empty),
        }
    }

    /// How many values are in the queue.
    pub fn len(&self) -> usize {
        self.shared.state.lock().values.len()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.shared.state.lock().receivers += 1;
        Receiver { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.receivers -= 1;
        let last = state.receivers == 0;
        // Nobody can receive them any more; their destructors must not run under the lock.
        let unreceived = if last { std::mem::take(&mut state.values) } else { VecDeque::new() };
        drop(state);
        drop(unreceived);
        if last {
            self.shared.wake_all(Side::Senders);
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

/// The value could not be sent: there is no receiver any more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// Why a value was not sent at once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The queue is full.
    Full(T),
    /// There is no receiver any more.
    Disconnected(T),
}

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvError {
    /// The queue is empty and there is no sender any more.
    Disconnected,
    /// The deadline came first.
    Timeout,
}

/// Why nothing was received at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// The queue is empty.
    Empty,
    /// The queue is empty and there is no sender any more.
    Disconnected,
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendError(..)")
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the channel has no receiver any more")
    }
}

impl<T> std::error::Error for SendError<T> {}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "Full(..)",
            TrySendError::Disconnected(_) => "Disconnected(..)",
        })
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "the channel is full",
            TrySendError::Disconnected(_) => "the channel has no receiver any more",
        })
    }
}

impl<T> std::error::Error for TrySendError<T> {}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecvError::Disconnected => "the channel is empty and has no sender any more",
            RecvError::Timeout => "nothing was sent in time",
        })
    }
}

impl std::error::Error for RecvError {}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TryRecvError::Empty => "the channel is empty",
            TryRecvError::Disconnected => "the channel is empty and has no sender any more",
        })
    }
}

impl std::error::Error for TryRecvError {}
