//! Opening: from what is on the medium to a store that may be written.
//!
//! 1. Everything is read: the S2TMap (superblocks, checkpoint, log), the intents that it does not call done and
//!    every copy that counts, the store of small files. What cannot be read and may be the end of a log, an intent, or
//!    the only copy of a track is an error, and nothing was written until then.
//! 2. Every copy that is sound and whose track still belongs to its file is written back, and the disk is synced. Tops
//!    are written, so nothing is endangered; the copies stay as they are, so a crash here leads here again.
//! 3. The store of small files is opened. Names whose small file was never durable get an empty one; small
//!    files without a name are removed.
//! 4. A new generation begins, in which those intents are done.
//! 5. The device learns which tracks hold nothing that counts.

use super::allocation::PolicySetting;
use super::change::{Change, Checkpoint, FileRecord, decode_checkpoint, decode_commit};
use super::devices::{ImrDevices, Mounted, mount};
use super::geometry::StoreGeometry;
use super::intent::{Intent, SavedTop, intent_bytes};
use super::map::TrackMap;
use super::node::{Node, SpareBuffers, packed_name};
use super::open_store::OpenStore;
use super::relocation::Relocations;
use super::state::{Beginning, ImrState};
use super::view::Disk;
use super::{ImrOpenOptions, TrackWrites};
use crate::access_times::AccessTimes;
use crate::error::{StoreError, StoreErrorKind};
use crate::extent::ExtentStore;
use crate::file_store::{CreateOptions, FileStore, Location, StoreProperties};
use crate::journal::{self, Recovered, corruption};
use crate::kernel::{self, FoundNames, Kernel, Latch, Numbered, Replay, SingleCommits, StoreState};
use parking_lot::Mutex as ShortMutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use varve_env::{Condvar, Env};
use varve_media::{
    AlignedBuffer, BlockDeviceExt, Device, IoCause, IoClass, IoContext, MediaError, SeekTimes, TrackControl, TrackId,
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
    pub(super) is_packed: bool,
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
    let Checkpoint { next_file, done, files: records } = decode_checkpoint(&recovered.checkpoint)
        .map_err(|offset| damaged("checkpoint", offset as u64, "the record of a file", "something else".to_owned()))?;
    if done.len() != usize::from(geometry.places) {
        let found = format!("{} places", done.len());
        return Err(damaged("checkpoint", 8, "as many places as the superblock has", found));
    }
    let files = records.into_iter().map(|FileRecord { file, is_packed, size_bytes, name, tracks }| {
        (name, FoundFile { file, is_packed, size_bytes, tracks })
    });
    let mut map = FoundMap { names: kernel::names_of(label, next_file, files)?, done };
    kernel::replay(label, &mut map, &recovered.commits)?;
    let FoundMap { names, done } = map;
    let (files, next_file) = names.into_parts();
    Ok(Found { files, next_file, done })
}

/// The S2TMap while it is replayed.
struct FoundMap {
    names: FoundNames<FoundFile>,
    done: Vec<u64>,
}

impl Replay for FoundMap {
    type Change = Change;

    const LOG: &'static str = "metadata log";

    fn decode(commit: &[u8]) -> Result<Vec<Change>, usize> {
        decode_commit(commit)
    }

    fn apply(&mut self, change: &Change) -> Option<()> {
        let FoundMap { names, done } = self;
        match change {
            Change::Create { file, is_packed, name } => {
                let found = FoundFile { file: *file, is_packed: *is_packed, size_bytes: 0, tracks: Vec::new() };
                names.create(name, found)?;
            }
            Change::Tracks { file, kept, tracks, size_bytes } => {
                let found = names.file_mut(*file).filter(|found| !found.is_packed)?;
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

const RESTORE: IoContext = IoContext { cause: IoCause::RewriteRestore, ..IoContext::of(IoClass::Maintenance) };

/// Fills `bytes` with what can be read; says how many of them are before the first sector that cannot be, and why.
fn read_sectors(device: &Device, at: u64, bytes: &mut [u8], unit: usize) -> Option<(usize, MediaError)> {
    if device.block.read_at(at, bytes, &RESTORE).is_ok() {
        return None;
    }
    let mut lost = None;
    for (number, sector) in bytes.chunks_mut(unit).enumerate() {
        if let Err(error) = device.block.read_at(at + (number * unit) as u64, sector, &RESTORE) {
            sector.fill(0);
            lost.get_or_insert((number * unit, error));
        }
    }
    lost
}

/// The intents of a disk that count, with their places. An error when it cannot be read whether one does.
pub(super) fn intents(
    label: &str,
    disk: &Disk,
    tops: &Device,
    geometry: &StoreGeometry,
    store_id: u64,
    done: &[u64],
) -> Result<Vec<(usize, Intent)>, StoreError> {
    let mut found = Vec::new();
    for (place, &done) in done.iter().enumerate() {
        let unit = geometry.journal.unit_bytes as usize;
        let at = geometry.intent_region(place).offset_bytes;
        let mut bytes = disk.buffer(intent_bytes(geometry.copies_max()).next_multiple_of(unit));
        let lost = read_sectors(tops, at, &mut bytes, unit);
        let counts = |intent: &Intent| {
            intent.store_id == store_id
                && intent.place as usize == place
                && intent.sequence > done
                && intent.tops.len() <= geometry.copies_max()
        };
        let intent = Intent::decode(&bytes);
        if let (None, Some((readable_bytes, error))) = (&intent, lost)
            && Intent::may_count(&bytes[..readable_bytes], done)
        {
            let expected = format!("the intent of a rewrite after {done}");
            return Err(journal::unreadable(label, "backup region", at + readable_bytes as u64, expected, error));
        }
        found.extend(intent.filter(counts).map(|intent| (place, intent)));
    }
    Ok(found)
}

/// The copies of these intents that count, in whole sectors: sound ones of tracks that are still what they
/// were saved for. An error when one cannot be read, and the track does not hold the same.
pub(super) fn each_copy(
    label: &str,
    disk: &Disk,
    geometry: &StoreGeometry,
    owners: &BTreeMap<TrackId, u64>,
    intents: &[(usize, Intent)],
    mut with: impl FnMut(&SavedTop, AlignedBuffer),
) -> Result<(), StoreError> {
    let unit = geometry.journal.unit_bytes as usize;
    let device = Device::of_blocks(disk.block.clone());
    for (place, intent) in intents {
        for (index, top) in intent.tops.iter().enumerate() {
            let fits = top.length_bytes <= geometry.tracks.length_bytes(top.track);
            if !fits || owners.get(&top.track) != Some(&top.file) {
                continue;
            }
            let mut bytes = disk.buffer((top.length_bytes as usize).next_multiple_of(unit));
            let is_sound = |bytes: &[u8]| crc32c::crc32c(&bytes[..top.length_bytes as usize]) == top.checksum;
            let at = geometry.copy_offset(*place, index);
            let lost = read_sectors(&device, at, &mut bytes, unit);
            if is_sound(&bytes) {
                with(top, bytes);
                continue;
            }
            // One that can be read and is not sound was torn before a bottom was written.
            let Some((readable_bytes, error)) = lost else { continue };
            let track = geometry.tracks.start_bytes(top.track);
            if read_sectors(&device, track, &mut bytes, unit).is_some() || !is_sound(&bytes) {
                let expected = format!("the copy of track {} of file {}", top.track, top.file);
                return Err(journal::unreadable(label, "backup region", at + readable_bytes as u64, expected, error));
            }
        }
    }
    Ok(())
}

/// Writes back what was saved of tops, durably.
fn restore(
    disk: &Disk,
    label: &str,
    geometry: &StoreGeometry,
    copies: &[(SavedTop, AlignedBuffer)],
) -> Result<(), StoreError> {
    // A disk that kept its power may still hold bottoms in its cache, and write them after tops beside them: those
    // restored here, and those that tables get next.
    disk.order.sync(&RESTORE).map_err(|error| journal::media_error(label, "sync", error))?;
    for (top, copy) in copies {
        let at = geometry.tracks.start_bytes(top.track);
        let write = || disk.block.write_at(at, copy, &RESTORE);
        let written = write().or_else(|_| write());
        written.map_err(|error| journal::media_error(label, "a track beside a table", error))?;
    }
    if !copies.is_empty() {
        disk.order.sync(&RESTORE).map_err(|error| journal::media_error(label, "sync", error))?;
    }
    Ok(())
}

pub(super) fn open(env: &Env, devices: &ImrDevices, options: &ImrOpenOptions) -> Result<OpenStore, StoreError> {
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
    } = mount(Some(env), devices)?;
    let Found { mut files, next_file, mut done } = replay(&label, &geometry, &recovered)?;
    let damaged =
        |found: String| corruption(&label, "S2TMap", 0, "tracks that belong to tables, and to one each", found);
    let (mut maps, owners) = maps_of(&geometry, &files).map_err(damaged)?;

    let intents = intents(&label, &disk, &own, &geometry, store_id, &done)?;
    let mut copies = Vec::new();
    each_copy(&label, &disk, &geometry, &owners, &intents, |top, copy| copies.push((*top, copy)))?;
    let small_files_bytes = small_files.block.geometry().capacity_bytes;
    let beneath = beside.as_ref().map_or(&disk, |beside| &beside.device).order.clone();
    let packed_files = ExtentStore::read(env, small_files, vec![beneath])?;

    // Everything was read; from here on it is written.
    restore(&disk, &label, &geometry, &copies)?;
    let restored = copies.len() as u64;
    drop(copies);
    for (place, intent) in &intents {
        if let Some(done) = done.get_mut(*place) {
            *done = intent.sequence;
        }
    }

    let packed_files = packed_files.begin()?;
    let present: BTreeMap<String, u64> =
        packed_files.list()?.into_iter().map(|entry| (entry.name, entry.size_bytes)).collect();
    // A name may be durable before its file is, which was never synced then: it is empty. (A name without
    // a file would be the wrong answer where it replaced another file.)
    let mut without_space = Vec::new();
    for (name, found) in files.iter().filter(|(_, found)| found.is_packed) {
        let packed_name = packed_name(found.file);
        if present.contains_key(&packed_name) {
            continue;
        }
        let make = || packed_files.create(&packed_name, &CreateOptions::default())?.finish(&IoContext::default());
        match make() {
            Ok(()) => {}
            // Opening needs no space: nothing was ever synced of it.
            Err(error) if error.kind() == StoreErrorKind::NoSpace => without_space.push(name.clone()),
            Err(error) => return Err(error),
        }
    }
    let is_any_given_up = !without_space.is_empty();
    files.retain(|name, _| !without_space.contains(name));
    let named: BTreeSet<String> =
        files.values().filter(|found| found.is_packed).map(|found| packed_name(found.file)).collect();
    for name in present.keys().filter(|name| !named.contains(*name)) {
        packed_files.remove(name)?;
    }

    let mut names: BTreeMap<String, Arc<Node>> = BTreeMap::new();
    for (name, found) in &files {
        let map = maps.remove(&found.file).unwrap_or_default();
        let durable_bytes = match found.is_packed {
            true => present.get(&packed_name(found.file)).copied().unwrap_or(0),
            false => map.size_bytes(),
        };
        names.insert(name.clone(), Arc::new(Node::found(env, found.file, found.is_packed, map, durable_bytes)));
    }
    let is_changed = is_any_given_up || !intents.is_empty() || !recovered.commits.is_empty();
    let next_sequence = done.iter().copied().max().unwrap_or(0).saturating_add(1);
    let state = ImrState::new(Beginning {
        names,
        // A number that a crash made the S2TMap forget must not be used again.
        next_file: next_file.max((journal.generation() + 1) << 32),
        done,
        next_sequence,
        track_count: geometry.tracks.track_count,
        checkpoint_bytes_max: journal.state_bytes_max(),
    });
    let checkpoint = is_changed.then(|| state.checkpoint());
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
        access: AccessTimes::of(capabilities),
        places_by_level: false,
        preferred_transfer_bytes: None,
        preferred_table_bytes: None,
        table_bytes_max: geometry.usable_bytes(),
        wants_evictions: false,
        wants_rewrites: false,
        flush_is_device_request: true,
        location: Location::Private,
    };
    let regions = *journal.regions();
    let packed_waits = state.packed_waits.clone();
    let beside_order = beside.iter().map(|beside| beside.device.order.clone()).collect();
    let latch = Latch::new(&label, disk.order.clone(), beside_order);
    let allocation = options.allocation.unwrap_or(geometry.allocation);
    let rewrite = options.rewrite.unwrap_or(geometry.rewrite);
    let capabilities = disk.block.capabilities();
    let is_forced = options.track_writes == TrackWrites::Forced && capabilities.forced_unit_access;
    let forced_at_once = is_forced.then_some(capabilities.queue_depth).filter(|&depth| depth > 1);
    let setting = PolicySetting { rewrite, geometry: &geometry.tracks, table_bytes_max: geometry.table_bytes_max };
    let seek = capabilities.seek.unwrap_or(SeekTimes::TYPICAL);
    Ok(OpenStore {
        kernel: Kernel::new(env, &label, state, journal, Box::new(SingleCommits), latch),
        properties,
        store_id,
        control,
        own,
        beside,
        packed_waits,
        map_bytes: regions.log.length_bytes + 2 * regions.checkpoints[0].length_bytes,
        small_files_bytes,
        anchor,
        packed_files,
        policy: allocation.policy_on(&setting, &seek),
        allocation,
        rewrite,
        forced_at_once,
        released: Condvar::new(env, "imr store tracks"),
        relocations: ShortMutex::new(Relocations::default()),
        spare_buffers: SpareBuffers::default(),
        statistics: ShortMutex::new(super::ImrStatistics { restored_at_open: restored, ..Default::default() }),
        restores: (0..geometry.tracks.track_count).map(|_| AtomicU32::new(0)).collect(),
        geometry,
        disk,
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
            let found = report.get((number - first) as usize);
            if !found.is_some_and(|found| geometry.tracks.is_described_by(TrackId(number), found)) {
                let expected = geometry.tracks.describe(TrackId(number));
                return Some(format!("track {number} is {found:?}, not {expected:?}"));
            }
        }
        first += count;
    }
    None
}
