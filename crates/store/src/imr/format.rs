//! Making an empty store.

use super::beside::BesideGeometry;
use super::change::{Checkpoint, encode_checkpoint};
use super::devices::{DiskTracks, ImrDevices, ImrPlace, ImrPlacement, logs_of, own_of, small_files_inside, tracks_of};
use super::geometry::{StoreGeometry, map_bytes, small_files_bytes};
use super::view::{DevicePart, Disk};
use super::{ImrFormatOptions, KIND, LOGS_KIND};
use crate::error::StoreError;
use crate::extent::{ExtentFormatOptions, ExtentLayout, ExtentStore};
use crate::journal::{Journal, SUPERBLOCK_RESERVED_BYTES, StoreKind};
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

fn refuse_used(device: &Device, label: &str, kind: StoreKind) -> Result<(), StoreError> {
    if Journal::probe(device, label, kind)? {
        let reason = "the device holds a store; format with overwrite to lose it".to_owned();
        return Err(StoreError::InvalidRequest { store: label.to_owned(), reason });
    }
    Ok(())
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
        refuse_used(&own, label, KIND)?;
        if let Some((_, whole, _)) = &beside {
            refuse_used(whole, whole.block.name(), LOGS_KIND)?;
        }
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
    let small = ExtentFormatOptions { layout: ExtentLayout::FirstFit, overwrite: true };
    // The disk last: without its superblock nothing is there.
    match &beside {
        None => ExtentStore::format(env, &small_files_inside(&disk, &geometry), &small)?,
        Some((device, whole, planned)) => {
            let range = planned.small_files.offset_bytes..planned.small_files.end_bytes();
            ExtentStore::format(env, &DevicePart::of_bytes(device, range), &small)?;
            let name = whole.block.name();
            Journal::format(whole, name, LOGS_KIND, store_id, &planned.journal, &planned.encode(), of_logs)?;
        }
    }
    Journal::format(&own, label, KIND, store_id, &geometry.journal, &geometry.encode(), of_disk)
}
