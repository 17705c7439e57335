//! Lets pages leave before room is needed: does what the policy in `room` says.

use super::device::{Shared, State};
use super::parameters::EvictionAhead;
use super::room::{Situation, Turn};
use crate::idler::ControlledDevice;
use std::sync::Arc;
use varve_env::{Env, Instant, JoinHandle, Mutex};
use varve_media::{IoClass, IoContext};

/// What all handles share: its end is that of the actor.
pub(super) struct Front {
    pub(super) shared: Arc<Shared>,
    actor: Mutex<Option<JoinHandle<()>>>,
}

impl Front {
    pub(super) fn new(env: &Env, shared: Shared) -> Front {
        let shared = Arc::new(shared);
        let actor = shared.parameters.ahead.clone().map(|ahead| {
            let shared = Arc::clone(&shared);
            env.spawn("eviction", move || shared.evict_ahead(&ahead))
        });
        Front { shared, actor: Mutex::new(env, "eviction's thread", actor) }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.is_closed = true;
        self.shared.work.notify_all();
        drop(state);
        if let Some(actor) = self.actor.get_mut().take() {
            // One that panicked has said so.
            let _ = actor.join();
        }
        self.shared.seal();
    }
}

impl Shared {
    /// Closes the map on the medium, so that damage to its end is noticed. What it says is the same without.
    fn seal(&self) {
        let has_stopped = self.state.lock().stopped.is_some();
        if !has_stopped {
            let _ = self.journal.lock().seal(&IoContext::of(IoClass::Metadata));
        }
    }

    /// Wakes those who wait for something to change in the state.
    pub(super) fn tell(&self, state: &State) {
        self.changed.notify_all();
        self.wake(state);
    }

    /// Wakes the actor, if it waits and there is something to do for it.
    pub(super) fn wake(&self, state: &State) {
        let is_due = |ahead: &EvictionAhead| self.parameters.is_short(ahead, &self.situation(state));
        if state.rests && self.parameters.ahead.as_ref().is_some_and(is_due) {
            self.work.notify_all();
        }
    }

    /// Keeps pages free until the last handle goes. Waits without a timer unless something is due.
    fn evict_ahead(&self, ahead: &EvictionAhead) {
        let context = IoContext::of(IoClass::Maintenance);
        let mut state = self.state.lock();
        while !state.is_closed {
            let found = self.situation_ahead(&state, ahead);
            let turn = match state.stopped {
                Some(_) => Turn::WhenChanged,
                None => self.parameters.turn_ahead(ahead, &found),
            };
            if let Some(plan) = self.begin(&mut state, turn, &found) {
                drop(state);
                let result = self.perform(&plan, &context);
                state = self.end(&plan, &result);
                // Not again until it went well with somebody who needs room, and is told.
                state.has_failed |= result.is_err();
                state.statistics.evictions_ahead += u64::from(result.is_ok());
                continue;
            }
            state.rests = true;
            match turn {
                Turn::At(nanos) => _ = self.work.wait_until(&mut state, Instant::from_nanos(nanos)),
                _ => self.work.wait(&mut state),
            }
            state.rests = false;
        }
    }

    fn situation_ahead(&self, state: &State, ahead: &EvictionAhead) -> Situation {
        let found = self.situation(state);
        // Asked only where it matters.
        let is_short = self.parameters.is_short(ahead, &found);
        let is_held_back = is_short && self.control.as_ref().is_some_and(ControlledDevice::is_holding);
        Situation { is_held_back, ..found }
    }
}
