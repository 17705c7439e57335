//! Lets log writes and bursts of background work take turns at a medium that they share.
//!
//! Any number of log writes pass at a time, or one burst. What is between two bursts is fair to both: log writes that waited
//! for a burst all pass before the next one begins, and those that come while one waits to begin wait for it. So nobody
//! waits for more than one burst and the writes before it, and bursts have their turns in the order in which they came.
//!
//! A log write that passes waits for the medium and for nothing else, but for other log writes if it *leads*: these then pass
//! with it, burst or no burst that waits to begin. A burst waits for the medium alone: whoever is at the gate may
//! hold any lock that neither of them takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_env::{Condvar, Env, Mutex};

/// The gate of one medium, or none: then everybody passes at once. Cloned for each who passes. Thread-safe.
#[derive(Clone, Default)]
pub(crate) struct LogGate(Option<Arc<Gate>>);

struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
    counters: GateCounters,
}

/// What a gate did, read without keeping anybody waiting.
#[derive(Debug, Default)]
struct GateCounters {
    bursts: AtomicU64,
    waits: AtomicU64,
}

#[derive(Debug, Default)]
struct GateState {
    /// A burst has the medium.
    is_bursting: bool,
    /// Log writes that were let through and have not ended.
    passing: usize,
    /// Those of them that may wait for others, which pass with them.
    leading: usize,
    /// Log writes that wait for the end of a burst.
    waiting: usize,
    /// Those of them that will lead.
    waiting_to_lead: usize,
    /// Bursts that asked.
    asked_bursts: u64,
    /// Bursts that began.
    begun_bursts: u64,
    /// Bursts that ended: with each those who waited for it pass.
    ended_bursts: u64,
    /// Nobody waits any more.
    is_open: bool,
}

impl GateState {
    fn lets_logs_pass(&self) -> bool {
        self.is_open || (!self.is_bursting && (self.leading > 0 || self.asked_bursts == self.begun_bursts))
    }

    fn release_waiting(&mut self) {
        self.passing += std::mem::take(&mut self.waiting);
        self.leading += std::mem::take(&mut self.waiting_to_lead);
        self.ended_bursts += 1;
    }
}

impl LogGate {
    /// A gate that is closed by bursts.
    pub(crate) fn new(env: &Env) -> LogGate {
        let state = Mutex::new(env, "log gate", GateState::default());
        let counters = GateCounters::default();
        LogGate(Some(Arc::new(Gate { state, changed: Condvar::new(env, "log gate"), counters })))
    }

    /// Somebody may be kept waiting.
    pub(crate) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Waits until the log may be written to the medium: for one burst at most. It may be as long as what is returned lives.
    pub(crate) fn pass(&self) -> LogPass<'_> {
        self.pass_as(false)
    }

    /// The same. Other log writes pass with this one until it ends, so it may wait for them. They must come to an end by
    /// themselves: bursts wait as long.
    pub(crate) fn lead(&self) -> LogPass<'_> {
        self.pass_as(true)
    }

    fn pass_as(&self, leads: bool) -> LogPass<'_> {
        let Some(gate) = self.0.as_deref() else { return LogPass { gate: None, leads } };
        let mut state = gate.state.lock();
        if state.lets_logs_pass() {
            state.passing += 1;
            state.leading += usize::from(leads);
        } else {
            state.waiting += 1;
            state.waiting_to_lead += usize::from(leads);
            gate.counters.waits.fetch_add(1, Ordering::Relaxed);
            let ended = state.ended_bursts;
            while state.ended_bursts == ended {
                gate.changed.wait(&mut state);
            }
        }
        LogPass { gate: Some(gate), leads }
    }

    /// Waits until all log writes that were let through have ended, and its turn among bursts has come. The medium is its own
    /// as long as what is returned lives; nothing once nobody waits any more.
    pub(crate) fn begin_burst(&self) -> Option<ExclusiveTurn> {
        let gate = self.0.as_ref()?;
        let mut state = gate.state.lock();
        let turn = state.asked_bursts;
        state.asked_bursts += 1;
        while !state.is_open && (state.is_bursting || state.passing > 0 || state.begun_bursts != turn) {
            gate.changed.wait(&mut state);
        }
        state.begun_bursts += 1;
        if state.is_open {
            return None;
        }
        state.is_bursting = true;
        gate.counters.bursts.fetch_add(1, Ordering::Relaxed);
        Some(ExclusiveTurn(gate.clone()))
    }

    /// A log is being written, or waits to be.
    pub(crate) fn is_passed(&self) -> bool {
        self.0.as_deref().is_some_and(|gate| {
            let state = gate.state.lock();
            state.passing + state.waiting > 0
        })
    }

    /// Bursts that had the medium to themselves.
    pub(crate) fn bursts(&self) -> u64 {
        self.0.as_deref().map_or(0, |gate| gate.counters.bursts.load(Ordering::Relaxed))
    }

    /// Log writes that waited for one.
    pub(crate) fn waits(&self) -> u64 {
        self.0.as_deref().map_or(0, |gate| gate.counters.waits.load(Ordering::Relaxed))
    }

    /// Ends all waits, those to come as well.
    pub(crate) fn open(&self) {
        let Some(gate) = self.0.as_deref() else { return };
        let mut state = gate.state.lock();
        state.is_open = true;
        state.release_waiting();
        gate.changed.notify_all();
    }
}

/// See [`LogGate::pass`].
#[must_use]
pub(crate) struct LogPass<'a> {
    gate: Option<&'a Gate>,
    leads: bool,
}

impl Drop for LogPass<'_> {
    fn drop(&mut self) {
        let Some(gate) = self.gate else { return };
        let mut state = gate.state.lock();
        state.passing -= 1;
        state.leading -= usize::from(self.leads);
        if state.passing == 0 {
            gate.changed.notify_all();
        }
    }
}

/// See [`LogGate::begin_burst`].
#[must_use]
pub(crate) struct ExclusiveTurn(Arc<Gate>);

impl Drop for ExclusiveTurn {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_bursting = false;
        state.release_waiting();
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;
    use varve_env::JoinHandle;

    const SEEDS: u64 = 40;

    fn milliseconds(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
        threads.into_iter().for_each(|thread| thread.join().unwrap_or_else(|panic| panic.resume()));
    }

    /// What holds of the medium at any moment, and who had it in what order.
    #[derive(Default)]
    struct Medium {
        writers: usize,
        bursts: usize,
        history: Vec<(char, usize)>,
    }

    /// A log write that takes a millisecond, or a burst that takes ten.
    fn use_medium(env: &Env, gate: &LogGate, medium: &parking_lot::Mutex<Medium>, what: char, number: usize) {
        let (pass, turn) = match what {
            'w' => (Some(gate.pass()), None),
            _ => (None, gate.begin_burst()),
        };
        {
            let mut medium = medium.lock();
            if what == 'w' {
                medium.writers += 1
            } else {
                medium.bursts += 1
            }
            assert!(medium.bursts <= 1 && (medium.bursts == 0 || medium.writers == 0), "a burst is alone");
            medium.history.push((what, number));
        }
        env.sleep(milliseconds(if what == 'w' { 1 } else { 10 }));
        let mut medium = medium.lock();
        if what == 'w' {
            medium.writers -= 1
        } else {
            medium.bursts -= 1
        }
        drop((pass, turn));
    }

    /// Two jobs that burst without a break and three writers: nobody is shut out, and none meets another where it must not.
    #[test]
    fn bursts_are_alone_and_nobody_starves() {
        for seed in 0..SEEDS {
            let env = Env::sim(seed);
            let (gate, medium) = (LogGate::new(&env), Arc::new(parking_lot::Mutex::new(Medium::default())));
            let threads = [('b', 0), ('b', 1), ('w', 2), ('w', 3), ('w', 4)].map(|(what, number)| {
                let (env, gate, medium) = (env.clone(), gate.clone(), medium.clone());
                env.clone().spawn("uses the medium", move || {
                    for _ in 0..30 {
                        use_medium(&env, &gate, &medium, what, number);
                    }
                })
            });
            join(threads);
            let history = &medium.lock().history;
            // As long as all go on: between two bursts every writer has its turn, and jobs take turns.
            let bursts: Vec<usize> = (0..history.len()).filter(|&at| history[at].0 == 'b').collect();
            for pair in bursts[2..26].windows(2) {
                let mut between: Vec<usize> = history[pair[0] + 1..pair[1]].iter().map(|(_, number)| *number).collect();
                between.sort_unstable();
                between.dedup();
                assert_eq!(between, [2, 3, 4], "seed {seed}");
                assert_ne!(history[pair[0]].1, history[pair[1]].1, "seed {seed}: jobs take turns");
            }
        }
    }

    #[test]
    fn who_comes_while_a_burst_waits_passes_after_it() {
        let env = Env::sim(3);
        let gate = LogGate::new(&env);
        let first = gate.pass();
        let burst = {
            let (env, gate) = (env.clone(), gate.clone());
            env.clone().spawn("burst", move || {
                let turn = gate.begin_burst();
                assert_eq!(env.now().as_nanos(), 5_000_000, "when the first write ended");
                env.sleep(milliseconds(100));
                drop(turn);
            })
        };
        env.sleep(milliseconds(2));
        let second = {
            let (env, gate) = (env.clone(), gate.clone());
            env.clone().spawn("writer", move || {
                let _pass = gate.pass();
                assert_eq!(env.now().as_nanos(), 105_000_000);
            })
        };
        env.sleep(milliseconds(3));
        assert!(gate.is_passed());
        drop(first);
        join([burst, second]);
        assert!(!gate.is_passed());
        assert_eq!((gate.bursts(), gate.waits()), (1, 1), "the first write waited for nobody");
    }

    /// A write that waits for another one must not wait for ever because a burst wants to begin.
    #[test]
    fn others_pass_with_one_that_leads() {
        for seed in 0..SEEDS {
            let env = Env::sim(seed);
            let gate = LogGate::new(&env);
            let burst = {
                let (env, gate) = (env.clone(), gate.clone());
                env.clone().spawn("bursts", move || {
                    for _ in 0..20 {
                        let turn = gate.begin_burst();
                        env.sleep(milliseconds(3));
                        drop(turn);
                    }
                })
            };
            for round in 0..20 {
                let lead = gate.lead();
                env.sleep(milliseconds(round % 4));
                let other = {
                    let (env, gate) = (env.clone(), gate.clone());
                    env.clone().spawn("another write", move || {
                        let _pass = gate.pass();
                        env.sleep(milliseconds(1));
                    })
                };
                let begin = env.now();
                join([other]);
                assert_eq!(env.now() - begin, milliseconds(1), "seed {seed}");
                drop(lead);
            }
            join([burst]);
            assert!(!gate.is_passed());
        }
    }

    /// As at the end of a tree: nobody waits, neither for a burst that goes on nor for a turn.
    #[test]
    fn opening_it_ends_all_waits() {
        let env = Env::sim(1);
        let gate = LogGate::new(&env);
        let turn = gate.begin_burst();
        let waiting: Vec<JoinHandle<()>> = ['w', 'w', 'b']
            .map(|what| {
                let gate = gate.clone();
                env.spawn("waits", move || match what {
                    'w' => drop(gate.pass()),
                    _ => assert!(gate.begin_burst().is_none()),
                })
            })
            .into();
        env.sleep(milliseconds(10));
        gate.open();
        join(waiting);
        drop(gate.pass());
        assert!(gate.begin_burst().is_none());
        drop(turn);
        assert_eq!(env.now().as_nanos(), 10_000_000);
        assert!(!gate.is_passed());
        assert_eq!((gate.bursts(), gate.waits()), (1, 2), "a burst that was given up is none");
    }

    #[test]
    fn what_panics_lets_go_of_it() {
        let env = Env::sim(1);
        let gate = LogGate::new(&env);
        for what in ["a burst", "a write"] {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let _held = (what == "a burst").then(|| gate.begin_burst());
                let _passed = (what == "a write").then(|| gate.pass());
                panic!("{what} broke down");
            }));
            assert!(panicked.is_err());
            drop(gate.pass());
            assert!(gate.begin_burst().is_some());
        }
    }

    #[test]
    fn without_one_everybody_passes() {
        let gate = LogGate::default();
        assert!(!gate.is_there() && gate.begin_burst().is_none());
        let _passes = (gate.pass(), gate.pass());
        assert!(!gate.is_passed());
        assert_eq!((gate.bursts(), gate.waits()), (0, 0));
    }
}
