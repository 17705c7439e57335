//! Entry points for fuzzing: any bytes, no panic.

/// Decodes a journal of relocated zones: the first byte is the number of zones, the others are those of one zone of the journal.
pub fn relocation_journal(data: &[u8]) {
    crate::relocation::fuzz_journal(data);
}
