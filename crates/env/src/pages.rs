//! Large pieces of memory straight from the operating system.

use memmap2::MmapMut;
use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};

/// Zeroed memory of its own pages, given back to the operating system when dropped.
///
/// For large pieces that come and go beside small ones that stay: a general allocator keeps such
/// pieces in its heap, where what stays behind between them makes a process grow far beyond what
/// it uses. Costs two system calls and a page fault for each page touched. The address does not change.
pub struct Pages {
    map: Option<MmapMut>,
}

impl Pages {
    /// `bytes` of zeros. Like any allocation, ends the process when there is no memory.
    pub fn new(bytes: usize) -> Pages {
        if bytes == 0 {
            return Pages { map: None };
        }
        match MmapMut::map_anon(bytes) {
            Ok(map) => Pages { map: Some(map) },
            Err(_) => handle_alloc_error(Layout::from_size_align(bytes, 1).unwrap_or(Layout::new::<u8>())),
        }
    }
}

impl Deref for Pages {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Pages {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.map.as_deref_mut().unwrap_or_default()
    }
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pages({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zeroed_writable_and_stay() {
        for bytes in [0, 1, 4096, 1 << 20] {
            let mut pages = Pages::new(bytes);
            assert_eq!(pages.len(), bytes);
            assert!(pages.iter().all(|&byte| byte == 0));
            pages.fill(7);
            let address = pages.as_ptr();
            let moved = Box::new(pages);
            assert_eq!(moved.as_ptr(), address);
            assert!(moved.iter().all(|&byte| byte == 7));
        }
    }
}
