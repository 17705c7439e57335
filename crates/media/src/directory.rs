//! A directory of a file system as a medium: what the `plain` store stands on.

use crate::context::IoContext;
use crate::error::{MediaError, Operation};
use std::fmt;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

mod mapping;
mod memory;
mod os;

pub(crate) use mapping::MappedMemory;
pub use mapping::{FileMapping, WritableMapping};
pub use memory::{DirectoryCrashState, MemoryDirectory, MemoryDirectoryOptions};
pub use os::OsDirectory;

/// How to open a file of a [`Directory`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// Open for writing too.
    pub write: bool,
    /// Create the file when it is not there (needs `write`).
    pub create: bool,
    /// Empty the file when it is there (needs `write`).
    pub truncate: bool,
    /// Bypass the page cache (O_DIRECT): offsets, lengths and buffers must be multiples of
    /// [`DirectoryFile::alignment_bytes`]. Falls back to buffered when the file system refuses.
    pub direct: bool,
}

/// One file of a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectoryEntry {
    /// File name, without a path.
    pub name: String,
    /// Length.
    pub size_bytes: u64,
}

/// Space of a file system or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All there is.
    pub total_bytes: u64,
    /// What can still be written.
    pub available_bytes: u64,
    /// What is kept beside it for work that gives back more than it takes: outputs of compactions.
    pub reserve_bytes: u64,
    /// A table takes less than this much more than its size: what it takes is given out in pieces of so many bytes at most.
    pub block_bytes: u64,
    /// The same in zones, of a store on zoned media.
    pub zones: Option<ZoneSpace>,
}

/// Use of the zones of a store; sums over its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneSpace {
    /// Writable bytes of a zone, the largest where devices differ.
    pub zone_bytes: u64,
    /// Number of zones that can hold files.
    pub total: u32,
    /// Number of zones that are free, or will be once removals are durable.
    pub free: u32,
    /// Number of free zones that are kept for outputs of compactions, logs, and copies out of zones that are emptied.
    pub kept: u32,
    /// Writable bytes of the zones that hold tables or cached blocks, full or not.
    pub table_zones_bytes: u64,
    /// Several tables may lie in one zone.
    pub is_shared: bool,
}

impl fmt::Display for ZoneSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ZoneSpace { zone_bytes, total, free, kept, .. } = self;
        write!(
            f,
            "{free} of {total} zones of {zone_bytes} bytes are free, and {kept} are kept for logs and compactions"
        )
    }
}

/// A flat directory with POSIX durability.
///
/// - File *contents* are durable after [`DirectoryFile::sync`]; until then a crash keeps, loses or
///   tears any of them (at 512 bytes), and the length too.
/// - *Names* (create, rename, remove) are durable after [`Directory::sync`]; until then a crash
///   keeps any prefix-closed-per-name subset of them. A rename is atomic: the target is the old
///   file or the new one, never neither.
/// - Names are single path components of 1 to 255 bytes, not `.` or `..`.
///
/// Thread-safe. Never panics on input.
pub trait Directory: Send + Sync {
    /// Path or label, for messages.
    fn name(&self) -> &str;
    /// Opens or creates a file.
    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn DirectoryFile>, MediaError>;
    /// Renames, replacing the target atomically.
    fn rename(&self, from: &str, to: &str) -> Result<(), MediaError>;
    /// Removes a name. Open files stay readable.
    fn remove(&self, name: &str) -> Result<(), MediaError>;
    /// All files (not subdirectories), sorted by name.
    fn list(&self) -> Result<Vec<DirectoryEntry>, MediaError>;
    /// Makes every name change so far durable.
    fn sync(&self) -> Result<(), MediaError>;
    /// Takes an exclusive lock on a name until the guard is dropped or the process ends. Refused
    /// at once ([`MediaError::Locked`]) when another process or another guard holds it.
    fn lock(&self, name: &str) -> Result<Box<dyn DirectoryLock>, MediaError>;
    /// Space left.
    fn space(&self) -> Result<Space, MediaError>;
    /// Where the directory is in the file system of the machine, if it is there at all: lets two
    /// directories share files by hard link.
    fn path(&self) -> Option<&std::path::Path>;
    /// Makes `name` of this directory appear as `target_name` in the directory at `target` without
    /// copying (hard link). `Ok(false)` when the two places cannot share.
    fn link(&self, name: &str, target: &std::path::Path, target_name: &str) -> Result<bool, MediaError>;
}

/// Held lock of a [`Directory`]; dropping it releases.
pub trait DirectoryLock: Send + Sync {}

/// An open file of a [`Directory`]. Thread-safe.
pub trait DirectoryFile: Send + Sync {
    /// Reads up to `data.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<usize, MediaError>;
    /// Writes all of `data`, growing the file as needed.
    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>], context: &IoContext) -> Result<(), MediaError>;
    /// Makes contents and length durable (fdatasync).
    fn sync(&self, context: &IoContext) -> Result<(), MediaError>;
    /// Length now.
    fn size_bytes(&self) -> Result<u64, MediaError>;
    /// Cuts or extends with zeros.
    fn truncate(&self, size_bytes: u64) -> Result<(), MediaError>;
    /// Reserves space up to `size_bytes` without changing the length (fallocate); a hint.
    fn allocate(&self, size_bytes: u64) -> Result<(), MediaError>;
    /// Says a range will be read soon (fadvise); a hint.
    fn prefetch(&self, offset_bytes: u64, length_bytes: u64);
    /// The file as it is now, in the memory of the process, for one that grows no more. None where there is no such thing: the
    /// medium has no pages to share, is to see every read (tracing, faults), or the file was opened to bypass the page cache.
    fn map(&self) -> Option<FileMapping>;
    /// A range of the file in the memory of the process, to be written there; it begins and ends at a page, and the file is as long
    /// and has space for it (see [`DirectoryFile::allocate`]). None where there is no such thing, as with [`DirectoryFile::map`], and
    /// where the file system may need space to write again what it has.
    fn map_for_writing(&self, range: Range<u64>) -> Option<WritableMapping>;
    /// Alignment a direct open needs, in bytes; 1 for a buffered one.
    fn alignment_bytes(&self) -> u32;
}

/// Refuses what is not one path component of 1 to 255 bytes.
pub(crate) fn check_name(device: &str, operation: Operation, name: &str) -> Result<(), MediaError> {
    let rule = if name.is_empty() {
        "a name has at least one byte"
    } else if name.len() > 255 {
        "a name has at most 255 bytes"
    } else if name == "." || name == ".." {
        "'.' and '..' are not names of files"
    } else if name.contains(['/', '\0']) {
        "a name contains neither '/' nor NUL"
    } else {
        return Ok(());
    };
    Err(MediaError::Rule {
        device: device.to_owned(),
        operation,
        offset_bytes: 0,
        rule: format!("{rule} (found {:?})", name.chars().take(64).collect::<String>()),
    })
}
