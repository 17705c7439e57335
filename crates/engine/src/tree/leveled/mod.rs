//! Levels of disjoint tables.

mod policy;
mod version;
