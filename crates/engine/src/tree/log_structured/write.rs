//! The write path: what a leader of writers does ([`crate::commit`]) for a tree of tables.

use super::board::{Immutable, JobState, LogBegin};
use super::jobs::flush;
use super::parts::TreeParts;
use super::pool::{self, Demand, Pool, Step};
use crate::batch::WriteBatch;
use crate::commit::{Commit, CommitFailure, CommitHead, Committer, Group, WriteGroup, panic_message};
use crate::error::{Error, ErrorKind};
use crate::key::Sequence;
use crate::memtable::Partition;
use crate::options::Options;
use crate::shape::Version;
use crate::throttle::{Stall, Unsettled};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_env::{Instant, Mutex, MutexGuard};

/// The memtables that are written, and the log that protects them.
pub(super) struct Writer {
    pub(super) head: CommitHead,
    pub(super) active: Arc<Partition>,
    /// Bytes of `active` when they were last looked at, and of writes since then; of a pool only.
    pub(super) pool_bytes: (usize, usize),
    /// Where ranges that are flushed begin, but for the first.
    pub(super) borders: Vec<Box<[u8]>>,
    /// The last range that was flushed had little of the tree; of no meaning before the first one.
    pub(super) ranges_are_narrow: bool,
    /// Bytes written to logs.
    pub(super) logged_bytes: u64,
    /// The same when memtables were last switched, and the time of the env then, once they were.
    pub(super) switched: Option<(u64, Instant)>,
    /// A log that broke was replaced, and what it holds is not yet in a table: until then nothing
    /// in a newer log may be acknowledged, because recovery would stop at the broken tail.
    pub(super) flush_owed: bool,
    /// Time of the env until which slowed writers have used up their rate.
    pub(super) due_nanos: u64,
    /// Bytes of writes since space was last looked at.
    pub(super) unlooked_bytes: u64,
    pub(super) closed: bool,
}

/// What is ahead of compactions, with these memtables.
fn unsettled(parts: &TreeParts, active_bytes: usize) -> Unsettled {
    let state = parts.catalog.read_state.load();
    Unsettled {
        active_bytes: active_bytes as u64,
        unflushed_bytes: flush::bytes_of(&state.immutables),
        level0_tables: parts.catalog.policy.level0_tables(&state.version),
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
    parts: &'a TreeParts,
}

impl Committer for Leader<'_> {
    fn write_log(&self, group: &Group<'_>) -> Result<Commit, Error> {
        let mut writer = self.path.writer.lock();
        self.path.write_log(self.parts, &mut writer, group)
    }

    fn apply(&self, group: &Group<'_>, first_sequence: Sequence) {
        // Its memtable is the one of the log: it is switched only when all that is logged was applied.
        let state = self.parts.catalog.read_state.load();
        group.apply(&self.parts.files.env, first_sequence, |batch, next| state.active.apply(batch.iter(), next));
    }

    fn is_short_of_space(&self) -> bool {
        self.parts.space.is_short()
    }

    fn delete_waits(&self) {
        drop(self.parts.board.lock());
        self.parts.board.done.notify_all();
    }

    fn panicked(&self, payload: &(dyn Any + Send)) -> Error {
        let cause = format!("a write panicked: {}", panic_message(payload));
        self.parts.board.poison_all(cause.clone());
        // What the log holds is unknown: it must not get a seal that says it is whole.
        self.path.writer.lock().head.log.break_off();
        Error::Poisoned { cause }
    }
}

impl WritePath {
    pub(super) fn new(parts: &TreeParts, writer: Writer) -> WritePath {
        let env = &parts.files.env;
        WritePath { group: WriteGroup::new(env, &parts.snapshots), writer: Mutex::new(env, "log", writer) }
    }

    /// Applies a batch; see [`crate::tree::Tree::write`].
    pub(super) fn write(&self, parts: &TreeParts, batch: WriteBatch, sync: bool) -> Result<(), Error> {
        // Before, as it may wait for long for jobs that need to know, and after, as it has waited until then.
        let note = || {
            if sync {
                parts.throttle.note_log_awaited();
            }
        };
        note();
        let written = self.group.write(&Leader { path: self, parts }, batch, sync);
        note();
        written
    }

    /// Writes a group to the log once there is space for it.
    fn write_log(
        &self,
        parts: &TreeParts,
        writer: &mut MutexGuard<'_, Writer>,
        group: &Group<'_>,
    ) -> Result<Commit, Error> {
        if writer.closed {
            return Err(Error::Closed);
        }
        // Those who waited in the queue must not keep closing waiting, each for a lead of its own.
        parts.board.refuse_if_cancelled()?;
        parts.board.refuse_if_poisoned()?;
        if !self.wait_for_space(parts, writer, group)? {
            return Ok(Commit::Yields);
        }
        self.await_memtable(parts, writer, group.bytes)?;
        match writer.head.write_log(&parts.files.env, &parts.logs, &parts.catalog.counters, group) {
            Ok(logged) => {
                parts.throttle.note_written(group.bytes);
                writer.logged_bytes += group.bytes as u64;
                Ok(logged)
            }
            Err(CommitFailure::Refused(error)) => Err(error),
            Err(CommitFailure::InDoubt(error)) => {
                parts.board.poison(&error);
                Err(error)
            }
        }
    }

    /// Waits until all that is logged is in the memtable. Not long: nobody waits for anything meanwhile.
    ///
    /// Errors: a write before panicked.
    pub(super) fn settle(&self, writer: &Writer) -> Result<(), Error> {
        self.group.settle(writer.head.last_sequence)
    }

    /// Waits until the active memtable can take `bytes` more, switching it when it is full.
    fn await_memtable(
        &self,
        parts: &TreeParts,
        writer: &mut MutexGuard<'_, Writer>,
        bytes: usize,
    ) -> Result<(), Error> {
        let writer: &mut Writer = writer;
        let active_bytes = match &parts.pool {
            None => writer.active.memory_bytes(),
            Some(_) => writer.pool_bytes.0 + writer.pool_bytes.1,
        };
        parts.throttle.keep_pace(&mut writer.due_nanos, bytes, || unsettled(parts, active_bytes));
        writer.pool_bytes.1 += bytes;
        if parts.scans.is_flush_due() {
            self.switch_for_scans(parts, writer)?;
        }
        let mut delayed = false;
        loop {
            parts.board.refuse_if_cancelled()?;
            match parts.throttle.stall() {
                Stall::Stop => self.wait_for_compaction(parts)?,
                Stall::Slow if !delayed => {
                    delayed = true;
                    let start = parts.files.env.now();
                    if parts.throttle.delay(&mut writer.due_nanos, bytes) {
                        note_stall(parts, start);
                    }
                    continue;
                }
                _ => {}
            }
            if writer.head.log.is_broken() || writer.flush_owed {
                return self.replace_broken_log(parts, writer);
            }
            if let Some(pool) = &parts.pool {
                match self.look_at_pool(parts, writer, pool)? {
                    true => return Ok(()),
                    false => continue,
                }
            }
            if parts.files.media.files.properties().preferred_table_bytes.is_some() {
                // What the medium likes as one is judged by all that is in it.
                self.settle(writer)?;
            }
            if writer.active.is_empty() || !is_full(parts, &writer.active, bytes) {
                return Ok(());
            }
            self.wait_for_flush(parts, parts.files.options.max_write_buffer_number.max(2) - 1)?;
            self.switch_memtable(parts, writer)?;
        }
    }

    /// Does the next of what is to be done before the pool of memtables can take more; true when nothing is left. Cost: looks at the pool when
    /// one part in 512 of it was written.
    fn look_at_pool(&self, parts: &TreeParts, writer: &mut Writer, pool: &Pool) -> Result<bool, Error> {
        if writer.pool_bytes.1 < pool.look_bytes {
            return Ok(true);
        }
        self.settle(writer)?;
        let merges = parts.board.lock().running_compactions > 0;
        let reserve_bytes = pool.reserve_bytes(&Demand {
            ranges_are_narrow: match writer.switched {
                Some(_) => writer.ranges_are_narrow,
                None => pool::keys_come_in_order(&writer.active),
            },
            merges,
            written_per_second: written_per_second(parts, writer),
            flushed_per_second: flushed_per_second(parts),
        });
        let waiting_bytes = flush::bytes_of(&parts.catalog.read_state.load().immutables);
        let logs_since = |first: Sequence| {
            let begin = parts.board.lock().log_with(first).map_or(0, |log| log.written_bytes);
            writer.logged_bytes - begin
        };
        match pool.step(&writer.active, (waiting_bytes, reserve_bytes), logs_since) {
            Step::Nothing => {}
            Step::Divide => {
                if let Some(divided) = pool.divided(&writer.active) {
                    writer.active = Arc::new(divided);
                    parts.catalog.publish(&parts.board.lock(), Some(writer.active.clone()), None);
                }
            }
            Step::Flush { of_the_oldest } => {
                let states = pool::part_states(&writer.active, &parts.catalog.version(), writer.logged_bytes);
                let fits = |bytes: u64, entries: u64| !is_full_with(parts, bytes, entries, 0);
                let range = pool.choose(&states, of_the_oldest, (&writer.active, &mut writer.borders), fits);
                writer.ranges_are_narrow = pool::is_narrow(&states, &range);
                self.switch(parts, writer, range)?;
                return Ok(false);
            }
            Step::Wait => {
                self.wait_for_flush(parts, 1)?;
                return Ok(false);
            }
        }
        writer.pool_bytes = (writer.active.memory_bytes(), 0);
        Ok(true)
    }

    /// Waits until fewer than `immutables_max` memtables wait for their flush. Fails when flushes fail.
    pub(super) fn wait_for_flush(&self, parts: &TreeParts, immutables_max: usize) -> Result<(), Error> {
        let mut jobs = parts.board.lock();
        if jobs.immutables.len() < immutables_max {
            return Ok(());
        }
        let start = parts.files.env.now();
        jobs.flush_wanted += 1;
        let result = wait_for_progress(
            parts,
            &mut jobs,
            |jobs| {
                if jobs.immutables.len() < immutables_max {
                    return Some(Ok(()));
                }
                None
            },
            |jobs| (jobs.flush_attempts, jobs.flush_error.clone()),
        );
        jobs.flush_wanted -= 1;
        note_stall(parts, start);
        result
    }

    fn wait_for_compaction(&self, parts: &TreeParts) -> Result<(), Error> {
        let mut jobs = parts.board.lock();
        let start = parts.files.env.now();
        let result = wait_for_progress(
            parts,
            &mut jobs,
            |_| (parts.throttle.stall() != Stall::Stop).then_some(Ok(())),
            |jobs| (jobs.compaction_attempts, jobs.compaction_error.clone()),
        );
        note_stall(parts, start);
        result
    }

    /// What is written becomes immutable; a new log and new memtables take its place.
    pub(super) fn switch_memtable(&self, parts: &TreeParts, writer: &mut Writer) -> Result<(), Error> {
        let all = 0..writer.active.memtables().len();
        self.switch(parts, writer, all)
    }

    /// Has memtables flushed whose deletions scans step over, unless a writer is at work, which does it then.
    pub(super) fn flush_for_scans(&self, parts: &TreeParts) {
        let Some(mut writer) = self.writer.try_lock() else { return };
        if !writer.closed && parts.board.refuse_if_cancelled().is_ok() && parts.board.refuse_if_poisoned().is_ok() {
            // If the next log cannot be begun, the next writer meets the same failure and returns it.
            let _ = self.switch_for_scans(parts, &mut writer);
        }
    }

    /// The memtables whose deletions scans step over become immutable, and are flushed, however few there are. Nothing is done
    /// while a flush runs, or on a medium without space for one.
    fn switch_for_scans(&self, parts: &TreeParts, writer: &mut Writer) -> Result<(), Error> {
        if writer.head.log.is_broken() || writer.flush_owed || parts.space.is_short() {
            return Ok(());
        }
        let hurry = || {
            let mut jobs = parts.board.lock();
            jobs.flush_hurried = !jobs.flush_running && !jobs.immutables.is_empty();
            parts.board.work.notify_all();
            jobs.flush_hurried || jobs.flush_running
        };
        if hurry() {
            return Ok(());
        }
        let range = parts.scans.take_flush(&writer.active).filter(|_| !writer.active.is_empty());
        let Some(range) = range else { return Ok(()) };
        self.switch(parts, writer, range)?;
        parts.catalog.counters.scan_flushes.fetch_add(1, Ordering::Relaxed);
        hurry();
        Ok(())
    }

    /// Some of the memtables that are written become immutable; a new log and new memtables take their place.
    fn switch(&self, parts: &TreeParts, writer: &mut Writer, range: Range<usize>) -> Result<(), Error> {
        self.settle(writer)?;
        let number = parts.files.numbers.file();
        writer.head.log.begin_next(&parts.logs, number, parts.files.numbers.random())?;
        let least_bytes = parts.pool.as_ref().map_or(0, |pool| pool.part_bytes / 4);
        let (taken, rest) = writer.active.take(range, (number, writer.logged_bytes), least_bytes);
        writer.active = Arc::new(rest);
        writer.pool_bytes = (writer.active.memory_bytes(), 0);
        writer.switched = Some((writer.logged_bytes, parts.files.env.now()));
        let sequence = writer.head.last_sequence;
        let mut jobs = parts.board.lock();
        jobs.immutables.push_back(Immutable { memtables: Arc::new(taken), sequence, next_log_number: number });
        jobs.begin_log(LogBegin { number, after: sequence, written_bytes: writer.logged_bytes });
        jobs.flush_held = false;
        parts.catalog.publish(&jobs, Some(writer.active.clone()), None);
        parts.board.work.notify_all();
        Ok(())
    }

    /// After a failed append nothing may follow in that log, and nothing in a newer log may be
    /// acknowledged before what the broken one holds is in a table: recovery stops at its tail.
    pub(super) fn replace_broken_log(&self, parts: &TreeParts, writer: &mut Writer) -> Result<(), Error> {
        if writer.head.log.is_broken() {
            self.switch_memtable(parts, writer)?;
            writer.flush_owed = true;
        }
        self.wait_for_flush(parts, 1)?;
        // Until here a flush of some keys may have needed them.
        writer.head.log.forget_unsynced(&parts.logs);
        writer.flush_owed = false;
        Ok(())
    }

    /// Ends writing: the log is complete and says so, which lets the next open tell damage from
    /// the end.
    pub(super) fn close(&self, parts: &TreeParts) -> Result<(), Error> {
        let mut writer = self.writer.lock();
        writer.closed = true;
        writer.head.log.close(&parts.logs, || (parts.files.numbers.file(), parts.files.numbers.random()))
    }

    /// Everything written so far into tables, and the version that has them: all writes up to one of them, and none behind it. Where
    /// ranges of keys are flushed writers wait until then: a table of some keys that came after would be in the version, too.
    pub(super) fn flush_to_version(&self, parts: &TreeParts) -> Result<Arc<Version>, Error> {
        let _held = Some(self.begin_flush(parts)?).filter(|_| parts.pool.is_some());
        self.wait_for_flush(parts, 1)?;
        Ok(parts.catalog.version())
    }

    /// Everything written so far into tables.
    pub(super) fn flush(&self, parts: &TreeParts) -> Result<(), Error> {
        drop(self.begin_flush(parts)?);
        self.wait_for_flush(parts, 1)
    }

    /// Everything written so far waits for its flush. Nothing is written as long as what is returned lives.
    fn begin_flush(&self, parts: &TreeParts) -> Result<MutexGuard<'_, Writer>, Error> {
        let mut writer = self.writer.lock();
        if writer.closed {
            return Err(Error::Closed);
        }
        parts.board.refuse_if_poisoned()?;
        if writer.head.log.is_broken() || writer.flush_owed {
            self.replace_broken_log(parts, &mut writer)?;
        } else if !writer.active.is_empty() {
            self.switch_memtable(parts, &mut writer)?;
        }
        Ok(writer)
    }
}

/// How fast was written since memtables were last switched.
fn written_per_second(parts: &TreeParts, writer: &Writer) -> Option<u64> {
    let (bytes, moment) = writer.switched?;
    per_second(writer.logged_bytes - bytes, (parts.files.env.now() - moment).as_nanos() as u64)
}

/// How fast flushes were until now.
fn flushed_per_second(parts: &TreeParts) -> Option<u64> {
    let counters = &parts.catalog.counters;
    let bytes = counters.flush_written_bytes.load(Ordering::Relaxed);
    per_second(bytes, counters.flush_nanos.load(Ordering::Relaxed))
}

fn per_second(bytes: u64, nanos: u64) -> Option<u64> {
    let per_second = (u128::from(bytes) * 1_000_000_000).checked_div(u128::from(nanos))?;
    Some(u64::try_from(per_second).unwrap_or(u64::MAX)).filter(|_| bytes > 0)
}

/// Whether a memtable takes no batch of `batch_bytes` more: it has its size, or its table would outgrow the one the
/// medium likes.
fn is_full(parts: &TreeParts, active: &Partition, batch_bytes: usize) -> bool {
    is_full_with(parts, active.memory_bytes() as u64, active.entries(), batch_bytes as u64)
}

/// The same of a memtable with so many bytes and entries.
fn is_full_with(parts: &TreeParts, memory_bytes: u64, entries: u64, batch_bytes: u64) -> bool {
    let outgrows = |most_bytes: u64| {
        let bytes = memory_bytes.saturating_add(batch_bytes);
        bytes.saturating_add(padding_bytes(bytes, entries + 1, &parts.files.options)) > most_bytes
    };
    memory_bytes >= parts.space.sizes().memtable_bytes as u64
        || parts.files.media.files.properties().preferred_table_bytes.is_some_and(outgrows)
}

/// About how many bytes aligned blocks add to so many bytes in so many entries, if these are alike, and to what follows
/// the data.
fn padding_bytes(bytes: u64, entries: u64, options: &Options) -> u64 {
    /// What a block has beside its entries.
    const BLOCK_BYTES: u64 = 64;
    /// A histogram, properties and a footer.
    const BEHIND_BYTES: u64 = 5 << 10;
    let alignment = options.block_align as u64;
    if alignment < 2 {
        return 0;
    }
    let entry_bytes = (bytes / entries.max(1)).max(1);
    let limit_bytes = (options.block_size as u64).next_multiple_of(alignment);
    let block_entries = (limit_bytes.saturating_sub(BLOCK_BYTES) / entry_bytes).max(1);
    let block_bytes = (block_entries * entry_bytes + BLOCK_BYTES).next_multiple_of(alignment);
    let padding_bytes = (block_bytes - block_entries * entry_bytes).saturating_mul(entries.div_ceil(block_entries));
    padding_bytes.saturating_add(BEHIND_BYTES + 2 * block_bytes)
}

pub(super) fn note_stall(parts: &TreeParts, start: varve_env::Instant) {
    let waited = parts.files.env.now().as_nanos() - start.as_nanos();
    parts.catalog.counters.stalls.fetch_add(1, Ordering::Relaxed);
    parts.catalog.counters.stall_nanos.fetch_add(waited, Ordering::Relaxed);
}

/// Waits for workers until `ready`, or until one more of their attempts failed with the same kind
/// of trouble that already stands: then the writer is told rather than kept waiting. One that found no space counts only
/// when no compaction runs that may give some back.
pub(super) fn wait_for_progress(
    parts: &TreeParts,
    jobs: &mut MutexGuard<'_, JobState>,
    ready: impl Fn(&JobState) -> Option<Result<(), Error>>,
    attempts: impl Fn(&JobState) -> (u64, Option<Error>),
) -> Result<(), Error> {
    let (mut attempts_before, _) = attempts(jobs);
    jobs.retries += 1;
    parts.board.work.notify_all();
    let _waiting = parts.throttle.wait();
    loop {
        if let Some(result) = ready(jobs) {
            return result;
        }
        if jobs.closing {
            return Err(Error::Closed);
        }
        if let Some(error) = &jobs.poisoned {
            return Err(error.clone());
        }
        let (done, failure) = attempts(jobs);
        if let Some(error) = failure
            && done > attempts_before
        {
            if error.kind() != ErrorKind::NoSpace || jobs.running_compactions == 0 {
                return Err(error);
            }
            attempts_before = done;
        }
        parts.board.done.wait(jobs);
    }
}
