//! What is done to a store: streams of operations, one per thread, deterministic from a seed.

mod db_bench;
mod ycsb;

pub use db_bench::{DbBench, DbBenchKind, DbBenchOptions};
pub use ycsb::{Ycsb, YcsbMix, YcsbOptions};

use crate::error::LabError;
use crate::target::{Change, Direction, Durability};

/// What one operation does; measured apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperationKind {
    /// Look up a key.
    #[default]
    Read,
    /// Replace the value of an existing key.
    Update,
    /// Store a key for the first time, or a key drawn at random.
    Insert,
    /// Remove a key.
    Delete,
    /// Several changes at once.
    Batch,
    /// Seek and visit what follows.
    Scan,
    /// Look up a key, then replace its value.
    ReadModifyWrite,
}

impl OperationKind {
    /// Every kind, in the order of [`OperationKind::index`].
    pub const ALL: [OperationKind; 7] = [
        OperationKind::Read,
        OperationKind::Update,
        OperationKind::Insert,
        OperationKind::Delete,
        OperationKind::Batch,
        OperationKind::Scan,
        OperationKind::ReadModifyWrite,
    ];

    /// Position in [`OperationKind::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// The kind in lower case, as in reports.
    pub fn name(self) -> &'static str {
        match self {
            OperationKind::Read => "read",
            OperationKind::Update => "update",
            OperationKind::Insert => "insert",
            OperationKind::Delete => "delete",
            OperationKind::Batch => "batch",
            OperationKind::Scan => "scan",
            OperationKind::ReadModifyWrite => "read_modify_write",
        }
    }
}

/// One operation to be done. A stream fills it again and again, so that a steady stream allocates
/// nothing.
#[derive(Clone, Debug, Default)]
pub struct Operation {
    /// What to do; says which of the other fields mean anything.
    pub kind: OperationKind,
    /// Key of everything but a batch; start of a scan.
    pub key: Vec<u8>,
    /// Value of an insert, an update or a read-modify-write.
    pub value: Vec<u8>,
    /// Changes of a batch.
    pub changes: Vec<Change>,
    /// Scan from the very first (or last) key instead of `key`.
    pub from_end: bool,
    /// Pairs a scan visits at most.
    pub limit: u64,
    /// Direction of a scan.
    pub direction: Direction,
    /// Every visited pair counts as an operation, and none is timed by itself: a full scan.
    pub count_pairs: bool,
    /// How durable a write must be when it is acknowledged.
    pub durability: Durability,
    /// Number of the record inserted, for [`OperationStream::acknowledge`].
    pub record: u64,
}

/// The operations of one thread.
pub trait OperationStream: Send {
    /// Puts the next operation into `operation`; `false` when there are no more.
    fn next(&mut self, operation: &mut Operation) -> bool;

    /// Learns that `operation`, the last one given out, has succeeded.
    fn acknowledge(&mut self, operation: &Operation);
}

/// Makes the streams of a workload. Streams of one workload may share state (YCSB's counter of
/// inserted records); one workload value is run once.
pub trait Workload: Send + Sync {
    /// Name in reports.
    fn name(&self) -> &str;

    /// The stream of `thread`, one of `threads`.
    ///
    /// # Errors
    /// Options that make no workload.
    fn stream(&self, thread: usize, threads: usize) -> Result<Box<dyn OperationStream>, LabError>;
}

/// How many of `total` operations thread number `thread` of `threads` does: all shares differ by at
/// most one and add up.
pub(crate) fn share(total: u64, thread: usize, threads: usize) -> u64 {
    let threads = threads.max(1) as u64;
    total / threads + u64::from((thread as u64) < total % threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (total, threads) in [(10, 3), (2, 5), (0, 4), (7, 1)] {
            assert_eq!((0..threads).map(|thread| share(total, thread, threads)).sum::<u64>(), total);
        }
    }

    #[test]
    fn kinds_are_in_the_order_of_their_index() {
        for (index, kind) in OperationKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), index);
        }
    }
}
