//! Holds background writes to a rate.

use std::time::Duration;
use varve_env::{Condvar, Env, Instant, Mutex};

/// Lets bytes through at a rate, over all threads that share it.
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

    /// Returns when `bytes` more may be written, or when the limit ended.
    pub(super) fn admit(&self, bytes: u64) {
        if !self.is_limited() {
            return;
        }
        let mut state = self.state.lock();
        let start = self.env.now().max(state.next_free);
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        state.next_free = start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        while !state.has_ended && self.env.now() < start {
            self.ended.wait_until(&mut state, start);
        }
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

    #[test]
    fn a_limited_stream_takes_its_time_and_an_unlimited_one_none() {
        let env = Env::sim(1);
        let limited = RateLimiter::new(&env, 1 << 20);
        for _ in 0..5 {
            limited.admit(1 << 20);
        }
        assert_eq!(env.now().as_nanos(), 4_000_000_000);
        let unlimited = RateLimiter::new(&env, 0);
        unlimited.admit(u64::MAX);
        assert_eq!(env.now().as_nanos(), 4_000_000_000);
    }

    #[test]
    fn the_end_of_the_limit_ends_all_waits() {
        let env = Env::sim(1);
        let limiter = Arc::new(RateLimiter::new(&env, 1));
        limiter.admit(u64::MAX);
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let limiter = limiter.clone();
                env.spawn("waits", move || limiter.admit(1 << 40))
            })
            .collect();
        env.sleep(Duration::from_secs(1));
        limiter.end();
        waiting.into_iter().for_each(|thread| thread.join().unwrap_or_else(|panic| panic.resume()));
        limiter.admit(u64::MAX);
        assert_eq!(env.now().as_nanos(), 1_000_000_000);
    }
}
