//! Fixed regions of consecutive tracks, each for one table.

use super::{AllocationPolicy, Choice, PolicySetting, TrackPlacement, TrackRequest, TrackView};
use varve_media::{TrackId, TrackTier};

/// A table gets a region of its own, bottoms before tops, and what it does not fill is lost to others
/// (the alternative that KVIMR section 3.3 argues against). The store's promise that a free track is
/// never refused holds here too: once no region is free, tables take what tracks there are.
pub(super) struct Region {
    tracks: u32,
}

impl Region {
    /// Regions that hold the largest table: an even number of tracks, so that each begins with a bottom.
    pub(super) fn new(setting: &PolicySetting<'_>) -> Region {
        let PolicySetting { geometry, table_bytes_max, .. } = *setting;
        let pair_bytes = geometry.bottom_track_bytes.saturating_add(geometry.top_track_bytes).max(1);
        let pairs = table_bytes_max.div_ceil(pair_bytes).max(1);
        Region { tracks: u32::try_from(pairs.saturating_mul(2)).unwrap_or(u32::MAX).min(geometry.track_count.max(2)) }
    }

    /// The tracks of a region, bottoms before tops.
    fn in_order(view: &TrackView<'_>, start: u32, end: u32) -> impl Iterator<Item = TrackId> {
        let tier = |tier: TrackTier| (start..end).map(TrackId).filter(move |&track| view.geometry.tier(track) == tier);
        tier(TrackTier::Bottom).chain(tier(TrackTier::Top))
    }
}

impl AllocationPolicy for Region {
    fn place(&self, view: &TrackView<'_>, request: &TrackRequest) -> Option<TrackPlacement> {
        let first = view.usable.start.next_multiple_of(2);
        let regions = view.usable.end.saturating_sub(first) / self.tracks;
        let behind = view.cursor.track.saturating_sub(first).div_ceil(self.tracks);
        let behind = if behind < regions { behind } else { 0 };
        for region in (behind..regions).chain(0..behind) {
            let start = first + region * self.tracks;
            let end = start + self.tracks;
            if (start..end).all(|track| view.is_free(TrackId(track))) {
                let mut choice = Choice::new(view, request);
                choice.take_from(Self::in_order(view, start, end));
                if choice.is_complete() {
                    // The next table begins behind the region, not in what this one left of it.
                    choice.cursor.track = end;
                    return choice.finish();
                }
            }
        }
        let mut choice = Choice::new(view, request);
        choice.take_from(Self::in_order(view, view.usable.start, view.usable.end));
        choice.finish()
    }
}
