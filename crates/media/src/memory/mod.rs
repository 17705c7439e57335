//! Byte-addressable persistent memory.

mod blocks;
pub(crate) mod conformance;
mod counters;
mod model;
mod persistence;
mod region;
mod words;

pub use counters::MemoryCounters;
pub use model::MemoryModel;
pub use persistence::{LineInstruction, Persistence};

use crate::bytes::{ByteAddressable, FlushQueue};
use crate::device::{Device, Geometry};
use crate::emulated::Pacing;
use crate::error::{MediaError, Operation};
use blocks::MemoryBlocks;
use counters::{Event, Tally};
use model::LINE_BYTES;
use region::Region;
use std::ops::Range;
use std::sync::Arc;
use varve_env::Env;

/// Persistent memory: bytes that are loaded, stored, flushed and fenced, and read in place.
///
/// Emulated memory is in the process. With a [model](MemoryModel), the time of accesses is charged to the processor in a
/// simulation, and spun or only counted in a real env, as [`Pacing`] says. [`PersistentMemory::into_device`] adds a block
/// device on the same bytes. Thread-safe.
pub struct PersistentMemory {
    name: String,
    env: Env,
    region: Region,
    capacity_bytes: u64,
    persistence: Persistence,
    model: Option<MemoryModel>,
    pacing: Pacing,
    tally: Tally,
}

impl PersistentMemory {
    /// Emulated memory of zeros that takes no time, called `name` in messages. It takes up only what is written.
    ///
    /// # Errors
    /// [`MediaError::Rule`] for a capacity that is no whole number of lines, or none. [`MediaError::Io`] where the process cannot
    /// have as many addresses.
    pub fn emulated(env: &Env, name: &str, capacity_bytes: u64) -> Result<Self, MediaError> {
        if capacity_bytes == 0 || !capacity_bytes.is_multiple_of(LINE_BYTES.into()) {
            let rule = format!("the capacity must be whole lines of {LINE_BYTES} bytes, not {capacity_bytes} bytes");
            return Err(MediaError::Rule {
                device: name.to_owned(),
                operation: Operation::Open,
                offset_bytes: 0,
                rule,
            });
        }
        let region = Region::anonymous(capacity_bytes);
        Ok(PersistentMemory {
            name: name.to_owned(),
            env: env.clone(),
            region: region.map_err(|error| MediaError::io(name, Operation::Open, 0, error))?,
            capacity_bytes,
            persistence: Persistence::Emulated,
            model: None,
            pacing: Pacing::Account,
            tally: Tally::default(),
        })
    }

    /// The same memory with accesses that take time. `pacing` says what happens in a real env.
    pub fn with_model(self, model: MemoryModel, pacing: Pacing) -> Self {
        PersistentMemory { model: Some(model), pacing, ..self }
    }

    /// This memory as a device: its bytes, and a block device on them. The sizes of `geometry` must fit the memory: its capacity is
    /// that of the block device, which begins at byte 0.
    ///
    /// A sector that is written through the block device survives a power cut whole, old or new, and so does a physical
    /// sector: what a driver such as Linux' BTT adds to such memory.
    ///
    /// # Errors
    /// [`MediaError::Rule`] for a geometry beyond the memory, or of sectors that are not whole lines.
    pub fn into_device(self, geometry: &Geometry) -> Result<Device, MediaError> {
        let memory = Arc::new(self);
        let block = Arc::new(MemoryBlocks::new(memory.clone(), geometry)?);
        Ok(Device { block, zones: None, tracks: None, bytes: Some(memory) })
    }

    /// Name for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What `read` makes of the bytes of a range, without a copy.
    ///
    /// Costs the latency of the lines of the range, and a few nanoseconds to count them.
    ///
    /// # Errors
    /// [`MediaError::OutOfRange`].
    ///
    /// # Safety
    /// Nothing stores to the range, or writes or discards blocks of it, while `read` runs. Where that is not known,
    /// [`ByteAddressable::load`] copies.
    #[inline]
    pub unsafe fn read<T>(&self, range: Range<u64>, read: impl FnOnce(&[u8]) -> T) -> Result<T, MediaError> {
        let length = range.end.checked_sub(range.start).unwrap_or(u64::MAX);
        let at = self.place(Operation::Read, range.start, length)?;
        self.pay_load(range.start, length);
        // SAFETY: the range lies within the region, which lives as long as `self`, and nobody changes it meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts(self.region.start().add(at), length as usize) };
        Ok(read(bytes))
    }

    /// Time charged so far, in nanoseconds.
    fn charged_nanos(&self) -> u64 {
        self.tally.nanos()
    }

    /// Where a range begins in the region, if it lies within the memory.
    fn place(&self, operation: Operation, offset_bytes: u64, length_bytes: u64) -> Result<usize, MediaError> {
        match offset_bytes.checked_add(length_bytes).filter(|&end| end <= self.capacity_bytes) {
            // The capacity is that of a region, which fits in addresses.
            Some(_) => Ok(offset_bytes as usize),
            None => Err(MediaError::OutOfRange {
                device: self.name.clone(),
                operation,
                offset_bytes,
                length_bytes,
                capacity_bytes: self.capacity_bytes,
            }),
        }
    }

    /// Counts a load and takes its time.
    fn pay_load(&self, offset_bytes: u64, length_bytes: u64) {
        let lines = lines_of(offset_bytes, length_bytes);
        let nanos = self.model.map_or(0, |model| model.read_nanos_of(lines));
        self.tally.count(Event::Load { lines, bytes: length_bytes }, nanos);
        self.spend(nanos);
    }

    /// Counts a write-back and takes its time.
    fn pay_flush(&self, offset_bytes: u64, length_bytes: u64) {
        let lines = lines_of(offset_bytes, length_bytes);
        let nanos = self.model.map_or(0, |model| model.write_nanos_of(lines));
        self.tally.count(Event::Flush { lines }, nanos);
        self.spend(nanos);
    }

    fn spend(&self, nanos: u64) {
        if nanos == 0 {
            return;
        }
        if self.env.is_virtual() {
            self.env.charge(nanos);
        } else if self.pacing == Pacing::Sleep {
            // Shorter than any sleep.
            let until_nanos = self.env.now().as_nanos().saturating_add(nanos);
            while self.env.now().as_nanos() < until_nanos {
                std::hint::spin_loop();
            }
        }
    }

    fn count_store(&self, offset_bytes: u64, length_bytes: u64) {
        self.tally.count(Event::Store { lines: lines_of(offset_bytes, length_bytes), bytes: length_bytes }, 0);
    }
}

/// Lines that a range touches.
fn lines_of(offset_bytes: u64, length_bytes: u64) -> u64 {
    let line = u64::from(LINE_BYTES);
    if length_bytes == 0 { 0 } else { (offset_bytes + length_bytes).div_ceil(line) - offset_bytes / line }
}

impl ByteAddressable for PersistentMemory {
    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn line_bytes(&self) -> u32 {
        LINE_BYTES
    }

    fn persistence(&self) -> Persistence {
        self.persistence
    }

    fn borrowed(self: Arc<Self>) -> Option<Arc<PersistentMemory>> {
        Some(self)
    }

    fn load(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), MediaError> {
        let at = self.place(Operation::Read, offset_bytes, data.len() as u64)?;
        // SAFETY: the range lies within the region.
        unsafe { words::load(self.region.start().add(at), data) };
        self.pay_load(offset_bytes, data.len() as u64);
        Ok(())
    }

    fn store(&self, offset_bytes: u64, data: &[u8]) -> Result<(), MediaError> {
        let at = self.place(Operation::Write, offset_bytes, data.len() as u64)?;
        // SAFETY: the range lies within the region; those who borrow bytes of it promised that nobody stores to them.
        unsafe { words::store(self.region.start().add(at), data) };
        self.count_store(offset_bytes, data.len() as u64);
        Ok(())
    }

    fn flush(&self, range: Range<u64>, _queue: &mut FlushQueue) -> Result<(), MediaError> {
        let length = range.end.checked_sub(range.start).unwrap_or(u64::MAX);
        self.place(Operation::Sync, range.start, length)?;
        self.pay_flush(range.start, length);
        Ok(())
    }

    fn fence(&self, _queue: &mut FlushQueue) -> Result<(), MediaError> {
        self.tally.count(Event::Fence, 0);
        Ok(())
    }

    fn counters(&self) -> MemoryCounters {
        self.tally.counters()
    }
}

impl std::fmt::Debug for PersistentMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PersistentMemory { name, capacity_bytes, persistence, .. } = self;
        write!(f, "PersistentMemory({name}, {capacity_bytes} bytes, {persistence:?})")
    }
}
