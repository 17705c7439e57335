//! The superblock: what a device is, and where the valid checkpoint is.
//!
//! Two of them, at offsets 0 and 65,536, one 512-byte sector each. Little-endian.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `VARVE\0SB` |
//! | 8 | 4 | version of everything below, 1 |
//! | 12 | 4 | crc32c of the 512 bytes, this field as zero |
//! | 16 | 8 | kind of store, ASCII padded with zeros: `extent`, `imr`, `imr-logs`, `band` |
//! | 24 | 8 | store id, drawn when formatted |
//! | 32 | 8 | generation |
//! | 40 | 8 | capacity of the device when formatted, in bytes |
//! | 48 | 16 | log: offset, length |
//! | 64 | 16 | checkpoint area 0: offset, length |
//! | 80 | 16 | checkpoint area 1: offset, length |
//! | 96 | 4 | bytes of a unit of the log |
//! | 100 | 1 | number of the valid checkpoint area, 0 or 1 |
//! | 101 | 1 | bytes of parameters |
//! | 102 | 2 | zero |
//! | 104 | 8 | generation in which the valid checkpoint was written |
//! | 112 | 8 | its length without header, in bytes |
//! | 120 | 4 | crc32c of those bytes |
//! | 124 | 4 | zero |
//! | 128 | 384 | parameters of the kind of store, then zeros |
//!
//! A newer version keeps magic, version and crc32c where they are.

use super::{JournalRegions, METADATA, Region, SUPERBLOCK_OFFSETS, SUPERBLOCK_RESERVED_BYTES, buffer, corruption};
use crate::error::StoreError;
use crate::file_store::{Finding, Severity};
use crate::wire::{Reader, Writer};
use varve_media::{BlockDeviceExt, Device};

const MAGIC: [u8; 8] = *b"VARVE\0SB";
const VERSION: u32 = 1;
pub(super) const SUPERBLOCK_BYTES: usize = 512;
const PARAMETERS_OFFSET: usize = 128;
const CHECKSUM: std::ops::Range<usize> = 12..16;
/// Most bytes a kind of store may keep in the superblock: their count is one byte.
const PARAMETERS_BYTES_MAX: usize = 255;

/// Name of a kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoreKind(pub(crate) [u8; 8]);

impl StoreKind {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).trim_end_matches('\0').escape_debug().to_string()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) kind: StoreKind,
    pub(super) store_id: u64,
    pub(super) generation: u64,
    pub(super) capacity_bytes: u64,
    pub(super) regions: JournalRegions,
    pub(super) active_checkpoint: usize,
    pub(super) checkpoint: CheckpointReference,
    pub(super) parameters: Vec<u8>,
}

/// What the superblock knows of the valid checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CheckpointReference {
    pub(super) generation: u64,
    pub(super) length_bytes: u64,
    pub(super) checksum: u32,
}

/// What one of the two places holds.
pub(super) enum Slot {
    /// Only zeros.
    Blank,
    Valid(Superblock),
    /// Another thing, or a newer version of this one.
    Foreign(StoreError),
    /// Ours, and damaged.
    Damaged(StoreError),
}

fn checksum(bytes: &[u8]) -> u32 {
    let head = crc32c::crc32c(&bytes[..CHECKSUM.start]);
    let head = crc32c::crc32c_append(head, &[0; 4]);
    crc32c::crc32c_append(head, &bytes[CHECKSUM.end..])
}

pub(super) fn encode(superblock: &Superblock) -> [u8; SUPERBLOCK_BYTES] {
    let mut writer = Writer::default();
    writer.bytes(&MAGIC);
    writer.u32(VERSION);
    writer.u32(0);
    writer.bytes(&superblock.kind.0);
    writer.u64(superblock.store_id);
    writer.u64(superblock.generation);
    writer.u64(superblock.capacity_bytes);
    let regions = &superblock.regions;
    for region in [regions.log, regions.checkpoints[0], regions.checkpoints[1]] {
        writer.u64(region.offset_bytes);
        writer.u64(region.length_bytes);
    }
    writer.u32(regions.unit_bytes);
    writer.u8(superblock.active_checkpoint as u8);
    assert!(superblock.parameters.len() <= PARAMETERS_BYTES_MAX, "parameters fit the superblock");
    writer.u8(superblock.parameters.len() as u8);
    writer.bytes(&[0; 2]);
    writer.u64(superblock.checkpoint.generation);
    writer.u64(superblock.checkpoint.length_bytes);
    writer.u32(superblock.checkpoint.checksum);
    writer.u32(0);
    writer.bytes(&superblock.parameters);
    let mut bytes = [0; SUPERBLOCK_BYTES];
    bytes[..writer.as_slice().len()].copy_from_slice(writer.as_slice());
    let checksum = checksum(&bytes);
    bytes[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Judges the bytes of one place; anything may come.
pub(super) fn decode(label: &str, offset_bytes: u64, kind: StoreKind, bytes: &[u8]) -> Slot {
    let damaged =
        |expected: String, found: String| Slot::Damaged(corruption(label, "superblock", offset_bytes, expected, found));
    let foreign = |expected: String, found: String, advice: &str| {
        Slot::Foreign(StoreError::Foreign {
            store: label.to_owned(),
            structure: "superblock".to_owned(),
            offset_bytes,
            expected,
            found,
            advice: advice.to_owned(),
        })
    };
    if bytes.len() < SUPERBLOCK_BYTES {
        return damaged(format!("{SUPERBLOCK_BYTES} bytes"), format!("{} bytes", bytes.len()));
    }
    let bytes = &bytes[..SUPERBLOCK_BYTES];
    if bytes.iter().all(|&byte| byte == 0) {
        return Slot::Blank;
    }
    let stored = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
    let intact = stored == checksum(bytes);
    if bytes[..8] != MAGIC {
        // A damaged byte of the magic does not make our superblock somebody else's.
        if bytes[..8].iter().zip(MAGIC).filter(|(found, expected)| **found == *expected).count() >= 6 {
            return damaged(format!("magic {:02x?}", MAGIC), format!("{:02x?}", &bytes[..8]));
        }
        let advice = "this device holds something else; choose another one, or format it and lose what it holds";
        return foreign(format!("magic {:02x?}", MAGIC), format!("{:02x?}", &bytes[..8]), advice);
    }
    if !intact {
        return damaged(format!("crc32c {:#010x}", checksum(bytes)), format!("{stored:#010x}"));
    }
    let mut reader = Reader::new(&bytes[8..]);
    let mut parse = || -> Option<Result<Superblock, (String, String)>> {
        let version = reader.u32()?;
        if version != VERSION {
            return Some(Err((format!("version {VERSION}"), format!("version {version}"))));
        }
        reader.u32()?;
        let found_kind = StoreKind(reader.array()?);
        if found_kind != kind {
            return Some(Err((format!("a store of kind '{}'", kind.text()), format!("'{}'", found_kind.text()))));
        }
        let store_id = reader.u64()?;
        let generation = reader.u64()?;
        let capacity_bytes = reader.u64()?;
        let mut region = || Some(Region { offset_bytes: reader.u64()?, length_bytes: reader.u64()? });
        let (log, first, second) = (region()?, region()?, region()?);
        let unit_bytes = reader.u32()?;
        let active_checkpoint = usize::from(reader.u8()?);
        let parameter_bytes = usize::from(reader.u8()?);
        let reserved = reader.u16()?;
        let checkpoint =
            CheckpointReference { generation: reader.u64()?, length_bytes: reader.u64()?, checksum: reader.u32()? };
        let reserved = reserved != 0 || reader.u32()? != 0;
        let (parameters, tail) = bytes.get(PARAMETERS_OFFSET..)?.split_at_checked(parameter_bytes)?;
        if reserved || tail.iter().any(|&byte| byte != 0) {
            return None;
        }
        let parameters = parameters.to_vec();
        let regions = JournalRegions { log, checkpoints: [first, second], unit_bytes };
        Some(Ok(Superblock {
            kind,
            store_id,
            generation,
            capacity_bytes,
            regions,
            active_checkpoint,
            checkpoint,
            parameters,
        }))
    };
    match parse() {
        None => damaged("zeros in reserved fields".to_owned(), "something else".to_owned()),
        Some(Err((expected, found))) => {
            foreign(expected, found, "open it with the version and the kind of store that wrote it")
        }
        Some(Ok(superblock)) => match inconsistency(&superblock) {
            Some(found) => damaged("regions inside the device that do not overlap".to_owned(), found),
            None => Slot::Valid(superblock),
        },
    }
}

/// What cannot be, though the checksum is right.
fn inconsistency(superblock: &Superblock) -> Option<String> {
    let regions = &superblock.regions;
    let unit = u64::from(regions.unit_bytes);
    if !unit.is_power_of_two() || !(512..=65536).contains(&unit) {
        return Some(format!("units of {unit} bytes"));
    }
    if superblock.active_checkpoint > 1 {
        return Some(format!("checkpoint area {}", superblock.active_checkpoint));
    }
    let mut all = [regions.log, regions.checkpoints[0], regions.checkpoints[1]];
    all.sort_by_key(|region| region.offset_bytes);
    let mut end = SUPERBLOCK_RESERVED_BYTES;
    for region in all {
        let aligned = region.offset_bytes.is_multiple_of(unit) && region.length_bytes.is_multiple_of(unit);
        let inside =
            region.offset_bytes.checked_add(region.length_bytes).is_some_and(|end| end <= superblock.capacity_bytes);
        if region.offset_bytes < end || !aligned || !inside || region.length_bytes == 0 {
            return Some(format!("{} bytes at {}", region.length_bytes, region.offset_bytes));
        }
        end = region.end_bytes();
    }
    let area = regions.checkpoints[superblock.active_checkpoint].length_bytes;
    if superblock.checkpoint.length_bytes.saturating_add(super::checkpoint::HEADER_BYTES as u64) > area {
        return Some(format!("a checkpoint of {} bytes in {area}", superblock.checkpoint.length_bytes));
    }
    // Numbers of files are made of it; nobody opens a store four billion times.
    (superblock.generation == 0 || superblock.generation >= 1 << 31)
        .then(|| format!("generation {}", superblock.generation))
}

/// Bytes read and written for one superblock: a whole physical sector.
fn slot_bytes(device: &Device) -> usize {
    (device.block.geometry().physical_sector_bytes as usize).max(SUPERBLOCK_BYTES)
}

pub(super) fn read_slots(device: &Device, label: &str, kind: StoreKind) -> [Slot; 2] {
    SUPERBLOCK_OFFSETS.map(|offset| {
        let mut bytes = buffer(device, slot_bytes(device));
        match device.block.read_at(offset, &mut bytes, &METADATA) {
            Ok(()) => decode(label, offset, kind, &bytes),
            Err(error) => Slot::Damaged(super::media_error(label, "superblock", error)),
        }
    })
}

/// Whether both are valid and of one generation.
pub(super) fn agree(slots: &[Slot; 2]) -> bool {
    match slots {
        [Slot::Valid(one), Slot::Valid(other)] => one.generation == other.generation,
        _ => false,
    }
}

/// The newest valid superblock, its place, and what was wrong with the other.
pub(super) fn choose(
    device: &Device,
    label: &str,
    slots: [Slot; 2],
) -> Result<(Superblock, usize, Vec<Finding>), StoreError> {
    let generation_of = |slot: &Slot| match slot {
        Slot::Valid(superblock) => superblock.generation,
        _ => 0,
    };
    let chosen = usize::from(generation_of(&slots[1]) > generation_of(&slots[0]));
    let [first, second] = slots;
    let (best, other) = if chosen == 0 { (first, second) } else { (second, first) };
    let superblock = match (best, &other) {
        (Slot::Valid(superblock), _) => superblock,
        // What is ours and damaged says more than what is not ours.
        (Slot::Damaged(error), _) => return Err(error),
        (_, Slot::Damaged(error)) => return Err(error.clone()),
        (Slot::Foreign(error), _) => return Err(error),
        (_, Slot::Foreign(error)) => return Err(error.clone()),
        (Slot::Blank, _) => {
            return Err(StoreError::Foreign {
                store: label.to_owned(),
                structure: "superblock".to_owned(),
                offset_bytes: SUPERBLOCK_OFFSETS[0],
                expected: "a superblock".to_owned(),
                found: "zeros".to_owned(),
                advice: "format the device first".to_owned(),
            });
        }
    };
    let geometry = device.block.geometry();
    let unusable = |expected: String, found: String, advice: &str| StoreError::Foreign {
        store: label.to_owned(),
        structure: "superblock".to_owned(),
        offset_bytes: SUPERBLOCK_OFFSETS[chosen],
        expected,
        found,
        advice: advice.to_owned(),
    };
    if geometry.capacity_bytes < superblock.capacity_bytes {
        return Err(unusable(
            format!("a device of {} bytes", superblock.capacity_bytes),
            format!("{} bytes", geometry.capacity_bytes),
            "open the whole device it was formatted on",
        ));
    }
    if geometry.physical_sector_bytes > superblock.regions.unit_bytes {
        return Err(unusable(
            format!("physical sectors of at most {} bytes", superblock.regions.unit_bytes),
            format!("{} bytes", geometry.physical_sector_bytes),
            "copy its files to a store formatted on this device",
        ));
    }
    let finding = match other {
        Slot::Valid(_) => None,
        Slot::Damaged(error) | Slot::Foreign(error) => Some(error.to_string()),
        Slot::Blank => Some(format!("{label}: superblock at offset {} is blank", SUPERBLOCK_OFFSETS[1 - chosen])),
    };
    let findings = finding
        .map(|message| Finding { severity: Severity::Warning, code: "superblock-damaged", message })
        .into_iter()
        .collect();
    Ok((superblock, chosen, findings))
}

/// Overwrites both with zeros, durably.
pub(super) fn erase(device: &Device, label: &str) -> Result<(), StoreError> {
    let zeros = buffer(device, slot_bytes(device));
    for offset in SUPERBLOCK_OFFSETS {
        super::write(device, label, offset, &zeros, false)?;
    }
    super::sync(device, label)
}

/// Writes one of the two, durably once the device is synced.
pub(super) fn write(device: &Device, label: &str, slot: usize, superblock: &Superblock) -> Result<(), StoreError> {
    let mut bytes = buffer(device, slot_bytes(device));
    bytes[..SUPERBLOCK_BYTES].copy_from_slice(&encode(superblock));
    super::write(device, label, SUPERBLOCK_OFFSETS[slot], &bytes, false)
}
