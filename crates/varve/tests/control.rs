//! Disks under control, by specs.

use std::time::Duration;
use varve::env::Env;
use varve::{Options, ReadOptions, Spec, Varve};

/// The longest of the gets that are made one after the other for so many seconds, each in a gap of 20 ms.
fn longest_get(options: ReadOptions) -> Duration {
    let env = Env::sim(3);
    let of_client = env.clone();
    let client = env.spawn("client", move || {
        let env = of_client;
        let text = "hasmr:1GiB?cache=64MiB,extents=1000,store=extent,control=at-ic,control-execution-ms=2000,control-idle-ms=1000";
        let spec: Spec = text.parse().unwrap();
        let small = Options { block_cache_capacity: 0, ..Default::default() };
        let db = Varve::builder().env(&env).options(small).open_spec(&spec).unwrap();
        for number in 0..2000u32 {
            db.put(number.to_le_bytes(), [7; 4000]).unwrap();
        }
        db.flush().unwrap();
        db.wait_idle().unwrap();
        let (begin, mut longest, mut random) = (env.now(), Duration::ZERO, env.random("keys"));
        while env.now() - begin < Duration::from_secs(10) {
            let key = (random.below(2000) as u32).to_le_bytes();
            let asked = env.now();
            assert!(db.get_with(key, &options).unwrap().is_some());
            env.settle();
            longest = longest.max(env.now() - asked);
            env.sleep(Duration::from_millis(20));
        }
        longest
    });
    client.join().unwrap()
}

/// AT-IC holds every request while it lets the disk clean; a get says how long it may.
#[test]
fn a_get_is_not_held_beyond_what_it_says() {
    assert!(longest_get(ReadOptions::default()) > Duration::from_millis(800));
    let within = ReadOptions { wanted_within: Some(Duration::from_millis(60)), ..ReadOptions::default() };
    let longest = longest_get(within);
    assert!(longest < Duration::from_millis(200), "{longest:?}");
}
