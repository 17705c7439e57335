//! The record of what lies in the media cache of an emulated drive.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_media::fuzzing::media_cache_record(bytes));
