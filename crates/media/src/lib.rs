//! What a device is: rules, timing and backing; real hardware; fault, crash and trace layers.
//!
//! A device is anything that implements [`BlockDevice`] and describes itself by value
//! ([`Geometry`], [`Capabilities`]). Callers branch on what the values say, never on a kind.
//! Narrow traits add what some devices can do beyond blocks: [`ZoneControl`], [`TrackControl`],
//! [`ByteAddressable`]. A [`Device`] carries the facets one device has.
//!
//! This crate stands on `varve-env` alone. It does not know files, keys or levels; an
//! [`IoContext`] passes through it as an opaque label for scheduling and accounting.

mod answers;
mod buffer;
mod bytes;
pub mod conformance;
mod context;
mod device;
mod directory;
pub mod emulated;
mod error;
mod file_lock;
#[doc(hidden)]
pub mod fuzzing;
mod hardware;
mod holes;
mod layer;
mod marks;
mod memory;
mod place;
pub mod presets;
pub mod probe;
mod protection;
mod ranges;
mod request;
mod sectors;
mod sparse;
mod sync_order;
mod tracks;
pub mod validation;
mod zeros;
mod zones;

pub use answers::{ANSWERS_MAX, find_sound_answer};
pub use buffer::AlignedBuffer;
pub use bytes::{ByteAddressable, FlushQueue, MemoryReader};
pub use context::{Attempt, IoCause, IoClass, IoContext, JobId};
pub use device::{
    BlockDevice, BlockDeviceExt, Capabilities, CleaningCounters, Counters, Device, Geometry, NominalPerformance,
    SeekTimes, TimeSpent,
};
pub use directory::{
    Directory, DirectoryCrashState, DirectoryEntry, DirectoryFile, DirectoryLock, FileMapping, MemoryDirectory,
    MemoryDirectoryOptions, OpenMode, OsDirectory, Space, WritableMapping, ZoneSpace,
};
pub use emulated::{
    Backing, CompressedBacking, Emulated, FileBacking, Immediate, Interlaced, MediaCacheRecord, NoBacking, Pacing,
    RamBacking, RuledDevice, ZoneRecord, Zoned,
};
pub use error::{MediaError, MediaErrorKind, Operation};
pub use hardware::{FileDevice, FileDeviceOptions, IoEngine, open_zoned_device};
pub use holes::{hole_bytes, remaining_bytes};
pub use layer::{
    CrashDevice, CrashGroup, CrashVariant, DeviceCrashState, Fault, FaultDevice, FaultDirectory, FaultEffect,
    FaultError, FaultInjector, FaultPlan, FaultTrigger, FileTrace, FlushAudit, GroupCrashState, LineImages,
    MemoryTrace, OverlayDevice, PersistencePoint, TextTrace, TraceDevice, TraceDirectory, TraceRecord, TraceSink,
};
pub use marks::{
    ARRAY_MEMBER_MARK, LAYER_JOURNAL_MARK, LAYER_NAME_OFFSET, RELOCATION_LAYER, RELOCATION_MARK_VERSION_1,
    RELOCATION_UNIT_BYTES, WRITE_BUFFER_MARK, WRITE_BUFFER_RESERVED_BYTES,
};
pub use memory::{LineInstruction, MemoryCounters, MemoryFileOptions, MemoryModel, Persistence, PersistentMemory};
pub use place::{FileMode, MadePlace, check_image_path};
pub use protection::{GuardKind, ProtectionFormat, ProtectionMismatch, ProtectionTag, ProtectionTuple, ProtectionType};
pub use request::{Request, RequestPart, Transfer, check_request};
pub use sync_order::SyncOrder;
pub use tracks::{DestroyedData, TrackControl, TrackDescription, TrackGeometry, TrackId, TrackTier};
pub use zeros::is_zero;
pub use zones::{
    MediaCache, TrackOverlap, ZoneCondition, ZoneControl, ZoneDescription, ZoneGeometry, ZoneId, ZoneRefusal, ZoneType,
};
