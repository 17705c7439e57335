//! Compaction policies: what to compact next, as pure functions of a tree's shape.

mod coalescing;
mod leveled;
pub(crate) mod tombstones;
mod two_level;

pub(crate) use coalescing::coalescing;
pub(crate) use leveled::Leveled;
pub(crate) use two_level::TwoLevel;
