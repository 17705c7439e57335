//! T10 protection information: a tuple of eight bytes for every interval of data, which says what the data are and where they belong.
//!
//! The host generates tuples (DIX), every layer may verify them, and the drive verifies and keeps them (DIF). A guard tag finds
//! damaged data, a reference tag data in the wrong place. Sources: SBC-4, clause 4.21; Linux, `block/t10-pi.c`.
//!
//! Pure: no I/O, no locks. Cost: one pass over the data.

mod guard;
mod tuple;

pub use guard::GuardKind;
pub use tuple::ProtectionTuple;

use crate::error::{MediaError, Operation};
use crate::request::{Request, Transfer};

/// Meaning of the reference tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProtectionType {
    /// The reference tag is the low 32 bits of the interval's number on the device.
    Type1,
    /// The host names the first reference tag with each command. Like Linux, it names the interval's number: checks are those
    /// of type 1.
    Type2,
    /// The reference tag belongs to the application; the guard tag alone is checked.
    Type3,
}

impl ProtectionType {
    /// The type of this number.
    pub fn of_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(ProtectionType::Type1),
            2 => Some(ProtectionType::Type2),
            3 => Some(ProtectionType::Type3),
            _ => None,
        }
    }

    /// Its number, from 1 to 3.
    pub fn number(self) -> u8 {
        match self {
            ProtectionType::Type1 => 1,
            ProtectionType::Type2 => 2,
            ProtectionType::Type3 => 3,
        }
    }
}

/// Format of the protection information that a device keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectionFormat {
    /// Meaning of the reference tags.
    pub protection_type: ProtectionType,
    /// Checksum of the guard tags.
    pub guard: GuardKind,
    /// Data bytes of one tuple: a whole fraction of a logical sector.
    pub interval_bytes: u32,
}

/// Field of a tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProtectionTag {
    /// Checksum of the data.
    Guard,
    /// Value of the application.
    Application,
    /// Place of the data.
    Reference,
}

impl std::fmt::Display for ProtectionTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ProtectionTag::Guard => "guard tag",
            ProtectionTag::Application => "application tag",
            ProtectionTag::Reference => "reference tag",
        })
    }
}

/// The first interval of which data and tuple disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectionMismatch {
    /// First byte of the interval on the device.
    pub offset_bytes: u64,
    /// The field that differs.
    pub tag: ProtectionTag,
    /// Value that follows from the data or the place.
    pub expected: u32,
    /// Value of the tuple.
    pub found: u32,
}

impl ProtectionMismatch {
    /// The error of an operation on a device.
    pub fn at(self, device: &str, operation: Operation) -> MediaError {
        let ProtectionMismatch { offset_bytes, tag, expected, found } = self;
        MediaError::Protection { device: device.to_owned(), operation, offset_bytes, tag, expected, found }
    }
}

impl ProtectionFormat {
    /// Bytes of the tuples of `length_bytes` of data, whole intervals.
    pub fn tuples_bytes(&self, length_bytes: u64) -> u64 {
        (length_bytes / self.interval()).saturating_mul(ProtectionTuple::BYTES as u64)
    }

    /// The reference tag of the interval at `offset_bytes`; `None` if tags belong to the application (type 3).
    pub fn reference_tag(&self, offset_bytes: u64) -> Option<u32> {
        // The low 32 bits: tags repeat every 2^32 intervals.
        (self.protection_type != ProtectionType::Type3).then_some((offset_bytes / self.interval()) as u32)
    }

    /// Generates the tuples of `data`, which belong at `offset_bytes` of a device.
    ///
    /// `data` may be cut anywhere. Intervals and tuples are paired in order, up to the shorter of both;
    /// [`check_request`](crate::check_request) refuses requests in which they differ. Type 3 gets the reference tag 0.
    pub fn generate<'a>(
        &self,
        offset_bytes: u64,
        application_tag: u16,
        data: impl IntoIterator<Item = &'a [u8]>,
        tuples: &mut [u8],
    ) {
        let mut tuples = tuples.chunks_exact_mut(ProtectionTuple::BYTES);
        let _ = self.for_each_interval(offset_bytes, data, |place_bytes, interval| {
            let tuple = ProtectionTuple {
                guard: self.guard.compute(interval),
                application: application_tag,
                reference: self.reference_tag(place_bytes).unwrap_or(0),
            };
            tuples.next().ok_or(())?.copy_from_slice(&tuple.encode());
            Ok::<(), ()>(())
        });
    }

    /// The tuples that an emulated drive generates for `data` written at `offset_bytes` without tuples (SBC-4: WRPROTECT 000b).
    /// Their application tag is 0, like that of Linux.
    pub(crate) fn generated_by_drive<'a>(
        &self,
        offset_bytes: u64,
        data: impl IntoIterator<Item = &'a [u8]> + Clone,
    ) -> Vec<u8> {
        let length_bytes: u64 = data.clone().into_iter().map(|slice| slice.len() as u64).sum();
        let mut tuples = vec![0; self.tuples_bytes(length_bytes) as usize];
        self.generate(offset_bytes, 0, data, &mut tuples);
        tuples
    }

    /// Verifies that `tuples` fit `data`, which belong at `offset_bytes` of a device: guard tags, reference tags (types 1 and 2), and
    /// application tags if `application_tag` names one. Intervals with an escape are not checked.
    ///
    /// Pairs intervals and tuples like [`Self::generate`].
    ///
    /// # Errors
    /// The first interval that differs; of its tags the reference tag first, then the guard tag, like Linux.
    pub fn verify<'a>(
        &self,
        offset_bytes: u64,
        application_tag: Option<u16>,
        data: impl IntoIterator<Item = &'a [u8]>,
        tuples: &[u8],
    ) -> Result<(), ProtectionMismatch> {
        let mut tuples = tuples.as_chunks::<{ ProtectionTuple::BYTES }>().0.iter();
        let checked = self.for_each_interval(offset_bytes, data, |offset_bytes, interval| {
            let tuple = ProtectionTuple::decode(*tuples.next().ok_or(None)?);
            if tuple.is_escape(self.protection_type) {
                return Ok(());
            }
            let compare = |tag, expected: u32, found: u32| match expected == found {
                true => Ok(()),
                false => Err(Some(ProtectionMismatch { offset_bytes, tag, expected, found })),
            };
            if let Some(expected) = self.reference_tag(offset_bytes) {
                compare(ProtectionTag::Reference, expected, tuple.reference)?;
            }
            if let Some(expected) = application_tag {
                compare(ProtectionTag::Application, expected.into(), tuple.application.into())?;
            }
            compare(ProtectionTag::Guard, self.guard.compute(interval).into(), tuple.guard.into())
        });
        match checked {
            Err(Some(mismatch)) => Err(mismatch),
            Ok(()) | Err(None) => Ok(()),
        }
    }

    /// Verifies the tuples that a write to `device` carries, one per interval, as a drive does before anything changes.
    ///
    /// # Errors
    /// [`MediaError::Protection`]
    pub(crate) fn verify_write(&self, device: &str, request: &Request<'_>) -> Result<(), MediaError> {
        let Transfer::Write { data, protection: Some(tuples), .. } = &request.transfer else { return Ok(()) };
        let verified = self.verify(request.offset_bytes, None, data.iter().map(|slice| &**slice), tuples);
        verified.map_err(|mismatch| mismatch.at(device, Operation::Write))
    }

    /// Changes the reference tags of data that belong at `from_bytes` of one device to those of `to_bytes` of another, for layers that
    /// place data elsewhere. Type 3 is left as it is.
    ///
    /// A tag that was wrong before stays as it was, so that it is found (as in Linux, `t10_pi_type1_prepare`).
    pub fn move_reference_tags(&self, from_bytes: u64, to_bytes: u64, tuples: &mut [u8]) {
        for (index, bytes) in tuples.as_chunks_mut::<{ ProtectionTuple::BYTES }>().0.iter_mut().enumerate() {
            let delta = self.interval().saturating_mul(index as u64);
            let tags = [from_bytes, to_bytes].map(|start| self.reference_tag(start.saturating_add(delta)));
            let tuple = ProtectionTuple::decode(*bytes);
            if let [Some(from), Some(to)] = tags
                && tuple.reference == from
            {
                *bytes = ProtectionTuple { reference: to, ..tuple }.encode();
            }
        }
    }

    fn interval(&self) -> u64 {
        u64::from(self.interval_bytes.max(1))
    }

    /// Calls `each` with the offset and the data of every whole interval, until it fails. An interval that is cut is joined in a buffer.
    fn for_each_interval<'a, E>(
        &self,
        offset_bytes: u64,
        data: impl IntoIterator<Item = &'a [u8]>,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let length = self.interval_bytes.max(1) as usize;
        let mut at = offset_bytes;
        let mut each = |interval: &[u8]| {
            let place_bytes = at;
            at = at.saturating_add(length as u64);
            each(place_bytes, interval)
        };
        let mut joined: Vec<u8> = Vec::new();
        for mut slice in data {
            if !joined.is_empty() {
                let (head, tail) = slice.split_at(slice.len().min(length - joined.len()));
                joined.extend_from_slice(head);
                if joined.len() < length {
                    continue;
                }
                each(&joined)?;
                joined.clear();
                slice = tail;
            }
            let mut intervals = slice.chunks_exact(length);
            intervals.by_ref().try_for_each(&mut each)?;
            joined.extend_from_slice(intervals.remainder());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
