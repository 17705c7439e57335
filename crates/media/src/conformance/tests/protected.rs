//! The suite on devices with protection information, and on layers over them.

use super::*;
use crate::conformance::{protection, subject::Subject};
use crate::emulated::{Backing, Conventional, RamBacking, RuledDevice};
use crate::error::{MediaError, Operation};
use crate::protection::{GuardKind, ProtectionTag, ProtectionTuple, ProtectionType};

/// The protected devices of the table, by name.
fn protected_devices() -> impl Iterator<Item = (&'static str, impl Fn(&Env) -> Device)> {
    devices().filter_map(|tested| {
        let make = move |env: &Env| {
            let geometry = Geometry { capacity_bytes: 8 << 20, sector_bytes: 512, physical_sector_bytes: 4096 };
            (tested.make)(env, "protected", &geometry)
        };
        make(&Env::real()).block.capabilities().protection.map(|_| (tested.name, make))
    })
}

#[test]
fn protected_memory() {
    assert_eq!(protected_devices().count(), 4);
    protected_devices().for_each(|(_, make)| check_device(&make));
}

/// A layer over a device.
type MakeLayer = fn(&Env, &Device) -> Device;

/// Layers that carry tuples.
const PROTECTED_LAYERS: [(&str, MakeLayer); 7] = [
    ("trace", |env, inner| TraceDevice::device(env, Arc::new(MemoryTrace::new()), inner)),
    ("fault", |env, inner| {
        let effect = FaultEffect::FailDroppingUnsynced(FaultError::Io);
        let fault = Fault::new(Operation::Sync, FaultTrigger::From(u64::MAX), effect);
        FaultDevice::device(&FaultInjector::new(env, FaultPlan::of(fault)), inner)
    }),
    ("crash", |env, inner| CrashDevice::new(env, inner).expect("a crash layer").device()),
    ("crash group", |env, inner| {
        let group = CrashGroup::new(env, std::slice::from_ref(inner)).expect("a crash group");
        group.devices().swap_remove(0)
    }),
    ("crash image", |env, inner| {
        let layer = CrashDevice::new(env, inner).expect("a crash layer");
        layer.capture().image(CrashVariant::KeepAll, 1)
    }),
    ("overlay", |_, inner| OverlayDevice::device(inner).expect("an overlay")),
    ("rules", |_, inner| {
        let geometry = inner.block.geometry().clone();
        let rules = Box::new(Conventional);
        Device::of_blocks(Arc::new(RuledDevice::new(inner.block.clone(), geometry, rules)))
    }),
];

#[test]
fn layers_carry_tuples() {
    let options = BlockDeviceCheck { steps: 60, ..Default::default() };
    for (name, make) in protected_devices() {
        for (layer, over) in PROTECTED_LAYERS {
            for check in protection::CHECKS {
                let env = Env::sim(options.seed);
                let checked = Subject::new(over(&env, &make(&env)), &options).and_then(|subject| check(&subject));
                checked.unwrap_or_else(|broken| panic!("{layer} over {name}: {broken}"));
            }
        }
    }
}

/// One over the other, except the overlay: it does not count its writes.
#[test]
fn layers_over_layers_over_protected_memory() {
    let layers = || PROTECTED_LAYERS.iter().filter(|(layer, _)| *layer != "overlay");
    let (_, make) = protected_devices().next().expect("a protected device");
    check_device(&|env| layers().fold(make(env), |inner, (_, over)| over(env, &inner)));
}

#[test]
fn the_suite_catches_devices_that_lose_tuples() {
    #[derive(Clone, Copy, Debug)]
    enum Wrong {
        ForgetsTuples,
        TakesTooFew,
    }

    /// Protected memory that drops tuples of writes.
    struct WrongDrive(Device, Wrong);

    impl BlockDevice for WrongDrive {
        fn name(&self) -> &str {
            self.0.block.name()
        }
        fn geometry(&self) -> &Geometry {
            self.0.block.geometry()
        }
        fn capabilities(&self) -> &Capabilities {
            self.0.block.capabilities()
        }
        fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
            for request in requests.iter_mut() {
                if let Transfer::Write { protection, .. } = &mut request.transfer {
                    // The clause writes eight sectors with seven tuples.
                    let is_whole = |tuples: &&[u8]| tuples.len() != 7 * ProtectionTuple::BYTES;
                    *protection = match self.1 {
                        Wrong::ForgetsTuples => None,
                        Wrong::TakesTooFew => protection.filter(is_whole),
                    };
                }
            }
            self.0.block.execute(requests, context)
        }
        fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
            self.0.block.sync(context)
        }
        fn counters(&self) -> Counters {
            self.0.block.counters()
        }
    }

    for (wrong, clause) in [
        (Wrong::ForgetsTuples, "keeps tuples with their data"),
        (Wrong::TakesTooFew, "refuses wrong tuples and changes nothing"),
    ] {
        let make = move |env: &Env| {
            let (_, protected) = protected_devices().next().expect("a protected device");
            Device::of_blocks(Arc::new(WrongDrive(protected(env), wrong)))
        };
        let broken = check_block_device(&make, &BlockDeviceCheck::default()).unwrap_err();
        assert_eq!(broken.clause, clause, "{wrong:?}: {broken}");
    }
}

/// Damage below a layer is found through it, also next to sectors that were written through it. Writing the sector repairs it.
#[test]
fn layers_verify_what_is_below() {
    let env = Env::real();
    let context = IoContext::default();
    for (layer, over) in PROTECTED_LAYERS {
        let geometry = Geometry { capacity_bytes: 8 << 20, sector_bytes: 512, physical_sector_bytes: 4096 };
        let tuples = Arc::new(RamBacking::new());
        let drive = devices::memory(&env, "protected", geometry, Box::new(Conventional));
        let drive = drive.with_protection(ProtectionType::Type1, GuardKind::Crc, Box::new(tuples.clone()));
        let drive = Device::of_blocks(Arc::new(drive));
        drive.block.write_at(0, &[7; 16_384], &context).unwrap();
        let damaged = 4096 + 512;
        tuples.write_at(damaged / 64, &[0x11, 0x22]).unwrap();

        let device = over(&env, &drive);
        device.block.write_at(4096, &[8; 512], &context).unwrap();
        let mut found = [0; 4096];
        let error = device.block.read_at(4096, &mut found, &context).unwrap_err();
        let MediaError::Protection { operation: Operation::Read, offset_bytes, tag: ProtectionTag::Guard, .. } = error
        else {
            panic!("{layer}: {error}");
        };
        assert_eq!(offset_bytes, damaged, "{layer}");
        device.block.read_at(4096, &mut found[..512], &context).unwrap();
        assert_eq!(found[..512], [8; 512], "{layer}");
        device.block.write_at(damaged, &[9; 512], &context).unwrap();
        device.block.read_at(4096, &mut found, &context).unwrap();
        assert!(found[..512] == [8; 512] && found[512..1024] == [9; 512] && found[1024..] == [7; 3072], "{layer}");
    }
}
