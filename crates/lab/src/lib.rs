//! Workloads, traces, experiments and reports: the evidence.
//!
//! The lab stands on the facade and is used by the command line and by the comparison with other
//! stores. It has five parts, each usable by itself:
//!
//! - [`generator`]: keys, values and skewed choices, deterministic from a seed;
//! - [`workload`]: YCSB and db_bench as streams of operations;
//! - [`target`] and [`runner`]: any ordered store behind one narrow trait, driven by threads of an
//!   [`Env`](varve_env::Env) in real or virtual time, measured into a [`runner::PhaseResult`];
//! - [`report`] and [`experiment`]: tables, JSON and plots, and the list of named experiments;
//! - [`map`]: pictures and films of what lies where on a medium.
//!
//! Guarantee: in virtual time the same seed gives the same numbers, to the byte, on every machine.

pub mod bench;
pub mod error;
pub mod experiment;
pub mod generator;
pub mod host;
pub mod map;
pub mod replay;
pub mod report;
pub mod runner;
pub mod target;
pub mod workload;

pub use error::LabError;
use varve::{block, media};
