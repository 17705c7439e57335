//! Tracks of interlaced disks: which overlap which.

use crate::error::MediaError;

/// Number of a track, from 0 at the outer edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrackId(pub u32);

/// Position of a track in the interlaced stack (KVIMR, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrackTier {
    /// Overlapped by its neighbours: writing it destroys the same span of both.
    Bottom,
    /// Freely updatable.
    Top,
}

/// Track sizes of a device, by value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackGeometry {
    /// Tracks on the device.
    pub track_count: u32,
    /// Bytes of a top track.
    pub top_track_bytes: u64,
    /// Bytes of a bottom track.
    pub bottom_track_bytes: u64,
}

/// One track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackDescription {
    /// First byte on the device.
    pub start_bytes: u64,
    /// Bytes of the track.
    pub length_bytes: u64,
    /// Tier.
    pub tier: TrackTier,
    /// Tracks whose same span a write to this one destroys: none for a top track.
    pub overlaps: Vec<TrackId>,
}

/// Host-side commands of a host-managed interlaced disk (the library KVIMR wishes for).
pub trait TrackControl: Send + Sync {
    /// Description of one track.
    fn describe(&self, track: TrackId) -> Result<TrackDescription, MediaError>;
    /// Says that a track holds nothing worth keeping: writes may destroy it without being counted.
    fn mark_free(&self, track: TrackId) -> Result<(), MediaError>;
}
