//! Devices over devices and directories over directories: fault, crash and trace.

pub(crate) mod crash;

pub use crash::{CrashDevice, CrashVariant, DeviceCrashState, PersistencePoint};
