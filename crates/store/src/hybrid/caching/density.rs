//! How much a copy is read for its bytes.

use super::batch::copy_bytes;

/// Reads lately to a mebibyte of such copies, in eighths of a doubling. 0 is what was not read.
pub(in crate::hybrid) type Density = u8;

/// Eighths.
const STEP_BITS: u32 = 3;

/// The highest.
pub(in crate::hybrid) const DENSITY_MAX: Density = 191;

/// Bytes of copies, by how much they are read.
pub(in crate::hybrid) type BytesByDensity = [u64; DENSITY_MAX as usize + 1];

/// That of a copy of so many bytes that was read so often.
pub(in crate::hybrid) fn density_of(count: u8, length_bytes: usize) -> Density {
    let reads = (u64::from(count) << 20) / copy_bytes(length_bytes).max(1);
    // What was read and is large is worth more than what was not.
    let reads = reads.max(u64::from(count > 0));
    let doublings = reads.checked_ilog2().unwrap_or(0);
    if doublings < STEP_BITS {
        return reads as Density;
    }
    let steps = (reads >> (doublings - STEP_BITS)) & ((1 << STEP_BITS) - 1);
    ((u64::from(doublings - STEP_BITS + 1) << STEP_BITS) + steps).min(u64::from(DENSITY_MAX)) as Density
}

/// What a density becomes when all counts are halved.
pub(in crate::hybrid) fn halved(density: Density) -> Density {
    density.saturating_sub(1 << STEP_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hybrid::caching::sketch::COUNT_MAX;

    #[test]
    fn what_is_read_more_or_is_smaller_comes_first() {
        for length in [1, 16, 100, 1000, 4140, 65_536, 1 << 24, 1 << 31] {
            assert_eq!(density_of(0, length), 0);
            for count in 1..=COUNT_MAX {
                let (less, more) = (density_of(count - 1, length), density_of(count, length));
                assert!(less <= more && more > 0 && more < DENSITY_MAX, "{count} of {length}: {less}, {more}");
                assert!(count > 8 || length > 65_536 || less < more, "{count} of {length}: {less}, {more}");
                assert!(density_of(count, length * 2) <= more);
            }
        }
        for count in 1..=COUNT_MAX / 2 {
            let (half, whole) = (density_of(count, 1000), density_of(2 * count, 1000));
            assert!(halved(whole).abs_diff(half) <= 1, "{count}");
        }
        // A record is a quarter of its block, and worth as much with a quarter of the reads.
        assert!(density_of(1, 1000) > density_of(3, 4140) && density_of(1, 1000) < density_of(5, 4140));
    }
}
