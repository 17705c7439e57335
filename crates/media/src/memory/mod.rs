//! Byte-addressable persistent memory.

mod blocks;
pub(crate) mod conformance;
mod counters;
mod file;
mod line_write_back;
mod model;
mod persistence;
mod region;
mod sector_journal;
mod words;

pub use counters::MemoryCounters;
pub use file::MemoryFileOptions;
pub use model::MemoryModel;
pub use persistence::{LineInstruction, Persistence};
pub(crate) use sector_journal::fuzz as fuzz_memory_trailer;

use crate::bytes::{ByteAddressable, FlushQueue};
use crate::device::{Device, Geometry};
use crate::emulated::Pacing;
use crate::error::{MediaError, Operation};
use blocks::MemoryBlocks;
use counters::{Event, Tally};
use file::MemoryFile;
use model::LINE_BYTES;
use region::Region;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use varve_env::Env;

/// Persistent memory: bytes that are loaded, stored, flushed and fenced, and read in place.
///
/// Memory in a [file](PersistentMemory::open) takes the time it takes. Emulated memory is in the
/// process. With a [model](MemoryModel), the time of accesses is charged to the processor in a
/// simulation, and spun or only counted in a real env, as [`Pacing`] says.
/// [`PersistentMemory::into_device`] adds a block device on the same bytes. Thread-safe.
pub struct PersistentMemory {
    name: String,
    env: Env,
    ground: Ground,
    /// Bytes that loads and stores may address.
    capacity_bytes: u64,
    model: Option<MemoryModel>,
    pacing: Pacing,
    tally: Tally,
}

/// Where the bytes are.
enum Ground {
    Emulated(Region),
    File(MemoryFile),
}

impl PersistentMemory {
    /// Emulated memory of zeros that takes no time, called `name` in messages. It takes up only
    /// what is written.
    ///
    /// # Errors
    /// [`MediaError::Rule`] for a capacity that is no whole number of lines, or none.
    /// [`MediaError::Io`] where the process cannot have as many addresses.
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
        let region = region.map_err(|error| MediaError::io(name, Operation::Open, 0, error))?;
        Ok(PersistentMemory::on(env, name, capacity_bytes, Ground::Emulated(region)))
    }

    /// The memory of a file, mapped into the process, whose
    /// [`persistence`](ByteAddressable::persistence) says what a fence buys: on a file system on
    /// persistent memory (DAX) lines are written back, on any other pages are synced. It takes real
    /// time. The last 68 KiB of the file are a trailer, and its other bytes are the memory. All of
    /// the file's space is taken when it is made.
    ///
    /// # Errors
    /// [`MediaError::Unsuitable`] for a file that was not made so, or was cut short;
    /// [`MediaError::Damaged`] for a damaged trailer or one of a file of another length;
    /// [`MediaError::OtherVersion`]; [`MediaError::Rule`] for another capacity than the file has,
    /// or one that is not whole pages; [`MediaError::Locked`] when it is open elsewhere;
    /// [`MediaError::NoSpace`]; [`MediaError::NotFound`].
    pub fn open(env: &Env, path: &Path, options: &MemoryFileOptions) -> Result<Self, MediaError> {
        let file = MemoryFile::open(path, options)?;
        Ok(PersistentMemory::on(env, &path.display().to_string(), file.capacity_bytes, Ground::File(file)))
    }

    fn on(env: &Env, name: &str, capacity_bytes: u64, ground: Ground) -> Self {
        PersistentMemory {
            name: name.to_owned(),
            env: env.clone(),
            ground,
            capacity_bytes,
            model: None,
            pacing: Pacing::Account,
            tally: Tally::default(),
        }
    }

    /// The same memory called `name` in messages.
    pub fn named(self, name: &str) -> Self {
        PersistentMemory { name: name.to_owned(), ..self }
    }

    /// The same memory of a file as if a fence bought this.
    #[cfg(test)]
    fn pretending(mut self, persistence: Persistence) -> Self {
        if let Ground::File(file) = &mut self.ground {
            file.persistence = persistence;
        }
        self
    }

    /// Whether its file was not there before it was opened.
    pub fn was_made(&self) -> bool {
        matches!(&self.ground, Ground::File(file) if file.was_made)
    }

    /// The same memory with accesses that take time. `pacing` says what happens in a real env.
    pub fn with_model(self, model: MemoryModel, pacing: Pacing) -> Self {
        PersistentMemory { model: Some(model), pacing, ..self }
    }

    /// This memory as a device: its bytes, and a block device on them. The capacity of `geometry`
    /// is that of the memory.
    ///
    /// A physical sector that is written through the block device survives a power cut whole, old
    /// or new. Emulated memory has it so, at no cost. On files of which lines are written back each
    /// part of a write of up to 4 KiB is written twice; on others the file system writes.
    ///
    /// # Errors
    /// [`MediaError::Rule`] for another capacity than that of the memory, for sectors that are not
    /// whole lines, or for physical sectors above 4 KiB. What the memory says when writes that a
    /// power cut interrupted are finished.
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
    /// Nothing stores to the range, or writes or discards blocks of it, while `read` runs. Where
    /// that is not known, [`ByteAddressable::load`] copies.
    #[inline]
    pub unsafe fn read<T>(&self, range: Range<u64>, read: impl FnOnce(&[u8]) -> T) -> Result<T, MediaError> {
        let length = range.end.checked_sub(range.start).unwrap_or(u64::MAX);
        let at = self.place(Operation::Read, range.start, length)?;
        self.pay_load(range.start, length);
        // SAFETY: the range lies within the memory, which lives as long as `self`, and nobody
        // changes it meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts(self.start().add(at), length as usize) };
        let made = read(bytes);
        self.check(Operation::Read, range.start)?;
        Ok(made)
    }

    /// First byte.
    #[inline]
    fn start(&self) -> *mut u8 {
        match &self.ground {
            Ground::Emulated(region) => region.start(),
            Ground::File(file) => file.start(),
        }
    }

    /// Fails where bytes that were just accessed are not those of the file.
    #[inline]
    fn check(&self, operation: Operation, offset_bytes: u64) -> Result<(), MediaError> {
        match &self.ground {
            Ground::Emulated(_) => Ok(()),
            Ground::File(file) => file.check(&self.name, operation, offset_bytes),
        }
    }

    /// Refuses changes of a file that was opened for reading.
    fn check_writable(&self, operation: Operation, offset_bytes: u64) -> Result<(), MediaError> {
        match &self.ground {
            Ground::File(file) if !file.is_writable => {
                let error = std::io::Error::new(std::io::ErrorKind::ReadOnlyFilesystem, "opened for reading only");
                Err(MediaError::io(&self.name, operation, offset_bytes, error))
            }
            _ => Ok(()),
        }
    }

    /// Number of this memory in flush queues.
    fn identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Time charged so far, in nanoseconds.
    fn charged_nanos(&self) -> u64 {
        self.tally.nanos()
    }

    /// Where a range begins in the mapped bytes, if it lies within the memory.
    fn place(&self, operation: Operation, offset_bytes: u64, length_bytes: u64) -> Result<usize, MediaError> {
        self.place_below(self.capacity_bytes, operation, offset_bytes, length_bytes)
    }

    fn place_below(
        &self,
        limit_bytes: u64,
        operation: Operation,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<usize, MediaError> {
        match offset_bytes.checked_add(length_bytes).filter(|&end| end <= limit_bytes) {
            // The memory is mapped, so its capacity fits in addresses.
            Some(_) => Ok(offset_bytes as usize),
            None => Err(MediaError::OutOfRange {
                device: self.name.clone(),
                operation,
                offset_bytes,
                length_bytes,
                capacity_bytes: limit_bytes,
            }),
        }
    }

    fn load_below(&self, limit_bytes: u64, offset_bytes: u64, data: &mut [u8]) -> Result<(), MediaError> {
        let at = self.place_below(limit_bytes, Operation::Read, offset_bytes, data.len() as u64)?;
        // SAFETY: the range lies within the memory.
        unsafe { words::load(self.start().add(at), data) };
        self.pay_load(offset_bytes, data.len() as u64);
        self.check(Operation::Read, offset_bytes)
    }

    fn store_below(&self, limit_bytes: u64, offset_bytes: u64, data: &[u8]) -> Result<(), MediaError> {
        let at = self.place_below(limit_bytes, Operation::Write, offset_bytes, data.len() as u64)?;
        self.check_writable(Operation::Write, offset_bytes)?;
        // SAFETY: the range lies within the memory; those who borrow bytes of it promised that
        // nobody stores to them.
        unsafe { words::store(self.start().add(at), data) };
        self.count_store(offset_bytes, data.len() as u64);
        self.check(Operation::Write, offset_bytes)
    }

    fn flush_below(&self, limit_bytes: u64, range: Range<u64>, queue: &mut FlushQueue) -> Result<(), MediaError> {
        let length = range.end.checked_sub(range.start).unwrap_or(u64::MAX);
        self.place_below(limit_bytes, Operation::Sync, range.start, length)?;
        if let Ground::File(file) = &self.ground
            && length > 0
        {
            file.flush(&range);
            // Lines that were written back wait in the processor; pages are synced by the fence.
            if file.persistence == Persistence::PageSync {
                queue.note(self.identity(), range.clone(), 0);
            }
        }
        self.pay_flush(range.start, length);
        Ok(())
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
        match &self.ground {
            Ground::Emulated(_) => Persistence::Emulated,
            Ground::File(file) => file.persistence,
        }
    }

    fn borrowed(self: Arc<Self>) -> Option<Arc<PersistentMemory>> {
        Some(self)
    }

    fn load(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), MediaError> {
        self.load_below(self.capacity_bytes, offset_bytes, data)
    }

    fn store(&self, offset_bytes: u64, data: &[u8]) -> Result<(), MediaError> {
        self.store_below(self.capacity_bytes, offset_bytes, data)
    }

    fn flush(&self, range: Range<u64>, queue: &mut FlushQueue) -> Result<(), MediaError> {
        self.flush_below(self.capacity_bytes, range, queue)
    }

    fn fence(&self, queue: &mut FlushQueue) -> Result<(), MediaError> {
        if let Ground::File(file) = &self.ground {
            let flushed = queue.of_layer(self.identity());
            file.fence(&self.name, flushed.into_iter().map(|(range, _)| range))?;
            file.check(&self.name, Operation::Sync, 0)?;
            queue.forget(self.identity());
        }
        self.tally.count(Event::Fence, 0);
        Ok(())
    }

    fn counters(&self) -> MemoryCounters {
        self.tally.counters()
    }
}

/// Memory with the trailer of its file, for the journal that lies there.
struct WithTrailer<'a>(&'a PersistentMemory);

impl ByteAddressable for WithTrailer<'_> {
    fn capacity_bytes(&self) -> u64 {
        match &self.0.ground {
            Ground::Emulated(_) => self.0.capacity_bytes,
            Ground::File(file) => file.size_bytes(),
        }
    }

    fn line_bytes(&self) -> u32 {
        self.0.line_bytes()
    }

    fn persistence(&self) -> Persistence {
        self.0.persistence()
    }

    fn borrowed(self: Arc<Self>) -> Option<Arc<PersistentMemory>> {
        None
    }

    fn load(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), MediaError> {
        self.0.load_below(self.capacity_bytes(), offset_bytes, data)
    }

    fn store(&self, offset_bytes: u64, data: &[u8]) -> Result<(), MediaError> {
        self.0.store_below(self.capacity_bytes(), offset_bytes, data)
    }

    fn flush(&self, range: Range<u64>, queue: &mut FlushQueue) -> Result<(), MediaError> {
        self.0.flush_below(self.capacity_bytes(), range, queue)
    }

    fn fence(&self, queue: &mut FlushQueue) -> Result<(), MediaError> {
        self.0.fence(queue)
    }

    fn counters(&self) -> MemoryCounters {
        self.0.counters()
    }
}

impl std::fmt::Debug for PersistentMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PersistentMemory { name, capacity_bytes, .. } = self;
        write!(f, "PersistentMemory({name}, {capacity_bytes} bytes, {:?})", self.persistence())
    }
}
