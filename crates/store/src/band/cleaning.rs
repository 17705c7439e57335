//! Which log bands are emptied by copying forward what lives in them.
//!
//! A log band is free again when no file has data in it. Logs come and go; a manifest stays, and leaves a little in
//! every log band. A pure function from the bands to those worth emptying:
//!
//! - Always, when a new log band is begun: sealed bands in which at most a sixteenth lives, oldest first.
//! - When there is no room: those with least in them, as many as what is left of the present log band can take.

/// At most one part in so many of a band lives when it is emptied without need.
const LIVE_PART: u64 = 16;

/// A sealed log band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SealedBand {
    pub(super) band: u32,
    /// The order in which log bands were begun.
    pub(super) order: u64,
    /// Bytes on the medium that a copy of what lives in it would take.
    pub(super) copy_bytes: u64,
}

/// Bands to be emptied, in order. `room_bytes` is left of the present log band.
pub(super) fn plan(sealed: &[SealedBand], room_bytes: u64, band_bytes: u64, in_need: bool) -> Vec<u32> {
    let mut candidates: Vec<SealedBand> = sealed
        .iter()
        .filter(|band| band.copy_bytes > 0 && (in_need || band.copy_bytes <= band_bytes / LIVE_PART))
        .copied()
        .collect();
    candidates.sort_by_key(|band| if in_need { (band.copy_bytes, band.order) } else { (band.order, 0) });
    let mut room = room_bytes;
    let mut chosen = Vec::new();
    for candidate in candidates {
        if candidate.copy_bytes > room {
            if in_need {
                break;
            }
            continue;
        }
        room -= candidate.copy_bytes;
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
        assert_eq!(plan(&sealed, 1000, 1000, false), [9, 5]);
        assert_eq!(plan(&sealed, 100, 1000, false), [9]);
        assert_eq!(plan(&sealed, 55, 1000, false), [9]);
        assert_eq!(plan(&sealed, 1000, 1000, true), [9, 5, 7]);
        assert_eq!(plan(&sealed, 100, 1000, true), [9]);
        assert_eq!(plan(&sealed, 40, 1000, true), [0_u32; 0]);
    }
}
