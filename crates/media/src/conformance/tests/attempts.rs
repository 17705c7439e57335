//! Each layer passes on which answer a read asks for.

use super::*;
use crate::{Attempt, IoClass};

const AGAIN: IoContext = IoContext { attempt: Attempt::Again(3), ..IoContext::of(IoClass::UserRead) };

/// The attempts of the reads that arrived.
fn read_attempts(trace: &MemoryTrace) -> Vec<Attempt> {
    let records = trace.take().into_iter().filter(|record| record.operation == crate::Operation::Read);
    records.filter_map(|record| record.context).map(|context| context.attempt).collect()
}

#[test]
fn layers_over_devices_pass_attempts_on() {
    type MakeLayer = fn(&Env, &Device) -> Device;
    let layers: [(&str, MakeLayer); 5] = [
        ("crash", |env, below| CrashDevice::new(env, below).unwrap().device()),
        ("overlay", |_, below| crate::OverlayDevice::device(below).unwrap()),
        ("fault", |env, below| FaultDevice::device(&FaultInjector::new(env, FaultPlan::default()), below)),
        ("fault that waits", |env, below| {
            let fault =
                Fault::new(crate::Operation::Read, FaultTrigger::From(0), FaultEffect::Stall(Default::default()));
            FaultDevice::device(&FaultInjector::new(env, FaultPlan::of(fault)), below)
        }),
        ("trace", |env, below| TraceDevice::device(env, Arc::new(MemoryTrace::new()), below)),
    ];
    for (name, layer) in layers {
        let (env, trace) = (Env::real(), MemoryTrace::new());
        let device = layer(&env, &TraceDevice::device(&env, Arc::new(trace.clone()), &ram(&env)));
        let mut data = vec![0; 4096];
        trace.take();
        device.block.read_at(0, &mut data, &AGAIN).unwrap();
        assert_eq!(read_attempts(&trace), [AGAIN.attempt], "{name}");
        device.block.read_at(0, &mut data, &IoContext::default()).unwrap();
        assert_eq!(read_attempts(&trace), [Attempt::First], "{name}");
    }
}

#[test]
fn layers_over_directories_pass_attempts_on() {
    let (env, trace) = (Env::real(), MemoryTrace::new());
    let below = Arc::new(TraceDirectory::new(&env, Arc::new(trace.clone()), Arc::new(MemoryDirectory::new("ram"))));
    let directory = FaultDirectory::new(&FaultInjector::new(&env, FaultPlan::default()), below);
    let file = directory.open("file", OpenMode { write: true, create: true, ..OpenMode::default() }).unwrap();
    file.write_at(0, &[std::io::IoSlice::new(b"some bytes")], &IoContext::default()).unwrap();
    trace.take();
    file.read_at(0, &mut [0; 4], &AGAIN).unwrap();
    assert_eq!(read_attempts(&trace), [AGAIN.attempt]);
}
