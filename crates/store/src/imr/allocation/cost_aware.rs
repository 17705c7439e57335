//! Tracks of both tiers that follow each other, where they cost least.
//!
//! KVIMR keeps tiers apart: the largest level gets bottoms, all others tops. A table on one tier has a gap behind each
//! of its tracks, for the disk when it is written and for whoever reads it; and what such a table leaves when it goes is
//! free bottoms beside tops that stay, so that later tables pay for rewrites. A table whose tracks lie as they come,
//! bottoms and tops alike, is read without a gap, and leaves a hole in which no bottom lies beside a valid top except at its
//! ends: whatever goes there next rewrites two tops at most. It takes two syncs where a table on one tier takes one,
//! because its bottoms must be durable before its tops are written, and three more when it rewrites anything.
//!
//! So a table takes the free tracks that follow each other and cost least, of equal ones the outermost, where a disk
//! transfers fastest. What they cost, in gaps (a short seek and half a turn), each of which can be left out to see what it is
//! worth ([`CostTerm`]; the experiment `kvimr/ablation` prints it):
//!
//! - *syncs*: those of a rewrite and the ways to the backup region, however many tops it saves;
//! - *gaps*: tracks that are not free between those of the table;
//! - *cuts*: a hole of which a part is left over;
//! - *seeks*: how much farther the arm moves because the table lies beyond all tracks in use.
//!
//! The price of seeks follows from the disk ([`SeekTimes`]). The tracks in use span the disk from its outer edge, where the store's own are, to the
//! innermost that is in use. A table that ends within the span moves the arm no farther than others do. One that ends a share `x` of the stroke
//! beyond it costs two seeks over that distance when it is written, there and back; a seek takes `(longest - shortest) sqrt(x)` more than the
//! shortest, as the arm accelerates for half of the way. Reads cost such seeks too, as gaps do, and are counted for neither.
//! So on a mostly empty disk a guard track that is left free behind the neighbour (a cut: 1) costs less than the far end (5 to 7), and on a
//! disk whose tracks in use reach to its end nothing is priced.
//!
//! Where nothing has neighbours, on a conventional disk, this is what an allocator of extents does: the hole that fits best.
//!
//! Tried and left: tiers and levels told apart as long as an eighth of the disk is free (tops over valid bottoms first,
//! bottoms of smaller levels as going first, a reserve of tops), which loads a quarter slower and rewrites more on a nearly
//! full disk; a price on the distance from the last table of the same job, which gave more rewrites; a price on each top that is rewritten, which
//! avoided each one at the expense of those to come: more gaps, and at 95 % a third to a half more rewrites. What was measured is in
//! `docs/kvimr.md`.

use super::{AllocationPolicy, Choice, PolicySetting, RewriteName, TrackPlacement, TrackRequest, TrackView};
use std::collections::VecDeque;
use std::ops::Range;
use varve_media::{SeekTimes, TrackId, TrackTier};

/// Cost of a gap. Costs are in thousandths of it.
const GAP: u64 = 1000;

/// Cost of the syncs of a rewrite, and of the ways to the backup region.
const REWRITE_SYNCS: u64 = 3 * GAP;

/// Cost of a part of a hole that is left over at an end.
const CUT: u64 = GAP;

/// Seeks that a table costs when it is written: there and back.
const SEEKS_OF_WRITE: u64 = 2;

/// A part of what the policy `cost-aware` takes for the cost of tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostTerm {
    /// The syncs of a rewrite.
    Syncs,
    /// Gaps between the tracks of a table.
    Gaps,
    /// Parts of holes that are left over.
    Cuts,
    /// Longer seeks to a table beyond all tracks in use.
    Seeks,
}

impl CostTerm {
    /// Every term.
    pub const ALL: &[CostTerm] = &[CostTerm::Syncs, CostTerm::Gaps, CostTerm::Cuts, CostTerm::Seeks];
}

/// See the module.
pub(super) struct CostAware {
    /// Left out, for comparison.
    without: Option<CostTerm>,
    /// How tops are saved.
    rewrite: RewriteName,
    /// Cost of a table that ends the whole stroke beyond the tracks in use.
    stroke: u64,
}

/// Cost of the seeks to a table that ends the whole stroke beyond the tracks in use, by the times of the disk.
fn stroke_cost(seek: &SeekTimes) -> u64 {
    let gap_nanos = seek.shortest_nanos.saturating_add(seek.rotation_nanos / 2).max(1);
    let beyond_nanos = seek.longest_nanos.saturating_sub(seek.shortest_nanos);
    (u128::from(SEEKS_OF_WRITE * GAP) * u128::from(beyond_nanos) / u128::from(gap_nanos)).min(1 << 32) as u64
}

impl CostAware {
    pub(super) fn new(setting: &PolicySetting<'_>, seek: &SeekTimes, without: Option<CostTerm>) -> CostAware {
        CostAware { without, rewrite: setting.rewrite, stroke: stroke_cost(seek) }
    }

    /// Cost of one of a term; of seeks, that of the whole stroke.
    pub(super) fn price(&self, term: CostTerm) -> u64 {
        match term {
            _ if self.without == Some(term) => 0,
            CostTerm::Syncs => REWRITE_SYNCS,
            CostTerm::Gaps => GAP,
            CostTerm::Cuts => CUT,
            CostTerm::Seeks => self.stroke,
        }
    }

    /// Cost of the seeks to a table whose last track is this one, where tracks up to `span_end` are in use.
    pub(super) fn seek_cost(&self, view: &TrackView<'_>, span_end: u32, last: TrackId) -> u64 {
        let beyond = f64::from(last.0.saturating_add(1).saturating_sub(span_end));
        let share = beyond / f64::from(view.geometry.track_count.max(1));
        (self.price(CostTerm::Seeks) as f64 * share.min(1.0).sqrt()) as u64
    }

    /// Of the free tracks of a view, ascending, those that follow each other in it, hold the table and cost least; the
    /// outermost of them. `None` when all together do not hold it. Cost: a step for each free track, and two more for those of holes from
    /// which a table has few enough gaps to be better; within a hole that is larger than the table only near its ends.
    pub(super) fn cheapest<'a>(
        &self,
        view: &TrackView<'_>,
        request: &TrackRequest,
        free: &'a [TrackId],
    ) -> Option<&'a [TrackId]> {
        let [syncs, gap, cut] = [CostTerm::Syncs, CostTerm::Gaps, CostTerm::Cuts].map(|term| self.price(term));
        let tracks = Tracks { view, free };
        let span_end = view.span_end();
        let seek = |last: TrackId| self.seek_cost(view, span_end, last);
        let size_bytes = request.size_bytes.max(1);
        let (mut end, mut bytes) = (0, 0);
        // Of the tracks behind the first.
        let mut inner = Cost::default();
        let mut best: Option<(u64, usize, usize)> = None;
        let (mut start, mut hole_end) = (0, 0);
        let mut reach = Reach::default();
        while start < free.len() {
            if start >= hole_end {
                // Who begins further behind in a hole has no fewer gaps.
                let gaps;
                (hole_end, gaps) = reach.next(&tracks, size_bytes);
                if best.is_some_and(|(least, ..)| gaps.is_none_or(|gaps| gap * gaps >= least)) {
                    (start, end, bytes, inner) = (hole_end, hole_end, 0, Cost::default());
                    continue;
                }
            }
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
            let cuts = u64::from(tracks.is_cut(start)) + u64::from(tracks.is_cut(end));
            let seeks = seek(free[end - 1]);
            let cost = syncs * u64::from(rewrites > 0) + gap * inner.gaps + cut * cuts + seeks;
            if best.is_none_or(|(least, ..)| cost < least) {
                best = Some((cost, start, end));
            }
            bytes -= view.geometry.length_bytes(free[start]);
            start += 1;
            if start < end {
                inner.subtract(tracks.within(start));
            }
            if start >= hole_end {
                continue;
            }
            // What begins and ends within one hole cuts it twice, and farther inside seeks cost no less: it is no better.
            if tracks.is_cut(start) && end < hole_end && best.is_some_and(|(least, ..)| least <= 2 * cut + seeks) {
                let last = tracks.last_within(start..hole_end, size_bytes);
                if last > start {
                    start = last;
                    end = hole_end - 1;
                    bytes = free[start..end].iter().map(|track| view.geometry.length_bytes(*track)).sum();
                    inner = Cost::default();
                    (start + 1..end).for_each(|index| inner.add(tracks.within(index)));
                }
            }
        }
        best.map(|(_, start, end)| &free[start..end])
    }
}

impl AllocationPolicy for CostAware {
    fn place(&self, view: &TrackView<'_>, request: &TrackRequest) -> Option<TrackPlacement> {
        let free: Vec<TrackId> = view.free().collect();
        let tracks = self.cheapest(view, request, &free)?;
        let mut choice = Choice::new(view, request);
        if self.rewrite == RewriteName::Naive && view.geometry.interlaced {
            // Track by track: bottoms behind tops of the same table would rewrite those.
            let bottoms = |track: &&TrackId| view.geometry.tier(**track) == TrackTier::Bottom;
            choice.take_from(tracks.iter().filter(bottoms).copied());
        }
        choice.take_from(tracks.iter().copied());
        choice.finish()
    }
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

/// How far a table reaches that begins at a hole, for one hole after the other.
#[derive(Default)]
struct Reach {
    /// The hole and those behind it that the table needs: where each ends, and its bytes.
    holes: VecDeque<(usize, u64)>,
    bytes: u64,
}

impl Reach {
    /// Where the next hole ends, and gaps of a table that begins with it; `None` when all there is from there on does not hold it.
    fn next(&mut self, tracks: &Tracks<'_>, size_bytes: u64) -> (usize, Option<u64>) {
        let passed = self.holes.pop_front();
        self.bytes -= passed.map_or(0, |(_, bytes)| bytes);
        let mut end = self.holes.back().or(passed.as_ref()).map_or(0, |(end, _)| *end);
        while (self.bytes < size_bytes || self.holes.is_empty()) && end < tracks.free.len() {
            let start = end;
            end = tracks.hole_end(start);
            let bytes = tracks.view.geometry.start_bytes(TrackId(tracks.free[end - 1].0 + 1))
                - tracks.view.geometry.start_bytes(tracks.free[start]);
            self.holes.push_back((end, bytes));
            self.bytes += bytes;
        }
        let first_end = self.holes.front().map_or(end, |(end, _)| *end);
        (first_end, (self.bytes >= size_bytes).then(|| self.holes.len() as u64 - 1))
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

    /// Behind the last track of the hole in which this one is.
    fn hole_end(&self, index: usize) -> usize {
        let Some(first) = self.free.get(index) else { return index };
        // Tracks ascend, so those that follow each other come before those that do not.
        let follows =
            |count: usize| self.free.get(index + count).is_some_and(|track| (track.0 - first.0) as usize == count);
        let (mut within, mut beyond) = (1, 1);
        while follows(beyond) {
            (within, beyond) = (beyond + 1, 2 * beyond);
        }
        while within < beyond {
            let middle = within.midpoint(beyond);
            if follows(middle) { within = middle + 1 } else { beyond = middle }
        }
        index + within
    }

    /// The first place of a hole from which a table is that needs the last track of it.
    fn last_within(&self, hole: Range<usize>, size_bytes: u64) -> usize {
        let mut bytes = 0;
        let mut first = hole.end - 1;
        while first > hole.start {
            bytes += self.view.geometry.length_bytes(self.free[first - 1]);
            if bytes >= size_bytes {
                break;
            }
            first -= 1;
        }
        first
    }

    /// The tracks on both sides of this place are one hole.
    fn is_cut(&self, index: usize) -> bool {
        index > 0 && index < self.free.len() && self.free[index - 1].0 + 1 == self.free[index].0
    }
}
