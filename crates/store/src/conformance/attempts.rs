//! Each store passes on which answer a read of a file asks for.

use super::{Ground, STORES};
use crate::file_store::{CreateOptions, FileKind, FileStore, OpenOptions, ReadRange};
use std::sync::Arc;
use varve_env::Env;
use varve_media::{Attempt, IoClass, IoContext, MemoryDirectory, MemoryTrace, Operation, TraceDevice, TraceDirectory};

const AGAIN: IoContext = IoContext { attempt: Attempt::Again(3), ..IoContext::of(IoClass::UserRead) };

/// The attempts of the reads of users that arrived.
fn read_attempts(trace: &MemoryTrace) -> Vec<Attempt> {
    let reads = trace.take().into_iter().filter(|record| record.operation == Operation::Read);
    let contexts = reads.filter_map(|record| record.context);
    contexts.filter(|context| context.class == IoClass::UserRead).map(|context| context.attempt).collect()
}

/// Reads a file of this kind in each way, and looks at what arrives.
fn check(store: &dyn FileStore, trace: &MemoryTrace, kind: FileKind, note: &str) {
    let context = IoContext::default();
    let options = CreateOptions { kind, level: Some(1), ..CreateOptions::default() };
    let mut writer = store.create("file", &options).unwrap();
    writer.append(&[7; 20_000], &context).unwrap();
    writer.sync(&context).unwrap();
    writer.finish(&context).unwrap();
    let reader = store.open("file", &OpenOptions::default()).unwrap();
    let mut data = vec![0; 5000];
    trace.take();
    reader.read_at(100, &mut data, &AGAIN).unwrap();
    let found = read_attempts(trace);
    assert!(!found.is_empty() && found.iter().all(|attempt| *attempt == AGAIN.attempt), "{note} {kind:?}: {found:?}");
    let mut ranges = [ReadRange { offset_bytes: 9000, data: &mut data, outcome: Ok(()) }];
    reader.read_many(&mut ranges, &AGAIN).unwrap();
    let found = read_attempts(trace);
    assert!(!found.is_empty() && found.iter().all(|attempt| *attempt == AGAIN.attempt), "{note} {kind:?}: {found:?}");
    assert_eq!(data, [7; 5000]);
    reader.read_at(100, &mut data, &IoContext::of(IoClass::UserRead)).unwrap();
    assert!(read_attempts(trace).iter().all(|attempt| *attempt == Attempt::First), "{note}");
    drop(reader);
    store.remove("file").unwrap();
}

#[test]
fn stores_pass_attempts_on() {
    let mut checked = 0;
    for fixture in STORES.iter().flat_map(|store| store.fixtures) {
        let (env, trace) = (Env::real(), MemoryTrace::new());
        let traced = |device| TraceDevice::device(&env, Arc::new(trace.clone()), &device);
        let space_bytes = fixture.space_bytes.unwrap_or(16 << 20);
        let store = match fixture.ground {
            Ground::Directory { open } => {
                let below = Arc::new(MemoryDirectory::new("ram"));
                open(&env, Arc::new(TraceDirectory::new(&env, Arc::new(trace.clone()), below)))
            }
            Ground::Device { make, open } => open(&env, traced(make(&env, "device", 0, space_bytes))),
            Ground::Pair { make, open } => open(&env, make(&env, "device", 0, space_bytes).map(traced)),
            Ground::Members { make, open } => {
                open(&env, make(&env, "device", 0, space_bytes).into_iter().map(traced).collect())
            }
        };
        let store = store.unwrap();
        for kind in [FileKind::Table, FileKind::Log, FileKind::Manifest] {
            check(&*store, &trace, kind, fixture.name);
            checked += 1;
        }
    }
    assert!(checked >= 3 * STORES.len(), "{checked}");
}
