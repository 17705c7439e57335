//! What experiments of one run have in common.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use varve_env::{Condvar, Env, Mutex};

/// Results by name, so that what several experiments need is measured once. Clones share. A name holds
/// everything the result depends on. Thread-safe.
#[derive(Clone)]
pub struct SharedResults {
    of_all: Arc<OfAll>,
}

impl Default for SharedResults {
    fn default() -> Self {
        let env = Env::real();
        let state = Mutex::new(&env, "results of experiments", State::default());
        SharedResults { of_all: Arc::new(OfAll { state, changed: Condvar::new(&env, "results of experiments") }) }
    }
}

struct OfAll {
    state: Mutex<State>,
    /// A result came, or somebody gave up, or one run less goes on.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    results: BTreeMap<String, Arc<dyn Any + Send + Sync>>,
    /// Names of what is being measured.
    begun: BTreeSet<String>,
    running: usize,
}

/// A run that may go on. Its end is noted when it is dropped.
pub(crate) struct Turn {
    of_all: Arc<OfAll>,
    name: String,
}

impl SharedResults {
    /// The result called `name`, if there is one of this type.
    pub(crate) fn get<T: Any + Send + Sync>(&self, name: &str) -> Option<Arc<T>> {
        let found = self.of_all.state.lock().results.get(name).cloned();
        found.and_then(|result| result.downcast().ok())
    }

    /// Keeps a result.
    pub(crate) fn insert<T: Any + Send + Sync>(&self, name: &str, result: Arc<T>) {
        self.of_all.state.lock().results.insert(name.to_owned(), result);
        self.of_all.changed.notify_all();
    }

    /// Waits until no more than `at_once` runs go on, this one included, and nobody else is at `name`; `None` when its result is
    /// there by then. Whoever has the turn inserts the result, or has failed.
    pub(crate) fn turn(&self, name: &str, at_once: usize) -> Option<Turn> {
        let mut state = self.of_all.state.lock();
        loop {
            if state.results.contains_key(name) {
                return None;
            }
            if !state.begun.contains(name) && state.running < at_once {
                break;
            }
            self.of_all.changed.wait(&mut state);
        }
        state.running += 1;
        state.begun.insert(name.to_owned());
        Some(Turn { of_all: Arc::clone(&self.of_all), name: name.to_owned() })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.of_all.state.lock();
        state.running -= 1;
        state.begun.remove(&self.name);
        drop(state);
        self.of_all.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_and_types_are_kept_apart() {
        let shared = SharedResults::default();
        shared.clone().insert("a", Arc::new(7u32));
        assert_eq!(shared.get::<u32>("a").as_deref(), Some(&7));
        assert!(shared.get::<u64>("a").is_none() && shared.get::<u32>("b").is_none());
    }

    #[test]
    fn what_two_need_at_once_is_measured_once() {
        let (shared, runs) = (SharedResults::default(), Arc::new(std::sync::atomic::AtomicUsize::new(0)));
        let most = Arc::new(parking_lot::Mutex::new((0, 0)));
        let workers: Vec<_> = (0..8u32)
            .map(|worker| {
                let (shared, runs, most) = (shared.clone(), Arc::clone(&runs), Arc::clone(&most));
                varve_env::Env::real().spawn("worker", move || {
                    let name = format!("name {}", worker % 4);
                    if let Some(turn) = shared.turn(&name, 2) {
                        {
                            let mut most = most.lock();
                            most.0 += 1;
                            most.1 = most.0.max(most.1);
                        }
                        std::thread::yield_now();
                        runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        shared.insert(&name, Arc::new(worker % 4));
                        most.lock().0 -= 1;
                        drop(turn);
                    }
                    assert_eq!(shared.get::<u32>(&name).as_deref(), Some(&(worker % 4)));
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!(runs.load(std::sync::atomic::Ordering::Relaxed), 4);
        assert!(most.lock().1 <= 2);
        // Who fails leaves it to the next.
        drop(shared.turn("failed", 1).unwrap());
        assert!(shared.turn("failed", 1).is_some());
    }
}
