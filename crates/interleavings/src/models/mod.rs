//! The models: a few threads each, who use a part of the engine as the engine does.

mod arena;
mod memtable;
mod slot;
mod snapshot;
mod write_group;

use crate::exploration::Fault;

/// A few threads that use one part.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// What it shows.
    pub name: &'static str,
    /// One run of a seed's model; it panics when something does not hold.
    pub run: fn(u64),
    /// Seeds in a row that make different models, from any.
    pub seeds: u64,
    /// What it has to find when it is planted.
    pub finds: &'static [Fault],
}

/// All of them.
pub const MODELS: &[&[Model]] = &[arena::MODELS, memtable::MODELS, slot::MODELS, snapshot::MODELS, write_group::MODELS];
