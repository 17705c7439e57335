//! Who asks for an I/O and why.

use varve_env::Instant;

/// The kind of work an I/O belongs to. Schedulers and counters use it; nothing else does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum IoClass {
    /// Not said.
    #[default]
    Other,
    /// A user is waiting for this read.
    UserRead,
    /// Append or sync of a write-ahead log.
    Log,
    /// A memtable becoming a table.
    Flush,
    /// Reading or writing tables in a compaction.
    Compaction,
    /// Manifests, file maps, superblocks.
    Metadata,
    /// Work a store or a block layer does by itself: migration, cleaning, read-modify-write.
    Maintenance,
    /// Reading everything to verify it.
    Check,
}

impl IoClass {
    /// Every class, in the order of [`IoClass::index`].
    pub const ALL: [IoClass; 8] = [
        IoClass::Other,
        IoClass::UserRead,
        IoClass::Log,
        IoClass::Flush,
        IoClass::Compaction,
        IoClass::Metadata,
        IoClass::Maintenance,
        IoClass::Check,
    ];

    /// Position of this class in [`IoClass::ALL`], for tables of counters.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The class in lower case, as printed in reports.
    pub fn name(self) -> &'static str {
        match self {
            IoClass::Other => "other",
            IoClass::UserRead => "user_read",
            IoClass::Log => "log",
            IoClass::Flush => "flush",
            IoClass::Compaction => "compaction",
            IoClass::Metadata => "metadata",
            IoClass::Maintenance => "maintenance",
            IoClass::Check => "check",
        }
    }
}

/// Why a layer below the caller does an I/O. Set by stores and block layers, `Direct` above them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum IoCause {
    /// The caller asked for these very bytes.
    #[default]
    Direct,
    /// Saving what a write is about to destroy.
    RewriteBackup,
    /// Putting back what a write destroyed.
    RewriteRestore,
    /// Moving data between places or devices.
    Migration,
    /// Filling a cache with what was read elsewhere.
    CacheFill,
    /// Reading or writing redundancy.
    Parity,
    /// Emptying a media cache or collecting garbage.
    Cleaning,
    /// Standing for requests of others that nobody makes, so that a device has their load: it says nothing of what will be asked for.
    Synthetic,
}

/// Number of a background job (a flush or a compaction), unique while a database is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// Which answer a read asks for. A reader has a checksum that tells a right answer from a wrong one, and a device with redundancy has
/// more answers than one: [`find_sound_answer`](crate::find_sound_answer) brings them together. Without effect on writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Attempt {
    /// What the device has.
    #[default]
    First,
    /// The answers before were wrong: the next one that differs from them, if the device can compute it, else the first one.
    /// Counts from 1.
    Again(u8),
    /// The last answer to the same request was right: a device that computed it writes it in place of the wrong copy.
    Accepted,
}

/// The label every I/O carries. Layers pass on what they do not use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoContext {
    /// Kind of work it began as; layers keep it.
    pub class: IoClass,
    /// What a layer made of it.
    pub cause: IoCause,
    /// Level of the tree the bytes belong to, when known.
    pub level: Option<u8>,
    /// Background job the I/O is part of.
    pub job: Option<JobId>,
    /// When the caller wants it done, for schedulers that order by deadline.
    pub deadline: Option<Instant>,
    /// Which answer a read asks for.
    pub attempt: Attempt,
}

impl IoContext {
    /// A context of `class` with nothing else said.
    pub const fn of(class: IoClass) -> Self {
        let (cause, attempt) = (IoCause::Direct, Attempt::First);
        IoContext { class, cause, level: None, job: None, deadline: None, attempt }
    }

    /// The same context for bytes of `level`.
    pub fn at_level(self, level: u8) -> Self {
        IoContext { level: Some(level), ..self }
    }

    /// The same context on behalf of `job`.
    pub fn for_job(self, job: JobId) -> Self {
        IoContext { job: Some(job), ..self }
    }
}
