//! Traces of block devices: where they come from, and how they are replayed on a device.
//!
//! A trace is requests in order of arrival ([`BlockRequest`]); [`Synthetic`] and [`Calibrated`] make them up, [`parse_trace`] reads
//! what others wrote. [`replay`] asks a device for them as [`Pace`]
//! says: all when they came, or by threads of which each waits for its own.

mod calibrated;
mod engine;
pub mod formats;
mod request;
mod synthetic;

pub use calibrated::Calibrated;
pub use engine::{Pace, Partition, Replayed, Response, replay};
pub use formats::{ParseOptions, ParsedTrace, TraceError, TraceFormat, parse_trace};
pub use request::BlockRequest;
pub use synthetic::{Synthetic, Zones};
