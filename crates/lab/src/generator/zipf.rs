//! Zipf's distribution over exactly the items there are, of any exponent.
//!
//! YCSB's [generators](super::zipfian) refuse exponents of 1 and more, and scatter ten billion items over the records, so that
//! some records get several and the skew is less than it says. Here rank `k` of `n` is drawn with a probability proportional to
//! `k^-exponent`, by rejection-inversion (Hoermann and Derflinger, "Rejection-Inversion to Generate Variates from Monotone
//! Discrete Distributions", ACM TOMACS 6(3), 1996): no table, and few draws for each item. Ranks are scattered over the records by
//! a [permutation](Permutation), so that each record has one.

use super::elementary::{exp, ln};
use super::key::fnv_hash_64;
use super::permutation::Permutation;
use crate::error::LabError;
use varve_env::Random;

/// Largest exponent: beyond it next to nothing but the first item is drawn.
const EXPONENT_MAX: f64 = 20.0;

/// Chooses item 0 most often, then 1, then 2, ...
#[derive(Clone, Debug)]
pub struct Zipf {
    items: u64,
    exponent: f64,
    /// The integral of the hat from 1.5, less the height of the first item, and to the end of the last.
    integral_first: f64,
    integral_last: f64,
    /// What is accepted without a look at its height.
    squeeze: f64,
}

/// `(e^x - 1) / x`.
fn exp_minus_one_by(x: f64) -> f64 {
    if x.abs() > 1e-4 { (exp(x) - 1.0) / x } else { 1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0)) }
}

/// `ln(1 + x) / x`.
fn ln_plus_one_by(x: f64) -> f64 {
    if x.abs() > 1e-4 { ln(1.0 + x) / x } else { 1.0 - x * (1.0 / 2.0 - x * (1.0 / 3.0 - x / 4.0)) }
}

impl Zipf {
    /// A generator over `items` items.
    ///
    /// # Errors
    /// No items, or an exponent outside `0..=20`.
    pub fn new(items: u64, exponent: f64) -> Result<Zipf, LabError> {
        if items == 0 {
            return Err(LabError::invalid("zipf distribution", "it needs at least one item"));
        }
        if !(0.0..=EXPONENT_MAX).contains(&exponent) {
            return Err(LabError::invalid("zipf exponent", format!("{exponent} is not in 0..={EXPONENT_MAX}")));
        }
        let mut zipf = Zipf { items, exponent, integral_first: 0.0, integral_last: 0.0, squeeze: 0.0 };
        zipf.integral_first = zipf.integral(1.5) - 1.0;
        zipf.integral_last = zipf.integral(items as f64 + 0.5);
        zipf.squeeze = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.height(2.0));
        Ok(zipf)
    }

    /// Of the hat, up to a constant.
    fn integral(&self, x: f64) -> f64 {
        let logarithm = ln(x);
        exp_minus_one_by((1.0 - self.exponent) * logarithm) * logarithm
    }

    fn height(&self, x: f64) -> f64 {
        exp(-self.exponent * ln(x))
    }

    fn inverse(&self, integral: f64) -> f64 {
        // Rounding may go past the end, where there is no logarithm.
        let t = (integral * (1.0 - self.exponent)).max(-1.0);
        exp(ln_plus_one_by(t) * integral)
    }

    /// The next item.
    pub fn next(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.integral_last + random.unit_f64() * (self.integral_first - self.integral_last);
            let x = self.inverse(u);
            let rank = ((x + 0.5) as u64).clamp(1, self.items);
            let k = rank as f64;
            if k - x <= self.squeeze || u >= self.integral(k + 0.5) - self.height(k) {
                return rank - 1;
            }
        }
    }
}

/// The same with ranks scattered over all items.
#[derive(Clone, Debug)]
pub struct ScatteredZipf {
    zipf: Zipf,
    places: Permutation,
}

impl ScatteredZipf {
    /// A generator over `items` items; `seed` decides which are popular.
    ///
    /// # Errors
    /// Those of [`Zipf::new`].
    pub fn new(items: u64, exponent: f64, seed: u64) -> Result<ScatteredZipf, LabError> {
        Ok(ScatteredZipf { zipf: Zipf::new(items, exponent)?, places: Permutation::new(items, seed) })
    }

    /// The next item.
    pub fn next(&self, random: &mut Random) -> u64 {
        self.places.of(self.zipf.next(random))
    }

    /// The item of a rank, from 0, the most popular one.
    pub fn of_rank(&self, rank: u64) -> u64 {
        self.places.of(rank)
    }
}

/// Zipf over ranks that are hashed to items, as in YCSB's scrambled zipfian generator. An item may have several ranks or none, so the
/// skew over items is less than the exponent's. Ranks are drawn exactly, where YCSB's formula is an approximation.
#[derive(Clone, Debug)]
pub struct HashedZipf {
    zipf: Zipf,
    items: u64,
}

impl HashedZipf {
    /// Creates a generator over `items` items, with `ranks` ranks.
    ///
    /// # Errors
    /// No items, and those of [`Zipf::new`].
    pub fn new(items: u64, ranks: u64, exponent: f64) -> Result<HashedZipf, LabError> {
        if items == 0 {
            return Err(LabError::invalid("hashed zipf distribution", "it needs at least one item"));
        }
        Ok(HashedZipf { zipf: Zipf::new(ranks, exponent)?, items })
    }

    /// The next item.
    pub fn next(&self, random: &mut Random) -> u64 {
        fnv_hash_64(self.zipf.next(random)) % self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares of ranks, by summing.
    fn shares(items: u64, exponent: f64) -> Vec<f64> {
        let weights: Vec<f64> = (1..=items).map(|rank| (rank as f64).powf(-exponent)).collect();
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / sum).collect()
    }

    #[test]
    fn ranks_are_drawn_as_often_as_their_weights_say() {
        const DRAWS: u64 = 300_000;
        for (items, exponent) in
            [(1000, 0.0), (1000, 0.5), (1000, 0.9), (1000, 1.0), (1000, 1.2), (50, 3.0), (7, 0.99), (2, 1.5)]
        {
            let zipf = Zipf::new(items, exponent).unwrap();
            let mut random = Random::seeded(items + (exponent * 100.0) as u64);
            let mut counts = vec![0u64; items as usize];
            (0..DRAWS).for_each(|_| counts[zipf.next(&mut random) as usize] += 1);
            let expected: Vec<f64> = shares(items, exponent).into_iter().map(|share| share * DRAWS as f64).collect();
            // Of those that are expected often enough; their number is the mean of the statistic, twice it the variance.
            let often: Vec<(u64, f64)> = counts.into_iter().zip(expected).filter(|(_, mean)| *mean >= 10.0).collect();
            let statistic: f64 =
                often.iter().map(|(count, mean)| (*count as f64 - mean) * (*count as f64 - mean) / mean).sum();
            let mean = often.len() as f64;
            assert!(statistic < mean + 5.0 * (2.0 * mean).sqrt(), "{items}, {exponent}: {statistic} of {mean}");
        }
    }

    #[test]
    fn what_is_beyond_the_head_is_drawn_too() {
        // As many records as the experiments of hybrid storage have, of which the head is known by summing.
        let items = 200_000_000;
        for exponent in [0.9, 1.2] {
            let zipf = Zipf::new(items, exponent).unwrap();
            let mut random = Random::seeded(5);
            let (mut head, mut largest) = (0, 0);
            for _ in 0..200_000 {
                let item = zipf.next(&mut random);
                assert!(item < items);
                head += u64::from(item < 1000);
                largest = largest.max(item);
            }
            // The sum of the tail by its integral, which is right to a millionth from 1,000 on.
            let below: f64 = (1..=1000u32).map(|rank| f64::from(rank).powf(-exponent)).sum();
            let integral = |x: f64| x.powf(1.0 - exponent) / (1.0 - exponent);
            let share = below / (below + integral(items as f64 + 0.5) - integral(1000.5));
            let found = head as f64 / 200_000.0;
            assert!((found - share).abs() < 0.005, "{exponent}: {found}, {share}");
            assert!(largest > items / if exponent < 1.0 { 2 } else { 100 }, "{exponent}: {largest}");
        }
    }

    #[test]
    fn each_item_has_one_rank() {
        let scattered = ScatteredZipf::new(1000, 1.2, 3).unwrap();
        let mut items: Vec<u64> = (0..1000).map(|rank| scattered.of_rank(rank)).collect();
        let most = items[0];
        let mut random = Random::seeded(1);
        let hits = (0..20_000).filter(|_| scattered.next(&mut random) == most).count();
        let share = shares(1000, 1.2)[0];
        assert!((hits as f64 / 20_000.0 - share).abs() < 0.02, "{hits}");
        items.sort_unstable();
        assert!(items.iter().copied().eq(0..1000));
        assert_ne!(ScatteredZipf::new(1000, 1.2, 4).unwrap().of_rank(0), most);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (items, exponent) in [(0, 1.0), (5, -0.1), (5, f64::NAN), (5, f64::INFINITY), (5, 20.1)] {
            assert!(Zipf::new(items, exponent).is_err());
        }
        let mut random = Random::seeded(4);
        for exponent in [0.0, 1.0, 20.0] {
            let one = Zipf::new(1, exponent).unwrap();
            assert!((0..100).all(|_| one.next(&mut random) == 0));
            let all = Zipf::new(u64::MAX, exponent).unwrap();
            (0..100).for_each(|_| _ = all.next(&mut random));
        }
    }

    #[test]
    fn golden_draws() {
        let scattered = ScatteredZipf::new(1_000_000, 1.2, 9).unwrap();
        let mut random = Random::seeded(7);
        let first: Vec<u64> = (0..6).map(|_| scattered.next(&mut random)).collect();
        assert_eq!(first, [564_727, 893_917, 442_829, 442_829, 442_829, 442_829]);
    }
}
