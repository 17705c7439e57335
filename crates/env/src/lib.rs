//! Time, threads, blocking and randomness: real, or simulated from a seed.
//!
//! The lowest crate of the workspace. Nothing above it asks the operating system for time,
//! threads, sleeping, blocking or randomness; everything takes an [`Env`], of which there
//! are two kinds:
//!
//! - [`Env::real`]: the wall clock, operating-system threads, `parking_lot` locks. The
//!   primitives here then cost one predictable branch more than the ones they wrap.
//! - [`Env::sim`]: a virtual clock. Every *actor* is a thread, or a stack of its own on a thread
//!   that all share, and exactly one of them holds the *baton*; it passes the baton only when it
//!   sleeps, waits on a primitive of this crate, joins or ends. When all wait, the clock jumps to the earliest timer. Ties are
//!   broken by the seed, so the same seed gives the same run, to the byte, on any machine,
//!   under any load. All waiting with no timer is a deadlock and panics with a report of
//!   who waits for what.
//!
//! A lock held across I/O or a wait must be one of [`Mutex`] and [`RwLock`]; a short critical
//! section that contains neither may use `parking_lot` directly. What one actor can only learn
//! by waiting for another must go through [`Condvar`], [`channel`] or a join.
//!
//! Guarantees: simulations share nothing and may run side by side in one process; no `unsafe` but in
//! changing from one stack to another; no platform-dependent arithmetic in anything that decides.

#![deny(unsafe_code)]

pub mod channel;
mod condvar;
mod environment;
mod instant;
mod mutex;
mod pages;
mod random;
mod rwlock;
mod sim;
mod thread;

pub use condvar::Condvar;
pub use environment::{Admission, Attachment, Env, SimOptions};
pub use instant::Instant;
pub use mutex::{Mutex, MutexGuard};
pub use pages::Pages;
pub use random::Random;
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use thread::{JoinHandle, Panicked};
