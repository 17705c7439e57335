//! A medium without special rules.

pub(crate) mod conformance;

use super::Rules;
use crate::device::Capabilities;
use crate::error::{MediaError, Operation};
use crate::request::{Request, Transfer};
use std::ops::Range;

/// Any sector may be written at any time and nothing else is touched. Keeps no protection
/// information: a request that carries some is refused rather than silently stripped of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conventional;

impl Rules for Conventional {
    fn describe(&self, capabilities: &mut Capabilities) {
        capabilities.zones = None;
        capabilities.tracks = None;
        capabilities.protection = None;
    }

    fn admit(&mut self, device: &str, request: &Request<'_>) -> Result<(), MediaError> {
        let operation = match &request.transfer {
            Transfer::Read { protection: Some(_), .. } => Operation::Read,
            Transfer::Write { protection: Some(_), .. } => Operation::Write,
            _ => return Ok(()),
        };
        Err(MediaError::Rule {
            device: device.to_owned(),
            operation,
            offset_bytes: request.offset_bytes,
            rule: "the device keeps no protection information; send the request without it".to_owned(),
        })
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
