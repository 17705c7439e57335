//! The workloads of LevelDB's and RocksDB's `db_bench`, under their names.

use super::{Operation, OperationKind, OperationStream, Workload, share};
use crate::error::LabError;
use crate::generator::{KeyFormat, Permutation, ValueGenerator};
use crate::target::{Change, Direction, Durability};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use varve_env::Random;

/// Which of the benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DbBenchKind {
    /// Writes keys 0, 1, 2, ... once each.
    FillSeq,
    /// Writes as many keys as there are, each drawn at random; about 63 % of the keys are there then.
    FillRandom,
    /// Writes every key once, in random order.
    FillUniqueRandom,
    /// The same, each write synced; a hundredth of the operations unless told otherwise.
    FillSync,
    /// Like fillrandom, on a store that has the keys.
    Overwrite,
    /// Reads keys drawn at random.
    ReadRandom,
    /// Reads keys that are not there but lie between those that are.
    ReadMissing,
    /// Reads everything forward.
    ReadSeq,
    /// Reads everything backward.
    ReadReverse,
    /// Seeks to keys drawn at random and reads on.
    SeekRandom,
    /// Deletes keys drawn at random.
    DeleteRandom,
    /// Deletes keys 0, 1, 2, ...
    DeleteSeq,
    /// Reads keys drawn at random while one more thread overwrites.
    ReadWhileWriting,
}

impl DbBenchKind {
    /// Every benchmark.
    pub const ALL: [DbBenchKind; 13] = [
        DbBenchKind::FillSeq,
        DbBenchKind::FillRandom,
        DbBenchKind::FillUniqueRandom,
        DbBenchKind::FillSync,
        DbBenchKind::Overwrite,
        DbBenchKind::ReadRandom,
        DbBenchKind::ReadMissing,
        DbBenchKind::ReadSeq,
        DbBenchKind::ReadReverse,
        DbBenchKind::SeekRandom,
        DbBenchKind::DeleteRandom,
        DbBenchKind::DeleteSeq,
        DbBenchKind::ReadWhileWriting,
    ];

    /// Begins with an empty store.
    pub fn wants_empty_store(self) -> bool {
        matches!(
            self,
            DbBenchKind::FillSeq | DbBenchKind::FillRandom | DbBenchKind::FillUniqueRandom | DbBenchKind::FillSync
        )
    }

    /// Changes the store.
    pub fn writes(self) -> bool {
        !matches!(
            self,
            DbBenchKind::ReadRandom
                | DbBenchKind::ReadMissing
                | DbBenchKind::ReadSeq
                | DbBenchKind::ReadReverse
                | DbBenchKind::SeekRandom
        )
    }

    /// Visits the store once from one end to the other.
    pub fn is_full_scan(self) -> bool {
        matches!(self, DbBenchKind::ReadSeq | DbBenchKind::ReadReverse)
    }
}

impl fmt::Display for DbBenchKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DbBenchKind::FillSeq => "fillseq",
            DbBenchKind::FillRandom => "fillrandom",
            DbBenchKind::FillUniqueRandom => "filluniquerandom",
            DbBenchKind::FillSync => "fillsync",
            DbBenchKind::Overwrite => "overwrite",
            DbBenchKind::ReadRandom => "readrandom",
            DbBenchKind::ReadMissing => "readmissing",
            DbBenchKind::ReadSeq => "readseq",
            DbBenchKind::ReadReverse => "readreverse",
            DbBenchKind::SeekRandom => "seekrandom",
            DbBenchKind::DeleteRandom => "deleterandom",
            DbBenchKind::DeleteSeq => "deleteseq",
            DbBenchKind::ReadWhileWriting => "readwhilewriting",
        })
    }
}

impl FromStr for DbBenchKind {
    type Err = LabError;

    fn from_str(text: &str) -> Result<DbBenchKind, LabError> {
        DbBenchKind::ALL.into_iter().find(|kind| kind.to_string() == text).ok_or_else(|| {
            let names: Vec<String> = DbBenchKind::ALL.iter().map(ToString::to_string).collect();
            LabError::invalid("benchmark", format!("'{text}' is none of {}", names.join(", ")))
        })
    }
}

/// Sizes and choices of the benchmarks, under db_bench's names where it has one.
#[derive(Clone, Debug, PartialEq)]
pub struct DbBenchOptions {
    /// Keys (`num`).
    pub num: u64,
    /// Operations of the reading benchmarks over all threads; unset is `num` (`reads`). Full scans read
    /// everything whatever it is.
    pub reads: Option<u64>,
    /// Writes of fillsync over all threads; unset is a hundredth of `num`, at least 1.
    pub sync_writes: Option<u64>,
    /// Bytes of a key (`key_size`).
    pub key_size: usize,
    /// Bytes of a value (`value_size`).
    pub value_size: usize,
    /// Puts or deletes in one write (`batch_size`).
    pub batch_size: usize,
    /// Pairs visited after a seek (`seek_nexts`).
    pub seek_nexts: u64,
    /// Direction of seekrandom's scans (`reverse_iterator`).
    pub direction: Direction,
    /// Size of values after compression, as a share (`compression_ratio`).
    pub compression_ratio: f64,
    /// How durable writes are when acknowledged (`sync`); fillsync is always synced.
    pub durability: Durability,
    /// Everything random follows from it.
    pub seed: u64,
}

impl Default for DbBenchOptions {
    fn default() -> DbBenchOptions {
        DbBenchOptions {
            num: 1_000_000,
            reads: None,
            sync_writes: None,
            key_size: 16,
            value_size: 100,
            batch_size: 1,
            seek_nexts: 0,
            direction: Direction::Forward,
            compression_ratio: 0.5,
            durability: Durability::Buffered,
            seed: 0,
        }
    }
}

impl DbBenchOptions {
    /// Operations a benchmark does over all threads.
    pub fn operations(&self, kind: DbBenchKind) -> u64 {
        match kind {
            DbBenchKind::FillSync => self.sync_writes.unwrap_or((self.num / 100).max(1)),
            _ if !kind.writes() || kind == DbBenchKind::ReadWhileWriting => self.reads.unwrap_or(self.num),
            _ => self.num,
        }
    }

    /// Bytes of all keys and values when every key is there once.
    pub fn data_bytes(&self) -> u64 {
        self.num.saturating_mul((self.key_size + self.value_size) as u64)
    }
}

/// One benchmark, to be run once. For [`DbBenchKind::ReadWhileWriting`] this is the readers' part;
/// the writer's is [`DbBench::writer`].
#[derive(Debug)]
pub struct DbBench {
    name: String,
    kind: DbBenchKind,
    options: DbBenchOptions,
    keys: KeyFormat,
    values: Arc<ValueGenerator>,
}

impl DbBench {
    /// The benchmark `kind` with these options.
    ///
    /// # Errors
    /// Options that make no benchmark.
    pub fn new(kind: DbBenchKind, options: DbBenchOptions) -> Result<DbBench, LabError> {
        let keys = KeyFormat::Decimal { width_bytes: options.key_size };
        keys.check(options.num)?;
        if options.num == 0 || options.batch_size == 0 {
            return Err(LabError::invalid("benchmark", "num and batch_size must be at least 1"));
        }
        Ok(DbBench {
            name: kind.to_string(),
            kind,
            keys,
            values: Arc::new(ValueGenerator::new(options.seed, options.compression_ratio)?),
            options,
        })
    }

    /// The overwriting thread beside the readers of readwhilewriting. Its stream has no end.
    pub fn writer(&self) -> DbBench {
        DbBench {
            name: "writer".to_owned(),
            kind: DbBenchKind::Overwrite,
            options: self.options.clone(),
            keys: self.keys,
            values: Arc::clone(&self.values),
        }
    }

    /// What makes its values, for readers who verify.
    pub fn values(&self) -> Arc<ValueGenerator> {
        Arc::clone(&self.values)
    }
}

impl Workload for DbBench {
    fn name(&self) -> &str {
        &self.name
    }

    fn stream(&self, thread: usize, threads: usize) -> Result<Box<dyn OperationStream>, LabError> {
        let durability = if self.kind == DbBenchKind::FillSync { Durability::Synced } else { self.options.durability };
        // Sequential keys are dealt out in runs, one run to a thread.
        let first = (0..thread).map(|earlier| share(self.options.num, earlier, threads)).sum();
        Ok(Box::new(DbBenchStream {
            kind: self.kind,
            random: Random::named(self.options.seed, &format!("{} thread {thread}", self.name)),
            keys: self.keys,
            values: Arc::clone(&self.values),
            order: Permutation::new(self.options.num, self.options.seed),
            next: first,
            durability,
            scanned: false,
            options: self.options.clone(),
        }))
    }
}

struct DbBenchStream {
    kind: DbBenchKind,
    random: Random,
    keys: KeyFormat,
    values: Arc<ValueGenerator>,
    order: Permutation,
    next: u64,
    durability: Durability,
    scanned: bool,
    options: DbBenchOptions,
}

impl DbBenchStream {
    fn next_number(&mut self) -> u64 {
        match self.kind {
            DbBenchKind::FillSeq | DbBenchKind::DeleteSeq => {
                let number = self.next % self.options.num;
                self.next += 1;
                number
            }
            DbBenchKind::FillUniqueRandom => {
                let number = self.order.of(self.next % self.options.num);
                self.next += 1;
                number
            }
            _ => self.random.below(self.options.num),
        }
    }

    fn single(&mut self, operation: &mut Operation, kind: OperationKind) {
        operation.kind = kind;
        let number = self.next_number();
        self.keys.write(number, &mut operation.key);
        if kind != OperationKind::Delete {
            let version = self.random.next_u64();
            self.values.write(&operation.key, version, self.options.value_size, &mut operation.value);
        }
    }

    /// Fills the changes in place, so that their buffers are used again.
    fn batch(&mut self, operation: &mut Operation, kind: OperationKind) {
        operation.kind = OperationKind::Batch;
        let is_delete = kind == OperationKind::Delete;
        operation.changes.resize_with(self.options.batch_size, || {
            if is_delete {
                Change::Delete { key: Vec::new() }
            } else {
                Change::Put { key: Vec::new(), value: Vec::new() }
            }
        });
        for index in 0..self.options.batch_size {
            let number = self.next_number();
            let version = self.random.next_u64();
            match &mut operation.changes[index] {
                Change::Put { key, value } => {
                    self.keys.write(number, key);
                    self.values.write(key, version, self.options.value_size, value);
                }
                Change::Delete { key } => self.keys.write(number, key),
            }
        }
    }

    fn write(&mut self, operation: &mut Operation, kind: OperationKind) {
        if self.options.batch_size == 1 { self.single(operation, kind) } else { self.batch(operation, kind) }
    }
}

impl OperationStream for DbBenchStream {
    fn next(&mut self, operation: &mut Operation) -> bool {
        operation.durability = self.durability;
        match self.kind {
            DbBenchKind::FillSeq | DbBenchKind::FillRandom | DbBenchKind::FillUniqueRandom | DbBenchKind::FillSync => {
                self.write(operation, OperationKind::Insert);
            }
            DbBenchKind::Overwrite => self.write(operation, OperationKind::Update),
            DbBenchKind::DeleteRandom | DbBenchKind::DeleteSeq => self.write(operation, OperationKind::Delete),
            DbBenchKind::ReadRandom | DbBenchKind::ReadWhileWriting => {
                operation.kind = OperationKind::Read;
                let number = self.next_number();
                self.keys.write(number, &mut operation.key);
            }
            DbBenchKind::ReadMissing => {
                operation.kind = OperationKind::Read;
                let number = self.next_number();
                self.keys.write_missing(number, &mut operation.key);
            }
            DbBenchKind::SeekRandom => {
                operation.kind = OperationKind::Scan;
                let number = self.next_number();
                self.keys.write(number, &mut operation.key);
                operation.from_end = false;
                operation.count_pairs = false;
                operation.direction = self.options.direction;
                // The pair the seek lands on is read too, as in db_bench.
                operation.limit = 1 + self.options.seek_nexts;
            }
            DbBenchKind::ReadSeq | DbBenchKind::ReadReverse => {
                if std::mem::replace(&mut self.scanned, true) {
                    return false;
                }
                operation.kind = OperationKind::Scan;
                operation.from_end = true;
                operation.count_pairs = true;
                operation.direction =
                    if self.kind == DbBenchKind::ReadSeq { Direction::Forward } else { Direction::Reverse };
                operation.limit = u64::MAX;
            }
        }
        true
    }

    fn acknowledge(&mut self, _operation: &Operation) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn options() -> DbBenchOptions {
        DbBenchOptions { num: 1000, value_size: 64, seed: 3, ..DbBenchOptions::default() }
    }

    #[test]
    fn fillseq_and_filluniquerandom_deal_out_every_key_once() {
        for kind in [DbBenchKind::FillSeq, DbBenchKind::FillUniqueRandom] {
            let workload = DbBench::new(kind, options()).unwrap();
            let mut keys = BTreeSet::new();
            let mut operation = Operation::default();
            let mut ascending = 0;
            for thread in 0..3 {
                let mut stream = workload.stream(thread, 3).unwrap();
                for _ in 0..share(1000, thread, 3) {
                    let last = operation.key.clone();
                    assert!(stream.next(&mut operation));
                    ascending += u32::from(operation.key > last);
                    assert!(workload.values().verify(&operation.key, &operation.value));
                    keys.insert(operation.key.clone());
                }
            }
            assert_eq!(keys.len(), 1000);
            let expected = if kind == DbBenchKind::FillSeq { 1000..=1000 } else { 400..=600 };
            assert!(expected.contains(&ascending), "{kind}: {ascending} keys above the one before");
        }
    }

    #[test]
    fn batches_hold_as_many_changes_as_asked() {
        let options = DbBenchOptions { batch_size: 5, ..options() };
        for (kind, is_put) in [(DbBenchKind::FillRandom, true), (DbBenchKind::DeleteRandom, false)] {
            let mut stream = DbBench::new(kind, options.clone()).unwrap().stream(0, 1).unwrap();
            let mut operation = Operation::default();
            stream.next(&mut operation);
            assert_eq!(operation.kind, OperationKind::Batch);
            assert_eq!(operation.changes.len(), 5);
            assert!(operation.changes.iter().all(|change| matches!(change, Change::Put { .. }) == is_put));
        }
    }

    #[test]
    fn every_kind_has_a_stream_and_a_name() {
        let mut operation = Operation::default();
        for kind in DbBenchKind::ALL {
            assert_eq!(kind.to_string().parse::<DbBenchKind>().unwrap(), kind);
            let mut stream = DbBench::new(kind, options()).unwrap().stream(0, 1).unwrap();
            assert!(stream.next(&mut operation), "{kind}");
            assert_eq!(stream.next(&mut operation), !kind.is_full_scan(), "{kind}");
            assert_eq!(operation.durability == Durability::Synced, kind == DbBenchKind::FillSync, "{kind}");
        }
        assert!("fillfast".parse::<DbBenchKind>().is_err());
    }

    #[test]
    fn counts_and_bad_options() {
        assert_eq!(options().operations(DbBenchKind::FillSync), 10);
        assert_eq!(DbBenchOptions { reads: Some(7), ..options() }.operations(DbBenchKind::SeekRandom), 7);
        assert_eq!(DbBenchOptions { reads: Some(7), ..options() }.operations(DbBenchKind::Overwrite), 1000);
        assert_eq!(options().data_bytes(), 80_000);
        assert!(DbBench::new(DbBenchKind::FillSeq, DbBenchOptions { key_size: 2, ..options() }).is_err());
        assert!(DbBench::new(DbBenchKind::FillSeq, DbBenchOptions { num: 0, ..options() }).is_err());
    }
}
