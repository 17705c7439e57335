//! Write-ahead logs and manifests as logs.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_engine::fuzzing::log(bytes));
