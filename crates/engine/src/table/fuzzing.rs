//! Decoders of tables over arbitrary bytes. None may panic, whatever the bytes.

use super::block::Layout;
use super::buffer::AlignedBuffer;
use super::compress;
use super::filter::Filter;
use super::format::FOOTER_BYTES;
use super::index::Index;
use super::iterator::{Readahead, TableIteratorOptions};
use super::properties::TableProperties;
use super::reader::{ReadContext, Table, TableReadOptions};
use crate::cache::BlockCache;
use crate::iterator::InternalIterator;
use crate::key;
use crate::memory_file::MemoryFile;
use crate::options::Compression;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use varve_env::Env;
use varve_store::IoContext;

/// Opens the bytes as a table, walks it both ways, looks keys up, and verifies it. Checksums of data
/// blocks are not verified, so that damage reaches the decoders behind them.
pub(crate) fn table(bytes: &[u8]) {
    let cache = Arc::new(BlockCache::new(1 << 20, None, None));
    let options = TableReadOptions {
        env: Env::real(),
        read_alignment_bytes: 1,
        io: IoContext::default(),
        memory: Arc::new(AtomicUsize::new(0)),
    };
    let file = MemoryFile::of(bytes.to_vec()).reader();
    let Ok(table) = Table::open(file, "fuzzed", 1, bytes.len() as u64, &options, cache) else { return };
    let context = ReadContext { fill_cache: true, verify_checksums: false, io: IoContext::default() };
    for readahead in [Readahead::Growing { max_bytes: 1 << 16 }, Readahead::Fixed { bytes: 1 << 14 }] {
        let options =
            TableIteratorOptions { fill_cache: false, verify_checksums: false, readahead, io: IoContext::default() };
        let mut walk = table.iterator(options);
        walk.seek_to_first();
        let mut steps = 0;
        while walk.valid() && steps < 10_000 {
            let internal = walk.key().to_vec();
            let user = key::user_key(&internal);
            let _ = (walk.value().len(), table.get(&internal, super::key_hash(user), &context));
            steps += 1;
            walk.next();
        }
        walk.seek_to_last();
        while walk.valid() && steps < 20_000 {
            steps += 1;
            walk.previous();
        }
    }
    let _ = table.verify(IoContext::default());
}

/// Decodes the bytes as the contents of a data block and uses what it gets.
pub(crate) fn walk_block(bytes: &[u8]) {
    let Ok(layout) = Layout::decode(bytes) else { return };
    let mut internal = Vec::new();
    let mut total = 0u64;
    for entry in 0..layout.entry_count().min(10_000) {
        layout.internal_key(bytes, entry, &mut internal);
        let value = &bytes[layout.value(bytes, entry).0];
        total += value.len() as u64 + u64::from(value.last().copied().unwrap_or(0));
        let position = layout.search(bytes, key::user_key(&internal), key::trailer(&internal));
        total += position.entry as u64;
    }
    std::hint::black_box(total);
}

/// Decodes the bytes as every other part of a table.
pub(crate) fn parts(bytes: &[u8]) {
    if let Ok(index) = Index::decode(bytes, bytes.len() as u64 * 100) {
        std::hint::black_box(index.find(b"key", 1));
    }
    let _ = TableProperties::decode(bytes);
    if let Some(mut buffer) = AlignedBuffer::zeroed(bytes.len(), 64) {
        buffer.copy_from_slice(bytes);
        if let Ok(filter) = Filter::decode(buffer, bytes.len()) {
            std::hint::black_box(filter.may_contain(super::key_hash(bytes)));
        }
    }
    if let Some(footer) = bytes.first_chunk::<FOOTER_BYTES>() {
        let _ = super::format::Footer::decode(footer, bytes.len() as u64);
    }
    for compression in [Compression::Lz4, Compression::Zstd] {
        let _ = compress::decompress(bytes, compression, 1 << 20);
    }
}

#[cfg(test)]
mod tests {
    /// Found by fuzzing: 51 bytes whose tail promised 1.7e8 entries of no bytes each, all of which
    /// were checked.
    #[test]
    fn a_block_cannot_claim_more_entries_than_its_bytes_can_tell_apart() {
        let mut block = vec![0; 51];
        block[15] = 0x2a;
        block[22] = 0xff;
        block[24..26].copy_from_slice(&[0x02, 0x0f]);
        block[28] = 0x03;
        block[30] = 0x0a;
        block[47] = 0x08;
        assert!(super::Layout::decode(&block).is_err());
        super::walk_block(&block);
    }
}
