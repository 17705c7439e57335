//! Identity blocks: what a device is, where its superblocks are not, or not yet.
//!
//! One sector of 512 bytes at offset 0 and another at 64 KiB, the rest of a physical sector as zeros. Little-endian.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `VARVE\0ID` |
//! | 8 | 4 | version of everything below, 1 |
//! | 12 | 4 | crc32c of the 512 bytes, this field as zero |
//! | 16 | 8 | kind of store, as in the superblock |
//! | 24 | 8 | store id |
//! | 32 | 8 | generation the store begins with |
//! | 40 | 1 | 0: the superblocks lie elsewhere; 1: the store is being made, and nothing counts yet |
//! | 41 | 87 | zero |
//! | 128 | 128 | [description of the device](super) |
//! | 256 | 256 | zero |
//!
//! Making a store begins with two such blocks that say so, durably, where the superblocks will be, before anything else
//! is written, and ends with the superblocks in their place. So what a making left behind that was interrupted is told
//! from what somebody else wrote, and the same store is made again without a question. A newer version keeps magic,
//! version and crc32c where they are.

use super::{DESCRIPTION_BYTES, Identity, OpenedAs};
use crate::error::StoreError;
use crate::journal::{self, SUPERBLOCK_OFFSETS, Slot, StoreKind};
use crate::wire::{Reader, Writer};
use varve_media::Device;

pub(crate) const MAGIC: [u8; 8] = *b"VARVE\0ID";
pub(crate) const VERSION: u32 = 1;
pub(crate) const BLOCK_BYTES: usize = 512;
const DESCRIPTION_OFFSET: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IdentityBlock {
    pub(crate) kind: StoreKind,
    pub(crate) store_id: u64,
    pub(crate) generation: u64,
    /// The store is being made.
    pub(crate) is_unfinished: bool,
    pub(crate) identity: Identity,
}

impl IdentityBlock {
    pub(crate) fn encode(&self) -> [u8; BLOCK_BYTES] {
        let mut writer = Writer::default();
        writer.bytes(&MAGIC);
        writer.u32(VERSION);
        writer.u32(0);
        writer.bytes(&self.kind.0);
        writer.u64(self.store_id);
        writer.u64(self.generation);
        writer.u8(u8::from(self.is_unfinished));
        let mut bytes = [0; BLOCK_BYTES];
        bytes[..writer.as_slice().len()].copy_from_slice(writer.as_slice());
        bytes[DESCRIPTION_OFFSET..DESCRIPTION_OFFSET + DESCRIPTION_BYTES].copy_from_slice(&self.identity.encode());
        journal::seal(&mut bytes);
        bytes
    }

    /// Bytes behind an intact header of this version; `None` when they cannot be a block.
    pub(crate) fn decode(bytes: &[u8]) -> Option<IdentityBlock> {
        let mut reader = Reader::new(bytes.get(16..)?);
        let kind = StoreKind(reader.array()?);
        let (store_id, generation) = (reader.u64()?, reader.u64()?);
        let state = reader.u8()?;
        let identity = Identity::decode(bytes.get(DESCRIPTION_OFFSET..)?)?;
        let block = IdentityBlock { kind, store_id, generation, is_unfinished: state == 1, identity };
        // What is zero must be.
        (state <= 1 && block.encode()[..] == *bytes.get(..BLOCK_BYTES)?).then_some(block)
    }
}

/// What a device says of itself, where every store looks.
pub(crate) struct Said {
    pub(crate) kind: StoreKind,
    pub(crate) identity: Identity,
    pub(crate) offset_bytes: u64,
}

/// What a device says of itself; `None` when it says nothing of ours.
pub(crate) fn said(device: &Device, label: &str) -> Option<Said> {
    let mut newest: Option<((bool, u64), Said)> = None;
    for (offset_bytes, slot) in SUPERBLOCK_OFFSETS.into_iter().zip(journal::read_slots(device, label)) {
        let (is_elsewhere, generation, kind, identity) = match slot {
            Slot::Valid(superblock) => (false, superblock.generation, superblock.kind, superblock.identity),
            Slot::Identity(block) => (!block.is_unfinished, block.generation, block.kind, block.identity),
            Slot::Blank | Slot::Foreign(_) | Slot::OtherVersion(_) | Slot::Damaged(_) => continue,
        };
        let rank = (is_elsewhere, generation);
        if newest.as_ref().is_none_or(|(newest, _)| rank > *newest) {
            newest = Some((rank, Said { kind, identity, offset_bytes }));
        }
    }
    newest.map(|(_, said)| said)
}

/// What a device holds for a store that may be made or opened on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Nothing of anybody's.
    Blank,
    /// What a making left behind that was interrupted: nothing counts.
    Unfinished,
    /// A store of this kind on a device of these rules.
    Store,
}

/// The error of one that wants a store where none is.
pub(crate) fn missing(label: &str, presence: Presence, opened_as: &OpenedAs) -> StoreError {
    let found = match presence {
        Presence::Unfinished => "a store whose making was interrupted, with nothing in it",
        _ => "zeros",
    };
    StoreError::Foreign {
        store: label.to_owned(),
        structure: "superblock".to_owned(),
        offset_bytes: SUPERBLOCK_OFFSETS[0],
        expected: opened_as.to_string(),
        found: found.to_owned(),
        advice: "format the device first".to_owned(),
    }
}
