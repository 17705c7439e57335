//! Waiting for a condition.

use std::fmt;

use crate::environment::Env;
use crate::instant::Instant;
use crate::mutex::MutexGuard;
use crate::sim::WaitQueue;

/// Where holders of a [`Mutex`](crate::Mutex) wait for a condition to change.
///
/// As with every condition variable, a wait may end without a notification: test the condition
/// in a loop. A notification is lost if nobody waits.
pub struct Condvar {
    kind: Kind,
}

enum Kind {
    Real { condvar: parking_lot::Condvar, begin: std::time::Instant },
    Sim(WaitQueue),
}

impl Condvar {
    /// A condition nobody waits for. `name` appears in deadlock reports.
    pub fn new(env: &Env, name: &'static str) -> Condvar {
        let kind = match env.simulation() {
            Some(simulation) => Kind::Sim(WaitQueue::new(simulation, "waits on condvar", name)),
            None => Kind::Real { condvar: parking_lot::Condvar::new(), begin: env.begin() },
        };
        Condvar { kind }
    }

    /// Unlocks, waits for a notification, and locks again.
    ///
    /// # Panics
    /// In a simulation, with a report, if nothing can ever run again.
    #[inline]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        match &self.kind {
            Kind::Real { condvar, .. } => condvar.wait(guard.real()),
            Kind::Sim(queue) => {
                Condvar::wait_simulated(queue, guard, None);
            }
        }
    }

    /// Like [`wait`](Condvar::wait), but no longer than until `deadline`. True if the deadline came
    /// first.
    #[inline]
    pub fn wait_until<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, deadline: Instant) -> bool {
        match &self.kind {
            Kind::Real { condvar, begin } => {
                match begin.checked_add(std::time::Duration::from_nanos(deadline.as_nanos())) {
                    Some(deadline) => condvar.wait_until(guard.real(), deadline).timed_out(),
                    None => {
                        condvar.wait(guard.real());
                        false
                    }
                }
            }
            Kind::Sim(queue) => Condvar::wait_simulated(queue, guard, Some(deadline)),
        }
    }

    fn wait_simulated<T: ?Sized>(queue: &WaitQueue, guard: &mut MutexGuard<'_, T>, deadline: Option<Instant>) -> bool {
        let simulation = queue.simulation();
        let actor = simulation.sync_point();
        queue.enqueue(&actor);
        guard.unlock_for_wait(&actor);
        let taken = queue.wait(&actor, deadline.map(Instant::as_nanos));
        guard.lock_after_wait(&actor);
        match taken {
            Ok(taken) => !taken,
            Err(failure) => {
                simulation.fail_on(failure);
                false
            }
        }
    }

    /// Wakes one waiter, if there is one.
    #[inline]
    pub fn notify_one(&self) {
        match &self.kind {
            Kind::Real { condvar, .. } => {
                condvar.notify_one();
            }
            Kind::Sim(queue) => {
                let (_, wake) = queue.simulation().sync_point_on_drop();
                queue.wake_one();
                queue.simulation().fail_on(wake);
            }
        }
    }

    /// Wakes all waiters.
    #[inline]
    pub fn notify_all(&self) {
        match &self.kind {
            Kind::Real { condvar, .. } => {
                condvar.notify_all();
            }
            Kind::Sim(queue) => {
                let (_, wake) = queue.simulation().sync_point_on_drop();
                queue.wake_all();
                queue.simulation().fail_on(wake);
            }
        }
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
