//! One request of a batch.

mod divide;

pub use divide::RequestPart;

use crate::device::{BlockDevice, Geometry};
use crate::error::{MediaError, Operation};
use crate::protection::{ProtectionFormat, ProtectionTuple};
use std::io::{IoSlice, IoSliceMut};

/// What moves, and which way.
#[derive(Debug)]
pub enum Transfer<'a> {
    /// From the device into the buffers, in order.
    Read {
        /// Buffers filled one after the other.
        data: &'a mut [IoSliceMut<'a>],
        /// Eight bytes per interval, filled by a device that keeps protection information.
        protection: Option<&'a mut [u8]>,
    },
    /// From the buffers to the device, in order.
    Write {
        /// Buffers written one after the other.
        data: &'a [IoSlice<'a>],
        /// Eight bytes per interval; the device verifies and stores them.
        protection: Option<&'a [u8]>,
        /// The write is on stable media when the request completes (SCSI FUA).
        durable: bool,
    },
    /// The range's contents are no longer needed; reading it afterwards gives zeros.
    Discard {
        /// Bytes to give up.
        length_bytes: u64,
    },
}

/// A request of a batch given to [`crate::BlockDevice::execute`].
#[derive(Debug)]
pub struct Request<'a> {
    /// First byte on the device.
    pub offset_bytes: u64,
    /// Direction, buffers, protection.
    pub transfer: Transfer<'a>,
    /// How this request ended. `Ok` before the batch is executed.
    pub outcome: Result<(), MediaError>,
}

impl<'a> Request<'a> {
    /// A read into `data`.
    pub fn read(offset_bytes: u64, data: &'a mut [IoSliceMut<'a>]) -> Self {
        Request { offset_bytes, transfer: Transfer::Read { data, protection: None }, outcome: Ok(()) }
    }

    /// A write of `data`.
    pub fn write(offset_bytes: u64, data: &'a [IoSlice<'a>]) -> Self {
        Request { offset_bytes, transfer: Transfer::Write { data, protection: None, durable: false }, outcome: Ok(()) }
    }

    /// A write that is durable once it is completed.
    pub fn write_durable(offset_bytes: u64, data: &'a [IoSlice<'a>]) -> Self {
        Request { offset_bytes, transfer: Transfer::Write { data, protection: None, durable: true }, outcome: Ok(()) }
    }

    /// A discard of `length_bytes`.
    pub fn discard(offset_bytes: u64, length_bytes: u64) -> Self {
        Request { offset_bytes, transfer: Transfer::Discard { length_bytes }, outcome: Ok(()) }
    }

    /// Bytes of the device this request covers.
    pub fn length_bytes(&self) -> u64 {
        match &self.transfer {
            Transfer::Read { data, .. } => data.iter().map(|slice| slice.len() as u64).sum(),
            Transfer::Write { data, .. } => data.iter().map(|slice| slice.len() as u64).sum(),
            Transfer::Discard { length_bytes } => *length_bytes,
        }
    }

    /// The operation an error names.
    pub(crate) fn operation(&self) -> Operation {
        match self.transfer {
            Transfer::Read { .. } => Operation::Read,
            Transfer::Write { .. } => Operation::Write,
            Transfer::Discard { .. } => Operation::Discard,
        }
    }
}

/// Refuses what no device of these sizes and capabilities could do.
///
/// # Errors
/// [`MediaError::OutOfRange`]; [`MediaError::Misaligned`]; [`MediaError::Rule`] for protection information that `device` does not
/// keep, or that does not fit the data.
pub fn check_request(device: &dyn BlockDevice, request: &Request<'_>) -> Result<(), MediaError> {
    check_range(device.name(), device.geometry(), request)?;
    check_tuples(device.name(), device.capabilities().protection, request).map(|_| ())
}

/// Refuses protection information that a device called `name` of this format does not take. Returns the interval of a request that
/// carries protection information, in bytes.
///
/// # Errors
/// [`MediaError::Rule`] if the device keeps none, or there is not one tuple per interval of the data.
pub(crate) fn check_tuples(
    name: &str,
    format: Option<ProtectionFormat>,
    request: &Request<'_>,
) -> Result<Option<u64>, MediaError> {
    let tuples = match &request.transfer {
        Transfer::Read { protection: Some(tuples), .. } => tuples.len() as u64,
        Transfer::Write { protection: Some(tuples), .. } => tuples.len() as u64,
        Transfer::Read { .. } | Transfer::Write { .. } | Transfer::Discard { .. } => return Ok(None),
    };
    let refusal = |rule| {
        let (operation, offset_bytes) = (request.operation(), request.offset_bytes);
        Err(MediaError::Rule { device: name.to_owned(), operation, offset_bytes, rule })
    };
    let Some(format) = format else {
        return refusal("the device keeps no protection information; send the request without it".to_owned());
    };
    let (length_bytes, interval_bytes) = (request.length_bytes(), u64::from(format.interval_bytes.max(1)));
    let needed_bytes = format.tuples_bytes(length_bytes);
    if !length_bytes.is_multiple_of(interval_bytes) || needed_bytes != tuples {
        let tuple_bytes = ProtectionTuple::BYTES;
        return refusal(format!(
            "{tuples} bytes of protection information do not fit {length_bytes} bytes of data: every {interval_bytes} bytes need \
             {tuple_bytes}"
        ));
    }
    Ok(Some(interval_bytes))
}

/// Refuses what is outside a device called `name` of these sizes, or not aligned to its sectors.
pub(crate) fn check_range(name: &str, geometry: &Geometry, request: &Request<'_>) -> Result<(), MediaError> {
    let device = || name.to_owned();
    let operation = request.operation();
    let offset_bytes = request.offset_bytes;
    let length_bytes = request.length_bytes();
    let capacity_bytes = geometry.capacity_bytes;
    let required_bytes = u64::from(geometry.sector_bytes);
    if offset_bytes.checked_add(length_bytes).is_none_or(|end| end > capacity_bytes) {
        return Err(MediaError::OutOfRange { device: device(), operation, offset_bytes, length_bytes, capacity_bytes });
    }
    if !offset_bytes.is_multiple_of(required_bytes) || !length_bytes.is_multiple_of(required_bytes) {
        return Err(MediaError::Misaligned { device: device(), operation, offset_bytes, length_bytes, required_bytes });
    }
    Ok(())
}
