use super::*;

mod exits;

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use varve_env::Env;
use varve_media::emulated::TranslationParameters;
use varve_media::presets::Preset;
use varve_media::{
    BlockDeviceExt, Device, IoClass, IoContext, MediaCache, NoBacking, Pacing, Request, ZoneGeometry, ZoneId, ZoneType,
    Zoned,
};

const ZONE: u64 = 256 << 20;

fn drive(env: &Env, extents_max: u32) -> Device {
    let translation = TranslationParameters {
        media_cache: MediaCache { bytes: 1 << 30, extents_max },
        ..TranslationParameters::st8000as0022()
    };
    let zones = ZoneGeometry {
        sequential_type: ZoneType::SequentialWritePreferred,
        media_cache: Some(translation.media_cache),
        ..ZoneGeometry::fit(40 * ZONE, ZONE).unwrap()
    };
    let preset = Preset::find("st8000as0022").unwrap().with_capacity(40 * ZONE);
    preset.build_translated(env, "drive", Zoned::new(&zones), translation, Box::new(NoBacking), Pacing::Sleep)
}

fn idler(drive: &Device) -> Box<Idler> {
    let zones = drive.block.capabilities().zones.clone().unwrap();
    Box::new(Idler::new(IdlerParameters::default(), GhostCache::new(&zones, zones.media_cache.unwrap())))
}

/// Holds everything back until a moment.
struct Until(u64);

impl Controller for Until {
    fn name(&self) -> String {
        "until".to_owned()
    }

    fn arrived(&mut self, arrival: &Arrival) -> Verdict {
        self.waited(arrival.nanos, arrival)
    }

    fn waited(&mut self, now_nanos: u64, _arrival: &Arrival) -> Verdict {
        if now_nanos < self.0 { Verdict::Wait(self.0) } else { Verdict::Go }
    }

    fn let_go(&mut self, _now_nanos: u64, _arrival: &Arrival) {}

    fn completed(&mut self, _now_nanos: u64, _begun_nanos: u64, _arrival: &Arrival) {}

    fn absorbed(&mut self, _now_nanos: u64, _arrival: &Arrival) {}

    fn wants_report(&self, _now_nanos: u64) -> bool {
        false
    }

    fn reported(&mut self, _now_nanos: u64, _zones: Option<&[varve_media::ZoneDescription]>) {}
}

/// What was in order stays in order: threads that wait go as they came, and before those that come later.
#[test]
fn held_requests_go_in_the_order_in_which_they_came() {
    for seed in 1..=5 {
        let env = Env::sim(seed);
        let of_client = env.clone();
        let client = env.spawn("client", move || {
            let env = of_client;
            let (device, control) = ControlledDevice::new(&env, &drive(&env, 1000), Box::new(Until(1_000_000_000)));
            let writers: Vec<_> = (0..40)
                .map(|number| {
                    let (env, device) = (env.clone(), device.clone());
                    env.clone().spawn("writer", move || {
                        // The last come when the others go.
                        env.sleep(Duration::from_nanos(if number < 30 { number } else { 1_000_000_000 }));
                        if number < 30 || env.now().as_nanos() >= 1_000_000_000 {
                            device.block.write_at(number * 4096, &[0; 4096], &IoContext::default()).unwrap();
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            let cleaning = device.block.counters().cleaning;
            // Those that came last came in any order.
            assert!(cleaning.cached_writes < 11, "seed {seed}: {cleaning:?}");
            let statistics = control.statistics();
            assert_eq!((statistics.delayed, statistics.idle_periods), (30, 1), "seed {seed}");
            assert!(statistics.longest_delay_nanos <= 1_000_000_000);
        });
        client.join().unwrap();
    }
}

/// True if no user waits for a request of this class.
fn is_patient(class: IoClass) -> bool {
    !matches!(class, IoClass::UserRead | IoClass::Log | IoClass::Metadata)
}

/// Holds what is patient back until a full half second, and lets the rest pass.
struct HalfSeconds;

impl Controller for HalfSeconds {
    fn name(&self) -> String {
        "half seconds".to_owned()
    }

    fn arrived(&mut self, arrival: &Arrival) -> Verdict {
        match is_patient(arrival.class) {
            true => Verdict::Wait(arrival.nanos / 500_000_000 * 500_000_000 + 500_000_000),
            false => Verdict::Pass,
        }
    }

    fn waited(&mut self, now_nanos: u64, arrival: &Arrival) -> Verdict {
        let until_nanos = arrival.nanos / 500_000_000 * 500_000_000 + 500_000_000;
        if now_nanos < until_nanos { Verdict::Wait(until_nanos) } else { Verdict::Go }
    }

    fn let_go(&mut self, _now_nanos: u64, _arrival: &Arrival) {}

    fn completed(&mut self, _now_nanos: u64, _begun_nanos: u64, _arrival: &Arrival) {}

    fn absorbed(&mut self, _now_nanos: u64, _arrival: &Arrival) {}

    fn wants_report(&self, _now_nanos: u64) -> bool {
        false
    }

    fn reported(&mut self, _now_nanos: u64, _zones: Option<&[varve_media::ZoneDescription]>) {}
}

/// Requests at moments, in nanoseconds, each of an actor of its own: when each was done, and how many writes were out of order.
fn at_moments(
    seed: u64,
    requests: Vec<(u64, IoContext, Vec<(bool, u64)>)>,
    controller: impl FnOnce(&Device) -> Box<dyn Controller> + Send + 'static,
) -> (Vec<u64>, u64) {
    let env = Env::sim(seed);
    let of_client = env.clone();
    let client = env.spawn("client", move || {
        let env = of_client;
        let inner = drive(&env, 1000);
        let (device, _) = ControlledDevice::new(&env, &inner, controller(&inner));
        let actors = requests.into_iter().map(|(nanos, context, pieces)| {
            let (env, device) = (env.clone(), device.clone());
            env.clone().spawn("actor", move || {
                env.sleep(Duration::from_nanos(nanos));
                match pieces.as_slice() {
                    [(false, at)] => device.block.read_at(*at, &mut [0; 4096], &context).unwrap(),
                    pieces => {
                        let written = [IoSlice::new(&[0; 4096])];
                        let writes = pieces.iter().map(|(_, at)| Request::write(*at, &written));
                        device.block.execute(&mut writes.collect::<Vec<_>>(), &context).unwrap();
                    }
                }
                env.now().as_nanos()
            })
        });
        let actors: Vec<_> = actors.collect();
        let done = actors.into_iter().map(|actor| actor.join().unwrap()).collect();
        (done, device.block.counters().cleaning.cached_writes)
    });
    client.join().unwrap()
}

/// What passes does not wait for what is held, but for writes to its zones and what must go before those: they go then, and no others.
#[test]
fn what_passes_goes_first_but_overtakes_no_write_to_its_zones() {
    let (compaction, log) = (IoContext::of(IoClass::Compaction), IoContext::of(IoClass::Log));
    let write = |zone: u64, block: u64| (true, zone * ZONE + block * 4096);
    let (done, out_of_order) = at_moments(
        1,
        vec![
            (10, compaction, vec![write(3, 0)]),
            (20, compaction, vec![write(0, 0), write(3, 1)]),
            (30, compaction, vec![write(0, 1)]),
            (40, compaction, vec![write(2, 0)]),
            (100_000_000, IoContext::of(IoClass::UserRead), vec![(false, 7 * ZONE)]),
            (200_000_000, log, vec![write(1, 0)]),
            (300_000_000, log, vec![write(0, 2)]),
            (300_000_001, compaction, vec![write(0, 3)]),
        ],
        |_| Box::new(HalfSeconds),
    );
    let millis: Vec<u64> = done.iter().map(|nanos| nanos / 1_000_000).collect();
    let during = |place: usize, from: u64| (from..from + 100).contains(&millis[place]);
    assert!(during(4, 100) && during(5, 200), "{millis:?}");
    assert!([0, 1, 2, 6].into_iter().all(|place| during(place, 300)), "{millis:?}");
    assert!(during(3, 500) && during(7, 500), "{millis:?}");
    assert_eq!(out_of_order, 0);
}

/// Whatever is held and whatever passes, what came in order is in order.
#[test]
fn no_write_overtakes_one_to_its_zone() {
    for seed in 1..=10 {
        let mut random = varve_env::Random::seeded(seed);
        let mut pointers = [0; 4];
        let requests = (1..200).map(|step| {
            let classes = [IoClass::Compaction, IoClass::Flush, IoClass::Log, IoClass::UserRead, IoClass::Other];
            let context = IoContext::of(classes[random.below(5) as usize]);
            let count = 1 + random.below(3);
            let mut write = || {
                let zone = random.below(4);
                pointers[zone as usize] += 4096;
                (true, zone * ZONE + pointers[zone as usize] - 4096)
            };
            let pieces = match context.class {
                IoClass::UserRead => vec![(false, 9 * ZONE)],
                _ => (0..count).map(|_| write()).collect(),
            };
            (step * 7_000_000, context, pieces)
        });
        let requests: Vec<_> = requests.collect();
        let (_, out_of_order) = at_moments(seed, requests, |_| Box::new(HalfSeconds));
        assert_eq!(out_of_order, 0, "seed {seed}");
    }
}

fn on_a_full_drive(
    controller: impl FnOnce(&Device) -> Box<dyn Controller> + Send + 'static,
) -> (u64, ControlStatistics) {
    let env = Env::sim(1);
    let of_client = env.clone();
    let client = env.spawn("client", move || {
        let env = of_client;
        let inner = drive(&env, 100);
        let zones = inner.zones.clone().unwrap();
        (0..20).for_each(|zone| zones.finish(ZoneId(zone), &IoContext::default()).unwrap());
        let controller = controller(&inner);
        let (device, control) = ControlledDevice::new(&env, &inner, controller);
        let mut random = env.random("writes");
        for _ in 0..3000 {
            let at = random.below(20) * ZONE + random.below(1000) * 4096;
            match random.chance(1, 20) {
                true => device.block.write_at(at, &[0; 4096], &IoContext::default()).unwrap(),
                false => device.block.read_at(at, &mut [0; 4096], &IoContext::default()).unwrap(),
            }
            env.sleep(Duration::from_millis(100));
        }
        (device.block.counters().cleaning.blocking_cleanings, control.statistics())
    });
    client.join().unwrap()
}

#[test]
fn idle_periods_keep_the_cache_from_filling() {
    let (blocked, _) = on_a_full_drive(|_| Box::new(Unrestrained));
    assert!(blocked > 0);
    let (blocked, statistics) = on_a_full_drive(|_| Box::new(FixedIdle::new(5_000_000_000, 2_000_000_000)));
    assert_eq!(blocked, 0, "{statistics:?}");
    assert!(statistics.longest_delay_nanos <= 2_000_000_000);
    let (blocked, statistics) = on_a_full_drive(|drive| idler(drive));
    assert_eq!(blocked, 0, "{statistics:?}");
    assert!(statistics.delayed > 0 && statistics.longest_delay_nanos <= 2_000_000_000, "{statistics:?}");
}

/// What has a deadline does not wait for what is held.
#[test]
fn deadlines_are_kept_while_others_wait() {
    let other = |deadline: Option<u64>| IoContext {
        deadline: deadline.map(varve_env::Instant::from_nanos),
        ..IoContext::of(IoClass::Other)
    };
    let mut requests: Vec<_> =
        (0..200).map(|step| (step * 300_000_000, other(None), vec![(true, step % 40 * ZONE + 4096)])).collect();
    // One that must be done in 50 ms is right behind each of the later ones.
    let urgent = (100..200).map(|step| {
        let nanos = step * 300_000_000 + 1_000_000;
        (nanos, other(Some(nanos + 50_000_000)), vec![(true, step % 40 * ZONE + (8 << 20))])
    });
    requests.extend(urgent);
    let (came, begun): (Vec<u64>, Vec<IoContext>) = requests.iter().map(|request| (request.0, request.1)).unzip();
    let (done, _) = at_moments(1, requests, |_| Box::new(HalfSeconds));
    let took = |place: usize| done[place] - came[place];
    let longest =
        |urgent: bool| (0..came.len()).filter(|&place| begun[place].deadline.is_some() == urgent).map(took).max();
    // The others are held for as long as a pause is.
    assert!(longest(false) > Some(350_000_000), "{:?}", longest(false));
    assert!(longest(true) < Some(150_000_000), "{:?}", longest(true));
}

/// A request that is held goes at its deadline, also where earlier ones wait on.
#[test]
fn deadlines_end_holds_while_earlier_requests_wait() {
    let compaction = |deadline: Option<u64>| IoContext {
        deadline: deadline.map(varve_env::Instant::from_nanos),
        ..IoContext::of(IoClass::Compaction)
    };
    let requests = vec![
        (10_000_000, compaction(None), vec![(true, ZONE)]),
        (20_000_000, compaction(Some(70_000_000)), vec![(true, 2 * ZONE)]),
    ];
    let (done, _) = at_moments(1, requests, |_| Box::new(HalfSeconds));
    assert!(done[0] >= 500_000_000 && done[1] < 170_000_000, "{done:?}");
}

/// A drive that says nothing of its zones, or of others than it has, is left to itself.
#[test]
fn a_drive_that_does_not_report_is_left_to_itself() {
    let (_, statistics) = on_a_full_drive(|drive| {
        let zones = drive.block.capabilities().zones.clone().unwrap();
        let other = ZoneGeometry { zone_count: zones.zone_count - 1, ..zones.clone() };
        Box::new(Idler::new(IdlerParameters::default(), GhostCache::new(&other, zones.media_cache.unwrap())))
    });
    assert_eq!((statistics.delayed, statistics.reports), (0, 1));
    let mut idler = Idler::new(
        IdlerParameters::default(),
        GhostCache::new(&ZoneGeometry::fit(ZONE, ZONE).unwrap(), MediaCache { bytes: 1, extents_max: 1 }),
    );
    idler.reported(0, None);
    assert!(!idler.wants_report(u64::MAX));
}

/// The ghost knows as much of the drive's cache as the drive does, when it was there from the beginning.
#[test]
fn the_ghost_follows_the_drive() {
    let env = Env::sim(3);
    let of_client = env.clone();
    let client = env.spawn("client", move || {
        let env = of_client;
        let device = drive(&env, 1000);
        let zones = device.block.capabilities().zones.clone().unwrap();
        let mut ghost = GhostCache::new(&zones, zones.media_cache.unwrap());
        let mut random = env.random("writes");
        let mut pointers = [0; 40];
        for step in 0..400u64 {
            let zone = random.below(40);
            let at = if random.chance(1, 2) { pointers[zone as usize] } else { random.below(100) * 4096 };
            pointers[zone as usize] = at + 4096;
            ghost.written(zone * ZONE + at, 4096);
            device.block.write_at(zone * ZONE + at, &[0; 4096], &IoContext::default()).unwrap();
            if step % 50 == 49 {
                if step % 100 == 99 {
                    env.sleep(Duration::from_secs(1));
                }
                let reported = device.zones.as_ref().unwrap().report(ZoneId(0), 40, &IoContext::default()).unwrap();
                assert!(ghost.reported(&reported).is_some());
                let cleaning = device.block.counters().cleaning;
                assert_eq!(ghost.non_sequential_zones() as u64, cleaning.non_sequential_zones);
                let used = (cleaning.cached_bytes - cleaning.released_bytes) as f64 / (1u64 << 30) as f64;
                // Entries are counted for each write, and are nearer to their end here.
                assert!(ghost.utilization() >= used && ghost.utilization() >= cleaning.extents as f64 / 1000.0);
            }
        }
    });
    client.join().unwrap();
}

/// Longest blocking cleaning of one zone: 128 steps that read and write 2 MiB each. A transfer takes 11 ms and is followed by at most one
/// revolution of 10.2 ms: 5.4 s. Seeks to the few pieces in the cache, and the requests that are served between two steps, take the rest.
const ZONE_CLEANING: Duration = Duration::from_secs(7);

/// Every request ends, none is held for longer than a pause, and none waits for more than one blocking cleaning for each write before it.
///
/// The map is the limit here. Every zone in the cache has an entry, so the cleaning of one zone makes room for one write; the drive serves requests in
/// order of arrival.
#[test]
fn no_request_starves_under_any_load() {
    for seed in 0..24u64 {
        let env = Env::sim(seed);
        let of_client = env.clone();
        let client = env.spawn("client", move || {
            let env = of_client;
            let inner = drive(&env, 60 + 40 * (seed % 3) as u32);
            let zones = inner.block.capabilities().zones.clone().unwrap();
            let control = inner.zones.clone().unwrap();
            (0..30).for_each(|zone| control.finish(ZoneId(zone), &IoContext::default()).unwrap());
            let ghost = GhostCache::new(&zones, zones.media_cache.unwrap());
            let second = 1_000_000_000;
            let controller: Box<dyn Controller> = match seed % 4 {
                0 => Box::new(Unrestrained),
                1 => Box::new(FixedIdle::new(second / 2, 2 * second)),
                _ => Box::new(Idler::new(
                    IdlerParameters { report_nanos: 20 * second, ..IdlerParameters::default() },
                    ghost,
                )),
            };
            let (device, handle) = ControlledDevice::new(&env, &inner, controller);
            let threads = [1, 4, 32][(seed / 4 % 3) as usize];
            let writing = Arc::new(AtomicU32::new(0));
            let workers: Vec<_> = (0..threads)
                .map(|thread| {
                    let (env, device, writing) = (env.clone(), device.clone(), Arc::clone(&writing));
                    env.clone().spawn("host", move || {
                        let mut random = env.random(&format!("host {thread}"));
                        let pause_ms = [1, 30, 300][random.index(3)];
                        let mut taken = Vec::new();
                        for _ in 0..60 {
                            let (begun, writes_before) = (env.now(), writing.load(Ordering::Relaxed));
                            let at = random.below(36) * ZONE + random.below(500) * 4096;
                            match random.below(40) {
                                0 => device.block.sync(&IoContext::default()).unwrap(),
                                1 => drop(device.zones.as_ref().unwrap().report(ZoneId(0), 40, &IoContext::default())),
                                2..14 => {
                                    writing.fetch_add(1, Ordering::Relaxed);
                                    device.block.write_at(at, &[0; 4096], &IoContext::default()).unwrap();
                                    writing.fetch_sub(1, Ordering::Relaxed);
                                }
                                _ => device.block.read_at(at, &mut [0; 4096], &IoContext::default()).unwrap(),
                            }
                            taken.push((writes_before, env.now() - begun));
                            env.sleep(Duration::from_millis(random.below(2 * pause_ms)));
                        }
                        taken
                    })
                })
                .collect();
            // That all end is the point: who waits for ever is a deadlock of the simulation.
            let taken: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
            let statistics = handle.statistics();
            let hold = 2 * second + second / 2;
            assert!(statistics.longest_delay_nanos <= hold, "seed {seed}: {statistics:?}");
            for (writes_before, took) in taken {
                let most = Duration::from_nanos(hold) + ZONE_CLEANING * (1 + writes_before);
                assert!(took < most, "seed {seed}: {took:?} behind {writes_before} writes, {statistics:?}");
            }
        });
        client.join().unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
    }
}
