//! Superblocks and everything opening a raw device reads.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    varve_store::fuzzing::extent_open(bytes);
    varve_store::fuzzing::imr_open(bytes);
    varve_store::fuzzing::band_open(bytes);
});
