//! A data block in memory, and values that keep their block alive.

use super::compress;
use super::layout::Layout;
use super::memory::{Block, BlockBuffer};
use super::trailer;
use crate::encoding::{Damage, Decoder};
use crate::options::Compression;
use crate::slot::Counted;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Hits that count; more of them do not keep a block longer.
const FREQUENCY_MAX: u8 = 3;

/// A data block, checked and decompressed. Clones are the same block.
#[derive(Clone)]
pub(crate) struct DataBlock {
    /// The bytes are the contents; when they are not compressed on the medium, the trailer too.
    block: Block<Description>,
}

/// Memory for a block that is going to be read.
pub(crate) type DataBlockBuffer = BlockBuffer<Description>;

/// What is known of a block.
pub(crate) struct Description {
    layout: Layout,
    /// Hits since the cache last looked, up to [`FREQUENCY_MAX`].
    frequency: AtomicU8,
    /// Which of the cache's queues it is in; changed under the cache's lock.
    in_main_queue: AtomicBool,
    offset_bytes: u64,
    /// The block as it is on the medium, when that differs and somebody wants it.
    stored: Option<Box<[u8]>>,
}

/// How blocks of one table are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockContext {
    pub(crate) table_id: u64,
    /// Largest block before compression, trailer included.
    pub(crate) largest_block_bytes: u64,
    pub(crate) verify_checksum: bool,
    /// Keep the bytes as they are on the medium.
    pub(crate) keep_stored: bool,
    /// The caller looks at the order of the entries itself.
    pub(crate) any_order: bool,
}

impl BlockContext {
    /// What the contents of a block say, as strictly as asked for.
    pub(crate) fn layout(&self, contents: &[u8]) -> Result<Layout, Damage> {
        if self.any_order { Layout::decode_in_any_order(contents) } else { Layout::decode(contents) }
    }
}

impl DataBlock {
    /// Memory of a block's place in the cache's queue.
    const QUEUE_BYTES: usize = 16;

    /// About what a cached block takes besides its bytes: what is known of it and its place in the
    /// cache's queue.
    pub(crate) const OVERHEAD_BYTES: usize = Block::<Description>::OVERHEAD_BYTES + Self::QUEUE_BYTES;

    /// Takes a block as it was read from `offset_bytes`.
    pub(crate) fn decode(stored: DataBlockBuffer, offset_bytes: u64, context: &BlockContext) -> Result<Self, Damage> {
        if context.verify_checksum {
            trailer::verify_block(&stored, context.table_id, offset_bytes)?;
        }
        let (contents, compression) = trailer::split_block(&stored)?;
        let describe = |layout, stored| Description {
            layout,
            frequency: AtomicU8::new(0),
            in_main_queue: AtomicBool::new(false),
            offset_bytes,
            stored,
        };
        if compression == Compression::None {
            let layout = context.layout(contents)?;
            return Ok(DataBlock { block: stored.share(describe(layout, None)) });
        }
        let plan = compress::Compressed::decode(contents, context.largest_block_bytes)?;
        let Some(mut bytes) = DataBlockBuffer::new(plan.length) else {
            return Err(Decoder::damage(0, "an uncompressed length there is memory for", plan.length.to_string()));
        };
        plan.decompress(compression, &mut bytes)?;
        let layout = context.layout(&bytes)?;
        let stored = context.keep_stored.then(|| stored[..].into());
        Ok(DataBlock { block: bytes.share(describe(layout, stored)) })
    }

    #[inline]
    pub(crate) fn layout(&self) -> &Layout {
        &self.block.value().layout
    }

    /// What the layout's accessors take.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.block.bytes()
    }

    /// Where it is in the file.
    pub(crate) fn offset_bytes(&self) -> u64 {
        self.block.value().offset_bytes
    }

    /// The block as it is on the medium, trailer included. For a compressed block only when it was asked to keep
    /// that.
    pub(crate) fn stored_bytes(&self) -> &[u8] {
        self.block.value().stored.as_deref().unwrap_or(self.block.bytes())
    }

    /// Memory it takes while cached.
    pub(crate) fn memory_bytes(&self) -> usize {
        let stored = self.block.value().stored.as_ref().map_or(0, |stored| stored.len());
        self.block.memory_bytes() + stored + Self::QUEUE_BYTES
    }

    /// Counts a hit.
    #[inline]
    pub(crate) fn touch(&self) {
        let hits = &self.block.value().frequency;
        let frequency = hits.load(Ordering::Relaxed);
        // A lost count does no harm, so no read-modify-write; hot blocks are only read.
        if frequency < FREQUENCY_MAX {
            hits.store(frequency + 1, Ordering::Relaxed);
        }
    }

    /// How many clones there are.
    pub(crate) fn references(&self) -> usize {
        self.block.references()
    }

    pub(crate) fn frequency(&self) -> u8 {
        self.block.value().frequency.load(Ordering::Relaxed)
    }

    pub(crate) fn set_frequency(&self, frequency: u8) {
        self.block.value().frequency.store(frequency, Ordering::Relaxed);
    }

    pub(crate) fn in_main_queue(&self) -> bool {
        self.block.value().in_main_queue.load(Ordering::Relaxed)
    }

    pub(crate) fn set_in_main_queue(&self, in_main_queue: bool) {
        self.block.value().in_main_queue.store(in_main_queue, Ordering::Relaxed);
    }
}

// SAFETY: every method passes on to the block's, which count its references.
unsafe impl Counted for DataBlock {
    type Target = ();

    #[inline]
    fn into_raw(self) -> *mut () {
        self.block.into_raw()
    }

    #[inline]
    unsafe fn from_raw(raw: *mut ()) -> Self {
        // SAFETY: as the caller promises.
        DataBlock { block: unsafe { Block::from_raw(raw) } }
    }

    #[inline]
    unsafe fn retain(raw: *mut ()) {
        // SAFETY: as the caller promises.
        unsafe { Block::<Description>::retain(raw) }
    }

    #[inline]
    fn prefetch(raw: *mut ()) {
        Block::<Description>::prefetch(raw);
    }
}

impl fmt::Debug for DataBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DataBlock({} entries at {})", self.layout().entry_count(), self.offset_bytes())
    }
}

/// A value that was found, without a copy: holds the block it lies in. Cheap to clone.
///
/// Keeping many of them keeps many blocks in memory beyond the cache's capacity.
#[derive(Clone)]
pub(crate) struct PinnedBytes {
    block: DataBlock,
    start: usize,
    end: usize,
}

impl PinnedBytes {
    pub(crate) fn in_block(block: DataBlock, range: Range<usize>) -> Self {
        PinnedBytes { block, start: range.start, end: range.end }
    }
}

impl Deref for PinnedBytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.block.bytes()[self.start..self.end]
    }
}

impl fmt::Debug for PinnedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBytes({})", self.escape_ascii())
    }
}
