//! Power cuts.

use super::*;
use parking_lot::Mutex;
use varve_media::conformance::devices::{PREFERRED_ZONES, TRANSLATED_ZONES};
use varve_media::{CrashDevice, CrashVariant, DeviceCrashState};

/// Logical zones that are written; the device has two more that are not.
const ZONES: u64 = 6;
/// Blocks of a zone that are written, each at once, whole.
const BLOCKS: u64 = 8;

/// What each block may hold after a power cut: the value of the last sync, and all written since.
type Allowed = Vec<Vec<u8>>;

/// Writes, syncs and moves; at each persistence point the state is kept, with what may be found then.
fn run(env: &Env, make: &devices::TestedDevice) -> Vec<(DeviceCrashState, Allowed)> {
    // With conventional zones in front, where the device has some.
    let first = if make.name == PREFERRED_ZONES.name { 16 } else { 0 };
    let crash = CrashDevice::new(env, &memory(env, make, first + ZONES + 2 + 4)).unwrap();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let allowed = Arc::new(Mutex::new(vec![vec![0u8]; (ZONES * BLOCKS) as usize]));
    let (of_points, of_allowed) = (kept.clone(), allowed.clone());
    crash.on_persistence_point(move |point| of_points.lock().push((point.capture(), of_allowed.lock().clone())));
    let mut random = env.random("crash");
    for round in 0..3u8 {
        let (device, handle) = open(env, &crash.device(), at_rest()).unwrap();
        for step in 0..8u8 {
            let (zone, block) = (random.below(ZONES), random.below(BLOCKS));
            let value = 1 + round * 40 + step;
            let place = (zone * BLOCKS + block) as usize;
            allowed.lock()[place].push(value);
            let at = (first + zone) * ZONE + block * 4096;
            device.block.write_at(at, &[value; 4096], &context()).unwrap();
            if random.chance(1, 3) {
                let before: Vec<u8> = allowed.lock().iter().map(|values| *values.last().unwrap()).collect();
                device.block.sync(&context()).unwrap();
                *allowed.lock() = before.into_iter().map(|value| vec![value]).collect();
            }
            if random.chance(1, 2) {
                relocate(&handle, (first + random.below(ZONES)) as u32);
            }
        }
        // Also what is over when the device is closed while a zone is being moved.
        handle.core_of().state.lock().demanded.push_back(ZoneId((first + random.below(ZONES)) as u32));
    }
    drop(crash);
    Arc::try_unwrap(kept).ok().map(Mutex::into_inner).unwrap_or_default()
}

/// All that was synced is there at each point, whatever else arrived; and the device can be written on.
fn check(make: &'static devices::TestedDevice, seeds: std::ops::RangeInclusive<u64>) {
    let mut images = 0;
    for seed in seeds {
        images += simulate(seed, false, move |env| {
            let first = if make.name == PREFERRED_ZONES.name { 16 } else { 0 };
            let points = run(env, make);
            assert!(points.len() > 60, "seed {seed}: {} points", points.len());
            let mut images = 0;
            for (point, (state, allowed)) in points.iter().enumerate() {
                for variant in CrashVariant::OF_DEVICES {
                    images += 1;
                    let told = format!("seed {seed} point {point} {variant:?}");
                    let image = state.image(variant, seed + point as u64);
                    let (device, handle) =
                        open(env, &image, at_rest()).unwrap_or_else(|error| panic!("{told}: {error}"));
                    check_map(handle.core_of());
                    let mut data = vec![0; 4096];
                    for (place, allowed) in (0u64..).zip(allowed) {
                        let at = (first + place / BLOCKS) * ZONE + place % BLOCKS * 4096;
                        device.block.read_at(at, &mut data, &context()).unwrap();
                        // Physical sectors are as large: nothing is torn within one.
                        let value = data[0];
                        let is_allowed = allowed.contains(&value) && data.iter().all(|&byte| byte == value);
                        assert!(is_allowed, "{told}: block {place} has {value}, not one of {allowed:?}");
                    }
                    if images % 16 == 0 {
                        let moved = relocate(&handle, first as u32);
                        assert_eq!(moved.relocated_zones, 1, "{told}");
                        drop((device, handle));
                        open(env, &image, at_rest()).unwrap_or_else(|error| panic!("{told}, again: {error}"));
                    }
                }
            }
            images
        });
    }
    println!("reached: block relocation/power cuts of {}: {images} images", make.name);
}

#[test]
fn power_cuts_of_a_disk_with_a_translation_layer() {
    check(&TRANSLATED_ZONES, 1..=4);
}

#[test]
fn power_cuts_of_a_disk_with_conventional_zones() {
    check(&PREFERRED_ZONES, 1..=3);
}
