//! What may be written where, and what a write destroys.

pub(crate) mod conventional;
pub(crate) mod interlaced;
pub(crate) mod protected;
mod shingled;
pub(crate) mod zoned;

pub use conventional::Conventional;
pub use interlaced::Interlaced;
pub(crate) use zoned::fuzz_zone_record;
pub(crate) use zoned::{Control as ZoneCommands, ZoneCommand, ZoneState, ZoneTable, ZonedGround};
pub use zoned::{ZoneRecord, Zoned};

use crate::device::Capabilities;
use crate::error::MediaError;
use crate::request::Request;
use std::ops::Range;

/// The laws of one kind of medium. [`crate::Emulated`] enforces them on its own data,
/// [`crate::RuledDevice`] on the data of another device.
///
/// Called in this order, with the device's state locked: `admit` when a request is submitted, in
/// batch order; then, when its time has passed and its bytes have been moved, `written` or
/// `discarded`, and `complete`; or `refused`. A request that `admit` refused changes nothing. Of the requests of one
/// batch, which have no order, those that may destroy others' data are done last. Rules with commands
/// of their own (zones, tracks) share their state with the facet that carries the commands.
pub trait Rules: Send {
    /// Adds to `capabilities` what these rules make of the device.
    fn describe(&self, capabilities: &mut Capabilities);

    /// Says whether the device does this request at all. Range, alignment and
    /// protection information have been checked. `device` is the name for messages.
    fn admit(&mut self, device: &str, request: &Request<'_>) -> Result<(), MediaError>;

    /// Follows a request that was admitted and then refused by the device below, which changed nothing.
    fn refused(&mut self, request: &Request<'_>);

    /// Whether writing `written` may make other data unreadable.
    fn may_destroy(&self, written: Range<u64>) -> bool;

    /// Follows a write of `written`, done in ascending order, perhaps in part when it failed. Pushes
    /// the ranges that are unreadable now; of `written` itself only what a later sector destroyed.
    fn written(&mut self, written: Range<u64>, destroyed: &mut Vec<Range<u64>>);

    /// Follows a discard.
    fn discarded(&mut self, discarded: Range<u64>);

    /// Follows a request whose bytes have been moved: may change what a read gives.
    fn complete(&mut self, device: &str, request: &mut Request<'_>) -> Result<(), MediaError>;
}
