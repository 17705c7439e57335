//! YCSB's core workloads: Load and A to F.
//!
//! Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010; proportions and
//! defaults as in the files `workloada` to `workloadf` of its distribution. One thing differs: a
//! record is one value (of `field_count * field_bytes` bytes) instead of fields, so an update writes
//! the whole record, as with `writeallfields=true`.

use super::{Operation, OperationKind, OperationStream, Workload};
use crate::error::LabError;
use crate::generator::{AcknowledgedCounter, Distribution, KeyFormat, RecordChooser, ValueGenerator};
use crate::target::Durability;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use varve_env::Random;

/// Which of YCSB's workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum YcsbMix {
    /// Inserts every record once.
    Load,
    /// Update heavy: 50 % reads, 50 % updates, zipfian.
    A,
    /// Read mostly: 95 % reads, 5 % updates, zipfian.
    B,
    /// Read only, zipfian.
    C,
    /// Read latest: 95 % reads, 5 % inserts, latest.
    D,
    /// Short ranges: 95 % scans of 1 to 100 records, 5 % inserts, zipfian.
    E,
    /// 50 % reads, 50 % read-modify-writes, zipfian.
    F,
}

impl YcsbMix {
    /// Load and A to F.
    pub const ALL: [YcsbMix; 7] =
        [YcsbMix::Load, YcsbMix::A, YcsbMix::B, YcsbMix::C, YcsbMix::D, YcsbMix::E, YcsbMix::F];

    /// The distribution its file asks for.
    pub fn distribution(self) -> Distribution {
        match self {
            YcsbMix::D => Distribution::Latest,
            YcsbMix::Load => Distribution::Sequential,
            _ => Distribution::Zipfian,
        }
    }

    /// Shares of 100 operations, by kind; what is missing to 100 are inserts.
    fn shares(self) -> &'static [(OperationKind, u64)] {
        match self {
            YcsbMix::Load => &[],
            YcsbMix::A => &[(OperationKind::Read, 50), (OperationKind::Update, 50)],
            YcsbMix::B => &[(OperationKind::Read, 95), (OperationKind::Update, 5)],
            YcsbMix::C => &[(OperationKind::Read, 100)],
            YcsbMix::D => &[(OperationKind::Read, 95)],
            YcsbMix::E => &[(OperationKind::Scan, 95)],
            YcsbMix::F => &[(OperationKind::Read, 50), (OperationKind::ReadModifyWrite, 50)],
        }
    }

    /// Share of inserts in 100 operations.
    fn inserts(self) -> u64 {
        100 - self.shares().iter().map(|&(_, share)| share).sum::<u64>()
    }
}

impl fmt::Display for YcsbMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            YcsbMix::Load => "load",
            YcsbMix::A => "a",
            YcsbMix::B => "b",
            YcsbMix::C => "c",
            YcsbMix::D => "d",
            YcsbMix::E => "e",
            YcsbMix::F => "f",
        })
    }
}

impl FromStr for YcsbMix {
    type Err = LabError;

    fn from_str(text: &str) -> Result<YcsbMix, LabError> {
        YcsbMix::ALL
            .into_iter()
            .find(|mix| mix.to_string() == text)
            .ok_or_else(|| LabError::invalid("YCSB workload", format!("'{text}' is none of load, a, b, c, d, e, f")))
    }
}

/// Sizes and choices of a YCSB workload.
#[derive(Clone, Debug, PartialEq)]
pub struct YcsbOptions {
    /// Records loaded before the workload runs (`recordcount`).
    pub records: u64,
    /// Operations of the run, over all threads (`operationcount`); a load does `records`.
    pub operations: u64,
    /// Bytes of a record's value (`fieldcount * fieldlength`; YCSB's default is 10 * 100).
    pub value_bytes: usize,
    /// Distribution of requests; unset is the one of the workload's file.
    pub distribution: Option<Distribution>,
    /// Longest scan of workload E; lengths are uniform from 1 (`maxscanlength`).
    pub scan_limit: u64,
    /// How records become keys.
    pub keys: KeyFormat,
    /// Size of values after compression, as a share.
    pub compression_ratio: f64,
    /// How durable writes are when acknowledged.
    pub durability: Durability,
    /// Everything random follows from it.
    pub seed: u64,
}

impl Default for YcsbOptions {
    fn default() -> YcsbOptions {
        YcsbOptions {
            records: 1000,
            operations: 1000,
            value_bytes: 1000,
            distribution: None,
            scan_limit: 100,
            keys: KeyFormat::YcsbHashed,
            compression_ratio: 0.5,
            durability: Durability::Buffered,
            seed: 0,
        }
    }
}

/// A YCSB workload, to be run once.
#[derive(Debug)]
pub struct Ycsb {
    name: String,
    mix: YcsbMix,
    options: YcsbOptions,
    inserted: Arc<AcknowledgedCounter>,
    values: Arc<ValueGenerator>,
}

impl Ycsb {
    /// The workload `mix` with these options.
    ///
    /// # Errors
    /// Options that make no workload.
    pub fn new(mix: YcsbMix, options: YcsbOptions) -> Result<Ycsb, LabError> {
        if options.records == 0 {
            return Err(LabError::invalid("record count", "YCSB needs at least one record"));
        }
        if options.scan_limit == 0 {
            return Err(LabError::invalid("scan length", "must be at least 1"));
        }
        options.keys.check(options.records.saturating_add(options.operations))?;
        let first = if mix == YcsbMix::Load { 0 } else { options.records };
        Ok(Ycsb {
            name: format!("ycsb-{mix}"),
            mix,
            inserted: Arc::new(AcknowledgedCounter::new(first)),
            values: Arc::new(ValueGenerator::new(options.seed, options.compression_ratio)?),
            options,
        })
    }

    /// Operations over all threads.
    pub fn operations(&self) -> u64 {
        if self.mix == YcsbMix::Load { self.options.records } else { self.options.operations }
    }

    /// What made its values, for readers who verify.
    pub fn values(&self) -> Arc<ValueGenerator> {
        Arc::clone(&self.values)
    }
}

impl Workload for Ycsb {
    fn name(&self) -> &str {
        &self.name
    }

    fn stream(&self, thread: usize, threads: usize) -> Result<Box<dyn OperationStream>, LabError> {
        // YCSB reserves space for twice the inserts it expects, so that popular records stay so.
        let expected = self.options.operations.saturating_mul(2 * self.mix.inserts()) / 100;
        let distribution = self.options.distribution.unwrap_or(self.mix.distribution());
        Ok(Box::new(YcsbStream {
            mix: self.mix,
            random: Random::named(self.options.seed, &format!("{} thread {thread}", self.name)),
            chooser: RecordChooser::new(distribution, self.options.records, expected, thread, threads)?,
            inserted: Arc::clone(&self.inserted),
            values: Arc::clone(&self.values),
            options: self.options.clone(),
        }))
    }
}

struct YcsbStream {
    mix: YcsbMix,
    random: Random,
    chooser: RecordChooser,
    inserted: Arc<AcknowledgedCounter>,
    values: Arc<ValueGenerator>,
    options: YcsbOptions,
}

impl YcsbStream {
    fn choose_kind(&mut self) -> OperationKind {
        if self.mix == YcsbMix::Load {
            return OperationKind::Insert;
        }
        let mut draw = self.random.below(100);
        for &(kind, share) in self.mix.shares() {
            if draw < share {
                return kind;
            }
            draw -= share;
        }
        OperationKind::Insert
    }

    fn write_value(&mut self, operation: &mut Operation) {
        let version = self.random.next_u64();
        self.values.write(&operation.key, version, self.options.value_bytes, &mut operation.value);
    }
}

impl OperationStream for YcsbStream {
    fn next(&mut self, operation: &mut Operation) -> bool {
        operation.kind = self.choose_kind();
        operation.durability = self.options.durability;
        if operation.kind == OperationKind::Insert {
            operation.record = self.inserted.take();
        } else {
            operation.record = self.chooser.next(self.inserted.acknowledged(), &mut self.random);
        }
        self.options.keys.write(operation.record, &mut operation.key);
        match operation.kind {
            OperationKind::Scan => operation.limit = 1 + self.random.below(self.options.scan_limit),
            OperationKind::Read => {}
            _ => self.write_value(operation),
        }
        true
    }

    fn acknowledge(&mut self, operation: &Operation) {
        if operation.kind == OperationKind::Insert {
            self.inserted.acknowledge(operation.record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(mix: YcsbMix, draws: usize) -> [usize; 7] {
        let workload =
            Ycsb::new(mix, YcsbOptions { records: 500, operations: 10_000, seed: 9, ..Default::default() }).unwrap();
        let mut stream = workload.stream(0, 1).unwrap();
        let mut operation = Operation::default();
        let mut counts = [0; 7];
        for _ in 0..draws {
            assert!(stream.next(&mut operation));
            counts[operation.kind.index()] += 1;
            assert!(operation.key.starts_with(b"user"));
            stream.acknowledge(&operation);
        }
        counts
    }

    #[test]
    fn proportions_are_those_of_the_files() {
        for mix in YcsbMix::ALL {
            let counts = kinds(mix, 10_000);
            for &(kind, share) in mix.shares() {
                let counted = counts[kind.index()] as i64;
                assert!(
                    (counted - 100 * share as i64).abs() < 250,
                    "{mix}: {kind:?} {counted} of 10,000, share {share} %"
                );
            }
            let inserts = counts[OperationKind::Insert.index()] as i64;
            assert!((inserts - 100 * mix.inserts() as i64).abs() < 250, "{mix}: {inserts} inserts");
        }
    }

    #[test]
    fn load_inserts_every_record_once() {
        let workload = Ycsb::new(YcsbMix::Load, YcsbOptions { records: 100, ..Default::default() }).unwrap();
        let mut streams: Vec<_> = (0..3).map(|thread| workload.stream(thread, 3).unwrap()).collect();
        let mut operation = Operation::default();
        let mut keys = std::collections::BTreeSet::new();
        for step in 0..100 {
            streams[step % 3].next(&mut operation);
            assert_eq!(operation.kind, OperationKind::Insert);
            assert!(workload.values().verify(&operation.key, &operation.value));
            keys.insert(operation.key.clone());
            streams[step % 3].acknowledge(&operation);
        }
        assert_eq!(keys.len(), 100);
    }

    #[test]
    fn scans_have_lengths_from_1_to_the_limit() {
        let workload =
            Ycsb::new(YcsbMix::E, YcsbOptions { records: 500, scan_limit: 7, ..Default::default() }).unwrap();
        let mut stream = workload.stream(0, 1).unwrap();
        let mut operation = Operation::default();
        let mut seen = [0; 8];
        for _ in 0..2000 {
            stream.next(&mut operation);
            if operation.kind == OperationKind::Scan {
                seen[operation.limit as usize] += 1;
            }
        }
        assert!(seen[0] == 0 && seen[1..].iter().all(|&count| count > 150), "{seen:?}");
    }

    #[test]
    fn same_seed_same_stream() {
        let stream = |seed| {
            let options = YcsbOptions { records: 1000, operations: 1000, seed, ..Default::default() };
            let mut stream = Ycsb::new(YcsbMix::A, options).unwrap().stream(1, 4).unwrap();
            let mut operation = Operation::default();
            let mut bytes = Vec::new();
            for _ in 0..50 {
                stream.next(&mut operation);
                bytes.extend_from_slice(&operation.key);
                bytes.extend_from_slice(&operation.value);
            }
            bytes
        };
        assert_eq!(stream(1), stream(1));
        assert_ne!(stream(1), stream(2));
    }

    #[test]
    fn bad_options_are_refused() {
        assert!(Ycsb::new(YcsbMix::A, YcsbOptions { records: 0, ..Default::default() }).is_err());
        assert!(Ycsb::new(YcsbMix::E, YcsbOptions { scan_limit: 0, ..Default::default() }).is_err());
        assert!("g".parse::<YcsbMix>().is_err());
        assert_eq!("load".parse::<YcsbMix>().unwrap(), YcsbMix::Load);
    }
}
