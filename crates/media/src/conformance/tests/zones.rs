//! Devices with zones, and zones that are wrong on purpose.

use super::*;
use crate::emulated::{Rules, Zoned};
use crate::zones::{ZoneCondition, ZoneControl, ZoneDescription, ZoneGeometry, ZoneId, ZoneRefusal, ZoneType};
use std::ops::Range;

/// Zones of 256 KiB over memory, the first two conventional.
fn bands() -> ZoneGeometry {
    ZoneGeometry { conventional_zones: 2, ..ZoneGeometry::fit(4 << 20, 256 << 10).unwrap() }
}

/// Zones that cannot be written to their end, with limits.
fn namespace() -> ZoneGeometry {
    ZoneGeometry {
        zone_capacity_bytes: 136 << 10,
        open_zones_max: 3,
        active_zones_max: 5,
        append_bytes_max: 64 << 10,
        ..ZoneGeometry::fit(4 << 20, 256 << 10).unwrap()
    }
}

/// Zones a host-aware disk has.
fn host_aware() -> ZoneGeometry {
    ZoneGeometry { sequential_type: ZoneType::SequentialWritePreferred, open_zones_max: 2, ..bands() }
}

fn zoned_by(
    env: &Env,
    zones: &ZoneGeometry,
    backing: Box<dyn crate::Backing>,
    wrap: impl FnOnce(Box<dyn Rules>) -> Box<dyn Rules>,
) -> Device {
    let rules = Zoned::new(zones);
    let asked = Geometry { capacity_bytes: u64::MAX, sector_bytes: 512, physical_sector_bytes: 4096 };
    let (geometry, timing) = (rules.cut(&asked), Box::<crate::Immediate>::default());
    rules.device(|rules| Emulated::new(env, "zoned", geometry, wrap(rules), timing, backing))
}

fn zoned(env: &Env, zones: &ZoneGeometry) -> Device {
    zoned_by(env, zones, Box::new(crate::RamBacking::new()), |rules| rules)
}

fn check_zoned(layer: impl Fn(&Env, &Device) -> Device) {
    for (zones, seed) in [(bands(), 1), (namespace(), 2), (host_aware(), 3)] {
        let make = |env: &Env| layer(env, &zoned(env, &zones));
        check_zoned_device(&make, &BlockDeviceCheck { seed, steps: 200, ..BlockDeviceCheck::default() })
            .unwrap_or_else(|broken| panic!("{zones:?}, seed {seed}: {broken}"));
    }
}

#[test]
fn zoned_memory() {
    check_zoned(|_, device| device.clone());
}

/// A host-aware disk with its translation layer, whose cache is soon full.
fn translated(env: &Env, is_managed: bool) -> Device {
    let translation = crate::emulated::TranslationParameters {
        media_cache: crate::MediaCache { bytes: 512 << 10, extents_max: 40 },
        idle_trigger_nanos: 20_000_000,
        ..crate::emulated::TranslationParameters::st8000as0022()
    };
    let zones = ZoneGeometry {
        sequential_type: ZoneType::SequentialWritePreferred,
        media_cache: Some(translation.media_cache),
        ..ZoneGeometry::fit(4 << 20, 256 << 10).unwrap()
    };
    let preset = crate::presets::Preset::find("st8000as0022").unwrap().with_capacity(4 << 20);
    let (backing, pacing) = (Box::new(crate::RamBacking::new()), crate::Pacing::Account);
    match is_managed {
        true => preset.build_device_managed(env, "device-managed", &zones, translation, backing, pacing),
        false => preset.build_translated(env, "host-aware", Zoned::new(&zones), translation, backing, pacing),
    }
}

#[test]
fn translated_zones_are_zones_and_blocks() {
    for seed in [1, 2] {
        let options = BlockDeviceCheck { seed, steps: 100, ..BlockDeviceCheck::default() };
        check_zoned_device(&|env| translated(env, false), &options).unwrap();
        check_block_device(&|env| translated(env, false), &options).unwrap();
        check_block_device(&|env| translated(env, true), &options).unwrap();
    }
}

#[test]
fn layers_over_translated_zones() {
    let options = BlockDeviceCheck { seed: 3, steps: 60, ..BlockDeviceCheck::default() };
    let layers: [fn(&Env, &Device) -> Device; 3] = [
        |env, device| CrashDevice::new(env, device).unwrap().device(),
        |env, device| FaultDevice::device(&FaultInjector::new(env, FaultPlan::default()), device),
        |env, device| TraceDevice::device(env, Arc::new(MemoryTrace::new()), device),
    ];
    for layer in layers {
        check_zoned_device(&|env| layer(env, &translated(env, false)), &options).unwrap();
        check_block_device(&|env| layer(env, &translated(env, false)), &options).unwrap();
    }
}

#[test]
fn zoned_presets() {
    for (name, zones) in [("barracuda-3tb", bands()), ("zn540", namespace())] {
        let preset = crate::presets::Preset::find(name).unwrap().with_capacity(4 << 20);
        let make = |env: &Env| {
            let backing = Box::new(crate::RamBacking::new());
            preset.build_zoned(env, name, Zoned::new(&zones), backing, crate::Pacing::Account)
        };
        let options = BlockDeviceCheck { steps: 60, ..Default::default() };
        check_zoned_device(&make, &options).unwrap_or_else(|broken| panic!("{name}: {broken}"));
    }
}

#[test]
fn zoned_compressed_memory_and_file() {
    let place = tempfile::tempdir().unwrap();
    let made = RefCell::new(0);
    let options = BlockDeviceCheck { steps: 60, ..Default::default() };
    let compressed = |env: &Env| zoned_by(env, &bands(), Box::new(crate::CompressedBacking::new()), |rules| rules);
    check_zoned_device(&compressed, &options).unwrap();
    let file = |env: &Env| {
        let path = place.path().join(made.replace_with(|made| *made + 1).to_string());
        zoned_by(env, &bands(), Box::new(crate::FileBacking::open(&path, 4 << 20).unwrap()), |rules| rules)
    };
    check_zoned_device(&file, &options).unwrap();
}

#[test]
fn zones_with_a_record() {
    let place = tempfile::tempdir().unwrap();
    for zones in [bands(), namespace()] {
        let made = RefCell::new(0);
        let make = |env: &Env| {
            let path =
                place.path().join(format!("{} {}", zones.zone_capacity_bytes, made.replace_with(|made| *made + 1)));
            let record = crate::ZoneRecord::open(&path, &zones, true).unwrap();
            let disk: Arc<dyn BlockDevice> = Arc::new(Emulated::immediate(env, "disk", 4 << 20));
            Zoned::recorded(record).over(&disk)
        };
        check_zoned_device(&make, &BlockDeviceCheck { steps: 60, ..Default::default() }).unwrap();
    }
}

#[test]
fn zones_on_a_disk_and_on_a_file_device() {
    let preset = crate::presets::Preset::find("barracuda-3tb").unwrap().with_capacity(5 << 20);
    let options = BlockDeviceCheck { steps: 60, ..Default::default() };
    let disk = |env: &Env| {
        let backing = Box::new(crate::RamBacking::new());
        let disk: Arc<dyn BlockDevice> = Arc::new(preset.build(env, "disk", backing, crate::Pacing::Account));
        Zoned::new(&bands()).over(&disk)
    };
    check_zoned_device(&disk, &options).unwrap();
    for engine in [IoEngine::Uring, IoEngine::Positional] {
        let place = tempfile::tempdir().unwrap();
        let made = RefCell::new(0);
        let file = FileDeviceOptions { engine, capacity_bytes: Some(4 << 20), create: true, ..Default::default() };
        if let Err(error) = FileDevice::open(place.path().join("probe"), &file) {
            assert_eq!(engine, IoEngine::Uring, "{error}");
            eprintln!("io_uring not tested: {error}");
            continue;
        }
        let make = |_: &Env| {
            let number = made.replace_with(|made| *made + 1);
            let inner: Arc<dyn BlockDevice> =
                Arc::new(FileDevice::open(place.path().join(number.to_string()), &file).unwrap());
            Zoned::new(&namespace()).over(&inner)
        };
        check_zoned_device(&make, &options).unwrap();
    }
}

/// On one device again and again, as on a real one. Its limit of active zones is beyond the zones that are always reset, and
/// what the checks of that limit leave must not count for those of the limit of open zones.
#[test]
fn zones_that_were_left_active() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("zones");
    let zones = ZoneGeometry { open_zones_max: 6, active_zones_max: 12, ..namespace() };
    let make = |env: &Env| {
        let record = crate::ZoneRecord::open(&path, &zones, true).unwrap();
        let disk: Arc<dyn BlockDevice> = Arc::new(Emulated::immediate(env, "disk", 4 << 20));
        Zoned::recorded(record).over(&disk)
    };
    check_zoned_device(&make, &BlockDeviceCheck { steps: 60, ..Default::default() }).unwrap();
}

/// Name a zoned block device in `VARVE_ZONED_DEVICE` to test it; what is in its first zones, and in active ones, is
/// destroyed.
#[test]
fn zoned_block_device_of_the_machine() {
    let Some(path) = std::env::var_os("VARVE_ZONED_DEVICE") else {
        eprintln!("no zoned block device tested: VARVE_ZONED_DEVICE names none");
        return;
    };
    let make = |_: &Env| crate::open_zoned_device(&path, &FileDeviceOptions::default()).unwrap();
    check_zoned_device(&make, &BlockDeviceCheck { steps: 100, ..Default::default() }).unwrap();
}

#[test]
fn zoned_fault_and_trace_layers() {
    check_zoned(|env, device| {
        let effect = FaultEffect::FailDroppingUnsynced(FaultError::Io);
        let fault = Fault::new(crate::Operation::Sync, FaultTrigger::From(u64::MAX), effect);
        let faulty = FaultDevice::device(&FaultInjector::new(env, FaultPlan::of(fault)), device);
        TraceDevice::device(env, Arc::new(MemoryTrace::new()), &faulty)
    });
}

#[test]
fn zoned_crash_layer() {
    check_zoned(|env, device| CrashDevice::new(env, device).unwrap().device());
}

#[test]
fn zoned_crash_images() {
    check_zoned(|env, device| CrashDevice::new(env, device).unwrap().capture().image(CrashVariant::KeepAll, 0));
}

#[test]
fn zoned_layers_over_layers() {
    check_zoned(|env, device| {
        let crash = CrashDevice::new(env, device).unwrap().device();
        let faulty = FaultDevice::device(&FaultInjector::new(env, FaultPlan::default()), &crash);
        TraceDevice::device(env, Arc::new(MemoryTrace::new()), &faulty)
    });
}

/// What wrong zones do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WrongZones {
    Nothing,
    AnyWrite,
    StaleBytes,
    DiscardsEverywhere,
    ForgetsLimits,
    ResetForgetsPointer,
    FinishLeavesOpen,
    AppendLies,
    HidesConventional,
    ShortReport,
    ClosesFull,
    CountsNothing,
}

/// Zoned rules that break one clause.
struct WrongRules {
    wrong: WrongZones,
    inner: Box<dyn Rules>,
}

impl Rules for WrongRules {
    fn describe(&self, capabilities: &mut Capabilities) {
        self.inner.describe(capabilities);
    }

    fn admit(&mut self, device: &str, request: &Request<'_>) -> Result<(), MediaError> {
        let outcome = self.inner.admit(device, request);
        match (self.wrong, &request.transfer) {
            (WrongZones::AnyWrite, Transfer::Write { .. }) => Ok(()),
            (WrongZones::DiscardsEverywhere, Transfer::Discard { .. }) => Ok(()),
            _ => outcome,
        }
    }

    fn refused(&mut self, request: &Request<'_>) {
        self.inner.refused(request);
    }

    fn may_destroy(&self, written: Range<u64>) -> bool {
        self.inner.may_destroy(written)
    }

    fn written(&mut self, written: Range<u64>, destroyed: &mut Vec<Range<u64>>) {
        self.inner.written(written, destroyed);
    }

    fn discarded(&mut self, discarded: Range<u64>) {
        self.inner.discarded(discarded);
    }

    fn complete(&mut self, device: &str, request: &mut Request<'_>) -> Result<(), MediaError> {
        if self.wrong == WrongZones::StaleBytes { Ok(()) } else { self.inner.complete(device, request) }
    }
}

struct WrongControl {
    wrong: WrongZones,
    inner: Arc<dyn ZoneControl>,
}

impl ZoneControl for WrongControl {
    fn report(&self, first: ZoneId, count: u32, context: &IoContext) -> Result<Vec<ZoneDescription>, MediaError> {
        let mut reported = self.inner.report(first, count, context)?;
        match self.wrong {
            WrongZones::ShortReport if reported.len() > 3 => {
                reported.pop();
            }
            WrongZones::HidesConventional => {
                reported.iter_mut().for_each(|zone| zone.zone_type = ZoneType::SequentialWriteRequired);
            }
            WrongZones::FinishLeavesOpen => {
                let finished = reported.iter_mut().filter(|zone| zone.condition == ZoneCondition::Full);
                finished.for_each(|zone| zone.condition = ZoneCondition::Closed);
            }
            WrongZones::ResetForgetsPointer => {
                let empty = reported.iter_mut().filter(|zone| zone.condition == ZoneCondition::Empty);
                empty.for_each(|zone| zone.write_pointer_bytes = zone.end_bytes());
            }
            _ => {}
        }
        Ok(reported)
    }

    fn open(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        match (self.wrong, self.inner.open(zone, context)) {
            (WrongZones::ForgetsLimits, Err(MediaError::Zone { refusal: ZoneRefusal::OpenLimit { .. }, .. })) => Ok(()),
            (_, outcome) => outcome,
        }
    }

    fn close(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        let is_full = |zone: &ZoneDescription| zone.condition == ZoneCondition::Full;
        if self.wrong == WrongZones::ClosesFull && self.inner.report(zone, 1, context)?.iter().any(is_full) {
            self.inner.reset(zone, context)?;
        }
        self.inner.close(zone, context)
    }

    fn finish(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.inner.finish(zone, context)
    }

    fn reset(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.inner.reset(zone, context)?;
        if self.wrong == WrongZones::CountsNothing {
            self.inner.open(zone, context)?;
            self.inner.reset(zone, context)?;
        }
        Ok(())
    }

    fn append(&self, zone: ZoneId, data: &[u8], context: &IoContext) -> Result<u64, MediaError> {
        let at = self.inner.append(zone, data, context)?;
        Ok(if self.wrong == WrongZones::AppendLies { at + 512 } else { at })
    }
}

#[test]
fn the_suite_catches_wrong_zones() {
    let check = |wrong, zones: ZoneGeometry| {
        let make = |env: &Env| {
            let rules = Zoned::new(&zones);
            let asked = Geometry { capacity_bytes: u64::MAX, sector_bytes: 512, physical_sector_bytes: 4096 };
            let geometry = rules.cut(&asked);
            let backing = crate::RamBacking::new();
            crate::Backing::write_at(&backing, 512 << 10, &vec![0xAA; 7 << 19]).unwrap();
            let backing = Box::new(Stale(backing));
            let device = rules.device(|inner| {
                let rules = Box::new(WrongRules { wrong, inner });
                Emulated::new(env, "wrong", geometry, rules, Box::<crate::Immediate>::default(), backing)
            });
            let control =
                device.zones.clone().map(|inner| -> Arc<dyn ZoneControl> { Arc::new(WrongControl { wrong, inner }) });
            Device { zones: control, ..device }
        };
        check_zoned_device(&make, &BlockDeviceCheck { steps: 100, ..Default::default() })
    };
    assert_eq!(check(WrongZones::Nothing, bands()), Ok(()));
    assert_eq!(check(WrongZones::Nothing, namespace()), Ok(()));
    let mut otherwise = Vec::new();
    for (what, zones, clause) in [
        (WrongZones::AnyWrite, bands(), "refuses writes beside the pointer and changes nothing"),
        (WrongZones::StaleBytes, bands(), "reads zeros where nothing was written"),
        (WrongZones::DiscardsEverywhere, bands(), "refuses writes beside the pointer and changes nothing"),
        (WrongZones::ForgetsLimits, namespace(), "holds its limit of open zones"),
        (WrongZones::ResetForgetsPointer, bands(), "refuses writes beside the pointer and changes nothing"),
        (WrongZones::FinishLeavesOpen, bands(), "refuses writes beside the pointer and changes nothing"),
        (WrongZones::AppendLies, bands(), "an append goes to the pointer"),
        (WrongZones::HidesConventional, bands(), "scope of the suite"),
        (WrongZones::ShortReport, bands(), "describes its zones"),
        (WrongZones::ClosesFull, bands(), "commands change conditions"),
        (WrongZones::CountsNothing, bands(), "counts what it did"),
    ] {
        match check(what, zones) {
            Err(found) if found.clause == clause => {}
            found => otherwise.push((what, found)),
        }
    }
    assert!(otherwise.is_empty(), "{otherwise:#?}");
}

/// A backing that gives nothing back in sequential zones.
struct Stale(crate::RamBacking);

impl crate::Backing for Stale {
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(offset_bytes, data)
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write_at(offset_bytes, data)
    }

    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> std::io::Result<()> {
        if offset_bytes < 512 << 10 { self.0.discard(offset_bytes, length_bytes) } else { Ok(()) }
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn stored_bytes(&self) -> u64 {
        self.0.stored_bytes()
    }
}
