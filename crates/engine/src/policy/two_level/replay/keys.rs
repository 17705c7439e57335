//! Keys of updates: uniform, and skewed as YCSB's are.
//!
//! The lab's generators are above the engine; these draw from tables of weights, which a few ten thousand keys allow for.

use varve_env::Random;

/// YCSB's default skew (`ZipfianGenerator`).
const THETA: f64 = 0.99;

/// The sum of `i^-0.99` over the ten billion items that YCSB's scrambled zipfian draws from, as it states it.
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// Puts between two steps of the newest key of [`Distribution::Latest`].
const LATEST_STEP: u64 = 4;

/// How keys of updates are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Distribution {
    Uniform,
    /// Zipfian over ten billion items, which a hash scatters over the keys (YCSB's `ScrambledZipfianGenerator`): what
    /// falls to items beyond the number of keys is as good as uniform.
    Scrambled,
    /// Zipfian over as many items as there are keys, scattered: steeper.
    Zipfian,
    /// Zipfian by distance behind a newest key (YCSB's `SkewedLatestGenerator`) that moves on with every fourth put,
    /// scattered.
    Latest,
}

impl Distribution {
    pub(super) const ALL: [Distribution; 4] =
        [Distribution::Uniform, Distribution::Scrambled, Distribution::Zipfian, Distribution::Latest];
}

/// All of `keys` once, in random order, and then `updates` of them. The same seed gives the same keys.
pub(super) fn puts(distribution: Distribution, keys: usize, updates: usize, seed: u64) -> Vec<u64> {
    let mut puts: Vec<u64> = (0..keys as u64).collect();
    Random::named(seed, "load").shuffle(&mut puts);
    let mut scattered = puts.clone();
    Random::named(seed, "scattered").shuffle(&mut scattered);
    let weights = cumulative_weights(keys);
    let zeta = *weights.last().unwrap();
    let tail = (SCRAMBLED_ZETA * UNIT) as u64 - zeta;
    let mut random = Random::named(seed, "updates");
    let item_of = |weight: u64| weights.partition_point(|up_to| *up_to <= weight);
    puts.extend((0..updates as u64).map(|update| match distribution {
        Distribution::Uniform => random.below(keys as u64),
        Distribution::Scrambled => match random.below(zeta + tail) {
            weight if weight < zeta => scattered[item_of(weight)],
            _ => random.below(keys as u64),
        },
        Distribution::Zipfian => scattered[item_of(random.below(zeta))],
        Distribution::Latest => {
            let newest = keys + (update / LATEST_STEP) as usize;
            scattered[(newest - item_of(random.below(zeta))) % keys]
        }
    }));
    puts
}

/// Weights are whole numbers of this part: a last bit that differs between platforms does not show.
const UNIT: f64 = (1u64 << 32) as f64;

/// Sums of the weights of the first items, `i^-0.99` of the i-th.
fn cumulative_weights(items: usize) -> Vec<u64> {
    let weights = (1..=items).map(|item| (UNIT * (item as f64).powf(-THETA)) as u64);
    let sum = |sum: &mut u64, weight: u64| {
        *sum += weight;
        Some(*sum)
    };
    weights.scan(0u64, sum).collect()
}

#[test]
fn skew_is_that_of_the_distribution() {
    const KEYS: usize = 10_000;
    const UPDATES: usize = 100_000;
    let most_put = |distribution| {
        let puts = puts(distribution, KEYS, UPDATES, 1);
        let mut loaded = puts[..KEYS].to_vec();
        loaded.sort_unstable();
        assert!(loaded.into_iter().eq(0..KEYS as u64));
        let mut counts = vec![0usize; KEYS];
        puts[KEYS..].iter().for_each(|key| counts[*key as usize] += 1);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        (counts[0] as f64 / UPDATES as f64, counts[..KEYS / 100].iter().sum::<usize>() as f64 / UPDATES as f64)
    };
    // The first item's share is 1 / zeta: 10.2 for ten thousand items.
    let (first, hundredth) = most_put(Distribution::Zipfian);
    assert!((0.093..0.103).contains(&first) && (0.5..0.56).contains(&hundredth), "{first} {hundredth}");
    let (first, hundredth) = most_put(Distribution::Scrambled);
    assert!((0.035..0.041).contains(&first) && (0.19..0.24).contains(&hundredth), "{first} {hundredth}");
    let (first, hundredth) = most_put(Distribution::Uniform);
    assert!(first < 0.001 && hundredth < 0.02, "{first} {hundredth}");
    // Whichever key is the newest for four puts is not put much more often than others.
    let (first, hundredth) = most_put(Distribution::Latest);
    assert!(first < 0.001 && hundredth < 0.05, "{first} {hundredth}");
}
