//! Where the bytes of emulated persistent memory are in the address space of the process.

use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io::Error;
use std::ptr::NonNull;

/// Memory of its own pages, zero at first, which takes up only what was written. Unmapped when
/// dropped.
pub(super) struct Region {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory belongs to nobody else until `drop`. It is accessed through raw pointers only,
// under the rules of `PersistentMemory`.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Zeros.
    pub(super) fn anonymous(length_bytes: u64) -> Result<Region, Error> {
        let length = usize::try_from(length_bytes).map_err(|_| Error::from(std::io::ErrorKind::OutOfMemory))?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: the kernel chooses where, so nothing that is in use is covered.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, access, flags) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Region { start, length })
    }

    /// First byte.
    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Makes a range zero and gives back the pages that lie within it.
    ///
    /// # Safety
    /// The range lies within the region, and no reference to its bytes is alive.
    pub(super) unsafe fn clear(&self, at: usize, length: usize) {
        let page = rustix::param::page_size();
        let (first, last) = (at.next_multiple_of(page), (at + length) / page * page);
        let zero = |from: usize, to: usize| {
            let zeros = [0; 4096];
            let mut from = from;
            while from < to {
                let part = (to - from).min(zeros.len());
                // SAFETY: as the caller says.
                unsafe { super::words::store(self.start().add(from), &zeros[..part]) };
                from += part;
            }
        };
        if first >= last {
            return zero(at, at + length);
        }
        zero(at, first);
        zero(last, at + length);
        // SAFETY: whole pages of this mapping. Pages of private memory without a file read as zeros
        // afterwards.
        let advised =
            unsafe { rustix::mm::madvise(self.start().add(first).cast(), last - first, Advice::LinuxDontNeed) };
        if advised.is_err() {
            zero(first, last);
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped in `anonymous` with this length; no reference outlives the memory.
        let _ = unsafe { rustix::mm::munmap(self.start().cast(), self.length) };
    }
}
