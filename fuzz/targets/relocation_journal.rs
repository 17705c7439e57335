//! The journal of relocated zones.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_block::fuzzing::relocation_journal(bytes));
