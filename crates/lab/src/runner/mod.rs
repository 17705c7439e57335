//! Runs workloads on a target and measures.

mod latency;
mod phase;
mod result;
mod timeline;
mod worker;

pub(crate) use latency::Latencies;
pub use latency::LatencySummary;
pub use phase::{Finish, Group, Phase, run_phase};
pub use result::{Amplification, DeviceActivity, GroupResult, KindResult, PhaseResult, VirtualTime};
pub use timeline::TimelinePoint;
