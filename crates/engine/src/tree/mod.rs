//! How data is organised. A tree owns its write path; what it shares with others is in the parts
//! beside this folder. A new kind is its folder or file, its module, its place in the table, and its name in [`TreeKind`].

mod kinds;
mod log_structured;
mod memory;

pub(crate) use kinds::kind_of;

use crate::batch::WriteBatch;
use crate::db_iterator::DbIterator;
use crate::error::Error;
use crate::operation::{ReadOptions, WriteOptions};
use crate::options::TreeKind;
use crate::policy;
use crate::snapshot::Snapshot;
use crate::statistics::{Statistics, Totals};
use crate::value::Value;
use kinds::{Kind, of_tables};
use varve_store::{FileStore, Finding};

/// In the order of [`TreeKind`].
#[rustfmt::skip]
static KINDS: [Kind; TreeKind::ALL.len()] = [
    of_tables::<policy::Leveled>(TreeKind::Leveled),
    of_tables::<policy::TwoLevel>(TreeKind::TwoLevel),
    memory::KIND,
];

/// What every kind of tree answers. Thread-safe.
pub(crate) trait Tree: Send + Sync {
    /// Applies a batch: all of it or nothing, visible when this returns, durable if asked for.
    fn write(&self, batch: WriteBatch, options: &WriteOptions) -> Result<(), Error>;
    /// Newest visible value of a key.
    fn get(&self, key: &[u8], options: &ReadOptions<'_>) -> Result<Option<Value>, Error>;
    /// Newest visible values of many keys, in the order asked.
    fn multi_get(&self, keys: &[&[u8]], options: &ReadOptions<'_>) -> Vec<Result<Option<Value>, Error>>;
    /// A walk over live keys.
    fn iterator(&self, options: &ReadOptions<'_>) -> Result<DbIterator, Error>;
    /// Holds the state of now.
    fn snapshot(&self) -> Snapshot;
    /// Memtables to tables, durable when this returns.
    fn flush(&self) -> Result<(), Error>;
    /// Rewrites everything in `[begin, end]` down to the last level that holds any of it.
    fn compact_range(&self, begin: Option<&[u8]>, end: Option<&[u8]>) -> Result<(), Error>;
    /// Waits until no background work runs or is due.
    fn wait_idle(&self) -> Result<(), Error>;
    /// A database in `target` equal to the state of now.
    fn checkpoint(&self, target: &dyn FileStore) -> Result<(), Error>;
    /// Counters and shape.
    fn statistics(&self) -> Statistics;
    /// What was done since the database was created; `None` when it is not known.
    fn totals(&self) -> Option<Totals>;
    /// A property by name; `None` when it has no such property.
    fn property(&self, name: &str) -> Option<String>;
    /// About how many bytes of tables hold keys of `[begin, end)`.
    fn approximate_bytes(&self, begin: &[u8], end: &[u8]) -> Result<u64, Error>;
    /// Reads and verifies everything.
    fn check(&self) -> Result<Vec<Finding>, Error>;
    /// Stops background work and releases the lock. What was written stays in the log.
    fn close(&self) -> Result<(), Error>;
}
