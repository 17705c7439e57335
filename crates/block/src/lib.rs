//! Devices made of devices: they take devices and are devices, so whatever runs on a device runs on them.

pub mod buffer;
#[doc(hidden)]
pub mod fuzzing;
pub mod idler;
pub mod relocation;
mod wire;
