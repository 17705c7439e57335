//! Calls of the disk that fail.

use super::*;
use varve_media::conformance::devices::TRANSLATED_ZONES;
use varve_media::{Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, Operation};

const ZONES: u64 = 6;

/// What a run acknowledged: of each zone the value of the last write that was synced, and all since, each with whether it succeeded.
struct Acknowledged {
    allowed: Vec<Vec<(u8, bool)>>,
    failures: u32,
}

/// Writes, syncs and moves, whatever comes of them.
fn run(env: &Env, inner: &Device) -> Acknowledged {
    let mut found = Acknowledged { allowed: vec![vec![(0, true)]; ZONES as usize], failures: 0 };
    let Ok((device, handle)) = open(env, inner, at_rest()) else {
        found.failures += 1;
        return found;
    };
    let mut has_failed = false;
    // At the end nothing is moved any more: a record that is in doubt is not followed by one that is not.
    for step in 0..15u8 {
        // The last go to zones that were moved last.
        let zone = if step < 12 { u64::from(step * 5) % ZONES } else { u64::from(step) % ZONES + 3 };
        let write = device.block.write_at(zone * ZONE + 8192, &[step + 1; 4096], &context());
        found.failures += u32::from(write.is_err());
        // One that failed may have arrived.
        found.allowed[zone as usize].push((step + 1, write.is_ok()));
        if step % 3 == 2 {
            match device.block.sync(&context()) {
                Ok(()) => {
                    assert!(!has_failed, "a sync after one that failed");
                    for values in &mut found.allowed {
                        let last = values.iter().rposition(|&(_, succeeded)| succeeded).unwrap();
                        values.drain(..last);
                    }
                }
                Err(_) => (has_failed, found.failures) = (true, found.failures + 1),
            }
        }
        if step < 12 {
            relocate(&handle, (u64::from(step) % ZONES) as u32);
        }
        check_map(handle.core_of());
        // What was acknowledged is there, unless nothing is any more.
        let mut data = [0; 4096];
        if let Ok(()) = device.block.read_at(zone * ZONE + 8192, &mut data, &context())
            && write.is_ok()
            && handle.core_of().state.lock().failure.is_none()
        {
            assert_eq!(data[0], step + 1);
        }
    }
    found
}

/// Each call of each operation fails once, in each manner; afterwards the disk is sound again, and all that was synced is there.
#[test]
fn a_fault_at_each_call() {
    let effects = [
        FaultEffect::Fail(FaultError::Io),
        FaultEffect::FailAfter(FaultError::Io),
        FaultEffect::FailPartly(FaultError::Io),
        FaultEffect::FailDroppingUnsynced(FaultError::Io),
        FaultEffect::Fail(FaultError::Unreadable),
    ];
    let calls = simulate(1, false, |env| {
        let injector = FaultInjector::new(env, FaultPlan::default());
        let inner = FaultDevice::device(&injector, &memory(env, &TRANSLATED_ZONES, ZONES + 5));
        let found = run(env, &inner);
        assert_eq!(found.failures, 0);
        injector.calls()
    });
    let mut faults = 0;
    for (operation, calls) in calls {
        for call in 0..calls {
            for effect in effects.clone() {
                if operation != Operation::Sync && effect == effects[3] {
                    continue;
                }
                faults += 1;
                simulate(1, false, move |env| {
                    let told = format!("{operation} {call} {effect:?}");
                    let memory = memory(env, &TRANSLATED_ZONES, ZONES + 5);
                    let plan = FaultPlan::of(Fault::new(operation, FaultTrigger::Once(call), effect));
                    let injector = FaultInjector::new(env, plan);
                    let inner = FaultDevice::device(&injector, &memory);
                    let found = run(env, &inner);
                    assert_eq!(injector.injected(), 1, "{told}");
                    let reopened = RelocatingDevice::open(env, &memory, LIMITS, at_rest(), Formatting::IfBlank);
                    let (device, handle) = reopened.unwrap_or_else(|error| panic!("{told}: {error}"));
                    check_map(handle.core_of());
                    for (zone, allowed) in (0..).zip(&found.allowed) {
                        let mut data = [0; 4096];
                        device.block.read_at(zone * ZONE + 8192, &mut data, &context()).unwrap();
                        let is_allowed = allowed.iter().any(|&(value, _)| value == data[0]);
                        assert!(is_allowed, "{told}: zone {zone} has {}, not {allowed:?}", data[0]);
                    }
                });
            }
        }
    }
    println!("reached: block relocation/faults: {faults} faults");
    assert!(faults > 300, "{faults}");
}

/// Nothing is acknowledged after a sync that failed, and reads go on.
#[test]
fn a_failed_sync_ends_writing() {
    simulate(1, false, |env| {
        let memory = memory(env, &TRANSLATED_ZONES, 40);
        let injector = FaultInjector::new(env, FaultPlan::default());
        let (device, handle) = open(env, &FaultDevice::device(&injector, &memory), at_rest()).unwrap();
        device.block.write_at(0, &[1; 4096], &context()).unwrap();
        let effect = FaultEffect::FailDroppingUnsynced(FaultError::Io);
        injector.set_plan(FaultPlan::of(Fault::new(Operation::Sync, FaultTrigger::Once(0), effect)));
        device.block.write_at(8192, &[1; 4096], &context()).unwrap();
        let error = device.block.sync(&context()).unwrap_err();
        for result in [
            device.block.sync(&context()),
            device.block.write_at(0, &[2; 4096], &context()),
            device.zones.as_ref().unwrap().reset(ZoneId(1), &context()),
        ] {
            assert_eq!(result.unwrap_err().to_string(), error.to_string());
        }
        device.block.read_at(0, &mut [0; 4096], &context()).unwrap();
        assert_eq!(relocate(&handle, 0).relocated_zones, 0);
    });
}
