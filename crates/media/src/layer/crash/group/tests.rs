use super::*;
use crate::IoContext;
use crate::device::BlockDeviceExt;
use crate::emulated::Emulated;
use parking_lot::Mutex as Plain;
use std::collections::BTreeSet;
use varve_env::SimOptions;

const SECTOR: u64 = 512;

/// The stamp in the first byte of `sector`.
fn stamp(device: &Device, sector: u64) -> u8 {
    let mut data = [0; SECTOR as usize];
    device.block.read_at(sector * SECTOR, &mut data, &IoContext::default()).unwrap();
    data[0]
}

fn write(device: &Device, sector: u64, stamp: u8) {
    device.block.write_at(sector * SECTOR, &[stamp; SECTOR as usize], &IoContext::default()).unwrap();
}

/// Three writers on three devices. Writer `n` stamps sector 0 of device `n`, syncs it, and then stamps sector `1 + n` of
/// the next device, so in every image the copy is at most the original: a capture that saw the devices at different
/// moments would break that.
fn run(seed: u64, perturb: bool) -> Vec<GroupCrashState> {
    let env = Env::sim_with(SimOptions { seed, perturb, ..SimOptions::default() });
    let bare: Vec<Device> =
        ["a", "b", "c"].map(|name| Device::of_blocks(Arc::new(Emulated::immediate(&env, name, 1 << 20)))).into();
    let group = CrashGroup::new(&env, &bare).unwrap();
    let states: Arc<Plain<Vec<GroupCrashState>>> = Arc::default();
    let sink = states.clone();
    group.on_persistence_point(move |_, point, capture| {
        if point.index.is_multiple_of(3) {
            sink.lock().push(capture());
        }
    });
    let writers: Vec<_> = (0..3)
        .map(|number| {
            let (own, next) = (group.devices()[number].clone(), group.devices()[(number + 1) % 3].clone());
            env.spawn("writer", move || {
                for stamp in 1..=12 {
                    write(&own, 0, stamp);
                    own.block.sync(&IoContext::default()).unwrap();
                    write(&next, 1 + number as u64, stamp);
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert_eq!(group.persistence_points(), 3 * 12 * 3);
    group.stop_observing();
    std::mem::take(&mut *states.lock())
}

#[test]
fn captures_all_devices_at_one_moment() {
    for seed in 0..20 {
        let states = run(seed, seed % 4 != 0);
        assert!(states.len() >= 30);
        for (number, state) in states.iter().enumerate() {
            for (place, variant) in CrashVariant::OF_DEVICES.into_iter().enumerate() {
                let image_seed = (number * 7 + place) as u64;
                let fates = CrashVariant::fates(variant, state.members(), image_seed);
                let devices = state.images(&fates, image_seed);
                for writer in 0..3 {
                    let original = stamp(&devices[writer], 0);
                    let copy = stamp(&devices[(writer + 1) % 3], 1 + writer as u64);
                    assert!(copy <= original, "seed {seed}, state {number}, {fates:?}: {copy} after {original}");
                }
            }
        }
    }
}

/// One write to each of two devices, neither synced: a power cut may leave both, none, or either.
#[test]
fn fates_open_a_write_hole() {
    let env = Env::real();
    let bare = ["a", "b"].map(|name| Device::of_blocks(Arc::new(Emulated::immediate(&env, name, 1 << 20))));
    let group = CrashGroup::new(&env, &bare).unwrap();
    group.devices().iter().for_each(|device| write(device, 0, 1));
    let state = group.capture();
    let found = |seeds: std::ops::Range<u64>| -> BTreeSet<[u8; 2]> {
        let image = |seed: u64| {
            let variant = CrashVariant::OF_DEVICES[(seed / 2 % 7) as usize];
            let devices = state.images(&CrashVariant::fates(variant, 2, seed), seed);
            [stamp(&devices[0], 0), stamp(&devices[1], 0)]
        };
        seeds.map(image).collect()
    };
    assert_eq!(found(0..60), BTreeSet::from([[0, 0], [0, 1], [1, 0], [1, 1]]));
    let drop_second = [CrashVariant::KeepAll, CrashVariant::DropAll];
    let devices = state.images(&drop_second, 5);
    assert_eq!([stamp(&devices[0], 0), stamp(&devices[1], 0)], [1, 0]);
}
