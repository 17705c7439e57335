//! Blocks: what tables are divided into. Their bytes, in memory and on the medium, and the memory they are in.

mod buffer;
mod builder;
pub(crate) mod compress;
mod data_block;
mod layout;
mod memory;
mod slab;
mod trailer;

pub(crate) use buffer::AlignedBuffer;
pub(crate) use builder::BlockBuilder;
pub(crate) use data_block::{BlockContext, DataBlock, DataBlockBuffer, PinnedBytes};
pub(crate) use layout::{Layout, Position};
pub(crate) use trailer::{
    BLOCK_SIZE_MAX, BLOCK_TRAILER_BYTES, block_trailer, compression_number, place, split_block, verify_block,
};
