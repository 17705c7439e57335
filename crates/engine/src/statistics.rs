//! What a database did since it was opened.

mod properties;

use crate::log::{LogCounters, LogGate};
use crate::snapshot::SnapshotList;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use varve_store::ZoneSpace;

/// Cache lines a count is spread over.
const STRIPES: usize = 16;

/// A count of what readers do: threads add to it without writing what others write, as long as there are not too many.
#[derive(Debug, Default)]
pub(crate) struct StripedCounter {
    stripes: [Stripe; STRIPES],
}

/// Two cache lines: processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

impl StripedCounter {
    #[inline]
    pub(crate) fn fetch_add(&self, count: u64, order: Ordering) {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static STRIPE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES;
        }
        // A thread that ends has no number any more.
        let stripe = STRIPE.try_with(|stripe| *stripe).unwrap_or(0);
        self.stripes[stripe].0.fetch_add(count, order);
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        self.stripes.iter().map(|stripe| stripe.0.load(order)).sum()
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident: $counter:ident),* $(,)?) => {
        /// Live counters, updated from any thread.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: $counter),* }

        /// Counters of a database since it was opened, read one by one (not as one moment). Any tree counts writes, logs, reads, and
        /// what holds writers back; trees of tables count flushes and compactions beside that, and a tree in memory what it wrote anew
        /// as compactions.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
        #[non_exhaustive]
        pub struct CounterValues { $($(#[$doc])* pub $name: u64),* }

        impl Counters {
            fn values(&self) -> CounterValues {
                CounterValues { $($name: self.$name.load(Ordering::Relaxed)),* }
            }
        }
    };
}

counters! {
    /// Bytes of keys and values users wrote.
    user_written_bytes: AtomicU64,
    /// Entries users wrote.
    user_written_entries: AtomicU64,
    /// Batches written.
    write_batches: AtomicU64,
    /// Groups of batches that shared one log append.
    write_groups: AtomicU64,
    /// Bytes appended to logs.
    log_bytes: AtomicU64,
    /// Syncs of logs.
    log_syncs: AtomicU64,
    /// Bytes of torn log tails that opening dropped: nothing says that they were durable.
    recovery_dropped_bytes: AtomicU64,
    /// Tables flushed from memtables.
    flushes: AtomicU64,
    /// Flushes of one range of keys, while others stayed in memory.
    range_flushes: AtomicU64,
    /// Bytes of tables flushed.
    flush_written_bytes: AtomicU64,
    /// Time spent flushing, all jobs added up.
    flush_nanos: AtomicU64,
    /// Compactions that rewrote tables.
    compactions: AtomicU64,
    /// Tables of compactions that became part of the tree while these went on.
    compaction_pieces: AtomicU64,
    /// Compactions that only moved a table to another level.
    trivial_moves: AtomicU64,
    /// Bytes compactions read.
    compaction_read_bytes: AtomicU64,
    /// Bytes compactions wrote.
    compaction_written_bytes: AtomicU64,
    /// Entries compactions read.
    compaction_read_entries: AtomicU64,
    /// Entries compactions dropped: overwritten, or deleted.
    compaction_dropped_entries: AtomicU64,
    /// Time spent compacting, all jobs added up.
    compaction_nanos: AtomicU64,
    /// Background jobs that failed.
    background_errors: AtomicU64,
    /// Time writers were held back.
    stall_nanos: AtomicU64,
    /// Times a writer was held back.
    stalls: AtomicU64,
    /// Bursts of background work, which have the medium to themselves.
    bursts: AtomicU64,
    /// Writes of logs that waited for a burst.
    log_waits_for_bursts: AtomicU64,
    /// Groups of batches refused because the medium was out of space.
    writes_out_of_space: AtomicU64,
    /// Gets.
    gets: StripedCounter,
    /// Gets that found a value.
    gets_found: StripedCounter,
    /// Iterators made.
    iterators: StripedCounter,
    /// Entries that iterators stepped over and did not show: deletions, what these delete, older versions, and versions that are
    /// newer than what they read.
    scan_skipped_entries: StripedCounter,
    /// Flushes of memtables whose deletions scans stepped over again and again.
    scan_flushes: AtomicU64,
    /// Compactions of tables whose deletions scans stepped over again and again.
    scan_compactions: AtomicU64,
}

impl Counters {
    /// Of an opening that dropped so many bytes of torn log tails.
    pub(crate) fn after_recovery(dropped_bytes: u64) -> Counters {
        Counters { recovery_dropped_bytes: AtomicU64::new(dropped_bytes), ..Counters::default() }
    }

    /// A group of so many batches was committed, with so many entries, of so many bytes of keys and values.
    pub(crate) fn note_group(&self, batches: usize, entries: u64, bytes: usize) {
        self.write_groups.fetch_add(1, Ordering::Relaxed);
        self.write_batches.fetch_add(batches as u64, Ordering::Relaxed);
        self.user_written_entries.fetch_add(entries, Ordering::Relaxed);
        self.user_written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// So many keys were looked up, of which so many had values.
    #[inline]
    pub(crate) fn note_gets(&self, keys: usize, found: usize) {
        self.gets.fetch_add(keys as u64, Ordering::Relaxed);
        if found > 0 {
            self.gets_found.fetch_add(found as u64, Ordering::Relaxed);
        }
    }
}

macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What was done to a database since it was created: sums over all flushes and compactions whose result became
        /// part of the tree, those of openings that ended with a crash included. See [`Db::totals`](crate::Db::totals).
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        #[non_exhaustive]
        pub struct Totals { $($(#[$doc])* pub $name: u64),* }

        impl Totals {
            /// Names and values; their order is part of the manifest's format.
            pub(crate) fn fields(&self) -> [(&'static str, u64); [$(stringify!($name)),*].len()] {
                [$((stringify!($name), self.$name)),*]
            }

            /// The same, to be set.
            pub(crate) fn fields_mut(&mut self) -> [(&'static str, &mut u64); [$(stringify!($name)),*].len()] {
                [$((stringify!($name), &mut self.$name)),*]
            }
        }
    };
}

totals! {
    /// Flushes: of one memtable, or of several at once. Those of opening a database, which make tables of what its logs
    /// hold, are among them.
    flush_jobs,
    /// Entries users wrote (deletions are entries) of what was flushed. What is still in memtables and logs is not counted.
    flush_user_entries,
    /// Bytes of keys and values of these entries.
    flush_user_bytes,
    /// Tables flushes wrote.
    flush_written_tables,
    /// Their bytes.
    flush_written_bytes,
    /// Compactions that rewrote tables.
    compactions,
    /// Tables that only moved to another level.
    trivial_moves,
    /// Tables compactions replaced.
    compaction_read_tables,
    /// Their bytes.
    compaction_read_bytes,
    /// Tables compactions wrote.
    compaction_written_tables,
    /// Their bytes.
    compaction_written_bytes,
}

impl Totals {
    /// Both together. A sum that would not fit stays at the largest number.
    pub(crate) fn plus(mut self, more: &Totals) -> Totals {
        for ((_, sum), (_, value)) in self.fields_mut().into_iter().zip(more.fields()) {
            *sum = sum.saturating_add(value);
        }
        self
    }

    /// Bytes written to tables per byte of keys and values flushed, logs not counted; 0 before the first flush.
    pub fn table_write_amplification(&self) -> f64 {
        if self.flush_user_bytes == 0 {
            return 0.0;
        }
        (self.flush_written_bytes as f64 + self.compaction_written_bytes as f64) / self.flush_user_bytes as f64
    }
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
    /// There is little space: puts wait while flushes and compactions may bring some back, and then fail with
    /// [`ErrorKind::NoSpace`](crate::ErrorKind::NoSpace). Batches of nothing but deletes are taken.
    DeletesOnly,
    /// What space is left is for compactions: deletes wait and fail too.
    Full,
    /// None since a failure that left the medium unknown.
    Poisoned,
}

impl WriteState {
    /// What it means and what helps, for people.
    pub fn advice(self) -> &'static str {
        match self {
            WriteState::Open => "taken as fast as they come",
            WriteState::Slowed => "slowed, because compactions are behind; write less, or give compactions more jobs",
            WriteState::Stopped => "stopped until compactions catch up; write less, or give compactions more jobs",
            WriteState::DeletesOnly => {
                "deletes only, because there is little space; delete what is not needed, remove other files, or copy the \
                 database to a larger medium"
            }
            WriteState::Full => {
                "refused, because what space is left is for compactions; wait for them, remove other files, or copy the \
                 database to a larger medium"
            }
            WriteState::Poisoned => "refused since a failure; close the database and open it again",
        }
    }
}

/// Space on the medium of the tables, and what writes leave of it; in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SpaceStatistics {
    /// All there is.
    pub total_bytes: u64,
    /// What can be written by anyone.
    pub available_bytes: u64,
    /// What the store keeps beside it for outputs of compactions.
    pub reserve_bytes: u64,
    /// What of these two running compactions were given and have not written yet. Without a reserve, writes are taken by
    /// what is available beside it.
    pub compactions_reserved_bytes: u64,
    /// Available bytes below which puts are refused: what memtables will become, and the option
    /// `compaction_buffer_size`.
    pub left_by_puts_bytes: u64,
    /// Available bytes below which deletes are refused too.
    pub left_by_deletes_bytes: u64,
    /// Use of zones; none where the medium has none.
    pub zones: Option<ZoneStatistics>,
}

/// Use of the zones of the medium of the tables; sums over its devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ZoneStatistics {
    /// Writable bytes of a zone, the largest where devices differ.
    pub zone_bytes: u64,
    /// Number of zones that can hold files.
    pub total: u32,
    /// Number of zones that are free, or will be once removals are durable.
    pub free: u32,
    /// Number of free zones that are kept for outputs of compactions, logs, and copies out of zones that are emptied.
    pub kept: u32,
    /// Writable bytes of the zones that hold tables or cached blocks, full or not.
    pub table_zones_bytes: u64,
    /// Several tables may lie in one zone.
    pub is_shared: bool,
}

impl From<ZoneSpace> for ZoneStatistics {
    fn from(zones: ZoneSpace) -> Self {
        let ZoneSpace { zone_bytes, total, free, kept, table_zones_bytes, is_shared } = zones;
        ZoneStatistics { zone_bytes, total, free, kept, table_zones_bytes, is_shared }
    }
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

/// Everything a database tells about itself: what any tree has, and what is a kind's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Statistics {
    /// Counters since open.
    pub counters: CounterValues,
    /// Which writes are taken now.
    pub write_state: WriteState,
    /// Memory of memtables, in bytes.
    pub memtable_bytes: u64,
    /// Newest sequence number visible.
    pub last_sequence: u64,
    /// Snapshots alive.
    pub snapshots: usize,
    /// Space on the medium; none where the store cannot tell, or the tree leaves none of it for anything.
    pub space: Option<SpaceStatistics>,
    /// Of trees of tables. Written down (JSON), its fields stand beside those of any tree.
    #[serde(flatten)]
    pub tables: Option<TableStatistics>,
}

/// What trees of tables (`leveled`, `two_level`) tell beside what any tree does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TableStatistics {
    /// Levels, from 0.
    pub levels: Vec<LevelStatistics>,
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
    /// Jobs running now.
    pub running_jobs: usize,
}

impl Statistics {
    /// What is the same for any tree: counters, the newest sequence number, snapshots. The rest is left to the tree.
    pub(crate) fn of_any_tree(
        counters: &Counters,
        (logs, gate): (&LogCounters, &LogGate),
        snapshots: &SnapshotList,
    ) -> Statistics {
        let mut counters = counters.values();
        counters.log_bytes = logs.file_bytes.load(Ordering::Relaxed);
        counters.log_syncs = logs.syncs.load(Ordering::Relaxed);
        counters.bursts = gate.bursts();
        counters.log_waits_for_bursts = gate.waits();
        let (last_sequence, snapshots) = (snapshots.visible(), snapshots.len());
        Statistics { counters, last_sequence, snapshots, ..Statistics::default() }
    }

    /// Levels from 0; none of trees that have none.
    pub fn levels(&self) -> &[LevelStatistics] {
        self.tables.as_ref().map_or(&[], |tables| &tables.levels)
    }

    /// Bytes of all tables.
    pub fn table_bytes(&self) -> u64 {
        self.levels().iter().map(|level| level.bytes).fold(0, u64::saturating_add)
    }

    /// Bytes of the medium that tables take: those of whole zones where tables do not share them, elsewhere those of the tables.
    pub fn table_space_bytes(&self) -> u64 {
        let zones = self.space.as_ref().and_then(|space| space.zones).filter(|zones| !zones.is_shared);
        zones.map_or(0, |zones| zones.table_zones_bytes).max(self.table_bytes())
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers come from a file: the largest ones there can be are no reason to panic.
    #[test]
    fn totals_that_do_not_fit_stay_at_the_largest_number() {
        let most = Totals { flush_jobs: u64::MAX, flush_written_bytes: u64::MAX, ..Totals::default() };
        let sum = most.plus(&Totals { flush_jobs: 1, flush_user_bytes: 1, compactions: 2, ..Totals::default() });
        assert_eq!((sum.flush_jobs, sum.flush_user_bytes, sum.compactions), (u64::MAX, 1, 2));
        assert_eq!(sum.table_write_amplification(), u64::MAX as f64);
        assert_eq!(most.table_write_amplification(), 0.0);
    }
}
