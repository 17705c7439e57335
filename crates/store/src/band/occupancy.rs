//! What every band of the device is used for.

use super::bands::BandUse;
use super::node::Node;
use super::open_store::OpenStore;
use super::state::BandState;
use crate::occupancy::{Occupancy, OccupancyPiece, PieceUsage};
use std::collections::BTreeMap;

/// Use of a band, as reported.
struct Reported {
    usage: PieceUsage,
    file: Option<u32>,
    used_bytes: u64,
}

/// One piece for each band, and one for the random-access region. A band that tables share has one for what each has in it, and
/// others for what nobody has: those are of tables, and have none.
pub(super) fn occupancy(core: &OpenStore) -> Occupancy {
    let geometry = &core.geometry;
    let mut occupancy = Occupancy::default();
    let device = occupancy.add_device(core.device.block.name(), core.device.block.geometry().capacity_bytes);
    let state = core.state.lock();
    let mut reported = report_tables(&state, &mut occupancy);
    for (band, log) in &state.log_bands {
        reported.insert(*band, Reported { usage: PieceUsage::SmallFiles, file: None, used_bytes: log.live_bytes });
    }
    let retired: Vec<u32> = state.bands.retired().keys().copied().collect();
    let piece = |offset_bytes, length_bytes, part, reported: Reported| OccupancyPiece {
        device,
        offset_bytes,
        length_bytes,
        used_bytes: reported.used_bytes.min(length_bytes),
        part,
        usage: reported.usage,
        file: reported.file,
        rewrites: 0,
    };
    let own_bytes = geometry.start_bytes(geometry.first_band);
    let metadata = Reported { usage: PieceUsage::Metadata, file: None, used_bytes: own_bytes };
    let part = if geometry.journal.group_zones > 0 { "metadata" } else { "random-access" };
    occupancy.pieces.push(piece(0, own_bytes, part, metadata));
    let mut shared = report_shared(&state, &occupancy);
    for (band, band_use) in state.bands.iter() {
        let part = if retired.binary_search(&band).is_ok() { "retired" } else { "band" };
        if let Some(places) = shared.remove(&band) {
            let mut at = 0;
            let nobody = || Reported { usage: PieceUsage::Table, file: None, used_bytes: 0 };
            for (offset_bytes, length_bytes, reported) in places {
                let start = geometry.start_bytes(band);
                if offset_bytes > at {
                    occupancy.pieces.push(piece(start + at, offset_bytes - at, part, nobody()));
                }
                occupancy.pieces.push(piece(start + offset_bytes, length_bytes, part, reported));
                at = offset_bytes + length_bytes;
            }
            if at < geometry.zone_bytes {
                let rest = geometry.zone_bytes - at;
                occupancy.pieces.push(piece(geometry.start_bytes(band) + at, rest, part, nobody()));
            }
            continue;
        }
        let reported = reported.remove(&band).unwrap_or(Reported {
            usage: match band_use {
                BandUse::Free => PieceUsage::Free,
                BandUse::Table => PieceUsage::Table,
                BandUse::Log => PieceUsage::SmallFiles,
                BandUse::Retired => PieceUsage::Retired,
            },
            file: None,
            used_bytes: 0,
        });
        occupancy.pieces.push(piece(geometry.start_bytes(band), geometry.zone_bytes, part, reported));
    }
    drop(state);
    occupancy.sort();
    occupancy
}

/// The bands of tables, removed ones too.
fn report_tables(state: &BandState, occupancy: &mut Occupancy) -> BTreeMap<u32, Reported> {
    let mut reported = BTreeMap::new();
    let mut tell = |node: &Node, file: u32, usage: PieceUsage| {
        for band in &*node.bands.lock() {
            reported.insert(*band, Reported { usage, file: Some(file), used_bytes: 0 });
        }
        for fragment in node.fragments.read().iter() {
            if let Some(reported) = reported.get_mut(&fragment.band) {
                reported.used_bytes += fragment.length_bytes;
            }
        }
    };
    for (name, node) in state.names.iter() {
        let file = occupancy.add_file(name, node.level(), node.written_nanos());
        tell(node, file, PieceUsage::Table);
    }
    for node in state.names.unnamed() {
        let file = occupancy.add_file("", node.level(), node.written_nanos());
        tell(node, file, PieceUsage::Removed);
    }
    reported
}

/// What tables have of the bands that they share, in order: where, how much, and whose it is.
fn report_shared(state: &BandState, occupancy: &Occupancy) -> BTreeMap<u32, Vec<(u64, u64, Reported)>> {
    let mut reported: BTreeMap<u32, Vec<(u64, u64, Reported)>> = BTreeMap::new();
    if state.pool.zones() == 0 {
        return reported;
    }
    // In the order in which `report_tables` added the files.
    let named = state.names.values().map(|node| (node, PieceUsage::Table));
    let nodes = named.chain(state.names.unnamed().map(|node| (node, PieceUsage::Removed)));
    for (file, (node, usage)) in (0..occupancy.files.len() as u32).zip(nodes) {
        for fragment in node.fragments.read().iter().filter(|fragment| state.pool.has(fragment.band)) {
            let of_file = Reported { usage, file: Some(file), used_bytes: fragment.length_bytes };
            reported.entry(fragment.band).or_default().push((fragment.offset_bytes, fragment.length_bytes, of_file));
        }
    }
    reported.values_mut().for_each(|places| places.sort_unstable_by_key(|(offset_bytes, ..)| *offset_bytes));
    reported
}
