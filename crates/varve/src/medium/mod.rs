//! Kinds of media, one file each.

mod directory;
mod disk;
mod emulated;
mod hardware;
mod imr;
mod ram;
mod smr;
mod ssd;
mod zns;
mod zones;

pub(crate) use directory::FILE;
pub(crate) use disk::DISK;
pub(crate) use hardware::DEV;
pub(crate) use imr::IMR;
pub(crate) use ram::RAM;
pub(crate) use smr::SMR;
pub(crate) use ssd::{NVME, SSD};
pub(crate) use zns::ZNS;
