//! A drive that keeps protection information.

pub(crate) mod conformance;

use crate::emulated::Backing;
use crate::error::{MediaError, Operation};
use crate::protection::{ProtectionFormat, ProtectionTuple};
use parking_lot::RwLock;
use std::io::{IoSlice, IoSliceMut};

/// Tuples of an emulated drive, and the checks of the drive.
///
/// The drive verifies guard and reference tags of the tuples that a write carries, before anything changes, and those that it keeps
/// when data are read. It generates the tuples of writes without any (SBC-4: WRPROTECT 000b). An interval that was never written or was
/// discarded has [`ProtectionTuple::UNWRITTEN`].
///
/// Guards are computed without a lock. Data and tuples of one request move together: no read sees the data of one write and
/// the tuple of another.
pub(crate) struct Protected {
    format: ProtectionFormat,
    /// The complement of each tuple, so that zeros are unwritten tuples.
    tuples: Box<dyn Backing>,
    /// Held while data and tuples of a request move; alone to change them.
    moving: RwLock<()>,
}

impl Protected {
    /// Tuples of `format` in `tuples`, which is as new as the data.
    pub(crate) fn new(format: ProtectionFormat, tuples: Box<dyn Backing>) -> Self {
        Protected { format, tuples, moving: RwLock::default() }
    }

    /// Bytes that the tuples occupy now.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.tuples.stored_bytes()
    }

    /// Reads data with `read` and their tuples, and verifies them.
    ///
    /// # Errors
    /// Those of `read`; [`MediaError::Io`]; [`MediaError::Protection`], after which the buffers hold what was found.
    pub(crate) fn read(
        &self,
        device: &str,
        offset_bytes: u64,
        data: &mut [IoSliceMut<'_>],
        protection: Option<&mut [u8]>,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<(), MediaError>,
    ) -> Result<(), MediaError> {
        let length_bytes = data.iter().map(|slice| slice.len() as u64).sum();
        let mut own = Vec::new();
        let tuples = match protection {
            Some(tuples) => tuples,
            None => {
                own.resize(self.format.tuples_bytes(length_bytes) as usize, 0);
                &mut own[..]
            }
        };
        {
            let _moving = self.moving.read();
            read(data)?;
            let place_bytes = self.format.tuples_bytes(offset_bytes);
            let found = self.tuples.read_at(place_bytes, tuples);
            found.map_err(|error| MediaError::io(device, Operation::Read, offset_bytes, error))?;
        }
        tuples.iter_mut().for_each(|byte| *byte = !*byte);
        let verified = self.format.verify(offset_bytes, None, data.iter().map(|slice| &**slice), tuples);
        verified.map_err(|mismatch| mismatch.at(device, Operation::Read))
    }

    /// Writes data with `write`, and their tuples, which are generated where there are none.
    ///
    /// # Errors
    /// Those of `write`; [`MediaError::Io`].
    pub(crate) fn write(
        &self,
        device: &str,
        offset_bytes: u64,
        data: &[IoSlice<'_>],
        protection: Option<&[u8]>,
        write: impl FnOnce() -> Result<(), MediaError>,
    ) -> Result<(), MediaError> {
        let mut tuples = match protection {
            Some(tuples) => tuples.to_vec(),
            None => self.format.generated_by_drive(offset_bytes, data.iter().map(|slice| &**slice)),
        };
        tuples.iter_mut().for_each(|byte| *byte = !*byte);
        let _moving = self.moving.write();
        write()?;
        let written = self.tuples.write_at(self.format.tuples_bytes(offset_bytes), &tuples);
        written.map_err(|error| MediaError::io(device, Operation::Write, offset_bytes, error))
    }

    /// Discards data with `discard`, and their tuples.
    ///
    /// # Errors
    /// Those of `discard`; [`MediaError::Io`].
    pub(crate) fn discard(
        &self,
        device: &str,
        offset_bytes: u64,
        length_bytes: u64,
        discard: impl FnOnce() -> Result<(), MediaError>,
    ) -> Result<(), MediaError> {
        let _moving = self.moving.write();
        discard()?;
        let tuples = [offset_bytes, length_bytes].map(|bytes| self.format.tuples_bytes(bytes));
        let discarded = self.tuples.discard(tuples[0], tuples[1]);
        discarded.map_err(|error| MediaError::io(device, Operation::Discard, offset_bytes, error))
    }
}

// An unwritten tuple is kept as zeros, which is what a backing has at first.
const _: () = assert!(ProtectionTuple::UNWRITTEN_BYTE == !0);

#[cfg(test)]
mod tests;
