//! Bottoms, every other top, the other tops.

use super::{AllocationPolicy, Choice, TrackPlacement, TrackRequest, TrackView};
use varve_media::{TrackId, TrackTier};

/// Unused tracks in this order: bottoms; every other top; the rest of the tops (KVIMR sections 2.2 and
/// 4.1, after Gao et al.). A track that becomes free comes up again at its place in the order.
pub(super) struct ThreePhase {
    /// The second phase goes from the inner edge outwards (after Wu et al.).
    pub(super) zigzag: bool,
}

impl AllocationPolicy for ThreePhase {
    fn place(&self, view: &TrackView<'_>, request: &TrackRequest) -> Option<TrackPlacement> {
        let is_second = |track: &TrackId| (track.0 / 2).is_multiple_of(2);
        let mut choice = Choice::new(view, request);
        choice.take_from(view.free_of(TrackTier::Bottom));
        if self.zigzag {
            let second: Vec<TrackId> = view.free_of(TrackTier::Top).filter(is_second).collect();
            choice.take_from(second.into_iter().rev());
        } else {
            choice.take_from(view.free_of(TrackTier::Top).filter(is_second));
        }
        choice.take_from(view.free_of(TrackTier::Top));
        choice.finish()
    }
}
