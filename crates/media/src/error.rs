//! What can go wrong on a medium.

use crate::protection::ProtectionTag;
use crate::zones::{ZoneId, ZoneRefusal};
use std::sync::Arc;

/// What was being done when an error came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Operation {
    Read,
    Write,
    Discard,
    Sync,
    Open,
    Rename,
    Remove,
    List,
    SyncDirectory,
    Truncate,
    Lock,
    Zone,
    Track,
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Discard => "discard",
            Operation::Sync => "sync",
            Operation::Open => "open",
            Operation::Rename => "rename",
            Operation::Remove => "remove",
            Operation::List => "list",
            Operation::SyncDirectory => "directory sync",
            Operation::Truncate => "truncate",
            Operation::Lock => "lock",
            Operation::Zone => "zone command",
            Operation::Track => "track command",
        })
    }
}

/// The class of a [`MediaError`], for callers that decide what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MediaErrorKind {
    /// The caller asked for something the device never does (range, alignment, rule).
    InvalidRequest,
    /// The medium cannot deliver these bytes any more.
    Unreadable,
    /// No space is left.
    NoSpace,
    /// A name that does not exist.
    NotFound,
    /// Another process holds the lock.
    Locked,
    /// Permission, or a device or zone that is read-only.
    ReadOnly,
    /// A zone that is dead, with its data.
    Offline,
    /// Bytes that describe the medium are wrong.
    Damaged,
    /// Bytes that describe the medium are of a version that is not known here.
    OtherVersion,
    /// Protection information and data disagree.
    Protection,
    /// Anything else the device or the operating system reported.
    Io,
}

/// An error of a device or a directory. Cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum MediaError {
    /// Request beyond the end of the device.
    #[error(
        "{device}: {operation} of {length_bytes} bytes at offset {offset_bytes} is outside the device of {capacity_bytes} bytes"
    )]
    OutOfRange { device: String, operation: Operation, offset_bytes: u64, length_bytes: u64, capacity_bytes: u64 },
    /// Offset, length or buffer not a multiple of what the device needs.
    #[error(
        "{device}: {operation} of {length_bytes} bytes at offset {offset_bytes} is not aligned to {required_bytes} bytes"
    )]
    Misaligned { device: String, operation: Operation, offset_bytes: u64, length_bytes: u64, required_bytes: u64 },
    /// The request breaks a rule of the medium (write pointer, strict overlap, missing protection, ...).
    #[error("{device}: {operation} at offset {offset_bytes} breaks a rule of the medium: {rule}")]
    Rule { device: String, operation: Operation, offset_bytes: u64, rule: String },
    /// The sector was destroyed or damaged; rewriting it makes it readable again.
    #[error("{device}: unreadable sector at offset {offset_bytes}; restore the data from elsewhere and rewrite it")]
    Unreadable { device: String, offset_bytes: u64 },
    /// The state of a zone does not allow the request, which changed nothing.
    #[error("{device}: {operation} at offset {offset_bytes} (zone {zone}) was refused: {refusal}")]
    Zone { device: String, operation: Operation, zone: ZoneId, offset_bytes: u64, refusal: ZoneRefusal },
    /// Bytes that describe the medium are not what they must be.
    #[error(
        "{device}: {what} at offset {offset_bytes}: expected {expected}, found {found}; name the sizes it was made \
         with, or restore it from a copy"
    )]
    Damaged { device: String, offset_bytes: u64, what: String, expected: String, found: String },
    /// The record of what lies in a media cache is not what it must be. No data hang on it.
    #[error(
        "{device}: {what} at offset {offset_bytes}: expected {expected}, found {found}; name the sizes it was made \
         with, or restore it from a copy, or remove this file: no data are in it, and without it the drive begins with \
         little in its media cache"
    )]
    DamagedCacheRecord { device: String, offset_bytes: u64, what: String, expected: String, found: String },
    /// Bytes that describe the medium are sound, and of a version that is not known here.
    #[error(
        "{device}: {what}: version {readable} can be read, found version {found}; open it with the version that made it"
    )]
    OtherVersion { device: String, what: String, readable: u32, found: u32 },
    /// What is there is of a type that data cannot be kept in.
    #[error("{device}: it is {found}, and {expected} is needed ({operation})")]
    Unsuitable { device: String, operation: Operation, found: String, expected: String },
    /// No space left.
    #[error(
        "{device}: no space left ({operation} of {length_bytes} bytes at offset {offset_bytes}); free space and retry"
    )]
    NoSpace { device: String, operation: Operation, offset_bytes: u64, length_bytes: u64 },
    /// The named file is not there.
    #[error("{device}: no file named '{name}' ({operation})")]
    NotFound { device: String, operation: Operation, name: String },
    /// The lock is held elsewhere.
    #[error("{device}: '{name}' is locked by another process or another open of this store; close that one first")]
    Locked { device: String, name: String },
    /// Protection information and data disagree.
    #[error(
        "{device}: {operation} at offset {offset_bytes}: {tag} is {found:#x}, expected {expected:#x}; repeat the request, then \
         restore the data from elsewhere and rewrite it"
    )]
    Protection {
        device: String,
        operation: Operation,
        offset_bytes: u64,
        tag: ProtectionTag,
        expected: u32,
        found: u32,
    },
    /// The operating system or the device said no.
    #[error("{device}: {operation} at offset {offset_bytes} failed: {error}")]
    Io { device: String, operation: Operation, offset_bytes: u64, error: Arc<std::io::Error> },
}

impl MediaError {
    /// The class of this error.
    pub fn kind(&self) -> MediaErrorKind {
        match self {
            MediaError::OutOfRange { .. }
            | MediaError::Misaligned { .. }
            | MediaError::Rule { .. }
            | MediaError::Unsuitable { .. } => MediaErrorKind::InvalidRequest,
            MediaError::Zone { refusal: ZoneRefusal::ReadOnly, .. } => MediaErrorKind::ReadOnly,
            MediaError::Zone { refusal: ZoneRefusal::Offline, .. } => MediaErrorKind::Offline,
            MediaError::Zone { .. } => MediaErrorKind::InvalidRequest,
            MediaError::Damaged { .. } | MediaError::DamagedCacheRecord { .. } => MediaErrorKind::Damaged,
            MediaError::OtherVersion { .. } => MediaErrorKind::OtherVersion,
            MediaError::Unreadable { .. } => MediaErrorKind::Unreadable,
            MediaError::NoSpace { .. } => MediaErrorKind::NoSpace,
            MediaError::NotFound { .. } => MediaErrorKind::NotFound,
            MediaError::Locked { .. } => MediaErrorKind::Locked,
            MediaError::Protection { .. } => MediaErrorKind::Protection,
            MediaError::Io { error, .. } => match error.kind() {
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => MediaErrorKind::NoSpace,
                std::io::ErrorKind::NotFound => MediaErrorKind::NotFound,
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                    MediaErrorKind::ReadOnly
                }
                _ => MediaErrorKind::Io,
            },
        }
    }

    /// The medium says that what was there is lost, and it stays lost until it is written again. Other failures say
    /// nothing about what is there.
    pub fn is_loss(&self) -> bool {
        matches!(
            self.kind(),
            MediaErrorKind::Unreadable | MediaErrorKind::Protection | MediaErrorKind::Offline | MediaErrorKind::Damaged
        )
    }

    /// Wraps an error of the operating system.
    pub fn io(device: &str, operation: Operation, offset_bytes: u64, error: std::io::Error) -> Self {
        MediaError::Io { device: device.to_owned(), operation, offset_bytes, error: Arc::new(error) }
    }
}
