//! Framed files: logs whose length needs no metadata.
//!
//! A framed file lies on the medium in *frames*, one logical sector each: a header and a part of the
//! file. Blocks for it are reserved ahead; a sync writes the frames that changed and syncs the device,
//! nothing more. After a crash the length is found by reading on from the length the metadata knows,
//! as long as frames carry the number of the file and follow each other. What others left in the
//! reserved blocks does not: numbers of files are never reused, so bytes of another file are never taken
//! for this one's.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | crc32c of everything behind it in the frame, continued from that of the store id |
//! | 4 | 2 | bytes of the file in this frame; all but the last frame are full |
//! | 6 | 2 | zero |
//! | 8 | 8 | number of the file |
//! | 16 | 4 | number of the frame in the file, from 0 |
//! | 20 | 4 | frames before this one that were not known to be durable when it was written |
//! | 24 | frame - 24 | bytes of the file, then zeros |
//!
//! Writes are whole physical sectors, so the last one, not full, is written again when more is
//! appended. A power cut leaves it old or new, a failed write each frame of it old or new: what was
//! synced stays.
//!
//! *Where a file ends, and who says so.* A file that was there when the store was opened is never appended to: it ends
//! where the metadata says. The numbers of files begin with the generation in which the store was opened, so those of
//! others are known by their numbers. A file of the last process is as long as the metadata knows at least. It ends
//! behind the first frame after that which is not full, or before the first sector that can be read and is no frame of
//! it: a sync returns when every frame before is durable. A sector that cannot be read says nothing: whether it is the
//! end is not known, and that is an error, and nothing is written. So is one behind the known length that names this
//! file and this place and has a wrong checksum: it is ours and damaged. Behind the end 1 MiB is looked at for frames that say, in the last
//! field of the header, that what is missing was durable: that tells a log that was torn from one that was damaged.
//! Damage of the number or the place in the very last frame, before the length was recorded, looks like the end.

use crate::wire::Reader;

pub(super) const HEADER_BYTES: usize = 24;

/// Most frames a file has: their numbers have 32 bits.
const FRAMES_MAX: u64 = 1 << 32;

/// What a framed file is made of on one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameFormat {
    pub(super) store_id: u64,
    pub(super) frame_bytes: usize,
}

/// A frame that belongs where it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) payload: &'a [u8],
    /// Frames of the file that were durable when it was written.
    pub(super) durable_frames: u64,
}

impl FrameFormat {
    /// Bytes of the file in a full frame.
    pub(super) fn payload_bytes(&self) -> usize {
        self.frame_bytes - HEADER_BYTES
    }

    /// Bytes a file of this length takes on the medium.
    pub(super) fn stored_bytes(&self, size_bytes: u64) -> u64 {
        size_bytes.div_ceil(self.payload_bytes() as u64).saturating_mul(self.frame_bytes as u64)
    }

    /// Longest file.
    pub(super) fn size_bytes_max(&self) -> u64 {
        FRAMES_MAX * self.payload_bytes() as u64
    }

    fn checksum(&self, frame: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.store_id.to_le_bytes()), &frame[4..])
    }

    /// Writes the header of a frame whose payload is in place, and zeros behind it.
    pub(super) fn seal(&self, frame: &mut [u8], file: u64, index: u64, used: usize, durable_bytes: u64) {
        let uncertain = index.saturating_sub(durable_bytes / self.payload_bytes() as u64);
        frame[4..6].copy_from_slice(&(used as u16).to_le_bytes());
        frame[6..8].fill(0);
        frame[8..16].copy_from_slice(&file.to_le_bytes());
        frame[16..20].copy_from_slice(&(index as u32).to_le_bytes());
        frame[20..24].copy_from_slice(&(uncertain as u32).to_le_bytes());
        frame[HEADER_BYTES + used..].fill(0);
        let checksum = self.checksum(frame);
        frame[..4].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Whether bytes that are no frame name `file` and `index`: then they were one.
    pub(super) fn names(&self, frame: &[u8], file: u64, index: u64) -> bool {
        let mut reader = Reader::new(frame.get(8..).unwrap_or_default());
        let (found_file, found_index) = (reader.u64(), reader.u32());
        found_file == Some(file) && found_index.map(u64::from) == Some(index)
    }

    /// Judges the bytes of a frame; anything may come. `None` when it is not frame `index` of `file`.
    pub(super) fn open<'a>(&self, frame: &'a [u8], file: u64, index: u64) -> Option<Frame<'a>> {
        let mut reader = Reader::new(frame);
        let (stored, used, reserved) = (reader.u32()?, usize::from(reader.u16()?), reader.u16()?);
        let (found_file, found_index, uncertain) = (reader.u64()?, u64::from(reader.u32()?), u64::from(reader.u32()?));
        if found_file != file || found_index != index || reserved != 0 || used == 0 {
            return None;
        }
        let payload = frame.get(HEADER_BYTES..HEADER_BYTES + used)?;
        let durable_frames = index.checked_sub(uncertain)?;
        (stored == self.checksum(frame)).then_some(Frame { payload, durable_frames })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: FrameFormat = FrameFormat { store_id: 0x0123_4567_89ab_cdef, frame_bytes: 512 };

    #[test]
    fn opens_only_in_its_place_and_whole() {
        let mut frame = vec![0xee; 512];
        assert_eq!((FORMAT.stored_bytes(0), FORMAT.stored_bytes(488), FORMAT.stored_bytes(489)), (0, 512, 1024));
        frame[HEADER_BYTES..HEADER_BYTES + 5].copy_from_slice(b"hello");
        FORMAT.seal(&mut frame, 42, 7, 5, 488 * 6 + 3);
        assert_eq!(FORMAT.open(&frame, 42, 7), Some(Frame { payload: b"hello", durable_frames: 6 }));
        assert_eq!(FORMAT.open(&frame, 42, 8), None);
        assert_eq!(FORMAT.open(&frame, 41, 7), None);
        assert_eq!(FrameFormat { store_id: 1, ..FORMAT }.open(&frame, 42, 7), None);
        for index in 0..frame.len() {
            for bit in 0..8 {
                let mut bad = frame.clone();
                bad[index] ^= 1 << bit;
                assert_eq!(FORMAT.open(&bad, 42, 7), None, "byte {index} bit {bit}");
            }
        }
        for length in 0..HEADER_BYTES {
            assert_eq!(FORMAT.open(&frame[..length], 42, 7), None);
        }
        let mut damaged = frame.clone();
        damaged[30] ^= 1;
        assert!(FORMAT.names(&damaged, 42, 7) && !FORMAT.names(&damaged, 42, 8) && !FORMAT.names(&damaged, 41, 7));
        assert!(!FORMAT.names(&[0; 512], 42, 7) && !FORMAT.names(&frame[..19], 42, 7));
        // Golden: version 1 of the format.
        assert_eq!(frame[..4], 0x9d13_0388_u32.to_le_bytes());
    }
}
