//! Superblocks and identity blocks of devices, as they are and with a checksum that is right.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_store::fuzzing::identity(bytes));
