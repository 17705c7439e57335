//! Spreads flushes and compactions over the writes that come until their results are needed.
//!
//! Done at once, a compaction keeps the medium busy for seconds, and every write that must reach the medium meanwhile waits
//! behind its reads and behind all it has put into the device's cache. Nothing is gained by that haste as long as
//! compactions keep up: its result is needed when level 0 would become too large, which is some memtables away.
//!
//! So a job is geared to the writers, as in "spring and gear" schedulers (Sears and Ramakrishnan, "bLSM: a general purpose
//! log structured merge tree", SIGMOD 2012, section 4): it may move its work's share `u / h` once users wrote `u` bytes, where
//! `h` is a part of what they may write until its result is needed. Its progress is incremental in small steps along the
//! key range, writes are slowed by one step at most at a time, all alike, and the sum of the work is what it was. Four
//! things let a job go on at once:
//!
//! - Nobody waits for the log: no write was synced for a while, and those who hand it over need no device for that (a thread of the log writes it,
//!   or the system). What keeps the medium busy then keeps nobody waiting but those who fill the log's way to it or begin a memtable, and
//!   being done sooner helps these most.
//! - Writers wait for a job: then haste is all that helps them.
//! - Nobody wrote for a while: then there is nobody to hold up.
//! - It is late: `h` has been written. A job that begins with no time left is late from the start, so that under
//!   writers faster than the medium nothing changes.
//!
//! What is decided is a pure function of a job's [`Share`] and what was written; [`JobPace`] waits. It also tells of the
//! job's progress, which writers are held to in turn: see [`super::write_pace`].

use super::burst::BurstCosts;
use crate::log::Throughput;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use varve_env::{Env, Instant};

/// Bytes of input a job moves between two looks at its pace: a few times what positioning on a disk is worth.
pub(crate) const STEP_BYTES: u64 = 512 << 10;

/// How long a job that is ahead waits until it looks again.
const WAIT: Duration = Duration::from_millis(5);

/// Without a write for this long there is nobody to hold up.
const QUIET: Duration = Duration::from_millis(50);

/// Whoever waited for the log is taken to do so again for this long: long enough for a few syncs of those who sync by the clock.
const AWAITED: Duration = Duration::from_secs(10);

/// Part of what may be written until a result is needed, in which it is there: what else comes up meanwhile has the rest.
const HEADROOM_PARTS: u64 = 4;

/// What a job has to do, and by when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    work_bytes: u64,
    within_bytes: u64,
}

impl Share {
    /// A job of `work_bytes` whose result is needed when users wrote `headroom_bytes`.
    pub(super) fn new(work_bytes: u64, headroom_bytes: u64) -> Share {
        Share { work_bytes: work_bytes.max(1), within_bytes: headroom_bytes / HEADROOM_PARTS }
    }

    /// Bytes of the work that may be done when users wrote `written_bytes` since it began; all when it is late.
    pub(super) fn allowed_bytes(&self, written_bytes: u64) -> u64 {
        if written_bytes >= self.within_bytes {
            return u64::MAX;
        }
        let allowed = u128::from(self.work_bytes) * u128::from(written_bytes) / u128::from(self.within_bytes);
        u64::try_from(allowed).unwrap_or(u64::MAX)
    }
}

/// User bytes until level 0 would slow writers down.
pub(super) fn compaction_headroom_bytes(level0_tables: usize, level0_slowdown: usize, memtable_bytes: u64) -> u64 {
    (level0_slowdown.saturating_sub(level0_tables) as u64).saturating_mul(memtable_bytes)
}

/// How far running jobs of one kind are, in bytes they read.
#[derive(Debug, Default)]
pub(super) struct Progress {
    begun_bytes: AtomicU64,
    done_bytes: AtomicU64,
    rate: Throughput,
    burst_costs: BurstCosts,
}

impl Progress {
    pub(super) fn done_bytes(&self) -> u64 {
        self.done_bytes.load(Ordering::Relaxed)
    }

    /// What running jobs have left.
    pub(super) fn left_bytes(&self) -> u64 {
        self.begun_bytes.load(Ordering::Relaxed).saturating_sub(self.done_bytes())
    }

    /// How fast it is done while jobs are not held.
    pub(super) fn rate(&self) -> &Throughput {
        &self.rate
    }
}

/// What paced jobs and writers know of each other.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    /// Whoever fills the log's buffer writes it to a device.
    writers_write_logs: bool,
    writes: Writes,
    /// Threads that wait for a job to end.
    pub(super) waiting: AtomicUsize,
    /// Nobody is held any more.
    has_ended: AtomicBool,
    pub(super) flushes: Arc<Progress>,
    pub(super) level0: Arc<Progress>,
    pub(super) deeper: Arc<Progress>,
}

/// What users wrote.
#[derive(Debug, Default)]
struct Writes {
    bytes: AtomicU64,
    /// Time of the env of the last one.
    last_nanos: AtomicU64,
    /// Until then somebody is taken to wait for the log.
    log_awaited_until_nanos: AtomicU64,
}

impl Jobs {
    /// Of a tree whose log is written to a device by writers themselves, if `writers_write_logs`.
    pub(super) fn new(writers_write_logs: bool) -> Jobs {
        Jobs { writers_write_logs, ..Jobs::default() }
    }

    /// Somebody waits until the log is on the medium.
    pub(super) fn note_log_awaited(&self, env: &Env) {
        let until = env.now() + AWAITED;
        self.writes.log_awaited_until_nanos.store(until.as_nanos(), Ordering::Relaxed);
    }

    /// Writes wait for the medium to take the log, or did so of late.
    pub(super) fn is_log_awaited(&self, now: Instant) -> bool {
        self.writers_write_logs || now.as_nanos() < self.writes.log_awaited_until_nanos.load(Ordering::Relaxed)
    }

    pub(super) fn note_written(&self, env: &Env, bytes: usize) {
        self.writes.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.writes.last_nanos.store(env.now().as_nanos(), Ordering::Relaxed);
    }

    fn written_bytes(&self) -> u64 {
        self.writes.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }
}

/// Holds one job to its pace, over all its threads.
pub(crate) struct JobPace {
    /// Nothing when it is not held.
    share: Option<Share>,
    /// Bytes users had written when the job began.
    begin_bytes: u64,
    work_bytes: u64,
    done_bytes: AtomicU64,
    progress: Arc<Progress>,
    /// When its last step could begin, once there was one.
    since_nanos: AtomicU64,
}

impl JobPace {
    /// A job that is not held.
    pub(crate) fn unheld() -> JobPace {
        JobPace {
            share: None,
            begin_bytes: 0,
            work_bytes: 0,
            done_bytes: AtomicU64::new(0),
            progress: Arc::default(),
            since_nanos: AtomicU64::new(0),
        }
    }

    /// A job that begins now.
    pub(super) fn new(jobs: &Jobs, progress: &Arc<Progress>, share: Share, work_bytes: u64) -> JobPace {
        progress.begun_bytes.fetch_add(work_bytes, Ordering::Relaxed);
        JobPace {
            share: Some(share),
            begin_bytes: jobs.written_bytes(),
            work_bytes,
            done_bytes: AtomicU64::new(0),
            progress: progress.clone(),
            since_nanos: AtomicU64::new(0),
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.share.is_some()
    }

    /// Tells of a step of the work and returns when the next may begin.
    pub(super) fn step(&self, env: &Env, jobs: &Jobs, bytes: u64) {
        if self.is_held() {
            self.note_done(bytes);
            self.note_time(env, bytes);
            self.wait(env, jobs, 0, || false);
            self.begin_step(env);
        }
    }

    /// So much of the work was done.
    pub(super) fn note_done(&self, bytes: u64) {
        self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.progress.done_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So much of it was done since [`JobPace::begin_step`].
    pub(super) fn note_time(&self, env: &Env, bytes: u64) {
        let since_nanos = self.since_nanos.load(Ordering::Relaxed);
        // Before the first step tables are opened and first pieces of all of them read, which says little about the rest.
        if since_nanos > 0 {
            self.progress.rate.note(bytes, env.now().as_nanos().saturating_sub(since_nanos));
        }
    }

    /// The next step begins now.
    pub(super) fn begin_step(&self, env: &Env) {
        self.since_nanos.store(env.now().as_nanos(), Ordering::Relaxed);
    }

    /// Waits until `next_bytes` more may be done, or what is left if that is less. As long as `is_log_written` nobody is taken to
    /// be quiet.
    pub(super) fn wait(&self, env: &Env, jobs: &Jobs, next_bytes: u64, is_log_written: impl Fn() -> bool) {
        let Some(share) = self.share else { return };
        let done_bytes = self.done_bytes.load(Ordering::Relaxed);
        let wanted_bytes = done_bytes.saturating_add(next_bytes.min(self.work_bytes.saturating_sub(done_bytes)));
        loop {
            let written = jobs.written_bytes().saturating_sub(self.begin_bytes);
            let now = env.now();
            let idle_nanos = now.as_nanos().saturating_sub(jobs.writes.last_nanos.load(Ordering::Relaxed));
            if share.allowed_bytes(written) >= wanted_bytes
                || !jobs.is_log_awaited(now)
                || (Duration::from_nanos(idle_nanos) >= QUIET && !is_log_written())
                || jobs.waiting.load(Ordering::Relaxed) > 0
                || jobs.has_ended()
            {
                break;
            }
            env.sleep(WAIT);
        }
    }

    /// How fast such jobs are while they are not held, once that is known.
    pub(super) fn bytes_per_second(&self) -> Option<u64> {
        self.progress.rate.bytes_per_second()
    }

    pub(super) fn burst_costs(&self) -> &BurstCosts {
        &self.progress.burst_costs
    }
}

/// What the job did stands in the tree now, or was given up.
impl Drop for JobPace {
    fn drop(&mut self) {
        self.progress.begun_bytes.fetch_sub(self.work_bytes, Ordering::Relaxed);
        self.progress.done_bytes.fetch_sub(*self.done_bytes.get_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_allowed_in_proportion_to_what_was_written_and_all_of_it_when_late() {
        let share = Share::new(1000, 400);
        let allowed: Vec<u64> = [0, 1, 50, 99, 100, 1 << 60].iter().map(|&bytes| share.allowed_bytes(bytes)).collect();
        assert_eq!(allowed, [0, 10, 500, 990, u64::MAX, u64::MAX]);
        assert_eq!(Share::new(1000, 3).allowed_bytes(0), u64::MAX, "late from the start");
        assert!(Share::new(u64::MAX, u64::MAX).allowed_bytes(u64::MAX / 5) < u64::MAX);
    }

    #[test]
    fn headroom_is_what_level_0_may_still_grow() {
        assert_eq!(compaction_headroom_bytes(4, 8, 100), 400);
        assert_eq!(compaction_headroom_bytes(9, 8, 100), 0);
        assert_eq!(compaction_headroom_bytes(0, usize::MAX, u64::MAX), u64::MAX);
    }
}
