//! A data block in memory, and values that keep their block alive.

use super::block::Layout;
use super::buffer::AlignedBuffer;
use super::compress;
use super::format;
use crate::encoding::Damage;
use crate::options::Compression;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Hits that count; more of them do not keep a block longer.
const FREQUENCY_MAX: u8 = 3;

/// Memory a cached block takes besides its bytes: itself, the counters of its `Arc`, its place in the
/// cache's queue, and what the allocator adds to each of the two allocations.
const OVERHEAD_BYTES: usize = size_of::<DataBlock>() + 16 + 16 + 2 * 8;

/// A data block, checked and decompressed.
pub(crate) struct DataBlock {
    layout: Layout,
    /// Contents; when they are not compressed on the medium, the trailer too.
    bytes: AlignedBuffer,
    /// The block as it is on the medium, when that differs and somebody wants it.
    stored: Option<AlignedBuffer>,
    offset_bytes: u64,
    /// Hits since the cache last looked, up to [`FREQUENCY_MAX`].
    frequency: AtomicU8,
    /// Which of the cache's queues it is in; changed under the cache's lock.
    in_main_queue: AtomicBool,
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
}

impl DataBlock {
    /// Takes a block as it was read from `offset_bytes`.
    pub(crate) fn decode(stored: AlignedBuffer, offset_bytes: u64, context: &BlockContext) -> Result<Self, Damage> {
        if context.verify_checksum {
            format::verify_block(&stored, context.table_id, offset_bytes)?;
        }
        let (contents, compression) = format::split_block(&stored)?;
        let (layout, bytes, stored) = if compression == Compression::None {
            (Layout::decode(contents)?, stored, None)
        } else {
            let bytes = compress::decompress(contents, compression, context.largest_block_bytes)?;
            (Layout::decode(&bytes)?, bytes, context.keep_stored.then_some(stored))
        };
        Ok(DataBlock {
            layout,
            bytes,
            stored,
            offset_bytes,
            frequency: AtomicU8::new(0),
            in_main_queue: AtomicBool::new(false),
        })
    }

    #[inline]
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What the layout's accessors take.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where it is in the file.
    pub(crate) fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    /// The block as it is on the medium, trailer included. For a compressed block only when it was asked to keep
    /// that.
    pub(crate) fn stored_bytes(&self) -> &[u8] {
        self.stored.as_deref().unwrap_or(&self.bytes)
    }

    /// Memory it takes while cached.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.stored.as_ref().map_or(0, |stored| stored.len()) + OVERHEAD_BYTES
    }

    /// Counts a hit.
    #[inline]
    pub(crate) fn touch(&self) {
        let frequency = self.frequency.load(Ordering::Relaxed);
        // A lost count does no harm, so no read-modify-write; hot blocks are only read.
        if frequency < FREQUENCY_MAX {
            self.frequency.store(frequency + 1, Ordering::Relaxed);
        }
    }

    pub(crate) fn frequency(&self) -> u8 {
        self.frequency.load(Ordering::Relaxed)
    }

    pub(crate) fn set_frequency(&self, frequency: u8) {
        self.frequency.store(frequency, Ordering::Relaxed);
    }

    pub(crate) fn in_main_queue(&self) -> bool {
        self.in_main_queue.load(Ordering::Relaxed)
    }

    pub(crate) fn set_in_main_queue(&self, in_main_queue: bool) {
        self.in_main_queue.store(in_main_queue, Ordering::Relaxed);
    }
}

impl fmt::Debug for DataBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DataBlock({} entries at {})", self.layout.entry_count(), self.offset_bytes)
    }
}

/// A value that was found, without a copy: holds the block it lies in. Cheap to clone.
///
/// Keeping many of them keeps many blocks in memory beyond the cache's capacity; copy what is kept for
/// long.
#[derive(Clone)]
pub struct PinnedBytes {
    pin: Pin,
}

#[derive(Clone)]
enum Pin {
    Block { block: Arc<DataBlock>, start: usize, end: usize },
    Owned(Arc<[u8]>),
}

impl PinnedBytes {
    pub(crate) fn in_block(block: Arc<DataBlock>, range: Range<usize>) -> Self {
        PinnedBytes { pin: Pin::Block { block, start: range.start, end: range.end } }
    }
}

impl From<&[u8]> for PinnedBytes {
    /// Copies the bytes.
    fn from(bytes: &[u8]) -> Self {
        PinnedBytes { pin: Pin::Owned(bytes.into()) }
    }
}

impl From<Vec<u8>> for PinnedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        PinnedBytes { pin: Pin::Owned(bytes.into()) }
    }
}

impl Deref for PinnedBytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.pin {
            Pin::Block { block, start, end } => &block.bytes()[*start..*end],
            Pin::Owned(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for PinnedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq<[u8]> for PinnedBytes {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl fmt::Debug for PinnedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBytes({})", self.escape_ascii())
    }
}
