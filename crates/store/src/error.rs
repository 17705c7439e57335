//! What can go wrong in a file store.

use varve_media::{MediaError, MediaErrorKind, ZoneSpace};

/// The class of a [`StoreError`], for callers that decide what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// No such file.
    NotFound,
    /// A name, size or offset the store never accepts.
    InvalidRequest,
    /// No space now; remove or finish files and retry.
    NoSpace,
    /// Another open of this store holds the lock, or has moved on.
    Locked,
    /// Bytes on the medium are not what was written.
    Corruption,
    /// Not a store of this kind, or of a newer version.
    Foreign,
    /// The medium failed.
    Io,
    /// An earlier sync failed: nothing is acknowledged until the store is opened again.
    Poisoned,
    /// The store was opened for reading only.
    ReadOnly,
}

/// An error of a file store. Cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum StoreError {
    #[error("{store}: no file named '{name}'")]
    NotFound { store: String, name: String },
    #[error("{store}: name '{name}' is refused: {reason}")]
    InvalidName { store: String, name: String, reason: String },
    #[error("{store}: {reason}")]
    InvalidRequest { store: String, reason: String },
    #[error("{store}: '{name}': read of {length_bytes} bytes at offset {offset_bytes} is past the end at {size_bytes}")]
    PastEnd { store: String, name: String, offset_bytes: u64, length_bytes: u64, size_bytes: u64 },
    #[error(
        "{store}: no space left for {requested_bytes} bytes of '{name}' ({available_bytes} available){}",
        no_space_advice(zones.as_ref())
    )]
    NoSpace {
        store: String,
        name: String,
        requested_bytes: u64,
        available_bytes: u64,
        /// Of a store on zoned media.
        zones: Option<ZoneSpace>,
    },
    #[error(
        "{store}: '{name}' needs a zone of its own, and {limit} are written already, the most the device lets be beside \
         that of the logs; finish a file and retry"
    )]
    TooManyWriters { store: String, name: String, limit: u32 },
    #[error("{store}: '{name}' is locked by another process or another open of this store; close that one first")]
    Locked { store: String, name: String },
    #[error("{store}: {structure} at offset {offset_bytes} is damaged: expected {expected}, found {found}; {advice}")]
    Corruption { store: String, structure: String, offset_bytes: u64, expected: String, found: String, advice: String },
    #[error(
        "{store}: {structure} at offset {offset_bytes} was not written by this version: expected {expected}, found {found}; {advice}"
    )]
    Foreign { store: String, structure: String, offset_bytes: u64, expected: String, found: String, advice: String },
    #[error("{store}: refusing writes since '{cause}'; close and open the store again")]
    Poisoned { store: String, cause: String },
    /// What cannot be read decides what is there, so nothing was taken for absent, and nothing was written.
    #[error(
        "{store}: {structure} at offset {offset_bytes} cannot be read, where {expected} may be ({error}); nothing was \
         written: open it again when the device can be read; if it stays so, copy the device to a sound one and write \
         zeros where it cannot be read, which gives up what was there and nothing else"
    )]
    Unreadable { store: String, structure: String, offset_bytes: u64, expected: String, error: Box<MediaError> },
    #[error("{store}: it was opened for reading only: '{name}' is not changed")]
    ReadOnly { store: String, name: String },
    #[error(
        "{store}: '{name}' was removed by the process that writes this store since it was opened for reading; open it again"
    )]
    Superseded { store: String, name: String },
    /// What is on a device that is not there is neither damaged nor absent.
    #[error("{store}: '{name}': what of it may be on {device} is not here; open the store with that device too")]
    MissingDevice { store: String, name: String, device: String },
    /// Some devices do not say how fast they are, and nothing else decides which of them are fast.
    #[error(
        "{store}: the tier of {devices} is not known: expected a rate of random reads, found none, and several devices of its \
         kind; give each device a digit with tiers= (0 the fastest, as in tiers=01), or its rate with random-reads="
    )]
    UnknownTiers { store: String, devices: String },
    #[error("{store}: '{name}': {error}")]
    Media { store: String, name: String, error: MediaError },
}

impl StoreError {
    /// The medium says that what was there is lost, which stays so until it is written again; other failures of a
    /// medium say nothing about what is on it.
    pub fn is_loss(&self) -> bool {
        let error = match self {
            StoreError::Media { error, .. } => error,
            StoreError::Unreadable { error, .. } => &**error,
            // Whoever opens a store without one of its devices has said so.
            StoreError::MissingDevice { .. } => return true,
            _ => return false,
        };
        error.is_loss()
    }

    /// The class of this error.
    pub fn kind(&self) -> StoreErrorKind {
        match self {
            StoreError::NotFound { .. } => StoreErrorKind::NotFound,
            StoreError::InvalidName { .. }
            | StoreError::InvalidRequest { .. }
            | StoreError::UnknownTiers { .. }
            | StoreError::PastEnd { .. } => StoreErrorKind::InvalidRequest,
            StoreError::NoSpace { .. } | StoreError::TooManyWriters { .. } => StoreErrorKind::NoSpace,
            StoreError::Locked { .. } | StoreError::Superseded { .. } => StoreErrorKind::Locked,
            StoreError::Corruption { .. } => StoreErrorKind::Corruption,
            StoreError::Foreign { .. } => StoreErrorKind::Foreign,
            StoreError::Poisoned { .. } => StoreErrorKind::Poisoned,
            StoreError::ReadOnly { .. } => StoreErrorKind::ReadOnly,
            StoreError::MissingDevice { .. } => StoreErrorKind::Io,
            StoreError::Media { error, .. } => of_media(error),
            StoreError::Unreadable { error, .. } => of_media(error),
        }
    }
}

/// The end of the message of [`StoreError::NoSpace`]: what helps.
fn no_space_advice(zones: Option<&ZoneSpace>) -> String {
    match zones {
        Some(zones) => format!(": {zones}; {}", zones_advice(zones)),
        None => "; remove files and retry".to_owned(),
    }
}

/// What helps where zones are short.
pub fn zones_advice(zones: &ZoneSpace) -> &'static str {
    match zones.is_shared {
        true => {
            "delete data and compact it; a smaller tiered-table-size lets more tables share a zone, and a new store with a smaller \
             reserve keeps fewer zones"
        }
        false => {
            "delete data and compact it; tables take whole zones here, so a new store holds more on a device of smaller zones, or with \
             store=hybrid and a tiered-table-size of half a zone or less, and keeps fewer zones with a smaller reserve"
        }
    }
}

fn of_media(error: &MediaError) -> StoreErrorKind {
    match error.kind() {
        MediaErrorKind::NotFound => StoreErrorKind::NotFound,
        MediaErrorKind::NoSpace => StoreErrorKind::NoSpace,
        MediaErrorKind::Locked => StoreErrorKind::Locked,
        MediaErrorKind::InvalidRequest => StoreErrorKind::InvalidRequest,
        MediaErrorKind::Unreadable | MediaErrorKind::Protection => StoreErrorKind::Corruption,
        MediaErrorKind::OtherVersion => StoreErrorKind::Foreign,
        _ => StoreErrorKind::Io,
    }
}
