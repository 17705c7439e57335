//! Zones, in the words of ZBC/ZAC and ZNS.

use crate::context::IoContext;
use crate::device::Facet;
use crate::error::MediaError;
use crate::layer::{CrashZones, FaultZones, Layer, TraceZones};
use std::ops::Range;
use std::sync::Arc;

/// Number of a zone, from 0 at the start of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ZoneId(pub u32);

impl std::fmt::Display for ZoneId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// How a zone may be written (ZBC-2, clause 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ZoneType {
    /// Anywhere, at any time; it has no write pointer and takes no zone commands.
    Conventional,
    /// At the write pointer only.
    SequentialWriteRequired,
    /// Anywhere, best at the write pointer, which follows the highest byte written; of a device with a [`MediaCache`] see
    /// [`ZoneControl`].
    SequentialWritePreferred,
}

impl std::fmt::Display for ZoneType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ZoneType::Conventional => "conventional",
            ZoneType::SequentialWriteRequired => "sequential write required",
            ZoneType::SequentialWritePreferred => "sequential write preferred",
        })
    }
}

/// Condition of a zone (ZBC-2, clause 4.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ZoneCondition {
    /// Conventional.
    NotWritePointer,
    /// Nothing was written since the last reset.
    Empty,
    /// Opened by a write; the device may close it when it needs to open another.
    ImplicitlyOpened,
    /// Opened by command; only a command, or filling it, closes it.
    ExplicitlyOpened,
    /// Holds data and can be written on, which opens it.
    Closed,
    /// No more writes until a reset.
    Full,
    /// Worn out: it can be read and nothing else. For good.
    ReadOnly,
    /// Dead: its data is lost. For good.
    Offline,
}

impl ZoneCondition {
    /// Counts against [`ZoneGeometry::open_zones_max`].
    pub fn is_open(self) -> bool {
        matches!(self, ZoneCondition::ImplicitlyOpened | ZoneCondition::ExplicitlyOpened)
    }

    /// Counts against [`ZoneGeometry::active_zones_max`].
    pub fn is_active(self) -> bool {
        self.is_open() || self == ZoneCondition::Closed
    }
}

impl std::fmt::Display for ZoneCondition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ZoneCondition::NotWritePointer => "not write pointer",
            ZoneCondition::Empty => "empty",
            ZoneCondition::ImplicitlyOpened => "implicitly opened",
            ZoneCondition::ExplicitlyOpened => "explicitly opened",
            ZoneCondition::Closed => "closed",
            ZoneCondition::Full => "full",
            ZoneCondition::ReadOnly => "read-only",
            ZoneCondition::Offline => "offline",
        })
    }
}

/// Raw shingled tracks of the preferred zones of a device: writing one destroys the same span of the
/// `tracks` after it, as far as they are in the same zone. A host that writes each zone in order loses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackOverlap {
    /// Tracks that a write to one destroys a part of.
    pub tracks: u32,
    /// Bytes of a track; zones are whole tracks.
    pub track_bytes: u64,
}

/// Where a drive with a translation layer puts writes beside the pointers of preferred zones, until it cleans their zones.
/// No standard lets a drive say so: an emulated one does, and for others a data sheet or a measurement may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaCache {
    /// Bytes that can be in it; one that is written twice counts twice until its zone is cleaned.
    pub bytes: u64,
    /// Pieces of the address space that can be in it.
    pub extents_max: u32,
}

/// Zone sizes and limits of a device, by value.
///
/// Zones lie one after the other in address order, all of the same length. Lengths and capacities are
/// whole physical sectors and not 0; methods answer without panic for others and for zones that are
/// not there, but mean nothing then.
///
/// ```
/// # use varve_media::{ZoneGeometry, ZoneId};
/// let zones = ZoneGeometry { conventional_zones: 13, ..ZoneGeometry::fit(8 << 40, 80 << 20).unwrap() };
/// assert_eq!((zones.zone_count, zones.sequential_zones()), (104_857, 104_844));
/// assert_eq!(zones.zone_at(81 << 20), Some(ZoneId(1)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneGeometry {
    /// Distance between zone starts.
    pub zone_bytes: u64,
    /// Writable bytes of a sequential zone, at most `zone_bytes`; a conventional one is writable all
    /// over. A device may have zones of less: [`ZoneDescription::capacity_bytes`] counts.
    pub zone_capacity_bytes: u64,
    /// Zones on the device.
    pub zone_count: u32,
    /// Conventional zones at the start of the device. Where a device has others too, only
    /// [`ZoneControl::report`] says which.
    pub conventional_zones: u32,
    /// How the other zones may be written.
    pub sequential_type: ZoneType,
    /// Zones that may be open at once; 0 is no limit.
    pub open_zones_max: u32,
    /// Zones that may be open or closed with data at once; 0 is no limit.
    pub active_zones_max: u32,
    /// Tracks that overlap in the zones that may be written anywhere; `None` where a write destroys nothing.
    pub track_overlap: Option<TrackOverlap>,
    /// Where writes beside the pointers of preferred zones go; `None` where they go to their place, or nobody knows.
    pub media_cache: Option<MediaCache>,
    /// Largest append; 0 is no limit of its own. A zone takes appends only where it must be written in order.
    pub append_bytes_max: u64,
}

impl ZoneGeometry {
    /// Most zones of a device: what is known of each zone is held in memory, 32 bytes and more. A petabyte in
    /// zones of 256 MiB has as many.
    pub const ZONES_MAX: u32 = 1 << 22;

    /// As many whole zones as fit in `capacity_bytes`, all of them sequential-write-required, writable to their
    /// end, without limits; `None` when none fits, when `zone_bytes` is 0, or when they are more than
    /// [`ZoneGeometry::ZONES_MAX`].
    pub fn fit(capacity_bytes: u64, zone_bytes: u64) -> Option<Self> {
        let zone_count = u32::try_from(capacity_bytes.checked_div(zone_bytes)?).ok()?;
        (1..=Self::ZONES_MAX).contains(&zone_count).then_some(ZoneGeometry {
            zone_bytes,
            zone_capacity_bytes: zone_bytes,
            zone_count,
            conventional_zones: 0,
            sequential_type: ZoneType::SequentialWriteRequired,
            open_zones_max: 0,
            active_zones_max: 0,
            track_overlap: None,
            media_cache: None,
            append_bytes_max: 0,
        })
    }

    /// Whether any byte can be written at any time, and nothing is lost by it: of devices of conventional and preferred zones
    /// whose tracks do not overlap. In order is faster.
    pub fn can_be_written_anywhere(&self) -> bool {
        let is_required = self.sequential_type == ZoneType::SequentialWriteRequired && self.sequential_zones() > 0;
        !is_required && self.track_overlap.is_none()
    }

    /// Bytes of all zones together, unwritable ends included: the address space.
    pub fn address_bytes(&self) -> u64 {
        self.zone_bytes.saturating_mul(u64::from(self.zone_count))
    }

    /// Zones behind the conventional ones at the start.
    pub fn sequential_zones(&self) -> u32 {
        self.zone_count.saturating_sub(self.conventional_zones)
    }

    /// Whether there is such a zone.
    pub fn contains(&self, zone: ZoneId) -> bool {
        zone.0 < self.zone_count
    }

    /// How a zone may be written, as far as [`ZoneGeometry::conventional_zones`] tells.
    pub fn zone_type(&self, zone: ZoneId) -> ZoneType {
        if zone.0 < self.conventional_zones { ZoneType::Conventional } else { self.sequential_type }
    }

    /// First byte of a zone on the device.
    pub fn start_bytes(&self, zone: ZoneId) -> u64 {
        self.zone_bytes.saturating_mul(u64::from(zone.0))
    }

    /// Bytes of the device a zone covers, writable or not.
    pub fn range(&self, zone: ZoneId) -> Range<u64> {
        let start = self.start_bytes(zone);
        start..start.saturating_add(self.zone_bytes)
    }

    /// The zone that byte `offset_bytes` of the device lies in; `None` behind the last.
    pub fn zone_at(&self, offset_bytes: u64) -> Option<ZoneId> {
        let zone = ZoneId(u32::try_from(offset_bytes.checked_div(self.zone_bytes)?).ok()?);
        self.contains(zone).then_some(zone)
    }

    /// Every zone that `range` (bytes of the device) touches. What lies behind the last is left out.
    pub fn zones_in(&self, range: &Range<u64>) -> impl Iterator<Item = ZoneId> + use<> {
        let zones = match range.start.checked_div(self.zone_bytes) {
            Some(first) if !range.is_empty() => first..range.end.div_ceil(self.zone_bytes),
            _ => 0..0,
        };
        let end = zones.end.min(u64::from(self.zone_count));
        (zones.start..end).map(|zone| ZoneId(zone as u32))
    }
}

/// One zone's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneDescription {
    /// First byte.
    pub start_bytes: u64,
    /// Bytes to the start of the next zone.
    pub length_bytes: u64,
    /// Writable bytes from the start, at most the length.
    pub capacity_bytes: u64,
    /// Next writable byte, as a device offset. Behind the writable bytes when the zone is full; means
    /// nothing in a zone that is conventional, non-sequential, read-only or offline.
    pub write_pointer_bytes: u64,
    /// How it may be written.
    pub zone_type: ZoneType,
    /// Condition now.
    pub condition: ZoneCondition,
    /// Writes to it were not in order, and the device has not put them in order since (ZBC: Non_Seq): all that is written
    /// to it goes to the media cache. Never set of other zones than preferred ones.
    pub non_sequential: bool,
}

impl ZoneDescription {
    /// First byte behind the writable ones.
    pub fn end_bytes(&self) -> u64 {
        self.start_bytes.saturating_add(self.capacity_bytes)
    }

    /// Bytes that can still be written in order before a reset; 0 in a zone that has no write pointer.
    pub fn remaining_bytes(&self) -> u64 {
        match self.condition {
            ZoneCondition::Empty | ZoneCondition::Closed => self.end_bytes().saturating_sub(self.write_pointer_bytes),
            condition if condition.is_open() => self.end_bytes().saturating_sub(self.write_pointer_bytes),
            _ => 0,
        }
    }
}

/// Why a device refuses what the state of its zones does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ZoneRefusal {
    /// No such zone.
    #[error("there is no such zone; zones are numbered from 0, there are {zone_count}")]
    Missing { zone_count: u32 },
    /// A zone command to a zone without write pointer.
    #[error("the zone is conventional and takes no zone commands; write it as any disk")]
    Conventional,
    /// ZBC: unaligned write command; ZNS: zone invalid write.
    #[error("a write must begin at the write pointer, byte {write_pointer_bytes}; report the zone and write there")]
    WritePointer { write_pointer_bytes: u64 },
    /// ZBC: write boundary violation; ZNS: zone boundary error.
    #[error(
        "{length_bytes} bytes do not fit before the end of what the zone can hold, byte {end_bytes}; divide the request"
    )]
    Boundary { length_bytes: u64, end_bytes: u64 },
    /// A write to a full zone.
    #[error("the zone is full; reset it first or write to another")]
    Full,
    /// ZBC: insufficient zone resources; ZNS: too many open zones.
    #[error("{limit} zones are open already, the most the device has; close or finish one first")]
    OpenLimit { limit: u32 },
    /// ZNS: too many active zones.
    #[error("{limit} zones are active already, the most the device has; finish or reset one first")]
    ActiveLimit { limit: u32 },
    /// A command that does not apply to the zone's condition.
    #[error("the zone is {condition}, which this command does not change")]
    Transition { condition: ZoneCondition },
    /// An append to a zone that may be written anywhere.
    #[error("appends are for zones that must be written in order; write to this one")]
    Append,
    /// An append longer than the device takes.
    #[error("an append has at most {limit_bytes} bytes; divide it")]
    AppendLength { limit_bytes: u64 },
    /// A discard where only a reset gives space back.
    #[error("space in a sequential zone is given back by a reset of the zone only")]
    Discard,
    /// The zone wore out.
    #[error("the zone is read-only and stays so; read what is needed and write to another")]
    ReadOnly,
    /// The zone died.
    #[error("the zone is offline and its data is lost; restore it from elsewhere to another zone")]
    Offline,
}

/// Zone commands of a device.
///
/// Writes: [`crate::BlockDevice::execute`] judges a write to a sequential-write-required zone when it is
/// submitted, requests of a batch in their order, and moves the write pointer then; so one batch may hold
/// several writes to one zone, each beginning where the one before ends. A write that failed leaves the
/// pointer where [`ZoneControl::report`] says. Writing an empty or closed zone opens it implicitly; when
/// as many zones are open as may be, the device closes the one that was implicitly opened first, and
/// refuses when there is none. Nothing but a reset, a finish or filling a zone makes an active zone
/// inactive. Writing to the end of a zone makes it full.
///
/// Reads are unrestricted (URSWRZ of ZBC; Linux takes no others): what lies at or above the write pointer, or
/// behind the capacity, reads as zeros, except in an offline zone, where reading fails. Discards are for
/// conventional zones.
///
/// Zones of preferred type of a device with a [`MediaCache`]: a write at the pointer goes to its place and moves the pointer.
/// Any other makes the zone non-sequential, and it and all that follow go to the cache. The device cleans such zones when
/// nobody asks anything of it, and when the cache is full; then the pointer stands behind the highest byte.
///
/// Refusals are [`MediaError::Zone`] and change nothing. A zone may become read-only or offline at any time.
///
/// Durability: a reset or finish is durable when the call returns; of one that a power cut interrupts
/// either state is left. After a power cut the write pointer stands anywhere between where it stood at the
/// last `sync` and the last write, what lies below it and was not synced may be torn, and no zone is open:
/// it is closed if it holds data and empty if not. An open or close is not durable.
///
/// Any thread may call any method at any time; commands to one zone and writes to it in flight together are
/// done in any order.
pub trait ZoneControl: Send + Sync {
    /// Descriptions of `count` zones from `first`; fewer where the device ends. To a device with a media cache it is a command
    /// as any other: it takes its time and calls off a cleaning. Other emulated devices answer at once.
    ///
    /// # Errors
    /// [`MediaError::Zone`] when there is no zone `first`.
    fn report(&self, first: ZoneId, count: u32, context: &IoContext) -> Result<Vec<ZoneDescription>, MediaError>;

    /// Opens a zone explicitly: it stays open until it is closed, finished, reset or full. Opening an open
    /// zone explicitly is no error.
    fn open(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError>;

    /// Closes an open zone; one to which nothing was written becomes empty. Closing a closed zone is no
    /// error. Of an empty or full zone devices differ: they refuse (ZNS), or do nothing (ZBC).
    fn close(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError>;

    /// Moves the write pointer to the end: no more writes until a reset. What was not written reads as
    /// zeros. Finishing a full zone is no error.
    fn finish(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError>;

    /// Empties a zone: all of it reads as zeros. Resetting an empty zone is no error.
    fn reset(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError>;

    /// Writes at the write pointer and returns the device offset where the data went. Several in flight
    /// to one zone are all done, in any order. To sequential-write-required zones only.
    fn append(&self, zone: ZoneId, data: &[u8], context: &IoContext) -> Result<u64, MediaError>;
}

impl Facet for dyn ZoneControl {
    fn through(inner: &Arc<Self>, layer: &Layer<'_>) -> Option<Arc<Self>> {
        match layer {
            Layer::Fault { injector, worn, .. } => worn.map(|worn| FaultZones::facet(injector, worn)),
            Layer::Trace { tracer, name } => Some(TraceZones::facet(tracer, name, inner)),
            Layer::Crash(layer) => Some(CrashZones::facet(layer, inner)),
            Layer::CrashImage(_) | Layer::Overlay(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    #[test]
    fn zones_and_bytes_correspond() {
        let seed = 5;
        let mut random = Random::seeded(seed);
        for round in 0..500 {
            let zone_bytes = (1 + random.below(9)) * 4096;
            let capacity_bytes = random.below(200 * 4096);
            let Some(geometry) = ZoneGeometry::fit(capacity_bytes, zone_bytes) else {
                assert!(capacity_bytes < zone_bytes, "seed {seed} round {round}");
                continue;
            };
            assert!(
                geometry.address_bytes() <= capacity_bytes && capacity_bytes - geometry.address_bytes() < zone_bytes
            );
            let at = random.below(capacity_bytes);
            match geometry.zone_at(at) {
                Some(zone) => assert!(geometry.range(zone).contains(&at), "seed {seed} round {round}"),
                None => assert!(at >= geometry.address_bytes(), "seed {seed} round {round}"),
            }
            let range = at..at + random.below(5 * zone_bytes);
            let found: Vec<ZoneId> = geometry.zones_in(&range).collect();
            let touches = |zone: &ZoneId| {
                let own = geometry.range(*zone);
                own.start.max(range.start) < own.end.min(range.end)
            };
            let expected: Vec<ZoneId> = (0..geometry.zone_count).map(ZoneId).filter(touches).collect();
            assert_eq!(found, expected, "seed {seed} round {round}");
        }
        assert_eq!(ZoneGeometry::fit(1 << 20, 0), None);
        assert_eq!(ZoneGeometry::fit(u64::MAX, 1), None);
        let most = u64::from(ZoneGeometry::ZONES_MAX);
        assert_eq!(ZoneGeometry::fit(most * 4096, 4096).map(|zones| zones.zone_count), Some(ZoneGeometry::ZONES_MAX));
        assert_eq!(ZoneGeometry::fit((most + 1) * 4096, 4096), None);
        let nothing = ZoneGeometry { zone_bytes: 0, ..ZoneGeometry::fit(1, 1).unwrap() };
        assert_eq!((nothing.zone_at(0), nothing.zones_in(&(0..9)).count()), (None, 0));
    }
}
