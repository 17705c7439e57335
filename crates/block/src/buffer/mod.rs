//! A write buffer: pages on a fast device before a disk (Zhang, section 4.4.3).
//!
//! [`WriteBuffer`] makes one device of the two. What leaves when is in `recency`, which page is where in `pages`, what of that is on the medium in
//! `journal` and `record`; `eviction` does what they say.

mod device;
mod error;
mod eviction;
mod journal;
mod opening;
mod pages;
mod parameters;
mod recency;
mod record;
mod transfer;

pub use device::WriteBuffer;
pub use error::BufferError;
pub use opening::BufferOpening;
pub(crate) use record::fuzz as fuzz_record;

pub use parameters::{BufferParameters, BufferStatistics, EvictionOrder};

#[cfg(test)]
mod tests;
