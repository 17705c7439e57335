//! How a command ends: exit codes.

use serde_json::json;
use std::fmt;
use varve::{Error, ErrorKind};

/// The exit codes, for `varve --help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  no such key; check found damage; some of the input or output, or an experiment, was skipped
  2  the command line, a spec, an option or the input is wrong
  3  input or output failed
  4  corruption: what was read is not what was written
  5  locked: another process has the database open
  6  no database there, or one of another program or a newer version
  7  no space left";

/// How a command that did its work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Exit code 0.
    Done,
    /// Exit code 1.
    Negative,
    /// Exit code 7: what was asked about would find no space.
    NoSpace,
}

/// Why a command did not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The store said no.
    Store(Error),
    /// The lab said no.
    Lab(varve_lab::LabError),
    /// Of several experiments these failed, and were told; the kind is that of the first.
    Experiments { failed: String, kind: ErrorKind },
    /// What the user asked for, or gave as input, is wrong.
    Usage(String),
    /// A file, or a standard stream, could not be read or written.
    Io { what: String, error: std::io::Error },
    /// Whoever read our output has seen enough.
    BrokenPipe,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure::Usage(message.into())
    }

    pub(crate) fn io(what: impl Into<String>, error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::Io { what: what.into(), error },
        }
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Failure::Store(error) => error.kind(),
            Failure::Lab(error) => lab_kind(error),
            Failure::Experiments { kind, .. } => *kind,
            Failure::Usage(_) => ErrorKind::InvalidArgument,
            Failure::Io { error, .. } if error.kind() == std::io::ErrorKind::StorageFull => ErrorKind::NoSpace,
            Failure::Io { .. } | Failure::BrokenPipe => ErrorKind::Io,
        }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::BrokenPipe => 0,
            _ => match self.kind() {
                ErrorKind::InvalidArgument => 2,
                ErrorKind::Corruption => 4,
                ErrorKind::Locked => 5,
                ErrorKind::Foreign | ErrorKind::NotFound => 6,
                ErrorKind::NoSpace => 7,
                _ => 3,
            },
        }
    }

    /// Tells the user, on standard error.
    pub(crate) fn report(&self, json: bool) {
        if matches!(self, Failure::BrokenPipe) {
            return;
        }
        if json {
            eprintln!("{}", json!({"error": self.to_string(), "kind": kind_name(self.kind()), "code": self.code()}));
            return;
        }
        eprintln!("varve: {self}");
        if let Failure::Store(Error::Spec(error)) = self {
            let pointer = error.pointer();
            if !pointer.is_empty() {
                eprintln!("{pointer}");
            }
        }
    }
}

fn lab_kind(error: &varve_lab::LabError) -> ErrorKind {
    use varve_lab::LabError;
    match error {
        LabError::Invalid { .. } | LabError::UnknownExperiment { .. } | LabError::Replay(_) => {
            ErrorKind::InvalidArgument
        }
        LabError::WrongValue { .. } => ErrorKind::Corruption,
        LabError::Target { error, .. } => error.downcast_ref::<Error>().map_or(ErrorKind::Io, Error::kind),
        _ => ErrorKind::Io,
    }
}

fn kind_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidArgument => "invalid_argument",
        ErrorKind::Corruption => "corruption",
        ErrorKind::Foreign => "foreign",
        ErrorKind::NotFound => "not_found",
        ErrorKind::Locked => "locked",
        ErrorKind::NoSpace => "no_space",
        ErrorKind::Io => "io",
        ErrorKind::Poisoned => "poisoned",
        ErrorKind::Closed => "closed",
        ErrorKind::ReadOnly => "read_only",
        _ => "other",
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Store(Error::Engine(varve::engine::Error::Missing { store })) => {
                write!(f, "{store}: there is no database; put, load or import-tree make one")
            }
            Failure::Store(error) => error.fmt(f),
            Failure::Lab(error) => error.fmt(f),
            Failure::Experiments { failed, .. } => write!(f, "failed: {failed}"),
            Failure::Usage(message) => f.write_str(message),
            Failure::Io { what, error } => write!(f, "{what}: {error}"),
            Failure::BrokenPipe => f.write_str("the reader of the output is gone"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Store(error)
    }
}

impl From<varve_lab::LabError> for Failure {
    fn from(error: varve_lab::LabError) -> Self {
        Failure::Lab(error)
    }
}
