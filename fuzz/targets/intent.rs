//! Intents of rewrites on interlaced disks.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_store::fuzzing::imr_intent(bytes));
