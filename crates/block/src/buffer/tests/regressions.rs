//! What was once wrong.

use super::*;
use varve_media::{
    Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, IoClass, Operation, Transfer,
};

fn get(device: &Device, at: u64, length: usize) -> Vec<u8> {
    let mut data = vec![0xEE; length];
    device.block.read_at(at, &mut data, &IoContext::default()).unwrap();
    data
}
fn put(device: &Device, at: u64, byte: u8, length: usize) {
    device.block.write_at(at, &vec![byte; length], &IoContext::default()).unwrap();
}

#[test]
fn a_discard_that_fails_leaves_what_was_synced() {
    in_simulation(1, |env| {
        let (below, above) = (conventional(env), fast(env));
        let injector = FaultInjector::new(env, FaultPlan::default());
        let through = FaultDevice::device(&injector, &below);
        let (device, buffer) =
            WriteBuffer::open(env, &through, &above, parameters(0), BufferOpening::default(), None).unwrap();
        put(&device, 0, 1, 4096);
        buffer.drain(&IoContext::default()).unwrap();
        put(&device, 0, 2, 4096);
        device.block.sync(&IoContext::default()).unwrap();
        injector.set_plan(FaultPlan::of(Fault::new(
            Operation::Discard,
            FaultTrigger::Once(0),
            FaultEffect::Fail(FaultError::Io),
        )));
        assert!(device.block.discard_at(0, 4096, &IoContext::default()).is_err());
        assert_eq!(get(&device, 0, 4096)[0], 2);
        device.block.sync(&IoContext::default()).unwrap();
        drop((device, buffer));
        let (device, _) = open(env, &below, &above, 0);
        assert_eq!(get(&device, 0, 4096)[0], 2);
    });
}

#[test]
fn no_more_is_said_to_be_whole_than_is() {
    in_simulation(1, |env| {
        let (below, above) = (conventional(env), fast(env));
        let (device, buffer) = open(env, &below, &above, 0);
        put(&device, 0, 1, 4096);
        buffer.drain(&IoContext::default()).unwrap();
        put(&device, 0, 2, 2048);
        device.block.sync(&IoContext::default()).unwrap();
        put(&device, 0, 3, 4096);
        drop((device, buffer));
        let (device, _) = open(env, &below, &above, 0);
        let found = get(&device, 0, 4096);
        let physical = device.block.geometry().physical_sector_bytes as usize;
        for sector in found.chunks(physical) {
            assert!(sector.iter().all(|&byte| byte == sector[0]), "{sector:?}");
        }
    });
}

fn rewriting() -> BufferParameters {
    BufferParameters {
        page_count: 8,
        order: EvictionOrder::Zones,
        rewrite_pages: Some(3),
        evicted_pages_min: 1,
        requests_at_once: 4,
        ..BufferParameters::paper()
    }
}

#[test]
fn what_lies_behind_a_zone_that_is_written_anew_reads_as_zeros() {
    in_simulation(1, |env| {
        let (below, above) = (disk(env), fast(env));
        let (device, buffer) =
            WriteBuffer::open(env, &below, &above, rewriting(), BufferOpening::default(), None).unwrap();
        // Zone 0: full, rewritten once: the copy has 7s.
        put(&device, 0, 7, ZONE as usize);
        for page in 0..5 {
            put(&device, page * 4096, 8, 4096);
        }
        for page in 0..8 {
            put(&device, 5 * ZONE + 4096 + page * 8192, 9, 4096);
        }
        buffer.drain(&IoContext::default()).unwrap();
        assert_eq!(buffer.statistics().rewritten_zones, 1);
        // Zone 1: 41 sectors in order.
        put(&device, ZONE, 1, 41 * 512);
        for page in 0..5 {
            put(&device, ZONE + page * 4096, 2, 4096);
        }
        let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let reader = {
            let (device, env, done) = (device.clone(), env.clone(), done.clone());
            env.clone().spawn("reader", move || {
                let mut wrong = 0;
                let mut reads = 0;
                while !done.load(std::sync::atomic::Ordering::SeqCst) {
                    let found = get(&device, ZONE + 40 * 512, 4096);
                    assert!(found[..512].iter().all(|&byte| byte == 1));
                    reads += 1;
                    wrong += usize::from(found[512] != 0);
                    env.sleep(Duration::from_micros(1));
                }
                (reads, wrong)
            })
        };
        for page in 0..8 {
            put(&device, 5 * ZONE + 4096 + page * 8192, 9, 4096);
        }
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        let (reads, wrong) = reader.join().unwrap();
        assert!(reads > 50 && wrong == 0 && buffer.statistics().rewritten_zones == 2, "{reads}, {wrong}");
    });
}

#[test]
fn the_copy_of_a_zone_is_not_made_over_under_who_reads_it() {
    in_simulation(1, |env| {
        let (below, above) = (disk(env), fast(env));
        let layout = super::super::journal::Layout::new(8, ZONE, 4096);
        let copy = layout.staging()..layout.staging() + ZONE;
        let slow = Watched::device(env, above, move |request, context| {
            let is_read = matches!(request.transfer, Transfer::Read { .. }) && context.class != IoClass::Maintenance;
            let is_slow = is_read && copy.contains(&request.offset_bytes);
            if is_slow { Duration::from_secs(20) } else { Duration::ZERO }
        });
        let (device, buffer) =
            WriteBuffer::open(env, &below, &slow, rewriting(), BufferOpening::default(), None).unwrap();
        put(&device, 0, 7, ZONE as usize);
        put(&device, ZONE, 8, ZONE as usize);
        for page in 0..5 {
            put(&device, page * 4096, 17, 4096);
        }
        let readers: Vec<_> = (0..200u64)
            .map(|number| {
                let (device, env) = (device.clone(), env.clone());
                env.clone().spawn("reader", move || {
                    env.sleep(Duration::from_millis(number));
                    get(&device, 20 * 4096, 4096)[0]
                })
            })
            .collect();
        for page in 0..5 {
            put(&device, ZONE + page * 4096, 18, 4096);
        }
        for page in 0..8 {
            put(&device, 5 * ZONE + 4096 + page * 8192, 9, 4096);
        }
        let found: Vec<u8> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        assert!(found.iter().all(|&byte| byte == 7), "{found:?}");
        assert!(buffer.statistics().rewritten_zones >= 2);
    });
}

#[test]
fn a_zone_that_cannot_be_read_keeps_no_others_from_being_written() {
    in_simulation(1, |env| {
        let (below, above) = (disk(env), fast(env));
        let injector = FaultInjector::new(env, FaultPlan::default());
        let through = FaultDevice::device(&injector, &below);
        let (device, buffer) =
            WriteBuffer::open(env, &through, &above, rewriting(), BufferOpening::default(), None).unwrap();
        put(&device, 0, 7, ZONE as usize);
        for page in 0..5 {
            put(&device, page * 4096, 17, 4096);
        }
        injector.set_plan(FaultPlan::of(Fault::new(
            Operation::Read,
            FaultTrigger::From(0),
            FaultEffect::Fail(FaultError::Io),
        )));
        for page in 0..40u64 {
            put(&device, 3 * ZONE + 4096 + page * 4096, 9, 4096);
        }
        device.block.sync(&IoContext::default()).unwrap();
        assert!(buffer.held_pages() <= 8);
    });
}

/// Writers that find no room all the time, before a disk that takes a while for each write.
fn busy_writers(env: &Env, device: &Device, count: u64) -> Vec<varve_env::JoinHandle<()>> {
    let writer = |number: u64| {
        let device = device.clone();
        env.spawn("writer", move || {
            for round in 0..100 {
                put(&device, 3 * ZONE + (round * 8 + number) % 50 * 8192, 9, 8192);
            }
        })
    };
    (0..count).map(writer).collect()
}

#[test]
fn a_discard_has_its_turn_under_constant_evictions() {
    for ahead in [None, Some(EvictionAhead { quiet_nanos: 0, ..EvictionAhead::default() })] {
        in_simulation(1, move |env| {
            let slow = Watched::device(env, conventional(env), |request, _| match request.transfer {
                Transfer::Write { .. } => Duration::from_millis(10),
                _ => Duration::ZERO,
            });
            let parameters =
                BufferParameters { page_count: 8, evictions_at_once: 2, ahead, ..BufferParameters::paper() };
            let opening = BufferOpening::default();
            let (device, buffer) = WriteBuffer::open(env, &slow, &fast(env), parameters, opening, None).unwrap();
            let writers = busy_writers(env, &device, 8);
            env.sleep(Duration::from_millis(100));
            for round in 0..5 {
                let before = buffer.statistics().evictions;
                // Of what nobody writes, and of what is always on its way to the disk.
                let at = [0, 3 * ZONE][round % 2];
                device.block.discard_at(at, 50 * 8192, &IoContext::default()).unwrap();
                let meanwhile = buffer.statistics().evictions - before;
                assert!(meanwhile <= 4, "{meanwhile} evictions went before");
                env.sleep(Duration::from_millis(25));
            }
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            assert!(buffer.statistics().waits > 200);
        });
    }
}

#[test]
fn the_areas_of_a_large_map_are_zeroed_in_pieces() {
    in_simulation(1, |env| {
        let longest = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let preset = Preset::find("nvme-ssd").unwrap().with_capacity(1 << 30);
        let large = preset.build(env, "fast", Box::new(RamBacking::new()), Pacing::Account);
        let seen = Arc::clone(&longest);
        let watched = Watched::device(env, Device::of_blocks(Arc::new(large)), move |request, _| {
            if matches!(request.transfer, Transfer::Write { .. }) {
                seen.fetch_max(request.length_bytes(), std::sync::atomic::Ordering::SeqCst);
            }
            Duration::ZERO
        });
        let parameters = BufferParameters { page_count: 200_000, ..parameters(0) };
        let layout = super::super::journal::Layout::new(200_000, ZONE, 4096);
        assert!(layout.area_bytes > 12 << 20);
        // Nothing of what was there is left, to the last byte.
        let last = layout.area(2) - 4096;
        for at in [layout.area(0), layout.area(1) - 4096, last] {
            put(&watched, at, 0xAA, 4096);
        }
        let opening = BufferOpening { format: true, ..BufferOpening::default() };
        WriteBuffer::open(env, &disk(env), &watched, parameters, opening, None).unwrap();
        for at in [layout.area(0), layout.area(1) - 4096, last] {
            assert!(get(&watched, at, 4096).iter().all(|&byte| byte == 0), "{at}");
        }
        assert!(longest.load(std::sync::atomic::Ordering::SeqCst) <= 4 << 20);
    });
}

/// A pair with 300 pages in its map, closed; its map and where that lies.
fn closed_pair(env: &Env) -> (Device, Device, BufferParameters, u64, usize) {
    let (below, above) = (disk(env), fast(env));
    let parameters = BufferParameters { page_count: 400, ..rewriting() };
    let layout = super::super::journal::Layout::new(400, ZONE, 4096);
    let opened = WriteBuffer::open(env, &below, &above, parameters.clone(), BufferOpening::default(), None);
    let (device, buffer) = opened.unwrap();
    // More pages than a physical sector of the map says.
    (0..300).rev().for_each(|page| put(&device, 8192 + page * 4096, 7, 4096));
    device.block.sync(&IoContext::default()).unwrap();
    let held = buffer.held_pages();
    assert!(held > 280, "{held}");
    (below, above, parameters, layout.area(1), held)
}

/// Whichever byte of the map changes, and whichever sector of it cannot be read, no page is lost.
#[test]
fn one_damaged_place_of_the_map_costs_no_page() {
    in_simulation(1, |env| {
        let (below, above, parameters, area, held) = closed_pair(env);
        let has_all = |above: &Device, told: &str| {
            let opened = WriteBuffer::open(env, &below, above, parameters.clone(), BufferOpening::default(), None);
            let (device, buffer) = opened.unwrap_or_else(|error| panic!("{told}: {error}"));
            assert_eq!(buffer.held_pages(), held, "{told}");
            assert_eq!(get(&device, 8192, 4096), [7; 4096], "{told}");
        };
        // Checkpoint, seal, what was synced, seal, each twice.
        let units = area..area + 10 * 4096;
        for at in units.clone().filter(|at| at % 4096 < 90 || at % 211 == 0) {
            let unit = at / 4096 * 4096;
            let kept = get(&above, unit, 4096);
            let mut bytes = kept.clone();
            bytes[(at % 4096) as usize] ^= 1;
            above.block.write_at(unit, &bytes, &IoContext::default()).unwrap();
            has_all(&above, &format!("byte {at}"));
            above.block.write_at(unit, &kept, &IoContext::default()).unwrap();
        }
        for at in units.step_by(4096) {
            let effect = varve_media::FaultEffect::Fail(varve_media::FaultError::Unreadable);
            let trigger = varve_media::FaultTrigger::From(0);
            let fault = varve_media::Fault::new(varve_media::Operation::Read, trigger, effect).on_range(at..at + 4096);
            let injector = varve_media::FaultInjector::new(env, varve_media::FaultPlan::of(fault));
            has_all(&varve_media::FaultDevice::device(&injector, &above), &format!("unreadable {at}"));
        }
    });
}

#[test]
fn damage_to_both_copies_of_the_last_record_of_a_closed_buffer_is_an_error() {
    in_simulation(1, |env| {
        let (below, above, parameters, area, _) = closed_pair(env);
        for at in [4 * 4096 + 4096 + 100, 6 * 4096 + 4096 + 100] {
            let mut bytes = get(&above, area + at / 4096 * 4096, 4096);
            bytes[100] ^= 1;
            above.block.write_at(area + at / 4096 * 4096, &bytes, &IoContext::default()).unwrap();
        }
        let opened = WriteBuffer::open(env, &below, &above, parameters, BufferOpening::default(), None);
        let damaged = opened.map(|_| ()).unwrap_err().to_string();
        assert!(damaged.contains("page map of the write buffer: expected record 2 of generation 1"), "{damaged}");
        assert!(!damaged.contains("format"), "{damaged}");
    });
}

/// The sectors of a small checkpoint arrive or do not, and the write fails: the older area has all that was acknowledged.
#[test]
fn a_torn_checkpoint_leaves_the_older_area() {
    let mut torn = 0;
    for seed in 0..24 {
        torn += in_simulation(seed, move |env| {
            let (below, above) = (disk(env), fast(env));
            let parameters = BufferParameters { page_count: 8, rewrite_pages: None, ..parameters(0) };
            let area = |number| super::super::journal::Layout::new(8, 0, 4096).area(number);
            let injector = varve_media::FaultInjector::new(env, varve_media::FaultPlan::default());
            let faulty = varve_media::FaultDevice::device(&injector, &above);
            let open = |fast: &Device| {
                WriteBuffer::open(env, &below, fast, parameters.clone(), BufferOpening::default(), None)
            };
            let (device, _) = open(&faulty).unwrap();
            // The second generation is in the first area: its checkpoint is torn.
            let effect = varve_media::FaultEffect::FailPartly(varve_media::FaultError::Io);
            let trigger = varve_media::FaultTrigger::From(0);
            let fault = varve_media::Fault::new(varve_media::Operation::Write, trigger, effect);
            let fault = fault.on_range(area(0)..area(1));
            injector.set_plan(varve_media::FaultPlan { seed, faults: vec![fault] });
            let mut synced = 0;
            for value in 1..=200 {
                if device.block.write_at(4096, &[value; 4096], &IoContext::default()).is_err() {
                    break;
                }
                // Another page each time, so that something is recorded.
                let other = 8192 + u64::from(value) * 4096;
                let written = device.block.write_at(other, &[value; 4096], &IoContext::default());
                if written.is_err() || device.block.sync(&IoContext::default()).is_err() {
                    break;
                }
                synced = value;
            }
            drop(device);
            let (device, _) = open(&above).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let found = get(&device, 4096, 4096);
            assert!(found[0] >= synced && synced > 0, "seed {seed}: {} and {synced}", found[0]);
            injector.injected()
        });
    }
    assert!(torn > 20, "{torn}");
}
