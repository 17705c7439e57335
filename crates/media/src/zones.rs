//! Zones, in the words of ZBC/ZAC and ZNS.

use crate::context::IoContext;
use crate::error::MediaError;

/// Number of a zone, from 0 at the start of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ZoneId(pub u32);

/// How a zone may be written (ZBC-2, clause 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ZoneType {
    Conventional,
    SequentialWriteRequired,
    SequentialWritePreferred,
}

/// Condition of a zone (ZBC-2, clause 4.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ZoneCondition {
    NotWritePointer,
    Empty,
    ImplicitlyOpened,
    ExplicitlyOpened,
    Closed,
    Full,
    ReadOnly,
    Offline,
}

/// Zone sizes and limits of a device, by value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneGeometry {
    /// Distance between zone starts.
    pub zone_bytes: u64,
    /// Zones on the device.
    pub zone_count: u32,
    /// Zones that may be open at once; 0 is no limit.
    pub open_zones_max: u32,
    /// Zones that may be open or closed with data at once; 0 is no limit.
    pub active_zones_max: u32,
    /// Largest append; 0 when the device has no append.
    pub append_bytes_max: u64,
}

/// One zone's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneDescription {
    /// First byte.
    pub start_bytes: u64,
    /// Writable bytes, at most the zone's length.
    pub capacity_bytes: u64,
    /// Next writable byte, as a device offset.
    pub write_pointer_bytes: u64,
    /// How it may be written.
    pub zone_type: ZoneType,
    /// Condition now.
    pub condition: ZoneCondition,
}

/// Zone commands of a device.
///
/// Durability: a reset or finish is durable when the call returns; a write pointer after a power
/// cut stands anywhere between the last `sync` and the last write.
pub trait ZoneControl: Send + Sync {
    /// Descriptions of `count` zones from `first`.
    fn report(&self, first: ZoneId, count: u32, context: &IoContext) -> Result<Vec<ZoneDescription>, MediaError>;
    /// Opens a zone explicitly.
    fn open(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError>;
    /// Closes an open zone.
    fn close(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError>;
    /// Moves the write pointer to the end: no more writes until a reset.
    fn finish(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError>;
    /// Empties a zone.
    fn reset(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError>;
    /// Writes at the write pointer and returns the device offset where the data went.
    fn append(&self, zone: ZoneId, data: &[u8], context: &IoContext) -> Result<u64, MediaError>;
}
