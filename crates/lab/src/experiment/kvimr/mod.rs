//! `kvimr/*`: every figure of KVIMR (Liang et al., "KVIMR: Key-Value Store Aware Data Management Middleware
//! for Interlaced Magnetic Recording Based Hard Disk Drive", ATC 2021).
//!
//! The figures share loads: one that an earlier experiment of the same run needed is not run again.

mod ablation;
mod alternatives;
mod bound;
mod film;
mod floor;
mod foresight;
mod lives;
mod load;
mod logs;
mod mark;
mod mixes;
mod offline;
mod other_stores;
mod overall;
mod progress;
mod reads;
mod robust;
mod scales;
mod scheme;
mod settings;
mod table_size;
mod usage;

pub(crate) use film::{LoadOnInterlaced, film_load};
pub(crate) use settings::PAIRS;

use super::Experiment;

/// In the order they are listed.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    overall::FIG_2A,
    overall::FIG_2B,
    overall::FIG_2C,
    overall::FIG_5A,
    overall::FIG_5B,
    overall::FIG_5C,
    overall::FIG_5D,
    overall::FIG_5E,
    progress::FIG_6A,
    progress::FIG_6B,
    progress::FIG_6C,
    mixes::FIG_7A,
    mixes::FIG_7B,
    table_size::FIG_8,
    other_stores::FIG_9,
    overall::LOAD,
    bound::BOUND,
    offline::OFFLINE,
    bound::FULL,
    scales::SCALES,
    ablation::ABLATION,
    alternatives::ALTERNATIVES,
    logs::LOGS,
    usage::USAGE,
    reads::READS,
    robust::ROBUST,
];
