//! Records and checkpoints of a store's metadata.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_store::fuzzing::decoders(bytes));
