//! What every store keeps of a file beside its place.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const NEVER: u64 = u64::MAX;

/// Lengths and durability of a file; kept by the file, which outlives its name. Thread-safe: one writes, others read.
#[derive(Debug)]
pub(crate) struct FileMark {
    /// Has no name any more: the metadata hears nothing more about it. Set under the lock of the table.
    removed: AtomicBool,
    /// Change that the durable metadata must include for the file to be found whole.
    needed_change: AtomicU64,
    /// Length that readers see.
    flushed_bytes: AtomicU64,
    /// Length that is on the device, durable or not.
    written_bytes: AtomicU64,
    /// Length that is durable.
    durable_bytes: AtomicU64,
    /// When it was last written, in nanoseconds of the env; [`NEVER`] before.
    written_nanos: AtomicU64,
}

impl Default for FileMark {
    fn default() -> Self {
        FileMark::found(0)
    }
}

impl FileMark {
    /// Of a file as it was found when the store was opened.
    pub(crate) fn found(size_bytes: u64) -> FileMark {
        FileMark {
            removed: AtomicBool::new(false),
            needed_change: AtomicU64::new(0),
            flushed_bytes: AtomicU64::new(size_bytes),
            written_bytes: AtomicU64::new(size_bytes),
            durable_bytes: AtomicU64::new(size_bytes),
            written_nanos: AtomicU64::new(NEVER),
        }
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    pub(super) fn set_removed(&self) {
        self.removed.store(true, Ordering::Release);
    }

    pub(crate) fn needed_change(&self) -> u64 {
        self.needed_change.load(Ordering::Acquire)
    }

    pub(crate) fn set_needed_change(&self, change: u64) {
        self.needed_change.fetch_max(change, Ordering::AcqRel);
    }

    #[inline]
    pub(crate) fn flushed_bytes(&self) -> u64 {
        self.flushed_bytes.load(Ordering::Acquire)
    }

    /// Readers have seen what they have seen: it never goes back.
    pub(crate) fn set_flushed_bytes(&self, size_bytes: u64) {
        self.flushed_bytes.fetch_max(size_bytes, Ordering::AcqRel);
    }

    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Acquire)
    }

    /// May go back, behind what readers see.
    pub(crate) fn set_written_bytes(&self, size_bytes: u64) {
        self.written_bytes.store(size_bytes, Ordering::Release);
    }

    /// The same where what is on the device stays when a later append fails.
    pub(crate) fn raise_written_bytes(&self, size_bytes: u64) {
        self.written_bytes.fetch_max(size_bytes, Ordering::AcqRel);
    }

    pub(crate) fn durable_bytes(&self) -> u64 {
        self.durable_bytes.load(Ordering::Acquire)
    }

    pub(crate) fn set_durable_bytes(&self, size_bytes: u64) {
        self.durable_bytes.fetch_max(size_bytes, Ordering::AcqRel);
    }

    /// When it was last written since the store was opened.
    pub(crate) fn written_nanos(&self) -> Option<u64> {
        Some(self.written_nanos.load(Ordering::Relaxed)).filter(|&nanos| nanos != NEVER)
    }

    pub(crate) fn set_written_nanos(&self, nanos: u64) {
        self.written_nanos.store(nanos, Ordering::Relaxed);
    }
}
