//! Why a write buffer cannot be opened.

use super::record::Flaw;
use crate::journal::JournalError;
use varve_media::MediaError;

/// Why a write buffer cannot be opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum BufferError {
    /// A device said no.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// A device that cannot be one of the two.
    #[error("{device}: a write buffer needs {expected}, found {found}")]
    Unsuitable { device: String, expected: String, found: String },
    /// Not enough room for the pages asked for.
    #[error(
        "{device}: {found_bytes} bytes do not hold a write buffer that needs {needed_bytes}; take a larger device, fewer pages, or do without \
         rewriting of zones"
    )]
    TooSmall { device: String, needed_bytes: u64, found_bytes: u64 },
    /// Both devices are blank, and making a buffer was not asked for.
    #[error("{disk}: it has no write buffer, and {device} holds none; both are blank")]
    NotThere { disk: String, device: String },
    /// The disk has a buffer, and this is not it.
    #[error(
        "{disk}: it has a write buffer of {pages_max} pages, whose device {device} is not ({found}): the newest writes to the disk may be \
         there and nowhere else. Give the device that has them, or open with the loss of them accepted"
    )]
    Missing { disk: String, device: String, found: String, pages_max: u32 },
    /// The buffer is of another disk.
    #[error(
        "{device}: it is the write buffer of another disk than {disk} and holds {pages} pages of that; give that disk, or format the buffer"
    )]
    OtherDisk { device: String, disk: String, pages: u64 },
    /// Made with other numbers.
    #[error(
        "{device}: the write buffer was made with {what} {found}, not {wanted}; name what it was made with, or format it once it is empty"
    )]
    OtherParameters { device: String, what: &'static str, found: u64, wanted: u64 },
    /// Something else is there.
    #[error("{device}: it holds something that is no write buffer ({found}); format it if nothing on it is needed")]
    NotBlank { device: String, found: String },
    /// What describes the buffer cannot be read.
    #[error(
        "{device}: {what} of the write buffer: expected {expected}, found {found}; its pages are the newest writes to the disk: restore the device \
         from a copy, or open with the loss of them accepted"
    )]
    Damaged { device: String, what: &'static str, expected: String, found: String },
    /// Sound, and of a version that is not known here.
    #[error(
        "{device}: version {readable} of write buffers can be read, found version {found}; open it with the version that made it"
    )]
    OtherVersion { device: String, readable: u32, found: u32 },
}

impl BufferError {
    pub(super) fn damaged(device: &str, flaw: Flaw) -> Self {
        let Flaw { what, expected, found } = flaw;
        BufferError::Damaged { device: device.to_owned(), what, expected, found }
    }

    pub(super) fn other_version(device: &str, readable: u32, found: u32) -> Self {
        BufferError::OtherVersion { device: device.to_owned(), readable, found }
    }

    pub(super) fn of_journal(device: &str, error: JournalError) -> Self {
        match error {
            JournalError::Media(error) => BufferError::Media(error),
            JournalError::OtherVersion { readable, found } => BufferError::other_version(device, readable, found),
            JournalError::Damaged(flaw) => BufferError::Damaged {
                device: device.to_owned(),
                what: "page map",
                expected: flaw.expected,
                found: format!("{} ({} at offset {})", flaw.found, flaw.what, flaw.offset_bytes),
            },
        }
    }
}

/// Why a write buffer stopped, and what it holds that the disk does not have.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "the write buffer stopped when {operation} failed: {source}. It holds {pages} pages that the disk does not have{first}; writes and syncs are \
     refused until it is opened again"
)]
pub(super) struct Stopped {
    pub(super) operation: &'static str,
    pub(super) source: MediaError,
    pub(super) pages: usize,
    pub(super) first: String,
}
