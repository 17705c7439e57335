//! Skewed choices: YCSB's zipfian generators.
//!
//! The algorithm is that of Gray et al., "Quickly Generating Billion-Record Synthetic Databases",
//! SIGMOD 1994, as YCSB uses it (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB",
//! SoCC 2010, and its `ZipfianGenerator`, `ScrambledZipfianGenerator`, `SkewedLatestGenerator`).

use super::elementary::power;
use super::key::fnv_hash_64;
use crate::error::LabError;
use varve_env::Random;

/// YCSB's default skew.
pub const ZIPFIAN_CONSTANT: f64 = 0.99;

/// Items a scrambled zipfian draws from before it scatters them.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;

/// Zeta of [`SCRAMBLED_ITEMS`] items at [`ZIPFIAN_CONSTANT`], as YCSB states it.
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// Sums longer than this end in the Euler-Maclaurin formula, whose error there is below 1e-14.
const SUMMED_TERMS: u64 = 1 << 20;

/// Sum of `i^-theta` for `i` in `counted + 1 ..= items`, added to `sum`. With `counted` 0 this is
/// the zeta of the distribution; with the last count and sum it is computed incrementally.
fn zeta(counted: u64, items: u64, theta: f64, sum: f64) -> f64 {
    let summed = items.min(counted.max(SUMMED_TERMS));
    let mut sum = sum;
    for i in counted..summed {
        sum += 1.0 / power((i + 1) as f64, theta);
    }
    if summed < items {
        let (a, b) = (summed as f64, items as f64);
        let integral = (power(b, 1.0 - theta) - power(a, 1.0 - theta)) / (1.0 - theta);
        let (end_a, end_b) = (1.0 / power(a, theta), 1.0 / power(b, theta));
        sum += integral + (end_b - end_a) * 0.5 + theta * (end_a / a - end_b / b) / 12.0;
    }
    sum
}

/// Chooses item 0 most often, then 1, then 2, ...
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u64,
    theta: f64,
    alpha: f64,
    zeta_2: f64,
    second_bound: f64,
    counted: u64,
    zeta_n: f64,
    eta: f64,
}

impl Zipfian {
    /// A generator over `items` items with skew `theta` in `0 < theta < 1`.
    ///
    /// # Errors
    /// No items, or a skew outside its range.
    pub fn new(items: u64, theta: f64) -> Result<Zipfian, LabError> {
        Zipfian::check(items, theta)?;
        Ok(Zipfian::with_zeta(items, theta, zeta(0, items, theta, 0.0)))
    }

    fn check(items: u64, theta: f64) -> Result<(), LabError> {
        if items == 0 {
            return Err(LabError::invalid("zipfian distribution", "it needs at least one item"));
        }
        if !(theta > 0.0 && theta < 1.0) {
            return Err(LabError::invalid(
                "zipfian constant",
                format!("{theta} is not between 0 and 1, both excluded"),
            ));
        }
        Ok(())
    }

    fn with_zeta(items: u64, theta: f64, zeta_n: f64) -> Zipfian {
        let zeta_2 = zeta(0, 2, theta, 0.0);
        let mut zipfian = Zipfian {
            items,
            theta,
            alpha: 1.0 / (1.0 - theta),
            zeta_2,
            second_bound: 1.0 + power(0.5, theta),
            counted: items,
            zeta_n,
            eta: 0.0,
        };
        zipfian.derive_eta();
        zipfian
    }

    /// YCSB derives eta from the first item count even after the set has grown; so do we.
    fn derive_eta(&mut self) {
        self.eta = (1.0 - power(2.0 / self.items as f64, 1.0 - self.theta)) / (1.0 - self.zeta_2 / self.zeta_n);
    }

    /// The next item among the items given at the start.
    pub fn next(&mut self, random: &mut Random) -> u64 {
        self.next_of(self.items, random)
    }

    /// The next item among `items`, which may have grown since the last call; zeta then follows
    /// incrementally. A set that shrank keeps the larger zeta, as YCSB's does.
    pub fn next_of(&mut self, items: u64, random: &mut Random) -> u64 {
        if items > self.counted {
            self.zeta_n = zeta(self.counted, items, self.theta, self.zeta_n);
            self.counted = items;
            self.derive_eta();
        }
        let u = random.unit_f64();
        let uz = u * self.zeta_n;
        if uz < 1.0 || items <= 1 {
            return 0;
        }
        if uz < self.second_bound {
            return 1;
        }
        let item = (items as f64 * power(self.eta * u - self.eta + 1.0, self.alpha)) as u64;
        item.min(items - 1)
    }
}

/// A zipfian choice whose popular items are scattered over the whole range: a zipfian over ten
/// billion items, hashed by FNV-1a into the range.
#[derive(Clone, Debug)]
pub struct ScrambledZipfian {
    zipfian: Zipfian,
    items: u64,
}

impl ScrambledZipfian {
    /// A generator over `items` items with skew `theta`.
    ///
    /// # Errors
    /// No items, or a skew outside `0 < theta < 1`.
    pub fn new(items: u64, theta: f64) -> Result<ScrambledZipfian, LabError> {
        Zipfian::check(items, theta)?;
        // One more item than its name says: YCSB's bounds are inclusive.
        let zipfian = if theta == ZIPFIAN_CONSTANT {
            Zipfian::with_zeta(SCRAMBLED_ITEMS + 1, theta, SCRAMBLED_ZETA)
        } else {
            Zipfian::new(SCRAMBLED_ITEMS + 1, theta)?
        };
        Ok(ScrambledZipfian { zipfian, items })
    }

    /// The next item.
    pub fn next(&mut self, random: &mut Random) -> u64 {
        fnv_hash_64(self.zipfian.next(random)) % self.items
    }
}

/// Chooses the newest item most often: the newest less a zipfian distance.
#[derive(Clone, Debug)]
pub struct SkewedLatest {
    zipfian: Zipfian,
}

impl SkewedLatest {
    /// A generator over a set that has `items` items now.
    ///
    /// # Errors
    /// No items, or a skew outside `0 < theta < 1`.
    pub fn new(items: u64, theta: f64) -> Result<SkewedLatest, LabError> {
        Ok(SkewedLatest { zipfian: Zipfian::new(items, theta)? })
    }

    /// The next item, `newest` being the number of the newest.
    pub fn next(&mut self, newest: u64, random: &mut Random) -> u64 {
        newest - self.zipfian.next_of(newest.max(1), random).min(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeta_of_ten_billion_is_the_one_ycsb_states() {
        let ours = zeta(0, SCRAMBLED_ITEMS, ZIPFIAN_CONSTANT, 0.0);
        assert!((ours - SCRAMBLED_ZETA).abs() < 1e-7, "{ours}");
    }

    #[test]
    fn zeta_grows_incrementally() {
        for theta in [0.5, 0.99] {
            let direct = zeta(0, 3_000_000, theta, 0.0);
            let steps = zeta(2_500_000, 3_000_000, theta, zeta(1_000, 2_500_000, theta, zeta(0, 1_000, theta, 0.0)));
            assert!((direct - steps).abs() / direct < 1e-12, "theta {theta}: {direct} and {steps}");
            let summed: f64 = (1..=3_000_000u64).map(|i| (i as f64).powf(-theta)).sum();
            assert!((direct - summed).abs() / summed < 1e-10, "theta {theta}: {direct} and {summed}");
        }
    }

    /// Pearson's statistic of `counts` against `expected` frequencies.
    fn chi_square(counts: &[u64], expected: &[f64]) -> f64 {
        counts.iter().zip(expected).map(|(&count, &mean)| (count as f64 - mean) * (count as f64 - mean) / mean).sum()
    }

    #[test]
    fn frequencies_are_those_of_grays_formula() {
        const ITEMS: u64 = 1000;
        const DRAWS: u64 = 400_000;
        let mut zipfian = Zipfian::new(ITEMS, ZIPFIAN_CONSTANT).unwrap();
        let mut random = Random::seeded(1);
        let mut counts = vec![0u64; ITEMS as usize];
        for _ in 0..DRAWS {
            counts[zipfian.next(&mut random) as usize] += 1;
        }
        // The share of draws up to and including an item, from the formula turned round.
        let below = |item: u64| match item {
            0 => 1.0 / zipfian.zeta_n,
            1 => zipfian.second_bound / zipfian.zeta_n,
            _ => ((((item + 1) as f64 / ITEMS as f64).powf(1.0 - ZIPFIAN_CONSTANT) - 1.0) / zipfian.eta + 1.0).min(1.0),
        };
        let expected: Vec<f64> = (0..ITEMS)
            .map(|item| DRAWS as f64 * (below(item) - if item == 0 { 0.0 } else { below(item - 1) }))
            .collect();
        // The formula's share of item 2 begins where the share of item 1 ends; the gap between the
        // two pieces falls to item 2 as well. 999 degrees of freedom: mean 999, deviation 45.
        let statistic = chi_square(&counts, &expected);
        assert!((800.0..1200.0).contains(&statistic), "chi-square {statistic}");
        // Against the true distribution: exact for items 0 and 1 (two degrees of freedom: 20 is
        // passed by chance once in 22,000 seeds), within a tenth beyond.
        let ideal: Vec<f64> =
            (1..=ITEMS).map(|i| DRAWS as f64 / power(i as f64, ZIPFIAN_CONSTANT) / zipfian.zeta_n).collect();
        let head = chi_square(&counts[..2], &ideal[..2]);
        assert!(head < 20.0, "items 0 and 1: chi-square {head}");
        for (from, to) in [(2, 10), (10, 100), (100, 1000)] {
            let drawn: u64 = counts[from..to].iter().sum();
            let mean: f64 = ideal[from..to].iter().sum();
            assert!((drawn as f64 / mean - 1.0).abs() < 0.10, "items {from}..{to}: {drawn} drawn, {mean} expected");
        }
    }

    #[test]
    fn scrambled_spreads_and_keeps_the_skew() {
        const ITEMS: u64 = 1000;
        const DRAWS: u64 = 200_000;
        let mut scrambled = ScrambledZipfian::new(ITEMS, ZIPFIAN_CONSTANT).unwrap();
        let mut random = Random::seeded(2);
        let mut counts = vec![0u64; ITEMS as usize];
        for _ in 0..DRAWS {
            counts[scrambled.next(&mut random) as usize] += 1;
        }
        // The most popular item is where item 0 hashes to, with its own share and a little more.
        let top = (fnv_hash_64(0) % ITEMS) as usize;
        let share = counts[top] as f64 / DRAWS as f64;
        assert!((share - 1.0 / SCRAMBLED_ZETA).abs() < 0.004, "share of the most popular item {share}");
        assert_eq!(counts.iter().max(), Some(&counts[top]));
        // Both halves of the range are used alike, the popular ones aside.
        let low: u64 = counts[..500].iter().sum();
        assert!((0.35..0.65).contains(&(low as f64 / DRAWS as f64)), "{low} of {DRAWS} in the lower half");
    }

    #[test]
    fn latest_prefers_the_newest_and_follows_growth() {
        let mut latest = SkewedLatest::new(1000, ZIPFIAN_CONSTANT).unwrap();
        let mut random = Random::seeded(3);
        let mut newest_drawn = 0;
        for step in 0..50_000u64 {
            let newest = 1000 + step / 50;
            let item = latest.next(newest, &mut random);
            assert!(item <= newest);
            newest_drawn += u64::from(item == newest);
        }
        // 1 / zeta(1000..2000) is 0.129 to 0.118.
        let share = newest_drawn as f64 / 50_000.0;
        assert!((0.112..0.135).contains(&share), "{share}");
    }

    #[test]
    fn degenerate_sets() {
        let mut random = Random::seeded(4);
        let mut one = Zipfian::new(1, 0.5).unwrap();
        assert!((0..100).all(|_| one.next(&mut random) == 0));
        let mut two = Zipfian::new(2, 0.5).unwrap();
        assert!((0..100).all(|_| two.next(&mut random) < 2));
        assert!(Zipfian::new(0, 0.5).is_err());
        assert!(Zipfian::new(5, 1.0).is_err());
        assert!(ScrambledZipfian::new(5, f64::NAN).is_err());
    }

    #[test]
    fn golden_draws() {
        let mut scrambled = ScrambledZipfian::new(1_000_000, ZIPFIAN_CONSTANT).unwrap();
        let mut random = Random::seeded(7);
        let first: Vec<u64> = (0..6).map(|_| scrambled.next(&mut random)).collect();
        assert_eq!(first, [185_213, 138_717, 472_486, 342_184, 626_480, 695_353]);
    }
}
