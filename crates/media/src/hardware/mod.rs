//! Real devices: files and block devices of the machine.

mod describe;
mod file_device;
mod positional;
mod submission;
#[cfg(test)]
mod tests;
mod uring;
mod zone_commands;
mod zoned_device;

pub use file_device::{FileDevice, FileDeviceOptions, IoEngine};
pub use zoned_device::open_zoned_device;
