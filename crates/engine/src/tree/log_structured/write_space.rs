//! Writers and space: a write that would leave too little first has what is in memory flushed, which frees its logs and brings
//! deletions to where compactions find them; then it waits as long as compactions are due or running, and then it is
//! refused. Nothing else changes: reads go on, and as soon as there is space again writes do.

use super::background;
use super::shared::{Core, ReadState, Shared};
use super::write::{WritePath, Writer, note_stall};
use crate::commit::{Commit, Group};
use crate::error::{Error, ErrorKind};
use crate::memtable::MemTable;
use crate::shape::deleted_bytes;
use crate::space::{Admission, Headroom, Unflushed};
use std::sync::atomic::Ordering;
use varve_env::MutexGuard;

/// How often a writer waits for jobs again that freed nothing, before it is refused.
const TRIES_MAX: u32 = 8;

fn unflushed(state: &ReadState, active: &MemTable, more_bytes: u64) -> Unflushed {
    let bytes_of = |memtable: &MemTable| if memtable.is_empty() { 0 } else { memtable.memory_bytes() as u64 };
    Unflushed {
        waiting_bytes: state.immutables.iter().map(|memtable| bytes_of(memtable)).sum(),
        active_bytes: bytes_of(active).saturating_add(more_bytes),
    }
}

/// What is free when `active` is the memtable that is written, and gets `more_bytes`; `None` where the store cannot tell.
fn look(shared: &Shared, active: &MemTable, more_bytes: u64) -> Option<Headroom> {
    // Asked first: as long as the state is held so are tables that were replaced.
    let space = shared.space.ask()?;
    let state = shared.read_state.load();
    Some(shared.space.headroom(space, &state.version, unflushed(&state, active, more_bytes), 0))
}

/// What the smallest write would meet, and the bytes that outputs of compactions may have, of which one that runs has
/// reserved `own_bytes`. Cost: asks the store once.
pub(super) fn look_now(shared: &Shared, own_bytes: u64) -> (Option<Headroom>, u64) {
    let Some(space) = shared.space.ask() else { return (None, u64::MAX) };
    let state = shared.read_state.load();
    let of = |more_bytes| {
        let unflushed = unflushed(&state, &state.memtable, more_bytes);
        shared.space.headroom(space, &state.version, unflushed, own_bytes)
    };
    (Some(of(1)), of(0).compaction_bytes())
}

impl WritePath {
    /// Waits until a group leaves enough space, as long as that may come; then refuses it. Puts yield
    /// to deletes that come meanwhile: these may be taken, and bring space. Cost: asks the store once for every eighth of a
    /// table, and for every write while space is short.
    pub(super) fn wait_for_space(
        &self,
        shared: &Shared,
        writer: &mut MutexGuard<'_, Writer>,
        group: &Group<'_>,
    ) -> Result<Commit, Error> {
        let bytes = group.bytes;
        if bytes == 0 {
            return Ok(Commit::Done);
        }
        writer.unlooked_bytes = writer.unlooked_bytes.saturating_add(bytes as u64);
        let is_short = shared.space.was_short();
        if !is_short && writer.unlooked_bytes < shared.space.sizes().look_bytes() {
            return Ok(Commit::Done);
        }
        writer.unlooked_bytes = 0;
        let (has_puts, is_mixed) = (group.has_puts(), group.is_mixed());
        let deletes_wait = || is_mixed || self.group.has_waiting_deletes();
        let start = shared.env.now();
        let (mut waited, mut tries) = (false, 0);
        let result = loop {
            let Some(headroom) = look(shared, &writer.memtable, bytes as u64) else { return Ok(Commit::Done) };
            let admission = headroom.admission();
            shared.space.note_admission(admission);
            if admission.takes(has_puts) {
                break Ok(Commit::Done);
            }
            if has_puts && admission.takes(false) && deletes_wait() {
                break Ok(Commit::Yields);
            }
            waited = true;
            // What only running compactions keep from it may be there when they end.
            let unreserved = headroom.unreserved();
            let is_lacking = !unreserved.admission().takes(has_puts);
            let flushed = if is_lacking { self.flush_for_space(shared, writer, &unreserved) } else { Ok(false) };
            let progressed = match flushed {
                Ok(true) => Ok(true),
                // What jobs give back may be what the flush lacked.
                Err(error) if error.kind() != ErrorKind::NoSpace => Err(error),
                _ => wait_for_job(shared, || has_puts && admission.takes(false) && deletes_wait()),
            };
            match progressed {
                Ok(true) => {}
                Err(error) => break Err(error),
                // Readers may have let go of tables meanwhile, or a compaction that was asked for may have ended; or one
                // ended for want of space, and a smaller one runs by now.
                Ok(false) => {
                    // There may be no space for that either.
                    let _ = shared.settle_doubts();
                    shared.tables.collect(&shared.garbage);
                    let now =
                        look(shared, &writer.memtable, bytes as u64).filter(|now| !now.admission().takes(has_puts));
                    tries += 1;
                    if let Some(now) = now.filter(|_| tries >= TRIES_MAX) {
                        break Err(refusal(shared, &now, has_puts));
                    }
                }
            }
        };
        if waited {
            note_stall(shared, start);
        }
        let refused = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace);
        shared.counters.writes_out_of_space.fetch_add(u64::from(refused), Ordering::Relaxed);
        result
    }

    /// Flushes what is in memory if that may give space back: its logs, or what its deletions delete. False when not.
    fn flush_for_space(
        &self,
        shared: &Shared,
        writer: &mut MutexGuard<'_, Writer>,
        headroom: &Headroom,
    ) -> Result<bool, Error> {
        if writer.head.log.is_broken() || writer.flush_owed {
            return self.replace_broken_log(shared, writer).map(|()| true);
        }
        let deletions = writer.memtable.deletions();
        let deleted = || {
            let version = shared.read_state.load().version.clone();
            deleted_bytes(&version, deletions, shared.snapshots.oldest())
        };
        let is_much = headroom.admission() == Admission::Full
            || writer.memtable.memory_bytes() as u64 >= shared.space.sizes().look_bytes();
        let is_little = || deletions == 0 || deleted() < headroom.worth_bytes();
        if writer.memtable.is_empty() || (!is_much && is_little()) {
            return Ok(false);
        }
        self.switch_memtable(shared, writer)?;
        self.wait_for_flush(shared, 1)?;
        Ok(true)
    }
}

/// Waits for the next flush or compaction to end, or for a step of one; false when none runs nor is due, or when it ran
/// out of space. A flush that does while a compaction runs does not count: its space may come back. Ends early when
/// `is_asked` to, which is looked at whenever a job ends and whenever the condition `done` is told of.
///
/// Errors: what else it failed with.
fn wait_for_job(shared: &Shared, is_asked: impl Fn() -> bool) -> Result<bool, Error> {
    let mut core = shared.core.lock();
    let before = (core.flush_attempts, core.compaction_attempts);
    core.retries += 1;
    shared.work.notify_all();
    let _waiting = shared.throttle.wait();
    let lacks_room = |error: &Option<Error>| error.as_ref().is_some_and(|error| error.kind() == ErrorKind::NoSpace);
    let flush_counts = |core: &Core| {
        core.flush_attempts != before.0 && (core.running_compactions == 0 || !lacks_room(&core.flush_error))
    };
    let has_ended = |core: &Core| core.compaction_attempts != before.1 || flush_counts(core);
    loop {
        if has_ended(&core) {
            let of_flush = core.flush_error.as_ref().filter(|_| flush_counts(&core));
            let of_compaction = core.compaction_error.as_ref().filter(|_| core.compaction_attempts != before.1);
            return match of_flush.or(of_compaction) {
                None => Ok(true),
                Some(error) if error.kind() == ErrorKind::NoSpace => Ok(false),
                Some(error) => Err(error.clone()),
            };
        }
        let (relocked, is_idle) = background::is_idle(shared, core);
        core = relocked;
        if core.closing {
            return Err(Error::Closed);
        }
        if let Some(error) = &core.halted {
            return Err(error.clone());
        }
        if is_idle {
            return Ok(false);
        }
        if is_asked() {
            return Ok(true);
        }
        if !has_ended(&core) {
            shared.done.wait(&mut core);
        }
    }
}

/// Why a write or a compaction takes too much.
pub(super) fn refusal(shared: &Shared, headroom: &Headroom, has_puts: bool) -> Error {
    Error::OutOfSpace {
        store: shared.space.store_name().to_owned(),
        available_bytes: headroom.available_bytes,
        left_bytes: if has_puts { headroom.left_by_puts_bytes() } else { headroom.left_by_deletes_bytes() },
    }
}
