//! What SCSI disks answer (SPC-4, SBC-4, ZBC-2). The formats are the standards', big-endian; nothing in them is trusted.
//!
//! Standard INQUIRY data:
//!
//! | bytes | what |
//! |---|---|
//! | 0 | peripheral qualifier (bits 7-5; 0: there is a unit), peripheral device type (bits 4-0; 00h disk, 14h host-managed) |
//! | 2 | version of SPC; 5 is SPC-3, the first in which every disk tells its pages |
//! | 4 | bytes behind byte 4 |
//!
//! A page of vital product data: peripheral (0), page code (1), bytes of it behind byte 3 (2-3). Page 00h has the codes of all
//! pages from byte 4 on, in order. Page B1h has the field ZONED in bits 5-4 of byte 8.
//!
//! READ CAPACITY (16):
//!
//! | bytes | what |
//! |---|---|
//! | 0-7 | address of the last logical block |
//! | 8-11 | bytes of a logical block |
//!
//! REPORT ZONES:
//!
//! | bytes | what |
//! |---|---|
//! | 0-3 | bytes of the zone descriptors that follow the header |
//! | 8-15 | address of the last logical block |
//! | 64... | zone descriptors of 64 bytes |
//!
//! Zone descriptor:
//!
//! | bytes | what |
//! |---|---|
//! | 0 | zone type (bits 3-0): 1 conventional, 2 sequential write required, 3 sequential write preferred |
//! | 1 | zone condition (bits 7-4), NON_SEQ (bit 1), RESET (bit 0) |
//! | 8-15 | blocks of the zone |
//! | 16-23 | address of its first block |
//! | 24-31 | address at its write pointer |
//!
//! Sense data:
//!
//! | response code (bits 6-0 of byte 0) | sense key | ASC | ASCQ |
//! |---|---|---|---|
//! | 70h, 71h (fixed format) | bits 3-0 of byte 2 | 12 | 13, both within the length of byte 7 behind it |
//! | 72h, 73h (descriptor format) | bits 3-0 of byte 1 | 2 | 3 |

// SCSI is big-endian.
#![allow(clippy::big_endian_bytes)]

use crate::hardware::zone_commands;
use crate::zones::{ZoneCondition, ZoneDescription, ZoneType};

/// Bytes of a zone descriptor, and of what stands before the first.
const ZONE_BYTES: usize = 64;
/// Zones asked for at once, at most: 64 KiB with what stands before them.
const ZONES_AT_ONCE: u32 = 1023;
/// The space for an answer must be whole sectors of this size for an ATA disk.
const ATA_SECTOR_BYTES: usize = 512;
/// Sizes of logical blocks in use; larger ones than 64 KiB no block layer takes.
const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 512..=65_536;
/// Peripheral device type of a direct access block device: a disk, host-aware and device-managed ones too.
const DISK: u8 = 0x00;
/// The first version of SPC (SPC-3) whose disks are asked for pages; some older ones break at it.
const VERSION_WITH_PAGES: u8 = 5;

/// A response that is not what the standard says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}: expected {expected}, found {found}")]
pub(super) struct Malformed {
    what: &'static str,
    at: usize,
    expected: String,
    found: String,
}

fn malformed<T>(what: &'static str, at: usize, expected: impl ToString, found: impl ToString) -> Result<T, Malformed> {
    Err(Malformed { what, at, expected: expected.to_string(), found: found.to_string() })
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize, what: &'static str) -> Result<[u8; N], Malformed> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
    found.map_or_else(|| malformed(what, at, format!("{N} bytes"), format!("the end at {}", bytes.len())), |&v| Ok(v))
}

fn u64_at(bytes: &[u8], at: usize, what: &'static str) -> Result<u64, Malformed> {
    bytes_at(bytes, at, what).map(u64::from_be_bytes)
}

fn u32_at(bytes: &[u8], at: usize, what: &'static str) -> Result<u32, Malformed> {
    bytes_at(bytes, at, what).map(u32::from_be_bytes)
}

/// Whether standard INQUIRY data is that of a disk that can be asked which pages it has.
pub(super) fn is_disk_with_pages(bytes: &[u8]) -> Result<bool, Malformed> {
    let [peripheral, _, version] = bytes_at(bytes, 0, "INQUIRY data")?;
    Ok(peripheral == DISK && version >= VERSION_WITH_PAGES)
}

/// What page `code` of vital product data holds behind its head.
fn page(bytes: &[u8], code: u8) -> Result<&[u8], Malformed> {
    let [_, found, high, low] = bytes_at(bytes, 0, "head of a page of vital product data")?;
    if found != code {
        return malformed("page code", 1, format!("{code:02X}h"), format!("{found:02X}h"));
    }
    let length = usize::from(u16::from_be_bytes([high, low]));
    // A longer page than the space for it is cut, which is no error: what is needed of it must be there.
    Ok(&bytes[4..bytes.len().min(4 + length)])
}

/// Whether page 00h, of the codes of all pages, names `code`.
pub(super) fn has_page(bytes: &[u8], code: u8) -> Result<bool, Malformed> {
    Ok(page(bytes, 0x00)?.contains(&code))
}

/// The field ZONED of page B1h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zoned {
    /// A disk without zones, one that does not say, or (in its peripheral type) a host-managed one.
    NotReported,
    /// Host-aware: zones of preferred type that can be asked for and commanded.
    HostAware,
    /// Device-managed: shingled, and its zones are nobody else's business.
    DeviceManaged,
}

/// Reads page B1h, block device characteristics.
pub(super) fn zoned_field(bytes: &[u8]) -> Result<Zoned, Malformed> {
    let page = page(bytes, 0xB1)?;
    match bytes_at::<1>(page, 4, "ZONED, counted behind the head of page B1h,")?[0] >> 4 & 3 {
        0 => Ok(Zoned::NotReported),
        1 => Ok(Zoned::HostAware),
        2 => Ok(Zoned::DeviceManaged),
        other => malformed("ZONED", 8, "0, 1 or 2", other),
    }
}

/// Sizes of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capacity {
    pub(super) block_bytes: u32,
    pub(super) capacity_bytes: u64,
}

/// Reads the answer to READ CAPACITY (16).
pub(super) fn capacity(bytes: &[u8]) -> Result<Capacity, Malformed> {
    let last = u64_at(bytes, 0, "address of the last block")?;
    let block_bytes = u32_at(bytes, 8, "bytes of a block")?;
    if !block_bytes.is_power_of_two() || !BLOCK_BYTES.contains(&block_bytes) {
        return malformed("bytes of a block", 8, "a power of two from 512 to 65536", block_bytes);
    }
    match last.checked_add(1).and_then(|blocks| blocks.checked_mul(u64::from(block_bytes))) {
        Some(capacity_bytes) => Ok(Capacity { block_bytes, capacity_bytes }),
        None => malformed("address of the last block", 0, "a disk of less than 2^64 bytes", last),
    }
}

/// Space for a report of `count` zones, or of as many as fit one answer.
pub(super) fn report_bytes(count: u32) -> usize {
    ((1 + count.min(ZONES_AT_ONCE) as usize) * ZONE_BYTES).next_multiple_of(ATA_SECTOR_BYTES)
}

/// Reads the answer to REPORT ZONES of a disk of these sizes: the zones of which the descriptors are in `bytes`, whole.
pub(super) fn zones(bytes: &[u8], disk: Capacity) -> Result<Vec<ZoneDescription>, Malformed> {
    let told = u32_at(bytes, 0, "length of the zone list")? as usize;
    if !told.is_multiple_of(ZONE_BYTES) {
        return malformed("length of the zone list", 0, "a multiple of 64", told);
    }
    let descriptors = bytes.get(ZONE_BYTES..).unwrap_or_default();
    // A disk may count the zones that did not fit, too.
    let descriptors = descriptors.chunks_exact(ZONE_BYTES).take(told / ZONE_BYTES);
    descriptors.enumerate().map(|(index, bytes)| zone(bytes, (1 + index) * ZONE_BYTES, disk)).collect()
}

/// Reads a zone descriptor, which stands at byte `at` of its report.
fn zone(bytes: &[u8], at: usize, disk: Capacity) -> Result<ZoneDescription, Malformed> {
    let [type_byte, condition_byte] = bytes_at(bytes, 0, "zone descriptor")?;
    let Some(zone_type) = zone_commands::zone_type(type_byte & 0xF) else {
        return malformed("zone type", at, "1, 2 or 3", type_byte & 0xF);
    };
    let Some(condition) = zone_commands::zone_condition(condition_byte >> 4) else {
        return malformed("zone condition", at + 1, "0 to 4 or 13 to 15", condition_byte >> 4);
    };
    let bytes_of = |offset: usize, what| {
        let blocks = u64_at(bytes, offset, what)?;
        let product = blocks.checked_mul(u64::from(disk.block_bytes));
        product.map_or_else(|| malformed(what, at + offset, "less than 2^64 bytes", blocks), Ok)
    };
    let length_bytes = bytes_of(8, "blocks of a zone")?;
    let start_bytes = bytes_of(16, "start of a zone")?;
    let end_bytes = start_bytes.checked_add(length_bytes).filter(|&end| length_bytes > 0 && end <= disk.capacity_bytes);
    let Some(end_bytes) = end_bytes else {
        let expected = format!("a zone within the {} bytes of the disk", disk.capacity_bytes);
        return malformed("blocks of a zone", at + 8, expected, format!("{length_bytes} bytes from {start_bytes} on"));
    };
    let non_sequential = zone_type == ZoneType::SequentialWritePreferred && condition_byte & 2 != 0;
    // Where it means nothing a disk says anything.
    let write_pointer_bytes = match condition {
        ZoneCondition::Full => end_bytes,
        condition if condition.is_active() => match bytes_of(24, "write pointer") {
            Ok(pointer) if (start_bytes..=end_bytes).contains(&pointer) => pointer,
            _ if non_sequential => start_bytes,
            Ok(pointer) => {
                return malformed("write pointer", at + 24, format!("{start_bytes} to {end_bytes}"), pointer);
            }
            Err(malformed) => return Err(malformed),
        },
        _ => start_bytes,
    };
    Ok(ZoneDescription {
        start_bytes,
        length_bytes,
        capacity_bytes: length_bytes,
        write_pointer_bytes,
        zone_type,
        condition,
        non_sequential,
    })
}

/// Why a command was not done, or what is to be said about it, in the numbers of SPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sense {
    pub(super) key: u8,
    /// Additional sense code.
    pub(super) code: u8,
    /// Its qualifier.
    pub(super) qualifier: u8,
    /// Of an earlier command than the one it came with.
    pub(super) is_deferred: bool,
}

/// Reads sense data; `None` when there is none that is known. A code that a disk left out is 0, as the standard has it.
pub(super) fn sense(bytes: &[u8]) -> Option<Sense> {
    let response_code = bytes.first()? & 0x7F;
    let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
    let (key, code, qualifier) = match response_code {
        0x70 | 0x71 => {
            let end = 8 + usize::from(at(7));
            let within = |index: usize| if index < end { at(index) } else { 0 };
            (*bytes.get(2)?, within(12), within(13))
        }
        0x72 | 0x73 => (*bytes.get(1)?, at(2), at(3)),
        _ => return None,
    };
    Some(Sense { key: key & 0xF, code, qualifier, is_deferred: response_code & 1 != 0 })
}

impl std::fmt::Display for Sense {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const KEYS: [&str; 16] = [
            "no sense",
            "recovered error",
            "not ready",
            "medium error",
            "hardware error",
            "illegal request",
            "unit attention",
            "data protect",
            "blank check",
            "vendor specific",
            "copy aborted",
            "aborted command",
            "reserved",
            "volume overflow",
            "miscompare",
            "completed",
        ];
        let Sense { key, code, qualifier, is_deferred } = *self;
        let name = KEYS.get(usize::from(key)).copied().unwrap_or("reserved");
        let meaning = match (code, qualifier) {
            (0x20, 0x00) => ": invalid command operation code",
            (0x21, 0x00) => ": logical block address out of range",
            (0x24, 0x00) => ": invalid field in the command",
            (0x27, 0x08) => ": the zone is read-only",
            (0x2C, 0x0E) => ": the zone is offline",
            (0x55, 0x0E) => ": insufficient zone resources",
            _ => "",
        };
        let deferred = if is_deferred { ", of an earlier command" } else { "" };
        write!(f, "{name} ({code:02X}h/{qualifier:02X}h{meaning}{deferred})")
    }
}

/// Any bytes, read as every response. No panic.
pub(crate) fn fuzz(data: &[u8]) {
    let _ = (is_disk_with_pages(data), has_page(data, 0xB1), zoned_field(data));
    let _ = sense(data).map(|sense| sense.to_string());
    let (head, rest) = data.split_at(data.len().min(12));
    if let Ok(disk) = capacity(head) {
        for zone in zones(rest, disk).iter().flatten() {
            let end_bytes = zone.start_bytes + zone.length_bytes;
            assert!(zone.length_bytes > 0 && end_bytes <= disk.capacity_bytes);
            assert!((zone.start_bytes..=end_bytes).contains(&zone.write_pointer_bytes));
        }
    }
}

#[cfg(test)]
mod tests;
