//! Contiguous, as far to the front as possible.

use super::{AllocationPolicy, AllocationRequest, AllocationView, Placement, contiguous, gather, is_small};

/// The default: a table is one extent of its expected size in the first gap that holds it, which keeps
/// the data together at the outer, faster tracks of a disk; logs and small files stay in the zone
/// beside the metadata, so that commits and log syncs are near each other.
pub(super) struct FirstFit;

impl AllocationPolicy for FirstFit {
    fn place(&self, view: &AllocationView<'_>, request: &AllocationRequest) -> Option<Placement> {
        let zone = view.log_zone.clone();
        let (before, after) = (0..zone.start, zone.end..view.end);
        let windows = if is_small(request.kind) { [zone, after, before] } else { [after, before, zone] };
        let extents = match contiguous(view, request, &windows) {
            Some(extent) => vec![extent],
            None => gather(view, request)?,
        };
        Some(Placement { extents, cursor: view.cursor })
    }
}
