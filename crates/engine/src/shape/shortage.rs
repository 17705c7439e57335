//! What a policy is told when little space is left, and what tables take where each has a band of its own.

use super::file::FileMeta;
use super::plan::CompactionPlan;
use super::version::Version;
use crate::key::Sequence;

/// What is behind the data of a table, at most: a histogram, an index and a footer.
const BEHIND_BYTES_MAX: u64 = 5 << 10;

/// What a tree looks at when it is asked for room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shortage {
    /// Bytes that outputs may take.
    pub(crate) room_bytes: u64,
    /// Size of a table where each takes all of it, however little is in it.
    pub(crate) table_bytes: Option<u64>,
    /// Deletions delete enough to be worth their way down.
    pub(crate) brings_deletions: bool,
    /// Newest sequence number that every reader sees: a deletion up to it can be dropped where nothing older is left.
    pub(crate) oldest_view: Sequence,
}

impl Shortage {
    /// Whether every deletion of a table can be dropped when nothing outside the compaction is older.
    pub(crate) fn is_seen_by_all(&self, file: &FileMeta) -> bool {
        file.newest_sequence <= self.oldest_view
    }

    /// Whether there is room for a plan: for all its outputs, or for those of a part of it where it is done part by part.
    pub(crate) fn fits(&self, version: &Version, plan: &CompactionPlan) -> bool {
        let first_bytes = || {
            let largest = plan.overlapping.iter().map(|file| file.size_bytes).max().unwrap_or(0);
            let inputs: u64 = plan.inputs.iter().map(|file| file.size_bytes).sum();
            largest + inputs / plan.overlapping.len().max(1) as u64
        };
        plan.written_bytes_max() <= self.room_bytes || (plan.is_divisible(version) && first_bytes() <= self.room_bytes)
    }

    /// Whether a plan surely leaves fewer tables than it takes, where that gives room back; or is a move, which may make
    /// neighbours of tables that do.
    pub(crate) fn saves_tables(&self, plan: &CompactionPlan) -> bool {
        let Some(table_bytes) = self.table_bytes else { return false };
        let needed = plan.input_bytes().div_ceil(filled_bytes(table_bytes).max(1));
        plan.is_trivial_move() || needed < plan.all_inputs().count() as u64
    }
}

/// How many bytes of tables that have `table_bytes` at most surely fit in so many bytes of such tables.
pub(crate) fn fitting_bytes(tables_bytes: u64, table_bytes: u64) -> u64 {
    tables_bytes / table_bytes.max(1) * filled_bytes(table_bytes)
}

/// What so many bytes take in such tables, the last of them not full.
pub(crate) fn taking_bytes(bytes: u64, table_bytes: u64) -> u64 {
    bytes.div_ceil(filled_bytes(table_bytes).max(1)).saturating_mul(table_bytes)
}

/// How full tables get at least, where entries are not large beside them.
pub(crate) fn filled_bytes(table_bytes: u64) -> u64 {
    table_bytes - table_bytes / 16 - BEHIND_BYTES_MAX.min(table_bytes / 8)
}
