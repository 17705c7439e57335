//! Framed files: logs whose length needs no metadata.
//!
//! A framed file lies on the medium in *units*, one physical sector each: a header and a part of the
//! file. Blocks for it are reserved ahead; a sync writes the units that changed and syncs the device,
//! nothing more. After a crash the length is found by reading on from the length the metadata knows,
//! as long as units carry the number of the file and follow each other. What others left in the reserved blocks does not: file
//! numbers are never reused, so bytes of another file are never taken for this one's.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | crc32c of everything behind it in the unit, continued from that of the store id |
//! | 4 | 2 | bytes of the file in this unit; all but the last unit are full |
//! | 6 | 2 | zero |
//! | 8 | 8 | number of the file |
//! | 16 | 8 | number of the unit in the file, from 0 |
//! | 24 | 8 | bytes of the file known to be durable when this was written |
//! | 32 | unit - 32 | bytes of the file, then zeros |
//!
//! The last unit is written again when more is appended. The medium writes a physical sector whole or
//! not at all, so what was synced in it stays. The fourth field tells a log that was torn (units that
//! were never synced are missing) from one that was damaged (a later unit says they were).

use crate::wire::Reader;

pub(super) const HEADER_BYTES: usize = 32;

/// What a framed file is made of on one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameFormat {
    pub(super) store_id: u64,
    pub(super) unit_bytes: usize,
}

/// A unit that belongs where it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) payload: &'a [u8],
    /// Bytes of the file that were durable when it was written.
    pub(super) durable_bytes: u64,
}

impl FrameFormat {
    /// Bytes of the file in a full unit.
    pub(super) fn payload_bytes(&self) -> usize {
        self.unit_bytes - HEADER_BYTES
    }

    /// Units of a file of this length.
    pub(super) fn units(&self, size_bytes: u64) -> u64 {
        size_bytes.div_ceil(self.payload_bytes() as u64)
    }

    fn checksum(&self, unit: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.store_id.to_le_bytes()), &unit[4..])
    }

    /// Writes the header of a unit whose payload is in place, and zeros behind it.
    pub(super) fn seal(&self, unit: &mut [u8], file: u64, index: u64, used: usize, durable_bytes: u64) {
        unit[4..6].copy_from_slice(&(used as u16).to_le_bytes());
        unit[6..8].fill(0);
        unit[8..16].copy_from_slice(&file.to_le_bytes());
        unit[16..24].copy_from_slice(&index.to_le_bytes());
        unit[24..32].copy_from_slice(&durable_bytes.to_le_bytes());
        unit[HEADER_BYTES + used..].fill(0);
        let checksum = self.checksum(unit);
        unit[..4].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Judges the bytes of a unit; anything may come. `None` when it is not unit `index` of `file`.
    pub(super) fn open<'a>(&self, unit: &'a [u8], file: u64, index: u64) -> Option<Frame<'a>> {
        let mut reader = Reader::new(unit);
        let (stored, used, reserved) = (reader.u32()?, usize::from(reader.u16()?), reader.u16()?);
        let (found_file, found_index, durable_bytes) = (reader.u64()?, reader.u64()?, reader.u64()?);
        if found_file != file || found_index != index || reserved != 0 || used == 0 {
            return None;
        }
        let payload = unit.get(HEADER_BYTES..HEADER_BYTES + used)?;
        (stored == self.checksum(unit)).then_some(Frame { payload, durable_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: FrameFormat = FrameFormat { store_id: 0x0123_4567_89ab_cdef, unit_bytes: 512 };

    #[test]
    fn opens_only_in_its_place_and_whole() {
        let mut unit = vec![0xee; 512];
        unit[HEADER_BYTES..HEADER_BYTES + 5].copy_from_slice(b"hello");
        FORMAT.seal(&mut unit, 42, 7, 5, 3360);
        assert_eq!(FORMAT.open(&unit, 42, 7), Some(Frame { payload: b"hello", durable_bytes: 3360 }));
        assert_eq!(FORMAT.open(&unit, 42, 8), None);
        assert_eq!(FORMAT.open(&unit, 41, 7), None);
        assert_eq!(FrameFormat { store_id: 1, ..FORMAT }.open(&unit, 42, 7), None);
        for index in 0..unit.len() {
            for bit in 0..8 {
                let mut bad = unit.clone();
                bad[index] ^= 1 << bit;
                assert_eq!(FORMAT.open(&bad, 42, 7), None, "byte {index} bit {bit}");
            }
        }
        for length in 0..HEADER_BYTES {
            assert_eq!(FORMAT.open(&unit[..length], 42, 7), None);
        }
        // Golden: version 1 of the format.
        assert_eq!(unit[..4], 0xb99a8adc_u32.to_le_bytes());
    }
}
