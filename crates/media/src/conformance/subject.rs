//! A device under check, with a model of what its tracks destroyed.

use super::block_device::BlockDeviceCheck;
use super::tracks::{Change, Readability, TrackModel};
use super::{Clause, Violation};
use crate::buffer::AlignedBuffer;
use crate::context::{IoClass, IoContext};
use crate::device::{BlockDevice, BlockDeviceExt, Device};
use crate::error::{MediaError, MediaErrorKind};
use crate::tracks::{TrackId, TrackTier};
use crate::zones::ZoneGeometry;
use std::cell::RefCell;
use std::ops::Range;
use varve_env::Random;

/// Bytes at the start of a device that the checks use; the device may be smaller, from 256 KiB on.
const SPAN_BYTES_MAX: u64 = 4 << 20;
/// Shortest track there is anything to check on.
const TRACK_BYTES_MIN: u64 = 64 << 10;
/// Smallest device there is anything to check on.
const SPAN_BYTES_MIN: u64 = 256 << 10;

/// A device under check and what its description means for requests.
pub(super) struct Subject {
    pub(super) device: Device,
    pub(super) sector: u64,
    /// Bytes at the start that the checks use.
    pub(super) span: u64,
    pub(super) alignment: usize,
    pub(super) seed: u64,
    pub(super) steps: u32,
    /// What was destroyed, on a device with tracks.
    tracks: Option<RefCell<TrackModel>>,
}

pub(super) fn context() -> IoContext {
    IoContext::of(IoClass::Check)
}

/// Bytes that differ from place to place and from one `salt` to the next.
pub(super) fn pattern(salt: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Random::seeded(salt).fill_bytes(&mut bytes);
    bytes
}

impl Subject {
    pub(super) fn new(device: Device, options: &BlockDeviceCheck) -> Result<Self, Violation> {
        let capabilities = device.block.capabilities();
        let geometry = device.block.geometry();
        let clause = Clause("scope of the suite");
        let zones = capabilities.zones.as_ref();
        clause.require(zones.is_none_or(ZoneGeometry::can_be_written_anywhere), || {
            "the suite is for devices whose sectors can be written at any time".to_owned()
        })?;
        clause.require(geometry.capacity_bytes >= SPAN_BYTES_MIN, || {
            format!("the device has {} bytes, the suite needs {SPAN_BYTES_MIN}", geometry.capacity_bytes)
        })?;
        let sector = u64::from(geometry.sector_bytes.max(1));
        let mut span = geometry.capacity_bytes.min(SPAN_BYTES_MAX);
        if let Some(tracks) = &capabilities.tracks {
            let least = tracks.top_track_bytes.min(tracks.bottom_track_bytes);
            let tops = tracks.tier_bytes(TrackTier::Top) / sector;
            clause.require(tracks.track_count >= 5 && least >= TRACK_BYTES_MIN && tops >= 256, || {
                format!(
                    "the device has {tracks:?}, the suite needs five tracks of {TRACK_BYTES_MIN} bytes and top tracks \
                     of 256 sectors together"
                )
            })?;
            let control = device.tracks.as_deref();
            if control.is_some_and(|control| control.is_strict()) {
                span = span.min(least);
            }
            // It is empty, as its maker says and it may not know.
            for track in (0..tracks.track_count).map(TrackId) {
                control.map_or(Ok(()), |control| clause.succeed("marking a track free", control.mark_free(track)))?;
            }
        }
        let physical_sector_bytes = geometry.physical_sector_bytes;
        let tracks = capabilities.tracks.as_ref().map(|tracks| TrackModel::new(tracks, physical_sector_bytes));
        Ok(Subject {
            sector,
            tracks: tracks.map(RefCell::new),
            span: span / sector * sector,
            alignment: capabilities.buffer_alignment_bytes.max(1) as usize,
            seed: options.seed,
            steps: options.steps,
            device,
        })
    }

    pub(super) fn block(&self) -> &dyn BlockDevice {
        &*self.device.block
    }

    pub(super) fn capacity(&self) -> u64 {
        self.block().geometry().capacity_bytes
    }

    pub(super) fn buffer(&self, data: &[u8]) -> AlignedBuffer {
        AlignedBuffer::copy_of(data, self.alignment)
    }

    /// Follows a batch of writes and discards that was done by other means than [`Subject::write`].
    pub(super) fn done(&self, batch: &[Change]) {
        if let Some(tracks) = &self.tracks {
            tracks.borrow_mut().done(batch);
        }
    }

    pub(super) fn write(&self, clause: Clause, offset_bytes: u64, data: &[u8]) -> Result<(), Violation> {
        let result = self.block().write_at(offset_bytes, &self.buffer(data), &context());
        clause.succeed(&format!("a write of {} bytes at {offset_bytes}", data.len()), result)?;
        self.done(&[Change { range: offset_bytes..offset_bytes + data.len() as u64, is_write: true }]);
        Ok(())
    }

    pub(super) fn read(&self, clause: Clause, offset_bytes: u64, length: usize) -> Result<AlignedBuffer, Violation> {
        let mut data = self.buffer(&vec![0xEE; length]);
        let result = self.block().read_at(offset_bytes, &mut data, &context());
        clause.succeed(&format!("a read of {length} bytes at {offset_bytes}"), result)?;
        Ok(data)
    }

    /// Whether it takes discards: one with zones does not.
    pub(super) fn takes_discards(&self) -> bool {
        self.block().capabilities().zones.is_none()
    }

    pub(super) fn discard(&self, clause: Clause, offset_bytes: u64, length_bytes: u64) -> Result<(), Violation> {
        let result = self.block().discard_at(offset_bytes, length_bytes, &context());
        if !self.takes_discards() {
            clause.fail("a discard of what a zone has", MediaErrorKind::InvalidRequest, result)?;
            return self.write(clause, offset_bytes, &vec![0; length_bytes as usize]);
        }
        clause.succeed(&format!("a discard of {length_bytes} bytes at {offset_bytes}"), result)?;
        self.done(&[Change { range: offset_bytes..offset_bytes + length_bytes, is_write: false }]);
        Ok(())
    }

    /// Parts of a range by whether they can be read; one part on a device without tracks.
    pub(super) fn parts(&self, range: Range<u64>) -> Vec<(Range<u64>, Readability)> {
        match &self.tracks {
            Some(tracks) => tracks.borrow().parts(range),
            None => vec![(range, Readability::Readable)],
        }
    }

    /// What is there must be `expected`, except what was destroyed, which must be unreadable.
    pub(super) fn expect(&self, clause: Clause, offset_bytes: u64, expected: &[u8]) -> Result<(), Violation> {
        let range = offset_bytes..offset_bytes + expected.len() as u64;
        let parts = self.parts(range.clone());
        if parts.len() > 1 && parts.iter().any(|(_, readability)| *readability == Readability::Unreadable) {
            self.expect_unreadable(clause, range)?;
        }
        for (part, readability) in parts {
            let expected = &expected[(part.start - offset_bytes) as usize..(part.end - offset_bytes) as usize];
            match readability {
                Readability::Readable => {
                    let found = self.read(clause, part.start, expected.len())?;
                    clause.same(&format!("{} bytes at {}", expected.len(), part.start), expected, &found)?;
                }
                Readability::Unreadable => {
                    // Every sector of a short part, some of a long one, the last one always.
                    let sectors = (part.end - part.start) / self.sector;
                    let step = sectors.div_ceil(16).max(1) * self.sector;
                    let some = (part.start..part.end).step_by(step as usize);
                    for at in some.chain([part.end - self.sector]) {
                        self.expect_unreadable(clause, at..at + self.sector)?;
                    }
                }
                Readability::Either => {
                    for (at, expected) in
                        (part.start..).step_by(self.sector as usize).zip(expected.chunks(self.sector as usize))
                    {
                        let mut found = self.buffer(&vec![0xEE; expected.len()]);
                        match self.block().read_at(at, &mut found, &context()) {
                            Err(error) if error.kind() == MediaErrorKind::Unreadable => {}
                            result => {
                                clause.succeed(&format!("a read of a sector at {at}"), result)?;
                                clause.same(&format!("the sector at {at}"), expected, &found)?;
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn expect_unreadable(&self, clause: Clause, range: Range<u64>) -> Result<(), Violation> {
        let mut data = self.buffer(&vec![0xEE; (range.end - range.start) as usize]);
        let what = format!("a read of destroyed sectors, {} bytes at {}", data.len(), range.start);
        let result = self.block().read_at(range.start, &mut data, &context());
        if let Err(MediaError::Unreadable { offset_bytes, .. }) = &result {
            let named = self.parts(*offset_bytes..offset_bytes.saturating_add(1));
            clause.require(named.iter().all(|(_, readability)| *readability != Readability::Readable), || {
                format!("{what}: the error names the readable sector at {offset_bytes}")
            })?;
        }
        clause.fail(&what, MediaErrorKind::Unreadable, result)
    }

    /// Where sector `index` of the threads' work goes: on a device with tracks to its top tracks, where
    /// nobody destroys what another one wrote. Every eight sectors from a multiple of eight lie together.
    pub(super) fn place(&self, index: u64) -> u64 {
        let Some(tracks) = &self.block().capabilities().tracks else { return index * self.sector };
        let in_track = tracks.top_track_bytes / self.sector / 8 * 8;
        let tops = u64::from(tracks.track_count / 2);
        let track = TrackId((index / in_track % tops) as u32 * 2 + 1);
        tracks.start_bytes(track) + index % in_track * self.sector
    }

    /// Cuts that slices of a buffer can have: at random multiples of the memory alignment, or of sectors.
    pub(super) fn cuts(&self, random: &mut Random, length: usize) -> Vec<usize> {
        let unit = if random.chance(1, 2) { self.alignment } else { self.alignment.max(self.sector as usize) };
        let mut cuts = vec![0, length];
        for _ in 0..random.below(6) {
            cuts.push(random.index(length / unit + 1) * unit);
        }
        cuts.sort_unstable();
        cuts
    }
}
