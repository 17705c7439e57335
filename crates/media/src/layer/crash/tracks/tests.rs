//! Power cuts of interlaced disks: what arrived destroyed what it covered, in some order.

use crate::device::{BlockDeviceExt, Device, Geometry};
use crate::emulated::{Emulated, Immediate, Interlaced, RamBacking};
use crate::error::MediaErrorKind;
use crate::layer::{
    CrashDevice, CrashVariant, Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger,
};
use crate::tracks::{TrackGeometry, TrackId, TrackTier};
use crate::{IoContext, Operation};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use varve_env::{Env, Random};

const SECTOR: u64 = 4096;
/// Sectors of a track.
const TRACK: u64 = 4;
const TRACKS: u32 = 7;
const SECTORS: u64 = TRACK * TRACKS as u64;

fn context() -> IoContext {
    IoContext::default()
}

fn geometry() -> TrackGeometry {
    TrackGeometry {
        track_count: TRACKS,
        top_track_bytes: TRACK * SECTOR,
        bottom_track_bytes: TRACK * SECTOR,
        interlaced: true,
    }
}

fn interlaced(env: &Env, strict: bool) -> Device {
    let rules = Interlaced::new(&geometry(), SECTOR as u32, strict);
    let control = rules.control("imr");
    let sizes = Geometry { capacity_bytes: SECTORS * SECTOR, sector_bytes: 512, physical_sector_bytes: SECTOR as u32 };
    let backing = Box::new(RamBacking::new());
    let block = Emulated::new(env, "imr", sizes, Box::new(rules), Box::<Immediate>::default(), backing);
    Device { tracks: Some(control), ..Device::of_blocks(Arc::new(block)) }
}

fn write(device: &Device, sector: u64, count: u64, value: u8) {
    device.block.write_at(sector * SECTOR, &vec![value; (count * SECTOR) as usize], &context()).unwrap();
}

/// What a sector holds, which is one value everywhere; `None` when it cannot be read.
fn read(device: &Device, sector: u64) -> Option<u8> {
    let mut data = [0xEE; SECTOR as usize];
    match device.block.read_at(sector * SECTOR, &mut data, &context()) {
        Ok(()) => {
            assert!(data.iter().all(|&byte| byte == data[0]), "sector {sector} is torn inside");
            Some(data[0])
        }
        Err(error) => {
            assert_eq!(error.kind(), MediaErrorKind::Unreadable, "{error}");
            None
        }
    }
}

fn sync(device: &Device) {
    device.block.sync(&context()).unwrap();
}

/// Sector 0 of a bottom track and of the top track after it.
const BOTTOM: u64 = 0;
const TOP: u64 = TRACK;

/// Every pair of the bottom and the top sector that the images of a layer show.
fn outcomes(layer: &CrashDevice) -> BTreeSet<(Option<u8>, Option<u8>)> {
    let state = layer.capture();
    let images = CrashVariant::OF_DEVICES.into_iter().flat_map(|variant| (0..60).map(move |seed| (variant, seed)));
    images
        .map(|(variant, seed)| {
            let image = state.image(variant, seed);
            (read(&image, BOTTOM), read(&image, TOP))
        })
        .collect()
}

#[test]
fn a_top_rewritten_after_but_arrived_before_is_destroyed() {
    let env = Env::real();
    let layer = CrashDevice::new(&env, &interlaced(&env, false)).unwrap();
    let device = layer.device();
    write(&device, TOP, 1, 1);
    sync(&device);
    write(&device, BOTTOM, 1, 2);
    write(&device, TOP, 1, 3);
    let expected = [(Some(0), Some(1)), (Some(0), Some(3)), (Some(2), None), (Some(2), Some(3))];
    assert_eq!(outcomes(&layer), BTreeSet::from(expected));
    assert_eq!(read(&layer.capture().image(CrashVariant::KeepAll, 0), TOP), Some(3));
    // A barrier between the two leaves one order.
    sync(&device);
    write(&device, BOTTOM, 1, 4);
    sync(&device);
    write(&device, TOP, 1, 5);
    assert_eq!(outcomes(&layer), BTreeSet::from([(Some(4), None), (Some(4), Some(5))]));
    sync(&device);
    assert_eq!(outcomes(&layer), BTreeSet::from([(Some(4), Some(5))]));
}

/// A write of two sectors that arrives whole or not at all tells whether it came before or after the
/// bottom write under one of them, whichever was submitted first.
#[test]
fn unsynced_writes_arrive_in_either_order() {
    for bottom_first in [false, true] {
        let env = Env::real();
        let layer = CrashDevice::new(&env, &interlaced(&env, false)).unwrap();
        let device = layer.device();
        if bottom_first {
            write(&device, BOTTOM, 1, 2);
        }
        write(&device, TOP, 2, 3);
        if !bottom_first {
            write(&device, BOTTOM, 1, 2);
        }
        let newest = if bottom_first { Some(3) } else { None };
        for variant in [CrashVariant::KeepAll, CrashVariant::DropRandom] {
            let both = (0..100).filter_map(|seed| {
                let image = layer.capture().image(variant, seed);
                let arrived = read(&image, BOTTOM) == Some(2) && read(&image, TOP + 1) == Some(3);
                arrived.then(|| read(&image, TOP))
            });
            let found: BTreeSet<Option<u8>> = both.collect();
            let expected = if variant == CrashVariant::KeepAll { vec![newest] } else { vec![None, Some(3)] };
            assert_eq!(found, BTreeSet::from_iter(expected), "{variant:?}, bottom first {bottom_first}");
        }
    }
}

#[test]
fn a_torn_bottom_write_destroyed_what_it_covered() {
    let env = Env::real();
    let layer = CrashDevice::new(&env, &interlaced(&env, false)).unwrap();
    let device = layer.device();
    write(&device, TRACK, TRACK, 1);
    write(&device, 3 * TRACK, TRACK, 1);
    sync(&device);
    write(&device, 2 * TRACK, TRACK, 2);
    let mut torn = 0;
    for seed in 0..40 {
        let image = layer.capture().image(CrashVariant::TearLast, seed);
        let mut arrived = 0;
        for sector in 0..TRACK {
            let below = read(&image, 2 * TRACK + sector);
            let expected = if below == Some(2) { None } else { Some(1) };
            assert_eq!([TRACK, 3 * TRACK].map(|top| read(&image, top + sector)), [expected; 2], "seed {seed}");
            arrived += u64::from(below == Some(2));
        }
        torn += u64::from(arrived > 0 && arrived < TRACK);
    }
    assert!(torn > 20, "{torn}");
}

/// Sectors of other tracks over or under this one.
fn overlapping(sector: u64, tier: TrackTier) -> Vec<u64> {
    let track = TrackId((sector / TRACK) as u32);
    if geometry().tier(track) != tier {
        return Vec::new();
    }
    geometry().neighbours(track).map(|other| u64::from(other.0) * TRACK + sector % TRACK).collect()
}

/// What is known about a sector at a persistence point, the operation of the point included.
#[derive(Clone, Debug)]
struct Known {
    /// As of the last sync; `None` when it was unreadable.
    durable: Option<u8>,
    /// Written or discarded since, oldest first.
    unsynced: Vec<u8>,
    /// As of now, everything having arrived in order.
    newest: Option<u8>,
}

/// Random operations; at every point, every image must be one that a device could have left.
#[test]
fn images_are_what_some_order_leaves() {
    let mut destroyed_by_order = 0;
    for seed in 0..6 {
        let env = Env::sim(seed);
        let mut random = env.random("operations");
        let layer = CrashDevice::new(&env, &interlaced(&env, false)).unwrap();
        let device = layer.device();
        let states = Arc::new(Mutex::new(Vec::new()));
        let sink = states.clone();
        layer.on_persistence_point(move |point| sink.lock().push(point.capture()));
        let mut known = vec![Known { durable: Some(0), unsynced: Vec::new(), newest: Some(0) }; SECTORS as usize];
        let mut expected = Vec::new();
        for step in 1..80u8 {
            if random.chance(1, 7) {
                expected.push(known.clone());
                sync(&device);
                for known in &mut known {
                    *known = Known { durable: known.newest, unsynced: Vec::new(), newest: known.newest };
                }
                continue;
            }
            let first = random.below(SECTORS);
            let count = (1 + random.below(5)).min(SECTORS - first);
            let value = if random.chance(1, 6) { 0 } else { step };
            for sector in first..first + count {
                known[sector as usize].unsynced.push(value);
                known[sector as usize].newest = Some(value);
                if value > 0 {
                    for top in overlapping(sector, TrackTier::Bottom) {
                        known[top as usize].newest = None;
                    }
                }
            }
            expected.push(known.clone());
            match value {
                0 => device.block.discard_at(first * SECTOR, count * SECTOR, &context()).unwrap(),
                _ => write(&device, first, count, value),
            }
            for (sector, known) in known.iter().enumerate() {
                assert_eq!(read(&device, sector as u64), known.newest, "seed {seed} step {step} sector {sector}");
            }
        }
        let states = states.lock();
        assert_eq!(states.len(), expected.len());
        for (point, (state, known)) in states.iter().zip(&expected).enumerate() {
            for variant in CrashVariant::OF_DEVICES {
                let image = state.image(variant, point as u64);
                let found: Vec<Option<u8>> = (0..SECTORS).map(|sector| read(&image, sector)).collect();
                for sector in 0..SECTORS {
                    let where_ = format!("seed {seed} point {point} {variant:?} sector {sector}");
                    let (value, known_here) = (found[sector as usize], &known[sector as usize]);
                    match variant {
                        CrashVariant::KeepAll => assert_eq!(value, known_here.newest, "{where_}"),
                        CrashVariant::DropAll => assert_eq!(value, known_here.durable, "{where_}"),
                        _ => {}
                    }
                    // The newest bottom version that arrived: not the durable one, so some unsynced write.
                    let below: Vec<u8> = overlapping(sector, TrackTier::Top)
                        .into_iter()
                        .filter_map(|bottom| {
                            let value = found[bottom as usize].filter(|&value| value > 0)?;
                            (known[bottom as usize].durable != Some(value)).then_some(value)
                        })
                        .collect();
                    let was_written = |bottom: &u64| known[*bottom as usize].unsynced.iter().any(|&value| value > 0);
                    match value {
                        Some(value) if known_here.unsynced.contains(&value) => {}
                        Some(_) => {
                            assert_eq!(value, known_here.durable, "{where_}");
                            assert_eq!(below, [], "{where_}: survived what arrived below it");
                        }
                        None => {
                            let could_be = known_here.durable.is_none()
                                || overlapping(sector, TrackTier::Top).iter().any(was_written);
                            assert!(could_be, "{where_}: destroyed by nothing");
                            destroyed_by_order += u64::from(known_here.newest.is_some() && !below.is_empty());
                        }
                    }
                }
            }
        }
    }
    assert!(destroyed_by_order > 100, "{destroyed_by_order}");
}

/// A crash during recovery: what was destroyed before stays so, and the image keeps the rules.
#[test]
fn images_are_interlaced_devices_for_further_layers() {
    for strict in [false, true] {
        let env = Env::real();
        let base = interlaced(&env, strict);
        // Destroyed before any layer is there, within a page that a later layer writes in part.
        write(&base, BOTTOM, 2, 1);
        let mut device = base;
        for generation in 0..4u8 {
            let layer = CrashDevice::new(&env, &device).unwrap();
            let over = layer.device();
            let tracks = over.tracks.as_ref().unwrap();
            assert_eq!(tracks.is_strict(), strict);
            assert_eq!(over.block.capabilities().tracks, Some(geometry()));
            let mut data = [generation + 1; 512];
            over.block.write_at((TOP + 1) * SECTOR + u64::from(generation) * 512, &data, &context()).unwrap();
            sync(&over);
            write(&over, 3 * TRACK + 2, 1, 7);
            let image = layer.capture().image(CrashVariant::DropAll, 0);
            assert_eq!(
                (read(&image, BOTTOM), read(&image, TOP), read(&image, 3 * TRACK + 2)),
                (Some(1), None, Some(0))
            );
            for other in 0..4u64 {
                let found = image.block.read_at((TOP + 1) * SECTOR + other * 512, &mut data, &context());
                assert_eq!(found.is_ok(), other <= u64::from(generation), "generation {generation}");
            }
            // Everything readable is live: strict rules want to hear what is free.
            let refused = image.block.write_at(2 * TRACK * SECTOR, &[9; 512], &context());
            assert_eq!(refused.is_err(), strict);
            for track in [1, 3].map(TrackId) {
                image.tracks.as_ref().unwrap().mark_free(track).unwrap();
            }
            image.block.write_at((2 * TRACK + 3) * SECTOR, &[9; 512], &context()).unwrap();
            assert_eq!(read(&image, 3 * TRACK + 3), None);
            device = image;
        }
    }
}

#[test]
fn a_refused_write_is_in_no_image() {
    let env = Env::real();
    let layer = CrashDevice::new(&env, &interlaced(&env, true)).unwrap();
    let device = layer.device();
    write(&device, TOP, 1, 1);
    assert!(device.block.write_at(BOTTOM * SECTOR, &[2; 512], &context()).is_err());
    assert_eq!(outcomes(&layer), BTreeSet::from([(Some(0), Some(0)), (Some(0), Some(1))]));
    sync(&device);
    assert_eq!(outcomes(&layer), BTreeSet::from([(Some(0), Some(1))]));
}

/// After a write that failed in part, a good sync makes durable what is there, not what might be.
#[test]
fn what_a_failed_bottom_write_left_is_found_by_looking() {
    for seed in 0..20 {
        let env = Env::real();
        let fault = Fault::new(Operation::Write, FaultTrigger::Once(2), FaultEffect::FailPartly(FaultError::Io));
        let injector = FaultInjector::new(&env, FaultPlan { seed, faults: vec![fault] });
        let faulty = FaultDevice::device(&injector, &interlaced(&env, false));
        assert!(faulty.tracks.is_some());
        let layer = CrashDevice::new(&env, &faulty).unwrap();
        let device = layer.device();
        write(&device, TRACK, TRACK, 1);
        write(&device, 3 * TRACK, TRACK, 1);
        sync(&device);
        let data = vec![2; (TRACK * SECTOR) as usize];
        assert_eq!(
            device.block.write_at(2 * TRACK * SECTOR, &data, &context()).unwrap_err().kind(),
            MediaErrorKind::Io
        );
        let readable = |device: &Device| {
            (0..SECTORS * 8)
                .map(|at| device.block.read_at(at * 512, &mut [0; 512], &context()).is_ok())
                .collect::<Vec<_>>()
        };
        let now = readable(&device);
        assert!(readable(&layer.capture().image(CrashVariant::DropAll, 0)).iter().all(|&readable| readable));
        assert_eq!(readable(&layer.capture().image(CrashVariant::KeepAll, 0)), now);
        sync(&device);
        assert_eq!(readable(&layer.capture().image(CrashVariant::DropAll, 0)), now, "seed {seed}");
    }
}

/// Actors on tracks that overlap: what one has synced and nobody destroyed since is in every image.
#[test]
fn syncs_of_several_actors_make_their_own_writes_durable() {
    for seed in 0..6 {
        let env = Env::sim(seed);
        let layer = CrashDevice::new(&env, &interlaced(&env, false)).unwrap();
        let handles: Vec<_> = (0..2u64)
            .map(|number| {
                let (layer, device) = (layer.clone(), layer.device());
                env.spawn("writer", move || {
                    let mut random = Random::seeded(seed + number);
                    for round in 1..20u8 {
                        // Bottoms and tops of three tracks each, apart from those of the other.
                        let base = number * 4 * TRACK;
                        let bottom = base + random.below(TRACK);
                        let top = base + TRACK + random.below(TRACK);
                        write(&device, bottom, 1, round);
                        sync(&device);
                        write(&device, top, 1, round + 100);
                        sync(&device);
                        for variant in CrashVariant::OF_DEVICES {
                            let image = layer.capture().image(variant, seed);
                            assert_eq!(read(&image, bottom), Some(round), "seed {seed} {variant:?}");
                            assert_eq!(read(&image, top), Some(round + 100), "seed {seed} {variant:?}");
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
