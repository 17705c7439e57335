//! What threads meet at in the parts whose interleavings are explored.
//!
//! Here it is the real thing. `crates/interleavings` includes the same source files by path and has a `sync` of
//! the same shape that is made of a model checker's primitives, so what is explored is what runs. Those files take
//! what threads meet at from here and from nowhere else.

pub(crate) use arc_swap::{ArcSwap, Guard};
pub(crate) use parking_lot::Mutex;
pub(crate) use parking_lot_core::SpinWait;
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

/// What may be held across a wait.
pub(crate) mod waiting {
    pub(crate) use varve_env::{Condvar, Env, Mutex, MutexGuard};

    /// Time of the env.
    pub(crate) fn now_nanos(env: &Env) -> u64 {
        env.now().as_nanos()
    }

    /// Waits until somebody tells, or until that time: then true.
    pub(crate) fn wait_until<T>(condvar: &Condvar, guard: &mut MutexGuard<'_, T>, deadline_nanos: u64) -> bool {
        condvar.wait_until(guard, varve_env::Instant::from_nanos(deadline_nanos))
    }

    /// Whether [`yield_until`] is of use: in a simulation others run only while one waits.
    pub(crate) fn can_yield(env: &Env) -> bool {
        !env.is_virtual()
    }

    /// Lets others run until `is_over`, or until that time. For waits that are about as short as going to sleep and being woken.
    pub(crate) fn yield_until(env: &Env, deadline_nanos: u64, is_over: impl Fn() -> bool) {
        let mut spin = super::SpinWait::new();
        loop {
            if is_over() {
                return;
            }
            if !spin.spin() {
                if now_nanos(env) >= deadline_nanos {
                    return;
                }
                spin.reset();
            }
        }
    }

    /// Looks at `is_over` for as long as a thread that is about to end something takes for it, some microseconds; what it said
    /// last. In a simulation, where nothing happens meanwhile, once.
    #[inline]
    pub(crate) fn spin_until(env: &Env, is_over: impl Fn() -> bool) -> bool {
        if env.is_virtual() {
            return is_over();
        }
        let mut spin = super::SpinWait::new();
        loop {
            if is_over() {
                return true;
            }
            if !spin.spin() {
                return false;
            }
        }
    }
}

/// What is written before other threads can know of it, and only read from then on.
#[repr(transparent)]
pub(crate) struct Published<T>(T);

impl<T> Published<T> {
    #[inline]
    pub(crate) fn new(value: T) -> Self {
        Published(value)
    }

    #[inline]
    pub(crate) fn get(&self) -> &T {
        &self.0
    }
}
