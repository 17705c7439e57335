//! Compaction policies: what to compact next, as pure functions of a tree's shape.

mod leveled;
mod two_level;

pub(crate) use leveled::Leveled;
pub(crate) use two_level::TwoLevel;
