//! Which band is taken next, and for whom the last ones are kept.
//!
//! Pure functions of what is free. Tables follow each other over the device: the lowest free band behind the last one
//! taken, from the start again at the end (SMRDB, section 4.1: bands are written one after the other). Log bands are
//! the lowest free ones, near the band table, so that the commit that begins one needs a short seek and tables are not
//! parted by logs.
//!
//! A table of several bands wants a [extent](BandView::extent) of them, one behind the other, as long as it expects to
//! become: the next one that is long enough, or else the longest there is, and another one when that is full. So a
//! scattered device costs seeks, and never space. An extent is only *set aside*: other tables and logs leave it alone as
//! long as anything else is free. What a table did not need of its extent, the next table begins with.
//!
//! They follow each other over as much of the device as twice what is in use, and begin again: what lies close together is
//! reached by short seeks, the first zones of a disk are its fastest, and no more of it is written than needed.
//!
//! *Next fit* instead of best fit: the tables of one compaction come to lie behind each other, no index by length is needed,
//! and tables are parted no more often to speak of (docs/design/0003-variable-bands.md has figures).
//!
//! When bands get scarce the last ones are kept in this order: as many as a table has for log bands of manifests, pointers
//! and copies, without which nothing could be told any more; before them, where tables share zones, one for what is copied out of
//! those, without which none could be emptied; before that the reserve, for the outputs of compactions, which give back more than
//! they take; everything else is refused first. What outputs of running compactions took of the reserve is not kept a second time:
//! writers would else have to wait for each compaction to end.
//!
//! The band kept for logs stays kept while a log is written in the one before: a compaction ends with an edit of a manifest, which
//! may need the next log band before anything is given back. Beginning it [empties](super::cleaning) others, so it is kept again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use varve_media::JobId;

/// What a band is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A table that no compaction writes.
    Table,
    /// The output of a compaction.
    CompactionOutput,
    /// Write-ahead logs and files of unknown use.
    Log,
    /// Tables copied out of zones that are emptied: for what comes after them.
    Cleaning,
    /// Manifests, pointers, and what is copied out of log bands.
    Metadata,
}

/// A table that wants a band, and more behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableGrowth {
    /// Number of the file.
    pub(super) file: u64,
    /// Bands that it is expected to take still, one at least.
    pub(super) bands: u32,
    /// It shares bands with others: it decides itself which of those that are open make place for it.
    pub(super) shares: bool,
    /// Its present band when that is full: the table leaves it as soon as it has another.
    pub(super) full_band: Option<u32>,
    /// Who writes it.
    pub(super) job: Option<JobId>,
}

/// What the policy looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct BandView<'a> {
    /// Bands that may be taken.
    pub(super) free: &'a BTreeSet<u32>,
    /// What tables that are written have set aside, by number of the file: not of zero length.
    pub(super) aside: &'a BTreeMap<u64, Range<u32>>,
    /// The band after the last one taken or set aside for a table.
    pub(super) cursor: u32,
    /// Bands kept for the outputs of compactions, but for those that running ones took.
    pub(super) reserve_bands: u32,
    /// Bands kept for what is copied out of zones that are emptied.
    pub(super) cleaning_bands: u32,
    /// Bands kept for manifests, pointers and copies.
    pub(super) log_reserve_bands: u32,
}

impl BandView<'_> {
    /// Bands that are kept from someone who wants one for this.
    pub(super) fn kept_bands(&self, purpose: Purpose) -> usize {
        let kept = match purpose {
            Purpose::Table | Purpose::Log => self.reserve_bands + self.cleaning_bands + self.log_reserve_bands,
            Purpose::CompactionOutput => self.cleaning_bands + self.log_reserve_bands,
            Purpose::Cleaning => self.log_reserve_bands,
            Purpose::Metadata => 0,
        };
        kept as usize
    }

    /// Bands that may be taken for this.
    pub(super) fn available_bands(&self, purpose: Purpose) -> usize {
        self.free.len().saturating_sub(self.kept_bands(purpose))
    }

    /// The band for a log; `None` when all that are free are kept for others.
    pub(super) fn log_band(&self, purpose: Purpose) -> Option<u32> {
        if self.available_bands(purpose) == 0 {
            return None;
        }
        let is_alone = |band: &&u32| !self.aside.values().any(|extent| extent.contains(band));
        self.free.iter().find(is_alone).or(self.free.first()).copied()
    }

    /// Where a table goes on: with the first band of what is returned, and with the others as long as it needs them;
    /// `None` when all that are free are kept for others.
    pub(super) fn extent(&self, purpose: Purpose, table: TableGrowth) -> Option<Range<u32>> {
        if self.available_bands(purpose) == 0 {
            return None;
        }
        let own = self.aside.get(&table.file);
        if let Some(own) = own.filter(|own| self.free.contains(&own.start)) {
            return Some(own.clone());
        }
        let others: Vec<&Range<u32>> =
            self.aside.iter().filter(|(file, _)| **file != table.file).map(|(_, extent)| extent).collect();
        let is_left_alone = |band: &u32| others.iter().any(|extent| extent.contains(band));
        let longest = |bands: Range<u32>| {
            longest_extent(self.free.range(bands).copied().filter(|band| !is_left_alone(band)), table.bands)
        };
        // An extent of its own that has ended early is where it was.
        let from = own.map_or(self.cursor, |own| own.start);
        let mut extent = longest(from..u32::MAX);
        if extent.len() < table.bands as usize {
            let before = longest(0..from);
            extent = if before.len() > extent.len() { before } else { extent };
        }
        match extent.is_empty() {
            false => Some(extent),
            // Nothing is free but what others have set aside.
            true => self.free.first().map(|band| *band..band + 1),
        }
    }
}

/// Bands that tables go through at least before they begin again.
const ROUND_BANDS_MIN: usize = 64;

/// Where the next table begins to look when the last one ends at `end`, of bands from `first` on of which so many are used.
pub(super) fn cursor_behind(end: u32, first: u32, used_bands: usize) -> u32 {
    let passed = end.saturating_sub(first) as usize;
    if passed >= used_bands.saturating_mul(2).max(ROUND_BANDS_MIN) { first } else { end }
}

/// The first extent of so many among ascending bands, or else the longest; empty when there are none.
fn longest_extent(bands: impl Iterator<Item = u32>, wanted: u32) -> Range<u32> {
    let (mut found, mut longest) = (0..0, 0..0);
    for band in bands {
        if band != found.end {
            found = band..band;
        }
        found.end += 1;
        if found.len() > longest.len() {
            longest = found.clone();
        }
        if longest.len() >= wanted as usize {
            break;
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;
    use Purpose::{Cleaning, CompactionOutput, Log, Metadata, Table};

    fn view<'a>(free: &'a BTreeSet<u32>, aside: &'a BTreeMap<u64, Range<u32>>, cursor: u32) -> BandView<'a> {
        BandView { free, aside, cursor, reserve_bands: 2, cleaning_bands: 0, log_reserve_bands: 1 }
    }

    fn places(free: &[u32], cursor: u32) -> [Option<u32>; 4] {
        let (free, aside) = (free.iter().copied().collect(), BTreeMap::new());
        let view = view(&free, &aside, cursor);
        let one = TableGrowth { file: 1, bands: 1, shares: false, full_band: None, job: None };
        let of_table = |purpose| view.extent(purpose, one).map(|extent| extent.start);
        [of_table(Table), of_table(CompactionOutput), view.log_band(Log), view.log_band(Metadata)]
    }

    /// The extent of table 1, and the band of a log.
    fn extent(free: &[u32], cursor: u32, aside: &[(u64, Range<u32>)], bands: u32) -> (Option<Range<u32>>, Option<u32>) {
        let (free, aside) = (free.iter().copied().collect(), aside.iter().cloned().collect());
        let view = BandView { reserve_bands: 0, log_reserve_bands: 0, ..view(&free, &aside, cursor) };
        let table = TableGrowth { file: 1, bands, shares: false, full_band: None, job: None };
        (view.extent(CompactionOutput, table), view.log_band(Metadata))
    }

    #[test]
    fn a_table_takes_the_next_extent_that_is_long_enough() {
        let free = [2, 3, 4, 5, 8, 9, 12, 13, 14, 20];
        assert_eq!(extent(&free, 7, &[], 1).0, Some(8..9));
        assert_eq!(extent(&free, 7, &[], 2).0, Some(8..10));
        assert_eq!(extent(&free, 7, &[], 3).0, Some(12..15));
        // Round the end.
        assert_eq!(extent(&free, 13, &[], 3).0, Some(2..5));
        assert_eq!(extent(&free, 4, &[], 4).0, Some(12..15), "the longest there is");
        assert_eq!(extent(&[], 4, &[], 4).0, None);
    }

    #[test]
    fn tables_go_round_over_twice_what_is_used() {
        assert_eq!(cursor_behind(10 + 63, 10, 0), 73);
        assert_eq!(cursor_behind(10 + 64, 10, 0), 10);
        assert_eq!([199, 200, 201].map(|passed| cursor_behind(10 + passed, 10, 100)), [209, 10, 10]);
    }

    #[test]
    fn what_is_set_aside_is_left_to_its_table_while_anything_else_is_free() {
        let free = [2, 3, 4, 5, 8, 9];
        let other = (7, 2..5);
        assert_eq!(extent(&free, 2, std::slice::from_ref(&other), 2), (Some(8..10), Some(5)));
        assert_eq!(extent(&free, 2, &[other.clone(), (8, 8..10)], 2), (Some(5..6), Some(5)));
        assert_eq!(extent(&free, 2, &[other, (8, 5..10)], 2), (Some(2..3), Some(2)));
        // Its own goes on, whatever is better, until it is not free.
        assert_eq!(extent(&free, 2, &[(1, 9..20)], 4).0, Some(9..20));
        assert_eq!(extent(&free, 2, &[(1, 6..20)], 4).0, Some(2..6));
    }

    #[test]
    fn tables_go_on_behind_the_last_and_logs_to_the_front() {
        assert_eq!(places(&[3, 5, 9, 12], 6), [Some(9), Some(9), Some(3), Some(3)]);
        assert_eq!(places(&[3, 5, 9, 12], 13), [Some(3), Some(3), Some(3), Some(3)]);
    }

    #[test]
    fn the_last_bands_are_kept_in_order() {
        assert_eq!(places(&[3, 5, 9], 0), [None, Some(3), None, Some(3)]);
        assert_eq!(places(&[3, 5], 0), [None, Some(3), None, Some(3)]);
        assert_eq!(places(&[3], 0), [None, None, None, Some(3)]);
        assert_eq!(places(&[], 0), [None; 4]);
    }

    #[test]
    fn a_zone_is_kept_for_what_makes_others_free() {
        let (free, aside) = ((3..11).collect(), BTreeMap::new());
        let view = BandView { cleaning_bands: 1, ..view(&free, &aside, 0) };
        let kept = [Table, Log, CompactionOutput, Cleaning, Metadata].map(|purpose| view.kept_bands(purpose));
        assert_eq!(kept, [4, 4, 2, 1, 0]);
        let of_four = BandView { reserve_bands: 8, log_reserve_bands: 4, ..view };
        let kept = [Table, Log, CompactionOutput, Cleaning, Metadata].map(|purpose| of_four.kept_bands(purpose));
        assert_eq!(kept, [13, 13, 5, 4, 0]);
    }
}
