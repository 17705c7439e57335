use crate::context::IoContext;
use crate::device::{BlockDeviceExt, Device, Geometry};
use crate::emulated::SpaceReclaim;
use crate::emulated::timing::translation::{CacheRecorded, MediaCacheRecord, Mode};
use crate::emulated::{
    CleaningOrder, Emulated, FileBacking, Interrupted, Pacing, Task, Timing, TranslationLayer, TranslationParameters,
    Work, ZoneRecord, Zoned,
};
use crate::presets::Preset;
use crate::zones::{MediaCache, ZoneGeometry, ZoneId, ZoneType};
use crate::{Capabilities, FileMode, emulated::MediaCounters};
use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;
use varve_env::{Env, Random};

const KIB: u64 = 1 << 10;
const ZONE: u64 = 256 * KIB;
const ZONES: u32 = 12;

/// One request after the other; how long each takes is a matter of its own place and length.
#[derive(Default)]
struct Steady {
    queue: VecDeque<(u64, u64)>,
    free_nanos: u64,
}

impl Timing for Steady {
    fn describe(&self, _capabilities: &mut Capabilities) {}

    fn submit(&mut self, now_nanos: u64, task: Task) {
        let to_place = task.offset_bytes / 4096 % 97 * 10_000;
        self.free_nanos = self.free_nanos.max(now_nanos) + 100_000 + to_place + task.length_bytes * 5;
        self.queue.push_back((self.free_nanos, task.id));
    }

    fn advance(&mut self, now_nanos: u64, completed: &mut Vec<u64>) {
        while let Some((_, id)) = self.queue.pop_front_if(|(done_nanos, _)| *done_nanos <= now_nanos) {
            completed.push(id);
        }
    }

    fn next_event_nanos(&self) -> Option<u64> {
        self.queue.front().map(|(done_nanos, _)| *done_nanos)
    }

    fn counters(&self, _now_nanos: u64) -> MediaCounters {
        MediaCounters::default()
    }
}

fn parameters(seed: u64) -> TranslationParameters {
    TranslationParameters {
        media_cache: MediaCache { bytes: 160 * KIB, extents_max: 20 },
        region_percent: 100,
        idle_trigger_nanos: 239_000_000,
        order: [CleaningOrder::Oldest, CleaningOrder::Cheapest, CleaningOrder::Fullest][seed as usize % 3],
        reclaim: [SpaceReclaim::Zone, SpaceReclaim::LogTail][seed as usize % 2],
        idle_step_bytes: 32 * KIB,
        blocking_step_bytes: 64 * KIB,
        requests_between_steps: 2,
        blocking_stop_percent: 50,
        interrupted: [Interrupted::RepeatsStep, Interrupted::RepeatsZone, Interrupted::FinishesZone]
            [seed as usize / 3 % 3],
        is_endless: false,
    }
}

fn zones(parameters: &TranslationParameters) -> ZoneGeometry {
    ZoneGeometry {
        conventional_zones: 1,
        sequential_type: ZoneType::SequentialWritePreferred,
        media_cache: Some(parameters.media_cache),
        ..ZoneGeometry::fit(u64::from(ZONES) * ZONE, ZONE).unwrap()
    }
}

/// A drive in files, on a disk that is `steady` or a real one.
fn open(env: &Env, place: &Path, parameters: &TranslationParameters, is_steady: bool) -> Device {
    let zones = zones(parameters);
    let rules = Zoned::recorded(ZoneRecord::open(&place.join("zones"), &zones, true).unwrap());
    let mut record = MediaCacheRecord::open(&place.join("cache"), &zones, FileMode::default()).unwrap();
    let geometry = rules.cut(&Geometry { capacity_bytes: u64::MAX, sector_bytes: 512, physical_sector_bytes: 4096 });
    let backing = Box::new(FileBacking::open(&place.join("disk"), zones.address_bytes()).unwrap());
    let below: Box<dyn Timing> = match is_steady {
        true => Box::<Steady>::default(),
        false => {
            let preset = Preset::find("st8000as0022").unwrap();
            preset.with_capacity(geometry.capacity_bytes + parameters.home_bytes()).parameters().timing()
        }
    };
    let layer = TranslationLayer::recorded(parameters.clone(), rules.table(), below, &mut record);
    let device = rules
        .device(|rules| Emulated::with_pacing(env, "drive", geometry, rules, Box::new(layer), backing, Pacing::Sleep));
    CacheRecorded::device(device, record)
}

fn report(device: &Device) -> Vec<(bool, u64)> {
    let zones = device.zones.as_ref().unwrap().report(ZoneId(0), ZONES, &IoContext::default()).unwrap();
    zones.iter().map(|zone| (zone.non_sequential, zone.write_pointer_bytes)).collect()
}

fn held(device: &Device) -> (u64, u64) {
    let cleaning = device.block.counters().cleaning;
    (cleaning.extents, cleaning.non_sequential_zones)
}

/// One request, and what came of it: its time, and a byte that was read.
fn request(env: &Env, device: &Device, random: &mut Random, step: u64) -> (u64, u8) {
    let (zone, begin) = (random.below(ZONES.into()), env.now());
    let sectors = 1 + random.below(6);
    let at = zone * ZONE + random.below(64 - sectors) * 4096;
    let mut data = vec![step as u8; sectors as usize * 4096];
    match random.below(12) {
        0 => device.block.sync(&IoContext::default()).unwrap(),
        1 if zone > 0 => device.zones.as_ref().unwrap().reset(ZoneId(zone as u32), &IoContext::default()).unwrap(),
        2..6 => device.block.read_at(at, &mut data, &IoContext::default()).unwrap(),
        // In order, as long as the zone is.
        6 if zone > 0 => {
            let (_, pointer) = report(device)[zone as usize];
            let length = (zone * ZONE + ZONE).saturating_sub(pointer).min(data.len() as u64);
            device.block.write_at(pointer.min(at), &data[..length as usize], &IoContext::default()).unwrap();
        }
        _ => device.block.write_at(at, &data, &IoContext::default()).unwrap(),
    }
    (env.now().as_nanos() - begin.as_nanos(), data[0])
}

/// Calls a cleaning off and lets what is in flight end, until no request has to wait for space.
fn come_to_rest(env: &Env, device: &Device) {
    let blocked = || device.block.counters().cleaning.blocking_cleaning_nanos;
    loop {
        let before = blocked();
        report(device);
        env.sleep(Duration::from_millis(100));
        let between = blocked();
        env.sleep(Duration::from_millis(100));
        if before == between && between == blocked() {
            return;
        }
    }
}

/// What a host sees of a drive, which is closed and opened again from time to time, or is not.
fn seen(seed: u64, closes: bool) -> (Vec<(u64, u64, Vec<(bool, u64)>)>, u64) {
    let (env, place, parameters) = (Env::sim(seed), tempfile::tempdir().unwrap(), parameters(seed));
    let mut device = open(&env, place.path(), &parameters, true);
    let mut random = Random::seeded(seed);
    let (mut seen, mut blocked, mut kept_zones) = (Vec::new(), 0, 0);
    for round in 0..8 {
        for step in 0..40 {
            if random.chance(1, 6) {
                env.sleep(Duration::from_millis(random.below(400)));
            }
            let (nanos, byte) = request(&env, &device, &mut random, step);
            seen.push((nanos, byte.into(), Vec::new()));
        }
        come_to_rest(&env, &device);
        blocked += device.block.counters().cleaning.blocking_cleaned_zones;
        kept_zones += held(&device).1;
        if closes {
            drop(device);
            device = open(&env, place.path(), &parameters, true);
        }
        let (extents, zones) = held(&device);
        seen.push((extents, zones, report(&device)));
        // Some are cleaned, and not all.
        if round % 3 == 0 {
            env.sleep(Duration::from_millis(250 + random.below(200)));
            seen.push((held(&device).0, round, report(&device)));
        }
    }
    assert!(kept_zones > 8, "seed {seed}");
    (seen, blocked)
}

#[test]
fn a_drive_that_was_closed_takes_as_long_as_one_that_was_not() {
    let mut blocked = 0;
    for seed in 1..=6 {
        let ((expected, _), (found, blocked_so)) = (seen(seed, false), seen(seed, true));
        blocked += blocked_so;
        for (index, (expected, found)) in expected.iter().zip(&found).enumerate() {
            assert_eq!(found, expected, "seed {seed}, {index}");
        }
        assert_eq!(found.len(), expected.len());
    }
    assert!(blocked > 10, "{blocked} zones were cleaned while requests waited");
}

/// On the mechanics of a disk. Both disks are new at the moment of opening: the one below the drive that goes on is replaced.
#[test]
fn cleanings_on_a_disk_take_as_long_as_if_it_had_not_been_closed() {
    let mut with_zones = 0;
    for seed in 1..=6 {
        let run = |closes: bool| {
            let mut parameters = parameters(seed);
            // A record does not say that an idle cleaning finishes its zone: after opening it waits for a pause.
            if parameters.interrupted == Interrupted::FinishesZone {
                parameters.interrupted = Interrupted::GoesOn;
            }
            let zones = zones(&parameters);
            let place = tempfile::tempdir().unwrap();
            let mut record = MediaCacheRecord::open(&place.path().join("cache"), &zones, FileMode::default()).unwrap();
            let below = || {
                let capacity_bytes = zones.address_bytes() + parameters.home_bytes();
                Preset::find("st8000as0022").unwrap().with_capacity(capacity_bytes).parameters().timing()
            };
            let rules = Zoned::new(&zones);
            let layer = TranslationLayer::recorded(parameters.clone(), rules.table(), below(), &mut record);
            let mut random = Random::seeded(seed);
            let (mut host, mut times) = (Host { layer, now: 0, next: 0 }, Vec::new());
            for step in 0..300 {
                let at = (1 + random.below(u64::from(ZONES) - 1)) * ZONE + random.below(60) * 4096;
                let length = (1 + random.below(4)) * 4096;
                let work = if random.chance(1, 3) { Work::Read } else { Work::Write { durable: true } };
                times.push(host.run(work, at, length));
                if work != Work::Read {
                    rules.table().lock().written(&(at..at + length));
                }
                if random.chance(1, 5) {
                    host.rest(random.below(600_000_000));
                }
                if step % 60 == 59 {
                    while host.layer.mode == Mode::Blocking {
                        host.rest(10_000_000);
                    }
                    times.push(host.run(Work::ManageZone, 0, 0));
                    host.rest(200_000_000);
                    record.follow().unwrap();
                    if closes {
                        let mut table = crate::emulated::rules::ZoneTable::new(&zones);
                        let left = rules.table();
                        let left = left.lock();
                        (0..ZONES).map(ZoneId).for_each(|zone| table.restore(zone, left.state(zone)));
                        drop(left);
                        *rules.table().lock() = table;
                        let path = place.path().join("cache");
                        record = MediaCacheRecord::open(&path, &zones, FileMode::default()).unwrap();
                        host.layer =
                            TranslationLayer::recorded(parameters.clone(), rules.table(), below(), &mut record);
                    } else {
                        host.layer.inner = below();
                        assert!(host.layer.open.is_empty());
                        host.layer.owners.clear();
                        (host.layer.now_nanos, host.layer.quiet_since_nanos) = (0, 0);
                    }
                    host.now = 0;
                }
            }
            let table = rules.table();
            let table = table.lock();
            let states: Vec<_> = (0..ZONES).map(|zone| table.state(ZoneId(zone)).pointer_bytes).collect();
            (times, states, host.layer.cache.clone(), host.layer.parameters.order)
        };
        let (expected, found) = (run(false), run(true));
        with_zones += u64::from(expected.2.zone_count() > 0);
        assert_eq!(found, expected, "seed {seed}");
    }
    assert!(with_zones >= 4, "{with_zones} seeds end with zones in the cache");
}

struct Host {
    layer: TranslationLayer,
    now: u64,
    next: u64,
}

impl Host {
    fn run(&mut self, work: Work, offset_bytes: u64, length_bytes: u64) -> u64 {
        let (begin, id, mut done) = (self.now, self.next, Vec::new());
        self.next += 1;
        self.layer.advance(self.now, &mut done);
        self.layer.submit(self.now, Task { id, work, offset_bytes, length_bytes });
        self.layer.advance(self.now, &mut done);
        while !done.contains(&id) {
            self.now = self.now.max(self.layer.next_event_nanos().expect("an event while a request is open"));
            self.layer.advance(self.now, &mut done);
        }
        self.now - begin
    }

    fn rest(&mut self, nanos: u64) {
        self.now += nanos;
        self.layer.advance(self.now, &mut Vec::new());
    }
}

/// A drive that was closed while requests waited for space goes on making some.
#[test]
fn a_blocking_cleaning_goes_on() {
    let (env, place) = (Env::sim(1), tempfile::tempdir().unwrap());
    let parameters = TranslationParameters { blocking_stop_percent: 10, ..parameters(0) };
    let device = open(&env, place.path(), &parameters, false);
    let mut index = 0;
    while device.block.counters().cleaning.blocking_cleaned_zones == 0 {
        let at = (1 + index % 11) * ZONE + (1 + index / 11 * 2) * 4096;
        device.block.write_at(at, &[1; 4096], &IoContext::default()).unwrap();
        index += 1;
    }
    let before = held(&device);
    drop(device);
    let device = open(&env, place.path(), &parameters, false);
    assert_eq!(held(&device), before);
    env.sleep(Duration::from_millis(100));
    assert!(device.block.counters().cleaning.blocking_cleaning_nanos > 90_000_000);
    env.sleep(Duration::from_secs(10));
    assert!(device.block.counters().cleaning.blocking_cleaned_zones > 0);
}

/// A process that is killed leaves every write that completed, and whatever it leaves a drive can begin with.
#[test]
fn records_of_different_age() {
    for seed in 1..=3 {
        let (env, place, parameters) = (Env::sim(seed), tempfile::tempdir().unwrap(), parameters(seed));
        let at = |name: &str| place.path().join(name);
        let mut random = Random::seeded(seed);
        let mut device = open(&env, place.path(), &parameters, false);
        device.block.write_at(6 * ZONE + 8192, &[7; 4096], &IoContext::default()).unwrap();
        let files = || ["disk", "zones", "cache"].map(|name| std::fs::read(at(name)).unwrap());
        let mut ages = Vec::new();
        for step in 0..60 {
            request(&env, &device, &mut random, step);
            device.block.write_at(5 * ZONE + step * 4096, &[step as u8; 4096], &IoContext::default()).unwrap();
            ages.push((files(), held(&device)));
        }
        drop(device);
        for round in 0..15 {
            let last = ages.len() - 1;
            // The bytes are the newest.
            let ([_, zones, cache], held_then) = &ages[random.index(ages.len())];
            let cache = match round % 3 {
                0 => Some(&ages[random.index(ages.len())].0[2]),
                1 => Some(cache),
                _ => None,
            };
            std::fs::write(at("disk"), &ages[last].0[0]).unwrap();
            std::fs::write(at("zones"), zones).unwrap();
            match cache {
                Some(bytes) => std::fs::write(at("cache"), bytes).unwrap(),
                None => std::fs::remove_file(at("cache")).unwrap_or_default(),
            }
            device = open(&env, place.path(), &parameters, false);
            let (extents, zones) = held(&device);
            let flagged = report(&device).iter().filter(|zone| zone.0).count() as u64;
            // The report took its time, in which some may have been cleaned.
            assert_eq!(
                held(&device).1,
                flagged,
                "seed {seed} round {round}: each zone that is not in order is in the cache"
            );
            assert!(extents >= zones);
            match round % 3 {
                1 => assert_eq!((extents, zones), *held_then, "seed {seed} round {round}: killed at this moment"),
                2 => assert_eq!(extents, zones, "seed {seed} round {round}: nothing but a sector of each"),
                _ => {}
            }
            env.sleep(Duration::from_secs(60));
            assert_eq!(held(&device), (0, 0), "seed {seed} round {round}: all of it can be cleaned");
            drop(device);
        }
        // Data are in the bytes, whatever was thought of the cache.
        let ([disk, zones, cache], _) = &ages[ages.len() - 1];
        for (name, bytes) in [("disk", disk), ("zones", zones), ("cache", cache)] {
            std::fs::write(at(name), bytes).unwrap();
        }
        let device = open(&env, place.path(), &parameters, false);
        let mut data = vec![0; 4096];
        device.block.read_at(5 * ZONE + 59 * 4096, &mut data, &IoContext::default()).unwrap();
        assert_eq!(data, [59; 4096]);
    }
}
