//! What every extent of the device is used for.

use super::Extent;
use super::open_store::OpenStore;
use crate::occupancy::{Occupancy, OccupancyPiece, PieceUsage};

/// One piece for each extent, and one for each range that is the store's own.
pub(super) fn occupancy(core: &OpenStore) -> Occupancy {
    let (geometry, block_bytes) = (&core.geometry, core.geometry.block_bytes);
    let mut occupancy = Occupancy::default();
    let device = occupancy.add_device(&core.label, core.device.block.geometry().capacity_bytes);
    let part = |start: u64| if geometry.log_zone.contains(&start) { "log zone" } else { "" };
    let piece = |extent: Extent, usage: PieceUsage, file: Option<u32>| {
        let length_bytes = extent.blocks * block_bytes;
        OccupancyPiece {
            device,
            offset_bytes: extent.start * block_bytes,
            length_bytes,
            used_bytes: if usage == PieceUsage::Free { 0 } else { length_bytes },
            part: part(extent.start),
            usage,
            file,
            rewrites: 0,
        }
    };
    // What is the store's own is what lies between what files may have.
    let mut at = 0;
    let mut own = Vec::new();
    for extent in geometry.free_extents().unwrap_or_default() {
        own.push(Extent { start: at, blocks: extent.start - at });
        at = extent.start + extent.blocks;
    }
    own.push(Extent { start: at, blocks: geometry.blocks.saturating_sub(at) });
    let own = own.into_iter().filter(|extent| extent.blocks > 0);
    occupancy.pieces.extend(own.map(|extent| piece(extent, PieceUsage::Metadata, None)));
    let state = core.state.lock();
    occupancy.pieces.extend(state.free.ranges().map(|extent| piece(extent, PieceUsage::Free, None)));
    occupancy.pieces.extend(state.discards.iter().map(|extent| piece(*extent, PieceUsage::Removed, None)));
    for (name, node) in state.names.iter() {
        let file = occupancy.add_file(name, None, node.written_nanos());
        let extents = node.extents.read();
        occupancy.pieces.extend(extents.extents().map(|extent| piece(extent, PieceUsage::File, Some(file))));
    }
    for node in state.names.unnamed() {
        let file = occupancy.add_file("", None, node.written_nanos());
        let extents = node.extents.read();
        occupancy.pieces.extend(extents.extents().map(|extent| piece(extent, PieceUsage::Removed, Some(file))));
    }
    drop(state);
    occupancy.sort();
    occupancy
}
