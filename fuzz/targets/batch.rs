//! Write batches in log records.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_engine::fuzzing::batch(bytes));
