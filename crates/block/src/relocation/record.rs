//! The payloads of the journal of relocated zones. Little-endian. Frames are those of the shared [journal](crate::journal).
//!
//! A checkpoint:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | version of the payloads, 2 |
//! | 4 | 4 | zones of the device |
//! | 8 | 8 | bytes of a zone |
//! | 16 | 4 | conventional zones at the start of the device |
//! | 20 | 4 | logical zones, `n` |
//! | 24 | 4 each | for each logical zone the zone it is in |
//!
//! A change, one relocation:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | logical zone |
//! | 4 | 4 | zone it was in |
//! | 8 | 4 | zone it is in |
//!
//! Version 1 had frames of its own: a checkpoint with the magic `VARVEMAP` at the start of a journal zone. It is refused by
//! that name.

use super::map::{JOURNAL_ZONES, ZoneMap};
use crate::wire::{u32_at, u64_at};
use varve_media::{RELOCATION_MARK_VERSION_1 as MAGIC_OF_VERSION_1, ZoneGeometry, ZoneId};

pub(super) const VERSION: u32 = 2;
const CHECKED_BYTES_OF_VERSION_1: usize = 44;
const CHECKPOINT_HEADER_BYTES: usize = 24;
pub(super) const CHANGE_BYTES: u64 = 12;

/// Why a payload cannot be used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    OtherVersion(u32),
    Damaged { what: &'static str, expected: String, found: String },
}

fn damaged<T>(what: &'static str, expected: impl ToString, found: impl ToString) -> Result<T, Flaw> {
    Err(Flaw::Damaged { what, expected: expected.to_string(), found: found.to_string() })
}

/// True if a zone of the journal begins with a checkpoint of version 1.
pub(super) fn is_of_version_1(slot: &[u8]) -> bool {
    slot.starts_with(MAGIC_OF_VERSION_1)
        && slot.get(..CHECKED_BYTES_OF_VERSION_1).is_some_and(|checked| u32_at(slot, 44) == crc32c::crc32c(checked))
}

/// Size of the payload of a checkpoint, in bytes, by the number of logical zones.
pub(super) fn checkpoint_bytes(logical_zones: u32) -> u64 {
    CHECKPOINT_HEADER_BYTES as u64 + u64::from(logical_zones) * 4
}

/// The payload of a checkpoint.
pub(super) fn encode_checkpoint(geometry: &ZoneGeometry, map: &ZoneMap) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(checkpoint_bytes(map.len()) as usize);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&geometry.zone_count.to_le_bytes());
    bytes.extend_from_slice(&geometry.zone_bytes.to_le_bytes());
    bytes.extend_from_slice(&geometry.conventional_zones.to_le_bytes());
    bytes.extend_from_slice(&map.len().to_le_bytes());
    for zone in map.zones() {
        bytes.extend_from_slice(&zone.0.to_le_bytes());
    }
    bytes
}

/// The map that a checkpoint has.
///
/// # Errors
/// It is not of this device, or cannot be.
pub(super) fn decode_checkpoint(geometry: &ZoneGeometry, bytes: &[u8]) -> Result<ZoneMap, Flaw> {
    if bytes.len() < CHECKPOINT_HEADER_BYTES {
        return damaged("length of a checkpoint", format!("{CHECKPOINT_HEADER_BYTES} or more"), bytes.len());
    }
    if u32_at(bytes, 0) != VERSION {
        return Err(Flaw::OtherVersion(u32_at(bytes, 0)));
    }
    for (what, expected, found) in [
        ("zones of the device", u64::from(geometry.zone_count), u64::from(u32_at(bytes, 4))),
        ("bytes of a zone", geometry.zone_bytes, u64_at(bytes, 8)),
        ("conventional zones", u64::from(geometry.conventional_zones), u64::from(u32_at(bytes, 16))),
    ] {
        if expected != found {
            return damaged(what, expected, found);
        }
    }
    let logical_zones = u32_at(bytes, 20);
    // Before anything of its size is allocated. With one spare at least.
    let most = geometry.zone_count.saturating_sub(JOURNAL_ZONES + 1);
    if logical_zones == 0 || logical_zones > most {
        return damaged("logical zones", format!("1 to {most}"), logical_zones);
    }
    let length = checkpoint_bytes(logical_zones);
    if bytes.len() as u64 != length {
        return damaged("length of a checkpoint", length, bytes.len());
    }
    let entries = bytes[CHECKPOINT_HEADER_BYTES..].chunks_exact(4);
    match ZoneMap::of(geometry, entries.map(|entry| ZoneId(u32_at(entry, 0))).collect()) {
        Ok(map) => Ok(map),
        Err(found) => damaged("map of zones", "each logical zone in a zone of its own", found),
    }
}

/// A logical zone that was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) logical: ZoneId,
    pub(super) from: ZoneId,
    pub(super) to: ZoneId,
}

impl Move {
    pub(super) fn encode(&self) -> Vec<u8> {
        [self.logical, self.from, self.to].into_iter().flat_map(|zone| zone.0.to_le_bytes()).collect()
    }

    /// Applies the payload of a change to the map.
    ///
    /// # Errors
    /// It is none that the map allows.
    pub(super) fn apply(bytes: &[u8], map: &mut ZoneMap) -> Result<(), Flaw> {
        if bytes.len() as u64 != CHANGE_BYTES {
            return damaged("length of a change", CHANGE_BYTES, bytes.len());
        }
        let [logical, from, to] = [0, 4, 8].map(|at| ZoneId(u32_at(bytes, at)));
        if !map.relocate(logical, from, to) {
            let found = format!("logical zone {logical} from zone {from} to {to}");
            return damaged("change", "a move from where a zone is to a spare", found);
        }
        Ok(())
    }
}

/// Decodes any bytes as payloads and as an area of the journal: as they are, and with the sizes that random bytes lack.
pub(crate) fn fuzz(data: &[u8]) {
    // The first byte says how many zones there are.
    let Some((&zones, data)) = data.split_first() else { return };
    crate::journal::fuzz(&super::journal::OWNER, data);
    let zone_bytes = 1 << 18;
    let Some(geometry) = ZoneGeometry::fit(u64::from(zones) * zone_bytes, zone_bytes) else { return };
    let mut sealed = data.to_vec();
    if sealed.len() >= CHECKPOINT_HEADER_BYTES {
        let logical = (sealed.len() - CHECKPOINT_HEADER_BYTES) / 4;
        sealed.truncate(CHECKPOINT_HEADER_BYTES + logical * 4);
        sealed[0..4].copy_from_slice(&VERSION.to_le_bytes());
        sealed[4..8].copy_from_slice(&geometry.zone_count.to_le_bytes());
        sealed[8..16].copy_from_slice(&geometry.zone_bytes.to_le_bytes());
        sealed[16..20].copy_from_slice(&geometry.conventional_zones.to_le_bytes());
        sealed[20..24].copy_from_slice(&(logical as u32).to_le_bytes());
    }
    for bytes in [data, &sealed] {
        let Ok(mut map) = decode_checkpoint(&geometry, bytes) else { continue };
        assert_eq!(encode_checkpoint(&geometry, &map), bytes);
        let _ = Move::apply(&data[..data.len().min(CHANGE_BYTES as usize)], &mut map);
        assert!(ZoneMap::of(&geometry, map.zones().to_vec()).is_ok());
    }
}

#[cfg(test)]
mod tests;
