//! One measured phase: groups of threads on one target.

use super::result::{GroupResult, KindResult, PhaseResult, Snapshot};
use super::timeline::Timeline;
use super::worker::{Gate, PhaseState, Tally, Worker};
use crate::error::LabError;
use crate::generator::ValueGenerator;
use crate::target::Target;
use crate::workload::{OperationKind, Workload};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use varve_env::{Env, JoinHandle};

/// Points of a timeline in a report.
const TIMELINE_POINTS: usize = 240;

/// Threads that do the same.
#[derive(Clone)]
pub struct Group {
    /// What they do.
    pub workload: Arc<dyn Workload>,
    /// How many.
    pub threads: usize,
    /// Operations of all of them together; `u64::MAX` is as many as the streams have.
    pub operations: u64,
    /// Ends the group when it has passed, whatever was done.
    pub duration: Option<Duration>,
    /// Operations per second of all of them together; unset is as fast as they can. With a rate,
    /// latency counts from when an operation was due.
    pub operations_per_second: Option<f64>,
    /// Operations done before measuring, of all of them together.
    pub warmup_operations: u64,
    /// Runs until the other groups are done, and its operations do not count as the phase's.
    pub background: bool,
    /// Verifies every value read against this generator, and the order of scans.
    pub verify: Option<Arc<ValueGenerator>>,
}

impl Group {
    /// `threads` threads that do `operations` of `workload` as fast as they can.
    pub fn new(workload: Arc<dyn Workload>, threads: usize, operations: u64) -> Group {
        Group {
            workload,
            threads,
            operations,
            duration: None,
            operations_per_second: None,
            warmup_operations: 0,
            background: false,
            verify: None,
        }
    }
}

/// What happens after the last operation, still on the phase's account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finish {
    /// Nothing.
    AtOnce,
    /// Waits until the store has no background work left, so that a store that leaves more work
    /// behind does not look faster.
    #[default]
    Idle,
    /// Flushes what is in memory, then the same.
    FlushAndIdle,
}

/// Operations that are measured together.
#[derive(Clone)]
pub struct Phase {
    /// Name in reports.
    pub name: String,
    /// Threads; at least one group is not in the background.
    pub groups: Vec<Group>,
    /// What happens after the last operation.
    pub finish: Finish,
    /// Bytes of live keys and values after the phase, when known, for space amplification.
    pub live_bytes: Option<u64>,
    /// Called now and then with the operations done so far, from any thread. Must be quick.
    pub on_progress: Option<Arc<dyn Fn(u64) + Send + Sync>>,
}

impl Phase {
    /// A phase of one group that ends when the store is idle.
    pub fn new(name: impl Into<String>, group: Group) -> Phase {
        Phase { name: name.into(), groups: vec![group], finish: Finish::Idle, live_bytes: None, on_progress: None }
    }
}

/// Runs a phase and measures it. In a simulation the caller is an actor of `env`.
///
/// # Errors
/// The first failure of an operation, of a thread or of verification; a phase without threads.
pub fn run_phase(env: &Env, target: &Arc<dyn Target>, phase: &Phase) -> Result<PhaseResult, LabError> {
    check(phase)?;
    let failed = |operation| {
        let target = target.name().to_owned();
        move |error| LabError::Target { target, operation, error }
    };
    let shared = Arc::new(PhaseState {
        env: env.clone(),
        target_name: target.name().to_owned(),
        gate: Gate::new(env),
        stop: AtomicBool::new(false),
        failed: AtomicBool::new(false),
        done: AtomicU64::new(0),
        on_progress: phase.on_progress.clone(),
    });

    // Everything that can fail is made before the first thread starts.
    let mut workers = Vec::new();
    for (group_index, group) in phase.groups.iter().enumerate() {
        for thread in 0..group.threads {
            let session = target.session().map_err(failed("session"))?;
            let stream = group.workload.stream(thread, group.threads)?;
            let name = format!("{} {thread}", group.workload.name());
            workers.push((group_index, name, Worker::new(Arc::clone(&shared), session, stream, group, thread)));
        }
    }
    let threads = workers.len();
    let mut handles: Vec<(usize, JoinHandle<Result<Tally, LabError>>)> = Vec::new();
    for (group_index, name, worker) in workers {
        match env.try_spawn(&name, move || worker.run()) {
            Ok(handle) => handles.push((group_index, handle)),
            Err(error) => {
                let started = handles.len();
                // Those that wait at the gate find that there is nothing to do.
                shared.failed.store(true, Ordering::Relaxed);
                shared.gate.open(env.now());
                handles.into_iter().for_each(|(_, handle)| drop(handle.join()));
                let reason = format!("{started} of {threads} could be started: {error}");
                return Err(LabError::invalid("threads", reason));
            }
        }
    }

    shared.gate.wait_for(threads);
    crate::host::reset_peak_memory();
    let before = Snapshot::take(env, target)?;
    let start = env.now();
    shared.gate.open(start);

    let (leading, background): (Vec<_>, Vec<_>) =
        handles.into_iter().partition(|&(group_index, _)| !phase.groups[group_index].background);
    let mut outcomes: Vec<_> = leading.into_iter().map(|(group, handle)| (group, handle.join())).collect();
    shared.stop.store(true, Ordering::Relaxed);
    outcomes.extend(background.into_iter().map(|(group, handle)| (group, handle.join())));
    let work_end = Snapshot::take(env, target)?;

    let mut tallies: Vec<Vec<Tally>> = phase.groups.iter().map(|_| Vec::new()).collect();
    for (group_index, outcome) in outcomes {
        tallies[group_index].push(outcome??);
    }
    let last_end = tallies
        .iter()
        .zip(&phase.groups)
        .filter(|(_, group)| !group.background)
        .flat_map(|(tallies, _)| tallies.iter().map(|tally| tally.end))
        .max()
        .unwrap_or(start);
    let elapsed_nanos = (last_end - start).as_nanos() as u64;

    if phase.finish == Finish::FlushAndIdle {
        target.flush().map_err(failed("flush"))?;
    }
    if phase.finish != Finish::AtOnce {
        target.wait_idle().map_err(failed("wait_idle"))?;
    }
    let after = Snapshot::take(env, target)?;
    let idle_nanos = (env.now() - last_end).as_nanos() as u64;

    let groups = phase.groups.iter().zip(tallies).map(|(group, tallies)| group_result(group, tallies, elapsed_nanos));
    Ok(PhaseResult::new(phase, target.name(), groups.collect(), elapsed_nanos, idle_nanos, &before, &work_end, &after))
}

fn check(phase: &Phase) -> Result<(), LabError> {
    if !phase.groups.iter().any(|group| group.threads > 0 && !group.background) {
        return Err(LabError::invalid(format!("phase '{}'", phase.name), "no thread leads it"));
    }
    for group in &phase.groups {
        if group.operations_per_second.is_some_and(|rate| !(rate > 0.0 && rate.is_finite())) {
            return Err(LabError::invalid(format!("phase '{}'", phase.name), "a rate must be above zero"));
        }
    }
    Ok(())
}

fn group_result(group: &Group, tallies: Vec<Tally>, elapsed_nanos: u64) -> GroupResult {
    let mut kinds: Vec<KindResult> = Vec::new();
    for kind in OperationKind::ALL {
        let mut total = super::worker::KindTally::default();
        for tally in &tallies {
            let one = &tally.kinds[kind.index()];
            total.operations += one.operations;
            total.found += one.found;
            total.pairs += one.pairs;
            total.read_bytes += one.read_bytes;
            total.written_bytes += one.written_bytes;
            total.latencies.merge(&one.latencies);
        }
        let latency = total.latencies.summary();
        if total.operations > 0 || latency.is_some() {
            kinds.push(KindResult {
                kind: kind.name().to_owned(),
                operations: total.operations,
                found: total.found,
                pairs: total.pairs,
                user_read_bytes: total.read_bytes,
                user_written_bytes: total.written_bytes,
                latency,
            });
        }
    }
    let mut timeline = Timeline::new();
    tallies.into_iter().for_each(|tally| timeline.merge(tally.timeline));
    GroupResult {
        workload: group.workload.name().to_owned(),
        threads: group.threads,
        background: group.background,
        operations: kinds.iter().map(|kind| kind.operations).sum(),
        kinds,
        slowest_second_operations: timeline.slowest_second(elapsed_nanos),
        timeline: timeline.points(TIMELINE_POINTS, elapsed_nanos),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::Distribution;
    use crate::target::{
        Change, Direction, Durability, MemoryTarget, NullTarget, Session, TargetError, TargetStatistics,
    };
    use crate::workload::{DbBench, DbBenchKind, DbBenchOptions, Ycsb, YcsbMix, YcsbOptions};

    fn db_bench(kind: DbBenchKind, num: u64) -> Arc<DbBench> {
        let options = DbBenchOptions { num, value_size: 50, seed: 5, ..DbBenchOptions::default() };
        Arc::new(DbBench::new(kind, options).unwrap())
    }

    #[test]
    fn counts_and_virtual_time_add_up() {
        let env = Env::sim(1);
        let target: Arc<dyn Target> = Arc::new(MemoryTarget::new(&env));
        let fill = Phase::new("fill", Group::new(db_bench(DbBenchKind::FillSeq, 100), 1, 100));
        let result = run_phase(&env, &target, &fill).unwrap();
        assert_eq!(result.operations, 100);
        assert_eq!(result.elapsed_nanos, 100_000, "1 us an operation");
        assert_eq!(result.user_written_bytes, 100 * 66);
        assert_eq!(result.cpu_nanos, Some(100_000));
        let latency = result.groups[0].kinds[0].latency.unwrap();
        assert_eq!((latency.p50_nanos, latency.max_nanos, latency.count), (1000, 1000, 100));

        let workload = db_bench(DbBenchKind::ReadRandom, 100);
        let group = Group { verify: Some(workload.values()), ..Group::new(workload, 4, 1000) };
        let result = run_phase(&env, &target, &Phase::new("read", group)).unwrap();
        assert_eq!((result.operations, result.groups[0].kinds[0].found), (1000, 1000));
        assert_eq!(result.elapsed_nanos, 250_000, "four threads side by side");

        let scan = Phase::new("scan", Group::new(db_bench(DbBenchKind::ReadReverse, 100), 1, 1));
        let result = run_phase(&env, &target, &scan).unwrap();
        assert_eq!((result.operations, result.groups[0].kinds[0].pairs), (100, 100));
        assert!(result.groups[0].kinds[0].latency.is_none());
        assert_eq!(env.live_actors(), 1);
    }

    #[test]
    fn same_seed_same_run() {
        let run = || {
            let env = Env::sim(7);
            let target: Arc<dyn Target> = Arc::new(MemoryTarget::new(&env));
            let options = YcsbOptions { records: 200, operations: 400, seed: 7, ..YcsbOptions::default() };
            for mix in [YcsbMix::Load, YcsbMix::A, YcsbMix::D, YcsbMix::E, YcsbMix::F] {
                let workload = Arc::new(Ycsb::new(mix, options.clone()).unwrap());
                let mut group = Group::new(Arc::clone(&workload) as _, 3, workload.operations());
                group.verify = Some(workload.values());
                let result = run_phase(&env, &target, &Phase::new(workload.name(), group)).unwrap();
                assert_eq!(result.operations, workload.operations());
                env.record("elapsed", result.elapsed_nanos);
            }
            env.event_hash()
        };
        let first = run();
        assert_ne!(first, 0);
        assert_eq!(first, run());
    }

    #[test]
    fn rate_duration_and_background() {
        let env = Env::sim(3);
        let target: Arc<dyn Target> = Arc::new(NullTarget::new(&env));
        let readers = db_bench(DbBenchKind::ReadWhileWriting, 100);
        let writer = Group {
            background: true,
            operations_per_second: Some(1000.0),
            ..Group::new(Arc::new(readers.writer()), 1, u64::MAX)
        };
        let reader = Group {
            operations_per_second: Some(10_000.0),
            duration: Some(Duration::from_secs(1)),
            ..Group::new(readers, 2, u64::MAX)
        };
        let phase = Phase {
            groups: vec![reader, writer],
            ..Phase::new("mixed", Group::new(db_bench(DbBenchKind::FillSeq, 1), 1, 1))
        };
        let result = run_phase(&env, &target, &phase).unwrap();
        assert!((9_990..=10_010).contains(&result.operations), "{} reads", result.operations);
        let writes = result.groups[1].operations;
        assert!((995..=1005).contains(&writes), "{writes} writes");
        assert_eq!(result.user_written_bytes, writes * 66);
        assert!((0.99..1.01).contains(&(result.elapsed_nanos as f64 / 1e9)));
    }

    #[test]
    fn warm_up_is_not_measured() {
        let env = Env::sim(3);
        let target: Arc<dyn Target> = Arc::new(NullTarget::new(&env));
        let group = Group { warmup_operations: 1000, ..Group::new(db_bench(DbBenchKind::Overwrite, 100), 2, 10) };
        let result = run_phase(&env, &target, &Phase::new("warm", group)).unwrap();
        assert_eq!((result.operations, result.elapsed_nanos), (10, 5_000));
    }

    #[test]
    fn phases_without_leaders_are_refused() {
        let env = Env::sim(3);
        let target: Arc<dyn Target> = Arc::new(NullTarget::new(&env));
        let background = Group { background: true, ..Group::new(db_bench(DbBenchKind::Overwrite, 100), 2, 10) };
        assert!(run_phase(&env, &target, &Phase::new("none", background)).is_err());
        let still =
            Group { operations_per_second: Some(0.0), ..Group::new(db_bench(DbBenchKind::Overwrite, 100), 2, 10) };
        assert!(run_phase(&env, &target, &Phase::new("still", still)).is_err());
        let empty = YcsbOptions { distribution: Some(Distribution::HOTSPOT), ..YcsbOptions::default() };
        assert!(Ycsb::new(YcsbMix::A, empty).is_ok());
    }

    /// Answers every read with the same bytes, and fails puts on request.
    struct Broken;

    impl Target for Broken {
        fn name(&self) -> &str {
            "broken"
        }
        fn session(&self) -> Result<Box<dyn Session>, TargetError> {
            Ok(Box::new(Broken))
        }
        fn flush(&self) -> Result<(), TargetError> {
            Ok(())
        }
        fn wait_idle(&self) -> Result<(), TargetError> {
            Ok(())
        }
        fn compact(&self) -> Result<(), TargetError> {
            Ok(())
        }
        fn statistics(&self) -> Result<TargetStatistics, TargetError> {
            Ok(TargetStatistics::default())
        }
    }

    impl Session for Broken {
        fn put(&mut self, _: &[u8], _: &[u8], _: Durability) -> Result<(), TargetError> {
            Err("no".into())
        }
        fn get(&mut self, _: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
            *value = vec![1; 50];
            Ok(true)
        }
        fn delete(&mut self, _: &[u8], _: Durability) -> Result<(), TargetError> {
            Ok(())
        }
        fn write(&mut self, _: &[Change], _: Durability) -> Result<(), TargetError> {
            Ok(())
        }
        fn scan(
            &mut self,
            _: Option<&[u8]>,
            _: Direction,
            _: u64,
            visit: &mut dyn FnMut(&[u8], &[u8]),
        ) -> Result<u64, TargetError> {
            visit(b"b", b"1");
            visit(b"a", b"1");
            Ok(2)
        }
    }

    #[test]
    fn failures_and_wrong_answers_end_the_phase() {
        let env = Env::sim(1);
        let target: Arc<dyn Target> = Arc::new(Broken);
        let error = |kind| {
            let workload = db_bench(kind, 100);
            let group = Group { verify: Some(workload.values()), ..Group::new(workload, 3, 100) };
            run_phase(&env, &target, &Phase::new("broken", group)).unwrap_err()
        };
        assert!(matches!(error(DbBenchKind::FillSeq), LabError::Target { operation: "put", .. }));
        assert!(matches!(error(DbBenchKind::ReadRandom), LabError::WrongValue { found_bytes: 50, .. }));
        assert!(matches!(error(DbBenchKind::SeekRandom), LabError::WrongValue { .. }));
        assert_eq!(env.live_actors(), 1);
    }
}
