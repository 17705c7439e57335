//! Tables: immutable sorted files, written once, front to back.
//!
//! [`format`] holds what builder and reader share and the byte table of the file; each part's bytes
//! are described where the part is coded.

mod builder;
mod copied;
mod filter;
mod format;
mod histogram;
mod identity;
mod index;
mod iterator;
mod mapped;
#[cfg(test)]
mod mapped_tests;
mod prefix_search;
mod properties;
mod reader;
mod record;
mod salvage;
#[cfg(test)]
mod salvage_tests;
mod table_cache;
mod verify;

pub(crate) mod fuzzing;

#[cfg(test)]
pub(crate) mod observed_file;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use builder::{TableBuildOptions, TableBuilder, TableSummary};
pub(crate) use copied::CopiedTable;
pub(crate) use filter::key_hash;
pub(crate) use format::MAGIC;
#[cfg(test)]
pub(crate) use histogram::Bucket;
pub(crate) use histogram::Histogram;
pub(crate) use identity::TableIdentity;
pub(crate) use iterator::{Readahead, TableIterator, TableIteratorOptions};
pub(crate) use reader::{Found, KeyOrder, Lookup, ReadContext, Table, TableReadOptions};
pub(crate) use record::Record;
pub(crate) use salvage::{LostKeys, SalvagedTable};
pub(crate) use table_cache::{FileAccess, TableCache, TableHandle, TableRef};
