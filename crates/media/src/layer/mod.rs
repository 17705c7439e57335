//! Devices over devices and directories over directories: fault, crash, trace and overlay.
//!
//! Layers pass on contexts, protection information and the facets of a device, and describe
//! themselves as what they stand on.

pub(crate) mod crash;
mod fault;
mod overlay;
mod trace;

pub use crash::{CrashDevice, CrashVariant, DeviceCrashState, PersistencePoint};
pub use fault::{Fault, FaultDevice, FaultDirectory, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger};
pub use overlay::OverlayDevice;
pub use trace::{FileTrace, MemoryTrace, TextTrace, TraceDevice, TraceDirectory, TraceRecord, TraceSink};
