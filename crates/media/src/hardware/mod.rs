//! Real devices: files and block devices of the machine.

mod describe;
mod file_device;
mod positional;
mod submission;
#[cfg(test)]
mod tests;
mod uring;

pub use file_device::{FileDevice, FileDeviceOptions, IoEngine};
