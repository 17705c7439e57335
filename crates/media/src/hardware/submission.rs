//! One read or write on its way to the kernel.

use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};

/// Memory of one transfer.
pub(super) enum Vector<'b, 'a> {
    /// Into the caller's buffers.
    Read(&'b mut [IoSliceMut<'a>]),
    /// Into a buffer of our own.
    ReadInto(&'b mut [u8]),
    /// From the caller's buffers.
    Write(&'b [IoSlice<'a>]),
    /// From a buffer of our own.
    WriteFrom(&'b [u8]),
}

/// A transfer, and how far it came.
pub(super) struct Submission<'b, 'a> {
    pub(super) offset_bytes: u64,
    pub(super) vector: Vector<'b, 'a>,
    /// On stable media before it counts as done.
    pub(super) durable: bool,
    /// What one attempt moved; `None` while none was made.
    pub(super) attempt: Option<Result<usize, Errno>>,
}

impl Submission<'_, '_> {
    pub(super) fn length(&self) -> usize {
        match &self.vector {
            Vector::Read(slices) => slices.iter().map(|slice| slice.len()).sum(),
            Vector::ReadInto(bytes) => bytes.len(),
            Vector::Write(slices) => slices.iter().map(|slice| slice.len()).sum(),
            Vector::WriteFrom(bytes) => bytes.len(),
        }
    }
}
