//! One thread of a workload.

use super::Group;
use super::latency::Latencies;
use super::timeline::Timeline;
use crate::error::LabError;
use crate::generator::ValueGenerator;
use crate::target::{Change, Direction, Session, TargetError};
use crate::workload::{Operation, OperationKind, OperationStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use varve_env::{Condvar, Env, Instant, Mutex};

/// Operations between two reports of progress.
const PROGRESS_STEP: u64 = 256;

/// Operations after which charged processor time becomes virtual time at the latest, so that no
/// thread runs far ahead of the others.
const SETTLE_STEP: u64 = 8;

/// Bytes of a wrong value shown in its error.
const SHOWN_BYTES: usize = 32;

/// Where the threads of a phase meet: all wait, warmed up, until the phase starts.
pub(crate) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

struct GateState {
    arrived: usize,
    start: Option<Instant>,
}

impl Gate {
    pub(crate) fn new(env: &Env) -> Gate {
        Gate {
            state: Mutex::new(env, "phase gate", GateState { arrived: 0, start: None }),
            changed: Condvar::new(env, "phase gate"),
        }
    }

    fn arrive_and_wait(&self) -> Instant {
        let mut state = self.state.lock();
        state.arrived += 1;
        self.changed.notify_all();
        loop {
            match state.start {
                Some(start) => return start,
                None => self.changed.wait(&mut state),
            }
        }
    }

    pub(crate) fn wait_for(&self, threads: usize) {
        let mut state = self.state.lock();
        while state.arrived < threads {
            self.changed.wait(&mut state);
        }
    }

    pub(crate) fn open(&self, start: Instant) {
        self.state.lock().start = Some(start);
        self.changed.notify_all();
    }
}

/// What every thread of a phase shares.
pub(crate) struct PhaseState {
    pub(crate) env: Env,
    pub(crate) target_name: String,
    pub(crate) gate: Gate,
    /// Background threads stop.
    pub(crate) stop: AtomicBool,
    /// Some thread failed; all stop.
    pub(crate) failed: AtomicBool,
    /// Operations of leading threads, for progress.
    pub(crate) done: AtomicU64,
    pub(crate) on_progress: Option<Arc<dyn Fn(u64) + Send + Sync>>,
}

/// What one thread did.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) kinds: [KindTally; OperationKind::ALL.len()],
    pub(crate) timeline: Timeline,
    pub(crate) end: Instant,
}

/// What was done of one kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct KindTally {
    pub(crate) operations: u64,
    pub(crate) found: u64,
    pub(crate) pairs: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) latencies: Latencies,
}

/// What one operation did.
#[derive(Clone, Copy, Debug, Default)]
struct Effect {
    operations: u64,
    found: u64,
    pairs: u64,
    read_bytes: u64,
    written_bytes: u64,
}

pub(crate) struct Worker {
    shared: Arc<PhaseState>,
    session: Box<dyn Session>,
    stream: Box<dyn OperationStream>,
    verify: Option<Arc<ValueGenerator>>,
    operations: u64,
    warmup_operations: u64,
    duration: Option<Duration>,
    period_nanos: Option<f64>,
    background: bool,
    operation: Operation,
    read_value: Vec<u8>,
}

impl Worker {
    pub(crate) fn new(
        shared: Arc<PhaseState>,
        session: Box<dyn Session>,
        stream: Box<dyn OperationStream>,
        group: &Group,
        thread: usize,
    ) -> Worker {
        Worker {
            shared,
            session,
            stream,
            verify: group.verify.clone(),
            operations: crate::workload::share(group.operations, thread, group.threads),
            warmup_operations: crate::workload::share(group.warmup_operations, thread, group.threads),
            duration: group.duration,
            period_nanos: group.operations_per_second.map(|rate| 1e9 * group.threads as f64 / rate),
            background: group.background,
            operation: Operation::default(),
            read_value: Vec::new(),
        }
    }

    pub(crate) fn run(mut self) -> Result<Tally, LabError> {
        let outcome = self.warm_up();
        if outcome.is_err() {
            self.shared.failed.store(true, Ordering::Relaxed);
        }
        // A thread that failed still comes to the gate, or the others would wait for ever.
        let start = self.shared.gate.arrive_and_wait();
        let outcome = outcome.and_then(|()| self.measure(start));
        if outcome.is_err() {
            self.shared.failed.store(true, Ordering::Relaxed);
        }
        outcome
    }

    fn warm_up(&mut self) -> Result<(), LabError> {
        for _ in 0..self.warmup_operations {
            if self.shared.failed.load(Ordering::Relaxed) || !self.stream.next(&mut self.operation) {
                break;
            }
            self.execute()?;
        }
        Ok(())
    }

    fn measure(&mut self, start: Instant) -> Result<Tally, LabError> {
        let env = self.shared.env.clone();
        let mut tally = Tally { kinds: Default::default(), timeline: Timeline::new(), end: start };
        let deadline = self.duration.map_or(Instant::MAX, |duration| start + duration);
        let mut issued = 0u64;
        let mut reported = 0u64;
        while issued < self.operations && !self.shared.failed.load(Ordering::Relaxed) {
            if self.background && self.shared.stop.load(Ordering::Relaxed) {
                break;
            }
            if !self.stream.next(&mut self.operation) {
                break;
            }
            let mut begin = env.now();
            if let Some(period_nanos) = self.period_nanos {
                // An operation is late from the moment it was due, so that a store that stalls
                // cannot hide the operations it kept from being issued.
                let due = start + Duration::from_nanos((issued as f64 * period_nanos) as u64);
                if due > begin {
                    if due >= deadline {
                        break;
                    }
                    env.sleep_until(due);
                }
                begin = due;
            }
            let effect = self.execute()?;
            let end = env.now();
            let latency = (!self.operation.count_pairs || effect.pairs == 0).then(|| (end - begin).as_nanos() as u64);
            let kind = &mut tally.kinds[self.operation.kind.index()];
            kind.operations += effect.operations;
            kind.found += effect.found;
            kind.pairs += effect.pairs;
            kind.read_bytes += effect.read_bytes;
            kind.written_bytes += effect.written_bytes;
            if let Some(nanos) = latency {
                kind.latencies.record(nanos);
            }
            let bytes = effect.read_bytes + effect.written_bytes;
            tally.timeline.record((end - start).as_nanos() as u64, effect.operations, bytes, latency);
            tally.end = end;
            issued += if self.operation.kind == OperationKind::Batch { effect.operations } else { 1 };
            if issued - reported >= PROGRESS_STEP {
                self.report_progress(issued - reported);
                reported = issued;
            }
            if issued.is_multiple_of(SETTLE_STEP) {
                env.settle();
            }
            if end >= deadline {
                break;
            }
        }
        env.settle();
        self.report_progress(issued - reported);
        Ok(tally)
    }

    fn report_progress(&self, operations: u64) {
        if self.background {
            return;
        }
        let done = self.shared.done.fetch_add(operations, Ordering::Relaxed) + operations;
        if let Some(on_progress) = &self.shared.on_progress {
            on_progress(done);
        }
    }

    fn failed(&self, operation: &'static str) -> impl FnOnce(TargetError) -> LabError + use<> {
        let target = self.shared.target_name.clone();
        move |error| LabError::Target { target, operation, error }
    }

    fn execute(&mut self) -> Result<Effect, LabError> {
        let operation = &self.operation;
        let key_bytes = operation.key.len() as u64;
        let pair_bytes = key_bytes + operation.value.len() as u64;
        let effect = match operation.kind {
            OperationKind::Read => self.read()?,
            OperationKind::Insert | OperationKind::Update => {
                self.session.put(&operation.key, &operation.value, operation.durability).map_err(self.failed("put"))?;
                Effect { operations: 1, written_bytes: pair_bytes, ..Effect::default() }
            }
            OperationKind::Delete => {
                self.session.delete(&operation.key, operation.durability).map_err(self.failed("delete"))?;
                Effect { operations: 1, written_bytes: key_bytes, ..Effect::default() }
            }
            OperationKind::Batch => {
                self.session.write(&operation.changes, operation.durability).map_err(self.failed("write"))?;
                Effect {
                    operations: operation.changes.len() as u64,
                    written_bytes: operation.changes.iter().map(Change::payload_bytes).sum(),
                    ..Effect::default()
                }
            }
            OperationKind::Scan => self.scan()?,
            OperationKind::ReadModifyWrite => {
                let effect = self.read()?;
                let operation = &self.operation;
                self.session.put(&operation.key, &operation.value, operation.durability).map_err(self.failed("put"))?;
                Effect { written_bytes: pair_bytes, ..effect }
            }
        };
        self.stream.acknowledge(&self.operation);
        Ok(effect)
    }

    fn read(&mut self) -> Result<Effect, LabError> {
        let found = self.session.get(&self.operation.key, &mut self.read_value).map_err(self.failed("get"))?;
        if found
            && let Some(values) = &self.verify
            && !values.verify(&self.operation.key, &self.read_value)
        {
            return Err(wrong_value(&self.shared.target_name, &self.operation.key, &self.read_value));
        }
        let read_bytes = if found { (self.operation.key.len() + self.read_value.len()) as u64 } else { 0 };
        Ok(Effect { operations: 1, found: u64::from(found), read_bytes, ..Effect::default() })
    }

    fn scan(&mut self) -> Result<Effect, LabError> {
        let operation = &self.operation;
        let start = (!operation.from_end).then_some(operation.key.as_slice());
        let verify = self.verify.as_deref();
        let mut bytes = 0;
        let mut wrong = None;
        let mut order_broken = None;
        let mut last_key = Vec::new();
        let mut visit = |key: &[u8], value: &[u8]| {
            bytes += (key.len() + value.len()) as u64;
            let Some(values) = verify else { return };
            if !values.verify(key, value) && wrong.is_none() {
                wrong = Some((key.to_vec(), value.to_vec()));
            }
            let in_order = match operation.direction {
                Direction::Forward => last_key.as_slice() < key,
                Direction::Reverse => last_key.as_slice() > key,
            };
            if !last_key.is_empty() && !in_order && order_broken.is_none() {
                order_broken = Some(key.to_vec());
            }
            last_key.clear();
            last_key.extend_from_slice(key);
        };
        let pairs =
            self.session.scan(start, operation.direction, operation.limit, &mut visit).map_err(self.failed("scan"))?;
        if let Some((key, value)) = wrong {
            return Err(wrong_value(&self.shared.target_name, &key, &value));
        }
        if let Some(key) = order_broken {
            return Err(LabError::Target {
                target: self.shared.target_name.clone(),
                operation: "scan",
                error: format!("key '{}' came out of order", key.escape_ascii()).into(),
            });
        }
        let operations = if operation.count_pairs { pairs } else { 1 };
        Ok(Effect { operations, found: u64::from(pairs > 0), pairs, read_bytes: bytes, written_bytes: 0 })
    }
}

fn wrong_value(target: &str, key: &[u8], value: &[u8]) -> LabError {
    LabError::WrongValue {
        target: target.to_owned(),
        key: format!("'{}'", key.escape_ascii()),
        found_bytes: value.len(),
        found: format!("'{}'", value[..value.len().min(SHOWN_BYTES)].escape_ascii()),
    }
}
