//! Verifying the store's structures against each other and the medium.
//!
//! | code | severity | meaning |
//! |---|---|---|
//! | `superblock-damaged` | warning | one of the two superblocks; the next open writes it again |
//! | `identity-damaged` | warning | what the disk was formatted as, at its start; the store itself says it too |
//! | `rewrite-interrupted` | warning | tops wait in the backup region; the next open restores them |
//! | `metadata-unreadable` | fatal | the store could not be opened from what is on the medium now |
//! | `metadata-lost` | fatal | the medium lacks commits that were acknowledged |
//! | `tracks-differ` | error | the disk says other things of its tracks than their sizes say |
//! | `track-overlap` | error | two files, or a removed one and a file, have the same track, or a track is not for tables |
//! | `track-bitmap-mismatch` | error | a track of a file counts as free, or one of none as valid |
//! | `table-unreadable` | error | sectors under a table cannot be read |
//! | `data-destroyed` | error | the disk says that writes destroyed live data since it was opened |
//!
//! What the store of small files finds has its own codes (see `extent`).

use super::devices::{ImrDevices, Mounted, mount};
use super::geometry::StoreGeometry;
use super::map::TrackMap;
use super::open_store::OpenStore;
use super::reader::TrackRead;
use super::recovery::{Found, described_otherwise, each_copy, intents, maps_of, replay};
use crate::error::StoreError;
use crate::extent::ExtentStore;
use crate::file_store::{FileStore, Finding, Severity};
use crate::journal::Journal;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use varve_media::{BlockDeviceExt, IoClass, IoContext, TrackControl, TrackId};

/// Largest piece read of a table.
const TRANSFER_BYTES: u64 = 1 << 20;

/// Checks an open store.
pub(super) fn check(core: &OpenStore) -> Result<Vec<Finding>, StoreError> {
    let label = &core.label;
    // No commit between the look at the medium and the look at memory.
    let committer = core.committer.lock();
    let mut findings = committer.journal.check_medium();
    findings.extend(core.anchor.iter().flat_map(Journal::check_medium));
    let nodes = {
        let state = core.state.lock();
        let nodes: Vec<_> = state.names.iter().map(|(name, node)| (name.clone(), node.clone())).collect();
        let mut owners: BTreeMap<TrackId, String> = BTreeMap::new();
        let named = nodes.iter().map(|(name, node)| (name.clone(), node.map().tracks().to_vec()));
        let usable = core.geometry.usable();
        let waiting = state.waiting().map(|(node, tracks)| match node {
            Some(node) => (format!("removed file {}", node.file), tracks),
            None => (format!("replaced tracks {tracks:?}"), tracks),
        });
        for (name, tracks) in named.chain(waiting) {
            for track in tracks {
                if !usable.contains(&track.0) {
                    let message = format!("{label}: track {track} of '{name}' is not for tables");
                    findings.push(Finding::error("track-overlap", message));
                }
                if let Some(other) = owners.insert(track, name.clone()) {
                    let message = format!("{label}: '{name}' and '{other}' both have track {track}");
                    findings.push(Finding::error("track-overlap", message));
                }
            }
        }
        for track in (0..core.geometry.tracks.track_count).map(TrackId) {
            let (has, counts) = (owners.contains_key(&track), state.valid.contains(track));
            if has != counts || counts != state.owners.contains_key(&track) {
                let owner = owners.get(&track).map_or("nobody", |owner| owner.as_str());
                let counted = if counts { "valid" } else { "free" };
                let message = format!("{label}: track {track} counts as {counted} and belongs to '{owner}'");
                findings.push(Finding::error("track-bitmap-mismatch", message));
            }
        }
        nodes
    };
    drop(committer);
    findings.extend(tracks_differ(core.control.as_ref(), &core.geometry));
    let destroyed = core.control.as_ref().map(|control| control.destroyed()).unwrap_or_default();
    if destroyed.bytes > 0 {
        let message = format!("{label}: {} bytes were destroyed in {} writes", destroyed.bytes, destroyed.writes);
        findings.push(Finding::error("data-destroyed", message));
    }
    for (name, node) in nodes.iter().filter(|(_, node)| !node.is_packed) {
        findings.extend(table_findings(core, name, &node.map()));
    }
    findings.extend(core.packed_files.check()?);
    Ok(findings)
}

/// Reads all of a table.
fn table_findings(core: &OpenStore, name: &str, map: &Arc<TrackMap>) -> Vec<Finding> {
    let context = IoContext::of(IoClass::Check);
    let mut findings = Vec::new();
    let mut bytes = core.disk.buffer(TRANSFER_BYTES.min(map.size_bytes()) as usize);
    let mut at = 0;
    while at < map.size_bytes() {
        let length = (map.size_bytes() - at).min(TRANSFER_BYTES) as usize;
        let mut reads = [TrackRead { offset_bytes: at, data: &mut bytes[..length], outcome: Ok(()) }];
        core.read_tracks(name, map, &mut reads, &context);
        let [read] = reads;
        if let Err(found) = read.outcome {
            findings.push(Finding::error("table-unreadable", found.to_string()));
        }
        at += length as u64;
    }
    findings
}

fn tracks_differ(control: Option<&Arc<dyn TrackControl>>, geometry: &StoreGeometry) -> Option<Finding> {
    let differs = control.and_then(|control| described_otherwise(&**control, geometry));
    differs.map(|message| Finding::error("tracks-differ", message))
}

/// Checks what is on the devices of a store without opening it.
pub(super) fn inspect(devices: &ImrDevices) -> Vec<Finding> {
    let read = || {
        let mounted = mount(None, devices)?;
        let found = replay(&mounted.label, &mounted.geometry, &mounted.recovered)?;
        Ok((mounted, found))
    };
    let (mounted, found) = match read() {
        Ok(read) => read,
        Err::<_, StoreError>(error) => {
            return vec![Finding::unreadable(&error)];
        }
    };
    let Mounted { label, disk, control, own, geometry, store_id, recovered, anchor_findings, small_files, .. } =
        mounted;
    let Found { files, done, .. } = found;
    let mut findings = recovered.findings;
    findings.extend(anchor_findings);
    findings.extend(tracks_differ(control.as_ref(), &geometry));
    let (maps, owners) = match maps_of(&geometry, &files) {
        Ok(maps) => maps,
        Err(found) => {
            findings.push(Finding::error("track-overlap", format!("{label}: {found}")));
            return findings;
        }
    };
    let mut waiting: BTreeSet<TrackId> = BTreeSet::new();
    let copies = intents(&label, &disk, &own, &geometry, store_id, &done).and_then(|intents| {
        each_copy(&label, &disk, &geometry, &owners, &intents, |top, _| {
            waiting.insert(top.track);
        })
    });
    if let Err(failure) = copies {
        findings.push(Finding::unreadable(&failure));
    }
    if !waiting.is_empty() {
        let message = format!("{label}: {} tracks wait in the backup region; open the store", waiting.len());
        findings.push(Finding { severity: Severity::Warning, code: "rewrite-interrupted", message });
    }
    let context = IoContext::of(IoClass::Check);
    let unit = u64::from(geometry.journal.unit_bytes);
    let mut bytes = disk.buffer(TRANSFER_BYTES as usize);
    for (name, found) in files.iter().filter(|(_, found)| !found.is_packed) {
        for (track, used) in maps.get(&found.file).into_iter().flat_map(TrackMap::used) {
            if waiting.contains(&track) {
                continue;
            }
            let (start, used) = (geometry.tracks.start_bytes(track), used.next_multiple_of(unit));
            for at in (0..used).step_by(TRANSFER_BYTES as usize) {
                let piece = &mut bytes[..(used - at).min(TRANSFER_BYTES) as usize];
                if let Err(failure) = disk.block.read_at(start + at, piece, &context) {
                    findings.push(Finding::error(
                        "table-unreadable",
                        format!("{label}: '{name}', track {track}: {failure}"),
                    ));
                }
            }
        }
    }
    findings.extend(ExtentStore::inspect(&small_files));
    findings
}
