//! Processor time the engine charges in a simulation, in nanoseconds.
//!
//! Rounded from measurements of the micro-benchmarks (`examples/table_benchmark.rs`) on one core of a
//! server processor of 2023; what a simulated run says about processor time is as good as these
//! numbers. A change of any of them changes virtual times, so it changes [`VERSION`] too.

/// Version of this list, printed with results that depend on it.
pub const VERSION: u32 = 1;

/// Asking a table's filter for one key.
pub const FILTER_PROBE: u64 = 20;

/// Finding the block of a key in a table's index.
pub const INDEX_SEARCH: u64 = 60;

/// Searching a block in memory for a key.
pub const BLOCK_SEARCH: u64 = 60;

/// Taking a block into use: checking its structure, memory, the cache's books.
pub const BLOCK_DECODE: u64 = 250;

/// Checksum of 1 KiB.
pub const CHECKSUM_KIB: u64 = 60;

/// Decompressing 1 KiB (of the uncompressed length).
pub const DECOMPRESS_KIB: u64 = 700;

/// Compressing 1 KiB.
pub const COMPRESS_KIB: u64 = 2500;

/// Stepping over one entry of a block.
pub const ENTRY_STEP: u64 = 12;

/// Adding one entry to a table, without its bytes.
pub const ENTRY_ADD: u64 = 50;

/// Copying 1 KiB.
pub const COPY_KIB: u64 = 40;

/// Handing a read or write to the store.
pub const REQUEST: u64 = 500;

/// One group of batches through the log, without its entries.
pub const WRITE_GROUP: u64 = 900;

/// Putting one entry into a memtable, without its bytes.
pub const WRITE_ENTRY: u64 = 700;

/// Copying 1 KiB into the log and the memtable, with the log's checksum.
pub const WRITE_KIB: u64 = 250;

/// A get, without what the tables it asks cost.
pub const GET: u64 = 300;

/// Making an iterator.
pub const ITERATOR: u64 = 1500;

/// Choosing the next of several sources in a merge.
pub const MERGE_ENTRY: u64 = 60;

/// Every cost with its name, for reports.
pub const ALL: &[(&str, u64)] = &[
    ("filter_probe", FILTER_PROBE),
    ("index_search", INDEX_SEARCH),
    ("block_search", BLOCK_SEARCH),
    ("block_decode", BLOCK_DECODE),
    ("checksum_kib", CHECKSUM_KIB),
    ("decompress_kib", DECOMPRESS_KIB),
    ("compress_kib", COMPRESS_KIB),
    ("entry_step", ENTRY_STEP),
    ("entry_add", ENTRY_ADD),
    ("copy_kib", COPY_KIB),
    ("request", REQUEST),
    ("write_group", WRITE_GROUP),
    ("write_entry", WRITE_ENTRY),
    ("write_kib", WRITE_KIB),
    ("get", GET),
    ("iterator", ITERATOR),
    ("merge_entry", MERGE_ENTRY),
];

/// Cost of `bytes` at `nanos_per_kib`.
pub(crate) fn of_bytes(nanos_per_kib: u64, bytes: u64) -> u64 {
    nanos_per_kib * bytes / 1024
}
