//! A block device on the bytes of persistent memory.

use super::counters::Event;
use super::model::LINE_BYTES;
use super::{PersistentMemory, words};
use crate::bytes::ByteAddressable;
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

/// Blocks on persistent memory. A write is durable when it completes, so a sync has nothing to do.
pub(super) struct MemoryBlocks {
    memory: Arc<PersistentMemory>,
    geometry: Geometry,
    capabilities: Capabilities,
    /// A sector is copied in pieces: those that read and write a chunk keep out of each other's way.
    stripes: Vec<RwLock<()>>,
    counters: Mutex<Counters>,
}

impl MemoryBlocks {
    /// Blocks of these sizes from byte 0 on.
    pub(super) fn new(memory: Arc<PersistentMemory>, geometry: &Geometry) -> Result<Self, MediaError> {
        let Geometry { capacity_bytes, sector_bytes, physical_sector_bytes } = *geometry;
        let is_sector = |bytes: u32| bytes.is_power_of_two() && (LINE_BYTES..=CHUNK_BYTES as u32).contains(&bytes);
        let fits = is_sector(sector_bytes)
            && is_sector(physical_sector_bytes)
            && physical_sector_bytes >= sector_bytes
            && capacity_bytes.is_multiple_of(u64::from(sector_bytes))
            && capacity_bytes <= memory.capacity_bytes;
        if !fits {
            let rule = format!(
                "blocks of {geometry:?} do not fit {} bytes of memory in lines of {LINE_BYTES} bytes",
                memory.capacity_bytes
            );
            let device = memory.name.clone();
            return Err(MediaError::Rule { device, operation: Operation::Open, offset_bytes: 0, rule });
        }
        Ok(MemoryBlocks {
            geometry: geometry.clone(),
            capabilities: Capabilities {
                volatile_cache: false,
                forced_unit_access: true,
                nominal: memory.model.map(|model| model.nominal()),
                ..Capabilities::of_blocks()
            },
            memory,
            stripes: (0..STRIPES).map(|_| RwLock::default()).collect(),
            counters: Mutex::default(),
        })
    }

    /// Calls `part` with each chunk's part of a range (its first byte and its length), under the lock of the chunk.
    fn in_chunks(&self, start: u64, length: u64, exclusive: bool, mut part: impl FnMut(u64, usize)) {
        let (mut at, end) = (start, start + length);
        while at < end {
            let chunk = at / CHUNK_BYTES;
            let next = ((chunk + 1) * CHUNK_BYTES).min(end);
            let stripe = &self.stripes[(chunk % STRIPES) as usize];
            let _locks = match exclusive {
                true => (None, Some(stripe.write())),
                false => (Some(stripe.read()), None),
            };
            part(at, (next - at) as usize);
            at = next;
        }
    }

    fn transfer(&self, request: &mut Request<'_>) {
        let memory = &*self.memory;
        let (mut at, length_bytes) = (request.offset_bytes, request.length_bytes());
        match &mut request.transfer {
            Transfer::Read { data, .. } => {
                for slice in data.iter_mut() {
                    let mut rest = &mut slice[..];
                    self.in_chunks(at, rest.len() as u64, false, |from, length| {
                        let (head, tail) = std::mem::take(&mut rest).split_at_mut(length);
                        // SAFETY: the request lies within the capacity of the blocks, which lie within the region.
                        unsafe { words::load(memory.region.start().add(from as usize), head) };
                        rest = tail;
                    });
                    at += slice.len() as u64;
                }
                memory.pay_load(request.offset_bytes, length_bytes);
            }
            Transfer::Write { data, .. } => {
                for slice in data.iter() {
                    let mut rest = &slice[..];
                    self.in_chunks(at, rest.len() as u64, true, |to, length| {
                        let (head, tail) = rest.split_at(length);
                        // SAFETY: as above; those who borrow bytes of it promised that nobody writes to them.
                        unsafe { words::store(memory.region.start().add(to as usize), head) };
                        rest = tail;
                    });
                    at += slice.len() as u64;
                }
                memory.count_store(request.offset_bytes, length_bytes);
                memory.pay_flush(request.offset_bytes, length_bytes);
            }
            Transfer::Discard { length_bytes } => {
                self.in_chunks(at, *length_bytes, true, |from, length| {
                    // SAFETY: as above.
                    unsafe { memory.region.clear(from as usize, length) };
                });
            }
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
                self.transfer(request);
            }
            self.counters.lock().count_request(request, context);
            if result.is_ok() {
                result = request.outcome.clone();
            }
        }
        if has_written {
            self.memory.tally.count(Event::Fence, 0);
        }
        result
    }

    fn sync(&self, _context: &IoContext) -> Result<(), MediaError> {
        self.counters.lock().syncs += 1;
        Ok(())
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
