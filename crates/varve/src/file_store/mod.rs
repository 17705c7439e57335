//! File stores, one file each.

mod extent;
mod plain;

pub(crate) use extent::EXTENT;
pub(crate) use plain::PLAIN;
