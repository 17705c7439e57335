//! Conformance of layers that sync by themselves: a sync below fails and returns late.

use crate::{
    BlockDeviceExt, Device, Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger,
    IoContext, Operation,
};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;
use varve_env::{Env, SimOptions};

/// A device made by a layer, and whatever keeps the layer's own work going.
pub type OpenedLayer = (Device, Box<dyn Any + Send>);

/// A layer over one or more devices.
#[derive(Clone)]
pub struct LayerSubject {
    /// Name for messages.
    pub name: &'static str,
    /// Makes the devices below it, blank.
    pub devices: Arc<dyn Fn(&Env) -> Vec<Device> + Send + Sync>,
    /// Opens the layer over them, or formats it.
    pub open: Arc<dyn Fn(&Env, &[Device]) -> Result<OpenedLayer, String> + Send + Sync>,
    /// Offsets that the writers write and sync, 4096 bytes each.
    pub places: Vec<u64>,
}

/// Outcome of the suite.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerSyncReport {
    /// Runs in which the fault struck.
    pub runs: u64,
    /// Syncs that were acknowledged.
    pub acknowledged: u64,
    /// Violations of the contract.
    pub failures: Vec<String>,
}

/// Writers of the layer. Each writes its own places.
const WRITERS: usize = 3;
/// Writes of each writer, at most.
const WRITES_MAX: u8 = 12;
/// Calls of sync below the layer at which the fault strikes, from the opening on.
const CALLS: u64 = 16;

/// Writers write and sync through a layer while one sync below it fails late, with and without dropping unsynced writes,
/// once at each of the first calls. After the layer was opened again every acknowledged write must be there.
pub fn check_layer_syncs(subject: &LayerSubject) -> LayerSyncReport {
    let mut report = LayerSyncReport::default();
    for call in 0..CALLS {
        for late_micros in [200, 1100, 2200] {
            for is_dropping in [true, false] {
                let (subject, late) = (subject.clone(), Duration::from_micros(late_micros));
                let env = Env::sim_with(SimOptions { seed: 1 + call, perturb: true, ..SimOptions::default() });
                let of_run = env.clone();
                let name = subject.name;
                let run = env.spawn("suite", move || run(&of_run, &subject, call, late, is_dropping));
                let case = format!("{name}: sync {call} fails {late_micros} us late, dropping: {is_dropping}");
                match run.join() {
                    Ok(Ok((struck, acknowledged))) => {
                        report.runs += u64::from(struck);
                        report.acknowledged += acknowledged;
                    }
                    Ok(Err(message)) => report.failures.push(format!("{case}: {message}")),
                    Err(panicked) => report.failures.push(format!("{case}: {}", panicked.message())),
                }
            }
        }
    }
    report
}

/// A place, the last value whose sync was acknowledged, and the last one written.
type Written = (u64, u8, u8);

fn run(env: &Env, subject: &LayerSubject, call: u64, late: Duration, is_dropping: bool) -> Result<(bool, u64), String> {
    let devices = (subject.devices)(env);
    let injector = FaultInjector::new(env, FaultPlan::default());
    let faulty: Vec<Device> = devices.iter().map(|device| FaultDevice::device(&injector, device)).collect();
    let opened = (subject.open)(env, &faulty)?;
    let error = FaultError::Io;
    let effect = match is_dropping {
        true => FaultEffect::FailLateDroppingUnsynced(late, error),
        false => FaultEffect::FailLate(late, error),
    };
    injector.set_plan(FaultPlan::of(Fault::new(Operation::Sync, FaultTrigger::Once(call), effect)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let (env, device) = (env.clone(), opened.0.clone());
            let places: Vec<u64> = subject.places.iter().copied().skip(number).step_by(WRITERS).collect();
            env.clone().spawn("writer", move || write(&env, &device, number, &places))
        })
        .collect();
    let mut written: Vec<Written> = Vec::new();
    for writer in writers {
        written.extend(writer.join().unwrap_or_else(|panicked| panicked.resume()));
    }
    drop((opened, faulty));
    let (device, _handle) = (subject.open)(env, &devices).map_err(|error| format!("does not open again: {error}"))?;
    for (place, synced, last) in &written {
        let mut data = vec![0; 4096];
        device.block.read_at(*place, &mut data, &IoContext::default()).map_err(|error| error.to_string())?;
        if !(*synced..=*last).contains(&data[0]) || data.iter().any(|byte| *byte != data[0]) {
            return Err(format!("offset {place} has {}, and a sync acknowledged {synced}", data[0]));
        }
    }
    Ok((injector.injected() > 0, written.iter().map(|(_, synced, _)| u64::from(*synced)).sum()))
}

/// Writes and syncs until an error.
fn write(env: &Env, device: &Device, number: usize, places: &[u64]) -> Vec<Written> {
    let mut written: Vec<Written> = places.iter().map(|place| (*place, 0, 0)).collect();
    let context = IoContext::default();
    for value in 1..=WRITES_MAX {
        for (place, _, last) in &mut written {
            *last = value;
            if device.block.write_at(*place, &[value; 4096], &context).is_err() {
                return written;
            }
        }
        env.sleep(Duration::from_micros(300 * (1 + number as u64)));
        if device.block.sync(&context).is_err() {
            return written;
        }
        written.iter_mut().for_each(|(_, synced, _)| *synced = value);
    }
    written
}
