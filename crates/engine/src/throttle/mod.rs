//! How fast writers and background work may go, and why: the one place that says so.
//!
//! - *stall*: the triggers at which writers are slowed or stopped ([`stall`]), and the rate of those slowed
//!   ([`write_delay`]).
//! - *pace*, if it is asked for: writers are held to what is emptied behind them ([`write_pace`]), jobs to what writers
//!   write ([`job_pace`]), in small steps between writes or in few long ones that keep logs waiting ([`burst`]). All of it is for those
//!   who wait for the log: while nobody does, writers are held to what empties level 0 alone, and jobs to nothing.
//! - *rate limit* of background writes ([`rate_limiter`]).
//!
//! What is decided are pure functions in these files; [`Throttle`] has the state they need, and sleeps.

mod burst;
mod job_pace;
mod rate_limiter;
mod stall;
mod write_delay;
mod write_pace;

pub(crate) use burst::Burst;
pub(crate) use job_pace::JobPace;
pub(crate) use rate_limiter::ChargedBytes;
pub(crate) use stall::{Pressure, Stall};

use crate::log::{LogBacklog, LogGate};
use crate::options::Options;
use burst::{BURST_STEP_BYTES, Bursts};
use job_pace::{Jobs, STEP_BYTES, Share, compaction_headroom_bytes};
use rate_limiter::RateLimiter;
use stall::StallOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use varve_env::{Env, Instant};
use write_delay::WriteDelay;
use write_pace::Reservoir;

/// Slowed writers sleep when at least so much is due: less would be lost in waking up.
const DELAY_MIN: Duration = Duration::from_millis(1);

/// The same of writers that are held to the pace of background work, all the time and by little.
const PACE_DELAY_MIN: Duration = Duration::from_micros(200);

/// A write that is held to the pace sleeps no longer than this: rates change while it does.
const PACE_DELAY_MAX: Duration = Duration::from_millis(20);

/// Writers are held as if there were one part in so many of the room that is left in level 0: fewer tables overlap for it, and puts are as fast
/// (trials in `docs/design/0001-order-and-pace.md`).
const LEVEL0_ROOM_PARTS: u64 = 2;

/// How long a slowed writer sleeps until it looks again.
const DELAY_STEP: Duration = Duration::from_millis(10);

/// What is told by [`Options`], and the size of a memtable.
#[derive(Clone, Copy, Debug)]
struct ThrottleOptions {
    stall: StallOptions,
    delayed_write_rate: u64,
    /// Writers and jobs keep pace with each other.
    is_paced: bool,
    /// Compactions begin by themselves: else nothing would ever relieve the pressure.
    is_relieved: bool,
    /// Tables of level 0 at which writers are slowed, paced or not.
    level0_slowdown: usize,
    /// What users write while one table is added to level 0, as triggers count them.
    level0_table_bytes: u64,
    /// Of all memtables together.
    memtables_bytes: u64,
}

impl ThrottleOptions {
    fn new(options: &Options, memtable_bytes: u64) -> ThrottleOptions {
        let stall = StallOptions {
            // Writers that keep the pace of compactions are not slowed by level 0 once more.
            level0_slowdown_writes_trigger: match options.pace_background_work.unwrap_or_default() {
                true => usize::MAX,
                false => options.level0_slowdown_writes_trigger,
            },
            level0_stop_writes_trigger: options.level0_stop_writes_trigger,
            soft_pending_compaction_bytes_limit: options.soft_pending_compaction_bytes_limit,
            hard_pending_compaction_bytes_limit: options.hard_pending_compaction_bytes_limit,
        };
        let memtables_bytes = memtable_bytes.saturating_mul(options.max_write_buffer_number.max(2) as u64);
        ThrottleOptions {
            stall,
            delayed_write_rate: options.delayed_write_rate,
            is_paced: options.pace_background_work.unwrap_or_default(),
            is_relieved: !options.disable_auto_compactions,
            level0_slowdown: options.level0_slowdown_writes_trigger,
            // Where ranges of keys are flushed several tables are one more over a key; counted so jobs are done sooner.
            level0_table_bytes: memtable_bytes,
            memtables_bytes,
        }
    }
}

/// What holds writers back while compactions are behind.
struct WriterDelay {
    /// A [`Stall`] as a number: read by every write.
    stall: AtomicU8,
    /// Of slowed writers.
    bytes_per_second: AtomicU64,
    /// Changes with the tree.
    delay: parking_lot::Mutex<WriteDelay>,
}

/// How fast writers and background work may go; see the module. Thread-safe.
pub(crate) struct Throttle {
    env: Env,
    options: ThrottleOptions,
    writers: WriterDelay,
    jobs: Jobs,
    /// Logs are on a medium of their own: what jobs do keeps no write from it.
    logs_apart: bool,
    /// If jobs move in bursts.
    bursts: Option<Bursts>,
    rate_limiter: RateLimiter,
    log_backlog: Arc<LogBacklog>,
}

/// What was written and is not yet where compactions find it, in users' bytes; and the tables there are of what is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsettled {
    /// In the memtable that is written.
    pub(crate) active_bytes: u64,
    /// In those that wait for their flush.
    pub(crate) unflushed_bytes: u64,
    pub(crate) level0_tables: usize,
}

/// What there is to know of the medium that logs are on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogMedium {
    /// It is none of the tables': nothing is gained by keeping log writes waiting.
    pub(crate) is_apart: bool,
    /// Whoever hands a log over waits for a device.
    pub(crate) flush_is_device_request: bool,
}

impl Throttle {
    /// Of a tree whose memtables are full at `memtable_bytes`.
    pub(crate) fn new(env: &Env, options: &Options, memtable_bytes: usize, logs: LogMedium) -> Throttle {
        let LogMedium { is_apart: logs_apart, flush_is_device_request } = logs;
        let stall = Duration::from_millis(options.max_write_stall_ms.unwrap_or_default());
        let bursts = options.pace_background_work.unwrap_or_default() && !stall.is_zero() && !logs_apart;
        let gate = if bursts { LogGate::new(env) } else { LogGate::default() };
        let delay = WriteDelay::new(options.delayed_write_rate);
        Throttle {
            env: env.clone(),
            options: ThrottleOptions::new(options, memtable_bytes as u64),
            writers: WriterDelay {
                stall: AtomicU8::new(0),
                bytes_per_second: AtomicU64::new(options.delayed_write_rate),
                delay: parking_lot::Mutex::new(delay),
            },
            jobs: Jobs::new(flush_is_device_request && options.log_write_behind_size.unwrap_or_default() == 0),
            logs_apart,
            bursts: Bursts::new(stall, gate.clone()),
            rate_limiter: RateLimiter::new(env, options.rate_limit_bytes_per_second),
            log_backlog: Arc::new(LogBacklog::new(options.log_write_behind_size.unwrap_or_default() as u64, gate)),
        }
    }

    /// What of the log is on its way to the medium.
    pub(crate) fn log_backlog(&self) -> &Arc<LogBacklog> {
        &self.log_backlog
    }

    /// The tree came to be under this pressure.
    pub(crate) fn update(&self, pressure: &Pressure) {
        let mut delay = self.writers.delay.lock();
        *delay = delay.after(pressure, &self.options.stall, self.options.delayed_write_rate);
        let number = match delay.stall {
            _ if !self.options.is_relieved => 0,
            Stall::None => 0,
            Stall::Slow => 1,
            Stall::Stop => 2,
        };
        self.writers.bytes_per_second.store(delay.bytes_per_second, Ordering::Relaxed);
        self.writers.stall.store(number, Ordering::Relaxed);
    }

    /// How writers are held back. Cost: reads a number.
    #[inline]
    pub(crate) fn stall(&self) -> Stall {
        match self.writers.stall.load(Ordering::Relaxed) {
            0 => Stall::None,
            1 => Stall::Slow,
            _ => Stall::Stop,
        }
    }

    /// Sleeps when so many bytes more are ahead of the rate slowed writers get, of which `due_nanos` is used up; false when
    /// that is not so. Ends early when they are not slowed any more, or when the throttle ends.
    pub(crate) fn delay(&self, due_nanos: &mut u64, bytes: usize) -> bool {
        let rate = self.writers.bytes_per_second.load(Ordering::Relaxed).max(1);
        let nanos = (bytes as u64 + 1).saturating_mul(1_000_000_000) / rate;
        *due_nanos = (*due_nanos).max(self.env.now().as_nanos()).saturating_add(nanos);
        let ahead = |due: u64| Duration::from_nanos(due.saturating_sub(self.env.now().as_nanos()));
        if ahead(*due_nanos) < DELAY_MIN {
            return false;
        }
        while self.stall() == Stall::Slow && !self.jobs.has_ended() && !ahead(*due_nanos).is_zero() {
            self.env.sleep(ahead(*due_nanos).min(DELAY_STEP));
        }
        *due_nanos = (*due_nanos).min(self.env.now().as_nanos());
        true
    }

    /// Sleeps so that users' writes keep the pace of what empties the log's way to the medium, memtables and level 0, or while nobody
    /// waits for the log level 0 alone, where that was asked for. `due_nanos` as for [`Throttle::delay`].
    pub(crate) fn keep_pace(&self, due_nanos: &mut u64, bytes: usize, unsettled: impl Fn() -> Unsettled) {
        if !self.options.is_paced || !self.options.is_relieved {
            return;
        }
        let now = self.env.now();
        let Some(rate) = self.write_rate(now, unsettled()) else {
            *due_nanos = now.as_nanos();
            return;
        };
        let nanos = (bytes as u64).saturating_mul(1_000_000_000) / rate;
        *due_nanos = (*due_nanos).max(now.as_nanos()).saturating_add(nanos);
        let ahead = Duration::from_nanos(*due_nanos - now.as_nanos());
        match &self.bursts {
            None if ahead < PACE_DELAY_MIN => return,
            None => self.env.sleep(ahead.min(PACE_DELAY_MAX)),
            // One write waits for all that came before it.
            Some(bursts) if ahead < bursts.stall() => return,
            Some(bursts) => self.hold_writer(bursts.stall(), unsettled),
        }
        *due_nanos = (*due_nanos).min(self.env.now().as_nanos());
    }

    /// Sleeps that long, or until nothing is to be emptied.
    fn hold_writer(&self, time: Duration, unsettled: impl Fn() -> Unsettled) {
        let end = self.env.now() + time;
        loop {
            let now = self.env.now();
            let left = end - now;
            let is_due = || self.write_rate(now, unsettled()).is_some();
            if left.is_zero() || self.jobs.has_ended() || !is_due() {
                return;
            }
            self.env.sleep(left.min(PACE_DELAY_MAX));
        }
    }

    /// Bytes per second that writers are held to, if they are.
    fn write_rate(&self, now: Instant, unsettled: Unsettled) -> Option<u64> {
        let [log, memtables, level0] = self.reservoirs(unsettled);
        match self.jobs.is_log_awaited(now) {
            true => write_pace::bytes_per_second(&[log, memtables, level0]),
            // Those who fill the first two wait for them now and then, for as long in all as if they were held.
            false => write_pace::bytes_per_second(&[level0]),
        }
    }

    /// The log's way to the medium, memtables, and level 0.
    fn reservoirs(&self, unsettled: Unsettled) -> [Reservoir; 3] {
        let Unsettled { active_bytes, unflushed_bytes, level0_tables } = unsettled;
        let table_bytes = self.options.level0_table_bytes;
        let free_bytes = self.options.memtables_bytes.saturating_sub(unflushed_bytes).saturating_sub(active_bytes);
        let (backlog, flushes) = (&self.log_backlog, &self.jobs.flushes);
        let stop = self.options.stall.level0_stop_writes_trigger;
        let written_bytes = active_bytes + unflushed_bytes;
        let level0_room_bytes =
            write_pace::level0_room_bytes(level0_tables, stop, table_bytes, written_bytes) / LEVEL0_ROOM_PARTS;
        // After a compaction below level 0 another one has to come until there is more space.
        let (compactions, level0_room_bytes) = match self.jobs.level0.left_bytes() {
            0 => (&self.jobs.deeper, level0_room_bytes / 2),
            _ => (&self.jobs.level0, level0_room_bytes),
        };
        [
            Reservoir {
                room_bytes: backlog.limit_bytes().saturating_sub(backlog.bytes()),
                due_bytes: backlog.bytes(),
                emptied_bytes_per_second: backlog.rate().bytes_per_second(),
            },
            Reservoir {
                room_bytes: free_bytes,
                due_bytes: unflushed_bytes.saturating_sub(flushes.done_bytes()),
                emptied_bytes_per_second: flushes.rate().bytes_per_second(),
            },
            Reservoir {
                room_bytes: level0_room_bytes,
                due_bytes: compactions.left_bytes(),
                emptied_bytes_per_second: compactions.rate().bytes_per_second(),
            },
        ]
    }

    /// Users wrote so many bytes.
    #[inline]
    pub(crate) fn note_written(&self, bytes: usize) {
        if self.options.is_paced {
            self.jobs.note_written(&self.env, bytes);
        }
    }

    /// A write waits until the log is on the medium.
    #[inline]
    pub(crate) fn note_log_awaited(&self) {
        if self.options.is_paced {
            self.jobs.note_log_awaited(&self.env);
        }
    }

    /// The pace of a flush of so many bytes, when `waiting_bytes` wait and what is written has `active_bytes`.
    pub(crate) fn flush_pace(&self, work_bytes: u64, waiting_bytes: u64, active_bytes: u64) -> JobPace {
        // Until all memtables are full and writers wait for a flush.
        let free_bytes = self.options.memtables_bytes.saturating_sub(waiting_bytes);
        let headroom_bytes = free_bytes.saturating_sub(active_bytes);
        self.pace(&self.jobs.flushes, Share::new(work_bytes, headroom_bytes), work_bytes)
    }

    /// The pace of a compaction of so many bytes.
    pub(crate) fn compaction_pace(&self, work_bytes: u64, is_of_level0: bool, level0_tables: usize) -> JobPace {
        let headroom_bytes =
            compaction_headroom_bytes(level0_tables, self.options.level0_slowdown, self.options.level0_table_bytes);
        let progress = if is_of_level0 { &self.jobs.level0 } else { &self.jobs.deeper };
        self.pace(progress, Share::new(work_bytes, headroom_bytes), work_bytes)
    }

    fn pace(&self, progress: &Arc<job_pace::Progress>, share: Share, work_bytes: u64) -> JobPace {
        match self.options.is_paced {
            // It is told how far it is, which writers are held to, and need not wait for them.
            true if self.logs_apart => JobPace::new(&self.jobs, progress, Share::new(work_bytes, 0), work_bytes),
            true => JobPace::new(&self.jobs, progress, share, work_bytes),
            false => JobPace::unheld(),
        }
    }

    /// Tables of a job are written back on the way, so that no sync of a log waits for much: while there are such.
    pub(crate) fn writes_back(&self, pace: &JobPace) -> bool {
        pace.is_held() && !self.logs_apart && self.jobs.is_log_awaited(self.env.now())
    }

    /// Bytes of a job's input between two steps.
    pub(crate) fn step_bytes(&self) -> u64 {
        if self.bursts.is_some() { BURST_STEP_BYTES } else { STEP_BYTES }
    }

    /// Returns when a job may begin: in a burst, if jobs move in bursts.
    pub(crate) fn begin(&self, pace: &JobPace, burst: &mut Burst) {
        if let Some(bursts) = &self.bursts {
            bursts.begin(&self.env, &self.jobs, pace, burst);
        }
    }

    /// Lets others have the medium until a job [begins](Throttle::begin) again.
    pub(crate) fn pause(&self, pace: &JobPace, burst: &mut Burst) {
        if let Some(bursts) = &self.bursts {
            bursts.pause(&self.env, pace, burst);
        }
    }

    /// Tells of a step of a job's work, which is part of `burst` if that is one, and returns when the next may begin. Before a
    /// burst ends `write_back` has the medium write down what it wrote.
    ///
    /// Errors: those of `write_back`.
    pub(crate) fn step<E>(
        &self,
        pace: &JobPace,
        burst: &mut Burst,
        bytes: u64,
        write_back: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        match &self.bursts {
            Some(bursts) => bursts.step(&self.env, &self.jobs, (pace, burst), bytes, write_back),
            None => {
                pace.step(&self.env, &self.jobs, bytes);
                Ok(())
            }
        }
    }

    /// Returns when a job may begin to write as far as the rate limit goes, or when the throttle ends.
    pub(crate) fn begin_writing(&self) {
        self.rate_limiter.begin();
    }

    /// A job has written `job_bytes` in all: returns when it may go on, or when the throttle ends. A burst ends before the job waits.
    /// True if it may have waited.
    pub(crate) fn admit(&self, burst: &mut Burst, charged: &mut ChargedBytes, job_bytes: u64) -> bool {
        self.rate_limiter.admit(charged, job_bytes, || burst.end())
    }

    /// A job ended after it wrote `job_bytes`; those of failed jobs count.
    pub(crate) fn settle(&self, charged: ChargedBytes, job_bytes: u64) {
        self.rate_limiter.settle(charged, job_bytes);
    }

    /// As long as what is returned lives somebody waits for a job to end: jobs make haste.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.jobs.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(&self.jobs.waiting)
    }

    /// Somebody waits for a job to end.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.jobs.waiting.load(Ordering::Relaxed) > 0
    }

    /// Ends all waits, those to come as well.
    pub(crate) fn end(&self) {
        self.jobs.end();
        self.bursts.iter().for_each(Bursts::end);
        self.rate_limiter.end();
    }
}

/// See [`Throttle::wait`].
pub(crate) struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
