//! Holds background writes to a rate.

use std::time::Duration;
use varve_env::{Condvar, Env, Instant, Mutex, MutexGuard};

/// Charges per second of a job that alone uses all of the rate, as far as [`STEP_BYTES_MIN`] and [`STEP_BYTES_MAX`] allow. RocksDB
/// refills its limiter as often.
const STEPS_PER_SECOND: u64 = 10;

/// Least step: a block of the default size.
const STEP_BYTES_MIN: u64 = 4 << 10;

/// Largest step.
const STEP_BYTES_MAX: u64 = 1 << 20;

/// Bytes that one job was charged for.
#[derive(Debug, Default)]
pub(crate) struct ChargedBytes(u64);

/// Lets bytes through at a rate, over all threads that share it: until any moment each job is at most two steps, a block and what
/// is behind the data of a table ahead of it: one step that was not charged yet, and one that was and is not through.
pub(super) struct RateLimiter {
    env: Env,
    bytes_per_second: u64,
    state: Mutex<RateState>,
    ended: Condvar,
}

struct RateState {
    next_free: Instant,
    has_ended: bool,
}

impl RateLimiter {
    /// A rate of 0 is no limit.
    pub(super) fn new(env: &Env, bytes_per_second: u64) -> Self {
        RateLimiter {
            env: env.clone(),
            bytes_per_second,
            state: Mutex::new(env, "rate limit", RateState { next_free: env.now(), has_ended: false }),
            ended: Condvar::new(env, "rate limit"),
        }
    }

    /// Somebody may have to wait.
    pub(super) fn is_limited(&self) -> bool {
        self.bytes_per_second > 0
    }

    /// Returns when the bytes of all jobs so far are through, or when the limit ended. A job waits so before it writes.
    pub(super) fn begin(&self) {
        if self.is_limited() {
            let state = self.state.lock();
            let turn = state.next_free;
            self.wait_until(state, turn);
        }
    }

    /// Charges the bytes that a job wrote since it was charged last, if they are a step or more, and returns when those before them
    /// are through, or when the limit ended. `before_wait` is called first then. True if they were charged.
    pub(super) fn admit(&self, charged: &mut ChargedBytes, job_bytes: u64, before_wait: impl FnOnce()) -> bool {
        let bytes = job_bytes.saturating_sub(charged.0);
        if !self.is_limited() || bytes < self.step_bytes() {
            return false;
        }
        before_wait();
        charged.0 = job_bytes;
        let mut state = self.state.lock();
        let turn = self.charge(&mut state, bytes);
        self.wait_until(state, turn);
        true
    }

    /// Charges what a job wrote since it was charged last; it ended, and the next one waits for it.
    pub(super) fn settle(&self, charged: ChargedBytes, job_bytes: u64) {
        if self.is_limited() {
            self.charge(&mut self.state.lock(), job_bytes.saturating_sub(charged.0));
        }
    }

    fn wait_until(&self, mut state: MutexGuard<'_, RateState>, turn: Instant) {
        while !state.has_ended && self.env.now() < turn {
            self.ended.wait_until(&mut state, turn);
        }
    }

    /// Bytes charged at once, at least, but for the last ones of a job.
    fn step_bytes(&self) -> u64 {
        (self.bytes_per_second / STEPS_PER_SECOND).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX)
    }

    /// Puts `bytes` behind those of all jobs so far; returns when these are through.
    fn charge(&self, state: &mut RateState, bytes: u64) -> Instant {
        let turn = self.env.now().max(state.next_free);
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        state.next_free = turn + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        turn
    }

    /// Ends all waits, those to come as well.
    pub(super) fn end(&self) {
        self.state.lock().has_ended = true;
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use varve_env::Random;

    fn admit(limiter: &RateLimiter, charged: &mut ChargedBytes, job_bytes: u64) {
        limiter.admit(charged, job_bytes, || ());
    }

    #[test]
    fn a_limited_stream_takes_its_time_and_an_unlimited_one_none() {
        let env = Env::sim(1);
        let limited = RateLimiter::new(&env, 1 << 20);
        let mut charged = ChargedBytes::default();
        for step in 1..=5 {
            admit(&limited, &mut charged, step << 20);
        }
        assert_eq!(env.now().as_nanos(), 4_000_000_000);
        limited.settle(charged, 5 << 20);
        limited.begin();
        assert_eq!(env.now().as_nanos(), 5_000_000_000);
        let unlimited = RateLimiter::new(&env, 0);
        unlimited.begin();
        admit(&unlimited, &mut ChargedBytes::default(), u64::MAX);
        unlimited.settle(ChargedBytes::default(), u64::MAX);
        unlimited.begin();
        assert_eq!(env.now().as_nanos(), 5_000_000_000);
    }

    /// Jobs of any size, several at once.
    #[test]
    fn every_byte_of_every_job_counts() {
        const CHUNK_BYTES_MAX: u64 = 1 << 14;
        for seed in 0..30 {
            let env = Env::sim(seed);
            let rate = [100, 1000, 70_000, 3 << 20, 50 << 20][seed as usize % 5];
            let limiter = Arc::new(RateLimiter::new(&env, rate));
            let threads = 1 + seed % 4;
            let jobs: Vec<_> = (0..threads)
                .map(|job| {
                    let limiter = limiter.clone();
                    let mut random = Random::named(seed, &format!("job {job}"));
                    env.spawn("job", move || {
                        let mut sum = 0;
                        for _ in 0..40 {
                            let (mut charged, mut written) = (ChargedBytes::default(), 0);
                            limiter.begin();
                            for _ in 0..random.below(8) {
                                let largest = [1, 300, 1 << 14][random.index(3)];
                                written += random.below(largest);
                                admit(&limiter, &mut charged, written);
                            }
                            limiter.settle(charged, written);
                            sum += written;
                        }
                        sum
                    })
                })
                .collect();
            let bytes: u64 = jobs.into_iter().map(|job| job.join().unwrap_or_else(|panic| panic.resume())).sum();
            let nanos = u128::from(env.now().as_nanos());
            let ahead_bytes = threads * (2 * limiter.step_bytes() + CHUNK_BYTES_MAX);
            let expected = |bytes: u64| u128::from(bytes) * 1_000_000_000 / u128::from(rate);
            assert!(nanos >= expected(bytes.saturating_sub(ahead_bytes)), "seed {seed}: {bytes} bytes in {nanos} ns");
            assert!(nanos <= expected(bytes), "seed {seed}: {bytes} bytes took {nanos} ns");
            limiter.begin();
            let nanos = u128::from(env.now().as_nanos());
            assert!(nanos + 100_000 >= expected(bytes), "seed {seed}: {bytes} bytes are through after {nanos} ns");
        }
    }

    #[test]
    fn the_end_of_the_limit_ends_all_waits() {
        let env = Env::sim(1);
        let limiter = Arc::new(RateLimiter::new(&env, 1));
        admit(&limiter, &mut ChargedBytes::default(), u64::MAX);
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let limiter = limiter.clone();
                env.spawn("waits", move || admit(&limiter, &mut ChargedBytes::default(), 1 << 40))
            })
            .collect();
        env.sleep(Duration::from_secs(1));
        limiter.end();
        waiting.into_iter().for_each(|thread| thread.join().unwrap_or_else(|panic| panic.resume()));
        admit(&limiter, &mut ChargedBytes::default(), u64::MAX);
        assert_eq!(env.now().as_nanos(), 1_000_000_000);
    }
}
