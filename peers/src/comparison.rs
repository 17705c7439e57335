//! The comparison: who runs when, what is discarded, what is reported.

use crate::benchmark::{Benchmark, CacheSize, Start};
use crate::child::{Answer, Order};
use crate::engine::Engine;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use varve_lab::LabError;
use varve_lab::host::{self, MachineTime};
use varve_lab::report::{Report, Row, format_bytes};
use varve_lab::workload::DbBenchKind;

/// Bytes of a key.
pub(crate) const KEY_BYTES: u64 = 16;

/// Block cache of benchmarks with a small one.
const SMALL_CACHE_BYTES: u64 = 8 << 20;

/// Ticks of the kernel's clock in a second, as in `/proc/stat`.
const TICKS_PER_SECOND: f64 = 100.0;

/// What to compare.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) directory: PathBuf,
    pub(crate) engines: Vec<Engine>,
    pub(crate) benchmarks: Vec<Benchmark>,
    pub(crate) value_sizes: Vec<usize>,
    /// Bytes of keys and values at each value size.
    pub(crate) data_bytes: u64,
    /// Reads of a reading benchmark, before its divisor.
    pub(crate) reads: u64,
    pub(crate) sync_writes: u64,
    pub(crate) threads: usize,
    pub(crate) repetitions: u32,
    /// Runs a repetition may take until one is undisturbed.
    pub(crate) attempts: u32,
    /// Share of the machine's time others may use during a run.
    pub(crate) disturbance_limit: f64,
    pub(crate) verify: bool,
    pub(crate) seed: u64,
}

/// One undisturbed run, or the least disturbed one of a repetition that had none.
struct Run {
    answer: Answer,
    disturbance: f64,
    discarded: u32,
}

/// Value size, benchmark, and the store's place in the list.
type Key = (usize, &'static str, usize);

/// Runs everything and reports. Calls `say` with a line now and then.
pub(crate) fn run(settings: &Settings, say: &mut dyn FnMut(&str)) -> Result<Report, LabError> {
    let title = "Varve beside other stores, one process a run";
    let mut report = Report::new("peers/db_bench", title, "1", settings.seed);
    describe(settings, &mut report);
    let engines = available(settings, &mut report);
    if engines.is_empty() {
        report.skipped = Some("no store could be run".to_owned());
        return Ok(report);
    }
    make_directory(settings)?;
    let mut runs: BTreeMap<Key, Vec<Run>> = BTreeMap::new();
    for repetition in 0..settings.repetitions {
        let seed = settings.seed.wrapping_add(u64::from(repetition));
        for &value_size in &settings.value_sizes {
            for engine in &engines {
                if settings.benchmarks.iter().any(|benchmark| benchmark.start == Start::Loaded) {
                    load(settings, *engine, num(settings, value_size), value_size, seed, say)?;
                }
            }
            for &benchmark in &settings.benchmarks {
                for turn in 0..engines.len() {
                    // Each repetition begins with another store, so that none always runs first.
                    let engine = engines[(turn + repetition as usize) % engines.len()];
                    if benchmark.direct && !engine.reads_directly() {
                        continue;
                    }
                    let run = undisturbed(settings, engine, benchmark, value_size, seed, say)?;
                    say(&format!(
                        "{}/{} {value_size} B {benchmark} {engine}: {:.0} op/s, {:.2} us CPU/op{}",
                        repetition + 1,
                        settings.repetitions,
                        run.answer.phase.operations_per_second,
                        run.answer.phase.cpu_nanos_per_operation.unwrap_or(0.0) / 1e3,
                        if run.disturbance > settings.disturbance_limit { " (disturbed)" } else { "" },
                    ));
                    let place = engines.iter().position(|other| *other == engine).unwrap_or(0);
                    runs.entry((value_size, benchmark.name, place)).or_default().push(run);
                }
            }
            for engine in &engines {
                host::remove_directory(&store_directory(settings, *engine, Start::Loaded))?;
            }
        }
    }
    remove_directories(settings)?;
    summarise(settings, &runs, &mut report);
    Ok(report)
}

/// The stores that can be run here; the others are noted.
pub(crate) fn available(settings: &Settings, report: &mut Report) -> Vec<Engine> {
    let mut engines = settings.engines.clone();
    engines.retain(|engine| match engine.missing() {
        None => true,
        Some(reason) => {
            report.notes.push(format!("{engine} skipped: {reason}"));
            false
        }
    });
    engines
}

/// Makes the directory of the runs.
pub(crate) fn make_directory(settings: &Settings) -> Result<(), LabError> {
    let directory = &settings.directory;
    std::fs::create_dir_all(directory).map_err(|error| LabError::file(directory.display().to_string(), error))
}

/// Removes the stores, and the directory when nothing else is in it.
pub(crate) fn remove_directories(settings: &Settings) -> Result<(), LabError> {
    for engine in Engine::ALL {
        for start in [Start::Empty, Start::Loaded] {
            host::remove_directory(&store_directory(settings, engine, start))?;
        }
    }
    // Fails when it is not empty, which is as it should be.
    let _ = std::fs::remove_dir(&settings.directory);
    Ok(())
}

pub(crate) fn describe(settings: &Settings, report: &mut Report) {
    report.condition("machine", host::description());
    report.condition("directory", settings.directory.display());
    report.condition("data at each value size", format_bytes(settings.data_bytes));
    report.condition("foreground threads", format!("{}, unless the benchmark says how many readers", settings.threads));
    report.condition("background threads", "2 (LevelDB has 1 and cannot have more)");
    report.condition("write buffer", "64 MiB, two of them");
    report.condition(
        "block cache",
        "8 MiB, or twice the data where the benchmark says cached; seeks, scans and missing keys cached",
    );
    report.condition("filter", "10 bits/key");
    report.condition("blocks", "4 KiB, no compression; values compress to one half");
    report.condition("log", "on; synced in fillsync only");
    report.condition("repetitions", settings.repetitions);
    report.condition(
        "discarded",
        format!("runs during which others used more than {} % of the machine", settings.disturbance_limit * 100.0),
    );
    report.condition("work left over", "processor time and bytes count until the process has rested for 0.3 s");
}

fn store_directory(settings: &Settings, engine: Engine, start: Start) -> PathBuf {
    settings.directory.join(format!("{engine}-{}", if start == Start::Empty { "empty" } else { "loaded" }))
}

fn num(settings: &Settings, value_size: usize) -> u64 {
    (settings.data_bytes / (KEY_BYTES + value_size as u64)).max(1)
}

pub(crate) fn order(settings: &Settings, engine: Engine, benchmark: Benchmark, value_size: usize, seed: u64) -> Order {
    let cache_bytes = match benchmark.cache {
        CacheSize::Small => SMALL_CACHE_BYTES,
        CacheSize::Everything => settings.data_bytes * 2,
    };
    let operations = match benchmark.kind {
        DbBenchKind::FillSync => settings.sync_writes,
        _ => (settings.reads / benchmark.reads_divisor).max(1),
    };
    Order {
        engine: engine.to_string(),
        name: format!("{benchmark} {value_size} B"),
        kind: benchmark.kind.to_string(),
        directory: store_directory(settings, engine, benchmark.start),
        num: num(settings, value_size),
        operations,
        write_operations: None,
        value_size,
        seek_nexts: benchmark.seek_nexts,
        threads: benchmark.threads.unwrap_or(settings.threads),
        cache_bytes: cache_bytes as usize,
        direct_reads: benchmark.direct,
        warm_cache: benchmark.wants_warm_cache(),
        verify: settings.verify,
        seed,
    }
}

/// Loads every key once, in random order, into an empty store. Not measured.
pub(crate) fn load(
    settings: &Settings,
    engine: Engine,
    num: u64,
    value_size: usize,
    seed: u64,
    say: &mut dyn FnMut(&str),
) -> Result<(), LabError> {
    say(&format!("loading {engine}, {value_size} B"));
    host::remove_directory(&store_directory(settings, engine, Start::Loaded))?;
    let benchmark = Benchmark {
        name: "load",
        kind: DbBenchKind::FillUniqueRandom,
        start: Start::Loaded,
        cache: CacheSize::Small,
        ..Benchmark::ALL[0]
    };
    call(&Order { num, ..order(settings, engine, benchmark, value_size, seed) }).map(|_| ())
}

/// Runs a benchmark until a run was not disturbed, at most `attempts` times.
fn undisturbed(
    settings: &Settings,
    engine: Engine,
    benchmark: Benchmark,
    value_size: usize,
    seed: u64,
    say: &mut dyn FnMut(&str),
) -> Result<Run, LabError> {
    let mut best: Option<Run> = None;
    for attempt in 0..settings.attempts.max(1) {
        if benchmark.start == Start::Empty {
            host::remove_directory(&store_directory(settings, engine, Start::Empty))?;
        } else if attempt > 0 && benchmark.changes_loaded() {
            load(settings, engine, num(settings, value_size), value_size, seed, say)?;
        }
        let before = host::machine_time();
        let answer = call(&order(settings, engine, benchmark, value_size, seed))?;
        let disturbance = match (before, host::machine_time()) {
            (Some(before), Some(after)) => disturbance(before, after, answer.process_cpu_nanos),
            _ => 0.0,
        };
        let run = Run { answer, disturbance, discarded: attempt };
        let is_better = best.as_ref().is_none_or(|best| run.disturbance < best.disturbance);
        if is_better {
            best = Some(run);
        }
        if disturbance <= settings.disturbance_limit {
            break;
        }
    }
    if benchmark.start == Start::Empty {
        host::remove_directory(&store_directory(settings, engine, Start::Empty))?;
    }
    best.ok_or_else(|| LabError::invalid("attempts", "must be at least 1"))
}

/// Share of the machine's time that went neither to the child nor to nobody.
fn disturbance(before: MachineTime, after: MachineTime, child_cpu_nanos: u64) -> f64 {
    let total = after.total_ticks.saturating_sub(before.total_ticks) as f64;
    let busy = after.busy_ticks.saturating_sub(before.busy_ticks) as f64;
    let stolen = after.stolen_ticks.saturating_sub(before.stolen_ticks) as f64;
    let own = child_cpu_nanos as f64 / 1e9 * TICKS_PER_SECOND;
    if total < 1.0 { 0.0 } else { ((busy - own).max(0.0) + stolen) / total }
}

/// Starts a child, waits for it and reads its answer.
fn call(order: &Order) -> Result<Answer, LabError> {
    let failed = |reason: String| LabError::Program { program: format!("{} on {}", order.name, order.engine), reason };
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let text = serde_json::to_string(order).map_err(|error| failed(error.to_string()))?;
    let output = Command::new(program)
        .args(["child", &text])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(format!("ended with {}", output.status)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(format!("no answer: {error}")))
}

type Metric = (&'static str, &'static str, fn(&Answer) -> Option<f64>);

/// What is reported of every benchmark, when it is there.
const METRICS: [Metric; 11] = [
    ("throughput", "op/s", |answer| Some(answer.phase.operations_per_second)),
    ("CPU", "us/op", |answer| answer.phase.cpu_nanos_per_operation.map(|nanos| nanos / 1e3)),
    ("p50", "us", |answer| answer.phase.main_latency().map(|latency| latency.p50_nanos as f64 / 1e3)),
    ("p99", "us", |answer| answer.phase.main_latency().map(|latency| latency.p99_nanos as f64 / 1e3)),
    ("p99.99", "us", |answer| answer.phase.main_latency().map(|latency| latency.p9999_nanos as f64 / 1e3)),
    ("write amplification", "1", |answer| answer.phase.amplification.write_process),
    ("space amplification", "1", |answer| answer.phase.amplification.space.filter(|_| wrote(answer))),
    ("time to idle", "s", |answer| wrote(answer).then_some(answer.phase.idle_nanos as f64 / 1e9)),
    ("memory at the end", "MiB", |answer| answer.phase.memory.map(|memory| mebibytes(memory.resident_bytes))),
    ("peak memory", "MiB", |answer| {
        answer.phase.memory.filter(|_| wrote(answer)).map(|memory| mebibytes(memory.peak_bytes))
    }),
    ("open", "ms", |answer| Some(answer.open_nanos as f64 / 1e6)),
];

fn wrote(answer: &Answer) -> bool {
    answer.phase.user_written_bytes > 0
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

fn summarise(settings: &Settings, runs: &BTreeMap<Key, Vec<Run>>, report: &mut Report) {
    for &value_size in &settings.value_sizes {
        for benchmark in &settings.benchmarks {
            let mut add = |metric: &str, unit: &str, take: &dyn Fn(&Answer) -> Option<f64>| {
                for (_, runs) in runs.iter().filter(|(key, _)| key.0 == value_size && key.1 == benchmark.name) {
                    let measured: Vec<f64> = good(settings, runs).filter_map(|run| take(&run.answer)).collect();
                    if let Some(run) = runs.first().filter(|_| !measured.is_empty()) {
                        let metric = format!("{benchmark} {value_size} B: {metric}");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disturbance_is_what_others_used() {
        let before = MachineTime { busy_ticks: 100, stolen_ticks: 0, total_ticks: 1000 };
        let after = MachineTime { busy_ticks: 250, stolen_ticks: 10, total_ticks: 1200 };
        // The child used one second of the two processors' two.
        assert_eq!(disturbance(before, after, 1_000_000_000), 0.3);
        assert_eq!(disturbance(before, after, 9_000_000_000), 0.05);
        assert_eq!(disturbance(before, before, 0), 0.0);
    }
}
