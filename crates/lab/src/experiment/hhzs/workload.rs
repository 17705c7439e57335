//! What is done to a loaded database: shares of gets and puts, which records, how many.

use super::settings::{CACHE_BYTES, DISK_READ_SECONDS, PAIRS, RECORD_COPY_BYTES, SSD_ZONE_BYTES, SSD_ZONES};
use super::similarity::Popularity;
use crate::error::LabError;
use crate::experiment::Scale;
use crate::generator::{Distribution, HashedZipf, RecordChooser};
use varve::env::Random;

/// Pairs in a block of 4 KiB, and its bytes with what the cache counts beside them.
pub(super) const PAIRS_OF_BLOCK: f64 = 4.0;
pub(super) const BLOCK_BYTES: f64 = 4140.0;

/// Zones of a full drive that hold tables when a run begins, and tables of the load, as bounds count them.
const FULL_DRIVE_TABLES: f64 = (SSD_ZONES - 2) as f64;
pub(super) const TABLES: f64 = 202.0;

/// Number of ranks of YCSB's scrambled zipfian generator, which takes exponents below 1.
const YCSB_RANKS: u64 = 10_000_000_000;

/// Memory that Adaptive's index takes per copy in a cache zone, in bytes.
const INDEX_ENTRY_BYTES: u64 = 16;

/// Maximum number of cache zones: all but one for logs, one that is empty, and one for tables.
const CACHE_ZONES_MAX: u64 = SSD_ZONES - 3;

/// Memory for the block cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// "The in-memory block cache is 8 MiB".
    Paper,
    /// A block cache enlarged by Adaptive's index at its largest, when copies of records fill the maximum number of cache zones:
    /// 282 MB more.
    OfIndex,
}

impl Memory {
    /// Full-size block cache, in bytes.
    pub(super) fn cache_bytes(self) -> u64 {
        match self {
            Memory::Paper => CACHE_BYTES,
            Memory::OfIndex => CACHE_BYTES + CACHE_ZONES_MAX * SSD_ZONE_BYTES / RECORD_COPY_BYTES * INDEX_ENTRY_BYTES,
        }
    }
}

/// Random choice of records.
#[derive(Clone, Debug)]
pub(super) enum Chooser {
    Named(RecordChooser),
    Hashed(HashedZipf),
}

impl Chooser {
    /// Draws the next record out of `stored` records.
    pub(super) fn next(&mut self, stored: u64, random: &mut Random) -> u64 {
        match self {
            Chooser::Named(chooser) => chooser.next(stored, random),
            Chooser::Hashed(hashed) => hashed.next(random).min(stored.saturating_sub(1)),
        }
    }
}

/// Distribution of the requested records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Choice {
    /// Zipf of this exponent over all records, each with one rank.
    Zipf(f64),
    /// Zipf over ranks that are hashed to records, as in the authors' YCSB: 10^10 ranks for exponents below 1, otherwise as many
    /// ranks as records.
    Hashed(f64),
    /// The newest most often (YCSB, constant 0.99).
    Latest,
}

impl Choice {
    /// Returns a random choice out of `records` records at a scale.
    ///
    /// # Errors
    /// No records.
    pub(super) fn chooser(self, records: u64, scale: Scale) -> Result<Chooser, LabError> {
        let named = |distribution| RecordChooser::new(distribution, records, 0, 0, 1).map(Chooser::Named);
        match self {
            Choice::Zipf(exponent) => named(Distribution::Zipf { exponent }),
            Choice::Hashed(exponent) => {
                HashedZipf::new(records, scale.of(Choice::ranks(exponent)), exponent).map(Chooser::Hashed)
            }
            Choice::Latest => named(Distribution::Latest),
        }
    }

    /// Full-size number of hashed ranks. A scale divides it, so that the ranks per record stay.
    fn ranks(exponent: f64) -> u64 {
        if exponent < 1.0 { YCSB_RANKS } else { PAIRS }
    }

    /// How skewed it is.
    fn exponent(self) -> f64 {
        match self {
            Choice::Zipf(exponent) | Choice::Hashed(exponent) => exponent,
            Choice::Latest => 0.99,
        }
    }
}

/// What a put changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Put {
    /// A record that is there.
    Update,
    /// One that was not.
    Insert,
    /// The one that was read last.
    ReadModifyWrite,
}

/// A workload of the paper, in full.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    /// Operations; of each hundred so many read, and so many write.
    pub(super) operations: u64,
    pub(super) reads_percent: u64,
    pub(super) writes_percent: u64,
    pub(super) put: Put,
    pub(super) choice: Choice,
    /// Pairs that a read visits at most; 0 is a get.
    pub(super) scan_pairs_max: u64,
}

impl Workload {
    /// Reads and updates of Zipf.
    pub(super) const fn mix(name: &'static str, operations: u64, reads_percent: u64, exponent: f64) -> Workload {
        Workload {
            name,
            operations,
            reads_percent,
            writes_percent: 100 - reads_percent,
            put: Put::Update,
            choice: Choice::Zipf(exponent),
            scan_pairs_max: 0,
        }
    }

    /// YCSB's core workloads (exp 1).
    pub(super) const YCSB: [Workload; 6] = [
        Workload::mix("A", 1_000_000, 50, 0.9),
        Workload::mix("B", 1_000_000, 95, 0.9),
        Workload::mix("C", 1_000_000, 100, 0.9),
        Workload { put: Put::Insert, choice: Choice::Latest, ..Workload::mix("D", 1_000_000, 95, 0.9) },
        Workload { put: Put::Insert, scan_pairs_max: 100, ..Workload::mix("E", 1_000_000, 95, 0.9) },
        Workload {
            put: Put::ReadModifyWrite,
            reads_percent: 100,
            writes_percent: 50,
            ..Workload::mix("F", 1_000_000, 50, 0.9)
        },
    ];

    /// Those of the breakdown (exp 2).
    pub(super) const BREAKDOWN: [Workload; 4] = [
        Workload::mix("W1", 5_000_000, 10, 0.9),
        Workload::mix("W2", 5_000_000, 50, 0.9),
        Workload::mix("W3", 5_000_000, 50, 1.2),
        Workload::mix("W4", 5_000_000, 100, 1.2),
    ];

    /// The same workload with hashed ranks, as the authors' YCSB draws them.
    pub(super) fn hashed(self) -> Workload {
        match self.choice {
            Choice::Zipf(exponent) => Workload { choice: Choice::Hashed(exponent), ..self },
            _ => self,
        }
    }

    fn popularity(&self, scale: Scale) -> Popularity {
        let (records, exponent) = (scale.of(PAIRS), self.choice.exponent());
        match self.choice {
            Choice::Hashed(_) => {
                Popularity::hashed(records, scale.of(Choice::ranks(exponent)), exponent, PAIRS_OF_BLOCK)
            }
            _ => Popularity::new(records, exponent, PAIRS_OF_BLOCK),
        }
    }

    /// Operations a second of the full size below which no scheme can be slow enough to fall short of, and none can be faster: each
    /// block that no earlier operation of the run touched and that a full drive did not hold at its begin costs one lone read of the
    /// disk, everything else nothing. `None` for scans, of which a model would have to say how they cross blocks.
    pub(super) fn bound(&self) -> Option<f64> {
        let (operations, full) = (self.operations as f64, self.popularity(Scale::FULL));
        let on_drive = FULL_DRIVE_TABLES / TABLES;
        let first = match self.choice {
            _ if self.scan_pairs_max > 0 => return None,
            Choice::Zipf(_) | Choice::Hashed(_) => full.first_touches(operations) * (1.0 - on_drive),
            // The drive holds the newest.
            Choice::Latest => full.first_touches_above(operations, PAIRS as f64 * on_drive),
        };
        Some(100.0 / (first * self.reads_percent as f64 * DISK_READ_SECONDS))
    }

    /// The run that represents it at a scale, with the paper's memory.
    pub(super) fn at(&self, scale: Scale) -> ScaledWorkload {
        self.at_with(scale, Memory::Paper)
    }

    /// The run that represents it at a scale, with the given memory. Sums count one block per get: without filters a get also reads
    /// blocks of levels above its key's.
    pub(super) fn at_with(&self, scale: Scale, memory: Memory) -> ScaledWorkload {
        let (full, small) = (self.popularity(Scale::FULL), self.popularity(scale));
        let (operations, cache_blocks) = (self.operations as f64, memory.cache_bytes() as f64 / BLOCK_BYTES);
        let (hits, first) = (full.cache_hits(cache_blocks), full.first_touches(operations));
        let (blocks, touches) = match scale.denominator() {
            1 => (cache_blocks, operations),
            _ => (small.blocks_for_hits(hits), small.requests_for_first_touches(first)),
        };
        let reads_in_full = self.operations * self.reads_percent / 100;
        ScaledWorkload {
            workload: *self,
            scale,
            memory,
            cache_bytes: (blocks * BLOCK_BYTES) as u64,
            reads: ((touches * self.reads_percent as f64 / 100.0) as u64)
                .clamp(u64::from(reads_in_full > 0), reads_in_full.max(1)),
            reads_in_full,
            writes: scale.of(self.operations * self.writes_percent / 100),
            cache_hits: hits,
            first_touches: first,
        }
    }
}

/// A workload at a scale: puts of the full size by the scale, and as many gets as have its share of first touches, each of which
/// stands for several.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ScaledWorkload {
    pub(super) workload: Workload,
    pub(super) scale: Scale,
    pub(super) memory: Memory,
    pub(super) cache_bytes: u64,
    pub(super) reads: u64,
    pub(super) reads_in_full: u64,
    pub(super) writes: u64,
    /// Shares of the full size, which this has too.
    pub(super) cache_hits: f64,
    pub(super) first_touches: f64,
}

impl ScaledWorkload {
    /// A workload that goes on as long as it takes: reads and writes by the scale.
    pub(super) fn long(workload: &Workload, scale: Scale, memory: Memory) -> ScaledWorkload {
        let short = workload.at_with(scale, memory);
        ScaledWorkload { reads: scale.of(short.reads_in_full), ..short }
    }

    /// Reads of the full size that one stands for, in the time that is divided by the scale as everything is.
    pub(super) fn reads_to_one(&self) -> f64 {
        self.reads_in_full as f64 / self.reads.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bounds of these workloads as they were computed apart.
    #[test]
    fn bounds_are_those_that_are_known() {
        let expected = [Some(383.0), Some(201.0), Some(191.0), Some(974.0), None, Some(191.0)];
        for (workload, expected) in Workload::YCSB.iter().zip(expected) {
            let bound = workload.bound();
            let off = bound.zip(expected).map_or(0.0, |(bound, expected)| bound / expected - 1.0);
            // What a full drive holds of the newest records can be counted with or without the zones of logs.
            assert!(bound.is_some() == expected.is_some() && off.abs() < 0.07, "{}: {bound:?}", workload.name);
        }
        let bound = Workload::BREAKDOWN[3].bound().unwrap();
        assert!((bound / 1542.0 - 1.0).abs() < 0.06, "{bound}");
    }

    #[test]
    fn runs_have_the_shares_of_the_full_size() {
        let scaled = Workload::YCSB[2].at(Scale::one_in(64));
        assert!((scaled.cache_hits - 0.115).abs() < 0.02 && (scaled.first_touches - 0.67).abs() < 0.01, "{scaled:?}");
        assert!(scaled.cache_bytes > CACHE_BYTES / 64 && scaled.reads > 1_000_000 / 64, "{scaled:?}");
        assert_eq!(Workload::YCSB[0].at(Scale::FULL).reads, 500_000);
        assert_eq!(Workload::YCSB[0].at(Scale::one_in(64)).writes, 500_000 / 64);
    }
}
