//! A medium without special rules.

pub(crate) mod conformance;

use super::Rules;
use crate::device::Capabilities;
use crate::error::MediaError;
use crate::request::Request;
use std::ops::Range;

/// Any sector may be written at any time and nothing else is touched.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conventional;

impl Rules for Conventional {
    fn describe(&self, capabilities: &mut Capabilities) {
        capabilities.zones = None;
        capabilities.tracks = None;
        capabilities.protection = None;
    }

    fn admit(&mut self, _device: &str, _request: &Request<'_>) -> Result<(), MediaError> {
        Ok(())
    }

    fn refused(&mut self, _request: &Request<'_>) {}

    fn may_destroy(&self, _written: Range<u64>) -> bool {
        false
    }

    fn written(&mut self, _written: Range<u64>, _destroyed: &mut Vec<Range<u64>>) {}

    fn discarded(&mut self, _discarded: Range<u64>) {}

    fn complete(&mut self, _device: &str, _request: &mut Request<'_>) -> Result<(), MediaError> {
        Ok(())
    }
}
