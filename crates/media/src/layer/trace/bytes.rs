//! Traces of byte-addressable memory.

use super::{Call, Tracer};
use crate::bytes::{ByteAddressable, FlushQueue};
use crate::error::{MediaError, Operation};
use crate::memory::{MemoryCounters, Persistence, PersistentMemory};
use std::ops::Range;
use std::sync::Arc;

pub(crate) struct TraceBytes {
    tracer: Tracer,
    name: String,
    inner: Arc<dyn ByteAddressable>,
}

impl TraceBytes {
    pub(crate) fn facet(tracer: &Tracer, name: &str, inner: &Arc<dyn ByteAddressable>) -> Arc<dyn ByteAddressable> {
        Arc::new(TraceBytes { tracer: tracer.clone(), name: name.to_owned(), inner: inner.clone() })
    }

    fn call(&self, operation: Operation, offset_bytes: u64, length_bytes: u64) -> Call<'_> {
        Call { operation, name: &self.name, offset_bytes, length_bytes, context: None }
    }
}

impl ByteAddressable for TraceBytes {
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
        let call = self.call(Operation::Read, offset_bytes, data.len() as u64);
        self.tracer.around(call, || self.inner.load(offset_bytes, data))
    }

    fn store(&self, offset_bytes: u64, data: &[u8]) -> Result<(), MediaError> {
        let call = self.call(Operation::Write, offset_bytes, data.len() as u64);
        self.tracer.around(call, || self.inner.store(offset_bytes, data))
    }

    fn flush(&self, range: Range<u64>, queue: &mut FlushQueue) -> Result<(), MediaError> {
        let call = self.call(Operation::Sync, range.start, range.end.saturating_sub(range.start));
        self.tracer.around(call, || self.inner.flush(range, queue))
    }

    fn fence(&self, queue: &mut FlushQueue) -> Result<(), MediaError> {
        self.tracer.around(self.call(Operation::Sync, 0, 0), || self.inner.fence(queue))
    }

    fn counters(&self) -> MemoryCounters {
        self.inner.counters()
    }
}
