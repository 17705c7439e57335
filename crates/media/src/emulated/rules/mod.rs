//! What may be written where, and what a write destroys.

mod conventional;

pub use conventional::Conventional;

use crate::device::Capabilities;
use crate::error::MediaError;
use crate::request::Request;
use std::ops::Range;

/// The laws of one kind of medium. [`crate::Emulated`] enforces them on the data.
///
/// Called in this order, with the device's state locked: `admit` when a request is submitted, in
/// batch order; then, when its time has passed, `destroyed_by_write` (for writes), the bytes are
/// moved, and `complete`. A request that `admit` refused changes nothing. Rules with commands of
/// their own (zones, tracks) share their state with the facet that carries the commands.
pub trait Rules: Send {
    /// Adds to `capabilities` what these rules make of the device.
    fn describe(&self, capabilities: &mut Capabilities);

    /// Says whether the device does this request at all. Range and alignment have been checked.
    /// `device` is the name for messages.
    fn admit(&mut self, device: &str, request: &Request<'_>) -> Result<(), MediaError>;

    /// Pushes the ranges that writing `written` makes unreadable, `written` itself excluded.
    fn destroyed_by_write(&mut self, written: Range<u64>, destroyed: &mut Vec<Range<u64>>);

    /// Follows a request whose bytes have been moved: keeps or fills its protection information.
    fn complete(&mut self, device: &str, request: &mut Request<'_>) -> Result<(), MediaError>;
}
