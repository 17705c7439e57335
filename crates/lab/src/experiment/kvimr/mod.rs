//! `kvimr/*`: every figure of KVIMR (Liang et al., "KVIMR: Key-Value Store Aware Data Management Middleware
//! for Interlaced Magnetic Recording Based Hard Disk Drive", ATC 2021).
//!
//! The figures share loads: one that an earlier experiment of the same run needed is not run again.

mod ablation;
mod film;
mod foresight;
mod lives;
mod load;
mod logs;
mod mark;
mod mixes;
mod other_stores;
mod overall;
mod progress;
mod scales;
mod scheme;
mod settings;
mod table_size;
mod usage;

pub(super) use ablation::ABLATION;
pub(crate) use film::{LoadOnInterlaced, film_load};
pub(super) use logs::LOGS;
pub(super) use mixes::{FIG_7A, FIG_7B};
pub(super) use other_stores::FIG_9;
pub(super) use overall::{FIG_2A, FIG_2B, FIG_2C, FIG_5A, FIG_5B, FIG_5C, FIG_5D, FIG_5E, LOAD};
pub(super) use progress::{FIG_6A, FIG_6B, FIG_6C};
pub(super) use scales::SCALES;
pub(crate) use settings::PAIRS;
pub(super) use table_size::FIG_8;
pub(super) use usage::USAGE;
