//! Buffers aligned in memory, for direct I/O.

use std::ops::{Deref, DerefMut};

/// A byte buffer whose first byte lies at a multiple of an alignment.
///
/// Zeroed when made; its length never changes. Costs up to one alignment more memory than asked.
pub struct AlignedBuffer {
    /// Never grown, so its heap block never moves and the alignment lasts.
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// A zeroed buffer of `length_bytes` at a multiple of `alignment_bytes` (0 counts as 1).
    pub fn new(length_bytes: usize, alignment_bytes: usize) -> Self {
        let alignment = alignment_bytes.max(1);
        let bytes = vec![0; length_bytes + alignment - 1];
        let start = (alignment - bytes.as_ptr().addr() % alignment) % alignment;
        AlignedBuffer { bytes, start, length: length_bytes }
    }

    /// A copy of `data` at a multiple of `alignment_bytes`.
    pub fn copy_of(data: &[u8], alignment_bytes: usize) -> Self {
        let mut buffer = AlignedBuffer::new(data.len(), alignment_bytes);
        buffer.copy_from_slice(data);
        buffer
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.length)
    }
}

/// Whether `data` begins at a multiple of `alignment_bytes`.
pub(crate) fn is_aligned(data: &[u8], alignment_bytes: usize) -> bool {
    alignment_bytes <= 1 || data.as_ptr().addr().is_multiple_of(alignment_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_at_the_alignment_and_stays_there() {
        for alignment in [0, 1, 8, 512, 4096, 65536] {
            for length in [0, 1, 511, 4096] {
                let mut buffer = AlignedBuffer::new(length, alignment);
                assert_eq!(buffer.len(), length);
                assert!(is_aligned(&buffer, alignment));
                buffer.fill(7);
                let moved = Box::new(buffer);
                assert!(is_aligned(&moved, alignment));
                assert!(moved.iter().all(|&byte| byte == 7));
            }
        }
        assert_eq!(&AlignedBuffer::copy_of(b"abc", 512)[..], b"abc");
    }
}
