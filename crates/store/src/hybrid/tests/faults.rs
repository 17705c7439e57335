//! I/O that fails: every kind of call of each device by itself, once and for good, while tables move, blocks are cached and logs
//! roll over; and while the store is opened.
//!
//! What must hold: no panic and no broken rule of a zone; what was acknowledged stays, and nothing older takes its place; errors
//! name the device; what lies on the other device is read and written meanwhile.

use super::crash::verify_whole;
use super::load::{Hints, Load};
use super::*;
use crate::conformance::{Model, verify_store};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use varve_env::SimOptions;
use varve_media::{Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, Operation};

const NAMES: [&str; 3] = ["slow", "fast", "other"];
const OPERATIONS: u64 = 90;

/// Devices with a fault layer on one of them; those without, and with it.
struct Faulty {
    devices: Vec<Device>,
    above: Vec<Device>,
    injector: FaultInjector,
    options: HybridOpenOptions,
}

/// What is the same in many runs.
#[derive(Clone, Copy, Debug)]
struct Setting {
    seed: u64,
    victim: usize,
    /// Of two devices, or of three.
    devices: usize,
    driver: HybridDriver,
}

impl Setting {
    /// A slow device and a fast one, on which nothing happens by itself.
    fn pair(seed: u64, victim: usize) -> Setting {
        Setting { seed, victim, devices: 2, driver: HybridDriver::Caller }
    }
}

fn faulty(env: &Env, setting: Setting) -> Faulty {
    let Setting { seed, victim, devices: count, driver } = setting;
    let active_zones_max = [0, 5][(seed % 2) as usize];
    let mut devices = vec![slow(env, 60), fast(env, 6 + seed % 5, active_zones_max)];
    if count > 2 {
        devices.push(zoned(env, "other", 40 + CONVENTIONAL_ZONES, CONVENTIONAL_ZONES, 0));
    }
    let tiers = Some([1, 0, 1][..count].to_vec());
    HybridStore::format(env, &devices, &HybridFormatOptions { tiers: tiers.clone(), ..format_options() }).unwrap();
    let options = HybridOpenOptions { tiers, driver, ..open_options() };
    let injector = FaultInjector::new(env, FaultPlan::default());
    let mut above = devices.clone();
    above[victim] = FaultDevice::device(&injector, &devices[victim]);
    Faulty { devices, above, injector, options }
}

/// Every call of a device fails.
pub(super) fn gone() -> FaultPlan {
    let operations =
        [Operation::Read, Operation::Write, Operation::Discard, Operation::Sync, Operation::Zone, Operation::List];
    let fault = |operation| Fault::new(operation, FaultTrigger::From(0), FaultEffect::Fail(FaultError::Io));
    FaultPlan { seed: 0, faults: operations.into_iter().map(fault).collect() }
}

/// Nothing was found that may not be, where what cannot be read may be anything; and all that lies on the other device is read.
fn verify_readable(store: &HybridStore, model: &Model, victim: usize) -> Result<(), String> {
    let mut found: BTreeMap<String, Option<Vec<u8>>> = BTreeMap::new();
    for entry in store.list().map_err(|error| error.to_string())? {
        let data = read(store, &entry.name);
        if let Err(error) = &data {
            if !devices_of(store, &entry.name).contains(&victim) {
                return Err(format!("'{}' on the other device: {error}", entry.name));
            }
            if !error.to_string().contains(NAMES[victim]) {
                return Err(format!("the device is not named: {error}"));
            }
        }
        found.insert(entry.name, data.ok());
    }
    model.check_readable(&found)
}

/// All of it is there that must be.
pub(super) fn verify_all(store: &HybridStore, model: &Model) -> Result<(), String> {
    let mut found: BTreeMap<String, Option<Vec<u8>>> = BTreeMap::new();
    for entry in store.list().map_err(|error| error.to_string())? {
        let data = read(store, &entry.name).map_err(|error| format!("'{}': {error}", entry.name))?;
        found.insert(entry.name, Some(data));
    }
    model.check_readable(&found)
}

/// What a run did.
#[derive(Debug, Default)]
struct Reached {
    runs: u64,
    struck: u64,
    refused: u64,
    elsewhere: u64,
    moved: u64,
    cached: u64,
}

impl std::fmt::Display for Reached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Reached { runs, struck, refused, elsewhere, moved, cached } = self;
        write!(
            f,
            "{runs} runs, {struck} struck, {refused} refused, {elsewhere} elsewhere, {moved} moved, {cached} cached"
        )
    }
}

/// A load under a plan, and what is there afterwards.
fn run(env: &Env, setting: Setting, plan: FaultPlan, reached: &mut Reached) -> Result<(), String> {
    let Setting { seed, victim, driver, .. } = setting;
    let faulty = faulty(env, setting);
    let open = |devices: &[Device]| {
        HybridStore::open(env, devices.to_vec(), &faulty.options).map_err(|error| error.to_string())
    };
    let store = Arc::new(open(&faulty.above)?);
    // What was dropped the layer itself tries to write again, where zones refuse it.
    let drops = plan.faults.iter().any(|fault| fault.effect.drops_unsynced());
    faulty.injector.set_plan(plan);
    let before = faulty.injector.injected();
    let model = Arc::new(Mutex::new(Model::default()));
    let mut load = Load::new(store.clone(), model.clone(), seed, Hints::ALL);
    load.run(OPERATIONS);
    reached.runs += 1;
    reached.struck += u64::from(faulty.injector.injected() > before);
    for error in &load.errors {
        let is_typed = match error.kind() {
            StoreErrorKind::NoSpace => true,
            StoreErrorKind::Io | StoreErrorKind::Poisoned | StoreErrorKind::Corruption => {
                error.to_string().contains(NAMES[victim])
            }
            // A file that was being made when its device failed has no name where nobody can say what has it.
            _ => false,
        };
        if !is_typed {
            return Err(format!("{:?}: {error}", error.kind()));
        }
    }
    drop(load);
    verify_readable(&store, &model.lock(), victim)?;
    reached.refused += measure(&store, "devices that refuse");
    reached.elsewhere += measure(&store, "removals kept for devices that refuse");
    reached.moved +=
        measure(&store, "tables moved to the slow tier") + measure(&store, "tables moved to the fast tier");
    reached.cached += measure(&store, "blocks cached");
    // Whatever the store says of itself, it says.
    let _ = store.check();
    if seed.is_multiple_of(2) || driver == HybridDriver::Thread {
        drop(store);
    } else {
        std::mem::forget(store);
    }
    faulty.injector.set_plan(FaultPlan::default());
    let store = open(&faulty.above)?;
    if driver == HybridDriver::Caller {
        verify_whole(&store)?;
    }
    verify_store(&store, &model.lock())?;
    write(&store, "afterwards", FileKind::Table, Some(1), &content(777, 0, 20_000))
        .map_err(|error| error.to_string())?;
    let findings = store.check().map_err(|error| error.to_string())?;
    if findings.iter().any(|finding| finding.severity > Severity::Warning) {
        return Err(format!("{findings:?}"));
    }
    for device in &faulty.devices {
        if !drops && device.block.counters().errors > 0 {
            return Err(format!("a rule of the zones of '{}' was broken", device.block.name()));
        }
    }
    drop(store);
    let store = open(&faulty.devices)?;
    match read(&store, "afterwards") {
        Ok(data) if data == content(777, 0, 20_000) => Ok(()),
        other => Err(format!("what was written afterwards: {:?}", other.map(|data| data.len()))),
    }
}

/// Effects that mean something to an operation.
fn effects(operation: Operation) -> Vec<FaultEffect> {
    let mut effects = vec![FaultEffect::Fail(FaultError::Io), FaultEffect::FailAfter(FaultError::Io)];
    match operation {
        Operation::Write => effects.push(FaultEffect::FailPartly(FaultError::Io)),
        Operation::Sync => effects.extend([
            FaultEffect::FailDroppingUnsynced(FaultError::Io),
            FaultEffect::FailLateDroppingUnsynced(Duration::from_millis(2), FaultError::Io),
        ]),
        Operation::Read => effects.push(FaultEffect::Fail(FaultError::Unreadable)),
        _ => {}
    }
    effects
}

#[test]
fn a_call_that_fails_on_one_device_loses_nothing_that_was_acknowledged() {
    let mut reached = Reached::default();
    for seed in 0..4 {
        for (victim, name) in NAMES[..2].iter().enumerate() {
            let env = Env::sim(seed);
            let quiet = faulty(&env, Setting::pair(seed, victim));
            let store = Arc::new(HybridStore::open(&env, quiet.above.clone(), &open_options()).unwrap());
            let opening = quiet.injector.calls();
            Load::new(store.clone(), Arc::default(), seed, Hints::ALL).run(OPERATIONS);
            let calls = quiet.injector.calls();
            for operation in [Operation::Read, Operation::Write, Operation::Sync, Operation::Zone] {
                let of = |calls: &BTreeMap<Operation, u64>| calls.get(&operation).copied().unwrap_or(0);
                let count = of(&calls) - of(&opening);
                // Every call is some seed's.
                let stride = 1 + count / 10;
                for effect in effects(operation) {
                    for at in (seed % stride..count).step_by(stride as usize) {
                        for trigger in [FaultTrigger::Once(at), FaultTrigger::From(at)] {
                            let fault = Fault::new(operation, trigger, effect.clone());
                            let plan = FaultPlan { seed: at, faults: vec![fault.clone()] };
                            run(&env, Setting::pair(seed, victim), plan, &mut reached)
                                .unwrap_or_else(|message| panic!("seed {seed}, '{}': {fault:?}: {message}", name));
                        }
                    }
                }
            }
        }
    }
    println!("reached: hybrid faults of one device: {reached}");
    let Reached { runs, struck, refused, elsewhere, moved, cached } = reached;
    assert!(struck * 2 > runs && refused > 0 && elsewhere > 0 && moved > 0 && cached > 0, "{reached:?}");
}

/// A device does nothing any more from some call on, whatever it is: one of two, or of three, and with the background at work.
#[test]
fn a_device_that_goes_at_any_moment_takes_only_what_was_on_it() {
    for (devices, driver) in
        [(2, HybridDriver::Caller), (3, HybridDriver::Caller), (2, HybridDriver::Thread), (3, HybridDriver::Thread)]
    {
        let mut reached = Reached::default();
        for seed in 0..5 {
            for victim in 0..devices {
                for at in (seed..OPERATIONS * 3).step_by(17) {
                    let env = Env::sim_with(SimOptions { seed: seed + at, perturb: true, ..SimOptions::default() });
                    let from = |fault: Fault| Fault { trigger: FaultTrigger::From(at), ..fault };
                    let plan = gone();
                    let plan = FaultPlan { faults: plan.faults.into_iter().map(from).collect(), ..plan };
                    let setting = Setting { seed, victim, devices, driver };
                    run(&env, setting, plan, &mut reached)
                        .unwrap_or_else(|message| panic!("{setting:?}, from {at}: {message}"));
                }
            }
        }
        println!("reached: hybrid devices that go, of {devices}, {driver:?}: {reached}");
        assert!(reached.refused > 0 && reached.elsewhere > 0, "{reached:?}");
    }
}

/// A device took no writes while the store was opened: that is reported, and the others are written.
fn verify_written_on(store: &HybridStore, victim: usize) -> Result<(), String> {
    let codes: Vec<&str> = store.check().map_err(text)?.iter().map(|finding| finding.code).collect();
    ensure_that(codes.contains(&"device-refuses"), || format!("check found {codes:?}"))?;
    for (number, level) in [(1, 0), (2, 3)] {
        let name = format!("on the others {number}");
        match write(store, &name, FileKind::Table, Some(level), &content(number, 0, 3000)) {
            // The load may have filled them.
            Err(error) if error.kind() == StoreErrorKind::NoSpace => {
                store.remove(&name).map_err(text)?;
                continue;
            }
            written => written.map_err(text)?,
        }
        let devices = devices_of(store, &name);
        ensure_that(!devices.contains(&victim), || format!("'{name}' is on {devices:?}"))?;
        store.remove(&name).map_err(text)?;
    }
    store.sync_names().map_err(text)
}

fn text(error: StoreError) -> String {
    error.to_string()
}

fn ensure_that(holds: bool, message: impl Fn() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

/// What fails while the store is opened changes nothing of what is there.
#[test]
fn an_open_that_fails_names_the_device_and_loses_nothing() {
    let (mut failed, mut opened, mut refusing) = (0, 0, 0);
    for seed in 0..3 {
        for (victim, name) in NAMES[..2].iter().enumerate() {
            let env = Env::sim(seed);
            let Faulty { above, injector, .. } = faulty(&env, Setting::pair(seed, victim));
            let store = Arc::new(HybridStore::open(&env, above.clone(), &open_options()).unwrap());
            let model = Arc::new(Mutex::new(Model::default()));
            Load::new(store.clone(), model.clone(), seed, Hints::ALL).run(OPERATIONS);
            std::mem::forget(store);
            for operation in [Operation::Read, Operation::Write, Operation::Sync, Operation::Zone] {
                for effect in effects(operation) {
                    for trigger in (0..60).step_by(3).flat_map(|at| [FaultTrigger::Once(at), FaultTrigger::From(at)]) {
                        let fault = Fault::new(operation, trigger, effect.clone());
                        let before = injector.injected();
                        injector.set_plan(FaultPlan::of(fault.clone()));
                        match HybridStore::open(&env, above.clone(), &open_options()) {
                            Ok(store) => {
                                verify_readable(&store, &model.lock(), victim)
                                    .unwrap_or_else(|message| panic!("seed {seed}, {fault:?}: {message}"));
                                opened += 1;
                                if measure(&store, "devices that refuse") > 0 {
                                    verify_written_on(&store, victim)
                                        .unwrap_or_else(|message| panic!("seed {seed}, {fault:?}: {message}"));
                                    refusing += 1;
                                }
                                std::mem::forget(store);
                            }
                            Err(error) => {
                                assert!(error.to_string().contains(name), "{error}");
                                failed += 1;
                            }
                        }
                        let is_struck = injector.injected() > before;
                        injector.set_plan(FaultPlan::default());
                        if !is_struck {
                            break;
                        }
                        let store = HybridStore::open(&env, above.clone(), &open_options()).unwrap();
                        let outcome = verify_whole(&store).and_then(|()| verify_all(&store, &model.lock()));
                        outcome.unwrap_or_else(|message| panic!("seed {seed}, behind {fault:?}: {message}"));
                        std::mem::forget(store);
                    }
                }
            }
        }
    }
    println!(
        "reached: hybrid opens that fail: {failed} failed, {opened} did not, {refusing} with a device that refuses"
    );
    assert!(failed > 50 && opened > 200 && refusing > 100, "{failed}, {opened}, {refusing}");
}

/// Zones that wear out or die, one after the other, while they hold tables, logs and cached blocks.
#[test]
fn a_zone_that_dies_takes_only_what_was_in_it() {
    let mut retired = 0;
    for effect in [FaultEffect::ZoneReadOnly, FaultEffect::ZoneOffline] {
        for seed in 0..5 {
            for (victim, name) in NAMES[..2].iter().enumerate() {
                let env = Env::sim(seed);
                let Faulty { above, injector, .. } = faulty(&env, Setting::pair(seed, victim));
                let store = Arc::new(HybridStore::open(&env, above.clone(), &open_options()).unwrap());
                // Not those with the band table, which are needed.
                let metadata = [CONVENTIONAL_ZONES, METADATA_ZONES][victim] * ZONE_BYTES;
                let wears = |operation, at| {
                    let files = metadata..above[victim].block.geometry().capacity_bytes;
                    Fault::new(operation, FaultTrigger::Once(at), effect.clone()).on_range(files)
                };
                let faults = vec![
                    wears(Operation::Write, 20 + 7 * seed),
                    wears(Operation::Write, 90),
                    wears(Operation::Read, 30 + 11 * seed),
                ];
                injector.set_plan(FaultPlan { seed, faults });
                let model = Arc::new(Mutex::new(Model::default()));
                let mut load = Load::new(store.clone(), model.clone(), seed, Hints::ALL);
                load.run(2 * OPERATIONS);
                drop(load);
                let what = format!("seed {seed}, '{}', {effect:?}", name);
                assert_eq!(measure(&store, "devices that refuse"), 0, "{what}");
                verify_readable(&store, &model.lock(), victim).unwrap_or_else(|message| panic!("{what}: {message}"));
                // Writes go on on both devices.
                for (number, level) in [(1, 0), (2, 3)] {
                    let name = format!("behind it {number}");
                    write(&*store, &name, FileKind::Table, Some(level), &content(number, 0, 10_000)).unwrap();
                    assert_content(&read(&*store, &name).unwrap(), number, 10_000);
                    store.remove(&name).unwrap();
                }
                store.sync_names().unwrap();
                retired += measure(&store, "bands retired");
                std::mem::forget(store);
                let store = HybridStore::open(&env, above.clone(), &open_options()).unwrap();
                verify_readable(&store, &model.lock(), victim)
                    .unwrap_or_else(|message| panic!("{what}, reopened: {message}"));
                if effect == FaultEffect::ZoneReadOnly {
                    verify_all(&store, &model.lock()).unwrap_or_else(|message| panic!("{what}, reopened: {message}"));
                }
            }
        }
    }
    println!("reached: hybrid zones that die: {retired} retired");
    assert!(retired > 20, "{retired}");
}
