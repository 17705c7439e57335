//! What is kept in memory of tables: open tables and data blocks.

mod block_cache;
mod eviction;

#[cfg(test)]
mod tests;

pub(crate) use block_cache::{BlockCache, FileBlocks};
pub(crate) use eviction::{EvictedBlock, EvictionQueue, EvictionSink};
