//! How a device of logs beside the disk is divided, and the parameters that say so in its superblock.
//!
//! From its start: two superblocks, the log and checkpoint areas of the S2TMap (or of nothing, when that lies on
//! the disk), and the store of small files to the end. The store id of the superblock is that of the disk.
//!
//! Parameters, little-endian (the journal's superblock, at the start of the device, keeps them; its kind is
//! `imr-logs`):
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | version, 1 |
//! | 1 | 1 | flags: bit 0, the S2TMap is here |
//! | 2 | 6 | zero |
//! | 8 | 8 | first byte of the store of small files |
//! | 16 | 8 | its bytes |

use super::geometry::{ALIGNMENT_BYTES, anchor_regions};
use crate::error::StoreError;
use crate::journal::{JournalRegions, Region, SUPERBLOCK_RESERVED_BYTES};
use crate::wire::{Reader, Writer};
use varve_media::Geometry;

const VERSION: u8 = 1;
const FLAG_MAP: u8 = 1;
/// The store of small files needs as much.
const SMALL_FILES_BYTES_MIN: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BesideGeometry {
    pub(super) has_map: bool,
    /// In bytes of the device.
    pub(super) small_files: Region,
    pub(super) journal: JournalRegions,
}

impl BesideGeometry {
    /// Divides a device. `map` has the bytes of log and checkpoint of the S2TMap, when that shall lie here.
    pub(super) fn plan(name: &str, device: &Geometry, map: Option<(u64, u64)>) -> Result<BesideGeometry, StoreError> {
        let unit_bytes = device.physical_sector_bytes.max(device.sector_bytes).max(512);
        let at = SUPERBLOCK_RESERVED_BYTES;
        let journal = match map {
            Some((log, checkpoint)) => JournalRegions {
                log: Region { offset_bytes: at, length_bytes: log },
                checkpoints: [0, 1]
                    .map(|number| Region { offset_bytes: at + log + number * checkpoint, length_bytes: checkpoint }),
                unit_bytes,
                group_zones: 0,
                groups: 0,
            },
            None => anchor_regions(unit_bytes),
        };
        let offset_bytes = journal.checkpoints[1].end_bytes().next_multiple_of(ALIGNMENT_BYTES);
        let end = device.capacity_bytes / u64::from(unit_bytes) * u64::from(unit_bytes);
        let length_bytes = end.saturating_sub(offset_bytes);
        if !unit_bytes.is_power_of_two() || unit_bytes > 65536 || length_bytes < SMALL_FILES_BYTES_MIN {
            let reason = format!(
                "a device of {} bytes with sectors of {unit_bytes} is too small for logs; the least is {} bytes",
                device.capacity_bytes,
                offset_bytes + SMALL_FILES_BYTES_MIN
            );
            return Err(StoreError::InvalidRequest { store: name.to_owned(), reason });
        }
        Ok(BesideGeometry { has_map: map.is_some(), small_files: Region { offset_bytes, length_bytes }, journal })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u8(VERSION);
        writer.u8(u8::from(self.has_map) * FLAG_MAP);
        writer.bytes(&[0; 6]);
        writer.u64(self.small_files.offset_bytes);
        writer.u64(self.small_files.length_bytes);
        writer.into_vec()
    }
}

/// The parameters of a superblock on a device of so many bytes; anything may come.
pub(super) fn decode(bytes: &[u8], journal: &JournalRegions, capacity_bytes: u64) -> Option<BesideGeometry> {
    let mut reader = Reader::new(bytes);
    let (version, flags) = (reader.u8()?, reader.u8()?);
    let zeros: [u8; 6] = reader.array()?;
    let small_files = Region { offset_bytes: reader.u64()?, length_bytes: reader.u64()? };
    let unit = u64::from(journal.unit_bytes).max(1);
    let journal_end = journal.log.end_bytes().max(journal.checkpoints[0].end_bytes());
    let is_sound = version == VERSION
        && flags & !FLAG_MAP == 0
        && zeros == [0; 6]
        && reader.remaining() == 0
        && small_files.offset_bytes >= journal_end.max(journal.checkpoints[1].end_bytes())
        && small_files.offset_bytes.is_multiple_of(unit)
        && small_files.length_bytes.is_multiple_of(unit)
        && small_files.offset_bytes.checked_add(small_files.length_bytes).is_some_and(|end| end <= capacity_bytes);
    is_sound.then_some(BesideGeometry { has_map: flags & FLAG_MAP != 0, small_files, journal: *journal })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_come_back_and_their_bytes_do_not_change() {
        let device = Geometry { capacity_bytes: 64 << 20, sector_bytes: 512, physical_sector_bytes: 4096 };
        for map in [None, Some((1 << 20, 128 << 10))] {
            let planned = BesideGeometry::plan("logs", &device, map).unwrap();
            assert_eq!(planned.small_files.end_bytes(), 64 << 20);
            let bytes = planned.encode();
            assert_eq!(decode(&bytes, &planned.journal, 64 << 20), Some(planned.clone()));
            assert_eq!(decode(&bytes, &planned.journal, (64 << 20) - 1), None);
            for length in 0..bytes.len() {
                assert_eq!(decode(&bytes[..length], &planned.journal, 64 << 20), None);
            }
            for at in [0, 1, 2, 7, 8, 15, 16, 23] {
                let mut wrong = bytes.clone();
                wrong[at] ^= 0xf8;
                assert_eq!(decode(&wrong, &planned.journal, 64 << 20), None, "byte {at}");
            }
        }
        let planned = BesideGeometry::plan("logs", &device, Some((1 << 20, 128 << 10))).unwrap();
        assert_eq!(
            planned.encode(),
            [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0x16, 0, 0, 0, 0, 0, 0, 0, 0xea, 3, 0, 0, 0, 0],
            "version 1 of the format"
        );
    }

    #[test]
    fn devices_that_are_too_small_are_refused_with_numbers() {
        let device = Geometry { capacity_bytes: 1 << 20, sector_bytes: 512, physical_sector_bytes: 512 };
        let error = BesideGeometry::plan("logs", &device, None).unwrap_err();
        assert!(error.to_string().contains("1048576 bytes"), "{error}");
    }
}
