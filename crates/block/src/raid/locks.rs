//! Locks of stripes, first come, first served.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use varve_env::{Condvar, Env, Mutex};

/// Who waits for each stripe, the holder first. An owner queues for all its stripes at one moment, so all queues have
/// owners in the same order and no two wait for each other.
pub(super) struct StripeLocks {
    queues: Mutex<Queues>,
    changed: Condvar,
}

#[derive(Default)]
struct Queues {
    next: u64,
    waiting: BTreeMap<u64, VecDeque<u64>>,
}

/// Stripes that are locked while it lives.
pub(super) struct LockedStripes<'a> {
    locks: &'a StripeLocks,
    ticket: u64,
    stripes: BTreeSet<u64>,
}

impl StripeLocks {
    pub(super) fn new(env: &Env) -> StripeLocks {
        let queues = Mutex::new(env, "stripes of an array", Queues::default());
        StripeLocks { queues, changed: Condvar::new(env, "stripes of an array") }
    }

    /// Waits until all of the stripes are free, and takes them.
    pub(super) fn lock(&self, stripes: BTreeSet<u64>) -> LockedStripes<'_> {
        let mut queues = self.queues.lock();
        let ticket = queues.next;
        queues.next += 1;
        for &stripe in &stripes {
            queues.waiting.entry(stripe).or_default().push_back(ticket);
        }
        let is_first = |queues: &Queues| {
            stripes.iter().all(|stripe| queues.waiting.get(stripe).and_then(VecDeque::front) == Some(&ticket))
        };
        while !is_first(&queues) {
            self.changed.wait(&mut queues);
        }
        drop(queues);
        LockedStripes { locks: self, ticket, stripes }
    }
}

impl Drop for LockedStripes<'_> {
    fn drop(&mut self) {
        let mut queues = self.locks.queues.lock();
        let mut has_waiters = false;
        for stripe in &self.stripes {
            if let Some(queue) = queues.waiting.get_mut(stripe) {
                queue.retain(|ticket| *ticket != self.ticket);
                has_waiters |= !queue.is_empty();
                if queue.is_empty() {
                    queues.waiting.remove(stripe);
                }
            }
        }
        drop(queues);
        if has_waiters {
            self.locks.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;
    use varve_env::{Random, SimOptions};

    #[test]
    fn holders_are_alone_and_all_get_their_turn() {
        for seed in 0..10 {
            let env = Env::sim_with(SimOptions { seed, perturb: true, ..SimOptions::default() });
            let locks = Arc::new(StripeLocks::new(&env));
            let held: Arc<parking_lot::Mutex<BTreeSet<u64>>> = Arc::default();
            let actors: Vec<_> = (0..6)
                .map(|number| {
                    let (env, locks, held) = (env.clone(), Arc::clone(&locks), Arc::clone(&held));
                    env.clone().spawn("writer", move || {
                        let mut random = Random::named(seed, &format!("writer {number}"));
                        for _ in 0..20 {
                            let stripes: BTreeSet<u64> = (0..1 + random.below(4)).map(|_| random.below(6)).collect();
                            let locked = locks.lock(stripes.clone());
                            for stripe in &stripes {
                                assert!(held.lock().insert(*stripe), "stripe {stripe} has two holders");
                            }
                            env.sleep(Duration::from_micros(random.below(50)));
                            stripes.iter().for_each(|stripe| _ = held.lock().remove(stripe));
                            drop(locked);
                        }
                    })
                })
                .collect();
            actors.into_iter().for_each(|actor| actor.join().unwrap());
            assert!(locks.queues.lock().waiting.is_empty());
        }
    }
}
