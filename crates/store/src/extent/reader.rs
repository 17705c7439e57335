//! Reading a file of the device.

use super::node::Node;
use super::open_store::OpenStore;
use crate::error::StoreError;
use crate::file_store::{ReadRange, ReadableFile};
use crate::journal::corruption;
use crate::kernel::RawStore;
use crate::record_cache::RecordCache;
use std::cell::Cell;
use std::io::IoSliceMut;
use std::sync::Arc;
use varve_media::{AlignedBuffer, BlockDeviceExt, FileMapping, IoContext, Request, find_sound_answer};

/// Largest piece read through the bounce buffer.
const BOUNCE_BYTES: u64 = 1 << 20;

thread_local! {
    /// Memory for what a device reads and nobody asked for, kept for the next read.
    static SCRATCH: Cell<Option<(usize, AlignedBuffer)>> = const { Cell::new(None) };
}

/// Lends memory of at least `length` bytes at a multiple of `alignment`.
fn with_scratch<T>(length: usize, alignment: usize, use_it: impl FnOnce(&mut [u8]) -> T) -> T {
    let kept = SCRATCH.take().filter(|(kept, buffer)| kept.is_multiple_of(alignment) && buffer.len() >= length);
    let (alignment, mut buffer) =
        kept.unwrap_or_else(|| (alignment, AlignedBuffer::new(length.next_power_of_two().max(16 << 10), alignment)));
    let result = use_it(&mut buffer[..length]);
    SCRATCH.set(Some((alignment, buffer)));
    result
}

pub(super) struct ExtentReader {
    core: Arc<OpenStore>,
    node: Arc<Node>,
    name: String,
    sector_bytes: u64,
    buffer_alignment_bytes: usize,
}

impl ExtentReader {
    pub(super) fn new(core: Arc<OpenStore>, node: Arc<Node>, name: &str) -> Self {
        let sector_bytes = u64::from(core.device.block.geometry().sector_bytes);
        let buffer_alignment_bytes = core.device.block.capabilities().buffer_alignment_bytes.max(1) as usize;
        ExtentReader { core, node, name: name.to_owned(), sector_bytes, buffer_alignment_bytes }
    }

    #[cold]
    fn past_end(&self, offset_bytes: u64, length: usize) -> StoreError {
        StoreError::PastEnd {
            store: self.core.label.clone(),
            name: self.name.clone(),
            offset_bytes,
            length_bytes: length as u64,
            size_bytes: self.node.flushed_bytes(),
        }
    }

    /// The device range of the start of a file range, and how much of it is in one piece. A file always
    /// has blocks for what readers see.
    fn locate(&self, stored_offset: u64) -> Result<(u64, u64), StoreError> {
        let map = self.node.extents.read();
        map.locate(stored_offset, self.core.geometry.block_bytes).ok_or_else(|| {
            let blocks = map.blocks();
            corruption(
                &self.core.label,
                &format!("extents of '{}'", self.name),
                0,
                format!("byte {stored_offset}"),
                format!("{blocks} blocks"),
            )
        })
    }

    /// Whether the device can read right into this memory from this place.
    fn is_direct(&self, offset: u64, data: &[u8]) -> bool {
        offset.is_multiple_of(self.sector_bytes)
            && (data.len() as u64).is_multiple_of(self.sector_bytes)
            && data.as_ptr().addr().is_multiple_of(self.buffer_alignment_bytes)
    }

    /// Reads bytes of one extent.
    fn read_device(&self, at: u64, data: &mut [u8], context: &IoContext) -> Result<(), StoreError> {
        let block = &self.core.device.block;
        let failed = |error| self.core.media_error(&self.name, error);
        if self.is_direct(at, data) {
            return block.read_at(at, data, context).map_err(failed);
        }
        let sector = self.sector_bytes;
        let skip = (at % sector) as usize;
        let behind = ((at + data.len() as u64).next_multiple_of(sector) - at) as usize - data.len();
        if self.buffer_alignment_bytes == 1 {
            // The device takes any memory: only what is around the bytes needs a place.
            return with_scratch(2 * sector as usize, 1, |scratch| {
                let (head, tail) = scratch.split_at_mut(sector as usize);
                let mut slices =
                    [IoSliceMut::new(&mut head[..skip]), IoSliceMut::new(data), IoSliceMut::new(&mut tail[..behind])];
                block.execute(&mut [Request::read(at - skip as u64, &mut slices)], context).map_err(failed)
            });
        }
        let whole = skip + data.len() + behind;
        with_scratch(whole, self.buffer_alignment_bytes, |scratch| {
            block.read_at(at - skip as u64, scratch, context).map_err(failed)?;
            data.copy_from_slice(&scratch[skip..skip + data.len()]);
            Ok(())
        })
    }

    /// Reads bytes of a file that is not framed and that are on the device.
    fn read_unframed(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<(), StoreError> {
        let mut done = 0;
        while done < data.len() {
            let (at, contiguous) = self.locate(offset_bytes + done as u64)?;
            // Bounded so that scratch memory is.
            let limit = if self.is_direct(at, &data[done..]) { u64::MAX } else { BOUNCE_BYTES };
            let length = contiguous.min(limit).min((data.len() - done) as u64) as usize;
            self.read_device(at, &mut data[done..done + length], context)?;
            done += length;
        }
        Ok(())
    }

    /// Reads what is partly still in memory.
    fn read_cached(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<(), StoreError> {
        let end = offset_bytes + data.len() as u64;
        let cached = self.node.cached.read();
        let from_memory = (end.saturating_sub(cached.offset_bytes.max(offset_bytes))) as usize;
        let on_device = data.len() - from_memory.min(data.len());
        let start = (offset_bytes + on_device as u64).saturating_sub(cached.offset_bytes) as usize;
        match cached.bytes.get(start..start + data.len() - on_device) {
            Some(bytes) => data[on_device..].copy_from_slice(bytes),
            None => return Err(self.past_end(offset_bytes, data.len())),
        }
        // What is before is on the device: the writer says so before it forgets the bytes.
        drop(cached);
        self.read_unframed(offset_bytes, &mut data[..on_device], context)
    }

    /// Reads bytes of a framed file: whole frames, of which the payloads are taken.
    fn read_framed(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<(), StoreError> {
        let frame = &self.core.frame;
        let (payload, frame_bytes) = (frame.payload_bytes() as u64, frame.frame_bytes as u64);
        let mut done = 0;
        while done < data.len() {
            let start = offset_bytes + done as u64;
            let first = start / payload;
            let last = (offset_bytes + data.len() as u64 - 1) / payload;
            let (at, contiguous) = self.locate(first * frame_bytes)?;
            let frames = (last - first + 1).min(contiguous / frame_bytes).min(BOUNCE_BYTES / frame_bytes);
            let rest = &mut data[done..];
            done += with_scratch((frames * frame_bytes) as usize, self.buffer_alignment_bytes, |scratch| {
                self.core
                    .device
                    .block
                    .read_at(at, scratch, context)
                    .map_err(|error| self.core.media_error(&self.name, error))?;
                let mut taken = 0;
                for number in 0..frames {
                    let index = first + number;
                    let bytes = &mut scratch[(number * frame_bytes) as usize..((number + 1) * frame_bytes) as usize];
                    let skip = ((start + taken as u64) % payload) as usize;
                    let wanted = (rest.len() - taken).min(payload as usize - skip);
                    let offset = at + number * frame_bytes;
                    self.take_payload(bytes, offset, index, skip, &mut rest[taken..taken + wanted], context)?;
                    taken += wanted;
                }
                Ok::<usize, StoreError>(taken)
            })?;
        }
        Ok(())
    }

    /// Copies a part of the payload of a frame, reading it again when the writer was just rewriting it.
    fn take_payload(
        &self,
        bytes: &mut [u8],
        device_offset: u64,
        index: u64,
        skip: usize,
        data: &mut [u8],
        context: &IoContext,
    ) -> Result<(), StoreError> {
        let (frame, file) = (&self.core.frame, self.node.file);
        let copied = |bytes: &[u8], data: &mut [u8]| {
            let opened = frame.open(bytes, file, index)?;
            data.copy_from_slice(opened.payload.get(skip..skip + data.len())?);
            Some(())
        };
        if copied(bytes, data).is_some() {
            return Ok(());
        }
        let writing = self.node.tail_write.lock();
        self.core
            .device
            .block
            .read_at(device_offset, bytes, context)
            .map_err(|error| self.core.media_error(&self.name, error))?;
        drop(writing);
        if frame.open(bytes, file, index).is_none() {
            let read =
                |bytes: &mut [u8], context: &IoContext| self.core.device.block.read_at(device_offset, bytes, context);
            find_sound_answer(bytes, context, read, |bytes| frame.open(bytes, file, index).is_some());
        }
        copied(bytes, data).ok_or_else(|| {
            corruption(
                &self.core.label,
                &format!("log '{}'", self.name),
                device_offset,
                format!("frame {index} of file {file}"),
                "something else, or a wrong crc32c",
            )
        })
    }
}

impl ReadableFile for ExtentReader {
    fn size_bytes(&self) -> u64 {
        self.node.flushed_bytes()
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<(), StoreError> {
        let end = offset_bytes.checked_add(data.len() as u64);
        if end.is_none_or(|end| end > self.node.flushed_bytes()) {
            return Err(self.past_end(offset_bytes, data.len()));
        }
        // After a failed sync the device may have dropped what it took, and show what was there before.
        if self.core.latch.is_closed() && end > Some(self.node.durable_bytes()) {
            self.core.check()?;
        }
        if self.node.framed {
            return self.read_framed(offset_bytes, data, context);
        }
        if self.core.caches && end.is_some_and(|end| end > self.node.written_bytes()) {
            return self.read_cached(offset_bytes, data, context);
        }
        self.read_unframed(offset_bytes, data, context)
    }

    fn read_many(&self, ranges: &mut [ReadRange<'_>], context: &IoContext) -> Result<(), StoreError> {
        // Ranges in one piece that the device can read in place go out together; the others one by one.
        let poisoned = self.core.latch.is_closed();
        let mut places: Vec<Option<u64>> = Vec::with_capacity(ranges.len());
        for range in ranges.iter_mut() {
            let end = range.offset_bytes.checked_add(range.data.len() as u64);
            let on_device = end.is_some_and(|end| end <= self.node.written_bytes().min(self.node.flushed_bytes()));
            let place = match self.locate(range.offset_bytes) {
                Ok((at, contiguous))
                    if on_device && !poisoned && !self.node.framed && contiguous >= range.data.len() as u64 =>
                {
                    (self.is_direct(at, range.data) || self.buffer_alignment_bytes == 1).then_some(at)
                }
                _ => None,
            };
            if place.is_none() {
                range.outcome = self.read_at(range.offset_bytes, range.data, context);
            }
            places.push(place);
        }
        let together = places.iter().flatten().count();
        if together > 0 {
            let sector = self.sector_bytes;
            with_scratch(together * 2 * sector as usize, 1, |scratch| {
                let mut around = scratch.chunks_exact_mut(2 * sector as usize);
                let mut slices: Vec<(u64, [IoSliceMut<'_>; 3], &mut Result<(), StoreError>)> =
                    Vec::with_capacity(together);
                for (range, place) in ranges.iter_mut().zip(&places) {
                    let (Some(at), Some(around)) = (place, place.and_then(|_| around.next())) else { continue };
                    let (head, tail) = around.split_at_mut(sector as usize);
                    let skip = (at % sector) as usize;
                    let end = at + range.data.len() as u64;
                    let behind = (end.next_multiple_of(sector) - end) as usize;
                    let parts = [
                        IoSliceMut::new(&mut head[..skip]),
                        IoSliceMut::new(range.data),
                        IoSliceMut::new(&mut tail[..behind]),
                    ];
                    slices.push((at - skip as u64, parts, &mut range.outcome));
                }
                let mut outcomes = Vec::with_capacity(together);
                let mut requests = Vec::with_capacity(together);
                for (at, parts, outcome) in &mut slices {
                    requests.push(Request::read(*at, parts));
                    outcomes.push(outcome);
                }
                let _ = self.core.device.block.execute(&mut requests, context);
                for (request, outcome) in requests.into_iter().zip(outcomes) {
                    **outcome = request.outcome.map_err(|error| self.core.media_error(&self.name, error));
                }
            });
        }
        ranges.iter().find_map(|range| range.outcome.clone().err()).map_or(Ok(()), Err)
    }

    fn prefetch(&self, _offset_bytes: u64, _length_bytes: u64, _context: &IoContext) {
        // There is no cache to fetch into; the device reads ahead by itself.
    }

    fn map(&self) -> Option<FileMapping> {
        None
    }

    fn records(&self) -> Option<&dyn RecordCache> {
        None
    }
}
