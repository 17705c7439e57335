//! Decoders of tables over arbitrary bytes. None may panic, whatever the bytes.

use super::filter::Filter;
use super::format::{BlockHandle, FOOTER_BYTES, Footer};
use super::index::Index;
use super::properties::TableProperties;
use super::record::Record;
use crate::block::{self, AlignedBuffer, BLOCK_TRAILER_BYTES, Layout, compress};
use crate::key;
use crate::options::Compression;

/// Makes every checksum of a table fit the bytes, as far as its parts can be found, so that damage gets past them.
pub(crate) fn seal(bytes: &mut [u8]) {
    let size_bytes = bytes.len() as u64;
    let Some(footer_at) = bytes.len().checked_sub(FOOTER_BYTES) else { return };
    let footer_bytes = &mut bytes[footer_at..];
    footer_bytes[56..68].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let checksum = crate::checksum::crc32c(&footer_bytes[..68]);
    footer_bytes[68..72].copy_from_slice(&checksum.to_le_bytes());
    footer_bytes[72..].copy_from_slice(&super::format::MAGIC);
    let Some(footer) = bytes.last_chunk().and_then(|footer| Footer::decode(footer, size_bytes).ok()) else { return };
    let mut seal_block = |handle: BlockHandle, kind: Option<u8>| {
        let block = usize::try_from(handle.offset_bytes)
            .ok()
            .zip(handle.end().and_then(|end| usize::try_from(end).ok()))
            .and_then(|(start, end)| bytes.get_mut(start..end))?;
        let kind_at = block.len().checked_sub(BLOCK_TRAILER_BYTES)?;
        block[kind_at] = kind.unwrap_or(block[kind_at]);
        let place = block::place(footer.table_id, handle.offset_bytes);
        let checksum = crate::checksum::crc32c(&block[..=kind_at]) ^ place;
        block[kind_at + 1..].copy_from_slice(&checksum.to_le_bytes());
        Some(block[..kind_at].to_vec())
    };
    seal_block(footer.filter, Some(0));
    seal_block(footer.properties, Some(0));
    let index = seal_block(footer.index, Some(0));
    let Some(Ok(index)) = index.map(|index| Index::decode(&index, footer.filter.offset_bytes)) else { return };
    for block in 0..index.blocks() {
        seal_block(index.handle(block), None);
    }
}

/// Decodes the bytes as the contents of a data block and uses what it gets.
pub(crate) fn walk_block(bytes: &[u8]) {
    let Ok(layout) = Layout::decode_in_any_order(bytes) else { return };
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
    if let Some(record) = Record::decode(bytes) {
        assert!(record.encode().is_none_or(|again| again == bytes), "a record comes back as it was");
    }
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
