use super::*;
use crate::presets::Preset;
use crate::zones::{MediaCache, ZoneType};
use varve_env::Random;

const MIB: u64 = 1 << 20;
const ZONE: u64 = 256 * MIB;
const STOPS: [Interrupted; 3] = [Interrupted::GoesOn, Interrupted::RepeatsStep, Interrupted::RepeatsZone];
const INTERRUPTED: [Interrupted; 4] =
    [Interrupted::GoesOn, Interrupted::RepeatsStep, Interrupted::RepeatsZone, Interrupted::FinishesZone];

/// A model under test, and its host.
struct Drive {
    layer: TranslationLayer,
    table: Arc<Mutex<ZoneTable>>,
    now: u64,
    next: u64,
    done: Vec<u64>,
    done_at_once: Vec<u64>,
}

impl Drive {
    fn new(zone_count: u32, parameters: TranslationParameters) -> Drive {
        let zones = ZoneGeometry {
            sequential_type: ZoneType::SequentialWritePreferred,
            media_cache: Some(parameters.media_cache),
            ..ZoneGeometry::fit(u64::from(zone_count) * ZONE, ZONE).unwrap()
        };
        let table = Arc::new(Mutex::new(ZoneTable::new(&zones)));
        let preset = Preset::find("st8000as0022").unwrap();
        let below = preset.with_capacity(zones.address_bytes() + parameters.home_bytes());
        let layer = TranslationLayer::new(parameters, Arc::clone(&table), below.parameters().timing());
        Drive { layer, table, now: 0, next: 0, done: Vec::new(), done_at_once: Vec::new() }
    }

    fn submit(&mut self, work: Work, offset_bytes: u64, length_bytes: u64) -> u64 {
        let id = self.next;
        self.next += 1;
        self.layer.advance(self.now, &mut self.done);
        self.layer.submit(self.now, Task { id, work, offset_bytes, length_bytes });
        let mut done = Vec::new();
        self.layer.advance(self.now, &mut done);
        self.done_at_once.append(&mut done);
        id
    }

    /// Does it and gives how long it took.
    fn run(&mut self, work: Work, offset_bytes: u64, length_bytes: u64) -> u64 {
        let (begin, id) = (self.now, self.submit(work, offset_bytes, length_bytes));
        self.done.append(&mut self.done_at_once);
        while !self.done.contains(&id) {
            self.step();
        }
        self.now - begin
    }

    /// Goes to the next event.
    fn step(&mut self) {
        let next = self.layer.next_event_nanos().expect("an event while requests are open");
        self.now = self.now.max(next);
        self.layer.advance(self.now, &mut self.done);
    }

    fn write(&mut self, offset_bytes: u64, length_bytes: u64) -> u64 {
        self.run(Work::Write { durable: false }, offset_bytes, length_bytes)
    }

    fn rest(&mut self, nanos: u64) {
        self.now += nanos;
        self.layer.advance(self.now, &mut self.done);
    }

    /// Zones that are not sequential, as a report says, which is a command.
    fn non_sequential(&mut self) -> usize {
        self.run(Work::ManageZone, 0, 0);
        let table = self.table.lock();
        let count = table.geometry().zone_count;
        let found = (0..count).filter(|&zone| table.state(ZoneId(zone)).non_sequential).count();
        assert_eq!(found as u64, self.layer.counters(self.now).cleaning.non_sequential_zones);
        found
    }

    fn pointer(&self, zone: u32) -> u64 {
        self.table.lock().state(ZoneId(zone)).pointer_bytes
    }

    fn counters(&self) -> CleaningCounters {
        self.layer.counters(self.now).cleaning
    }
}

fn small() -> TranslationParameters {
    TranslationParameters {
        media_cache: MediaCache { bytes: 64 * MIB, extents_max: 1000 },
        ..TranslationParameters::st8000as0022()
    }
}

#[test]
fn writes_at_the_pointer_go_to_their_place_and_others_to_the_cache() {
    let mut drive = Drive::new(8, small());
    drive.write(0, MIB);
    drive.write(MIB, MIB);
    assert_eq!((drive.counters().cached_writes, drive.pointer(0)), (0, 2 * MIB));
    // Beside it, and then at it, which is not where it was any more.
    drive.write(3 * MIB, MIB);
    drive.write(2 * MIB, MIB);
    let counters = drive.counters();
    assert_eq!((counters.cached_writes, counters.cached_bytes, counters.extents), (2, 2 * MIB, 2));
    assert_eq!((drive.pointer(0), drive.non_sequential()), (2 * MIB, 1));
    // Another zone is none of its business; one write to two zones is two.
    drive.write(2 * ZONE - MIB, 2 * MIB);
    assert_eq!((drive.non_sequential(), drive.pointer(2)), (2, MIB));
    // Reset: nothing of it is left in the cache.
    drive.run(Work::ResetZone, ZONE, ZONE);
    assert_eq!(drive.counters().released_bytes, MIB);
}

#[test]
fn an_idle_cleaning_puts_a_zone_in_order() {
    let mut drive = Drive::new(8, small());
    drive.write(0, 200 * MIB);
    drive.write(150 * MIB, MIB);
    drive.write(ZONE + 5 * MIB, MIB);
    assert_eq!(drive.non_sequential(), 2);
    drive.rest(200_000_000);
    assert_eq!(drive.counters().idle_cleaning_nanos, 0);
    drive.rest(10_000_000_000);
    let counters = drive.counters();
    assert_eq!((counters.idle_cleaned_zones, counters.released_bytes, counters.extents), (2, 2 * MIB, 0));
    assert_eq!((drive.pointer(0), drive.pointer(1), drive.non_sequential()), (200 * MIB, 6 * MIB, 0));
    // 50 MiB are read and written, and 6 MiB written: at 190 MB/s, with the times between the steps.
    assert!((500_000_000..1_000_000_000).contains(&counters.idle_cleaning_nanos), "{counters:?}");
    drive.write(200 * MIB, MIB);
    assert_eq!(drive.counters().cached_writes, 2);
}

#[test]
fn any_command_calls_an_idle_cleaning_off_and_it_goes_on_later() {
    for interrupted in STOPS {
        let resumes = interrupted != Interrupted::RepeatsZone;
        let commands = [Work::Read, Work::Flush, Work::ManageZone, Work::Write { durable: true }];
        let mut drive = Drive::new(8, TranslationParameters { interrupted, ..small() });
        drive.write(0, ZONE);
        drive.write(0, 4096);
        // A whole zone takes three seconds; it has three quarters of one at a time.
        for round in 0..8 {
            drive.rest(1_000_000_000);
            let cleaned = drive.counters().idle_cleaned_zones;
            assert!(cleaned == 0 || round >= 3, "round {round}");
            let work = commands[round % 4];
            let length = if matches!(work, Work::Read | Work::Write { .. }) { 4096 } else { 0 };
            let took = drive.run(work, 5 * ZONE, length);
            // No more than two requests of a cleaning are before it.
            assert!(took < 100_000_000, "{work:?} took {took}");
        }
        let counters = drive.counters();
        assert_eq!(counters.idle_cleaned_zones, u64::from(resumes), "{interrupted:?}");
        assert!((3..=8).contains(&counters.interrupted_cleanings), "{interrupted:?}: {counters:?}");
    }
}

/// Zhang, table 4.1: eight zones with a non-sequential write each, a pause after each, and a report right after the last pause.
/// The table prints three rounds: 8, 8, 8 zones left with pauses of 240 ms; 8, 8, 8 with 245; 7, 6, 6 with 250; 0, 0, 0 with 260.
/// The trigger is 239 ms, and a revolution takes 10 ms, so the phase of the disk decides how many cleanings end in pauses that
/// are a little longer. The expected numbers are the least and the most of 200 phases. Of these 200 the model leaves 8 zones in
/// 200 phases with 240 ms; 7 in 26 and 8 in 174 with 245; 4, 5, 6 and 7 in 43, 99, 56 and 2 with 250; 1, 2 and 3 in 51, 120 and
/// 29 with 260; 0 and 1 in 198 and 2 with 265. So the rounds of 240, 245 and 250 ms are within the spread, and those of 260 ms
/// are not. With a host in front of the drive none is left after 260 ms (`idler/table4.1`).
#[test]
fn table_4_1() {
    const PHASES: u64 = 200;
    let left_after = |idle_millis: u64, phase: u64| {
        let mut drive = Drive::new(2000, TranslationParameters::st8000as0022());
        drive.rest(1 + Random::seeded(phase).below(50_000_000));
        for zone in 0..8 {
            drive.write(zone * ZONE + 4096, 4096);
            drive.rest(idle_millis * 1_000_000);
        }
        drive.non_sequential()
    };
    let printed = [(240, [8, 8, 8]), (245, [8, 8, 8]), (250, [7, 6, 6]), (260, [0, 0, 0])];
    for ((idle_millis, printed), (least, most, agrees)) in
        printed.into_iter().zip([(8, 8, true), (7, 8, true), (4, 7, true), (1, 3, false)])
    {
        let found: Vec<usize> = (0..PHASES).map(|phase| left_after(idle_millis, phase)).collect();
        assert_eq!(
            found.iter().min().copied().zip(found.iter().max().copied()),
            Some((least, most)),
            "{idle_millis} ms"
        );
        assert_eq!(printed.iter().all(|left| (least..=most).contains(left)), agrees, "{idle_millis} ms: {printed:?}");
    }
    assert!((0..PHASES).all(|phase| left_after(265, phase) <= 1));
}

#[test]
fn a_full_cache_blocks_and_nothing_waits_for_ever() {
    for limit in [MediaCache { bytes: 16 * MIB, extents_max: 10_000 }, MediaCache { bytes: 1 << 30, extents_max: 16 }] {
        for (blocking_stop_percent, reclaim) in [
            (0, SpaceReclaim::Zone),
            (50, SpaceReclaim::LogTail),
            (99, SpaceReclaim::Zone),
            (100, SpaceReclaim::LogTail),
        ] {
            let parameters = TranslationParameters {
                media_cache: limit,
                blocking_stop_percent,
                reclaim,
                requests_between_steps: 1,
                ..TranslationParameters::st8000as0022()
            };
            let mut drive = Drive::new(20, parameters);
            (0..20).for_each(|zone| _ = drive.write(zone * ZONE, 32 * MIB));
            let mut random = Random::seeded(3);
            let mut longest = 0;
            for _ in 0..200 {
                let at = random.below(20 * 8) * (32 * MIB) / 8;
                longest = longest.max(drive.write(at / ZONE * ZONE + at % (31 * MIB), 512 << 10));
            }
            let counters = drive.counters();
            assert!(counters.blocking_cleanings > 0 && counters.blocking_cleaned_zones > 0, "{counters:?}");
            assert!(counters.cached_bytes - counters.released_bytes <= limit.bytes, "{counters:?}");
            assert!(counters.extents <= u64::from(limit.extents_max), "{counters:?}");
            // One zone of 32 MiB at most, or all of them.
            assert!(longest < 20_000_000_000, "{longest}");
        }
    }
}

/// A write that is larger than the cache is taken in parts.
#[test]
fn a_write_larger_than_the_cache_ends() {
    let parameters = TranslationParameters { media_cache: MediaCache { bytes: MIB, extents_max: 9 }, ..small() };
    let mut drive = Drive::new(4, parameters);
    drive.write(4096, 5 * MIB);
    drive.write(ZONE - MIB, 3 * MIB);
    assert!(drive.counters().blocking_cleanings > 0, "{:?}", drive.counters());
}

/// What happened when, whoever looked meanwhile.
#[test]
fn looking_in_between_changes_nothing() {
    for seed in 1..=12 {
        let run = |looks: bool| {
            let parameters = TranslationParameters {
                media_cache: MediaCache { bytes: 24 * MIB, extents_max: 60 },
                blocking_step_bytes: 16 * MIB,
                interrupted: INTERRUPTED[seed as usize / 2 % 4],
                reclaim: [SpaceReclaim::Zone, SpaceReclaim::LogTail][seed as usize % 2],
                blocking_stop_percent: [0, 50, 100][seed as usize / 3 % 3],
                order: [CleaningOrder::Oldest, CleaningOrder::Cheapest, CleaningOrder::Fullest][seed as usize % 3],
                ..TranslationParameters::st8000as0022()
            };
            let mut drive = Drive::new(6, parameters);
            let mut random = Random::seeded(seed);
            let mut looking = Random::seeded(seed + 100);
            let mut times = Vec::new();
            let mut open = Vec::new();
            for _ in 0..300 {
                let pause = if random.chance(1, 10) { random.below(2_000_000_000) } else { random.below(20_000_000) };
                let until = drive.now + pause;
                // Completions are seen when they happen, as by a driver of the queue.
                while let Some(next) = drive.layer.next_event_nanos().filter(|&next| next <= until) {
                    drive.now = drive.now.max(next);
                    drive.layer.advance(drive.now, &mut drive.done);
                    times.extend(drive.done.drain(..).map(|id| (id, drive.now)));
                }
                while looks && drive.now < until && looking.chance(3, 4) {
                    let more = 1 + looking.below(until - drive.now);
                    drive.rest(more);
                }
                times.extend(drive.done.drain(..).map(|id| (id, drive.now)));
                drive.now = until;
                let work = match random.below(20) {
                    0 => Work::Flush,
                    1 => Work::ManageZone,
                    2 => Work::ResetZone,
                    3..12 => Work::Read,
                    _ => Work::Write { durable: random.chance(1, 3) },
                };
                let zone = random.below(6) * ZONE;
                let (at, length) = match work {
                    Work::Flush | Work::ManageZone => (0, 0),
                    Work::ResetZone => (zone, ZONE),
                    _ => (zone + random.below(64) * MIB / 2, (1 + random.below(64)) * 8192),
                };
                open.push(drive.submit(work, at, length));
                assert_eq!(drive.done, [], "nothing ends late");
                times.extend(drive.done_at_once.drain(..).map(|id| (id, drive.now)));
            }
            while drive.layer.next_event_nanos().is_some() {
                drive.step();
                times.extend(drive.done.drain(..).map(|id| (id, drive.now)));
            }
            let mut ended: Vec<u64> = times.iter().map(|(id, _)| *id).collect();
            ended.sort_unstable();
            assert_eq!(ended, open, "seed {seed}: every request ends once");
            (times, drive.counters())
        };
        assert_eq!(run(false), run(true), "seed {seed}");
    }
}

/// Once the pointer then stood where it had been before, below what was written.
#[test]
fn a_zone_that_is_cleaned_twice_has_its_pointer_behind_all() {
    for interrupted in INTERRUPTED {
        let mut drive = Drive::new(8, TranslationParameters { interrupted, ..small() });
        drive.write(0, 46 * MIB);
        drive.write(62 * MIB, MIB);
        drive.rest(300_000_000);
        assert!(drive.counters().idle_cleaning_nanos > 0 && drive.counters().idle_cleaned_zones == 0);
        drive.write(10 * MIB, 4096);
        drive.rest(20_000_000_000);
        assert_eq!((drive.non_sequential(), drive.pointer(0)), (0, 63 * MIB), "{interrupted:?}");
    }
}

/// Once such a zone had a cleaning without a request, which nothing ended: it stayed as it was, and requests waited for ever.
#[test]
fn a_zone_of_which_nothing_is_left_in_the_cache_is_cleaned() {
    for interrupted in INTERRUPTED {
        let parameters = TranslationParameters {
            media_cache: MediaCache { bytes: 8 * MIB, extents_max: 1000 },
            interrupted,
            ..TranslationParameters::st8000as0022()
        };
        let mut drive = Drive::new(8, parameters);
        drive.write(0, ZONE);
        drive.write(0, 4096);
        // Time for some steps of one zone.
        drive.rest(1_000_000_000);
        drive.run(Work::Read, 4 * ZONE, 4096);
        assert_eq!((drive.counters().idle_cleaned_zones, drive.non_sequential()), (0, 1));
        for index in 0..20 {
            drive.write(ZONE + (2 * index + 1) * MIB, MIB);
        }
        drive.rest(20_000_000_000);
        assert_eq!(drive.non_sequential(), 0, "{interrupted:?}: {:?}", drive.counters());
        // The same of a discard.
        drive.write(2 * ZONE + 4096, 4096);
        drive.run(Work::Discard, 2 * ZONE + 4096, 4096);
        drive.write(3 * ZONE + 4096, 4096);
        drive.rest(20_000_000_000);
        assert_eq!(drive.non_sequential(), 0, "{interrupted:?}: {:?}", drive.counters());
    }
}

/// One request between two steps, so that a request waits for at most one step; the zone is done although requests keep coming.
#[test]
fn an_idle_cleaning_finishes_its_zone_between_requests() {
    for requests_between_steps in [1, 8] {
        let parameters =
            TranslationParameters { interrupted: Interrupted::FinishesZone, requests_between_steps, ..small() };
        let mut drive = Drive::new(8, parameters);
        drive.write(0, ZONE);
        drive.write(ZONE, ZONE);
        drive.write(0, 4096);
        drive.write(ZONE, 4096);
        // Time for some steps of one zone.
        drive.rest(700_000_000);
        assert_eq!((drive.non_sequential(), drive.counters().interrupted_cleanings), (2, 1));
        let (mut longest, mut waited) = (0, 0);
        while drive.counters().idle_cleaned_zones == 0 {
            let took = drive.run(Work::Read, 5 * ZONE, 4096);
            longest = longest.max(took);
            waited += u64::from(took > 30_000_000);
            drive.rest(20_000_000);
            assert!(
                drive.now < 20_000_000_000,
                "{requests_between_steps} requests between steps: the zone is never done"
            );
        }
        // 8 MiB are read and written, with seeks between.
        assert!(waited > 20 && longest < 250_000_000, "{waited} waited, {longest} ns at most");
        // The second zone is begun after a pause only.
        for _ in 0..200 {
            drive.run(Work::Read, 5 * ZONE, 4096);
            drive.rest(20_000_000);
        }
        assert_eq!((drive.counters().idle_cleaned_zones, drive.non_sequential()), (1, 1));
    }
}

/// Reads behind a write that waits for space wait too; those before it do not.
#[test]
fn a_blocking_cleaning_keeps_the_order_of_arrival() {
    let parameters = TranslationParameters {
        media_cache: MediaCache { bytes: 2 * MIB, extents_max: 1000 },
        reclaim: SpaceReclaim::LogTail,
        blocking_stop_percent: 100,
        ..TranslationParameters::st8000as0022()
    };
    let mut drive = Drive::new(8, parameters);
    (0..3).for_each(|zone| _ = drive.write(zone * ZONE, ZONE));
    drive.write(0, MIB / 2);
    drive.write(ZONE, MIB / 2);
    drive.write(MIB, MIB / 2);
    drive.done.clear();
    let before = drive.submit(Work::Read, 5 * ZONE, 4096);
    let write = drive.submit(Work::Write { durable: false }, 2 * ZONE, MIB);
    let behind = drive.submit(Work::Read, 6 * ZONE, 4096);
    drive.done.append(&mut drive.done_at_once);
    let mut ended = BTreeMap::new();
    while ended.len() < 3 {
        drive.step();
        let now = drive.now;
        ended.extend(drive.done.drain(..).map(|id| (id, now)));
    }
    assert!(ended[&before] < 100_000_000 + ended[&write].min(ended[&behind]) && ended[&before] < ended[&behind]);
    assert!(ended[&behind] - ended[&before] > 1_000_000_000, "{ended:?}");
    // The zone at the tail of the log was cleaned, and no other one.
    let counters = drive.counters();
    assert_eq!((counters.blocking_cleanings, counters.blocking_cleaned_zones), (1, 1), "{counters:?}");
    assert_eq!(drive.non_sequential(), 2);
}
