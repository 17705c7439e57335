use super::*;

fn scheduler(seed: u64) -> Scheduler {
    Scheduler::new(seed, 2, None)
}

fn run(scheduler: &mut Scheduler) -> ActorId {
    match scheduler.dispatch() {
        Dispatch::Run(id) => id,
        other => panic!("nobody runs: {other:?}"),
    }
}

struct Point(Vec<ActorId>);

impl WaitPoint for Point {
    fn describe(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        f.write_str("waits for mutex \"manifest\"")
    }
    fn holders(&self) -> Vec<ActorId> {
        self.0.clone()
    }
}

fn point(holders: &[ActorId]) -> Reason {
    Reason::Point(Arc::new(Point(holders.to_vec())))
}

#[test]
fn the_clock_jumps_to_the_earliest_timer() {
    let mut s = scheduler(1);
    let a = s.register("a".into());
    assert_eq!(run(&mut s), a);
    let b = s.register("b".into());
    s.wait(a, Reason::Sleep, Some(50), false);
    assert_eq!(run(&mut s), b);
    s.wait(b, Reason::Sleep, Some(20), false);
    assert_eq!((run(&mut s), s.now()), (b, 20));
    assert_eq!(s.take_wake(b), Wake::Timeout);
    s.wait(b, Reason::Sleep, Some(90), false);
    assert_eq!((run(&mut s), s.now()), (a, 50));
}

#[test]
fn a_deadline_in_the_past_does_not_turn_the_clock_back() {
    let mut s = scheduler(1);
    let a = s.register("a".into());
    run(&mut s);
    s.wait(a, Reason::Sleep, Some(50), false);
    run(&mut s);
    s.wait(a, Reason::Sleep, Some(10), false);
    assert_eq!((run(&mut s), s.now()), (a, 50));
}

#[test]
fn the_fast_path_needs_to_be_first_and_alone() {
    let mut s = scheduler(1);
    let a = s.register("a".into());
    run(&mut s);
    assert!(s.try_advance(a, 10));
    assert_eq!(s.now(), 10);
    let b = s.register("b".into());
    assert!(!s.try_advance(a, 20), "b could run");
    s.yield_running(a);
    while run(&mut s) != b {
        s.yield_running(a);
    }
    s.wait(b, Reason::Sleep, Some(30), false);
    assert_eq!(run(&mut s), a);
    assert!(s.try_advance(a, 29));
    assert!(!s.try_advance(a, 30), "a tie is not the caller's to win");
    assert_eq!(s.now(), 29);
}

#[test]
fn waking_cancels_the_timer() {
    let mut s = scheduler(1);
    let a = s.register("a".into());
    run(&mut s);
    let b = s.register("b".into());
    s.wait(a, point(&[]), Some(100), false);
    assert_eq!(run(&mut s), b);
    s.wake(a);
    s.wake(a);
    s.wait(b, Reason::Sleep, Some(500), false);
    assert_eq!((run(&mut s), s.now()), (a, 0));
    assert_eq!(s.take_wake(a), Wake::Called);
    s.wait(a, Reason::Sleep, Some(1000), false);
    assert_eq!((run(&mut s), s.now()), (b, 500));
}

#[test]
fn a_wake_before_the_wait_is_kept_once() {
    let mut s = scheduler(1);
    let a = s.register("a".into());
    run(&mut s);
    s.wake(a);
    s.wait(a, point(&[]), None, false);
    assert_eq!(run(&mut s), a);
    s.wait(a, point(&[]), Some(7), false);
    assert_eq!((run(&mut s), s.now()), (a, 7));
}

#[test]
fn ties_follow_the_seed() {
    let order = |seed| {
        let mut s = scheduler(seed);
        let main = s.register("main".into());
        run(&mut s);
        for _ in 0..6 {
            s.register("worker".into());
        }
        s.wait(main, Reason::Sleep, Some(5), false);
        let mut order = Vec::new();
        for _ in 0..6 {
            let id = run(&mut s);
            // All six timers tie again.
            s.wait(id, Reason::Sleep, Some(3), false);
            order.push(id);
        }
        for _ in 0..6 {
            let id = run(&mut s);
            assert_eq!(s.now(), 3);
            order.push(id);
            s.end(id);
        }
        assert_eq!(run(&mut s), main);
        (order, s.hash())
    };
    let mut orders = BTreeSet::new();
    for seed in 0..32 {
        assert_eq!(order(seed), order(seed), "seed {seed}");
        orders.insert(order(seed).0);
    }
    assert!(orders.len() > 28, "32 seeds gave only {} orders", orders.len());
}

#[test]
fn ending_wakes_joiners() {
    let mut s = scheduler(1);
    let a = s.register("a".into());
    run(&mut s);
    let b = s.register("b".into());
    s.add_joiner(b, a);
    s.wait(a, Reason::Join(b), None, false);
    assert_eq!(run(&mut s), b);
    s.end(b);
    assert!(s.has_ended(b));
    assert_eq!(run(&mut s), a);
    s.end(a);
    assert_eq!(s.dispatch(), Dispatch::Idle);
    assert_eq!(s.live(), 0);
}

#[test]
fn a_deadlock_wakes_everyone_with_the_report() {
    let mut s = scheduler(9);
    let a = s.register("main".into());
    run(&mut s);
    let b = s.register("flush".into());
    s.add_joiner(b, a);
    s.wait(a, Reason::Join(b), None, false);
    assert_eq!(run(&mut s), b);
    s.wait(b, point(&[a]), None, false);
    let first = run(&mut s);
    let Wake::Failed(report) = s.take_wake(first) else { panic!("not failed") };
    assert_eq!(
        &*report,
        "deadlock: every actor waits and no timer is set (seed 9, virtual time 0.000000000 s)\
         \n  main (actor 0): joins flush\
         \n  flush (actor 1): waits for mutex \"manifest\", held by main"
    );
    s.end(first);
    let second = run(&mut s);
    assert_ne!(first, second);
}

#[test]
fn who_unwinds_already_is_not_failed_again() {
    let mut s = scheduler(9);
    let a = s.register("a".into());
    run(&mut s);
    let b = s.register("b".into());
    s.wait(a, point(&[b]), None, true);
    assert_eq!(run(&mut s), b);
    s.wait(b, point(&[a]), None, false);
    assert_eq!(run(&mut s), b);
    assert!(matches!(s.take_wake(b), Wake::Failed(_)));
    s.wait(b, point(&[a]), None, true);
    let Dispatch::Stuck(report) = s.dispatch() else { panic!("not stuck") };
    assert!(report.contains("while unwinding from a panic"), "{report}");
}

#[test]
fn the_time_limit_fails_sleepers() {
    let mut s = Scheduler::new(1, 1, Some(100));
    let a = s.register("a".into());
    run(&mut s);
    assert!(s.try_advance(a, 100));
    assert!(!s.try_advance(a, 101));
    s.wait(a, Reason::Sleep, Some(101), false);
    assert_eq!(run(&mut s), a);
    let Wake::Failed(report) = s.take_wake(a) else { panic!("not failed") };
    assert!(report.contains("time limit"), "{report}");
    assert_eq!(s.now(), 100);
    // Unwinding may take time.
    assert!(s.try_advance(a, 500));
}

#[test]
fn who_is_outside_prevents_a_deadlock() {
    let mut s = scheduler(1);
    let a = s.register("a".into());
    run(&mut s);
    let b = s.register("b".into());
    s.leave(a);
    assert_eq!(run(&mut s), b);
    s.wait(b, point(&[a]), None, false);
    assert_eq!(s.dispatch(), Dispatch::Idle);
    s.enter(a);
    assert_eq!(run(&mut s), a);
}

#[test]
fn an_admission_can_be_cancelled_before_and_after_its_turn_came() {
    let mut s = scheduler(1);
    let a = s.register("a".into());
    run(&mut s);
    let b = s.register("b".into());
    s.cancel(b);
    assert!(s.has_ended(b));
    assert_eq!(s.running(), Some(a));
    assert!(!s.others_runnable());
    let c = s.register("c".into());
    s.wait(a, Reason::Sleep, Some(1), false);
    assert_eq!(run(&mut s), c);
    s.cancel(c);
    assert_eq!(s.running(), None);
    assert_eq!(run(&mut s), a);
}

#[test]
fn processors_are_a_queue() {
    let mut s = scheduler(1);
    assert_eq!(s.reserve_processor(10), 10);
    assert_eq!(s.reserve_processor(30), 30);
    assert_eq!(s.reserve_processor(5), 15, "the third waits for the first that is free");
    let a = s.register("a".into());
    run(&mut s);
    assert!(s.try_advance(a, 100));
    assert_eq!(s.reserve_processor(5), 105);
    assert_eq!(s.settled_total(), 50);
    assert_eq!(s.reserve_processor(u64::MAX), u64::MAX);
}

#[test]
fn everything_counts_in_the_hash() {
    let hash = |change: fn(&mut Scheduler)| {
        let mut s = scheduler(1);
        s.register("a".into());
        run(&mut s);
        change(&mut s);
        s.hash()
    };
    let hashes = BTreeSet::from([
        hash(|_| ()),
        hash(|s| s.record("x", 1)),
        hash(|s| s.record("x", 2)),
        hash(|s| s.record("y", 1)),
        hash(|s| assert!(s.try_advance(ActorId(0), 5))),
        hash(|s| assert!(s.try_advance(ActorId(0), 6))),
        hash(|s| {
            s.register("b".into());
        }),
        hash(|s| {
            s.register("c".into());
        }),
        hash(|s| s.end(ActorId(0))),
    ]);
    assert_eq!(hashes.len(), 9);
}
