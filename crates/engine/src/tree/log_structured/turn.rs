//! Writers' turns: they queue up, and one of them leads and commits for all who wait.
//!
//! A leader whose puts wait for room stands aside for deletes that come behind it: for these there may be room, and they
//! may bring some. Nothing of its group was written then, and it queues up again.

use super::shared::{Shared, panic_message};
use super::write::{Commit, WritePath};
use crate::batch::WriteBatch;
use crate::error::Error;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_env::{Condvar, MutexGuard};

/// Bytes of batches one leader gathers.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// A writer waiting for its turn.
struct Waiter {
    state: parking_lot::Mutex<WaiterState>,
    turn: Condvar,
}

struct WaiterState {
    batch: Option<WriteBatch>,
    sync: bool,
    result: Option<Result<(), Error>>,
    leads: bool,
}

impl WaiterState {
    /// Waits to delete, and nothing else.
    fn is_delete(&self) -> bool {
        self.batch.as_ref().is_some_and(|batch| !batch.is_empty() && !batch.has_puts())
    }
}

#[derive(Default)]
pub(super) struct Turn {
    led: bool,
    waiting: VecDeque<Arc<Waiter>>,
}

/// How a leader's turn ended.
enum Led<'a> {
    Done(Result<(), Error>),
    /// Its puts wait for room, and let deletes go before them: nothing of its group was written.
    StoodAside(MutexGuard<'a, Turn>, WriteBatch),
}

impl WritePath {
    /// Applies a batch; see [`crate::tree::Tree::write`].
    pub(super) fn write(&self, shared: &Shared, mut batch: WriteBatch, sync: bool) -> Result<(), Error> {
        let mut turn = self.turn.lock();
        let mut waits = turn.led;
        turn.led = true;
        loop {
            if waits {
                let waiter = Arc::new(Waiter {
                    state: parking_lot::Mutex::new(WaiterState {
                        batch: Some(batch),
                        sync,
                        result: None,
                        leads: false,
                    }),
                    turn: Condvar::new(&shared.env, "write group"),
                });
                self.queue(shared, &mut turn, waiter.clone());
                batch = loop {
                    waiter.turn.wait(&mut turn);
                    let mut state = waiter.state.lock();
                    if let Some(result) = state.result.take() {
                        return result;
                    }
                    if state.leads {
                        break state.batch.take().unwrap_or_default();
                    }
                };
            }
            (turn, batch) = match self.lead(shared, turn, batch, sync) {
                Led::Done(result) => return result,
                Led::StoodAside(turn, batch) => (turn, batch),
            };
            // It goes behind those who are in the queue.
            waits = self.hand_on(&mut turn);
            turn.led = true;
        }
    }

    fn queue(&self, shared: &Shared, turn: &mut Turn, waiter: Arc<Waiter>) {
        let is_delete = waiter.state.lock().is_delete();
        turn.waiting.push_back(waiter);
        if is_delete {
            self.waiting_deletes.fetch_add(1, Ordering::SeqCst);
            // The leader may wait for room that this one does not need.
            if shared.is_short_of_room.load(Ordering::SeqCst) {
                drop(shared.core.lock());
                shared.done.notify_all();
            }
        }
    }

    fn take(&self, turn: &mut Turn) -> Option<Arc<Waiter>> {
        let next = turn.waiting.pop_front()?;
        if next.state.lock().is_delete() {
            self.waiting_deletes.fetch_sub(1, Ordering::SeqCst);
        }
        Some(next)
    }

    /// The next one in the queue leads; false when there is none.
    fn hand_on(&self, turn: &mut Turn) -> bool {
        let next = self.take(turn);
        if let Some(next) = &next {
            next.state.lock().leads = true;
            next.turn.notify_one();
        }
        turn.led = next.is_some();
        turn.led
    }

    /// Commits `batch` and as many waiting ones as fit, then hands the lead on.
    fn lead<'a>(
        &'a self,
        shared: &Shared,
        mut turn: MutexGuard<'a, Turn>,
        batch: WriteBatch,
        mut sync: bool,
    ) -> Led<'a> {
        let mut followers: Vec<Arc<Waiter>> = Vec::new();
        let mut batches = Vec::new();
        let mut bytes = batch.size_bytes();
        while let Some(next) = turn.waiting.front() {
            let state = next.state.lock();
            let next_bytes = state.batch.as_ref().map_or(0, WriteBatch::size_bytes);
            // Deletes may be taken where puts are not.
            let is_apart = shared.is_short_of_room.load(Ordering::Relaxed)
                && state.batch.as_ref().is_some_and(|next| next.has_puts() != batch.has_puts());
            if bytes + next_bytes > GROUP_BYTES_MAX || is_apart {
                break;
            }
            bytes += next_bytes;
            sync |= state.sync;
            drop(state);
            let Some(follower) = self.take(&mut turn) else { break };
            batches.extend(follower.state.lock().batch.take());
            followers.push(follower);
        }
        drop(turn);

        let committed = catch_unwind(AssertUnwindSafe(|| {
            let mut writer = self.writer.lock();
            self.commit(shared, &mut writer, &batch, &batches, bytes, sync)
        }));
        let (result, panicked) = match committed {
            Ok(Ok(Commit::StandsAside)) => {
                let mut turn = self.turn.lock();
                for (follower, batch) in followers.into_iter().zip(batches) {
                    follower.state.lock().batch = Some(batch);
                    self.queue(shared, &mut turn, follower);
                }
                return Led::StoodAside(turn, batch);
            }
            Ok(result) => (result.map(|_| ()), None),
            Err(payload) => {
                let cause = format!("a write panicked: {}", panic_message(&*payload));
                shared.halt(cause.clone());
                // What the log holds is unknown: it must not get a seal that says it is whole.
                self.writer.lock().log_broken = true;
                (Err(Error::Latched { cause }), Some(payload))
            }
        };

        let mut turn = self.turn.lock();
        for follower in followers {
            follower.state.lock().result = Some(result.clone());
            follower.turn.notify_one();
        }
        self.hand_on(&mut turn);
        drop(turn);
        if let Some(payload) = panicked {
            resume_unwind(payload);
        }
        Led::Done(result)
    }
}
