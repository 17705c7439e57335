//! The first breath of both kinds of env.
use std::sync::Arc;
use std::time::Duration;
use varve_env::{Condvar, Env, Mutex, channel};

fn scenario(env: &Env) -> u64 {
    let total = Arc::new((Mutex::new(env, "total", 0u64), Condvar::new(env, "changed")));
    let (tx, rx) = channel::bounded(env, "jobs", 2);
    let workers: Vec<_> = (0..3)
        .map(|i| {
            let (env2, rx, total) = (env.clone(), rx.clone(), total.clone());
            env.spawn(&format!("worker-{i}"), move || {
                while let Ok(job) = rx.recv() {
                    env2.charge(500);
                    env2.sleep(Duration::from_micros(job % 7));
                    *total.0.lock() += job;
                    total.1.notify_all();
                }
            })
        })
        .collect();
    drop(rx);
    for job in 0..100u64 {
        tx.send(job).unwrap();
    }
    drop(tx);
    let mut guard = total.0.lock();
    while *guard < 4950 {
        total.1.wait(&mut guard);
    }
    drop(guard);
    for worker in workers {
        worker.join().unwrap();
    }
    *total.0.lock()
}

#[test]
fn both() {
    assert_eq!(scenario(&Env::real()), 4950);
    let mut hashes = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let run = || {
            let env = Env::sim(seed);
            assert_eq!(scenario(&env), 4950);
            assert_eq!(env.live_actors(), 1);
            env.event_hash()
        };
        let hash = run();
        assert_eq!(hash, run());
        hashes.insert(hash);
    }
    assert_eq!(hashes.len(), 20);
}
