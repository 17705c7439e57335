//! The file store interface.

use crate::access_times::AccessTimes;
use crate::error::StoreError;
use crate::hint::Hint;
use crate::occupancy::{Occupancy, StoreMeasure};
use crate::record_cache::RecordCache;
use std::path::PathBuf;
use std::sync::Arc;
use varve_media::{Counters, FileMapping, IoContext, JobId, Space};

/// What a file holds, for placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileKind {
    /// Immutable sorted table, written once in order.
    Table,
    /// Write-ahead log: appended, synced often, read when recovering.
    Log,
    /// Manifest: appended and synced at every change of the tree's shape.
    Manifest,
    /// Small file replaced atomically by rename.
    Pointer,
    /// Removed before the process ends, or at the next open.
    Temporary,
    /// Anything else.
    #[default]
    Other,
}

/// What is known about a file when it is created. Everything but the kind is advice.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateOptions {
    /// What it will hold.
    pub kind: FileKind,
    /// Level of the tree, when the tree has levels and knows it.
    pub level: Option<u8>,
    /// Flush or compaction that writes it.
    pub job: Option<JobId>,
    /// Upper bound of the size to come.
    pub expected_size_bytes: Option<u64>,
    /// Bypass any cache of the operating system.
    pub direct: bool,
    /// Write through memory that the file is mapped to, where the medium has that, instead of a call of the system for each
    /// piece.
    pub map: bool,
}

/// How to open a file for reading.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Bypass any cache of the operating system.
    pub direct: bool,
}

/// One file of a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileEntry {
    /// Name.
    pub name: String,
    /// Bytes in it.
    pub size_bytes: u64,
}

/// Where a store is, for stores that can share files with each other.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Location {
    /// A directory of the machine.
    Directory(PathBuf),
    /// Nowhere another store could reach.
    Private,
}

/// What a store is good at, by value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreProperties {
    /// Reads at multiples of this, of multiples of this, into buffers so aligned, avoid a copy when
    /// the file was opened `direct`; 1 when any will do. Every read works whatever its alignment.
    pub read_alignment_bytes: u32,
    /// Neighbours in a file are neighbours in time: large reads pay.
    pub rotational: bool,
    /// What reaching another place and transferring takes; that of the device where positioning costs most transfer, if there are several.
    pub access: AccessTimes,
    /// Files are placed by their level: those of low levels on faster devices.
    pub places_by_level: bool,
    /// Table size the medium likes (a band, a zone, some tracks), if it has one.
    pub preferred_table_bytes: Option<u64>,
    /// Bytes of a table that should be read or written at once by those nobody waits for, if the store knows: no less costs much
    /// positioning, no more makes others wait long.
    pub preferred_transfer_bytes: Option<u64>,
    /// Largest table it can hold, filter and index included.
    pub table_bytes_max: u64,
    /// Wants [`Hint::CacheEvicted`]; trees skip the work when false.
    pub wants_evictions: bool,
    /// Wants [`Hint::BlockRewritten`]; trees skip the work when false.
    pub wants_rewrites: bool,
    /// A flush of a file is a request to the device. False when it is a copy into a cache that
    /// outlives the process, as an operating system's.
    pub flush_is_device_request: bool,
    /// Where it is.
    pub location: Location,
}

/// One piece of a [`ReadableFile::read_many`].
#[derive(Debug)]
pub struct ReadRange<'a> {
    /// First byte in the file.
    pub offset_bytes: u64,
    /// Filled whole, or `outcome` is an error.
    pub data: &'a mut [u8],
    /// How this read ended; `Ok` before.
    pub outcome: Result<(), StoreError>,
}

/// How bad a [`Finding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Untidy; nothing is lost and the next open mends it.
    Warning,
    /// Something is damaged; the rest is usable.
    Error,
    /// The store cannot be used.
    Fatal,
}

/// Something `check` found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// Stable kebab-case code, one per kind of damage.
    pub code: &'static str,
    /// What, where, expected and found, for people.
    pub message: String,
}

impl Finding {
    /// Damage that costs something.
    pub(crate) fn error(code: &'static str, message: String) -> Finding {
        Finding { severity: Severity::Error, code, message }
    }

    /// What a store could not be opened for.
    pub(crate) fn unreadable(error: &StoreError) -> Finding {
        Finding { severity: Severity::Fatal, code: "metadata-unreadable", message: error.to_string() }
    }
}

/// Held lock of a store; dropping it releases.
pub trait StoreLock: Send + Sync {}

/// Files over a medium. Thread-safe; every call may be made from any thread.
///
/// Names are arbitrary: 1 to 255 bytes of UTF-8 without NUL. (In `plain`, `/` and `%` count three
/// bytes each; a longer name is refused.) Contract (conformance and crash suites check it on every
/// store):
/// - *Create* replaces a file of the same name at once for readers who open later; until the new
///   file's first sync a crash leaves the old one, the new one with any part of its data, or none.
///   *Any part* here and below: bytes behind what was synced are those appended there, zeros, or
///   missing; never bytes of another file. A file may be longer than was synced, by zeros too.
/// - *Sync* of a file makes its contents, its length, its name and its place durable.
/// - *Rename* replaces the target atomically and is durable when it returns: a crash during it
///   leaves both names as they were, or as they shall be.
/// - *Remove* is atomic; it is durable after `sync_names`, a `rename`, or the sync of any file
///   created later. Space is not reused before the removal is durable. Open readers go on reading.
/// - A failed sync poisons the file: later syncs of it fail too. Where one sync serves several files,
///   it poisons them all, up to the whole store; reads of what was durable go on.
pub trait FileStore: Send + Sync {
    /// Label for messages: the spec or the path.
    fn name(&self) -> &str;

    /// What the store is good at. Constant while open.
    fn properties(&self) -> &StoreProperties;

    /// Creates or replaces a file for writing.
    fn create(&self, name: &str, options: &CreateOptions) -> Result<Box<dyn WritableFile>, StoreError>;

    /// Opens a file for reading. A file still being written can be opened: what was flushed is seen.
    fn open(&self, name: &str, options: &OpenOptions) -> Result<Arc<dyn ReadableFile>, StoreError>;

    /// Renames, replacing the target (see the contract).
    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError>;

    /// Removes a file (see the contract). An error when it is not there.
    fn remove(&self, name: &str) -> Result<(), StoreError>;

    /// Makes every create, rename and remove so far durable.
    fn sync_names(&self) -> Result<(), StoreError>;

    /// Every file, sorted by name.
    fn list(&self) -> Result<Vec<FileEntry>, StoreError>;

    /// Takes an exclusive lock on a name, refused at once when it is held by any other open.
    fn lock(&self, name: &str) -> Result<Box<dyn StoreLock>, StoreError>;

    /// Makes `name` appear in the store at `target` without copying; `Ok(false)` when the two
    /// cannot share, and then the caller copies.
    fn share(&self, name: &str, target: &Location, target_name: &str) -> Result<bool, StoreError>;

    /// Space left.
    fn space(&self) -> Result<Space, StoreError>;

    /// Gives back space that the store holds without need, at the cost of copying little, for a caller that would otherwise
    /// refuse a write. False if there was none to give back; [`space`](Self::space) says what there is afterwards. Files stay as
    /// they are.
    fn reclaim_space(&self) -> Result<bool, StoreError>;

    /// Takes a hint. Never fails, never waits for I/O.
    fn hint(&self, hint: &Hint<'_>);

    /// What the devices below did, by device name; empty when the medium does not count.
    fn counters(&self) -> Vec<(String, Counters)>;

    /// What the store itself did since it was opened, in an order that does not change; empty when it
    /// counts nothing.
    fn statistics(&self) -> Vec<StoreMeasure>;

    /// How it is laid out, for people: what, and how; empty when there is nothing to say. Constant while open.
    fn layout(&self) -> Vec<(&'static str, String)>;

    /// What lies where on the devices; empty when the store does not know. Takes time and memory in
    /// proportion to the pieces, and no I/O.
    fn occupancy(&self) -> Occupancy;

    /// Verifies the store's own structures against each other and the medium.
    fn check(&self) -> Result<Vec<Finding>, StoreError>;
}

/// A file being written, in order. One owner; may move between threads.
///
/// Dropping it without `finish` keeps what was flushed.
pub trait WritableFile: Send {
    /// Adds bytes at the end. They may stay in a buffer of the process until `flush`.
    fn append(&mut self, data: &[u8], context: &IoContext) -> Result<(), StoreError>;

    /// Hands everything appended to the medium: readers see it. Of a [`FileKind::Log`] or
    /// [`FileKind::Manifest`] it also survives the end of the process (not of the machine). Files of
    /// other kinds survive it once synced: on a raw device their length is metadata, which costs a sync.
    fn flush(&mut self, context: &IoContext) -> Result<(), StoreError>;

    /// Has the medium write down what it was handed and still keeps in a cache, so that the next sync finds little left to
    /// do: a long file written back every few mebibytes keeps nobody else's sync waiting. Promises nothing, and does
    /// nothing where a file stays in the process until it is synced.
    fn write_back(&mut self, context: &IoContext) -> Result<(), StoreError>;

    /// Flushes and makes everything durable (see the contract of [`FileStore`]).
    fn sync(&mut self, context: &IoContext) -> Result<(), StoreError>;

    /// Says the level when it was not known at create. Without effect after the first flush or sync.
    fn set_level(&mut self, level: u8);

    /// Bytes appended so far.
    fn size_bytes(&self) -> u64;

    /// Flushes and closes; gives back space reserved beyond the size.
    fn finish(self: Box<Self>, context: &IoContext) -> Result<(), StoreError>;
}

/// A file open for reading. Thread-safe.
pub trait ReadableFile: Send + Sync {
    /// Bytes readable now.
    fn size_bytes(&self) -> u64;

    /// Fills `data` from `offset_bytes`; past the end is an error.
    fn read_at(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<(), StoreError>;

    /// Does every read, all in flight at once where the medium can; the result is the first error.
    fn read_many(&self, ranges: &mut [ReadRange<'_>], context: &IoContext) -> Result<(), StoreError>;

    /// Says that a range will be read soon.
    fn prefetch(&self, offset_bytes: u64, length_bytes: u64, context: &IoContext);

    /// The file as it is now, in the memory of the process, for one that was written whole. None where the medium has
    /// nothing of the kind, which is any but a directory of the machine. Each call maps the file anew.
    fn map(&self) -> Option<FileMapping>;

    /// Records of the file that are kept nearer than their blocks. None where the store keeps none; which does not change while
    /// the file is open.
    fn records(&self) -> Option<&dyn RecordCache>;
}
