//! Deterministic random numbers.

use std::ops::Range;

/// A stream of random numbers: xoshiro256** (Blackman and Vigna, "Scrambled linear
/// pseudorandom number generators", 2018), its state filled by SplitMix64 (Steele, Lea and
/// Flood, 2014). Not for cryptography.
///
/// The same seed gives the same numbers on every machine and in every version of this crate.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

/// The output function of SplitMix64: a bijection of `u64` that spreads every bit.
#[inline]
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// FNV-1a, 64 bits: how names become numbers.
pub(crate) const fn hash_name(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        index += 1;
    }
    hash
}

impl Random {
    /// The stream of `seed`.
    pub fn seeded(seed: u64) -> Random {
        let mut z = seed;
        let state = std::array::from_fn(|_| {
            z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(z)
        });
        Random { state }
    }

    /// The stream called `name` below `seed`. Streams of different names are independent: drawing
    /// from one never moves another.
    pub fn named(seed: u64, name: &str) -> Random {
        Random::seeded(mix(seed) ^ hash_name(name))
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number in `0..bound`, each equally likely (Lemire, "Fast random integer generation in an
    /// interval", 2019). A bound of 0 gives 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        let mut product = u128::from(self.next_u64()) * u128::from(bound);
        if (product as u64) < bound {
            let threshold = bound.wrapping_neg() % bound;
            while (product as u64) < threshold {
                product = u128::from(self.next_u64()) * u128::from(bound);
            }
        }
        (product >> 64) as u64
    }

    /// An index below `len`, for slices. A length of 0 gives 0.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number in `range`, each equally likely. An empty range gives its start.
    #[inline]
    pub fn range(&mut self, range: Range<u64>) -> u64 {
        range.start.wrapping_add(self.below(range.end.saturating_sub(range.start)))
    }

    /// A number in `[0, 1)`: a multiple of 2^-53, each equally likely.
    #[inline]
    pub fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// True with probability `numerator / denominator`. Always draws one number.
    #[inline]
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// Fills `bytes`. The bytes depend only on the seed and on how many were drawn before, in
    /// calls of whole words.
    pub fn fill_bytes(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// Puts `items` in random order, each order equally likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.index(last + 1);
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // xoshiro256** from the state {1, 2, 3, 4}: the first outputs of the authors' C code.
    #[test]
    fn reference_outputs() {
        let mut random = Random { state: [1, 2, 3, 4] };
        let outputs: Vec<u64> = (0..4).map(|_| random.next_u64()).collect();
        assert_eq!(outputs, [11520, 0, 1509978240, 1215971899390074240]);
    }

    // SplitMix64 from seed 0: the first output of the authors' C code.
    #[test]
    fn reference_seeding() {
        assert_eq!(Random::seeded(0).state[0], 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn below_is_in_bounds_and_covers() {
        let mut random = Random::seeded(7);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[random.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (800..1200).contains(&count)), "{seen:?}");
        assert_eq!(random.below(0), 0);
        assert_eq!(random.below(1), 0);
        assert_eq!(random.range(5..5), 5);
        for _ in 0..1000 {
            assert!((5..8).contains(&random.range(5..8)));
            assert!((0.0..1.0).contains(&random.unit_f64()));
        }
        assert!(random.below(u64::MAX) < u64::MAX);
    }

    #[test]
    fn chance_extremes() {
        let mut random = Random::seeded(1);
        assert!((0..100).all(|_| random.chance(1, 1)));
        assert!((0..100).all(|_| !random.chance(0, 9)));
    }

    #[test]
    fn streams_are_independent() {
        let mut a = Random::named(1, "a");
        let mut b = Random::named(1, "b");
        let mut other_seed = Random::named(2, "a");
        let first = a.next_u64();
        assert_ne!(first, b.next_u64());
        assert_ne!(first, other_seed.next_u64());
        assert_eq!(first, Random::named(1, "a").next_u64());
    }

    #[test]
    fn shuffle_is_a_permutation() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::seeded(3).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn fill_bytes_any_length() {
        let mut long = [0u8; 19];
        let mut short = [0u8; 3];
        Random::seeded(9).fill_bytes(&mut long);
        Random::seeded(9).fill_bytes(&mut short);
        assert_eq!(long[..3], short);
    }
}
