//! What happens when something goes wrong: deadlocks, panics, strangers, runs without end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use varve_env::channel::bounded;
use varve_env::{Condvar, Env, Mutex, RwLock, SimOptions};

/// The message of the panic `f` ends with.
fn panic_of<T>(f: impl FnOnce() -> T) -> String {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => panic!("no panic"),
        Err(payload) => match payload.downcast::<String>() {
            Ok(text) => *text,
            Err(payload) => (*payload.downcast::<&str>().unwrap()).to_owned(),
        },
    }
}

#[test]
fn a_deadlock_says_who_waits_for_what() {
    let env = Env::sim(11);
    let a = Arc::new(Mutex::new(&env, "catalogue", ()));
    let b = Arc::new(Mutex::new(&env, "journal", ()));
    let crossed = |name: &str, first: &Arc<Mutex<()>>, second: &Arc<Mutex<()>>| {
        let (env2, first, second) = (env.clone(), first.clone(), second.clone());
        env.spawn(name, move || {
            let _first = first.lock();
            env2.sleep(Duration::from_millis(1));
            let _second = second.lock();
        })
    };
    let forth = crossed("forth", &a, &b);
    let back = crossed("back", &b, &a);
    let report = panic_of(|| forth.join());
    assert_eq!(
        report,
        "deadlock: every actor waits and no timer is set (seed 11, virtual time 0.001000000 s)\
         \n  main (actor 0): joins forth\
         \n  forth (actor 1): waits for mutex \"journal\", held by back\
         \n  back (actor 2): waits for mutex \"catalogue\", held by forth"
    );
    assert_eq!(back.join().unwrap_err().message(), report, "every blocked actor gets the report");
    assert_eq!(env.live_actors(), 1);
    assert!(a.try_lock().is_some() && b.try_lock().is_some(), "unwinding lets go of locks");
}

#[test]
fn reports_a_livelock() {
    let env = Env::sim(12);
    let turn = Arc::new(Mutex::new(&env, "turn", 0u64));
    let passed = Arc::new(Condvar::new(&env, "turn passed"));
    let play = |parity: u64| {
        let (turn, passed) = (turn.clone(), passed.clone());
        env.spawn(&format!("player {parity}"), move || {
            let mut turn = turn.lock();
            loop {
                while *turn % 2 != parity {
                    passed.wait(&mut turn);
                }
                *turn += 1;
                passed.notify_all();
            }
        })
    };
    let (first, second) = (play(0), play(1));
    let report = panic_of(|| first.join());
    assert!(report.starts_with("livelock: actors wake each other and the clock stands still (seed 12"), "{report}");
    assert!(report.contains("waits on condvar \"turn passed\""), "{report}");
    assert!(panic_of(|| second.join()).starts_with("livelock"));
}

#[test]
fn every_wait_is_named_in_the_report() {
    let env = Env::sim(1);
    let lock = Arc::new(Mutex::new(&env, "lock", ()));
    let table = Arc::new(RwLock::new(&env, "table", ()));
    let condvar = Arc::new(Condvar::new(&env, "flushed"));
    let (tx, rx) = bounded::<u8>(&env, "jobs", 1);
    let (full_tx, full_rx) = bounded::<u8>(&env, "replies", 1);
    full_tx.send(0).unwrap();
    let reader = table.read();
    let (lock2, condvar2, table2, rx2) = (lock.clone(), condvar.clone(), table.clone(), rx.clone());
    let handles = [
        env.spawn("one", move || condvar2.wait(&mut lock2.lock())),
        env.spawn("two", move || drop(table2.write())),
        env.spawn("three", move || assert!(rx2.recv().is_err())),
        env.spawn("four", move || full_tx.send(1).unwrap()),
    ];
    env.sleep(Duration::from_millis(1));
    // Main waits for itself.
    let guard = lock.lock();
    let report = panic_of(|| drop(lock.lock()));
    drop((guard, reader));
    for line in [
        "main (actor 0): waits for mutex \"lock\", held by main",
        "one (actor 1): waits on condvar \"flushed\"",
        "two (actor 2): waits for rwlock \"table\", held by main",
        "three (actor 3): waits to receive from channel \"jobs\"",
        "four (actor 4): waits to send into channel \"replies\"",
    ] {
        assert!(report.contains(line), "no {line:?} in {report}");
    }
    for handle in handles {
        assert!(handle.join().unwrap_err().message().starts_with("deadlock"));
    }
    drop((tx, rx, full_rx));
    assert_eq!(env.live_actors(), 1);
}

#[test]
fn a_condvar_wait_that_fails_gives_the_lock_back() {
    let env = Env::sim(1);
    let lock = Mutex::new(&env, "lock", 1);
    let condvar = Condvar::new(&env, "never");
    let mut guard = lock.lock();
    assert!(panic_of(|| condvar.wait(&mut guard)).starts_with("deadlock"));
    assert_eq!(*guard, 1);
    drop(guard);
    assert!(lock.try_lock().is_some());
}

#[test]
fn a_locker_that_fails_makes_way() {
    // Main keeps its read lock after the deadlock; the reader behind the failed writer, waiting in
    // a destructor, must get in.
    struct ReadsOnDrop(Arc<RwLock<u32>>);
    impl Drop for ReadsOnDrop {
        fn drop(&mut self) {
            assert_eq!(*self.0.read(), 5);
        }
    }
    let env = Env::sim(1);
    let table = Arc::new(RwLock::new(&env, "table", 5));
    let guard = table.read();
    let table2 = table.clone();
    let writer = env.spawn("writer", move || *table2.write() = 6);
    env.sleep(Duration::from_millis(1));
    let reads = ReadsOnDrop(table.clone());
    let reader = env.spawn("reader", move || {
        let _reads = reads;
        panic!("first");
    });
    let report = panic_of(|| reader.join());
    assert!(report.contains("waits for rwlock \"table\", held by main while unwinding"), "{report}");
    assert!(writer.join().is_err());
    env.sleep(Duration::from_millis(1));
    assert_eq!(env.live_actors(), 1);
    assert_eq!(*guard, 5);
}

#[test]
fn a_panic_surfaces_in_join() {
    for env in [Env::real(), Env::sim(1)] {
        let lock = Arc::new(Mutex::new(&env, "lock", 0));
        let lock2 = lock.clone();
        let handle = env.spawn("unlucky", move || {
            let mut value = lock2.lock();
            *value = 1;
            panic!("out of {}", "luck");
        });
        let error: varve_env::Panicked = handle.join().unwrap_err();
        assert_eq!(error.thread(), "unlucky");
        assert_eq!(error.message(), "out of luck");
        assert_eq!(error.to_string(), "thread \"unlucky\" panicked: out of luck");
        assert_eq!(*lock.lock(), 1, "the lock is free and not poisoned");
        assert_eq!(panic_of(|| error.resume()), "out of luck");
        let odd = env.spawn("odd", || std::panic::panic_any(5u8)).join().unwrap_err();
        assert_eq!(odd.message(), "a panic without a message");
    }
}

#[test]
fn a_panic_lets_the_others_go_on() {
    let env = Env::sim(1);
    let (tx, rx) = bounded::<u32>(&env, "numbers", 1);
    let failing = env.spawn("failing", move || {
        tx.send(1).unwrap();
        panic!("half way");
    });
    let consumer = env.spawn("consumer", move || std::iter::from_fn(|| rx.recv().ok()).count());
    assert_eq!(consumer.join().unwrap(), 1);
    assert!(failing.join().is_err());
}

#[test]
fn destructors_can_wait_while_unwinding() {
    // Like a database that is dropped by a panic and joins its worker.
    struct Service {
        stop: Option<varve_env::channel::Sender<()>>,
        worker: Option<varve_env::JoinHandle<()>>,
        lock: Arc<Mutex<u32>>,
    }
    impl Drop for Service {
        fn drop(&mut self) {
            drop(self.stop.take());
            *self.lock.lock() += 1;
            self.worker.take().unwrap().join().unwrap();
        }
    }
    for perturb in [false, true] {
        for seed in 0..20 {
            let env = Env::sim_with(SimOptions { seed, perturb, ..SimOptions::default() });
            let lock = Arc::new(Mutex::new(&env, "lock", 0));
            let message = panic_of(|| {
                let (stop, stopped) = bounded(&env, "stop", 1);
                let (env2, lock2) = (env.clone(), lock.clone());
                let worker = env.spawn("worker", move || {
                    while stopped.recv_until(env2.now() + Duration::from_millis(1))
                        != Err(varve_env::channel::RecvError::Disconnected)
                    {
                        let mut count = lock2.lock();
                        env2.sleep(Duration::from_micros(700));
                        *count += 1;
                    }
                });
                let _service = Service { stop: Some(stop), worker: Some(worker), lock: lock.clone() };
                env.sleep(Duration::from_millis(5));
                panic!("seed {seed}");
            });
            assert_eq!(message, format!("seed {seed}"));
            assert_eq!(env.live_actors(), 1);
            assert!(*lock.lock() > 1);
        }
    }
}

#[test]
fn a_stranger_is_told_to_attach() {
    let env = Env::sim(4);
    let lock = Arc::new(Mutex::new(&env, "lock", ()));
    let calls: Vec<Box<dyn FnOnce() + Send>> = vec![
        Box::new({
            let env = env.clone();
            move || assert!(env.now().as_nanos() > 0)
        }),
        Box::new({
            let env = env.clone();
            move || env.sleep(Duration::from_secs(1))
        }),
        Box::new({
            let env = env.clone();
            move || env.charge(1)
        }),
        Box::new({
            let env = env.clone();
            move || drop(env.spawn("child", || ()))
        }),
        Box::new({
            let lock = lock.clone();
            move || drop(lock.lock())
        }),
        Box::new({
            let lock = lock.clone();
            move || drop(lock.try_lock())
        }),
    ];
    for call in calls {
        let thread = std::thread::Builder::new().name("stranger".into());
        let message = thread.spawn(|| panic_of(call)).unwrap().join().unwrap();
        assert!(
            message.starts_with("thread \"stranger\" is not an actor of this simulation (seed 4): start it with Env::spawn, or call Env::attach"),
            "{message}"
        );
    }
    assert_eq!(env.live_actors(), 1);
}

#[test]
fn the_time_limit_ends_a_run_that_polls_for_ever() {
    let env = Env::sim_with(SimOptions { time_limit: Some(Duration::from_secs(60)), ..SimOptions::default() });
    let env2 = env.clone();
    let poller = env.spawn("poller", move || {
        loop {
            env2.sleep(Duration::from_secs(1));
        }
    });
    let report = panic_of(|| poller.join());
    assert!(
        report.starts_with("the time limit of 60.000000000 s passed (seed 0, virtual time 60.000000000 s)"),
        "{report}"
    );
    assert!(report.contains("poller (actor 1): sleeps until 61.000000000 s"), "{report}");
    env.sleep(Duration::from_secs(1));
    assert_eq!(env.live_actors(), 1);
}

#[test]
fn a_limit_that_passes_inside_an_unlock_frees_the_lock() {
    let env = Env::sim_with(SimOptions { time_limit: Some(Duration::from_secs(1)), ..SimOptions::default() });
    let lock = Mutex::new(&env, "lock", ());
    let guard = lock.lock();
    env.charge(2_000_000_000);
    assert!(panic_of(|| drop(guard)).starts_with("the time limit"));
    assert!(lock.try_lock().is_some());
}

#[test]
fn foreign_threads_join_by_admission() {
    let run = |seed| {
        let env = Env::sim(seed);
        let order = Arc::new(Mutex::new(&env, "order", Vec::new()));
        let (tx, rx) = bounded(&env, "done", 4);
        let threads: Vec<_> = (0..4u64)
            .map(|number| {
                let admission = env.admit(&format!("foreign {number}"));
                let (env, order, tx) = (env.clone(), order.clone(), tx.clone());
                std::thread::spawn(move || {
                    // However late the thread comes, the simulation waits for it.
                    std::thread::sleep(Duration::from_millis(4 - number));
                    let _attachment = admission.attach();
                    env.sleep(Duration::from_micros(number % 2));
                    order.lock().push(number);
                    tx.send(()).unwrap();
                    // Dropped as an actor.
                    drop((env, order, tx));
                })
            })
            .collect();
        drop(tx);
        while rx.recv().is_ok() {}
        let order = order.lock().clone();
        env.outside(|| threads.into_iter().for_each(|thread| thread.join().unwrap()));
        assert_eq!(env.live_actors(), 1);
        order
    };
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..10 {
        let order = run(seed);
        assert_eq!(order, run(seed), "seed {seed}");
        orders.insert(order);
    }
    assert!(orders.len() > 1);
}

#[test]
fn foreign_threads_join_while_main_is_outside() {
    for env in [Env::real(), Env::sim(2)] {
        let lock = Arc::new(Mutex::new(&env, "lock", 0u32));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (env, lock) = (env.clone(), lock.clone());
                std::thread::spawn(move || {
                    let _attachment = env.attach("foreign");
                    let again = env.attach("foreign, again");
                    drop(again);
                    for _ in 0..10 {
                        let mut value = lock.lock();
                        let seen = *value;
                        env.sleep(Duration::from_micros(5));
                        *value = seen + 1;
                    }
                })
            })
            .collect();
        env.outside(|| threads.into_iter().for_each(|thread| thread.join().unwrap()));
        assert_eq!(*lock.lock(), 40);
    }
}

#[test]
fn a_detached_thread_is_a_stranger_again() {
    let env = Env::sim(2);
    let env2 = env.clone();
    let thread = std::thread::spawn(move || {
        drop(env2.attach("visitor"));
        panic_of(|| env2.now())
    });
    let message = env.outside(|| thread.join().unwrap());
    assert!(message.contains("not an actor"), "{message}");
    let message = env.outside({
        let env = env.clone();
        move || panic_of(|| env.now())
    });
    assert!(message.contains("not from inside Env::outside"), "{message}");
    env.sleep(Duration::from_secs(1));
}

#[test]
fn a_panic_outside_comes_back_in() {
    let env = Env::sim(2);
    assert_eq!(panic_of(|| env.outside(|| panic!("abroad"))), "abroad");
    env.sleep(Duration::from_secs(1));
    assert_eq!(env.now().as_nanos(), 1_000_000_000);
}

#[test]
fn an_unused_admission_holds_nobody_up() {
    let env = Env::sim(2);
    let admission = env.admit("never comes");
    assert_eq!(env.live_actors(), 2);
    drop(admission);
    env.sleep(Duration::from_secs(1));
    let admission = env.admit("is main already");
    assert!(panic_of(|| admission.attach()).contains("another actor of the simulation already"));
    env.sleep(Duration::from_secs(1));
    assert_eq!(env.live_actors(), 1);
}

#[test]
fn a_thread_that_ends_attached_lets_the_others_run() {
    let env = Env::sim(2);
    let env2 = env.clone();
    let thread = std::thread::spawn(move || {
        std::mem::forget(env2.attach("forgetful"));
        env2.sleep(Duration::from_secs(1));
    });
    env.outside(|| thread.join().unwrap());
    env.sleep(Duration::from_secs(1));
    assert_eq!(env.live_actors(), 1);
}

#[test]
fn who_comes_after_the_end_is_told() {
    let env = std::thread::spawn(|| Env::sim(6)).join().unwrap();
    let message = panic_of(|| env.attach("late"));
    assert_eq!(message, "the simulation (seed 6) ended with the thread of its main actor");
}

#[test]
fn destructors_that_wait_for_each_other_end_the_process() {
    // Both panic, and each waits in a destructor for a notification of the other: no panic can
    // end that. The scenario runs in a process of its own.
    struct WaitsOnDrop(Arc<Mutex<()>>, Arc<Condvar>);
    impl Drop for WaitsOnDrop {
        fn drop(&mut self) {
            self.1.wait(&mut self.0.lock());
        }
    }
    const INNER: &str = "VARVE_ENV_TEST_INNER";
    if std::env::var_os(INNER).is_some() {
        let env = Env::sim(8);
        let lock = Arc::new(Mutex::new(&env, "lock", ()));
        let condvar = Arc::new(Condvar::new(&env, "notified"));
        let waits = WaitsOnDrop(lock.clone(), condvar.clone());
        let other = env.spawn("other", move || {
            let _waits = waits;
            panic!("first");
        });
        let _waits = WaitsOnDrop(lock, condvar);
        panic!("second, {}", other.name());
    }
    let name = "destructors_that_wait_for_each_other_end_the_process";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(INNER, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("all of them are unwinding from panics; giving up"), "{text}");
    assert!(text.contains("other (actor 1): waits on condvar \"notified\" while unwinding"), "{text}");
}

#[test]
fn what_may_cross_threads() {
    fn crosses<T: Send + Sync>() {}
    crosses::<Env>();
    crosses::<Mutex<std::cell::Cell<u8>>>();
    crosses::<RwLock<u8>>();
    crosses::<Condvar>();
    crosses::<varve_env::channel::Sender<u8>>();
    crosses::<varve_env::channel::Receiver<u8>>();
    crosses::<varve_env::JoinHandle<u8>>();
    crosses::<varve_env::Panicked>();
    crosses::<varve_env::Admission>();
}

#[test]
fn what_is_left_behind_stands_still() {
    let ticks = Arc::new(AtomicU32::new(0));
    let ended = Arc::new(AtomicBool::new(false));
    struct SetsOnDrop(Arc<AtomicBool>);
    impl Drop for SetsOnDrop {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    let (ticks2, ended2) = (ticks.clone(), ended.clone());
    std::thread::spawn(move || {
        let env = Env::sim(1);
        let env2 = env.clone();
        drop(env.spawn("ticker", move || {
            let _ended = SetsOnDrop(ended2);
            loop {
                env2.sleep(Duration::from_secs(1));
                ticks2.fetch_add(1, SeqCst);
            }
        }));
        env.sleep(Duration::from_millis(3500));
    })
    .join()
    .unwrap();
    // Main's thread is gone: the ticker must not run on, and must not be unwound.
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(ticks.load(SeqCst), 3);
    assert!(!ended.load(SeqCst));
}

/// Sleeps when it is dropped.
struct SleepsOnDrop(Env, Arc<Mutex<Vec<String>>>, &'static str);

impl Drop for SleepsOnDrop {
    fn drop(&mut self) {
        self.0.sleep(Duration::from_millis(5));
        let unwinds = std::thread::panicking();
        self.1.lock().push(format!("{} at {}, {}", self.2, self.0.now(), if unwinds { "unwinds" } else { "ends" }));
    }
}

/// Who unwinds keeps the thread, for that counts panics; the others, with all that was on their stacks, go on on another one.
#[test]
fn a_stack_goes_on_on_another_thread() {
    thread_local! {
        static NUMBER: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    let run = || {
        let env = Env::sim(3);
        let log = Arc::new(Mutex::new(&env, "log", Vec::new()));
        let held = Arc::new(Mutex::new(&env, "held", 0u32));
        let panics = env.spawn("panics", {
            let (env, log) = (env.clone(), log.clone());
            move || {
                let _first = SleepsOnDrop(env.clone(), log.clone(), "panics, first");
                let _second = SleepsOnDrop(env.clone(), log.clone(), "panics, second");
                env.sleep(Duration::from_millis(2));
                panic!("with others about");
            }
        });
        let others: Vec<_> = (0..3)
            .map(|number| {
                let (env, log, held) = (env.clone(), log.clone(), held.clone());
                env.clone().spawn("other", move || {
                    let _last = SleepsOnDrop(env.clone(), log, "other");
                    for step in 0..10 {
                        let mut value = held.lock();
                        NUMBER.set(NUMBER.get() + 1);
                        env.sleep(Duration::from_millis(1));
                        *value += 1;
                        drop(value);
                        if (number, step) == (1, 4) {
                            assert_eq!(panic_of(|| panic!("caught")), "caught");
                        }
                        if (number, step) == (2, 7) {
                            env.outside(|| std::thread::sleep(Duration::from_millis(1)));
                        }
                    }
                })
            })
            .collect();
        let panicked = panics.join().unwrap_err();
        assert_eq!((panicked.thread(), panicked.message()), ("panics", "with others about"));
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!((*held.lock(), env.live_actors()), (30, 1));
        (log.lock().clone(), env.event_hash())
    };
    let (log, _) = run();
    assert_eq!(log.len(), 5, "{log:?}");
    let unwound = log.iter().filter(|line| line.ends_with("unwinds")).map(|line| line.split(" at ").next().unwrap());
    assert_eq!(unwound.collect::<Vec<_>>(), ["panics, second", "panics, first"], "{log:?}");
}

/// A panic while another one unwinds is each actor's own.
#[test]
fn many_unwind_at_once() {
    let env = Env::sim(4);
    let log = Arc::new(Mutex::new(&env, "log", Vec::new()));
    let threads: Vec<_> = (0..20)
        .map(|number| {
            let (env, log) = (env.clone(), log.clone());
            env.clone().spawn("one of many", move || {
                let _first = SleepsOnDrop(env.clone(), log, "one");
                env.sleep(Duration::from_millis(number));
                panic!("number {number}");
            })
        })
        .collect();
    for (number, thread) in threads.into_iter().enumerate() {
        assert_eq!(thread.join().unwrap_err().message(), format!("number {number}"));
    }
    let log = log.lock();
    assert!(log.len() == 20 && log.iter().all(|line| line.ends_with("unwinds")), "{log:?}");
}

/// Actors cost a stack and no thread.
#[test]
fn thousands_of_actors_wait_at_once() {
    let env = Env::sim(5);
    // Tools that follow threads know no stacks, and cannot have as many of the former.
    let count = if cfg!(actors_are_threads) { 100 } else { 5_000u64 };
    let threads: Vec<_> = (0..count)
        .map(|number| {
            let env = env.clone();
            env.clone().spawn("one of thousands", move || {
                env.sleep(Duration::from_millis(10_000 - number));
                number
            })
        })
        .collect();
    let sum: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!((sum, env.live_actors()), ((count - 1) * count / 2, 1));
}
