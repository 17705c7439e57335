//! The index: which data block an internal key belongs to.
//!
//! Between two neighbouring blocks lies a *fence*: greater than every key of the block before it, not
//! greater than any of the block after it. Where the user keys differ, it is the shortest prefix of
//! the next block's first user key that does this, and stands before every version of that prefix.
//! Where the versions of one user key are divided between two blocks, it is that user key and the
//! trailer just behind the last one of the block before. So a key is looked for in exactly one block.
//!
//! Contents of the index block:
//!
//! | bytes | field |
//! |---|---|
//! | varint | number of data blocks |
//! | | for each of them: |
//! | varint | bytes its fence shares with the fence before |
//! | varint | `length of the rest << 1 | has a trailer` |
//! | n | the rest |
//! | 8 | trailer, if it has one |
//! | varint | length of the block with its trailer |
//!
//! The first block's fence is empty. Blocks lie one after the other from offset 0.

use super::format::BlockHandle;
use super::prefix_search::PrefixSearch;
use crate::block::BLOCK_TRAILER_BYTES;
use crate::encoding::{Damage, Decoder, append_varint};
use crate::key::{self, KEY_BYTES_MAX, common_prefix, key_prefix};
use std::cmp::Ordering;

/// More than any compression here shrinks a block: Zstandard takes four bytes for 128 KiB of one byte. A fence is no longer
/// than a key of its block, so this bounds what an index may expand to.
pub(super) const EXPANSION_MAX: u64 = 1 << 16;

/// Collects fences while a table is built.
#[derive(Default)]
pub(crate) struct IndexBuilder {
    bytes: Vec<u8>,
    blocks: u64,
    last_fence: Vec<u8>,
    /// Fence of the block that is being filled.
    fence: Vec<u8>,
    fence_trailer: Option<u64>,
}

impl IndexBuilder {
    /// A new block begins with the key `first`; `last` is the one before it.
    pub(crate) fn begin_block(&mut self, last: &[u8], first: &[u8]) {
        let (before, after) = (key::user_key(last), key::user_key(first));
        self.fence.clear();
        let shared = common_prefix(before, after);
        if shared == after.len() && shared == before.len() {
            self.fence.extend_from_slice(after);
            // Trailers descend, and these two differ.
            self.fence_trailer = Some(key::trailer(last).saturating_sub(1));
        } else {
            // Keys ascend: `after` goes on where they part.
            self.fence.extend_from_slice(&after[..(shared + 1).min(after.len())]);
            self.fence_trailer = None;
        }
    }

    /// The block ended and takes `length_bytes` in the file.
    pub(crate) fn end_block(&mut self, length_bytes: u64) {
        let shared = common_prefix(&self.last_fence, &self.fence);
        append_varint(&mut self.bytes, shared as u64);
        let rest = &self.fence[shared..];
        append_varint(&mut self.bytes, (rest.len() as u64) << 1 | u64::from(self.fence_trailer.is_some()));
        self.bytes.extend_from_slice(rest);
        if let Some(trailer) = self.fence_trailer {
            self.bytes.extend_from_slice(&trailer.to_le_bytes());
        }
        append_varint(&mut self.bytes, length_bytes);
        std::mem::swap(&mut self.last_fence, &mut self.fence);
        self.blocks += 1;
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Bytes of the index so far.
    pub(crate) fn bytes_estimate(&self) -> usize {
        self.bytes.len() + 8
    }

    /// At most how many bytes it has when the open block ended and one more, that begins with a key of this length.
    pub(crate) fn bytes_bound_with(&self, user_key_length: usize) -> usize {
        // Four varints and a trailer to a block, of which no varint takes more than ten bytes.
        const BLOCK_BYTES: usize = 38;
        10 + self.bytes.len() + 2 * BLOCK_BYTES + self.fence.len() + user_key_length
    }

    /// Contents of the index block.
    pub(crate) fn finish(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes.len() + 10);
        append_varint(&mut out, self.blocks);
        out.extend_from_slice(&self.bytes);
        out
    }
}

/// The index in memory.
///
/// The fences (but the first, which is before everything) are kept as numbers: the eight bytes after
/// what they all have in common. Only when a target's eight bytes equal a fence's is more compared, and
/// not even then when the numbers say everything about the fences.
pub(crate) struct Index {
    /// What the user keys of all fences but the first begin with.
    common: Box<[u8]>,
    prefixes: PrefixSearch,
    /// Every fence ends within its eight bytes, with a byte that is not zero, and has no trailer: a target
    /// with the same eight bytes begins with the fence. `rest_ends` and `rests` are empty then.
    prefixes_suffice: bool,
    /// Where the rest of each fence after `common` ends in `rests`.
    rest_ends: Box<[u32]>,
    rests: Box<[u8]>,
    /// Trailers of the few fences that have one, by position, ascending.
    trailers: Box<[(u32, u64)]>,
    /// Where each block begins, and where the last one ends.
    offsets: Box<[u64]>,
}

impl Index {
    /// Decodes the contents of an index block of a table whose data ends at `data_end`.
    pub(crate) fn decode(bytes: &[u8], data_end: u64) -> Result<Self, Damage> {
        let mut decoder = Decoder::new(bytes);
        // Each block takes three bytes of the index or more.
        let blocks =
            decoder.varint_at_most((bytes.len() / 3).min(u32::MAX as usize) as u64, "number of data blocks")?;
        let blocks = blocks as usize;
        let limit = data_end.saturating_mul(EXPANSION_MAX).min(u64::from(u32::MAX));
        let mut fences: Vec<u8> = Vec::new();
        let mut ends: Vec<u32> = Vec::with_capacity(blocks.saturating_sub(1));
        let mut trailers: Vec<(u32, u64)> = Vec::new();
        let mut offsets: Vec<u64> = Vec::with_capacity(blocks + 1);
        offsets.push(0);
        let mut offset = 0u64;
        let mut fence: Vec<u8> = Vec::new();
        let mut fence_trailer: Option<u64> = None;
        let mut last: Vec<u8> = Vec::new();
        for block in 0..blocks {
            let at = decoder.position();
            std::mem::swap(&mut last, &mut fence);
            let last_trailer = fence_trailer.take();
            let shared = decoder.varint_at_most(last.len() as u64, "shared bytes of a fence")? as usize;
            let packed = decoder.varint("length of a fence")?;
            let rest = decoder.bytes(packed >> 1, "a fence")?;
            if packed & 1 == 1 {
                fence_trailer = Some(decoder.fixed_u64("trailer of a fence")?);
            }
            let length = decoder.varint("length of a block")?;
            fence.clear();
            fence.extend_from_slice(&last[..shared]);
            fence.extend_from_slice(rest);
            let ascending = match (block, last.cmp(&fence)) {
                (0, _) => fence.is_empty() && fence_trailer.is_none(),
                // A fence without trailer stands before every version of its key.
                (_, Ordering::Equal) => match (last_trailer, fence_trailer) {
                    (None, Some(_)) => true,
                    (Some(last), Some(trailer)) => trailer < last,
                    _ => false,
                },
                (_, order) => order == Ordering::Less,
            };
            if !ascending || fence.len() > KEY_BYTES_MAX {
                return Err(Decoder::damage(
                    at,
                    format!("a fence of at most {KEY_BYTES_MAX} bytes after {}", last.escape_ascii()),
                    format!("{} bytes, {}", fence.len(), fence.escape_ascii()),
                ));
            }
            offset = match offset.checked_add(length) {
                Some(end) if end <= data_end && length > BLOCK_TRAILER_BYTES as u64 => end,
                _ => {
                    return Err(Decoder::damage(
                        at,
                        format!("a block at {offset} that ends by {data_end}"),
                        format!("length {length}"),
                    ));
                }
            };
            offsets.push(offset);
            if block == 0 {
                continue;
            }
            if fences.len() as u64 + fence.len() as u64 > limit {
                return Err(Decoder::damage(at, format!("fences of {limit} bytes in total"), "more"));
            }
            if fences.try_reserve(fence.len()).is_err() {
                return Err(Decoder::damage(at, "fences there is memory for", format!("{} bytes", fences.len())));
            }
            fences.extend_from_slice(&fence);
            ends.push(fences.len() as u32);
            if let Some(trailer) = fence_trailer {
                trailers.push((block as u32 - 1, trailer));
            }
        }
        if !decoder.is_empty() || offset != data_end {
            return Err(Decoder::damage(
                decoder.position(),
                format!("{blocks} blocks up to {data_end}, then the end"),
                format!("blocks up to {offset}, {} bytes left", decoder.remaining()),
            ));
        }
        Ok(Index::assemble(&fences, &ends, trailers, offsets))
    }

    fn assemble(fences: &[u8], ends: &[u32], trailers: Vec<(u32, u64)>, offsets: Vec<u64>) -> Self {
        let fence = |position: usize| {
            let start = if position == 0 { 0 } else { ends[position - 1] as usize };
            &fences[start..ends[position] as usize]
        };
        // Sorted: what the first and the last share, all share.
        let common = match ends.len() {
            0 => 0,
            count => common_prefix(fence(0), fence(count - 1)),
        };
        let rests_of = || (0..ends.len()).map(|position| &fence(position)[common..]);
        let prefixes: Vec<u64> = rests_of().map(key_prefix).collect();
        let prefixes_suffice =
            trailers.is_empty() && rests_of().all(|rest| rest.len() <= 8 && rest.last().is_some_and(|last| *last != 0));
        let mut rest_ends = Vec::new();
        let mut rests = Vec::new();
        if !prefixes_suffice {
            rest_ends.reserve_exact(ends.len());
            rests.reserve_exact(fences.len() - common * ends.len());
            for rest in rests_of() {
                rests.extend_from_slice(rest);
                rest_ends.push(rests.len() as u32);
            }
        }
        let common = if ends.is_empty() { Box::default() } else { fence(0)[..common].into() };
        Index {
            common,
            prefixes: PrefixSearch::new(&prefixes),
            prefixes_suffice,
            rest_ends: rest_ends.into(),
            rests: rests.into(),
            trailers: trailers.into(),
            offsets: offsets.into(),
        }
    }

    /// Number of data blocks.
    #[inline]
    pub(crate) fn blocks(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Where a block is.
    #[inline]
    pub(crate) fn handle(&self, block: usize) -> BlockHandle {
        BlockHandle { offset_bytes: self.offsets[block], length_bytes: self.offsets[block + 1] - self.offsets[block] }
    }

    /// Where the last block ends.
    pub(crate) fn data_end(&self) -> u64 {
        self.offsets[self.offsets.len() - 1]
    }

    /// First block that ends after `offset_bytes`; the number of blocks when none does.
    pub(crate) fn block_at(&self, offset_bytes: u64) -> usize {
        self.offsets[1..].partition_point(|end| *end <= offset_bytes)
    }

    /// The block an internal key belongs to. 0 when there are no blocks.
    #[inline]
    pub(crate) fn find(&self, user_key: &[u8], trailer: u64) -> usize {
        let common = self.common.len();
        let rest = match user_key.get(..common) {
            Some(head) if *head == *self.common => &user_key[common..],
            _ => return if user_key < &self.common[..] { 0 } else { self.prefixes.len() },
        };
        let prefix = key_prefix(rest);
        let count = self.prefixes.count_at_most(prefix);
        if self.prefixes_suffice || count == 0 || self.prefixes.get(count - 1) < prefix {
            return count;
        }
        self.find_among_equals(rest, trailer, prefix, count)
    }

    /// Whether an internal key belongs to a block: what [`Index::find`] says, without a search. Cost: two comparisons.
    pub(crate) fn holds(&self, block: usize, user_key: &[u8], trailer: u64) -> bool {
        let rest = match user_key.get(..self.common.len()) {
            Some(head) if *head == *self.common => &user_key[self.common.len()..],
            _ => return block == self.find(user_key, trailer),
        };
        let prefix = key_prefix(rest);
        let is_behind = |fence: usize| match self.prefixes.get(fence).cmp(&prefix) {
            Ordering::Equal => self.prefixes_suffice || !self.fence_is_after(fence, rest, trailer),
            order => order == Ordering::Less,
        };
        // The fence with the number of a block is the one behind it.
        block.checked_sub(1).is_none_or(is_behind) && (block >= self.prefixes.len() || !is_behind(block))
    }

    #[inline(never)]
    fn find_among_equals(&self, rest: &[u8], trailer: u64, prefix: u64, end: usize) -> usize {
        if !self.fence_is_after(end - 1, rest, trailer) {
            return end;
        }
        let mut low = prefix.checked_sub(1).map_or(0, |smaller| self.prefixes.count_at_most(smaller));
        let mut high = end - 1;
        while low < high {
            let middle = low + (high - low) / 2;
            if self.fence_is_after(middle, rest, trailer) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    fn fence_is_after(&self, position: usize, rest: &[u8], trailer: u64) -> bool {
        let start = if position == 0 { 0 } else { self.rest_ends[position - 1] as usize };
        match self.rests[start..self.rest_ends[position] as usize].cmp(rest) {
            Ordering::Less => false,
            Ordering::Greater => true,
            Ordering::Equal => match self.trailers.binary_search_by_key(&(position as u32), |entry| entry.0) {
                Ok(found) => self.trailers[found].1 < trailer,
                Err(_) => false,
            },
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.common)
            + self.prefixes.memory_bytes()
            + size_of_val(&*self.rest_ends)
            + size_of_val(&*self.rests)
            + size_of_val(&*self.trailers)
            + size_of_val(&*self.offsets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    fn internal(user: &[u8], sequence: u64) -> Vec<u8> {
        let mut out = Vec::new();
        key::append_internal_key(&mut out, user, sequence, 1);
        out
    }

    /// First and last key of each block, and the block's length.
    type Blocks = Vec<(Vec<u8>, Vec<u8>, u64)>;

    fn build(blocks: &Blocks) -> Vec<u8> {
        let mut builder = IndexBuilder::default();
        for (position, (first, _, length)) in blocks.iter().enumerate() {
            if position > 0 {
                builder.begin_block(&blocks[position - 1].1, first);
            }
            builder.end_block(*length);
        }
        assert_eq!(builder.blocks(), blocks.len() as u64);
        builder.finish()
    }

    #[test]
    fn four_blocks_are_these_bytes() {
        let blocks = vec![
            (internal(b"apple", 1), internal(b"apricot", 1), 100),
            (internal(b"banana", 9), internal(b"cherry", 7), 300),
            (internal(b"cherry", 5), internal(b"cherry", 2), 100),
            (internal(b"cherrypie", 5), internal(b"date", 2), 100),
        ];
        let expected = [
            &[4][..],
            &[0, 0, 100],
            &[0, 1 << 1, b'b', 0xac, 0x02],
            &[0, 6 << 1 | 1],
            b"cherry\x00\x07\0\0\0\0\0\0",
            &[100],
            &[6, 1 << 1, b'p', 100],
        ]
        .concat();
        assert_eq!(build(&blocks), expected);
        let index = Index::decode(&expected, 600).expect("sound");
        assert_eq!(index.blocks(), 4);
        assert_eq!(index.handle(2), BlockHandle { offset_bytes: 400, length_bytes: 100 });
        assert_eq!((index.block_at(99), index.block_at(100), index.block_at(600)), (0, 1, 4));
    }

    fn random_blocks(random: &mut Random) -> (Blocks, Vec<Vec<u8>>) {
        let alphabet = 1 + random.below(4);
        let longest = 1 + random.below(20);
        let head = vec![b'h'; random.below(12) as usize];
        let mut keys: Vec<Vec<u8>> = (0..1 + random.below(120))
            .map(|_| {
                let mut user = head.clone();
                for _ in 0..random.below(longest) {
                    user.push(random.below(alphabet) as u8 * 80);
                }
                internal(&user, random.below(9))
            })
            .collect();
        keys.sort_by(|a, b| key::compare(a, b));
        keys.dedup();
        let mut blocks = Vec::new();
        let mut start = 0;
        while start < keys.len() {
            let end = (start + 1 + random.below(6) as usize).min(keys.len());
            blocks.push((keys[start].clone(), keys[end - 1].clone(), 6 + random.below(9000)));
            start = end;
        }
        (blocks, keys)
    }

    #[test]
    fn every_key_is_found_in_its_block_and_absent_keys_beside_their_neighbours() {
        for seed in 0..500 {
            let mut random = Random::seeded(seed);
            let (blocks, keys) = random_blocks(&mut random);
            let total = blocks.iter().map(|block| block.2).sum();
            let index =
                Index::decode(&build(&blocks), total).unwrap_or_else(|damage| panic!("seed {seed}: {damage:?}"));
            let home = |internal: &[u8]| {
                let block = blocks.partition_point(|block| key::compare(&block.1, internal) == Ordering::Less);
                (block < blocks.len() && key::compare(&blocks[block].0, internal) != Ordering::Greater).then_some(block)
            };
            for round in 0..200 {
                let mut target = keys[random.index(keys.len())].clone();
                if random.chance(2, 3) {
                    let mut user = key::user_key(&target).to_vec();
                    match random.below(3) {
                        0 => user.push(random.below(3) as u8 * 80),
                        1 => user.truncate(random.below(user.len() as u64 + 1) as usize),
                        _ => {}
                    }
                    target = internal(&user, random.below(10));
                }
                let (user_key, trailer) = (key::user_key(&target), key::trailer(&target));
                let found = index.find(user_key, trailer);
                let held: Vec<usize> =
                    (0..blocks.len()).filter(|&block| index.holds(block, user_key, trailer)).collect();
                assert_eq!(held, [found], "seed {seed} round {round}");
                if let Some(home) = home(&target) {
                    assert_eq!(found, home, "seed {seed} round {round}");
                }
                // The first entry at or after the target is in the block found or begins the next one,
                // and if it begins the next one it has another user key.
                let next = keys.partition_point(|key| key::compare(key, &target) == Ordering::Less);
                if let Some(next) = keys.get(next) {
                    let of_next = home(next).expect("a key of the table");
                    assert!(of_next == found || of_next == found + 1, "seed {seed} round {round}");
                    if of_next == found + 1 {
                        assert_ne!(key::user_key(next), key::user_key(&target), "seed {seed} round {round}");
                    }
                }
            }
        }
    }

    #[test]
    fn damaged_indexes_are_refused_or_stay_within_the_data() {
        for seed in 0..1500 {
            let mut random = Random::seeded(seed);
            let (blocks, _) = random_blocks(&mut random);
            let total = blocks.iter().map(|block| block.2).sum();
            let mut bytes = build(&blocks);
            for _ in 0..1 + random.below(3) {
                let position = random.index(bytes.len());
                bytes[position] = random.next_u64() as u8;
            }
            if let Ok(index) = Index::decode(&bytes, total) {
                assert_eq!(index.data_end(), total);
                let trailer = random.next_u64();
                let found = index.find(b"hhh", trailer);
                assert!(found < index.blocks().max(1));
                assert!((0..index.blocks()).all(|block| index.holds(block, b"hhh", trailer) == (block == found)));
                assert!(index.memory_bytes() > 0);
            }
        }
    }
}
