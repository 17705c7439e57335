//! The throttle with a clock of its own.

use super::*;

/// Whoever fills the log's buffer writes it.
const DISK: LogMedium = LogMedium { is_apart: false, flush_is_device_request: true };

fn throttle(env: &Env, options: Options) -> Throttle {
    Throttle::new(env, &options, 100 << 10, DISK)
}

/// A job goes on with what users write; at once when nobody writes, when somebody waits, when it is late, and at the end.
#[test]
fn a_job_keeps_pace_with_writes() {
    let env = Env::sim(1);
    // One memtable more may be written: a quarter of it is 25 KiB.
    let options = Options { pace_background_work: Some(true), max_write_buffer_number: 2, ..Options::default() };
    let throttle = Arc::new(throttle(&env, options));
    let timed = |pace: &JobPace, bytes: u64| {
        let start = env.now();
        throttle.step(pace, &mut Burst::default(), bytes, || Ok::<(), ()>(())).expect("nothing is written back");
        env.now() - start
    };
    env.sleep(Duration::from_secs(1));
    let pace = throttle.flush_pace(1 << 20, 100 << 10, 0);
    assert_eq!(timed(&pace, 1 << 20), Duration::ZERO, "nobody writes");
    drop(pace);
    let writer = {
        let (throttle, env) = (throttle.clone(), env.clone());
        env.clone().spawn("writer", move || {
            for _ in 0..200 {
                throttle.note_written(250);
                env.sleep(Duration::from_millis(10));
            }
        })
    };
    env.sleep(Duration::from_millis(1));
    let pace = throttle.flush_pace(1000 << 10, 100 << 10, 0);
    for step in 1..=8 {
        // A tenth of the work each: 2.5 KiB are written meanwhile, in ten or eleven writes.
        let took = timed(&pace, 100 << 10);
        assert!((Duration::from_millis(90)..=Duration::from_millis(125)).contains(&took), "step {step}: {took:?}");
    }
    let waiting = throttle.wait();
    assert!(throttle.is_waited_for());
    assert_eq!(timed(&pace, 100 << 10), Duration::ZERO, "somebody waits");
    drop(waiting);
    let late = throttle.flush_pace(1 << 20, 100 << 10, 100 << 10);
    assert_eq!(timed(&late, 1 << 20), Duration::ZERO, "no time was left");
    assert_eq!(timed(&JobPace::unheld(), u64::MAX), Duration::ZERO);
    assert_eq!(throttle.jobs.flushes.left_bytes(), (1000 << 10) - (900 << 10));
    drop((pace, late));
    assert_eq!((throttle.jobs.flushes.left_bytes(), throttle.jobs.flushes.done_bytes()), (0, 0));
    let pace = throttle.compaction_pace(1000 << 10, true, 0);
    throttle.end();
    assert_eq!(timed(&pace, 1000 << 10), Duration::ZERO, "it has ended");
    writer.join().expect("writer");
}

/// Nobody's log is kept waiting there; how far a job is still is told.
#[test]
fn a_job_waits_for_nobody_where_logs_are_apart() {
    let env = Env::sim(1);
    let options = Options { pace_background_work: Some(true), max_write_buffer_number: 2, ..Options::default() };
    let throttle = Throttle::new(&env, &options, 100 << 10, LogMedium { is_apart: true, ..DISK });
    throttle.note_written(1);
    let (pace, start) = (throttle.flush_pace(1 << 20, 100 << 10, 0), env.now());
    let mut burst = Burst::default();
    throttle.step(&pace, &mut burst, 1 << 19, || Ok::<(), ()>(())).expect("step");
    assert_eq!((env.now() - start, throttle.writes_back(&pace)), (Duration::ZERO, false));
    assert_eq!((throttle.jobs.flushes.done_bytes(), throttle.jobs.flushes.left_bytes()), (1 << 19, 1 << 19));
}

/// The rate is used up over all writes, and a writer that is not slowed any more, or is told to end, goes on.
#[test]
fn slowed_writers_get_their_rate() {
    let env = Env::sim(1);
    let options = Options { delayed_write_rate: 1 << 20, ..Options::default() };
    let triggers = (options.level0_slowdown_writes_trigger, options.level0_stop_writes_trigger);
    let throttle = Arc::new(throttle(&env, options));
    let under = |level0_tables: usize| {
        throttle.update(&Pressure { level0_tables, pending_compaction_bytes: 0 });
        throttle.stall()
    };
    assert_eq!([0, triggers.1, triggers.0].map(under), [Stall::None, Stall::Stop, Stall::Slow]);
    assert_eq!(throttle.writers.bytes_per_second.load(Ordering::Relaxed), (1 << 20) * 3 / 5);
    let mut due_nanos = 0;
    assert!(!throttle.delay(&mut due_nanos, 100), "less than a millisecond is due");
    for _ in 0..10 {
        assert!(throttle.delay(&mut due_nanos, 60 << 10));
    }
    let took = env.now().as_nanos();
    // 600 KiB at 3/5 of a MiB a second.
    assert!((970_000_000..990_000_000).contains(&took), "{took}");
    let ended = {
        let (throttle, env) = (throttle.clone(), env.clone());
        env.clone().spawn("end", move || {
            env.sleep(Duration::from_millis(100));
            throttle.end();
        })
    };
    assert!(throttle.delay(&mut due_nanos, 1 << 30));
    assert!(env.now().as_nanos() - took <= 110_000_000, "it slept on");
    ended.join().expect("end");
}

/// Nothing would ever relieve the pressure.
#[test]
fn nobody_is_held_where_nothing_is_compacted() {
    let env = Env::sim(1);
    let options = Options { disable_auto_compactions: true, pace_background_work: Some(true), ..Options::default() };
    let throttle = throttle(&env, options);
    throttle.update(&Pressure { level0_tables: 1000, pending_compaction_bytes: u64::MAX });
    assert_eq!(throttle.stall(), Stall::None);
    let mut due_nanos = 0;
    throttle.keep_pace(&mut due_nanos, 1 << 30, || unreachable!("nobody asks"));
    assert_eq!(env.now().as_nanos(), 0);
}

/// A writer of a log meets bursts: seldom, for no longer than was asked for, and between two of them it passes.
#[test]
fn a_job_in_bursts_keeps_few_writes_waiting() {
    const MILLIS: u64 = 1_000_000;
    for seed in 0..20 {
        let env = Env::sim(seed);
        let options = Options {
            pace_background_work: Some(true),
            max_write_stall_ms: Some(100),
            max_write_buffer_number: 2,
            ..Options::default()
        };
        let throttle = Arc::new(throttle(&env, options));
        let writer = {
            let (throttle, env) = (throttle.clone(), env.clone());
            env.clone().spawn("writer", move || {
                let mut waits = Vec::new();
                for _ in 0..400 {
                    let begin = env.now();
                    let pass = throttle.log_backlog().gate().pass();
                    waits.push((env.now() - begin).as_nanos() as u64);
                    env.sleep(Duration::from_millis(1));
                    drop(pass);
                    throttle.note_written(100);
                    env.sleep(Duration::from_millis(4));
                }
                waits
            })
        };
        env.sleep(Duration::from_millis(1));
        // A quarter of 100 KiB may be written meanwhile: 4 MiB a write of a hundred bytes.
        let (pace, mut burst, mut bursts) = (throttle.flush_pace(1 << 30, 1, 0), Burst::default(), 0);
        throttle.begin(&pace, &mut burst);
        for _ in 0..(64 << 20) / throttle.step_bytes() {
            env.sleep(Duration::from_millis(2));
            let write_back = || {
                env.sleep(Duration::from_millis(7));
                bursts += 1;
                Ok::<(), ()>(())
            };
            throttle.step(&pace, &mut burst, throttle.step_bytes(), write_back).expect("nothing fails");
        }
        drop((burst, pace));
        let waits = writer.join().unwrap_or_else(|panic| panic.resume());
        let waited: Vec<u64> = waits.into_iter().filter(|&nanos| nanos > 0).collect();
        // The first one does not know yet how long writing back takes.
        assert!(waited.iter().all(|&nanos| nanos <= 107 * MILLIS), "seed {seed}: {waited:?}");
        assert!(waited.iter().skip(1).all(|&nanos| nanos <= 100 * MILLIS), "seed {seed}: {waited:?}");
        assert!((20..=26).contains(&bursts), "seed {seed}: {bursts} bursts");
        let gate = throttle.log_backlog().gate();
        assert!((bursts as u64..=bursts as u64 + 1).contains(&gate.bursts()), "seed {seed}: {} counted", gate.bursts());
        assert_eq!(gate.waits(), waited.len() as u64, "seed {seed}");
        assert!(waited.len() <= bursts + 1, "seed {seed}: {} waits for {bursts} bursts", waited.len());
    }
}

/// Writers that keep the pace wait at once for what they are ahead, and no longer than was asked for.
#[test]
fn where_jobs_move_in_bursts_writers_wait_seldom_and_as_long() {
    let env = Env::sim(1);
    let options = Options { pace_background_work: Some(true), max_write_stall_ms: Some(100), ..Options::default() };
    let throttle = throttle(&env, options);
    throttle.jobs.flushes.rate().note(1 << 20, 1_000_000_000);
    // As much room as there is to do: a mebibyte a second.
    let unsettled = || Unsettled { active_bytes: 0, unflushed_bytes: 150 << 10, level0_tables: 0 };
    let (mut due_nanos, mut waits) = (0, Vec::new());
    for _ in 0..1000 {
        let begin = env.now();
        throttle.keep_pace(&mut due_nanos, 1 << 10, unsettled);
        waits.push((env.now() - begin).as_nanos() as u64);
    }
    let waited: Vec<u64> = waits.into_iter().filter(|&nanos| nanos > 0).collect();
    assert!((9..=10).contains(&waited.len()), "{waited:?}");
    assert!(waited.iter().all(|&nanos| nanos == 100_000_000), "{waited:?}");
    throttle.end();
    throttle.keep_pace(&mut due_nanos, 1 << 20, unsettled);
    assert_eq!(env.now().as_nanos(), waited.iter().sum::<u64>(), "nobody waits at the end");
}

/// Where a thread writes the log and nothing is synced nobody is held but by level 0, until somebody waits, and for some seconds then.
#[test]
fn while_nobody_waits_for_the_log_nobody_is_held() {
    for max_write_stall_ms in [0, 100] {
        let env = Env::sim(1);
        let options = Options {
            pace_background_work: Some(true),
            max_write_stall_ms: Some(max_write_stall_ms),
            max_write_buffer_number: 2,
            log_write_behind_size: Some(1 << 20),
            ..Options::default()
        };
        let throttle = throttle(&env, options);
        throttle.jobs.flushes.rate().note(1 << 20, 1_000_000_000);
        let (mut due_nanos, mut burst) = (0, Burst::default());
        let unsettled = |level0_tables| Unsettled { active_bytes: 0, unflushed_bytes: 2 << 20, level0_tables };
        // Whether a quarter of a job is kept waiting, and who wrote a quarter of a mebibyte; and whether tables are written back.
        let mut held = |pace: &JobPace, level0_tables: usize| {
            let begin = env.now();
            throttle.note_written(1);
            throttle.begin(pace, &mut burst);
            (0..4 << 10).for_each(|_| throttle.step(pace, &mut burst, 64, || Ok::<(), ()>(())).expect("step"));
            let middle = env.now();
            throttle.keep_pace(&mut due_nanos, 256 << 10, || unsettled(level0_tables));
            (!(middle - begin).is_zero(), !(env.now() - middle).is_zero(), throttle.writes_back(pace))
        };
        let pace = throttle.flush_pace(1 << 20, 1, 0);
        assert_eq!(held(&pace, 0), (false, false, false), "{max_write_stall_ms}");
        throttle.note_log_awaited();
        assert_eq!(held(&pace, 0), (true, true, true), "{max_write_stall_ms}");
        env.sleep(Duration::from_secs(11));
        assert_eq!(held(&pace, 0), (false, false, false), "{max_write_stall_ms}");
        let merge = throttle.compaction_pace(1 << 20, true, 11);
        throttle.jobs.level0.rate().note(1 << 20, 1_000_000_000);
        assert_eq!(held(&merge, 35), (false, true, false), "level 0 is nearly full, {max_write_stall_ms}");
    }
}

/// Writers are held to it when somebody waits again.
#[test]
fn how_fast_jobs_are_that_nobody_holds_is_measured() {
    let env = Env::sim(1);
    let options = Options {
        pace_background_work: Some(true),
        max_write_stall_ms: Some(100),
        log_write_behind_size: Some(1 << 20),
        ..Options::default()
    };
    let throttle = throttle(&env, options);
    let step = |pace: &JobPace, burst: &mut Burst| {
        env.sleep(Duration::from_millis(10));
        throttle.step(pace, burst, 1 << 20, || Ok::<(), ()>(())).expect("step");
    };
    let (pace, mut burst) = (throttle.compaction_pace(1 << 30, true, 0), Burst::default());
    env.sleep(Duration::from_millis(1));
    throttle.begin(&pace, &mut burst);
    (0..5).for_each(|_| step(&pace, &mut burst));
    throttle.pause(&pace, &mut burst);
    // What comes until it begins again does not count.
    env.sleep(Duration::from_secs(1));
    throttle.begin(&pace, &mut burst);
    (0..2).for_each(|_| step(&pace, &mut burst));
    let rate = throttle.jobs.level0.rate().bytes_per_second().expect("measured");
    assert!((99 << 20..=101 << 20).contains(&rate), "{rate}");
    assert!(!burst.is_held());
    // Somebody waits: the next step begins a burst.
    throttle.note_log_awaited();
    step(&pace, &mut burst);
    assert!(burst.is_held());
    // And when it is long ago, no other one after it.
    env.sleep(Duration::from_secs(11));
    step(&pace, &mut burst);
    assert!(!burst.is_held());
}

/// A table's sync is part of what it takes, and of tables that are small as well.
#[test]
fn what_ends_a_table_counts_where_nobody_holds_a_job() {
    let env = Env::sim(1);
    let options = Options {
        pace_background_work: Some(true),
        max_write_stall_ms: Some(100),
        log_write_behind_size: Some(1 << 20),
        ..Options::default()
    };
    let throttle = throttle(&env, options);
    let (pace, mut burst) = (throttle.compaction_pace(1 << 30, true, 0), Burst::default());
    env.sleep(Duration::from_millis(1));
    throttle.begin(&pace, &mut burst);
    for _table in 0..3 {
        env.sleep(Duration::from_millis(10));
        throttle.step(&pace, &mut burst, 1 << 20, || Ok::<(), ()>(())).expect("step");
        env.sleep(Duration::from_millis(10));
        throttle.pause(&pace, &mut burst);
        env.sleep(Duration::from_secs(1));
        throttle.begin(&pace, &mut burst);
    }
    let rate = throttle.jobs.level0.rate().bytes_per_second().expect("measured");
    assert!((49 << 20..=51 << 20).contains(&rate), "{rate}");
}
