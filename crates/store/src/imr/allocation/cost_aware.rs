//! Track allocation by what a track costs later, not only now.
//!
//! KVIMR gives the largest level bottoms at any price. Once the bottoms have been full, most free ones lie
//! beside valid tops, and every table of that level pays for rewrites although free tops remain. Giving it
//! those tops instead is not enough: the tops fill up, the free bottoms stay beside valid tops for good, and
//! in the end every table pays. What has to be kept is space that costs nothing, and what uses it up is a top
//! that outlives a bottom beside it. So free tracks are told apart by what lies beside them ([`Standing`]),
//! and a table takes, in this order:
//!
//! | standing | of the largest level | others | because |
//! |---|---|---|---|
//! | covered top | 2nd | 1st | nothing is lost while both bottoms below live on |
//! | free bottom, no valid top beside it | 1st | 2nd | costs nothing now; what lives longest belongs here |
//! | transient top | 3rd | 3rd | a bottom below goes first and is then not free of cost |
//! | open top | 4th | 4th | takes the bottoms below out of the space that costs nothing |
//! | costly bottom | last | last | a rewrite for each valid top beside it |
//!
//! The terms, each of which can be left out to see what it is worth ([`CostTerm`]; the experiment
//! `kvimr/ablation` prints it):
//!
//! - *cover*: tops over valid bottoms before tops beside a free one.
//! - *lifetime*: a bottom of a smaller level than the table's, or of a removed table, goes before the table.
//!   (Age within a level was tried, as a rate learned from the tables that went: it decided
//!   nothing that the level had not.)
//! - *relief*: tables of the largest level on tops rather than beside a rewrite,
//! - *reserve*: unless free tops are scarce. The smaller levels live on them; when they find none, each of
//!   their many tables pays. Below a twelfth of the tracks the largest level pays instead, where it is cheapest.
//! - *whole*: a table on tracks of one standing: one sync is enough for it.
//! - *locality*: of the tracks of a standing those with the fewest gaps, then the outermost, where a disk
//!   transfers fastest. (The next ones behind the head's last position instead, as KVIMR has it, keep what one job
//!   writes together, but sweep over the whole disk: the load of `kvimr/fig5` was a tenth slower.)
//! - *contiguity*: once less than an eighth of the tracks is free, none of these: free bottoms beside tops that
//!   stay are then nearly all there is, and every table of the largest level pays. A table of any level takes
//!   [tracks of both tiers as they lie](super::contiguous) instead, and gives them back as they lay: fewer
//!   rewrites and more syncs. Only with merged rewrites. What it is worth stands beside `kvimr/usage` in
//!   `docs/kvimr.md`, because the load of `kvimr/ablation` fills three quarters of the disk. (A high price on the
//!   distance from the last table of the same job, to keep the tables of a job together, gave more rewrites.)
//!
//! Live tops are not moved during idle time: the loads measured leave nothing to gain that a move, two
//! transfers and two syncs, would not cost again.

use super::contiguous::contiguous;
use super::{AllocationPolicy, Choice, PolicySetting, RewriteName, TrackPlacement, TrackRequest, TrackView};
use varve_media::{TrackId, TrackTier};

/// Free tops below this share of the usable tracks are kept for the smaller levels.
const RESERVE_DIVISOR: usize = 12;

/// A disk with less than this share of the usable tracks free is nearly full.
const NEARLY_FULL_DIVISOR: usize = 8;

/// What a rewrite weighs against a gap between tracks when costly bottoms are compared: it moves a track four
/// times, a gap costs a short seek and half a turn.
pub(super) const REWRITE_WEIGHT: u64 = 4;

/// A part of the reasoning of the policy `cost-aware`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostTerm {
    /// Tops over valid bottoms come before tops beside free ones.
    Cover,
    /// Bottoms of smaller levels go before the table on the tops beside them.
    Lifetime,
    /// The largest level takes tops before it costs rewrites.
    Relief,
    /// The last free tops are for the smaller levels.
    Reserve,
    /// A table takes tracks of one standing.
    Whole,
    /// Few gaps between the tracks of a table.
    Locality,
    /// On a nearly full disk a table takes tracks of both tiers as they lie.
    Contiguity,
}

impl CostTerm {
    /// Every term.
    pub const ALL: &[CostTerm] = &[
        CostTerm::Cover,
        CostTerm::Lifetime,
        CostTerm::Relief,
        CostTerm::Reserve,
        CostTerm::Whole,
        CostTerm::Locality,
        CostTerm::Contiguity,
    ];
}

/// What using a free track means for the tracks beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// A bottom without valid tops.
    FreeBottom,
    /// A top over bottoms that live at least as long as the table.
    CoveredTop,
    /// A top over valid bottoms of which one goes first.
    TransientTop,
    /// A top beside a free bottom.
    OpenTop,
    /// A bottom with valid tops.
    CostlyBottom,
}

use Standing::{CostlyBottom, CoveredTop, FreeBottom, OpenTop, TransientTop};

/// See the module.
pub(super) struct CostAware {
    /// Left out, for comparison.
    without: Option<CostTerm>,
    /// How tops are saved.
    rewrite: RewriteName,
}

impl CostAware {
    pub(super) fn new(setting: &PolicySetting<'_>, without: Option<CostTerm>) -> CostAware {
        CostAware { without, rewrite: setting.rewrite }
    }
}

impl AllocationPolicy for CostAware {
    fn place(&self, view: &TrackView<'_>, request: &TrackRequest) -> Option<TrackPlacement> {
        let free: Vec<TrackId> = view.free().collect();
        if self.is_contiguous(view, free.len()) {
            let mut choice = Choice::new(view, request);
            choice.take_from(contiguous(view, request, &free)?.iter().copied());
            return choice.finish();
        }
        let mut standings: [Vec<TrackId>; 5] = Default::default();
        for track in free {
            standings[self.standing(view, request, track) as usize].push(track);
        }
        let tracks_of = |standing: Standing| &standings[standing as usize];
        let order = self.order(view, request, |standing| tracks_of(standing).len());
        let mut choice = Choice::new(view, request);
        if !self.is_without(CostTerm::Whole) {
            for standing in order {
                let found = match standing {
                    CostlyBottom => {
                        let mut bottoms = [&tracks_of(FreeBottom)[..], tracks_of(CostlyBottom)].concat();
                        bottoms.sort_unstable();
                        self.window(view, &bottoms, request.size_bytes)
                    }
                    _ => self.window(view, tracks_of(standing), request.size_bytes),
                };
                if let Some(tracks) = found {
                    choice.take_from(tracks.into_iter());
                    return choice.finish();
                }
            }
        }
        for standing in order {
            choice.take_from(tracks_of(standing).iter().copied());
        }
        choice.finish()
    }
}

impl CostAware {
    fn is_without(&self, term: CostTerm) -> bool {
        self.without == Some(term)
    }

    /// The disk is so full that tables lie as the free tracks do. Track by track, the bottoms of such a table would
    /// rewrite its own tops.
    fn is_contiguous(&self, view: &TrackView<'_>, free: usize) -> bool {
        free < view.usable.len() / NEARLY_FULL_DIVISOR
            && self.rewrite == RewriteName::Merged
            && !self.is_without(CostTerm::Contiguity)
    }

    fn standing(&self, view: &TrackView<'_>, request: &TrackRequest, track: TrackId) -> Standing {
        if view.geometry.tier(track) == TrackTier::Bottom {
            return if view.costs_rewrite(track) { CostlyBottom } else { FreeBottom };
        }
        let mut standing = CoveredTop;
        for bottom in view.geometry.neighbours(track).filter(|bottom| view.usable.contains(&bottom.0)) {
            if !view.valid.contains(bottom) {
                return if self.is_without(CostTerm::Cover) { CoveredTop } else { OpenTop };
            }
            let level = view.levels.get(bottom.0 as usize).copied().flatten();
            let goes_first = matches!((level, request.level), (Some(below), Some(level)) if below < level);
            if goes_first && !self.is_without(CostTerm::Lifetime) {
                standing = TransientTop;
            }
        }
        standing
    }

    fn order(&self, view: &TrackView<'_>, request: &TrackRequest, count: impl Fn(Standing) -> usize) -> [Standing; 5] {
        if !request.is_of_largest_level() {
            return [CoveredTop, FreeBottom, TransientTop, OpenTop, CostlyBottom];
        }
        let tops = count(CoveredTop) + count(TransientTop) + count(OpenTop);
        let is_scarce = tops < view.usable.len() / RESERVE_DIVISOR && !self.is_without(CostTerm::Reserve);
        match is_scarce || self.is_without(CostTerm::Relief) {
            true => [FreeBottom, CostlyBottom, CoveredTop, TransientTop, OpenTop],
            false => [FreeBottom, CoveredTop, TransientTop, OpenTop, CostlyBottom],
        }
    }

    /// Tracks that follow each other in `tracks`, all of one tier, and hold the table: those that cost
    /// the fewest rewrites and gaps, the outermost of them.
    fn window(&self, view: &TrackView<'_>, tracks: &[TrackId], size_bytes: u64) -> Option<Vec<TrackId>> {
        let first = tracks.first()?;
        let needed = usize::try_from(size_bytes.div_ceil(view.geometry.length_bytes(*first)).max(1)).ok()?;
        let windows = tracks.len().checked_sub(needed)? + 1;
        let best = if self.is_without(CostTerm::Locality) {
            0
        } else {
            let costs = WindowCosts { view, tracks };
            let mut inner: u64 = (1..needed).map(|index| costs.within(index)).sum();
            let cost = |start: usize| {
                let cost = inner + costs.beginning(start);
                if start + 1 < windows {
                    inner = inner + costs.within(start + needed) - costs.within(start + 1);
                }
                (cost, start)
            };
            (0..windows).map(cost).min().map_or(0, |(_, start)| start)
        };
        Some(tracks[best..best + needed].to_vec())
    }
}

/// What tracks of one tier cost as parts of a table.
struct WindowCosts<'a> {
    view: &'a TrackView<'a>,
    tracks: &'a [TrackId],
}

impl WindowCosts<'_> {
    /// Of the first track of a window.
    fn beginning(&self, index: usize) -> u64 {
        REWRITE_WEIGHT * self.view.rewrites(self.tracks[index], false)
    }

    /// Of a track that follows another one in the window.
    fn within(&self, index: usize) -> u64 {
        let joins = self.tracks[index - 1].0 + 2 == self.tracks[index].0;
        REWRITE_WEIGHT * self.view.rewrites(self.tracks[index], joins) + u64::from(!joins)
    }
}
