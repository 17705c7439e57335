//! The one queue of an emulated device, shared by every thread that uses the device.
//!
//! There is no thread of the device's own. One of the waiting submitters, the *driver*, sleeps to
//! the next event of the timing model, moves the model on and wakes those whose work is done;
//! when its own is done it hands the part to another.

use super::timing::{MediaCounters, Task, Timing, Work};
use std::sync::Arc;
use varve_env::{Condvar, Env, Instant, Mutex};

/// What an emulated device does with its time in a real env. In a simulation time is virtual and
/// always passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// Requests take as long as on the device.
    #[default]
    Sleep,
    /// Requests return at once; the device's own clock counts what they would have taken. Batches of
    /// different threads then do not share the queue: each runs when the one before is done.
    Account,
}

pub(super) struct Queue {
    env: Env,
    /// Whether the device's clock is the env's.
    follows_env: bool,
    state: Mutex<QueueState>,
}

struct QueueState {
    timing: Box<dyn Timing>,
    /// When the device was made: its nanosecond 0.
    begin_nanos: u64,
    /// How far the timing model has been moved on.
    now_nanos: u64,
    seats: Vec<Seat>,
    free_seats: Vec<usize>,
    driver: Option<usize>,
    driver_wakes_nanos: u64,
    completed: Vec<u64>,
}

/// One batch in flight.
struct Seat {
    /// Tasks of the batch that are not complete.
    open_tasks: usize,
    woken: Arc<Condvar>,
}

impl QueueState {
    /// Moves the model on and tells the owners of completed work. `own` needs no telling.
    fn advance(&mut self, now_nanos: u64, own: usize) {
        self.now_nanos = self.now_nanos.max(now_nanos);
        let mut completed = std::mem::take(&mut self.completed);
        self.timing.advance(self.now_nanos, &mut completed);
        for id in completed.drain(..) {
            let number = (id >> 32) as usize;
            let seat = &mut self.seats[number];
            seat.open_tasks -= 1;
            if seat.open_tasks == 0 && number != own {
                seat.woken.notify_one();
            }
        }
        self.completed = completed;
    }

    fn take_seat(&mut self, env: &Env) -> usize {
        self.free_seats.pop().unwrap_or_else(|| {
            self.seats.push(Seat { open_tasks: 0, woken: Arc::new(Condvar::new(env, "device queue")) });
            self.seats.len() - 1
        })
    }

    /// Gives the driver's part to the first seat that still waits.
    fn hand_over(&mut self) {
        self.driver = self.seats.iter().position(|seat| seat.open_tasks > 0);
        if let Some(driver) = self.driver {
            self.driver_wakes_nanos = 0;
            self.seats[driver].woken.notify_one();
        }
    }
}

impl Queue {
    pub(super) fn new(env: Env, pacing: Pacing, timing: Box<dyn Timing>) -> Self {
        let state = QueueState {
            timing,
            begin_nanos: env.now().as_nanos(),
            now_nanos: 0,
            seats: Vec::new(),
            free_seats: Vec::new(),
            driver: None,
            driver_wakes_nanos: 0,
            completed: Vec::new(),
        };
        let follows_env = env.is_virtual() || pacing == Pacing::Sleep;
        Queue { state: Mutex::new(&env, "device queue", state), follows_env, env }
    }

    /// The device's clock.
    fn now_nanos(&self, state: &QueueState) -> u64 {
        if self.follows_env { self.env.now().as_nanos() - state.begin_nanos } else { state.now_nanos }
    }

    /// Does `works` (what, first byte, bytes), all in flight at once, and returns when all are done.
    pub(super) fn run(&self, works: impl Iterator<Item = (Work, u64, u64)>) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let now = self.now_nanos(state);
        let own = state.take_seat(&self.env);
        state.advance(now, own);
        for (number, (work, offset_bytes, length_bytes)) in works.enumerate() {
            let id = (own as u64) << 32 | number as u64;
            state.seats[own].open_tasks += 1;
            state.timing.submit(state.now_nanos, Task { id, work, offset_bytes, length_bytes });
        }
        let woken = Arc::clone(&state.seats[own].woken);
        loop {
            let state = &mut *guard;
            let mut now = self.now_nanos(state);
            state.advance(now, own);
            while !self.follows_env && state.seats[own].open_tasks > 0 {
                now = state.timing.next_event_nanos().unwrap_or(now);
                state.advance(now, own);
            }
            if state.seats[own].open_tasks == 0 {
                break;
            }
            // A driver that sleeps past an event this batch has brought is relieved.
            let next = state.timing.next_event_nanos().unwrap_or(u64::MAX);
            if state.driver.is_none_or(|driver| driver == own) || next < state.driver_wakes_nanos {
                state.driver = Some(own);
                state.driver_wakes_nanos = next;
                let wakes = Instant::from_nanos(state.begin_nanos.saturating_add(next));
                woken.wait_until(&mut guard, wakes);
            } else {
                woken.wait(&mut guard);
            }
        }
        let state = &mut *guard;
        state.free_seats.push(own);
        if state.driver == Some(own) {
            state.hand_over();
        }
    }

    /// What the timing model counted so far.
    pub(super) fn counters(&self) -> MediaCounters {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let now = self.now_nanos(state);
        state.advance(now, usize::MAX);
        state.timing.counters(state.now_nanos)
    }
}
