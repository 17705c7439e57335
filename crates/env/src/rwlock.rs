//! Many readers or one writer, held across I/O and waits.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::environment::Env;
use crate::sim::SimLock;

/// A lock for one writer or many readers. It is not poisoned by a panic of a holder.
///
/// Real: `parking_lot::RwLock` plus one predictable branch. Simulated: first come, first served;
/// a reader that comes while a writer waits waits behind it, so reading twice in one actor may
/// be a (reported) deadlock.
pub struct RwLock<T: ?Sized> {
    sim: Option<SimLock>,
    inner: parking_lot::RwLock<T>,
}

impl<T> RwLock<T> {
    /// A free lock around `value`. `name` appears in deadlock reports.
    pub fn new(env: &Env, name: &'static str, value: T) -> RwLock<T> {
        let sim = env.simulation().map(|simulation| SimLock::new(simulation, "rwlock", name));
        RwLock { sim, inner: parking_lot::RwLock::new(value) }
    }

    /// The value itself.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until no writer holds the lock and takes it for reading.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        if let Some(sim) = &self.sim {
            sim.acquire(false);
        }
        RwLockReadGuard { lock: self, inner: Some(self.inner.read()) }
    }

    /// Waits until nobody holds the lock and takes it for writing.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        if let Some(sim) = &self.sim {
            sim.acquire(true);
        }
        RwLockWriteGuard { lock: self, inner: Some(self.inner.write()) }
    }

    /// Takes the lock for reading if that is possible at once.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        if let Some(sim) = &self.sim {
            if !sim.try_acquire(false) {
                return None;
            }
            return Some(RwLockReadGuard { lock: self, inner: Some(self.inner.read()) });
        }
        let inner = self.inner.try_read()?;
        Some(RwLockReadGuard { lock: self, inner: Some(inner) })
    }

    /// Takes the lock for writing if that is possible at once.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        if let Some(sim) = &self.sim {
            if !sim.try_acquire(true) {
                return None;
            }
            return Some(RwLockWriteGuard { lock: self, inner: Some(self.inner.write()) });
        }
        let inner = self.inner.try_write()?;
        Some(RwLockWriteGuard { lock: self, inner: Some(inner) })
    }

    /// The value, without locking: the exclusive borrow shows that nobody else has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").finish_non_exhaustive()
    }
}

/// The value, locked for reading; dropping it unlocks. Stays on its thread.
#[must_use = "dropping the guard unlocks"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    // None only in the destructor.
    inner: Option<parking_lot::RwLockReadGuard<'a, T>>,
}

/// The value, locked for writing; dropping it unlocks. Stays on its thread.
#[must_use = "dropping the guard unlocks"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    // None only in the destructor.
    inner: Option<parking_lot::RwLockWriteGuard<'a, T>>,
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        match &self.inner {
            Some(inner) => inner,
            None => unreachable!("the guard is being dropped"),
        }
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        match &self.inner {
            Some(inner) => inner,
            None => unreachable!("the guard is being dropped"),
        }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.inner {
            Some(inner) => inner,
            None => unreachable!("the guard is being dropped"),
        }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(sim) = &self.lock.sim {
            sim.release(false, || self.inner = None);
        }
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(sim) = &self.lock.sim {
            sim.release(true, || self.inner = None);
        }
    }
}
