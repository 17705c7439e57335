//! The bytes of a journal's records. Little-endian.
//!
//! A record begins at a whole number of units and is written twice, one copy behind the other, each in physical sectors of
//! its own:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `VARVEJNL` |
//! | 8 | 4 | version of the frame, 1 |
//! | 12 | 4 | the layer, four characters: `RELO` relocation, `WBUF` write buffer |
//! | 16 | 16 | identity of the layer's device or devices |
//! | 32 | 8 | generation, from 1: odd ones are in the second area, even ones in the first |
//! | 40 | 4 | place in the generation, from 0 |
//! | 44 | 4 | 1 checkpoint, 2 change, 3 seal |
//! | 48 | 4 | bytes of the payload |
//! | 52 | 4 | crc32c of the payload |
//! | 56 | 4 | zero |
//! | 60 | 4 | crc32c of bytes 0 to 60 |
//! | 64 | | payload: the layer's |
//! | | | zeros up to the end of the unit |

use crate::wire::{u32_at, u64_at};
use varve_media::{LAYER_JOURNAL_MARK as MAGIC, is_zero};

pub(crate) const HEADER_BYTES: usize = 64;
pub(crate) const VERSION: u32 = 1;
const CHECKED_BYTES: usize = 60;

/// Whose journal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) layer: [u8; 4],
    pub(crate) identity: [u8; 16],
}

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The whole state: the first record of a generation.
    Checkpoint,
    Change,
    /// Says nothing but that nothing was recorded behind it.
    Seal,
}

impl Role {
    fn code(self) -> u32 {
        match self {
            Role::Checkpoint => 1,
            Role::Change => 2,
            Role::Seal => 3,
        }
    }
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) role: Role,
    pub(crate) generation: u64,
    pub(crate) place: u32,
}

/// Bytes of one copy of a record.
pub(crate) fn copy_bytes(payload_bytes: u64, unit_bytes: u64) -> u64 {
    (HEADER_BYTES as u64).saturating_add(payload_bytes).next_multiple_of(unit_bytes.max(1))
}

/// Both copies of a record.
pub(crate) fn encode(owner: &Owner, header: Header, payload: &[u8], unit_bytes: usize) -> Vec<u8> {
    let copy = copy_bytes(payload.len() as u64, unit_bytes as u64) as usize;
    let mut bytes = Vec::with_capacity(copy * 2);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&owner.layer);
    bytes.extend_from_slice(&owner.identity);
    bytes.extend_from_slice(&header.generation.to_le_bytes());
    for field in [header.place, header.role.code(), payload.len() as u32, crc32c::crc32c(payload), 0] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes.resize(copy, 0);
    bytes.extend_from_within(..);
    bytes
}

/// Content at the start of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// A sound record of this owner.
    Record(Header, &'a [u8]),
    /// A sound header of a version that is not known.
    OtherVersion(u32),
    /// The beginning of a record that is not sound.
    Unsound,
    /// Anything else.
    Other,
}

/// True if a unit begins with the magic of a record, sound or damaged.
pub(crate) fn begins_record(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Decodes one copy of a record from bytes that begin with it.
pub(crate) fn decode<'a>(owner: &Owner, bytes: &'a [u8], unit_bytes: usize) -> Found<'a> {
    if !begins_record(bytes) {
        return Found::Other;
    }
    let Some(checked) = bytes.get(..CHECKED_BYTES) else { return Found::Unsound };
    if u32_at(bytes, CHECKED_BYTES) != crc32c::crc32c(checked) {
        return Found::Unsound;
    }
    if u32_at(bytes, 8) != VERSION {
        return Found::OtherVersion(u32_at(bytes, 8));
    }
    if bytes[12..16] != owner.layer || bytes[16..32] != owner.identity {
        return Found::Other;
    }
    let role = match u32_at(bytes, 44) {
        1 => Role::Checkpoint,
        2 => Role::Change,
        3 => Role::Seal,
        _ => return Found::Unsound,
    };
    let payload_bytes = u32_at(bytes, 48) as usize;
    let end = copy_bytes(payload_bytes as u64, unit_bytes as u64);
    let body = usize::try_from(end).ok().and_then(|end| bytes.get(HEADER_BYTES..end));
    let Some((payload, rest)) = body.map(|body| body.split_at(payload_bytes)) else { return Found::Unsound };
    let header = Header { role, generation: u64_at(bytes, 32), place: u32_at(bytes, 40) };
    // There is a generation and a place behind it.
    let is_sound = crc32c::crc32c(payload) == u32_at(bytes, 52)
        && u32_at(bytes, 56) == 0
        && is_zero(rest)
        && (1..u64::MAX).contains(&header.generation)
        && header.place < u32::MAX
        && (role == Role::Checkpoint) == (header.place == 0)
        && (role != Role::Seal || payload.is_empty());
    if is_sound { Found::Record(header, payload) } else { Found::Unsound }
}

/// Gives each unit of any bytes that begins with the magic the fields and checksums that random bytes lack.
pub(crate) fn seal_for_fuzzing(owner: &Owner, bytes: &mut [u8], unit_bytes: usize) {
    let mut at = 0;
    while at + unit_bytes <= bytes.len() {
        let rest = &mut bytes[at..];
        rest[..8].copy_from_slice(MAGIC);
        rest[8..12].copy_from_slice(&VERSION.to_le_bytes());
        rest[12..16].copy_from_slice(&owner.layer);
        rest[16..32].copy_from_slice(&owner.identity);
        rest[33..40].fill(0);
        rest[32] = 2 + rest[32] % 3;
        rest[41..44].fill(0);
        let role = 1 + u32::from(rest[44] % 3);
        rest[44..48].copy_from_slice(&role.to_le_bytes());
        let payload = u32_at(rest, 48) as usize % (rest.len() - HEADER_BYTES + 1).min(3 * unit_bytes);
        rest[48..52].copy_from_slice(&(payload as u32).to_le_bytes());
        let end = (copy_bytes(payload as u64, unit_bytes as u64) as usize).min(rest.len());
        rest[HEADER_BYTES + payload..end].fill(0);
        let checksum = crc32c::crc32c(&rest[HEADER_BYTES..HEADER_BYTES + payload]);
        rest[52..56].copy_from_slice(&checksum.to_le_bytes());
        rest[56..60].fill(0);
        let checksum = crc32c::crc32c(&rest[..CHECKED_BYTES]);
        rest[60..64].copy_from_slice(&checksum.to_le_bytes());
        at += end;
    }
}
