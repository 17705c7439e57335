//! Which log bands are emptied by copying their live data forward.
//!
//! A log band is free again when no file has data in it. Write-ahead logs come and go; a manifest stays, and leaves a little in
//! every log band. A pure function chooses the bands that are worth emptying ([`plan`]), for one of four [needs](Need):
//!
//! - [`Need::Routine`], when a new log band is begun: sealed bands with at most a sixteenth of live data, oldest first. If a table
//!   has several bands, the limit is a sixteenth of a table, and half of the band at most: a manifest leaves as much behind in
//!   each of the smaller log bands as in a large one.
//! - [`Need::Scarce`], when a new log band is begun while few bands are free: bands that are at most half live, the emptiest
//!   first, until as few are left as their live data justifies ([`justified_bands`]). The copies take at most half of the space,
//!   so the new band still serves its purpose, and each band that is emptied costs at most half a band.
//! - [`Need::NextBand`], when the last band that is kept for logs was begun: the emptiest bands, as many as half of the space takes.
//! - [`Need::Space`], when a write would be refused: the emptiest bands, as many as fit.

/// A band is emptied as a matter of routine if at most this fraction of a table's bands is live in it (1/16), ...
const LIVE_PART_OF_TABLE: u64 = 16;
/// ... and at most this fraction of the band (1/2).
const LIVE_PART_OF_BAND: u64 = 2;

/// Why log bands are emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// A new log band was begun.
    Routine,
    /// A new log band was begun, and few bands are free.
    Scarce,
    /// The last band that is kept for logs was begun: the next log needs another.
    NextBand,
    /// A write would be refused.
    Space,
}

/// Sealed bands that so much live data justifies: twice what it fills, and one.
pub(super) fn justified_bands(live_bytes: u64, band_bytes: u64) -> usize {
    1 + 2 * live_bytes.div_ceil(band_bytes.max(1)) as usize
}

/// A sealed log band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SealedBand {
    pub(super) band: u32,
    /// The order in which log bands were begun.
    pub(super) order: u64,
    /// Bytes on the medium that a copy of what lives in it would take.
    pub(super) copy_bytes: u64,
}

/// How large bands are, and the bands of a table together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) band_bytes: u64,
    pub(super) table_bytes: u64,
}

/// Bands to be emptied, in order. `space_bytes` is left of the present log band.
pub(super) fn plan(sealed: &[SealedBand], space_bytes: u64, sizes: Sizes, need: Need) -> Vec<u32> {
    let half_bytes = sizes.band_bytes / LIVE_PART_OF_BAND;
    let live_bytes_max = match need {
        Need::Routine => (sizes.table_bytes / LIVE_PART_OF_TABLE).min(half_bytes),
        Need::Scarce => half_bytes,
        Need::NextBand | Need::Space => u64::MAX,
    };
    let live: Vec<SealedBand> = sealed.iter().filter(|band| band.copy_bytes > 0).copied().collect();
    let live_bytes = live.iter().fold(0u64, |sum, band| sum.saturating_add(band.copy_bytes));
    let chosen_max = match need {
        Need::Scarce => live.len().saturating_sub(justified_bands(live_bytes, sizes.band_bytes)),
        Need::Routine | Need::NextBand | Need::Space => usize::MAX,
    };
    let mut candidates: Vec<SealedBand> = live.into_iter().filter(|band| band.copy_bytes <= live_bytes_max).collect();
    candidates.sort_by_key(|band| match need {
        Need::Routine => (band.order, 0),
        Need::Scarce | Need::NextBand | Need::Space => (band.copy_bytes, band.order),
    });
    let mut space = match need {
        Need::Scarce | Need::NextBand => space_bytes / 2,
        Need::Routine | Need::Space => space_bytes,
    };
    let mut chosen = Vec::new();
    for candidate in candidates {
        if candidate.copy_bytes > space || chosen.len() == chosen_max {
            // The others are newer, or larger.
            match need {
                Need::Routine => continue,
                Need::Scarce | Need::NextBand | Need::Space => break,
            }
        }
        space -= candidate.copy_bytes;
        chosen.push(candidate.band);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_little_as_a_routine_and_much_only_in_need() {
        let band = |band, order, copy_bytes| SealedBand { band, order, copy_bytes };
        let sealed = [band(5, 3, 60), band(9, 1, 50), band(7, 2, 600), band(8, 4, 0)];
        let one = Sizes { band_bytes: 1000, table_bytes: 1000 };
        assert_eq!(plan(&sealed, 1000, one, Need::Routine), [9, 5]);
        assert_eq!(plan(&sealed, 100, one, Need::Routine), [9]);
        assert_eq!(plan(&sealed, 55, one, Need::Routine), [9]);
        assert_eq!(plan(&sealed, 1000, one, Need::Space), [9, 5, 7]);
        assert_eq!(plan(&sealed, 100, one, Need::Space), [9]);
        assert_eq!(plan(&sealed, 40, one, Need::Space), [0_u32; 0]);
        let sixteen = Sizes { band_bytes: 120, table_bytes: 16 * 120 };
        assert_eq!(plan(&sealed, 1000, sixteen, Need::Routine), [9, 5]);
        let two = Sizes { band_bytes: 440, table_bytes: 2 * 440 };
        assert_eq!(plan(&sealed, 1000, two, Need::Routine), [9]);
    }
    #[test]
    fn keeps_as_few_bands_as_live_data_justifies_while_bands_are_scarce() {
        let sizes = Sizes { band_bytes: 1000, table_bytes: 1000 };
        let sealed = |live: &[u64]| -> Vec<SealedBand> {
            (0..).zip(live).map(|(band, copy_bytes)| SealedBand { band, order: 9, copy_bytes: *copy_bytes }).collect()
        };
        assert_eq!(justified_bands(0, 1000), 1);
        assert_eq!((justified_bands(1, 1000), justified_bands(1001, 1000)), (3, 5));
        // 400 bytes justify three bands of six.
        assert_eq!(plan(&sealed(&[90, 70, 100, 0, 50, 60, 30]), 1000, sizes, Need::Scarce), [6, 4, 5]);
        assert_eq!(plan(&sealed(&[90, 70, 100]), 1000, sizes, Need::Scarce), [0_u32; 0]);
        // No more is copied than half of the space takes, and no band that is more than half live.
        assert_eq!(plan(&sealed(&[90, 70, 100, 0, 50, 60, 30]), 200, sizes, Need::Scarce), [6, 4]);
        assert_eq!(plan(&sealed(&[90, 70, 100]), 400, sizes, Need::NextBand), [1, 0]);
        assert_eq!(plan(&sealed(&[501, 501, 501, 501, 501, 501, 501, 501]), 2000, sizes, Need::Scarce), [0_u32; 0]);
    }
}
