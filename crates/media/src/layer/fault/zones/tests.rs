use crate::context::IoContext;
use crate::device::{BlockDeviceExt, Device, Geometry};
use crate::emulated::{Emulated, Immediate, RamBacking, Zoned};
use crate::error::{MediaError, MediaErrorKind, Operation};
use crate::layer::*;
use crate::zones::{ZoneCondition, ZoneGeometry, ZoneId};
use varve_env::Env;

const ZONE: u64 = 64 << 10;

fn context() -> IoContext {
    IoContext::default()
}

fn zoned(env: &Env) -> Device {
    let zones = ZoneGeometry {
        conventional_zones: 1,
        open_zones_max: 2,
        active_zones_max: 2,
        ..ZoneGeometry::fit(8 * ZONE, ZONE).unwrap()
    };
    let rules = Zoned::new(&zones);
    let asked = Geometry { capacity_bytes: u64::MAX, sector_bytes: 512, physical_sector_bytes: 4096 };
    let (cut, timing) = (rules.cut(&asked), Box::<Immediate>::default());
    rules.device(|rules| Emulated::new(env, "zoned", cut, rules, timing, Box::new(RamBacking::new())))
}

fn condition(device: &Device, zone: u32) -> ZoneCondition {
    device.zones.as_ref().unwrap().report(ZoneId(0), 8, &context()).unwrap()[zone as usize].condition
}

#[test]
fn zones_wear_out_and_die_during_operation() {
    for (effect, kind, worn) in [
        (FaultEffect::ZoneReadOnly, MediaErrorKind::ReadOnly, ZoneCondition::ReadOnly),
        (FaultEffect::ZoneOffline, MediaErrorKind::Offline, ZoneCondition::Offline),
    ] {
        let env = Env::real();
        let injector = FaultInjector::new(&env, FaultPlan::default());
        let device = FaultDevice::device(&injector, &zoned(&env));
        let (block, zones) = (&device.block, device.zones.clone().unwrap());
        for zone in [1, 2] {
            block.write_at(zone * ZONE, &[zone as u8; 4096], &context()).unwrap();
        }
        injector.set_plan(FaultPlan::of(Fault::new(Operation::Write, FaultTrigger::Once(0), effect.clone())));
        let error = block.write_at(ZONE + 4096, &[3; 4096], &context()).unwrap_err();
        assert!(matches!(error, MediaError::Zone { zone: ZoneId(1), .. }) && error.kind() == kind, "{error}");
        assert_eq!((condition(&device, 1), condition(&device, 2)), (worn, ZoneCondition::ImplicitlyOpened));
        // It stays so, for reads too where its data is gone, and another zone can be active in its place.
        injector.set_plan(FaultPlan::default());
        assert_eq!(block.write_at(ZONE + 4096, &[3; 4096], &context()).unwrap_err().kind(), kind);
        assert_eq!(zones.reset(ZoneId(1), &context()).unwrap_err().kind(), kind);
        assert_eq!(zones.append(ZoneId(1), &[3; 4096], &context()).unwrap_err().kind(), kind);
        let mut data = [9; 4096];
        let read = block.read_at(ZONE, &mut data, &context());
        assert_eq!(read.is_err(), worn == ZoneCondition::Offline);
        assert!(read.is_err() || data == [1; 4096]);
        zones.open(ZoneId(3), &context()).unwrap();
        block.write_at(2 * ZONE + 4096, &[3; 4096], &context()).unwrap();
        // By a command, and only in the zone that is named.
        let fault = Fault::new(Operation::Zone, FaultTrigger::From(0), effect).on_range(3 * ZONE..4 * ZONE);
        injector.set_plan(FaultPlan::of(fault));
        zones.reset(ZoneId(2), &context()).unwrap();
        assert_eq!(zones.finish(ZoneId(3), &context()).unwrap_err().kind(), kind);
        assert_eq!(zones.report(ZoneId(3), 1, &context()).unwrap()[0].condition, worn);
        // Those of a batch that go elsewhere are done.
        let slices = [std::io::IoSlice::new(&[4; 4096])];
        let requests = [3 * ZONE, 2 * ZONE, 0];
        let mut batch = requests.map(|at| crate::Request::write(at, &slices));
        assert_eq!(block.execute(&mut batch, &context()).unwrap_err().kind(), kind);
        assert_eq!(batch.map(|request| request.outcome.is_ok()), [false, true, true]);
    }
}

#[test]
fn a_write_that_fails_in_part_leaves_a_beginning() {
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let env = Env::real();
        let fault = Fault::new(Operation::Write, FaultTrigger::Once(0), FaultEffect::FailPartly(FaultError::Io));
        let device =
            FaultDevice::device(&FaultInjector::new(&env, FaultPlan { seed, faults: vec![fault] }), &zoned(&env));
        let error = device.block.write_at(ZONE, &[7; 4096], &context()).unwrap_err();
        assert_eq!(error.kind(), MediaErrorKind::Io, "seed {seed}");
        let zone = device.zones.as_ref().unwrap().report(ZoneId(1), 1, &context()).unwrap().remove(0);
        let written = (zone.write_pointer_bytes - ZONE) as usize;
        let mut data = [9; 4096];
        device.block.read_at(ZONE, &mut data, &context()).unwrap();
        assert!(data[..written] == vec![7; written] && data[written..] == vec![0; 4096 - written], "seed {seed}");
        lengths.insert(written);
    }
    assert!(lengths.len() > 4, "{lengths:?}");
}

/// A zone that dies under a crash layer is dead in its images.
#[test]
fn crash_images_know_what_died() {
    let env = Env::real();
    let injector = FaultInjector::new(&env, FaultPlan::default());
    let layer = CrashDevice::new(&env, &FaultDevice::device(&injector, &zoned(&env))).unwrap();
    let device = layer.device();
    device.block.write_at(ZONE, &[1; 4096], &context()).unwrap();
    device.block.sync(&context()).unwrap();
    for (zone, effect) in [(1u64, FaultEffect::ZoneReadOnly), (2, FaultEffect::ZoneOffline)] {
        injector.set_plan(FaultPlan::of(Fault::new(Operation::Write, FaultTrigger::Once(0), effect)));
        let at = zone * ZONE + if zone == 1 { 4096 } else { 0 };
        device.block.write_at(at, &[2; 4096], &context()).unwrap_err();
    }
    for variant in CrashVariant::OF_DEVICES {
        let image = layer.capture().image(variant, 1);
        let found = [1, 2, 3].map(|zone| condition(&image, zone));
        assert_eq!(found, [ZoneCondition::ReadOnly, ZoneCondition::Offline, ZoneCondition::Empty], "{variant:?}");
        let mut data = [9; 4096];
        image.block.read_at(ZONE, &mut data, &context()).unwrap();
        assert_eq!(data, [1; 4096], "{variant:?}");
        assert_eq!(image.block.read_at(2 * ZONE, &mut data, &context()).unwrap_err().kind(), MediaErrorKind::Offline);
    }
}
