//! Tables: immutable sorted files, written once, front to back.
//!
//! [`format`] holds what builder and reader share and the byte table of the file; each part's bytes
//! are described where the part is coded.

mod block;
mod block_builder;
mod block_memory;
mod buffer;
mod builder;
mod compress;
mod data_block;
mod filter;
mod format;
mod histogram;
mod identity;
mod index;
mod iterator;
mod prefix_search;
mod properties;
mod reader;
mod slab;
mod verify;

pub(crate) mod benchmark;
pub(crate) mod fuzzing;

#[cfg(test)]
pub(crate) mod observed_file;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use builder::{TableBuildOptions, TableBuilder, TableSummary};
pub(crate) use data_block::{DataBlock, PinnedBytes};
pub(crate) use filter::key_hash;
pub(crate) use format::MAGIC;
#[cfg(test)]
pub(crate) use histogram::Bucket;
pub(crate) use histogram::Histogram;
pub(crate) use identity::TableIdentity;
pub(crate) use iterator::{Readahead, TableIterator, TableIteratorOptions};
pub(crate) use reader::{Found, KeyOrder, Lookup, ReadContext, Table, TableReadOptions};
