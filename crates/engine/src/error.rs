//! What can go wrong in a database.

use varve_store::{StoreError, StoreErrorKind, ZoneSpace, zones_advice};

/// The class of an [`Error`], for callers that decide what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A key, value, option or range that is never accepted.
    InvalidArgument,
    /// Bytes read are not what was written, or a file is not the one that belongs there; `check` tells more, `repair` mends what can be mended.
    Corruption,
    /// Not a database, of another version, or made with other options.
    Foreign,
    /// There is no database here and creating one was not asked for.
    NotFound,
    /// Already open elsewhere.
    Locked,
    /// No space; writes succeed again when there is.
    NoSpace,
    /// The medium failed.
    Io,
    /// Refusing writes since an ambiguous failure; open the database again.
    Poisoned,
    /// The database was closed.
    Closed,
    /// The database was opened for reading only.
    ReadOnly,
}

/// An error of a database. Cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Error {
    #[error("key of {found_bytes} bytes is too long; the limit is {limit_bytes} bytes")]
    KeyTooLong { found_bytes: usize, limit_bytes: usize },
    #[error("value of {found_bytes} bytes is too long; the limit is {limit_bytes} bytes")]
    ValueTooLong { found_bytes: usize, limit_bytes: usize },
    #[error("{what}: {reason}")]
    InvalidArgument { what: String, reason: String },
    #[error(
        "file '{file}' at offset {offset_bytes}: {structure} is damaged: expected {expected}, found {found}; run check to list all damage, repair to salvage the rest"
    )]
    Corruption { file: String, offset_bytes: u64, structure: String, expected: String, found: String },
    #[error(
        "file '{file}' is not the {structure} that belongs there: expected {expected}, found {found}; give every file its own name back, or take the right one from a copy; repair salvages the rest"
    )]
    Misplaced { file: String, structure: String, expected: String, found: String },
    #[error("file '{file}' at offset {offset_bytes}: expected {expected}, found {found}; {advice}")]
    Foreign { file: String, offset_bytes: u64, expected: String, found: String, advice: String },
    #[error(
        "a database with tree '{tree}' needs {part}, and the media it was given have none; give them, or choose another tree"
    )]
    MissingPart { tree: &'static str, part: &'static str },
    #[error("no database in '{store}'; create it by opening with create_if_missing")]
    Missing { store: String },
    #[error("a database exists in '{store}' and error_if_exists was asked for")]
    Exists { store: String },
    #[error("refusing writes since '{cause}'; close and open the database again")]
    Poisoned { cause: String },
    #[error(
        "no space: {available_bytes} bytes of '{store}' are available, and such writes leave {left_bytes} so that data can be deleted and compacted{}",
        no_space_advice(zones.as_ref())
    )]
    OutOfSpace {
        store: String,
        available_bytes: u64,
        left_bytes: u64,
        /// Of a store on zoned media.
        zones: Option<ZoneSpace>,
    },
    #[error("the database is closed")]
    Closed,
    #[error("'{store}' was opened for reading only; open it for writing to {operation}")]
    ReadOnly { store: String, operation: &'static str },
    /// The newest version of a key in this range, both ends inclusive, may be in a table that is not there.
    #[error(
        "keys from '{}' to '{}' cannot be read, as their table '{file}' is not there ({error}); keys outside that range can", first.escape_ascii(), last.escape_ascii()
    )]
    Unreadable { file: String, first: Vec<u8>, last: Vec<u8>, error: Box<StoreError> },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The end of the message of [`Error::OutOfSpace`]: what helps.
fn no_space_advice(zones: Option<&ZoneSpace>) -> String {
    match zones {
        Some(zones) => format!(": {zones}; {}, or copy the database to a larger medium", zones_advice(zones)),
        None => "; delete what is not needed, remove other files, or copy the database to a larger medium".to_owned(),
    }
}

impl Error {
    /// Of a write behind one that panicked between the log and where readers look.
    pub(crate) fn broken_off() -> Error {
        Error::Poisoned { cause: "a write before this one panicked".to_owned() }
    }

    /// The class of this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::KeyTooLong { .. }
            | Error::ValueTooLong { .. }
            | Error::InvalidArgument { .. }
            | Error::MissingPart { .. }
            | Error::Exists { .. } => ErrorKind::InvalidArgument,
            Error::Corruption { .. } | Error::Misplaced { .. } => ErrorKind::Corruption,
            Error::Foreign { .. } => ErrorKind::Foreign,
            Error::Missing { .. } => ErrorKind::NotFound,
            Error::Poisoned { .. } => ErrorKind::Poisoned,
            Error::OutOfSpace { .. } => ErrorKind::NoSpace,
            Error::Closed => ErrorKind::Closed,
            Error::ReadOnly { .. } => ErrorKind::ReadOnly,
            Error::Unreadable { .. } => ErrorKind::Io,
            // What the engine asks for was once there: a file that is too short lost something.
            Error::Store(StoreError::PastEnd { .. }) => ErrorKind::Corruption,
            Error::Store(error) => match error.kind() {
                StoreErrorKind::NotFound | StoreErrorKind::Corruption => ErrorKind::Corruption,
                StoreErrorKind::InvalidRequest => ErrorKind::InvalidArgument,
                StoreErrorKind::NoSpace => ErrorKind::NoSpace,
                StoreErrorKind::Locked => ErrorKind::Locked,
                StoreErrorKind::Foreign => ErrorKind::Foreign,
                StoreErrorKind::Poisoned => ErrorKind::Poisoned,
                StoreErrorKind::ReadOnly => ErrorKind::ReadOnly,
                _ => ErrorKind::Io,
            },
        }
    }
}
