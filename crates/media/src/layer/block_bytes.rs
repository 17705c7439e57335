//! Loads and stores over blocks that are in memory.

use crate::bytes::{ByteAddressable, FlushQueue};
use crate::context::IoContext;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::error::{MediaError, Operation};
use crate::memory::{MemoryCounters, Persistence, PersistentMemory};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// Loads and stores of a device whose blocks are in memory and durable at once: an overlay, or what a power cut left.
///
/// Cost: a load or store moves whole sectors. Thread-safe; stores run one after the other.
pub(crate) struct BlockBytes {
    block: Arc<dyn BlockDevice>,
    line_bytes: u32,
    persistence: Persistence,
    /// Held while a sector is read, changed and written.
    changing: Mutex<()>,
}

impl BlockBytes {
    /// The bytes of `block`, which describe themselves like `inner`.
    pub(crate) fn facet(block: &Arc<dyn BlockDevice>, inner: &dyn ByteAddressable) -> Arc<dyn ByteAddressable> {
        let (line_bytes, persistence) = (inner.line_bytes(), inner.persistence());
        Arc::new(BlockBytes { block: block.clone(), line_bytes, persistence, changing: Mutex::default() })
    }

    /// The sectors of a range.
    ///
    /// Errors: [`MediaError::OutOfRange`].
    fn sectors(&self, operation: Operation, offset_bytes: u64, length: usize) -> Result<Range<u64>, MediaError> {
        let capacity_bytes = self.capacity_bytes();
        let length_bytes = length as u64;
        let sector = u64::from(self.block.geometry().sector_bytes);
        match offset_bytes.checked_add(length_bytes).filter(|&end| end <= capacity_bytes) {
            Some(end) => Ok(offset_bytes / sector * sector..end.next_multiple_of(sector).min(capacity_bytes)),
            None => Err(MediaError::OutOfRange {
                device: self.block.name().to_owned(),
                operation,
                offset_bytes,
                length_bytes,
                capacity_bytes,
            }),
        }
    }

    fn read(&self, sectors: &Range<u64>) -> Result<Vec<u8>, MediaError> {
        let mut whole = vec![0; (sectors.end - sectors.start) as usize];
        self.block.read_at(sectors.start, &mut whole, &IoContext::default())?;
        Ok(whole)
    }
}

impl ByteAddressable for BlockBytes {
    fn capacity_bytes(&self) -> u64 {
        self.block.geometry().capacity_bytes
    }

    fn line_bytes(&self) -> u32 {
        self.line_bytes
    }

    fn persistence(&self) -> Persistence {
        self.persistence
    }

    fn borrowed(self: Arc<Self>) -> Option<Arc<PersistentMemory>> {
        None
    }

    fn load(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), MediaError> {
        let sectors = self.sectors(Operation::Read, offset_bytes, data.len())?;
        if data.is_empty() {
            return Ok(());
        }
        let at = (offset_bytes - sectors.start) as usize;
        data.copy_from_slice(&self.read(&sectors)?[at..at + data.len()]);
        Ok(())
    }

    fn store(&self, offset_bytes: u64, data: &[u8]) -> Result<(), MediaError> {
        let sectors = self.sectors(Operation::Write, offset_bytes, data.len())?;
        if data.is_empty() {
            return Ok(());
        }
        let _changing = self.changing.lock();
        let mut whole = self.read(&sectors)?;
        let at = (offset_bytes - sectors.start) as usize;
        whole[at..at + data.len()].copy_from_slice(data);
        self.block.write_at(sectors.start, &whole, &IoContext::default())
    }

    fn flush(&self, range: Range<u64>, _queue: &mut FlushQueue) -> Result<(), MediaError> {
        self.sectors(Operation::Sync, range.start, range.end.saturating_sub(range.start) as usize).map(|_| ())
    }

    fn fence(&self, _queue: &mut FlushQueue) -> Result<(), MediaError> {
        Ok(())
    }

    fn counters(&self) -> MemoryCounters {
        MemoryCounters::default()
    }
}
