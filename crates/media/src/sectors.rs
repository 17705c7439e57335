//! Data of sectors and their tuples, which move together.

use crate::context::IoContext;
use crate::device::{BlockDevice, Device};
use crate::error::{MediaError, MediaErrorKind, Operation};
use crate::protection::{ProtectionFormat, ProtectionTuple};
use crate::request::{Request, Transfer};
use crate::sparse::PAGE_BYTES;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;

/// Data of whole sectors and the tuple of each interval. The data of files have no tuples and may have any length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sectors {
    data: Vec<u8>,
    /// Eight bytes per interval; empty without protection information.
    tuples: Vec<u8>,
}

/// Borrowed [`Sectors`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct SectorSlice<'a> {
    pub(crate) data: &'a [u8],
    /// Eight bytes per interval; empty without protection information.
    pub(crate) tuples: &'a [u8],
}

impl From<Vec<u8>> for Sectors {
    fn from(data: Vec<u8>) -> Self {
        Sectors { data, tuples: Vec::new() }
    }
}

impl<'a> From<&'a [u8]> for SectorSlice<'a> {
    fn from(data: &'a [u8]) -> Self {
        SectorSlice { data, tuples: &[] }
    }
}

impl<'a> SectorSlice<'a> {
    /// A range of the data, whole intervals, with their tuples.
    pub(crate) fn part(self, range: Range<usize>) -> SectorSlice<'a> {
        let of_data = |bytes: usize| (bytes * self.tuples.len()).checked_div(self.data.len()).unwrap_or(0);
        SectorSlice { data: &self.data[range.clone()], tuples: &self.tuples[of_data(range.start)..of_data(range.end)] }
    }

    /// Returns true if all data are zero and no tuple was ever written.
    pub(crate) fn is_unwritten(self) -> bool {
        crate::is_zero(self.data) && self.tuples.iter().all(|&byte| byte == ProtectionTuple::UNWRITTEN_BYTE)
    }

    /// Writes the sectors to `offset_bytes` of a device.
    pub(crate) fn write_to(
        self,
        device: &dyn BlockDevice,
        offset_bytes: u64,
        context: &IoContext,
    ) -> Result<(), MediaError> {
        let protection = (!self.tuples.is_empty()).then_some(self.tuples);
        let transfer = Transfer::Write { data: &[IoSlice::new(self.data)], protection, durable: false };
        device.execute(&mut [Request { offset_bytes, transfer, outcome: Ok(()) }], context)
    }
}

impl Sectors {
    /// Sectors that were never written: zeros, and escapes if they have tuples of `format`.
    pub(crate) fn unwritten(format: Option<ProtectionFormat>, length: usize) -> Self {
        let tuples_bytes = format.map_or(0, |format| format.tuples_bytes(length as u64));
        Sectors { data: vec![0; length], tuples: vec![ProtectionTuple::UNWRITTEN_BYTE; tuples_bytes as usize] }
    }

    /// The sectors that a write stores at `offset_bytes` of a device with this format. Missing tuples are generated, as a
    /// drive does.
    pub(crate) fn of_write(
        format: Option<ProtectionFormat>,
        offset_bytes: u64,
        data: &[IoSlice<'_>],
        protection: Option<&[u8]>,
    ) -> Self {
        let slices = data.iter().map(|slice| &**slice);
        let tuples = match (protection, format) {
            (Some(tuples), _) => tuples.to_vec(),
            (None, Some(format)) => format.generated_by_drive(offset_bytes, slices.clone()),
            (None, None) => Vec::new(),
        };
        Sectors { data: slices.collect::<Vec<&[u8]>>().concat(), tuples }
    }

    /// Reads what `device` holds. Data that its tuples contradict are returned as they are; [`Sectors::answer`] finds them.
    ///
    /// # Errors
    /// Those of the device. [`MediaError::Protection`] only from a device that does not return what it found.
    pub(crate) fn read(device: &dyn BlockDevice, range: &Range<u64>, context: &IoContext) -> Result<Self, MediaError> {
        let format = device.capabilities().protection;
        let offset_bytes = range.start;
        let mut found = Sectors::unwritten(format, (range.end - range.start) as usize);
        let mut slices = [IoSliceMut::new(&mut found.data)];
        let protection = format.is_some().then_some(&mut found.tuples[..]);
        let transfer = Transfer::Read { data: &mut slices, protection };
        let outcome = device.execute(&mut [Request { offset_bytes, transfer, outcome: Ok(()) }], context);
        match outcome {
            Err(error)
                if error.kind() == MediaErrorKind::Protection
                    && found.verify(device.name(), format, offset_bytes).is_err() =>
            {
                Ok(found)
            }
            outcome => outcome.map(|()| found),
        }
    }

    /// Reads as much of `range` as can be read: all of it at once, or else each sector. Returns the lost sectors too, which
    /// are unwritten in the result.
    ///
    /// # Errors
    /// Those of `read` that do not say that a sector `is_lost`.
    pub(crate) fn salvage(
        device: &dyn BlockDevice,
        range: &Range<u64>,
        is_lost: impl Fn(&MediaError) -> bool,
        read: impl Fn(&Range<u64>) -> Result<Sectors, MediaError>,
    ) -> Result<(Self, Vec<Range<u64>>), MediaError> {
        match read(range) {
            Err(error) if is_lost(&error) => {}
            outcome => return outcome.map(|found| (found, Vec::new())),
        }
        let (format, sector_bytes) = (device.capabilities().protection, device.geometry().sector_bytes);
        let (mut found, mut lost) = (Sectors::default(), Vec::new());
        let mut at = range.start;
        while at < range.end {
            let sector = at..range.end.min(at + u64::from(sector_bytes.max(1)));
            at = sector.end;
            match read(&sector) {
                Err(error) if is_lost(&error) => {
                    found.append(Sectors::unwritten(format, (sector.end - sector.start) as usize));
                    lost.push(sector);
                }
                outcome => found.append(outcome?),
            }
        }
        Ok((found, lost))
    }

    /// Length of the data, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.data.len()
    }

    /// All of it.
    pub(crate) fn as_slice(&self) -> SectorSlice<'_> {
        SectorSlice { data: &self.data, tuples: &self.tuples }
    }

    /// All of it, to be filled.
    pub(crate) fn as_mut(&mut self) -> (&mut [u8], &mut [u8]) {
        (&mut self.data, &mut self.tuples)
    }

    /// Appends the sectors that follow.
    pub(crate) fn append(&mut self, next: Sectors) {
        match self.data.is_empty() {
            true => *self = next,
            false => {
                self.data.extend(next.data);
                self.tuples.extend(next.tuples);
            }
        }
    }

    /// Fills the buffers of a read of these sectors, and verifies them as a drive of this format does.
    ///
    /// # Errors
    /// [`MediaError::Protection`], after which the buffers hold what was found.
    pub(crate) fn answer(
        &self,
        device: &str,
        format: Option<ProtectionFormat>,
        request: &mut Request<'_>,
    ) -> Result<(), MediaError> {
        let Transfer::Read { data, protection } = &mut request.transfer else { return Ok(()) };
        let mut rest = &self.data[..];
        for slice in data.iter_mut() {
            let (head, tail) = rest.split_at(slice.len());
            slice.copy_from_slice(head);
            rest = tail;
        }
        if let Some(tuples) = protection {
            tuples.copy_from_slice(&self.tuples);
        }
        self.verify(device, format, request.offset_bytes)
    }

    /// Verifies the tuples of sectors that were read at `offset_bytes`.
    ///
    /// # Errors
    /// [`MediaError::Protection`]
    pub(crate) fn verify(
        &self,
        device: &str,
        format: Option<ProtectionFormat>,
        offset_bytes: u64,
    ) -> Result<(), MediaError> {
        let Some(format) = format else { return Ok(()) };
        let verified = format.verify(offset_bytes, None, [&self.data[..]], &self.tuples);
        verified.map_err(|mismatch| mismatch.at(device, Operation::Read))
    }
}

/// The format of a device whose content a layer keeps in pages; `None` without protection information.
///
/// # Errors
/// [`MediaError::Rule`] if its intervals do not divide a page, or if it is byte-addressable: a store changes data without a tuple.
pub(crate) fn format_in_pages(device: &Device) -> Result<Option<ProtectionFormat>, MediaError> {
    let Some(format) = device.block.capabilities().protection else { return Ok(None) };
    let interval_bytes = format.interval_bytes;
    let refusal = |rule| {
        let device = device.block.name().to_owned();
        Err(MediaError::Rule { device, operation: Operation::Open, offset_bytes: 0, rule })
    };
    if !PAGE_BYTES.is_multiple_of(u64::from(interval_bytes)) {
        return refusal(format!(
            "a layer keeps tuples by pages of {PAGE_BYTES} bytes, which intervals of {interval_bytes} bytes do not divide"
        ));
    }
    if device.bytes.is_some() {
        return refusal("stores to byte-addressable memory carry no protection information".to_owned());
    }
    Ok(Some(format))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulated::{Conventional, Emulated, RamBacking};
    use crate::{GuardKind, ProtectionType, conformance::devices::memory, device::Geometry};
    use std::sync::Arc;
    use varve_env::Env;

    fn drive(sector_bytes: u32) -> (Emulated, Arc<RamBacking>) {
        let geometry = Geometry { capacity_bytes: 1 << 20, sector_bytes, physical_sector_bytes: sector_bytes };
        let tuples = Arc::new(RamBacking::new());
        let device = memory(&Env::real(), "drive", geometry, Box::new(Conventional));
        (device.with_protection(ProtectionType::Type1, GuardKind::Crc, Box::new(tuples.clone())), tuples)
    }

    #[test]
    fn parts_have_the_tuples_of_their_intervals() {
        let (drive, _) = drive(512);
        let format = drive.capabilities().protection;
        let data: Vec<u8> = (0..8192).map(|at| (at / 512) as u8).collect();
        let written = Sectors::of_write(format, 4096, &[IoSlice::new(&data[..700]), IoSlice::new(&data[700..])], None);
        written.as_slice().write_to(&drive, 4096, &IoContext::default()).unwrap();
        let mut joined = Sectors::default();
        for (start, end) in [(0, 512), (512, 4096), (4096, 8192)] {
            let part = written.as_slice().part(start..end);
            let format = format.unwrap();
            format.verify(4096 + start as u64, None, [part.data], part.tuples).unwrap();
            assert_eq!(part.tuples.len(), part.data.len() / 64);
            let place = 4096 + start as u64..4096 + end as u64;
            joined.append(Sectors::read(&drive, &place, &IoContext::default()).unwrap());
        }
        assert_eq!(joined, written);
        assert!(Sectors::read(&drive, &(0..4096), &IoContext::default()).unwrap().as_slice().is_unwritten());
        // Zeros that were written differ from zeros that were not.
        let zeros = Sectors::of_write(format, 0, &[IoSlice::new(&[0; 512])], None);
        assert!(!zeros.as_slice().is_unwritten());
    }

    #[test]
    fn reads_damaged_sectors_as_they_are_and_finds_the_damage() {
        use crate::emulated::Backing;
        let (drive, tuples) = drive(512);
        let data = [7; 1024];
        Sectors::from(data.to_vec()).as_slice().write_to(&drive, 0, &IoContext::default()).unwrap();
        tuples.write_at(8, &[0]).unwrap();
        let found = Sectors::read(&drive, &(0..1024), &IoContext::default()).unwrap();
        assert_eq!(found.as_slice().data, data);
        let format = drive.capabilities().protection;
        let mut buffer = [0; 1024];
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let error = found.answer("drive", format, &mut Request::read(0, &mut slices)).unwrap_err();
        assert!(matches!(error, MediaError::Protection { offset_bytes: 512, .. }), "{error}");
        assert_eq!(buffer, data);
    }

    #[test]
    fn intervals_that_do_not_divide_a_page_are_refused() {
        for (sector_bytes, fits) in [(512, true), (4096, true), (8192, false)] {
            let device = Device::of_blocks(Arc::new(drive(sector_bytes).0));
            assert_eq!(format_in_pages(&device).is_ok(), fits, "{sector_bytes}");
        }
    }
}
