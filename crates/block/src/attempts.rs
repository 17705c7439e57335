//! Each layer passes on which answer a read asks for.

use crate::idler::{ControlledDevice, FixedIdle};
use crate::layer_syncs::subjects;
use std::sync::Arc;
use varve_env::Env;
use varve_media::conformance::{LayerSubject, OpenedLayer};
use varve_media::{Attempt, BlockDeviceExt, Device, Emulated, IoClass, IoContext, MemoryTrace, Operation, TraceDevice};

const AGAIN: IoContext = IoContext { attempt: Attempt::Again(3), ..IoContext::of(IoClass::UserRead) };

/// The attempts of the reads of users that arrived.
fn read_attempts(trace: &MemoryTrace) -> Vec<Attempt> {
    let reads = trace.take().into_iter().filter(|record| record.operation == Operation::Read);
    let contexts = reads.filter_map(|record| record.context);
    contexts.filter(|context| context.class == IoClass::UserRead).map(|context| context.attempt).collect()
}

fn check(subject: LayerSubject) {
    let env = Env::sim(1);
    let of_client = env.clone();
    let client = env.spawn("client", move || {
        let (env, trace) = (of_client, MemoryTrace::new());
        let traced = |device: &Device| TraceDevice::device(&env, Arc::new(trace.clone()), device);
        let devices: Vec<Device> = (subject.devices)(&env).iter().map(traced).collect();
        let (device, handle) = (subject.open)(&env, &devices).unwrap();
        let (written, unwritten) = (subject.places[0], subject.places[3]);
        device.block.write_at(written, &[1; 4096], &IoContext::default()).unwrap();
        device.block.sync(&IoContext::default()).unwrap();
        for place in [written, unwritten] {
            let mut data = vec![0; 4096];
            trace.take();
            device.block.read_at(place, &mut data, &AGAIN).unwrap();
            // An array reads other members before it asks the members themselves again.
            let found = read_attempts(&trace);
            assert_eq!(found.last(), Some(&AGAIN.attempt), "{} at {place}: {found:?}", subject.name);
            device.block.read_at(place, &mut data, &IoContext::of(IoClass::UserRead)).unwrap();
            let found = read_attempts(&trace);
            assert!(!found.is_empty() && found.iter().all(|attempt| *attempt == Attempt::First), "{found:?}");
        }
        drop((device, handle));
    });
    client.join().unwrap_or_else(|panicked| panicked.resume());
}

#[test]
fn layers_pass_attempts_on() {
    let subjects = subjects();
    assert!(subjects.len() >= 4);
    let disk = |env: &Env| Device::of_blocks(Arc::new(Emulated::immediate(env, "disk", 1 << 20)));
    let controlled = |env: &Env, devices: &[Device]| -> Result<OpenedLayer, String> {
        let (device, handle) = ControlledDevice::new(env, &devices[0], Box::new(FixedIdle::new(1000, 0)));
        Ok((device, Box::new(handle)))
    };
    let control = LayerSubject {
        name: "control",
        devices: Arc::new(move |env| vec![disk(env)]),
        open: Arc::new(controlled),
        places: vec![8192, 16384, 4096, 65536],
    };
    subjects.into_iter().chain([control]).for_each(check);
}
