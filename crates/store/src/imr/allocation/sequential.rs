//! One track after the other.

use super::{AllocationPolicy, Choice, TrackPlacement, TrackRequest, TrackView};

/// Every free track in order from the last position on, whatever its tier (KVIMR section 4.1, "Seq").
pub(super) struct Sequential;

impl AllocationPolicy for Sequential {
    fn place(&self, view: &TrackView<'_>, request: &TrackRequest) -> Option<TrackPlacement> {
        let mut choice = Choice::new(view, request);
        choice.take_from(view.free_around(view.cursor.track));
        choice.finish()
    }
}
