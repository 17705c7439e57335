//! The device a power cut left.

use crate::context::IoContext;
use crate::device::{BlockDevice, BlockDeviceExt, Capabilities, Counters, Geometry};
use crate::error::MediaError;
use crate::request::{Request, Transfer, check_request};
use crate::sparse::{PAGE_BYTES, SparseBytes};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;

/// Content over a device that is only read: pages of `content` first, then the content the device
/// had before anything changed it, then the device itself.
pub(super) struct ImageDevice {
    pub(super) base: Arc<dyn BlockDevice>,
    pub(super) original: Arc<Mutex<SparseBytes>>,
    pub(super) content: RwLock<SparseBytes>,
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
                let found = content.contains_page(page);
                if found {
                    content.read(at, target);
                }
                found
            };
            if !found && !read_page(&self.original.lock(), at, target) {
                self.read_base(at, target, context)?;
                // The base may have changed under the read; then the original content is known by now.
                read_page(&self.original.lock(), at, target);
            }
            at += count as u64;
            rest = later;
        }
        Ok(())
    }

    fn read_base(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<(), MediaError> {
        let sector = u64::from(self.base.geometry().sector_bytes);
        let start = offset_bytes / sector * sector;
        let length = (offset_bytes + data.len() as u64).next_multiple_of(sector) - start;
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
                    if !edge.is_multiple_of(PAGE_BYTES) && !self.content.read().contains_page(page) {
                        let start = page * PAGE_BYTES;
                        let capacity_bytes = self.base.geometry().capacity_bytes;
                        let mut bytes = vec![0; PAGE_BYTES.min(capacity_bytes - start) as usize];
                        self.read(start, &mut bytes, context)?;
                        let mut content = self.content.write();
                        if !content.contains_page(page) {
                            content.write(start, &bytes);
                        }
                    }
                }
                let mut content = self.content.write();
                match &request.transfer {
                    Transfer::Write { data, .. } => {
                        for slice in data.iter() {
                            content.write(at, slice);
                            at += slice.len() as u64;
                        }
                    }
                    _ => content.clear(at, length_bytes),
                }
            }
        }
        Ok(())
    }
}

fn read_page(bytes: &SparseBytes, offset_bytes: u64, data: &mut [u8]) -> bool {
    let found = bytes.contains_page(offset_bytes / PAGE_BYTES);
    if found {
        bytes.read(offset_bytes, data);
    }
    found
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
