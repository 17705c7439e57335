//! Specs of media.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve::fuzzing::spec(bytes));
