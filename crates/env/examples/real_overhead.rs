//! What the primitives cost: a real env beside the bare `parking_lot`, and a simulation's steps.
//!
//! `cargo run --release -p varve-env --example real_overhead`

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use varve_env::channel::bounded;
use varve_env::{Env, Mutex, RwLock};

/// The best of seven rounds, in nanoseconds per step: noise only ever adds.
fn nanos_per_step(steps: u32, mut step: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..7 {
        let begin = Instant::now();
        for _ in 0..steps {
            step();
        }
        best = best.min(begin.elapsed().as_nanos() as f64 / f64::from(steps));
    }
    best
}

fn print(what: &str, nanos: f64) {
    println!("{what:<44} {nanos:>10.1} ns");
}

fn main() {
    let real = Env::real();
    let bare = black_box(parking_lot::Mutex::new(0u64));
    print("parking_lot::Mutex, lock and unlock", nanos_per_step(2_000_000, || *bare.lock() += 1));
    let lock = black_box(Mutex::new(&real, "counter", 0u64));
    print("real Mutex, lock and unlock", nanos_per_step(2_000_000, || *lock.lock() += 1));
    let bare = black_box(parking_lot::RwLock::new(0u64));
    print("parking_lot::RwLock, read and unlock", nanos_per_step(2_000_000, || assert_eq!(black_box(*bare.read()), 0)));
    let lock = black_box(RwLock::new(&real, "counter", 0u64));
    print("real RwLock, read and unlock", nanos_per_step(2_000_000, || assert_eq!(black_box(*lock.read()), 0)));
    print("real now", nanos_per_step(1_000_000, || assert!(black_box(real.now().as_nanos()) > 0)));
    print(
        "real charge and settle",
        nanos_per_step(2_000_000, || {
            black_box(&real).charge(5);
            black_box(&real).settle();
        }),
    );

    let sim = Env::sim(1);
    let lock = Mutex::new(&sim, "counter", 0u64);
    print("simulated Mutex, lock and unlock", nanos_per_step(500_000, || *lock.lock() += 1));
    print("simulated now", nanos_per_step(500_000, || assert!(black_box(sim.now().as_nanos()) < u64::MAX)));
    print("simulated charge", nanos_per_step(500_000, || sim.charge(1)));
    print(
        "simulated charge and settle",
        nanos_per_step(500_000, || {
            sim.charge(5);
            sim.settle();
        }),
    );
    print("simulated sleep, nobody else awake", nanos_per_step(500_000, || sim.sleep(Duration::from_nanos(50))));

    let (there, from_here) = bounded::<u32>(&sim, "there", 1);
    let (back, from_there) = bounded::<u32>(&sim, "back", 1);
    let echo = sim.spawn("echo", move || {
        while let Ok(value) = from_here.recv() {
            if back.send(value).is_err() {
                break;
            }
        }
    });
    let round_trip = nanos_per_step(5_000, || {
        let _ = there.send(1);
        let _ = from_there.recv();
    });
    print("simulated switch of actors", round_trip / 2.0);
    drop(there);
    let ended = echo.join();
    debug_assert!(ended.is_ok());

    // Ten sleeping actors with other deadlines: every sleep is a switch.
    let total = Arc::new(parking_lot::Mutex::new(0u64));
    let begin = Instant::now();
    let sleepers: Vec<_> = (1..=10u64)
        .map(|period| {
            let (sim2, total) = (sim.clone(), total.clone());
            sim.spawn("sleeper", move || {
                for _ in 0..1_000 {
                    sim2.sleep(Duration::from_nanos(1_000 + period));
                    *total.lock() += 1;
                }
            })
        })
        .collect();
    for sleeper in sleepers {
        let ended = sleeper.join();
        debug_assert!(ended.is_ok());
    }
    print("simulated sleep among ten sleepers", begin.elapsed().as_nanos() as f64 / *total.lock() as f64);
}
