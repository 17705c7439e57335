//! Background workers: they ask what is due and do it, one job at a time each.

use super::compaction;
use super::flush;
use super::plan::CompactionPlan;
use super::shared::{Core, Shared, panic_message};
use super::version::{FileMeta, Version};
use crate::cache::EvictedBlock;
use crate::error::{Error, ErrorKind};
use crate::memtable::MemTable;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use varve_env::channel::{Receiver, RecvError};
use varve_env::{Instant, JoinHandle, MutexGuard};
use varve_store::{FileStore, Hint};

/// Wait after a failed job before the next try.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// How long the eviction queue is waited on between looks at whether to stop.
const EVICTION_WAIT: Duration = Duration::from_millis(200);

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
        plan: CompactionPlan,
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
                    not_before = failed.then(|| shared.env.now() + RETRY_DELAY);
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
        core.room_bytes = planned.room_bytes;
        if let Some(plan) = planned.plan {
            let tables = unsampled(shared, &planned.version, &plan);
            if tables.is_empty() {
                core.busy.enter(&plan);
                core.running_compactions += 1;
                return (core, Next::Job(Job::Compact { version: planned.version, plan }));
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
    core.manual == 0 && !shared.options.disable_auto_compactions
}

struct Planned {
    version: Arc<Version>,
    plan: Option<CompactionPlan>,
    /// Room that plans have to keep to from now on.
    room_bytes: Option<u64>,
}

/// Lets go of the lock, makes a plan and takes the lock again. Nothing when what the plan depends on changed meanwhile, or
/// anything else that may be a reason to do something else.
fn plan<'a>(shared: &'a Shared, core: MutexGuard<'a, Core>) -> (MutexGuard<'a, Core>, Option<Planned>) {
    let outlook = core.outlook();
    let version = shared.read_state.load().version.clone();
    let (busy, room_bytes) = (core.busy.clone(), core.room_bytes);
    drop(core);
    let pick = |room_bytes| shared.organisation.pick(&version, &busy, room_bytes);
    let urgent = pick(u64::MAX);
    let room_bytes = room_bytes.filter(|room| urgent.as_ref().is_some_and(|plan| plan.written_bytes_max() > *room));
    let plan = room_bytes.and_then(pick).or(urgent);
    let core = shared.core.lock();
    let is_as_before = core.outlook() == outlook && Arc::ptr_eq(&version, &shared.read_state.load().version);
    let planned = is_as_before.then_some(Planned { version, plan, room_bytes });
    (core, planned)
}

/// Runs a job; true when it failed.
fn run(shared: &Arc<Shared>, job: Job) -> bool {
    let result = match &job {
        Job::Flush { memtables, log_number } => flush::flush(shared, memtables, *log_number),
        Job::Compact { version, plan } => compaction::compact(shared, version, plan),
        Job::Sample { tables } => {
            sample(shared, tables);
            Ok(())
        }
        Job::Collect => Ok(()),
    };
    shared.tables.collect(&shared.garbage);
    let failure = result.err();
    if failure.as_ref().is_some_and(|error| error.kind() != ErrorKind::Closed) {
        shared.counters.background_errors.fetch_add(1, Ordering::Relaxed);
    }
    let failed = failure.is_some();
    let is_out_of_room = failure.as_ref().is_some_and(|error| error.kind() == ErrorKind::NoSpace);
    let is_compaction = matches!(job, Job::Compact { .. });
    // Once one ran out of room, what is free says which can still be done.
    let room_bytes = (is_compaction && (is_out_of_room || shared.core.lock().room_bytes.is_some()))
        .then(|| shared.media.files.space().map_or(0, |space| space.available_bytes));
    let mut core = shared.core.lock();
    match job {
        Job::Flush { .. } => {
            core.flush_running = false;
            note(&mut core, failure, |core| (&mut core.flush_attempts, &mut core.flush_error));
        }
        Job::Compact { plan, .. } => {
            core.busy.leave(&plan);
            core.running_compactions -= 1;
            core.room_bytes = room_bytes;
            note(&mut core, failure, |core| (&mut core.compaction_attempts, &mut core.compaction_error));
        }
        Job::Sample { .. } => core.sampling = false,
        Job::Collect => return false,
    }
    // A finished job makes others due: the next level may be over its size now.
    shared.work.notify_all();
    shared.done.notify_all();
    failed
}

/// Tables a plan depends on whose histograms were not read yet.
fn unsampled(shared: &Shared, version: &Version, plan: &CompactionPlan) -> Vec<Arc<FileMeta>> {
    if shared.organisation.histogram_bytes() == 0 {
        return Vec::new();
    }
    let Some((smallest, largest)) = plan.hull() else { return Vec::new() };
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

fn note(core: &mut Core, failure: Option<Error>, fields: impl Fn(&mut Core) -> (&mut u64, &mut Option<Error>)) {
    let (attempts, last) = fields(core);
    *attempts += 1;
    *last = failure;
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
            return (core, planned.plan.is_none());
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
        while core.running_compactions > 0 && !core.closing && core.halted.is_none() {
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
    let result = compact_levels(shared, begin, end);
    shared.tables.collect(&shared.garbage);
    result
}

fn compact_levels(shared: &Arc<Shared>, begin: Option<&[u8]>, end: Option<&[u8]>) -> Result<(), Error> {
    let mut last = None;
    loop {
        if shared.cancel.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        let version = shared.read_state.load().version.clone();
        let Some(plan) = shared.organisation.next_of_range(&version, begin, end, last.as_ref()) else {
            return Ok(());
        };
        compaction::compact(shared, &version, &plan)?;
        last = Some(plan);
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
