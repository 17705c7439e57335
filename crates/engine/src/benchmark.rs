//! Micro-benchmarks of the engine's parts, for `examples/`.

pub mod memory;
mod table;

pub use table::{Measurement, Workload, run};
