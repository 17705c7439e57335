//! Writing a file of the device.

use super::frame::HEADER_BYTES;
use super::node::Node;
use super::open_store::OpenStore;
use super::recovery::stored_bytes;
use crate::error::StoreError;
use crate::file_store::{CreateOptions, FileKind, WritableFile};
use crate::journal;
use crate::kernel::RawStore;
use std::io::IoSlice;
use std::sync::Arc;
use varve_media::{AlignedBuffer, IoContext, MediaError, MediaErrorKind, Request};

/// Maximum growth ahead of a file's contents, as a part of the free space.
const GROWTH_PART: u64 = 32;

/// The writer of one file.
///
/// The buffer is a range of the file as it lies on the device, beginning at a *unit* (a physical
/// sector): plain bytes, or frames whose headers are filled in when they are written. Whole units are
/// written; what does not fill the last one stays in the buffer, to be written again with what follows.
pub(super) struct ExtentWriter {
    core: Arc<OpenStore>,
    node: Arc<Node>,
    name: String,
    kind: FileKind,
    expected_size_bytes: u64,
    buffer: AlignedBuffer,
    /// Unit of the file at which the buffer begins.
    first_unit: u64,
    /// Bytes of the file in the buffer.
    buffered_bytes: usize,
    unit_bytes: usize,
    /// The part of a unit that has a header: a frame, or the unit itself where there are none.
    frame_bytes: usize,
    /// Header of it; 0 without frames.
    header_bytes: usize,
    /// Bytes of the file in one unit.
    unit_payload_bytes: usize,
    /// Bytes of the file the buffer takes.
    capacity_bytes: usize,
    /// Length for which the file surely has blocks.
    allocated_bytes: u64,
    /// A write failed otherwise than for want of space.
    failure: Option<String>,
    finished: bool,
}

/// Tables go out in large requests; logs are written at every flush and wait for little.
fn buffer_bytes(kind: FileKind) -> usize {
    match kind {
        FileKind::Table => 1 << 20,
        FileKind::Log => 256 << 10,
        _ => 64 << 10,
    }
}

impl ExtentWriter {
    pub(super) fn new(core: Arc<OpenStore>, node: Arc<Node>, name: &str, options: &CreateOptions) -> Self {
        let unit_bytes = core.geometry.journal.unit_bytes as usize;
        let (frame_bytes, header_bytes) =
            if node.framed { (core.frame.frame_bytes, HEADER_BYTES) } else { (unit_bytes, 0) };
        let unit_payload_bytes = unit_bytes / frame_bytes * (frame_bytes - header_bytes);
        let expected = options.expected_size_bytes.unwrap_or(u64::MAX).clamp(4096, 1 << 30) as usize;
        let units = buffer_bytes(options.kind).min(expected).div_ceil(unit_payload_bytes).min((1 << 20) / unit_bytes);
        ExtentWriter {
            buffer: journal::buffer(&core.device, units * unit_bytes),
            name: name.to_owned(),
            kind: options.kind,
            expected_size_bytes: options.expected_size_bytes.unwrap_or(0),
            first_unit: 0,
            buffered_bytes: 0,
            unit_bytes,
            frame_bytes,
            header_bytes,
            unit_payload_bytes,
            capacity_bytes: units * unit_payload_bytes,
            allocated_bytes: 0,
            failure: None,
            finished: false,
            core,
            node,
        }
    }

    fn check(&self) -> Result<(), StoreError> {
        match &self.failure {
            Some(cause) => Err(StoreError::Poisoned { store: self.core.label.clone(), cause: cause.clone() }),
            None => Ok(()),
        }
    }

    fn start_bytes(&self) -> u64 {
        self.first_unit * self.unit_payload_bytes as u64
    }

    /// Puts bytes into the buffer, which has space for them.
    #[inline]
    fn copy_in(&mut self, data: &[u8]) {
        if self.header_bytes == 0 {
            self.buffer[self.buffered_bytes..self.buffered_bytes + data.len()].copy_from_slice(data);
            self.buffered_bytes += data.len();
            return;
        }
        let payload_bytes = self.frame_bytes - self.header_bytes;
        let mut rest = data;
        while !rest.is_empty() {
            let (frame, within) = (self.buffered_bytes / payload_bytes, self.buffered_bytes % payload_bytes);
            let (head, tail) = rest.split_at(rest.len().min(payload_bytes - within));
            let at = frame * self.frame_bytes + self.header_bytes + within;
            self.buffer[at..at + head.len()].copy_from_slice(head);
            self.buffered_bytes += head.len();
            rest = tail;
        }
    }

    /// Takes data the buffer has no space for. All of it is accepted, or none.
    #[cold]
    fn append_large(&mut self, data: &[u8], context: &IoContext) -> Result<(), StoreError> {
        self.check()?;
        self.core.commit_if_due()?;
        self.allocate(self.size_bytes() + data.len() as u64)?;
        let (before_unit, before_bytes) = (self.first_unit, self.buffered_bytes);
        let mut saved = None;
        let mut rest = data;
        loop {
            let (head, tail) = rest.split_at(rest.len().min(self.capacity_bytes - self.buffered_bytes));
            self.copy_in(head);
            rest = tail;
            if rest.is_empty() {
                return Ok(());
            }
            // A second piece overwrites what a failure must bring back.
            if saved.is_none() && rest.len() > self.capacity_bytes {
                let used = before_bytes.div_ceil(self.unit_payload_bytes) * self.unit_bytes;
                saved = Some(self.buffer[..used].to_vec());
            }
            if let Err(error) = self.write(context) {
                if let Some(saved) = saved {
                    self.buffer[..saved.len()].copy_from_slice(&saved);
                }
                self.first_unit = before_unit;
                self.buffered_bytes = before_bytes;
                return Err(error);
            }
        }
    }

    /// Sees to it that the file has blocks for `size_bytes`, better for all that is expected.
    fn allocate(&mut self, size_bytes: u64) -> Result<(), StoreError> {
        if size_bytes <= self.allocated_bytes {
            return Ok(());
        }
        let (frame, framed) = (&self.core.frame, self.node.framed);
        if framed && size_bytes > frame.size_bytes_max() {
            let reason = format!("log '{}' cannot grow beyond {} bytes", self.name, frame.size_bytes_max());
            return Err(StoreError::InvalidRequest { store: self.core.label.clone(), reason });
        }
        // The imitated file system normalizes requests itself and knows nothing of what is expected.
        // Unannounced growth doubles, so that a file of n bytes has about log n extents. Where little is free it takes a
        // small part of that: what is ahead of a log is space that nobody else can have.
        let step_bytes: u64 = if self.kind == FileKind::Table { 8 << 20 } else { 1 << 20 };
        let wanted = if self.core.caches {
            size_bytes
        } else {
            let free_bytes = self.core.state.lock().free.blocks() * self.core.geometry.block_bytes;
            let step_bytes = step_bytes.min(free_bytes / GROWTH_PART);
            let growth = if framed || self.first_unit > 0 { size_bytes.max(64 << 10).min(step_bytes) } else { 0 };
            self.expected_size_bytes.max(size_bytes.saturating_add(growth))
        };
        let needed = stored_bytes(frame, framed, size_bytes);
        let wanted = stored_bytes(frame, framed, wanted);
        self.core.extend(&self.node, &self.name, self.kind, needed, wanted)?;
        let units = self.node.extents.read().blocks() * self.core.geometry.block_bytes / self.unit_bytes as u64;
        self.allocated_bytes = units * self.unit_payload_bytes as u64;
        Ok(())
    }

    /// Writes what is in the buffer to the device. What fills units leaves the buffer.
    fn write(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.check()?;
        let size_bytes = self.size_bytes();
        self.allocate(size_bytes)?;
        let units = self.buffered_bytes.div_ceil(self.unit_payload_bytes);
        if units > 0 {
            self.seal(units * self.unit_bytes);
            let length = units * self.unit_bytes;
            let tail = self.node.framed.then(|| self.node.tail_write.lock());
            // A failed write may have torn what it was to replace; a second one mends that.
            let outcome = self.write_units(length, context).or_else(|error| match error.kind() {
                MediaErrorKind::NoSpace => Err(error),
                _ => self.write_units(length, context),
            });
            drop(tail);
            outcome.map_err(|error| {
                // The medium may hold either version of every unit: nothing more is promised of them.
                if error.kind() != MediaErrorKind::NoSpace {
                    self.failure = Some(error.to_string());
                }
                self.core.media_error(&self.name, error)
            })?;
        }
        self.node.raise_written_bytes(size_bytes);
        self.node.set_written_nanos(self.core.env.now().as_nanos());
        self.node.set_flushed_bytes(size_bytes);
        if self.core.caches {
            self.node.cached.write().drop_before(size_bytes);
        }
        self.core.note_unsynced(&self.node);
        let whole = self.buffered_bytes / self.unit_payload_bytes;
        if whole > 0 && whole < units {
            let start = whole * self.unit_bytes;
            self.buffer.copy_within(start..start + self.unit_bytes, 0);
        }
        self.first_unit += whole as u64;
        self.buffered_bytes -= whole * self.unit_payload_bytes;
        Ok(())
    }

    /// Completes the first `length` bytes of the buffer: headers, and zeros behind the last byte.
    fn seal(&mut self, length: usize) {
        if self.header_bytes == 0 {
            self.buffer[self.buffered_bytes..length].fill(0);
            return;
        }
        let durable_bytes = self.node.durable_bytes();
        let payload_bytes = self.frame_bytes - self.header_bytes;
        let first_frame = self.first_unit * (self.unit_bytes / self.frame_bytes) as u64;
        let mut rest = self.buffered_bytes;
        for (index, frame) in (first_frame..).zip(self.buffer[..length].chunks_exact_mut(self.frame_bytes)) {
            let used = rest.min(payload_bytes);
            rest -= used;
            if used > 0 {
                self.core.frame.seal(frame, self.node.file, index, used, durable_bytes);
            } else {
                frame.fill(0);
            }
        }
    }

    fn write_units(&self, length: usize, context: &IoContext) -> Result<(), MediaError> {
        let offset = self.first_unit * self.unit_bytes as u64;
        let block_bytes = self.core.geometry.block_bytes;
        let map = self.node.extents.read();
        let located = map.locate(offset, block_bytes).filter(|(_, contiguous)| *contiguous >= length as u64);
        let pieces: Vec<(u64, u64)> = match located {
            Some(_) => Vec::new(),
            None => map.pieces(offset, length as u64, block_bytes).collect(),
        };
        drop(map);
        let data = &self.buffer[..length];
        match located {
            Some((at, _)) => self.core.device.block.execute(&mut [Request::write(at, &[IoSlice::new(data)])], context),
            None => {
                let mut rest = data;
                let slices: Vec<[IoSlice<'_>; 1]> = pieces
                    .iter()
                    .map(|(_, length)| {
                        let (head, tail) = rest.split_at(*length as usize);
                        rest = tail;
                        [IoSlice::new(head)]
                    })
                    .collect();
                let mut requests: Vec<Request<'_>> =
                    pieces.iter().zip(&slices).map(|((at, _), slices)| Request::write(*at, slices)).collect();
                self.core.device.block.execute(&mut requests, context)
            }
        }
    }

    /// Readers see everything appended, and nothing is written.
    fn publish(&mut self) {
        let mut cached = self.node.cached.write();
        let known = cached.offset_bytes + cached.bytes.len() as u64;
        let start = self.start_bytes();
        if let Some(from) = known.checked_sub(start) {
            cached.bytes.extend_from_slice(&self.buffer[from as usize..self.buffered_bytes]);
        }
        drop(cached);
        self.node.set_flushed_bytes(self.size_bytes());
    }

    /// Hands everything to the device.
    fn flush_to_device(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.check()?;
        if self.node.written_bytes() == self.size_bytes() { Ok(()) } else { self.write(context) }
    }

    /// Gives back the blocks beyond the length.
    fn trim(&mut self) {
        let bytes = stored_bytes(&self.core.frame, self.node.framed, self.node.written_bytes());
        self.core.trim(&self.node, bytes);
        self.allocated_bytes = 0;
    }
}

impl WritableFile for ExtentWriter {
    #[inline]
    fn append(&mut self, data: &[u8], context: &IoContext) -> Result<(), StoreError> {
        if self.buffered_bytes + data.len() > self.capacity_bytes {
            return self.append_large(data, context);
        }
        self.copy_in(data);
        Ok(())
    }

    fn flush(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.check()?;
        self.core.commit_if_due()?;
        if self.core.caches {
            self.publish();
            return Ok(());
        }
        self.flush_to_device(context)?;
        // A log is found after the end of the process only if its name and its blocks are.
        if self.node.framed { self.core.commit(self.node.needed_change()) } else { Ok(()) }
    }

    fn write_back(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.core.sync_device(context)
    }

    fn sync(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.core.check()?;
        self.core.commit_if_due()?;
        self.flush_to_device(context)?;
        self.core.sync_node(&self.node, context)
    }

    fn set_level(&mut self, _level: u8) {}

    fn size_bytes(&self) -> u64 {
        self.start_bytes() + self.buffered_bytes as u64
    }

    fn finish(mut self: Box<Self>, context: &IoContext) -> Result<(), StoreError> {
        self.flush_to_device(context)?;
        self.finished = true;
        self.trim();
        Ok(())
    }
}

impl Drop for ExtentWriter {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // What readers have seen stays; what was only appended is forgotten.
        let published = self.node.flushed_bytes();
        if self.core.caches && published > self.node.written_bytes() && published >= self.start_bytes() {
            self.buffered_bytes = (published - self.start_bytes()) as usize;
            let _ = self.write(&IoContext::default());
        }
        self.trim();
    }
}
