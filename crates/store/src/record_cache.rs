//! Records that a store keeps apart from the blocks they are in.

use crate::error::StoreError;
use varve_media::IoContext;

/// A record that is read and kept may have so many bytes.
pub const RECORD_BYTES_MAX: usize = 64 << 10;

/// Records of one file that are kept where a read costs less, each under a label of its reader's.
///
/// Of a block that is read for one record all others are cold, as a rule: a store that keeps the record alone keeps many times as
/// many. A label is a hash of what identifies the record in its file, of which the highest bit does not count. Two records may
/// have the same one, so whoever gets a record looks whether it is the one that was wanted. What is kept may be gone at any time,
/// and comes back as it was given or not at all. Thread-safe.
pub trait RecordCache: Send + Sync {
    /// Reads the record with a label into `record` and says true; or, where it is not kept, the block that begins at
    /// `offset_bytes` into `block`, and says false. The other one is left in any state.
    ///
    /// # Errors
    /// Those of reading the block.
    fn read_record(
        &self,
        label: u64,
        offset_bytes: u64,
        block: &mut [u8],
        record: &mut Vec<u8>,
        context: &IoContext,
    ) -> Result<bool, StoreError>;

    /// Whether a record of so many bytes is to be kept of the file it is written to again: it is kept of this one, or is read so
    /// much that it would be. Takes no I/O.
    fn follows_record(&self, label: u64, length_bytes: usize) -> bool;

    /// Offers a record that was found in the block. It never changes while the file is there. Never waits for I/O; what is longer
    /// than [`RECORD_BYTES_MAX`], read too seldom or finds no space is not kept.
    fn keep_record(&self, label: u64, record: &[u8]);
}
