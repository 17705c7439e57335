//! File stores, one file each.

mod band;
mod extent;
mod imr;
mod plain;

pub(crate) use band::BAND;
pub(crate) use extent::EXTENT;
pub(crate) use imr::IMR;
pub(crate) use plain::PLAIN;
