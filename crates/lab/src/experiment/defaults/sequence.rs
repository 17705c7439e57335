//! What is done to each store: the workloads, in their order.

use super::media::Set;
use crate::bench::{Bench, WorkloadName};
use crate::error::LabError;
use crate::experiment::{Progress, Scale, Silent};
use crate::runner::{Finish, Group, Phase, PhaseResult, run_phase};
use crate::target::{Direction, Target};
use crate::workload::{DbBenchKind, DbBenchOptions, Operation, OperationKind, OperationStream, Workload, YcsbMix};
use std::sync::Arc;
use varve::env::Env;

/// Bytes of a value.
const VALUE_BYTES: usize = 1000;

/// Live pairs of the queue.
const QUEUE_PAIRS: u64 = 1000;

/// A queue: puts at the tail, finds the head and deletes it.
struct Queue {
    pops: u64,
}

/// A key of the queue: behind all others.
fn queue_key(number: u64, key: &mut Vec<u8>) {
    key.clear();
    key.extend_from_slice(format!("zqueue{number:016}").as_bytes());
}

struct QueueStream {
    /// Operations that are left.
    left: u64,
    head: u64,
    tail: u64,
    /// What comes next: a put, a look at the head, a deletion of it.
    turn: u8,
}

impl OperationStream for QueueStream {
    fn next(&mut self, operation: &mut Operation) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        *operation = Operation { direction: Direction::Forward, ..std::mem::take(operation) };
        let fills = self.tail - self.head < QUEUE_PAIRS;
        match self.turn {
            1 if !fills => {
                operation.kind = OperationKind::Scan;
                operation.limit = 1;
                // A consumer of a queue does not know where its head is.
                queue_key(0, &mut operation.key);
                self.turn = 2;
            }
            2 => {
                operation.kind = OperationKind::Delete;
                queue_key(self.head, &mut operation.key);
                self.head += 1;
                self.turn = 0;
            }
            _ => {
                operation.kind = OperationKind::Insert;
                queue_key(self.tail, &mut operation.key);
                operation.value.resize(VALUE_BYTES / 10, 7);
                self.tail += 1;
                self.turn = 1;
            }
        }
        true
    }

    fn acknowledge(&mut self, _operation: &Operation) {}
}

impl Workload for Queue {
    fn name(&self) -> &str {
        "queue"
    }

    fn stream(&self, _thread: usize, _threads: usize) -> Result<Box<dyn OperationStream>, LabError> {
        Ok(Box::new(QueueStream { left: QUEUE_PAIRS + 3 * self.pops, head: 0, tail: 0, turn: 0 }))
    }
}

/// Pairs at this scale.
pub(super) fn pairs(set: Set, scale: Scale) -> u64 {
    scale.of(set.data_bytes()) / (VALUE_BYTES as u64 + 24)
}

/// A load and YCSB's mixes, each with the debt of those before it.
const MIXES: [YcsbMix; 7] = [YcsbMix::Load, YcsbMix::A, YcsbMix::B, YcsbMix::C, YcsbMix::D, YcsbMix::E, YcsbMix::F];

/// On another store, which is idle between them; the queue follows the overwriting.
const BEFORE_QUEUE: [DbBenchKind; 4] =
    [DbBenchKind::FillUniqueRandom, DbBenchKind::SeekRandom, DbBenchKind::ReadSeq, DbBenchKind::Overwrite];

/// Behind it: what is left after deletions.
const AFTER_QUEUE: [DbBenchKind; 3] = [DbBenchKind::DeleteRandom, DbBenchKind::ReadSeq, DbBenchKind::SeekRandom];

fn bench(set: Set, scale: Scale, seed: u64) -> Bench {
    let num = pairs(set, scale);
    Bench {
        options: DbBenchOptions {
            num,
            reads: Some(num / 8),
            value_size: VALUE_BYTES,
            seek_nexts: 10,
            seed,
            ..DbBenchOptions::default()
        },
        ..Bench::default()
    }
}

/// Runs the mixes on `target`.
pub(super) fn run_mixes(
    env: &Env,
    target: &Arc<dyn Target>,
    (set, scale, seed): (Set, Scale, u64),
) -> Result<Vec<PhaseResult>, LabError> {
    let silent: Arc<dyn Progress> = Arc::new(Silent);
    let workloads = MIXES.map(WorkloadName::Ycsb).to_vec();
    Bench { workloads, finish: Finish::AtOnce, ..bench(set, scale, seed) }.run(env, target, &silent)
}

/// Runs the others on `target`. Phases that ran twice have a number behind their name.
pub(super) fn run_others(
    env: &Env,
    target: &Arc<dyn Target>,
    (set, scale, seed): (Set, Scale, u64),
) -> Result<Vec<PhaseResult>, LabError> {
    let silent: Arc<dyn Progress> = Arc::new(Silent);
    let of = |kinds: &[DbBenchKind]| {
        let mut bench = bench(set, scale, seed);
        bench.workloads = kinds.iter().copied().map(WorkloadName::DbBench).collect();
        bench.options.reads = None;
        bench
    };
    let seeks = |bench: Bench| Bench {
        options: DbBenchOptions { reads: Some(bench.options.num / 32), ..bench.options.clone() },
        ..bench
    };
    let mut phases = Vec::new();
    for kinds in [&BEFORE_QUEUE[..], &[], &AFTER_QUEUE[..]] {
        if kinds.is_empty() {
            let queue = Arc::new(Queue { pops: pairs(set, scale) / 2 });
            let phase = Phase { finish: Finish::Idle, ..Phase::new("queue", Group::new(queue, 1, u64::MAX)) };
            phases.push(run_phase(env, target, &phase)?);
        }
        for kind in kinds {
            let bench = of(&[*kind]);
            let bench = if *kind == DbBenchKind::SeekRandom { seeks(bench) } else { bench };
            phases.extend(bench.run(env, target, &silent)?);
        }
    }
    crate::bench::name_apart(&mut phases);
    Ok(phases)
}
