//! Tables, their blocks, filters, indexes and properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_engine::fuzzing::table(bytes));
