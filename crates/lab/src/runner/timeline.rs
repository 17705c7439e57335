//! What happened when: operations, bytes and p99 by interval.

use super::latency::CoarseHistogram;
use serde::{Deserialize, Serialize};

/// Intervals a timeline has at most; when more are needed, each two become one.
const INTERVALS_MAX: usize = 512;

/// Interval a timeline begins with.
const FIRST_INTERVAL_NANOS: u64 = 1_000_000;

const SECOND_NANOS: u64 = 1_000_000_000;

/// Whole seconds whose operations are counted: four days and 4 MB at most.
const SECONDS_MAX: u64 = 1 << 19;

#[derive(Clone, Debug)]
struct Interval {
    operations: u64,
    bytes: u64,
    latencies: CoarseHistogram,
}

/// A timeline that doubles its interval when it grows long, so that its size is bounded and nobody
/// has to guess how long a run will take. Intervals are powers of two of a millisecond, so timelines
/// of several threads fit each other.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    interval_nanos: u64,
    intervals: Vec<Interval>,
    /// Operations of each second, of the first [`SECONDS_MAX`].
    seconds: Vec<u64>,
}

impl Timeline {
    pub(crate) fn new() -> Timeline {
        Timeline { interval_nanos: FIRST_INTERVAL_NANOS, intervals: Vec::new(), seconds: Vec::new() }
    }

    /// Counts what ended `since_start_nanos` after the start.
    pub(crate) fn record(&mut self, since_start_nanos: u64, operations: u64, bytes: u64, latency_nanos: Option<u64>) {
        while since_start_nanos / self.interval_nanos >= INTERVALS_MAX as u64 {
            self.double();
        }
        self.count_second(since_start_nanos / SECOND_NANOS, operations);
        let interval = self.interval(since_start_nanos);
        interval.operations += operations;
        interval.bytes += bytes;
        if let Some(nanos) = latency_nanos {
            interval.latencies.record(nanos);
        }
    }

    fn count_second(&mut self, second: u64, operations: u64) {
        if second < SECONDS_MAX {
            let second = second as usize;
            self.seconds.resize(self.seconds.len().max(second + 1), 0);
            self.seconds[second] += operations;
        }
    }

    /// Fewest operations that ended in one of the whole seconds of a run of `elapsed_nanos`; `None` when it had none, or
    /// more than are counted.
    pub(crate) fn slowest_second(&self, elapsed_nanos: u64) -> Option<u64> {
        let whole = elapsed_nanos / SECOND_NANOS;
        // Seconds behind the last operation are not there.
        let of = |second: u64| self.seconds.get(second as usize).copied().unwrap_or(0);
        (whole <= SECONDS_MAX).then(|| (0..whole).map(of).min()).flatten()
    }

    fn interval(&mut self, at_nanos: u64) -> &mut Interval {
        let index = (at_nanos / self.interval_nanos) as usize;
        while self.intervals.len() <= index {
            self.intervals.push(Interval { operations: 0, bytes: 0, latencies: CoarseHistogram::new() });
        }
        &mut self.intervals[index]
    }

    fn double(&mut self) {
        self.interval_nanos *= 2;
        let mut merged: Vec<Interval> = Vec::with_capacity(INTERVALS_MAX);
        for (index, interval) in self.intervals.drain(..).enumerate() {
            match merged.last_mut() {
                Some(last) if index % 2 == 1 => {
                    last.operations += interval.operations;
                    last.bytes += interval.bytes;
                    last.latencies.merge(&interval.latencies);
                }
                _ => merged.push(interval),
            }
        }
        self.intervals = merged;
    }

    pub(crate) fn merge(&mut self, mut other: Timeline) {
        while self.interval_nanos < other.interval_nanos {
            self.double();
        }
        while other.interval_nanos < self.interval_nanos {
            other.double();
        }
        for (second, operations) in other.seconds.iter().enumerate() {
            self.count_second(second as u64, *operations);
        }
        for (index, theirs) in other.intervals.iter().enumerate() {
            let ours = self.interval(index as u64 * other.interval_nanos);
            ours.operations += theirs.operations;
            ours.bytes += theirs.bytes;
            ours.latencies.merge(&theirs.latencies);
        }
    }

    /// The points, coarse enough that there are at most `points_max` of them. The last interval is
    /// taken as long as it really was, `elapsed_nanos` being the end of the run.
    pub(crate) fn points(mut self, points_max: usize, elapsed_nanos: u64) -> Vec<TimelinePoint> {
        while self.intervals.len() > points_max.max(1) {
            self.double();
        }
        let width = self.interval_nanos;
        let point = |(index, interval): (usize, &Interval)| {
            let start = index as u64 * width;
            let length = elapsed_nanos.saturating_sub(start).clamp(1, width) as f64 / 1e9;
            TimelinePoint {
                start_seconds: start as f64 / 1e9,
                operations_per_second: interval.operations as f64 / length,
                bytes_per_second: interval.bytes as f64 / length,
                p99_nanos: interval.latencies.percentile(99),
            }
        };
        self.intervals.iter().enumerate().map(point).collect()
    }
}

/// One interval of a timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimelinePoint {
    /// Beginning of the interval, in seconds since the start of the phase.
    pub start_seconds: f64,
    /// Operations that ended in it, per second.
    pub operations_per_second: f64,
    /// User bytes they moved, per second.
    pub bytes_per_second: f64,
    /// 99th percentile of their latencies, to 1/16; absent when none was timed.
    pub p99_nanos: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_double_and_keep_their_sums() {
        let mut timeline = Timeline::new();
        for second in 0..100u64 {
            timeline.record(second * 1_000_000_000, 1, 10, Some(500));
        }
        let points = timeline.points(1000, 100_000_000_000);
        assert!(points.len() <= INTERVALS_MAX);
        let width = points[1].start_seconds;
        let operations: f64 = points.iter().map(|point| point.operations_per_second * width).sum();
        assert!((operations - 100.0).abs() < 1.0, "{operations}");
    }

    #[test]
    fn timelines_of_different_lengths_merge() {
        let (mut a, mut b) = (Timeline::new(), Timeline::new());
        a.record(0, 1, 0, None);
        b.record(50_000_000_000, 2, 0, Some(7));
        a.merge(b.clone());
        b.merge(a.clone());
        let total = |timeline: Timeline| timeline.intervals.iter().map(|interval| interval.operations).sum::<u64>();
        assert_eq!(total(a.clone()), 3);
        assert_eq!(total(b), 5);
        assert_eq!(a.points(10, 51_000_000_000).last().unwrap().p99_nanos, Some(7));
    }

    #[test]
    fn the_slowest_second_is_a_whole_one() {
        let mut timeline = Timeline::new();
        for millis in (0..1_000).step_by(100).chain(2_000..2_003).chain([3_400]) {
            timeline.record(millis * 1_000_000, 1, 0, None);
        }
        assert_eq!(timeline.slowest_second(3_500_000_000), Some(0));
        assert_eq!(timeline.slowest_second(1_500_000_000), Some(10));
        assert_eq!(timeline.slowest_second(999_999_999), None);
        let mut other = Timeline::new();
        other.record(1_000_000_000, 2, 0, None);
        timeline.merge(other);
        assert_eq!(timeline.slowest_second(3_500_000_000), Some(2));
        timeline.record((SECONDS_MAX + 7) * SECOND_NANOS, 1, 0, None);
        assert_eq!(timeline.slowest_second((SECONDS_MAX + 8) * SECOND_NANOS), None);
    }

    #[test]
    fn last_interval_is_as_long_as_it_was() {
        let mut timeline = Timeline::new();
        timeline.record(500_000, 1, 0, None);
        let points = timeline.points(10, 500_000);
        assert_eq!(points[0].operations_per_second, 2000.0);
    }
}
