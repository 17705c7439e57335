//! Mutual exclusion that may be held across I/O and waits.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::environment::Env;
use crate::sim::{Actor, SimLock};

/// A lock for one. It is not poisoned by a panic of its holder.
///
/// Real: `parking_lot::Mutex` plus one predictable branch. Simulated: first come, first served,
/// and handed over, so nobody starves; locking twice in one actor is a reported deadlock.
pub struct Mutex<T: ?Sized> {
    sim: Option<SimLock>,
    inner: parking_lot::Mutex<T>,
}

impl<T> Mutex<T> {
    /// A free lock around `value`. `name` appears in deadlock reports.
    pub fn new(env: &Env, name: &'static str, value: T) -> Mutex<T> {
        let sim = env.simulation().map(|simulation| SimLock::new(simulation, "mutex", name));
        Mutex { sim, inner: parking_lot::Mutex::new(value) }
    }

    /// The value itself.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock and takes it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if let Some(sim) = &self.sim {
            sim.acquire(true);
        }
        MutexGuard { lock: self, inner: Some(self.inner.lock()) }
    }

    /// Takes the lock if it is free and nobody waits for it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        if let Some(sim) = &self.sim {
            if !sim.try_acquire(true) {
                return None;
            }
            return Some(MutexGuard { lock: self, inner: Some(self.inner.lock()) });
        }
        let inner = self.inner.try_lock()?;
        Some(MutexGuard { lock: self, inner: Some(inner) })
    }

    /// The value, without locking: the exclusive borrow shows that nobody else has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

/// The locked value; dropping it unlocks. Stays on its thread.
#[must_use = "dropping the guard unlocks"]
pub struct MutexGuard<'a, T: ?Sized> {
    lock: &'a Mutex<T>,
    // None only inside Condvar's waits, and after one that ended in a panic.
    inner: Option<parking_lot::MutexGuard<'a, T>>,
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    #[inline]
    pub(crate) fn real(&mut self) -> &mut parking_lot::MutexGuard<'a, T> {
        match &mut self.inner {
            Some(inner) => inner,
            None => gone(),
        }
    }

    /// Unlocks for a wait.
    pub(crate) fn unlock_for_wait(&mut self, actor: &Actor) {
        self.inner = None;
        if let Some(sim) = &self.lock.sim {
            sim.release_as(actor, true);
        }
    }

    /// Locks again after a wait.
    pub(crate) fn lock_after_wait(&mut self, actor: &Actor) {
        if let Some(sim) = &self.lock.sim {
            sim.acquire_as(actor, true);
        }
        self.inner = Some(self.lock.inner.lock());
    }
}

#[cold]
fn gone() -> ! {
    panic!("the lock was given up by a wait that ended in a panic");
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        match &self.inner {
            Some(inner) => inner,
            None => gone(),
        }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.real()
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(sim) = &self.lock.sim
            && self.inner.is_some()
        {
            sim.release(true, || self.inner = None);
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
