//! An error of a commit.

/// Why a group was not committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// A commit before it panicked.
    Poisoned,
}
