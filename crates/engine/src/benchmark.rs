//! Micro-benchmarks of the engine's parts, for `examples/`.

pub use crate::table::benchmark::{Measurement, Workload, run};

pub mod memory;
