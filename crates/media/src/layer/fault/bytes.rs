//! Faults of byte-addressable memory.

use super::{Call, FaultEffect, FaultInjector, flip_bits};
use crate::bytes::{ByteAddressable, FlushQueue};
use crate::error::{MediaError, Operation};
use crate::memory::{MemoryCounters, Persistence, PersistentMemory};
use std::ops::Range;
use std::sync::Arc;

pub(crate) struct FaultBytes {
    injector: FaultInjector,
    name: String,
    inner: Arc<dyn ByteAddressable>,
}

impl FaultBytes {
    pub(crate) fn facet(
        injector: &FaultInjector,
        name: &str,
        inner: &Arc<dyn ByteAddressable>,
    ) -> Arc<dyn ByteAddressable> {
        Arc::new(FaultBytes { injector: injector.clone(), name: name.to_owned(), inner: inner.clone() })
    }
}

fn call_of(operation: Operation, range: Option<Range<u64>>) -> Call<'static> {
    Call { operation, range, context: None }
}

fn range_of(offset_bytes: u64, length: usize) -> Option<Range<u64>> {
    Some(offset_bytes..offset_bytes.saturating_add(length as u64))
}

impl ByteAddressable for FaultBytes {
    fn capacity_bytes(&self) -> u64 {
        self.inner.capacity_bytes()
    }

    fn line_bytes(&self) -> u32 {
        self.inner.line_bytes()
    }

    fn persistence(&self) -> Persistence {
        self.inner.persistence()
    }

    fn borrowed(self: Arc<Self>) -> Option<Arc<PersistentMemory>> {
        None
    }

    fn load(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), MediaError> {
        let strike = self.injector.strike(call_of(Operation::Read, range_of(offset_bytes, data.len())));
        let Some(mut strike) = strike else { return self.inner.load(offset_bytes, data) };
        match strike.effect {
            FaultEffect::Fail(error) | FaultEffect::FailAfter(error) | FaultEffect::FailPartly(error) => {
                Err(error.at(&self.name, Operation::Read, offset_bytes, data.len() as u64))
            }
            effect => {
                self.inner.load(offset_bytes, data)?;
                if let FaultEffect::FlipBits(count) = effect {
                    flip_bits(&mut strike.random, count, data.len(), |at, mask| data[at] ^= mask);
                }
                Ok(())
            }
        }
    }

    fn store(&self, offset_bytes: u64, data: &[u8]) -> Result<(), MediaError> {
        let strike = self.injector.strike(call_of(Operation::Write, range_of(offset_bytes, data.len())));
        let Some(mut strike) = strike else { return self.inner.store(offset_bytes, data) };
        let failed =
            |error: super::FaultError| Err(error.at(&self.name, Operation::Write, offset_bytes, data.len() as u64));
        match strike.effect {
            FaultEffect::Fail(error) => failed(error),
            FaultEffect::FailAfter(error) => {
                self.inner.store(offset_bytes, data)?;
                failed(error)
            }
            FaultEffect::FailPartly(error) => {
                self.inner.store(offset_bytes, &data[..strike.random.index(data.len() + 1)])?;
                failed(error)
            }
            FaultEffect::FlipBits(count) => {
                let mut flipped = data.to_vec();
                flip_bits(&mut strike.random, count, data.len(), |at, mask| flipped[at] ^= mask);
                self.inner.store(offset_bytes, &flipped)
            }
            FaultEffect::Lose => Ok(()),
            _ => self.inner.store(offset_bytes, data),
        }
    }

    fn flush(&self, range: Range<u64>, queue: &mut FlushQueue) -> Result<(), MediaError> {
        let call = call_of(Operation::Sync, Some(range.clone()));
        self.injector.around(&self.name, call, || self.inner.flush(range, queue), Some(()))
    }

    fn fence(&self, queue: &mut FlushQueue) -> Result<(), MediaError> {
        self.injector.around(&self.name, call_of(Operation::Sync, None), || self.inner.fence(queue), Some(()))
    }

    fn counters(&self) -> MemoryCounters {
        self.inner.counters()
    }
}
