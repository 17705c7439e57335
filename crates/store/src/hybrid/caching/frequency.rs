//! Blocks that are read often stay: zones go in the order they came, but what was read often of them is written again, and
//! only what was read more often than what was given up comes in.

use super::density::{DENSITY_MAX, halved};
use super::{BytesByDensity, Caching, Density, Kept};

/// Of the bytes of a zone that goes, those that go with it at least: one part in so many.
const GIVEN_UP: u64 = 8;

/// Admission and eviction by how often blocks were read lately.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::hybrid) struct Frequency {
    /// What is read more for its bytes comes in; where it is 0 nothing had to go yet.
    above: Density,
}

/// A record whose block may come in as well is worth its space when it was read so often.
const RECORD_READS_MIN: u8 = 2;

impl Caching for Frequency {
    fn counts_reads(&self) -> bool {
        true
    }

    fn admits(&self, density: Density) -> bool {
        density > self.above
    }

    fn admits_record(&self, count: u8, density: Density) -> bool {
        density > self.above && (self.above > 0 || count >= RECORD_READS_MIN)
    }

    fn keep(&mut self, bytes_by_density: &BytesByDensity, space_bytes: u64, first_read: Density) -> Kept {
        let all: u64 = bytes_by_density.iter().sum();
        let mut rest = (all - all.div_ceil(GIVEN_UP)).min(space_bytes);
        // Blocks that came while there was space for them make place for the records that are read at all.
        let least = first_read.clamp(1, DENSITY_MAX);
        for density in (least..=DENSITY_MAX).rev() {
            let bytes = bytes_by_density[usize::from(density)];
            if bytes > rest {
                self.above = density;
                return Kept { above: density, bytes_of_equal: rest };
            }
            rest -= bytes;
        }
        self.above = least - 1;
        Kept { above: least - 1, bytes_of_equal: 0 }
    }

    fn zone_was_added(&mut self, first_read: Density) {
        self.above = self.above.min(first_read.saturating_sub(1));
    }

    fn counts_were_halved(&mut self) {
        self.above = halved(self.above).max(u8::from(self.above > 0));
    }

    fn too_little_comes(&mut self) {
        // Nobody knows what the copies are read by now: a little at a time until some come in, and zones are looked at again.
        self.above = self.above.saturating_sub(1).max(u8::from(self.above > 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(of: &[(usize, u64)]) -> BytesByDensity {
        let mut by_density = [0; DENSITY_MAX as usize + 1];
        of.iter().for_each(|(density, bytes)| by_density[*density] = *bytes);
        by_density
    }

    #[test]
    fn what_was_read_most_stays_and_an_eighth_goes() {
        let mut policy = Frequency::default();
        assert!(policy.admits(1) && !policy.admits(0));
        assert!(policy.admits_record(2, 1) && !policy.admits_record(1, 9), "its block has space as well");
        let kept = policy.keep(&bytes(&[(0, 300), (2, 300), (9, 200)]), u64::MAX, 1);
        assert_eq!(kept, Kept { above: 0, bytes_of_equal: 0 });
        let kept = policy.keep(&bytes(&[(1, 300), (2, 300), (9, 200)]), u64::MAX, 1);
        assert_eq!(kept, Kept { above: 1, bytes_of_equal: 200 });
        assert!(policy.admits(2) && !policy.admits(1));
        assert!(policy.admits_record(1, 2) && !policy.admits_record(2, 1));
        // No more than there is space for.
        assert_eq!(policy.keep(&bytes(&[(1, 300), (2, 300), (9, 200)]), 250, 1), Kept { above: 2, bytes_of_equal: 50 });
        policy.too_little_comes();
        assert!(policy.admits(2) && !policy.admits(1) && !policy.admits_record(1, 1));
        assert_eq!(policy.keep(&bytes(&[(100, 800)]), u64::MAX, 1), Kept { above: 100, bytes_of_equal: 700 });
        policy.too_little_comes();
        assert!(policy.admits(100) && !policy.admits(99));
        policy.counts_were_halved();
        assert!(policy.admits(92) && !policy.admits(91));
        policy.zone_was_added(1);
        assert!(policy.admits(1));
        // What all of it is read most cannot all stay.
        assert_eq!(policy.keep(&bytes(&[(15, 800)]), u64::MAX, 1), Kept { above: 15, bytes_of_equal: 700 });
        assert!(!policy.admits(15));
        assert_eq!(policy.keep(&bytes(&[]), u64::MAX, 1), Kept { above: 0, bytes_of_equal: 0 });
    }
}
