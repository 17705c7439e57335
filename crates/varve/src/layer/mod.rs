//! Layers over media, one file each.

mod fault;
mod trace;

pub(crate) use fault::FAULT;
pub(crate) use trace::TRACE;
