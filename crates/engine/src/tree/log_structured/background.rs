//! Background workers: they ask what is due and do it, one job at a time each.

use super::board::{Immutable, JobState};
use super::jobs::compaction::{self, Grant};
use super::jobs::flush::{self, FlushPlan};
use super::jobs::space_now;
use super::parts::TreeParts;
use crate::cache::EvictedBlock;
use crate::commit::panic_message;
use crate::error::{Error, ErrorKind};
use crate::manifest::FlushedRange;
use crate::scheduler::{self, Choice, ChosenCompaction, CompactionState, JobsState, Role, SpaceState};
use crate::shape::{FileMeta, JobClaim, Reason, Version};
use crate::space::{Attempt, Remembered};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use varve_env::channel::{Receiver, RecvError};
use varve_env::{Instant, JoinHandle, MutexGuard};
use varve_store::{FileStore, Hint, IoClass, IoContext};

/// How often one waits for jobs again that freed nothing, before it is refused.
pub(super) const TRIES_MAX: u32 = 8;

/// Wait after a failed job before the next try.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Maximum number of doublings of the delay.
const RETRY_DOUBLINGS_MAX: u32 = 5;

/// How long the eviction queue is waited on between looks at whether to stop.
const EVICTION_WAIT: Duration = Duration::from_millis(200);

/// Longer with every failure in a row, so that a device is not written full again and again.
fn retry_delay(failures: u32) -> Duration {
    RETRY_DELAY * (1 << failures.saturating_sub(1).min(RETRY_DOUBLINGS_MAX))
}

enum Job {
    Flush(FlushPlan),
    Compact {
        version: Arc<Version>,
        chosen: ChosenCompaction,
        grant: Grant,
    },
    /// Reads what plans must know of tables.
    Sample {
        tables: Vec<Arc<FileMeta>>,
    },
    Collect,
}

/// Starts `max_background_jobs` workers.
pub(super) fn start(parts: &Arc<TreeParts>) -> Vec<JoinHandle<()>> {
    let count = parts.files.options.max_background_jobs.max(1);
    (0..count)
        .map(|position| {
            let role = match (count, position) {
                (1, _) => Role::Everything,
                (_, 0) => Role::Flushes,
                _ => Role::Compactions,
            };
            let parts = parts.clone();
            let name = if role == Role::Compactions { format!("compaction {position}") } else { "flush".to_owned() };
            parts.files.env.clone().spawn(&name.clone(), move || {
                if let Err(payload) = catch_unwind(AssertUnwindSafe(|| work(&parts, role))) {
                    parts
                        .board
                        .poison_all(format!("background worker '{name}' panicked: {}", panic_message(&*payload)));
                    // Closing tells of it too.
                    resume_unwind(payload);
                }
            })
        })
        .collect()
}

fn work(parts: &Arc<TreeParts>, role: Role) {
    let mut not_before: Option<Instant> = None;
    let mut failures = 0u32;
    let (mut retries_seen, mut looks_seen, mut is_asked) = (0, 0, false);
    let mut jobs = parts.board.lock();
    loop {
        if jobs.closing || jobs.poisoned.is_some() {
            return;
        }
        let retry = std::mem::replace(&mut retries_seen, jobs.retries) != jobs.retries;
        if retry || not_before.is_some_and(|moment| parts.files.env.now() >= moment) {
            not_before = None;
        }
        if not_before.is_none() {
            is_asked |= std::mem::replace(&mut looks_seen, jobs.looks_asked) != jobs.looks_asked;
            let (relocked, next) = next_job(parts, jobs, role);
            jobs = relocked;
            if is_asked && role != Role::Flushes && !matches!(next, Next::AskAgain | Next::Job(Job::Collect)) {
                jobs.look_is_pending = false;
            }
            match next {
                Next::Job(job) => {
                    // Removing files notifies no waiter: the worker looks again afterwards and then answers.
                    is_asked &= matches!(job, Job::Collect);
                    drop(jobs);
                    let failed = run(parts, job);
                    failures = if failed { failures.saturating_add(1) } else { 0 };
                    not_before = failed.then(|| parts.files.env.now() + retry_delay(failures));
                    jobs = parts.board.lock();
                    continue;
                }
                Next::AskAgain => continue,
                // The waiter that asked saw a job that is no longer due, because space has come back since.
                Next::Nothing if role != Role::Flushes && std::mem::take(&mut is_asked) => {
                    parts.board.done.notify_all()
                }
                Next::Nothing => {}
            }
        }
        match not_before {
            Some(moment) => {
                parts.board.work.wait_until(&mut jobs, moment);
            }
            None => parts.board.work.wait(&mut jobs),
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
fn next_job<'a>(
    parts: &'a TreeParts,
    mut jobs: MutexGuard<'a, JobState>,
    role: Role,
) -> (MutexGuard<'a, JobState>, Next) {
    let policy = &*parts.catalog.policy;
    let state = jobs_state(parts, &jobs, role);
    let mut version = None;
    let mut choice = scheduler::schedule(&state, None, policy);
    if let Choice::Look = choice {
        let (relocked, looked) = look(parts, jobs, |found| scheduler::schedule(&state, Some(found), policy));
        jobs = relocked;
        let Some((of, chosen)) = looked else { return (jobs, Next::AskAgain) };
        (version, choice) = (Some(of), chosen);
    }
    let job = match (choice, version) {
        (Choice::Flush, _) => {
            (jobs.flush_running, jobs.flush_hurried) = (true, false);
            Job::Flush(flush_plan(parts, &jobs))
        }
        (Choice::Compact(chosen), Some(version)) => {
            jobs.busy.enter(&chosen.plan);
            parts.scans.forget(chosen.plan.all_inputs().map(|file| file.number));
            if chosen.plan.reason == Reason::Tombstones {
                parts.catalog.counters.scan_compactions.fetch_add(1, Ordering::Relaxed);
            }
            jobs.running_compactions += 1;
            jobs.compacts_alone = chosen.is_alone;
            let grant = Grant::new(&parts.space, &version, &chosen.plan, chosen.space_bytes, false);
            Job::Compact { version, chosen, grant }
        }
        (Choice::Sample(tables), _) => {
            jobs.sampling = true;
            Job::Sample { tables }
        }
        (Choice::Collect, _) => Job::Collect,
        // What was made for nothing while this was looked at.
        _ if parts.files.tables.garbage.any() => Job::Collect,
        _ => return (jobs, Next::Nothing),
    };
    (jobs, Next::Job(job))
}

fn jobs_state(parts: &TreeParts, jobs: &JobState, role: Role) -> JobsState {
    JobsState {
        role,
        flush_is_due: jobs.flush_is_due(parts.files.options.experiment.min_write_buffer_number_to_merge),
        compactions_are_held: !may_compact(parts, jobs),
        sampling: jobs.sampling,
        has_garbage: parts.files.tables.garbage.any(),
    }
}

fn may_compact(parts: &TreeParts, jobs: &JobState) -> bool {
    jobs.manual == 0 && !jobs.compacts_alone && !parts.files.options.disable_auto_compactions
}

/// A plan is being made, however that ends.
struct Planning<'a> {
    parts: &'a TreeParts,
}

impl<'a> Planning<'a> {
    fn end(self) -> MutexGuard<'a, JobState> {
        let parts = self.parts;
        std::mem::forget(self);
        let mut jobs = parts.board.lock();
        jobs.planning -= 1;
        if jobs.compacts_alone || jobs.manual > 0 {
            parts.board.done.notify_all();
        }
        jobs
    }
}

impl Drop for Planning<'_> {
    fn drop(&mut self) {
        drop(Planning { parts: self.parts }.end());
    }
}

/// Carries a compaction out, unless it ended for want of space before and there is no more now.
fn compact(parts: &TreeParts, version: Arc<Version>, chosen: ChosenCompaction, grant: &Grant) -> Result<(), Error> {
    let ChosenCompaction { plan, space_bytes, is_alone, is_short } = chosen;
    if is_alone {
        let mut jobs = parts.board.lock();
        while jobs.holds_tables() && !jobs.closing && jobs.poisoned.is_none() {
            parts.board.done.wait(&mut jobs);
        }
        drop(jobs);
        parts.files.tables.collect();
    }
    if let Some(error) = parts.space.known_shortfall(&plan, space_bytes).filter(|_| is_short) {
        return Err(error);
    }
    let attempt = Attempt::of(&plan);
    let result = compaction::compact(&parts.jobs(), version, plan, grant);
    if let Err(error) = &result
        && error.kind() == ErrorKind::NoSpace
    {
        parts.space.note_shortfall(attempt, space_bytes, error.clone());
    }
    result
}

/// Lets go of the lock, looks at what compactions depend on, decides, and takes the lock again. Nothing when any of that
/// changed meanwhile, or anything else that may be a reason to do something else.
///
/// What it returns must not outlive the lock, but for a job: whoever waits for plans waits for their tables.
fn look<'a, T>(
    parts: &'a TreeParts,
    mut jobs: MutexGuard<'a, JobState>,
    decide: impl FnOnce(&CompactionState<'_>) -> T,
) -> (MutexGuard<'a, JobState>, Option<(Arc<Version>, T)>) {
    let outlook = jobs.outlook();
    let version = parts.catalog.version();
    let (busy, others_run) = (jobs.busy.clone(), jobs.running_compactions > 0);
    jobs.planning += 1;
    let planning = Planning { parts };
    drop(jobs);
    let (remembered, steps) = (parts.space.remembered(), parts.scans.table_steps(&version));
    let decided = decide(&CompactionState {
        version: &version,
        busy: &busy,
        others_run,
        space: look_at_space(parts, &remembered),
        oldest_view: parts.snapshots.oldest(),
        is_waited_for: parts.throttle.is_waited_for(),
        steps: &steps,
    });
    let jobs = planning.end();
    let is_as_before = jobs.outlook() == outlook && Arc::ptr_eq(&version, &parts.catalog.read_state.load().version);
    (jobs, is_as_before.then_some((version, decided)))
}

/// What is known of space. Cost: asks the store once.
pub(super) fn look_at_space<'a>(parts: &TreeParts, remembered: &'a Remembered) -> SpaceState<'a> {
    let (headroom, bytes) = space_now(&parts.catalog, &parts.space, 0);
    SpaceState {
        headroom,
        bytes,
        was_short: parts.space.is_short(),
        table_bytes: parts.files.media.files.properties().preferred_table_bytes,
        remembered,
    }
}

/// Runs a job; true when it failed.
fn run(parts: &Arc<TreeParts>, job: Job) -> bool {
    // What a compaction read must be let go of before its space can be collected.
    let (result, ended) = match job {
        Job::Flush(plan) => (flush(parts, &plan), Ended::Flush),
        Job::Compact { version, chosen, grant } => {
            let claim = chosen.plan.claim();
            (compact(parts, version, chosen, &grant), Ended::Compaction(claim))
        }
        Job::Sample { tables } => {
            sample(parts, &tables);
            (Ok(()), Ended::Sample)
        }
        Job::Collect => (Ok(()), Ended::Collection),
    };
    parts.files.tables.collect();
    let failure = result.err();
    if failure.as_ref().is_some_and(|error| error.kind() != ErrorKind::Closed && !is_given_up(error)) {
        parts.catalog.counters.background_errors.fetch_add(1, Ordering::Relaxed);
    }
    let failed = failure.is_some();
    let mut jobs = parts.board.lock();
    match ended {
        Ended::Flush => {
            jobs.flush_running = false;
            jobs.note_flush(failure);
        }
        Ended::Compaction(claim) => {
            jobs.busy.leave(&claim);
            jobs.running_compactions -= 1;
            jobs.compacts_alone = false;
            // Freed space may unblock a flush.
            jobs.retries += u64::from(!failed && jobs.flush_error.is_some());
            jobs.note_compaction(failure);
        }
        Ended::Sample => jobs.sampling = false,
        Ended::Collection => return false,
    }
    // A finished job makes others due: the next level may be over its size now.
    parts.board.work.notify_all();
    parts.board.done.notify_all();
    failed
}

/// Flushes all that waits for it.
fn flush_plan(parts: &TreeParts, jobs: &JobState) -> FlushPlan {
    // Read first: all up to it is in memtables, and what is not is behind it.
    let visible = parts.snapshots.visible();
    let left = parts.catalog.read_state.load().active.first_sequence();
    let start = jobs.log_with(left.unwrap_or(visible + 1).min(visible + 1));
    let is_apart = |immutable: &&Immutable| !immutable.memtables.is_whole();
    let range_of = |immutable: &Immutable| FlushedRange {
        begin: immutable.memtables.begin().to_vec(),
        end: immutable.memtables.end().map(<[u8]>::to_vec),
        sequence: immutable.sequence,
    };
    FlushPlan {
        memtables: jobs.immutables.iter().map(|immutable| immutable.memtables.clone()).collect(),
        log_start: start.map_or((0, 0), |log| (log.number, log.after)),
        ranges: jobs.immutables.iter().filter(is_apart).map(range_of).collect(),
        // Those of all keys leave no earlier entry out.
        logs_synced_before: jobs.immutables.back().filter(is_apart).map(|immutable| immutable.next_log_number),
    }
}

/// Flushes, and gives up the logs that are not needed any more then.
fn flush(parts: &TreeParts, plan: &FlushPlan) -> Result<(), Error> {
    if plan.logs_synced_before.is_some() {
        // A sync that failed may have been of these very logs.
        parts.board.refuse_if_poisoned()?;
    }
    if let Some(number) = plan.logs_synced_before
        && let Err(error) = parts.logs.sync_before(number)
    {
        // Whether they are durable is unknown: nothing may be built on them.
        parts.board.poison(&error);
        return Err(error);
    }
    flush::flush(&parts.jobs(), plan)?;
    let log_number = plan.log_start.0;
    parts.board.lock().retire_logs(log_number);
    parts.logs.retire(log_number).into_iter().for_each(|number| parts.files.tables.garbage.push_log(number));
    Ok(())
}

/// What is left of a job when it ended.
enum Ended {
    Flush,
    Compaction(JobClaim),
    Sample,
    Collection,
}

/// An unreadable table gets an empty histogram; its compaction reports the error.
fn sample(parts: &TreeParts, tables: &[Arc<FileMeta>]) {
    for file in tables {
        let read = parts
            .files
            .tables
            .get_for(file, &IoContext::of(IoClass::Maintenance))
            .map(|table| table.properties().histogram.clone());
        let _ = file.histogram.set(read.unwrap_or_default());
    }
}

/// A compaction was given up because it would have left more tables than it read: waiting writers get the refusal, and nothing
/// is wrong.
pub(super) fn is_given_up(error: &Error) -> bool {
    matches!(error, Error::OutOfSpace { .. })
}

/// Waits until no flush or compaction runs or is due.
///
/// Errors: what one failed with. One that found no space is tried again first, as that may come back.
pub(super) fn wait_until_idle(parts: &TreeParts) -> Result<(), Error> {
    let mut jobs = parts.board.lock();
    let (mut tries, mut seen) = (0, None);
    loop {
        let (relocked, is_idle) = is_idle(parts, jobs);
        jobs = relocked;
        if let Some(error) = &jobs.poisoned {
            return Err(error.clone());
        }
        if is_idle {
            return Ok(());
        }
        if jobs.closing {
            return Err(Error::Closed);
        }
        let of_compaction = jobs.compaction_error.as_ref().filter(|error| !is_given_up(error));
        if let Some(error) = jobs.flush_error.as_ref().or(of_compaction).cloned() {
            if error.kind() != ErrorKind::NoSpace {
                return Err(error);
            }
            // What lacked space may find what others that ran then, or run yet, give back: it is tried again.
            let attempts = Some((jobs.flush_attempts, jobs.compaction_attempts));
            if jobs.running_jobs() == 0 && seen != attempts {
                if tries == TRIES_MAX {
                    return Err(error);
                }
                (tries, seen) = (tries + 1, attempts);
                jobs.retries += 1;
                parts.board.work.notify_all();
            }
        } else if !jobs.is_progressing() {
            // What made it due may have come without a job, as space does that readers give back, and workers looked before.
            parts.board.ask_to_look(&mut jobs);
        }
        parts.board.done.wait(&mut jobs);
    }
}

/// No flush or compaction runs or is due. Lets go of the lock meanwhile; what is returned holds as long as the lock
/// that is returned with it is.
pub(super) fn is_idle<'a>(
    parts: &'a TreeParts,
    mut jobs: MutexGuard<'a, JobState>,
) -> (MutexGuard<'a, JobState>, bool) {
    loop {
        let rests = !jobs.flush_is_due(parts.files.options.experiment.min_write_buffer_number_to_merge)
            && !jobs.flush_running
            && jobs.running_compactions == 0
            && jobs.manual == 0;
        if !rests || !may_compact(parts, &jobs) {
            return (jobs, rests);
        }
        let decide = |state: &CompactionState<'_>| scheduler::next_compaction(state, &*parts.catalog.policy).is_none();
        let (relocked, looked) = look(parts, jobs, decide);
        jobs = relocked;
        if let Some((_, is_idle)) = looked {
            return (jobs, is_idle);
        }
    }
}

/// Tells the store of blocks the cache dropped. Ends when the tree closes.
pub(super) fn pass_evictions(
    parts: &Arc<TreeParts>,
    files: Arc<dyn FileStore>,
    receiver: Receiver<EvictedBlock>,
) -> JoinHandle<()> {
    let parts = parts.clone();
    parts.files.env.clone().spawn("cache evictions", move || {
        while !parts.board.is_cancelled() {
            match receiver.recv_until(parts.files.env.now() + EVICTION_WAIT) {
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
