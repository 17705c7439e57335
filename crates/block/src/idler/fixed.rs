//! Fixed idle periods: AT-IC.

use super::controller::{Arrival, Controller, Verdict};
use varve_media::ZoneDescription;

/// Artificially triggered idle cleaning (Zhang, section 4.3).
///
/// An idle period begins with the first request that comes when the execution time has passed since the last idle period, or
/// since the first request. That request and those that come in the idle period wait for its end.
#[derive(Clone, Debug)]
pub struct FixedIdle {
    execution_nanos: u64,
    idle_nanos: u64,
    /// End of the last idle period, or time of the first request.
    executes_since_nanos: Option<u64>,
}

impl FixedIdle {
    /// \<execution:idle\>.
    pub fn new(execution_nanos: u64, idle_nanos: u64) -> Self {
        FixedIdle { execution_nanos, idle_nanos, executes_since_nanos: None }
    }

    fn verdict(&mut self, now_nanos: u64) -> Verdict {
        let since = *self.executes_since_nanos.get_or_insert(now_nanos);
        if now_nanos < since {
            return Verdict::Wait(since);
        }
        if now_nanos - since < self.execution_nanos || self.idle_nanos == 0 {
            return Verdict::Go;
        }
        let until = now_nanos.saturating_add(self.idle_nanos);
        self.executes_since_nanos = Some(until);
        Verdict::Wait(until)
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

    /// A request that has waited for its idle period goes, whatever the execution time is.
    fn waited(&mut self, now_nanos: u64, _arrival: &Arrival) -> Verdict {
        match self.executes_since_nanos {
            Some(since) if now_nanos < since => Verdict::Wait(since),
            _ => Verdict::Go,
        }
    }

    fn let_go(&mut self, _now_nanos: u64, _arrival: &Arrival) {}

    fn completed(&mut self, _now_nanos: u64, _begun_nanos: u64, _arrival: &Arrival) {}

    fn absorbed(&mut self, _now_nanos: u64, _arrival: &Arrival) {}

    fn wants_report(&self, _now_nanos: u64) -> bool {
        false
    }

    fn reported(&mut self, _now_nanos: u64, _zones: Option<&[ZoneDescription]>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idler::Work;
    use varve_media::IoClass;

    fn arrival(nanos: u64) -> Arrival {
        Arrival {
            nanos,
            work: Work::Read,
            offset_bytes: 0,
            length_bytes: 4096,
            class: IoClass::Other,
            cause: Default::default(),
            deadline_nanos: None,
        }
    }

    #[test]
    fn an_idle_period_begins_with_a_request_and_lasts_its_full_length() {
        let mut control = FixedIdle::new(500, 200);
        assert_eq!(control.arrived(&arrival(1000)), Verdict::Go);
        assert_eq!(control.arrived(&arrival(1499)), Verdict::Go);
        assert_eq!(control.arrived(&arrival(1620)), Verdict::Wait(1820));
        assert_eq!(control.arrived(&arrival(1700)), Verdict::Wait(1820));
        // Another request passed.
        assert_eq!(control.waited(1750, &arrival(1700)), Verdict::Wait(1820));
        assert_eq!(control.waited(1820, &arrival(1620)), Verdict::Go);
        assert_eq!(control.arrived(&arrival(2319)), Verdict::Go);
        assert_eq!(control.arrived(&arrival(9000)), Verdict::Wait(9200));
    }

    #[test]
    fn without_an_execution_time_every_request_is_one_idle_period() {
        let mut control = FixedIdle::new(0, 200);
        assert_eq!(control.arrived(&arrival(10)), Verdict::Wait(210));
        assert_eq!(control.waited(210, &arrival(10)), Verdict::Go);
        assert_eq!(control.arrived(&arrival(211)), Verdict::Wait(411));
        assert_eq!(FixedIdle::new(0, 0).arrived(&arrival(10)), Verdict::Go);
    }
}
