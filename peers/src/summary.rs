//! What runs come to: rows of a report.

use crate::child::Answer;
use crate::comparison::Settings;
use crate::tables;
use std::collections::BTreeMap;
use varve_lab::report::{Report, Row};

/// One undisturbed run, or the least disturbed one of a repetition that had none.
pub(crate) struct Run {
    pub(crate) answer: Answer,
    pub(crate) disturbance: f64,
    pub(crate) discarded: u32,
}

/// Whose runs they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) value_size: usize,
    pub(crate) benchmark: &'static str,
    /// The store's, in the list of those that are compared.
    pub(crate) place: usize,
}

pub(crate) type Runs = BTreeMap<Key, Vec<Run>>;

/// Metrics that tables are made of.
pub(crate) const THROUGHPUT: &str = "throughput";
pub(crate) const CPU: &str = "CPU";
pub(crate) const P50: &str = "p50";
pub(crate) const PUTS_BESIDE: &str = "puts beside";
pub(crate) const CPU_OF_BOTH: &str = "CPU of reads and puts";
pub(crate) const WRITE_AMPLIFICATION: &str = "write amplification";
pub(crate) const INSTRUCTIONS: &str = "instructions";

/// A name, a unit, and where the number is.
type Metric = (&'static str, &'static str, fn(&Answer) -> Option<f64>);

/// What is reported of every benchmark, when it is there.
const METRICS: [Metric; 13] = [
    (THROUGHPUT, "op/s", |answer| Some(answer.phase.operations_per_second)),
    (CPU, "us/op", |answer| answer.phase.cpu_nanos_per_operation.map(|nanos| nanos / 1e3)),
    (P50, "us", |answer| answer.phase.main_latency().map(|latency| latency.p50_nanos as f64 / 1e3)),
    ("p99", "us", |answer| answer.phase.main_latency().map(|latency| latency.p99_nanos as f64 / 1e3)),
    ("p99.99", "us", |answer| answer.phase.main_latency().map(|latency| latency.p9999_nanos as f64 / 1e3)),
    (WRITE_AMPLIFICATION, "1", |answer| answer.phase.amplification.write_process),
    ("space amplification", "1", |answer| answer.phase.amplification.space.filter(|_| wrote(answer))),
    ("time to idle", "s", |answer| wrote(answer).then_some(answer.phase.idle_nanos as f64 / 1e9)),
    ("memory at the end", "MiB", |answer| answer.phase.memory.map(|memory| mebibytes(memory.resident_bytes))),
    ("peak memory", "MiB", |answer| {
        answer.phase.memory.filter(|_| wrote(answer)).map(|memory| mebibytes(memory.peak_bytes))
    }),
    (PUTS_BESIDE, "op/s", |answer| {
        let seconds = answer.phase.elapsed_nanos as f64 / 1e9;
        (seconds > 0.0).then_some(operations_beside(answer)? as f64 / seconds)
    }),
    (CPU_OF_BOTH, "us/op", |answer| {
        let operations = (answer.phase.operations + operations_beside(answer)?) as f64;
        let nanos = answer.phase.cpu_nanos? + answer.phase.idle_cpu_nanos?;
        Some(nanos as f64 / 1e3 / operations)
    }),
    ("open", "ms", |answer| Some(answer.open_nanos as f64 / 1e6)),
];

fn wrote(answer: &Answer) -> bool {
    answer.phase.user_written_bytes > 0
}

/// Operations of the threads that write beside the readers, where there are any.
fn operations_beside(answer: &Answer) -> Option<u64> {
    let beside = answer.phase.groups.iter().filter(|group| group.background).map(|group| group.operations).sum();
    (beside > 0).then_some(beside)
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

/// Turns runs into rows: medians with their lowest and highest.
pub(crate) fn summarise(settings: &Settings, runs: &Runs, report: &mut Report) {
    for &value_size in &settings.value_sizes {
        for benchmark in &settings.benchmarks {
            let mut add = |metric: &str, unit: &str, take: &dyn Fn(&Answer) -> Option<f64>| {
                for (_, runs) in
                    runs.iter().filter(|(key, _)| key.value_size == value_size && key.benchmark == benchmark.name)
                {
                    let measured: Vec<f64> = good(settings, runs).filter_map(|run| take(&run.answer)).collect();
                    if let Some(run) = runs.first().filter(|_| !measured.is_empty()) {
                        let metric = tables::metric(benchmark.name, value_size, metric);
                        report.rows.push(Row::of_repetitions(&run.answer.phase.target, metric, unit, &measured));
                    }
                }
            };
            for (metric, unit, take) in METRICS {
                add(metric, unit, &take);
            }
            add("raw floor p50", "us", &|answer| Some(answer.floor_nanos? as f64 / 1e3));
            add("p50 by the raw floor", "1", &|answer| {
                Some(
                    answer.phase.main_latency()?.p50_nanos as f64
                        / answer.floor_nanos.filter(|&nanos| nanos > 0)? as f64,
                )
            });
        }
    }
    let mut disturbed = 0;
    let mut discarded = 0;
    for run in runs.values().flatten() {
        disturbed += u32::from(run.disturbance > settings.disturbance_limit);
        discarded += run.discarded;
        let mut phase = run.answer.phase.clone();
        // A timeline of each run of each repetition would be most of the file.
        phase.groups.iter_mut().for_each(|group| group.timeline.clear());
        report.phases.push(phase);
    }
    report.notes.push(format!("{discarded} disturbed runs were discarded and run again"));
    if disturbed > 0 {
        report.notes.push(format!(
            "{disturbed} repetitions stayed disturbed in all {} attempts; they count only where a store has no other",
            settings.attempts
        ));
    }
}

/// The undisturbed runs, or all when there is none.
fn good<'a>(settings: &'a Settings, runs: &'a [Run]) -> impl Iterator<Item = &'a Run> {
    let any = runs.iter().any(|run| run.disturbance <= settings.disturbance_limit);
    runs.iter().filter(move |run| !any || run.disturbance <= settings.disturbance_limit)
}
