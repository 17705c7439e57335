//! What a write buffer keeps of itself.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_block::fuzzing::write_buffer(bytes));
