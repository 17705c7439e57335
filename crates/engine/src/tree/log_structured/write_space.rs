//! Writers and space: a write that would leave too little first has what is in memory flushed, which frees its logs and brings
//! deletions to where compactions find them; then it waits as long as compactions are due or running, and then it is
//! refused. Nothing else changes: reads go on, and as soon as there is space again writes do.

use super::background::{self, TRIES_MAX};
use super::board::JobState;
use super::jobs::unflushed;
use super::parts::TreeParts;
use super::write::{WritePath, Writer, note_stall};
use crate::commit::Group;
use crate::error::{Error, ErrorKind};
use crate::memtable::Partition;
use crate::shape::deleted_bytes;
use crate::space::{Admission, Headroom};
use std::sync::atomic::Ordering;
use varve_env::MutexGuard;

/// What is free when `active` is the memtable that is written, and gets `more_bytes`; `None` where the store cannot tell.
fn look(parts: &TreeParts, active: &Partition, more_bytes: u64) -> Option<Headroom> {
    // Asked first: as long as the state is held so are tables that were replaced.
    let space = parts.space.ask()?;
    let state = parts.catalog.read_state.load();
    Some(parts.space.headroom(space, &state.version, unflushed(&state, active, more_bytes), 0))
}

impl WritePath {
    /// Waits until a group leaves enough space, as long as that may come; then refuses it. Puts yield
    /// to deletes that come meanwhile: these may be taken, and bring space; then it is false. Cost: asks the store once for every eighth of a
    /// table, and for every write while space is short.
    pub(super) fn wait_for_space(
        &self,
        parts: &TreeParts,
        writer: &mut MutexGuard<'_, Writer>,
        group: &Group<'_>,
    ) -> Result<bool, Error> {
        let bytes = group.bytes;
        if bytes == 0 {
            return Ok(true);
        }
        writer.unlooked_bytes = writer.unlooked_bytes.saturating_add(bytes as u64);
        let is_short = parts.space.was_short();
        if !is_short && writer.unlooked_bytes < parts.space.sizes().look_bytes() {
            return Ok(true);
        }
        writer.unlooked_bytes = 0;
        self.settle(writer)?;
        let (has_puts, is_mixed) = (group.has_puts(), group.is_mixed());
        let deletes_wait = || is_mixed || self.group.has_waiting_deletes();
        let start = parts.files.env.now();
        let (mut waited, mut tries) = (false, 0);
        let result = loop {
            let Some(headroom) = look(parts, &writer.active, bytes as u64) else { return Ok(true) };
            let admission = headroom.admission();
            parts.space.note_admission(admission);
            if admission.takes(has_puts) {
                break Ok(true);
            }
            if has_puts && admission.takes(false) && deletes_wait() {
                break Ok(false);
            }
            // Once for each write that waits: it is the store's turn before anything is given up.
            if !waited && parts.space.reclaim() {
                waited = true;
                continue;
            }
            waited = true;
            // What only running compactions keep from it may be there when they end.
            let unreserved = headroom.unreserved();
            let is_short_unreserved = !unreserved.admission().takes(has_puts);
            let flushed =
                if is_short_unreserved { self.flush_for_space(parts, writer, &unreserved) } else { Ok(false) };
            let progressed = match flushed {
                Ok(true) => Ok(true),
                // Freed space may unblock the flush.
                Err(error) if error.kind() != ErrorKind::NoSpace => Err(error),
                _ => wait_for_job(parts, || has_puts && admission.takes(false) && deletes_wait()),
            };
            match progressed {
                Ok(true) => {}
                Err(error) => break Err(error),
                // Readers may have let go of tables meanwhile, or a compaction that was asked for may have ended; or one
                // ended for want of space, and a smaller one runs by now.
                Ok(false) => {
                    // There may be no space for that either.
                    let _ = parts.catalog.settle_doubts(&parts.files, &parts.board);
                    parts.files.tables.collect();
                    let now = look(parts, &writer.active, bytes as u64).filter(|now| !now.admission().takes(has_puts));
                    tries += 1;
                    if let Some(now) = now.filter(|_| tries >= TRIES_MAX) {
                        let is_taken = !has_puts && now.takes_deletes_at_last();
                        break if is_taken { Ok(true) } else { Err(parts.space.refusal(&now, has_puts)) };
                    }
                }
            }
        };
        if waited {
            note_stall(parts, start);
        }
        let refused = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace);
        parts.catalog.counters.writes_out_of_space.fetch_add(u64::from(refused), Ordering::Relaxed);
        result
    }

    /// Prepares closing: flushes memtables whose log broke, or whose held-back bytes do not fit on the medium.
    ///
    /// Errors: those of a flush. A flush without space is retried while compactions or the store free some.
    pub(super) fn secure(&self, parts: &TreeParts) -> Result<(), Error> {
        // A writer that holds the lock waits for jobs, and closing must end that wait. If the log is broken then, closing it fails.
        let Some(mut writer) = self.writer.try_lock() else { return Ok(()) };
        if writer.closed || parts.board.is_poisoned() || parts.board.is_cancelled() {
            return Ok(());
        }
        self.settle(&writer)?;
        // A failure breaks the log; the loop below then writes a table in its place.
        let _ = writer.head.log.flush(&parts.logs);
        let mut tries = 0;
        while writer.flush_owed || writer.head.log.is_torn() {
            match self.replace_broken_log(parts, &mut writer) {
                Err(error) if error.kind() == ErrorKind::NoSpace && tries < TRIES_MAX => {
                    tries += 1;
                    if !parts.space.reclaim() {
                        wait_for_job(parts, || false)?;
                        parts.files.tables.collect();
                    }
                }
                result => result?,
            }
        }
        Ok(())
    }

    /// Flushes what is in memory if that may give space back: its logs, or what its deletions delete. False when not.
    fn flush_for_space(
        &self,
        parts: &TreeParts,
        writer: &mut MutexGuard<'_, Writer>,
        headroom: &Headroom,
    ) -> Result<bool, Error> {
        if writer.head.log.is_broken() || writer.flush_owed {
            return self.replace_broken_log(parts, writer).map(|()| true);
        }
        let deletions = writer.active.deletions();
        let deleted = || {
            let version = parts.catalog.version();
            deleted_bytes(&version, deletions, parts.snapshots.oldest())
        };
        // What is in memory may be little, and keep logs that are long.
        let logs_bytes = || {
            let first = writer.active.first_sequence().filter(|_| parts.pool.is_some())?;
            let begin = parts.board.lock().log_with(first)?;
            Some(writer.logged_bytes - begin.written_bytes)
        };
        let is_much = headroom.admission() == Admission::Full
            || logs_bytes().is_some_and(|bytes| bytes >= parts.space.sizes().look_bytes())
            || writer.active.memory_bytes() as u64 >= parts.space.sizes().look_bytes();
        let is_little = || deletions == 0 || deleted() < headroom.worth_bytes();
        if writer.active.is_empty() || (!is_much && is_little()) {
            return Ok(false);
        }
        self.switch_memtable(parts, writer)?;
        self.wait_for_flush(parts, 1)?;
        Ok(true)
    }
}

/// Waits for the next flush or compaction to end, or for a step of one; false when none runs nor is due, or when it ran
/// out of space. One that does while a compaction runs does not count: its space may come back. Ends early when
/// `is_asked` returns true, which is checked whenever a job ends and the condition `done` is notified.
///
/// Errors: what else it failed with.
pub(super) fn wait_for_job(parts: &TreeParts, is_asked: impl Fn() -> bool) -> Result<bool, Error> {
    let mut jobs = parts.board.lock();
    let before = (jobs.flush_attempts, jobs.compaction_attempts);
    jobs.retries += 1;
    parts.board.work.notify_all();
    let _waiting = parts.throttle.wait();
    let has_no_space = |error: &Option<Error>| error.as_ref().is_some_and(|error| error.kind() == ErrorKind::NoSpace);
    let counts = |jobs: &JobState, failure: &Option<Error>| jobs.running_compactions == 0 || !has_no_space(failure);
    let flush_counts = |jobs: &JobState| jobs.flush_attempts != before.0 && counts(jobs, &jobs.flush_error);
    let compaction_counts =
        |jobs: &JobState| jobs.compaction_attempts != before.1 && counts(jobs, &jobs.compaction_error);
    let has_ended = |jobs: &JobState| compaction_counts(jobs) || flush_counts(jobs);
    let mut asks = 0;
    loop {
        if has_ended(&jobs) {
            let of_flush = jobs.flush_error.as_ref().filter(|_| flush_counts(&jobs));
            let of_compaction = jobs.compaction_error.as_ref().filter(|_| compaction_counts(&jobs));
            return match of_flush.or(of_compaction) {
                None => Ok(true),
                Some(error) if error.kind() == ErrorKind::NoSpace => Ok(false),
                Some(error) => Err(error.clone()),
            };
        }
        let (relocked, is_idle) = background::is_idle(parts, jobs);
        jobs = relocked;
        if jobs.closing {
            return Err(Error::Closed);
        }
        if let Some(error) = &jobs.poisoned {
            return Err(error.clone());
        }
        // Bounds the wait if no worker starts a job that looks due here.
        if is_idle || asks > TRIES_MAX {
            return Ok(false);
        }
        if is_asked() {
            return Ok(true);
        }
        if !has_ended(&jobs) {
            if !jobs.is_progressing() {
                // Space may have come without a job after the workers looked.
                asks += u32::from(!jobs.look_is_pending);
                parts.board.ask_to_look(&mut jobs);
            }
            parts.board.done.wait(&mut jobs);
        }
    }
}
