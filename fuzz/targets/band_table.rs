//! The band table of a store on a zoned device.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_store::fuzzing::band_table(bytes));
