//! Entries for fuzzers: each takes any bytes and must not panic.

use crate::batch::BatchRecord;
use crate::cache::BlockCache;
use crate::db_iterator::DbIterator;
use crate::iterator::InternalIterator;
use crate::key;
use crate::memory_file::MemoryFile;
use crate::table::{
    KeyOrder, ReadContext, Readahead, SalvagedTable, Table, TableIteratorOptions, TableReadOptions, key_hash,
};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use varve_env::Env;
use varve_store::IoContext;

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
    whole_table(bytes);
    let mut sealed = bytes.to_vec();
    crate::table::fuzzing::seal(&mut sealed);
    whole_table(&sealed);
    salvage(bytes);
    salvage(&sealed);
    crate::table::fuzzing::walk_block(bytes);
    crate::table::fuzzing::parts(bytes);
}

/// Searches the bytes for blocks of the table that they say they are.
fn salvage(bytes: &[u8]) {
    let file = MemoryFile::of(bytes.to_vec()).reader();
    let Ok(Some(salvaged)) = SalvagedTable::search(&*file, |_| true, None, &IoContext::default()) else { return };
    let mut last: Vec<u8> = Vec::new();
    let taken = salvaged.for_each(|internal, _| {
        assert!(last.is_empty() || key::compare(&last, internal).is_lt(), "entries are in order");
        last = internal.to_vec();
        Ok(())
    });
    assert!(taken.is_ok());
    let _ = (salvaged.lost(None), salvaged.lost(Some((&last, &last))));
}

/// Opens the bytes as a table, walks it both ways, looks keys up, and verifies it.
pub(crate) fn whole_table(bytes: &[u8]) {
    let cache = Arc::new(BlockCache::new(1 << 20, None, None));
    let options = TableReadOptions {
        map: true,
        env: Env::real(),
        read_alignment_bytes: 1,
        io: IoContext::default(),
        memory: Arc::new(AtomicUsize::new(0)),
    };
    let file = MemoryFile::of(bytes.to_vec()).reader();
    let Ok(table) = Table::open(file, "fuzzed", 1, bytes.len() as u64, &options, cache) else { return };
    // Checksums of data blocks are not verified, so that damage reaches the decoders behind them.
    let (verify_checksums, order, io) = (false, KeyOrder::Checked, IoContext::default());
    let context = ReadContext { fill_cache: true, verify_checksums, order, io };
    for readahead in [Readahead::growing(1 << 16), Readahead::Fixed { bytes: 1 << 14 }] {
        let options = TableIteratorOptions { fill_cache: false, verify_checksums, readahead, order, io };
        let mut walk = table.iterator(options);
        walk.seek_to_first();
        let mut steps = 0;
        let mut last = Vec::new();
        while walk.valid() && steps < 10_000 {
            let internal = walk.key().to_vec();
            assert!(last.is_empty() || key::compare(&last, &internal).is_lt(), "a walk goes forward");
            let user = key::user_key(&internal);
            let _ = (walk.value().len(), table.get(&internal, key_hash(user), &context));
            last = internal;
            steps += 1;
            walk.next();
        }
        walk.seek_to_last();
        last.clear();
        while walk.valid() && steps < 20_000 {
            assert!(last.is_empty() || key::compare(walk.key(), &last).is_lt(), "a walk goes backward");
            last = walk.key().to_vec();
            steps += 1;
            walk.previous();
        }
        // A walk that skips by seeking ends.
        for sequence in [0, 5, key::SEQUENCE_MAX] {
            let mut walk = DbIterator::new(Box::new(table.iterator(options)), sequence, None, None, Box::new(()));
            walk.seek_to_first();
            while walk.valid() {
                walk.next();
            }
            walk.seek_to_last();
            while walk.valid() {
                walk.previous();
            }
        }
    }
    let _ = table.approximate_offset_of(&key::lookup_key(b"key", 1));
    let _ = table.verify(IoContext::default());
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
