//! Superblocks and everything opening a raw device reads.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_store::fuzzing::openings(bytes));
