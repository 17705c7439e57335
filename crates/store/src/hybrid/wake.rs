//! Something that happens now and then, and somebody who waits for it.

use varve_env::{Condvar, Env, Mutex};

#[derive(Debug, Default)]
struct State {
    is_due: bool,
    is_stopped: bool,
}

/// Wakes one thread of the background. Nothing is lost: what happens while it works wakes it again. Without timers, so that a
/// simulation ends when nobody does anything any more.
pub(super) struct Wake {
    state: Mutex<State>,
    changed: Condvar,
}

impl Wake {
    pub(super) fn new(env: &Env, name: &'static str) -> Wake {
        Wake { state: Mutex::new(env, name, State::default()), changed: Condvar::new(env, name) }
    }

    /// There is something to do.
    pub(super) fn notify(&self) {
        let mut state = self.state.lock();
        state.is_due = true;
        self.changed.notify_all();
    }

    /// Nothing more is to be done.
    pub(super) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }

    /// Waits until there is something to do; false when it was stopped.
    pub(super) fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while !state.is_due && !state.is_stopped {
            self.changed.wait(&mut state);
        }
        state.is_due = false;
        !state.is_stopped
    }

    /// Waits until there is something to do, but no longer than until then. True when the time passed.
    pub(super) fn wait_until(&self, deadline: varve_env::Instant) -> bool {
        let mut state = self.state.lock();
        while !state.is_due && !state.is_stopped {
            if self.changed.wait_until(&mut state, deadline) {
                return true;
            }
        }
        false
    }

    /// Sleeps until then; false when it was stopped before.
    pub(super) fn sleep_until(&self, deadline: varve_env::Instant) -> bool {
        let mut state = self.state.lock();
        while !state.is_stopped {
            if self.changed.wait_until(&mut state, deadline) {
                break;
            }
        }
        !state.is_stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use varve_env::Instant;

    #[test]
    fn what_happens_meanwhile_is_not_lost_and_a_stop_ends_a_sleep() {
        let env = Env::sim(1);
        let wake = Arc::new(Wake::new(&env, "wake"));
        wake.notify();
        assert!(wake.wait() && !wake.is_stopped());
        assert!(wake.sleep_until(Instant::from_nanos(5_000)));
        assert_eq!(env.now().as_nanos(), 5_000);
        assert!(wake.wait_until(Instant::from_nanos(6_000)) && env.now().as_nanos() == 6_000);
        wake.notify();
        assert!(!wake.wait_until(Instant::from_nanos(7_000)) && env.now().as_nanos() == 6_000);
        assert!(wake.wait(), "what it was woken for is still to be done");
        let (other, sleeper) = (wake.clone(), env.clone());
        let slept = sleeper.spawn("sleeper", move || other.sleep_until(Instant::from_nanos(u64::MAX / 2)));
        env.sleep(std::time::Duration::from_micros(3));
        wake.stop();
        assert!(!slept.join().unwrap_or_else(|panicked| panicked.resume()));
        assert!(!wake.wait() && wake.is_stopped());
        assert!(env.now().as_nanos() < 1_000_000);
    }
}
