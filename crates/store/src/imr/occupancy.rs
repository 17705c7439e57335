//! What every track of the disk is used for.

use super::core::Core;
use super::view::top_track;
use crate::file_store::FileStore;
use crate::occupancy::{Occupancy, OccupancyPiece, PieceUsage};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use varve_media::{TrackId, TrackTier};

fn part(tier: TrackTier) -> &'static str {
    match tier {
        TrackTier::Bottom => "bottom",
        TrackTier::Top => "top",
    }
}

/// One piece for each track.
pub(super) fn occupancy(core: &Core) -> Occupancy {
    let tracks = &core.geometry.tracks;
    let mut occupancy = Occupancy::default();
    let device = occupancy.add_device(core.disk.block.name(), core.disk.block.geometry().capacity_bytes);
    occupancy.pieces = (0..tracks.track_count)
        .map(TrackId)
        .map(|track| {
            let in_zone = track.0 < core.geometry.zone_tracks;
            OccupancyPiece {
                device,
                offset_bytes: tracks.start_bytes(track),
                length_bytes: tracks.length_bytes(track),
                used_bytes: 0,
                part: part(tracks.tier(track)),
                usage: if in_zone { PieceUsage::Reserved } else { PieceUsage::Free },
                file: None,
                rewrites: core.restores.get(track.0 as usize).map_or(0, |restores| restores.load(Ordering::Relaxed)),
            }
        })
        .collect();
    zone(core, &mut occupancy);
    let state = core.state.lock();
    for (name, node) in state.names.iter().filter(|(_, node)| !node.is_small) {
        let file = occupancy.add_file(name, node.level(), node.written_nanos());
        for (track, used_bytes) in node.map().used() {
            if let Some(piece) = occupancy.pieces.get_mut(track.0 as usize) {
                *piece = OccupancyPiece { used_bytes, usage: PieceUsage::Table, file: Some(file), ..*piece };
            }
        }
    }
    for (node, removed) in state.condemned_nodes() {
        let file = node.map(|node| occupancy.add_file("", node.level(), node.written_nanos()));
        for track in removed {
            let used_bytes = state.owners.get(&track).map_or(0, |owner| owner.used_bytes);
            if let Some(piece) = occupancy.pieces.get_mut(track.0 as usize) {
                *piece = OccupancyPiece { used_bytes, usage: PieceUsage::Removed, file, ..*piece };
            }
        }
    }
    occupancy
}

/// The store's own tops.
fn zone(core: &Core, occupancy: &mut Occupancy) {
    let (geometry, top_bytes) = (&core.geometry, core.geometry.tracks.top_track_bytes);
    let mut used: BTreeMap<u64, u64> = BTreeMap::new();
    for piece in core.small.occupancy().pieces.iter().filter(|piece| piece.usage != PieceUsage::Free) {
        let mut at = geometry.small_files.offset_bytes + piece.offset_bytes;
        let end = at + piece.length_bytes;
        while at < end {
            let next = ((at / top_bytes + 1) * top_bytes).min(end);
            *used.entry(at / top_bytes).or_default() += next - at;
            at = next;
        }
    }
    let small_files = geometry.small_files.offset_bytes / top_bytes..geometry.small_files.end_bytes() / top_bytes;
    for top in 0..u64::from(geometry.zone_tracks / 2) {
        let usage = match top {
            top if top < small_files.start => PieceUsage::Metadata,
            top if top < small_files.end => PieceUsage::SmallFiles,
            _ => PieceUsage::Backup,
        };
        let used_bytes = match usage {
            PieceUsage::SmallFiles => used.get(&top).copied().unwrap_or(0),
            _ => top_bytes,
        };
        if let Some(piece) = occupancy.pieces.get_mut(top_track(top).0 as usize) {
            *piece = OccupancyPiece { used_bytes, usage, ..*piece };
        }
    }
}
