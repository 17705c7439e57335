//! How a trace is replayed: when its requests are made, by whom, and how fast.

use super::engine::ReplayError;
use super::partition::Partition;

/// When requests are made. In an open loop none waits for another; else none is made before the one before it of the same thread is
/// done, and only requests of one thread depend on each other (Zhang, section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// When it came in the trace, whatever is outstanding. A partition says nothing here.
    OpenLoop {
        /// More requests than this outstanding at once are an error. Each takes a thread, which in a simulation is a stack of 2 MiB of
        /// addresses and some KiB of memory, and the bytes it reads.
        in_flight_max: usize,
    },
    /// When it came in the trace, or as soon as its thread is free: who was late catches up.
    Timestamps {
        /// How many.
        threads: usize,
    },
    /// As long after the one before it of its thread as in the trace, or as soon as its thread is free: who was late stays late.
    Intervals {
        /// How many.
        threads: usize,
    },
    /// So long after the one before it of its thread was done: as hosts that think between requests.
    Pauses {
        /// How many.
        threads: usize,
    },
    /// By one submitter: when fewer than `in_flight_max` requests are outstanding and the interval since the request before has passed
    /// after that. Nothing catches up. A controller holds a request inside its submission. A partition says nothing here.
    Submitter {
        /// Most requests outstanding: the threads of Zhang, section 4.3.2.
        in_flight_max: usize,
    },
}

/// How much faster than it was recorded a trace is replayed: what its times, those between requests too, are divided by.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Speed(f64);

impl Speed {
    /// As it was recorded.
    pub const RECORDED: Speed = Speed(1.0);

    /// Times are divided by `factor`: above 1 is faster.
    ///
    /// # Errors
    /// [`ReplayError::Speed`]: a factor that is not finite, or not above 0.
    pub fn new(factor: f64) -> Result<Speed, ReplayError> {
        match factor.is_finite() && factor > 0.0 {
            true => Ok(Speed(factor)),
            false => Err(ReplayError::Speed { factor }),
        }
    }

    /// When that is which is `nanos` in the trace, without what is less than a nanosecond; `u64::MAX` where it would be more. Never
    /// earlier for what is later.
    pub fn of_nanos(self, nanos: u64) -> u64 {
        // A `f64` does not hold all of them.
        if self == Speed::RECORDED { nanos } else { (nanos as f64 / self.0) as u64 }
    }
}

impl Default for Speed {
    fn default() -> Speed {
        Speed::RECORDED
    }
}

/// How a trace is replayed. Made of a [`Pace`], requests are of threads in turn and as fast as they were recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayOptions {
    /// When requests are made.
    pub pace: Pace,
    /// Whose they are.
    pub partition: Partition,
    /// How fast.
    pub speed: Speed,
    /// Writes are durable when they end (FUA), as those of a program that opens the device with `O_SYNC`.
    pub writes_durably: bool,
}

impl From<Pace> for ReplayOptions {
    fn from(pace: Pace) -> ReplayOptions {
        ReplayOptions { pace, partition: Partition::default(), speed: Speed::default(), writes_durably: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_finite_and_above_zero() {
        for factor in [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = Speed::new(factor).unwrap_err();
            assert!(matches!(error, ReplayError::Speed { .. }) && error.to_string().contains(&factor.to_string()));
        }
        for factor in [f64::MIN_POSITIVE, 0.5, 1e9] {
            assert!(Speed::new(factor).is_ok(), "{factor}");
        }
    }

    #[test]
    fn times_are_divided() {
        let of = |factor: f64, nanos: u64| Speed::new(factor).unwrap().of_nanos(nanos);
        assert_eq!(of(1.0, u64::MAX - 1), u64::MAX - 1);
        assert_eq!(of(4.0, 1_000_000_001), 250_000_000);
        assert_eq!(of(0.5, 1_000_000_001), 2_000_000_002);
        assert_eq!(of(f64::MIN_POSITIVE, 1), u64::MAX);
        assert_eq!(of(f64::MAX, u64::MAX), 0);
        let times: Vec<u64> = (0..1000).map(|number| of(3.7, number * 5)).collect();
        assert!(times.is_sorted());
    }
}
