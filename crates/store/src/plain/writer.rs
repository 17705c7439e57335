//! Writing a file of a directory.

use super::window::Window;
use super::{AS_LONG_AS_THE_FILE, OpenDirectory, WrittenFile, buffer_bytes, poisoned};
use crate::error::{StoreError, StoreErrorKind};
use crate::file_store::{CreateOptions, FileKind, WritableFile};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_media::{AlignedBuffer, IoContext};

/// The writer of one file.
///
/// The buffer holds what was appended and not yet written. In direct mode it also keeps the last
/// block that is not full: it is written padded with zeros and the length cut, and written again
/// when it has grown.
pub(super) struct PlainWriter {
    shared: Arc<OpenDirectory>,
    written: Arc<WrittenFile>,
    name: String,
    kind: FileKind,
    expected_size_bytes: Option<u64>,
    buffer: AlignedBuffer,
    /// Bytes of the buffer that hold appended data.
    buffered_bytes: usize,
    /// Offset in the file of the buffer's first byte.
    buffer_offset_bytes: u64,
    /// Length that readers see.
    flushed_bytes: u64,
    /// 1 when buffered; the block size of a direct file.
    alignment_bytes: usize,
    /// Length up to which space was reserved.
    allocated_bytes: u64,
    /// Length the file was given ahead of what is written to it; 0 when it was given none.
    ///
    /// A log is kept longer than its contents: a sync that need not make a new length durable is one
    /// request to the medium instead of the file system's own log.
    extended_bytes: u64,
    /// What is written through memory.
    window: Window,
    /// The file may be longer on the medium than it should be, or hold a reservation.
    trim: bool,
    names_durable: bool,
    /// A write failed otherwise than for want of space: the medium may hold either version.
    failure: Option<String>,
}

impl PlainWriter {
    pub(super) fn new(
        shared: Arc<OpenDirectory>,
        written: Arc<WrittenFile>,
        name: &str,
        options: &CreateOptions,
    ) -> Self {
        let alignment_bytes = written.file.alignment_bytes().max(1) as usize;
        let expected_size_bytes = options.expected_size_bytes.filter(|_| shared.options.preallocate);
        // A small file gets a small buffer, with space for the block that rounds it up.
        let expected = expected_size_bytes.unwrap_or(u64::MAX).clamp(4096, 1 << 30) as usize;
        let capacity = buffer_bytes(options).min(expected).next_multiple_of(alignment_bytes);
        PlainWriter {
            shared,
            written,
            name: name.to_owned(),
            kind: options.kind,
            expected_size_bytes,
            buffer: AlignedBuffer::new(capacity, alignment_bytes),
            buffered_bytes: 0,
            buffer_offset_bytes: 0,
            flushed_bytes: 0,
            alignment_bytes,
            allocated_bytes: 0,
            extended_bytes: 0,
            window: Window::new(options.map && options.kind == FileKind::Log),
            trim: false,
            names_durable: false,
            failure: None,
        }
    }

    fn check(&self) -> Result<(), StoreError> {
        match &self.failure {
            Some(cause) => Err(poisoned(self.shared.name(), cause)),
            None => Ok(()),
        }
    }

    /// Reserves space for the file up to `end_bytes` and somewhat further. A hint: what cannot be
    /// reserved is not tried again.
    fn reserve(&mut self, end_bytes: u64) {
        let Some(expected) = self.expected_size_bytes else { return };
        if end_bytes <= self.allocated_bytes || self.allocated_bytes >= expected {
            return;
        }
        let step_bytes: u64 = if self.kind == FileKind::Log { 16 << 20 } else { 64 << 20 };
        let target = expected.min(end_bytes.saturating_add(step_bytes));
        if self.kind == FileKind::Log && target.saturating_sub(end_bytes) > self.shared.room_ahead_bytes() {
            self.expected_size_bytes = None;
            return;
        }
        self.trim = true;
        match self.written.file.allocate(target) {
            Ok(()) => self.allocated_bytes = target,
            Err(_) => self.expected_size_bytes = None,
        }
        if self.kind == FileKind::Log && self.allocated_bytes == target {
            self.show(self.flushed_bytes);
            match self.written.file.truncate(target) {
                Ok(()) => self.extended_bytes = target,
                // What is there stays as long as it was.
                Err(_) => self.expected_size_bytes = None,
            }
        }
    }

    /// Sets the length that readers see.
    fn show(&self, visible_bytes: u64) {
        self.written.visible_bytes.store(visible_bytes, Ordering::Release);
    }

    /// What is written up to here, readers may see.
    fn set_flushed(&mut self, flushed_bytes: u64) {
        self.flushed_bytes = flushed_bytes;
        if self.written.visible_bytes.load(Ordering::Relaxed) != AS_LONG_AS_THE_FILE {
            self.show(flushed_bytes);
        }
    }

    /// Writes the first `from_buffer` bytes of the buffer and then `data`, at the buffer's place.
    fn write(&mut self, from_buffer: usize, data: &[u8], context: &IoContext) -> Result<(), StoreError> {
        self.reserve(self.buffer_offset_bytes + (from_buffer + data.len()) as u64);
        self.written.dirty.store(true, Ordering::Release);
        let parts = [&self.buffer[..from_buffer], data];
        if self.window.write(&*self.written.file, self.extended_bytes, self.buffer_offset_bytes, parts) {
            return Ok(());
        }
        let slices = [IoSlice::new(&self.buffer[..from_buffer]), IoSlice::new(data)];
        let slices = if data.is_empty() { &slices[..1] } else { &slices[..] };
        self.written.file.write_at(self.buffer_offset_bytes, slices, context).map_err(|error| {
            let message = error.to_string();
            let error = self.shared.media_error(&self.name, error);
            self.trim = true;
            if error.kind() != StoreErrorKind::NoSpace {
                self.failure = Some(message);
            }
            error
        })
    }

    /// Takes data the buffer has no space for. All of it is accepted, or none.
    #[cold]
    fn append_large(&mut self, data: &[u8], context: &IoContext) -> Result<(), StoreError> {
        self.check()?;
        let space = self.buffer.len() - self.buffered_bytes;
        if self.alignment_bytes == 1 && data.len() >= self.buffer.len() {
            self.write(self.buffered_bytes, data, context)?;
            self.buffer_offset_bytes += (self.buffered_bytes + data.len()) as u64;
            self.buffered_bytes = 0;
            self.set_flushed(self.buffer_offset_bytes);
            return Ok(());
        }
        let (before_offset, before_bytes) = (self.buffer_offset_bytes, self.buffered_bytes);
        let mut saved = None;
        let mut rest = data;
        let mut space = space;
        loop {
            let (head, tail) = rest.split_at(space.min(rest.len()));
            self.buffer[self.buffered_bytes..self.buffered_bytes + head.len()].copy_from_slice(head);
            self.buffered_bytes += head.len();
            rest = tail;
            if rest.is_empty() {
                return Ok(());
            }
            // A second piece overwrites what a failure must bring back.
            if saved.is_none() && rest.len() > self.buffer.len() {
                saved = Some(self.buffer[..before_bytes].to_vec());
            }
            if let Err(error) = self.write(self.buffer.len(), &[], context) {
                if let Some(saved) = saved {
                    self.buffer[..before_bytes].copy_from_slice(&saved);
                }
                self.buffer_offset_bytes = before_offset;
                self.buffered_bytes = before_bytes;
                return Err(error);
            }
            self.buffer_offset_bytes += self.buffer.len() as u64;
            self.buffered_bytes = 0;
            space = self.buffer.len();
        }
    }

    fn flush_buffer(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.check()?;
        let size_bytes = self.size_bytes();
        if size_bytes == self.flushed_bytes {
            return Ok(());
        }
        if self.alignment_bytes == 1 {
            if self.buffered_bytes > 0 {
                self.write(self.buffered_bytes, &[], context)?;
            }
            self.buffer_offset_bytes = size_bytes;
            self.buffered_bytes = 0;
            self.set_flushed(size_bytes);
            return Ok(());
        }
        let padded = self.buffered_bytes.next_multiple_of(self.alignment_bytes);
        self.buffer[self.buffered_bytes..padded].fill(0);
        if padded > 0 {
            self.write(padded, &[], context)?;
        }
        let padded_end = self.buffer_offset_bytes + padded as u64;
        if padded != self.buffered_bytes && padded_end > self.extended_bytes {
            self.written.file.truncate(size_bytes).map_err(|error| self.shared.media_error(&self.name, error))?;
        }
        let whole = self.buffered_bytes / self.alignment_bytes * self.alignment_bytes;
        self.buffer.copy_within(whole..self.buffered_bytes, 0);
        self.buffer_offset_bytes += whole as u64;
        self.buffered_bytes -= whole;
        self.set_flushed(size_bytes);
        Ok(())
    }

    /// Gives back what lies beyond what was written.
    fn trim(&mut self) -> Result<(), StoreError> {
        if std::mem::take(&mut self.trim) {
            self.window.close();
            self.written
                .file
                .truncate(self.flushed_bytes.max(self.buffer_offset_bytes))
                .map_err(|error| self.shared.media_error(&self.name, error))?;
            self.extended_bytes = 0;
            self.show(AS_LONG_AS_THE_FILE);
        }
        Ok(())
    }
}

impl WritableFile for PlainWriter {
    #[inline]
    fn append(&mut self, data: &[u8], context: &IoContext) -> Result<(), StoreError> {
        let end = self.buffered_bytes + data.len();
        if end > self.buffer.len() {
            return self.append_large(data, context);
        }
        self.buffer[self.buffered_bytes..end].copy_from_slice(data);
        self.buffered_bytes = end;
        Ok(())
    }

    fn flush(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.flush_buffer(context)
    }

    fn write_back(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.written.sync(self.shared.name(), &self.name, context)
    }

    fn sync(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.flush_buffer(context)?;
        self.window.note_sync();
        self.written.sync(self.shared.name(), &self.name, context)?;
        if !self.names_durable {
            self.shared.sync_names(self.written.created_change)?;
            self.names_durable = true;
        }
        Ok(())
    }

    fn set_level(&mut self, _level: u8) {}

    fn size_bytes(&self) -> u64 {
        self.buffer_offset_bytes + self.buffered_bytes as u64
    }

    fn finish(mut self: Box<Self>, context: &IoContext) -> Result<(), StoreError> {
        self.flush_buffer(context)?;
        self.trim()
    }
}

impl Drop for PlainWriter {
    fn drop(&mut self) {
        // Nobody is left to tell; a reservation that stays costs space, not data.
        let _ = self.trim();
        self.shared.forget(&self.written);
    }
}
