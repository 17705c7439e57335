//! Traces as text, in every format there is.
//!
//! The sources are the lab's, included by path: they need nothing of it, and to build the lab for this would take longer than all they are.

#![no_main]

#[path = "../../crates/lab/src/replay/formats/mod.rs"]
#[allow(dead_code, unused_imports, reason = "what the lab takes of them")]
mod formats;
#[path = "../../crates/lab/src/replay/request.rs"]
mod request;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| formats::fuzz(bytes));
