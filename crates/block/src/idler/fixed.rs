//! Fixed idle periods: AT-IC.

use super::controller::{Arrival, Controller, Verdict};
use varve_media::ZoneDescription;

/// Artificially triggered idle cleaning (Zhang, section 4.3): requests are served for a time and then held back for another, again and
/// again from the first request on, whatever they are.
#[derive(Clone, Debug)]
pub struct FixedIdle {
    execution_nanos: u64,
    idle_nanos: u64,
    /// When the first request came.
    begin_nanos: Option<u64>,
}

impl FixedIdle {
    /// \<execution:idle\>.
    pub fn new(execution_nanos: u64, idle_nanos: u64) -> Self {
        FixedIdle { execution_nanos, idle_nanos, begin_nanos: None }
    }

    fn verdict(&mut self, now_nanos: u64) -> Verdict {
        let begin = *self.begin_nanos.get_or_insert(now_nanos);
        let round = self.execution_nanos.saturating_add(self.idle_nanos).max(1);
        let into = now_nanos.saturating_sub(begin) % round;
        match into < self.execution_nanos || self.execution_nanos == 0 {
            true => Verdict::Go,
            false => Verdict::Wait(now_nanos + (round - into)),
        }
    }
}

impl Controller for FixedIdle {
    fn name(&self) -> String {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        format!("AT-IC <{}:{}>", seconds(self.execution_nanos), seconds(self.idle_nanos))
    }

    fn arrived(&mut self, arrival: &Arrival) -> Verdict {
        self.verdict(arrival.nanos)
    }

    fn waited(&mut self, now_nanos: u64, _arrival: &Arrival) -> Verdict {
        self.verdict(now_nanos)
    }

    fn let_go(&mut self, _now_nanos: u64, _arrival: &Arrival) {}

    fn completed(&mut self, _now_nanos: u64, _begun_nanos: u64, _arrival: &Arrival) {}

    fn absorbed(&mut self, _now_nanos: u64, _arrival: &Arrival) {}

    fn wants_report(&self, _now_nanos: u64) -> bool {
        false
    }

    fn reported(&mut self, _now_nanos: u64, _zones: Option<&[ZoneDescription]>) {}
}
