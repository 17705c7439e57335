//! Devices made of devices: they take devices and are devices, so whatever runs on a device runs on them.

#[cfg(test)]
mod attempts;
pub mod buffer;
#[doc(hidden)]
pub mod fuzzing;
pub mod idler;
mod journal;
#[cfg(test)]
mod layer_syncs;
pub mod raid;
pub mod relocation;
mod wire;
