//! A key-value store that knows what it is written on: a spec in, a stack out.
//!
//! An ordered, embedded, crash-safe key-value store. [`Varve::open`] opens a database in a directory; a [`Spec`] names any
//! other medium (a raw disk, or an emulated disk or SSD in virtual time) for [`Varve::open_spec`]; [`Varve::builder`] takes
//! every choice.
//!
//! ```
//! use varve::{Varve, WriteBatch};
//!
//! # fn main() -> varve::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("db");
//! // let path = "/var/lib/varve";
//! let db = Varve::open(&path)?;
//! db.put("lake/name", "Suigetsu")?;
//! assert_eq!(db.get("lake/name")?.as_deref(), Some(&b"Suigetsu"[..]));
//!
//! let mut batch = WriteBatch::new();
//! batch.put("lake/depth", "120 m")?;
//! batch.delete("lake/nickname")?;
//! db.write(batch)?;
//!
//! for pair in db.prefix("lake/") {
//!     let (key, value) = pair?;
//!     println!("{} = {}", key.escape_ascii(), value.escape_ascii());
//! }
//! db.close()
//! # }
//! ```
//!
//! # Where to go on
//!
//! - Write: [`Varve::put`], [`Varve::delete`], [`WriteBatch`]; durable at once with [`WriteOptions`].
//! - Read: [`Varve::get`]; [`Varve::iter`], [`Varve::range`] and [`Varve::prefix`], from both ends; [`Snapshot`] for a moment;
//!   [`Cursor`] to seek.
//! - Choose: [`DatabaseBuilder`], [`Options`], [`mod@options`] for configuration files.
//! - Look after it: [`Varve::checkpoint`], [`Varve::check`], [`DatabaseBuilder::repair`], [`Varve::statistics`].
//! - When something fails: [`Error::kind`].
//! - Programs that run, in the folder `examples` of this crate: `embed`, `batch_and_snapshot`, `emulated_medium`,
//!   `checkpoint`, `read_only`.
//!
//! The modules hold what those need who measure, or compose a stack themselves.
//!
//! Guarantees: a spec that parses writes back as an equal one; nothing touches a medium before a stack
//! is built; errors say what was expected, where, and what there is.

#![forbid(unsafe_code)]

mod batch;
mod builder;
mod configuration;
mod cursor;
mod database;
mod description;
mod error;
mod file_store;
#[doc(hidden)]
pub mod fuzzing;
mod image;
mod iter;
mod layer;
mod medium;
mod read_options;
mod registry;
mod saved_options;
mod snapshot;
pub mod spec;
pub mod stack;
mod suggestion;

pub use batch::WriteBatch;
pub use builder::DatabaseBuilder;
pub use cursor::Cursor;
pub use database::Varve;
pub use error::{Error, ErrorKind, Result};
pub use image::MediaImage;
pub use iter::Iter;
pub use read_options::ReadOptions;
pub use snapshot::Snapshot;
#[doc(inline)]
pub use spec::Spec;
pub use varve_engine::{
    BatchEntry, Compression, KEY_BYTES_MAX, Key, Options, TreeKind, VALUE_BYTES_MAX, Value, WriteOptions,
};

/// Options by name: what there are, configuration files, and what was saved with a database.
pub mod options {
    pub use crate::configuration::{Configuration, MediaConfiguration};
    pub use crate::saved_options::{SavedOptions, saved_options};
    pub use crate::suggestion::nearest_name;
    pub use toml::Value as OptionValue;
    pub use varve_engine::{
        Choice, CompactionPriority, DatabaseOption, Favour, OptionUnit, OptionWithoutEffect, Profile,
    };
    #[doc(hidden)]
    pub use varve_engine::{ExperimentOptions, moved_option};
}

/// What [`Varve::check`](crate::Varve::check) finds, and what a repair is going to do, and did.
pub mod repair {
    pub use varve_engine::{RepairAction, RepairPlan, RepairReport, RepairSpace, RepairStep};
    pub use varve_store::{Finding, Severity};
}

/// What a database tells about itself.
pub mod statistics {
    pub use varve_engine::{
        CounterValues, LevelStatistics, SpaceStatistics, Statistics, TableStatistics, Totals, WriteState,
        ZoneStatistics,
    };
}

/// The database below the facade, on media that somebody else composed.
pub mod engine {
    pub use varve_engine::{
        BatchEntries, Db, DbIterator, Error, Media, ReadOptions, Snapshot, WriteBatch, cost, plan_repair, repair,
        repair_and_discard,
    };
}

/// Where files of a database lie: stores, and who occupies what of their devices.
pub mod store {
    pub use varve_store::{
        CreateOptions, FileEntry, FileKind, FileStore, Location, Occupancy, OccupancyDevice, OccupancyFile,
        OccupancyPiece, OpenOptions, PieceUsage, StoreError, StoreMeasure, StoreProperties,
    };
}

/// Time, threads and randomness: those of the machine, or simulated ones.
pub mod env {
    #[doc(inline)]
    pub use varve_env::*;
}

/// Devices made of devices.
pub mod block {
    #[doc(inline)]
    pub use varve_block::*;
}

/// Devices: rules, timing and backing, real and emulated.
pub mod media {
    #[doc(inline)]
    pub use varve_media::*;
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
