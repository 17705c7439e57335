//! The processor that all threads of a simulation run on.
//!
//! One of them runs at a time, and they change by the million. On one processor that is a switch from one thread to the next; on
//! several it wakes another one, which takes many times as long where that slept or belongs to a virtual machine. Which one it is
//! decides nothing in a simulation.

use parking_lot::Mutex;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::marker::PhantomData;

/// Simulations of this process by processor.
static SIMULATIONS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// A simulation's place on a processor, of those that the thread that begins it may use the one with the fewest.
#[derive(Debug)]
pub(super) struct Processor {
    /// None where the system does not say which there are.
    number: Option<usize>,
}

impl Processor {
    pub(super) fn choose() -> Processor {
        let Ok(allowed) = sched_getaffinity(None) else { return Processor { number: None } };
        let here = sched_getcpu();
        let mut simulations = SIMULATIONS.lock();
        let count = |number: usize| simulations.get(number).copied().unwrap_or(0);
        let usable = (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number));
        let number = usable.min_by_key(|number| (count(*number), *number != here));
        if let Some(number) = number {
            let known = simulations.len().max(number + 1);
            simulations.resize(known, 0);
            simulations[number] += 1;
        }
        Processor { number }
    }

    /// Brings the calling thread to it until what this gives is dropped. Where the system refuses, it stays where it is.
    pub(super) fn pin(&self) -> Option<Pinned> {
        let before = sched_getaffinity(None).ok()?;
        let mut only = CpuSet::new();
        only.set(self.number?);
        sched_setaffinity(None, &only).ok()?;
        Some(Pinned { before, stays_on_thread: PhantomData })
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        let mut simulations = SIMULATIONS.lock();
        if let Some(count) = self.number.and_then(|number| simulations.get_mut(number)) {
            *count -= 1;
        }
    }
}

/// A thread that was brought to a processor; may use all again that it could before when this is dropped, on that thread.
#[derive(Debug)]
pub(super) struct Pinned {
    before: CpuSet,
    stays_on_thread: PhantomData<*const ()>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // A processor that is not there any more leaves it where it is.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Env;

    fn usable() -> Vec<usize> {
        let allowed = sched_getaffinity(None).expect("the system says which there are");
        (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number)).collect()
    }

    /// On a thread of its own, for it changes where that runs.
    fn apart(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().expect("a test that passed");
    }

    #[test]
    fn a_simulation_runs_on_one_processor_and_leaves_it() {
        apart(|| {
            let before = usable();
            let env = Env::sim(1);
            let main = usable();
            let spawned = env.spawn("other", usable).join().expect("no panic");
            assert_eq!((main.len(), &spawned), (1, &main));
            assert!(before.contains(&main[0]));
            let copy = env.clone();
            drop(env);
            assert_eq!(usable(), main);
            drop(copy);
            assert_eq!(usable(), before);
        });
    }

    #[test]
    fn who_comes_from_elsewhere_goes_back() {
        apart(|| {
            let env = Env::sim(1);
            let main = usable();
            let admission = env.admit("guest");
            let guest = env.outside(|| {
                let guest = std::thread::spawn(|| {
                    let attached = admission.attach();
                    let during = usable();
                    drop(attached);
                    (during, usable())
                });
                guest.join().expect("no panic")
            });
            assert_eq!(guest.0, main);
            assert_eq!(guest.1, main, "the thread began on the processor of the one that spawned it");
        });
    }

    #[test]
    fn simulations_that_live_together_are_spread() {
        apart(|| {
            let allowed = usable();
            let places: Vec<Processor> = (0..2 * allowed.len()).map(|_| Processor::choose()).collect();
            // Other tests begin and end simulations meanwhile, so no more is certain than that not all are on one.
            let first = places[0].number;
            assert!(allowed.len() == 1 || places.iter().any(|place| place.number != first));
            assert!(places.iter().all(|place| place.number.is_some_and(|number| allowed.contains(&number))));
        });
    }
}
