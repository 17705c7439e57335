//! A key-value store that knows what it is written on: a spec in, a stack out.
//!
//! The public face of the workspace. A [`Spec`] names a medium: a directory, a real device, or an
//! emulated one. [`Varve`] opens a database on it; a [`StackBuilder`] makes only what a database stands
//! on, for those who measure or compose themselves.
//!
//! ```
//! use varve::{ReadOptions, Varve, WriteBatch, WriteOptions};
//!
//! # fn main() -> Result<(), varve::Error> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let place = directory.path().join("db").display().to_string();
//! // let place = "/var/lib/varve";
//! let db = Varve::open(&place)?;
//! let mut batch = WriteBatch::new();
//! batch.put(b"lake/depth", b"120 m")?;
//! batch.put(b"lake/name", b"Suigetsu")?;
//! db.write(batch, &WriteOptions { sync: true })?;
//!
//! let mut walk = db.iterator(&ReadOptions::default().with_prefix(b"lake/"))?;
//! walk.seek_to_first();
//! while walk.valid() {
//!     println!("{} = {}", walk.key().escape_ascii(), walk.value().escape_ascii());
//!     walk.next();
//! }
//! walk.status()?;
//! # drop(walk);
//! db.close()
//! # }
//! ```
//!
//! Guarantees: a spec that parses writes back as an equal one; nothing touches a medium before a stack
//! is built; errors say what was expected, where, and what there is.

#![forbid(unsafe_code)]

mod configuration;
mod database;
mod description;
mod error;
mod file_store;
#[doc(hidden)]
pub mod fuzzing;
mod layer;
mod medium;
mod registry;
mod saved_options;
mod spec;
mod stack;
mod suggestion;

pub use configuration::{Configuration, MediaConfiguration};
pub use database::{DatabaseBuilder, Varve, open, plan_repair, repair, repair_and_discard};
pub use description::{DeviceDescription, StackDescription};
pub use error::{Error, ErrorKind};
pub use registry::{
    ArgumentDescription, KindDescription, OptionDescription, ValueForm, common_options, file_stores, media_kinds,
};
pub use saved_options::{SavedOptions, saved_options};
pub use spec::{ByteSize, ByteSizeError, Spec, SpecError, SpecErrorKind};
pub use stack::{Stack, StackBuilder, StackDevice, StackRole};
pub use suggestion::nearest_name;
pub use toml::Value as OptionValue;
pub use varve_engine::Media;
pub use varve_engine::cost;
pub use varve_engine::{
    BatchEntry, CompactionPriority, Compression, DatabaseOption, Db, DbIterator, Error as EngineError, KEY_BYTES_MAX,
    LevelStatistics, OptionUnit, Options, ReadOptions, RepairAction, RepairPlan, RepairReport, RepairStep, Snapshot,
    SpaceStatistics, Statistics, Totals, TreeKind, VALUE_BYTES_MAX, Value, WriteBatch, WriteOptions, WriteState,
};
pub use varve_env as env;
pub use varve_media as media;
pub use varve_store::{
    FileEntry, FileStore, Finding, Location, Occupancy, OccupancyDevice, OccupancyFile, OccupancyPiece, PieceUsage,
    Severity, StoreMeasure, StoreProperties,
};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
