//! How long things take: device models as state machines over virtual nanoseconds.

mod disk;
mod immediate;
mod ssd;
mod translation;

pub(crate) use disk::data_share;
pub use disk::{
    CommandOverhead, Disk, DiskCacheParameters, DiskParameters, LayoutZone, MechanismParameters, Scheduling, SeekCurve,
    SurfaceOrder,
};
pub use immediate::Immediate;
pub use ssd::{Ssd, SsdParameters};
pub(crate) use translation::{CacheRecorded, fuzz_media_cache_record};
pub use translation::{
    CleaningOrder, Interrupted, MediaCacheRecord, ST8000AS0022_PUBLISHED_CACHE_BYTES, SpaceReclaim, Translation,
    TranslationLayer, TranslationParameters,
};

use crate::device::{Capabilities, CleaningCounters, TimeSpent};

/// What a device is asked to do, as far as time is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Bytes from the device.
    Read,
    /// Bytes to the device.
    Write {
        /// Complete only once on stable media.
        durable: bool,
    },
    /// Forgetting bytes.
    Discard,
    /// Emptying the zone of these bytes.
    ResetZone,
    /// Making the zone full whose unwritten bytes these are.
    FinishZone,
    /// Opening or closing a zone, or telling of zones.
    ManageZone,
    /// Everything that completed before is on stable media.
    Flush,
}

/// One request in a device's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Chosen by the submitter, handed back on completion. Unique among tasks in flight.
    pub id: u64,
    /// What to do.
    pub work: Work,
    /// First byte; 0 for a flush.
    pub offset_bytes: u64,
    /// Bytes; 0 for a flush.
    pub length_bytes: u64,
}

/// What a timing model counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaCounters {
    /// Bytes the medium wrote.
    pub written_bytes: u64,
    /// Bytes the medium read.
    pub read_bytes: u64,
    /// Arm movements of at least one cylinder.
    pub seeks: u64,
    /// Reads served from the device's cache.
    pub cache_hits: u64,
    /// Where time went; all parts and idle together are the time since the model began.
    pub time: TimeSpent,
    /// What the translation layer did, where there is one.
    pub cleaning: CleaningCounters,
}

/// A device's behaviour in time: a deterministic state machine without threads or clock.
///
/// Time is nanoseconds of the env the device lives in. Calls never go back in time. What happens
/// while nobody looks (write-back, read-ahead) is computed when somebody next does, with the
/// result it would have had; so `advance(t)` then `advance(u)` equals `advance(u)` alone.
pub trait Timing: Send {
    /// Adds to `capabilities` what this model makes of the device.
    fn describe(&self, capabilities: &mut Capabilities);

    /// Puts `task` in the queue at `now_nanos`. The caller has advanced to `now_nanos` before.
    fn submit(&mut self, now_nanos: u64, task: Task);

    /// Moves on to `now_nanos` and pushes the ids of the tasks that completed by then, in order
    /// of completion.
    fn advance(&mut self, now_nanos: u64, completed: &mut Vec<u64>);

    /// When to advance next so that no completion is late; `None` when no task is in flight.
    fn next_event_nanos(&self) -> Option<u64>;

    /// What was counted up to `now_nanos`, to which the caller has advanced.
    fn counters(&self, now_nanos: u64) -> MediaCounters;
}
