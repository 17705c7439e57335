//! The S2TMap of a store of interlaced disks.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_store::fuzzing::imr_map(bytes));
