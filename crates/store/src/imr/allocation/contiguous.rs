//! Tracks of both tiers that follow each other.
//!
//! A table whose tracks lie as they come, bottoms and tops alike, leaves a hole when it goes in which no bottom
//! lies beside a valid top except at its ends: whatever goes there next rewrites two tops at most. It takes two syncs
//! where a table on one tier takes one, because its bottoms must be durable before its tops are written, and three
//! more when it rewrites anything.

use super::cost_aware::REWRITE_WEIGHT;
use super::{TrackRequest, TrackView};
use varve_media::TrackId;

// What else adds to the cost of tracks, in gaps.

/// The syncs of a rewrite, however many tops it saves, and the ways to the backup region.
const REWRITE_SYNCS: u64 = 3;

/// A hole of which a part is left over at an end.
const CUT: u64 = 1;

/// Of the free tracks of a view, ascending, those that follow each other in it, hold the table and cost least; the
/// outermost of them. `None` when all together do not hold it. Cost: two steps for each free track.
pub(super) fn contiguous<'a>(
    view: &TrackView<'_>,
    request: &TrackRequest,
    free: &'a [TrackId],
) -> Option<&'a [TrackId]> {
    let tracks = Tracks { view, free };
    let size_bytes = request.size_bytes.max(1);
    let (mut end, mut bytes) = (0, 0);
    // Of the tracks behind the first.
    let mut inner = Cost::default();
    let mut best: Option<(u64, usize, usize)> = None;
    for start in 0..free.len() {
        while bytes < size_bytes && end < free.len() {
            bytes += view.geometry.length_bytes(free[end]);
            if end > start {
                inner.add(tracks.within(end));
            }
            end += 1;
        }
        if bytes < size_bytes {
            break;
        }
        let rewrites = inner.rewrites + view.rewrites(free[start], false);
        let syncs = if rewrites > 0 { REWRITE_SYNCS } else { 0 };
        let cuts = u64::from(tracks.is_cut(start)) + u64::from(tracks.is_cut(end));
        let cost = REWRITE_WEIGHT * rewrites + syncs + inner.gaps + CUT * cuts;
        if best.is_none_or(|(least, ..)| cost < least) {
            best = Some((cost, start, end));
        }
        bytes -= view.geometry.length_bytes(free[start]);
        if start + 1 < end {
            inner.subtract(tracks.within(start + 1));
        }
    }
    best.map(|(_, start, end)| &free[start..end])
}

/// What tracks cost.
#[derive(Clone, Copy, Default)]
struct Cost {
    rewrites: u64,
    gaps: u64,
}

impl Cost {
    fn add(&mut self, other: Cost) {
        self.rewrites += other.rewrites;
        self.gaps += other.gaps;
    }

    fn subtract(&mut self, other: Cost) {
        self.rewrites -= other.rewrites;
        self.gaps -= other.gaps;
    }
}

/// Free tracks, by their index.
struct Tracks<'a> {
    view: &'a TrackView<'a>,
    free: &'a [TrackId],
}

impl Tracks<'_> {
    /// What a track adds to the one before it.
    fn within(&self, index: usize) -> Cost {
        let distance = self.free[index].0 - self.free[index - 1].0;
        Cost { rewrites: self.view.rewrites(self.free[index], distance == 2), gaps: u64::from(distance > 1) }
    }

    /// The tracks on both sides of this place are one hole.
    fn is_cut(&self, index: usize) -> bool {
        index > 0 && index < self.free.len() && self.free[index - 1].0 + 1 == self.free[index].0
    }
}
