use super::*;
use crate::device::{BlockDevice, BlockDeviceExt, Device};
use crate::emulated::Emulated;
use crate::{IoContext, Request};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::sync::Arc;
use varve_env::{Env, Random};

mod protected;

const SIZE: u64 = 1 << 20;

fn context() -> IoContext {
    IoContext::default()
}

fn immediate(env: &Env) -> Device {
    Device::of_blocks(Arc::new(Emulated::immediate(env, "ram", SIZE)))
}

fn read(device: &Device, offset_bytes: u64, length: usize) -> Vec<u8> {
    let mut data = vec![0xEE; length];
    device.block.read_at(offset_bytes, &mut data, &context()).unwrap();
    data
}

#[test]
fn what_was_synced_survives_and_what_was_not_may_not() {
    let env = Env::real();
    let inner = immediate(&env);
    inner.block.write_at(0, &[9; 8192], &context()).unwrap();
    let layer = CrashDevice::new(&env, &inner).unwrap();
    layer.write_at(4096, &[1; 4096], &context()).unwrap();
    layer.sync(&context()).unwrap();
    layer.write_at(0, &[2; 8192], &context()).unwrap();
    let state = layer.capture();
    // Later writes do not reach into a captured state.
    layer.write_at(0, &[3; 4096], &context()).unwrap();
    layer.write_at(65536, &[3; 4096], &context()).unwrap();
    let mut outcomes = BTreeSet::new();
    for variant in CrashVariant::OF_DEVICES {
        for seed in 0..30 {
            let found = read(&state.image(variant, seed), 0, 8192);
            assert!(found == read(&state.image(variant, seed), 0, 8192));
            let (first, second) = found.split_at(4096);
            assert!(first == [9; 4096] || first == [2; 4096], "{variant:?} {seed}");
            assert!(second == [1; 4096] || second == [2; 4096], "{variant:?} {seed}");
            assert!(read(&state.image(variant, seed), 65536, 4096) == [0; 4096]);
            match variant {
                CrashVariant::KeepAll => assert_eq!((first[0], second[0]), (2, 2)),
                CrashVariant::DropAll => assert_eq!((first[0], second[0]), (9, 1)),
                _ => {}
            }
            outcomes.insert((first[0], second[0]));
        }
    }
    assert_eq!(outcomes.len(), 4, "{outcomes:?}");
}

/// Random operations; at every point, every image must be one the contract allows.
#[test]
fn images_hold_for_each_sector_the_durable_or_a_later_version() {
    for seed in 0..8 {
        let env = Env::sim(seed);
        let mut random = env.random("operations");
        let layer = CrashDevice::new(&env, &immediate(&env)).unwrap();
        let states = Arc::new(Mutex::new(Vec::new()));
        let sink = states.clone();
        layer.on_persistence_point(move |point| sink.lock().push((point.operation, point.capture())));
        const SECTORS: usize = 24;
        // Versions a sector may have after a power cut; the last is the newest.
        let mut versions: Vec<Vec<u8>> = vec![vec![0]; SECTORS];
        let mut expected = Vec::new();
        for step in 1..60u8 {
            if random.chance(1, 8) {
                expected.push(versions.clone());
                layer.sync(&context()).unwrap();
                for versions in &mut versions {
                    *versions = vec![*versions.last().unwrap()];
                }
                continue;
            }
            let first = random.index(SECTORS);
            let count = 1 + random.index(SECTORS - first).min(4);
            let (offset, length) = (first as u64 * 4096, count * 4096);
            let value = if random.chance(1, 5) { 0 } else { step };
            for versions in &mut versions[first..first + count] {
                versions.push(value);
            }
            expected.push(versions.clone());
            if value == 0 {
                layer.discard_at(offset, length as u64, &context()).unwrap();
            } else {
                layer.write_at(offset, &vec![step; length], &context()).unwrap();
            }
        }
        let states = states.lock();
        assert_eq!(states.len(), expected.len());
        for (point, ((_, state), versions)) in states.iter().zip(&expected).enumerate() {
            for variant in CrashVariant::OF_DEVICES {
                let image = read(&state.image(variant, point as u64), 0, SECTORS * 4096);
                for (sector, bytes) in image.chunks(4096).enumerate() {
                    let where_ = format!("seed {seed} point {point} {variant:?} sector {sector}");
                    assert!(bytes.iter().all(|&byte| byte == bytes[0]), "{where_}: torn inside");
                    assert!(versions[sector].contains(&bytes[0]), "{where_}: {} not in {versions:?}", bytes[0]);
                    match variant {
                        CrashVariant::KeepAll => assert_eq!(Some(&bytes[0]), versions[sector].last(), "{where_}"),
                        CrashVariant::DropAll => assert_eq!(bytes[0], versions[sector][0], "{where_}"),
                        _ => {}
                    }
                }
            }
        }
    }
}

#[test]
fn a_durable_write_is_in_every_image() {
    let env = Env::real();
    let layer = CrashDevice::new(&env, &immediate(&env)).unwrap();
    layer.write_at(0, &[1; 4096], &context()).unwrap();
    let data = [2; 4096];
    let slices = [IoSlice::new(&data)];
    layer.execute(&mut [Request::write_durable(0, &slices)], &context()).unwrap();
    for variant in CrashVariant::OF_DEVICES {
        for seed in 0..20 {
            assert!(read(&layer.capture().image(variant, seed), 0, 4096) == [2; 4096], "{variant:?} {seed}");
        }
    }
}

#[test]
fn overlapping_requests_of_a_batch_keep_their_outcome_in_the_images() {
    let env = Env::real();
    let layer = CrashDevice::new(&env, &immediate(&env)).unwrap();
    let (one, two) = ([1; 4096], [2; 4096]);
    let (one, two) = ([IoSlice::new(&one)], [IoSlice::new(&two)]);
    layer.execute(&mut [Request::write(0, &one), Request::write(0, &two)], &context()).unwrap();
    let present = read(&layer.device(), 0, 4096);
    layer.sync(&context()).unwrap();
    assert!(read(&layer.capture().image(CrashVariant::DropAll, 0), 0, 4096) == present);
}

/// A crash during recovery: the image under a layer of its own, and so on.
#[test]
fn images_are_devices_for_further_layers() {
    let env = Env::real();
    let mut device = immediate(&env);
    let mut random = Random::seeded(5);
    for generation in 1..6u8 {
        let layer = CrashDevice::new(&env, &device).unwrap();
        layer.write_at(u64::from(generation) * 8192 + 512, &[generation; 512], &context()).unwrap();
        layer.sync(&context()).unwrap();
        layer.write_at(random.below(200) * 512, &[0xAA; 512], &context()).unwrap();
        device = layer.capture().image(CrashVariant::DropAll, 0);
        assert!(device.block.write_at(SIZE, &[0; 512], &context()).is_err());
        device.block.discard_at(512, 512, &context()).unwrap();
        assert_eq!(device.block.counters().discards, 1);
    }
    for generation in 1..6u8 {
        let found = read(&device, u64::from(generation) * 8192, 1024);
        assert!(found[..512] == [0; 512] && found[512..] == [generation; 512]);
    }
}

/// Concurrent writers: what is synced by the one is durable whatever the others do.
#[test]
fn syncs_of_several_actors_make_their_own_writes_durable() {
    for seed in 0..10 {
        let env = Env::sim(seed);
        let layer = CrashDevice::new(&env, &immediate(&env)).unwrap();
        let handles: Vec<_> = (0..4u64)
            .map(|number| {
                let layer = layer.clone();
                env.spawn("writer", move || {
                    for round in 1..10u8 {
                        let offset = number * 16384;
                        layer.write_at(offset, &[round; 8192], &context()).unwrap();
                        layer.sync(&context()).unwrap();
                        for variant in CrashVariant::OF_DEVICES {
                            let image = layer.capture().image(variant, seed);
                            assert!(read(&image, offset, 8192) == [round; 8192], "seed {seed} {variant:?}");
                        }
                    }
                })
            })
            .collect();
        for handle in handles {
            handle.join().unwrap();
        }
    }
}
