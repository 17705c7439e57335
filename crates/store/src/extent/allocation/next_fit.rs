//! Contiguous, behind the last table.

use super::{AllocationPolicy, AllocationRequest, AllocationView, Placement, contiguous, gather, is_small};

/// Tables follow each other around the device, so that those written together lie together and free
/// space has time to grow into large gaps. Logs and small files as in first fit.
pub(super) struct NextFit;

impl AllocationPolicy for NextFit {
    fn place(&self, view: &AllocationView<'_>, request: &AllocationRequest) -> Option<Placement> {
        let zone = view.log_zone.clone();
        let small = is_small(request.kind);
        let cursor = view.cursor.clamp(zone.end, view.end);
        let (ahead, wrapped, before) = (cursor..view.end, zone.end..view.end, 0..zone.start);
        let windows = if small { [zone, wrapped, before, 0..0] } else { [ahead, wrapped, before, zone] };
        let extents = match contiguous(view, request, &windows) {
            Some(extent) => vec![extent],
            None => gather(view, request)?,
        };
        let behind = extents.last().map_or(cursor, |extent| extent.start + extent.blocks);
        Some(Placement { extents, cursor: if small { view.cursor } else { behind } })
    }
}
