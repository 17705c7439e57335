//! One ordered key-value database, many trees.
//!
//! The engine stands on `varve-store` (files) and `varve-env` (time, threads) and names no device.
//! A tree owns its write path; memtable, log, tables and block cache are parts it may use.

mod batch;
#[doc(hidden)]
pub mod benchmark;
mod block;
mod cache;
mod checksum;
mod commit;
pub mod cost;
mod db;
mod db_iterator;
mod encoding;
mod error;
mod file_name;
#[doc(hidden)]
pub mod fuzzing;
mod inventory;
mod iterator;
mod key;
mod log;
mod log_chain;
mod manifest;
mod media;
mod memory_file;
mod memtable;
mod merge;
mod numbers;
mod operation;
mod options;
mod policy;
mod repair;
mod scans;
mod scheduler;
mod shape;
mod slot;
mod snapshot;
mod space;
mod statistics;
mod sync;
mod table;
#[cfg(test)]
mod test_store;
mod throttle;
mod tree;
mod unreadable;
mod value;

pub use batch::{BatchEntries, BatchEntry, WriteBatch};
pub use db::{Db, plan_repair, repair, repair_and_discard};
pub use db_iterator::DbIterator;
pub use error::{Error, ErrorKind};
pub use key::{KEY_BYTES_MAX, SEQUENCE_MAX, Sequence, VALUE_BYTES_MAX};
pub use media::Media;
pub use operation::{ReadOptions, WriteOptions};
pub use options::{
    Choice, CompactionPriority, Compression, DatabaseOption, Favour, OptionUnit, OptionWithoutEffect, Options, Profile,
    TreeKind,
};
#[doc(hidden)]
pub use options::{ExperimentOptions, moved_option};
pub use repair::{RepairAction, RepairPlan, RepairReport, RepairSpace, RepairStep};
pub use snapshot::Snapshot;
pub use statistics::{
    CounterValues, LevelStatistics, SpaceStatistics, Statistics, TableStatistics, Totals, WriteState, ZoneStatistics,
};
pub use value::{Key, Value};
