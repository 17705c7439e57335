//! No control.

use super::controller::{Arrival, Controller, Verdict};
use varve_media::ZoneDescription;

/// Every request goes when it comes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unrestrained;

impl Controller for Unrestrained {
    fn name(&self) -> String {
        "no control".to_owned()
    }

    fn arrived(&mut self, _arrival: &Arrival) -> Verdict {
        Verdict::Go
    }

    fn waited(&mut self, _now_nanos: u64, _arrival: &Arrival) -> Verdict {
        Verdict::Go
    }

    fn let_go(&mut self, _now_nanos: u64, _arrival: &Arrival) {}

    fn completed(&mut self, _now_nanos: u64, _begun_nanos: u64, _arrival: &Arrival) {}

    fn absorbed(&mut self, _now_nanos: u64, _arrival: &Arrival) {}

    fn wants_report(&self, _now_nanos: u64) -> bool {
        false
    }

    fn reported(&mut self, _now_nanos: u64, _zones: Option<&[ZoneDescription]>) {}
}
