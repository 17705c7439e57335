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
