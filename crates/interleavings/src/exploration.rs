//! Running a model through its interleavings.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What is made wrong below the sources, to see whether a model finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Loads order nothing.
    RelaxedLoads,
    /// Stores order nothing.
    RelaxedStores,
    /// What reads and writes a number in one step does it in two.
    SplitExchanges,
    /// What reads and writes a pointer in one step does it in two.
    SplitPointerExchanges,
    /// `fetch_min` changes nothing.
    IgnoredMinimum,
    /// Nobody who waits is told.
    LostNotifications,
    /// A reader asks how far it may see before it asks what there is.
    SequenceFirst,
    /// A snapshot is not held.
    UnheldSnapshot,
}

/// How far to look.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Threads are interrupted at most so often in one run; `None` for every interleaving there is.
    pub preemptions_max: Option<usize>,
    /// Time after which no further run begins.
    pub duration_max: Option<Duration>,
}

/// What an exploration came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All interleavings within the limits held.
    Held {
        /// How many there were.
        interleavings: u64,
    },
    /// One did not.
    Failed {
        /// Which, counted from 1.
        interleaving: u64,
        /// What the model said.
        message: String,
    },
}

thread_local! {
    /// The threads of a model are not the system's: all run on the one that explores.
    static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Whether this fault is planted now.
pub(crate) fn is_planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

/// Whether a failed run is being unwound: loom has ended it, and takes no steps of destructors any more.
pub(crate) fn is_over() -> bool {
    std::thread::panicking()
}

/// Runs a model of this seed through its interleavings, with a fault below it or without.
pub fn explore(model: fn(u64), seed: u64, fault: Option<Fault>, limits: &Limits) -> Outcome {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.preemption_bound = limits.preemptions_max;
    builder.max_duration = limits.duration_max;
    // How often the duration is looked at.
    builder.checkpoint_interval = 1000;
    builder.log = false;
    let interleavings = Arc::new(AtomicU64::new(0));
    let counted = interleavings.clone();
    PLANTED.set(fault);
    let explored = catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            model(seed);
        });
    }));
    PLANTED.set(None);
    let reached = interleavings.load(Ordering::Relaxed);
    match explored {
        Ok(()) => Outcome::Held { interleavings: reached },
        Err(payload) => Outcome::Failed { interleaving: reached, message: message(&*payload) },
    }
}

/// What a panic said.
fn message(payload: &(dyn std::any::Any + Send)) -> String {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "a panic without a message".to_owned(),
    }
}
