//! What can go wrong between a spec and a database.

use crate::spec::SpecError;
use varve_media::{MediaError, MediaErrorKind};
use varve_store::StoreError;

pub use varve_engine::ErrorKind;

/// An error of the facade. Cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Error {
    /// The spec cannot be used.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A configuration file cannot be used.
    #[error("configuration{at}: {reason}", at = match .path { Some(path) => format!(" '{path}'"), None => String::new() })]
    Configuration { path: Option<String>, reason: String },
    /// The medium failed, or is not there.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// There is no medium at that place, and making one was not asked for.
    #[error("{name}: there is nothing; {advice}")]
    Missing { name: String, advice: &'static str },
    /// The medium holds something else.
    #[error("{name}: {found}; {advice}")]
    Foreign { name: String, found: String, advice: String },
    /// The file store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database failed.
    #[error(transparent)]
    Engine(#[from] varve_engine::Error),
}

impl Error {
    /// [`Error::Missing`] where a write would make what is not there.
    pub(crate) fn missing(name: impl Into<String>) -> Error {
        Error::Missing { name: name.into(), advice: "create a database there first (a write does it)" }
    }

    /// The class of this error, for callers that decide what to do next.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Spec(_) | Error::Configuration { .. } => ErrorKind::InvalidArgument,
            Error::Media(error) => media_kind(error.kind()),
            Error::Missing { .. } => ErrorKind::NotFound,
            Error::Foreign { .. } => ErrorKind::Foreign,
            Error::Store(error) => varve_engine::Error::Store(error.clone()).kind(),
            Error::Engine(error) => error.kind(),
        }
    }
}

fn media_kind(kind: MediaErrorKind) -> ErrorKind {
    match kind {
        MediaErrorKind::InvalidRequest => ErrorKind::InvalidArgument,
        MediaErrorKind::Unreadable | MediaErrorKind::Protection => ErrorKind::Corruption,
        MediaErrorKind::NoSpace => ErrorKind::NoSpace,
        MediaErrorKind::NotFound => ErrorKind::NotFound,
        MediaErrorKind::Locked => ErrorKind::Locked,
        _ => ErrorKind::Io,
    }
}
