//! Entry points for fuzzing: any bytes, no panic.

/// Decodes a journal of relocated zones: the first byte is the number of zones, the others are those of one zone of the journal.
pub fn relocation_journal(data: &[u8]) {
    crate::relocation::fuzz_journal(data);
}

/// Decodes a superblock of a write buffer and a record of its page map, as they are and with the magics and checksums that bytes at random do
/// not have; what is taken must fit what it says.
pub fn write_buffer(data: &[u8]) {
    crate::buffer::fuzz_record(data);
}

/// Decodes a superblock of a member of an array and a page of its intent map, as they are and with the magics and checksums
/// that random bytes do not have; what is taken must fit what it says.
pub fn array_member(data: &[u8]) {
    crate::raid::fuzz(data);
}
