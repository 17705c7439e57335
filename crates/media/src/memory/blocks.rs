//! A block device on the bytes of persistent memory.

use super::counters::Event;
use super::model::LINE_BYTES;
use super::persistence::Persistence;
use super::sector_journal::{SLOT_BYTES, SectorJournal};
use super::{Ground, PersistentMemory, WithTrailer, words};
use crate::bytes::{ByteAddressable, FlushQueue};
use crate::context::IoContext;
use crate::device::{BlockDevice, Capabilities, Counters, Geometry, TimeSpent};
use crate::error::{MediaError, Operation};
use crate::request::{Request, Transfer, check_request};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;

/// Bytes that are moved under one lock: a multiple of every sector.
const CHUNK_BYTES: u64 = 64 << 10;
/// Locks of chunks. More than threads that are at work at the same time, so that two rarely meet.
const STRIPES: u64 = 64;

/// Blocks on persistent memory. A write is durable when it completes, so a sync has nothing to do,
/// but where the file system writes.
pub(super) struct MemoryBlocks {
    memory: Arc<PersistentMemory>,
    writer: Writer,
    geometry: Geometry,
    capabilities: Capabilities,
    /// A sector is copied in pieces: those that read and write a chunk keep out of each other's
    /// way.
    stripes: Vec<RwLock<()>>,
    counters: Mutex<Counters>,
}

/// How blocks are written so that a power cut leaves physical sectors old or new.
enum Writer {
    /// Emulated: they are.
    Emulated,
    /// By the kernel, into pages that it writes to the disk; a sync syncs the file.
    Kernel,
    /// Twice, on memory that keeps words whole and no more.
    Twice(SectorJournal),
}

impl Writer {
    fn of(memory: &PersistentMemory) -> Result<Writer, MediaError> {
        let Ground::File(file) = &memory.ground else { return Ok(Writer::Emulated) };
        if !file.is_writable {
            SectorJournal::check_is_empty(&memory.name, &WithTrailer(memory), file.capacity_bytes)?;
            return Ok(Writer::Kernel);
        }
        // The file may have been on another file system when its writes were interrupted.
        let journal = SectorJournal::open(&WithTrailer(memory), file.capacity_bytes)?;
        Ok(match file.persistence {
            Persistence::LineWriteBack(_) | Persistence::PersistentCaches => Writer::Twice(journal),
            _ => Writer::Kernel,
        })
    }
}

impl MemoryBlocks {
    /// Blocks of these sizes from byte 0 on.
    pub(super) fn new(memory: Arc<PersistentMemory>, geometry: &Geometry) -> Result<Self, MediaError> {
        let Geometry { capacity_bytes, sector_bytes, physical_sector_bytes } = *geometry;
        let is_sector = |bytes: u32| bytes.is_power_of_two() && (LINE_BYTES..=CHUNK_BYTES as u32).contains(&bytes);
        let fits = is_sector(sector_bytes)
            && is_sector(physical_sector_bytes)
            && physical_sector_bytes >= sector_bytes
            && physical_sector_bytes as usize <= SLOT_BYTES
            && capacity_bytes.is_multiple_of(u64::from(sector_bytes))
            && capacity_bytes == memory.capacity_bytes;
        if !fits {
            let rule = format!(
                "blocks of {geometry:?} do not fit {} bytes of memory in lines of {LINE_BYTES} bytes",
                memory.capacity_bytes
            );
            let device = memory.name.clone();
            return Err(MediaError::Rule { device, operation: Operation::Open, offset_bytes: 0, rule });
        }
        let writer = Writer::of(&memory)?;
        let is_durable = !matches!(writer, Writer::Kernel);
        Ok(MemoryBlocks {
            geometry: geometry.clone(),
            capabilities: Capabilities {
                volatile_cache: !is_durable,
                forced_unit_access: is_durable,
                // Files keep their space, so that stores find some.
                discard: matches!(writer, Writer::Emulated),
                nominal: memory.model.map(|model| model.nominal()),
                ..Capabilities::of_blocks()
            },
            memory,
            writer,
            stripes: (0..STRIPES).map(|_| RwLock::default()).collect(),
            counters: Mutex::default(),
        })
    }

    /// Calls `part` with each chunk's part of a range (its first byte and its length), under the
    /// lock of the chunk.
    fn in_chunks(
        &self,
        start: u64,
        length: u64,
        exclusive: bool,
        mut part: impl FnMut(u64, usize) -> Result<(), MediaError>,
    ) -> Result<(), MediaError> {
        let (mut at, end) = (start, start + length);
        while at < end {
            let chunk = at / CHUNK_BYTES;
            let next = ((chunk + 1) * CHUNK_BYTES).min(end);
            let stripe = &self.stripes[(chunk % STRIPES) as usize];
            let _locks = match exclusive {
                true => (None, Some(stripe.write())),
                false => (Some(stripe.read()), None),
            };
            part(at, (next - at) as usize)?;
            at = next;
        }
        Ok(())
    }

    /// Copies `data` into place. The request lies within the capacity of the blocks, and the lock
    /// of the chunk is held.
    fn write(&self, to: u64, data: &[u8]) -> Result<(), MediaError> {
        let memory = &*self.memory;
        match (&self.writer, &memory.ground) {
            (Writer::Twice(journal), _) => {
                let (mut at, mut rest) = (to, data);
                while !rest.is_empty() {
                    // Cut where physical sectors are.
                    let whole = SLOT_BYTES - (at % SLOT_BYTES as u64) as usize;
                    let (head, tail) = rest.split_at(whole.min(rest.len()));
                    journal.write(&WithTrailer(memory), at, head)?;
                    (at, rest) = (at + head.len() as u64, tail);
                }
                Ok(())
            }
            (_, Ground::File(file)) => file.write(&memory.name, to, data),
            (_, Ground::Emulated(region)) => {
                // SAFETY: the range lies within the memory; those who borrow bytes of it promised
                // that nobody writes to them.
                unsafe { words::store(region.start().add(to as usize), data) };
                Ok(())
            }
        }
    }

    fn clear(&self, from: u64, length: usize) -> Result<(), MediaError> {
        let memory = &*self.memory;
        match (&self.writer, &memory.ground) {
            (_, Ground::Emulated(region)) => {
                // SAFETY: as in `write`.
                unsafe { region.clear(from as usize, length) };
                Ok(())
            }
            (Writer::Twice(_), _) => {
                let mut queue = FlushQueue::default();
                memory.store(from, &vec![0; length])?;
                memory.flush(from..from + length as u64, &mut queue)?;
                memory.fence(&mut queue)
            }
            (_, Ground::File(file)) => file.zero(&memory.name, from..from + length as u64),
        }
    }

    fn transfer(&self, request: &mut Request<'_>) -> Result<(), MediaError> {
        let memory = &*self.memory;
        let (mut at, length_bytes) = (request.offset_bytes, request.length_bytes());
        match &mut request.transfer {
            Transfer::Read { data, .. } => {
                for slice in data.iter_mut() {
                    let mut rest = &mut slice[..];
                    self.in_chunks(at, rest.len() as u64, false, |from, length| {
                        let (head, tail) = std::mem::take(&mut rest).split_at_mut(length);
                        // SAFETY: the request lies within the capacity of the blocks, which lie
                        // within the memory.
                        unsafe { words::load(memory.start().add(from as usize), head) };
                        rest = tail;
                        Ok(())
                    })?;
                    at += slice.len() as u64;
                }
                memory.pay_load(request.offset_bytes, length_bytes);
                memory.check(Operation::Read, request.offset_bytes)
            }
            Transfer::Write { data, durable, .. } => {
                memory.check_writable(Operation::Write, request.offset_bytes)?;
                for slice in data.iter() {
                    let mut rest = &slice[..];
                    self.in_chunks(at, rest.len() as u64, true, |to, length| {
                        let (head, tail) = rest.split_at(length);
                        rest = tail;
                        self.write(to, head)
                    })?;
                    at += slice.len() as u64;
                }
                // What is written twice counts its own stores and flushes.
                if !matches!(self.writer, Writer::Twice(_)) {
                    memory.count_store(request.offset_bytes, length_bytes);
                    memory.pay_flush(request.offset_bytes, length_bytes);
                }
                memory.check(Operation::Write, request.offset_bytes)?;
                if *durable { self.sync_file() } else { Ok(()) }
            }
            Transfer::Discard { length_bytes } => {
                memory.check_writable(Operation::Discard, request.offset_bytes)?;
                self.in_chunks(at, *length_bytes, true, |from, length| self.clear(from, length))
            }
        }
    }

    /// Has the kernel write what it wrote into pages.
    fn sync_file(&self) -> Result<(), MediaError> {
        match &self.memory.ground {
            Ground::File(file) => file.sync(&self.memory.name),
            Ground::Emulated(_) => Ok(()),
        }
    }
}

impl BlockDevice for MemoryBlocks {
    fn name(&self) -> &str {
        &self.memory.name
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let mut result = Ok(());
        let mut has_written = false;
        for request in requests {
            request.outcome = check_request(self, request);
            if request.outcome.is_ok() {
                has_written |= !matches!(request.transfer, Transfer::Read { .. });
                request.outcome = self.transfer(request);
            }
            self.counters.lock().count_request(request, context);
            if result.is_ok() {
                result = request.outcome.clone();
            }
        }
        if has_written && !matches!(self.writer, Writer::Twice(_)) {
            self.memory.tally.count(Event::Fence, 0);
        }
        result
    }

    fn sync(&self, _context: &IoContext) -> Result<(), MediaError> {
        let outcome = self.sync_file();
        self.counters.lock().count_sync(&outcome);
        outcome
    }

    fn counters(&self) -> Counters {
        let memory = self.memory.counters();
        let line = u64::from(LINE_BYTES);
        Counters {
            media_read_bytes: memory.loaded_lines * line,
            media_written_bytes: memory.flushed_lines * line,
            time: TimeSpent { transfer_nanos: self.memory.charged_nanos(), ..TimeSpent::default() },
            memory,
            ..self.counters.lock().clone()
        }
    }
}
