//! Every number once, in an order that looks random, without a table of them.

use varve_env::Random;

/// Rounds of the network; four make a pseudorandom permutation (Luby and Rackoff, "How to Construct
/// Pseudorandom Permutations from Pseudorandom Functions", 1988).
const ROUNDS: usize = 4;

/// A permutation of `0..count` derived from a seed: a Feistel network over the next even power of
/// two, walked on until it lands inside (Black and Rogaway, "Ciphers with Arbitrary Finite Domains",
/// 2002). Costs a few nanoseconds and no memory.
#[derive(Clone, Debug)]
pub struct Permutation {
    count: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// The permutation of `0..count` of this seed.
    pub fn new(count: u64, seed: u64) -> Permutation {
        let bits = 64 - count.saturating_sub(1).leading_zeros();
        let mut random = Random::named(seed, "permutation");
        Permutation { count, half_bits: bits.div_ceil(2).max(1), keys: std::array::from_fn(|_| random.next_u64()) }
    }

    /// Where `position` goes; `position` is below the count.
    pub fn of(&self, position: u64) -> u64 {
        let mut number = position;
        // The network covers less than four times the count, so it lands inside after four steps on
        // average; and always, because it began inside and goes round in a cycle.
        loop {
            number = self.step(number);
            if number < self.count || self.count == 0 {
                return number;
            }
        }
    }

    fn step(&self, number: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for key in self.keys {
            let mut mixed = (right ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^= mixed >> 32;
            mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93);
            (left, right) = (right, (left ^ (mixed >> 24)) & mask);
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_once() {
        for count in [1, 2, 3, 7, 1000, 4096, 65_537] {
            let permutation = Permutation::new(count, 5);
            let mut seen = vec![false; count as usize];
            for position in 0..count {
                let number = permutation.of(position) as usize;
                assert!(!std::mem::replace(&mut seen[number], true), "{number} twice of {count}");
            }
        }
    }

    #[test]
    fn order_depends_on_the_seed_and_spreads() {
        let a = Permutation::new(1 << 20, 1);
        let b = Permutation::new(1 << 20, 2);
        assert!((0..100).filter(|&position| a.of(position) == b.of(position)).count() < 3);
        let low = (0..1000).filter(|&position| a.of(position) < 1 << 19).count();
        assert!((400..600).contains(&low), "{low} of the first 1000 in the lower half");
        let huge = Permutation::new(u64::MAX, 1);
        assert_ne!(huge.of(0), huge.of(1));
    }
}
