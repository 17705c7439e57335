//! Idler, as published.

use super::controller::{Arrival, Controller, Verdict, Work};
use super::ghost::GhostCache;
use super::reports::Reports;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use varve_media::{IoCause, ZoneDescription};

/// The numbers of Idler (Zhang, sections 4.4 and 4.5).
#[derive(Clone, Debug, PartialEq)]
pub struct IdlerParameters {
    /// Below it nothing is held back.
    pub utilization_low: f64,
    /// Above it idle periods are long.
    pub utilization_high: f64,
    /// Shortest idle period.
    pub idle_min_nanos: u64,
    /// Longest idle period.
    pub idle_max_nanos: u64,
    /// By how much a period is made longer or shorter.
    pub idle_step_nanos: u64,
    /// Requests that are looked at before a period is decided on.
    pub samples: usize,
    /// Time from one report of zones to the next.
    pub report_nanos: u64,
}

impl Default for IdlerParameters {
    /// 0.1, 0.8; 0.3 s, 2 s, 0.1 s; 10 requests; 10 minutes.
    fn default() -> Self {
        IdlerParameters {
            utilization_low: 0.1,
            utilization_high: 0.8,
            idle_min_nanos: 300_000_000,
            idle_max_nanos: 2_000_000_000,
            idle_step_nanos: 100_000_000,
            samples: 10,
            report_nanos: 600_000_000_000,
        }
    }
}

impl IdlerParameters {
    /// Those of a similar drive, all of whose times are divided by `divisor`.
    pub fn scaled(&self, divisor: u64) -> Self {
        let time = |nanos: u64| nanos / divisor.max(1);
        IdlerParameters {
            idle_min_nanos: time(self.idle_min_nanos),
            idle_max_nanos: time(self.idle_max_nanos),
            idle_step_nanos: time(self.idle_step_nanos),
            report_nanos: time(self.report_nanos),
            ..self.clone()
        }
    }
}

/// Idle periods by how full the cache is taken to be and what the workload is like (Zhang, section 4.4).
///
/// An execution period lasts until all that was held back is done and then `samples` new requests are; of these are the mean interval
/// (`T_r`), the mean latency (`T_lat`) and how fast they fill the cache (`V_m`). Equation 4.2 and its sentence contradict each other: here a
/// period becomes shorter when the cache was cleaned faster than it fills (`V_m` < `V_c`), longer when slower, and stays within its
/// bounds.
pub struct Idler {
    parameters: IdlerParameters,
    ghost: GhostCache,
    /// Until when requests are held back.
    idle_until_nanos: u64,
    held: HeldRequests,
    sample: Sample,
    /// Length of the last period by equation 4.2.
    length_nanos: u64,
    /// `V_c`, in shares of the cache a second.
    cleaning_rate: f64,
    /// Where they fail nothing is held back.
    reports: Reports,
}

/// Requests that were held back and have not completed.
///
/// Each is known by what it is, not by when it went: one whose deadline has passed, or that is let go at once, goes at the moment at which it
/// came, and counts as held all the same until it completes.
#[derive(Clone, Debug, Default)]
struct HeldRequests {
    /// Count by time of arrival, offset, length and work: equal requests may be held at once.
    counts: BTreeMap<(u64, u64, u64, Work), u32>,
}

impl HeldRequests {
    fn key(arrival: &Arrival) -> (u64, u64, u64, Work) {
        (arrival.nanos, arrival.offset_bytes, arrival.length_bytes, arrival.work)
    }

    fn insert(&mut self, arrival: &Arrival) {
        *self.counts.entry(Self::key(arrival)).or_default() += 1;
    }

    /// Takes out a request that completed; false of one that was not held.
    fn remove(&mut self, arrival: &Arrival) -> bool {
        let Entry::Occupied(mut found) = self.counts.entry(Self::key(arrival)) else { return false };
        *found.get_mut() -= 1;
        if *found.get() == 0 {
            found.remove();
        }
        true
    }

    fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

/// The new requests of an execution period.
#[derive(Clone, Debug, Default)]
struct Sample {
    arrived: usize,
    completed: usize,
    first_nanos: u64,
    last_nanos: u64,
    latency_nanos: u64,
    /// Shares of the cache.
    consumed: f64,
}

impl Sample {
    fn arrive(&mut self, now_nanos: u64, consumed: f64) {
        if self.arrived == 0 {
            self.first_nanos = now_nanos;
        }
        self.last_nanos = now_nanos;
        self.arrived += 1;
        self.consumed += consumed;
    }
}

/// Equations 4.1 and 4.2: how long to hold requests back, and the length to go on from.
fn decide(
    parameters: &IdlerParameters,
    utilization: f64,
    is_intense: bool,
    rates: (f64, f64),
    length_nanos: u64,
) -> (u64, u64) {
    let (consuming, cleaning) = rates;
    let bounds = |nanos: u64| nanos.clamp(parameters.idle_min_nanos, parameters.idle_max_nanos);
    if utilization < parameters.utilization_low {
        return (0, length_nanos);
    }
    if utilization < parameters.utilization_high {
        return (if is_intense { 0 } else { parameters.idle_min_nanos }, length_nanos);
    }
    let changed = match is_intense {
        false => parameters.idle_max_nanos,
        true if consuming < cleaning => bounds(length_nanos.saturating_sub(parameters.idle_step_nanos)),
        true if consuming > cleaning => bounds(length_nanos.saturating_add(parameters.idle_step_nanos)),
        true => bounds(length_nanos),
    };
    (changed, changed)
}

impl Idler {
    /// Over a disk of which the ghost is, before it is looked at for the first time.
    pub fn new(parameters: IdlerParameters, ghost: GhostCache) -> Self {
        Idler {
            length_nanos: parameters.idle_min_nanos,
            reports: Reports::each(parameters.report_nanos),
            parameters,
            ghost,
            idle_until_nanos: 0,
            held: HeldRequests::default(),
            sample: Sample::default(),
            cleaning_rate: 0.0,
        }
    }

    /// Follows a request that goes to the device.
    fn goes(&mut self, now_nanos: u64, arrival: &Arrival, is_new: bool) {
        let consumed = self.ghost.follow(arrival);
        if is_new && self.held.is_empty() && self.sample.arrived < self.parameters.samples {
            self.sample.arrive(now_nanos, consumed);
        }
    }

    /// One of the sample is done.
    fn complete(&mut self, now_nanos: u64, arrival: &Arrival) {
        self.sample.completed += 1;
        self.sample.latency_nanos += now_nanos.saturating_sub(arrival.nanos);
        let samples = self.parameters.samples.max(1);
        if self.sample.completed >= samples && now_nanos >= self.idle_until_nanos && !self.reports.has_failed() {
            self.end_execution(now_nanos);
        }
    }

    fn end_execution(&mut self, now_nanos: u64) {
        let sample = std::mem::take(&mut self.sample);
        let intervals = sample.arrived.saturating_sub(1).max(1) as u64;
        let interval_nanos = (sample.last_nanos - sample.first_nanos) / intervals;
        let latency_nanos = sample.latency_nanos / sample.completed.max(1) as u64;
        let seconds = (sample.last_nanos - sample.first_nanos).max(1) as f64 / 1e9;
        let rates = (sample.consumed / seconds, self.cleaning_rate);
        let is_intense = interval_nanos <= latency_nanos;
        let utilization = self.ghost.utilization();
        let (idle_nanos, length_nanos) = decide(&self.parameters, utilization, is_intense, rates, self.length_nanos);
        self.length_nanos = length_nanos;
        if idle_nanos > 0 {
            self.idle_until_nanos = now_nanos + idle_nanos;
        }
    }
}

impl Controller for Idler {
    fn name(&self) -> String {
        "Idler".to_owned()
    }

    fn arrived(&mut self, arrival: &Arrival) -> Verdict {
        if arrival.nanos < self.idle_until_nanos && !self.reports.has_failed() {
            self.held.insert(arrival);
            return Verdict::Wait(self.idle_until_nanos);
        }
        // What leaves a buffer fills the cache, and says nothing of what is asked for.
        self.goes(arrival.nanos, arrival, arrival.cause != IoCause::Cleaning);
        Verdict::Go
    }

    fn waited(&mut self, now_nanos: u64, arrival: &Arrival) -> Verdict {
        self.goes(now_nanos, arrival, false);
        Verdict::Go
    }

    fn let_go(&mut self, now_nanos: u64, arrival: &Arrival) {
        self.goes(now_nanos, arrival, false);
    }

    fn completed(&mut self, now_nanos: u64, _begun_nanos: u64, arrival: &Arrival) {
        if self.held.remove(arrival) {
            return;
        }
        // One of the sample, or of those that came while others were held back.
        if arrival.cause != IoCause::Cleaning
            && self.held.is_empty()
            && arrival.nanos >= self.sample.first_nanos
            && self.sample.arrived > self.sample.completed
        {
            self.complete(now_nanos, arrival);
        }
    }

    fn absorbed(&mut self, now_nanos: u64, arrival: &Arrival) {
        let samples = self.parameters.samples;
        if now_nanos < self.idle_until_nanos || !self.held.is_empty() || self.sample.arrived >= samples {
            return;
        }
        let consumed = self.ghost.would_take(arrival.offset_bytes, arrival.length_bytes);
        self.sample.arrive(arrival.nanos.max(self.sample.last_nanos), consumed);
        self.complete(now_nanos, arrival);
    }

    fn wants_report(&self, now_nanos: u64) -> bool {
        now_nanos >= self.idle_until_nanos && self.reports.is_due(now_nanos)
    }

    fn reported(&mut self, now_nanos: u64, zones: Option<&[ZoneDescription]>) {
        if let Some(cleaned) = self.reports.take(now_nanos, zones, &mut self.ghost) {
            self.cleaning_rate = cleaned.given_back / (cleaned.since_nanos.max(1) as f64 / 1e9);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_follow_the_equations() {
        let parameters = IdlerParameters::default();
        let second = |seconds: f64| (seconds * 1e9) as u64;
        let idle = |utilization, is_intense, rates, length: f64| {
            decide(&parameters, utilization, is_intense, rates, second(length)).0 as f64 / 1e9
        };
        assert_eq!(idle(0.05, false, (0.0, 0.0), 1.0), 0.0);
        // 4.1
        assert_eq!(idle(0.5, true, (0.0, 0.0), 1.0), 0.0);
        assert_eq!(idle(0.5, false, (0.0, 0.0), 1.0), 0.3);
        // 4.2
        assert_eq!(idle(0.9, false, (0.0, 0.0), 1.0), 2.0);
        assert_eq!(idle(0.9, true, (1.0, 2.0), 1.0), 0.9);
        assert_eq!(idle(0.9, true, (2.0, 1.0), 1.0), 1.1);
        assert_eq!(idle(0.9, true, (1.0, 1.0), 1.0), 1.0);
        assert_eq!(idle(0.9, true, (1.0, 2.0), 0.3), 0.3);
        assert_eq!(idle(0.9, true, (2.0, 1.0), 2.0), 2.0);
    }
}
