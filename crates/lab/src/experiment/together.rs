//! Runs that are worlds of their own, two at a time, each measured once.

use crate::error::LabError;
use crate::experiment::{Run, simulate};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve::env::Env;

/// Runs at the same time, of all experiments together: what the memory of a full-size run allows.
pub(in crate::experiment) const AT_ONCE: usize = 2;

/// Says that so many operations more were done.
pub(in crate::experiment) type Advance = Arc<dyn Fn(u64) + Send + Sync>;

/// What is to be run: a name that holds everything the result depends on, and how many operations it has.
pub(in crate::experiment) struct Wanted<T> {
    pub(in crate::experiment) key: String,
    pub(in crate::experiment) operations: u64,
    pub(in crate::experiment) run: Box<dyn FnOnce(Advance) -> Result<T, LabError> + Send>,
}

impl<T: Send + 'static> Wanted<T> {
    /// One operation: a world of its own, in virtual time from this seed.
    pub(in crate::experiment) fn simulated(
        key: String,
        seed: u64,
        work: impl FnOnce(&Env) -> Result<T, LabError> + Send + 'static,
    ) -> Wanted<T> {
        let run = move |advance: Advance| {
            let found = simulate(seed, work);
            advance(1);
            found
        };
        Wanted { key, operations: 1, run: Box::new(run) }
    }
}

/// The results, in order. What an earlier experiment of the same run measured is not measured again.
///
/// # Errors
/// The first one that failed.
pub(in crate::experiment) fn measure<T: Send + Sync + 'static>(
    run: &Run<'_>,
    what: &str,
    wanted: Vec<Wanted<T>>,
) -> Result<Vec<Arc<T>>, LabError> {
    let shared = &run.settings.shared;
    let keys: Vec<String> = wanted.iter().map(|one| one.key.clone()).collect();
    let mut missing: Vec<Wanted<T>> = Vec::new();
    for one in wanted {
        if shared.get::<T>(&one.key).is_none() && missing.iter().all(|other| other.key != one.key) {
            missing.push(one);
        }
    }
    if !missing.is_empty() {
        let total = missing.iter().map(|one| one.operations).sum();
        run.settings.progress.begin(what, Some(total));
        let (done, progress) = (Arc::new(AtomicU64::new(0)), Arc::clone(&run.settings.progress));
        let advance: Advance = Arc::new(move |step| progress.advance(done.fetch_add(step, Ordering::Relaxed) + step));
        missing.reverse();
        let queue = Arc::new(Mutex::new(missing));
        let failed: Arc<Mutex<BTreeMap<String, LabError>>> = Arc::default();
        let workers: Vec<_> = (0..AT_ONCE)
            .map(|position| {
                let (queue, failed, advance) = (Arc::clone(&queue), Arc::clone(&failed), Arc::clone(&advance));
                let shared = shared.clone();
                Env::real().spawn(&format!("run {position}"), move || {
                    loop {
                        let Some(one) = queue.lock().pop() else { return };
                        // Another experiment may be at it.
                        let Some(turn) = shared.turn(&one.key, AT_ONCE) else { continue };
                        match (one.run)(Arc::clone(&advance)) {
                            Ok(result) => shared.insert(&one.key, Arc::new(result)),
                            Err(error) => _ = failed.lock().insert(one.key, error),
                        }
                        drop(turn);
                    }
                })
            })
            .collect();
        let ended: Result<(), _> = workers.into_iter().try_for_each(|worker| worker.join());
        run.settings.progress.end();
        ended?;
        if let Some((_, error)) = std::mem::take(&mut *failed.lock()).pop_first() {
            return Err(error);
        }
    }
    let found = |key: &String| shared.get(key).ok_or_else(|| LabError::invalid("run", "it left no result"));
    keys.iter().map(found).collect()
}
