//! Finds the data blocks of a damaged table by their checksums.
//!
//! Nothing but the table's id is needed: footer, index, filter and properties may be damaged or gone, the file may be cut short,
//! and other bytes may follow the table. The checksum of a block binds it to its table and its place, so neither other bytes
//! nor blocks of other tables pass for one. The search goes over the file once. From the end of a block that is not compressed
//! its tail says where it begins; from the start of one that is, its lengths say where it ends.

use super::format::{BlockHandle, FOOTER_BYTES, Footer, MAGIC};
use super::index::EXPANSION_MAX;
use crate::block::{BLOCK_SIZE_MAX, BLOCK_TRAILER_BYTES, BlockContext, DataBlock, DataBlockBuffer, Layout, compress};
use crate::block::{compression_number, split_block, verify_block};
use crate::error::Error;
use crate::key;
use crate::options::Compression;
use varve_store::{IoContext, ReadableFile};

/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

/// Bytes read at once where the medium has lost some.
const SMALL_READ_BYTES: usize = 4096;

/// Largest `block_align`.
const ALIGN_MAX: usize = 1 << 20;

/// Bytes of candidates whose checksum is computed before a search is given up, in multiples of the file. A sound table takes 1.
const VERIFIED_FILES_MAX: usize = 64;

/// Largest block after decompression: a block holds at least one entry, whose value may be as long as values get.
const BLOCK_BYTES_MAX: u64 = 8 * BLOCK_SIZE_MAX as u64;

/// The bytes of a damaged table, and its sound data blocks.
pub(crate) struct SalvagedTable {
    bytes: Vec<u8>,
    table_id: u64,
    /// In the order of the file.
    blocks: Vec<SoundBlock>,
    /// Where data blocks end, if a footer says so.
    data_end: Option<u64>,
}

struct SoundBlock {
    handle: BlockHandle,
    /// Internal keys.
    first: Vec<u8>,
    last: Vec<u8>,
}

/// Entries that are lost: those of user keys from `after` to `before`, both inclusive because a key has several versions. `None`
/// where nothing is known to lie before, or behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LostKeys {
    pub(crate) after: Option<Vec<u8>>,
    pub(crate) before: Option<Vec<u8>>,
}

impl SalvagedTable {
    /// Searches a file for the blocks of a table that has one of `ids`, the likeliest first; if none is given, the id that the file
    /// says. `None` when there is none.
    ///
    /// Cost: memory for the file. Errors: those of the medium, unless sectors are lost.
    pub(crate) fn search(
        file: &dyn ReadableFile,
        ids: impl Fn(u64) -> bool,
        likeliest: Option<u64>,
        io: &IoContext,
    ) -> Result<Option<SalvagedTable>, Error> {
        let Some(bytes) = read_all(file, io)? else { return Ok(None) };
        let mut salvaged = SalvagedTable { bytes, table_id: 0, blocks: Vec::new(), data_end: None };
        let (sound, unsound) = footers(&salvaged.bytes);
        let of_footers = sound.iter().map(|footer| footer.table_id).chain(unsound);
        let mut candidates: Vec<u64> = of_footers.filter(|id| ids(*id)).collect();
        candidates.splice(0..0, likeliest);
        for (position, table_id) in candidates.iter().enumerate() {
            if candidates[..position].contains(table_id) {
                continue;
            }
            salvaged.blocks = find_blocks(&salvaged.bytes, *table_id);
            if !salvaged.blocks.is_empty() {
                let of_table = sound.iter().find(|footer| footer.table_id == *table_id);
                salvaged.data_end = of_table.map(|footer| footer.filter.offset_bytes);
                salvaged.table_id = *table_id;
                return Ok(Some(salvaged));
            }
        }
        Ok(None)
    }

    /// Id of the table.
    pub(crate) fn table_id(&self) -> u64 {
        self.table_id
    }

    /// Number of sound blocks.
    #[cfg(test)]
    pub(crate) fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Gives internal key and value of every entry of a sound block to `take`, in order. An entry that is not after the one before
    /// it is part of the damage and left out.
    ///
    /// Errors: those of `take`.
    pub(crate) fn for_each(&self, mut take: impl FnMut(&[u8], &[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let (mut last, mut internal) = (Vec::new(), Vec::new());
        for sound in &self.blocks {
            let Some(block) = decode(&self.bytes, sound.handle, self.table_id) else { continue };
            let layout = block.layout();
            for entry in 0..layout.entry_count() {
                layout.internal_key(block.bytes(), entry, &mut internal);
                if last.is_empty() || key::compare(&last, &internal).is_lt() {
                    let (value, _) = layout.value(block.bytes(), entry);
                    take(&internal, block.bytes().get(value).unwrap_or_default())?;
                    std::mem::swap(&mut last, &mut internal);
                }
            }
        }
        Ok(())
    }

    /// The lost ranges of keys, when the manifest says that the table has these first and last internal keys; of those of `None`
    /// only what the file says is known.
    pub(crate) fn lost(&self, ends: Option<(&[u8], &[u8])>) -> Vec<LostKeys> {
        let user = |internal: &[u8]| Some(key::user_key(internal).to_vec());
        let mut lost = Vec::new();
        let mut end = 0;
        let mut after: Option<&[u8]> = None;
        for block in &self.blocks {
            if block.handle.offset_bytes != end {
                let after = after.or(ends.map(|(smallest, _)| smallest)).and_then(user);
                lost.push(LostKeys { after, before: user(&block.first) });
            }
            end = block.handle.offset_bytes + block.handle.length_bytes;
            after = Some(&block.last);
        }
        let is_whole = match (ends, self.data_end) {
            (Some((_, largest)), _) => after == Some(largest),
            (None, Some(data_end)) => end == data_end,
            (None, None) => false,
        };
        if !is_whole {
            lost.push(LostKeys { after: after.and_then(user), before: ends.and_then(|(_, largest)| user(largest)) });
        }
        lost
    }
}

/// All bytes of a file; zeros where the medium has lost some. `None` when there is no memory for them.
fn read_all(file: &dyn ReadableFile, io: &IoContext) -> Result<Option<Vec<u8>>, Error> {
    let Ok(size) = usize::try_from(file.size_bytes()) else { return Ok(None) };
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(size).is_err() {
        return Ok(None);
    }
    bytes.resize(size, 0);
    let mut offset = 0;
    for chunk in bytes.chunks_mut(READ_BYTES) {
        match file.read_at(offset, chunk, io) {
            Err(error) if error.is_loss() => {
                let mut at = offset;
                for small in chunk.chunks_mut(SMALL_READ_BYTES) {
                    match file.read_at(at, small, io) {
                        Err(error) if error.is_loss() => small.fill(0),
                        outcome => outcome?,
                    }
                    at += small.len() as u64;
                }
            }
            outcome => outcome?,
        }
        offset += chunk.len() as u64;
    }
    Ok(Some(bytes))
}

/// The sound footers in a file, the last first; and the ids of what look like unsound ones, and of one at the end of the file.
fn footers(bytes: &[u8]) -> (Vec<Footer>, Vec<u64>) {
    let mut sound = Vec::new();
    let mut unsound = Vec::new();
    let ends = (FOOTER_BYTES..=bytes.len()).rev().filter(|end| bytes[..*end].ends_with(&MAGIC));
    for end in std::iter::once(bytes.len()).chain(ends).take(16) {
        let Some(footer) = bytes[..end].last_chunk::<FOOTER_BYTES>() else { continue };
        match Footer::decode(footer, end as u64) {
            Ok(footer) => sound.push(footer),
            Err(_) => unsound.push(crate::encoding::read_u64(footer, 48)),
        }
    }
    (sound, unsound)
}

/// The sound data blocks of table `table_id` in `bytes`, in order, none within another.
fn find_blocks(bytes: &[u8], table_id: u64) -> Vec<SoundBlock> {
    let mut search = Search {
        bytes,
        table_id,
        from: 0,
        budget_bytes: bytes.len().saturating_mul(VERIFIED_FILES_MAX),
        found: Vec::new(),
    };
    let is_compressed = |end: usize| matches!(bytes.get(end - BLOCK_TRAILER_BYTES), Some(1 | 2));
    let mut at = 0;
    while at <= bytes.len() {
        // Blocks that are padded begin and end at multiples of the same power of two.
        let powers = std::iter::successors(Some(1), |align| Some(align * 2));
        let aligns = powers.take_while(|align| *align <= ALIGN_MAX && at.is_multiple_of(*align));
        if let Some(start) = uncompressed_start(bytes, search.from, at) {
            search.take_first(aligns.clone().map(|align| (start / align * align, at)));
        }
        if at >= search.from
            && let Some(end) = compressed_end(bytes, at)
            && search.take_first(
                aligns.map(|align| (at, end.next_multiple_of(align))).filter(|range| is_compressed(range.1)),
            )
        {
            at = search.from;
        } else {
            at += 1;
        }
    }
    search.found
}

struct Search<'a> {
    bytes: &'a [u8],
    table_id: u64,
    /// End of the last block that was found.
    from: usize,
    /// Bytes whose checksum may still be computed.
    budget_bytes: usize,
    found: Vec<SoundBlock>,
}

impl Search<'_> {
    /// Takes the first of these ranges that is a sound block, if one is.
    fn take_first(&mut self, ranges: impl Iterator<Item = (usize, usize)>) -> bool {
        let mut last = None;
        for (start, end) in ranges {
            let is_new = last.replace((start, end)) != Some((start, end));
            if !is_new || start < self.from || end > self.bytes.len() || self.budget_bytes < end - start {
                continue;
            }
            self.budget_bytes -= end - start;
            if let Some(block) = sound_block(self.bytes, start, end, self.table_id) {
                self.from = end;
                self.found.push(block);
                return true;
            }
        }
        false
    }
}

/// Where the compressed block that begins at `start` ends unless it is padded. `None` where none begins.
fn compressed_end(bytes: &[u8], start: usize) -> Option<usize> {
    let rest = bytes.get(start..)?;
    let length = compress::contents_length(rest, BLOCK_BYTES_MAX)?;
    let end = start.checked_add(length)?.checked_add(BLOCK_TRAILER_BYTES)?;
    (end <= bytes.len()).then_some(end)
}

/// Where the block that is not compressed, lies behind `from` and ends at `end` begins unless it is padded. `None` where none ends.
fn uncompressed_start(bytes: &[u8], from: usize, end: usize) -> Option<usize> {
    let kind_at = end.checked_sub(BLOCK_TRAILER_BYTES)?;
    if kind_at < from || bytes.get(kind_at) != Some(&compression_number(Compression::None)) {
        return None;
    }
    Layout::unpadded_start(&bytes[from..kind_at]).map(|start| from + start)
}

/// The block in `start..end`, if its checksum is right and it is a data block.
fn sound_block(bytes: &[u8], start: usize, end: usize, table_id: u64) -> Option<SoundBlock> {
    let handle = BlockHandle { offset_bytes: start as u64, length_bytes: (end - start) as u64 };
    let block = decode(bytes, handle, table_id)?;
    let layout = block.layout();
    let (mut first, mut last) = (Vec::new(), Vec::new());
    layout.internal_key(block.bytes(), 0, &mut first);
    layout.internal_key(block.bytes(), layout.entry_count() - 1, &mut last);
    Some(SoundBlock { handle, first, last })
}

fn decode(bytes: &[u8], handle: BlockHandle, table_id: u64) -> Option<DataBlock> {
    let stored = bytes.get(handle.offset_bytes as usize..handle.end()? as usize)?;
    let (_, compression) = split_block(stored).ok()?;
    verify_block(stored, table_id, handle.offset_bytes).ok()?;
    if compression == Compression::None {
        // Blocks of other kinds have the same trailer, and rarely a tail.
        Layout::decode_in_any_order(&stored[..stored.len() - BLOCK_TRAILER_BYTES]).ok()?;
    }
    let mut copy = DataBlockBuffer::new(stored.len())?;
    copy.copy_from_slice(stored);
    let context = BlockContext {
        table_id,
        largest_block_bytes: BLOCK_BYTES_MAX.min(handle.length_bytes.saturating_mul(EXPANSION_MAX)),
        verify_checksum: false,
        keep_stored: false,
        any_order: true,
    };
    DataBlock::decode(copy, handle.offset_bytes, &context).ok()
}
