//! Frames: how small files lie in log bands.
//!
//! A log band is a sequence of frames from its start, one behind the other, each a header and a part of one file,
//! filled up with zeros to whole physical sectors. A frame lies in one band. After a crash the files are rebuilt from
//! the frames of all log bands, in the order of the bands:
//!
//! - A frame that is not a copy ends its file: the file is what it was before the frame's offset, and the frame.
//! - A *copy* (a part of a file brought from a band that is to be emptied) replaces what the file has there.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `VLBF` |
//! | 4 | 4 | crc32c of everything behind it in the frame, continued from that of the store id |
//! | 8 | 1 | version, 1 |
//! | 9 | 1 | 1 for a copy, else 0 |
//! | 10 | 2 | zero |
//! | 12 | 4 | bytes of the file in this frame, 1 or more |
//! | 16 | 8 | number of the file |
//! | 24 | 8 | offset in the file |
//! | 32 | 8 | number of the frame: one more than that of the frame before it in the band; less than 2^63 |
//! | 40 | 8 | frames before this number were durable when it was written |
//! | 48 | ... | bytes of the file, then zeros |
//!
//! *Where a log band ends, and who says so.* A sealed one ends where the band table says, and everything before is
//! durable. The last one ends behind the last frame that follows the one before it without a gap; a place that can be
//! read and holds no frame says so, while nothing behind it cannot be read (see [`scan`](super::scan)). What cannot be
//! read is never an end: the files that may have had something there are told so, by name, when they are read, no
//! others are, and the band stays as it is in the band table for as long as they live, so that the next open reads it
//! again.
//!
//! The last field tells a band that was torn (its last frames were never synced) from one that was damaged (a later
//! frame says that what is missing was durable). Of a file that the band table says was cut, frames before the number it
//! names count only up to the offset it names.

use super::change::NUMBER_END;
use crate::wire::Reader;

pub(super) const HEADER_BYTES: usize = 48;
/// A frame is read whole to be verified.
pub(super) const FRAME_BYTES_MAX: usize = 64 << 10;
const MAGIC: [u8; 4] = *b"VLBF";
const VERSION: u8 = 1;

/// What frames are like on one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameFormat {
    pub(super) store_id: u64,
    /// A power of two, at most [`FRAME_BYTES_MAX`].
    pub(super) unit_bytes: usize,
}

/// What a frame says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) is_copy: bool,
    pub(super) file: u64,
    /// Offset in the file.
    pub(super) offset_bytes: u64,
    pub(super) sequence: u64,
    /// Frames before this number were durable when it was written.
    pub(super) durable_sequence: u64,
}

/// A frame that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) header: FrameHeader,
    pub(super) payload: &'a [u8],
    /// Bytes of all of it on the medium.
    pub(super) frame_bytes: usize,
}

impl FrameFormat {
    /// Bytes on the medium of a frame with so many bytes of a file.
    pub(super) fn frame_bytes(&self, payload_bytes: usize) -> usize {
        (HEADER_BYTES + payload_bytes).next_multiple_of(self.unit_bytes)
    }

    /// Most bytes of a file in one frame with so much space.
    pub(super) fn payload_bytes_max(&self, space_bytes: u64) -> usize {
        let space = space_bytes.min(FRAME_BYTES_MAX as u64) as usize / self.unit_bytes * self.unit_bytes;
        space.saturating_sub(HEADER_BYTES)
    }

    fn checksum(&self, behind: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.store_id.to_le_bytes()), behind)
    }

    /// Fills a frame whose payload of `payload_bytes` is in place: header, and zeros behind it.
    pub(super) fn seal(&self, frame: &mut [u8], header: &FrameHeader, payload_bytes: usize) {
        frame[..4].copy_from_slice(&MAGIC);
        frame[8] = VERSION;
        frame[9] = u8::from(header.is_copy);
        frame[10..12].fill(0);
        frame[12..16].copy_from_slice(&(payload_bytes as u32).to_le_bytes());
        frame[16..24].copy_from_slice(&header.file.to_le_bytes());
        frame[24..32].copy_from_slice(&header.offset_bytes.to_le_bytes());
        frame[32..40].copy_from_slice(&header.sequence.to_le_bytes());
        frame[40..48].copy_from_slice(&header.durable_sequence.to_le_bytes());
        frame[HEADER_BYTES + payload_bytes..].fill(0);
        let checksum = self.checksum(&frame[8..]);
        frame[4..8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// The frame at the start of `bytes`, which may be anything; `None` when there is none, or not all of it.
    pub(super) fn open<'a>(&self, bytes: &'a [u8]) -> Option<Frame<'a>> {
        let mut reader = Reader::new(bytes);
        let (magic, stored): ([u8; 4], u32) = (reader.array()?, reader.u32()?);
        let (version, flags, reserved) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let payload_bytes = reader.u32()? as usize;
        let header = FrameHeader {
            is_copy: flags == 1,
            file: reader.u64()?,
            offset_bytes: reader.u64()?,
            sequence: reader.u64()?,
            durable_sequence: reader.u64()?,
        };
        if magic != MAGIC || version != VERSION || flags > 1 || reserved != 0 || payload_bytes == 0 {
            return None;
        }
        let frame_bytes = (payload_bytes <= FRAME_BYTES_MAX - HEADER_BYTES).then(|| self.frame_bytes(payload_bytes))?;
        let behind = bytes.get(8..frame_bytes)?;
        header.offset_bytes.checked_add(payload_bytes as u64)?;
        if header.sequence >= NUMBER_END {
            return None;
        }
        let payload = &bytes[HEADER_BYTES..HEADER_BYTES + payload_bytes];
        (stored == self.checksum(behind)).then_some(Frame { header, payload, frame_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: FrameFormat = FrameFormat { store_id: 0x0123_4567_89ab_cdef, unit_bytes: 512 };
    const HEADER: FrameHeader =
        FrameHeader { is_copy: false, file: 42, offset_bytes: 7000, sequence: 9, durable_sequence: 8 };

    fn sealed(payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0xee; FORMAT.frame_bytes(payload.len())];
        frame[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(payload);
        FORMAT.seal(&mut frame, &HEADER, payload.len());
        frame
    }

    #[test]
    fn opens_whole_and_undamaged_only() {
        let frame = sealed(b"hello");
        let opened = Frame { header: HEADER, payload: b"hello", frame_bytes: 512 };
        assert_eq!(FORMAT.open(&frame), Some(opened));
        assert_eq!(FORMAT.open(&[&frame[..], &[1; 512]].concat()), Some(opened));
        assert_eq!(FrameFormat { store_id: 1, ..FORMAT }.open(&frame), None);
        for index in 0..frame.len() {
            for bit in 0..8 {
                let mut bad = frame.clone();
                bad[index] ^= 1 << bit;
                assert_eq!(FORMAT.open(&bad), None, "byte {index} bit {bit}");
            }
        }
        for length in 0..frame.len() {
            assert_eq!(FORMAT.open(&frame[..length]), None);
        }
        // Golden: version 1 of the format.
        assert_eq!(frame[4..8], 0xe466_7d15_u32.to_le_bytes());
    }

    #[test]
    fn lengths_fit_their_frames() {
        assert_eq!((FORMAT.frame_bytes(464), FORMAT.frame_bytes(465)), (512, 1024));
        assert_eq!(FORMAT.payload_bytes_max(511), 0);
        assert_eq!(FORMAT.payload_bytes_max(1500), 1024 - HEADER_BYTES);
        assert_eq!(FORMAT.payload_bytes_max(u64::MAX), FRAME_BYTES_MAX - HEADER_BYTES);
        let full = sealed(&vec![7; FRAME_BYTES_MAX - HEADER_BYTES]);
        assert_eq!(FORMAT.open(&full).map(|frame| frame.frame_bytes), Some(FRAME_BYTES_MAX));
    }
}
