//! Frames of the log bands of a store on a zoned device.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_store::fuzzing::log_frame(bytes));
