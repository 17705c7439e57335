//! Opening: from what is on the medium to a store that may be written.
//!
//! 1. The S2TMap is read: superblocks, checkpoint, log.
//! 2. Intents that it does not call done are replayed: every copy that is sound and whose track still
//!    belongs to its file is written back, and the disk is synced. Tops are written, so nothing is
//!    endangered; the copies stay as they are, so a crash here leads here again.
//! 3. The store of small files is opened. Names whose small file was never durable get an empty one; small
//!    files without a name are removed.
//! 4. A new generation begins, in which those intents are done.
//! 5. The device learns which tracks hold nothing that counts.

use super::ImrOpenOptions;
use super::change::{Change, Checkpoint, FileRecord, decode_checkpoint, decode_commit};
use super::core::Core;
use super::devices::{ImrDevices, Mounted, mount};
use super::geometry::StoreGeometry;
use super::intent::{Intent, SavedTop, intent_bytes};
use super::map::TrackMap;
use super::node::{Node, SpareBuffers, small_name};
use super::relocation::Relocations;
use super::state::{Beginning, State};
use super::view::Disk;
use crate::error::StoreError;
use crate::extent::ExtentStore;
use crate::file_store::{CreateOptions, FileStore, Location, StoreProperties};
use crate::journal::{self, Recovered, corruption};
use crate::names::{FoundNames, Numbered};
use parking_lot::Mutex as ShortMutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};
use varve_env::{Condvar, Env, Mutex};
use varve_media::{
    BlockDeviceExt, Device, IoCause, IoClass, IoContext, MediaError, MediaErrorKind, TrackControl, TrackId,
};

/// What the S2TMap on a medium says.
pub(super) struct Found {
    pub(super) files: BTreeMap<String, FoundFile>,
    pub(super) next_file: u64,
    pub(super) done: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundFile {
    pub(super) file: u64,
    pub(super) is_small: bool,
    pub(super) size_bytes: u64,
    pub(super) tracks: Vec<TrackId>,
}

impl Numbered for FoundFile {
    fn number(&self) -> u64 {
        self.file
    }
}

/// Puts together what was read; anything may come.
pub(super) fn replay(label: &str, geometry: &StoreGeometry, recovered: &Recovered) -> Result<Found, StoreError> {
    let damaged = |structure: &str, offset: u64, expected: &str, found: String| {
        corruption(label, structure, offset, expected, found)
    };
    let Checkpoint { next_file, mut done, files: records } = decode_checkpoint(&recovered.checkpoint)
        .map_err(|offset| damaged("checkpoint", offset as u64, "the record of a file", "something else".to_owned()))?;
    if done.len() != usize::from(geometry.places) {
        let found = format!("{} places", done.len());
        return Err(damaged("checkpoint", 8, "as many places as the superblock has", found));
    }
    let mut names = FoundNames::new(next_file);
    for FileRecord { file, is_small, size_bytes, name, tracks } in records {
        let found = FoundFile { file, is_small, size_bytes, tracks };
        if !names.add(&name, found) {
            return Err(damaged("checkpoint", 0, "every file once", format!("file {file} '{name}' again")));
        }
    }
    for (number, commit) in recovered.commits.iter().enumerate() {
        let changes = decode_commit(commit).map_err(|offset| {
            damaged("metadata log", offset as u64, "a change", format!("something else in commit {number}"))
        })?;
        for change in changes {
            apply(&mut names, &mut done, &change).ok_or_else(|| {
                damaged("metadata log", 0, "a change of a file that is there", format!("{change:?} in commit {number}"))
            })?;
        }
    }
    let (files, next_file) = names.into_parts();
    Ok(Found { files, next_file, done })
}

/// Makes one change; `None` when it does not fit what is there.
fn apply(names: &mut FoundNames<FoundFile>, done: &mut [u64], change: &Change) -> Option<()> {
    match change {
        Change::Create { file, is_small, name } => {
            let found = FoundFile { file: *file, is_small: *is_small, size_bytes: 0, tracks: Vec::new() };
            names.create(name, found)?;
        }
        Change::Tracks { file, kept, tracks, size_bytes } => {
            let found = names.file_mut(*file).filter(|found| !found.is_small)?;
            let kept = *kept as usize;
            if kept > found.tracks.len() {
                return None;
            }
            found.tracks.truncate(kept);
            found.tracks.extend_from_slice(tracks);
            found.size_bytes = *size_bytes;
        }
        Change::Rename { from, to } => names.rename(from, to)?,
        Change::Remove { name } => names.remove(name)?,
        Change::Done { place, sequence } => *done.get_mut(usize::from(*place))? = *sequence,
    }
    Some(())
}

/// The map of every table, and whose every track is. The error says what cannot be.
pub(super) fn maps_of(
    geometry: &StoreGeometry,
    files: &BTreeMap<String, FoundFile>,
) -> Result<(BTreeMap<u64, TrackMap>, BTreeMap<TrackId, u64>), String> {
    let (mut maps, mut owners) = (BTreeMap::new(), BTreeMap::new());
    let usable = geometry.usable();
    for (name, found) in files {
        for track in &found.tracks {
            if !usable.contains(&track.0) {
                return Err(format!("track {track} of '{name}', which is not for tables"));
            }
            if let Some(other) = owners.insert(*track, found.file) {
                return Err(format!("track {track} of '{name}', which belongs to file {other} too"));
            }
        }
        let map = TrackMap::new(&geometry.tracks, found.tracks.clone(), found.size_bytes)
            .ok_or_else(|| format!("{} tracks of '{name}' with {} bytes", found.tracks.len(), found.size_bytes))?;
        maps.insert(found.file, map);
    }
    Ok((maps, owners))
}

/// Reads what can be read; sectors that are lost become zeros. Any other failure is an error: what it hides
/// may be the only copy there is.
fn read_what_is_left(device: &Device, at: u64, bytes: &mut [u8], unit: usize) -> Result<(), MediaError> {
    let context = IoContext { cause: IoCause::RewriteRestore, ..IoContext::of(IoClass::Maintenance) };
    if device.block.read_at(at, bytes, &context).is_ok() {
        return Ok(());
    }
    for (number, sector) in bytes.chunks_mut(unit).enumerate() {
        match device.block.read_at(at + (number * unit) as u64, sector, &context) {
            Ok(()) => {}
            Err(error) if error.kind() == MediaErrorKind::Unreadable => sector.fill(0),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The intents of a disk that count, with their places.
pub(super) fn intents(
    disk: &Disk,
    tops: &Device,
    geometry: &StoreGeometry,
    store_id: u64,
    done: &[u64],
) -> Result<Vec<(usize, Intent)>, MediaError> {
    let mut found = Vec::new();
    for (place, &done) in done.iter().enumerate() {
        let unit = geometry.journal.unit_bytes as usize;
        let mut bytes = disk.buffer(intent_bytes(geometry.copies_max()).next_multiple_of(unit));
        read_what_is_left(tops, geometry.intent_region(place).offset_bytes, &mut bytes, unit)?;
        let counts = |intent: &Intent| {
            intent.store_id == store_id
                && intent.place as usize == place
                && intent.sequence > done
                && intent.tops.len() <= geometry.copies_max()
        };
        found.extend(Intent::decode(&bytes).filter(counts).map(|intent| (place, intent)));
    }
    Ok(found)
}

/// The copies of these intents that count, in whole sectors: sound ones of tracks that are still what they
/// were saved for.
pub(super) fn each_copy(
    disk: &Disk,
    geometry: &StoreGeometry,
    owners: &BTreeMap<TrackId, u64>,
    intents: &[(usize, Intent)],
    mut with: impl FnMut(&SavedTop, &[u8]) -> Result<(), MediaError>,
) -> Result<(), MediaError> {
    let unit = geometry.journal.unit_bytes as usize;
    let device = Device::of_blocks(disk.block.clone());
    for (place, intent) in intents {
        for (index, top) in intent.tops.iter().enumerate() {
            let fits = top.length_bytes <= geometry.tracks.length_bytes(top.track);
            if !fits || owners.get(&top.track) != Some(&top.file) {
                continue;
            }
            let mut bytes = disk.buffer((top.length_bytes as usize).next_multiple_of(unit));
            read_what_is_left(&device, geometry.copy_offset(*place, index), &mut bytes, unit)?;
            if crc32c::crc32c(&bytes[..top.length_bytes as usize]) == top.checksum {
                with(top, &bytes)?;
            }
        }
    }
    Ok(())
}

/// Writes back what counts of these intents, durably. Says how many tops that were.
fn restore(
    disk: &Disk,
    label: &str,
    geometry: &StoreGeometry,
    owners: &BTreeMap<TrackId, u64>,
    intents: &[(usize, Intent)],
) -> Result<u64, StoreError> {
    let context = IoContext { cause: IoCause::RewriteRestore, ..IoContext::of(IoClass::Maintenance) };
    let mut restored = 0;
    // A disk that kept its power may still hold bottoms in its cache, and write them after tops beside them: those
    // restored here, and those that tables get next.
    disk.sync(&context).map_err(|error| journal::media_error(label, "sync", error))?;
    each_copy(disk, geometry, owners, intents, |top, copy| {
        let at = geometry.tracks.start_bytes(top.track);
        let write = || disk.block.write_at(at, copy, &context);
        write().or_else(|_| write())?;
        restored += 1;
        Ok(())
    })
    .map_err(|error| journal::media_error(label, "a track beside a table", error))?;
    if restored > 0 {
        disk.sync(&context).map_err(|error| journal::media_error(label, "sync", error))?;
    }
    Ok(restored)
}

pub(super) fn open(env: &Env, devices: &ImrDevices, options: &ImrOpenOptions) -> Result<Core, StoreError> {
    let Mounted {
        label,
        disk,
        control,
        own,
        geometry,
        store_id,
        beside,
        mut journal,
        recovered,
        mut anchor,
        anchor_findings,
        small_files,
    } = mount(devices)?;
    let Found { mut files, next_file, mut done } = replay(&label, &geometry, &recovered)?;
    let damaged =
        |found: String| corruption(&label, "S2TMap", 0, "tracks that belong to tables, and to one each", found);
    let (mut maps, owners) = maps_of(&geometry, &files).map_err(damaged)?;

    let intents = intents(&disk, &own, &geometry, store_id, &done)
        .map_err(|error| journal::media_error(&label, "backup region", error))?;
    let restored = restore(&disk, &label, &geometry, &owners, &intents)?;
    for (place, intent) in &intents {
        if let Some(done) = done.get_mut(*place) {
            *done = intent.sequence;
        }
    }

    let small_files_bytes = small_files.block.geometry().capacity_bytes;
    let small = ExtentStore::open(env, small_files)?;
    let present: BTreeMap<String, u64> =
        small.list()?.into_iter().map(|entry| (entry.name, entry.size_bytes)).collect();
    // A name may be durable before its file is, which was never synced then: it is empty. (A name without
    // a file would be the wrong answer where it replaced another file.)
    let before = files.len();
    files.retain(|_, found| {
        let small_name = small_name(found.file);
        let make = || small.create(&small_name, &CreateOptions::default())?.finish(&IoContext::default());
        !found.is_small || present.contains_key(&small_name) || make().is_ok()
    });
    let named: BTreeSet<String> =
        files.values().filter(|found| found.is_small).map(|found| small_name(found.file)).collect();
    for name in present.keys().filter(|name| !named.contains(*name)) {
        small.remove(name)?;
    }

    let mut names: BTreeMap<String, Arc<Node>> = BTreeMap::new();
    for (name, found) in &files {
        let map = maps.remove(&found.file).unwrap_or_default();
        let durable_bytes = match found.is_small {
            true => present.get(&small_name(found.file)).copied().unwrap_or(0),
            false => map.size_bytes(),
        };
        names.insert(name.clone(), Arc::new(Node::found(env, found.file, found.is_small, map, durable_bytes)));
    }
    let is_changed = before != files.len() || !intents.is_empty() || !recovered.commits.is_empty();
    let next_sequence = done.iter().copied().max().unwrap_or(0).saturating_add(1);
    let mut state = State::new(Beginning {
        names,
        // A number that a crash made the S2TMap forget must not be used again.
        next_file: next_file.max((journal.generation() + 1) << 32),
        done,
        next_sequence,
        track_count: geometry.tracks.track_count,
        checkpoint_bytes_max: journal.state_bytes_max(),
    });
    let checkpoint = is_changed.then(|| state.take_checkpoint().payload);
    journal.begin(checkpoint.as_deref())?;
    if let Some(anchor) = anchor.as_mut().filter(|_| !anchor_findings.is_empty()) {
        anchor.begin(None)?;
    }

    let free = |control| {
        let free = geometry.usable().map(TrackId).filter(|&track| !state.valid.contains(track));
        free.map(move |track| (control, track))
    };
    for (control, track) in control.iter().flat_map(free) {
        control.mark_free(track).map_err(|error| journal::media_error(&label, "mark free", error))?;
    }
    let capabilities = disk.block.capabilities();
    let properties = StoreProperties {
        read_alignment_bytes: disk.block.geometry().sector_bytes.max(capabilities.buffer_alignment_bytes),
        rotational: capabilities.rotational,
        preferred_table_bytes: None,
        table_bytes_max: geometry.usable_bytes(),
        wants_evictions: false,
        flush_is_device_request: true,
        location: Location::Private,
    };
    let regions = *journal.regions();
    let allocation = options.allocation.unwrap_or(geometry.allocation);
    let rewrite = options.rewrite.unwrap_or(geometry.rewrite);
    Ok(Core {
        env: env.clone(),
        properties,
        store_id,
        control,
        own,
        beside,
        small_waits: state.small_waits.clone(),
        map_bytes: regions.log.length_bytes + 2 * regions.checkpoints[0].length_bytes,
        small_files_bytes,
        anchor,
        small,
        policy: allocation.policy(rewrite, &geometry.tracks, geometry.table_bytes_max),
        allocation,
        rewrite,
        state: Mutex::new(env, "imr store state", state),
        released: Condvar::new(env, "imr store tracks"),
        committer: Mutex::new(env, "imr store commit", journal),
        durable_change: AtomicU64::new(0),
        relocations: ShortMutex::new(Relocations::default()),
        spare_buffers: SpareBuffers::default(),
        latched: OnceLock::new(),
        statistics: ShortMutex::new(super::ImrStatistics { restored_at_open: restored, ..Default::default() }),
        restores: (0..geometry.tracks.track_count).map(|_| AtomicU32::new(0)).collect(),
        geometry,
        disk,
        label,
    })
}

/// Refuses a disk whose tracks are not those the store was made for. A conventional one has none.
pub(super) fn check_tracks(
    label: &str,
    geometry: &StoreGeometry,
    found: Option<&varve_media::TrackGeometry>,
) -> Result<(), StoreError> {
    let text = |tracks: &varve_media::TrackGeometry| {
        format!(
            "{} tracks of {} (bottom) and {} (top) bytes",
            tracks.track_count, tracks.bottom_track_bytes, tracks.top_track_bytes
        )
    };
    if found.map_or(!geometry.tracks.interlaced, |found| geometry.tracks == *found) {
        return Ok(());
    }
    Err(StoreError::Foreign {
        store: label.to_owned(),
        structure: "superblock".to_owned(),
        offset_bytes: 0,
        expected: text(&geometry.tracks),
        found: found.map_or_else(|| "a conventional disk".to_owned(), text),
        advice: "open the disk with the track sizes it was formatted with".to_owned(),
    })
}

/// Where the device's tracks differ from what their sizes say; the commands of the device are asked.
pub(super) fn described_otherwise(control: &dyn TrackControl, geometry: &StoreGeometry) -> Option<String> {
    const COUNT: u32 = 1024;
    let mut first = 0;
    while first < geometry.tracks.track_count {
        let report = match control.report(TrackId(first), COUNT) {
            Ok(report) => report,
            Err(error) => return Some(error.to_string()),
        };
        let count = COUNT.min(geometry.tracks.track_count - first);
        for number in first..first + count {
            let expected = geometry.tracks.describe(TrackId(number));
            let found = report.get((number - first) as usize).cloned();
            if found != expected {
                return Some(format!("track {number} is {found:?}, not {expected:?}"));
            }
        }
        first += count;
    }
    None
}
