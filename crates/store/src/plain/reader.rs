//! Reading a file of a directory.

use super::{AS_LONG_AS_THE_FILE, OpenDirectory, WrittenFile};
use crate::error::StoreError;
use crate::file_store::{ReadRange, ReadableFile};
use crate::record_cache::RecordCache;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_media::{AlignedBuffer, DirectoryFile, FileMapping, IoContext};

/// Largest piece read through the bounce buffer.
const BOUNCE_BYTES: usize = 1 << 20;

thread_local! {
    /// Aligned memory for direct reads whose own buffer is not aligned, kept for the next one.
    static BOUNCE: Cell<Option<(usize, AlignedBuffer)>> = const { Cell::new(None) };
}

pub(super) struct PlainReader {
    shared: Arc<OpenDirectory>,
    file: Arc<dyn DirectoryFile>,
    /// The writer's side, of a file that may still be written.
    written: Option<Arc<WrittenFile>>,
    name: String,
    alignment_bytes: u64,
    /// The last length the file system told, for when it does not answer.
    size_bytes: AtomicU64,
}

impl PlainReader {
    /// Asks for the length once, so that a file system that will not tell is an error here rather than
    /// an empty file later.
    pub(super) fn open(
        shared: Arc<OpenDirectory>,
        file: Arc<dyn DirectoryFile>,
        written: Option<Arc<WrittenFile>>,
        name: &str,
    ) -> Result<Self, StoreError> {
        let alignment_bytes = u64::from(file.alignment_bytes().max(1));
        let size_bytes = file.size_bytes().map_err(|error| shared.media_error(name, error))?;
        let size_bytes = AtomicU64::new(size_bytes);
        Ok(PlainReader { shared, file, written, name: name.to_owned(), alignment_bytes, size_bytes })
    }

    #[cold]
    fn past_end(&self, offset_bytes: u64, length: usize) -> StoreError {
        StoreError::PastEnd {
            store: self.shared.name().to_owned(),
            name: self.name.clone(),
            offset_bytes,
            length_bytes: length as u64,
            size_bytes: self.size_bytes(),
        }
    }

    fn read(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<usize, StoreError> {
        self.file.read_at(offset_bytes, data, context).map_err(|error| self.shared.media_error(&self.name, error))
    }

    fn is_aligned(&self, offset_bytes: u64, data: &[u8]) -> bool {
        let alignment = self.alignment_bytes;
        offset_bytes.is_multiple_of(alignment)
            && (data.len() as u64).is_multiple_of(alignment)
            && (data.as_ptr().addr() as u64).is_multiple_of(alignment)
    }

    /// A direct read that is not aligned: whole blocks through a buffer that is.
    fn read_through(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<(), StoreError> {
        let alignment = self.alignment_bytes as usize;
        let skip = (offset_bytes % self.alignment_bytes) as usize;
        let needed = (skip + data.len().min(BOUNCE_BYTES)).next_multiple_of(alignment);
        let kept = BOUNCE
            .take()
            .filter(|(kept_alignment, buffer)| buffer.len() >= needed && kept_alignment.is_multiple_of(alignment));
        let (kept_alignment, mut bounce) = kept
            .unwrap_or_else(|| (alignment, AlignedBuffer::new(needed.next_power_of_two().max(64 << 10), alignment)));
        let mut result = Ok(());
        let mut done = 0;
        while done < data.len() {
            let at = offset_bytes + done as u64;
            let skip = (at % self.alignment_bytes) as usize;
            let piece = (data.len() - done).min(bounce.len() / alignment * alignment - skip);
            let blocks = (skip + piece).next_multiple_of(alignment);
            result = self.read(at - skip as u64, &mut bounce[..blocks], context).and_then(|count| {
                let found = count.checked_sub(skip).filter(|&found| found >= piece);
                found.map(|_| ()).ok_or_else(|| self.past_end(offset_bytes, data.len()))
            });
            if result.is_err() {
                break;
            }
            data[done..done + piece].copy_from_slice(&bounce[skip..skip + piece]);
            done += piece;
        }
        BOUNCE.set(Some((kept_alignment, bounce)));
        result
    }
}

impl ReadableFile for PlainReader {
    fn size_bytes(&self) -> u64 {
        let size_bytes = match self.file.size_bytes() {
            Ok(size_bytes) => {
                self.size_bytes.store(size_bytes, Ordering::Relaxed);
                size_bytes
            }
            Err(_) => self.size_bytes.load(Ordering::Relaxed),
        };
        self.written.as_ref().map_or(size_bytes, |written| written.visible(size_bytes))
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<(), StoreError> {
        let Some(end) = offset_bytes.checked_add(data.len() as u64) else {
            return Err(self.past_end(offset_bytes, data.len()));
        };
        if self.written.as_ref().is_some_and(|written| written.visible(u64::MAX) < end) {
            return Err(self.past_end(offset_bytes, data.len()));
        }
        if self.alignment_bytes > 1 && !self.is_aligned(offset_bytes, data) {
            return self.read_through(offset_bytes, data, context);
        }
        if self.read(offset_bytes, data, context)? < data.len() {
            return Err(self.past_end(offset_bytes, data.len()));
        }
        Ok(())
    }

    fn read_many(&self, ranges: &mut [ReadRange<'_>], context: &IoContext) -> Result<(), StoreError> {
        let mut result = Ok(());
        for range in ranges {
            range.outcome = self.read_at(range.offset_bytes, range.data, context);
            if result.is_ok() {
                result = range.outcome.clone();
            }
        }
        result
    }

    fn prefetch(&self, offset_bytes: u64, length_bytes: u64, _context: &IoContext) {
        // What bypasses the cache of the operating system cannot be fetched into it.
        if self.alignment_bytes == 1 {
            self.file.prefetch(offset_bytes, length_bytes);
        }
    }

    /// None of a file that is kept longer than what was written to it: what lies behind is nobody's.
    fn map(&self) -> Option<FileMapping> {
        let whole = self.written.as_ref().is_none_or(|written| written.visible(u64::MAX) == AS_LONG_AS_THE_FILE);
        if whole { self.file.map() } else { None }
    }

    fn records(&self) -> Option<&dyn RecordCache> {
        None
    }
}
