//! A write buffer: pages on a fast device before a disk (Zhang, section 4.4.3).
//!
//! [`WriteBuffer`] makes one device of the two. When pages leave is in `room`, which in `recency`, which page is where in `pages`, what of
//! that is on the medium in `journal` and `record`; `eviction`, `rewriting`, `ahead` and `durability` do what they say.

mod ahead;
mod device;
mod durability;
mod error;
mod eviction;
mod journal;
mod opening;
mod pages;
mod parameters;
mod reading;
mod recency;
mod record;
mod rewriting;
mod room;
mod transfer;

pub use device::WriteBuffer;
pub use error::BufferError;
pub use opening::BufferOpening;
pub(crate) use record::fuzz as fuzz_record;

pub(crate) use transfer::{gather, scatter};

pub use parameters::{BufferParameters, BufferStatistics, EvictionAhead, EvictionOrder};

#[cfg(test)]
mod tests;
