//! Why an array cannot be opened, and why one stopped.

use super::geometry::RaidLevel;
use super::superblock::Flaw;
use varve_media::MediaError;

/// Why an array cannot be opened. Nothing was written, except where a device failed while the array was made.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ArrayError {
    /// A member failed.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// A device that cannot be a member.
    #[error("{device}: a member of an array needs {expected}, found {found}; choose another device")]
    Unsuitable { device: String, expected: String, found: String },
    /// A number of members that the level does not have.
    #[error("{level} needs {expected} members, found {found}; name as many devices")]
    MemberCount { level: RaidLevel, expected: String, found: usize },
    /// A chunk that cannot be.
    #[error("a chunk needs {expected}, found {found} bytes; name another size")]
    Chunk { expected: String, found: u64 },
    /// Members of a new array that differ in size, or one that has shrunk.
    #[error(
        "{device}: expected a member of {expected_bytes} bytes, found {found_bytes}; give devices of one size, or the device as it was"
    )]
    OtherSize { device: String, expected_bytes: u64, found_bytes: u64 },
    /// Every member is blank, and making an array was not asked for.
    #[error("{device}: no array is there: all members are blank; make one, or name other devices")]
    NotThere { device: String },
    /// Something else is there.
    #[error(
        "{device}: expected a blank device or a member of an array, found {found} at offset {offset_bytes}; choose another \
             device, or format the array if nothing on it is needed"
    )]
    NotBlank { device: String, offset_bytes: u64, found: String },
    /// A blank device among members of an array.
    #[error(
        "{device}: it is blank, expected member {slot} of the array {array}; name the device that was this member, or replace the member by \
         this device"
    )]
    BlankMember { device: String, array: String, slot: usize },
    /// A member of another array.
    #[error(
        "{device}: expected a member of the array {array}, found one of the array {found}; name members of one array"
    )]
    Foreign { device: String, array: String, found: String },
    /// The same member twice.
    #[error("{device}: it is member {slot} of the array {array}, and so is {other}; name each member once")]
    Duplicate { device: String, other: String, array: String, slot: usize },
    /// A member that the array went on without.
    #[error(
        "{device}: it is member {slot} of the array {array} as of generation {found}, and the array went on without it (generation {expected}); \
         open the array without this member, or replace the member by this device, which rebuilds it"
    )]
    Stale { device: String, array: String, slot: usize, expected: u64, found: u64 },
    /// Two halves of an array went on without each other.
    #[error(
        "{device}: the array {array} went on without {other}, and that without this device: both have generation {generation}; open the array \
         with the members of one side only"
    )]
    Diverged { device: String, other: String, array: String, generation: u64 },
    /// Too few members are left.
    #[error(
        "the array {array} ({level}) needs {expected} of {members} members, found {found}; name those that are missing: slots {missing:?}"
    )]
    TooFew { array: String, level: RaidLevel, members: usize, expected: usize, found: usize, missing: Vec<usize> },
    /// Made with other numbers.
    #[error("the array {array} was made with {what} {found}, expected {expected}; name what it was made with")]
    OtherParameters { array: String, what: &'static str, expected: String, found: String },
    /// Tuples beside the data, and no journal of stripes.
    #[error(
        "{array}: tuples beside the data need a journal of stripes, found that none is wanted: a power cut would leave data without their \
         tuples; leave the journal open, or on the members"
    )]
    NeedsJournal { array: String },
    /// Its redundancy may be wrong, and a member is missing whose data would be computed from it.
    #[error(
        "the array {array} was not closed, and {missing} of its members are missing: data of {regions} regions of {region_bytes} bytes cannot be \
         computed reliably; open it with all members, or accept wrong data in stripes that were being written"
    )]
    Unsynced { array: String, missing: usize, regions: usize, region_bytes: u64 },
    /// Its journal has to be written back first, and it is opened for reading only.
    #[error(
        "the array {array} was not closed: its journal has {records} records that have to be written to its members, and it is opened for \
         reading only; open it for writing once"
    )]
    Unreplayed { array: String, records: usize },
    /// Its journal lies on a device that was not given.
    #[error(
        "the journal of the array {array} lies on a device of its own; name that device as its journal, or, if it is lost, a blank device, \
         and accept that what was being written may be wrong"
    )]
    NeedsJournalDevice { array: String },
    /// The device that was given as the journal is not.
    #[error(
        "{device}: expected {expected}, found {found}; name the journal's device, or members only where it lies on them"
    )]
    OtherJournal { device: String, expected: String, found: String },
    /// Both copies of a superblock cannot be used.
    #[error(
        "{device}: {what}: expected {expected}, found {found}; open the array without this member, or replace the member by this device"
    )]
    Damaged { device: String, what: &'static str, expected: String, found: String },
    /// Sound, and of a version that is not known here.
    #[error(
        "{device}: version {readable} of arrays can be read, found version {found}; open it with the version that made it"
    )]
    OtherVersion { device: String, readable: u32, found: u32 },
    /// It was made with protection information of a kind that is not known here.
    #[error(
        "{device}: protection information of kind {found:#x} is not known here; open it with the version that made it"
    )]
    OtherProtection { device: String, found: u32 },
}

impl ArrayError {
    pub(super) fn damaged(device: &str, flaw: Flaw) -> Self {
        let Flaw { what, expected, found } = flaw;
        ArrayError::Damaged { device: device.to_owned(), what, expected, found }
    }
}

/// Why an array takes no more writes.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "the array stopped: member {slot} ({member}) failed, and {lost} of {members} members were lost before it, of which {level} tolerates {tolerated}. \
     Writes, syncs and reads of lost members are refused until it is opened again; what failed first: {source}"
)]
pub(super) struct Stopped {
    pub(super) slot: usize,
    pub(super) member: String,
    pub(super) lost: usize,
    pub(super) members: usize,
    pub(super) level: RaidLevel,
    pub(super) tolerated: usize,
    pub(super) source: MediaError,
}

/// Why an array whose journal failed takes no more writes.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "the array stopped: the device of its journal ({device}) failed. Writes and syncs are refused until it is opened again; what \
     failed: {source}"
)]
pub(super) struct StoppedWithoutJournal {
    pub(super) device: String,
    pub(super) source: MediaError,
}

/// The identity of an array as text.
pub(super) fn name_of(identity: &[u8; 16]) -> String {
    identity.iter().map(|byte| format!("{byte:02x}")).collect()
}
