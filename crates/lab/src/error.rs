//! What can go wrong in the lab.

use crate::media::MediaError;
use crate::replay::ReplayError;
use crate::target::TargetError;

/// An error of a workload, a run or an experiment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum LabError {
    #[error("{what}: {reason}")]
    Invalid { what: String, reason: String },
    #[error("no experiment is called '{id}'; `varve lab list` shows all{hint}")]
    UnknownExperiment { id: String, hint: String },
    #[error("{operation} on {target}: {error}")]
    Target { target: String, operation: &'static str, error: TargetError },
    #[error(
        "{target}: the value read under key {key} is not one that was written there ({found_bytes} bytes): {found}"
    )]
    WrongValue { target: String, key: String, found_bytes: usize, found: String },
    #[error(transparent)]
    Media(#[from] MediaError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("{path}: {reason}")]
    File { path: String, reason: String },
    #[error("thread '{thread}' panicked: {message}")]
    Panicked { thread: String, message: String },
    #[error("{program}: {reason}")]
    Program { program: String, reason: String },
}

impl LabError {
    /// An argument that is never accepted, and why.
    pub fn invalid(what: impl Into<String>, reason: impl Into<String>) -> LabError {
        LabError::Invalid { what: what.into(), reason: reason.into() }
    }

    /// A file that could not be read, written or understood.
    pub fn file(path: impl Into<String>, reason: impl ToString) -> LabError {
        LabError::File { path: path.into(), reason: reason.to_string() }
    }
}

impl From<varve_env::Panicked> for LabError {
    fn from(panicked: varve_env::Panicked) -> LabError {
        LabError::Panicked { thread: panicked.thread().to_owned(), message: panicked.message().to_owned() }
    }
}
