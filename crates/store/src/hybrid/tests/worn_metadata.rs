//! Zones with metadata that wear out, of sets of one device and of two.

use super::*;
use varve_media::{Fault, FaultDevice, FaultEffect, FaultInjector, FaultPlan, FaultTrigger, Operation, ZoneId};

/// An empty store on a device all of whose zones must be written in order, alone or in front of a slow one.
fn sets(env: &Env) -> [Vec<Device>; 2] {
    let alone = vec![fast(env, 20, 8)];
    HybridStore::format(env, &alone, &HybridFormatOptions { tiers: Some(vec![0]), ..format_options() }).unwrap();
    [alone, formatted(env, 20, 20, 8)]
}

fn open_set(env: &Env, devices: &[Device]) -> Result<HybridStore, StoreError> {
    let tiers = if devices.len() == 1 { vec![0] } else { TIERS.to_vec() };
    HybridStore::open(env, devices.to_vec(), &HybridOpenOptions { tiers: Some(tiers), ..open_options() })
}

/// Makes a zone of the last device, the fast one, worn from the next command to it on.
fn wear(injector: &FaultInjector, devices: &[Device], zone: u32, effect: &FaultEffect) {
    let device = &devices[devices.len() - 1];
    let range = device.block.capabilities().zones.as_ref().unwrap().range(ZoneId(zone));
    let fault = Fault::new(Operation::Zone, FaultTrigger::From(0), effect.clone());
    injector.set_plan(FaultPlan::of(Fault { range: Some(range), ..fault }));
    device.zones.as_ref().unwrap().report(ZoneId(zone), 1, &CONTEXT).unwrap();
    injector.set_plan(FaultPlan::default());
}

fn faulty(env: &Env, devices: &[Device]) -> (FaultInjector, Vec<Device>) {
    let injector = FaultInjector::new(env, FaultPlan::default());
    let devices = devices.iter().map(|device| FaultDevice::device(&injector, device)).collect();
    (injector, devices)
}

fn write_some(store: &HybridStore, from: u64) {
    for number in from..from + 4 {
        write(store, &format!("{number}.sst"), FileKind::Table, Some(number as u8 % 3), &content(number, 0, 9000))
            .unwrap();
        write(store, &format!("{number}.log"), FileKind::Log, None, &content(number, 0, 3000)).unwrap();
    }
}

fn assert_some(store: &HybridStore, to: u64) {
    for number in 0..to {
        assert_content(&read(store, &format!("{number}.sst")).unwrap(), number, 9000);
        assert_content(&read(store, &format!("{number}.log")).unwrap(), number, 3000);
    }
}

/// `check` reports lost redundancy and nothing else.
#[track_caller]
fn assert_redundancy_lost(store: &HybridStore) {
    let findings = store.check().unwrap();
    assert!(
        !findings.is_empty() && findings.iter().all(|finding| finding.code == "metadata-redundancy"),
        "{findings:?}"
    );
}

#[test]
fn a_set_opens_and_goes_on_whichever_zone_of_metadata_is_worn() {
    let env = Env::sim(1);
    let mut openings = 0;
    for (effect, zone) in [FaultEffect::ZoneReadOnly, FaultEffect::ZoneOffline]
        .into_iter()
        .flat_map(|effect| (0..METADATA_ZONES as u32).step_by(3).map(move |zone| (effect.clone(), zone)))
    {
        for devices in sets(&env) {
            let store = open_set(&env, &devices).unwrap();
            write_some(&store, 0);
            std::mem::forget(store);
            // Before it is opened.
            let (injector, worn) = faulty(&env, &devices);
            wear(&injector, &worn, zone, &effect);
            let what = format!("{} devices, zone {zone}: {effect:?}", devices.len());
            let store = open_set(&env, &worn).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_some(&store, 4);
            write_some(&store, 4);
            assert_redundancy_lost(&store);
            std::mem::forget(store);
            let store = open_set(&env, &worn).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_some(&store, 8);
            store.remove("0.sst").unwrap();
            store.sync_names().unwrap();
            assert_redundancy_lost(&store);
            openings += 1;
        }
        for devices in sets(&env) {
            // While it is used.
            let (injector, worn) = faulty(&env, &devices);
            let store = open_set(&env, &worn).unwrap();
            write_some(&store, 0);
            wear(&injector, &worn, zone, &effect);
            write_some(&store, 4);
            assert_some(&store, 8);
            assert_redundancy_lost(&store);
            std::mem::forget(store);
            let store = open_set(&env, &worn).unwrap();
            assert_some(&store, 8);
            assert_redundancy_lost(&store);
        }
    }
    println!("reached: hybrid worn metadata: {openings} openings");
}
