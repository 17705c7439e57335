//! What a power cut leaves: one vocabulary for devices and directories.
//!
//! A *persistence point* is the moment before an operation that changes what could be found after
//! a power cut: each write, sync, create, rename, remove, truncate, directory sync and discard. At
//! a point an observer may capture the crash state, cheaply; later it asks the state for *images*:
//! fresh media that hold what a power cut at that moment could have left. The operation of the
//! point is in flight: an image has all, part or none of it.

mod bytes;
mod content;
mod device;
mod fate;
mod group;
mod history;
mod image;
mod lines;
mod tracks;
mod zone_control;
mod zones;

pub(crate) use content::{Content, ContentChange, Pending, Units, surviving_content};
pub(crate) use fate::FateChooser;
pub(crate) use history::History;

pub(crate) use bytes::CrashBytes;
pub use device::{CrashDevice, DeviceCrashState};
pub use group::{CrashGroup, GroupCrashState};
pub use lines::{FlushAudit, LineImages};
pub(crate) use zone_control::CrashZones;

use crate::error::Operation;

/// How a crash image treats what was not yet durable when the power went.
///
/// On a device with interlaced tracks what arrived did so in some order, and each sector of a bottom track
/// destroyed what it overlaps when it arrived: the order is that of submission, and for `KeepSuffix`,
/// `DropRandom` and `TearRandom` any that a device could have chosen.
///
/// On a device with zones the writes to one zone that is written in order arrive in order: of each zone a
/// beginning. Where that ends with a torn write, the pointer stands anywhere in it and the last
/// sectors below the pointer may be missing, which read as zeros. Of a reset or finish in flight either state is
/// left. No zone is open.
///
/// Whatever the variant, what was synced is there, unless an unsynced write to a bottom track destroyed
/// it, and no image has anything the contracts of [`crate::BlockDevice`] and [`crate::Directory`] rule
/// out. The random variants give another image for every seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CrashVariant {
    /// All of it arrived, the operation in flight too.
    KeepAll,
    /// None of it arrived.
    DropAll,
    /// Everything up to a random moment arrived and nothing later; the write at that moment is torn.
    KeepPrefix,
    /// The opposite order: only what came after a random moment arrived.
    KeepSuffix,
    /// Each operation arrived or did not, by itself.
    DropRandom,
    /// Each sector of each write arrived or did not, by itself; lengths too.
    TearRandom,
    /// Everything arrived except a random part of the last write.
    TearLast,
    /// Names and lengths arrived, data did not: new ranges read as zeros. Of a directory only.
    LengthsWithoutData,
    /// Names arrived; contents and lengths are those of the last sync. Of a directory only.
    NamesWithoutContents,
    /// Contents and lengths arrived; names are those of the last directory sync. Of a directory only.
    ContentsWithoutNames,
}

impl CrashVariant {
    /// Every variant that makes a difference to a directory.
    pub const OF_DIRECTORIES: [CrashVariant; 10] = [
        CrashVariant::KeepAll,
        CrashVariant::DropAll,
        CrashVariant::KeepPrefix,
        CrashVariant::KeepSuffix,
        CrashVariant::DropRandom,
        CrashVariant::TearRandom,
        CrashVariant::TearLast,
        CrashVariant::LengthsWithoutData,
        CrashVariant::NamesWithoutContents,
        CrashVariant::ContentsWithoutNames,
    ];

    /// Every variant that makes a difference to a block device. Those of names count as
    /// [`CrashVariant::DropAll`] there, except [`CrashVariant::ContentsWithoutNames`], which is
    /// [`CrashVariant::KeepAll`].
    pub const OF_DEVICES: [CrashVariant; 7] = [
        CrashVariant::KeepAll,
        CrashVariant::DropAll,
        CrashVariant::KeepPrefix,
        CrashVariant::KeepSuffix,
        CrashVariant::DropRandom,
        CrashVariant::TearRandom,
        CrashVariant::TearLast,
    ];

    /// Whether another seed may give another image.
    pub fn is_random(self) -> bool {
        matches!(
            self,
            CrashVariant::KeepPrefix
                | CrashVariant::KeepSuffix
                | CrashVariant::DropRandom
                | CrashVariant::TearRandom
                | CrashVariant::TearLast
        )
    }
}

/// The moment before an operation that matters to a power cut. `S` is the crash state of the medium.
pub struct PersistencePoint<'a, S> {
    /// Points of this medium before this one.
    pub index: u64,
    /// What is about to happen. `Open` stands for the creation of a file.
    pub operation: Operation,
    /// File the operation is about (the old name of a rename); empty on a device or for a directory sync.
    pub name: &'a str,
    /// First byte, where the operation has one; the new length of a truncate.
    pub offset_bytes: u64,
    /// Bytes, where the operation has a length.
    pub length_bytes: u64,
    pub(crate) state: &'a dyn Fn() -> S,
}

impl<S> PersistencePoint<'_, S> {
    /// The state as it is now, this operation in flight. Cheap: content is shared until it changes.
    pub fn capture(&self) -> S {
        (self.state)()
    }
}

impl<S> std::fmt::Debug for PersistencePoint<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PersistencePoint { index, operation, name, offset_bytes, length_bytes, .. } = self;
        write!(f, "point {index}: {operation} {name:?} at {offset_bytes}, {length_bytes} bytes")
    }
}

/// Called before every operation that is a persistence point, with internal locks held: it must not
/// call the medium it observes, and should only capture and count.
pub(crate) type PersistenceObserver<S> = Box<dyn FnMut(&PersistencePoint<'_, S>) + Send>;

#[cfg(test)]
mod tests;
