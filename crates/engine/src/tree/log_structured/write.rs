//! The write path: what a leader of writers does ([`crate::commit`]) for a tree of tables.

use super::flush;
use super::shared::{Core, Immutable, Shared};
use crate::batch::WriteBatch;
use crate::commit::{Commit, CommitFailure, CommitHead, Committer, Group, WriteGroup, panic_message};
use crate::error::{Error, ErrorKind};
use crate::memtable::MemTable;
use crate::throttle::{Stall, Unsettled};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_env::{Mutex, MutexGuard};

/// The memtable that is written, and the log that protects it.
pub(super) struct Writer {
    pub(super) head: CommitHead,
    pub(super) memtable: Arc<MemTable>,
    /// A log that broke was replaced, and what it holds is not yet in a table: until then nothing
    /// in a newer log may be acknowledged, because recovery would stop at the broken tail.
    pub(super) flush_owed: bool,
    /// Time of the env until which slowed writers have used up their rate.
    pub(super) due_nanos: u64,
    /// Bytes of writes since space was last looked at.
    pub(super) unlooked_bytes: u64,
    pub(super) closed: bool,
}

/// What is ahead of compactions, with this memtable.
fn unsettled(shared: &Shared, memtable: &MemTable) -> Unsettled {
    let state = shared.read_state.load();
    Unsettled {
        active_bytes: memtable.memory_bytes() as u64,
        unflushed_bytes: flush::bytes_of(&state.immutables),
        level0_tables: state.version.levels[0].len(),
    }
}

/// The queue of writers and what their leader writes to.
pub(super) struct WritePath {
    pub(super) group: WriteGroup,
    pub(super) writer: Mutex<Writer>,
}

/// What leaders of one tree do.
struct Leader<'a> {
    path: &'a WritePath,
    shared: &'a Shared,
}

impl Committer for Leader<'_> {
    fn commit(&self, group: &Group<'_>) -> Result<Commit, Error> {
        let mut writer = self.path.writer.lock();
        self.path.commit(self.shared, &mut writer, group)
    }

    fn is_short_of_space(&self) -> bool {
        self.shared.space.is_short()
    }

    fn delete_waits(&self) {
        drop(self.shared.core.lock());
        self.shared.done.notify_all();
    }

    fn panicked(&self, payload: &(dyn Any + Send)) -> Error {
        let cause = format!("a write panicked: {}", panic_message(payload));
        self.shared.halt(cause.clone());
        // What the log holds is unknown: it must not get a seal that says it is whole.
        self.path.writer.lock().head.log.break_off();
        Error::Poisoned { cause }
    }
}

impl WritePath {
    pub(super) fn new(shared: &Shared, writer: Writer) -> WritePath {
        WritePath { group: WriteGroup::new(&shared.env), writer: Mutex::new(&shared.env, "log", writer) }
    }

    /// Applies a batch; see [`crate::tree::Tree::write`].
    pub(super) fn write(&self, shared: &Shared, batch: WriteBatch, sync: bool) -> Result<(), Error> {
        self.group.write(&Leader { path: self, shared }, batch, sync)
    }

    /// Writes a group to the log and the memtable once there is space for it.
    fn commit(&self, shared: &Shared, writer: &mut MutexGuard<'_, Writer>, group: &Group<'_>) -> Result<Commit, Error> {
        if writer.closed {
            return Err(Error::Closed);
        }
        // Those who waited in the queue must not keep closing waiting, each for a lead of its own.
        shared.refuse_if_cancelled()?;
        shared.refuse_if_poisoned()?;
        if self.wait_for_space(shared, writer, group)? == Commit::Yields {
            return Ok(Commit::Yields);
        }
        self.make_room(shared, writer, group.bytes)?;
        let Writer { head, memtable, .. } = &mut **writer;
        let apply = |batch: &WriteBatch, sequence| {
            memtable.apply(batch.iter(), sequence);
        };
        let count = match head.commit(&shared.env, &shared.logs, &shared.snapshots, group, apply) {
            Ok(count) => count,
            Err(CommitFailure::Refused(error)) => return Err(error),
            Err(CommitFailure::InDoubt(error)) => {
                shared.poison(&error);
                return Err(error);
            }
        };
        let counters = &shared.counters;
        counters.write_groups.fetch_add(1, Ordering::Relaxed);
        counters.write_batches.fetch_add(1 + group.others.len() as u64, Ordering::Relaxed);
        counters.user_written_entries.fetch_add(count, Ordering::Relaxed);
        counters.user_written_bytes.fetch_add(group.bytes as u64, Ordering::Relaxed);
        shared.throttle.note_written(group.bytes);
        Ok(Commit::Done)
    }

    /// Waits until the active memtable can take `bytes` more, switching it when it is full.
    fn make_room(&self, shared: &Shared, writer: &mut MutexGuard<'_, Writer>, bytes: usize) -> Result<(), Error> {
        let writer: &mut Writer = writer;
        shared.throttle.keep_pace(&mut writer.due_nanos, bytes, || unsettled(shared, &writer.memtable));
        let mut delayed = false;
        loop {
            shared.refuse_if_cancelled()?;
            match shared.throttle.stall() {
                Stall::Stop => self.wait_for_compaction(shared)?,
                Stall::Slow if !delayed => {
                    delayed = true;
                    let start = shared.env.now();
                    if shared.throttle.delay(&mut writer.due_nanos, bytes) {
                        note_stall(shared, start);
                    }
                    continue;
                }
                _ => {}
            }
            if writer.head.log.is_broken() || writer.flush_owed {
                return self.replace_broken_log(shared, writer);
            }
            if writer.memtable.is_empty() || !shared.is_full(&writer.memtable, bytes) {
                return Ok(());
            }
            self.wait_for_flush(shared, shared.options.max_write_buffer_number.max(2) - 1)?;
            self.switch_memtable(shared, writer)?;
        }
    }

    /// Waits until fewer than `immutables_max` memtables wait for their flush. Fails when flushes fail.
    pub(super) fn wait_for_flush(&self, shared: &Shared, immutables_max: usize) -> Result<(), Error> {
        let mut core = shared.core.lock();
        if core.immutables.len() < immutables_max {
            return Ok(());
        }
        let start = shared.env.now();
        let result = wait_for_progress(
            shared,
            &mut core,
            |core| {
                if core.immutables.len() < immutables_max {
                    return Some(Ok(()));
                }
                None
            },
            |core| (core.flush_attempts, core.flush_error.clone()),
        );
        note_stall(shared, start);
        result
    }

    fn wait_for_compaction(&self, shared: &Shared) -> Result<(), Error> {
        let mut core = shared.core.lock();
        let start = shared.env.now();
        let result = wait_for_progress(
            shared,
            &mut core,
            |_| (shared.throttle.stall() != Stall::Stop).then_some(Ok(())),
            |core| (core.compaction_attempts, core.compaction_error.clone()),
        );
        note_stall(shared, start);
        result
    }

    /// The active memtable becomes immutable; a new log and memtable take its place.
    pub(super) fn switch_memtable(&self, shared: &Shared, writer: &mut Writer) -> Result<(), Error> {
        let number = shared.new_file_number();
        writer.head.log.begin_next(&shared.logs, number, shared.random_number())?;
        let memtable = Arc::new(writer.memtable.successor(number));
        let old = std::mem::replace(&mut writer.memtable, memtable.clone());
        let mut core = shared.core.lock();
        core.immutables.push_back(Immutable { memtable: old, next_log_number: number });
        core.flush_held = false;
        shared.publish(&core, Some(memtable), None);
        shared.work.notify_all();
        Ok(())
    }

    /// After a failed append nothing may follow in that log, and nothing in a newer log may be
    /// acknowledged before what the broken one holds is in a table: recovery stops at its tail.
    pub(super) fn replace_broken_log(&self, shared: &Shared, writer: &mut Writer) -> Result<(), Error> {
        if writer.head.log.is_broken() {
            self.switch_memtable(shared, writer)?;
            writer.head.log.forget_unsynced();
            writer.flush_owed = true;
        }
        self.wait_for_flush(shared, 1)?;
        writer.flush_owed = false;
        Ok(())
    }

    /// Ends writing: the log is complete and says so, which lets the next open tell damage from
    /// the end.
    pub(super) fn close(&self, shared: &Shared) -> Result<(), Error> {
        let mut writer = self.writer.lock();
        writer.closed = true;
        writer.head.log.close(&shared.logs, || (shared.new_file_number(), shared.random_number()))
    }

    /// Everything written so far into tables.
    pub(super) fn flush(&self, shared: &Shared) -> Result<(), Error> {
        {
            let mut writer = self.writer.lock();
            if writer.closed {
                return Err(Error::Closed);
            }
            shared.refuse_if_poisoned()?;
            if writer.head.log.is_broken() || writer.flush_owed {
                return self.replace_broken_log(shared, &mut writer);
            }
            if !writer.memtable.is_empty() {
                self.switch_memtable(shared, &mut writer)?;
            }
        }
        self.wait_for_flush(shared, 1)
    }
}

pub(super) fn note_stall(shared: &Shared, start: varve_env::Instant) {
    let waited = shared.env.now().as_nanos() - start.as_nanos();
    shared.counters.stalls.fetch_add(1, Ordering::Relaxed);
    shared.counters.stall_nanos.fetch_add(waited, Ordering::Relaxed);
}

/// Waits for workers until `ready`, or until one more of their attempts failed with the same kind
/// of trouble that already stands: then the writer is told rather than kept waiting. One that lacked space counts only
/// when no compaction runs that may give some back.
pub(super) fn wait_for_progress(
    shared: &Shared,
    core: &mut MutexGuard<'_, Core>,
    ready: impl Fn(&Core) -> Option<Result<(), Error>>,
    attempts: impl Fn(&Core) -> (u64, Option<Error>),
) -> Result<(), Error> {
    let (mut attempts_before, _) = attempts(core);
    core.retries += 1;
    shared.work.notify_all();
    let _waiting = shared.throttle.wait();
    loop {
        if let Some(result) = ready(core) {
            return result;
        }
        if core.closing {
            return Err(Error::Closed);
        }
        if let Some(error) = &core.halted {
            return Err(error.clone());
        }
        let (done, failure) = attempts(core);
        if let Some(error) = failure
            && done > attempts_before
        {
            if error.kind() != ErrorKind::NoSpace || core.running_compactions == 0 {
                return Err(error);
            }
            attempts_before = done;
        }
        shared.done.wait(core);
    }
}
