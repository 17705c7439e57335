//! Kinds of media, one file each. A new one is its file, its module and its place in the table.

mod directory;
mod disk;
mod emulated;
mod hardware;
mod hasmr;
mod imr;
mod pmem;
mod raid;
mod ram;
mod smr;
mod ssd;
mod zns;
mod zones;

pub(crate) use hardware::DEV;
pub(crate) use pmem::is_real as is_real_memory;

use crate::registry::MediumKind;

/// Every kind of medium.
#[rustfmt::skip]
pub(crate) static MEDIA: &[MediumKind] = &[
    directory::FILE,
    disk::DISK,
    imr::IMR,
    smr::SMR,
    hasmr::HASMR,
    ssd::SSD,
    ssd::NVME,
    zns::ZNS,
    ram::RAM,
    pmem::PMEM,
    hardware::DEV,
    raid::RAID0,
    raid::RAID1,
    raid::RAID4,
    raid::RAID5,
    raid::RAID6,
];
