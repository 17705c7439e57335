//! One request of a trace.

/// A request that some host once made, or might have made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// When it came, from the begin of the trace.
    pub arrival_nanos: u64,
    /// Write, or else read.
    pub is_write: bool,
    /// First byte.
    pub offset_bytes: u64,
    /// Bytes.
    pub length_bytes: u32,
    /// How long it took where it was traced, if the trace says.
    pub latency_nanos: Option<u64>,
}
