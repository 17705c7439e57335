//! Opening: from what is on the medium to a store that may be written.
//!
//! Reads first: superblocks, checkpoint, log of changes; what the device says of its zones; then the log bands, in
//! their order. The device is synced, so that what was found stays. Then a new generation of the band table begins, in
//! which every log band is sealed where its frames end, and bands the device gave up are retired. A crash anywhere in
//! this leaves the old generation, and the next open does the same again.

use super::KIND;
use super::allocation::LOG_RESERVE_BANDS;
use super::bands::{BandUse, Bands, retirement_of};
use super::change::{Change, Checkpoint, FileRecord, LogBandRecord, Retirement, decode_checkpoint, decode_commit};
use super::core::{Core, METADATA, Opened};
use super::frame::FrameFormat;
use super::geometry::StoreGeometry;
use super::logs::LogAppender;
use super::node::Node;
use super::pieces::PieceMap;
use super::runs::RunMap;
use super::scan::{LogExtent, add_frame, scan};
use super::state::{LogBand, State};
use crate::error::StoreError;
use crate::file_store::{Location, StoreProperties};
use crate::journal::{self, Journal, Recovered, corruption};
use crate::names::{FoundNames, Numbered};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use varve_env::Env;
use varve_media::{Device, ZoneCondition, ZoneControl, ZoneDescription, ZoneId, ZoneType};

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
    let mut names = FoundNames::new(next_file);
    for record in files {
        let (name, file) = (record.name.clone(), record.file);
        if !names.add(&name, FoundFile { record }) {
            return Err(damaged("checkpoint", 0, "every file once", format!("file {file} '{name}' again")));
        }
    }
    let mut logs: BTreeMap<u32, LogBandRecord> = log_bands.into_iter().map(|record| (record.band, record)).collect();
    let mut retired: BTreeMap<u32, Retirement> = retired.into_iter().collect();
    for (number, commit) in recovered.commits.iter().enumerate() {
        let changes = decode_commit(commit).map_err(|offset| {
            damaged("band table log", offset as u64, "a change", format!("something else in commit {number}"))
        })?;
        for change in changes {
            apply(&mut names, &mut logs, &mut retired, &change).ok_or_else(|| {
                let found = format!("{change:?} in commit {number}");
                damaged("band table log", 0, "a change of what is there", found)
            })?;
        }
    }
    let (files, next_file) = names.into_parts();
    let found = Found { geometry, files, next_file, log_bands: logs, retired };
    match found.inconsistency() {
        None => Ok(found),
        Some(what) => Err(damaged("band table", 0, "bands of the device, each with one owner", what)),
    }
}

/// Makes one change; `None` when it does not fit what is there.
fn apply(
    names: &mut FoundNames<FoundFile>,
    logs: &mut BTreeMap<u32, LogBandRecord>,
    retired: &mut BTreeMap<u32, Retirement>,
    change: &Change,
) -> Option<()> {
    match change {
        Change::Create { file, small, level, name } => {
            let (file, small, level, name) = (*file, *small, *level, name.clone());
            let record = FileRecord { file, small, level, size_bytes: 0, name: name.clone(), runs: Vec::new() };
            names.create(&name, FoundFile { record })?;
        }
        Change::Runs { file, level, keep, runs } => {
            let record = &mut names.file_mut(*file)?.record;
            if record.small || *keep as usize > record.runs.len() {
                return None;
            }
            record.runs.truncate(*keep as usize);
            record.runs.extend(runs);
            record.level = *level;
        }
        Change::Size { file, size_bytes } => {
            let record = &mut names.file_mut(*file)?.record;
            if !record.small {
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
    }
    Some(())
}

impl Found {
    /// What cannot be: bytes outside the bands, or two owners of one band.
    fn inconsistency(&self) -> Option<String> {
        let geometry = &self.geometry;
        let mut owners: BTreeMap<u32, u64> = BTreeMap::new();
        for log in self.log_bands.values() {
            if !geometry.holds(log.band, 0, log.sealed_bytes.unwrap_or(0)) {
                return Some(format!("log band {}, sealed at {:?}", log.band, log.sealed_bytes));
            }
        }
        if let Some(band) = self.retired.keys().find(|band| !geometry.bands().contains(band)) {
            return Some(format!("retired band {band}"));
        }
        for file in self.files.values() {
            let FileRecord { file, name, runs, .. } = &file.record;
            for run in runs {
                if !geometry.holds(run.band, run.offset_bytes, run.length_bytes) {
                    return Some(format!("{run:?} of file {file} '{name}'"));
                }
                let owner = *owners.entry(run.band).or_insert(*file);
                if owner != *file || self.log_bands.contains_key(&run.band) {
                    return Some(format!("band {} of file {file} '{name}', which has another owner", run.band));
                }
            }
        }
        None
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
            found.insert(next, zone);
            next += 1;
        }
    }
    match found.len() == bands.len() {
        true => Ok(found),
        false => Err(StoreError::Foreign {
            store: label.to_owned(),
            structure: "superblock".to_owned(),
            offset_bytes: 0,
            expected: format!("zones up to number {}", bands.end - 1),
            found: format!("{} zones fewer", bands.len() - found.len()),
            advice: "open the whole device it was formatted on".to_owned(),
        }),
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
        _ if zone.zone_type == ZoneType::SequentialWritePreferred => geometry.band_bytes,
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
    /// Log bands that are lost, with what was in them.
    lost: Vec<u32>,
    /// Generations in which one of them was being written: how far their files went is not known.
    lost_generations: Vec<u64>,
}

fn read_logs(
    device: &Device,
    label: &str,
    format: &FrameFormat,
    found: &Found,
    zones: &BTreeMap<u32, ZoneDescription>,
) -> Result<FoundLogs, StoreError> {
    let mut logs =
        FoundLogs { bands: BTreeMap::new(), pieces: BTreeMap::new(), lost: Vec::new(), lost_generations: Vec::new() };
    let small = found.files.values().map(|file| &file.record).filter(|record| record.small);
    logs.pieces.extend(small.map(|record| (record.file, PieceMap::default())));
    let mut ordered: Vec<&LogBandRecord> = found.log_bands.values().collect();
    ordered.sort_by_key(|record| record.order);
    for record in ordered {
        let zone = &zones[&record.band];
        if zone.condition == ZoneCondition::Offline {
            logs.lost.push(record.band);
            if record.sealed_bytes.is_none() {
                logs.lost_generations.push(record.first_sequence >> GENERATION_SHIFT);
            }
            // Remembered as long as the store lives, so that what was in it is missed.
            let LogBandRecord { order, first_sequence, sealed_bytes, .. } = *record;
            logs.bands.insert(record.band, LogBand { order, first_sequence, sealed_bytes, live_bytes: 1 });
            continue;
        }
        let extent = LogExtent {
            band: record.band,
            first_sequence: record.first_sequence,
            end_bytes: record.sealed_bytes.unwrap_or_else(|| written_bytes(zone, &found.geometry)),
            is_sealed: record.sealed_bytes.is_some(),
        };
        let scanned = scan(device, label, format, &found.geometry, &extent, &METADATA)?;
        logs.bands.insert(
            record.band,
            LogBand {
                order: record.order,
                first_sequence: record.first_sequence,
                sealed_bytes: Some(scanned.valid_bytes),
                live_bytes: 0,
            },
        );
        let mut dead = Vec::new();
        for frame in &scanned.frames {
            if let Some(map) = logs.pieces.get_mut(&frame.header.file) {
                add_frame(map, frame, &mut dead);
            }
        }
    }
    for piece in logs.pieces.values().flat_map(PieceMap::iter) {
        if let Some(log) = logs.bands.get_mut(&piece.band) {
            log.live_bytes += piece.length_bytes;
        }
    }
    // Those with nothing in them are given up with the checkpoint.
    logs.bands.retain(|_, log| log.live_bytes > 0);
    Ok(logs)
}

/// A small file from its pieces; an error when a part is missing that no lost band explains.
fn small_node(label: &str, record: &FileRecord, pieces: PieceMap, logs: &FoundLogs) -> Result<Node, StoreError> {
    let (contiguous, end) = (pieces.contiguous_bytes(), pieces.size_bytes());
    let is_whole = contiguous == end && end >= record.size_bytes;
    // A file is written in the generation it was created in, and later only copied.
    let is_certain = !logs.lost_generations.contains(&(record.file >> GENERATION_SHIFT));
    if is_whole && is_certain {
        return Ok(Node::found_small(record.file, record.level, pieces, end));
    }
    if logs.lost.is_empty() {
        return Err(corruption(
            label,
            &format!("file '{}'", record.name),
            contiguous,
            format!("{} bytes in frames", end.max(record.size_bytes)),
            format!("the first {contiguous} of them"),
        ));
    }
    let node = Node::found_small(record.file, record.level, pieces, end.max(record.size_bytes));
    let bands: Vec<String> = logs.lost.iter().map(u32::to_string).collect();
    let _ = node.damage.set(format!("the log band {} is offline", bands.join(", ")));
    Ok(node)
}

pub(super) fn open(env: &Env, device: Device) -> Result<Core, StoreError> {
    let label = device.block.name().to_owned();
    let zone_control = zones_of(&label, &device)?;
    let (mut journal, recovered) = Journal::recover(&device, &label, KIND)?;
    let found = replay(&label, &journal, &recovered)?;
    let geometry = found.geometry;
    let zones = report(&label, &*zone_control, &geometry)?;
    let format = FrameFormat { store_id: journal.store_id(), unit_bytes: geometry.unit_bytes as usize };
    let logs = read_logs(&device, &label, &format, &found, &zones)?;

    let mut bands = Bands::new(geometry.bands(), u32::from(geometry.reserve_bands));
    let mut changed = found.log_bands.len() != logs.bands.len();
    changed |= found.log_bands.values().any(|record| record.sealed_bytes.is_none());
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
        let node = if record.small {
            small_node(&label, record, pieces.remove(&record.file).unwrap_or_default(), &logs)?
        } else {
            let runs = RunMap::recorded(&record.runs);
            runs.bands().into_iter().for_each(|band| bands.claim(band, BandUse::Table));
            used.extend(runs.bands());
            Node::found_table(record.file, record.level, runs)
        };
        names.insert(name.clone(), Arc::new(node));
    }
    // A number that a crash made the band table forget must not be used again: its bytes may be there.
    let first_number = (journal.generation() + 1) << GENERATION_SHIFT;
    let next_order = found.log_bands.values().map(|record| record.order + 1).max().unwrap_or(1);
    let appender = LogAppender::new(next_order, first_number);
    let next_file = found.next_file.max(first_number);
    let active_max = device.block.capabilities().zones.as_ref().map_or(0, |zones| zones.active_zones_max);
    let mut state = State::new(names, next_file, bands, logs.bands, journal.state_bytes_max());

    // What was found may be in the device's cache only, when the process ended and not the power.
    journal::sync(&device, &label)?;
    let checkpoint = (changed || !recovered.commits.is_empty()).then(|| state.take_checkpoint().0);
    journal.begin(checkpoint.as_deref())?;
    if active_max > 0 {
        make_inactive(&label, &*zone_control, &zones, &used, &mut state)?;
    }

    let kept = u32::from(geometry.reserve_bands) + LOG_RESERVE_BANDS;
    let table_bytes_max = u64::from(geometry.band_count - kept) * geometry.band_bytes;
    let capabilities = device.block.capabilities();
    let properties = StoreProperties {
        read_alignment_bytes: device.block.geometry().sector_bytes.max(capabilities.buffer_alignment_bytes),
        rotational: capabilities.rotational,
        preferred_table_bytes: Some(geometry.band_bytes),
        table_bytes_max,
        wants_evictions: false,
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
        state,
        journal,
        appender,
        device,
    };
    Ok(Core::new(env, opened))
}

/// Where the device limits how many zones are active, nothing that is left over counts.
fn make_inactive(
    label: &str,
    control: &dyn ZoneControl,
    zones: &BTreeMap<u32, ZoneDescription>,
    used: &BTreeSet<u32>,
    state: &mut State,
) -> Result<(), StoreError> {
    for band in zones.iter().filter(|(_, zone)| zone.condition.is_active()).map(|(band, _)| band) {
        let outcome = if used.contains(band) {
            control.finish(ZoneId(*band), &METADATA)
        } else {
            state.bands.set_clean(*band);
            control.reset(ZoneId(*band), &METADATA)
        };
        outcome.map_err(|error| journal::media_error(label, "zones", error))?;
    }
    Ok(())
}
