//! Devices over devices and directories over directories: fault, crash, trace and overlay.
//!
//! Layers pass on contexts, protection information and the facets of a device, and describe
//! themselves as what they stand on.

mod block_bytes;
pub(crate) mod crash;
mod fault;
mod overlay;
mod trace;

use crate::device::BlockDevice;
use fault::WornZones;
use std::sync::Arc;
use trace::Tracer;

pub use crash::{
    CrashDevice, CrashGroup, CrashVariant, DeviceCrashState, FlushAudit, GroupCrashState, LineImages, PersistencePoint,
};
pub use fault::{Fault, FaultDevice, FaultDirectory, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger};
pub use overlay::OverlayDevice;
pub use trace::{FileTrace, MemoryTrace, TextTrace, TraceDevice, TraceDirectory, TraceRecord, TraceSink};

pub(crate) use block_bytes::BlockBytes;
pub(crate) use crash::{CrashBytes, CrashZones};
pub(crate) use fault::{FaultBytes, FaultZones};
pub(crate) use overlay::OverlayTracks;
pub(crate) use trace::{TraceBytes, TraceZones};

/// A layer that is put over a device, as facets of the device are told of it.
pub(crate) enum Layer<'a> {
    /// Faults of the device called `name`, and its zones that they wore out, if it has zones.
    Fault { injector: &'a FaultInjector, name: &'a str, worn: Option<&'a Arc<WornZones>> },
    /// Traces of the device called `name`.
    Trace { tracer: &'a Tracer, name: &'a str },
    /// What a power cut could leave is known.
    Crash(&'a CrashDevice),
    /// Content after a power cut, with these blocks. Zones and tracks are rebuilt from the blocks.
    CrashImage(&'a Arc<dyn BlockDevice>),
    /// Only read, with these blocks. Zones are made with them.
    Overlay(&'a Arc<dyn BlockDevice>),
}
