//! Rules enforced on data, whoever holds the data.

use super::rules::Rules;
use crate::error::{MediaError, MediaErrorKind};
use crate::ranges::RangeSet;
use crate::request::{Request, Transfer};
use parking_lot::{Mutex, RwLock};
use std::ops::Range;

/// Rules, and what they or a defect made unreadable.
pub(super) struct Enforcement {
    rules: Mutex<Box<dyn Rules>>,
    /// Locked with `rules` held, or alone.
    unreadable: RwLock<RangeSet>,
}

fn range_of(request: &Request<'_>) -> Range<u64> {
    request.offset_bytes..request.offset_bytes + request.length_bytes()
}

impl Enforcement {
    pub(super) fn new(rules: Box<dyn Rules>) -> Self {
        Enforcement { rules: Mutex::new(rules), unreadable: RwLock::default() }
    }

    /// Makes a range unreadable.
    pub(super) fn damage(&self, range: Range<u64>) {
        self.unreadable.write().insert(range);
    }

    /// What the rules say to a request whose range and alignment have been checked.
    pub(super) fn admit(&self, device: &str, request: &Request<'_>) -> Result<(), MediaError> {
        if request.length_bytes() == 0 {
            return Ok(());
        }
        self.rules.lock().admit(device, request)
    }

    pub(super) fn check_readable(&self, device: &str, range: Range<u64>) -> Result<(), MediaError> {
        match self.unreadable.read().first_within(&range) {
            Some(offset_bytes) => Err(MediaError::Unreadable { device: device.to_owned(), offset_bytes }),
            None => Ok(()),
        }
    }

    /// Whether this request is one of those done last in their batch.
    pub(super) fn comes_last(&self, request: &Request<'_>) -> bool {
        matches!(request.transfer, Transfer::Write { .. }) && self.rules.lock().may_destroy(range_of(request))
    }

    /// Follows a request that was admitted and whose bytes have been `moved`, or perhaps not all; gives
    /// its outcome. One that was refused after all changed nothing.
    pub(super) fn settle(
        &self,
        device: &str,
        request: &mut Request<'_>,
        moved: Result<(), MediaError>,
    ) -> Result<(), MediaError> {
        if moved.as_ref().is_err_and(|error| error.kind() == MediaErrorKind::InvalidRequest) {
            self.rules.lock().refused(request);
            return moved;
        }
        let range = range_of(request);
        let mut rules = self.rules.lock();
        match request.transfer {
            Transfer::Read { .. } => {}
            Transfer::Write { .. } => {
                let mut destroyed = Vec::new();
                rules.written(range.clone(), &mut destroyed);
                if moved.is_ok() {
                    self.make_readable(range);
                }
                if !destroyed.is_empty() {
                    let mut unreadable = self.unreadable.write();
                    destroyed.into_iter().for_each(|range| unreadable.insert(range));
                }
            }
            Transfer::Discard { .. } if moved.is_ok() => {
                rules.discarded(range.clone());
                self.make_readable(range);
            }
            Transfer::Discard { .. } => {}
        }
        moved?;
        rules.complete(device, request)
    }

    pub(super) fn make_readable(&self, range: Range<u64>) {
        if !self.unreadable.read().is_empty() {
            self.unreadable.write().remove(range);
        }
    }
}
