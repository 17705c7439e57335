//! Everything opening a raw device reads, its superblocks most often.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_store::fuzzing::openings(bytes));
