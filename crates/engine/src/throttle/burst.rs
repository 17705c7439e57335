//! Background work in few long interruptions instead of many short ones.
//!
//! Steps between writes ([`super::job_pace`]) keep each interruption short, and touch thousands of writes: whatever share of
//! writes is interrupted by a compaction counts in full in the percentile of that share. A *burst* has the medium to itself
//! instead: a job waits until its pace allows a whole one, keeps log writes off the medium ([`LogGate`]), moves tens of
//! mebibytes without a break, has the medium write down what it wrote, so that no log pays for it, and lets go. One write in
//! thousands then waits, as long as was asked for at most, and all others find the medium as if there were no jobs.
//!
//! Where nobody waits for the log there is nobody to keep waiting, and a job goes on without bursts until somebody does.
//!
//! How long a burst goes on is a pure function of what it did and of what steps took of late ([`goes_on`]). Measured is
//! kept per kind of job ([`BurstCosts`]), as flushes read nothing and compactions read far ahead.

use super::job_pace::{JobPace, Jobs};
use crate::log::{ExclusiveTurn, LogGate, Throughput};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use varve_env::{Env, Instant};

/// Bytes of input a burst moves at most.
const BURST_BYTES_MAX: u64 = 32 << 20;

/// Bytes of input it moves between two looks at the clock: seldom more than one request to the medium.
pub(super) const BURST_STEP_BYTES: u64 = 64 << 10;

/// Bytes whose time is told at once: single steps are next to nothing, or a request that many of them wait for.
const TIMED_BYTES: u64 = 2 << 20;

/// What the longest step of late counts in the next measurement, in parts.
const FADING_PARTS: u64 = 256;

/// What parts of bursts take, of late.
#[derive(Debug, Default)]
pub(super) struct BurstCosts {
    step_nanos: AtomicU64,
    write_back: Throughput,
}

/// The same at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Measured {
    /// The longest step.
    step_nanos: u64,
    /// How fast what a burst left in the medium's cache is written down, to the bytes it moved; unknown before the first one.
    write_back_bytes_per_second: Option<u64>,
}

impl Measured {
    fn write_back_nanos(&self, moved_bytes: u64) -> u64 {
        let Some(rate) = self.write_back_bytes_per_second else { return 0 };
        let nanos = u128::from(moved_bytes) * 1_000_000_000 / u128::from(rate.max(1));
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

impl BurstCosts {
    fn note_step(&self, nanos: u64) {
        let before = self.step_nanos.load(Ordering::Relaxed);
        self.step_nanos.store(nanos.max(before - before / FADING_PARTS), Ordering::Relaxed);
    }

    fn measured(&self) -> Measured {
        Measured {
            step_nanos: self.step_nanos.load(Ordering::Relaxed),
            write_back_bytes_per_second: self.write_back.bytes_per_second(),
        }
    }
}

/// Whether a burst that may take `stall_nanos` goes on with another step: it ends in time even if that one takes as long as the
/// longest did, and writing down what it moved as long as it did before. These count for no more than three quarters of the time, as
/// else next to nothing would be moved where less than they take was asked for.
fn goes_on(stall_nanos: u64, elapsed_nanos: u64, moved_bytes: u64, measured: &Measured) -> bool {
    let next_bytes = moved_bytes.saturating_add(BURST_STEP_BYTES);
    let rest_nanos = measured.step_nanos.saturating_add(measured.write_back_nanos(next_bytes));
    let rest_nanos = rest_nanos.min(stall_nanos / 4 * 3);
    next_bytes <= BURST_BYTES_MAX && elapsed_nanos.saturating_add(rest_nanos) <= stall_nanos
}

/// What a burst is expected to move, at the rate of late.
fn expected_bytes(stall_nanos: u64, bytes_per_second: Option<u64>) -> u64 {
    let bytes = u128::from(bytes_per_second.unwrap_or(u64::MAX)) * u128::from(stall_nanos) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX).clamp(BURST_STEP_BYTES, BURST_BYTES_MAX)
}

/// How long bursts may be, and what they pass. Thread-safe.
pub(super) struct Bursts {
    stall: Duration,
    gate: LogGate,
}

/// The burst of one thread of a job, if it has one.
#[derive(Default)]
pub(crate) struct Burst {
    turn: Option<ExclusiveTurn>,
    begin: Instant,
    step_begin: Instant,
    moved_bytes: u64,
    /// What of it the pace was not yet told how long it took.
    untimed_bytes: u64,
}

impl Burst {
    /// It has the medium to itself.
    pub(crate) fn is_held(&self) -> bool {
        self.turn.is_some()
    }

    /// Tells the pace how long what was moved took, once it is enough.
    fn note_time(&mut self, env: &Env, pace: &JobPace) {
        if self.untimed_bytes >= TIMED_BYTES {
            pace.note_time(env, std::mem::take(&mut self.untimed_bytes));
            pace.begin_step(env);
        }
    }

    /// Lets others have the medium.
    pub(super) fn end(&mut self) {
        self.turn = None;
    }
}

impl Bursts {
    /// Nothing with a gate that is none.
    pub(super) fn new(stall: Duration, gate: LogGate) -> Option<Bursts> {
        gate.is_there().then_some(Bursts { stall, gate })
    }

    /// How long a write waits at most.
    pub(super) fn stall(&self) -> Duration {
        self.stall
    }

    /// Ends all waits, those to come as well.
    pub(super) fn end(&self) {
        self.gate.open();
    }

    /// Tells of a step of a job and returns when the next may begin, in this burst or another one. Before a burst ends
    /// `write_back` has the medium write down what it wrote.
    ///
    /// Errors: those of `write_back`.
    pub(super) fn step<E>(
        &self,
        env: &Env,
        jobs: &Jobs,
        (pace, burst): (&JobPace, &mut Burst),
        bytes: u64,
        write_back: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        if !pace.is_held() {
            return Ok(());
        }
        pace.note_done(bytes);
        burst.untimed_bytes += bytes;
        let now = env.now();
        let costs = pace.burst_costs();
        if burst.turn.is_some() {
            costs.note_step((now - burst.step_begin).as_nanos() as u64);
            burst.step_begin = now;
            burst.moved_bytes += bytes;
            let elapsed_nanos = (now - burst.begin).as_nanos() as u64;
            if goes_on(self.stall_nanos(), elapsed_nanos, burst.moved_bytes, &costs.measured()) && !jobs.has_ended() {
                burst.note_time(env, pace);
                return Ok(());
            }
            write_back()?;
            pace.note_time(env, burst.untimed_bytes);
            costs.write_back.note(burst.moved_bytes, (env.now() - now).as_nanos() as u64);
            burst.end();
        } else if !jobs.is_log_awaited(now) {
            burst.note_time(env, pace);
            return Ok(());
        }
        self.begin(env, jobs, pace, burst);
        Ok(())
    }

    /// Returns when a burst of a job has begun, or need not be waited for: where nobody waits for the log there are none.
    pub(super) fn begin(&self, env: &Env, jobs: &Jobs, pace: &JobPace, burst: &mut Burst) {
        if !pace.is_held() {
            return;
        }
        let next_bytes = expected_bytes(self.stall_nanos(), pace.bytes_per_second());
        pace.wait(env, jobs, next_bytes, || self.gate.is_passed());
        if !jobs.is_log_awaited(env.now()) {
            *burst = Burst::default();
            pace.begin_step(env);
            return;
        }
        if let Some(turn) = self.gate.begin_burst() {
            pace.begin_step(env);
            let begin = env.now();
            *burst = Burst { turn: Some(turn), begin, step_begin: begin, moved_bytes: 0, untimed_bytes: 0 };
        }
    }

    /// Ends the burst of a job, if it has one, before its next step.
    pub(super) fn pause(&self, env: &Env, pace: &JobPace, burst: &mut Burst) {
        if burst.is_held() || burst.untimed_bytes > 0 {
            pace.note_time(env, std::mem::take(&mut burst.untimed_bytes));
        }
        burst.end();
    }

    fn stall_nanos(&self) -> u64 {
        u64::try_from(self.stall.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLIS: u64 = 1_000_000;

    fn measured(step_millis: u64, write_back_bytes_per_second: u64) -> Measured {
        Measured {
            step_nanos: step_millis * MILLIS,
            write_back_bytes_per_second: Some(write_back_bytes_per_second).filter(|&rate| rate > 0),
        }
    }

    #[test]
    fn a_burst_ends_before_a_step_that_would_not_fit() {
        let goes_on = |elapsed: u64, moved: u64, measured: &Measured| {
            goes_on(100 * MILLIS, elapsed * MILLIS, moved - BURST_STEP_BYTES, measured)
        };
        assert!(goes_on(100, 1 << 20, &measured(0, 0)) && !goes_on(101, 1 << 20, &measured(0, 0)));
        assert!(goes_on(80, 1 << 20, &measured(20, 0)) && !goes_on(81, 1 << 20, &measured(20, 0)));
        // A mebibyte is written down in 10 ms.
        assert!(goes_on(70, 1 << 20, &measured(20, 100 << 20)) && !goes_on(71, 1 << 20, &measured(20, 100 << 20)));
        assert!(goes_on(60, 2 << 20, &measured(20, 100 << 20)) && !goes_on(61, 2 << 20, &measured(20, 100 << 20)));
        // A step that is longer than all of it does not keep the job from moving.
        assert!(goes_on(25, 1 << 20, &measured(900, 0)) && !goes_on(26, 1 << 20, &measured(900, 0)));
        assert!(goes_on(25, 1 << 20, &measured(0, 100)) && !goes_on(26, 1 << 20, &measured(0, 100)));
        assert!(!super::goes_on(0, 1, 0, &Measured::default()));
        assert!(!super::goes_on(u64::MAX, 1, u64::MAX, &measured(u64::MAX / MILLIS, 1)));
    }

    #[test]
    fn a_burst_ends_when_it_moved_enough() {
        let goes_on = |moved_bytes: u64| goes_on(u64::MAX, 0, moved_bytes, &Measured::default());
        assert!(goes_on(BURST_BYTES_MAX - BURST_STEP_BYTES) && !goes_on(BURST_BYTES_MAX - BURST_STEP_BYTES + 1));
    }

    /// Whatever steps take, as long as they take no longer than the longest before; and if what has to fit is not more than counts.
    #[test]
    fn no_step_overruns_what_was_asked_for() {
        let mut random = varve_env::Random::seeded(5);
        let mut fitting = 0;
        for _ in 0..1000 {
            let stall = (1 + random.below(400)) * MILLIS;
            let rate = (1 + random.below(300)) << 20;
            let longest = Measured { step_nanos: random.below(stall / 4), write_back_bytes_per_second: Some(rate) };
            let (mut elapsed, mut moved) = (0, 0);
            while goes_on(stall, elapsed, moved, &longest) {
                elapsed += random.below(longest.step_nanos + 1);
                moved += BURST_STEP_BYTES;
            }
            let write_back = longest.write_back_nanos(moved);
            if longest.step_nanos + write_back <= stall / 4 * 3 {
                fitting += 1;
                assert!(elapsed + write_back <= stall, "{elapsed} and {write_back} of {stall}, {longest:?}");
            }
        }
        assert!(fitting > 300, "{fitting}");
    }

    #[test]
    fn the_longest_step_of_late_fades() {
        let costs = BurstCosts::default();
        costs.note_step(1 << 30);
        assert_eq!(costs.measured(), Measured { step_nanos: 1 << 30, write_back_bytes_per_second: None });
        for _ in 0..FADING_PARTS {
            costs.note_step(1000);
        }
        let measured = costs.measured();
        assert!(measured.step_nanos > (1 << 30) / 3 && measured.step_nanos < (1 << 30) / 2, "{measured:?}");
    }

    #[test]
    fn a_burst_is_expected_to_be_as_long_as_may_be() {
        assert_eq!(expected_bytes(100 * MILLIS, Some(100 << 20)), 10 << 20);
        assert_eq!(expected_bytes(100 * MILLIS, Some(100)), BURST_STEP_BYTES);
        assert_eq!(expected_bytes(900 * MILLIS, Some(100 << 20)), BURST_BYTES_MAX);
        assert_eq!(expected_bytes(100 * MILLIS, None), BURST_BYTES_MAX);
    }
}
