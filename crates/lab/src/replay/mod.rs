//! Traces of block devices: where they come from, and how they are replayed on a device.
//!
//! A trace is requests in order of arrival ([`BlockRequest`]); [`Synthetic`] and [`Calibrated`] make them up, [`parse_trace`] reads
//! what others wrote, in the [`formats`] there are. [`replay`] asks a device for them as [`ReplayOptions`] say: all when they came, by threads of
//! which each waits for its own, or by one submitter under a controller ([`Pace`], [`Partition`], [`replay_controlled`]), as fast as they were recorded or faster ([`Speed`]).

mod calibrated;
mod engine;
pub mod formats;
mod open_loop;
mod options;
mod partition;
mod request;
mod submitter;
mod synthetic;

pub use calibrated::Calibrated;
pub use engine::{ReplayError, Replayed, Response, replay, replay_controlled};
pub use formats::{ParseOptions, ParsedTrace, TraceError, TraceFormat, TraceParser, parse_trace};
pub use options::{Pace, ReplayOptions, Speed};
pub use partition::Partition;
pub use request::BlockRequest;
pub use synthetic::{Synthetic, Zones};
