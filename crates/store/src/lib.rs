//! Files over devices: where the files of a log-structured store live.
//!
//! A log-structured store writes few kinds of files: immutable tables written once in order, logs
//! that are appended, synced and read while appended, and a little metadata replaced atomically.
//! [`FileStore`] is that interface and no more; [`Hint`]s flow down through it, and each store
//! uses those it understands. A store is crash-consistent by itself.
//!
//! The second interface of this crate, segments (fixed-size, aligned, sealed one by one), comes
//! with the tree that needs it and stands beside `file_store`.

mod access_times;
mod band;
#[doc(hidden)]
pub mod conformance;
mod error;
mod extent;
mod file_store;
#[doc(hidden)]
pub mod fuzzing;
mod hint;
mod hybrid;
mod identity;
mod imr;
mod journal;
mod kernel;
mod name;
mod occupancy;
mod plain;
mod read_only;
mod record_cache;
mod segments;
mod wire;

pub use access_times::AccessTimes;
pub use band::{BandFormatOptions, BandStore};
pub use error::{StoreError, StoreErrorKind, zones_advice};
pub use extent::{Ext4Options, ExtentFormatOptions, ExtentLayout, ExtentStore};
pub use file_store::{
    CreateOptions, FileEntry, FileKind, FileStore, Finding, Location, OpenOptions, ReadRange, ReadableFile, Severity,
    StoreLock, StoreProperties, WritableFile,
};
pub use hint::{BlockOrigin, Hint, HintedFile};
pub use hybrid::{
    CachingName, DivisionName, HybridDevices, HybridDriver, HybridFormatOptions, HybridOpenOptions, HybridStore,
    HybridTechnique, MigrationName, MissingDevices, PlacementName,
};
pub use identity::{LayerMark, check_blank, check_rules, find_layer_mark};
pub use imr::{
    AllocationName, CostTerm, ImrDevices, ImrFormatOptions, ImrOpenOptions, ImrPlace, ImrPlacement, ImrStatistics,
    ImrStore, RewriteName, TrackWrites,
};
pub use occupancy::{Occupancy, OccupancyDevice, OccupancyFile, OccupancyPiece, PieceUsage, StoreMeasure};
pub use plain::{PlainOptions, PlainStore};
pub use read_only::ReadOnlyStore;
pub use record_cache::{RECORD_BYTES_MAX, RecordCache};
pub use varve_media::{
    Attempt, Counters, FileMapping, IoCause, IoClass, IoContext, JobId, Space, ZoneSpace, find_sound_answer,
};
