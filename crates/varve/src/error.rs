//! What can go wrong between a spec and a database.

use crate::spec::SpecError;
use varve_block::buffer::BufferError;
use varve_block::raid::ArrayError;
use varve_media::{MediaError, MediaErrorKind};
use varve_store::StoreError;

pub use varve_engine::ErrorKind;

/// What calls of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of this crate. [`Error::kind`] is what to decide by; the text is for people and says what was expected, where,
/// and what was found, with the text of the errors it was made from: these are no
/// [sources](std::error::Error::source), so that a chain of sources says nothing twice. Cheap to clone.
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
    /// An array cannot be opened.
    #[error(transparent)]
    Array(#[from] ArrayError),
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
            Error::Array(error) => array_kind(error),
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

fn array_kind(error: &ArrayError) -> ErrorKind {
    match error {
        ArrayError::Media(error) => media_kind(error.kind()),
        ArrayError::NotThere { .. } | ArrayError::TooFew { .. } => ErrorKind::NotFound,
        ArrayError::Damaged { .. } | ArrayError::Unsynced { .. } => ErrorKind::Corruption,
        ArrayError::OtherJournal { .. } => ErrorKind::Foreign,
        ArrayError::NotBlank { .. }
        | ArrayError::BlankMember { .. }
        | ArrayError::Foreign { .. }
        | ArrayError::Stale { .. }
        | ArrayError::Diverged { .. }
        | ArrayError::OtherVersion { .. }
        | ArrayError::OtherProtection { .. } => ErrorKind::Foreign,
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as StdError;
    use varve_media::Operation;

    fn number(error: &Error) -> usize {
        match error {
            Error::Spec(_) => 0,
            Error::Configuration { .. } => 1,
            Error::SavedOptions { .. } => 2,
            Error::OptionsNotSaved { .. } => 3,
            Error::Media(_) => 4,
            Error::Missing { .. } => 5,
            Error::Foreign { .. } => 6,
            Error::Buffer(_) => 7,
            Error::Array(_) => 8,
            Error::Store(_) => 9,
            Error::Engine(_) => 10,
        }
    }

    /// Every variant, and below those that hold another error each that holds one in turn, down to the operating system's.
    fn errors() -> Vec<Error> {
        let text = |text: &str| text.to_owned();
        let io = || MediaError::io("disk", Operation::Read, 4096, std::io::Error::other("cable cut"));
        let unreadable = || MediaError::Unreadable { device: text("disk"), offset_bytes: 512 };
        let of_store = || StoreError::Media { store: text("store"), name: text("7.sst"), error: io() };
        let undecided = || StoreError::Unreadable {
            store: text("store"),
            structure: text("journal"),
            offset_bytes: 512,
            expected: text("its end"),
            error: Box::new(unreadable()),
        };
        let of_engine = varve_engine::Error::KeyTooLong { found_bytes: 70_000, limit_bytes: 65_536 };
        vec![
            "disk:12XB?".parse::<crate::spec::Spec>().expect_err("no size").into(),
            Error::Configuration { path: Some(text("a.toml")), place: Some((1, 2)), reason: text("no number") },
            Error::SavedOptions { is_newer: true, expected: text("1"), found: text("2") },
            Error::OptionsNotSaved { wanted_bytes: 2, available_bytes: 1 },
            io().into(),
            unreadable().into(),
            Error::missing("db"),
            Error::Foreign { name: text("db"), found: text("a picture"), advice: text("look elsewhere") },
            BufferError::Media(io()).into(),
            ArrayError::Media(io()).into(),
            of_store().into(),
            undecided().into(),
            of_engine.into(),
            varve_engine::Error::Closed.into(),
            varve_engine::Error::Unreadable {
                file: text("7.sst"),
                first: b"a".to_vec(),
                last: b"m".to_vec(),
                error: Box::new(of_store()),
            }
            .into(),
            varve_engine::Error::Store(of_store()).into(),
            varve_engine::Error::Store(undecided()).into(),
        ]
    }

    #[test]
    fn a_chain_of_sources_says_nothing_twice() {
        let mut seen = std::collections::BTreeSet::new();
        for error in errors() {
            seen.insert(number(&error));
            let mut texts = vec![error.to_string()];
            let mut next: Option<&dyn StdError> = error.source();
            while let Some(source) = next {
                let of_source = source.to_string();
                assert!(
                    texts.iter().all(|text| !text.contains(&of_source)),
                    "'{of_source}' is said again after {texts:?}: {error:?}"
                );
                texts.push(of_source);
                next = source.source();
            }
        }
        assert_eq!(seen.len(), 11, "{seen:?}");
        let deepest = errors().iter().filter(|error| error.to_string().contains("cable cut")).count();
        assert_eq!(deepest, 6, "the cause stays in the text");
    }
}
