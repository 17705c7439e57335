//! One run of one benchmark on one store, in a process of its own.

use crate::comparison::KEY_BYTES;
use crate::engine::{Budget, Engine, FILTER_BITS, WRITE_BUFFER_BYTES};
use crate::floor;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use varve::env::Env;
use varve_lab::LabError;
use varve_lab::runner::{Finish, Group, Phase, PhaseResult, run_phase};
use varve_lab::target::Target;
use varve_lab::workload::{DbBench, DbBenchKind, DbBenchOptions};

/// Appends of a floor.
const FLOOR_APPENDS: u32 = 200;

/// Direct reads of a floor, and the most bytes of the file they are from.
const FLOOR_READS: u32 = 2000;
const FLOOR_FILE_BYTES: u64 = 256 << 20;

/// What a child is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) engine: String,
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) directory: PathBuf,
    pub(crate) num: u64,
    /// Whether the store has been loaded and is to come to rest before anything else.
    pub(crate) is_loaded: bool,
    /// Operations of a reading benchmark or of fillsync.
    pub(crate) operations: u64,
    /// Operations of a writing benchmark; unset is one to each key.
    pub(crate) write_operations: Option<u64>,
    pub(crate) value_size: usize,
    pub(crate) seek_nexts: u64,
    pub(crate) threads: usize,
    /// Threads that overwrite beside the others.
    pub(crate) writers_beside: usize,
    /// Puts in one write.
    pub(crate) batch_size: usize,
    pub(crate) cache_bytes: usize,
    pub(crate) direct_reads: bool,
    pub(crate) warm_cache: bool,
    pub(crate) verify: bool,
    pub(crate) seed: u64,
}

/// What it answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) phase: PhaseResult,
    /// Time it took to open the store.
    pub(crate) open_nanos: u64,
    /// Processor time of the whole process, loading and warming included.
    pub(crate) process_cpu_nanos: u64,
    /// Median time of what the file system itself takes for the same, measured before and after: an
    /// append of a pair's bytes with `fdatasync`, a direct read. Absent where the benchmark does neither.
    pub(crate) floor_nanos: Option<u64>,
}

/// Does what the order says.
pub(crate) fn run(order: &Order) -> Result<Answer, LabError> {
    let engine: Engine = order.engine.parse().map_err(|reason: String| LabError::invalid("store", reason))?;
    let kind: DbBenchKind = order.kind.parse()?;
    let env = Env::real();
    let budget = Budget {
        write_buffer_bytes: WRITE_BUFFER_BYTES,
        filter_bits: FILTER_BITS,
        cache_bytes: order.cache_bytes,
        direct_reads: order.direct_reads,
    };
    let begin = env.now();
    let target = engine.open(&order.directory, budget).map_err(|error| LabError::Target {
        target: engine.to_string(),
        operation: "open",
        error,
    })?;
    let open_nanos = (env.now() - begin).as_nanos() as u64;
    let options = DbBenchOptions {
        num: order.num,
        reads: (!kind.is_full_scan()).then_some(order.operations),
        sync_writes: Some(order.operations),
        value_size: order.value_size,
        batch_size: order.batch_size,
        seek_nexts: order.seek_nexts,
        seed: order.seed,
        ..DbBenchOptions::default()
    };
    if order.is_loaded {
        // What the load left, such as a log to be replayed and compactions that are due, is none of the benchmark's work.
        rest(&target)?;
    }
    if order.warm_cache {
        warm(&env, &target, &options)?;
    }
    let workload = DbBench::new(kind, options.clone())?;
    let verify = order.verify.then(|| workload.values());
    let writers = (order.writers_beside > 0)
        .then(|| Group { background: true, ..Group::new(Arc::new(workload.writer()), order.writers_beside, u64::MAX) });
    let operations = match order.write_operations {
        _ if kind.is_full_scan() => u64::MAX,
        Some(operations) if kind.writes() => operations,
        _ => options.operations(kind),
    };
    let leading = Group { verify, ..Group::new(Arc::new(workload), order.threads, operations) };
    let live_bytes = match kind {
        // Each key is there with probability 1 - 1/e.
        DbBenchKind::FillRandom => (options.data_bytes() as f64 * 0.632_120_558_8) as u64,
        DbBenchKind::FillSync | DbBenchKind::DeleteRandom | DbBenchKind::DeleteSeq => 0,
        _ => options.data_bytes(),
    };
    let phase = Phase {
        finish: if kind.writes() { Finish::Idle } else { Finish::AtOnce },
        live_bytes: Some(live_bytes),
        groups: std::iter::once(leading.clone()).chain(writers).collect(),
        ..Phase::new(order.name.clone(), leading)
    };
    let floor_before = floor_nanos(order, kind)?;
    let phase = run_phase(&env, &target, &phase)?;
    let floor_after = floor_nanos(order, kind)?;
    drop(target);
    let floor_nanos = floor_before.zip(floor_after).map(|(before, after)| before.midpoint(after));
    Ok(Answer { phase, open_nanos, process_cpu_nanos: env.process_cpu_nanos().unwrap_or(0), floor_nanos })
}

/// The floor under the benchmark, beside the store's directory on the same file system.
fn floor_nanos(order: &Order, kind: DbBenchKind) -> Result<Option<u64>, LabError> {
    let path = order.directory.with_extension("floor");
    if kind == DbBenchKind::FillSync {
        floor::durable_append_nanos(&path, FLOOR_APPENDS, KEY_BYTES as usize + order.value_size).map(Some)
    } else if order.direct_reads {
        let data = order.num.saturating_mul(order.value_size as u64);
        floor::direct_read_nanos(&path, data.min(FLOOR_FILE_BYTES), FLOOR_READS, order.seed)
    } else {
        Ok(None)
    }
}

/// Reads everything, then some at random: what the caches can hold is in them.
fn warm(env: &Env, target: &Arc<dyn Target>, options: &DbBenchOptions) -> Result<(), LabError> {
    for (kind, operations) in [(DbBenchKind::ReadSeq, u64::MAX), (DbBenchKind::ReadRandom, options.num.min(100_000))] {
        let options = DbBenchOptions { reads: None, seed: options.seed ^ 1, ..options.clone() };
        let group = Group::new(Arc::new(DbBench::new(kind, options)?), 1, operations);
        run_phase(env, target, &Phase { finish: Finish::AtOnce, ..Phase::new("warm", group) })?;
    }
    rest(target)
}

/// Waits until the store has nothing left to do.
fn rest(target: &Arc<dyn Target>) -> Result<(), LabError> {
    target.wait_idle().map_err(|error| LabError::Target {
        target: target.name().to_owned(),
        operation: "wait_idle",
        error,
    })
}
