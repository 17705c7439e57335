//! Bytes in memory, sparse.

use super::Backing;
use super::pieces::{edges, pieces};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of one chunk. Smaller wastes map entries, larger wastes memory on scattered writes.
const CHUNK_BYTES: u64 = 64 << 10;

/// Memory that is taken in chunks of 64 KiB as they are first written.
///
/// [`RamBacking::snapshot`] shares chunks until one side writes them, so an image of a device at
/// every step of a workload costs one map of references each, not one copy of the data each.
#[derive(Debug, Default)]
pub struct RamBacking {
    /// Chunk number to its bytes. A chunk that is not there is all zeros.
    chunks: RwLock<BTreeMap<u64, Arc<Vec<u8>>>>,
}

impl RamBacking {
    /// Empty memory: all zeros.
    pub fn new() -> Self {
        RamBacking::default()
    }

    /// An independent backing with the same bytes. Costs one reference per chunk; bytes are copied
    /// when either side next writes them.
    pub fn snapshot(&self) -> RamBacking {
        RamBacking { chunks: RwLock::new(self.chunks.read().clone()) }
    }
}

impl Backing for RamBacking {
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> std::io::Result<()> {
        let chunks = self.chunks.read();
        let mut rest = data;
        for piece in pieces(offset_bytes, rest.len() as u64, CHUNK_BYTES) {
            let (head, tail) = rest.split_at_mut(piece.length);
            match chunks.get(&piece.chunk) {
                Some(chunk) => head.copy_from_slice(&chunk[piece.start..piece.start + piece.length]),
                None => head.fill(0),
            }
            rest = tail;
        }
        Ok(())
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> std::io::Result<()> {
        let mut chunks = self.chunks.write();
        let mut rest = data;
        for piece in pieces(offset_bytes, data.len() as u64, CHUNK_BYTES) {
            let (head, tail) = rest.split_at(piece.length);
            let chunk = chunks.entry(piece.chunk).or_insert_with(|| Arc::new(vec![0; CHUNK_BYTES as usize]));
            Arc::make_mut(chunk)[piece.start..piece.start + piece.length].copy_from_slice(head);
            rest = tail;
        }
        Ok(())
    }

    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> std::io::Result<()> {
        let mut chunks = self.chunks.write();
        let end = offset_bytes + length_bytes;
        let first_whole = offset_bytes.div_ceil(CHUNK_BYTES);
        let end_whole = end / CHUNK_BYTES;
        if first_whole < end_whole {
            let mut kept = chunks.split_off(&first_whole);
            chunks.append(&mut kept.split_off(&end_whole));
        }
        for piece in edges(offset_bytes, length_bytes, CHUNK_BYTES) {
            if let Some(chunk) = chunks.get_mut(&piece.chunk) {
                Arc::make_mut(chunk)[piece.start..piece.start + piece.length].fill(0);
            }
        }
        Ok(())
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn stored_bytes(&self) -> u64 {
        self.chunks.read().len() as u64 * CHUNK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    #[test]
    fn behaves_like_an_array_of_bytes() {
        let seed = 7;
        let mut random = Random::seeded(seed);
        let size = 5 * CHUNK_BYTES + 1_000;
        let mut model = vec![0u8; size as usize];
        let ram = RamBacking::new();
        for step in 0..2_000 {
            let offset = random.below(size);
            let length = random.below((size - offset).min(3 * CHUNK_BYTES) + 1);
            let range = offset as usize..(offset + length) as usize;
            match random.below(4) {
                0 => {
                    ram.discard(offset, length).unwrap();
                    model[range].fill(0);
                }
                1 | 2 => {
                    random.fill_bytes(&mut model[range.clone()]);
                    ram.write_at(offset, &model[range]).unwrap();
                }
                _ => {
                    let mut got = vec![1u8; length as usize];
                    ram.read_at(offset, &mut got).unwrap();
                    assert!(got == model[range], "seed {seed} step {step}: {length} bytes at {offset}");
                }
            }
        }
    }

    #[test]
    fn memory_follows_what_is_written() {
        let ram = RamBacking::new();
        ram.write_at(1 << 50, b"far away").unwrap();
        assert_eq!(ram.stored_bytes(), CHUNK_BYTES);
        ram.write_at(CHUNK_BYTES - 1, &[1, 2]).unwrap();
        assert_eq!(ram.stored_bytes(), 3 * CHUNK_BYTES);
        ram.discard(0, 1 << 51).unwrap();
        assert_eq!(ram.stored_bytes(), 0);
    }

    #[test]
    fn snapshot_is_independent_and_shares_chunks() {
        let ram = RamBacking::new();
        ram.write_at(0, &vec![1; 4 * CHUNK_BYTES as usize]).unwrap();
        let image = ram.snapshot();
        ram.write_at(0, &[2]).unwrap();
        ram.discard(CHUNK_BYTES, CHUNK_BYTES).unwrap();
        let mut byte = [0];
        image.read_at(0, &mut byte).unwrap();
        assert_eq!(byte, [1]);
        image.read_at(CHUNK_BYTES, &mut byte).unwrap();
        assert_eq!(byte, [1]);
        let shared = ram.chunks.read()[&2].clone();
        assert!(Arc::ptr_eq(&shared, &image.chunks.read()[&2]));
    }
}
