//! The device a power cut left.

use crate::context::IoContext;
use crate::device::{BlockDevice, BlockDeviceExt, Capabilities, Counters, Geometry};
use crate::error::{MediaError, MediaErrorKind};
use crate::ranges::RangeSet;
use crate::request::{Request, Transfer, check_request};
use crate::sparse::{PAGE_BYTES, SparseBytes};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;

/// Pages of a device as they were before a crash layer first changed them.
#[derive(Default)]
pub(super) struct Original {
    pub(super) bytes: SparseBytes,
    /// Parts of them that could not be read even then.
    pub(super) unreadable: RangeSet,
}

/// What differs from the device below.
pub(super) struct ImageContent {
    pub(super) bytes: SparseBytes,
    /// Unreadable whatever page it is in.
    pub(super) unreadable: RangeSet,
}

/// Content over a device that is only read: pages of `content` first, then the content the device
/// had before anything changed it, then the device itself.
pub(super) struct ImageDevice {
    pub(super) base: Arc<dyn BlockDevice>,
    pub(super) original: Arc<Mutex<Original>>,
    pub(super) content: RwLock<ImageContent>,
    pub(super) counters: Mutex<Counters>,
}

impl ImageDevice {
    fn check(&self, request: &Request<'_>) -> Result<(), MediaError> {
        check_request(&*self.base, request)
    }

    fn read(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<(), MediaError> {
        let mut at = offset_bytes;
        let mut rest = data;
        while !rest.is_empty() {
            let count = rest.len().min((PAGE_BYTES - at % PAGE_BYTES) as usize);
            let (target, later) = rest.split_at_mut(count);
            let page = at / PAGE_BYTES;
            let found = {
                let content = self.content.read();
                self.check_readable(&content.unreadable, at, count)?;
                let found = content.bytes.contains_page(page);
                if found {
                    content.bytes.read(at, target);
                }
                found
            };
            if !found && !self.read_original(at, target)? {
                let from_base = self.read_base(at, target, context);
                // The base may have changed under the read; then the original content is known by now.
                if !self.read_original(at, target)? {
                    from_base?;
                }
            }
            at += count as u64;
            rest = later;
        }
        Ok(())
    }

    fn check_readable(&self, unreadable: &RangeSet, offset_bytes: u64, length: usize) -> Result<(), MediaError> {
        match unreadable.first_within(&(offset_bytes..offset_bytes + length as u64)) {
            Some(offset_bytes) => Err(MediaError::Unreadable { device: self.name().to_owned(), offset_bytes }),
            None => Ok(()),
        }
    }

    /// Reads a part of a page from before it changed, if it did.
    fn read_original(&self, offset_bytes: u64, data: &mut [u8]) -> Result<bool, MediaError> {
        let original = self.original.lock();
        if !original.bytes.contains_page(offset_bytes / PAGE_BYTES) {
            return Ok(false);
        }
        self.check_readable(&original.unreadable, offset_bytes, data.len())?;
        original.bytes.read(offset_bytes, data);
        Ok(true)
    }

    /// Takes a page over into `content`, which is about to change a part of it.
    fn take_over(&self, page: u64, context: &IoContext) -> Result<(), MediaError> {
        let start = page * PAGE_BYTES;
        let length = PAGE_BYTES.min(self.geometry().capacity_bytes - start) as usize;
        let mut bytes = vec![0; length];
        let mut unreadable = Vec::new();
        let sector = self.geometry().sector_bytes as usize;
        match self.read(start, &mut bytes, context) {
            Err(error) if error.kind() == MediaErrorKind::Unreadable => {
                for (index, bytes) in bytes.chunks_mut(sector).enumerate() {
                    let at = start + (index * sector) as u64;
                    match self.read(at, bytes, context) {
                        Err(error) if error.kind() == MediaErrorKind::Unreadable => {
                            bytes.fill(0);
                            unreadable.push(at..at + bytes.len() as u64);
                        }
                        outcome => outcome?,
                    }
                }
            }
            outcome => outcome?,
        }
        let mut content = self.content.write();
        if !content.bytes.contains_page(page) {
            content.bytes.write(start, &bytes);
            unreadable.into_iter().for_each(|part| content.unreadable.insert(part));
        }
        Ok(())
    }

    fn read_base(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<(), MediaError> {
        let sector = u64::from(self.base.geometry().sector_bytes);
        let length = data.len() as u64;
        if offset_bytes.is_multiple_of(sector) && length.is_multiple_of(sector) {
            return self.base.read_at(offset_bytes, data, context);
        }
        let start = offset_bytes / sector * sector;
        let length = (offset_bytes + length).next_multiple_of(sector) - start;
        let mut whole = vec![0; length as usize];
        self.base.read_at(start, &mut whole, context)?;
        let within = (offset_bytes - start) as usize;
        data.copy_from_slice(&whole[within..within + data.len()]);
        Ok(())
    }

    fn perform(&self, request: &mut Request<'_>, context: &IoContext) -> Result<(), MediaError> {
        let length_bytes = request.length_bytes();
        let mut at = request.offset_bytes;
        match &mut request.transfer {
            Transfer::Read { data, .. } => {
                for slice in data.iter_mut() {
                    self.read(at, slice, context)?;
                    at += slice.len() as u64;
                }
            }
            Transfer::Write { .. } | Transfer::Discard { .. } => {
                // Pages only partly changed need the rest of their bytes first.
                for edge in [at, at + length_bytes] {
                    let page = edge / PAGE_BYTES;
                    if !edge.is_multiple_of(PAGE_BYTES) && !self.content.read().bytes.contains_page(page) {
                        self.take_over(page, context)?;
                    }
                }
                let mut content = self.content.write();
                content.unreadable.remove(at..at + length_bytes);
                match &request.transfer {
                    Transfer::Write { data, .. } => {
                        for slice in data.iter() {
                            content.bytes.write(at, slice);
                            at += slice.len() as u64;
                        }
                    }
                    _ => content.bytes.clear(at, length_bytes),
                }
            }
        }
        Ok(())
    }
}

impl BlockDevice for ImageDevice {
    fn name(&self) -> &str {
        self.base.name()
    }

    fn geometry(&self) -> &Geometry {
        self.base.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.base.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let mut result = Ok(());
        for request in requests {
            request.outcome = match self.check(request) {
                Ok(()) => self.perform(request, context),
                refused => refused,
            };
            self.counters.lock().count_request(request, context);
            if result.is_ok() {
                result = request.outcome.clone();
            }
        }
        result
    }

    fn sync(&self, _context: &IoContext) -> Result<(), MediaError> {
        self.counters.lock().syncs += 1;
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.counters.lock().clone()
    }
}
