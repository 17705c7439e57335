//! What a member of an array holds besides data.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_block::fuzzing::array_member(bytes));
