//! Bytes in memory, compressed: for emulated devices that hold more than fits, of data that repeats.

use super::Backing;
use super::pieces::{edges, pieces};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, OnceLock};

/// Bytes compressed together: a small read of a chunk that is not at hand decompresses all of it, and larger chunks save little
/// of data that repeats within a few KiB.
const CHUNK_BYTES: usize = 32 << 10;

/// Parts with a lock each, so that threads compress side by side. Neighbouring chunks are in different
/// ones.
const SHARDS: u64 = 64;

/// Chunks a shard holds uncompressed: enough for many streams, each shard seeing every sixty-fourth of
/// a stream's chunks.
const OPEN_CHUNKS: usize = 32;

/// Compressed lengths are rounded up to this, so that the memory of a chunk that goes fits one that comes.
const GRAIN_BYTES: usize = 64;

/// Bytes that every chunk is taken to follow, cut from the first one that repeats itself: what stands in all chunks costs
/// each a reference.
const DICTIONARY_BYTES: usize = 2 << 10;

/// A chunk repeats itself if it takes less than this share of its size.
const DICTIONARY_SHARE: usize = 4;

/// Memory that holds chunks of 32 KiB compressed by LZ4.
///
/// Any bytes come back as they were; what does not compress is held as it is, and zeros cost nothing. What stands in most
/// chunks is taken from the first of them.
/// A whole chunk is compressed and decompressed directly; parts of chunks go through a small
/// write-back cache of open chunks (64 MiB in all), so that what is written or read in sequence in
/// small pieces is compressed and decompressed once. Costs about 0.3 ns a byte written and 0.1 ns a
/// byte read for data that compresses to a twentieth, more for data that compresses less.
///
/// [`CompressedBacking::snapshot`] shares what is compressed, which is never changed but replaced.
#[derive(Debug)]
pub struct CompressedBacking {
    shards: Vec<Mutex<Shard>>,
}

#[derive(Debug, Default)]
struct Shard {
    /// Chunk number to what it holds; all zeros where there is none. What an open chunk has here may
    /// be out of date.
    packed: BTreeMap<u64, Packed>,
    /// The most recently used first.
    open: Vec<Open>,
    packed_bytes: u64,
    /// Output of the compressor, reused.
    scratch: Vec<u8>,
    dictionary: Dictionary,
}

/// That of all shards and of their snapshots; empty until one is found.
type Dictionary = Arc<OnceLock<Box<[u8]>>>;

#[derive(Clone, Debug)]
struct Packed {
    /// LZ4 (block format) and padding, or the chunk itself. Shared with snapshots.
    bytes: Arc<[u8]>,
    /// Bytes without the padding.
    length: u32,
    needs_dictionary: bool,
}

#[derive(Debug)]
struct Open {
    chunk: u64,
    bytes: Box<[u8]>,
    /// Whether it differs from what is packed.
    is_dirty: bool,
}

fn zeros() -> Box<[u8]> {
    vec![0; CHUNK_BYTES].into_boxed_slice()
}

/// Whether all of `bytes` is zero.
fn is_zero(bytes: &[u8]) -> bool {
    // Reducing a part without a branch lets it be done by vectors.
    bytes.chunks(64).all(|part| part.iter().fold(0, |all, byte| all | byte) == 0)
}

impl Packed {
    /// `None` for zeros.
    fn of(chunk: &[u8], scratch: &mut Vec<u8>, dictionary: &Dictionary) -> Result<Option<Packed>> {
        if is_zero(chunk) {
            return Ok(None);
        }
        scratch.resize(lz4_flex::block::get_maximum_output_size(CHUNK_BYTES), 0);
        let known = dictionary.get();
        let length = match known {
            Some(known) => lz4_flex::block::compress_into_with_dict(chunk, scratch, known),
            None => lz4_flex::block::compress_into(chunk, scratch),
        };
        let length = length.map_err(Error::other)?;
        let padded = length.next_multiple_of(GRAIN_BYTES);
        let packed = match scratch.get(..padded) {
            Some(packed) if padded < CHUNK_BYTES => {
                Packed { bytes: packed.into(), length: length as u32, needs_dictionary: known.is_some() }
            }
            _ => Packed { bytes: chunk.into(), length: CHUNK_BYTES as u32, needs_dictionary: false },
        };
        if known.is_none() && length < CHUNK_BYTES / DICTIONARY_SHARE {
            // One that says next to nothing, as zeros, would keep a better one out.
            let end = &chunk[CHUNK_BYTES - DICTIONARY_BYTES..];
            let length = lz4_flex::block::compress_into(end, scratch).map_err(Error::other)?;
            if length >= DICTIONARY_BYTES / DICTIONARY_SHARE {
                dictionary.get_or_init(|| end.into());
            }
        }
        Ok(Some(packed))
    }

    fn unpack(&self, number: u64, chunk: &mut [u8], dictionary: &Dictionary) -> Result<()> {
        if self.length as usize == CHUNK_BYTES {
            chunk.copy_from_slice(&self.bytes);
            return Ok(());
        }
        let packed = &self.bytes[..self.length as usize];
        let unpacked = match dictionary.get().filter(|_| self.needs_dictionary) {
            Some(dictionary) => lz4_flex::block::decompress_into_with_dict(packed, chunk, dictionary),
            None => lz4_flex::block::decompress_into(packed, chunk),
        };
        match unpacked {
            Ok(CHUNK_BYTES) => Ok(()),
            outcome => {
                let offset = number * CHUNK_BYTES as u64;
                let found = match outcome {
                    Ok(length) => format!("{length} bytes"),
                    Err(error) => error.to_string(),
                };
                let expected = format!("the compressed chunk at {offset} holds {CHUNK_BYTES} bytes, not {found}");
                Err(Error::new(ErrorKind::InvalidData, format!("{expected}: the memory of this process is damaged")))
            }
        }
    }
}

impl Shard {
    /// Replaces what is packed of a chunk.
    fn pack(&mut self, chunk: u64, bytes: &[u8]) -> Result<()> {
        let packed = Packed::of(bytes, &mut self.scratch, &self.dictionary)?;
        self.packed_bytes += packed.as_ref().map_or(0, |packed| packed.bytes.len() as u64);
        let replaced = match packed {
            Some(packed) => self.packed.insert(chunk, packed),
            None => self.packed.remove(&chunk),
        };
        self.packed_bytes -= replaced.map_or(0, |packed| packed.bytes.len() as u64);
        Ok(())
    }

    fn unpack(&self, chunk: u64, bytes: &mut [u8]) -> Result<()> {
        match self.packed.get(&chunk) {
            Some(packed) => packed.unpack(chunk, bytes, &self.dictionary),
            None => {
                bytes.fill(0);
                Ok(())
            }
        }
    }

    fn position(&self, chunk: u64) -> Option<usize> {
        self.open.iter().position(|open| open.chunk == chunk)
    }

    /// The chunk, open. Closes the one unused for longest when there are too many.
    fn open(&mut self, chunk: u64) -> Result<&mut Open> {
        if let Some(position) = self.position(chunk) {
            self.open[..=position].rotate_right(1);
            return Ok(&mut self.open[0]);
        }
        let mut bytes = match self.open.last() {
            Some(last) if self.open.len() >= OPEN_CHUNKS => {
                let number = last.chunk;
                if last.is_dirty {
                    // Taken out so that the shard can be borrowed; a failure leaves it open.
                    let last = self.open.remove(OPEN_CHUNKS - 1);
                    if let Err(error) = self.pack(number, &last.bytes) {
                        self.open.push(last);
                        return Err(error);
                    }
                    last.bytes
                } else {
                    self.open.remove(OPEN_CHUNKS - 1).bytes
                }
            }
            _ => zeros(),
        };
        self.unpack(chunk, &mut bytes)?;
        self.open.insert(0, Open { chunk, bytes, is_dirty: false });
        Ok(&mut self.open[0])
    }

    /// Brings what is packed up to date, and shares it.
    fn snapshot(&mut self) -> Result<Shard> {
        for position in 0..self.open.len() {
            if self.open[position].is_dirty {
                let open = &mut self.open[position];
                let (number, bytes) = (open.chunk, std::mem::take(&mut open.bytes));
                let packed = self.pack(number, &bytes);
                let open = &mut self.open[position];
                (open.bytes, open.is_dirty) = (bytes, packed.is_err());
                packed?;
            }
        }
        Ok(Shard {
            packed: self.packed.clone(),
            packed_bytes: self.packed_bytes,
            dictionary: Arc::clone(&self.dictionary),
            ..Shard::default()
        })
    }

    /// Forgets a chunk.
    fn discard(&mut self, chunk: u64) {
        if let Some(position) = self.position(chunk) {
            self.open.remove(position);
        }
        self.packed_bytes -= self.packed.remove(&chunk).map_or(0, |packed| packed.bytes.len() as u64);
    }
}

impl Default for CompressedBacking {
    fn default() -> Self {
        let dictionary = Dictionary::default();
        let shard = |_| Mutex::new(Shard { dictionary: Arc::clone(&dictionary), ..Shard::default() });
        CompressedBacking { shards: (0..SHARDS).map(shard).collect() }
    }
}

impl CompressedBacking {
    /// Empty memory: all zeros.
    pub fn new() -> Self {
        CompressedBacking::default()
    }

    /// An independent backing with the same bytes. Costs one reference per chunk; memory is taken for what either side
    /// writes afterwards. Nobody may write meanwhile who wants to know which of the two has it.
    ///
    /// # Errors
    /// What was written in part last could not be compressed.
    pub fn snapshot(&self) -> Result<CompressedBacking> {
        let shards: Result<Vec<_>> = self.shards.iter().map(|shard| shard.lock().snapshot().map(Mutex::new)).collect();
        Ok(CompressedBacking { shards: shards? })
    }

    fn shard(&self, chunk: u64) -> &Mutex<Shard> {
        &self.shards[(chunk % SHARDS) as usize]
    }
}

impl Backing for CompressedBacking {
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<()> {
        let mut rest = data;
        for piece in pieces(offset_bytes, rest.len() as u64, CHUNK_BYTES as u64) {
            let (head, tail) = rest.split_at_mut(piece.length);
            rest = tail;
            let mut shard = self.shard(piece.chunk).lock();
            if piece.length == CHUNK_BYTES && shard.position(piece.chunk).is_none() {
                shard.unpack(piece.chunk, head)?;
            } else if shard.position(piece.chunk).is_none() && !shard.packed.contains_key(&piece.chunk) {
                head.fill(0);
            } else {
                let open = shard.open(piece.chunk)?;
                head.copy_from_slice(&open.bytes[piece.start..piece.start + piece.length]);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<()> {
        let mut rest = data;
        for piece in pieces(offset_bytes, data.len() as u64, CHUNK_BYTES as u64) {
            let (head, tail) = rest.split_at(piece.length);
            rest = tail;
            let mut shard = self.shard(piece.chunk).lock();
            if piece.length == CHUNK_BYTES {
                shard.pack(piece.chunk, head)?;
                if let Some(position) = shard.position(piece.chunk) {
                    shard.open.remove(position);
                }
            } else {
                let open = shard.open(piece.chunk)?;
                open.bytes[piece.start..piece.start + piece.length].copy_from_slice(head);
                open.is_dirty = true;
            }
        }
        Ok(())
    }

    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<()> {
        let first_whole = offset_bytes.div_ceil(CHUNK_BYTES as u64);
        let end_whole = (offset_bytes + length_bytes) / CHUNK_BYTES as u64;
        if first_whole < end_whole {
            for shard in &self.shards {
                let mut shard = shard.lock();
                // By what is there, not by number: most of a large device may hold nothing.
                let packed = shard.packed.range(first_whole..end_whole).map(|(&chunk, _)| chunk);
                let open = shard.open.iter().map(|open| open.chunk);
                let gone: Vec<u64> =
                    packed.chain(open.filter(|chunk| (first_whole..end_whole).contains(chunk))).collect();
                gone.into_iter().for_each(|chunk| shard.discard(chunk));
            }
        }
        for piece in edges(offset_bytes, length_bytes, CHUNK_BYTES as u64) {
            let mut shard = self.shard(piece.chunk).lock();
            if shard.position(piece.chunk).is_some() || shard.packed.contains_key(&piece.chunk) {
                let open = shard.open(piece.chunk)?;
                open.bytes[piece.start..piece.start + piece.length].fill(0);
                open.is_dirty = true;
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn stored_bytes(&self) -> u64 {
        let stored = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            shard.packed_bytes + (shard.open.len() * CHUNK_BYTES) as u64
        };
        self.shards.iter().map(stored).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use varve_env::Random;

    const CHUNK: u64 = CHUNK_BYTES as u64;

    /// Bytes of one of the sorts a device sees: random, repeating, one value, zeros.
    fn fill(random: &mut Random, data: &mut [u8]) {
        match random.below(4) {
            0 => random.fill_bytes(data),
            1 => {
                let mut word = [0; 24];
                random.fill_bytes(&mut word);
                data.iter_mut().zip(word.iter().cycle()).for_each(|(byte, &new)| *byte = new);
            }
            2 => data.fill(random.below(256) as u8),
            _ => data.fill(0),
        }
    }

    /// What all pairs of a load have in common is held once, not once a chunk.
    #[test]
    fn what_all_chunks_have_in_common_is_held_once() {
        let mut random = Random::seeded(5);
        let mut alike = vec![0; 1000];
        random.fill_bytes(&mut alike);
        let mut data = Vec::new();
        while data.len() < 64 * CHUNK_BYTES {
            data.extend_from_slice(&(random.below(1 << 32) as u32).to_le_bytes());
            data.extend_from_slice(&alike);
        }
        data.truncate(64 * CHUNK_BYTES);
        let backing = CompressedBacking::new();
        // Zeros but for a few bytes make no dictionary.
        backing.write_at(0, &[7; 300]).unwrap();
        backing.sync().unwrap();
        let before = backing.snapshot().unwrap();
        backing.write_at(CHUNK, &data).unwrap();
        let image = backing.snapshot().unwrap();
        // 32 pairs to a chunk: less than 20 bytes each, where what is alike would be 31.
        assert!(image.stored_bytes() < 64 * 32 * 20, "{}", image.stored_bytes());
        // One that was made before knows what its own packed since.
        before.write_at(CHUNK, &data).unwrap();
        for held in [&backing, &image, &before] {
            let mut found = vec![0; data.len()];
            held.read_at(CHUNK, &mut found).unwrap();
            assert!(found == data);
        }
    }

    #[test]
    fn snapshots_are_independent_and_share_chunks() {
        let backing = CompressedBacking::new();
        let mut random = Random::seeded(3);
        let mut whole = vec![0; 40 * CHUNK_BYTES];
        random.fill_bytes(&mut whole);
        backing.write_at(0, &whole).unwrap();
        // In part: open, and not packed yet.
        backing.write_at(5 * CHUNK + 7, b"before").unwrap();
        let image = backing.snapshot().unwrap();
        assert_eq!(image.stored_bytes(), 40 * CHUNK);
        backing.write_at(5 * CHUNK + 7, b"after!").unwrap();
        backing.discard(6 * CHUNK, CHUNK).unwrap();
        image.write_at(7 * CHUNK, b"other").unwrap();
        let read = |from: &CompressedBacking, at: u64| {
            let mut found = [0; 6];
            from.read_at(at, &mut found).unwrap();
            found
        };
        assert_eq!((&read(&image, 5 * CHUNK + 7), &read(&backing, 5 * CHUNK + 7)), (b"before", b"after!"));
        assert_eq!(read(&image, 6 * CHUNK), whole[6 * CHUNK_BYTES..][..6]);
        assert_eq!(
            (read(&backing, 6 * CHUNK), &read(&backing, 7 * CHUNK)[..]),
            ([0; 6], &whole[7 * CHUNK_BYTES..][..6])
        );
        let of = |backing: &CompressedBacking, chunk: u64| backing.shard(chunk).lock().packed[&chunk].bytes.clone();
        assert!(Arc::ptr_eq(&of(&image, 30), &of(&backing, 30)));
    }

    #[test]
    fn behaves_like_an_array_of_bytes() {
        for seed in 0..4 {
            let mut random = Random::seeded(seed);
            // More chunks than the first shards hold open, most of what is done in two of them.
            let chunks = OPEN_CHUNKS as u64 + 8;
            let size = chunks * SHARDS * CHUNK + 1_000;
            let mut model = vec![0u8; size as usize];
            let backing = CompressedBacking::new();
            for step in 0..1_600 {
                let near = (random.below(chunks) * SHARDS + random.below(2)) * CHUNK;
                let (offset, length) = match random.below(4) {
                    0 => (near, (1 + random.below(3)) * CHUNK),
                    1 => (random.below(size), random.below(3 * CHUNK)),
                    _ => (near + random.below(CHUNK), random.below(5_000)),
                };
                let length = length.min(size - offset);
                let range = offset as usize..(offset + length) as usize;
                match random.below(5) {
                    0 => {
                        backing.discard(offset, length).unwrap();
                        model[range].fill(0);
                    }
                    1 | 2 => {
                        fill(&mut random, &mut model[range.clone()]);
                        backing.write_at(offset, &model[range]).unwrap();
                    }
                    _ => {
                        let mut got = vec![1u8; length as usize];
                        backing.read_at(offset, &mut got).unwrap();
                        assert!(got == model[range], "seed {seed} step {step}: {length} bytes at {offset}");
                    }
                }
            }
            let mut got = vec![1u8; size as usize];
            backing.read_at(0, &mut got).unwrap();
            assert!(got == model, "seed {seed}");
            backing.discard(0, size.next_multiple_of(CHUNK)).unwrap();
            assert_eq!(backing.stored_bytes(), 0, "seed {seed}");
        }
    }

    #[test]
    fn memory_follows_what_the_data_says() {
        let backing = CompressedBacking::new();
        backing.write_at(0, &vec![0; 4 * CHUNK_BYTES]).unwrap();
        assert_eq!(backing.stored_bytes(), 0, "zeros");
        let mut random = vec![0; CHUNK_BYTES];
        Random::seeded(1).fill_bytes(&mut random);
        backing.write_at(1 << 50, &random).unwrap();
        assert_eq!(backing.stored_bytes(), CHUNK, "what does not compress is held as it is");
        let repeating: Vec<u8> = random[..1_000].iter().cycle().take(CHUNK_BYTES).copied().collect();
        backing.write_at(1 << 50, &repeating).unwrap();
        let shrunk = backing.stored_bytes();
        assert!(shrunk < 1_000 + CHUNK / 64, "what repeats is held once: {shrunk}");
        // Zeroing the chunk by parts frees it once it is closed.
        for part in 0..4 {
            backing.write_at((1 << 50) + part * CHUNK / 4, &vec![0; CHUNK_BYTES / 4]).unwrap();
        }
        for other in 1..=OPEN_CHUNKS as u64 {
            backing.write_at((1 << 50) + other * SHARDS * CHUNK, &[1]).unwrap();
        }
        assert_eq!(backing.shard((1 << 50) / CHUNK).lock().packed.len(), 0);
        backing.discard(0, 1 << 51).unwrap();
        assert_eq!(backing.stored_bytes(), 0);
    }

    #[test]
    fn small_pieces_in_sequence_are_compressed_once_a_chunk() {
        let backing = CompressedBacking::new();
        let piece = vec![7; 4096];
        let open = SHARDS * OPEN_CHUNKS as u64 * CHUNK;
        let written = 2 * open;
        for offset in (0..written).step_by(piece.len()) {
            backing.write_at(offset, &piece).unwrap();
        }
        // All but what is open is compressed.
        let stored = backing.stored_bytes();
        assert!((open + 1..open + (written - open) / 100).contains(&stored), "{stored}");
        let mut data = vec![0; 4096];
        for offset in (0..written).step_by(piece.len()) {
            backing.read_at(offset, &mut data).unwrap();
            assert_eq!(data, piece);
        }
    }

    #[test]
    fn damaged_memory_is_an_error() {
        let backing = CompressedBacking::new();
        backing.write_at(0, &vec![7; CHUNK_BYTES]).unwrap();
        Arc::get_mut(&mut backing.shard(0).lock().packed.get_mut(&0).unwrap().bytes).unwrap()[..8].fill(0xff);
        let error = backing.read_at(0, &mut vec![0; CHUNK_BYTES]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn threads_share_it() {
        const THREADS: u64 = 4;
        const QUARTER: usize = CHUNK_BYTES / THREADS as usize;
        // More chunks of one shard than it holds open, so that they are closed under other threads.
        let at = |chunk: u64, thread: u64| chunk * SHARDS * CHUNK + thread * QUARTER as u64;
        let chunks = OPEN_CHUNKS as u64 + 8;
        let backing = CompressedBacking::new();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let backing = &backing;
                scope.spawn(move || {
                    let mut random = Random::seeded(thread);
                    // All threads in every chunk, each in its own quarter, of which it knows every byte.
                    let mut model = vec![[0; QUARTER]; chunks as usize];
                    let mut found = [0; QUARTER];
                    for round in 0..600 {
                        let chunk = random.below(chunks);
                        let own = &mut model[chunk as usize];
                        let start = random.below(QUARTER as u64) as usize;
                        let length = 1 + random.below((QUARTER - start) as u64) as usize;
                        fill(&mut random, &mut own[start..start + length]);
                        backing.write_at(at(chunk, thread) + start as u64, &own[start..start + length]).unwrap();
                        backing.read_at(at(chunk, thread), &mut found).unwrap();
                        assert!(found == *own, "thread {thread} round {round}");
                    }
                    for (chunk, own) in (0..).zip(&model) {
                        backing.read_at(at(chunk, thread), &mut found).unwrap();
                        assert!(found == *own, "thread {thread}, chunk {chunk} at the end");
                    }
                });
            }
        });
    }
}
