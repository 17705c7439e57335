//! An error of a commit.

/// Why a group was not committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// A commit before it panicked.
    Poisoned,
}

impl Error {
    /// Of a write behind one that panicked between the log and where readers look.
    pub(crate) fn broken_off() -> Error {
        Error::Poisoned
    }
}
