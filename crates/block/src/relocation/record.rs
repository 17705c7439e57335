//! The bytes of the journal: a checkpoint at the start of a zone, then records of one relocation each, in slots of 4,096 bytes.
//!
//! A checkpoint:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `VARVEMAP` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | zones of the device |
//! | 16 | 8 | bytes of a zone |
//! | 24 | 8 | generation, from 1 |
//! | 32 | 4 | conventional zones at the start of the device |
//! | 36 | 4 | logical zones, `n` |
//! | 40 | 4 | crc32c of the map: bytes 4,096 to 4,096 + 4 `n` |
//! | 44 | 4 | crc32c of bytes 0 to 44 |
//! | 48 | 4,048 | zero |
//! | 4,096 | 4 each | for each logical zone the zone it is in |
//! | | | zeros up to the end of the slot |
//!
//! A record, one slot:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `VARVEREL` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | logical zone |
//! | 16 | 8 | generation of the checkpoint before it |
//! | 24 | 8 | number of the record in its generation, from 1 |
//! | 32 | 4 | zone it was in |
//! | 36 | 4 | zone it is in |
//! | 40 | 4 | crc32c of bytes 0 to 40 |
//! | 44 | 4,052 | zero |

use super::map::{JOURNAL_ZONES, ZoneMap};
use crate::wire::{u32_at, u64_at};
use varve_media::{ZoneGeometry, ZoneId, is_zero};

pub(super) const SLOT_BYTES: usize = 4096;

const CHECKPOINT_MAGIC: &[u8; 8] = b"VARVEMAP";
const RECORD_MAGIC: &[u8; 8] = b"VARVEREL";
pub(super) const VERSION: u32 = 1;
const CHECKPOINT_CHECKED_BYTES: usize = 44;
const RECORD_CHECKED_BYTES: usize = 40;

/// Why bytes that are sound cannot be used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// Of a version that is not known.
    OtherVersion(u32),
    /// What, expected, found.
    Damaged(&'static str, String, String),
}

fn damaged<T>(what: &'static str, expected: impl ToString, found: impl ToString) -> Result<T, Flaw> {
    Err(Flaw::Damaged(what, expected.to_string(), found.to_string()))
}

/// Whether a slot begins as a checkpoint does, or where one was torn.
pub(super) fn is_of_checkpoint(slot: &[u8]) -> bool {
    slot.starts_with(CHECKPOINT_MAGIC)
}

/// Bytes of a checkpoint of so many logical zones: whole slots.
pub(super) fn checkpoint_bytes(logical_zones: u32) -> u64 {
    let slot = SLOT_BYTES as u64;
    slot + (u64::from(logical_zones) * 4).next_multiple_of(slot)
}

/// What the first slot of a checkpoint says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CheckpointHeader {
    pub(super) generation: u64,
    pub(super) logical_zones: u32,
    map_checksum: u32,
}

/// The bytes of a checkpoint.
pub(super) fn encode_checkpoint(geometry: &ZoneGeometry, generation: u64, map: &ZoneMap) -> Vec<u8> {
    let mut bytes = vec![0; checkpoint_bytes(map.len()) as usize];
    let (header, entries) = bytes.split_at_mut(SLOT_BYTES);
    for (entry, zone) in entries.chunks_exact_mut(4).zip(map.zones()) {
        entry.copy_from_slice(&zone.0.to_le_bytes());
    }
    let map_checksum = crc32c::crc32c(&entries[..map.len() as usize * 4]);
    header[0..8].copy_from_slice(CHECKPOINT_MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&geometry.zone_count.to_le_bytes());
    header[16..24].copy_from_slice(&geometry.zone_bytes.to_le_bytes());
    header[24..32].copy_from_slice(&generation.to_le_bytes());
    header[32..36].copy_from_slice(&geometry.conventional_zones.to_le_bytes());
    header[36..40].copy_from_slice(&map.len().to_le_bytes());
    header[40..44].copy_from_slice(&map_checksum.to_le_bytes());
    let checksum = crc32c::crc32c(&header[..CHECKPOINT_CHECKED_BYTES]);
    header[44..48].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The header in a slot; `None` where there is none, or a torn one.
///
/// # Errors
/// It is sound, and not of this device.
pub(super) fn decode_header(geometry: &ZoneGeometry, slot: &[u8]) -> Result<Option<CheckpointHeader>, Flaw> {
    let Some(checked) = slot.get(..CHECKPOINT_CHECKED_BYTES).filter(|_| slot.len() == SLOT_BYTES) else {
        return Ok(None);
    };
    if !is_of_checkpoint(slot) || u32_at(slot, 44) != crc32c::crc32c(checked) || !is_zero(&slot[48..]) {
        return Ok(None);
    }
    if u32_at(slot, 8) != VERSION {
        return Err(Flaw::OtherVersion(u32_at(slot, 8)));
    }
    for (what, expected, found) in [
        ("zones of the device", u64::from(geometry.zone_count), u64::from(u32_at(slot, 12))),
        ("bytes of a zone", geometry.zone_bytes, u64_at(slot, 16)),
        ("conventional zones", u64::from(geometry.conventional_zones), u64::from(u32_at(slot, 32))),
    ] {
        if expected != found {
            return damaged(what, expected, found);
        }
    }
    let header = CheckpointHeader {
        generation: u64_at(slot, 24),
        logical_zones: u32_at(slot, 36),
        map_checksum: u32_at(slot, 40),
    };
    // Before anything of its size is allocated. With one spare at least.
    let most = geometry.zone_count.saturating_sub(JOURNAL_ZONES + 1);
    if header.logical_zones == 0 || header.logical_zones > most {
        return damaged("logical zones", format!("1 to {most}"), header.logical_zones);
    }
    // There is one after it.
    if header.generation == 0 || header.generation == u64::MAX {
        return damaged("generation", "1 or more, and not the last there is", header.generation);
    }
    Ok(Some(header))
}

/// The map behind a header; `None` where it is torn.
///
/// # Errors
/// It is sound, and cannot be.
pub(super) fn decode_map(
    geometry: &ZoneGeometry,
    header: &CheckpointHeader,
    entries: &[u8],
) -> Result<Option<ZoneMap>, Flaw> {
    let length = header.logical_zones as usize * 4;
    let Some((entries, rest)) = entries.split_at_checked(length) else { return Ok(None) };
    if crc32c::crc32c(entries) != header.map_checksum || !is_zero(rest) {
        return Ok(None);
    }
    let zones = entries.chunks_exact(4).map(|entry| ZoneId(u32_at(entry, 0))).collect();
    match ZoneMap::of(geometry, zones) {
        Ok(map) => Ok(Some(map)),
        Err(found) => damaged("map of zones", "each logical zone in a zone of its own", found),
    }
}

/// A logical zone that was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) generation: u64,
    pub(super) number: u64,
    pub(super) logical: ZoneId,
    pub(super) from: ZoneId,
    pub(super) to: ZoneId,
}

impl Record {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; SLOT_BYTES];
        bytes[0..8].copy_from_slice(RECORD_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.logical.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.generation.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.to.0.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..RECORD_CHECKED_BYTES]);
        bytes[40..44].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The record in a slot; `None` where there is none, or a torn one.
    ///
    /// # Errors
    /// It is sound, and of a version that is not known.
    pub(super) fn decode(slot: &[u8]) -> Result<Option<Record>, Flaw> {
        let Some(checked) = slot.get(..RECORD_CHECKED_BYTES).filter(|_| slot.len() == SLOT_BYTES) else {
            return Ok(None);
        };
        if !slot.starts_with(RECORD_MAGIC) || u32_at(slot, 40) != crc32c::crc32c(checked) || !is_zero(&slot[44..]) {
            return Ok(None);
        }
        if u32_at(slot, 8) != VERSION {
            return Err(Flaw::OtherVersion(u32_at(slot, 8)));
        }
        Ok(Some(Record {
            generation: u64_at(slot, 16),
            number: u64_at(slot, 24),
            logical: ZoneId(u32_at(slot, 12)),
            from: ZoneId(u32_at(slot, 32)),
            to: ZoneId(u32_at(slot, 36)),
        }))
    }
}

/// Where the records behind a checkpoint end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// Records that count.
    pub(super) records: u64,
    /// Nothing lies behind them: the next can be written there.
    pub(super) is_clean: bool,
}

/// Applies the records in `slots`, all there is behind the checkpoint, to its map.
///
/// A record is written when the one before it is durable. So one that is not sound ends them if no sound one of this generation
/// comes later, and is damage if one does.
///
/// # Errors
/// Damage, in the slot whose number is given with it.
pub(super) fn apply(map: &mut ZoneMap, generation: u64, slots: &[u8]) -> Result<End, (u64, Flaw)> {
    let mut end = None;
    for (at, slot) in (0u64..).zip(slots.chunks(SLOT_BYTES)) {
        let found = Record::decode(slot).map_err(|flaw| (at, flaw))?;
        match (found.filter(|record| record.generation == generation), end) {
            (Some(record), None) => {
                if record.number != at + 1 {
                    return damaged("number of a record", at + 1, record.number).map_err(|flaw| (at, flaw));
                }
                if !map.relocate(record.logical, record.from, record.to) {
                    let found = format!("logical zone {} from zone {} to {}", record.logical, record.from, record.to);
                    return damaged("record", "a move from where a zone is to a spare", found)
                        .map_err(|flaw| (at, flaw));
                }
            }
            (None, None) => end = Some(End { records: at, is_clean: is_zero(slot) }),
            (Some(record), Some(end)) => {
                let flaw =
                    damaged("record", format!("record {}", end.records + 1), "none that is sound, and later ones");
                return flaw.map_err(|flaw| (record.number.min(end.records), flaw));
            }
            (None, Some(End { records, is_clean })) => {
                end = Some(End { records, is_clean: is_clean && is_zero(slot) });
            }
        }
    }
    Ok(end.unwrap_or(End { records: (slots.len() / SLOT_BYTES) as u64, is_clean: true }))
}

/// Decodes any bytes as a journal: as they are, and with the magics, sizes and checksums that bytes at random do not have.
pub(crate) fn fuzz(data: &[u8]) {
    // The first byte says how many zones there are.
    let Some((&zones, data)) = data.split_first() else { return };
    let zone_bytes = 64 * SLOT_BYTES as u64;
    let Some(geometry) = ZoneGeometry::fit(u64::from(zones) * zone_bytes, zone_bytes) else { return };
    fuzz_zone(&geometry, data);
    let mut sealed = data.to_vec();
    let slots = sealed.len() / SLOT_BYTES;
    let logical = u32_at(data, 36) as usize % 64;
    for (number, slot) in sealed.chunks_exact_mut(SLOT_BYTES).enumerate() {
        match number {
            0 => {
                slot[0..8].copy_from_slice(CHECKPOINT_MAGIC);
                slot[8..12].copy_from_slice(&VERSION.to_le_bytes());
                slot[12..16].copy_from_slice(&geometry.zone_count.to_le_bytes());
                slot[16..24].copy_from_slice(&geometry.zone_bytes.to_le_bytes());
                slot[32..36].fill(0);
                slot[36..40].copy_from_slice(&(logical as u32).to_le_bytes());
                slot[48..].fill(0);
            }
            1 => slot[logical * 4..].fill(0),
            _ if slot[0] % 2 == 0 => {
                slot[0..8].copy_from_slice(RECORD_MAGIC);
                slot[8..12].copy_from_slice(&VERSION.to_le_bytes());
                slot[44..].fill(0);
                let checksum = crc32c::crc32c(&slot[..RECORD_CHECKED_BYTES]);
                slot[40..44].copy_from_slice(&checksum.to_le_bytes());
            }
            _ => {}
        }
    }
    if slots >= 2 {
        let map_checksum = crc32c::crc32c(&sealed[SLOT_BYTES..SLOT_BYTES + logical * 4]);
        sealed[40..44].copy_from_slice(&map_checksum.to_le_bytes());
        let checksum = crc32c::crc32c(&sealed[..CHECKPOINT_CHECKED_BYTES]);
        sealed[44..48].copy_from_slice(&checksum.to_le_bytes());
        fuzz_zone(&geometry, &sealed);
    }
}

fn fuzz_zone(geometry: &ZoneGeometry, data: &[u8]) {
    let (slot, rest) = data.split_at(data.len().min(SLOT_BYTES));
    let Ok(Some(header)) = decode_header(geometry, slot) else {
        let _ = Record::decode(slot);
        return;
    };
    let map_bytes = checkpoint_bytes(header.logical_zones) as usize - SLOT_BYTES;
    let (entries, slots) = rest.split_at(rest.len().min(map_bytes));
    let Ok(Some(mut map)) = decode_map(geometry, &header, entries) else { return };
    let made = encode_checkpoint(geometry, header.generation, &map);
    assert_eq!(made[..SLOT_BYTES], data[..SLOT_BYTES]);
    if let Ok(end) = apply(&mut map, header.generation, slots) {
        assert!(end.records as usize <= slots.len().div_ceil(SLOT_BYTES));
    }
    assert!(ZoneMap::of(geometry, map.zones().to_vec()).is_ok());
}

#[cfg(test)]
mod tests;
