//! KVIMR's compaction-aware track allocation.

use super::{AllocationPolicy, Choice, TrackPlacement, TrackRequest, TrackView};
use varve_media::{TrackId, TrackTier};

/// Bottoms only for the current largest level, tops for the others and for what bottoms cannot take
/// (level-based bi-tiering, KVIMR section 3.2.2, step 1); within a tier one track after the other from
/// the last position on, skipping those that are allocated and those that would cost a rewrite (relaxed
/// sequential, step 2). When every free bottom would cost one, the nearest bottom. When tops run out,
/// smaller levels take bottoms the same way: nothing is refused while a track is free.
///
/// The paper says both that a largest-level table goes to the nearest free bottom when all would cost a
/// rewrite and that it goes to tops when bottoms cannot take it all: bottoms first, then tops.
pub(super) struct CompactionAware;

impl AllocationPolicy for CompactionAware {
    fn place(&self, view: &TrackView<'_>, request: &TrackRequest) -> Option<TrackPlacement> {
        let mut choice = Choice::new(view, request);
        if request.is_of_largest_level() {
            take_bottoms(view, &mut choice);
            take_tops(view, &mut choice);
        } else {
            take_tops(view, &mut choice);
            take_bottoms(view, &mut choice);
        }
        choice.finish()
    }
}

/// Free tops from the last one given on: none costs a rewrite.
fn take_tops(view: &TrackView<'_>, choice: &mut Choice<'_>) {
    choice.take_from(view.free_from(TrackTier::Top, choice.cursor.top));
}

/// Free bottoms from the last one given on: first those that cost nothing, then the nearest others.
fn take_bottoms(view: &TrackView<'_>, choice: &mut Choice<'_>) {
    let start = choice.cursor.bottom;
    // Tops that are chosen: bottoms, which are taken meanwhile, are no neighbours of bottoms.
    let chosen = choice.chosen.clone();
    let costs = |track: TrackId| {
        view.costs_rewrite(track) || view.geometry.neighbours(track).any(|neighbour| chosen.contains(neighbour))
    };
    choice.take_from(view.free_from(TrackTier::Bottom, start).filter(|&track| !costs(track)));
    if choice.is_complete() {
        return;
    }
    // Nearest to where the table's last track is, or to the last position: sequentiality is kept best.
    let mut costly: Vec<TrackId> = view.free_of(TrackTier::Bottom).filter(|&track| !choice.contains(track)).collect();
    while !choice.is_complete() && !costly.is_empty() {
        let at = TrackId(choice.tracks.last().map_or(start, |track| track.0 + 1));
        let after = costly.partition_point(|&track| track < at);
        let distance = |index: usize| costly.get(index).map(|track| track.0.abs_diff(at.0));
        let before = after.checked_sub(1);
        let nearest = match (before.and_then(distance), distance(after)) {
            (Some(left), Some(right)) if left < right => after - 1,
            (Some(_), None) => after - 1,
            _ => after,
        };
        let track = costly.remove(nearest);
        choice.take(track);
    }
}
