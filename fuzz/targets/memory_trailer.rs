//! Trailers of files of persistent memory.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_media::fuzzing::memory_trailer(bytes));
