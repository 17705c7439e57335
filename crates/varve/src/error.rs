//! What can go wrong between a spec and a database.

use crate::spec::SpecError;
use varve_block::buffer::BufferError;
use varve_media::{MediaError, MediaErrorKind};
use varve_store::StoreError;

pub use varve_engine::ErrorKind;

/// What calls of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of this crate. [`Error::kind`] is what to decide by; the text is for people and says what was expected, where,
/// and what was found; what the engine said is the [source](std::error::Error::source). Cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Error {
    /// The spec cannot be used.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A configuration file cannot be used, or an option of the database. Lines and columns count from 1.
    #[error("{}{reason}", where_it_is(.path.as_deref(), *.place))]
    Configuration { path: Option<String>, place: Option<(usize, usize)>, reason: String },
    /// The file with the options of the database cannot be read.
    #[error("the file OPTIONS: expected {expected}, found {found}{}", match .is_newer { true => "; it was written by a newer version", false => "; it is written anew when the database is next opened for writing" })]
    SavedOptions { is_newer: bool, expected: String, found: String },
    /// There is no space for the file with the options of the database.
    #[error(
        "the file OPTIONS: no space beside what the database may need: expected {wanted_bytes} bytes, found {available_bytes}"
    )]
    OptionsNotSaved { wanted_bytes: u64, available_bytes: u64 },
    /// The medium failed, or is not there.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// There is no medium at that place, and making one was not asked for.
    #[error("{name}: there is nothing; {advice}")]
    Missing { name: String, advice: &'static str },
    /// The medium holds something else.
    #[error("{name}: {found}; {advice}")]
    Foreign { name: String, found: String, advice: String },
    /// The write buffer of a disk cannot be opened.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The file store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database failed.
    #[error("{0}")]
    Engine(#[from] varve_engine::Error),
}

impl Error {
    /// [`Error::Missing`] where a write would make what is not there.
    pub(crate) fn missing(name: impl Into<String>) -> Error {
        Error::Missing { name: name.into(), advice: "create a database there first (a write does it)" }
    }

    /// The same error, said to be about the file at `path` if it is one about a configuration.
    pub fn in_file(self, path: &std::path::Path) -> Error {
        match self {
            Error::Configuration { place, reason, .. } => {
                Error::Configuration { path: Some(path.display().to_string()), place, reason }
            }
            error => error,
        }
    }

    /// The class of this error, for callers that decide what to do next.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Spec(_) | Error::Configuration { .. } => ErrorKind::InvalidArgument,
            Error::Media(error) => media_kind(error.kind()),
            Error::SavedOptions { is_newer: false, .. } => ErrorKind::Corruption,
            Error::OptionsNotSaved { .. } => ErrorKind::NoSpace,
            Error::Missing { .. } => ErrorKind::NotFound,
            Error::Foreign { .. } | Error::SavedOptions { .. } => ErrorKind::Foreign,
            Error::Buffer(error) => buffer_kind(error),
            Error::Store(error) => varve_engine::Error::Store(error.clone()).kind(),
            Error::Engine(error) => error.kind(),
        }
    }
}

/// `file:line:column: `, as far as that is known.
fn where_it_is(path: Option<&str>, place: Option<(usize, usize)>) -> String {
    match (path, place) {
        (Some(path), Some((line, column))) => format!("{path}:{line}:{column}: "),
        (Some(path), None) => format!("{path}: "),
        (None, Some((line, column))) => format!("configuration, line {line}, column {column}: "),
        (None, None) => String::new(),
    }
}

fn buffer_kind(error: &BufferError) -> ErrorKind {
    match error {
        BufferError::Media(error) => media_kind(error.kind()),
        BufferError::NotThere { .. } | BufferError::Missing { .. } => ErrorKind::NotFound,
        BufferError::Damaged { .. } => ErrorKind::Corruption,
        BufferError::OtherDisk { .. } | BufferError::NotBlank { .. } | BufferError::OtherVersion { .. } => {
            ErrorKind::Foreign
        }
        _ => ErrorKind::InvalidArgument,
    }
}

fn media_kind(kind: MediaErrorKind) -> ErrorKind {
    match kind {
        MediaErrorKind::InvalidRequest => ErrorKind::InvalidArgument,
        MediaErrorKind::Unreadable | MediaErrorKind::Protection | MediaErrorKind::Damaged => ErrorKind::Corruption,
        MediaErrorKind::OtherVersion => ErrorKind::Foreign,
        MediaErrorKind::NoSpace => ErrorKind::NoSpace,
        MediaErrorKind::NotFound => ErrorKind::NotFound,
        MediaErrorKind::Locked => ErrorKind::Locked,
        _ => ErrorKind::Io,
    }
}
