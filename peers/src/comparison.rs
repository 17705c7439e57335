//! The comparison: who runs when, what is discarded.

use crate::benchmark::{Benchmark, CacheSize, Start};
use crate::child::{Answer, Order};
use crate::engine::Engine;
use crate::quiet;
use crate::summary::{self, Key, Run, Runs};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use varve::env::Env;
use varve_lab::LabError;
use varve_lab::host::{self, MachineTime};
use varve_lab::report::{Report, format_bytes};
use varve_lab::workload::DbBenchKind;

/// Bytes of a key.
pub(crate) const KEY_BYTES: u64 = 16;

/// Block cache of benchmarks with a small one.
const SMALL_CACHE_BYTES: u64 = 8 << 20;

/// Puts in a write of the stores that are loaded by batches.
const LOAD_BATCH: usize = 1000;

/// Data that a store loaded by batches is given by single puts.
const MOST_SINGLE_PUTS_BYTES: u64 = 256 << 20;

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
    /// Loads a store once for all repetitions, not once for each, while it is only read.
    pub(crate) load_once: bool,
    pub(crate) verify: bool,
    pub(crate) seed: u64,
}

/// A store that holds every key.
struct Loaded {
    seed: u64,
    is_changed: bool,
}

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
    let env = Env::real();
    let begin = env.now();
    let mut comparison = Comparison { settings, engines, loaded: BTreeMap::new(), runs: Runs::new() };
    for &value_size in &settings.value_sizes {
        for repetition in 0..settings.repetitions {
            comparison.loaded.retain(|_, loaded| settings.load_once && !loaded.is_changed);
            for &benchmark in &settings.benchmarks {
                comparison.repeat(benchmark, value_size, repetition, say)?;
            }
        }
        comparison.remove_loaded()?;
    }
    remove_directories(settings)?;
    summary::summarise(settings, &comparison.runs, &mut report);
    report.notes.push(format!("it took {:.0} s", (env.now() - begin).as_secs_f64()));
    Ok(report)
}

/// Where a comparison stands.
struct Comparison<'a> {
    settings: &'a Settings,
    engines: Vec<Engine>,
    /// Of the value size it is at, by the store's place in the list.
    loaded: BTreeMap<usize, Loaded>,
    runs: Runs,
}

impl Comparison<'_> {
    /// Runs a benchmark on every store that takes part, and keeps what they answered.
    fn repeat(
        &mut self,
        benchmark: Benchmark,
        value_size: usize,
        repetition: u32,
        say: &mut dyn FnMut(&str),
    ) -> Result<(), LabError> {
        let settings = self.settings;
        let seed = settings.seed.wrapping_add(u64::from(repetition));
        // Each repetition begins with another store, so that none always runs first.
        let stores = self.engines.len();
        let turns = (0..stores).map(|turn| (turn + repetition as usize) % stores);
        let places: Vec<usize> = turns.filter(|&place| takes_part(settings, self.engines[place], benchmark)).collect();
        if benchmark.start == Start::Loaded {
            for &place in &places {
                if let Entry::Vacant(missing) = self.loaded.entry(place) {
                    load(settings, self.engines[place], num(settings, value_size), value_size, seed, say)?;
                    missing.insert(Loaded { seed, is_changed: false });
                }
            }
        }
        for place in places {
            let engine = self.engines[place];
            let begun_with = self.loaded.get(&place).filter(|_| benchmark.start == Start::Loaded);
            let seed = begun_with.map_or(seed, |loaded| loaded.seed);
            let run = undisturbed(settings, engine, benchmark, value_size, seed, say)?;
            if benchmark.removes_keys() {
                self.loaded.remove(&place);
            } else if benchmark.changes_loaded()
                && let Some(loaded) = self.loaded.get_mut(&place)
            {
                loaded.is_changed = true;
            }
            say(&format!(
                "{}/{} {value_size} B {benchmark} {engine}: {:.0} op/s, {:.2} us CPU/op{}",
                repetition + 1,
                settings.repetitions,
                run.answer.phase.operations_per_second,
                run.answer.phase.cpu_nanos_per_operation.unwrap_or(0.0) / 1e3,
                if run.disturbance > settings.disturbance_limit { " (disturbed)" } else { "" },
            ));
            let key = Key { value_size, benchmark: benchmark.name, place };
            self.runs.entry(key).or_default().push(run);
        }
        Ok(())
    }

    /// Removes the loaded stores: the next value size has others.
    fn remove_loaded(&mut self) -> Result<(), LabError> {
        self.loaded.clear();
        for &engine in &self.engines {
            host::remove_directory(&store_directory(self.settings, engine, Start::Loaded))?;
        }
        Ok(())
    }
}

/// Whether a store has a place in a benchmark.
pub(crate) fn takes_part(settings: &Settings, engine: Engine, benchmark: Benchmark) -> bool {
    let is_slow = engine.loads_by_batches() && benchmark.writes_everything();
    (engine.reads_directly() || !benchmark.direct) && (!is_slow || settings.data_bytes <= MOST_SINGLE_PUTS_BYTES)
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
    for &engine in &settings.engines {
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
    report.condition("foreground threads", format!("{}, unless the benchmark says how many", settings.threads));
    report.condition("background threads", "2 (LevelDB has 1 and cannot have more, LMDB has none)");
    report.condition("write buffer", "64 MiB, two of them; LMDB has none");
    report.condition(
        "block cache",
        "8 MiB, or twice the data where the benchmark does not say 8mb or direct; LMDB has the system's page cache alone",
    );
    report.condition("filter", "10 bits/key; LMDB has none");
    report.condition("blocks", "4 KiB, no compression; values compress to one half");
    report.condition(
        "checksums",
        "of blocks verified by whoever reads one, compactions too (LevelDB is told to, leveldb-unverified not); LMDB has none",
    );
    report.condition(
        "log",
        "on; synced in fillsync only. LMDB has none: its file is mapped for writing, and synced by commits of fillsync only",
    );
    report.condition(
        "load",
        format!(
            "every key once, in random order by one thread, {}; LMDB in ascending order, {LOAD_BATCH} puts a transaction, which \
             fills its pages. A store begins a benchmark when what its load left is done and on the medium",
            if settings.load_once { "once for all repetitions that only read" } else { "for each repetition" }
        ),
    );
    let fills = settings.benchmarks.iter().any(|benchmark| benchmark.writes_everything());
    if fills && settings.engines.iter().any(|engine| engine.loads_by_batches()) {
        let most = format_bytes(MOST_SINGLE_PUTS_BYTES);
        report.condition(
            "LMDB",
            format!("fills and deletes up to {most}: each is a transaction that writes its pages up to the root anew"),
        );
    }
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
    let threads = benchmark.threads.unwrap_or(settings.threads);
    let operations = match benchmark.kind {
        DbBenchKind::FillSync => settings.sync_writes.saturating_mul(threads as u64),
        _ => (settings.reads / benchmark.reads_divisor).max(1),
    };
    Order {
        engine: engine.to_string(),
        name: format!("{benchmark} {value_size} B"),
        kind: benchmark.kind.to_string(),
        directory: store_directory(settings, engine, benchmark.start),
        num: num(settings, value_size),
        is_loaded: benchmark.start == Start::Loaded && benchmark != Benchmark::LOAD,
        operations,
        write_operations: None,
        value_size,
        seek_nexts: benchmark.seek_nexts,
        threads,
        writers_beside: benchmark.writers_beside,
        batch_size: 1,
        cache_bytes: cache_bytes as usize,
        direct_reads: benchmark.direct,
        warm_cache: benchmark.wants_warm_cache(),
        verify: settings.verify,
        seed,
    }
}

/// Loads every key once into an empty store. Not measured.
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
    let mut order = Order { num, ..order(settings, engine, Benchmark::LOAD, value_size, seed) };
    if engine.loads_by_batches() {
        order.kind = DbBenchKind::FillSeq.to_string();
        order.batch_size = LOAD_BATCH;
    }
    call(&order).map(|_| ())
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
        // What was written before would be written back while this runs.
        quiet::write_back(&settings.directory)?;
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
