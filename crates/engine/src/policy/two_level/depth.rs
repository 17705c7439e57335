//! Selection by depth: what is rewritten buys as much order as it can.
//!
//! # The cost of order
//!
//! A get and a scan look into as many tables as overlap in a key: its *depth*. A compaction that merges `f` layers of
//! tables into one takes `f - 1` off the depth where it works, and costs each byte of them one rewrite, however many
//! layers there are. So a byte's rewrites buy most when they are saved up: between two compactions of a byte as many
//! layers as possible should gather on it. What limits the saving is the depth itself, which readers pay for.
//!
//! Hence one number, the depth up to which nothing is merged, and one rule: where it is exceeded, merge those tables that
//! have the most layers. With a bound of `d` on the depth, tables then go through sizes of groups of `d + 1`, `d`,
//! `d - 1`, ... layers, which is the binomial scheme of dynamic structures: `n` tables as wide as the whole range are
//! rewritten about `w` times each while `n` is at most `(d + w)! / (d! w!)`, and no scheme that keeps to the bound
//! rewrites less (Bentley and Saxe, "Decomposable searching problems I", Journal of Algorithms 1, 1980; Mathieu, Staelin,
//! Young and Yousefi, "Bigtable merge compaction", 2014). The paper's selection (SMRDB, section 4.3) merges as soon
//! as four tables wait and takes the least sequential band of level 1 and all newer ones it overlaps each time, which
//! keeps the disk in good order and rewrites, when there is time for it, a share of level 1 that grows with it.
//!
//! # Layers
//!
//! A group is what lies under one table, its *seed*: the tables that overlap the seed, are about as wide as it or
//! narrower, and have most of their width within it. Widths are in bytes of the database between two keys, known from
//! histograms, so that a table with one key far away does not look wide. The group's layers are the sum of its widths
//! over the width of all of it together. Much narrower tables are left out: they are in better order already, and would
//! be rewritten for little. Seeds are the tables at the deepest key; of groups with equally many layers the widest seed's
//! is taken, as it takes the most off the mean depth.
//!
//! # Deletions
//!
//! Deletions that every reader sees make a key deeper than the tables over it ([`super::deletions`]): scans step over each
//! together with what it deletes. Where that exceeds the bound the group is merged that is [worth](super::worth) most, of those
//! that free enough for what they write. Level 0 comes first while it is about to hold up writers.
//!
//! # Levels
//!
//! Where everything may be merged with everything (see the module above) the level of a table means nothing but that it is
//! new. Tables stay in level 0 while something must be merged, so that the number of them says how far compactions are
//! behind; otherwise the oldest go to level 1 without being touched.

use super::deletions::{self, Deletions};
use super::selection::{overlap, within};
use super::sequentiality::Density;
use super::worth::{Rules, most_worth};
use crate::key::Sequence;
use crate::shape::{Busy, CompactionPlan, FileMeta, Reason, Version};
use std::cmp::Reverse;
use std::sync::Arc;

pub(super) type Table = Arc<FileMeta>;

/// Tables of a group are at most this much wider than the seed, in tenths of it, ...
const WIDEST_TENTHS: u64 = 11;

/// at least this part of its width, ...
const NARROWEST_PART: u64 = 8;

/// and have as much of their width within it, in tenths of theirs.
const WITHIN_TENTHS: u64 = 6;

/// Layers of a group, in thousandths, below which it is not worth a rewrite.
const LAYERS_MIN: u64 = 1200;

/// How deep tables may lie over each other, and what is merged then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    /// Tables over a key.
    pub(super) depth_max: usize,
    /// Writers are about to be held up by level 0: only groups under one of its tables count.
    pub(super) is_urgent: bool,
    /// What is [worth](super::worth) most, instead of what has most layers.
    pub(super) is_by_worth: bool,
}

/// The compaction due where more tables than the bound allows are over a key, or fewer with deletions that weigh as much. Reads at
/// most `bytes_max` bytes but for two tables, and writes no more than `space_bytes`. Deletions after `oldest_view` do not count.
///
/// Cost: two sorts of the idle tables' ends, and that of [`Density`] over those that overlap at the deepest key; with
/// deletions twice that, and that of [`Deletions`].
pub(super) fn pick(
    (version, busy): (&Version, &Busy),
    bound: Bound,
    oldest_view: Sequence,
    bytes_max: u64,
    space_bytes: u64,
) -> Option<CompactionPlan> {
    let idle: Vec<(usize, &Table)> = version.files().filter(|(_, file)| !busy.contains(file.number)).collect();
    let deletions = Deletions::new(version, oldest_view);
    let picker = Picker { version, idle, bound, deletions, bytes_max: bytes_max.min(space_bytes) };
    let plan = match bound.is_urgent {
        true => picker.for_depth().or_else(|| picker.for_deletions()),
        false => picker.for_deletions().or_else(|| picker.for_depth()),
    };
    plan.filter(|plan| plan.all_inputs().count() > 1 && plan.written_bytes_max() <= space_bytes)
}

struct Picker<'a> {
    version: &'a Version,
    /// Tables that no compaction reads, with their levels.
    idle: Vec<(usize, &'a Table)>,
    bound: Bound,
    deletions: Option<Deletions<'a>>,
    bytes_max: u64,
}

impl Picker<'_> {
    fn for_depth(&self) -> Option<CompactionPlan> {
        let (version, idle) = (self.version, &self.idle);
        let (_, mut seeds) = deepest(idle, |_| 0, self.bound.depth_max);
        if seeds.len() <= self.bound.depth_max.max(1) {
            return None;
        }
        if self.bound.is_urgent {
            let is_new = |seed: &&Table| version.levels[0].iter().any(|file| file.number == seed.number);
            let new: Vec<&Table> = seeds.iter().copied().filter(is_new).collect();
            seeds = if new.is_empty() { seeds } else { new };
        }
        let best = match self.bound.is_by_worth {
            true => self.most_worth(&seeds, |_| true),
            false => most_layers(idle, &seeds, self.bytes_max),
        };
        // Tables of all widths, one each: whatever is there.
        let any = || within(seeds.iter().copied(), 2, self.bytes_max).iter().map(|file| file.number).collect();
        Some(self.plan_of(&best.unwrap_or_else(any)))
    }

    fn for_deletions(&self) -> Option<CompactionPlan> {
        let deletions = self.deletions.as_ref()?;
        let depth_max = self.bound.depth_max;
        let (depth, seeds) = deepest(&self.idle, |file| deletions.share(file), depth_max);
        if seeds.len() < 2 || depth <= (depth_max as u64).saturating_mul(1000) {
            return None;
        }
        let group = self.most_worth(&seeds, |group| deletions.are_worth_merging(group, depth_max))?;
        Some(self.plan_of(&group))
    }

    fn most_worth(&self, seeds: &[&Table], is_accepted: impl Fn(&[&Table]) -> bool) -> Option<Vec<u64>> {
        let total_bytes = self.version.files().fold(0u64, |sum, (_, file)| sum.saturating_add(file.size_bytes));
        let freed_bytes =
            |group: &[&Table]| self.deletions.as_ref().map_or(0.0, |deletions| deletions.freed_bytes(group));
        let rules =
            Rules { bytes_max: self.bytes_max, total_bytes, freed_bytes: &freed_bytes, is_accepted: &is_accepted };
        most_worth(&self.idle, seeds, &rules)
    }

    fn plan_of(&self, group: &[u64]) -> CompactionPlan {
        let of_level = |wanted: usize| -> Vec<Table> {
            let chosen = self.idle.iter().filter(|(level, file)| *level == wanted && group.contains(&file.number));
            chosen.map(|(_, file)| (*file).clone()).collect()
        };
        let (level0, level1) = (of_level(0), of_level(1));
        let (input_level, inputs, overlapping) =
            if level0.is_empty() { (1, level1, Vec::new()) } else { (0, level0, level1) };
        CompactionPlan::new(Reason::Overlap, (input_level, inputs), (1, overlapping))
    }
}

/// The largest depth of a key, in thousandths of a table, and the tables over that key; of such keys the first. Shares of
/// deleted bytes, in millionths, count as depth where several tables are over a key.
fn deepest<'a>(
    tables: &[(usize, &'a Table)],
    share_of: impl Fn(&FileMeta) -> u64,
    depth_max: usize,
) -> (u64, Vec<&'a Table>) {
    let mut starts: Vec<(&[u8], u64)> =
        tables.iter().map(|(_, file)| (file.smallest_user_key(), share_of(file))).collect();
    let mut ends: Vec<(&[u8], u64)> =
        tables.iter().map(|(_, file)| (file.largest_user_key(), share_of(file))).collect();
    starts.sort_unstable();
    ends.sort_unstable();
    let (mut ended, mut share, mut most, mut deepest_key) = (0, 0u64, 0, None);
    for (begun, (start, begun_share)) in starts.iter().enumerate() {
        while ended < ends.len() && ends[ended].0 < *start {
            share = share.saturating_sub(ends[ended].1);
            ended += 1;
        }
        share += begun_share;
        let count = begun + 1 - ended;
        let extra = if count > 1 { deletions::extra_depth(share, depth_max) } else { 0 };
        let depth = (count as u64).saturating_mul(1000).saturating_add(extra);
        if depth > most {
            most = depth;
            deepest_key = Some(*start);
        }
    }
    let Some(key) = deepest_key else { return (0, Vec::new()) };
    let holds = |file: &&Table| file.smallest_user_key() <= key && file.largest_user_key() >= key;
    (most, tables.iter().map(|(_, file)| *file).filter(holds).collect())
}

/// Numbers of the tables of the group with the most layers under one of `seeds`, which overlap each other.
fn most_layers(idle: &[(usize, &Table)], seeds: &[&Table], bytes_max: u64) -> Option<Vec<u64>> {
    let near: Vec<&Table> =
        idle.iter().map(|(_, file)| *file).filter(|file| seeds.iter().any(|seed| overlap(seed, file))).collect();
    let density = Density::new(&near);
    let spans: Vec<Span> = near.iter().map(|file| Span::of(&density, file)).collect();
    let mut best: Option<(u64, u64, Vec<u64>)> = None;
    for (seed, seed_span) in near.iter().zip(&spans) {
        if !seeds.iter().any(|file| file.number == seed.number) {
            continue;
        }
        let mut members: Vec<(&Table, &Span)> = near
            .iter()
            .zip(&spans)
            .filter(|(file, span)| file.number == seed.number || (overlap(file, seed) && span.lies_under(seed_span)))
            .map(|(file, span)| (*file, span))
            .collect();
        // The widest first: they are what is left when not all may be read.
        members.sort_by_key(|(file, span)| (file.number != seed.number, Reverse(span.width()), file.number));
        let chosen = within(members.iter().map(|(file, _)| *file), 2, bytes_max).len();
        members.truncate(chosen);
        let layers = layers(&members);
        if members.len() > 1
            && layers >= LAYERS_MIN
            && best.as_ref().is_none_or(|(most, width, _)| (layers, seed_span.width()) > (*most, *width))
        {
            let numbers = members.iter().map(|(file, _)| file.number).collect();
            best = Some((layers, seed_span.width(), numbers));
        }
    }
    best.map(|(_, _, numbers)| numbers)
}

/// Sum of the widths over the width of all together, in thousandths.
fn layers(members: &[(&Table, &Span)]) -> u64 {
    let begin = members.iter().map(|(_, span)| span.begin).min().unwrap_or(0);
    let end = members.iter().map(|(_, span)| span.end).max().unwrap_or(0);
    let widths: u128 = members.iter().map(|(_, span)| u128::from(span.width())).sum();
    let layers = (widths * 1000).checked_div(u128::from(end - begin)).unwrap_or(0);
    u64::try_from(layers).unwrap_or(u64::MAX)
}

/// Where a table lies among the bytes of the database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) begin: u64,
    pub(super) end: u64,
}

impl Span {
    pub(super) fn of(density: &Density<'_>, file: &FileMeta) -> Span {
        let begin = density.before(file.smallest_user_key());
        Span { begin, end: density.up_to(file.largest_user_key()).max(begin) }
    }

    pub(super) fn width(&self) -> u64 {
        self.end - self.begin
    }

    /// Has most of its width within another one.
    pub(super) fn is_within(&self, seed: &Span) -> bool {
        let common = self.end.min(seed.end).saturating_sub(self.begin.max(seed.begin));
        times(common, 10) >= times(self.width(), WITHIN_TENTHS)
    }

    fn lies_under(&self, seed: &Span) -> bool {
        times(self.width(), 10) <= times(seed.width(), WIDEST_TENTHS)
            && times(self.width(), NARROWEST_PART) >= u128::from(seed.width())
            && self.is_within(seed)
    }
}

fn times(bytes: u64, factor: u64) -> u128 {
    u128::from(bytes) * u128::from(factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::two_level::tests::{numbers, shape, with_deletions};

    fn bound(depth_max: usize) -> Bound {
        Bound { depth_max, is_urgent: false, is_by_worth: false }
    }

    fn picked(text: &str, depth_max: usize, bytes_max: u64) -> Option<(usize, Vec<u64>, Vec<u64>)> {
        let plan = pick((&shape(text), &Busy::default()), bound(depth_max), u64::MAX, bytes_max, u64::MAX)?;
        assert_eq!((plan.reason, plan.output_level), (Reason::Overlap, 1));
        Some((plan.input_level, numbers(&plan.inputs), numbers(&plan.overlapping)))
    }

    const STACKED: &str = "
        9 a:4 h:4 p:4 z:4
        8 a:4 h:4 p:4 z:4
        --
        7 a:4 h:4 p:4 z:4
        3 a:9 b:9 c:9
        2 c:9 d:9 e:9
        1 p:9 q:9 r:9";

    #[test]
    fn nothing_is_merged_up_to_the_bound_and_then_what_has_most_layers() {
        assert_eq!(picked(STACKED, 5, u64::MAX), None);
        // At c lie 9, 8, 7, 3 and 2; under 9 lie all of them, and 1.
        assert_eq!(picked(STACKED, 4, u64::MAX), Some((0, vec![9, 8], vec![7, 3, 2, 1])));
        assert_eq!(picked(STACKED, 4, 35), Some((0, vec![9], vec![7])));
        assert_eq!(picked(STACKED, 4, 1), Some((0, vec![9], vec![7])), "two in any case");
    }

    #[test]
    fn what_is_in_good_order_already_is_left_out() {
        let text = "--\n4 a:9 h:9 z:9\n3 a:9 h:9 z:9\n2 a:9 h:9 z:9\n1 b:1";
        assert_eq!(picked(text, 3, u64::MAX), Some((1, vec![4, 3, 2], vec![])));
    }

    #[test]
    fn what_runs_already_is_left_alone_and_what_does_not_fit_is_not_picked() {
        let version = shape(STACKED);
        let mut busy = Busy::default();
        busy.enter(&pick((&version, &busy), bound(4), u64::MAX, u64::MAX, u64::MAX).unwrap());
        assert!(pick((&version, &busy), bound(4), u64::MAX, u64::MAX, u64::MAX).is_none());
        assert!(pick((&version, &Busy::default()), bound(4), u64::MAX, u64::MAX, 31).is_none());
        assert!(pick((&version, &Busy::default()), bound(4), u64::MAX, u64::MAX, 32).is_some());
    }

    #[test]
    fn what_holds_writers_up_is_merged_first() {
        let text = "
            9 a:99 f:1 p:99 z:99
            8 a:99 f:1 p:99 z:99
            --
            7 f:3 g:3 h:3
            6 f:3 g:3 h:3
            5 f:3 g:3 h:3
            4 f:3 g:3 h:3";
        let of = |is_urgent| {
            let bound = Bound { is_urgent, ..bound(3) };
            let plan = pick((&shape(text), &Busy::default()), bound, u64::MAX, u64::MAX, u64::MAX).unwrap();
            (plan.input_level, numbers(&plan.inputs), numbers(&plan.overlapping))
        };
        assert_eq!(of(false), (1, vec![7, 6, 5, 4], vec![]));
        assert_eq!(of(true), (0, vec![9, 8], vec![]));
    }

    #[test]
    fn tables_of_all_widths_are_merged_when_there_is_nothing_better() {
        let text = "--
            3 a:1 b:1 c:1 d:1 e:1 f:1 g:1 h:1 i:1 j:1 k:1 l:1 m:1 n:1 o:1 p:1 q:1 r:1 s:1 t:1 u:1 v:1 w:1 x:1 y:1 z:1
            2 b:1";
        assert_eq!(picked(text, 1, u64::MAX), Some((1, vec![3, 2], vec![])));
    }

    /// Nine deletes pairs of the tables under it, which are in order.
    const DELETED: &str = "
        9 a:4 h:4 p:4 z:4
        --
        3 a:300 h:300
        2 i:300 p:300
        1 q:300 z:300";

    fn picked_of(version: &Version, oldest_view: Sequence, bytes_max: u64) -> Option<(Vec<u64>, Vec<u64>)> {
        let plan = pick((version, &Busy::default()), bound(11), oldest_view, bytes_max, u64::MAX)?;
        Some((numbers(&plan.inputs), numbers(&plan.overlapping)))
    }

    #[test]
    fn deletions_are_merged_with_what_they_delete_where_that_frees_as_much_as_it_writes() {
        let picked = |deletions, oldest_view| picked_of(&with_deletions(DELETED, 9, deletions), oldest_view, u64::MAX);
        assert_eq!(picked(1000, u64::MAX), None);
        assert_eq!(picked(2000, u64::MAX), Some((vec![9], vec![3, 2, 1])));
        assert_eq!(picked(2000, 8), None, "some reader does not see the deletions");
        let version = with_deletions(DELETED, 9, 2000);
        assert_eq!(
            picked_of(&version, u64::MAX, 1300),
            Some((vec![9], vec![3, 1])),
            "the widest and of equals the first"
        );
        let mut busy = Busy::default();
        busy.enter(&pick((&version, &busy), bound(11), u64::MAX, 700, u64::MAX).unwrap());
        assert!(pick((&version, &busy), bound(11), u64::MAX, u64::MAX, u64::MAX).is_none());
    }

    /// Deletions that no merge can drop change no choice.
    #[test]
    fn choices_do_not_change_where_no_deletion_can_be_dropped() {
        let mut merges = 0;
        for seed in 0..300 {
            let mut random = varve_env::Random::seeded(seed);
            let table = |number: u64, random: &mut varve_env::Random| {
                let mut ends: Vec<u64> = (0..1 + random.below(8)).map(|_| random.below(26)).collect();
                ends.sort_unstable();
                let bucket = |end: &u64| format!("{}:{}", (b'a' + *end as u8) as char, 1 + random.below(9));
                format!("{number} {}\n", ends.iter().map(bucket).collect::<Vec<_>>().join(" "))
            };
            let mut level = |numbers: std::ops::Range<u64>| -> String {
                numbers.rev().map(|number| table(number, &mut random)).collect()
            };
            let text = format!("{}--\n{}", level(20..26), level(1..12));
            let deleting = with_deletions(&text, 20 + seed % 6, 900);
            let is_by_worth = seed % 2 == 0;
            let bound = Bound { is_by_worth, is_urgent: seed % 3 == 0, ..bound(1 + (seed % 5) as usize) };
            let of = |version: &Version, oldest_view: Sequence| {
                let plan = pick((version, &Busy::default()), bound, oldest_view, 100, u64::MAX)?;
                Some((numbers(&plan.inputs), numbers(&plan.overlapping)))
            };
            let without = of(&shape(&text), u64::MAX);
            merges += usize::from(without.is_some());
            assert_eq!(of(&deleting, 0), without, "seed {seed}");
        }
        assert!(merges > 100, "{merges}");
    }
}
