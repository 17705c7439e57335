//! Copies of blocks and records in a cache zone, one batch behind the other.
//!
//! A batch, little-endian:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic `vrvcache` |
//! | 8 | 2 | version, 1 |
//! | 10 | 2 | zero |
//! | 12 | 4 | copies, 1 to 65,536 |
//! | 16 | 4 | bytes of the batch with this header, a multiple of 16 |
//! | 20 | 4 | zero |
//! | 24 | 8 | XXH3-64 of the first 24 bytes and the entries |
//! | 32 | 24 each | entries |
//! | behind, at multiples of 16 | each | a block's bytes, and its check of 8 |
//!
//! An entry:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | number of the file: that of its stamp |
//! | 8 | 8 | where the block begins in the file; of a record its label, with the highest bit, which no place in a file has |
//! | 16 | 4 | its bytes; of a record those of its length (4, little-endian) and the record |
//! | 20 | 1 | how often it was read lately, at most 15 |
//! | 21 | 3 | zero |
//!
//! The check of a copy is XXH3-64 of its bytes, seeded by file, offset and length. So a copy that rotted, or is of another block,
//! is told from the one that is wanted.

use super::BlockKey;
use super::index::COPY_UNIT_BYTES;
use super::sketch::COUNT_MAX;
use crate::wire::Reader;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64_with_seed};

const MAGIC: &[u8; 8] = b"vrvcache";
const VERSION: u16 = 1;

/// Bytes before the entries.
pub(in crate::hybrid) const HEADER_BYTES: usize = 32;

/// Bytes of an entry.
pub(in crate::hybrid) const ENTRY_BYTES: usize = 24;

/// Bytes of a copy's check.
pub(in crate::hybrid) const CHECK_BYTES: usize = 8;

const COPIES_MAX: u32 = 1 << 16;

/// One copy of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hybrid) struct CopyEntry {
    pub(in crate::hybrid) key: BlockKey,
    pub(in crate::hybrid) length_bytes: u32,
    /// How often it was read lately.
    pub(in crate::hybrid) count: u8,
    /// Where it begins in its batch. Follows from those before it.
    pub(in crate::hybrid) offset_bytes: u64,
}

/// What makes a copy that of a block.
pub(in crate::hybrid) fn check_of((file, offset_bytes): BlockKey, bytes: &[u8]) -> u64 {
    let seed = file.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ offset_bytes.rotate_left(32) ^ bytes.len() as u64;
    xxh3_64_with_seed(bytes, seed)
}

fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(COPY_UNIT_BYTES)
}

/// Bytes that a copy takes in a batch, its entry included.
pub(in crate::hybrid) fn copy_bytes(length_bytes: usize) -> u64 {
    padded((length_bytes + CHECK_BYTES) as u64) + ENTRY_BYTES as u64
}

/// Bytes of a batch whose copies take so many.
pub(in crate::hybrid) fn batch_bytes(copies_bytes: u64) -> u64 {
    padded(HEADER_BYTES as u64 + copies_bytes) + COPY_UNIT_BYTES
}

/// A batch that is put together.
#[derive(Debug, Default)]
pub(in crate::hybrid) struct Batch {
    entries: Vec<CopyEntry>,
    blocks: Vec<u8>,
}

impl Batch {
    pub(in crate::hybrid) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The blocks it has copies of.
    pub(in crate::hybrid) fn keys(&self) -> Vec<BlockKey> {
        self.entries.iter().map(|entry| entry.key).collect()
    }

    /// Bytes it will have, at most.
    pub(in crate::hybrid) fn size_bytes(&self) -> u64 {
        batch_bytes((self.entries.len() * ENTRY_BYTES + self.blocks.len()) as u64)
    }

    /// Adds a copy. False when it can have no more.
    pub(in crate::hybrid) fn add(&mut self, key: BlockKey, bytes: &[u8], count: u8) -> bool {
        let Ok(length_bytes) = u32::try_from(bytes.len()) else { return false };
        if self.entries.len() as u32 >= COPIES_MAX || self.size_bytes() + copy_bytes(bytes.len()) > u64::from(u32::MAX)
        {
            return false;
        }
        self.entries.push(CopyEntry { key, length_bytes, count, offset_bytes: self.blocks.len() as u64 });
        self.blocks.extend_from_slice(bytes);
        self.blocks.extend_from_slice(&check_of(key, bytes).to_le_bytes());
        self.blocks.resize(padded(self.blocks.len() as u64) as usize, 0);
        true
    }

    /// Its bytes, and where each copy begins in them.
    pub(in crate::hybrid) fn encode(mut self) -> (Vec<u8>, Vec<CopyEntry>) {
        let first = padded((HEADER_BYTES + self.entries.len() * ENTRY_BYTES) as u64);
        let total = first + self.blocks.len() as u64;
        let mut bytes = Vec::with_capacity(total as usize);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(total as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 12]);
        for entry in &mut self.entries {
            bytes.extend_from_slice(&entry.key.0.to_le_bytes());
            bytes.extend_from_slice(&entry.key.1.to_le_bytes());
            bytes.extend_from_slice(&entry.length_bytes.to_le_bytes());
            bytes.extend_from_slice(&[entry.count, 0, 0, 0]);
            entry.offset_bytes += first;
        }
        let check = check_of_header(&bytes);
        bytes[24..32].copy_from_slice(&check.to_le_bytes());
        bytes.resize(first as usize, 0);
        bytes.append(&mut self.blocks);
        (bytes, self.entries)
    }
}

fn check_of_header(bytes: &[u8]) -> u64 {
    let mut hasher = Xxh3Default::new();
    hasher.update(&bytes[..24]);
    hasher.update(&bytes[HEADER_BYTES..]);
    hasher.digest()
}

/// What the header of a batch says: how many copies, bytes of the batch, and its check. None where there is no batch that fits
/// into so many bytes.
fn fields_of(header: &[u8], space_bytes: u64) -> Option<(u32, u32, u64)> {
    let mut reader = Reader::new(header.get(..HEADER_BYTES)?);
    let is_ours = reader.bytes(MAGIC.len())? == MAGIC && reader.u16()? == VERSION && reader.u16()? == 0;
    let (copies, bytes, zero, check) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u64()?);
    let least = HEADER_BYTES as u64 + u64::from(copies) * ENTRY_BYTES as u64;
    let is_batch = is_ours
        && zero == 0
        && (1..=COPIES_MAX).contains(&copies)
        && least <= u64::from(bytes)
        && u64::from(bytes).is_multiple_of(COPY_UNIT_BYTES)
        && u64::from(bytes) <= space_bytes;
    is_batch.then_some((copies, bytes, check))
}

/// Bytes of the header with the entries, and of the whole batch, where one begins that fits into so many bytes.
pub(in crate::hybrid) fn extent_of(header: &[u8], space_bytes: u64) -> Option<(usize, u64)> {
    let (copies, bytes, _) = fields_of(header, space_bytes)?;
    Some((HEADER_BYTES + copies as usize * ENTRY_BYTES, u64::from(bytes)))
}

fn entry_of(reader: &mut Reader<'_>, at: &mut u64) -> Option<CopyEntry> {
    let (key, length_bytes, count) = ((reader.u64()?, reader.u64()?), reader.u32()?, reader.u8()?);
    let entry = CopyEntry { key, length_bytes, count, offset_bytes: *at };
    *at += padded(u64::from(length_bytes) + CHECK_BYTES as u64);
    (reader.array::<3>()? == [0; 3] && count <= COUNT_MAX).then_some(entry)
}

/// The copies of a batch, from its header and entries. None when those are not what was written.
pub(in crate::hybrid) fn entries_of(head: &[u8], space_bytes: u64) -> Option<Vec<CopyEntry>> {
    let (copies, bytes, check) = fields_of(head, space_bytes)?;
    let head = head.get(..HEADER_BYTES + copies as usize * ENTRY_BYTES)?;
    if check != check_of_header(head) {
        return None;
    }
    let mut at = padded(head.len() as u64);
    let entries = Reader::all(&head[HEADER_BYTES..], |reader| entry_of(reader, &mut at)).ok()?;
    (at == u64::from(bytes)).then_some(entries)
}

/// The block in the bytes of a copy, if they are its copy.
pub(in crate::hybrid) fn block_of(key: BlockKey, copy: &[u8]) -> Option<&[u8]> {
    let (block, check) = copy.split_at_checked(copy.len().checked_sub(CHECK_BYTES)?)?;
    (Reader::new(check).u64()? == check_of(key, block)).then_some(block)
}

/// Decodes bytes as a zone of batches. For fuzzing.
pub(in crate::hybrid) fn decode_anything(bytes: &[u8]) {
    if let Some((head_bytes, _)) = extent_of(bytes, bytes.len() as u64) {
        for entry in bytes.get(..head_bytes).and_then(|head| entries_of(head, bytes.len() as u64)).unwrap_or_default() {
            let end = entry.offset_bytes + u64::from(entry.length_bytes) + CHECK_BYTES as u64;
            let _ = bytes.get(entry.offset_bytes as usize..end as usize).and_then(|copy| block_of(entry.key, copy));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (Vec<u8>, Vec<CopyEntry>) {
        let mut batch = Batch::default();
        assert!(batch.is_empty());
        assert!(batch.add((7, 4096), &[1; 100], 3) && batch.add((9, 0), &[], 0) && batch.add((7, 4196), &[2; 8], 15));
        let expected = batch.size_bytes();
        let (bytes, entries) = batch.encode();
        assert!(bytes.len() as u64 <= expected);
        (bytes, entries)
    }

    #[test]
    fn a_batch_is_read_as_it_was_written() {
        let (bytes, entries) = example();
        let head_bytes = HEADER_BYTES + 3 * ENTRY_BYTES;
        assert_eq!(extent_of(&bytes, bytes.len() as u64), Some((head_bytes, bytes.len() as u64)));
        assert_eq!(entries_of(&bytes[..head_bytes], bytes.len() as u64), Some(entries.clone()));
        for (entry, expected) in entries.iter().zip([&[1; 100][..], &[], &[2; 8]]) {
            let at = entry.offset_bytes as usize;
            assert_eq!(at % COPY_UNIT_BYTES as usize, 0);
            let copy = &bytes[at..at + entry.length_bytes as usize + CHECK_BYTES];
            assert_eq!(block_of(entry.key, copy), Some(expected));
            assert_eq!(block_of((entry.key.0, entry.key.1 + 1), copy), None);
            assert_eq!(block_of((entry.key.0 + 1, entry.key.1), copy), None);
        }
        assert_eq!(block_of((1, 1), &[0; 7]), None);
    }

    #[test]
    fn no_changed_bit_is_taken_for_what_was_written() {
        let (bytes, entries) = example();
        let head = HEADER_BYTES + 3 * ENTRY_BYTES;
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            if bit / 8 < head {
                assert_eq!(entries_of(&changed[..head], changed.len() as u64), None, "bit {bit}");
            }
            for entry in &entries {
                let at = entry.offset_bytes as usize;
                let end = at + entry.length_bytes as usize + CHECK_BYTES;
                let is_in = (at..end).contains(&(bit / 8));
                assert_eq!(block_of(entry.key, &changed[at..end]).is_none(), is_in, "bit {bit}");
            }
        }
        assert_eq!(entries_of(&bytes, bytes.len() as u64 - 1), None);
        assert_eq!(entries_of(&bytes[..head - 1], bytes.len() as u64), None);
        assert_eq!(extent_of(&bytes[..31], 1 << 20), None);
    }

    /// The bytes of a batch do not change from one version to the next.
    #[test]
    fn the_bytes_of_a_batch_are_those_of_version_1() {
        let (bytes, _) = example();
        assert_eq!((bytes.len(), crc32c::crc32c(&bytes)), (256, 544_547_546));
    }
}
