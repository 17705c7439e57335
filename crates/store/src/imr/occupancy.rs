//! What every track of the disk is used for.

use super::node::packed_name;
use super::open_store::OpenStore;
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
pub(super) fn occupancy(core: &OpenStore) -> Occupancy {
    let tracks = &core.geometry.tracks;
    let mut occupancy = Occupancy::default();
    let device = occupancy.add_device(core.disk.block.name(), core.disk.block.geometry().capacity_bytes);
    let pieces = (0..tracks.track_count).map(TrackId).map(|track| {
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
    });
    // Those of small files beside the disk come behind them.
    occupancy.pieces = Vec::with_capacity(pieces.len() + 256);
    occupancy.pieces.extend(pieces);
    zone(core, &mut occupancy);
    let state = core.state.lock();
    for (name, node) in state.names.iter().filter(|(_, node)| !node.is_packed) {
        let file = occupancy.add_file(name, node.level(), node.written_nanos());
        for (track, used_bytes) in node.map().used() {
            if let Some(piece) = occupancy.pieces.get_mut(track.0 as usize) {
                *piece = OccupancyPiece { used_bytes, usage: PieceUsage::Table, file: Some(file), ..*piece };
            }
        }
    }
    for (node, removed) in state.waiting() {
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

/// The store's own.
fn zone(core: &OpenStore, occupancy: &mut Occupancy) {
    let (geometry, tracks) = (&core.geometry, &core.geometry.tracks);
    let top_bytes = tracks.top_track_bytes;
    let small_files = core.packed_files.occupancy();
    let in_use = small_files.pieces.iter().filter(|piece| piece.usage != PieceUsage::Free);
    let mut used: BTreeMap<u64, u64> = BTreeMap::new();
    for piece in in_use.filter(|_| core.beside.is_none()) {
        let mut at = geometry.small_files.offset_bytes + piece.offset_bytes;
        let end = at + piece.length_bytes;
        while at < end {
            let next = ((at / top_bytes + 1) * top_bytes).min(end);
            *used.entry(at / top_bytes).or_default() += next - at;
            at = next;
        }
    }
    let (small, backup) = (geometry.small_files, geometry.backup_bytes());
    for top in 0..u64::from(geometry.zone_tracks / 2) {
        let at = top * top_bytes;
        let usage = match at {
            at if backup.contains(&at) => PieceUsage::Backup,
            at if at >= small.offset_bytes && at < small.end_bytes() => PieceUsage::SmallFiles,
            _ => PieceUsage::Metadata,
        };
        let used_bytes = match usage {
            PieceUsage::SmallFiles => used.get(&top).copied().unwrap_or(0),
            _ => top_bytes,
        };
        let track = tracks.track_at(geometry.own_offset(top));
        if let Some(piece) = track.and_then(|track| occupancy.pieces.get_mut(track.0 as usize)) {
            *piece = OccupancyPiece { used_bytes: used_bytes.min(piece.length_bytes), usage, ..*piece };
        }
    }
    let Some(beside) = &core.beside else { return };
    let disk = &beside.device.block;
    let device = occupancy.add_device(disk.name(), disk.geometry().capacity_bytes);
    let at = beside.geometry.small_files.offset_bytes;
    let metadata = OccupancyPiece {
        device,
        offset_bytes: 0,
        length_bytes: at,
        used_bytes: at,
        part: "",
        usage: PieceUsage::Metadata,
        file: None,
        rewrites: 0,
    };
    // Small files have numbers there; their names are the store's.
    let named: BTreeMap<String, String> = {
        let state = core.state.lock();
        let packed = state.names.iter().filter(|(_, node)| node.is_packed);
        packed.map(|(name, node)| (packed_name(node.file), name.clone())).collect()
    };
    let first = occupancy.files.len() as u32;
    for file in &small_files.files {
        let name = named.get(&file.name).map_or("", String::as_str);
        occupancy.add_file(name, file.level, file.written_nanos);
    }
    let moved = |piece: &OccupancyPiece| OccupancyPiece {
        device,
        offset_bytes: at + piece.offset_bytes,
        file: piece.file.map(|file| first + file),
        ..*piece
    };
    occupancy.pieces.push(metadata);
    occupancy.pieces.extend(small_files.pieces.iter().map(moved));
}
