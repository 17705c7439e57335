//! Entries for fuzzers: each takes any bytes and must not panic.

use crate::batch::BatchRecord;

/// Bytes as a log file, and as instructions to write a log and damage it.
pub fn log(bytes: &[u8]) {
    crate::log::fuzz(bytes);
}

/// Bytes as a version edit and as the pointer to a manifest.
pub fn manifest(bytes: &[u8]) {
    crate::manifest::fuzz(bytes);
}

/// Bytes as a log record of batches.
pub fn batch(bytes: &[u8]) {
    if let Ok(record) = BatchRecord::decode(bytes) {
        assert_eq!(record.iter().count() as u64, record.count, "every entry decodes once the record does");
        let _ = record.last_sequence();
    }
}

/// Bytes as a table file, as they are and with checksums that fit; as the contents of a data block, and as every other
/// part of a table.
pub fn table(bytes: &[u8]) {
    crate::table::fuzzing::table(bytes);
    let mut sealed = bytes.to_vec();
    crate::table::fuzzing::seal(&mut sealed);
    crate::table::fuzzing::table(&sealed);
    crate::table::fuzzing::walk_block(bytes);
    crate::table::fuzzing::parts(bytes);
}

#[cfg(test)]
mod tests {
    use varve_env::Random;

    /// Random bytes, alone and behind what is right, through every entry.
    #[test]
    fn no_entry_panics() {
        let mut batch = crate::batch::WriteBatch::new();
        assert!(batch.put(b"key", b"value").and_then(|()| batch.delete(b"gone")).is_ok());
        let mut record = crate::batch::record_header(3, 2).to_vec();
        record.extend_from_slice(batch.encoded_entries());
        for seed in 0..3_000 {
            let mut random = Random::seeded(seed);
            let mut bytes = vec![0; random.index(400)];
            random.fill_bytes(&mut bytes);
            if random.chance(1, 2) {
                bytes.iter_mut().for_each(|byte| *byte %= 16);
            }
            if random.chance(1, 3) {
                bytes = record.clone();
                let position = random.index(bytes.len());
                bytes[position] = random.next_u64() as u8;
            }
            super::batch(&bytes);
            super::log(&bytes);
            super::manifest(&bytes);
            super::table(&bytes);
        }
    }
}
