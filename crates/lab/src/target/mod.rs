//! What is measured: any ordered key-value store, through one narrow interface.

#[cfg(test)]
mod memory;
mod null;
mod varve;

#[cfg(test)]
pub(crate) use memory::MemoryTarget;
pub use null::NullTarget;
pub use varve::VarveTarget;

use crate::media::Counters;
use std::collections::BTreeMap;

/// What a store under test said when something failed.
pub type TargetError = Box<dyn std::error::Error + Send + Sync>;

/// How far a write must have got when it is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// In the log, as far as the process is concerned: survives the end of the process, not of
    /// the machine.
    #[default]
    Buffered,
    /// On stable media.
    Synced,
}

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    #[default]
    Forward,
    /// Descending keys.
    Reverse,
}

/// One change of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key gets the value.
    Put {
        /// Key.
        key: Vec<u8>,
        /// Value.
        value: Vec<u8>,
    },
    /// The key goes.
    Delete {
        /// Key.
        key: Vec<u8>,
    },
}

impl Change {
    /// Bytes of key and value.
    pub fn payload_bytes(&self) -> u64 {
        match self {
            Change::Put { key, value } => (key.len() + value.len()) as u64,
            Change::Delete { key } => key.len() as u64,
        }
    }
}

/// A store under test, open. Dropping the last handle closes it.
///
/// Thread-safe. Each thread of a workload gets a [`Session`] of its own.
pub trait Target: Send + Sync {
    /// Name in reports, with the version where it matters: `varve 0.1.0`, `rocksdb 11.8.1`.
    fn name(&self) -> &str;

    /// A handle for one thread. It may outlive this borrow; it keeps the store open.
    fn session(&self) -> Result<Box<dyn Session>, TargetError>;

    /// Writes everything held in memory to tables and waits until that is done.
    fn flush(&self) -> Result<(), TargetError>;

    /// Returns when no background work is running and none is due.
    fn wait_idle(&self) -> Result<(), TargetError>;

    /// Merges everything into as few, as deep tables as the store can, and waits for it.
    fn compact(&self) -> Result<(), TargetError>;

    /// What the store did since it was opened. Must not disturb it noticeably.
    fn statistics(&self) -> Result<TargetStatistics, TargetError>;
}

/// The operations of one thread on a [`Target`].
pub trait Session: Send {
    /// Stores a pair, replacing what the key had.
    fn put(&mut self, key: &[u8], value: &[u8], durability: Durability) -> Result<(), TargetError>;

    /// Replaces `value` by what the key has; `false`, with `value` empty, when it has nothing.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError>;

    /// Removes a key; no error when it was not there.
    fn delete(&mut self, key: &[u8], durability: Durability) -> Result<(), TargetError>;

    /// Makes all changes or none.
    fn write(&mut self, changes: &[Change], durability: Durability) -> Result<(), TargetError>;

    /// Visits up to `limit` pairs in order. Forward begins at the first key at or after `start`,
    /// reverse at the last key at or before it; `None` is the respective end. Returns how many pairs
    /// it visited.
    fn scan(
        &mut self,
        start: Option<&[u8]>,
        direction: Direction,
        limit: u64,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64, TargetError>;
}

/// What a store did since it was opened. Numbers that a store does not have are absent, never zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetStatistics {
    /// Bytes written to logs.
    pub log_bytes: Option<u64>,
    /// Bytes memtable flushes wrote.
    pub flush_bytes: Option<u64>,
    /// Bytes compactions read.
    pub compaction_read_bytes: Option<u64>,
    /// Bytes compactions wrote.
    pub compaction_written_bytes: Option<u64>,
    /// Flushes that ended.
    pub flushes: Option<u64>,
    /// Compactions that ended, trivial moves not among them.
    pub compactions: Option<u64>,
    /// Tables that changed level without being rewritten.
    pub trivial_moves: Option<u64>,
    /// Time spent in compactions, summed over the jobs.
    pub compaction_nanos: Option<u64>,
    /// Time writers were held back.
    pub stall_nanos: Option<u64>,
    /// Block cache hits.
    pub cache_hits: Option<u64>,
    /// Block cache misses.
    pub cache_misses: Option<u64>,
    /// Bytes the store occupies on its medium now: those of whole zones where tables do not share them.
    pub space_bytes: Option<u64>,
    /// Bytes of its tables now.
    pub table_bytes: Option<u64>,
    /// Devices below it, by name; empty when the medium does not count.
    pub devices: Vec<(String, Counters)>,
    /// Anything else worth printing, by the store's own names.
    pub properties: BTreeMap<String, f64>,
}
