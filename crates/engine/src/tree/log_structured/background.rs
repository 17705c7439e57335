//! Background workers: they ask what is due and do it, one job at a time each.

use super::compaction;
use super::flush;
use super::shared::{Core, Shared};
use super::write_space;
use crate::cache::EvictedBlock;
use crate::commit::panic_message;
use crate::error::{Error, ErrorKind};
use crate::memtable::MemTable;
use crate::scheduler::{self, Choice, CompactionState, SpaceState};
use crate::shape::{Busy, CompactionPlan, FileMeta, JobClaim, Version};
use crate::space::Reservation;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use varve_env::channel::{Receiver, RecvError};
use varve_env::{Instant, JoinHandle, MutexGuard};
use varve_store::{FileStore, Hint};

/// Wait after a failed job before the next try.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// It doubles so many times.
const RETRY_DOUBLINGS_MAX: u32 = 5;

/// How long the eviction queue is waited on between looks at whether to stop.
const EVICTION_WAIT: Duration = Duration::from_millis(200);

/// Longer with every failure in a row, so that a device is not written full again and again.
fn retry_delay(failures: u32) -> Duration {
    RETRY_DELAY * (1 << failures.saturating_sub(1).min(RETRY_DOUBLINGS_MAX))
}

/// What a worker may take on. One worker keeps itself free for flushes, so that writers never
/// wait for a compaction to end before their memtable is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Flushes,
    Compactions,
    Everything,
}

enum Job {
    Flush {
        memtables: Vec<Arc<MemTable>>,
        log_number: u64,
    },
    Compact {
        version: Arc<Version>,
        chosen: Choice,
        reservation: Arc<Reservation>,
    },
    /// Reads what plans must know of tables.
    Sample {
        tables: Vec<Arc<FileMeta>>,
    },
    Collect,
}

/// Starts `max_background_jobs` workers.
pub(super) fn start(shared: &Arc<Shared>) -> Vec<JoinHandle<()>> {
    let count = shared.options.max_background_jobs.max(1);
    (0..count)
        .map(|position| {
            let role = match (count, position) {
                (1, _) => Role::Everything,
                (_, 0) => Role::Flushes,
                _ => Role::Compactions,
            };
            let shared = shared.clone();
            let name = if role == Role::Compactions { format!("compaction {position}") } else { "flush".to_owned() };
            shared.env.clone().spawn(&name.clone(), move || {
                if let Err(payload) = catch_unwind(AssertUnwindSafe(|| work(&shared, role))) {
                    shared.halt(format!("background worker '{name}' panicked: {}", panic_message(&*payload)));
                    // Closing tells of it too.
                    resume_unwind(payload);
                }
            })
        })
        .collect()
}

fn work(shared: &Arc<Shared>, role: Role) {
    let mut not_before: Option<Instant> = None;
    let mut failures = 0u32;
    let mut retries_seen = 0;
    let mut core = shared.core.lock();
    loop {
        if core.closing || core.halted.is_some() {
            return;
        }
        let retry = std::mem::replace(&mut retries_seen, core.retries) != core.retries;
        if retry || not_before.is_some_and(|moment| shared.env.now() >= moment) {
            not_before = None;
        }
        if not_before.is_none() {
            let (relocked, next) = next_job(shared, core, role);
            core = relocked;
            match next {
                Next::Job(job) => {
                    drop(core);
                    let failed = run(shared, job);
                    failures = if failed { failures.saturating_add(1) } else { 0 };
                    not_before = failed.then(|| shared.env.now() + retry_delay(failures));
                    core = shared.core.lock();
                    continue;
                }
                Next::AskAgain => continue,
                Next::Nothing => {}
            }
        }
        match not_before {
            Some(moment) => {
                shared.work.wait_until(&mut core, moment);
            }
            None => shared.work.wait(&mut core),
        }
    }
}

enum Next {
    Job(Job),
    Nothing,
    /// What a plan was made for changed while it was made.
    AskAgain,
}

/// What a worker does next. Plans are made without the lock: they take time where there are many tables, and writers
/// need the lock to go on.
fn next_job<'a>(shared: &'a Shared, mut core: MutexGuard<'a, Core>, role: Role) -> (MutexGuard<'a, Core>, Next) {
    if role != Role::Compactions && !core.flush_running && !core.flush_held && !core.immutables.is_empty() {
        core.flush_running = true;
        let job = Job::Flush {
            memtables: core.immutables.iter().map(|immutable| immutable.memtable.clone()).collect(),
            log_number: core.immutables.back().map_or(0, |immutable| immutable.next_log_number),
        };
        return (core, Next::Job(job));
    }
    if role != Role::Flushes && may_compact(shared, &core) {
        let (relocked, planned) = plan(shared, core);
        core = relocked;
        let Some(planned) = planned else { return (core, Next::AskAgain) };
        if let Some(chosen) = planned.chosen {
            let tables = unsampled(shared, &planned.version, &chosen.plan);
            if tables.is_empty() {
                core.busy.enter(&chosen.plan);
                core.running_compactions += 1;
                core.compacts_alone = chosen.is_alone;
                let version = planned.version;
                let reservation = compaction::reserve(shared, &version, &chosen.plan, chosen.space_bytes);
                return (core, Next::Job(Job::Compact { version, chosen, reservation }));
            }
            // One worker reads what others wait for.
            if !core.sampling {
                core.sampling = true;
                return (core, Next::Job(Job::Sample { tables }));
            }
        }
    }
    let next = if shared.garbage.any() { Next::Job(Job::Collect) } else { Next::Nothing };
    (core, next)
}

fn may_compact(shared: &Shared, core: &Core) -> bool {
    core.manual == 0 && !core.compacts_alone && !shared.options.disable_auto_compactions
}

/// A plan is being made, however that ends.
struct Planning<'a> {
    shared: &'a Shared,
}

impl<'a> Planning<'a> {
    fn end(self) -> MutexGuard<'a, Core> {
        let shared = self.shared;
        std::mem::forget(self);
        let mut core = shared.core.lock();
        core.planning -= 1;
        if core.compacts_alone || core.manual > 0 {
            shared.done.notify_all();
        }
        core
    }
}

impl Drop for Planning<'_> {
    fn drop(&mut self) {
        drop(Planning { shared: self.shared }.end());
    }
}

struct Planned {
    version: Arc<Version>,
    chosen: Option<Choice>,
}

/// Carries a compaction out, unless it ended for want of space before and there is no more now.
fn compact(
    shared: &Arc<Shared>,
    version: Arc<Version>,
    chosen: Choice,
    reservation: Arc<Reservation>,
) -> Result<(), Error> {
    let Choice { plan, space_bytes, is_alone, is_short } = chosen;
    if is_alone {
        let mut core = shared.core.lock();
        while core.holds_tables() && !core.closing && core.halted.is_none() {
            shared.done.wait(&mut core);
        }
        drop(core);
        shared.tables.collect(&shared.garbage);
    }
    if let Some(error) = shared.space.known_shortfall(&plan, space_bytes).filter(|_| is_short) {
        return Err(error);
    }
    let inputs: Vec<u64> = plan.inputs.iter().map(|file| file.number).collect();
    let result = compaction::compact_reserved(shared, version, plan, space_bytes, reservation, false);
    if let Err(error) = &result
        && error.kind() == ErrorKind::NoSpace
    {
        shared.space.note_shortfall(inputs, space_bytes, error.clone());
    }
    result
}

/// Lets go of the lock, makes a plan and takes the lock again. Nothing when what the plan depends on changed meanwhile, or
/// anything else that may be a reason to do something else.
///
/// What it returns must not outlive the lock, but for a job: whoever waits for plans waits for their tables.
fn plan<'a>(shared: &'a Shared, mut core: MutexGuard<'a, Core>) -> (MutexGuard<'a, Core>, Option<Planned>) {
    let outlook = core.outlook();
    let version = shared.read_state.load().version.clone();
    let (busy, others_run) = (core.busy.clone(), core.running_compactions > 0);
    core.planning += 1;
    let planning = Planning { shared };
    drop(core);
    let chosen = choose(shared, &version, &busy, others_run);
    let core = planning.end();
    let is_as_before = core.outlook() == outlook && Arc::ptr_eq(&version, &shared.read_state.load().version);
    let planned = is_as_before.then_some(Planned { version, chosen });
    (core, planned)
}

/// What to compact now, with what is known of space.
fn choose(shared: &Shared, version: &Version, busy: &Busy, others_run: bool) -> Option<Choice> {
    let (headroom, bytes) = write_space::look_now(shared, 0);
    let remembered = shared.space.remembered();
    let space = SpaceState {
        headroom,
        bytes,
        was_short: shared.space.is_short(),
        table_bytes: shared.media.files.properties().preferred_table_bytes,
        remembered: &remembered,
    };
    let (oldest_view, is_waited_for) = (shared.snapshots.oldest(), shared.throttle.is_waited_for());
    let state = CompactionState { version, busy, others_run, space, oldest_view, is_waited_for };
    scheduler::next_compaction(&state, &*shared.policy)
}

/// Runs a job; true when it failed.
fn run(shared: &Arc<Shared>, job: Job) -> bool {
    // What a compaction read must be let go of before its space can be collected.
    let (result, ended) = match job {
        Job::Flush { memtables, log_number } => (flush::flush(shared, &memtables, log_number), Ended::Flush),
        Job::Compact { version, chosen, reservation } => {
            let claim = chosen.plan.claim();
            (compact(shared, version, chosen, reservation), Ended::Compaction(claim))
        }
        Job::Sample { tables } => {
            sample(shared, &tables);
            (Ok(()), Ended::Sample)
        }
        Job::Collect => (Ok(()), Ended::Collection),
    };
    shared.tables.collect(&shared.garbage);
    let failure = result.err();
    if failure.as_ref().is_some_and(|error| error.kind() != ErrorKind::Closed && !is_given_up(error)) {
        shared.counters.background_errors.fetch_add(1, Ordering::Relaxed);
    }
    let failed = failure.is_some();
    let mut core = shared.core.lock();
    match ended {
        Ended::Flush => {
            core.flush_running = false;
            note(&mut core, failure, |core| (&mut core.flush_attempts, &mut core.flush_error));
        }
        Ended::Compaction(claim) => {
            core.busy.leave(&claim);
            core.running_compactions -= 1;
            core.compacts_alone = false;
            // What it gave back may be what a flush lacked.
            core.retries += u64::from(!failed && core.flush_error.is_some());
            note(&mut core, failure, |core| (&mut core.compaction_attempts, &mut core.compaction_error));
        }
        Ended::Sample => core.sampling = false,
        Ended::Collection => return false,
    }
    // A finished job makes others due: the next level may be over its size now.
    shared.work.notify_all();
    shared.done.notify_all();
    failed
}

/// What is left of a job when it ended.
enum Ended {
    Flush,
    Compaction(JobClaim),
    Sample,
    Collection,
}

/// Tables a plan depends on whose histograms were not read yet.
fn unsampled(shared: &Shared, version: &Version, plan: &CompactionPlan) -> Vec<Arc<FileMeta>> {
    if shared.policy.histogram_bytes() == 0 {
        return Vec::new();
    }
    let Some((smallest, largest)) = plan.key_range() else { return Vec::new() };
    let near = version.overlapping(plan.output_level, smallest, largest);
    near.iter().chain(plan.all_inputs()).filter(|file| file.histogram.get().is_none()).cloned().collect()
}

/// A table that cannot be read has an empty histogram: whoever compacts it finds out why.
fn sample(shared: &Shared, tables: &[Arc<FileMeta>]) {
    for file in tables {
        let read = shared.tables.get(file).map(|table| table.properties().histogram.clone());
        let _ = file.histogram.set(read.unwrap_or_default());
    }
}

/// A compaction was given up because it would have left more tables than it read: writers that wait are told, and nothing
/// is wrong.
pub(super) fn is_given_up(error: &Error) -> bool {
    matches!(error, Error::OutOfSpace { .. })
}

fn note(core: &mut Core, failure: Option<Error>, fields: impl Fn(&mut Core) -> (&mut u64, &mut Option<Error>)) {
    let (attempts, last) = fields(core);
    *attempts += 1;
    *last = failure;
}

/// Tells who waits for space that a step of a compaction may have given some back.
pub(super) fn note_compaction(shared: &Shared) {
    let mut core = shared.core.lock();
    note(&mut core, None, |core| (&mut core.compaction_attempts, &mut core.compaction_error));
    shared.done.notify_all();
}

/// No flush or compaction runs or is due. Lets go of the lock meanwhile; what is returned holds as long as the lock
/// that is returned with it is.
pub(super) fn is_idle<'a>(shared: &'a Shared, mut core: MutexGuard<'a, Core>) -> (MutexGuard<'a, Core>, bool) {
    loop {
        let rests = (core.immutables.is_empty() || core.flush_held)
            && !core.flush_running
            && core.running_compactions == 0
            && core.manual == 0;
        if !rests || !may_compact(shared, &core) {
            return (core, rests);
        }
        let (relocked, planned) = plan(shared, core);
        core = relocked;
        if let Some(planned) = planned {
            return (core, planned.chosen.is_none());
        }
    }
}

/// A caller's compaction, counted while it waits and runs, however it ends: closing waits for it.
struct ManualCompaction<'a> {
    shared: &'a Shared,
    running: bool,
}

impl Drop for ManualCompaction<'_> {
    fn drop(&mut self) {
        let mut core = self.shared.core.lock();
        core.running_compactions -= usize::from(self.running);
        core.manual -= 1;
        self.shared.work.notify_all();
        self.shared.done.notify_all();
    }
}

/// Runs every compaction of a key range in the calling thread, level by level, with automatic
/// compactions held off.
pub(super) fn compact_range(shared: &Arc<Shared>, begin: Option<&[u8]>, end: Option<&[u8]>) -> Result<(), Error> {
    shared.core.lock().manual += 1;
    let mut turn = ManualCompaction { shared, running: false };
    {
        let mut core = shared.core.lock();
        let is_beside = |core: &Core| core.running_compactions > 0 || core.holds_tables();
        while is_beside(&core) && !core.closing && core.halted.is_none() {
            shared.done.wait(&mut core);
        }
        if core.closing || core.halted.is_some() {
            let halted = core.halted.clone();
            drop(core);
            return Err(halted.unwrap_or(Error::Closed));
        }
        core.running_compactions += 1;
        turn.running = true;
    }
    shared.tables.collect(&shared.garbage);
    let result = compact_levels(shared, begin, end);
    shared.tables.collect(&shared.garbage);
    result
}

fn compact_levels(shared: &Arc<Shared>, begin: Option<&[u8]>, end: Option<&[u8]>) -> Result<(), Error> {
    let mut last = None;
    // Tables that flushes add meanwhile are not waited for.
    let mut level0_left = shared.read_state.load().version.levels[0].len();
    loop {
        if shared.cancel.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        let version = shared.read_state.load().version.clone();
        let (headroom, space_bytes) = write_space::look_now(shared, 0);
        let due = shared.policy.next_of_range(&version, begin, end, last.as_ref());
        let is_short = headroom.is_some_and(|headroom| headroom.is_short());
        let may_coalesce = || begin.is_none() && end.is_none() && is_short;
        let coalescing = || may_coalesce().then(|| shared.space.coalescing(&version, space_bytes)).flatten();
        let Some(plan) = due.or_else(coalescing) else { return Ok(()) };
        // Where there is no space to put everything in order at once, it is done in parts; where none surely fits, first
        // what gives tables back, then one that may.
        let is_large = plan.written_bytes_max() > space_bytes;
        let part = || {
            let split = |bytes| shared.policy.split(&version, &plan, bytes);
            let hoped_for = || headroom.and_then(|headroom| split(headroom.hoped_bytes()));
            split(space_bytes).or_else(|| shared.space.coalescing(&version, space_bytes)).or_else(hoped_for)
        };
        let part = if is_large { part() } else { None };
        let is_of_level0 =
            |part: &&CompactionPlan| part.input_level == 0 && part.output_level >= version.disjoint_from();
        let taken = part.as_ref().filter(is_of_level0).map_or(0, |part| part.inputs.len());
        let is_used_up = taken > 0 && taken >= level0_left;
        level0_left = level0_left.saturating_sub(taken);
        if part.is_none() || is_used_up {
            last = Some(plan.claim());
        }
        compaction::compact(shared, version, part.unwrap_or(plan), space_bytes)?;
        // The space of what this step read is the space of the next one, and of who waits for it.
        shared.tables.collect(&shared.garbage);
        note_compaction(shared);
    }
}

/// Tells the store of blocks the cache dropped. Ends when the tree closes.
pub(super) fn pass_evictions(
    shared: &Arc<Shared>,
    files: Arc<dyn FileStore>,
    receiver: Receiver<EvictedBlock>,
) -> JoinHandle<()> {
    let shared = shared.clone();
    shared.env.clone().spawn("cache evictions", move || {
        while !shared.cancel.load(Ordering::Relaxed) {
            match receiver.recv_until(shared.env.now() + EVICTION_WAIT) {
                Ok(evicted) => files.hint(&Hint::CacheEvicted {
                    file: evicted.file(),
                    offset_bytes: evicted.offset_bytes(),
                    bytes: evicted.bytes(),
                }),
                Err(RecvError::Timeout) => {}
                Err(_) => return,
            }
        }
    })
}
