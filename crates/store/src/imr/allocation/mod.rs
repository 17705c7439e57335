//! Which tracks a table gets.
//!
//! A policy is a pure function from the state of the tracks and what is known about the table to
//! tracks in file order. It changes nothing. A new policy is its file, its module and its place in the list of policies.
//!
//! Whatever the policy: every track it gives is free, usable and not locked, together they hold the table, and it
//! refuses only when the free tracks together do not. Every policy is defined for an unknown level.

mod compaction_aware;
mod cost_aware;
mod region;
mod sequential;
mod three_phase;

#[cfg(test)]
mod tests;

pub use cost_aware::CostTerm;

use super::bitmap::TrackBitmap;
use super::rewrite::RewriteName;
use cost_aware::CostAware;
use std::ops::Range;
use varve_media::{SeekTimes, TrackGeometry, TrackId, TrackTier};

/// What a policy may look at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrackView<'a> {
    pub(crate) geometry: &'a TrackGeometry,
    /// The tracks that tables may have, by number: those in front are the store's own.
    pub(crate) usable: &'a Range<u32>,
    /// Tracks whose data counts: of a file, or of a removed one whose removal is not durable.
    pub(crate) valid: &'a TrackBitmap,
    /// Tracks that must not be given now, whether or not they are valid.
    pub(crate) locked: &'a TrackBitmap,
    /// Where the last allocation ended.
    pub(crate) cursor: Cursor,
}

/// Where allocations go on. All 0 when the store was just opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Track behind the last one given, whatever its tier.
    pub(crate) track: u32,
    /// Track behind the last bottom given.
    pub(crate) bottom: u32,
    /// Track behind the last top given.
    pub(crate) top: u32,
}

impl Cursor {
    /// The cursor once `track` was given.
    fn behind(mut self, geometry: &TrackGeometry, track: TrackId) -> Cursor {
        let next = track.0 + 1;
        self.track = next;
        match geometry.tier(track) {
            TrackTier::Bottom => self.bottom = next,
            TrackTier::Top => self.top = next,
        }
        self
    }
}

/// What is asked of a policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrackRequest {
    /// Bytes of the table, at least 1.
    pub(crate) size_bytes: u64,
    /// Level the table is for, when it is known.
    pub(crate) level: Option<u8>,
    /// Largest level that has a table, this one included; when any is known.
    pub(crate) largest_level: Option<u8>,
}

impl TrackRequest {
    /// The table is one of the largest level. Of unknown level it is not: it may be short-lived.
    fn is_of_largest_level(&self) -> bool {
        self.level.is_some() && self.level >= self.largest_level
    }
}

/// What a policy answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrackPlacement {
    /// Tracks in file order.
    pub(crate) tracks: Vec<TrackId>,
    /// The cursor from now on.
    pub(crate) cursor: Cursor,
}

/// How tracks are chosen.
pub(crate) trait AllocationPolicy: Send + Sync {
    /// Places a table; `None` only when the free tracks together do not hold it.
    fn place(&self, view: &TrackView<'_>, request: &TrackRequest) -> Option<TrackPlacement>;
}

/// What a policy may know of the store when it is made.
pub(crate) struct PolicySetting<'a> {
    /// How tops will be saved.
    pub(crate) rewrite: RewriteName,
    pub(crate) geometry: &'a TrackGeometry,
    /// The largest table there will be.
    pub(crate) table_bytes_max: u64,
}

/// Makes the names from the list of policies: what each is, its number on the medium, its text, and how it is made.
macro_rules! policies {
    ($($(#[$what:meta])* $name:ident = $number:literal, $text:literal, $make:expr;)*) => {
        /// The policies by name, as options and reports say them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum AllocationName {
            $($(#[$what])* $name,)*
            /// `CostAware` without one of its terms, to see what that is worth.
            CostAwareWithout(CostTerm),
        }

        /// Number on the medium and text of each name.
        const NAMES: &[(AllocationName, u8, &str)] = &[
            $((AllocationName::$name, $number, $text),)*
            // From 16 on were terms that there are no more.
            (AllocationName::CostAwareWithout(CostTerm::Syncs), 24, "cost-aware-without-syncs"),
            (AllocationName::CostAwareWithout(CostTerm::Gaps), 25, "cost-aware-without-gaps"),
            (AllocationName::CostAwareWithout(CostTerm::Cuts), 26, "cost-aware-without-cuts"),
            (AllocationName::CostAwareWithout(CostTerm::Seeks), 27, "cost-aware-without-seeks"),
        ];

        impl AllocationName {
            /// Every policy; those without a term are not among them.
            pub const ALL: &[AllocationName] = &[$(AllocationName::$name),*];

            /// The policy on a disk that does not state its times.
            #[cfg(test)]
            pub(crate) fn policy(self, setting: &PolicySetting<'_>) -> Box<dyn AllocationPolicy> {
                self.policy_on(setting, &SeekTimes::TYPICAL)
            }

            /// The policy on a disk with these times.
            pub(crate) fn policy_on(self, setting: &PolicySetting<'_>, seek: &SeekTimes) -> Box<dyn AllocationPolicy> {
                let make: fn(&PolicySetting<'_>, &SeekTimes) -> Box<dyn AllocationPolicy> = match self {
                    $(AllocationName::$name => $make,)*
                    AllocationName::CostAwareWithout(term) => {
                        return Box::new(CostAware::new(setting, seek, Some(term)));
                    }
                };
                make(setting, seek)
            }
        }
    };
}

policies! {
    /// One track after the other (Seq in the paper).
    Sequential = 0, "sequential", |_, _| Box::new(sequential::Sequential);
    /// Bottoms, every other top, the other tops (3Phase in the paper).
    ThreePhase = 1, "three-phase", |_, _| Box::new(three_phase::ThreePhase { zigzag: false });
    /// The same with the second phase from the inner edge outwards.
    Zigzag = 2, "zigzag", |_, _| Box::new(three_phase::ThreePhase { zigzag: true });
    /// Fixed regions of consecutive tracks, each for one table.
    Region = 3, "region", |setting, _| Box::new(region::Region::new(setting));
    /// The largest level to bottoms, all others to tops, each relaxed-sequentially (KVIMR in the paper).
    CompactionAware = 4, "compaction-aware", |_, _| Box::new(compaction_aware::CompactionAware);
    /// Tracks of both tiers that follow each other, where they cost least.
    #[default]
    CostAware = 5, "cost-aware", |setting, seek| Box::new(CostAware::new(setting, seek, None));
}

impl AllocationName {
    /// Texts of the policies that a store is laid out with.
    pub const TEXTS: &[&str] = &["sequential", "three-phase", "compaction-aware", "cost-aware"];

    /// Texts of the policies that only figures compare with those.
    pub const COMPARED_TEXTS: &[&str] = &[
        "zigzag",
        "region",
        "cost-aware-without-syncs",
        "cost-aware-without-gaps",
        "cost-aware-without-cuts",
        "cost-aware-without-seeks",
    ];

    /// The name in lower case, words joined by hyphens.
    pub fn text(self) -> &'static str {
        NAMES.iter().find(|(name, ..)| *name == self).map_or("unknown", |(.., text)| text)
    }

    /// The policy of this text.
    pub fn of_text(text: &str) -> Option<AllocationName> {
        NAMES.iter().find(|(.., known)| *known == text).map(|(name, ..)| *name)
    }

    /// What superblocks say.
    pub(super) fn number(self) -> u8 {
        NAMES.iter().find(|(name, ..)| *name == self).map_or(u8::MAX, |(_, number, _)| *number)
    }

    pub(super) fn of_number(number: u8) -> Option<AllocationName> {
        NAMES.iter().find(|(_, known, _)| *known == number).map(|(name, ..)| *name)
    }
}

impl TrackView<'_> {
    fn is_free(&self, track: TrackId) -> bool {
        self.usable.contains(&track.0) && !self.valid.contains(track) && !self.locked.contains(track)
    }

    /// Writing this track destroys data that counts: the track is a bottom one with a valid top beside it.
    pub(crate) fn costs_rewrite(&self, track: TrackId) -> bool {
        self.rewrites(track, false) > 0
    }

    /// Valid tops beside a bottom, none beside a top; without the one before it where the bottom before that one is of the
    /// same table: the top between them is rewritten once.
    fn rewrites(&self, track: TrackId, joins_before: bool) -> u64 {
        if self.geometry.tier(track) == TrackTier::Top {
            return 0;
        }
        let counts = |top: &TrackId| self.valid.contains(*top) && !(joins_before && *top < track);
        self.geometry.neighbours(track).filter(counts).count() as u64
    }

    /// Behind the innermost usable track that is in use; the first usable one where none is. Locked tracks do not count: one that is avoided because
    /// it failed says nothing of where reads go.
    fn span_end(&self) -> u32 {
        self.valid.last_in(self.usable.clone()).map_or(self.usable.start, |track| track.0 + 1)
    }

    /// Usable tracks that are free, ascending.
    fn free(&self) -> impl Iterator<Item = TrackId> + '_ {
        self.valid.absent(self.locked, self.usable.clone())
    }

    /// Those of a tier.
    fn free_of(&self, tier: TrackTier) -> impl Iterator<Item = TrackId> + '_ {
        self.free().filter(move |&track| self.geometry.tier(track) == tier)
    }

    /// Usable tracks of a tier that are free, from `from` on and around.
    fn free_from(&self, tier: TrackTier, from: u32) -> impl Iterator<Item = TrackId> + '_ {
        self.free_around(from).filter(move |&track| self.geometry.tier(track) == tier)
    }

    /// Every usable track that is free once, from `from` on and around.
    fn free_around(&self, from: u32) -> impl Iterator<Item = TrackId> + '_ {
        let usable = self.usable.clone();
        let from = if usable.contains(&from) { from } else { usable.start };
        let behind = self.valid.absent(self.locked, from..usable.end);
        behind.chain(self.valid.absent(self.locked, usable.start..from))
    }
}

/// Tracks chosen so far for a table.
struct Choice<'a> {
    view: &'a TrackView<'a>,
    missing_bytes: u64,
    tracks: Vec<TrackId>,
    cursor: Cursor,
    /// The tracks again, to ask whether one is among them.
    chosen: TrackBitmap,
}

impl<'a> Choice<'a> {
    fn new(view: &'a TrackView<'a>, request: &TrackRequest) -> Choice<'a> {
        Choice {
            view,
            missing_bytes: request.size_bytes.max(1),
            tracks: Vec::new(),
            cursor: view.cursor,
            chosen: TrackBitmap::new(view.geometry.track_count),
        }
    }

    fn is_complete(&self) -> bool {
        self.missing_bytes == 0
    }

    fn contains(&self, track: TrackId) -> bool {
        self.chosen.contains(track)
    }

    fn take(&mut self, track: TrackId) {
        self.tracks.push(track);
        self.chosen.insert(track);
        self.cursor = self.cursor.behind(self.view.geometry, track);
        self.missing_bytes = self.missing_bytes.saturating_sub(self.view.geometry.length_bytes(track));
    }

    /// Takes free tracks in this order until the table fits or there are no more.
    fn take_from(&mut self, tracks: impl Iterator<Item = TrackId>) {
        for track in tracks {
            if self.is_complete() {
                return;
            }
            if self.view.is_free(track) && !self.contains(track) {
                self.take(track);
            }
        }
    }

    fn finish(self) -> Option<TrackPlacement> {
        self.is_complete().then_some(TrackPlacement { tracks: self.tracks, cursor: self.cursor })
    }
}
