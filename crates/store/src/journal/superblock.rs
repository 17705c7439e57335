//! The superblock: what a device is, and where the valid checkpoint is.
//!
//! Two of them, at offsets 0 and 65,536 of the device or of a [group of zones](super::zones), one 512-byte sector each.
//! Little-endian. Before a store is whole, and where its superblocks lie elsewhere,
//! [identity blocks](crate::identity::block) lie there.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `VARVE\0SB` |
//! | 8 | 4 | version of everything below: 2; 3 where the journal lies in zones, 4 where it lies there in two copies |
//! | 12 | 4 | crc32c of the 512 bytes, this field as zero |
//! | 16 | 8 | kind of store, ASCII padded with zeros: `extent`, `imr`, `imr-logs`, `band` |
//! | 24 | 8 | store id, drawn when formatted |
//! | 32 | 8 | generation |
//! | 40 | 8 | bytes that the offsets below are within: of the device when formatted, or of the part of it that is the journal's |
//! | 48 | 16 | log: offset, length |
//! | 64 | 16 | checkpoint area 0: offset, length |
//! | 80 | 16 | checkpoint area 1: offset, length |
//! | 96 | 4 | bytes of a unit of the log |
//! | 100 | 1 | number of the valid checkpoint area, 0 or 1 |
//! | 101 | 1 | bytes of parameters |
//! | 102 | 1 | version 4: groups of zones, 3; else zero |
//! | 103 | 1 | version 4: a bit for each group that is given up, bit 0 for the first; else zero |
//! | 104 | 8 | generation in which the valid checkpoint was written |
//! | 112 | 8 | its length without header, in bytes |
//! | 120 | 4 | crc32c of those bytes |
//! | 124 | 4 | versions 3 and 4: zones of a group, 1 or more; version 2: zero |
//! | 128 | 128 | [description of the device](crate::identity) |
//! | 256 | 256 | parameters of the kind of store, then zeros |
//!
//! In a group of zones offsets count what is used of each zone; checkpoint area 0 is the valid one, area 1 has no bytes, and
//! the log is what is left of the group.
//!
//! A newer version keeps magic, version and crc32c where they are. Version 1 had no description.

use super::place::Place;
use super::{
    JournalRegions, MIRRORED_GROUPS, Region, SINGLE_GROUPS, SUPERBLOCK_OFFSETS, SUPERBLOCK_RESERVED_BYTES, corruption,
    media_error,
};
use crate::error::StoreError;
use crate::file_store::{Finding, Severity};
use crate::identity::block::{self, IdentityBlock, Presence};
use crate::identity::{self, DESCRIPTION_BYTES, Identity, OpenedAs};
use crate::wire::{Reader, Writer};
use varve_media::{AlignedBuffer, Device, MediaErrorKind};

const MAGIC: [u8; 8] = *b"VARVE\0SB";
const VERSION: u32 = 2;
/// The journal lies in zones. Those who know version 2 only would take offsets for others.
const VERSION_ZONES: u32 = 3;
/// Each generation lies in two groups of zones. Programs that know version 3 only would go on with one of them.
const VERSION_MIRRORED: u32 = 4;
pub(super) const SUPERBLOCK_BYTES: usize = 512;
const DESCRIPTION_OFFSET: usize = 128;
const PARAMETERS_OFFSET: usize = DESCRIPTION_OFFSET + DESCRIPTION_BYTES;
const CHECKSUM: std::ops::Range<usize> = 12..16;
/// Most bytes a kind of store may keep in the superblock: their count is one byte.
const PARAMETERS_BYTES_MAX: usize = 255;

/// Generations are below it: numbers of files are made of them, and nobody opens a store two billion times.
pub(super) const GENERATION_END: u64 = 1 << 31;

/// Name of a kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoreKind(pub(crate) [u8; 8]);

impl StoreKind {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).trim_end_matches('\0').escape_debug().to_string()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) kind: StoreKind,
    pub(super) store_id: u64,
    pub(crate) generation: u64,
    pub(crate) identity: Identity,
    pub(super) capacity_bytes: u64,
    pub(super) regions: JournalRegions,
    /// Groups of zones that hold no later generation: a bit for each.
    pub(super) given_up: u8,
    pub(super) active_checkpoint: usize,
    pub(super) checkpoint: CheckpointReference,
    pub(super) parameters: Vec<u8>,
}

/// What the superblock knows of the valid checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointReference {
    pub(super) generation: u64,
    pub(super) length_bytes: u64,
    pub(super) checksum: u32,
}

/// What one of the two places holds.
pub(crate) enum Slot {
    /// Only zeros.
    Blank,
    Valid(Superblock),
    /// What stands there before a store is whole, or when its superblocks lie elsewhere.
    Identity(IdentityBlock),
    /// Another thing.
    Foreign(StoreError),
    /// Ours, of a version that is not known here.
    OtherVersion(StoreError),
    /// Ours, and damaged.
    Damaged(StoreError),
}

fn checksum(bytes: &[u8]) -> u32 {
    let head = crc32c::crc32c(&bytes[..CHECKSUM.start]);
    let head = crc32c::crc32c_append(head, &[0; 4]);
    crc32c::crc32c_append(head, &bytes[CHECKSUM.end..])
}

/// Puts the checksum of a superblock or an identity block into it.
pub(crate) fn seal(bytes: &mut [u8; SUPERBLOCK_BYTES]) {
    let checksum = checksum(bytes);
    bytes[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
}

fn version_of(regions: &JournalRegions) -> u32 {
    match (regions.group_zones, regions.copies()) {
        (0, _) => VERSION,
        (_, 1) => VERSION_ZONES,
        _ => VERSION_MIRRORED,
    }
}

pub(super) fn encode(superblock: &Superblock) -> [u8; SUPERBLOCK_BYTES] {
    let mut writer = Writer::default();
    writer.bytes(&MAGIC);
    writer.u32(version_of(&superblock.regions));
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
    writer.u8(if version_of(regions) == VERSION_MIRRORED { regions.groups } else { 0 });
    writer.u8(superblock.given_up);
    writer.u64(superblock.checkpoint.generation);
    writer.u64(superblock.checkpoint.length_bytes);
    writer.u32(superblock.checkpoint.checksum);
    writer.u32(superblock.regions.group_zones);
    writer.bytes(&superblock.identity.encode());
    writer.bytes(&superblock.parameters);
    let mut bytes = [0; SUPERBLOCK_BYTES];
    bytes[..writer.as_slice().len()].copy_from_slice(writer.as_slice());
    seal(&mut bytes);
    bytes
}

/// Judges the bytes of one place; anything may come.
pub(super) fn decode(label: &str, offset_bytes: u64, bytes: &[u8]) -> Slot {
    let damaged =
        |expected: String, found: String| Slot::Damaged(corruption(label, "superblock", offset_bytes, expected, found));
    let foreign = |expected: String, found: String, advice: &str| StoreError::Foreign {
        store: label.to_owned(),
        structure: "superblock".to_owned(),
        offset_bytes,
        expected,
        found,
        advice: advice.to_owned(),
    };
    let other_version =
        |expected, found| Slot::OtherVersion(foreign(expected, found, "open it with the version that wrote it"));
    if bytes.len() < SUPERBLOCK_BYTES {
        return damaged(format!("{SUPERBLOCK_BYTES} bytes"), format!("{} bytes", bytes.len()));
    }
    let bytes = &bytes[..SUPERBLOCK_BYTES];
    if varve_media::is_zero(bytes) {
        return Slot::Blank;
    }
    let stored = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
    let intact = stored == checksum(bytes);
    if bytes[..8] == block::MAGIC {
        if !intact {
            return damaged(format!("crc32c {:#010x}", checksum(bytes)), format!("{stored:#010x}"));
        }
        let version = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        if version != block::VERSION {
            let (expected, found) = (format!("version {}", block::VERSION), format!("version {version}"));
            return other_version(expected, found);
        }
        return match IdentityBlock::decode(bytes) {
            Some(block) => Slot::Identity(block),
            None => damaged("the description of a device".to_owned(), "something else".to_owned()),
        };
    }
    if bytes[..8] != MAGIC {
        // A damaged byte of the magic does not make our superblock somebody else's.
        let agrees = |magic: [u8; 8]| bytes[..8].iter().zip(magic).filter(|(found, own)| **found == *own).count() >= 6;
        if agrees(MAGIC) || agrees(block::MAGIC) {
            return damaged(format!("magic {:02x?}", MAGIC), format!("{:02x?}", &bytes[..8]));
        }
        let advice = "this device holds something else; choose another one, or format it and lose what it holds";
        return Slot::Foreign(foreign(format!("magic {:02x?}", MAGIC), format!("{:02x?}", &bytes[..8]), advice));
    }
    if !intact {
        return damaged(format!("crc32c {:#010x}", checksum(bytes)), format!("{stored:#010x}"));
    }
    let mut reader = Reader::new(&bytes[8..]);
    let mut parse = || -> Option<Result<Superblock, (String, String)>> {
        let version = reader.u32()?;
        if !(VERSION..=VERSION_MIRRORED).contains(&version) {
            let expected = format!("a version from {VERSION} to {VERSION_MIRRORED}");
            return Some(Err((expected, format!("version {version}"))));
        }
        reader.u32()?;
        let kind = StoreKind(reader.array()?);
        let store_id = reader.u64()?;
        let generation = reader.u64()?;
        let capacity_bytes = reader.u64()?;
        let mut region = || Some(Region { offset_bytes: reader.u64()?, length_bytes: reader.u64()? });
        let (log, first, second) = (region()?, region()?, region()?);
        let unit_bytes = reader.u32()?;
        let active_checkpoint = usize::from(reader.u8()?);
        let parameter_bytes = usize::from(reader.u8()?);
        let (groups, given_up) = (reader.u8()?, reader.u8()?);
        let checkpoint =
            CheckpointReference { generation: reader.u64()?, length_bytes: reader.u64()?, checksum: reader.u32()? };
        let group_zones = reader.u32()?;
        let is_mirrored = version == VERSION_MIRRORED;
        let expected_groups = if is_mirrored { MIRRORED_GROUPS } else { 0 };
        let reserved =
            (group_zones == 0) != (version == VERSION) || groups != expected_groups || (given_up != 0 && !is_mirrored);
        let groups = match version {
            VERSION => 0,
            VERSION_ZONES => SINGLE_GROUPS,
            _ => groups,
        };
        let identity = Identity::decode(bytes.get(DESCRIPTION_OFFSET..PARAMETERS_OFFSET)?)?;
        let (parameters, tail) = bytes.get(PARAMETERS_OFFSET..)?.split_at_checked(parameter_bytes)?;
        if reserved || tail.iter().any(|&byte| byte != 0) {
            return None;
        }
        let parameters = parameters.to_vec();
        let regions = JournalRegions { log, checkpoints: [first, second], unit_bytes, group_zones, groups };
        Some(Ok(Superblock {
            kind,
            store_id,
            generation,
            identity,
            capacity_bytes,
            regions,
            given_up,
            active_checkpoint,
            checkpoint,
            parameters,
        }))
    };
    match parse() {
        None => damaged("a description and zeros in reserved fields".to_owned(), "something else".to_owned()),
        Some(Err((expected, found))) => other_version(expected, found),
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
    let mut all = vec![regions.log, regions.checkpoints[0], regions.checkpoints[1]];
    let mut end = SUPERBLOCK_RESERVED_BYTES;
    if regions.group_zones > 0 {
        let kept = u32::from(regions.groups).saturating_sub(superblock.given_up.count_ones());
        if superblock.given_up >> regions.groups != 0 || (kept as usize) < regions.copies() {
            return Some(format!("{} groups of zones, {:#b} of them given up", regions.groups, superblock.given_up));
        }
        let unused = all.pop().filter(|region| *region != Region::default());
        if let Some(Region { offset_bytes, length_bytes }) = unused {
            return Some(format!("{length_bytes} bytes at {offset_bytes}"));
        }
        if superblock.active_checkpoint != 0 {
            return Some(format!("checkpoint area {}", superblock.active_checkpoint));
        }
    }
    all.sort_by_key(|region| region.offset_bytes);
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
    (superblock.generation == 0 || superblock.generation >= GENERATION_END)
        .then(|| format!("generation {}", superblock.generation))
}

/// Bytes read and written for one superblock: a whole physical sector.
fn slot_bytes(device: &Device) -> usize {
    (device.block.geometry().physical_sector_bytes as usize).max(SUPERBLOCK_BYTES)
}

/// What one of the two places of superblocks holds.
fn read_slot(place: &Place, offset_bytes: u64) -> Slot {
    let mut bytes = place.buffer(slot_bytes(&place.device));
    let decoded = |bytes: &[u8]| decode(&place.label, place.device_offset(offset_bytes), bytes);
    match place.read(offset_bytes, &mut bytes) {
        Ok(()) => match decoded(&bytes) {
            Slot::Damaged(_) | Slot::Foreign(_)
                if place.find_sound(offset_bytes, &mut bytes, |bytes| {
                    matches!(decoded(bytes), Slot::Valid(_) | Slot::Identity(_))
                }) =>
            {
                decoded(&bytes)
            }
            slot => slot,
        },
        Err(error) => Slot::Damaged(media_error(&place.label, "superblock", error)),
    }
}

pub(super) fn slots_in(place: &Place) -> [Slot; 2] {
    SUPERBLOCK_OFFSETS.map(|offset| read_slot(place, offset))
}

/// Of a device that has a journal somewhere, the two where the newest is.
pub(crate) fn read_slots(device: &Device, label: &str) -> [Slot; 2] {
    super::generations::newest_slots(device, label).unwrap_or_else(|| slots_in(&Place::whole(device, label)))
}

/// Whether both are valid and of one generation.
pub(super) fn agree(slots: &[Slot; 2]) -> bool {
    match slots {
        [Slot::Valid(one), Slot::Valid(other)] => one.generation == other.generation,
        _ => false,
    }
}

/// What two places hold for a store that would be opened or made there; `device` is what has them. Whether a device
/// without anything in them is [blank](identity::refuse_used) is another question.
pub(super) fn presence(
    device: &Device,
    label: &str,
    opened_as: &OpenedAs,
    slots: [Slot; 2],
) -> Result<Presence, StoreError> {
    if slots.iter().all(|slot| matches!(slot, Slot::Blank)) {
        return Ok(Presence::Blank);
    }
    // The marks are there before anything else is written: beside one there is another or what was there before.
    let is_mark = |slot: &Slot| matches!(slot, Slot::Identity(block) if block.is_unfinished);
    // While one stands nothing was committed. Saying what an interlaced disk is may destroy the other.
    let is_destroyed = |slot: &Slot| matches!(slot, Slot::Damaged(StoreError::Media { error, .. }) if error.kind() == MediaErrorKind::Unreadable);
    let is_own = |slot: &Slot| matches!(slot, Slot::Blank) || is_mark(slot) || is_destroyed(slot);
    if slots.iter().any(is_mark) && slots.iter().all(is_own) {
        for (slot, offset_bytes) in slots.iter().zip(SUPERBLOCK_OFFSETS) {
            if let Slot::Identity(block) = slot {
                identity::refuse_other(label, offset_bytes, block.kind, &block.identity.shape, opened_as)?;
            }
        }
        return Ok(Presence::Unfinished);
    }
    choose(&Place::whole(device, label), opened_as, slots).map(|_| Presence::Store)
}

/// The newest valid superblock, its place, and what was wrong with the other.
pub(super) fn choose(
    place: &Place,
    opened_as: &OpenedAs,
    slots: [Slot; 2],
) -> Result<(Superblock, usize, Vec<Finding>), StoreError> {
    let (device, label) = (&place.device, place.label.as_str());
    // What says that the superblocks are not here knows better than what looks like one.
    for (number, slot) in slots.iter().enumerate() {
        if let Slot::Identity(block) = slot
            && !block.is_unfinished
        {
            return Err(said_elsewhere(label, opened_as, number, block));
        }
    }
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
        (Slot::Identity(block), _) => return Err(said_elsewhere(label, opened_as, chosen, &block)),
        (_, Slot::Identity(block)) => return Err(said_elsewhere(label, opened_as, 1 - chosen, block)),
        (Slot::Foreign(error) | Slot::OtherVersion(error), _) => return Err(error),
        (_, Slot::Foreign(error) | Slot::OtherVersion(error)) => return Err(error.clone()),
        (Slot::Blank, _) => return Err(block::missing(label, Presence::Blank, opened_as)),
    };
    let offset_bytes = place.device_offset(SUPERBLOCK_OFFSETS[chosen]);
    identity::refuse_other(label, offset_bytes, superblock.kind, &superblock.identity.shape, opened_as)?;
    let geometry = device.block.geometry();
    let unusable = |expected: String, found: String, advice: &str| StoreError::Foreign {
        store: label.to_owned(),
        structure: "superblock".to_owned(),
        offset_bytes,
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
        Slot::Damaged(error) | Slot::Foreign(error) | Slot::OtherVersion(error) => Some(error.to_string()),
        Slot::Identity(_) => Some(format!(
            "{label}: at offset {} an identity block is in place of a superblock",
            SUPERBLOCK_OFFSETS[1 - chosen]
        )),
        Slot::Blank => Some(format!("{label}: superblock at offset {} is blank", SUPERBLOCK_OFFSETS[1 - chosen])),
    };
    let findings = finding
        .map(|message| Finding { severity: Severity::Warning, code: "superblock-damaged", message })
        .into_iter()
        .collect();
    Ok((superblock, chosen, findings))
}

/// The error of one that looks for superblocks where there is an identity block only.
fn said_elsewhere(label: &str, opened_as: &OpenedAs, slot: usize, found: &IdentityBlock) -> StoreError {
    let offset_bytes = SUPERBLOCK_OFFSETS[slot];
    match identity::refuse_other(label, offset_bytes, found.kind, &found.identity.shape, opened_as) {
        Err(error) => error,
        Ok(()) => block::missing(label, Presence::Unfinished, opened_as),
    }
}

/// Writes an identity block where a superblock may be, durably once the device is synced.
pub(crate) fn write_identity(
    device: &Device,
    label: &str,
    offset_bytes: u64,
    identity: &IdentityBlock,
) -> Result<(), StoreError> {
    let place = Place::whole(device, label);
    place.write(offset_bytes, &whole_slot(&place, identity.encode()), false)
}

fn whole_slot(place: &Place, block: [u8; SUPERBLOCK_BYTES]) -> AlignedBuffer {
    let mut bytes = place.buffer(slot_bytes(&place.device));
    bytes[..SUPERBLOCK_BYTES].copy_from_slice(&block);
    bytes
}

/// What a group of zones begins with: a superblock or an identity block, twice.
pub(super) fn header(place: &Place, block: [u8; SUPERBLOCK_BYTES]) -> AlignedBuffer {
    let mut bytes = place.buffer(SUPERBLOCK_RESERVED_BYTES as usize);
    for offset in SUPERBLOCK_OFFSETS {
        bytes[offset as usize..][..SUPERBLOCK_BYTES].copy_from_slice(&block);
    }
    bytes
}

/// Writes one of the two, durably once the device is synced.
pub(super) fn write(place: &Place, slot: usize, superblock: &Superblock) -> Result<(), StoreError> {
    place.write(SUPERBLOCK_OFFSETS[slot], &whole_slot(place, encode(superblock)), false)
}
