//! Which record the next operation asks for.

use super::elementary::ln;
use super::zipf::ScatteredZipf;
use super::zipfian::{ScrambledZipfian, SkewedLatest, ZIPFIAN_CONSTANT};
use crate::error::LabError;
use std::fmt;
use std::str::FromStr;
use varve_env::Random;

/// A request distribution, by YCSB's names and defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Distribution {
    /// Every record alike.
    #[default]
    Uniform,
    /// A few records often, scattered over the key space (scrambled zipfian, constant 0.99).
    Zipfian,
    /// Record of rank `k` with a probability proportional to `k^-exponent`, over exactly the records there are, scattered over the key
    /// space; written `zipf:1.2`. Exponents from 0 to 20.
    Zipf {
        /// How skewed.
        exponent: f64,
    },
    /// The newest records most often.
    Latest,
    /// A hot set of records gets most operations.
    Hotspot {
        /// Share of the records that are hot; YCSB's default is 0.2.
        hot_records: f64,
        /// Share of the operations that go to them; YCSB's default is 0.8.
        hot_operations: f64,
    },
    /// Exponentially fewer operations the older a record is: 95 % of them on the newest 6/7.
    Exponential,
    /// One record after the other, from the first, round and round.
    Sequential,
}

impl Distribution {
    /// YCSB's hotspot: 20 % of the records get 80 % of the operations.
    pub const HOTSPOT: Distribution = Distribution::Hotspot { hot_records: 0.2, hot_operations: 0.8 };
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Distribution::Zipf { exponent } => return write!(f, "zipf:{exponent}"),
            Distribution::Uniform => "uniform",
            Distribution::Zipfian => "zipfian",
            Distribution::Latest => "latest",
            Distribution::Hotspot { .. } => "hotspot",
            Distribution::Exponential => "exponential",
            Distribution::Sequential => "sequential",
        })
    }
}

impl FromStr for Distribution {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Distribution, LabError> {
        if let Some(exponent) = text.strip_prefix("zipf:").and_then(|exponent| exponent.parse().ok()) {
            return Ok(Distribution::Zipf { exponent });
        }
        Ok(match text {
            "uniform" => Distribution::Uniform,
            "zipfian" => Distribution::Zipfian,
            "latest" => Distribution::Latest,
            "hotspot" => Distribution::HOTSPOT,
            "exponential" => Distribution::Exponential,
            "sequential" => Distribution::Sequential,
            _ => {
                return Err(LabError::invalid(
                    "request distribution",
                    format!(
                        "'{text}' is none of uniform, zipfian, zipf:EXPONENT, latest, hotspot, exponential, sequential"
                    ),
                ));
            }
        })
    }
}

/// Draws record numbers by a [`Distribution`]. One per thread; cheap to clone.
#[derive(Clone, Debug)]
pub struct RecordChooser {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Uniform,
    Zipfian(ScrambledZipfian),
    Zipf(ScatteredZipf),
    Latest(SkewedLatest),
    Hotspot { hot: u64, hot_operations: f64, records: u64 },
    Exponential { mean: f64 },
    Sequential { next: u64, step: u64 },
}

impl RecordChooser {
    /// A chooser over `records` records of which `expected_records` more may be inserted while it
    /// runs. `thread` of `threads` matters to the sequential distribution only, which deals the
    /// records out.
    ///
    /// # Errors
    /// No records, or shares outside `0..=1`.
    pub fn new(
        distribution: Distribution,
        records: u64,
        expected_records: u64,
        thread: usize,
        threads: usize,
    ) -> Result<RecordChooser, LabError> {
        if records == 0 {
            return Err(LabError::invalid("record count", "operations on existing records need at least one record"));
        }
        let kind = match distribution {
            Distribution::Uniform => Kind::Uniform,
            Distribution::Zipfian => {
                Kind::Zipfian(ScrambledZipfian::new(records.saturating_add(expected_records), ZIPFIAN_CONSTANT)?)
            }
            // Every thread has the same popular records.
            Distribution::Zipf { exponent } => {
                Kind::Zipf(ScatteredZipf::new(records.saturating_add(expected_records), exponent, 0)?)
            }
            Distribution::Latest => Kind::Latest(SkewedLatest::new(records, ZIPFIAN_CONSTANT)?),
            Distribution::Hotspot { hot_records, hot_operations } => {
                if !(0.0..=1.0).contains(&hot_records) || !(0.0..=1.0).contains(&hot_operations) {
                    return Err(LabError::invalid(
                        "hotspot",
                        format!("shares {hot_records} and {hot_operations} are not in 0..=1"),
                    ));
                }
                Kind::Hotspot { hot: (records as f64 * hot_records) as u64, hot_operations, records }
            }
            // YCSB: gamma = -ln(1 - 0.95) / (records * 0.8571428571).
            Distribution::Exponential => Kind::Exponential { mean: records as f64 * 0.857_142_857_1 / -ln(0.05) },
            Distribution::Sequential => Kind::Sequential { next: thread as u64, step: threads.max(1) as u64 },
        };
        Ok(RecordChooser { kind })
    }

    /// The next record number, below `stored`: the number of records stored now, at least one.
    pub fn next(&mut self, stored: u64, random: &mut Random) -> u64 {
        let stored = stored.max(1);
        match &mut self.kind {
            Kind::Uniform => random.below(stored),
            // Records yet to come are drawn and thrown away, so that the popular ones stay the same
            // while the set grows.
            Kind::Zipfian(zipfian) => loop {
                let record = zipfian.next(random);
                if record < stored {
                    break record;
                }
            },
            Kind::Zipf(zipf) => loop {
                let record = zipf.next(random);
                if record < stored {
                    break record;
                }
            },
            Kind::Latest(latest) => latest.next(stored - 1, random),
            Kind::Hotspot { hot, hot_operations, records } => {
                let cold = *records - *hot;
                let record = if (random.unit_f64() < *hot_operations && *hot > 0) || cold == 0 {
                    random.below(*hot)
                } else {
                    *hot + random.below(cold)
                };
                record.min(stored - 1)
            }
            Kind::Exponential { mean } => loop {
                let distance = -ln(random.unit_f64()) * *mean;
                if distance < stored as f64 {
                    break stored - 1 - distance as u64;
                }
            },
            Kind::Sequential { next, step } => {
                let record = *next % stored;
                *next += *step;
                record
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(distribution: Distribution, records: u64, draws: u64) -> Vec<u64> {
        let mut chooser = RecordChooser::new(distribution, records, 0, 0, 1).unwrap();
        let mut random = Random::seeded(11);
        let mut counts = vec![0; records as usize];
        for _ in 0..draws {
            counts[chooser.next(records, &mut random) as usize] += 1;
        }
        counts
    }

    #[test]
    fn uniform_is_even() {
        let counts = counts(Distribution::Uniform, 100, 100_000);
        let chi_square: f64 = counts.iter().map(|&count| (count as f64 - 1000.0).powi(2) / 1000.0).sum();
        // 99 degrees of freedom: mean 99, standard deviation 14.
        assert!((50.0..170.0).contains(&chi_square), "{chi_square}");
    }

    #[test]
    fn hotspot_gets_its_share() {
        let counts = counts(Distribution::HOTSPOT, 1000, 100_000);
        let hot: u64 = counts[..200].iter().sum();
        assert!((79_000..81_000).contains(&hot), "{hot}");
        assert!(counts.iter().all(|&count| count > 0));
        let all_hot = RecordChooser::new(Distribution::Hotspot { hot_records: 1.0, hot_operations: 0.0 }, 5, 0, 0, 1);
        assert!(all_hot.unwrap().next(5, &mut Random::seeded(1)) < 5);
    }

    #[test]
    fn exponential_puts_95_percent_on_the_newest() {
        let counts = counts(Distribution::Exponential, 7000, 100_000);
        let newest: u64 = counts[1000..].iter().sum();
        // Draws beyond the oldest record (3 % of all) are drawn again, so a little above 95 %.
        assert!((95_000..99_000).contains(&newest), "{newest}");
        assert!(counts[6000..].iter().sum::<u64>() > counts[..1000].iter().sum::<u64>() * 5);
    }

    #[test]
    fn zipfian_stays_among_the_stored() {
        for distribution in [Distribution::Zipfian, Distribution::Zipf { exponent: 1.2 }] {
            let mut chooser = RecordChooser::new(distribution, 100, 900, 0, 1).unwrap();
            let mut random = Random::seeded(1);
            assert!((0..10_000).all(|_| chooser.next(100, &mut random) < 100));
        }
    }

    #[test]
    fn sequential_deals_out() {
        let mut second = RecordChooser::new(Distribution::Sequential, 6, 0, 1, 2).unwrap();
        let drawn: Vec<u64> = (0..4).map(|_| second.next(6, &mut Random::seeded(1))).collect();
        assert_eq!(drawn, [1, 3, 5, 1]);
    }

    #[test]
    fn names_round_trip() {
        for name in ["uniform", "zipfian", "zipf:1.2", "zipf:0", "latest", "hotspot", "exponential", "sequential"] {
            assert_eq!(name.parse::<Distribution>().unwrap().to_string(), name);
        }
        assert!("zipf".parse::<Distribution>().is_err() && "zipf:much".parse::<Distribution>().is_err());
        assert!(RecordChooser::new(Distribution::Zipf { exponent: 21.0 }, 5, 0, 0, 1).is_err());
        assert!(RecordChooser::new(Distribution::Uniform, 0, 0, 0, 1).is_err());
    }
}
