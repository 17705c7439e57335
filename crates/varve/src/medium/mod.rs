//! Kinds of media, one file each.

mod directory;
mod disk;
mod emulated;
mod hardware;
mod imr;
mod ram;
mod ssd;

pub(crate) use directory::FILE;
pub(crate) use disk::DISK;
pub(crate) use hardware::DEV;
pub(crate) use imr::IMR;
pub(crate) use ram::RAM;
pub(crate) use ssd::{NVME, SSD};
