//! What a disk holds for this store, and how it says so.
//!
//! The superblocks lie on tops, which can be written again and again, and not where other stores look: byte 0 of a disk
//! is on a bottom track. So [identity blocks](crate::identity::block) lie at offsets 0 and 64 KiB of the disk. They are
//! written when the store is made, before anything on the tops beside them counts, and never again. Where tracks are so
//! short that 64 KiB of the disk are on a top of the store's own, the second one gives way to what belongs there.

use super::KIND;
use super::view::Disk;
use crate::error::StoreError;
use crate::file_store::{Finding, Severity};
use crate::identity::block::{IdentityBlock, Presence, missing};
use crate::identity::{self, OpenedAs};
use crate::journal::{self, SUPERBLOCK_OFFSETS, Slot, corruption, media_error, read_slots, write_identity};
use std::sync::Arc;
use varve_media::{BlockDeviceExt, Device, MediaErrorKind, TrackControl, TrackGeometry};

/// What the first places of a disk say.
enum Said {
    Nothing,
    Unfinished,
    Made,
}

/// Says what a disk holds, and whether what it says of itself is damaged. `own` is its part for the store's own.
pub(super) fn presence(label: &str, device: &Device, own: &Device) -> Result<(Presence, Option<Finding>), StoreError> {
    let opened_as = OpenedAs::new(KIND, device);
    presence_without_layers(label, device, own, &opened_as)
        .map_err(|error| identity::name_layer(device, label, &opened_as, error))
}

fn presence_without_layers(
    label: &str,
    device: &Device,
    own: &Device,
    opened_as: &OpenedAs,
) -> Result<(Presence, Option<Finding>), StoreError> {
    if device.block.capabilities().tracks.as_ref().is_none_or(|tracks| !tracks.interlaced) {
        return Ok((journal::presence_on_device(own, label, opened_as)?, None));
    }
    let said = said(label, device, opened_as)?;
    let found = match (journal::presence(own, label, opened_as), &said) {
        (Err(StoreError::Foreign { .. }), Said::Unfinished) => Presence::Unfinished,
        // Saying so has destroyed what was there.
        (Err(StoreError::Media { error, .. }), Said::Unfinished) if error.kind() == MediaErrorKind::Unreadable => {
            Presence::Unfinished
        }
        (Err(error), Said::Nothing) => {
            // What holds something known says more by that than by what lies where superblocks would.
            identity::refuse_used_by_others(device, label, opened_as)?;
            return Err(error);
        }
        (found, _) => found?,
    };
    let presence = match (found, said) {
        (Presence::Blank, Said::Nothing) => {
            identity::refuse_used(device, label, opened_as)?;
            Presence::Blank
        }
        (Presence::Blank, Said::Made) => {
            let expected = "superblocks of the store that the disk says it holds";
            return Err(corruption(label, "superblock", 0, expected, "zeros"));
        }
        (Presence::Store, Said::Nothing) => {
            let message = format!("{label}: what the disk was formatted as does not stand at its start");
            let finding = Finding { severity: Severity::Warning, code: "identity-damaged", message };
            return Ok((Presence::Store, Some(finding)));
        }
        (Presence::Store, _) => Presence::Store,
        (Presence::Blank | Presence::Unfinished, _) => {
            identity::refuse_used_by_others(device, label, opened_as)?;
            Presence::Unfinished
        }
    };
    Ok((presence, None))
}

/// An error unless a store is there; what is damaged of what the disk says.
pub(super) fn require(label: &str, device: &Device, own: &Device) -> Result<Option<Finding>, StoreError> {
    match presence(label, device, own)? {
        (Presence::Store, finding) => Ok(finding),
        (other, _) => Err(missing(label, other, &OpenedAs::new(KIND, device))),
    }
}

fn said(label: &str, device: &Device, opened_as: &OpenedAs) -> Result<Said, StoreError> {
    let [first, second] = read_slots(device, label);
    // What only that version knows of the disk is not known here: nothing is made of it.
    if let Slot::OtherVersion(error) = &first {
        return Err(error.clone());
    }
    let (slot, offset_bytes) = match first {
        Slot::Blank => (second, SUPERBLOCK_OFFSETS[1]),
        first => (first, SUPERBLOCK_OFFSETS[0]),
    };
    let (kind, identity, said) = match slot {
        Slot::Valid(superblock) => (superblock.kind, superblock.identity, Said::Made),
        Slot::Identity(block) if block.is_unfinished => (block.kind, block.identity, Said::Unfinished),
        Slot::Identity(block) => (block.kind, block.identity, Said::Made),
        Slot::OtherVersion(error) => return Err(error),
        // The superblocks, if there are any, say the same.
        Slot::Blank | Slot::Foreign(_) | Slot::Damaged(_) => return Ok(Said::Nothing),
    };
    identity::refuse_other(label, offset_bytes, kind, &identity.shape, opened_as)?;
    Ok(said)
}

/// Writes identity blocks at these places of an interlaced disk, durably. What tops hold beside them is lost, and zeros.
pub(super) fn say(
    disk: &Arc<Disk>,
    control: Option<&Arc<dyn TrackControl>>,
    tracks: &TrackGeometry,
    block: &IdentityBlock,
    offsets_bytes: &[u64],
) -> Result<(), StoreError> {
    let (label, device) = (disk.block.name(), Device::of_blocks(disk.block.clone()));
    let sector = u64::from(disk.block.geometry().physical_sector_bytes.max(512));
    let failed = |error| media_error(label, "identity block", error);
    let mut destroyed = Vec::new();
    for &offset_bytes in offsets_bytes {
        let written = offset_bytes..offset_bytes + sector;
        let lost: Vec<_> = tracks.destroyed_by_write(written, sector).collect();
        for (track, _) in &lost {
            control.map_or(Ok(()), |control| control.mark_free(*track)).map_err(failed)?;
        }
        write_identity(&device, label, offset_bytes, block)?;
        destroyed.extend(lost.into_iter().map(|(_, span)| span));
    }
    // A disk may write bottoms after tops that were written later.
    journal::sync(&device, label)?;
    for span in destroyed {
        let zeros = disk.buffer((span.end - span.start) as usize);
        disk.block.write_at(span.start, &zeros, &journal::METADATA).map_err(failed)?;
    }
    journal::sync(&device, label)
}
