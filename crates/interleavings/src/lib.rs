//! The parts of the engine that threads meet in, run through the interleavings of these threads.
//!
//! The sources are the engine's own, included by path; only `sync`, what they meet at, is another: made of
//! [loom](https://docs.rs/loom)'s primitives, which try out every order in which threads may take their steps, and every value
//! a load may return under the C11 memory model, up to a bound of preemptions. `tests/interleavings.rs` runs the models.
//!
//! A model that finds nothing shows something only if it would find a fault: each one is also run with faults that
//! [`Fault`] names planted below the sources, and has to find them.
//!
//! What loom does not reach: values that only speculation brings up (its relaxed loads see what was stored before), and more
//! than a handful of threads and steps. ThreadSanitizer, Miri and the threaded suites of the engine go on where it ends.

mod batch;
mod commit;
mod error;
mod exploration;
mod models;
mod sync;

#[path = "../../engine/src/memtable/arena.rs"]
#[allow(dead_code, reason = "what the models leave out")]
mod arena;
#[path = "../../engine/src/key.rs"]
#[allow(dead_code, unreachable_pub, reason = "what the models leave out")]
mod key;
#[path = "../../engine/src/memtable/key_filter.rs"]
#[allow(dead_code, reason = "what the models leave out")]
mod key_filter;
#[path = "../../engine/src/memtable/skip_list.rs"]
#[allow(dead_code, reason = "what the models leave out")]
mod skip_list;
#[path = "../../engine/src/slot.rs"]
#[allow(dead_code, reason = "what the models leave out")]
mod slot;
#[path = "../../engine/src/snapshot.rs"]
#[allow(dead_code, unreachable_pub, reason = "what the models leave out")]
mod snapshot;
pub use exploration::{Fault, Limits, Outcome, explore};
pub use models::{MODELS, Model};
