//! Reads and writes while zones are moved.

use super::*;
use std::io::{IoSlice, IoSliceMut};
use varve_media::conformance::devices::{PREFERRED_ZONES, TRANSLATED_ZONES};
use varve_media::{
    Fault, FaultDevice, FaultEffect, FaultInjector, FaultPlan, FaultTrigger, IoClass, Operation, Request,
};

/// Random reads, writes, syncs and resets against an array of bytes, while whatever is out of order is moved, and now and then
/// from the beginning: what was acknowledged is there.
fn walk(env: &Env, make: &devices::TestedDevice, seed: u64, steps: u32) -> RelocationStatistics {
    let inner = memory(env, make, 28);
    let capacity = 24 * ZONE as usize;
    let mut model = vec![0u8; capacity];
    let mut random = env.random("walk");
    let (mut device, mut handle) = open(env, &inner, eager()).unwrap();
    let mut total = RelocationStatistics::default();
    for step in 0..steps {
        let told = || format!("seed {seed} step {step}");
        let most = if random.chance(1, 8) { 300 } else { 16 };
        let sectors = 1 + random.below(most);
        let at = random.below(capacity as u64 / 512 - sectors) * 512;
        let range = at as usize..(at + sectors * 512) as usize;
        match random.below(20) {
            0 => device.block.sync(&context()).unwrap(),
            1 => {
                let zone = random.below(24);
                if make.name == TRANSLATED_ZONES.name || zone >= 16 {
                    device.zones.as_ref().unwrap().reset(ZoneId(zone as u32), &context()).unwrap();
                    model[(zone * ZONE) as usize..((zone + 1) * ZONE) as usize].fill(0);
                }
            }
            2 => {
                drop(device);
                let statistics = handle.statistics();
                total.relocated_zones += statistics.relocated_zones;
                total.given_up += statistics.given_up;
                total.held_writes += statistics.held_writes;
                drop(handle);
                (device, handle) = open(env, &inner, eager()).unwrap();
            }
            3..=10 => {
                let mut data = vec![0; range.len()];
                random.fill_bytes(&mut data);
                // In several buffers and requests: a batch of three parts, which do not overlap.
                let third = range.len() / 512 / 3 * 512;
                let parts = [&data[..third], &data[third..2 * third], &data[2 * third..]];
                let slices = parts.map(|part| {
                    let (head, tail) = part.split_at(part.len().min(700));
                    [IoSlice::new(head), IoSlice::new(tail)]
                });
                let mut batch: Vec<Request<'_>> = (0u64..)
                    .zip(&slices)
                    .map(|(number, slices)| Request::write(at + number * third as u64, slices))
                    .collect();
                device.block.execute(&mut batch, &context()).unwrap();
                model[range].copy_from_slice(&data);
            }
            _ => {
                let mut data = vec![0xEE; range.len()];
                let (head, tail) = data.split_at_mut(range.len() / 3);
                let mut slices = [IoSliceMut::new(head), IoSliceMut::new(tail)];
                device.block.execute(&mut [Request::read(at, &mut slices)], &context()).unwrap();
                assert!(data == model[range], "{}", told());
            }
        }
        if random.chance(1, 4) {
            env.sleep(Duration::from_micros(random.below(400)));
        }
        check_map(handle.core_of());
    }
    let mut data = vec![0; capacity];
    device.block.read_at(0, &mut data, &context()).unwrap();
    assert!(data == model, "seed {seed}");
    total.relocated_zones += handle.statistics().relocated_zones;
    total
}

#[test]
fn behaves_like_an_array_of_bytes() {
    let mut moved = 0;
    for seed in 1..=12 {
        for make in [&TRANSLATED_ZONES, &PREFERRED_ZONES] {
            moved += simulate(seed, seed % 2 == 0, move |env| walk(env, make, seed, 300)).relocated_zones;
        }
    }
    assert!(moved > 100, "{moved}");
}

#[test]
fn behaves_like_an_array_of_bytes_in_a_real_env() {
    let env = Env::real();
    walk(&env, &TRANSLATED_ZONES, env.seed(), 400);
}

/// Threads that each write zones of their own, which are moved all the time.
#[test]
fn several_threads_write_while_zones_are_moved() {
    let mut held = 0;
    for seed in 1..=10 {
        held += simulate(seed, true, move |env| {
            let inner = memory(env, &TRANSLATED_ZONES, 14);
            let (device, handle) = open(env, &inner, eager()).unwrap();
            let writers: Vec<_> = (0..5u64)
                .map(|number| {
                    let (of_writer, device) = (env.clone(), device.clone());
                    env.spawn("writer", move || {
                        let mut random = of_writer.random(&format!("writer {number}"));
                        let mut model = vec![0u8; 2 * ZONE as usize];
                        let start = number * 2 * ZONE;
                        for step in 0..120 {
                            let sectors = 1 + random.below(8);
                            let at = random.below(256 - sectors) * 512;
                            let range = at as usize..(at + sectors * 512) as usize;
                            if random.chance(1, 3) {
                                let mut data = vec![0; range.len()];
                                device.block.read_at(start + at, &mut data, &context()).unwrap();
                                assert!(data == model[range], "seed {seed} writer {number} step {step}");
                            } else {
                                let data = vec![step as u8 + 1; range.len()];
                                device.block.write_at(start + at, &data, &context()).unwrap();
                                model[range].copy_from_slice(&data);
                            }
                            of_writer.sleep(Duration::from_micros(random.below(80)));
                        }
                        let mut data = vec![0; model.len()];
                        device.block.read_at(start, &mut data, &context()).unwrap();
                        assert!(data == model, "seed {seed} writer {number}");
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap_or_else(|panicked| panicked.resume()));
            check_map(handle.core_of());
            assert!(handle.statistics().relocated_zones > 0);
            handle.statistics().held_writes
        });
    }
    assert!(held > 0, "no write ever met a move");
}

/// A disk whose cache would be full long before is left nothing to clean.
#[test]
fn a_disk_never_blocks() {
    for is_relocating in [false, true] {
        let blocked = simulate(3, false, move |env| {
            let inner = memory(env, &TRANSLATED_ZONES, 40);
            let parameters = RelocationParameters { utilization: 0.3, ..eager() };
            let (device, handle) = match is_relocating {
                true => open(env, &inner, parameters).map(|(device, handle)| (device, Some(handle))).unwrap(),
                false => (inner.clone(), None),
            };
            let mut random = env.random("writes");
            for _ in 0..2000 {
                device
                    .block
                    .write_at(random.below(36) * ZONE + random.below(16) * 4096, &[1; 4096], &context())
                    .unwrap();
                env.sleep(Duration::from_millis(10));
            }
            assert!(handle.is_none_or(|handle| handle.statistics().relocated_zones > 10));
            inner.block.counters().cleaning.blocking_cleanings
        });
        assert_eq!(blocked > 0, !is_relocating, "{blocked}");
    }
}

/// Zones that are commanded while they are moved are what the command made them.
#[test]
fn commands_end_a_move() {
    for seed in 1..=8 {
        simulate(seed, true, move |env| {
            let inner = memory(env, &TRANSLATED_ZONES, 14);
            let (device, handle) = open(env, &inner, eager()).unwrap();
            let zones = device.zones.clone().unwrap();
            let mut random = env.random("commands");
            for step in 0..200u64 {
                let zone = ZoneId(random.below(10) as u32);
                let at = u64::from(zone.0) * ZONE;
                device.block.write_at(at + 8192, &[1; 8192], &context()).unwrap();
                env.sleep(Duration::from_micros(random.below(60)));
                let state = |zone| zones.report(zone, 1, &context()).unwrap().remove(0);
                match random.below(3) {
                    0 => {
                        zones.reset(zone, &context()).unwrap();
                        assert_eq!(state(zone).condition, ZoneCondition::Empty, "seed {seed} step {step}");
                    }
                    1 => {
                        zones.finish(zone, &context()).unwrap();
                        env.sleep(Duration::from_millis(2));
                        assert_eq!(state(zone).condition, ZoneCondition::Full, "seed {seed} step {step}");
                        zones.reset(zone, &context()).unwrap();
                    }
                    _ => {
                        let mut data = [0; 16384];
                        device.block.read_at(at, &mut data, &context()).unwrap();
                        assert!(data[..8192] == [0; 8192] && data[8192..] == [1; 8192], "seed {seed} step {step}");
                    }
                }
            }
            check_map(handle.core_of());
        });
    }
}

/// A zone is reset when those who read it where it was are done.
#[test]
fn readers_see_the_zone_that_they_entered() {
    let mut met = 0;
    for seed in 1..=6 {
        met += simulate(seed, true, move |env| {
            // A read takes a while before it reads.
            let stall = FaultEffect::Stall(Duration::from_micros(300));
            let on_reads = Fault::new(Operation::Read, FaultTrigger::From(0), stall).on_class(IoClass::UserRead);
            let injector = FaultInjector::new(env, FaultPlan::of(on_reads));
            let inner = FaultDevice::device(&injector, &memory(env, &TRANSLATED_ZONES, 14));
            // Steps are taken although requests are outstanding.
            let hurried = RelocationParameters { urgent_utilization: -1e9, busy_share_max: 1.0, ..at_rest() };
            let (device, handle) = open(env, &inner, hurried).unwrap();
            device.block.write_at(4096, &[7; 32768], &context()).unwrap();
            let readers: Vec<_> = (0..4)
                .map(|_| {
                    let device = device.clone();
                    env.spawn("reader", move || {
                        for _ in 0..40 {
                            let mut data = vec![0; 32768];
                            device.block.read_at(4096, &mut data, &IoContext::of(IoClass::UserRead)).unwrap();
                            assert!(data == [7; 32768], "seed {seed}");
                        }
                    })
                })
                .collect();
            for _ in 0..20 {
                relocate(&handle, 0);
            }
            readers.into_iter().for_each(|reader| reader.join().unwrap_or_else(|panicked| panicked.resume()));
            handle.statistics().relocated_zones
        });
    }
    assert!(met >= 60, "{met}");
}
