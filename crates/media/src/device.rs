//! The block device trait and how a device describes and counts itself.

use crate::bytes::ByteAddressable;
use crate::context::{IoCause, IoClass, IoContext};
use crate::emulated::ZoneCommand;
use crate::error::MediaError;
use crate::layer::Layer;
use crate::memory::MemoryCounters;
use crate::protection::ProtectionFormat;
use crate::request::{Request, Transfer};
use crate::tracks::{TrackControl, TrackGeometry};
use crate::zones::{ZoneControl, ZoneGeometry};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

/// Sizes of a block device, by value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes one can address.
    pub capacity_bytes: u64,
    /// Offsets and lengths of requests are multiples of this (the logical sector).
    pub sector_bytes: u32,
    /// Writes smaller than this, or not aligned to it, cost the device a read-modify-write.
    /// Also the unit that survives a power cut whole.
    pub physical_sector_bytes: u32,
}

/// Speed a device promises, by value: from the data sheet for presets, absent when unknown.
/// Placement policies compare devices by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NominalPerformance {
    /// Sequential read rate.
    pub sequential_read_bytes_per_second: u64,
    /// Sequential write rate.
    pub sequential_write_bytes_per_second: u64,
    /// Random 4 KiB reads per second, one at a time.
    pub random_reads_per_second: u64,
}

impl NominalPerformance {
    /// Usual rates of a disk (100 random reads a second, 200 MB/s) or of a solid-state device (10,000, 1 GB/s). For devices that
    /// state none.
    pub const fn typical(rotational: bool) -> NominalPerformance {
        let (bytes_per_second, random_reads_per_second) =
            if rotational { (200_000_000, 100) } else { (1_000_000_000, 10_000) };
        NominalPerformance {
            sequential_read_bytes_per_second: bytes_per_second,
            sequential_write_bytes_per_second: bytes_per_second,
            random_reads_per_second,
        }
    }
}

/// Times of a disk's mechanics, by value: what an allocation may weigh distances by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeekTimes {
    /// Seek to the next cylinder, in nanoseconds.
    pub shortest_nanos: u64,
    /// Seek over the whole stroke, in nanoseconds.
    pub longest_nanos: u64,
    /// One rotation, in nanoseconds.
    pub rotation_nanos: u64,
}

impl SeekTimes {
    /// Times of a 7,200 rpm disk by the usual data sheet: 1 ms from track to track, 18 ms over the stroke. For rotational devices that state none.
    pub const TYPICAL: SeekTimes =
        SeekTimes { shortest_nanos: 1_000_000, longest_nanos: 18_000_000, rotation_nanos: 8_333_333 };
}

/// What a block device can do and how it behaves, by value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Positioning costs time: neighbours in address are neighbours in time.
    pub rotational: bool,
    /// Completed writes may be lost by a power cut until `sync` returns.
    pub volatile_cache: bool,
    /// A durable write goes to the medium by itself, in the order that positioning takes least, and nothing else has to (FUA). Where
    /// it is false such a write takes what a write and a sync do. So it is on real hardware: Linux sends a flush after
    /// each of them to a block device, whatever that can do.
    pub forced_unit_access: bool,
    /// `Discard` gives space back.
    pub discard: bool,
    /// Requests the device works on at once; more wait in a queue.
    pub queue_depth: u32,
    /// Memory address alignment the buffers need, in bytes; 1 when any will do.
    pub buffer_alignment_bytes: u32,
    /// What the data sheet promises, if known.
    pub nominal: Option<NominalPerformance>,
    /// Times of seeks and rotations, of a disk that states them.
    pub seek: Option<SeekTimes>,
    /// Protection information kept beside the data, if any.
    pub protection: Option<ProtectionFormat>,
    /// Zones, if writes must follow write pointers. [`Device::zones`] then drives them.
    pub zones: Option<ZoneGeometry>,
    /// Tracks, if a write may destroy neighbours. [`Device::tracks`] then describes them.
    pub tracks: Option<TrackGeometry>,
}

impl Capabilities {
    /// Those of blocks that can be written at any time: a solid state with a cache, one request at a time, nothing more.
    pub fn of_blocks() -> Self {
        Capabilities {
            rotational: false,
            volatile_cache: true,
            forced_unit_access: false,
            discard: true,
            queue_depth: 1,
            buffer_alignment_bytes: 1,
            nominal: None,
            seek: None,
            protection: None,
            zones: None,
            tracks: None,
        }
    }
}

/// Where a device's busy time went, in nanoseconds. All zero on real hardware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSpent {
    /// Moving the arm.
    pub seek_nanos: u64,
    /// Waiting for the sector to come round.
    pub rotation_nanos: u64,
    /// Moving bytes to or from the medium or flash.
    pub transfer_nanos: u64,
    /// Command overhead and the host link.
    pub overhead_nanos: u64,
    /// Writing the cache back because someone synced, or because it was full.
    pub flush_nanos: u64,
    /// Idle: no request and nothing to write back.
    pub idle_nanos: u64,
}

/// What the translation layer of a shingled disk did. All zero where there is none, and on real hardware, which does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleaningCounters {
    /// Writes, or parts of them, that went to the media cache.
    pub cached_writes: u64,
    /// Bytes of these.
    pub cached_bytes: u64,
    /// Bytes of the cache that cleanings and resets gave back: what is in use are those cached less these.
    pub released_bytes: u64,
    /// Extents in the map now.
    pub extents: u64,
    /// Zones that are not sequential now.
    pub non_sequential_zones: u64,
    /// Zones cleaned while nobody asked anything of the device.
    pub idle_cleaned_zones: u64,
    /// Zones cleaned while requests waited.
    pub blocking_cleaned_zones: u64,
    /// Idle cleanings that a command called off.
    pub interrupted_cleanings: u64,
    /// Times that the cache was full.
    pub blocking_cleanings: u64,
    /// Time of idle cleaning.
    pub idle_cleaning_nanos: u64,
    /// Time of blocking cleaning.
    pub blocking_cleaning_nanos: u64,
}

/// What a device did since it was made. Monotonic, but for what is said to be now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Completed reads.
    pub reads: u64,
    /// Completed writes.
    pub writes: u64,
    /// Completed syncs.
    pub syncs: u64,
    /// Completed discards.
    pub discards: u64,
    /// Zones that were reset.
    pub zone_resets: u64,
    /// Zones that were finished by command.
    pub zone_finishes: u64,
    /// Bytes read by the host.
    pub read_bytes: u64,
    /// Bytes written by the host.
    pub written_bytes: u64,
    /// Bytes the medium itself wrote, device-internal copies included.
    pub media_written_bytes: u64,
    /// Bytes the medium itself read, read-ahead and internal copies included.
    pub media_read_bytes: u64,
    /// Arm movements of at least one cylinder.
    pub seeks: u64,
    /// Reads served by the device's own cache.
    pub cache_hits: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Bytes read by class, in the order of [`IoClass::ALL`].
    pub read_bytes_by_class: [u64; IoClass::ALL.len()],
    /// Bytes written by class, in the order of [`IoClass::ALL`].
    pub written_bytes_by_class: [u64; IoClass::ALL.len()],
    /// Reads by class, in the order of [`IoClass::ALL`].
    pub reads_by_class: [u64; IoClass::ALL.len()],
    /// Bytes written for their caller (no copies that a layer makes) by level of the tree, where that is said; deeper
    /// levels than there are places count as the last.
    pub written_bytes_by_level: [u64; Counters::LEVELS],
    /// Where time went.
    pub time: TimeSpent,
    /// What a translation layer did.
    pub cleaning: CleaningCounters,
    /// Lines, bytes and fences of byte-addressable memory.
    pub memory: MemoryCounters,
}

impl Counters {
    /// Levels that are counted apart.
    pub const LEVELS: usize = 8;

    /// Counts a sync by its outcome.
    pub fn count_sync(&mut self, outcome: &Result<(), MediaError>) {
        match outcome {
            Ok(()) => self.syncs += 1,
            Err(_) => self.errors += 1,
        }
    }

    /// Counts a request that ended as its outcome says, for devices that answer some by themselves.
    pub fn count_request(&mut self, request: &Request<'_>, context: &IoContext) {
        let length_bytes = request.length_bytes();
        match (&request.outcome, &request.transfer) {
            (Err(_), _) => self.errors += 1,
            (Ok(()), Transfer::Read { .. }) => {
                self.reads += 1;
                self.read_bytes += length_bytes;
                self.reads_by_class[context.class.index()] += 1;
                self.read_bytes_by_class[context.class.index()] += length_bytes;
            }
            (Ok(()), Transfer::Write { .. }) => {
                self.writes += 1;
                self.written_bytes += length_bytes;
                self.written_bytes_by_class[context.class.index()] += length_bytes;
                if let (Some(level), IoCause::Direct) = (context.level, context.cause) {
                    self.written_bytes_by_level[usize::from(level).min(Counters::LEVELS - 1)] += length_bytes;
                }
            }
            (Ok(()), Transfer::Discard { .. }) => self.discards += 1,
        }
    }

    /// Counts a zone command that was done, or one that failed.
    pub(crate) fn count_zone_command(&mut self, done: Option<ZoneCommand>) {
        match done {
            Some(ZoneCommand::Reset) => self.zone_resets += 1,
            Some(ZoneCommand::Finish) => self.zone_finishes += 1,
            Some(ZoneCommand::Open | ZoneCommand::Close) => {}
            None => self.errors += 1,
        }
    }
}

/// A device addressed by sectors.
///
/// Contract, for every implementation and layer (the conformance suite checks it):
/// - *Visibility*: when a write completes, every later read sees it, whole.
/// - *Order*: requests of one batch are unordered among themselves and with other batches in
///   flight; overlapping requests in flight give either result per sector.
/// - *Durability*: when `sync` returns, every write completed before `sync` was called is on
///   stable media. Without `sync` a power cut may keep, lose or tear (at the physical sector) any
///   of them, in any order.
/// - *Failure*: a failed write leaves each of its sectors old, new or unreadable. After a failed
///   `sync` nothing is known about writes since the last good one; callers stop trusting them.
/// - *Tracks*: on a device with interlaced tracks a write also makes unreadable what
///   [`TrackGeometry::destroyed_by_write`] says, when it completes and as far as it arrives: what a
///   failed write or a power cut tore destroyed what it covered.
/// - *Zones*: on a device with zones a write must follow what [`ZoneControl`] says, or is refused.
/// - *Protection*: with protection information the data and the tuple of an interval are one unit. A
///   failed write or a power cut leaves both or neither. A write with wrong tuples changes nothing.
/// - *Zero*: sectors never written, or discarded, read as zeros.
/// - Never panics on a request: out of range or misaligned is an error that changes nothing.
pub trait BlockDevice: Send + Sync {
    /// Name for messages: the spec or the path.
    fn name(&self) -> &str;

    /// Sizes. Constant while the device is open.
    fn geometry(&self) -> &Geometry;

    /// Properties. Constant while the device is open.
    fn capabilities(&self) -> &Capabilities;

    /// Does every request of the batch, all of them in flight at once, and returns when all ended.
    /// Each request's `outcome` says how it ended; the result is the first error in batch order.
    /// Any thread may call this at any time; batches of several threads share the device's queue.
    /// A layer that fans out over several devices does so with one env actor per device.
    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError>;

    /// Makes every completed write durable (see the contract above).
    fn sync(&self, context: &IoContext) -> Result<(), MediaError>;

    /// What the device did so far.
    fn counters(&self) -> Counters;
}

/// Single-buffer conveniences over [`BlockDevice::execute`].
pub trait BlockDeviceExt: BlockDevice {
    /// Reads `data.len()` bytes at `offset_bytes`.
    fn read_at(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<(), MediaError> {
        let mut slices = [IoSliceMut::new(data)];
        self.execute(&mut [Request::read(offset_bytes, &mut slices)], context)
    }

    /// Writes `data` at `offset_bytes`.
    fn write_at(&self, offset_bytes: u64, data: &[u8], context: &IoContext) -> Result<(), MediaError> {
        self.execute(&mut [Request::write(offset_bytes, &[IoSlice::new(data)])], context)
    }

    /// Reads `data.len()` bytes at `offset_bytes`, and their tuples: eight bytes for each interval.
    fn read_protected_at(
        &self,
        offset_bytes: u64,
        data: &mut [u8],
        tuples: &mut [u8],
        context: &IoContext,
    ) -> Result<(), MediaError> {
        let mut slices = [IoSliceMut::new(data)];
        let transfer = Transfer::Read { data: &mut slices, protection: Some(tuples) };
        self.execute(&mut [Request { offset_bytes, transfer, outcome: Ok(()) }], context)
    }

    /// Writes `data` at `offset_bytes` with their tuples: eight bytes for each interval.
    fn write_protected_at(
        &self,
        offset_bytes: u64,
        data: &[u8],
        tuples: &[u8],
        context: &IoContext,
    ) -> Result<(), MediaError> {
        let slices = [IoSlice::new(data)];
        let transfer = Transfer::Write { data: &slices, protection: Some(tuples), durable: false };
        self.execute(&mut [Request { offset_bytes, transfer, outcome: Ok(()) }], context)
    }

    /// Gives up `length_bytes` at `offset_bytes`.
    fn discard_at(&self, offset_bytes: u64, length_bytes: u64, context: &IoContext) -> Result<(), MediaError> {
        self.execute(&mut [Request::discard(offset_bytes, length_bytes)], context)
    }
}

impl<T: BlockDevice + ?Sized> BlockDeviceExt for T {}

/// One device with the facets it has. Layers take a `Device` and give a `Device`.
#[derive(Clone)]
pub struct Device {
    /// Reading and writing sectors.
    pub block: Arc<dyn BlockDevice>,
    /// Zone commands; present exactly when `capabilities().zones` is.
    pub zones: Option<Arc<dyn ZoneControl>>,
    /// Track commands; present exactly when `capabilities().tracks` is.
    pub tracks: Option<Arc<dyn TrackControl>>,
    /// Loads and stores; present on byte-addressable memory.
    pub bytes: Option<Arc<dyn ByteAddressable>>,
}

impl Device {
    /// A device that is blocks and nothing more.
    pub fn of_blocks(block: Arc<dyn BlockDevice>) -> Self {
        Device { block, zones: None, tracks: None, bytes: None }
    }

    /// This device below a layer whose blocks are `block`. No layer lists facets: each says itself what becomes of it.
    pub(crate) fn below(&self, layer: &Layer<'_>, block: Arc<dyn BlockDevice>) -> Device {
        Device {
            block,
            zones: seen_through(layer, &self.zones),
            tracks: seen_through(layer, &self.tracks),
            bytes: seen_through(layer, &self.bytes),
        }
    }
}

/// A facet of devices, as [`Device`] has one of each kind at most: what some devices do beyond blocks.
pub(crate) trait Facet {
    /// What those above `layer` see of this facet of the device below it; `None` where it has no place there.
    fn through(inner: &Arc<Self>, layer: &Layer<'_>) -> Option<Arc<Self>>;
}

fn seen_through<F: Facet + ?Sized>(layer: &Layer<'_>, facet: &Option<Arc<F>>) -> Option<Arc<F>> {
    facet.as_ref().and_then(|inner| F::through(inner, layer))
}
