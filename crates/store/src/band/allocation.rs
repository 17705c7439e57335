//! Which band is taken next, and for whom the last ones are kept.
//!
//! A pure function of what is free. Tables follow each other over the device: the lowest free band behind the last one
//! taken, from the start again at the end (SMRDB, section 4.1: bands are written one after the other). Log bands are
//! the lowest free ones, near the band table, so that the commit that begins one needs a short seek and tables are not
//! parted by logs.
//!
//! When bands get scarce the last ones are kept in this order: one for a log band of manifests, pointers and copies,
//! without which nothing could be told any more; before it the reserve, for the outputs of compactions, which give
//! back more than they take; everything else is refused first. While the one kept for logs is being written the reserve
//! is all that is kept, so that as many outputs find a band as were promised; the next log band comes from what the
//! compaction gives back, or from its outputs when it fails.

use std::collections::BTreeSet;

/// Bands kept for manifests, pointers and copies.
pub(super) const LOG_RESERVE_BANDS: u32 = 1;

/// What a band is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A table that no compaction writes.
    Table,
    /// The output of a compaction.
    CompactionOutput,
    /// Write-ahead logs and files of unknown use.
    Log,
    /// Manifests, pointers, and what is copied out of log bands.
    Metadata,
}

/// What the policy looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct BandView<'a> {
    /// Bands that may be taken.
    pub(super) free: &'a BTreeSet<u32>,
    /// The band after the last one taken for a table.
    pub(super) cursor: u32,
    /// Bands kept for the outputs of compactions.
    pub(super) reserve_bands: u32,
    /// The band kept for manifests, pointers and copies is being written: none is kept for them beside it.
    pub(super) log_reserve_is_taken: bool,
}

impl BandView<'_> {
    /// Bands that are kept from someone who wants one for this.
    pub(super) fn kept_bands(&self, purpose: Purpose) -> usize {
        let kept = match purpose {
            Purpose::Table | Purpose::Log => self.reserve_bands + LOG_RESERVE_BANDS,
            Purpose::CompactionOutput if self.log_reserve_is_taken => 0,
            Purpose::CompactionOutput => LOG_RESERVE_BANDS,
            Purpose::Metadata => 0,
        };
        kept as usize
    }

    /// Bands that may be taken for this.
    pub(super) fn available_bands(&self, purpose: Purpose) -> usize {
        self.free.len().saturating_sub(self.kept_bands(purpose))
    }

    /// The band to take; `None` when all that are free are kept for others.
    pub(super) fn place(&self, purpose: Purpose) -> Option<u32> {
        if self.available_bands(purpose) == 0 {
            return None;
        }
        let lowest = self.free.first().copied();
        match purpose {
            Purpose::Log | Purpose::Metadata => lowest,
            Purpose::Table | Purpose::CompactionOutput => self.free.range(self.cursor..).next().copied().or(lowest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Purpose::{CompactionOutput, Log, Metadata, Table};

    fn places(free: &[u32], cursor: u32) -> [Option<u32>; 4] {
        places_with(free, cursor, false)
    }

    fn places_with(free: &[u32], cursor: u32, log_reserve_is_taken: bool) -> [Option<u32>; 4] {
        let free = free.iter().copied().collect();
        let view = BandView { free: &free, cursor, reserve_bands: 2, log_reserve_is_taken };
        [Table, CompactionOutput, Log, Metadata].map(|purpose| view.place(purpose))
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
    fn the_reserve_is_whole_while_the_band_kept_for_logs_is_written() {
        assert_eq!(places_with(&[3, 5], 0, true), [None, Some(3), None, Some(3)]);
        assert_eq!(places_with(&[5], 0, true), [None, Some(5), None, Some(5)]);
        // Logs and other tables wait until it is kept again.
        assert_eq!(places_with(&[3, 5, 7], 0, true), [None, Some(3), None, Some(3)]);
    }
}
