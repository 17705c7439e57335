//! Blocks of a table whose file is mapped into memory: read where they lie, without a copy of them anywhere.
//!
//! Mapped bytes are not a cached block: pages leave memory and are read again from the medium, and other processes can change
//! them. So a reader that verifies checksums verifies that of the block with every read. Only the order of its entries is checked once,
//! with the first read: it follows from the checksum, and the note says so. Reads bear bytes of any kind all the same, because
//! those who skip checksums see what the file holds. A block that cannot be had from the mapping, for whatever reason, is read
//! from the file, which then says what is wrong.

use super::reader::{Found, KeyOrder, ReadContext, Table};
use crate::block::{BLOCK_TRAILER_BYTES, DataBlockBuffer, Layout, compression_number, split_block, verify_block};
use crate::cost;
use crate::key::EntryKind;
use crate::options::Compression;
use crate::value::Value;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use varve_store::{FileMapping, ReadableFile};

/// What a block has passed: nothing; that its entries are in order and belong there; its checksum as well.
const UNCHECKED: u8 = 0;
const IN_ORDER: u8 = 1;
const VERIFIED: u8 = 2;

/// The mapping of a table, and what is known of its blocks.
pub(super) struct MappedBlocks {
    mapping: FileMapping,
    checked: Box<[AtomicU8]>,
    /// First reads of blocks to come that ask the system for nothing.
    unasked: AtomicU8,
}

/// First reads of blocks that ask for nothing after one whose pages were in memory.
const UNASKED_MAX: u8 = 8;

impl MappedBlocks {
    /// Of a table of `size_bytes` with so many blocks. `None` when its file cannot be mapped, or its blocks are not read as
    /// they lie.
    pub(super) fn new(file: &dyn ReadableFile, size_bytes: u64, compression: u64, blocks: usize) -> Option<Self> {
        if compression != u64::from(compression_number(Compression::None)) {
            return None;
        }
        let mapping = file.map().filter(|mapping| mapping.size_bytes() >= size_bytes)?;
        let checked = (0..blocks).map(|_| AtomicU8::new(UNCHECKED)).collect();
        Some(MappedBlocks { mapping, checked, unasked: AtomicU8::new(0) })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.checked.len()
    }

    /// Says that a range of the file is about to be read.
    pub(super) fn will_need(&self, range: Range<u64>) {
        self.mapping.will_need(range);
    }

    /// Reads a block that nobody has read before. The system is asked for all its pages at once, where touching them would be a
    /// request each; but not for a while after one that was there, as asking is a call of the system.
    fn read_first<T>(&self, range: Range<u64>, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        // Others may count at the same time: it is a guess.
        let unasked = self.unasked.load(Ordering::Relaxed);
        if unasked > 0 {
            self.unasked.store(unasked - 1, Ordering::Relaxed);
            return self.mapping.read(range, read);
        }
        let before = FileMapping::waits_of_thread();
        self.will_need(range.clone());
        let made = self.mapping.read(range, read);
        if FileMapping::waits_of_thread() == before {
            self.unasked.store(UNASKED_MAX, Ordering::Relaxed);
        }
        made
    }

    /// The block is likely to be in memory: some reader has read it, or what was read for the first time lately was.
    pub(super) fn is_likely_in_memory(&self, number: usize) -> bool {
        self.was_read(number) || self.unasked.load(Ordering::Relaxed) > 0
    }

    /// Some reader has read the block already.
    pub(super) fn was_read(&self, number: usize) -> bool {
        self.has_passed(number, IN_ORDER)
    }

    fn has_passed(&self, number: usize, wanted: u8) -> bool {
        // Relaxed: it is about the file, not about memory somebody wrote.
        self.checked[number].load(Ordering::Relaxed) >= wanted
    }

    fn note(&self, number: usize, passed: u8) {
        self.checked[number].fetch_max(passed, Ordering::Relaxed);
    }
}

/// Most blocks between two looks at whether a walk had to wait.
const LOOK_BLOCKS_MAX: u32 = 32;

/// Whether a walk over mapped blocks had to wait, as it does where pages are not in memory. It looks at ever larger distances, as
/// a look is a call of the system.
#[derive(Clone, Copy, Default)]
pub(super) struct Waits {
    /// Of the thread, when it looked last.
    before: Option<u64>,
    next_look: u32,
    were_met: bool,
}

impl Waits {
    /// Whether it waited since the first call, as far as it looked; the walk enters its block number `block`. Once it did, it
    /// counts as waiting to its end: from then on what it needs is asked for, so that it waits no more.
    pub(super) fn were_met(&mut self, block: u32, waits_of_thread: impl FnOnce() -> u64) -> bool {
        if self.were_met || block < self.next_look {
            return self.were_met;
        }
        let waits = waits_of_thread();
        match self.before.replace(waits) {
            Some(before) => {
                self.were_met = waits != before;
                self.next_look = block + block.min(LOOK_BLOCKS_MAX);
            }
            None => self.next_look = block + 1,
        }
        self.were_met
    }
}

/// What a search in a mapped block came to.
enum Answer {
    Absent,
    Found(Found),
    /// Not what a block that was checked says.
    Nonsense,
}

fn wanted(context: &ReadContext) -> u8 {
    if context.verify_checksums { VERIFIED } else { IN_ORDER }
}

impl Table {
    /// The mapping, for those who may use it.
    pub(super) fn mapped_for(&self, context: &ReadContext) -> Option<&MappedBlocks> {
        // Who does not trust the order of keys looks at the medium.
        self.mapped.as_ref().filter(|_| context.order == KeyOrder::Checked)
    }

    /// Looks up a key in a mapped block and copies its value. `None` when the block has to be read from the file; so it
    /// is also when it is damaged, so that there is one place which says so.
    #[inline]
    pub(super) fn find_mapped(
        &self,
        number: usize,
        user_key: &[u8],
        trailer: u64,
        context: &ReadContext,
    ) -> Option<Option<Found>> {
        let mapped = self.mapped_for(context)?;
        let handle = self.index.handle(number);
        if context.fill_cache && self.cache_has_room(number, handle.length_bytes as usize) {
            return None;
        }
        let range = handle.range();
        if !mapped.has_passed(number, wanted(context)) {
            self.check_mapped(mapped, number, range.clone(), context)?;
        }
        self.env.charge(cost::BLOCK_SEARCH);
        let answer = mapped.mapping.read(range.clone(), |stored| {
            if !self.is_intact(range.start, stored, context) {
                return Answer::Nonsense;
            }
            let Some(contents) = stored.len().checked_sub(BLOCK_TRAILER_BYTES).map(|length| &stored[..length]) else {
                return Answer::Nonsense;
            };
            let Ok(layout) = Layout::decode_checked_before(contents) else { return Answer::Nonsense };
            let position = layout.search(contents, user_key, trailer);
            if !position.same_user_key {
                return Answer::Absent;
            }
            let (value, found) = layout.value(contents, position.entry);
            match (contents.get(value), EntryKind::from_number(found as u8)) {
                (Some(value), Some(kind)) => {
                    Answer::Found(Found { sequence: found >> 8, kind, value: Value::owned(value.to_vec()) })
                }
                _ => Answer::Nonsense,
            }
        });
        match answer? {
            Answer::Absent => Some(None),
            Answer::Found(found) => Some(Some(found)),
            Answer::Nonsense => None,
        }
    }

    /// Checks a block where it lies. `None` when it does not pass.
    #[cold]
    fn check_mapped(
        &self,
        mapped: &MappedBlocks,
        number: usize,
        range: Range<u64>,
        context: &ReadContext,
    ) -> Option<()> {
        let layout = mapped.read_first(range.clone(), |stored| self.check_stored(number, range.start, stored, context));
        layout??;
        mapped.note(number, wanted(context));
        Some(())
    }

    /// True if the checksum of a block matches, or the reader does not verify it.
    #[inline]
    fn is_intact(&self, offset_bytes: u64, stored: &[u8], context: &ReadContext) -> bool {
        if !context.verify_checksums {
            return true;
        }
        self.env.charge(cost::of_bytes(cost::CHECKSUM_KIB, stored.len() as u64));
        verify_block(stored, self.table_id, offset_bytes).is_ok()
    }

    /// The layout of a block that passes all checks.
    fn check_stored(&self, number: usize, offset_bytes: u64, stored: &[u8], context: &ReadContext) -> Option<Layout> {
        let block_context = self.block_context(context.verify_checksums, context.order);
        if block_context.verify_checksum {
            verify_block(stored, block_context.table_id, offset_bytes).ok()?;
        }
        let (contents, compression) = split_block(stored).ok()?;
        if compression != Compression::None {
            return None;
        }
        let layout = block_context.layout(contents).ok()?;
        self.check_keys(number, &layout, contents, context.order).ok()?;
        self.charge_block(stored.len() as u64, stored.len() as u64, context.verify_checksums);
        Some(layout)
    }

    /// Copies a mapped block to `copy`, which has its length, and checks the copy; the system is asked for one that was not read
    /// before, unless it `is_coming` anyway. `None` when the block has to be read.
    pub(super) fn copy_checked(
        &self,
        number: usize,
        copy: &mut [u8],
        is_coming: bool,
        context: &ReadContext,
    ) -> Option<Layout> {
        let mapped = self.mapped_for(context)?;
        let handle = self.index.handle(number);
        self.copy_stored(mapped, number, handle.range(), is_coming, copy)?;
        if mapped.has_passed(number, wanted(context)) {
            if !self.is_intact(handle.offset_bytes, copy, context) {
                return None;
            }
            // The walk relies on the order of entries to end.
            return Layout::decode(copy.get(..copy.len().checked_sub(BLOCK_TRAILER_BYTES)?)?).ok();
        }
        let layout = self.check_stored(number, handle.offset_bytes, copy, context)?;
        mapped.note(number, wanted(context));
        Some(layout)
    }

    /// Says of blocks that are going to be looked up that they will be needed, all at once, where they were not read before.
    pub(super) fn announce_mapped(&self, numbers: impl Iterator<Item = usize>, context: &ReadContext) {
        let Some(mapped) = self.mapped_for(context) else { return };
        for number in numbers.filter(|number| !mapped.was_read(*number)) {
            let handle = self.index.handle(number);
            mapped.will_need(handle.range());
        }
    }

    /// A copy of a mapped block, for the cache. `None` when it has to be read.
    pub(super) fn copy_mapped(&self, number: usize, context: &ReadContext) -> Option<DataBlockBuffer> {
        let mapped = self.mapped_for(context)?;
        let handle = self.index.handle(number);
        let range = handle.range();
        let mut copy = DataBlockBuffer::new(usize::try_from(handle.length_bytes).ok()?)?;
        self.copy_stored(mapped, number, range, false, &mut copy)?;
        Some(copy)
    }

    /// Copies a mapped block to `copy`, which has its length, unchecked. `None` when the mapping is lost.
    fn copy_stored(
        &self,
        mapped: &MappedBlocks,
        number: usize,
        range: Range<u64>,
        is_coming: bool,
        copy: &mut [u8],
    ) -> Option<()> {
        self.env.charge(cost::of_bytes(cost::COPY_KIB, range.end - range.start));
        match is_coming || mapped.was_read(number) {
            true => mapped.mapping.read(range, |stored| copy.copy_from_slice(stored)),
            false => mapped.read_first(range, |stored| copy.copy_from_slice(stored)),
        }
    }
}
