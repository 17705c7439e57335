//! Power cuts of devices with protection information: data and tuple of an interval arrive or are lost together.

use super::*;
use crate::conformance::devices::{devices, memory};
use crate::device::Geometry;
use crate::emulated::{Conventional, Interlaced, RamBacking, Zoned};
use crate::protection::{GuardKind, ProtectionFormat, ProtectionTuple, ProtectionType};
use crate::tracks::TrackGeometry;
use crate::zones::{ZoneGeometry, ZoneId};
use crate::{
    Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, MediaError, MediaErrorKind,
    OverlayDevice, Transfer,
};

const SECTORS: u64 = 24;

/// Content of a sector at some time. Its bytes have one value. The application tag says which write it was; a sector that was never
/// written or was discarded has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    value: u8,
    tag: Option<u16>,
}

const UNWRITTEN: Version = Version { value: 0, tag: None };

fn format_of(device: &Device) -> ProtectionFormat {
    device.block.capabilities().protection.expect("protection information")
}

fn sector_of(device: &Device) -> u64 {
    device.block.geometry().sector_bytes.into()
}

fn tuples_of(device: &Device, at: u64, tag: u16, data: &[u8]) -> Vec<u8> {
    let format = format_of(device);
    let mut tuples = vec![0; format.tuples_bytes(data.len() as u64) as usize];
    format.generate(at, tag, [data], &mut tuples);
    tuples
}

/// Reads one sector, and checks that its tuple is that of its data.
fn version_at(device: &Device, sector: u64) -> Result<Version, MediaError> {
    let length = sector_of(device);
    let at = sector * length;
    let (mut data, mut tuple) = (vec![0xEE; length as usize], [0; ProtectionTuple::BYTES]);
    device.block.read_protected_at(at, &mut data, &mut tuple, &context())?;
    assert!(data.iter().all(|&byte| byte == data[0]), "sector {sector} is torn");
    let tag = ProtectionTuple::decode(tuple).application;
    let is_unwritten = tag == ProtectionTuple::APPLICATION_ESCAPE;
    let expected = match is_unwritten {
        true => ProtectionTuple::UNWRITTEN.encode().to_vec(),
        false => tuples_of(device, at, tag, &data),
    };
    assert_eq!(tuple[..], expected, "sector {sector} has the tuple of other data");
    Ok(Version { value: data[0], tag: (!is_unwritten).then_some(tag) })
}

/// Writes with tuples, or for the tag 0 without.
fn write(device: &Device, first: u64, count: u64, version: Version, durable: bool) -> Result<(), MediaError> {
    let at = first * sector_of(device);
    let data = vec![version.value; (count * sector_of(device)) as usize];
    let tuples = version.tag.filter(|&tag| tag != 0).map(|tag| tuples_of(device, at, tag, &data));
    let slices = [IoSlice::new(&data)];
    let transfer = Transfer::Write { data: &slices, protection: tuples.as_deref(), durable };
    device.block.execute(&mut [Request { offset_bytes: at, transfer, outcome: Ok(()) }], &context())
}

fn has_small_sectors(device: &Device) -> bool {
    device.block.geometry().physical_sector_bytes <= device.block.geometry().sector_bytes
}

/// Writes with wrong tuples.
fn is_refused(device: &Device, first: u64, count: u64) -> bool {
    let data = vec![0xDD; (count * sector_of(device)) as usize];
    let wrong = vec![0x5A; format_of(device).tuples_bytes(data.len() as u64) as usize];
    let refused = device.block.write_protected_at(first * sector_of(device), &data, &wrong, &context());
    // Or a fault struck it before the drive saw it.
    refused.is_err_and(|error| matches!(error.kind(), MediaErrorKind::Protection | MediaErrorKind::Io))
}

/// A drive of memory with the asked sizes.
fn drive(env: &Env, sector_bytes: u32, physical_sector_bytes: u32) -> Device {
    let geometry = Geometry { capacity_bytes: SIZE, sector_bytes, physical_sector_bytes };
    let device = memory(env, "drive", geometry, Box::new(Conventional));
    let tuples = Box::new(RamBacking::new());
    Device::of_blocks(Arc::new(device.with_protection(ProtectionType::Type1, GuardKind::Crc, tuples)))
}

/// The protected devices of the table.
fn protected(env: &Env, physical_sector_bytes: u32) -> Vec<(&'static str, Device)> {
    let asked = Geometry { capacity_bytes: SIZE, sector_bytes: 512, physical_sector_bytes };
    let made = devices().map(|tested| (tested.name, (tested.make)(env, "drive", &asked)));
    made.filter(|(_, device)| device.block.capabilities().protection.is_some()).collect()
}

/// A crash layer, and its states at every point from now on.
fn observed(env: &Env, inner: &Device) -> (CrashDevice, Arc<Mutex<Vec<DeviceCrashState>>>) {
    let layer = CrashDevice::new(env, inner).unwrap();
    let states = Arc::new(Mutex::new(Vec::new()));
    let sink = states.clone();
    layer.on_persistence_point(move |point| sink.lock().push(point.capture()));
    (layer, states)
}

/// The crash states of a history of writes, and the versions that each sector may have in their images, the newest last.
struct History {
    states: Vec<DeviceCrashState>,
    allowed: Vec<Vec<Vec<Version>>>,
}

impl History {
    /// Random writes with tuples and without, discards, syncs, and writes that the device refuses. Values repeat, so that only
    /// the tuples tell some versions apart.
    fn run(env: &Env, inner: &Device, steps: u16) -> History {
        let mut random = env.random("operations");
        let (layer, states) = observed(env, inner);
        let (device, sector) = (layer.device(), sector_of(inner));
        let mut versions = vec![vec![UNWRITTEN]; SECTORS as usize];
        let mut allowed = Vec::new();
        for step in 1..steps {
            let first = random.below(SECTORS);
            let count = 1 + random.below((SECTORS - first).min(9));
            let own = first as usize..(first + count) as usize;
            let kind = random.below(10);
            match kind {
                0 => {
                    allowed.push(versions.clone());
                    device.block.sync(&context()).unwrap();
                    // A failed write left what is read now.
                    for (sector, versions) in (0..).zip(&mut versions) {
                        let present = version_at(&device, sector).unwrap();
                        assert!(versions.contains(&present), "sector {sector}: {present:?} not in {versions:?}");
                        *versions = vec![present];
                    }
                }
                1 => assert!(is_refused(&device, first, count)),
                _ => {
                    let (value, durable) = (random.below(3) as u8, kind == 4);
                    let version = match kind {
                        2 => UNWRITTEN,
                        3 => Version { value, tag: Some(0) },
                        _ => Version { value, tag: Some(step) },
                    };
                    versions[own.clone()].iter_mut().for_each(|versions| versions.push(version));
                    allowed.push(versions.clone());
                    let done = match kind {
                        2 => device.block.discard_at(first * sector, count * sector, &context()),
                        _ => write(&device, first, count, version, durable),
                    };
                    if done.is_ok() && durable {
                        versions[own].iter_mut().for_each(|versions| *versions = vec![version]);
                    }
                }
            }
        }
        let states = std::mem::take(&mut *states.lock());
        assert_eq!(states.len(), allowed.len(), "a refused write is no persistence point");
        History { states, allowed }
    }

    /// Checks every image of every point.
    fn check(&self, what: &str, has_failures: bool) {
        for (point, (state, allowed)) in (0..).zip(self.states.iter().zip(&self.allowed)) {
            for variant in CrashVariant::OF_DEVICES {
                let image = state.image(variant, point);
                for (sector, allowed) in (0..).zip(allowed) {
                    let place = format!("{what}, point {point}, {variant:?}, sector {sector}");
                    let found = version_at(&image, sector).unwrap_or_else(|error| panic!("{place}: {error}"));
                    assert!(allowed.contains(&found), "{place}: {found:?} not in {allowed:?}");
                    let expected = match variant {
                        CrashVariant::KeepAll if !has_failures => allowed.last(),
                        // A durable write takes along what else was written to its physical sector.
                        CrashVariant::DropAll if has_small_sectors(&image) => allowed.first(),
                        _ => None,
                    };
                    assert!(expected.is_none_or(|expected| *expected == found), "{place}: {found:?}, not {expected:?}");
                }
                check_usable(&image, point % SECTORS);
            }
        }
    }
}

/// An image is a protected device: it takes and refuses writes, under an overlay and under another crash layer too.
fn check_usable(image: &Device, sector: u64) {
    let new = Version { value: 0x77, tag: Some(0x7777) };
    let above = OverlayDevice::device(image).unwrap();
    write(&above, sector, 1, new, false).unwrap();
    assert_eq!(version_at(&above, sector).unwrap(), new);
    let layer = CrashDevice::new(&Env::real(), image).unwrap();
    let device = layer.device();
    let old = version_at(&device, sector).unwrap();
    assert_ne!(old, new, "the overlay keeps its writes");
    write(&device, sector, 1, new, false).unwrap();
    let state = layer.capture();
    assert_eq!(version_at(&state.image(CrashVariant::DropAll, 1), sector).unwrap(), old);
    assert_eq!(version_at(&state.image(CrashVariant::KeepAll, 1), sector).unwrap(), new);
    assert!(is_refused(&above, sector, 1) && is_refused(image, sector, 1));
    assert_eq!(version_at(image, sector).unwrap(), new);
}

#[test]
fn images_hold_each_sector_with_its_own_tuple() {
    for (seed, physical_sector_bytes) in [(1, 512), (2, 4096), (3, 4096)] {
        let env = Env::sim(seed);
        let devices = protected(&env, physical_sector_bytes);
        assert!(devices.len() >= 4);
        for (name, device) in devices {
            History::run(&env, &device, 50).check(&format!("{name}, seed {seed}"), false);
        }
    }
}

/// An interval is never torn, however small the physical sectors are.
#[test]
fn intervals_larger_than_physical_sectors_stay_whole() {
    let env = Env::sim(1);
    History::run(&env, &drive(&env, 4096, 512), 50).check("large intervals", false);
}

/// Writes that fail in part below the layer leave each sector old or new, with its tuple.
#[test]
fn images_after_failed_writes_hold_each_sector_with_its_own_tuple() {
    for seed in 0..4 {
        let env = Env::sim(seed);
        let trigger = FaultTrigger::Random { numerator: 1, denominator: 3 };
        let fault = Fault::new(Operation::Write, trigger, FaultEffect::FailPartly(FaultError::Io));
        let injector = FaultInjector::new(&env, FaultPlan { seed, ..FaultPlan::of(fault) });
        let faulty = FaultDevice::device(&injector, &drive(&env, 512, 512));
        History::run(&env, &faulty, 50).check(&format!("failures, seed {seed}"), true);
    }
}

#[test]
fn images_of_a_group_hold_each_sector_with_its_own_tuple() {
    let env = Env::real();
    let bare: Vec<Device> = protected(&env, 4096).into_iter().map(|(_, device)| device).collect();
    let group = CrashGroup::new(&env, &bare).unwrap();
    let (old, new) = (Version { value: 1, tag: Some(1) }, Version { value: 2, tag: Some(2) });
    for device in group.devices() {
        write(&device, 0, SECTORS, old, false).unwrap();
        device.block.sync(&context()).unwrap();
        write(&device, 0, SECTORS, new, false).unwrap();
    }
    let state = group.capture();
    let mut found = BTreeSet::new();
    for seed in 0..20 {
        let variant = CrashVariant::OF_DEVICES[seed as usize % CrashVariant::OF_DEVICES.len()];
        for image in state.images(&CrashVariant::fates(variant, state.members(), seed), seed) {
            let versions: Vec<Version> = (0..SECTORS).map(|sector| version_at(&image, sector).unwrap()).collect();
            assert!(versions.iter().all(|version| [old, new].contains(version)), "{versions:?}");
            found.extend(versions.iter().map(|version| version.tag));
        }
    }
    assert_eq!(found.len(), 2);
}

/// Zones that are written in order, appended to and reset: each sector has a version that it had, or is missing.
#[test]
fn images_of_protected_zones_hold_each_sector_with_its_own_tuple() {
    const ZONE_SECTORS: u64 = 16;
    for seed in 0..6 {
        let env = Env::sim(seed);
        let fit = ZoneGeometry::fit(6 * ZONE_SECTORS * 512, ZONE_SECTORS * 512).unwrap();
        let rules = Zoned::new(&ZoneGeometry { conventional_zones: 1, ..fit });
        let geometry = rules.cut(&Geometry { capacity_bytes: u64::MAX, sector_bytes: 512, physical_sector_bytes: 512 });
        let sectors = geometry.capacity_bytes / 512;
        let inner = rules.device(|rules| {
            let device = memory(&env, "zones", geometry, rules);
            device.with_protection(ProtectionType::Type1, GuardKind::Crc, Box::new(RamBacking::new()))
        });
        let (layer, states) = observed(&env, &inner);
        let device = layer.device();
        let control = device.zones.clone().unwrap();
        let mut random = env.random("operations");
        let mut versions = vec![vec![UNWRITTEN]; sectors as usize];
        for step in 1..60 {
            let zone = ZoneId(random.below(6) as u32);
            let found = control.report(zone, 1, &context()).unwrap().remove(0);
            let (first, count) = match zone.0 {
                0 => (random.below(ZONE_SECTORS - 5), 5),
                _ => (found.write_pointer_bytes / 512, (1 + random.below(5)).min(found.remaining_bytes() / 512)),
            };
            match random.below(8) {
                0 => device.block.sync(&context()).unwrap(),
                1 if zone.0 > 0 => control.reset(zone, &context()).unwrap(),
                kind if count > 0 => {
                    let is_append = kind == 2 && zone.0 > 0;
                    let version = Version { value: random.below(3) as u8, tag: Some(if is_append { 0 } else { step }) };
                    let own = first as usize..(first + count) as usize;
                    versions[own].iter_mut().for_each(|versions| versions.push(version));
                    if is_append {
                        let data = vec![version.value; count as usize * 512];
                        control.append(zone, &data, &context()).unwrap();
                    } else {
                        write(&device, first, count, version, false).unwrap();
                    }
                }
                _ => {}
            }
        }
        for (point, state) in (0..).zip(states.lock().iter()) {
            for variant in CrashVariant::OF_DEVICES {
                let image = state.image(variant, point);
                for (sector, versions) in (0..).zip(&versions) {
                    let found = version_at(&image, sector).unwrap();
                    assert!(versions.contains(&found), "seed {seed} point {point} {variant:?} {sector}: {found:?}");
                }
            }
        }
    }
}

/// Interlaced tracks: a sector is destroyed, or has a version that it had.
#[test]
fn images_of_protected_tracks_hold_each_sector_with_its_own_tuple() {
    let mut destroyed = 0;
    for seed in 0..6 {
        let env = Env::sim(seed);
        let tracks = TrackGeometry::fit(64 << 10, 8 << 10, 8 << 10).unwrap();
        let rules = Interlaced::new(&tracks, 512, false);
        let geometry = rules.cut(&Geometry { capacity_bytes: 64 << 10, sector_bytes: 512, physical_sector_bytes: 512 });
        let sectors = geometry.capacity_bytes / 512;
        let inner = rules.device("tracks", |rules| {
            let device = memory(&env, "tracks", geometry, rules);
            device.with_protection(ProtectionType::Type3, GuardKind::IpChecksum, Box::new(RamBacking::new()))
        });
        let (layer, states) = observed(&env, &inner);
        let device = layer.device();
        let mut random = env.random("operations");
        let mut versions = vec![vec![UNWRITTEN]; sectors as usize];
        for step in 1..50 {
            let first = random.below(sectors - 8);
            let count = 1 + random.below(8);
            if random.chance(1, 8) {
                device.block.sync(&context()).unwrap();
                continue;
            }
            let version = Version { value: random.below(3) as u8, tag: Some(step) };
            let own = first as usize..(first + count) as usize;
            versions[own].iter_mut().for_each(|versions| versions.push(version));
            write(&device, first, count, version, false).unwrap();
        }
        for (point, state) in (0..).zip(states.lock().iter()) {
            for variant in CrashVariant::OF_DEVICES {
                let image = state.image(variant, point);
                for (sector, versions) in (0..).zip(&versions) {
                    match version_at(&image, sector) {
                        Ok(found) => {
                            assert!(versions.contains(&found), "seed {seed} point {point} {variant:?}: {found:?}");
                        }
                        Err(error) => {
                            assert_eq!(error.kind(), MediaErrorKind::Unreadable, "{error}");
                            destroyed += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(destroyed > 0);
}
