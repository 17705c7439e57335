use crate::context::IoContext;
use crate::device::{BlockDeviceExt, Device, Geometry};
use crate::emulated::{Emulated, Immediate, RamBacking, Zoned};
use crate::error::{MediaErrorKind, Operation};
use crate::layer::*;
use crate::zones::{ZoneCondition, ZoneDescription, ZoneGeometry, ZoneId};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use varve_env::{Env, Random};

const SECTOR: u64 = 4096;
/// Sectors of a zone, and those that can be written.
const ZONE: u64 = 16;
const CAPACITY: u64 = 12;
const ZONES: u32 = 6;
const CONVENTIONAL: u32 = 1;

fn geometry() -> ZoneGeometry {
    let fit = ZoneGeometry::fit(u64::from(ZONES) * ZONE * SECTOR, ZONE * SECTOR).unwrap();
    ZoneGeometry { zone_capacity_bytes: CAPACITY * SECTOR, conventional_zones: CONVENTIONAL, ..fit }
}

fn zoned(env: &Env) -> Device {
    let rules = Zoned::new(&geometry());
    let asked = Geometry { capacity_bytes: u64::MAX, sector_bytes: 512, physical_sector_bytes: 4096 };
    let (cut, timing) = (rules.cut(&asked), Box::<Immediate>::default());
    rules.device(|rules| Emulated::new(env, "zoned", cut, rules, timing, Box::new(RamBacking::new())))
}

fn context() -> IoContext {
    IoContext::default()
}

fn start(zone: u32) -> u64 {
    u64::from(zone) * ZONE * SECTOR
}

fn write(device: &Device, zone: u32, sector: u64, count: u64, value: u8) {
    let data = vec![value; (count * SECTOR) as usize];
    device.block.write_at(start(zone) + sector * SECTOR, &data, &context()).unwrap();
}

fn sync(device: &Device) {
    device.block.sync(&context()).unwrap();
}

fn describe(device: &Device, zone: u32) -> ZoneDescription {
    device.zones.as_ref().unwrap().report(ZoneId(zone), 1, &context()).unwrap().remove(0)
}

/// Sectors below the pointer.
fn pointer(device: &Device, zone: u32) -> u64 {
    (describe(device, zone).write_pointer_bytes - start(zone)) / SECTOR
}

/// The value of every sector that can be written; each is of one value.
fn read(device: &Device, zone: u32) -> Vec<u8> {
    let mut data = vec![9; (CAPACITY * SECTOR) as usize];
    device.block.read_at(start(zone), &mut data, &context()).unwrap();
    let sectors = data.chunks(SECTOR as usize);
    sectors
        .map(|sector| {
            assert!(sector.iter().all(|&byte| byte == sector[0]), "a torn sector");
            sector[0]
        })
        .collect()
}

fn images(layer: &CrashDevice) -> impl Iterator<Item = Device> {
    let state = layer.capture();
    let seeds = CrashVariant::OF_DEVICES.into_iter().flat_map(|variant| (0..40).map(move |seed| (variant, seed)));
    seeds.map(move |(variant, seed)| state.image(variant, seed))
}

#[test]
fn the_pointer_stands_between_the_last_sync_and_the_last_write() {
    let env = Env::real();
    let layer = CrashDevice::new(&env, &zoned(&env)).unwrap();
    let device = layer.device();
    write(&device, 2, 0, 2, 1);
    sync(&device);
    write(&device, 2, 2, 3, 2);
    write(&device, 2, 5, 2, 3);
    let found: BTreeSet<(u64, Vec<u8>)> =
        images(&layer).map(|image| (pointer(&image, 2), read(&image, 2)[..7].to_vec())).collect();
    let pointers: BTreeSet<u64> = found.iter().map(|(pointer, _)| *pointer).collect();
    assert_eq!(pointers, (2..=7).collect());
    // The last sectors below the pointer may be missing, and those of one write only.
    let has_gap = |(pointer, data): &(u64, Vec<u8>)| data[..*pointer as usize].contains(&0);
    assert!(found.iter().any(has_gap) && !found.iter().all(has_gap), "{found:?}");
    assert!(found.contains(&(7, vec![1, 1, 2, 2, 2, 3, 0])), "{found:?}");
    assert!(found.iter().all(|(_, data)| data[..2] == [1, 1]));
    assert!(found.iter().all(|(pointer, data)| *pointer <= 5 || data[2..5] == [2, 2, 2]), "{found:?}");
    sync(&device);
    assert!(images(&layer).all(|image| pointer(&image, 2) == 7 && read(&image, 2)[..7] == [1, 1, 2, 2, 2, 3, 3]));
}

#[test]
fn no_zone_is_open_after_a_power_cut() {
    let env = Env::real();
    let layer = CrashDevice::new(&env, &zoned(&env)).unwrap();
    let device = layer.device();
    let zones = device.zones.clone().unwrap();
    zones.open(ZoneId(1), &context()).unwrap();
    write(&device, 2, 0, 1, 1);
    write(&device, 3, 0, CAPACITY, 1);
    zones.finish(ZoneId(4), &context()).unwrap();
    sync(&device);
    for image in images(&layer) {
        let found = [0, 1, 2, 3, 4, 5].map(|zone| describe(&image, zone).condition);
        use ZoneCondition::{Closed, Empty, Full, NotWritePointer};
        assert_eq!(found, [NotWritePointer, Empty, Closed, Full, Full, Empty]);
        assert_eq!(read(&image, 4), [0; CAPACITY as usize]);
    }
}

/// What is known of a zone at a persistence point, the operation of the point included.
#[derive(Clone, Default)]
struct Known {
    /// As of the last sync or command.
    durable: Vec<u8>,
    /// Written since, oldest first: sectors and their value.
    unsynced: Vec<(u64, u8)>,
    finished: bool,
    /// A reset or finish of the point: `true` for a reset.
    command: Option<bool>,
}

impl Known {
    fn newest(&self) -> Vec<u8> {
        let mut newest = self.durable.clone();
        for (count, value) in &self.unsynced {
            newest.resize(newest.len() + *count as usize, *value);
        }
        newest
    }

    /// What an image may show, as the zone was before a command in flight.
    fn check(&self, finished: bool, data: &[u8], pointer: u64, condition: ZoneCondition, at: &str) {
        let newest = self.newest();
        let limit = if finished { newest.len() as u64 } else { pointer };
        assert!(limit >= self.durable.len() as u64 && limit <= newest.len() as u64, "{at}: pointer {pointer}");
        let expected = match pointer {
            _ if finished => ZoneCondition::Full,
            0 => ZoneCondition::Empty,
            CAPACITY => ZoneCondition::Full,
            _ => ZoneCondition::Closed,
        };
        assert_eq!(condition, expected, "{at}");
        // Whole as far as the first write that is torn, and after it nothing.
        let mut done = self.durable.len();
        assert_eq!(&data[..done], &self.durable[..], "{at}");
        let mut torn = false;
        for (count, value) in &self.unsynced {
            let range = done..done + *count as usize;
            let there = data[range.clone()].iter().filter(|&&found| found == *value).count();
            let missing = data[range].iter().filter(|&&found| found == 0).count();
            assert_eq!(there + missing, *count as usize, "{at}: neither new nor nothing");
            assert!(!torn || there == 0, "{at}: survived what was lost before it");
            torn |= missing > 0;
            done += *count as usize;
        }
        assert!(data[done..].iter().all(|&byte| byte == 0), "{at}");
        if !finished {
            assert!(data[limit as usize..].iter().all(|&byte| byte == 0), "{at}: data above the pointer");
        }
    }
}

/// Random writes and commands; at every point, every image must be one that a device could have left.
#[test]
fn images_are_what_a_device_leaves() {
    let (mut torn, mut behind) = (0, 0);
    for seed in 0..8 {
        let env = Env::sim(seed);
        let mut random = env.random("operations");
        let layer = CrashDevice::new(&env, &zoned(&env)).unwrap();
        let device = layer.device();
        let zones = device.zones.clone().unwrap();
        let states = Arc::new(Mutex::new(Vec::new()));
        let sink = states.clone();
        layer.on_persistence_point(move |point| sink.lock().push(point.capture()));
        let mut known = vec![Known::default(); ZONES as usize];
        let mut expected: Vec<Vec<Known>> = Vec::new();
        for step in 1..120u8 {
            let zone = CONVENTIONAL + random.below(u64::from(ZONES - CONVENTIONAL)) as u32;
            let at = zone as usize;
            let written = known[at].newest().len() as u64;
            match random.below(12) {
                0 => {
                    expected.push(known.clone());
                    sync(&device);
                    for known in &mut known {
                        *known = Known { durable: known.newest(), unsynced: Vec::new(), ..known.clone() };
                    }
                }
                1 => {
                    known[at].command = Some(true);
                    expected.push(known.clone());
                    zones.reset(ZoneId(zone), &context()).unwrap();
                    known[at] = Known::default();
                }
                2 => {
                    known[at].command = Some(false);
                    expected.push(known.clone());
                    zones.finish(ZoneId(zone), &context()).unwrap();
                    known[at] = Known { command: None, finished: true, ..known[at].clone() };
                }
                choice if !known[at].finished && written < CAPACITY => {
                    let count = (1 + random.below(4)).min(CAPACITY - written);
                    known[at].unsynced.push((count, step));
                    expected.push(known.clone());
                    if choice < 6 {
                        let data = vec![step; (count * SECTOR) as usize];
                        let offset = zones.append(ZoneId(zone), &data, &context()).unwrap();
                        assert_eq!(offset, start(zone) + written * SECTOR);
                    } else {
                        write(&device, zone, written, count, step);
                    }
                }
                _ => {}
            }
            let mut newest = known[at].newest();
            newest.resize(CAPACITY as usize, 0);
            assert_eq!(read(&device, zone), newest, "seed {seed} step {step}");
        }
        let states = states.lock();
        assert_eq!(states.len(), expected.len(), "seed {seed}: persistence points");
        for (point, (state, known)) in states.iter().zip(&expected).enumerate() {
            for variant in CrashVariant::OF_DEVICES {
                let image = state.image(variant, point as u64);
                for zone in CONVENTIONAL..ZONES {
                    let known = &known[zone as usize];
                    let at = format!("seed {seed} point {point} {variant:?} zone {zone}");
                    let (data, found) = (read(&image, zone), describe(&image, zone));
                    let pointer = pointer(&image, zone);
                    let done = match known.command {
                        None => false,
                        Some(_) if variant == CrashVariant::KeepAll => true,
                        Some(_) if variant == CrashVariant::DropAll => false,
                        Some(true) => found.condition == ZoneCondition::Empty,
                        Some(false) => found.condition == ZoneCondition::Full,
                    };
                    if known.command == Some(true) && done {
                        assert!(data.iter().all(|&byte| byte == 0) && pointer == 0, "{at}");
                        continue;
                    }
                    known.check(known.finished || done, &data, pointer, found.condition, &at);
                    let newest = known.newest();
                    match variant {
                        CrashVariant::KeepAll => assert_eq!(data[..newest.len()], newest[..], "{at}"),
                        CrashVariant::DropAll if !known.finished => {
                            assert_eq!(pointer, known.durable.len() as u64, "{at}")
                        }
                        _ => {}
                    }
                    behind += u64::from(!known.finished && pointer < newest.len() as u64);
                    torn += u64::from(data[..pointer.min(newest.len() as u64) as usize].contains(&0));
                }
            }
        }
    }
    assert!(torn > 100 && behind > 100, "{torn} {behind}");
}

/// A crash during recovery: the image keeps its zones, and what was lost stays lost.
#[test]
fn images_are_zoned_devices_for_further_layers() {
    let env = Env::real();
    let mut device = zoned(&env);
    write(&device, 1, 0, 2, 1);
    for generation in 2..6u8 {
        let layer = CrashDevice::new(&env, &device).unwrap();
        let over = layer.device();
        let zones = over.zones.clone().unwrap();
        assert_eq!(over.block.capabilities().zones, Some(geometry()));
        assert_eq!(pointer(&over, 1), u64::from(generation));
        write(&over, 1, u64::from(generation), 1, generation);
        write(&over, 2, 0, 3, generation);
        sync(&over);
        write(&over, 1, u64::from(generation) + 1, 2, 99);
        let image = layer.capture().image(CrashVariant::DropAll, 0);
        let mut expected = vec![1, 1];
        expected.extend(2..=generation);
        assert_eq!(read(&image, 1)[..expected.len()], expected[..]);
        // The zone is reset in the layer; the image made before keeps it.
        zones.reset(ZoneId(2), &context()).unwrap();
        write(&over, 2, 0, 1, 98);
        assert_eq!(read(&image, 2)[..4], [generation, generation, generation, 0]);
        assert_eq!(read(&layer.capture().image(CrashVariant::DropAll, 0), 2), [0; CAPACITY as usize]);
        assert_eq!(
            image.block.write_at(start(2), &[1; 4096], &context()).unwrap_err().kind(),
            MediaErrorKind::InvalidRequest
        );
        image.zones.as_ref().unwrap().reset(ZoneId(2), &context()).unwrap();
        device = image;
    }
}

#[test]
fn a_refused_write_or_append_is_in_no_image() {
    let env = Env::real();
    let layer = CrashDevice::new(&env, &zoned(&env)).unwrap();
    let device = layer.device();
    let zones = device.zones.clone().unwrap();
    assert!(device.block.write_at(start(1) + SECTOR, &[2; 4096], &context()).is_err());
    assert!(zones.append(ZoneId(1), &vec![2; (CAPACITY as usize + 1) * 4096], &context()).is_err());
    assert!(zones.append(ZoneId(0), &[2; 4096], &context()).is_err());
    assert!(zones.reset(ZoneId(0), &context()).is_err());
    assert!(images(&layer).all(|image| pointer(&image, 1) == 0 && read(&image, 1) == [0; CAPACITY as usize]));
    write(&device, 1, 0, 1, 1);
    sync(&device);
    assert!(images(&layer).all(|image| pointer(&image, 1) == 1));
}

/// Below a device whose cache survives, what completed is there.
#[test]
fn nothing_that_completed_is_lost_without_a_volatile_cache() {
    let env = Env::sim(1);
    let preset = crate::presets::Preset::find("zn540").unwrap();
    let inner =
        preset.build_zoned(&env, "zns", Zoned::new(&geometry()), Box::new(RamBacking::new()), Default::default());
    let layer = CrashDevice::new(&env, &inner).unwrap();
    let device = layer.device();
    write(&device, 1, 0, 3, 1);
    device.zones.as_ref().unwrap().append(ZoneId(1), &[2; 8192], &context()).unwrap();
    assert!(images(&layer).all(|image| pointer(&image, 1) == 5 && read(&image, 1)[..6] == [1, 1, 1, 2, 2, 0]));
}

/// After a write that failed in part, a good sync makes durable what is there.
#[test]
fn what_a_failed_write_left_is_found_by_looking() {
    for seed in 0..20 {
        let env = Env::real();
        let fault = Fault::new(Operation::Write, FaultTrigger::Once(1), FaultEffect::FailPartly(FaultError::Io));
        let injector = FaultInjector::new(&env, FaultPlan { seed, faults: vec![fault] });
        let layer = CrashDevice::new(&env, &FaultDevice::device(&injector, &zoned(&env))).unwrap();
        let device = layer.device();
        write(&device, 1, 0, 2, 1);
        let data = vec![2; 8 * SECTOR as usize];
        let error = device.block.write_at(start(1) + 2 * SECTOR, &data, &context()).unwrap_err();
        assert_eq!(error.kind(), MediaErrorKind::Io, "seed {seed}: {error}");
        let found = describe(&device, 1);
        let whole = |device: &Device| {
            let mut bytes = vec![0; (CAPACITY * SECTOR) as usize];
            device.block.read_at(start(1), &mut bytes, &context()).unwrap();
            bytes
        };
        let now = whole(&device);
        sync(&device);
        for image in images(&layer) {
            assert_eq!(describe(&image, 1).write_pointer_bytes, found.write_pointer_bytes, "seed {seed}");
            assert!(whole(&image) == now, "seed {seed}");
        }
    }
}

/// Actors with zones of their own: what one has synced is in every image.
#[test]
fn syncs_of_several_actors_make_their_own_writes_durable() {
    for seed in 0..6 {
        let env = Env::sim(seed);
        let layer = CrashDevice::new(&env, &zoned(&env)).unwrap();
        let handles: Vec<_> = (0..3u32)
            .map(|number| {
                let (layer, device) = (layer.clone(), layer.device());
                env.spawn("writer", move || {
                    let mut random = Random::seeded(seed + u64::from(number));
                    let zone = number + 1;
                    let mut synced = Vec::new();
                    for round in 1..25u8 {
                        if synced.len() as u64 == CAPACITY || random.chance(1, 8) {
                            device.zones.as_ref().unwrap().reset(ZoneId(zone), &context()).unwrap();
                            synced.clear();
                        }
                        write(&device, zone, synced.len() as u64, 1, round);
                        synced.push(round);
                        sync(&device);
                        for variant in CrashVariant::OF_DEVICES {
                            let image = layer.capture().image(variant, seed);
                            assert_eq!(read(&image, zone)[..synced.len()], synced[..], "seed {seed} {variant:?}");
                            assert_eq!(pointer(&image, zone), synced.len() as u64, "seed {seed} {variant:?}");
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
