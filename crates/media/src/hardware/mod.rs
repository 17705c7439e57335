//! Real devices: files and block devices of the machine.

mod describe;
mod file_device;
mod one_write;
mod positional;
mod scsi;
mod submission;
#[cfg(test)]
mod tests;
mod uring;
mod zone_commands;
mod zone_interface;
mod zoned_device;

pub(crate) use scsi::fuzz as fuzz_scsi_responses;

pub use file_device::{FileDevice, FileDeviceOptions, IoEngine};
pub use zoned_device::open_zoned_device;
