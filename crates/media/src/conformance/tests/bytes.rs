//! The clauses of bytes on memory, on layers over it, and on memory that is wrong on purpose.

use super::*;
use crate::MemoryCounters;
use crate::bytes::{ByteAddressable, FlushQueue};
use crate::conformance::devices::MEMORY;
use crate::memory::{MemoryModel, Persistence, PersistentMemory};
use std::ops::Range;

const CAPACITY_BYTES: u64 = 8 << 20;

fn memory(env: &Env) -> Device {
    let geometry = Geometry { capacity_bytes: CAPACITY_BYTES, sector_bytes: 512, physical_sector_bytes: 4096 };
    (MEMORY.make)(env, "memory", &geometry)
}

fn check(make: &dyn Fn(&Env) -> Device) {
    check_bytes(make, &BlockDeviceCheck::default()).unwrap();
    check_block_device(make, &BlockDeviceCheck { steps: 60, ..Default::default() }).unwrap();
}

#[test]
fn emulated_memory() {
    check(&memory);
}

#[test]
fn memory_with_models() {
    for model in MemoryModel::ALL {
        check(&|env| {
            let memory = PersistentMemory::emulated(env, model.name, CAPACITY_BYTES).unwrap();
            let memory = memory.with_model(model, crate::Pacing::Account);
            let geometry = Geometry { capacity_bytes: CAPACITY_BYTES, sector_bytes: 512, physical_sector_bytes: 512 };
            memory.into_device(&geometry).unwrap()
        });
    }
}

#[test]
fn layers_over_memory() {
    check(&|env| CrashDevice::new(env, &memory(env)).unwrap().device());
    check(&|env| CrashDevice::new(env, &memory(env)).unwrap().capture().image(CrashVariant::KeepAll, 0));
    check(&|env| FaultDevice::device(&FaultInjector::new(env, FaultPlan::default()), &memory(env)));
    check(&|env| TraceDevice::device(env, Arc::new(MemoryTrace::new()), &memory(env)));
    check_bytes(&|env| OverlayDevice::device(&memory(env)).unwrap(), &BlockDeviceCheck::default()).unwrap();
}

/// What one wrong memory does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WrongBytes {
    LoadsBeyondTheEnd,
    LosesTheLastByte,
    HasBytesOfItsOwn,
    StoresInTwo,
    ForgetsFences,
}

struct Wrong(Arc<dyn ByteAddressable>, WrongBytes);

impl ByteAddressable for Wrong {
    fn capacity_bytes(&self) -> u64 {
        self.0.capacity_bytes()
    }

    fn line_bytes(&self) -> u32 {
        self.0.line_bytes()
    }

    fn persistence(&self) -> Persistence {
        self.0.persistence()
    }

    fn borrowed(self: Arc<Self>) -> Option<Arc<PersistentMemory>> {
        self.0.clone().borrowed()
    }

    fn load(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), MediaError> {
        match self.0.load(offset_bytes, data) {
            Err(_) if self.1 == WrongBytes::LoadsBeyondTheEnd => Ok(()),
            outcome => outcome,
        }
    }

    fn store(&self, offset_bytes: u64, data: &[u8]) -> Result<(), MediaError> {
        match self.1 {
            WrongBytes::LosesTheLastByte if data.len() == 19 => self.0.store(offset_bytes, &data[..18]),
            WrongBytes::StoresInTwo if data.len() == 64 => {
                let (head, tail) = data.split_at(data.len() / 2);
                self.0.store(offset_bytes, head)?;
                self.0.store(offset_bytes + head.len() as u64, tail)
            }
            _ => self.0.store(offset_bytes, data),
        }
    }

    fn flush(&self, range: Range<u64>, queue: &mut FlushQueue) -> Result<(), MediaError> {
        self.0.flush(range.clone(), queue)?;
        if self.1 == WrongBytes::ForgetsFences {
            queue.note(0, range, 0);
        }
        Ok(())
    }

    fn fence(&self, queue: &mut FlushQueue) -> Result<(), MediaError> {
        self.0.fence(queue)
    }

    fn counters(&self) -> MemoryCounters {
        self.0.counters()
    }
}

#[test]
fn the_suite_catches_wrong_memory() {
    for (wrong, clause) in [
        (WrongBytes::LoadsBeyondTheEnd, "refuses ranges beyond the memory and changes nothing"),
        (WrongBytes::LosesTheLastByte, "loads what was stored"),
        (WrongBytes::HasBytesOfItsOwn, "blocks and bytes are the same"),
        (WrongBytes::StoresInTwo, "reads in place"),
        (WrongBytes::ForgetsFences, "a fence empties its queue and no other"),
    ] {
        let make = |env: &Env| {
            let mut device = memory(env);
            if wrong == WrongBytes::HasBytesOfItsOwn {
                device.bytes = memory(env).bytes;
            }
            device.bytes = device.bytes.map(|bytes| Arc::new(Wrong(bytes, wrong)) as Arc<dyn ByteAddressable>);
            device
        };
        let found = check_bytes(&make, &BlockDeviceCheck::default()).expect_err("a clause that is broken");
        assert_eq!(found.clause, clause, "{wrong:?}: {found}");
    }
}
