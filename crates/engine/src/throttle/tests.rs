//! The throttle with a clock of its own.

use super::*;

fn throttle(env: &Env, options: Options) -> Throttle {
    Throttle::new(env, &options, 100 << 10)
}

/// A job goes on with what users write; at once when nobody writes, when somebody waits, when it is late, and at the end.
#[test]
fn a_job_keeps_pace_with_writes() {
    let env = Env::sim(1);
    // One memtable more may be written: a quarter of it is 25 KiB.
    let options = Options { pace_background_work: true, max_write_buffer_number: 2, ..Options::default() };
    let throttle = Arc::new(throttle(&env, options));
    let timed = |pace: &JobPace, bytes: u64| {
        let start = env.now();
        throttle.step(pace, bytes);
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
    let options = Options { disable_auto_compactions: true, pace_background_work: true, ..Options::default() };
    let throttle = throttle(&env, options);
    throttle.update(&Pressure { level0_tables: 1000, pending_compaction_bytes: u64::MAX });
    assert_eq!(throttle.stall(), Stall::None);
    let mut due_nanos = 0;
    throttle.keep_pace(&mut due_nanos, 1 << 30, || unreachable!("nobody asks"));
    assert_eq!(env.now().as_nanos(), 0);
}
