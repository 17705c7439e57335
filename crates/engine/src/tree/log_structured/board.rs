//! Running and due jobs, and the condition variables of waiting threads.

use crate::error::Error;
use crate::key::Sequence;
use crate::memtable::Partition;
use crate::shape::Busy;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use varve_env::{Condvar, Env, Mutex, MutexGuard};

/// Memtables that take no more writes and wait for their flush.
pub(super) struct Immutable {
    pub(super) memtables: Arc<Partition>,
    /// All that was logged of their keys up to this number is in them or in tables, and nothing behind it is in them.
    pub(super) sequence: Sequence,
    /// The first log behind that.
    pub(super) next_log_number: u64,
}

/// Where a log begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogBegin {
    pub(super) number: u64,
    /// The newest sequence number before it.
    pub(super) after: Sequence,
    /// Bytes that were written to logs before, since the tree was opened.
    pub(super) written_bytes: u64,
}

/// What is running and what is due.
#[derive(Default)]
pub(super) struct JobState {
    /// Oldest first.
    pub(super) immutables: VecDeque<Immutable>,
    /// Of the logs that are needed, the oldest first.
    pub(super) logs: VecDeque<LogBegin>,
    pub(super) flush_running: bool,
    /// Those who wait until all of them are flushed, however few.
    pub(super) flush_wanted: usize,
    /// Scans wait for the flush of what waits for one, however few that is.
    pub(super) flush_hurried: bool,
    /// Recovery found no space: its memtables wait for a log to go on with.
    pub(super) flush_held: bool,
    /// What running compactions touch.
    pub(super) busy: Busy,
    pub(super) running_compactions: usize,
    /// Those who make plans without the lock, and keep the tables of a version meanwhile.
    pub(super) planning: usize,
    /// A worker reads histograms that plans wait for.
    pub(super) sampling: bool,
    /// Manual compactions waiting or running: automatic ones are not started meanwhile.
    pub(super) manual: usize,
    /// Last failure of a flush, until one succeeds.
    pub(super) flush_error: Option<Error>,
    /// Last failure of a compaction, until one succeeds.
    pub(super) compaction_error: Option<Error>,
    /// A compaction runs that needs all the space there is: no other begins.
    pub(super) compacts_alone: bool,
    /// Finished flush attempts and compaction attempts, for those who wait for the next one.
    pub(super) flush_attempts: u64,
    pub(super) compaction_attempts: u64,
    /// Counts tables that scans made worth a look.
    pub(super) dense_tables: u64,
    /// Counts requests not to wait out the delay after a failure.
    pub(super) retries: u64,
    /// Number of requests to look for jobs again. Space may come back without a job.
    pub(super) looks_asked: u64,
    /// A request to look is not answered yet: no worker has begun a job or found none since.
    pub(super) look_is_pending: bool,
    pub(super) closing: bool,
    /// A worker panicked: no further job begins, and every waiter gets this error.
    pub(super) poisoned: Option<Error>,
}

impl JobState {
    /// Someone looks at tables to plan what to do with them. Once they are replaced their space is not free before that ends;
    /// while a compaction runs alone, or a manual one is there, none begins to look.
    pub(super) fn holds_tables(&self) -> bool {
        self.planning > 0 || self.sampling
    }

    /// A log begins.
    pub(super) fn begin_log(&mut self, log: LogBegin) {
        self.logs.push_back(log);
    }

    /// The log that recovery needs first when no entry before `oldest` is in no table.
    pub(super) fn log_with(&self, oldest: Sequence) -> Option<LogBegin> {
        self.logs.iter().rev().find(|log| log.after < oldest).or(self.logs.front()).copied()
    }

    /// Logs before this one are not needed any more.
    pub(super) fn retire_logs(&mut self, number: u64) {
        self.logs.retain(|log| log.number >= number);
    }

    /// Memtables wait for a flush that may begin; of fewer than `memtables_min` only where somebody wants it.
    pub(super) fn flush_is_due(&self, memtables_min: usize) -> bool {
        let least = if self.flush_wanted > 0 || self.flush_hurried { 1 } else { memtables_min.max(1) };
        !self.flush_running && !self.flush_held && self.immutables.len() >= least
    }

    /// What decides about the next job but the version: equal when nothing changed.
    pub(super) fn outlook(&self) -> impl PartialEq + use<> {
        (
            (self.immutables.len(), self.flush_running, self.flush_wanted > 0, self.flush_held, self.busy.changes()),
            (self.running_compactions, self.sampling, self.manual, self.compacts_alone, self.dense_tables),
            (self.retries, self.looks_asked, self.closing, self.poisoned.is_some()),
        )
    }

    /// Number of running flushes and compactions.
    pub(super) fn running_jobs(&self) -> usize {
        self.running_compactions + usize::from(self.flush_running)
    }

    /// True while a job runs that notifies `done` when it ends: a flush, a compaction, or the read of histograms that a
    /// compaction waits for.
    pub(super) fn is_progressing(&self) -> bool {
        self.running_jobs() > 0 || self.sampling
    }

    /// A flush ended.
    pub(super) fn note_flush(&mut self, failure: Option<Error>) {
        self.flush_attempts += 1;
        self.flush_error = failure;
    }

    /// A compaction, or a step of one, ended.
    pub(super) fn note_compaction(&mut self, failure: Option<Error>) {
        self.compaction_attempts += 1;
        self.compaction_error = failure;
    }
}

/// The jobs of one tree. Thread-safe. Its lock is never held across I/O.
pub(super) struct JobBoard {
    state: Mutex<JobState>,
    /// Workers wait here for something to do.
    pub(super) work: Condvar,
    /// Writers, flushers and closers wait here for workers.
    pub(super) done: Condvar,
    /// Running jobs give up soon.
    cancelled: AtomicBool,
    closed: Arc<AtomicBool>,
    /// Why writes are refused, once they are.
    poisoned: parking_lot::Mutex<Option<String>>,
}

impl JobBoard {
    pub(super) fn new(env: &Env) -> JobBoard {
        JobBoard {
            state: Mutex::new(env, "jobs", JobState::default()),
            work: Condvar::new(env, "background work"),
            done: Condvar::new(env, "background progress"),
            cancelled: AtomicBool::new(false),
            closed: Arc::default(),
            poisoned: parking_lot::Mutex::new(None),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, JobState> {
        self.state.lock()
    }

    /// Refuses writes from now on.
    pub(super) fn poison(&self, cause: &Error) {
        self.poisoned.lock().get_or_insert_with(|| cause.to_string());
    }

    /// After a panic that left nobody knows what half done: refuses writes and begins no job from now
    /// on, and tells all who wait.
    pub(super) fn poison_all(&self, cause: String) {
        self.poisoned.lock().get_or_insert_with(|| cause.clone());
        let mut state = self.lock();
        state.poisoned.get_or_insert(Error::Poisoned { cause });
        self.work.notify_all();
        self.done.notify_all();
    }

    pub(super) fn is_poisoned(&self) -> bool {
        let jobs_are = self.lock().poisoned.is_some();
        jobs_are || self.poisoned.lock().is_some()
    }

    pub(super) fn refuse_if_poisoned(&self) -> Result<(), Error> {
        match &*self.poisoned.lock() {
            Some(cause) => Err(Error::Poisoned { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Makes all waiters and jobs give up.
    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Returns an error once the tree is being closed, so that waiters give up.
    #[inline]
    pub(super) fn refuse_if_cancelled(&self) -> Result<(), Error> {
        if self.is_cancelled() { Err(Error::Closed) } else { Ok(()) }
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Set once the tree is closed.
    pub(super) fn closed(&self) -> &Arc<AtomicBool> {
        &self.closed
    }

    #[inline]
    pub(super) fn refuse_if_closed(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Makes workers look for jobs again, including one that found none and is about to wait.
    pub(super) fn ask_to_look(&self, jobs: &mut JobState) {
        if !std::mem::replace(&mut jobs.look_is_pending, true) {
            jobs.looks_asked += 1;
        }
        self.work.notify_all();
    }

    /// Tells who waits for space that a step of a compaction may have given some back.
    pub(super) fn note_step(&self) {
        self.lock().note_compaction(None);
        self.done.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn what_decides_about_the_next_job_is_seen_to_change() {
        let board = JobBoard::new(&Env::sim(1));
        let before = board.lock().outlook();
        board.lock().note_flush(None);
        board.note_step();
        assert!(board.lock().outlook() == before, "attempts decide nothing");
        let changes: [fn(&mut JobState); 7] = [
            |jobs| jobs.flush_running = true,
            |jobs| jobs.running_compactions += 1,
            |jobs| jobs.sampling = true,
            |jobs| jobs.retries += 1,
            |jobs| jobs.looks_asked += 1,
            |jobs| jobs.dense_tables += 1,
            |jobs| jobs.closing = true,
        ];
        for change in changes {
            let before = board.lock().outlook();
            change(&mut board.lock());
            assert!(board.lock().outlook() != before);
        }
        assert_eq!(board.lock().running_jobs(), 2);
        assert!(board.lock().holds_tables());
    }

    #[test]
    fn the_first_cause_stays_and_a_panic_ends_jobs_too() {
        let board = JobBoard::new(&Env::sim(1));
        assert!(board.refuse_if_poisoned().is_ok() && !board.is_poisoned());
        board.poison(&Error::Closed);
        board.poison_all("a worker panicked".to_owned());
        let refused = board.refuse_if_poisoned().unwrap_err();
        assert_eq!(refused.to_string(), Error::Poisoned { cause: Error::Closed.to_string() }.to_string());
        assert!(board.is_poisoned() && board.lock().poisoned.is_some());
    }

    #[test]
    fn failures_stand_until_one_succeeds() {
        let board = JobBoard::new(&Env::sim(1));
        board.lock().note_compaction(Some(Error::Closed));
        assert!(board.lock().compaction_error.is_some());
        board.note_step();
        let jobs = board.lock();
        assert_eq!((jobs.compaction_error.is_none(), jobs.compaction_attempts, jobs.flush_attempts), (true, 2, 0));
        drop(jobs);
        board.cancel();
        board.close();
        let kinds = [board.refuse_if_cancelled(), board.refuse_if_closed()].map(|refused| refused.unwrap_err().kind());
        assert_eq!(kinds, [ErrorKind::Closed; 2]);
    }
}
