//! Options, under the names users of log-structured stores know.

use crate::error::Error;
use serde::{Deserialize, Serialize};

/// More than any machine has: a size of something held in memory that is larger is a mistake.
const MEMORY_BYTES_MAX: u64 = 1 << 40;

/// Largest file that is asked for.
const FILE_BYTES_MAX: u64 = 1 << 40;

/// More than any medium holds.
const MEDIUM_BYTES_MAX: u64 = 256 << 40;

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

/// How data is organised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TreeKind {
    /// Levels of disjoint tables, each a multiple of the one above (LevelDB, RocksDB).
    #[default]
    Leveled,
    /// Two levels whose tables may both overlap, for tables as large as a band (SMRDB).
    TwoLevel,
}

impl TreeKind {
    /// Every organisation.
    pub const ALL: [TreeKind; 2] = [TreeKind::Leveled, TreeKind::TwoLevel];
}

/// Options of a database. Sizes in bytes. Every field has a default; from TOML, unknown fields are
/// errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Organisation of the data.
    pub tree: TreeKind,
    /// Create the database when there is none.
    pub create_if_missing: bool,
    /// Refuse to open when there is one.
    pub error_if_exists: bool,
    /// Memtable size at which it becomes immutable and is flushed; less on media that like smaller tables (bands).
    pub write_buffer_size: usize,
    /// Memtables, the active one included; writes stop when all are full.
    pub max_write_buffer_number: usize,
    /// Tables in level 0 that start a compaction.
    pub level0_file_num_compaction_trigger: usize,
    /// Tables in level 0 at which writes are slowed.
    pub level0_slowdown_writes_trigger: usize,
    /// Tables in level 0 at which writes stop.
    pub level0_stop_writes_trigger: usize,
    /// Bytes awaiting compaction at which writes are slowed; 0 is never.
    pub soft_pending_compaction_bytes_limit: u64,
    /// Bytes awaiting compaction at which writes stop; 0 is never.
    pub hard_pending_compaction_bytes_limit: u64,
    /// Trees of two levels: tables of level 0 that one compaction takes.
    pub max_level0_compaction_tables: usize,
    /// Trees of two levels: tables of level 1 overlapping one of them that start a compaction within the level.
    pub level1_overlap_compaction_trigger: usize,
    /// Trees of two levels: tables that may overlap in one key; where there are more, those are merged with which a
    /// rewritten byte gains most order. 0 is the paper's selection (SMRDB), which the two triggers above steer.
    pub overlap_depth_max: usize,
    /// Levels of a leveled tree.
    pub num_levels: usize,
    /// Size of level 1.
    pub max_bytes_for_level_base: u64,
    /// Size ratio of adjacent levels.
    pub max_bytes_for_level_multiplier: u64,
    /// Derive level sizes from the last level upwards, so space stays near the data's size.
    pub level_compaction_dynamic_level_bytes: bool,
    /// Table size of level 1 and below; on media that like tables of one size (bands) they have that size.
    pub target_file_size_base: u64,
    /// Bytes one compaction may read; larger ones are split.
    pub max_compaction_bytes: u64,
    /// Room on the medium that puts leave for deletes and compactions, beside what memtables will become, so that a full
    /// one can be emptied; deletes leave a quarter of it. Unset picks four tables, but where these have no size of their own
    /// (bands) a sixteenth of the medium at most; 0 leaves none.
    pub compaction_buffer_size: Option<u64>,
    /// Flushes and compactions at once.
    pub max_background_jobs: usize,
    /// Threads one compaction may use.
    pub max_subcompactions: usize,
    /// Uncompressed size at which a block is cut.
    pub block_size: usize,
    /// Entries between restart points of a block.
    pub block_restart_interval: usize,
    /// Pad blocks so that each starts and ends on a multiple of this; 0 or 1 is none. For direct
    /// reads on media with sectors.
    pub block_align: usize,
    /// Bits per key of the table filter; 0 is no filter.
    pub bloom_bits_per_key: u32,
    /// Which table of a level is compacted first.
    pub compaction_pri: CompactionPriority,
    /// Compression of levels without their own.
    pub compression: Compression,
    /// Compression by level, from level 0; the last one holds for deeper levels.
    pub compression_per_level: Vec<Compression>,
    /// Block cache capacity.
    pub block_cache_capacity: usize,
    /// Block cache shards as a power of two; unset picks by capacity.
    pub block_cache_shard_bits: Option<u32>,
    /// Tables kept open.
    pub max_open_files: usize,
    /// Bytes of unsynced writes the log may hold back in the process before it hands them to the
    /// store; 0 hands over every write. What is held back is lost when the process is killed, and
    /// never when it ends by closing the database. Unset picks 0 where handing over is a copy (a
    /// directory), and 1 MiB where it is a request to a device (SMRDB, section 4.1).
    pub log_buffer_size: Option<usize>,
    /// Bytes of unsynced writes that may be on their way to the store, beside the log buffer, while writers go on (one
    /// piece that is larger may be alone); what is on its way is lost as the log buffer is. 0 lets the writer that fills the log buffer write it, and wait. Worth
    /// a few log buffers where writing is a request to a device and its latency matters.
    pub log_write_behind_size: usize,
    /// Bytes compactions read ahead; unset picks 2 MiB on rotational media, 256 KiB elsewhere.
    pub compaction_readahead_size: Option<usize>,
    /// Bytes iterators come to read ahead of each table they walk over at most, when their own options do not say;
    /// unset picks 256 KiB, or what compactions read ahead if that is less.
    pub iterator_readahead_size: Option<usize>,
    /// Read tables past the operating system's cache.
    pub use_direct_reads: bool,
    /// Write tables past the operating system's cache.
    pub use_direct_io_for_flush_and_compaction: bool,
    /// Bytes per second flushes and compactions may write; 0 is no limit.
    pub rate_limit_bytes_per_second: u64,
    /// Do flushes and compactions in small steps between the writes that come until their results are needed, instead
    /// of at once: for writes that are to take about the same time each. They go on at once while nobody writes, while
    /// writers wait for them, and when they are late. Writers are held to their pace in turn, a little all the time, so that
    /// the log's way to the medium, memtables and level 0 are not found full: in place of the slowdown at
    /// `level0_slowdown_writes_trigger`. Tables are written back every few mebibytes, so that no sync waits for much.
    pub pace_background_work: bool,
    /// Bytes per second writers get at most while slowed; less while compactions fall further behind.
    pub delayed_write_rate: u64,
    /// Verify checksums of blocks read by users (compactions always do).
    pub verify_checksums: bool,
    /// Largest manifest before it is rewritten.
    pub max_manifest_file_size: u64,
    /// Run without background jobs' automatic compactions; flushes go on.
    pub disable_auto_compactions: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            tree: TreeKind::Leveled,
            create_if_missing: true,
            error_if_exists: false,
            write_buffer_size: 64 << 20,
            max_write_buffer_number: 3,
            level0_file_num_compaction_trigger: 4,
            level0_slowdown_writes_trigger: 20,
            level0_stop_writes_trigger: 36,
            soft_pending_compaction_bytes_limit: 64 << 30,
            hard_pending_compaction_bytes_limit: 256 << 30,
            max_level0_compaction_tables: 8,
            level1_overlap_compaction_trigger: 8,
            overlap_depth_max: 0,
            num_levels: 7,
            max_bytes_for_level_base: 256 << 20,
            max_bytes_for_level_multiplier: 10,
            level_compaction_dynamic_level_bytes: true,
            target_file_size_base: 64 << 20,
            max_compaction_bytes: 25 * (64 << 20),
            compaction_buffer_size: None,
            max_background_jobs: 2,
            max_subcompactions: 1,
            block_size: 4096,
            block_restart_interval: 16,
            block_align: 0,
            bloom_bits_per_key: 10,
            compaction_pri: CompactionPriority::default(),
            compression: Compression::None,
            compression_per_level: Vec::new(),
            block_cache_capacity: 32 << 20,
            block_cache_shard_bits: None,
            max_open_files: 1000,
            log_buffer_size: None,
            log_write_behind_size: 0,
            compaction_readahead_size: None,
            iterator_readahead_size: None,
            use_direct_reads: false,
            use_direct_io_for_flush_and_compaction: false,
            rate_limit_bytes_per_second: 0,
            pace_background_work: false,
            delayed_write_rate: 16 << 20,
            verify_checksums: true,
            max_manifest_file_size: 64 << 20,
            disable_auto_compactions: false,
        }
    }
}

impl Options {
    /// Options from a TOML text; what is not said keeps its default.
    pub fn from_toml(text: &str) -> Result<Options, Error> {
        let options: Options = toml::from_str(text)
            .map_err(|error| Error::InvalidArgument { what: "options".to_owned(), reason: error.to_string() })?;
        options.validate()?;
        Ok(options)
    }

    /// The options as TOML, every field said.
    pub fn to_toml(&self) -> Result<String, Error> {
        toml::to_string(self)
            .map_err(|error| Error::InvalidArgument { what: "options".to_owned(), reason: error.to_string() })
    }

    /// Compression of a level.
    pub(crate) fn compression_of_level(&self, level: usize) -> Compression {
        match self.compression_per_level.get(level).or(self.compression_per_level.last()) {
            Some(compression) => *compression,
            None => self.compression,
        }
    }

    /// Refuses values nothing could work with, naming the option and what it takes.
    pub fn validate(&self) -> Result<(), Error> {
        let least = |name: &str, value: u64, least: u64| {
            if value < least {
                return Err(Error::InvalidArgument {
                    what: format!("option {name} = {value}"),
                    reason: format!("it must be at least {least}"),
                });
            }
            Ok(())
        };
        let most = |name: &str, value: u64, most: u64| {
            if value > most {
                return Err(Error::InvalidArgument {
                    what: format!("option {name} = {value}"),
                    reason: format!("it must be at most {most}"),
                });
            }
            Ok(())
        };
        least("write_buffer_size", self.write_buffer_size as u64, 4 << 10)?;
        most("write_buffer_size", self.write_buffer_size as u64, MEMORY_BYTES_MAX)?;
        least("max_write_buffer_number", self.max_write_buffer_number as u64, 2)?;
        most("max_write_buffer_number", self.max_write_buffer_number as u64, 1 << 16)?;
        most("block_cache_capacity", self.block_cache_capacity as u64, MEMORY_BYTES_MAX)?;
        least("level0_file_num_compaction_trigger", self.level0_file_num_compaction_trigger as u64, 1)?;
        least("level0_slowdown_writes_trigger", self.level0_slowdown_writes_trigger as u64, 1)?;
        least(
            "level0_stop_writes_trigger",
            self.level0_stop_writes_trigger as u64,
            self.level0_slowdown_writes_trigger.max(self.level0_file_num_compaction_trigger) as u64,
        )?;
        least("max_level0_compaction_tables", self.max_level0_compaction_tables as u64, 1)?;
        least("level1_overlap_compaction_trigger", self.level1_overlap_compaction_trigger as u64, 1)?;
        least("num_levels", self.num_levels as u64, 2)?;
        most("num_levels", self.num_levels as u64, 64)?;
        least("max_bytes_for_level_base", self.max_bytes_for_level_base, 1)?;
        most("max_bytes_for_level_base", self.max_bytes_for_level_base, MEDIUM_BYTES_MAX)?;
        least("max_bytes_for_level_multiplier", self.max_bytes_for_level_multiplier, 2)?;
        least("target_file_size_base", self.target_file_size_base, 1 << 10)?;
        most("target_file_size_base", self.target_file_size_base, FILE_BYTES_MAX)?;
        most("compaction_buffer_size", self.compaction_buffer_size.unwrap_or(0), MEDIUM_BYTES_MAX)?;
        least("max_compaction_bytes", self.max_compaction_bytes, 1)?;
        least("max_background_jobs", self.max_background_jobs as u64, 1)?;
        most("max_background_jobs", self.max_background_jobs as u64, 1024)?;
        least("max_subcompactions", self.max_subcompactions as u64, 1)?;
        most("max_subcompactions", self.max_subcompactions as u64, 1024)?;
        least("block_size", self.block_size as u64, 64)?;
        most("block_size", self.block_size as u64, 64 << 20)?;
        least("block_restart_interval", self.block_restart_interval as u64, 1)?;
        most("block_restart_interval", self.block_restart_interval as u64, 1 << 16)?;
        most("block_align", self.block_align as u64, 1 << 20)?;
        if self.block_align > 1 && !self.block_align.is_power_of_two() {
            return Err(Error::InvalidArgument {
                what: format!("option block_align = {}", self.block_align),
                reason: "it must be 0, 1 or a power of two".to_owned(),
            });
        }
        most("bloom_bits_per_key", u64::from(self.bloom_bits_per_key), 64)?;
        most("block_cache_shard_bits", u64::from(self.block_cache_shard_bits.unwrap_or(0)), 16)?;
        least("max_open_files", self.max_open_files as u64, 1)?;
        most("compaction_readahead_size", self.compaction_readahead_size.unwrap_or(0) as u64, 1 << 30)?;
        most("iterator_readahead_size", self.iterator_readahead_size.unwrap_or(0) as u64, 1 << 30)?;
        most("log_buffer_size", self.log_buffer_size.unwrap_or(0) as u64, 1 << 30)?;
        most("log_write_behind_size", self.log_write_behind_size as u64, 1 << 30)?;
        least("delayed_write_rate", self.delayed_write_rate, 1)?;
        least("max_manifest_file_size", self.max_manifest_file_size, 1)?;
        most("max_manifest_file_size", self.max_manifest_file_size, FILE_BYTES_MAX)?;
        Ok(())
    }
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
        let error = Options::from_toml("num_levels = 1").unwrap_err().to_string();
        assert!(error.contains("num_levels") && error.contains("at least 2"), "{error}");
    }

    #[test]
    fn the_last_named_compression_holds_for_deeper_levels() {
        let options =
            Options { compression_per_level: vec![Compression::None, Compression::Zstd], ..Options::default() };
        assert_eq!(options.compression_of_level(0), Compression::None);
        assert_eq!(options.compression_of_level(6), Compression::Zstd);
    }
}
