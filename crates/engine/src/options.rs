//! Options, under the names users of log-structured stores know.

mod description;
mod effect;
mod experiment;
mod profile;
mod readahead;

pub use description::{DatabaseOption, OptionUnit};
pub use effect::OptionWithoutEffect;
pub use experiment::{ExperimentOptions, moved_option};
pub use profile::{Choice, Favour, Profile};
pub(crate) use readahead::GrowingReadahead;

use crate::error::Error;
use description::described_options;
use serde::{Deserialize, Serialize};
use varve_store::StoreProperties;

/// More than any machine has: a size of something held in memory that is larger is a mistake.
pub(crate) const MEMORY_BYTES_MAX: u64 = 1 << 40;

/// Largest file that is asked for.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 40;

/// More than any medium holds.
pub(crate) const MEDIUM_BYTES_MAX: u64 = 256 << 40;

/// Longest stall of a write that is asked for, in milliseconds: a minute.
const WRITE_STALL_MS_MAX: u64 = 60_000;

/// Least and most bytes that are read ahead where the medium decides. What is read ahead is held in memory for each table that is walked.
const READ_AHEAD_BYTES: (u64, u64) = (256 << 10, 4 << 20);

/// Blocks an iterator reads of a table before it reads ahead, and bytes of its first read-ahead, where a read positions first: 64 KiB take
/// hardly longer than a block there, and the next read as long again.
const FIRST_READ_AHEAD_POSITIONING: (u32, usize) = (0, 64 << 10);

/// The same where no read positions.
const FIRST_READ_AHEAD: (u32, usize) = (2, 16 << 10);

/// How blocks of a level are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// LZ4 block format.
    Lz4,
    /// Zstandard, level 3.
    Zstd,
}

/// Which table of a level is compacted first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CompactionPriority {
    /// The one that overlaps least of the next level, by its size: writes least. Tables that overlap nothing go
    /// first, and are moved without being rewritten.
    #[default]
    MinOverlappingRatio,
    /// The largest; deletions count as if they made it larger. RocksDB's default before version 6.
    ByCompensatedSize,
    /// The next one by key behind the last one compacted, as in LevelDB.
    RoundRobin,
}

/// Makes the kinds of trees from their list: those that keep data in tables, and the others, each with its name.
macro_rules! tree_kinds {
    (
        tables { $($(#[$what:meta])* $kind:ident = $name:literal,)* }
        others { $($(#[$other_what:meta])* $other:ident = $other_name:literal,)* }
    ) => {
        /// How data is organised.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum TreeKind {
            $($(#[$what])* $kind,)*
            $($(#[$other_what])* $other,)*
        }

        impl TreeKind {
            /// Every kind.
            pub const ALL: [TreeKind; [$($name,)* $($other_name,)*].len()] =
                [$(TreeKind::$kind,)* $(TreeKind::$other,)*];

            /// Those that keep data in tables.
            pub const OF_TABLES: [TreeKind; [$($name),*].len()] = [$(TreeKind::$kind),*];

            /// As in options.
            pub fn name(self) -> &'static str {
                match self {
                    $(TreeKind::$kind => $name,)*
                    $(TreeKind::$other => $other_name,)*
                }
            }
        }
    };
}

tree_kinds! {
    tables {
        /// Levels of disjoint tables, each a multiple of the one above (LevelDB, RocksDB).
        #[default]
        Leveled = "leveled",
        /// Two levels whose tables may both overlap, for tables as large as a band (SMRDB).
        TwoLevel = "two_level",
    }
    others {
        /// An ordered map in memory, and its log: what fits in memory, and is written anew now and then.
        Memory = "memory",
    }
}

described_options! {
    /// Options of a database. Sizes in bytes. Every field has a default; from TOML, unknown fields are
    /// errors. [`Options::ALL`] describes them.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct Options {
        /// What the database is good at where the medium does not allow all at once: `writes`, `balanced` or `scans`. Decides what is unset of
        /// `tree`, `overlap_depth_max`, `flush_key_ranges` and `compact_in_pieces`.
        favour: Favour = Favour::Balanced, "balanced", Word;
        /// Where the values of unset options come from: `medium` is the best known configuration, `paper` that of the paper for the medium. It also
        /// decides how a new store on an interlaced disk allocates tracks, and how one on several devices places tables, where the spec does not.
        profile: Profile = Profile::Medium, "medium", Word;
        /// Kind of tree. Unset is the tree that is on the medium; a new database gets `two_level` where writes are favoured and no
        /// faster device takes low levels, otherwise `leveled`.
        tree: Option<TreeKind> = None, "unset", Word, "unset is the tree that is there; a new one is two_level where writes are favoured and no faster device takes low levels, otherwise leveled";
        /// Create the database when there is none.
        create_if_missing: bool = true, "true", Truth;
        /// Refuse to open when there is one.
        error_if_exists: bool = false, "false", Truth;
        /// Memtable size at which it becomes immutable and is flushed; less on media that like smaller tables (bands), or are
        /// small.
        write_buffer_size: usize = 64 << 20, "64MiB", Bytes, "at most a 64th less than the table the medium likes (a band), where it likes one, elsewhere a 128th of the medium";
        /// Memtables, the active one included; writes stop when all are full.
        max_write_buffer_number: usize = 3, "3", Memtables;
        /// Trees of two levels: divide memtables by keys, and flush the narrowest range of keys that fills a table when all of them
        /// together, `max_write_buffer_number` of `write_buffer_size`, are nearly full, instead of all keys when one is. Tables are as
        /// narrow as that allows: with two memtables about a third of keys that are uniform, and as much less is rewritten for as much order. Logs
        /// become as much longer, up to four times all memtables, and opening after a crash reads them.
        flush_key_ranges: Option<bool> = None, "unset", Truth, "unset is true in a tree of two levels where writes or scans are favoured";
        /// Tables in level 0 that start a compaction.
        level0_file_num_compaction_trigger: usize = 4, "4", Tables;
        /// Tables in level 0 at which writes are slowed; at least `level0_file_num_compaction_trigger`.
        level0_slowdown_writes_trigger: usize = 20, "20", Tables;
        /// Tables in level 0 at which writes stop; at least `level0_slowdown_writes_trigger`.
        level0_stop_writes_trigger: usize = 36, "36", Tables;
        /// Bytes awaiting compaction at which writes are slowed; 0 is never.
        soft_pending_compaction_bytes_limit: u64 = 64 << 30, "64GiB", Bytes;
        /// Bytes awaiting compaction at which writes stop, at least `soft_pending_compaction_bytes_limit`; 0 is never.
        hard_pending_compaction_bytes_limit: u64 = 256 << 30, "256GiB", Bytes;
        /// Trees of two levels: tables of level 0 that one compaction takes.
        max_level0_compaction_tables: usize = 8, "8", Tables;
        /// Trees of two levels: tables of level 1 overlapping one of them that start a compaction within the level.
        level1_overlap_compaction_trigger: usize = 8, "8", Tables;
        /// Trees of two levels: tables that may overlap in one key; where there are more, those are merged with which a
        /// rewritten byte gains most order. Deletions count as more tables by the bytes they delete. 0 is the paper's selection (SMRDB), which
        /// the two triggers above steer and which does not look at deletions.
        overlap_depth_max: Option<usize> = None, "unset", Tables, "unset is 11 where writes are favoured, 5 where scans are, otherwise 0";
        /// Trees of two levels: tables that a compaction writes become part of the tree one by one, in place of what was read for them,
        /// instead of all at its end. Less space is taken and fewer tables overlap meanwhile, for a change of the manifest to a table. Compactions that
        /// several threads share, or that must not leave more tables than they read, go on doing it at once. With `overlap_depth_max` what is
        /// merged is selected by the space it frees too.
        compact_in_pieces: Option<bool> = None, "unset", Truth, "unset is true in a tree of two levels where writes or scans are favoured";
        /// Levels of a leveled tree.
        num_levels: usize = 7, "7", Levels;
        /// Size of level 1.
        max_bytes_for_level_base: u64 = 256 << 20, "256MiB", Bytes;
        /// Size ratio of adjacent levels.
        max_bytes_for_level_multiplier: u64 = 10, "10", Factor;
        /// Derive level sizes from the last level upwards, so space stays near the data's size.
        level_compaction_dynamic_level_bytes: bool = true, "true", Truth;
        /// What may gather above the last level of a leveled tree with dynamic sizes, as a share of it, before it goes into it: the
        /// more, the less is written, and the more space what was overwritten takes. Levels above the last one hold a
        /// run each, of any size (lazy leveling). In a tree that two compactions of `max_compaction_bytes` may take, twice
        /// `max_bytes_for_level_base` gathers if that is more, up to three quarters of the last level; where it is half more than
        /// that, tables wait in level 0 for it, up to three fifths of `level0_slowdown_writes_trigger`.
        /// 0 is levels of a fixed ratio.
        max_size_amplification_percent: u64 = 12, "12", Percent;
        /// Table size of level 1 and below; on media that like tables of one size (bands) they have that size,
        /// on small ones less.
        target_file_size_base: u64 = 64 << 20, "64MiB", Bytes, "the size of table the medium likes (a band), where it likes one, elsewhere a 128th of the medium at most";
        /// Bytes one compaction may read; larger ones are split.
        max_compaction_bytes: u64 = 25 * (64 << 20), "1600MiB", Bytes;
        /// Space on the medium that puts leave for deletes and compactions, beside what memtables will become, so that a full
        /// one can be emptied; deletes leave a quarter of it, half where tables have no size of their own. Unset picks five
        /// tables where these have (bands), elsewhere eight, a sixteenth of the medium at most unless one value is larger
        /// than tables there; 0 leaves none. With `tree=memory` it is what puts leave for deletes; the space for rewriting the log is
        /// left in any case.
        compaction_buffer_size: Option<u64> = None, "unset", Bytes, "unset is five tables (bands), elsewhere eight, a sixteenth of the medium at most";
        /// Flushes and compactions at once.
        max_background_jobs: usize = 2, "2", Jobs;
        /// Threads one compaction may use.
        max_subcompactions: usize = 1, "1", Threads;
        /// Uncompressed size at which a block is cut.
        block_size: usize = 4096, "4KiB", Bytes;
        /// Entries between restart points of a block.
        block_restart_interval: usize = 16, "16", Entries;
        /// Pad blocks so that each starts and ends on a multiple of this; 0 or 1 is none. For direct
        /// reads on media with sectors.
        block_align: usize = 0, "0", Bytes;
        /// Bits per key of the table filter; 0 is no filter.
        bloom_bits_per_key: u32 = 10, "10", Bits;
        /// Which table of a level is compacted first.
        compaction_pri: CompactionPriority = CompactionPriority::default(), "min_overlapping_ratio", Word;
        /// Compression of levels without their own.
        compression: Compression = Compression::None, "none", Word;
        /// Compression by level, from level 0; the last one holds for deeper levels.
        compression_per_level: Vec<Compression> = Vec::new(), "[]", Words;
        /// Block cache capacity.
        block_cache_capacity: usize = 32 << 20, "32MiB", Bytes;
        /// Block cache shards as a power of two; unset picks by capacity.
        block_cache_shard_bits: Option<u32> = None, "unset", Bits;
        /// Tables kept open.
        max_open_files: usize = 1000, "1000", Tables;
        /// Bytes of unsynced writes the log may hold back in the process before it hands them to the
        /// store; 0 hands over every write. What is held back is lost when the process is killed, and
        /// never when it ends by closing the database. Unset picks 0 where handing over is a copy (a
        /// directory), and 1 MiB where it is a request to a device (SMRDB, section 4.1). Over a write buffer (`buffer`) a killed
        /// process loses unsynced writes even with 0, in every tree: until a sync only the process knows where they are.
        log_buffer_size: Option<usize> = None, "unset", Bytes, "unset is 0 in a directory, 1MiB where handing over is a request to a device";
        /// Bytes of unsynced writes that may be on their way to the store, beside the log buffer, while writers go on (one
        /// piece that is larger may be alone); what is on its way is lost as the log buffer is. 0 lets the writer that
        /// fills the log buffer write it, and wait. Worth
        /// a few log buffers where writing is a request to a device and its latency matters.
        log_write_behind_size: Option<usize> = None, "unset", Bytes, "unset is three eighths of write_buffer_size, at most 24MiB, where writes are favoured and logs and tables share a rotational device, otherwise 0";
        /// Bytes compactions read ahead; unset picks what the store likes to transfer at once, else twice what the medium transfers
        /// in the time of a positioning, from 256 KiB to 4 MiB.
        compaction_readahead_size: Option<usize> = None, "unset", Bytes, "unset is what the store likes to transfer at once, else twice what is transferred in the time of a positioning, from 256KiB to 4MiB";
        /// Bytes iterators come to read ahead of each table they walk over at most, when their own options do not say;
        /// unset picks twice what the medium transfers in the time of a positioning, from 256 KiB to 4 MiB, or what compactions read ahead if that is
        /// less.
        iterator_readahead_size: Option<usize> = None, "unset", Bytes, "unset is twice what is transferred in the time of a positioning, from 256KiB to 4MiB, or what compactions read ahead if that is less";
        /// Read tables past the operating system's cache.
        use_direct_reads: bool = false, "false", Truth;
        /// Read tables that are not compressed where they lie in the operating system's cache, without a copy of them, on media that
        /// have that: a directory, not past its cache. With `verify_checksums` the checksum of a block is verified with every read of it,
        /// because its pages may leave memory and be read again from the medium; blocks in the block cache were verified when they got there.
        /// Installs a handler of the signal SIGBUS, which hands on what is not about these files: a page that cannot be
        /// read is an error, and no crash. Not for programs that want this signal for themselves.
        allow_mmap_reads: bool = true, "true", Truth;
        /// Write logs through memory that they are mapped to, on media that have that: a directory of ext4, XFS or tmpfs. What is
        /// written is as safe from the end of the process as with a call of the system for each write, of which it saves most where
        /// writes are small and few of them are synced. With the handler of SIGBUS of `allow_mmap_reads`.
        allow_mmap_writes: bool = true, "true", Truth;
        /// Write tables past the operating system's cache.
        use_direct_io_for_flush_and_compaction: bool = false, "false", Truth;
        /// Bytes per second that flushes and compactions together may write, in steps of a tenth of a second; 0 is no limit.
        rate_limit_bytes_per_second: u64 = 0, "0", BytesPerSecond;
        /// Do flushes and compactions in small steps between the writes that come until their results are needed, instead
        /// of at once: for writes that are to take about the same time each. They go on at once while nobody writes, while
        /// writers wait for them, when they are late, and where logs are on a medium of their own. Writers are held to their pace in turn, a little all the time, so that
        /// the log's way to the medium, memtables and level 0 are not found full: in place of the slowdown at
        /// `level0_slowdown_writes_trigger`. Tables are written back every few mebibytes, so that no sync waits for much. All of it is for writes that wait for
        /// the log: while none was synced for ten seconds and writers need no device to hand the log over (with `log_write_behind_size`, or in a
        /// directory), jobs go on at once and writers are held for level 0 alone.
        pace_background_work: Option<bool> = None, "unset", Truth, "unset is true where writes are favoured and logs and tables share a rotational device, otherwise false";
        /// With `pace_background_work`: how long background work may keep a write waiting at once. It then moves in bursts of up to
        /// 32 MiB that have the medium to themselves: what writes the log waits for one to end, so that one write in
        /// thousands waits, for about as long as this at most, instead of thousands a little (on a disk 50 ms were overrun to 142 and 130
        /// to 183, 450 were kept); and writers that are held to their pace wait as long at once. The shorter, the more of them wait: some hundred milliseconds on a disk. Reads
        /// are not kept waiting. 0 is small steps. Of no use, and without effect, where logs have a store of their own; there are no
        /// bursts while nobody waits for the log.
        max_write_stall_ms: Option<u64> = None, "unset", Milliseconds, "unset is the time of 35 positionings where writes are favoured and logs and tables share a rotational device, otherwise 0";
        /// Bytes per second writers get at most while slowed; less while compactions fall further behind.
        delayed_write_rate: u64 = 16 << 20, "16MiB", BytesPerSecond;
        /// Verify checksums of blocks that users read from the medium or where they are mapped into memory (compactions always verify).
        verify_checksums: bool = true, "true", Truth;
        /// Largest manifest before it is rewritten.
        max_manifest_file_size: u64 = 64 << 20, "64MiB", Bytes, "a 128th of the medium at most";
        /// Run without background jobs' automatic compactions; flushes go on.
        disable_auto_compactions: bool = false, "false", Truth;
    }
}

impl Options {
    /// Options from a TOML text; what is not said keeps its default.
    pub fn from_toml(text: &str) -> Result<Options, Error> {
        let options: Options = toml::from_str(text).map_err(|error| Error::InvalidArgument {
            what: "options".to_owned(),
            reason: experiment::moved_field(error.message()).unwrap_or_else(|| error.to_string()),
        })?;
        options.validate()?;
        Ok(options)
    }

    /// The options as TOML, every field said.
    pub fn to_toml(&self) -> Result<String, Error> {
        toml::to_string(self)
            .map_err(|error| Error::InvalidArgument { what: "options".to_owned(), reason: error.to_string() })
    }

    /// The options as they hold on stores of these properties, of tables and of logs: what the medium changes, and
    /// what unset ones come to as far as that does not follow the space on it.
    pub fn on_stores(&self, files: &StoreProperties, logs: &StoreProperties) -> Options {
        let mut options = self.clone();
        options.write_buffer_size = self.write_buffer_bytes(files);
        let most_bytes = (files.table_bytes_max / 2).max(1);
        let target_bytes = files.preferred_table_bytes.unwrap_or(self.target_file_size_base.min(most_bytes));
        options.target_file_size_base = target_bytes;
        options.log_buffer_size = Some(self.log_buffer_bytes(logs));
        options.compaction_readahead_size = Some(self.compaction_readahead_bytes(files));
        options.iterator_readahead_size = Some(self.iterator_readahead(files).max_bytes);
        options
    }

    /// The kind of tree; leveled if it is unset, which it is no longer once a database is open.
    pub fn tree_kind(&self) -> TreeKind {
        self.tree.unwrap_or_default()
    }

    /// Bytes at which a memtable is full: so that its table, with index, filter and what the last write brought too
    /// much, does not outgrow the size the medium likes, where it likes one.
    pub(crate) fn write_buffer_bytes(&self, files: &StoreProperties) -> usize {
        let fitting = |bytes: u64| usize::try_from(bytes - bytes / 64).unwrap_or(usize::MAX);
        files.preferred_table_bytes.map_or(self.write_buffer_size, |bytes| self.write_buffer_size.min(fitting(bytes)))
    }

    /// Bytes of unsynced writes the log holds back.
    pub(crate) fn log_buffer_bytes(&self, logs: &StoreProperties) -> usize {
        self.log_buffer_size.unwrap_or(if logs.flush_is_device_request { 1 << 20 } else { 0 })
    }

    /// Bytes at which a read spends two thirds of its time on the transfer, where it has to position: twice what is transferred in
    /// the time of one positioning, rounded up to a power of two, from 256 KiB to 4 MiB.
    fn long_read_bytes(files: &StoreProperties) -> usize {
        let bytes =
            files.access.bytes_per_positioning().saturating_mul(2).clamp(READ_AHEAD_BYTES.0, READ_AHEAD_BYTES.1);
        bytes.next_power_of_two() as usize
    }

    /// Bytes compactions read ahead.
    pub(crate) fn compaction_readahead_bytes(&self, files: &StoreProperties) -> usize {
        let usual = Options::long_read_bytes(files);
        let preferred = files.preferred_transfer_bytes.map(|bytes| bytes.min(1 << 30) as usize);
        self.compaction_readahead_size.or(preferred).unwrap_or(usual)
    }

    /// How iterators read ahead that do not say it themselves.
    pub(crate) fn iterator_readahead(&self, files: &StoreProperties) -> GrowingReadahead {
        let (blocks_before, first_bytes) =
            if files.rotational { FIRST_READ_AHEAD_POSITIONING } else { FIRST_READ_AHEAD };
        let usual_bytes = || self.compaction_readahead_bytes(files).min(Options::long_read_bytes(files));
        let max_bytes = self.iterator_readahead_size.unwrap_or_else(usual_bytes);
        GrowingReadahead {
            blocks_before: self.experiment.num_file_reads_for_auto_readahead.unwrap_or(blocks_before),
            first_bytes: self.experiment.initial_auto_readahead_size.unwrap_or(first_bytes).min(max_bytes),
            max_bytes,
        }
    }

    /// Compression of a level.
    pub(crate) fn compression_of_level(&self, level: usize) -> Compression {
        match self.compression_per_level.get(level).or(self.compression_per_level.last()) {
            Some(compression) => *compression,
            None => self.compression,
        }
    }

    /// Refuses values nothing could work with, naming the option and what it takes: what every tree uses. What one kind wants
    /// beside that is judged when a database is opened.
    pub fn validate(&self) -> Result<(), Error> {
        at_least("write_buffer_size", self.write_buffer_size as u64, 4 << 10)?;
        at_most("write_buffer_size", self.write_buffer_size as u64, MEMORY_BYTES_MAX)?;
        at_least("max_background_jobs", self.max_background_jobs as u64, 1)?;
        at_most("max_background_jobs", self.max_background_jobs as u64, 1024)?;
        at_most("log_buffer_size", self.log_buffer_size.unwrap_or(0) as u64, 1 << 30)?;
        at_most("log_write_behind_size", self.log_write_behind_size.unwrap_or_default() as u64, 1 << 30)?;
        at_most("max_write_stall_ms", self.max_write_stall_ms.unwrap_or_default(), WRITE_STALL_MS_MAX)?;
        at_least("delayed_write_rate", self.delayed_write_rate, 1)?;
        at_least("max_manifest_file_size", self.max_manifest_file_size, 1)?;
        at_most("max_manifest_file_size", self.max_manifest_file_size, FILE_BYTES_MAX)?;
        Ok(())
    }
}

/// Refuses an option below its limit.
pub(crate) fn at_least(name: &str, value: u64, least: u64) -> Result<(), Error> {
    if value >= least {
        return Ok(());
    }
    let (what, reason) = (format!("option {name} = {value}"), format!("it must be at least {least}"));
    Err(Error::InvalidArgument { what, reason })
}

/// Refuses an option above its limit.
pub(crate) fn at_most(name: &str, value: u64, most: u64) -> Result<(), Error> {
    if value <= most {
        return Ok(());
    }
    let (what, reason) = (format!("option {name} = {value}"), format!("it must be at most {most}"));
    Err(Error::InvalidArgument { what, reason })
}

/// Refuses an option that is below another one and contradicts it so, for the reason `why`.
pub(crate) fn not_below(
    (name, value): (&str, u64),
    (other_name, other_value): (&str, u64),
    why: &str,
) -> Result<(), Error> {
    if value >= other_value {
        return Ok(());
    }
    let what = format!("option {name} = {value}");
    let reason =
        format!("it must be at least {other_name} = {other_value}, {why}; raise the former or lower the latter");
    Err(Error::InvalidArgument { what, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toml_round_trips_and_unknown_names_are_refused() {
        let options = Options {
            write_buffer_size: 1 << 20,
            compression_per_level: vec![Compression::None, Compression::Lz4],
            ..Options::default()
        };
        assert_eq!(Options::from_toml(&options.to_toml().unwrap()).unwrap(), options);
        assert_eq!(Options::from_toml("write_buffer_size = 1048576").unwrap().write_buffer_size, 1 << 20);
        assert!(Options::from_toml("write_bufer_size = 1").unwrap_err().to_string().contains("write_bufer_size"));
        let error = Options::from_toml("max_background_jobs = 0").unwrap_err().to_string();
        assert!(error.contains("max_background_jobs") && error.contains("at least 1"), "{error}");
    }

    /// What a default is as TOML; none for unset ones.
    fn defaults() -> toml::Table {
        Options::default().to_toml().unwrap().parse().unwrap()
    }

    #[test]
    fn every_field_is_described_once() {
        let every = Options {
            tree: Some(TreeKind::Leveled),
            flush_key_ranges: Some(true),
            overlap_depth_max: Some(1),
            compact_in_pieces: Some(true),
            pace_background_work: Some(true),
            max_write_stall_ms: Some(1),
            log_write_behind_size: Some(1),
            compaction_buffer_size: Some(1),
            block_cache_shard_bits: Some(1),
            log_buffer_size: Some(1),
            compaction_readahead_size: Some(1),
            iterator_readahead_size: Some(1),
            ..Options::default()
        };
        let table: toml::Table = every.to_toml().unwrap().parse().unwrap();
        let mut fields: Vec<&str> = table.keys().map(String::as_str).collect();
        let mut described: Vec<&str> = Options::ALL.iter().map(|option| option.name).collect();
        fields.sort_unstable();
        described.sort_unstable();
        assert_eq!(described, fields);
        for option in Options::ALL {
            let meaning = option.meaning();
            assert!(meaning.ends_with('.') && !meaning.contains("  ") && !meaning.starts_with(' '), "{meaning:?}");
            assert!(!option.store.ends_with('.'), "{}", option.store);
        }
    }

    /// The texts stand in the documentation of the fields.
    #[test]
    fn described_defaults_are_the_defaults() {
        let defaults = defaults();
        for option in Options::ALL {
            let shown = defaults.get(option.name).map_or("unset".to_owned(), |value| option.unit.show(value));
            assert_eq!(option.default, shown, "{}", option.name);
        }
    }

    #[test]
    fn stores_change_what_is_said_to_change() {
        let directory = StoreProperties {
            read_alignment_bytes: 1,
            rotational: false,
            access: varve_store::AccessTimes::typical(false),
            places_by_level: false,
            preferred_transfer_bytes: None,
            preferred_table_bytes: None,
            table_bytes_max: u64::MAX,
            wants_evictions: false,
            wants_rewrites: false,
            flush_is_device_request: false,
            location: varve_store::Location::Private,
        };
        let bands = StoreProperties {
            rotational: true,
            access: varve_store::AccessTimes::typical(true),
            preferred_table_bytes: Some(1 << 20),
            flush_is_device_request: true,
            ..directory.clone()
        };
        for properties in [directory, bands] {
            let options = Options::default();
            let on = options.on_stores(&properties, &properties);
            assert_eq!(on.on_stores(&properties, &properties), on, "once more changes nothing");
            let [before, after] =
                [options, on].map(|options| options.to_toml().unwrap().parse::<toml::Table>().unwrap());
            for option in Options::ALL {
                let changed = before.get(option.name) != after.get(option.name);
                assert!(!changed || !option.store.is_empty(), "{} is not said to change", option.name);
            }
        }
    }

    #[test]
    fn the_last_named_compression_holds_for_deeper_levels() {
        let options =
            Options { compression_per_level: vec![Compression::None, Compression::Zstd], ..Options::default() };
        assert_eq!(options.compression_of_level(0), Compression::None);
        assert_eq!(options.compression_of_level(6), Compression::Zstd);
    }
}
