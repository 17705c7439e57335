//! What every device and every directory must do, as a check anyone can run.
//!
//! The suite goes through the clauses of the contracts of [`BlockDevice`](crate::BlockDevice) and
//! [`Directory`](crate::Directory) on fresh media from a factory, in a real env and in a simulated
//! one, those of [`ZoneControl`](crate::ZoneControl) on devices with zones, and those of
//! [`ByteAddressable`](crate::ByteAddressable) on memory. Durability is not in it: a medium that can lose power says more in its own tests.

mod block_device;
mod bytes;
pub mod devices;
mod directory;
mod layer_syncs;
mod protection;
mod subject;
#[cfg(test)]
mod tests;
mod tracks;
mod zones;

pub use block_device::{BlockDeviceCheck, check_block_device};
pub use bytes::check_bytes;
pub use devices::{TestedDevice, devices};
pub use directory::check_directory;
pub use layer_syncs::{LayerSubject, LayerSyncReport, OpenedLayer, check_layer_syncs};
pub use zones::check_zoned_device;

use crate::error::{MediaError, MediaErrorKind};

/// A clause that was broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{clause}: {detail}")]
pub struct Violation {
    /// Short name of the clause, one per check.
    pub clause: &'static str,
    /// What was done, expected and found.
    pub detail: String,
}

/// Names the clause that is being checked.
#[derive(Clone, Copy)]
struct Clause(&'static str);

impl Clause {
    fn broken<T>(self, detail: impl Into<String>) -> Result<T, Violation> {
        Err(Violation { clause: self.0, detail: detail.into() })
    }

    /// `holds`, or the clause is broken as `detail` says.
    fn require(self, holds: bool, detail: impl FnOnce() -> String) -> Result<(), Violation> {
        if holds { Ok(()) } else { self.broken(detail()) }
    }

    /// The value of something that must succeed.
    fn succeed<T>(self, what: &str, result: Result<T, MediaError>) -> Result<T, Violation> {
        result.or_else(|error| self.broken(format!("{what} failed: {error}")))
    }

    /// Something that must fail with an error of `kind`.
    fn fail<T>(self, what: &str, kind: MediaErrorKind, result: Result<T, MediaError>) -> Result<(), Violation> {
        match result {
            Ok(_) => self.broken(format!("{what} succeeded, expected an error of kind {kind:?}")),
            Err(error) if error.kind() == kind => Ok(()),
            Err(error) => self.broken(format!("{what}: expected an error of kind {kind:?}, found: {error}")),
        }
    }

    /// Bytes that must be the same.
    fn same(self, what: &str, expected: &[u8], found: &[u8]) -> Result<(), Violation> {
        if expected == found {
            return Ok(());
        }
        if expected.len() != found.len() {
            return self.broken(format!("{what}: expected {} bytes, found {}", expected.len(), found.len()));
        }
        let at = expected.iter().zip(found).position(|(expected, found)| expected != found).unwrap_or(0);
        self.broken(format!("{what}: byte {at}: expected {:#x}, found {:#x}", expected[at], found[at]))
    }
}
