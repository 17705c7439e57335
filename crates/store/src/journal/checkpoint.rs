//! A checkpoint: the whole state, in one of two areas.
//!
//! Little-endian.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | crc32c of bytes 4 to 64 |
//! | 4 | 4 | magic `VCKP` |
//! | 8 | 8 | store id |
//! | 16 | 8 | generation that began with it |
//! | 24 | 8 | bytes of the state |
//! | 32 | 4 | crc32c of the state |
//! | 36 | 28 | zero |
//! | 64 | ... | the state, then zeros to the end of the unit |

use super::place::Place;
use super::superblock::CheckpointReference;
use super::{Region, Superblock, corruption, media_error};
use crate::error::StoreError;
use crate::wire::{Reader, Writer};
use varve_media::AlignedBuffer;

const MAGIC: [u8; 4] = *b"VCKP";
pub(super) const HEADER_BYTES: usize = 64;

fn encode_header(store_id: u64, reference: &CheckpointReference) -> [u8; HEADER_BYTES] {
    let mut writer = Writer::default();
    writer.bytes(&MAGIC);
    writer.u64(store_id);
    writer.u64(reference.generation);
    writer.u64(reference.length_bytes);
    writer.u32(reference.checksum);
    let mut bytes = [0; HEADER_BYTES];
    bytes[4..4 + writer.len()].copy_from_slice(writer.as_slice());
    let checksum = crc32c::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Judges a header; anything may come.
pub(super) fn decode_header(
    label: &str,
    offset_bytes: u64,
    store_id: u64,
    generation: u64,
    bytes: &[u8],
) -> Result<CheckpointReference, StoreError> {
    let damaged = |expected: String, found: String| corruption(label, "checkpoint", offset_bytes, expected, found);
    let header = bytes
        .get(..HEADER_BYTES)
        .ok_or_else(|| damaged(format!("{HEADER_BYTES} bytes"), format!("{} bytes", bytes.len())))?;
    let checksum = crc32c::crc32c(&header[4..]);
    let mut reader = Reader::new(header);
    let fields = (|| {
        let stored = reader.u32()?;
        let magic: [u8; 4] = reader.array()?;
        let found_store = reader.u64()?;
        let reference =
            CheckpointReference { generation: reader.u64()?, length_bytes: reader.u64()?, checksum: reader.u32()? };
        Some((stored, magic, found_store, reference))
    })();
    let Some((stored, magic, found_store, reference)) = fields else {
        return Err(damaged("a whole header".to_owned(), "one that ends early".to_owned()));
    };
    if stored != checksum {
        return Err(damaged(format!("crc32c {checksum:#010x}"), format!("{stored:#010x}")));
    }
    if magic != MAGIC || found_store != store_id || reference.generation != generation {
        return Err(damaged(
            format!("the checkpoint of generation {generation} of store {store_id:016x}"),
            format!("that of generation {} of store {found_store:016x}", reference.generation),
        ));
    }
    Ok(reference)
}

/// A state as it is written, whole units of at most `area_bytes`, and what the superblock must know of it.
pub(super) fn encode(
    place: &Place,
    area_bytes: u64,
    store_id: u64,
    generation: u64,
    state: &[u8],
) -> Result<(CheckpointReference, AlignedBuffer), StoreError> {
    let reference =
        CheckpointReference { generation, length_bytes: state.len() as u64, checksum: crc32c::crc32c(state) };
    let unit = place.device.block.geometry().physical_sector_bytes.max(512) as usize;
    let length = (HEADER_BYTES + state.len()).next_multiple_of(unit);
    if length as u64 > area_bytes {
        return Err(StoreError::NoSpace {
            store: place.label.clone(),
            name: "metadata".to_owned(),
            requested_bytes: length as u64,
            available_bytes: area_bytes,
            zones: None,
        });
    }
    let mut bytes = place.buffer(length);
    bytes[..HEADER_BYTES].copy_from_slice(&encode_header(store_id, &reference));
    bytes[HEADER_BYTES..HEADER_BYTES + state.len()].copy_from_slice(state);
    Ok((reference, bytes))
}

/// Writes a state durably and says what the superblock must know of it.
pub(super) fn write(
    place: &Place,
    region: Region,
    store_id: u64,
    generation: u64,
    state: &[u8],
) -> Result<CheckpointReference, StoreError> {
    let (reference, bytes) = encode(place, region.length_bytes, store_id, generation, state)?;
    place.write(region.offset_bytes, &bytes, false)?;
    place.sync()?;
    Ok(reference)
}

/// Reads the state the superblock refers to.
pub(super) fn read(place: &Place, region: Region, superblock: &Superblock) -> Result<Vec<u8>, StoreError> {
    let label = place.label.as_str();
    let expected = &superblock.checkpoint;
    let unit = superblock.regions.unit_bytes as usize;
    // The superblock was checked: the length fits the area.
    let length = (HEADER_BYTES + expected.length_bytes as usize).next_multiple_of(unit);
    let mut bytes = place.buffer(length);
    place.read(region.offset_bytes, &mut bytes).map_err(|error| media_error(label, "metadata", error))?;
    let at = place.device_offset(region.offset_bytes);
    let checked = |bytes: &[u8]| {
        let found = decode_header(label, at, superblock.store_id, expected.generation, bytes)?;
        let state = &bytes[HEADER_BYTES..HEADER_BYTES + expected.length_bytes as usize];
        let checksum = crc32c::crc32c(state);
        match found == *expected && checksum == expected.checksum {
            true => Ok(()),
            false => Err(corruption(
                label,
                "checkpoint",
                at + HEADER_BYTES as u64,
                format!("{} bytes of crc32c {:#010x}", expected.length_bytes, expected.checksum),
                format!("{} bytes of crc32c {checksum:#010x}", found.length_bytes),
            )),
        }
    };
    if let Err(damage) = checked(&bytes)
        && !place.find_sound(region.offset_bytes, &mut bytes, |bytes| checked(bytes).is_ok())
    {
        return Err(damage);
    }
    Ok(bytes[HEADER_BYTES..HEADER_BYTES + expected.length_bytes as usize].to_vec())
}
