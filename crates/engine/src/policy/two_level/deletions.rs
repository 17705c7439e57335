//! Estimates of what deletions in tables delete: the live share of the bytes under a key, and the bytes that a merge frees.
//!
//! # Extra depth
//!
//! A scan steps over each deletion and the pair it deletes. Where the share `s` of the bytes under a key is deleted, a scan reads
//! `s / (1 - s)` dead bytes to a live one. Depth and dead bytes share one budget: nothing is due while
//! `depth / depth_max + s / (1 - s)` is at most 1, so the dead bytes count as `depth_max * s / (1 - s)` more tables over the key.
//! A merge is then due for dead bytes alone where as many are dead as live. It writes the live ones, so freeing a byte costs the
//! rewrite of one byte at most, which is the rule of a copying collector that collects when half of its space is garbage.
//! Without deletions `s` is 0 and the depth decides alone.
//!
//! # Estimates
//!
//! Each deletion is taken to delete one pair of mean size, which is equally likely to be in any byte of the older tables within
//! the deletion's table. Deletions of absent keys make the estimate too high. They cause at most one rewrite of the bytes under
//! them for as many deletions as there are pairs, and a merge leaves less overlap in any case.

use super::depth::{Span, Table};
use super::selection::overlap;
use super::sequentiality::Density;
use crate::key::Sequence;
use crate::shape::{FileMeta, Version};
use std::collections::BTreeMap;

/// Parts of a share.
const WHOLE: u64 = 1_000_000;

/// Deletions of a tree that can be dropped, and what they are taken to delete.
pub(super) struct Deletions<'a> {
    /// By table number: the tables with such deletions.
    tables: BTreeMap<u64, OfTable>,
    density: Density<'a>,
}

struct OfTable {
    /// Bytes its deletions delete in older tables.
    deleted_bytes: f64,
    /// Bytes of older tables within its keys.
    older_bytes: f64,
    /// Share of the bytes within its keys that its deletions delete, in millionths.
    share: u64,
}

impl<'a> Deletions<'a> {
    /// `None` if no table has deletions that every reader sees and older tables under them.
    ///
    /// Cost: looks at each table; and where there are such deletions, that of [`Density`] over all tables and a walk over all of
    /// them for each table with deletions.
    pub(super) fn new(version: &'a Version, oldest_view: Sequence) -> Option<Self> {
        let is_counted = |file: &Table| file.deletions > 0 && file.newest_sequence <= oldest_view;
        if !version.files().any(|(_, file)| is_counted(file)) {
            return None;
        }
        let all: Vec<&Table> = version.files().map(|(_, file)| file).collect();
        let pairs = all.iter().fold(0u64, |sum, file| sum.saturating_add(pairs(file)));
        let bytes = all.iter().fold(0u64, |sum, file| sum.saturating_add(file.size_bytes));
        let pair_bytes = bytes as f64 / pairs.max(1) as f64;
        let density = Density::new(&all);
        let spans: Vec<Span> = all.iter().map(|file| Span::of(&density, file)).collect();
        let mut tables = BTreeMap::new();
        for (file, span) in all.iter().zip(&spans).filter(|(file, _)| is_counted(file)) {
            let older_bytes: f64 =
                all.iter().zip(&spans).map(|(other, other_span)| older_within(file, span, other, other_span)).sum();
            if older_bytes <= 0.0 {
                continue;
            }
            let deleted_bytes = (file.deletions as f64 * pair_bytes).min(older_bytes);
            let share = deleted_bytes / (span.width() as f64).max(deleted_bytes) * WHOLE as f64;
            tables.insert(file.number, OfTable { deleted_bytes, older_bytes, share: share as u64 });
        }
        (!tables.is_empty()).then_some(Deletions { tables, density })
    }

    /// Share of the bytes under a table's keys that its deletions delete, in millionths.
    pub(super) fn share(&self, file: &FileMeta) -> u64 {
        self.tables.get(&file.number).map_or(0, |of_table| of_table.share)
    }

    /// Bytes of pairs that a merge of these tables frees because they were deleted.
    pub(super) fn freed_bytes(&self, group: &[&Table]) -> f64 {
        let live: f64 = group.iter().map(|file| live_bytes(file)).sum();
        let of_table = |file: &Table| {
            let Some(known) = self.tables.get(&file.number) else { return 0.0 };
            let span = Span::of(&self.density, file);
            let older = |other: &&Table| older_within(file, &span, other, &Span::of(&self.density, other));
            let older_bytes: f64 = group.iter().map(older).sum();
            known.deleted_bytes * (older_bytes / known.older_bytes).min(1.0)
        };
        group.iter().map(|file| of_table(file)).sum::<f64>().min(live)
    }

    /// True if merging these tables is worth it for the bytes it frees: they and the layers exceed the budget.
    pub(super) fn are_worth_merging(&self, group: &[&Table], depth_max: usize) -> bool {
        let read: f64 = group.iter().map(|file| file.size_bytes as f64).sum();
        let freed = self.freed_bytes(group);
        let live = (read - freed).max(0.0);
        freed > 0.0 && group.len() as f64 * live + freed * depth_max as f64 > depth_max as f64 * live
    }
}

/// Depth that a deleted share of the bytes under a key adds there, in thousandths of a table.
pub(super) fn extra_depth(share: u64, depth_max: usize) -> u64 {
    let dead = share.min(WHOLE - 1);
    let extra = u128::from(dead) * 1000 * depth_max.max(1) as u128 / u128::from(WHOLE - dead);
    u64::try_from(extra).unwrap_or(u64::MAX)
}

fn pairs(file: &FileMeta) -> u64 {
    file.entries.saturating_sub(file.deletions)
}

/// Bytes of a table's entries that are no deletions, if all entries have one size.
fn live_bytes(file: &FileMeta) -> f64 {
    file.size_bytes as f64 * pairs(file) as f64 / file.entries.max(1) as f64
}

/// Bytes of `other`, within the keys of `file`, which deletions of `file` may delete.
fn older_within(file: &Table, span: &Span, other: &Table, other_span: &Span) -> f64 {
    let may_hold = other.number != file.number && other.oldest_sequence < file.newest_sequence && overlap(other, file);
    if !may_hold {
        return 0.0;
    }
    let common = span.end.min(other_span.end).saturating_sub(span.begin.max(other_span.begin));
    live_bytes(other) * (common as f64 / other_span.width().max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::AddedFile;
    use crate::policy::two_level::tests::{shape, with_deletions};

    /// Table 9 deletes some of the 1,000 pairs in each of two tables.
    fn deleting(deletions: u64) -> Version {
        with_deletions("9 a:20 m:20 z:20\n--\n2 a:500 m:500 z:500\n1 a:500 m:500 z:500", 9, deletions)
    }

    #[test]
    fn trees_without_deletions_that_can_be_dropped_have_none() {
        assert!(Deletions::new(&deleting(0), u64::MAX).is_none());
        assert!(Deletions::new(&deleting(500), 8).is_none(), "a reader does not see them");
        assert!(Deletions::new(&deleting(500), 9).is_some());
        let below = with_deletions("9 a:20 z:20\n--\n2 a:500 m:500 z:500\n1 a:500 m:500 z:500", 1, 500);
        assert!(Deletions::new(&below, u64::MAX).is_none(), "nothing older is under them");
    }

    #[test]
    fn a_deletion_deletes_a_pair_of_mean_size() {
        let version = deleting(1000);
        let deletions = Deletions::new(&version, u64::MAX).unwrap();
        let files: Vec<&Table> = version.files().map(|(_, file)| file).collect();
        // 3,060 bytes are 2,000 pairs.
        assert_eq!(deletions.share(files[0]), 500_000);
        assert_eq!((deletions.share(files[1]), deletions.share(files[2])), (0, 0));
        assert_eq!(deletions.freed_bytes(&files) as u64, 1530);
        assert_eq!(deletions.freed_bytes(&files[..2]) as u64, 765, "half of them are in the other table");
        assert_eq!(deletions.freed_bytes(&files[1..]) as u64, 0);
    }

    #[test]
    fn dead_bytes_use_up_the_budget_of_the_depth() {
        assert_eq!(extra_depth(0, 11), 0);
        assert_eq!(extra_depth(500_000, 11), 11_000, "as many dead as live");
        assert_eq!(extra_depth(250_000, 9), 3000);
        assert!(extra_depth(u64::MAX, usize::MAX) > 0);
        for (deletions, is_worth) in [(600, false), (900, true)] {
            let version = deleting(deletions);
            let files: Vec<&Table> = version.files().map(|(_, file)| file).collect();
            let deletions = Deletions::new(&version, u64::MAX).unwrap();
            assert_eq!(deletions.are_worth_merging(&files, 11), is_worth);
            assert!(!deletions.are_worth_merging(&files[1..], 11), "without the deletions");
        }
    }

    #[test]
    fn crafted_counts_do_not_overflow() {
        let most = (u64::MAX / 8).to_string();
        let text = format!("9 a:{most} z:{most}\n--\n2 a:{most} z:{most}\n1 a:1 z:1");
        let version = with_deletions(&text, 9, u64::MAX);
        let files: Vec<&Table> = version.files().map(|(_, file)| file).collect();
        let deletions = Deletions::new(&version, u64::MAX).unwrap();
        assert!(deletions.share(files[0]) <= WHOLE);
        assert!(deletions.freed_bytes(&files) >= 0.0);
        let empty = AddedFile { entries: 0, ..files[0].to_added(0) };
        assert_eq!(live_bytes(&FileMeta::new(&empty, &Default::default())), 0.0);
        assert!(Deletions::new(&shape("--\n"), u64::MAX).is_none());
    }
}
