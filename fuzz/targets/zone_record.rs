//! The record of what the zones of a device are in.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_media::fuzzing::zone_record(bytes));
