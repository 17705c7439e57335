//! Entry points for fuzzing: any bytes, no panic.

/// Decodes a record of zones.
pub fn zone_record(data: &[u8]) {
    crate::emulated::fuzz_zone_record(data);
}

/// Decodes a record of what lies in a media cache.
pub fn media_cache_record(data: &[u8]) {
    crate::emulated::fuzz_media_cache_record(data);
}

/// Reads what a SCSI disk answers.
pub fn scsi_responses(data: &[u8]) {
    crate::hardware::fuzz_scsi_responses(data);
}

/// Reads the trailer of a file of persistent memory.
pub fn memory_trailer(data: &[u8]) {
    crate::memory::fuzz_memory_trailer(data);
}
