//! Memory whose start is aligned, as direct reads and cache lines need it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes of fixed length at an aligned address, zeroed at first.
pub(crate) struct AlignedBuffer {
    start: NonNull<u8>,
    length: usize,
    alignment: usize,
}

// SAFETY: the buffer owns its memory alone, like a `Box<[u8]>`.
unsafe impl Send for AlignedBuffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// A buffer of zeros. `alignment` is raised to a power of two. `None` when there is no memory for
    /// it, so that a length read from a medium cannot end the process.
    pub(crate) fn zeroed(length: usize, alignment: usize) -> Option<Self> {
        let alignment = alignment.max(1).next_power_of_two();
        if length == 0 {
            return Some(AlignedBuffer { start: NonNull::dangling(), length, alignment });
        }
        let layout = Layout::from_size_align(length, alignment).ok()?;
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        match start {
            Some(start) => Some(AlignedBuffer { start, length, alignment }),
            // A small request fails only when nothing goes on anyway.
            None if length < 1 << 20 => handle_alloc_error(layout),
            None => None,
        }
    }
}

impl AlignedBuffer {
    /// No bytes.
    pub(crate) fn empty() -> Self {
        AlignedBuffer { start: NonNull::dangling(), length: 0, alignment: 1 }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if self.length > 0
            && let Ok(layout) = Layout::from_size_align(self.length, self.alignment)
        {
            // SAFETY: allocated in `zeroed` with this very layout, and not freed before.
            unsafe { dealloc(self.start.as_ptr(), layout) }
        }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `length` initialised bytes are there for as long as `self` is (dangling is fine
        // for length 0).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for AlignedBuffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` shows that nobody else looks.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_where_asked_and_is_writable_to_its_end() {
        for alignment in [0, 1, 3, 64, 512, 4096] {
            for length in [0, 1, 511, 4096, 100_000] {
                let mut buffer = AlignedBuffer::zeroed(length, alignment).expect("small");
                assert_eq!(buffer.len(), length);
                assert!(buffer.iter().all(|byte| *byte == 0));
                if length > 0 {
                    assert_eq!(buffer.as_ptr().align_offset(alignment.max(1).next_power_of_two()), 0);
                    buffer.fill(7);
                    assert_eq!(buffer[length - 1], 7);
                }
            }
        }
    }

    #[test]
    fn an_impossible_length_is_refused() {
        assert!(AlignedBuffer::zeroed(usize::MAX, 1).is_none());
        assert!(AlignedBuffer::zeroed(isize::MAX as usize, 1).is_none());
    }
}
