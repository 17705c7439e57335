//! Options, under the names users of log-structured stores know.

use serde::{Deserialize, Serialize};

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

/// How data is organised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TreeKind {
    /// Levels of disjoint tables, each a multiple of the one above (LevelDB, RocksDB).
    #[default]
    Leveled,
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
    /// Memtable size at which it becomes immutable and is flushed.
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
    /// Levels.
    pub num_levels: usize,
    /// Size of level 1.
    pub max_bytes_for_level_base: u64,
    /// Size ratio of adjacent levels.
    pub max_bytes_for_level_multiplier: u64,
    /// Derive level sizes from the last level upwards, so space stays near the data's size.
    pub level_compaction_dynamic_level_bytes: bool,
    /// Table size of level 1 and below.
    pub target_file_size_base: u64,
    /// Bytes one compaction may read; larger ones are split.
    pub max_compaction_bytes: u64,
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
    /// Bytes compactions read ahead; unset picks 2 MiB on rotational media, 256 KiB elsewhere.
    pub compaction_readahead_size: Option<usize>,
    /// Read tables past the operating system's cache.
    pub use_direct_reads: bool,
    /// Write tables past the operating system's cache.
    pub use_direct_io_for_flush_and_compaction: bool,
    /// Bytes per second flushes and compactions may write; 0 is no limit.
    pub rate_limit_bytes_per_second: u64,
    /// Bytes per second writers get while slowed.
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
            num_levels: 7,
            max_bytes_for_level_base: 256 << 20,
            max_bytes_for_level_multiplier: 10,
            level_compaction_dynamic_level_bytes: true,
            target_file_size_base: 64 << 20,
            max_compaction_bytes: 25 * (64 << 20),
            max_background_jobs: 2,
            max_subcompactions: 1,
            block_size: 4096,
            block_restart_interval: 16,
            block_align: 0,
            bloom_bits_per_key: 10,
            compression: Compression::None,
            compression_per_level: Vec::new(),
            block_cache_capacity: 32 << 20,
            block_cache_shard_bits: None,
            max_open_files: 1000,
            compaction_readahead_size: None,
            use_direct_reads: false,
            use_direct_io_for_flush_and_compaction: false,
            rate_limit_bytes_per_second: 0,
            delayed_write_rate: 16 << 20,
            verify_checksums: true,
            max_manifest_file_size: 64 << 20,
            disable_auto_compactions: false,
        }
    }
}
