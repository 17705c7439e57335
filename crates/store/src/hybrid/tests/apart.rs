//! One device loses its power, and the other later: between the two the store goes on as far as it can, and acknowledges nothing
//! that the first would have to keep.

use super::crash::Cut;
use super::load::{Hints, Load};
use super::shared::sharing;
use super::*;
use crate::conformance::Model;
use parking_lot::Mutex;
use std::sync::Arc;
use varve_env::Random;
use varve_media::{
    CrashDevice, CrashVariant, Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger,
    Operation,
};

const OPERATIONS: u64 = 70;

/// Nothing reaches the device any more.
fn without_power() -> FaultPlan {
    let operations =
        [Operation::Read, Operation::Write, Operation::Discard, Operation::Sync, Operation::Zone, Operation::List];
    let fault = |operation| Fault::new(operation, FaultTrigger::From(0), FaultEffect::Fail(FaultError::Io));
    FaultPlan { seed: 0, faults: operations.into_iter().map(fault).collect() }
}

/// Persistence points of the device `victim` in a load, which loses its power right behind number `at`; what both may have
/// some time later.
fn cut_apart(env: &Env, seed: u64, victim: usize, at: u64, cuts: &mut Vec<Cut>) -> u64 {
    // Of some seeds tables share zones.
    let shares = seed % 3 == 2;
    let devices = formatted(env, if shares { 11 } else { 50 }, 6 + seed % 5, [0, 5][(seed % 2) as usize]);
    let crash: Vec<CrashDevice> = devices.iter().map(|device| CrashDevice::new(env, device).unwrap()).collect();
    let injector = FaultInjector::new(env, FaultPlan::default());
    let mut above: Vec<Device> = crash.iter().map(CrashDevice::device).collect();
    above[victim] = FaultDevice::device(&injector, &above[victim]);
    let usual = if shares { sharing() } else { open_options() };
    let options = HybridOpenOptions { tiers: Some(TIERS.to_vec()), ..usual };
    let store = Arc::new(HybridStore::open(env, above, &options).unwrap());
    let model = Arc::new(Mutex::new(Model::default()));
    let points = Arc::new(Mutex::new(0));
    let (counted, power) = (points.clone(), injector.clone());
    crash[victim].on_persistence_point(move |_| {
        let mut points = counted.lock();
        if *points == at {
            power.set_plan(without_power());
        }
        *points += 1;
    });
    let later = Arc::new(Mutex::new(Vec::new()));
    let (survivor, dead, kept, seen) = (1 - victim, crash[victim].clone(), later.clone(), model.clone());
    let counted = points.clone();
    crash[survivor].on_persistence_point(move |point| {
        if *counted.lock() > at {
            let mut states = [point.capture(), dead.capture()];
            if survivor == 1 {
                states.reverse();
            }
            kept.lock().push(Cut { states, model: seen.lock().clone(), shares });
        }
    });
    let load = Load::new(store.clone(), model.clone(), seed, Hints::ALL);
    let mut load = if shares { load.with_tables_of(9000) } else { load };
    load.run(OPERATIONS);
    drop(load);
    let states = [crash[0].capture(), crash[1].capture()];
    let mut later = std::mem::take(&mut *later.lock());
    later.push(Cut { states, model: model.lock().clone(), shares });
    // The end, and some of what was before.
    let mut random = Random::named(seed, &format!("later {victim} {at}"));
    for _ in 0..3 {
        cuts.extend(later.get(random.index(later.len())).cloned());
    }
    cuts.extend(later.pop());
    std::mem::forget(store);
    *points.lock()
}

#[test]
fn nothing_is_lost_when_one_device_loses_its_power_before_the_other() {
    let (mut images, mut runs) = (0, 0);
    for seed in 0..6 {
        let env = Env::sim(seed);
        for victim in 0..2 {
            let all = cut_apart(&env, seed, victim, u64::MAX, &mut Vec::new());
            let stride = 1 + all / 60;
            for at in (seed % stride..all).step_by(stride as usize) {
                let mut cuts = Vec::new();
                cut_apart(&env, seed, victim, at, &mut cuts);
                runs += 1;
                let mut random = Random::named(seed, &format!("apart {victim} {at}"));
                for (number, cut) in cuts.iter().enumerate() {
                    let variant = CrashVariant::OF_DEVICES[random.index(CrashVariant::OF_DEVICES.len())];
                    let image = random.next_u64();
                    images += 1;
                    cut.verify(&env, variant, image).unwrap_or_else(|message| {
                        panic!(
                            "seed {seed}: device {victim} behind point {at}, cut {number}, {variant:?}, image {image}: \
                             {message}"
                        )
                    });
                }
            }
        }
    }
    println!("reached: hybrid power cuts apart: {runs} runs, {images} images");
    assert!(runs > 300 && images > 3 * runs, "{runs} runs, {images} images");
}
