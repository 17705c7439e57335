//! Which log bands are emptied by copying forward what lives in them.
//!
//! A log band is free again when no file has data in it. Logs come and go; a manifest stays, and leaves a little in
//! every log band. A pure function from the bands to those worth emptying:
//!
//! - Always, when a new log band is begun: sealed bands in which at most a sixteenth lives, oldest first. Where a table has
//!   several bands it is a sixteenth of what a table has, and half of the band at most: a manifest leaves as much behind in
//!   each of the smaller log bands as in a large one.
//! - When there is no space: those with least in them, as many as what is left of the present log band can take.

/// At most one part in so many of a table's bands lives in a band that is emptied without need, ...
const LIVE_PART_OF_TABLE: u64 = 16;
/// ... and one in so many of the band.
const LIVE_PART_OF_BAND: u64 = 2;

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
pub(super) fn plan(sealed: &[SealedBand], space_bytes: u64, sizes: Sizes, in_need: bool) -> Vec<u32> {
    let live_bytes_max = (sizes.table_bytes / LIVE_PART_OF_TABLE).min(sizes.band_bytes / LIVE_PART_OF_BAND);
    let mut candidates: Vec<SealedBand> = sealed
        .iter()
        .filter(|band| band.copy_bytes > 0 && (in_need || band.copy_bytes <= live_bytes_max))
        .copied()
        .collect();
    candidates.sort_by_key(|band| if in_need { (band.copy_bytes, band.order) } else { (band.order, 0) });
    let mut space = space_bytes;
    let mut chosen = Vec::new();
    for candidate in candidates {
        if candidate.copy_bytes > space {
            if in_need {
                break;
            }
            continue;
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
    fn little_is_copied_always_and_much_only_in_need() {
        let band = |band, order, copy_bytes| SealedBand { band, order, copy_bytes };
        let sealed = [band(5, 3, 60), band(9, 1, 50), band(7, 2, 600), band(8, 4, 0)];
        let one = Sizes { band_bytes: 1000, table_bytes: 1000 };
        assert_eq!(plan(&sealed, 1000, one, false), [9, 5]);
        assert_eq!(plan(&sealed, 100, one, false), [9]);
        assert_eq!(plan(&sealed, 55, one, false), [9]);
        assert_eq!(plan(&sealed, 1000, one, true), [9, 5, 7]);
        assert_eq!(plan(&sealed, 100, one, true), [9]);
        assert_eq!(plan(&sealed, 40, one, true), [0_u32; 0]);
        let sixteen = Sizes { band_bytes: 120, table_bytes: 16 * 120 };
        assert_eq!(plan(&sealed, 1000, sixteen, false), [9, 5]);
        let two = Sizes { band_bytes: 440, table_bytes: 2 * 440 };
        assert_eq!(plan(&sealed, 1000, two, false), [9]);
    }
}
