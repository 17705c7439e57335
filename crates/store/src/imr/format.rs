//! Making an empty store.

use super::beside::BesideGeometry;
use super::change::{Checkpoint, encode_checkpoint};
use super::devices::{
    DiskTracks, ImrDevices, ImrPlace, ImrPlacement, LOGS_MEMBER, logs_of, own_of, small_files_inside, tracks_of,
};
use super::geometry::{StoreGeometry, map_bytes, small_files_bytes};
use super::view::{DevicePart, Disk};
use super::{ImrFormatOptions, KIND, LOGS_KIND, presence};
use crate::error::StoreError;
use crate::extent::{ExtentFormatOptions, ExtentStore};
use crate::identity::block::{IdentityBlock, Presence};
use crate::identity::{self, DeviceShape, Identity, Member, OpenedAs};
use crate::journal::{self, Formatting, Journal, SUPERBLOCK_OFFSETS, SUPERBLOCK_RESERVED_BYTES};
use std::sync::Arc;
use varve_env::Env;
use varve_media::{Device, TrackGeometry};

/// The tracks of a disk, from what it says and what it is told.
fn tracks_for(label: &str, device: &Device, options: &ImrFormatOptions) -> Result<TrackGeometry, StoreError> {
    let refuse = |reason: String| StoreError::InvalidRequest { store: label.to_owned(), reason };
    let DiskTracks { tracks, .. } = tracks_of(label, device)?;
    let capacity_bytes = device.block.geometry().capacity_bytes;
    match (tracks, options.conventional_track_bytes) {
        (Some(tracks), None) => Ok(tracks),
        (Some(_), Some(_)) => Err(refuse("an interlaced disk says itself what its tracks are".to_owned())),
        (None, Some(bytes)) => TrackGeometry::fit(capacity_bytes, bytes, bytes)
            .map(TrackGeometry::conventional)
            .ok_or_else(|| refuse(format!("tracks of {bytes} bytes do not fit a disk of {capacity_bytes}"))),
        (None, None) => Err(refuse(
            "this store needs a disk with interlaced tracks, or a track size for a conventional one; 'extent' takes \
             others"
                .to_owned(),
        )),
    }
}

pub(super) fn logs_bytes(disk: &Device, options: &ImrFormatOptions) -> Result<u64, StoreError> {
    let tracks = tracks_for(disk.block.name(), disk, options)?;
    let (log, checkpoint) = map_bytes(&tracks);
    let small_files = options.small_files_bytes.unwrap_or_else(|| small_files_bytes(&tracks));
    Ok((SUPERBLOCK_RESERVED_BYTES + log + 2 * checkpoint + small_files).next_multiple_of(1 << 20))
}

fn in_use(label: &str) -> StoreError {
    let reason = "the device holds a store; format with overwrite to lose it".to_owned();
    StoreError::InvalidRequest { store: label.to_owned(), reason }
}

/// Refuses devices that hold something, but for what a format of them left behind that was interrupted.
fn refuse_used(devices: &ImrDevices, own: &Device, logs: Option<&Device>, is_searched: bool) -> Result<(), StoreError> {
    let label = devices.disk.block.name();
    match presence::presence(label, &devices.disk, own)?.0 {
        Presence::Store => return Err(in_use(label)),
        Presence::Blank if !is_searched => {
            identity::refuse_layer(&devices.disk, label, &OpenedAs::new(KIND, &devices.disk))?;
        }
        Presence::Blank | Presence::Unfinished => {}
    }
    let (Some(whole), Some(device)) = (logs, &devices.logs) else { return Ok(()) };
    let (name, opened_as) = (device.block.name(), OpenedAs::new(LOGS_KIND, device));
    match journal::presence_on_device(whole, name, &opened_as)? {
        Presence::Store => {}
        Presence::Blank if !is_searched => return identity::refuse_layer(device, name, &opened_as),
        Presence::Blank | Presence::Unfinished => return Ok(()),
    }
    // The disk is finished last: logs of the store that it was to become have nothing in them.
    let (of_logs, _) = Journal::recover(whole, name, &opened_as)?;
    match journal::unfinished_store_id(own, label) == Some(of_logs.store_id()) {
        true => Ok(()),
        false => Err(in_use(name)),
    }
}

pub(super) fn format(env: &Env, devices: &ImrDevices, options: &ImrFormatOptions) -> Result<(), StoreError> {
    let label = devices.disk.block.name();
    let tracks = tracks_for(label, &devices.disk, options)?;
    let disk = Disk::new(devices.disk.block.clone());
    let own = own_of(&disk, Some(&tracks));
    let placement = match devices.logs {
        Some(_) => ImrPlacement { logs: ImrPlace::Beside, map: options.map },
        None => ImrPlacement { logs: ImrPlace::Inside, map: ImrPlace::Inside },
    };
    let mut geometry = StoreGeometry::plan(label, devices.disk.block.geometry(), &tracks, options, placement)?;
    geometry.logs_bytes = devices.logs.as_ref().map_or(0, |logs| logs.block.geometry().capacity_bytes);
    let beside = match &devices.logs {
        None => None,
        Some(logs) => {
            let map = (placement.map == ImrPlace::Beside).then(|| map_bytes(&tracks));
            let planned = BesideGeometry::plan(logs.block.name(), logs.block.geometry(), map)?;
            let device = logs_of(label, logs)?;
            let whole = DevicePart::of_bytes(&device, 0..logs.block.geometry().capacity_bytes);
            Some((device, whole, planned))
        }
    };
    if !options.overwrite {
        refuse_used(devices, &own, beside.as_ref().map(|(_, whole, _)| whole), options.is_searched)?;
    }
    // Two formats in one simulation draw at different times.
    let mut random = env.random(&format!("store id {label} {}", env.now().as_nanos()));
    let store_id = random.next_u64();
    let done = vec![0; usize::from(geometry.places)];
    let map = encode_checkpoint(&Checkpoint { next_file: 1, done, files: Vec::new() });
    let (of_disk, of_logs): (&[u8], &[u8]) = match placement.map {
        ImrPlace::Inside => (&map, &[]),
        ImrPlace::Beside => (&[], &map),
    };
    let small = ExtentFormatOptions { overwrite: true, ..ExtentFormatOptions::default() };
    let mut members = vec![Member::draw(&mut random, devices.disk.block.geometry().capacity_bytes)];
    members.extend(devices.logs.iter().map(|logs| Member::draw(&mut random, logs.block.geometry().capacity_bytes)));
    let identity =
        |index: usize, device: &Device| Identity { shape: DeviceShape::of(device), members: members.clone(), index };
    // Both say first that a store is being made; the disk is finished last: without its superblocks nothing is there.
    let of_beside = match (&beside, &devices.logs) {
        (Some((device, whole, planned)), Some(logs)) => {
            let name = whole.block.name();
            let formatting = Formatting::begin(whole, name, LOGS_KIND, store_id, identity(LOGS_MEMBER, logs))?;
            Some((device, planned, formatting))
        }
        _ => None,
    };
    let of_own = begin_on_disk(devices, &disk, &own, &tracks, store_id, identity(0, &devices.disk))?;
    match of_beside {
        None => ExtentStore::format(env, &small_files_inside(&disk, &geometry), &small)?,
        Some((device, planned, formatting)) => {
            let range = planned.small_files.offset_bytes..planned.small_files.end_bytes();
            ExtentStore::format(env, &DevicePart::of_bytes(device, range), &small)?;
            formatting.finish(&planned.journal, &planned.encode(), of_logs)?;
        }
    }
    of_own.finish(&geometry.journal, &geometry.encode(), of_disk)
}

/// Says on a disk that a store is being made, and at its start what it will be.
fn begin_on_disk(
    devices: &ImrDevices,
    disk: &Arc<Disk>,
    own: &Device,
    tracks: &TrackGeometry,
    store_id: u64,
    identity: Identity,
) -> Result<Formatting, StoreError> {
    let label = devices.disk.block.name();
    if !tracks.interlaced {
        return Formatting::begin(own, label, KIND, store_id, identity);
    }
    let control = devices.disk.tracks.as_ref();
    let block = IdentityBlock { kind: KIND, store_id, generation: 1, is_unfinished: true, identity: identity.clone() };
    presence::say(disk, control, tracks, &block, &SUPERBLOCK_OFFSETS)?;
    let formatting = Formatting::begin(own, label, KIND, store_id, identity)?;
    let block = IdentityBlock { is_unfinished: false, ..block };
    for offset_bytes in SUPERBLOCK_OFFSETS.iter().rev() {
        presence::say(disk, control, tracks, &block, std::slice::from_ref(offset_bytes))?;
        // That destroyed what the tops beside it held, which may be one of the two marks, but not both.
        formatting.mark()?;
    }
    Ok(formatting)
}
