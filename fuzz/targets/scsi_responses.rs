//! What SCSI disks answer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| varve_media::fuzzing::scsi_responses(bytes));
