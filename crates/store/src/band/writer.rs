//! Writing a table: whole units, in order, to a band of its own, or to one that it shares with others, behind what those wrote.

use super::allocation::{Purpose, TableGrowth};
use super::bands::AfterFailure;
use super::change::Fragment;
use super::node::{Node, Tail};
use super::open_store::OpenStore;
use super::shared::{SharedPlace, TableOrigin};
use crate::error::StoreError;
use crate::file_store::{CreateOptions, FileKind, WritableFile};
use crate::journal;
use crate::kernel::RawStore;
use std::sync::Arc;
use varve_media::{AlignedBuffer, IoContext, JobId};

const BUFFER_BYTES: usize = 1 << 20;
/// Bands that may refuse one write, one after the other.
const MOVES_MAX: u32 = 4;

/// Where a table is written next.
#[derive(Clone, Copy, Debug)]
struct Place {
    band: u32,
    written_bytes: u64,
}

/// The writer of one table.
///
/// Whole units are written when the buffer is full or flushed; what does not fill one stays in memory, where readers
/// find it once it was flushed. A sync fills up the last unit; what follows begins at the next one, as another fragment.
pub(crate) struct TableWriter {
    core: Arc<OpenStore>,
    node: Arc<Node>,
    name: String,
    purpose: Purpose,
    job: Option<JobId>,
    /// Bytes that the table is expected to have.
    expected_bytes: u64,
    /// Of a table that shares zones with others.
    shared: Option<TableOrigin>,
    buffer: AlignedBuffer,
    /// Offset in the file of the first byte of the buffer.
    start_bytes: u64,
    /// Bytes of the file in the buffer.
    buffered_bytes: usize,
    unit_bytes: usize,
    place: Option<Place>,
    finished: bool,
}

impl TableWriter {
    pub(super) fn new(core: Arc<OpenStore>, node: Arc<Node>, name: &str, options: &CreateOptions) -> Self {
        TableWriter::with_buffer(core, node, name, options, None, BUFFER_BYTES)
    }

    /// One that writes so many bytes at once, about.
    pub(super) fn with_buffer(
        core: Arc<OpenStore>,
        node: Arc<Node>,
        name: &str,
        options: &CreateOptions,
        shared: Option<TableOrigin>,
        buffer_bytes: usize,
    ) -> Self {
        let unit_bytes = core.geometry.unit_bytes as usize;
        let expected =
            options.expected_size_bytes.unwrap_or(u64::MAX).clamp(4096, buffer_bytes.max(4096) as u64) as usize;
        let capacity = expected.min(core.geometry.band_bytes as usize).next_multiple_of(unit_bytes);
        TableWriter {
            buffer: journal::buffer(&core.device, capacity),
            purpose: match shared {
                Some(TableOrigin { is_cleaning: true, .. }) => Purpose::Cleaning,
                _ => core.purpose(FileKind::Table, options.job),
            },
            shared,
            job: options.job,
            expected_bytes: options.expected_size_bytes.unwrap_or(core.geometry.table_bytes()),
            name: name.to_owned(),
            start_bytes: 0,
            buffered_bytes: 0,
            unit_bytes,
            place: None,
            finished: false,
            core,
            node,
        }
    }

    /// Takes data the buffer has no space for. All of it is accepted, or none.
    #[cold]
    fn append_large(&mut self, data: &[u8], context: &IoContext) -> Result<(), StoreError> {
        self.core.check()?;
        let before_bytes = self.size_bytes();
        let mut rest = data;
        loop {
            let (head, tail) = rest.split_at(rest.len().min(self.buffer.len() - self.buffered_bytes));
            self.buffer[self.buffered_bytes..self.buffered_bytes + head.len()].copy_from_slice(head);
            self.buffered_bytes += head.len();
            rest = tail;
            if rest.is_empty() {
                return Ok(());
            }
            if let Err(error) = self.write(self.buffered_bytes, context) {
                self.go_back(before_bytes);
                return Err(error);
            }
        }
    }

    /// Forgets what was appended behind `size_bytes`, written or not.
    fn go_back(&mut self, size_bytes: u64) {
        match size_bytes.checked_sub(self.start_bytes) {
            Some(buffered) => self.buffered_bytes = buffered as usize,
            None => {
                self.node.fragments.write().truncate(size_bytes);
                self.node.set_written_bytes(size_bytes);
                self.start_bytes = size_bytes;
                self.buffered_bytes = 0;
            }
        }
    }

    /// Writes the first `payload_bytes` of the buffer, the last unit filled up with zeros. What was written leaves the
    /// buffer, also when an error ends it.
    fn write(&mut self, payload_bytes: usize, context: &IoContext) -> Result<(), StoreError> {
        self.core.check()?;
        let length = payload_bytes.next_multiple_of(self.unit_bytes);
        // What lies behind the payload must still be there when the rest moves to the front.
        let behind = self.buffer[payload_bytes..self.buffered_bytes.max(payload_bytes)].to_vec();
        self.buffer[payload_bytes..length].fill(0);
        let (mut done, mut moves) = (0, 0);
        let outcome = loop {
            if done == length {
                break Ok(());
            }
            let place = match self.current_place(length - done) {
                Ok(place) => place,
                Err(error) => break Err(error),
            };
            let space = self.core.geometry.band_bytes - place.written_bytes;
            let count = (length - done).min(space as usize);
            match self.core.write_band(place.band, place.written_bytes, &self.buffer[done..done + count], context) {
                Ok(()) => {
                    let length_bytes = (payload_bytes - done).min(count) as u64;
                    let fragment = Fragment { band: place.band, offset_bytes: place.written_bytes, length_bytes };
                    self.node.fragments.write().push(fragment);
                    let written_bytes = place.written_bytes + count as u64;
                    if let Some(origin) = self.shared {
                        self.core.wrote_shared(&self.node, place.band, count as u64, written_bytes, origin);
                    }
                    self.place = Some(Place { written_bytes, ..place });
                    done += count;
                }
                Err((error, after)) => {
                    if after != AfterFailure::Retry {
                        self.leave(place);
                    }
                    if after == AfterFailure::Retry || moves == MOVES_MAX {
                        break Err(self.core.media_error(&self.name, error));
                    }
                    moves += 1;
                }
            }
        };
        let written = done.min(payload_bytes);
        self.buffer[payload_bytes..payload_bytes + behind.len()].copy_from_slice(&behind);
        self.buffer.copy_within(written..self.buffered_bytes, 0);
        self.buffered_bytes -= written;
        self.start_bytes += written as u64;
        if written > 0 {
            self.node.set_written_bytes(self.start_bytes);
            self.node.set_written_nanos(self.core.env.now().as_nanos());
            self.core.note_unsynced(&self.node);
        }
        outcome
    }

    /// The band that is written, with space in it.
    fn current_place(&mut self, requested_bytes: usize) -> Result<Place, StoreError> {
        if let Some(place) = self.place.filter(|place| place.written_bytes < self.core.geometry.band_bytes) {
            return Ok(place);
        }
        let geometry = &self.core.geometry;
        let left_bytes = self.expected_bytes.saturating_sub(self.start_bytes);
        let bands = left_bytes.div_ceil(geometry.band_bytes).clamp(1, u64::from(geometry.table_bands)) as u32;
        let table = Some(TableGrowth {
            file: self.node.file,
            bands,
            shares: self.shared.is_some(),
            full_band: self.place.map(|place| place.band),
            job: self.job,
        });
        if let Some((table, origin)) = table.zip(self.shared) {
            return self.shared_place(
                TableGrowth { bands: 1, full_band: None, ..table },
                origin,
                left_bytes,
                requested_bytes,
            );
        }
        let mut taken = self.core.take_band(&self.name, self.purpose, table)?;
        if taken.is_none() {
            self.core.free_space(self.purpose)?;
            taken = self.core.take_band(&self.name, self.purpose, table)?;
        }
        let Some(band) = taken else {
            return Err(self.core.no_space(&self.name, requested_bytes as u64, self.purpose));
        };
        self.node.bands.lock().insert(band);
        if let Some(full) = self.place {
            self.core.leave_band(full.band, full.written_bytes);
        }
        let place = Place { band, written_bytes: 0 };
        self.place = Some(place);
        Ok(place)
    }

    /// The same where tables share zones.
    fn shared_place(
        &mut self,
        table: TableGrowth,
        origin: TableOrigin,
        left_bytes: u64,
        requested_bytes: usize,
    ) -> Result<Place, StoreError> {
        // Others may need its place while this one waits for the next.
        if let Some(full) = self.place.take() {
            self.core.stop_shared(full.band, full.written_bytes);
        }
        let wanted = SharedPlace { origin, left_bytes };
        let mut taken = self.core.take_shared(&self.node, &self.name, self.purpose, table, wanted)?;
        if taken.is_none() {
            self.core.free_space(self.purpose)?;
            taken = self.core.take_shared(&self.node, &self.name, self.purpose, table, wanted)?;
        }
        let Some((band, written_bytes)) = taken else {
            return Err(self.core.no_space(&self.name, requested_bytes as u64, self.purpose));
        };
        let place = Place { band, written_bytes };
        self.place = Some(place);
        Ok(place)
    }

    /// Gives up a band that cannot be written any more, and forgets it when nothing of the file is in it.
    fn leave(&mut self, place: Place) {
        self.place = None;
        if self.shared.is_some() {
            self.core.leave_failed(&self.node, place.band, place.written_bytes);
        } else if place.written_bytes > 0 {
            // Its pointer is not where it should be: what a device limits is given back by a finish.
            self.core.leave_band(place.band, place.written_bytes);
        } else if self.node.bands.lock().remove(&place.band) {
            self.core.give_back_band(place.band);
        }
    }

    /// Readers see everything appended. What fills units is written, the rest told from memory.
    fn publish(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.core.check()?;
        let whole = self.buffered_bytes / self.unit_bytes * self.unit_bytes;
        if whole > 0 {
            self.write(whole, context)?;
        }
        *self.node.tail.write() =
            Tail { offset_bytes: self.start_bytes, bytes: self.buffer[..self.buffered_bytes].to_vec() };
        self.node.set_flushed_bytes(self.size_bytes());
        Ok(())
    }

    /// Writes everything appended, the last unit filled up.
    fn write_all(&mut self, context: &IoContext) -> Result<(), StoreError> {
        if self.buffered_bytes > 0 {
            self.write(self.buffered_bytes, context)?;
        }
        self.node.set_flushed_bytes(self.size_bytes());
        Ok(())
    }

    /// Whether it has a zone.
    pub(super) fn has_zone(&self) -> bool {
        self.place.is_some() || self.start_bytes > 0
    }

    /// Takes back what was appended and is not on the device. The file ends before it.
    pub(super) fn take_unwritten(&mut self) -> Vec<u8> {
        let unwritten = self.buffer[..self.buffered_bytes].to_vec();
        self.buffered_bytes = 0;
        unwritten
    }

    /// Writes what was appended and gives back what was set aside; what fails can be tried again.
    pub(super) fn close(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.core.check()?;
        self.write_all(context)?;
        self.end();
        Ok(())
    }

    fn end(&mut self) {
        match self.place.take() {
            Some(place) if self.shared.is_some() => self.core.stop_shared(place.band, place.written_bytes),
            Some(place) => self.core.leave_band(place.band, place.written_bytes),
            None => {}
        }
        self.core.state.lock().bands.release_aside(self.node.file);
        self.finished = true;
    }
}

impl WritableFile for TableWriter {
    #[inline]
    fn append(&mut self, data: &[u8], context: &IoContext) -> Result<(), StoreError> {
        if self.buffered_bytes + data.len() > self.buffer.len() {
            return self.append_large(data, context);
        }
        self.buffer[self.buffered_bytes..self.buffered_bytes + data.len()].copy_from_slice(data);
        self.buffered_bytes += data.len();
        Ok(())
    }

    fn flush(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.publish(context)
    }

    fn write_back(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.core.sync_device(context)
    }

    fn sync(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.core.check()?;
        self.write_all(context)?;
        self.core.sync_node(&self.node, &self.name, context)
    }

    fn set_level(&mut self, level: u8) {
        if self.node.flushed_bytes() == 0 {
            self.node.set_level(level);
        }
    }

    fn size_bytes(&self) -> u64 {
        self.start_bytes + self.buffered_bytes as u64
    }

    fn finish(mut self: Box<Self>, context: &IoContext) -> Result<(), StoreError> {
        self.close(context)
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // What readers have seen stays; what was only appended is forgotten.
        let published = self.node.flushed_bytes();
        if published > self.start_bytes {
            self.buffered_bytes = (published - self.start_bytes) as usize;
            let _ = self.write(self.buffered_bytes, &IoContext::default());
        }
        self.end();
    }
}
