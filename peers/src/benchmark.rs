//! The benchmarks of the comparison.

use std::fmt;
use std::str::FromStr;
use varve_lab::workload::DbBenchKind;

/// How much block cache a benchmark gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheSize {
    /// 8 MiB, LevelDB's default.
    Small,
    /// Twice the data: everything stays in it.
    Everything,
}

/// What a benchmark begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// An empty store, removed afterwards.
    Empty,
    /// The store that holds every key, and that overwrite has overwritten.
    Loaded,
}

/// One benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Benchmark {
    pub(crate) name: &'static str,
    pub(crate) kind: DbBenchKind,
    pub(crate) start: Start,
    pub(crate) cache: CacheSize,
    pub(crate) seek_nexts: u64,
    /// Reads past the page cache; stores that cannot are left out.
    pub(crate) direct: bool,
    /// Operations are the reads wanted, divided by this.
    pub(crate) reads_divisor: u64,
    /// Threads in front, whatever the settings say.
    pub(crate) threads: Option<usize>,
}

const READ: Benchmark = Benchmark {
    name: "",
    kind: DbBenchKind::ReadRandom,
    start: Start::Loaded,
    cache: CacheSize::Everything,
    seek_nexts: 0,
    direct: false,
    reads_divisor: 1,
    threads: None,
};

const READ_8MB: Benchmark = Benchmark { cache: CacheSize::Small, ..READ };

const FILL: Benchmark = Benchmark { start: Start::Empty, cache: CacheSize::Small, ..READ };

impl Benchmark {
    /// All, in the order they are run.
    pub(crate) const ALL: [Benchmark; 19] = [
        Benchmark { name: "fillseq", kind: DbBenchKind::FillSeq, ..FILL },
        Benchmark { name: "fillrandom", kind: DbBenchKind::FillRandom, ..FILL },
        Benchmark { name: "fillsync", kind: DbBenchKind::FillSync, ..FILL },
        Benchmark { name: "overwrite", kind: DbBenchKind::Overwrite, start: Start::Loaded, ..FILL },
        Benchmark { name: "readrandom-cached", ..READ },
        Benchmark { name: "readrandom-8mb", ..READ_8MB },
        Benchmark { name: "readrandom-direct", cache: CacheSize::Small, direct: true, reads_divisor: 10, ..READ },
        Benchmark { name: "readmissing", kind: DbBenchKind::ReadMissing, ..READ },
        Benchmark { name: "seekrandom10", kind: DbBenchKind::SeekRandom, seek_nexts: 10, reads_divisor: 4, ..READ },
        Benchmark { name: "seekrandom100", kind: DbBenchKind::SeekRandom, seek_nexts: 100, reads_divisor: 20, ..READ },
        Benchmark {
            name: "seekrandom10-8mb",
            kind: DbBenchKind::SeekRandom,
            seek_nexts: 10,
            reads_divisor: 4,
            ..READ_8MB
        },
        Benchmark {
            name: "seekrandom100-8mb",
            kind: DbBenchKind::SeekRandom,
            seek_nexts: 100,
            reads_divisor: 20,
            ..READ_8MB
        },
        Benchmark { name: "readrandom-8mb-2-readers", threads: Some(2), ..READ_8MB },
        Benchmark { name: "readrandom-8mb-4-readers", threads: Some(4), ..READ_8MB },
        Benchmark {
            name: "seekrandom10-8mb-2-readers",
            kind: DbBenchKind::SeekRandom,
            seek_nexts: 10,
            reads_divisor: 4,
            threads: Some(2),
            ..READ_8MB
        },
        Benchmark { name: "readseq-8mb", kind: DbBenchKind::ReadSeq, ..READ_8MB },
        Benchmark { name: "readseq", kind: DbBenchKind::ReadSeq, ..READ },
        Benchmark { name: "readreverse", kind: DbBenchKind::ReadReverse, ..READ },
        Benchmark { name: "readwhilewriting", kind: DbBenchKind::ReadWhileWriting, ..READ },
    ];

    /// Changes the loaded store, so that a repetition needs a store loaded anew.
    pub(crate) fn changes_loaded(self) -> bool {
        self.start == Start::Loaded && self.kind.writes()
    }

    /// Begins with everything read once.
    pub(crate) fn wants_warm_cache(self) -> bool {
        self.start == Start::Loaded && self.cache == CacheSize::Everything
    }
}

impl fmt::Display for Benchmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl FromStr for Benchmark {
    type Err = String;

    fn from_str(text: &str) -> Result<Benchmark, String> {
        Benchmark::ALL.into_iter().find(|benchmark| benchmark.name == text).ok_or_else(|| {
            let names: Vec<&str> = Benchmark::ALL.iter().map(|benchmark| benchmark.name).collect();
            format!("'{text}' is none of {}", names.join(", "))
        })
    }
}
