//! What the primitives promise, in every kind of env: real, simulated, and simulated with schedule
//! perturbation under many seeds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use varve_env::channel::{RecvError, SendError, TryRecvError, TrySendError, bounded};
use varve_env::{Condvar, Env, Instant, Mutex, RwLock, SimOptions};

/// Runs `test` in every kind of env and says which one failed.
fn in_every_env(test: fn(&Env)) {
    let run = |what: &str, env: &dyn Fn() -> Env| {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let env = env();
            test(&env);
            assert!(!env.is_virtual() || env.live_actors() == 1, "actors left behind");
        }));
        if let Err(panic) = result {
            eprintln!("failed in {what}");
            std::panic::resume_unwind(panic);
        }
    };
    run("real", &Env::real);
    for seed in 0..12 {
        run(&format!("sim, seed {seed}"), &|| Env::sim(seed));
        run(&format!("perturbed sim, seed {seed}"), &|| {
            Env::sim_with(SimOptions { seed, perturb: true, ..SimOptions::default() })
        });
    }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_mutex_excludes() {
    in_every_env(|env| {
        let inside = Arc::new(AtomicU32::new(0));
        let lock = Arc::new(Mutex::new(env, "lock", 0u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (env2, inside, lock) = (env.clone(), inside.clone(), lock.clone());
                env.spawn("adder", move || {
                    for round in 0..20 {
                        let mut value = lock.lock();
                        assert_eq!(inside.fetch_add(1, SeqCst), 0);
                        let seen = *value;
                        if round % 5 == 0 {
                            env2.sleep(Duration::from_micros(20));
                        }
                        *value = seen + 1;
                        inside.fetch_sub(1, SeqCst);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*lock.lock(), 80);
        let mut lock = Arc::into_inner(lock).unwrap();
        *lock.get_mut() += 1;
        assert_eq!(lock.into_inner(), 81);
    });
}

#[test]
fn try_lock_does_not_wait() {
    in_every_env(|env| {
        let lock = Arc::new(Mutex::new(env, "lock", ()));
        let guard = lock.try_lock().unwrap();
        let lock2 = lock.clone();
        let refused = env.spawn("second", move || lock2.try_lock().is_none()).join().unwrap();
        assert!(refused);
        drop(guard);
        assert!(lock.try_lock().is_some());
    });
}

#[test]
fn a_waiting_locker_is_not_starved() {
    // The holder takes the lock again as soon as it lets go.
    let env = Env::sim(1);
    let lock = Arc::new(Mutex::new(&env, "lock", ()));
    let done = Arc::new(AtomicBool::new(false));
    let (env2, lock2, done2) = (env.clone(), lock.clone(), done.clone());
    let greedy = env.spawn("greedy", move || {
        let mut rounds = 0;
        while !done2.load(SeqCst) {
            let _guard = lock2.lock();
            env2.sleep(millis(1));
            rounds += 1;
        }
        rounds
    });
    env.sleep(millis(2));
    drop(lock.lock());
    done.store(true, SeqCst);
    assert!(greedy.join().unwrap() < 10);
}

#[test]
fn a_condvar_passes_the_turn() {
    in_every_env(|env| {
        let turn = Arc::new((Mutex::new(env, "turn", 0u32), Condvar::new(env, "turn changed")));
        let players: Vec<_> = (0..3u32)
            .map(|player| {
                let turn = turn.clone();
                env.spawn("player", move || {
                    for round in 0..10 {
                        let mut now = turn.0.lock();
                        while *now != round * 3 + player {
                            turn.1.wait(&mut now);
                        }
                        *now += 1;
                        turn.1.notify_all();
                    }
                })
            })
            .collect();
        for player in players {
            player.join().unwrap();
        }
        assert_eq!(*turn.0.lock(), 30);
    });
}

#[test]
fn a_condvar_wait_times_out() {
    in_every_env(|env| {
        let lock = Mutex::new(env, "lock", 5);
        let condvar = Condvar::new(env, "never");
        let begin = env.now();
        let mut guard = lock.lock();
        while !condvar.wait_until(&mut guard, begin + millis(3)) {}
        assert!(env.now() >= begin + millis(3));
        assert_eq!(*guard, 5);
        drop(guard);
        assert!(lock.try_lock().is_some());
    });
}

#[test]
fn a_notification_comes_before_its_timeout() {
    in_every_env(|env| {
        let ready = Arc::new((Mutex::new(env, "ready", false), Condvar::new(env, "ready changed")));
        let ready2 = ready.clone();
        let env2 = env.clone();
        let notifier = env.spawn("notifier", move || {
            env2.sleep(millis(1));
            *ready2.0.lock() = true;
            ready2.1.notify_one();
        });
        let mut guard = ready.0.lock();
        while !*guard {
            let timed_out = ready.1.wait_until(&mut guard, Instant::MAX);
            assert!(!timed_out);
        }
        drop(guard);
        notifier.join().unwrap();
    });
}

#[test]
fn one_notification_wakes_one() {
    let env = Env::sim(3);
    let state = Arc::new((Mutex::new(&env, "count", 0), Condvar::new(&env, "go")));
    let waiters: Vec<_> = (0..5)
        .map(|_| {
            let state = state.clone();
            env.spawn("waiter", move || {
                let mut woken = state.0.lock();
                state.1.wait(&mut woken);
                *woken += 1;
            })
        })
        .collect();
    for expected in 0..5 {
        env.sleep(millis(1));
        assert_eq!(*state.0.lock(), expected);
        state.1.notify_one();
    }
    for waiter in waiters {
        waiter.join().unwrap();
    }
}

#[test]
fn a_notification_is_not_swallowed_by_a_timeout() {
    // A deadline and a notification at the same instant: either the first waiter is notified, and
    // says so, or the second is. Both outcomes are found.
    let mut outcomes = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let env = Env::sim(seed);
        let state = Arc::new((Mutex::new(&env, "lock", ()), Condvar::new(&env, "condvar")));
        let (env2, state2) = (env.clone(), state.clone());
        let limited = env.spawn("limited", move || {
            let mut guard = state2.0.lock();
            !state2.1.wait_until(&mut guard, env2.now() + millis(2))
        });
        env.sleep(millis(1));
        let patient_woken = Arc::new(AtomicBool::new(false));
        let (state2, woken2) = (state.clone(), patient_woken.clone());
        let patient = env.spawn("patient", move || {
            state2.1.wait(&mut state2.0.lock());
            woken2.store(true, SeqCst);
        });
        env.sleep(millis(1));
        state.1.notify_one();
        env.sleep(millis(1));
        let limited_woken = limited.join().unwrap();
        let outcome = (limited_woken, patient_woken.load(SeqCst));
        assert!(outcome.0 != outcome.1, "seed {seed}: {outcome:?}");
        outcomes.insert(outcome);
        state.1.notify_all();
        patient.join().unwrap();
    }
    assert_eq!(outcomes.len(), 2);
}

#[test]
fn an_rwlock_shares_and_excludes() {
    in_every_env(|env| {
        let lock = Arc::new(RwLock::new(env, "map", (0u64, 0u64)));
        let shared = Arc::new(AtomicU32::new(0));
        let mut threads = Vec::new();
        for _ in 0..2 {
            let (env2, lock) = (env.clone(), lock.clone());
            threads.push(env.spawn("writer", move || {
                for _ in 0..10 {
                    let mut pair = lock.write();
                    pair.0 += 1;
                    env2.sleep(Duration::from_micros(10));
                    pair.1 += 1;
                }
            }));
        }
        for _ in 0..3 {
            let (env2, lock, shared) = (env.clone(), lock.clone(), shared.clone());
            threads.push(env.spawn("reader", move || {
                for _ in 0..10 {
                    let pair = lock.read();
                    if shared.fetch_add(1, SeqCst) > 0 {
                        shared.fetch_add(1000, SeqCst);
                    }
                    assert_eq!(pair.0, pair.1);
                    env2.sleep(Duration::from_micros(10));
                    assert_eq!(pair.0, pair.1);
                    shared.fetch_sub(1, SeqCst);
                }
            }));
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*lock.read(), (20, 20));
        if env.is_virtual() {
            assert!(shared.load(SeqCst) >= 1000, "no two readers ever met");
        }
        let writer = lock.try_write().unwrap();
        let lock2 = lock.clone();
        assert!(env.spawn("second", move || lock2.try_read().is_none()).join().unwrap());
        drop(writer);
        let reader = lock.try_read().unwrap();
        let lock2 = lock.clone();
        assert!(env.spawn("third", move || lock2.try_write().is_none() && lock2.try_read().is_some()).join().unwrap());
        drop(reader);
        let mut lock = Arc::into_inner(lock).unwrap();
        lock.get_mut().0 = 7;
        assert_eq!(lock.into_inner(), (7, 20));
    });
}

#[test]
fn a_reader_waits_behind_a_waiting_writer() {
    let env = Env::sim(1);
    let lock = Arc::new(RwLock::new(&env, "map", 0));
    let reader = lock.read();
    let (lock2, lock3) = (lock.clone(), lock.clone());
    let writer = env.spawn("writer", move || *lock2.write() = 1);
    env.sleep(millis(1));
    let late = env.spawn("late reader", move || *lock3.read());
    env.sleep(millis(1));
    assert!(!late.is_finished());
    drop(reader);
    writer.join().unwrap();
    assert_eq!(late.join().unwrap(), 1);
}

#[test]
fn a_channel_keeps_order_and_bounds() {
    in_every_env(|env| {
        let (tx, rx) = bounded(env, "numbers", 3);
        let most = Arc::new(AtomicU64::new(0));
        let (env2, most2) = (env.clone(), most.clone());
        let producer = env.spawn("producer", move || {
            for number in 0..100u32 {
                tx.send(number).unwrap();
                most2.fetch_max(tx.len() as u64, SeqCst);
                if number % 17 == 0 {
                    env2.sleep(Duration::from_micros(30));
                }
            }
        });
        for number in 0..100 {
            assert_eq!(rx.recv(), Ok(number));
            if number % 13 == 0 {
                env.sleep(Duration::from_micros(30));
            }
        }
        assert_eq!(rx.recv(), Err(RecvError::Disconnected));
        assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected));
        producer.join().unwrap();
        assert!(most.load(SeqCst) <= 3);
    });
}

#[test]
fn a_channel_delivers_each_value_once() {
    in_every_env(|env| {
        let (tx, rx) = bounded(env, "numbers", 2);
        let producers: Vec<_> = (0..3u64)
            .map(|producer| {
                let tx = tx.clone();
                env.spawn("producer", move || (0..30).for_each(|n| tx.send(producer * 30 + n).unwrap()))
            })
            .collect();
        drop(tx);
        let consumers: Vec<_> = (0..3)
            .map(|_| {
                let rx = rx.clone();
                env.spawn("consumer", move || std::iter::from_fn(|| rx.recv().ok()).collect::<Vec<u64>>())
            })
            .collect();
        drop(rx);
        for producer in producers {
            producer.join().unwrap();
        }
        let mut all: Vec<u64> = consumers.into_iter().flat_map(|c| c.join().unwrap()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..90).collect::<Vec<_>>());
    });
}

#[test]
fn channel_ends_notice_each_other() {
    in_every_env(|env| {
        let (tx, rx) = bounded(env, "short", 1);
        assert!(tx.is_empty() && rx.is_empty());
        tx.try_send(1).unwrap();
        assert_eq!(tx.try_send(2), Err(TrySendError::Full(2)));
        assert_eq!(rx.try_recv(), Ok(1));
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        let deadline = env.now() + millis(2);
        assert_eq!(rx.recv_until(deadline), Err(RecvError::Timeout));
        assert!(env.now() >= deadline);
        tx.send(3).unwrap();
        assert_eq!(rx.recv_until(deadline), Ok(3), "what is there is received even after the deadline");
        tx.send(4).unwrap();
        let env2 = env.clone();
        let full = env.spawn("sender", move || {
            let result = tx.send(5);
            (result, tx.try_send(6), env2.now())
        });
        env.sleep(millis(1));
        drop(rx);
        let (send, try_send, _) = full.join().unwrap();
        assert_eq!(send, Err(SendError(5)));
        assert_eq!(try_send, Err(TrySendError::Disconnected(6)));

        let (tx, rx) = bounded::<u32>(env, "empty", 1);
        let empty = env.spawn("receiver", move || rx.recv());
        env.sleep(millis(1));
        drop(tx);
        assert_eq!(empty.join().unwrap(), Err(RecvError::Disconnected));
    });
}

#[test]
fn a_channel_drops_what_nobody_receives() {
    in_every_env(|env| {
        let value = Arc::new(());
        let (tx, rx) = bounded(env, "values", 4);
        tx.send(value.clone()).unwrap();
        tx.send(value.clone()).unwrap();
        drop(rx);
        assert_eq!(Arc::strong_count(&value), 1);
        drop(tx);
    });
}

#[test]
fn joining_gives_the_result_and_spawning_the_name() {
    in_every_env(|env| {
        let env2 = env.clone();
        let handle = env.spawn("answerer", move || {
            env2.sleep(millis(1));
            (std::thread::current().name().map(str::to_owned), 42)
        });
        assert_eq!(handle.name(), "answerer");
        if env.is_virtual() {
            assert!(!handle.is_finished());
            env.sleep(millis(5));
            assert!(handle.is_finished());
        }
        let (thread_name, answer) = handle.join().unwrap();
        assert_eq!(answer, 42);
        // In a simulation all actors that are spawned share a thread.
        if !env.is_virtual() {
            assert_eq!(thread_name.as_deref(), Some("answerer"));
        }
    });
}

#[test]
fn an_unwanted_result_is_dropped_by_its_actor() {
    // The result's destructor uses the env, which only an actor may.
    struct Uses(Env, Arc<AtomicBool>);
    impl Drop for Uses {
        fn drop(&mut self) {
            self.0.sleep(millis(1));
            self.1.store(true, SeqCst);
        }
    }
    for wait_first in [false, true] {
        let env = Env::sim(5);
        let dropped = Arc::new(AtomicBool::new(false));
        let (env2, dropped2) = (env.clone(), dropped.clone());
        let handle = env.spawn("maker", move || Uses(env2, dropped2));
        if wait_first {
            env.sleep(millis(1));
        }
        drop(handle);
        env.sleep(millis(10));
        assert!(dropped.load(SeqCst));
        assert_eq!(env.live_actors(), 1);
    }
}

#[test]
fn time_passes_only_by_waiting() {
    let env = Env::sim(0);
    assert_eq!(env.now(), Instant::ZERO);
    env.sleep(Duration::from_secs(3600));
    assert_eq!(env.now().as_nanos(), 3_600_000_000_000);
    env.sleep(Duration::ZERO);
    env.sleep_until(Instant::from_nanos(5));
    assert_eq!(env.now().as_nanos(), 3_600_000_000_000);
    assert_eq!(env.wall_clock_unix_nanos(), 1_577_840_400_000_000_000);
    env.yield_now();
    assert_eq!(env.now().as_nanos(), 3_600_000_001_000);
}

#[test]
fn real_time_passes() {
    let env = Env::real();
    let begin = env.now();
    env.sleep(millis(2));
    assert!(env.now() - begin >= millis(2));
    env.sleep_until(env.now() + millis(1));
    assert!(env.now() - begin >= millis(3));
    env.sleep_until(begin);
    env.yield_now();
    assert!(env.wall_clock_unix_nanos() > 1_700_000_000_000_000_000);
    assert!(env.parallelism() >= 1);
    assert_eq!((env.event_hash(), env.charged_total_nanos(), env.live_actors()), (0, 0, 0));
    env.charge(5);
    env.settle();
    env.record("nothing", 1);
    assert_eq!((env.event_hash(), env.charged_total_nanos()), (0, 0));
}

#[test]
fn charges_become_time_where_order_matters() {
    let env = Env::sim(0);
    let lock = Mutex::new(&env, "lock", ());
    env.charge(100);
    assert_eq!(env.now().as_nanos(), 100, "an actor sees its own charges at once");
    assert_eq!(env.charged_total_nanos(), 100);
    env.settle();
    assert_eq!(env.now().as_nanos(), 100);
    env.charge(50);
    drop(lock.lock());
    env.charge(7);
    env.sleep(Duration::from_nanos(3));
    assert_eq!(env.now().as_nanos(), 160);
    assert_eq!(env.charged_total_nanos(), 157);
}

#[test]
fn what_an_actor_charged_last_counts() {
    let env = Env::sim(0);
    let env2 = env.clone();
    env.spawn("worker", move || env2.charge(700)).join().unwrap();
    assert_eq!((env.now().as_nanos(), env.charged_total_nanos()), (700, 700));
}

#[test]
fn work_charged_under_a_lock_keeps_it_locked() {
    let env = Env::sim(0);
    let lock = Arc::new(Mutex::new(&env, "lock", ()));
    let (env2, lock2) = (env.clone(), lock.clone());
    let holder = env.spawn("holder", move || {
        let _guard = lock2.lock();
        env2.charge(1_000_000);
    });
    env.sleep(Duration::from_nanos(1));
    drop(lock.lock());
    assert_eq!(env.now().as_nanos(), 1_000_000);
    holder.join().unwrap();
}

#[test]
fn processors_are_shared() {
    let env = Env::sim_with(SimOptions { processors: 2, ..SimOptions::default() });
    assert_eq!(env.parallelism(), 2);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let env2 = env.clone();
            env.spawn("worker", move || {
                for _ in 0..10 {
                    env2.charge(100_000);
                    env2.settle();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    // Four times a millisecond of work on two processors.
    assert_eq!(env.now().as_nanos(), 2_000_000);
    assert_eq!(env.charged_total_nanos(), 4_000_000);
}

#[test]
fn random_streams_follow_seed_and_name() {
    let first = |seed, name| Env::sim(seed).random(name).next_u64();
    assert_eq!(first(1, "keys"), first(1, "keys"));
    assert_ne!(first(1, "keys"), first(1, "values"));
    assert_ne!(first(1, "keys"), first(2, "keys"));
    assert_eq!(Env::sim(7).seed(), 7);
    let env = Env::real();
    assert_eq!(env.random("a").next_u64(), env.random("a").next_u64());
}

/// A queue made by hand of a mutex and two condvars with single notifications, consumers that
/// give up waiting and come back: a notification that is lost, or swallowed by a waiter that timed out,
/// ends in a deadlock or a missing item.
fn hand_made_queue(env: &Env) {
    struct Queue {
        items: Mutex<(Vec<u32>, bool)>,
        filled: Condvar,
        emptied: Condvar,
    }
    let queue = Arc::new(Queue {
        items: Mutex::new(env, "items", (Vec::new(), false)),
        filled: Condvar::new(env, "filled"),
        emptied: Condvar::new(env, "emptied"),
    });
    let producers: Vec<_> = (0..3u32)
        .map(|producer| {
            let (env2, queue) = (env.clone(), queue.clone());
            env.spawn("producer", move || {
                let mut random = env2.random(&format!("producer {producer}"));
                for n in 0..20 {
                    let mut items = queue.items.lock();
                    while items.0.len() >= 2 {
                        queue.emptied.wait(&mut items);
                    }
                    items.0.push(producer * 20 + n);
                    drop(items);
                    queue.filled.notify_one();
                    if random.chance(1, 4) {
                        env2.sleep(Duration::from_micros(random.below(4)));
                    }
                }
            })
        })
        .collect();
    let consumers: Vec<_> = (0..3)
        .map(|consumer| {
            let (env2, queue) = (env.clone(), queue.clone());
            env.spawn("consumer", move || {
                let mut random = env2.random(&format!("consumer {consumer}"));
                let mut taken = Vec::new();
                let mut items = queue.items.lock();
                loop {
                    if let Some(item) = items.0.pop() {
                        taken.push(item);
                        queue.emptied.notify_one();
                    } else if items.1 {
                        return taken;
                    } else if random.chance(1, 2) {
                        // The same microsecond as the producers' steps: timeouts and notifications tie.
                        let deadline = env2.now() + Duration::from_micros(random.below(3));
                        queue.filled.wait_until(&mut items, deadline);
                    } else {
                        queue.filled.wait(&mut items);
                    }
                }
            })
        })
        .collect();
    for producer in producers {
        producer.join().unwrap();
    }
    queue.items.lock().1 = true;
    queue.filled.notify_all();
    let mut all: Vec<u32> = consumers.into_iter().flat_map(|c| c.join().unwrap()).collect();
    all.sort_unstable();
    assert_eq!(all, (0..60).collect::<Vec<_>>());
}

#[test]
fn no_wakeup_is_lost() {
    in_every_env(hand_made_queue);
    for seed in 100..200 {
        hand_made_queue(&Env::sim_with(SimOptions { seed, perturb: true, ..SimOptions::default() }));
    }
}

#[test]
fn processor_time_is_counted() {
    let sim = Env::sim(1);
    sim.charge(1234);
    sim.settle();
    assert_eq!(sim.process_cpu_nanos(), Some(1234));
    let real = Env::real();
    let before = real.process_cpu_nanos();
    let mut random = real.random("work");
    let sum = (0..1_000_000u64).fold(0u64, |sum, _| sum.wrapping_add(random.next_u64()));
    assert!(real.process_cpu_nanos() > before, "{sum}");
}
