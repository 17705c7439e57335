//! Byte-addressable persistent memory.

use crate::device::Facet;
use crate::error::MediaError;
use crate::layer::{FaultBytes, Layer, TraceBytes};
use std::sync::Arc;

/// Memory that is loaded and stored directly; durable after flush and fence.
///
/// Any store not followed by `flush` of its lines and `fence` may be kept or lost by a power cut,
/// cache line by cache line; an aligned 8-byte store is never torn.
pub trait ByteAddressable: Send + Sync {
    /// Bytes one can address.
    fn capacity_bytes(&self) -> u64;
    /// Unit of write-back.
    fn line_bytes(&self) -> u32;
    /// Copies `data.len()` bytes from `offset_bytes`.
    fn load(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), MediaError>;
    /// Copies `data` to `offset_bytes`; not durable yet.
    fn store(&self, offset_bytes: u64, data: &[u8]) -> Result<(), MediaError>;
    /// Starts write-back of the lines of a range (CLWB).
    fn flush(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), MediaError>;
    /// Waits for all write-backs started by this thread (SFENCE).
    fn fence(&self) -> Result<(), MediaError>;
}

impl Facet for dyn ByteAddressable {
    /// What changes without a request is seen by no layer that keeps what was written.
    fn through(inner: &Arc<Self>, layer: &Layer<'_>) -> Option<Arc<Self>> {
        match layer {
            Layer::Fault { injector, name, .. } => Some(FaultBytes::facet(injector, name, inner)),
            Layer::Trace { tracer, name } => Some(TraceBytes::facet(tracer, name, inner)),
            Layer::Crash(_) | Layer::CrashImage | Layer::Overlay => None,
        }
    }
}
