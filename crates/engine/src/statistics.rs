//! What a database did since it was opened.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Live counters, updated from any thread.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64),* }

        /// Counters of a database since it was opened, read one by one (not as one moment).
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
        #[non_exhaustive]
        pub struct CounterValues { $($(#[$doc])* pub $name: u64),* }

        impl Counters {
            pub(crate) fn values(&self) -> CounterValues {
                CounterValues { $($name: self.$name.load(Ordering::Relaxed)),* }
            }
        }
    };
}

counters! {
    /// Bytes of keys and values users wrote.
    user_written_bytes,
    /// Entries users wrote.
    user_written_entries,
    /// Batches written.
    write_batches,
    /// Groups of batches that shared one log append.
    write_groups,
    /// Bytes appended to logs.
    log_bytes,
    /// Syncs of logs.
    log_syncs,
    /// Bytes of torn log tails, never acknowledged as durable, that opening dropped.
    recovery_dropped_bytes,
    /// Tables flushed from memtables.
    flushes,
    /// Bytes of tables flushed.
    flush_written_bytes,
    /// Time spent flushing, all jobs added up.
    flush_nanos,
    /// Compactions that rewrote tables.
    compactions,
    /// Compactions that only moved a table to another level.
    trivial_moves,
    /// Bytes compactions read.
    compaction_read_bytes,
    /// Bytes compactions wrote.
    compaction_written_bytes,
    /// Entries compactions read.
    compaction_read_entries,
    /// Entries compactions dropped: overwritten, or deleted.
    compaction_dropped_entries,
    /// Time spent compacting, all jobs added up.
    compaction_nanos,
    /// Background jobs that failed.
    background_errors,
    /// Time writers were held back.
    stall_nanos,
    /// Times a writer was held back.
    stalls,
    /// Groups of batches refused because the medium was out of room.
    writes_out_of_room,
    /// Gets.
    gets,
    /// Gets that found a value.
    gets_found,
    /// Iterators made.
    iterators,
}

/// Which writes are taken at this moment, and what is in the way of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WriteState {
    /// All, as fast as they come.
    #[default]
    Open,
    /// All, slowed: compactions are behind.
    Slowed,
    /// None until compactions catch up.
    Stopped,
    /// Room is short: puts wait while flushes and compactions may bring some back, and then fail with
    /// [`ErrorKind::NoSpace`](crate::ErrorKind::NoSpace). Batches of nothing but deletes are taken.
    DeletesOnly,
    /// What room is left is for compactions: deletes wait and fail too.
    Full,
    /// None since a failure that left the medium unknown.
    Latched,
}

impl WriteState {
    /// What it means and what helps, for people.
    pub fn advice(self) -> &'static str {
        match self {
            WriteState::Open => "taken as fast as they come",
            WriteState::Slowed => "slowed, because compactions are behind; write less, or give compactions more jobs",
            WriteState::Stopped => "stopped until compactions catch up; write less, or give compactions more jobs",
            WriteState::DeletesOnly => {
                "deletes only, because room is short; delete what is not needed, remove other files, or copy the \
                 database to a larger medium"
            }
            WriteState::Full => {
                "refused, because what room is left is for compactions; wait for them, remove other files, or copy the \
                 database to a larger medium"
            }
            WriteState::Latched => "refused since a failure; close the database and open it again",
        }
    }
}

/// Room on the medium of the tables, and what writes leave of it; in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RoomStatistics {
    /// All there is.
    pub total_bytes: u64,
    /// What can be written by anyone.
    pub available_bytes: u64,
    /// What the store keeps beside it for outputs of compactions.
    pub reserve_bytes: u64,
    /// Available bytes below which puts are refused: what memtables will become, and the option
    /// `compaction_buffer_size`.
    pub left_by_puts_bytes: u64,
    /// Available bytes below which deletes are refused too.
    pub left_by_deletes_bytes: u64,
}

/// Tables of one level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LevelStatistics {
    /// Level.
    pub level: usize,
    /// Tables.
    pub tables: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Entries in them, deletions included.
    pub entries: u64,
    /// Deletions in them.
    pub deletions: u64,
}

/// Everything a database tells about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Statistics {
    /// Counters since open.
    pub counters: CounterValues,
    /// Which writes are taken now.
    pub write_state: WriteState,
    /// Room on the medium; none where the store cannot tell.
    pub room: Option<RoomStatistics>,
    /// Levels, from 0.
    pub levels: Vec<LevelStatistics>,
    /// Memory of memtables, in bytes.
    pub memtable_bytes: u64,
    /// Memtables waiting to be flushed.
    pub immutable_memtables: usize,
    /// Bytes in the block cache.
    pub block_cache_bytes: u64,
    /// Blocks put into the block cache: reads it could not answer.
    pub block_cache_insertions: u64,
    /// Blocks it dropped to make room.
    pub block_cache_evictions: u64,
    /// Memory of open tables (index and filter), in bytes.
    pub table_memory_bytes: u64,
    /// Tables open.
    pub open_tables: usize,
    /// Bytes compactions must still move.
    pub pending_compaction_bytes: u64,
    /// Newest sequence number visible.
    pub last_sequence: u64,
    /// Snapshots alive.
    pub snapshots: usize,
    /// Jobs running now.
    pub running_jobs: usize,
}

impl Statistics {
    /// Bytes written to tables and logs per byte users wrote; 0 before the first write.
    pub fn write_amplification(&self) -> f64 {
        let counters = &self.counters;
        if counters.user_written_bytes == 0 {
            return 0.0;
        }
        (counters.log_bytes + counters.flush_written_bytes + counters.compaction_written_bytes) as f64
            / counters.user_written_bytes as f64
    }
}
