//! Sizes of memtables, tables and manifests that the space of a medium allows for.

use super::headroom::{TABLE_BYTES_LIMIT_MIN, TABLE_PART};
use crate::options::Options;
use varve_store::FileStore;

/// Interval between two checks of the free space, as a fraction of a table (1/8).
const LOOK_PART: u64 = 8;

/// Sizes on one medium, with some options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Bytes at which a memtable is full: where tables have any size, no more than a table on a medium of this size may have.
    pub(crate) memtable_bytes: usize,
    /// Size at which tables of compactions are cut, where the medium does not like tables of one size.
    pub(crate) table_bytes: u64,
    /// Size from which tables of flushes are cut: only memtables that a large batch filled have more.
    pub(crate) flushed_table_bytes: u64,
    /// Size from which a manifest is replaced by a new one.
    pub(crate) manifest_bytes_max: u64,
    /// Size of logs that may be kept for entries in memory beyond what memory holds: a sixteenth of the medium.
    pub(crate) log_bytes_max: u64,
}

impl Sizes {
    /// Cost: asks the store for its space.
    pub(crate) fn new(options: &Options, files: &dyn FileStore) -> Sizes {
        let limit_bytes = table_bytes_limit(files);
        let memtable_limit_bytes = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
        Sizes {
            memtable_bytes: options.write_buffer_bytes(files.properties()).min(memtable_limit_bytes),
            table_bytes: options.target_file_size_base.min(limit_bytes),
            flushed_table_bytes: limit_bytes.saturating_add(limit_bytes / 4),
            manifest_bytes_max: options.max_manifest_file_size.min(part_bytes(files)),
            log_bytes_max: part_bytes(files).saturating_mul(8),
        }
    }

    /// Bytes of writes between two checks of the free space.
    pub(crate) fn look_bytes(&self) -> u64 {
        self.memtable_bytes as u64 / LOOK_PART
    }
}

/// Largest size of a table that the space of a medium allows for, where it does not like one size: compactions must be able
/// to rewrite some of them in what writers leave.
fn table_bytes_limit(files: &dyn FileStore) -> u64 {
    match files.properties().preferred_table_bytes {
        None => part_bytes(files),
        Some(_) => u64::MAX,
    }
}

/// A 128th of a medium. A manifest that is larger takes space that a shorter one would leave to tables.
fn part_bytes(files: &dyn FileStore) -> u64 {
    files.space().map_or(u64::MAX, |space| (space.total_bytes / TABLE_PART).max(TABLE_BYTES_LIMIT_MIN))
}
