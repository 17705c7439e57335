//! Writes wait before the cache is full, and relocation recovers when the drive has blocked.

use super::*;
use varve_media::emulated::{SpaceReclaim, TranslationParameters};
use varve_media::presets::Preset;
use varve_media::{CleaningCounters, IoClass, NoBacking, Pacing, ZoneGeometry, ZoneType, Zoned};

/// Zones of the drive in full size, and how many of them are written.
const FULL_ZONE: u64 = 256 << 20;
const ZONES: u64 = 40;
const WRITTEN: u64 = 8;

/// The drive of the experiments, with a small map.
fn drive(env: &Env) -> (Device, MediaCache) {
    let media_cache = MediaCache { bytes: 1 << 30, extents_max: 600 };
    drive_of(env, TranslationParameters { media_cache, ..TranslationParameters::st8000as0022() })
}

fn drive_of(env: &Env, translation: TranslationParameters) -> (Device, MediaCache) {
    let media_cache = translation.media_cache;
    let zones = ZoneGeometry {
        sequential_type: ZoneType::SequentialWritePreferred,
        media_cache: Some(media_cache),
        ..ZoneGeometry::fit(ZONES * FULL_ZONE, FULL_ZONE).unwrap()
    };
    let preset = Preset::find("st8000as0022").unwrap().with_capacity(ZONES * FULL_ZONE);
    let backing = Box::new(NoBacking);
    (preset.build_translated(env, "drive", Zoned::new(&zones), translation, backing, Pacing::Sleep), media_cache)
}

/// Four minutes in which 16 threads each write somewhere every `pause_ms`, and then ten in which one does once a second. Cleaning in the
/// first part and in the last five minutes, and statistics.
fn under_load(pause_ms: u64, parameters: RelocationParameters) -> (CleaningCounters, u64, RelocationStatistics, f64) {
    simulate(1, false, move |env| {
        let (inner, limits) = drive(env);
        let (device, handle) = RelocatingDevice::open(env, &inner, limits, parameters, Formatting::IfBlank).unwrap();
        let zones = device.zones.clone().unwrap();
        (0..WRITTEN).for_each(|zone| zones.finish(ZoneId(zone as u32), &context()).unwrap());
        let writers: Vec<_> = (0..16)
            .map(|thread| {
                let (env, device) = (env.clone(), device.clone());
                env.clone().spawn("writer", move || {
                    let mut random = env.random(&format!("writer {thread}"));
                    while env.now().as_nanos() < 240_000_000_000 {
                        let at = random.below(WRITTEN) * FULL_ZONE + random.below(60_000) * 4096;
                        device.block.write_at(at, &[0; 4096], &IoContext::of(IoClass::Other)).unwrap();
                        env.sleep(Duration::from_millis(random.below(2 * pause_ms)));
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        let cleaning = |device: &Device| device.block.counters().cleaning;
        let loaded = cleaning(&device);
        let mut random = env.random("later");
        let mut settled = loaded.blocking_cleaning_nanos;
        for second in 0..600 {
            if second == 300 {
                settled = cleaning(&device).blocking_cleaning_nanos;
            }
            let at = random.below(WRITTEN) * FULL_ZONE + random.below(60_000) * 4096;
            device.block.write_at(at, &[0; 4096], &context()).unwrap();
            env.sleep(Duration::from_secs(1));
        }
        (loaded, cleaning(&device).blocking_cleaning_nanos - settled, handle.statistics(), handle.utilization())
    })
}

/// Only writes of compactions waited, whatever else filled the cache.
#[test]
fn writes_of_every_class_wait_for_a_bounded_time() {
    let parameters = RelocationParameters::default();
    let (_, _, statistics, _) = under_load(400, parameters.clone());
    assert!(statistics.braked_writes > 100, "{statistics:?}");
    assert!(statistics.longest_brake_nanos > parameters.hold_max_nanos / 2, "{statistics:?}");
    assert!(statistics.longest_brake_nanos <= parameters.hold_max_nanos, "{statistics:?}");
}

/// The cache fills by more during a move than fixed marks leave free.
#[test]
fn marks_that_follow_the_filling_rate_keep_the_drive_from_blocking() {
    for (lowest_mark, blocks) in [(0.95, true), (0.8, false)] {
        let parameters = RelocationParameters { lowest_mark, ..Default::default() };
        let (loaded, _, statistics, _) = under_load(800, parameters.clone());
        assert_eq!(loaded.blocking_cleanings > 0, blocks, "{lowest_mark}: {loaded:?} {statistics:?}");
        assert!(statistics.braked_writes > 100, "{lowest_mark}: {statistics:?}");
        assert!(statistics.longest_brake_nanos <= parameters.hold_max_nanos, "{lowest_mark}: {statistics:?}");
    }
}

/// Where nothing is held the drive blocks; afterwards relocation knows what the drive cleaned, and keeps up again.
#[test]
fn relocation_recovers_after_the_drive_has_blocked() {
    let unheld = RelocationParameters { brake_max_nanos: 0, hold_max_nanos: 0, ..Default::default() };
    let (loaded, blocked_later, statistics, utilization) = under_load(100, unheld);
    assert!(loaded.blocking_cleanings > 0 && statistics.reports_in_doubt > 0, "{loaded:?} {statistics:?}");
    assert_eq!(blocked_later, 0, "{statistics:?}");
    assert!(utilization < 0.95, "{utilization} {statistics:?}");
}

/// Zones that large writes go to.
const LARGE_ZONES: u64 = 32;

/// Twenty minutes in which two threads write 1 MiB somewhere every 0.7 s each, and one reads every 100 ms, so that the drive finds no pause for
/// an idle cleaning. The zone `hot` gets every fourth write.
fn under_large_writes(
    reclaim: SpaceReclaim,
    hot: Option<u64>,
    is_relocating: bool,
) -> (CleaningCounters, RelocationStatistics) {
    simulate(1, false, move |env| {
        let media_cache = MediaCache { bytes: 1 << 30, extents_max: 182_000 };
        let translation = TranslationParameters { media_cache, reclaim, ..TranslationParameters::st8000as0022() };
        let (inner, limits) = drive_of(env, translation);
        let (device, handle) = match is_relocating {
            true => {
                let parameters = RelocationParameters::default();
                let opened = RelocatingDevice::open(env, &inner, limits, parameters, Formatting::IfBlank).unwrap();
                (opened.0, Some(opened.1))
            }
            false => (inner.clone(), None),
        };
        let zones = device.zones.clone().unwrap();
        (0..LARGE_ZONES).for_each(|zone| zones.finish(ZoneId(zone as u32), &context()).unwrap());
        let writers: Vec<_> = (0..2)
            .map(|thread| {
                let (env, device) = (env.clone(), device.clone());
                env.clone().spawn("writer", move || {
                    let mut random = env.random(&format!("writer {thread}"));
                    let data = vec![0; 1 << 20];
                    while env.now().as_nanos() < 1_200_000_000_000 {
                        let zone = hot.filter(|_| random.chance(1, 4)).unwrap_or_else(|| random.below(LARGE_ZONES));
                        let at = zone * FULL_ZONE + (random.below(256) << 20);
                        device.block.write_at(at, &data, &context()).unwrap();
                        env.sleep(Duration::from_millis(random.below(1400)));
                    }
                })
            })
            .collect();
        let mut random = env.random("reader");
        while env.now().as_nanos() < 1_200_000_000_000 {
            let at = random.below(LARGE_ZONES) * FULL_ZONE + random.below(60_000) * 4096;
            device.block.read_at(at, &mut [0; 4096], &context()).unwrap();
            env.sleep(Duration::from_millis(100));
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        (inner.block.counters().cleaning, handle.map(|handle| handle.statistics()).unwrap_or_default())
    })
}

/// Large writes fill the bytes of the cache and not its map. On the measured drive those come back at the tail of the log, so moving the zones
/// that have most in the cache gave nothing back.
#[test]
fn large_writes_leave_the_drive_nothing_to_clean() {
    for reclaim in [SpaceReclaim::LogTail, SpaceReclaim::Zone] {
        for hot in [None, Some(3)] {
            let (alone, _) = under_large_writes(reclaim, hot, false);
            assert!(alone.blocking_cleanings > 0, "{reclaim:?} {hot:?}: {alone:?}");
            let (relocated, statistics) = under_large_writes(reclaim, hot, true);
            assert_eq!(relocated.blocking_cleanings, 0, "{reclaim:?} {hot:?}: {relocated:?} {statistics:?}");
        }
    }
}
