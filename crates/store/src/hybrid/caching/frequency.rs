//! Blocks that are read often stay: zones go in the order they came, but what was read often of them is written again, and
//! only what was read more often than what was given up comes in.

use super::{Caching, Kept, sketch::COUNT_MAX};

/// Of the bytes of a zone that goes, those that go with it at least: one part in so many.
const GIVEN_UP: u64 = 8;

/// Admission and eviction by how often blocks were read lately.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::hybrid) struct Frequency {
    /// A block comes in when it was read more often.
    above: u8,
}

impl Caching for Frequency {
    fn counts_reads(&self) -> bool {
        true
    }

    fn admits(&self, count: u8) -> bool {
        count > self.above
    }

    fn keep(&mut self, bytes_by_count: &[u64; COUNT_MAX as usize + 1], space_bytes: u64) -> Kept {
        let all: u64 = bytes_by_count.iter().sum();
        let mut rest = (all - all.div_ceil(GIVEN_UP)).min(space_bytes);
        for count in (1..=COUNT_MAX).rev() {
            let bytes = bytes_by_count[usize::from(count)];
            if bytes > rest {
                self.above = count;
                return Kept { above: count, bytes_of_equal: rest };
            }
            rest -= bytes;
        }
        self.above = 0;
        Kept { above: 0, bytes_of_equal: 0 }
    }

    fn zone_was_added(&mut self) {
        self.above = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(counts: &[(usize, u64)]) -> [u64; COUNT_MAX as usize + 1] {
        let mut by_count = [0; COUNT_MAX as usize + 1];
        counts.iter().for_each(|(count, bytes)| by_count[*count] = *bytes);
        by_count
    }

    #[test]
    fn what_was_read_most_stays_and_an_eighth_goes() {
        let mut policy = Frequency::default();
        assert!(policy.admits(1) && !policy.admits(0));
        let kept = policy.keep(&bytes(&[(0, 300), (2, 300), (9, 200)]), u64::MAX);
        assert_eq!(kept, Kept { above: 0, bytes_of_equal: 0 });
        let kept = policy.keep(&bytes(&[(1, 300), (2, 300), (9, 200)]), u64::MAX);
        assert_eq!(kept, Kept { above: 1, bytes_of_equal: 200 });
        assert!(policy.admits(2) && !policy.admits(1));
        // No more than there is space for.
        assert_eq!(policy.keep(&bytes(&[(1, 300), (2, 300), (9, 200)]), 250), Kept { above: 2, bytes_of_equal: 50 });
        policy.zone_was_added();
        assert!(policy.admits(1));
        // What all of it is read most cannot all stay.
        assert_eq!(policy.keep(&bytes(&[(15, 800)]), u64::MAX), Kept { above: 15, bytes_of_equal: 700 });
        assert!(!policy.admits(15));
        assert_eq!(policy.keep(&bytes(&[]), u64::MAX), Kept { above: 0, bytes_of_equal: 0 });
    }
}
