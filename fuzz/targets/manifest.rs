//! Version edits and the pointer to the manifest.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_engine::fuzzing::manifest(bytes));
