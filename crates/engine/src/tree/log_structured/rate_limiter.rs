//! Holds background writes to a rate.

use parking_lot::Mutex;
use std::time::Duration;
use varve_env::{Env, Instant};

/// Lets bytes through at a rate, over all threads that share it.
pub(super) struct RateLimiter {
    env: Env,
    bytes_per_second: u64,
    next_free: Mutex<Instant>,
}

impl RateLimiter {
    /// A rate of 0 is no limit.
    pub(super) fn new(env: &Env, bytes_per_second: u64) -> Self {
        RateLimiter { env: env.clone(), bytes_per_second, next_free: Mutex::new(env.now()) }
    }

    /// Returns when `bytes` more may be written.
    pub(super) fn admit(&self, bytes: u64) {
        if self.bytes_per_second == 0 {
            return;
        }
        let start = {
            let mut next_free = self.next_free.lock();
            let start = self.env.now().max(*next_free);
            let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
            *next_free = start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            start
        };
        self.env.sleep_until(start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
