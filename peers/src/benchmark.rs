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
    /// The store that holds every key, and that overwrite has overwritten if it came before.
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
    /// Threads that overwrite beside them.
    pub(crate) writers_beside: usize,
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
    writers_beside: 0,
};

const READ_8MB: Benchmark = Benchmark { cache: CacheSize::Small, ..READ };

const SEEK_10: Benchmark = Benchmark { kind: DbBenchKind::SeekRandom, seek_nexts: 10, reads_divisor: 4, ..READ };

const SEEK_100: Benchmark = Benchmark { seek_nexts: 100, reads_divisor: 20, ..SEEK_10 };

const SEEK_10_8MB: Benchmark = Benchmark { cache: CacheSize::Small, ..SEEK_10 };

const SEEK_100_8MB: Benchmark = Benchmark { cache: CacheSize::Small, ..SEEK_100 };

const SCAN_8MB: Benchmark = Benchmark { kind: DbBenchKind::ReadSeq, ..READ_8MB };

const FILL: Benchmark =
    Benchmark { kind: DbBenchKind::FillRandom, start: Start::Empty, cache: CacheSize::Small, ..READ };

const FILL_SYNC: Benchmark = Benchmark { kind: DbBenchKind::FillSync, ..FILL };

/// Of a loaded store.
const CHANGE: Benchmark = Benchmark { start: Start::Loaded, ..FILL };

const READ_BESIDE: Benchmark = Benchmark { kind: DbBenchKind::ReadWhileWriting, writers_beside: 1, ..READ };

/// Benchmarks that are asked for together, under the name before them.
const SETS: [(&str, &[&str]); 7] = [
    ("fills", &["fillseq", "fillrandom", "overwrite"]),
    ("synced", &["fillsync", "fillsync-8-writers"]),
    ("writers", &["fillrandom", "fillrandom-2-writers", "fillrandom-4-writers", "readwhilewriting-2-and-2"]),
    (
        "cached",
        &[
            "readrandom-cached",
            "readmissing",
            "seekrandom10",
            "seekrandom100",
            "readseq",
            "readreverse",
            "readwhilewriting",
        ],
    ),
    (
        "past-cache",
        &[
            "readrandom-8mb",
            "readrandom-8mb-2-readers",
            "readrandom-8mb-4-readers",
            "seekrandom10-8mb",
            "seekrandom10-8mb-2-readers",
            "seekrandom10-8mb-4-readers",
            "seekrandom100-8mb",
            "seekrandom100-8mb-2-readers",
            "seekrandom100-8mb-4-readers",
            "readseq-8mb",
            "readseq-8mb-2-readers",
            "readseq-8mb-4-readers",
        ],
    ),
    ("direct", &["readrandom-direct"]),
    ("deletes", &["deleterandom", "deleteseq"]),
];

impl Benchmark {
    const fn of(name: &'static str, like: Benchmark) -> Benchmark {
        Benchmark { name, ..like }
    }

    const fn threads(name: &'static str, threads: usize, like: Benchmark) -> Benchmark {
        Benchmark { name, threads: Some(threads), ..like }
    }

    /// All, in the order they are run: what only reads before what leaves keys out.
    pub(crate) const ALL: [Benchmark; 30] = [
        Benchmark { name: "fillseq", kind: DbBenchKind::FillSeq, ..FILL },
        Benchmark::of("fillrandom", FILL),
        Benchmark::threads("fillrandom-2-writers", 2, FILL),
        Benchmark::threads("fillrandom-4-writers", 4, FILL),
        Benchmark::of("fillsync", FILL_SYNC),
        Benchmark::threads("fillsync-8-writers", 8, FILL_SYNC),
        Benchmark { name: "overwrite", kind: DbBenchKind::Overwrite, ..CHANGE },
        Benchmark::of("readrandom-cached", READ),
        Benchmark::of("readrandom-8mb", READ_8MB),
        Benchmark::threads("readrandom-8mb-2-readers", 2, READ_8MB),
        Benchmark::threads("readrandom-8mb-4-readers", 4, READ_8MB),
        Benchmark { name: "readrandom-direct", direct: true, reads_divisor: 10, ..READ_8MB },
        Benchmark { name: "readmissing", kind: DbBenchKind::ReadMissing, ..READ },
        Benchmark::of("seekrandom10", SEEK_10),
        Benchmark::of("seekrandom100", SEEK_100),
        Benchmark::of("seekrandom10-8mb", SEEK_10_8MB),
        Benchmark::threads("seekrandom10-8mb-2-readers", 2, SEEK_10_8MB),
        Benchmark::threads("seekrandom10-8mb-4-readers", 4, SEEK_10_8MB),
        Benchmark::of("seekrandom100-8mb", SEEK_100_8MB),
        Benchmark::threads("seekrandom100-8mb-2-readers", 2, SEEK_100_8MB),
        Benchmark::threads("seekrandom100-8mb-4-readers", 4, SEEK_100_8MB),
        Benchmark::of("readseq-8mb", SCAN_8MB),
        Benchmark::threads("readseq-8mb-2-readers", 2, SCAN_8MB),
        Benchmark::threads("readseq-8mb-4-readers", 4, SCAN_8MB),
        Benchmark { name: "readseq", kind: DbBenchKind::ReadSeq, ..READ },
        Benchmark { name: "readreverse", kind: DbBenchKind::ReadReverse, ..READ },
        Benchmark::of("readwhilewriting", READ_BESIDE),
        Benchmark { writers_beside: 2, ..Benchmark::threads("readwhilewriting-2-and-2", 2, READ_BESIDE) },
        Benchmark { name: "deleterandom", kind: DbBenchKind::DeleteRandom, ..CHANGE },
        Benchmark { name: "deleteseq", kind: DbBenchKind::DeleteSeq, ..CHANGE },
    ];

    /// Not measured: makes what others begin with.
    pub(crate) const LOAD: Benchmark = Benchmark { name: "load", kind: DbBenchKind::FillUniqueRandom, ..CHANGE };

    /// Changes the loaded store, so that another run of it needs a store loaded anew.
    pub(crate) fn changes_loaded(self) -> bool {
        self.start == Start::Loaded && self.kind.writes()
    }

    /// Leaves a store without some of its keys, which nobody else can begin with.
    pub(crate) fn removes_keys(self) -> bool {
        matches!(self.kind, DbBenchKind::DeleteRandom | DbBenchKind::DeleteSeq)
    }

    /// Puts as many pairs as there are keys, or deletes them, each by an operation of its own.
    pub(crate) fn writes_everything(self) -> bool {
        self.kind.writes() && !matches!(self.kind, DbBenchKind::FillSync | DbBenchKind::ReadWhileWriting)
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

/// What the command line names: a benchmark, a set of them, or `all`.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    name: String,
    benchmarks: Vec<Benchmark>,
}

impl Choice {
    /// What is run unless something else is asked for.
    pub(crate) const DEFAULT: &'static str = "all";

    /// The benchmarks of all choices, each once, in the order they are named in.
    pub(crate) fn benchmarks(choices: &[Choice]) -> Vec<Benchmark> {
        let mut benchmarks = Vec::new();
        for benchmark in choices.iter().flat_map(|choice| &choice.benchmarks) {
            if !benchmarks.contains(benchmark) {
                benchmarks.push(*benchmark);
            }
        }
        benchmarks
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Choice, String> {
        let is_named = |benchmark: &Benchmark| match SETS.iter().find(|(set, _)| *set == text) {
            Some((_, names)) => names.contains(&benchmark.name),
            None => text == Choice::DEFAULT || benchmark.name == text,
        };
        let benchmarks: Vec<Benchmark> = Benchmark::ALL.into_iter().filter(is_named).collect();
        if benchmarks.is_empty() {
            let sets = SETS.iter().map(|(set, _)| *set);
            let names: Vec<&str> = sets.chain(Benchmark::ALL.iter().map(|benchmark| benchmark.name)).collect();
            return Err(format!("'{text}' is none of all, {}", names.join(", ")));
        }
        Ok(Choice { name: text.to_owned(), benchmarks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_benchmark_is_in_a_set_and_every_name_of_a_set_is_one() {
        for (set, names) in SETS {
            let choice: Choice = set.parse().unwrap();
            assert_eq!(choice.benchmarks.len(), names.len(), "{set}");
        }
        for benchmark in Benchmark::ALL {
            assert!(SETS.iter().any(|(_, names)| names.contains(&benchmark.name)), "{benchmark}");
            assert_eq!(Benchmark::ALL.iter().filter(|other| other.name == benchmark.name).count(), 1, "{benchmark}");
        }
    }

    #[test]
    fn choices_add_up_in_the_order_they_are_named() {
        let choices: Vec<Choice> = ["synced", "fillseq", "fills"].iter().map(|name| name.parse().unwrap()).collect();
        let names: Vec<&str> = Choice::benchmarks(&choices).iter().map(|benchmark| benchmark.name).collect();
        assert_eq!(names, ["fillsync", "fillsync-8-writers", "fillseq", "fillrandom", "overwrite"]);
        let all: Choice = Choice::DEFAULT.parse().unwrap();
        assert_eq!(all.benchmarks, Benchmark::ALL);
        assert!("fill".parse::<Choice>().unwrap_err().contains("past-cache"));
    }
}
