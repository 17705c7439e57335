//! What a policy is told when little space is left, and what tables take where each has a band of its own.

use super::file::FileMeta;
use super::plan::CompactionPlan;
use super::version::Version;
use crate::key::Sequence;

/// What is behind the data of a table, at most: a histogram, an index and a footer.
const BEHIND_BYTES_MAX: u64 = 5 << 10;

/// What a tree looks at when it is asked for space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shortage {
    /// Bytes that outputs may take.
    pub(crate) space_bytes: u64,
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

    /// True if there is space for a plan: for all its outputs, or for those of its first piece if it runs in pieces.
    pub(crate) fn fits(&self, version: &Version, plan: &CompactionPlan) -> bool {
        let first_bytes = || {
            let largest = plan.overlapping.iter().map(|file| file.size_bytes).max().unwrap_or(0);
            let inputs: u64 = plan.inputs.iter().map(|file| file.size_bytes).sum();
            largest + plan.between_bytes() + inputs / plan.overlapping.len().max(1) as u64
        };
        plan.written_bytes_max() <= self.space_bytes
            || (plan.is_divisible(version) && first_bytes() <= self.space_bytes)
    }

    /// Whether a plan surely leaves fewer tables than it takes, where that gives space back; or is a move, which may make
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

/// About how many bytes the deletions in tables delete, if each deletes a pair of mean size; `more_deletions` are not
/// in tables yet. Tables that are newer than `oldest_view` do not count: what they delete is still to be seen.
pub(crate) fn deleted_bytes(version: &Version, more_deletions: u64, oldest_view: Sequence) -> u64 {
    let (mut bytes, mut entries, mut deletions) = (0u64, 0u64, more_deletions);
    for (_, file) in version.files() {
        bytes = bytes.saturating_add(file.size_bytes);
        entries = entries.saturating_add(file.entries.saturating_sub(file.deletions));
        let counts = file.newest_sequence <= oldest_view;
        deletions = deletions.saturating_add(if counts { file.deletions } else { 0 });
    }
    let deleted = u128::from(bytes) * u128::from(deletions.min(entries)) / u128::from(entries.max(1));
    u64::try_from(deleted).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::tests::table;

    #[test]
    fn deletions_count_as_pairs_of_mean_size() {
        let version = Version::new(vec![vec![table(9, "a-z", 10, 100)], vec![table(1, "a-z", 990, 0)]], 1);
        assert_eq!(deleted_bytes(&version, 0, 9), 1000);
        assert_eq!(deleted_bytes(&version, 0, 8), 0, "a reader still sees what they delete");
        assert_eq!(deleted_bytes(&Version::new(vec![Vec::new(), vec![table(1, "a-z", 990, 0)]], 1), 10, 9), 99);
        assert_eq!(deleted_bytes(&Version::empty(2, 1), 10, 9), 0);
    }
}
