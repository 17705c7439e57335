//! What a tree tells the store below it.

use std::sync::Arc;
use varve_media::JobId;

/// A file named in a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintedFile {
    /// Name in the store.
    pub name: String,
    /// Level it belongs to, when the tree has levels.
    pub level: Option<u8>,
    /// Its size, or the expected size when it is not written yet.
    pub size_bytes: u64,
}

/// A block whose entries went into a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockOrigin {
    /// Name of its table.
    pub file: Arc<str>,
    /// Where it begins in the file.
    pub offset_bytes: u64,
    /// Entries of the new block that came from it.
    pub entries: u32,
}

/// Advice that flows from a tree to its store. Every tree sends all of them; a store uses what it
/// understands, and every policy is defined for an unknown level. File names are never reused by a
/// tree, so a late hint cannot name the wrong file. A hint never fails and never waits for I/O.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Hint<'a> {
    /// A memtable begins to be written as a table; the file's create names the job.
    FlushBegin {
        /// The flush.
        job: JobId,
        /// Memory to be written, an upper bound of the table's size.
        expected_bytes: u64,
    },
    /// The flush ended; `outputs` is empty when it failed.
    FlushEnd {
        /// The flush.
        job: JobId,
        /// Tables it made.
        outputs: &'a [HintedFile],
        /// False when it gave up.
        succeeded: bool,
    },
    /// A compaction is about to read its inputs. Comes before its first output is created.
    CompactionBegin {
        /// The compaction.
        job: JobId,
        /// Tables it reads, with their levels.
        inputs: &'a [HintedFile],
        /// Level it writes to.
        output_level: Option<u8>,
    },
    /// A compaction finished one output table.
    CompactionOutput {
        /// The compaction.
        job: JobId,
        /// The table.
        output: &'a HintedFile,
    },
    /// A compaction ended. Comes before its inputs are removed.
    CompactionEnd {
        /// The compaction.
        job: JobId,
        /// Tables it leaves behind.
        outputs: &'a [HintedFile],
        /// False when it failed or was cancelled; the outputs will be removed.
        succeeded: bool,
    },
    /// A file changed level without being rewritten (a trivial move), or the tree tells the level
    /// of a file it found when it opened.
    LevelChanged {
        /// The file and its level now.
        file: &'a HintedFile,
    },
    /// A compaction wrote a block of a table that is not finished. Sent where the store
    /// [wants it](crate::StoreProperties::wants_rewrites), but for the last block of a table.
    BlockRewritten {
        /// Name of the new table.
        file: &'a str,
        /// Where the block begins in it.
        offset_bytes: u64,
        /// The block as it will be on the medium, trailer included.
        bytes: &'a [u8],
        /// The blocks its entries were in, each once.
        origins: &'a [BlockOrigin],
    },
    /// A compaction wrote a record that [follows](crate::RecordCache::follows_record) from an input to a table that is not finished.
    /// Sent where the store [wants rewrites](crate::StoreProperties::wants_rewrites).
    RecordRewritten {
        /// Name of the new table.
        file: &'a str,
        /// Label of the record.
        label: u64,
        /// What is to be kept of the new table.
        record: &'a [u8],
    },
    /// The block cache dropped a block to make place (never when a file was closed or removed).
    CacheEvicted {
        /// Name of the table.
        file: &'a str,
        /// Where the block is in the file.
        offset_bytes: u64,
        /// The block as it is on the medium, trailer included.
        bytes: &'a [u8],
    },
}
