//! Opening: from what is on the medium to a store that may be written.
//!
//! Reads first: superblocks, checkpoint, log of changes; what the device says of its zones; then the log bands, in
//! their order. The device is synced, so that what was found stays. Then a new generation of the band table begins, in
//! which every log band is sealed where its frames end, and bands the device gave up are retired. A crash anywhere in
//! this leaves the old generation, and the next open does the same again.
//!
//! A log band of which something cannot be read is kept while files miss something, and is not sealed when it was being
//! written: the next open looks again, and a place that can be read then is read.

use super::bands::{BandUse, Bands, retirement_of};
use super::change::{
    Change, Checkpoint, FileRecord, LogBandRecord, NUMBER_END, Retirement, decode_checkpoint, decode_commit,
};
use super::fragments::FragmentMap;
use super::frame::FrameFormat;
use super::geometry::{ACTIVE_ALONE, StoreGeometry, active_zones_min};
use super::logs::LogAppender;
use super::node::{Damage, Node};
use super::open_store::{OpenStore, Opened};
use super::pieces::PieceMap;
use super::scan::{DamagedPart, LogExtent, add_frame, scan};
use super::shared::{SharedZones, Sharing};
use super::sharing::open_zones_max;
use super::state::{BandState, LogBand};
use crate::access_times::AccessTimes;
use crate::error::StoreError;
use crate::file_store::{Location, StoreProperties};
use crate::identity::{Identity, OpenedAs};
use crate::journal::{self, Journal, METADATA, Recovered, StoreKind, corruption};
use crate::kernel::{self, FoundNames, Numbered, Replay, StoreState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use varve_env::Env;
use varve_media::{Device, MediaError, ZoneCondition, ZoneControl, ZoneDescription, ZoneId, ZoneType};

/// Numbers of files and frames begin with the generation in which they were drawn.
const GENERATION_SHIFT: u32 = 32;
/// Zones reported at once.
const REPORT_ZONES: u32 = 4096;

/// What the band table on a medium says.
pub(super) struct Found {
    pub(super) geometry: StoreGeometry,
    pub(super) files: BTreeMap<String, FoundFile>,
    pub(super) next_file: u64,
    pub(super) log_bands: BTreeMap<u32, LogBandRecord>,
    pub(super) retired: BTreeMap<u32, Retirement>,
}

#[derive(Clone, Debug)]
pub(super) struct FoundFile {
    pub(super) record: FileRecord,
}

impl Numbered for FoundFile {
    fn number(&self) -> u64 {
        self.record.file
    }
}

/// Puts together what was read; anything may come.
pub(super) fn replay(label: &str, journal: &Journal, recovered: &Recovered) -> Result<Found, StoreError> {
    let damaged = |structure: &str, offset: u64, expected: &str, found: String| {
        corruption(label, structure, offset, expected, found)
    };
    let geometry = StoreGeometry::decode(&recovered.parameters, journal.regions(), journal.capacity_bytes())
        .map_err(|found| damaged("superblock", 0, "parameters of a band store", found))?;
    let Checkpoint { next_file, log_bands, retired, files } =
        decode_checkpoint(&recovered.checkpoint).map_err(|offset| {
            damaged("checkpoint", offset as u64, "a record of the band table", "something else".into())
        })?;
    let files = files.into_iter().map(|record| (record.name.clone(), FoundFile { record }));
    let mut table = FoundTable {
        names: kernel::names_of(label, next_file, files)?,
        logs: log_bands.into_iter().map(|record| (record.band, record)).collect(),
        retired: retired.into_iter().collect(),
    };
    kernel::replay(label, &mut table, &recovered.commits)?;
    let FoundTable { names, logs, retired } = table;
    let (files, next_file) = names.into_parts();
    let found = Found { geometry, files, next_file, log_bands: logs, retired };
    match found.inconsistency() {
        None => Ok(found),
        Some(what) => Err(damaged("band table", 0, "bands of the device, each byte with one owner", what)),
    }
}

/// The band table while it is replayed.
struct FoundTable {
    names: FoundNames<FoundFile>,
    logs: BTreeMap<u32, LogBandRecord>,
    retired: BTreeMap<u32, Retirement>,
}

impl Replay for FoundTable {
    type Change = Change;

    const LOG: &'static str = "band table log";

    fn decode(commit: &[u8]) -> Result<Vec<Change>, usize> {
        decode_commit(commit)
    }

    fn apply(&mut self, change: &Change) -> Option<()> {
        let FoundTable { names, logs, retired } = self;
        match change {
            Change::Create { file, is_packed, level, name } => {
                let (file, is_packed, level, name) = (*file, *is_packed, *level, name.clone());
                let record = FileRecord {
                    file,
                    is_packed,
                    level,
                    size_bytes: 0,
                    name: name.clone(),
                    fragments: Vec::new(),
                    cut: None,
                    stamp: None,
                };
                names.create(&name, FoundFile { record })?;
            }
            Change::Fragments { file, level, keep, fragments } => {
                let record = &mut names.file_mut(*file)?.record;
                if record.is_packed || *keep as usize > record.fragments.len() {
                    return None;
                }
                record.fragments.truncate(*keep as usize);
                record.fragments.extend(fragments);
                record.level = *level;
            }
            Change::Size { file, size_bytes } => {
                let record = &mut names.file_mut(*file)?.record;
                if !record.is_packed {
                    return None;
                }
                record.size_bytes = *size_bytes;
            }
            Change::Rename { from, to } => names.rename(from, to)?,
            Change::Remove { name } => names.remove(name)?,
            Change::LogBegun { band, order, first_sequence } => {
                let (band, order, first_sequence) = (*band, *order, *first_sequence);
                let begun = LogBandRecord { band, order, first_sequence, sealed_bytes: None };
                if logs.insert(band, begun).is_some() {
                    return None;
                }
            }
            Change::LogSealed { band, valid_bytes } => {
                let sealed = &mut logs.get_mut(band)?.sealed_bytes;
                if sealed.is_some() {
                    return None;
                }
                *sealed = Some(*valid_bytes);
            }
            Change::LogReleased { band } => {
                logs.remove(band)?;
            }
            Change::Retired { band, retirement } => {
                retired.insert(*band, *retirement);
            }
            Change::Cut { file, cut } => {
                let record = &mut names.file_mut(*file)?.record;
                if !record.is_packed {
                    return None;
                }
                record.cut = Some(*cut);
            }
            Change::Stamp { file, stamp } => names.file_mut(*file)?.record.stamp = Some(*stamp),
        }
        Some(())
    }
}

impl Found {
    /// What cannot be: bytes outside the bands, two tables at one place, or a table among logs.
    fn inconsistency(&self) -> Option<String> {
        let geometry = &self.geometry;
        let mut places: Vec<(u32, u64, u64, u64, &str)> = Vec::new();
        for log in self.log_bands.values() {
            if !geometry.holds(log.band, 0, log.sealed_bytes.unwrap_or(0)) {
                return Some(format!("log band {}, sealed at {:?}", log.band, log.sealed_bytes));
            }
        }
        if let Some(band) = self.retired.keys().find(|band| !geometry.bands().contains(band)) {
            return Some(format!("retired band {band}"));
        }
        for file in self.files.values() {
            let FileRecord { file, name, fragments, .. } = &file.record;
            for fragment in fragments {
                if !geometry.holds(fragment.band, fragment.offset_bytes, fragment.length_bytes) {
                    return Some(format!("{fragment:?} of file {file} '{name}'"));
                }
                if self.log_bands.contains_key(&fragment.band) {
                    return Some(format!("band {} of file {file} '{name}', which has logs", fragment.band));
                }
                let end_bytes = fragment.offset_bytes + fragment.length_bytes;
                places.push((fragment.band, fragment.offset_bytes, end_bytes, *file, name));
            }
        }
        places.sort_unstable();
        let overlap = places.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[1].1 < pair[0].2);
        overlap.map(|pair| {
            let ((band, _, end_bytes, file, name), (_, at_bytes, _, other, other_name)) = (pair[0], pair[1]);
            format!(
                "band {band}: file {file} '{name}' up to byte {end_bytes}, and file {other} '{other_name}' from byte {at_bytes}"
            )
        })
    }
}

/// The zone facet of a device that has one.
pub(super) fn zones_of(label: &str, device: &Device) -> Result<Arc<dyn ZoneControl>, StoreError> {
    match (&device.zones, device.block.capabilities().tracks.is_some()) {
        (Some(zones), false) => Ok(zones.clone()),
        _ => Err(StoreError::InvalidRequest {
            store: label.to_owned(),
            reason: "this store needs a device with zones; 'extent' takes conventional ones".to_owned(),
        }),
    }
}

/// What the device says of the zones that are bands.
pub(super) fn report(
    label: &str,
    zones: &dyn ZoneControl,
    geometry: &StoreGeometry,
) -> Result<BTreeMap<u32, ZoneDescription>, StoreError> {
    let mut found = BTreeMap::new();
    let bands = geometry.bands();
    let mut next = bands.start;
    while next < bands.end {
        let count = (bands.end - next).min(REPORT_ZONES);
        let described = zones.report(ZoneId(next), count, &METADATA);
        let described = described.map_err(|error| journal::media_error(label, "zones", error))?;
        if described.is_empty() {
            break;
        }
        for zone in described {
            if (zone.start_bytes, zone.length_bytes) != (geometry.start_bytes(next), geometry.zone_bytes) {
                let expected = format!("zone {next} of {} bytes", geometry.zone_bytes);
                let found = format!("one of {} bytes at byte {}", zone.length_bytes, zone.start_bytes);
                return Err(other_zones(label, geometry.start_bytes(next), expected, found));
            }
            found.insert(next, zone);
            next += 1;
        }
    }
    match found.len() == bands.len() {
        true => Ok(found),
        false => {
            let (expected, found) =
                (format!("zones up to number {}", bands.end - 1), format!("{} fewer", bands.len() - found.len()));
            Err(other_zones(label, 0, expected, found))
        }
    }
}

/// The zones are not those the store was made on.
fn other_zones(label: &str, offset_bytes: u64, expected: String, found: String) -> StoreError {
    StoreError::Foreign {
        store: label.to_owned(),
        structure: "zones".to_owned(),
        offset_bytes,
        expected,
        found,
        advice: "open the whole device it was formatted on".to_owned(),
    }
}

/// Whether a zone can be a band of this store.
fn is_band(zone: &ZoneDescription, geometry: &StoreGeometry) -> bool {
    zone.zone_type != ZoneType::Conventional && zone.capacity_bytes >= geometry.band_bytes
}

/// Bytes of a band in which something may have been written.
pub(super) fn written_bytes(zone: &ZoneDescription, geometry: &StoreGeometry) -> u64 {
    match zone.condition {
        ZoneCondition::Empty => 0,
        // The pointer says nothing.
        ZoneCondition::Full | ZoneCondition::ReadOnly | ZoneCondition::Offline => geometry.band_bytes,
        _ if zone.non_sequential => geometry.band_bytes,
        _ => {
            let written = zone.write_pointer_bytes.saturating_sub(zone.start_bytes).min(geometry.band_bytes);
            written / u64::from(geometry.unit_bytes) * u64::from(geometry.unit_bytes)
        }
    }
}

/// What the log bands hold of the small files.
struct FoundLogs {
    bands: BTreeMap<u32, LogBand>,
    pieces: BTreeMap<u64, PieceMap>,
    /// What is lost of log bands.
    losses: Vec<String>,
    /// The first failure of the device that says nothing about what is there: it may be read later.
    failure: Option<MediaError>,
    /// Damaged parts of log bands that can be read.
    damaged: Vec<StoreError>,
    /// Log bands that were being written and of which something is lost.
    uncertain: Vec<UncertainBand>,
}

/// A log band that was being written and of which something is lost: how far the files of its generation went is not
/// known, except of those with a frame behind the loss.
struct UncertainBand {
    band: u32,
    generation: u64,
    certain_files: BTreeSet<u64>,
}

impl FoundLogs {
    /// Whether everything of a small file is there, as far as is known.
    fn is_whole(&self, file: u64, size_bytes: u64) -> bool {
        let Some(pieces) = self.pieces.get(&file) else { return true };
        let contiguous = pieces.contiguous_bytes();
        contiguous == pieces.size_bytes() && contiguous >= size_bytes && self.is_certain(file)
    }

    /// Whether nothing can be missing behind the end of a small file, as far as log bands tell. A file is written in
    /// the generation it was created in, and later only copied.
    fn is_certain(&self, file: u64) -> bool {
        let generation = file >> GENERATION_SHIFT;
        !self.uncertain.iter().any(|band| band.generation == generation && !band.certain_files.contains(&file))
    }
}

fn read_logs(
    device: &Device,
    label: &str,
    format: &FrameFormat,
    found: &Found,
    zones: &BTreeMap<u32, ZoneDescription>,
) -> FoundLogs {
    let mut logs = FoundLogs {
        bands: BTreeMap::new(),
        pieces: BTreeMap::new(),
        losses: Vec::new(),
        failure: None,
        damaged: Vec::new(),
        uncertain: Vec::new(),
    };
    let packed = found.files.values().map(|file| &file.record).filter(|record| record.is_packed);
    let records: BTreeMap<u64, &FileRecord> = packed.map(|record| (record.file, record)).collect();
    logs.pieces.extend(records.keys().map(|file| (*file, PieceMap::default())));
    let mut damaged = Vec::new();
    let mut ordered: Vec<&LogBandRecord> = found.log_bands.values().collect();
    ordered.sort_by_key(|record| record.order);
    for record in ordered {
        let zone = &zones[&record.band];
        let LogBandRecord { band, order, first_sequence, sealed_bytes } = *record;
        let generation = first_sequence >> GENERATION_SHIFT;
        if zone.condition == ZoneCondition::Offline {
            logs.losses.push(format!("the log band {band} is offline"));
            if sealed_bytes.is_none() {
                logs.uncertain.push(UncertainBand { band, generation, certain_files: BTreeSet::new() });
            }
            // Remembered as long as the store lives, so that what was in it is missed.
            logs.bands.insert(band, LogBand { order, first_sequence, sealed_bytes, live_bytes: 1 });
            continue;
        }
        let extent = LogExtent {
            band,
            first_sequence,
            end_bytes: sealed_bytes.unwrap_or_else(|| written_bytes(zone, &found.geometry)),
            is_sealed: sealed_bytes.is_some(),
        };
        let scanned = scan(device, format, &found.geometry, &extent, &METADATA);
        logs.damaged.extend(scanned.damaged.iter().map(|part| part.error(label, &found.geometry, band)));
        if let Some(last) = scanned.damaged.last() {
            damaged.push(band);
            let mut sources = scanned.damaged.iter().filter_map(|part| part.source.as_ref());
            let failure = sources.find(|source| !source.is_loss());
            logs.failure = logs.failure.take().or_else(|| failure.cloned());
            let DamagedPart { start_bytes, expected, found, .. } = last;
            logs.losses.push(format!("byte {start_bytes} of log band {band} should have {expected}, and has {found}"));
            if sealed_bytes.is_none() {
                let behind = scanned.frames.iter().filter(|frame| frame.piece.frame_at >= last.end_bytes);
                let certain_files = behind.map(|frame| frame.header.file).collect();
                logs.uncertain.push(UncertainBand { band, generation, certain_files });
            }
        }
        let sealed_bytes = Some(sealed_bytes.unwrap_or(scanned.valid_bytes));
        logs.bands.insert(band, LogBand { order, first_sequence, sealed_bytes, live_bytes: 0 });
        let mut dead = Vec::new();
        for frame in &scanned.frames {
            let file = frame.header.file;
            if let Some((map, record)) = logs.pieces.get_mut(&file).zip(records.get(&file)) {
                add_frame(map, record.cut, frame, &mut dead);
            }
        }
    }
    for piece in logs.pieces.values().flat_map(PieceMap::iter) {
        if let Some(log) = logs.bands.get_mut(&piece.band) {
            log.live_bytes += piece.length_bytes;
        }
    }
    // A damaged band is kept while a small file misses something, and one that was being written stays so in the band
    // table: the next open may be able to read it, and must not take what it finds for all there was.
    if records.values().any(|record| !logs.is_whole(record.file, record.size_bytes)) {
        for band in damaged {
            let is_uncertain = logs.uncertain.iter().any(|uncertain| uncertain.band == band);
            if let Some(log) = logs.bands.get_mut(&band) {
                log.live_bytes += 1;
                log.sealed_bytes = log.sealed_bytes.filter(|_| !is_uncertain);
            }
        }
    }
    // Those with nothing in them are given up with the checkpoint.
    logs.bands.retain(|_, log| log.live_bytes > 0);
    logs
}

/// A small file from its pieces. What is missing is an error of those who read it, not of those who open the store.
fn small_node(record: &FileRecord, pieces: PieceMap, logs: &FoundLogs) -> Node {
    let (contiguous, end) = (pieces.contiguous_bytes(), pieces.size_bytes());
    let size_bytes = end.max(record.size_bytes);
    let is_certain = logs.is_certain(record.file);
    let node = Node::found_small(record, pieces, size_bytes);
    if contiguous == size_bytes && is_certain {
        return node;
    }
    let (from_bytes, expected) = match is_certain {
        true => (contiguous, format!("{size_bytes} bytes in frames")),
        // Nobody must take what is there for all there was.
        false => (0, "every part of the file".to_owned()),
    };
    let found = match logs.losses.is_empty() {
        true => format!("the first {contiguous} of them"),
        false => logs.losses.join("; "),
    };
    let _ = node.damage.set(Damage { from_bytes, expected, found, failure: logs.failure.clone() });
    node
}

/// A store of which everything was read, and nothing written.
pub(super) struct Mounted {
    device: Device,
    label: String,
    zone_control: Arc<dyn ZoneControl>,
    zones: BTreeMap<u32, ZoneDescription>,
    geometry: StoreGeometry,
    format: FrameFormat,
    active_max: u32,
    metadata_zones: u32,
    journal: Journal,
    state: BandState,
    appender: LogAppender,
    used: BTreeSet<u32>,
    found_damaged: Vec<StoreError>,
    /// The band table is not what is on the medium.
    is_changed: bool,
}

pub(super) fn open(env: &Env, device: Device, kind: StoreKind) -> Result<OpenStore, StoreError> {
    mount(device, kind)?.begin(env, None)
}

/// Reads all there is.
pub(super) fn mount(device: Device, kind: StoreKind) -> Result<Mounted, StoreError> {
    let label = device.block.name().to_owned();
    let zone_control = zones_of(&label, &device)?;
    let (journal, recovered) = Journal::recover(&device, &label, &OpenedAs::in_order(kind, &device))?;
    let found = replay(&label, &journal, &recovered)?;
    let geometry = found.geometry;
    let active_max = device.block.capabilities().zones.as_ref().map_or(0, |zones| zones.active_zones_max);
    let metadata_zones = journal::active_metadata_zones(geometry.journal.groups);
    check_active_zones(&label, active_max, metadata_zones, active_zones_min(geometry.reserve))?;
    let active_max = active_max.saturating_sub(metadata_zones);
    let zones = report(&label, &*zone_control, &geometry)?;
    let format = FrameFormat { store_id: journal.store_id(), unit_bytes: geometry.unit_bytes as usize };
    let logs = read_logs(&device, &label, &format, &found, &zones);

    let mut bands = Bands::new(geometry.bands(), geometry.reserve_bands(), geometry.log_reserve_bands());
    let mut changed = found.log_bands.len() != logs.bands.len();
    changed |= found
        .log_bands
        .iter()
        .any(|(band, record)| record.sealed_bytes != logs.bands.get(band).and_then(|log| log.sealed_bytes));
    for (band, zone) in &zones {
        if zone.condition == ZoneCondition::Empty {
            bands.set_clean(*band);
        }
        match retirement_of(zone) {
            Some(retirement) => {
                changed |= found.retired.get(band) != Some(&retirement);
                bands.retire(*band, retirement);
            }
            None if !is_band(zone, &geometry) => bands.exclude(*band),
            // What was given up once stays so.
            None => found.retired.get(band).iter().for_each(|retirement| bands.retire(*band, **retirement)),
        }
    }
    logs.bands.keys().for_each(|band| bands.claim(*band, BandUse::Log));
    let mut names = BTreeMap::new();
    let mut pieces = logs.pieces.clone();
    let mut used: BTreeSet<u32> = logs.bands.keys().copied().collect();
    for (name, FoundFile { record }) in &found.files {
        let node = if record.is_packed {
            small_node(record, pieces.remove(&record.file).unwrap_or_default(), &logs)
        } else {
            let fragments = FragmentMap::recorded(&record.fragments);
            fragments.bands().into_iter().for_each(|band| bands.claim(band, BandUse::Table));
            used.extend(fragments.bands());
            Node::found_table(record, fragments)
        };
        names.insert(name.clone(), Arc::new(node));
    }
    // A number that a crash made the band table forget must not be used again: its bytes may be there.
    let first_number = first_number(&label, journal.generation(), &found)?;
    let next_order = found.log_bands.values().map(|record| record.order + 1).max().unwrap_or(1);
    let appender = LogAppender::new(next_order, first_number);
    let next_file = found.next_file.max(first_number);
    let state = BandState::new(
        names,
        next_file,
        bands,
        logs.bands,
        geometry.table_bands,
        geometry.band_bytes,
        journal.state_bytes_max(),
    );
    Ok(Mounted {
        is_changed: changed || !recovered.commits.is_empty(),
        found_damaged: logs.damaged,
        device,
        label,
        zone_control,
        zones,
        geometry,
        format,
        active_max,
        metadata_zones,
        journal,
        state,
        appender,
        used,
    })
}

impl Mounted {
    /// What the device says of itself.
    pub(super) fn identity(&self) -> &Identity {
        self.journal.identity()
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    pub(super) fn state(&self) -> &BandState {
        &self.state
    }

    pub(super) fn geometry(&self) -> &StoreGeometry {
        &self.geometry
    }

    /// Begins the next generation of the band table: from then on the store may be written. Tables share zones where it is said
    /// how.
    pub(super) fn begin(self, env: &Env, sharing: Option<&Sharing>) -> Result<OpenStore, StoreError> {
        let (store, refusal) = self.begin_or_refuse(env, sharing);
        refusal.map_or(Ok(store), Err)
    }

    /// [`begin`](Self::begin), and the error of a device that takes no writes: then the store may be read, and never written.
    pub(super) fn begin_or_refuse(self, env: &Env, sharing: Option<&Sharing>) -> (OpenStore, Option<StoreError>) {
        let Mounted { device, label, zone_control, zones, geometry, format, active_max, .. } = self;
        let Mounted { metadata_zones, mut journal, mut state, appender, used, found_damaged, is_changed, .. } = self;

        // What was found may be in the device's cache only, when the process ended and not the power.
        let mut refusal = journal::sync(&device, &label).err();
        let shared = sharing.map(|sharing| SharedZones::new(sharing, geometry.band_bytes));
        let open = find_shared(&mut state, shared.as_ref(), &geometry, &zones, active_max);
        if metadata_zones > 0 && active_max > 0 && refusal.is_none() {
            // The band table is going to take a zone.
            let active = zones.iter().filter(|(band, zone)| zone.condition.is_active() && !open.contains(band));
            active.for_each(|(band, _)| _ = zone_control.finish(ZoneId(*band), &METADATA));
        }
        if refusal.is_none() {
            let checkpoint = is_changed.then(|| state.checkpoint());
            refusal = journal.begin(checkpoint.as_deref()).err();
        }
        if active_max > 0 && refusal.is_none() {
            make_inactive(&*zone_control, &zones, &used, &open, &mut state);
        }

        let kept = geometry.reserve_bands() + geometry.log_reserve_bands();
        let table_bytes_max = u64::from(geometry.band_count - kept) * geometry.band_bytes;
        let capabilities = device.block.capabilities();
        let properties = StoreProperties {
            read_alignment_bytes: device.block.geometry().sector_bytes.max(capabilities.buffer_alignment_bytes),
            rotational: capabilities.rotational,
            access: AccessTimes::of(capabilities),
            places_by_level: false,
            preferred_transfer_bytes: None,
            preferred_table_bytes: Some(geometry.table_bytes()),
            table_bytes_max,
            wants_evictions: false,
            wants_rewrites: false,
            flush_is_device_request: true,
            location: Location::Private,
        };
        let opened = Opened {
            zones: zone_control,
            label,
            properties,
            geometry,
            frame: format,
            active_max,
            shared,
            state,
            journal,
            appender,
            found_damaged,
            device,
        };
        (OpenStore::new(env, opened), refusal)
    }
}

/// The first number of files and frames of this generation. Numbers on the medium that leave too few behind them are no
/// store's: none draws so many.
fn first_number(label: &str, generation: u64, found: &Found) -> Result<u64, StoreError> {
    const LAST: u64 = NUMBER_END / 2;
    let order = found.log_bands.values().map(|record| record.order).max().unwrap_or(0);
    let first = generation.checked_add(1).and_then(|next| next.checked_mul(1 << GENERATION_SHIFT));
    match first.filter(|first| (*first).max(order).max(found.next_file) <= LAST) {
        Some(first) => Ok(first),
        None => {
            let numbers = format!("generation {generation}, file {}, log band {order}", found.next_file);
            Err(corruption(label, "band table", 0, format!("numbers up to {LAST}"), numbers))
        }
    }
}

/// Refuses devices that cannot have the zones active that this store writes at once; the band table has so many of them.
pub(super) fn check_active_zones(
    label: &str,
    active_zones_max: u32,
    metadata_zones: u32,
    least: u32,
) -> Result<(), StoreError> {
    let needed = least + metadata_zones;
    if active_zones_max == 0 || active_zones_max >= needed {
        return Ok(());
    }
    let of_metadata = match metadata_zones {
        0 => "",
        1 => ", one for the band table",
        _ => ", two for the band table",
    };
    Err(StoreError::InvalidRequest {
        store: label.to_owned(),
        reason: format!(
            "the device lets {active_zones_max} zones be active, and this store needs {needed}: one for logs, {} for \
             tables{of_metadata}; use a device that lets more be",
            least - 1
        ),
    })
}

/// Where the device limits how many zones are active, nothing that is left over counts. What refuses that counts until
/// it does not.
fn make_inactive(
    control: &dyn ZoneControl,
    zones: &BTreeMap<u32, ZoneDescription>,
    used: &BTreeSet<u32>,
    open: &BTreeSet<u32>,
    state: &mut BandState,
) {
    let active = zones.iter().filter(|(band, zone)| zone.condition.is_active() && !open.contains(band));
    for band in active.map(|(band, _)| *band) {
        let is_done = if used.contains(&band) {
            control.finish(ZoneId(band), &METADATA).is_ok()
        } else {
            let is_reset = control.reset(ZoneId(band), &METADATA).is_ok();
            if is_reset {
                state.bands.set_clean(band);
            }
            is_reset
        };
        if !is_done {
            state.bands.set_unfinished(band);
        }
    }
}

/// Puts together which tables share zones, and where others may go on: in zones of which it is known how far they are written.
/// Where the device limits how many zones are active, as many are left to others as any open may need.
fn find_shared(
    state: &mut BandState,
    shared: Option<&SharedZones>,
    geometry: &StoreGeometry,
    zones: &BTreeMap<u32, ZoneDescription>,
    active_max: u32,
) -> BTreeSet<u32> {
    let tables: Vec<Arc<Node>> = state.names.values().filter(|node| !node.is_packed).cloned().collect();
    let mut owners: BTreeMap<u32, u32> = BTreeMap::new();
    for node in &tables {
        node.bands.lock().iter().for_each(|band| *owners.entry(*band).or_default() += 1);
    }
    for node in &tables {
        let is_small = shared.is_some_and(|shared| shared.is_for(Some(node.flushed_bytes()), geometry.band_bytes));
        let bands: Vec<u32> = node.bands.lock().iter().copied().collect();
        for band in bands.into_iter().filter(|band| is_small || owners[band] > 1) {
            if !state.pool.has(band) {
                state
                    .pool
                    .found(band, zones.get(&band).map_or(geometry.band_bytes, |zone| written_bytes(zone, geometry)));
            }
        }
    }
    // Also what a large table has in a zone that it shares.
    for node in &tables {
        let fragments: Vec<_> = node.fragments.read().iter().filter(|part| state.pool.has(part.band)).collect();
        if !fragments.is_empty() {
            state.pool.note_table(node.file, node.level(), 0);
        }
        for part in fragments {
            let bytes = part.length_bytes.next_multiple_of(u64::from(geometry.unit_bytes));
            state.pool.wrote(part.band, node.file, bytes, part.offset_bytes + bytes);
        }
    }
    if shared.is_none() {
        return BTreeSet::new();
    }
    state.bands.keep_for_cleaning(1);
    let open_max = match active_max {
        0 => open_zones_max(geometry.band_count as usize),
        active_max => {
            open_zones_max(geometry.band_count as usize).min(active_max.saturating_sub(ACTIVE_ALONE) as usize)
        }
    };
    let goes_on = |band: u32| {
        let zone = zones.get(&band).filter(|zone| is_band(zone, geometry) && retirement_of(zone).is_none())?;
        let is_ordered = zone.zone_type == ZoneType::SequentialWriteRequired && zone.condition.is_active();
        let pointer_bytes = zone.write_pointer_bytes.checked_sub(zone.start_bytes)?;
        let is_whole = pointer_bytes == written_bytes(zone, geometry) && pointer_bytes < geometry.band_bytes;
        (is_ordered && is_whole && pointer_bytes > 0).then_some((pointer_bytes, band))
    };
    let retired = state.bands.retired();
    let pooled = state.pool.bands().filter(|band| !retired.contains_key(band));
    let mut candidates: Vec<(u64, u32)> = pooled.filter_map(goes_on).collect();
    // Those with most space.
    candidates.sort_unstable();
    candidates.truncate(open_max);
    for (pointer_bytes, band) in &candidates {
        state.pool.stop(*band, *pointer_bytes);
        state.bands.set_active(*band);
    }
    candidates.into_iter().map(|(_, band)| band).collect()
}

#[cfg(test)]
mod tests {
    use super::super::change::Fragment;
    use super::super::geometry::tests::small;
    use super::*;

    fn found(places: &[(u32, u64, u64)]) -> Found {
        let file = |(number, (band, offset_bytes, length_bytes)): (u64, &(u32, u64, u64))| {
            let fragments = vec![Fragment { band: *band, offset_bytes: *offset_bytes, length_bytes: *length_bytes }];
            let (name, level, cut, stamp) = (format!("t-{number}"), None, None, None);
            let record =
                FileRecord { file: number, is_packed: false, level, size_bytes: 0, name, fragments, cut, stamp };
            (record.name.clone(), FoundFile { record })
        };
        Found {
            geometry: small(),
            files: (1..).zip(places).map(file).collect(),
            next_file: 100,
            log_bands: BTreeMap::new(),
            retired: BTreeMap::new(),
        }
    }

    #[test]
    fn tables_may_share_a_band_and_no_byte_of_it() {
        assert_eq!(found(&[(9, 0, 4096), (9, 4096, 100), (10, 0, 4096)]).inconsistency(), None);
        for places in [[(9, 0, 4097), (9, 4096, 100)], [(9, 4096, 100), (9, 0, 8192)], [(9, 0, 10), (9, 0, 10)]] {
            let what = found(&places).inconsistency().expect("two tables at one place");
            assert!(what.contains("band 9") && what.contains("'t-1'") && what.contains("'t-2'"), "{what}");
        }
        let log = LogBandRecord { band: 9, order: 1, first_sequence: 1, sealed_bytes: None };
        let with_logs = Found { log_bands: BTreeMap::from([(9, log)]), ..found(&[(9, 0, 4096)]) };
        assert!(with_logs.inconsistency().is_some_and(|what| what.contains("which has logs")));
    }
}
