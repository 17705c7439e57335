//! A fault at every call of either device.

use super::*;
use varve_media::{Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, Operation};

/// Runs a host whose requests may fail, and says what it may find: of each sector the stamps that may be there. Gives how many calls of an
/// operation there were and how many faults.
fn with_fault(seed: u64, on_disk: bool, fault: Option<Fault>) -> (std::collections::BTreeMap<Operation, u64>, u64) {
    in_simulation(seed, move |env| {
        let (below, above) = (disk(env), fast(env));
        open(env, &below, &above, seed);
        let injector = FaultInjector::new(env, FaultPlan::default());
        let through = |device: &Device| FaultDevice::device(&injector, device);
        let (disk, fast) = match on_disk {
            true => (through(&below), above.clone()),
            false => (below.clone(), through(&above)),
        };
        if let Some(fault) = fault.clone() {
            injector.set_plan(FaultPlan::of(fault));
        }
        let opened = WriteBuffer::open(env, &disk, &fast, parameters(seed), BufferOpening::default(), None);
        let Ok((device, buffer)) = opened else {
            // It failed while it was opened, which changes nothing.
            injector.set_plan(FaultPlan::default());
            open(env, &below, &above, seed);
            return (injector.calls(), injector.injected());
        };
        let mut host = Host::new(device, seed);
        let mut allowed: Vec<Vec<u64>> = vec![vec![0]; host.stamps.len()];
        let mut synced = allowed.clone();
        let mut has_stopped = false;
        for _ in 0..80 {
            if host.random.chance(1, 6) {
                match host.device.block.sync(&IoContext::default()) {
                    Ok(()) => {
                        assert!(!has_stopped, "a sync was acknowledged after one that failed");
                        synced.clone_from(&allowed);
                    }
                    Err(error) => {
                        has_stopped = true;
                        assert!(error.to_string().contains("pages that the disk does not have"), "{error}");
                    }
                }
                continue;
            }
            let range = host.range();
            if host.random.chance(2, 3) {
                let stamp = host.next + 1;
                let result = host.write(range.clone());
                assert!(!(has_stopped && result.is_ok()), "a write after it stopped");
                for sector in range {
                    match result.is_ok() {
                        true => allowed[sector] = vec![stamp],
                        false => allowed[sector].push(stamp),
                    }
                    if result.is_err() || !synced[sector].contains(&stamp) {
                        synced[sector].push(stamp);
                    }
                }
            } else {
                let mut data = vec![0; range.len() * SECTOR as usize];
                if host.device.block.read_at(range.start as u64 * SECTOR, &mut data, &IoContext::default()).is_ok() {
                    for (sector, bytes) in range.zip(data.chunks(SECTOR as usize)) {
                        let found = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                        assert!(allowed[sector].contains(&found), "seed {seed}: sector {sector} has {found}");
                    }
                }
            }
        }
        // Whatever failed, the one that is opened next finds what was synced, or newer.
        drop((host, buffer));
        injector.set_plan(FaultPlan::default());
        let (device, _) = open(env, &below, &above, seed);
        for (sector, found) in stamps(&device).unwrap().into_iter().enumerate() {
            let is_allowed = synced[sector].contains(&found) || allowed[sector].contains(&found);
            assert!(is_allowed, "seed {seed}, {fault:?}: sector {sector} has {found}, not of {:?}", synced[sector]);
        }
        (injector.calls(), injector.injected())
    })
}

#[test]
fn no_fault_of_any_call_loses_what_was_synced() {
    let mut injected = 0;
    for seed in 0..4 {
        for on_disk in [true, false] {
            let (calls, _) = with_fault(seed, on_disk, None);
            for operation in [Operation::Read, Operation::Write, Operation::Sync, Operation::Zone] {
                let count = calls.get(&operation).copied().unwrap_or(0);
                for call in (0..count).step_by((count as usize / 12).max(1)) {
                    for effect in [
                        FaultEffect::Fail(FaultError::Io),
                        FaultEffect::FailAfter(FaultError::Io),
                        FaultEffect::FailPartly(FaultError::NoSpace),
                    ] {
                        let fault = Fault::new(operation, FaultTrigger::Once(call), effect);
                        injected += with_fault(seed, on_disk, Some(fault)).1;
                    }
                }
            }
        }
    }
    println!("reached: block write buffer/faults: {injected} faults");
    assert!(injected > 500, "{injected}");
}
