//! The mark in the first sector of a disk.
//!
//! The first zone belongs to the layer above while a logical zone lies in it: a store has its own mark there, or its data.
//! While the zone is a spare it would be empty, and the disk would look blank to an opening that knows nothing of
//! relocation, whatever the other zones hold. So the spare begins with a mark, which is found without the size of a zone.
//! The mark goes when the zone is reset to take a logical zone.

use super::core::Core;
use super::journal::{OWNER, UNIT_BYTES};
use crate::journal;
use varve_media::{AlignedBuffer, BlockDeviceExt, IoClass, IoContext, ZoneId};

/// Zone that begins with the first sector of the device.
pub(super) const FIRST_ZONE: ZoneId = ZoneId(0);

/// Bytes that a mark takes.
pub(super) fn mark_bytes() -> u64 {
    journal::mark(&OWNER, UNIT_BYTES as usize).len() as u64
}

impl Core {
    /// Marks the first sector where the first zone is an empty spare. The next sync makes the mark durable. A zone that
    /// refuses it stays a spare: a disk without the mark still has its journal.
    pub(super) fn mark_first_sector(&self) {
        {
            let mut state = self.state.lock();
            if !state.map.spares().iter().any(|spare| spare.zone == FIRST_ZONE && spare.is_empty) {
                return;
            }
            // Some of it may arrive.
            state.map.set_empty(FIRST_ZONE, false);
        }
        let alignment = self.capabilities.buffer_alignment_bytes.max(1) as usize;
        let bytes = AlignedBuffer::copy_of(&journal::mark(&OWNER, UNIT_BYTES as usize), alignment);
        let _ = self.inner.block.write_at(0, &bytes, &IoContext::of(IoClass::Metadata));
    }
}
