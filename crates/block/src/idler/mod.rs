//! Control of when a host-aware or device-managed shingled disk cleans its media cache (Zhang, chapter 4).
//!
//! Such a disk cleans when nobody asks anything of it, which stops at the next command, or when its cache is full, while
//! requests wait for seconds. A controller over it holds requests back for a while so that it cleans before it must.
//!
//! [`Controller`]s are state machines without I/O or clock, of one file each: [`Unrestrained`] holds nothing back,
//! [`FixedIdle`] does so at fixed times (AT-IC), and [`Idler`] by how full it takes the cache to be and what the workload is like.
//! [`ControlledDevice`] does what they say.

mod control;
mod controller;
mod extents;
mod fixed;
mod ghost;
mod log;
mod paper;
mod reports;
mod unrestrained;

pub use control::{ControlStatistics, ControlledDevice};
pub use controller::{Arrival, Controller, Verdict, Work};
pub use fixed::FixedIdle;
pub use ghost::GhostCache;
pub use paper::{Idler, IdlerParameters};
pub use unrestrained::Unrestrained;

#[cfg(test)]
mod tests;
