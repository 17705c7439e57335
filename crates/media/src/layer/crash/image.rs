//! The device a power cut left.

use crate::context::IoContext;
use crate::device::{BlockDevice, Capabilities, Counters, Geometry};
use crate::error::{MediaError, MediaErrorKind};
use crate::protection::ProtectionFormat;
use crate::ranges::RangeSet;
use crate::request::{Request, Transfer, check_request};
use crate::sectors::Sectors;
use crate::sparse::{PAGE_BYTES, SparseBytes};
use parking_lot::{Mutex, RwLock};
use std::ops::Range;
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
/// had before anything changed it, then the device itself. It verifies tuples like that device.
pub(super) struct ImageDevice {
    pub(super) base: Arc<dyn BlockDevice>,
    pub(super) original: Arc<Mutex<Original>>,
    pub(super) content: RwLock<ImageContent>,
    pub(super) counters: Mutex<Counters>,
}

impl ImageDevice {
    fn check(&self, request: &Request<'_>) -> Result<(), MediaError> {
        check_request(&*self.base, request)?;
        self.format().map_or(Ok(()), |format| format.verify_write(self.name(), request))
    }

    fn format(&self) -> Option<ProtectionFormat> {
        self.capabilities().protection
    }

    /// Reads a range, page by page, without verifying its tuples.
    fn read(&self, range: &Range<u64>, context: &IoContext) -> Result<Sectors, MediaError> {
        let mut found = Sectors::default();
        let mut at = range.start;
        while at < range.end {
            let part = at..range.end.min((at / PAGE_BYTES + 1).saturating_mul(PAGE_BYTES));
            found.append(self.read_in_page(&part, context)?);
            at = part.end;
        }
        Ok(found)
    }

    fn read_in_page(&self, part: &Range<u64>, context: &IoContext) -> Result<Sectors, MediaError> {
        {
            let content = self.content.read();
            self.check_readable(&content.unreadable, part)?;
            if content.bytes.contains_page(part.start / PAGE_BYTES) {
                return Ok(content.bytes.sectors(part));
            }
        }
        if let Some(original) = self.read_original(part)? {
            return Ok(original);
        }
        let from_base = Sectors::read(&*self.base, part, context);
        // The base may have changed under the read; then the original content is known by now.
        match self.read_original(part)? {
            Some(original) => Ok(original),
            None => from_base,
        }
    }

    fn check_readable(&self, unreadable: &RangeSet, range: &Range<u64>) -> Result<(), MediaError> {
        match unreadable.first_within(range) {
            Some(offset_bytes) => Err(MediaError::Unreadable { device: self.name().to_owned(), offset_bytes }),
            None => Ok(()),
        }
    }

    /// Reads a part of a page from before it changed, if it did.
    fn read_original(&self, part: &Range<u64>) -> Result<Option<Sectors>, MediaError> {
        let original = self.original.lock();
        if !original.bytes.contains_page(part.start / PAGE_BYTES) {
            return Ok(None);
        }
        self.check_readable(&original.unreadable, part)?;
        Ok(Some(original.bytes.sectors(part)))
    }

    /// Takes a page over into `content`, which is about to change a part of it.
    fn take_over(&self, page: u64, context: &IoContext) -> Result<(), MediaError> {
        let start = page * PAGE_BYTES;
        let range = start..self.geometry().capacity_bytes.min(start + PAGE_BYTES);
        let is_lost = |error: &MediaError| error.kind() == MediaErrorKind::Unreadable;
        let (found, unreadable) = Sectors::salvage(self, &range, is_lost, |part| self.read(part, context))?;
        let mut content = self.content.write();
        if !content.bytes.contains_page(page) {
            content.bytes.write(start, found.as_slice());
            unreadable.into_iter().for_each(|part| content.unreadable.insert(part));
        }
        Ok(())
    }

    fn perform(&self, request: &mut Request<'_>, context: &IoContext) -> Result<(), MediaError> {
        let range = request.offset_bytes..request.offset_bytes + request.length_bytes();
        if let Transfer::Read { .. } = request.transfer {
            return self.read(&range, context)?.answer(self.name(), self.format(), request);
        }
        // Pages only partly changed need the rest of their bytes first.
        for edge in [range.start, range.end] {
            let page = edge / PAGE_BYTES;
            if !edge.is_multiple_of(PAGE_BYTES) && !self.content.read().bytes.contains_page(page) {
                self.take_over(page, context)?;
            }
        }
        let mut content = self.content.write();
        content.unreadable.remove(range.clone());
        match &request.transfer {
            Transfer::Write { data, protection, .. } => {
                let sectors = Sectors::of_write(self.format(), range.start, data, *protection);
                content.bytes.write(range.start, sectors.as_slice());
            }
            _ => content.bytes.clear(range.start, range.end - range.start),
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
