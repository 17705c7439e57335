//! The facet of byte-addressable persistent memory.

use crate::device::Facet;
use crate::error::{MediaError, Operation};
use crate::layer::{BlockBytes, CrashBytes, FaultBytes, Layer, TraceBytes};
use crate::memory::{MemoryCounters, Persistence, PersistentMemory};
use std::ops::Range;
use std::sync::Arc;

/// Memory that is loaded and stored directly; durable after flush and fence.
///
/// A store that is not followed by `flush` of its lines and `fence` of the same queue may be kept or lost by a power
/// cut, cache line by cache line. Stores to one line become durable in their order: a line that keeps a store keeps the
/// earlier ones too. A store of more than 8 bytes, or one that is not aligned to its length, may be torn at any multiple
/// of 8 bytes; an aligned 8-byte store is never torn.
///
/// Loads and stores that overlap and run at the same time may see any mixture. Thread-safe.
pub trait ByteAddressable: Send + Sync {
    /// Bytes one can address.
    fn capacity_bytes(&self) -> u64;
    /// Unit of write-back, a power of two.
    fn line_bytes(&self) -> u32;
    /// What a fence buys. Constant while the device is open.
    fn persistence(&self) -> Persistence;
    /// The memory itself, to read it in place. `None` where a layer has to see every load, or where the content is in blocks.
    /// [`MemoryReader`] reads either.
    fn borrowed(self: Arc<Self>) -> Option<Arc<PersistentMemory>>;
    /// Copies `data.len()` bytes from `offset_bytes`.
    fn load(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), MediaError>;
    /// Copies `data` to `offset_bytes`; not durable yet.
    fn store(&self, offset_bytes: u64, data: &[u8]) -> Result<(), MediaError>;
    /// Starts write-back of the lines of a range (CLWB), as they are now, and notes them in `queue`.
    fn flush(&self, range: Range<u64>, queue: &mut FlushQueue) -> Result<(), MediaError>;
    /// Waits for every write-back noted in `queue` (SFENCE) and empties it. What was stored before the line was flushed
    /// is durable when this returns. After an error nothing is known, and the queue is as it was.
    fn fence(&self, queue: &mut FlushQueue) -> Result<(), MediaError>;
    /// Accesses so far; all zero where the content is in blocks, which count for themselves.
    fn counters(&self) -> MemoryCounters;
}

/// Reads memory in place where that is possible, and a copy of it elsewhere. A clone reads the same memory.
#[derive(Clone)]
pub struct MemoryReader {
    bytes: Arc<dyn ByteAddressable>,
    borrowed: Option<Arc<PersistentMemory>>,
}

impl MemoryReader {
    /// A reader of this memory.
    pub fn new(bytes: &Arc<dyn ByteAddressable>) -> Self {
        MemoryReader { bytes: bytes.clone(), borrowed: bytes.clone().borrowed() }
    }

    /// True if reads take no copy.
    pub fn is_in_place(&self) -> bool {
        self.borrowed.is_some()
    }

    /// What `read` makes of the bytes of a range. Costs no copy and no virtual call where [`MemoryReader::is_in_place`].
    ///
    /// # Errors
    /// [`MediaError::OutOfRange`]; what a layer says, and then `read` was not called.
    ///
    /// # Safety
    /// As [`PersistentMemory::read`]: nothing changes the range while `read` runs.
    #[inline]
    pub unsafe fn read<T>(&self, range: Range<u64>, read: impl FnOnce(&[u8]) -> T) -> Result<T, MediaError> {
        if let Some(memory) = &self.borrowed {
            // SAFETY: as the caller says.
            return unsafe { memory.read(range, read) };
        }
        let capacity_bytes = self.bytes.capacity_bytes();
        let length_bytes = range.end.checked_sub(range.start).unwrap_or(u64::MAX);
        if range.end > capacity_bytes || length_bytes > capacity_bytes {
            return Err(MediaError::OutOfRange {
                device: "memory".to_owned(),
                operation: Operation::Read,
                offset_bytes: range.start,
                length_bytes,
                capacity_bytes,
            });
        }
        let mut copy = vec![0; length_bytes as usize];
        self.bytes.load(range.start, &mut copy)?;
        Ok(read(&copy))
    }
}

/// Lines whose write-back was started and not yet waited for.
///
/// Held by the caller, because a fence waits for the write-backs of one thread of execution, and actors of a simulation
/// share one thread. A queue belongs to one device; on memory whose lines are written back, the thread that flushed fences.
#[derive(Debug, Default)]
pub struct FlushQueue {
    flushed: Vec<Flushed>,
}

#[derive(Clone, Debug)]
struct Flushed {
    /// The layer that noted it.
    layer: usize,
    range: Range<u64>,
    mark: u64,
}

impl FlushQueue {
    /// True if no write-back is noted.
    pub fn is_empty(&self) -> bool {
        self.flushed.is_empty()
    }

    /// Notes a range for `layer`, with a number that only it understands.
    pub(crate) fn note(&mut self, layer: usize, range: Range<u64>, mark: u64) {
        self.flushed.push(Flushed { layer, range, mark });
    }

    /// Ranges and marks that `layer` noted.
    pub(crate) fn of_layer(&self, layer: usize) -> Vec<(Range<u64>, u64)> {
        let own = self.flushed.iter().filter(|flushed| flushed.layer == layer);
        own.map(|flushed| (flushed.range.clone(), flushed.mark)).collect()
    }

    /// Forgets what `layer` noted.
    pub(crate) fn forget(&mut self, layer: usize) {
        self.flushed.retain(|flushed| flushed.layer != layer);
    }
}

impl Facet for dyn ByteAddressable {
    fn through(inner: &Arc<Self>, layer: &Layer<'_>) -> Option<Arc<Self>> {
        match layer {
            Layer::Fault { injector, name, .. } => Some(FaultBytes::facet(injector, name, inner)),
            Layer::Trace { tracer, name } => Some(TraceBytes::facet(tracer, name, inner)),
            Layer::Crash(layer) => Some(CrashBytes::facet(layer, inner)),
            Layer::CrashImage(block) | Layer::Overlay(block) => Some(BlockBytes::facet(block, &**inner)),
        }
    }
}
