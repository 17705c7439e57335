//! Walks the entries of a table, both ways.

use super::format::BlockHandle;
use super::mapped::Waits;
use super::reader::{KeyOrder, ReadContext, Table};
use crate::block::{
    AlignedBuffer, BLOCK_TRAILER_BYTES, DataBlock, DataBlockBuffer, Layout, compress, split_block, verify_block,
};
use crate::cost;
use crate::encoding::Decoder;
use crate::error::Error;
use crate::iterator::{BlockPlace, InternalIterator};
use crate::key;
use crate::options::{Compression, GrowingReadahead};
use std::ops::Range;
use std::sync::Arc;
use varve_store::{FileMapping, IoContext};

/// Of a mapped file, blocks after which a walk is long: then the system is told what it will need if the walk had to wait, and no
/// more because of blocks that were not read before. And how much it is told first.
const BLOCKS_BEFORE_ANNOUNCING: u32 = 6;
const FIRST_ANNOUNCED_BYTES: usize = 64 << 10;

/// A walk that reads ahead stops filling a full cache when it has put in this share of its capacity: what it
/// reads next would only push out what it has just read. While there is room it goes on filling: the first
/// walk pays for the memory, and everything after it finds the blocks.
const CACHE_SHARE: usize = 16;

/// How a walk reads ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readahead {
    /// Through the cache, more and more at once. For users.
    Growing(GrowingReadahead),
    /// Always this much at once, past the cache. For compactions.
    Fixed { bytes: usize },
}

impl Readahead {
    /// That of media where positioning costs little.
    pub(crate) const fn growing(max_bytes: usize) -> Readahead {
        Readahead::Growing(GrowingReadahead { blocks_before: 2, first_bytes: 16 << 10, max_bytes })
    }

    fn first_bytes(self) -> usize {
        match self {
            Readahead::Growing(growing) => growing.first_bytes,
            Readahead::Fixed { bytes } => bytes,
        }
    }
}

/// How to walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableIteratorOptions {
    /// Keep blocks that are read in the cache.
    pub(crate) fill_cache: bool,
    pub(crate) verify_checksums: bool,
    pub(crate) readahead: Readahead,
    pub(crate) order: KeyOrder,
    pub(crate) io: IoContext,
}

/// Where the bytes of the current block are.
enum Source {
    Nowhere,
    Cached(DataBlock),
    /// Within the window.
    Window(Range<usize>),
    /// Decompressed from the window.
    Decompressed(AlignedBuffer),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Walks the entries of a table. Allocates nothing per entry.
pub(crate) struct TableIterator {
    table: Arc<Table>,
    options: TableIteratorOptions,
    valid: bool,
    /// The current entry, its number in the block, and where its parts are.
    entry: usize,
    key: Vec<u8>,
    key_end: usize,
    value: Range<usize>,
    layout: Option<Layout>,
    source: Source,
    block: usize,
    /// Several blocks that were read at once.
    window: AlignedBuffer,
    /// Where the window's bytes are in the file.
    window_range: Range<u64>,
    /// Blocks in a row, in one direction, that had to be read.
    misses: u32,
    /// What a mapped file was said to be needed of last.
    announced: Range<u64>,
    waits: Waits,
    next_window_bytes: usize,
    /// The next seek continues a walk over several tables.
    goes_on: bool,
    cache_budget_bytes: usize,
    error: Option<Error>,
}

impl TableIterator {
    pub(crate) fn new(table: Arc<Table>, options: TableIteratorOptions) -> Self {
        let cache_budget_bytes = table.cache.capacity() / CACHE_SHARE;
        TableIterator {
            table,
            options,
            valid: false,
            entry: 0,
            key: Vec::with_capacity(64),
            key_end: 0,
            value: 0..0,
            layout: None,
            source: Source::Nowhere,
            block: 0,
            window: AlignedBuffer::empty(),
            window_range: 0..0,
            misses: 0,
            announced: 0..0,
            waits: Waits::default(),
            next_window_bytes: options.readahead.first_bytes(),
            goes_on: false,
            cache_budget_bytes,
            error: None,
        }
    }

    /// Walks another table from now on, keeping its memory. Stands nowhere afterwards.
    pub(crate) fn set_table(&mut self, table: Arc<Table>) {
        self.table = table;
        self.goes_on = false;
        self.valid = false;
        self.error = None;
        self.layout = None;
        self.source = Source::Nowhere;
        self.window_range = 0..0;
    }

    /// Goes on in the neighbouring table of a level: as [`TableIterator::set_table`], and the next seek
    /// keeps the pace of reading ahead.
    pub(crate) fn continue_in(&mut self, table: Arc<Table>) {
        self.set_table(table);
        self.goes_on = true;
    }

    /// To the first entry of a block.
    pub(crate) fn seek_to_block(&mut self, block: usize) {
        self.error = None;
        if self.enter(block, Direction::Forward) {
            self.stand_on(0);
        }
    }

    /// Number of the block it stands in.
    pub(crate) fn block_number(&self) -> usize {
        self.block
    }

    #[inline(always)]
    fn bytes<'a>(source: &'a Source, window: &'a AlignedBuffer) -> &'a [u8] {
        match source {
            Source::Window(range) => &window[range.clone()],
            Source::Cached(block) => block.bytes(),
            Source::Decompressed(bytes) => bytes,
            Source::Nowhere => &[],
        }
    }

    /// Stands on an entry of the current block, wherever it stood before.
    fn stand_on(&mut self, entry: usize) {
        let bytes = Self::bytes(&self.source, &self.window);
        let Some(layout) = &self.layout else { return };
        let (value_start, key_start) = layout.starts(bytes, entry);
        let record = layout.record(bytes, entry);
        let restart = layout.restart_key(bytes, entry - entry % layout.restart_interval());
        self.key.clear();
        self.key.extend_from_slice(&restart[..record.shared]);
        self.key.extend_from_slice(&bytes[key_start..record.key_end]);
        self.key.extend_from_slice(&record.trailer.to_le_bytes());
        self.entry = entry;
        self.key_end = record.key_end;
        self.value = value_start..record.value_end;
        self.valid = true;
    }

    fn fail(&mut self, error: Error) {
        self.valid = false;
        self.layout = None;
        self.source = Source::Nowhere;
        self.error = Some(error);
    }

    /// Makes `block` the current one. False when that failed.
    fn enter(&mut self, block: usize, direction: Direction) -> bool {
        self.valid = false;
        if self.layout.is_some() && self.block == block {
            return true;
        }
        match self.read_block(block, direction) {
            Ok((source, layout)) => {
                let entries = layout.entry_count() as u64;
                self.source = source;
                self.layout = Some(layout);
                self.block = block;
                self.table.env.charge(cost::ENTRY_STEP * entries);
                true
            }
            Err(error) => {
                self.fail(error);
                false
            }
        }
    }

    fn read_block(&mut self, block: usize, direction: Direction) -> Result<(Source, Layout), Error> {
        let handle = self.table.index.handle(block);
        if let Some(range) = self.in_window(&handle) {
            return self.take_from_window(block, &handle, range);
        }
        if self.grows()
            && let Some(found) = self.table.cached_block(block)
        {
            let layout = *found.layout();
            return Ok((Source::Cached(found), layout));
        }
        self.misses = self.misses.saturating_add(1);
        if self.grows()
            && let Some(taken) = self.take_mapped(block, &handle, direction)
        {
            return Ok(taken);
        }
        let window_bytes = match self.options.readahead {
            Readahead::Fixed { bytes } => bytes,
            Readahead::Growing(growing) if self.misses > growing.blocks_before => {
                let bytes = self.next_window_bytes.min(growing.max_bytes);
                self.next_window_bytes = bytes.saturating_mul(2);
                bytes
            }
            Readahead::Growing(_) => 0,
        };
        if handle.length_bytes >= window_bytes as u64 {
            let fill_cache = self.options.fill_cache && self.grows();
            let found = self.table.load_block(block, &self.context(fill_cache))?;
            let layout = *found.layout();
            return Ok((Source::Cached(found), layout));
        }
        self.fill_window(block, window_bytes as u64, direction)?;
        match self.in_window(&handle) {
            Some(range) => self.take_from_window(block, &handle, range),
            None => Err(Decoder::damage(0, "a block within its window", format!("{handle:?}")).in_file(
                &self.table.name,
                handle.offset_bytes,
                "data block",
            )),
        }
    }

    /// The block of a file that is mapped: from the cache if it has room for it, else a copy of its own, which nothing changes
    /// while the walk stands on it. `None` when it has to be read.
    fn take_mapped(&mut self, block: usize, handle: &BlockHandle, direction: Direction) -> Option<(Source, Layout)> {
        let context = self.context(self.options.fill_cache);
        self.table.mapped_for(&context)?;
        let is_coming = self.announce(block, handle, direction);
        let length = usize::try_from(handle.length_bytes).ok()?;
        if context.fill_cache && self.table.cache_has_room(block, length) {
            let found = self.table.load_block(block, &context).ok()?;
            let layout = *found.layout();
            return Some((Source::Cached(found), layout));
        }
        self.window_range = 0..0;
        if self.window.len() < length {
            self.window = AlignedBuffer::empty();
            self.window = AlignedBuffer::zeroed(length, 1)?;
        }
        let layout = self.table.copy_checked(block, &mut self.window[..length], is_coming, &context)?;
        self.window_range = handle.range();
        Some((Source::Window(0..length - BLOCK_TRAILER_BYTES), layout))
    }

    /// Of a walk over a mapped file that goes on, says what it will come to, each time further ahead. That is a call of the
    /// system, which costs as much as copying the blocks, so walks over what is likely to be in memory do without: short ones if
    /// it was read before, long ones as long as they do not wait.
    ///
    /// False where `block` itself may not be in memory, nor be on its way there.
    fn announce(&mut self, block: usize, handle: &BlockHandle, direction: Direction) -> bool {
        let (Readahead::Growing(growing), Some(mapped)) = (self.options.readahead, &self.table.mapped) else {
            return false;
        };
        let GrowingReadahead { blocks_before, first_bytes, max_bytes } = growing;
        let Range { start, end } = handle.range();
        let is_announced = self.announced.start <= start && end <= self.announced.end;
        let is_long = self.misses >= BLOCKS_BEFORE_ANNOUNCING;
        let is_short = self.misses <= blocks_before || (!is_long && mapped.is_likely_in_memory(block));
        if is_short || (!self.waits.were_met(self.misses, FileMapping::waits_of_thread) && is_long) {
            self.announced = start..end;
            return is_long;
        }
        let least_bytes = if is_long { FIRST_ANNOUNCED_BYTES.max(first_bytes) } else { first_bytes };
        let window_bytes = self.next_window_bytes.max(least_bytes).min(max_bytes) as u64;
        // Half a window before its end is reached, so that the medium reads while the walk goes on.
        let ahead = match direction {
            Direction::Forward => {
                let from = self.announced.end.max(end);
                if from > end + window_bytes / 2 {
                    return is_announced;
                }
                from..(from + window_bytes).min(self.table.index.data_end())
            }
            Direction::Backward => {
                let to = self.announced.start.min(start);
                if to + window_bytes / 2 < start {
                    return is_announced;
                }
                to.saturating_sub(window_bytes)..to
            }
        };
        mapped.will_need(ahead.clone());
        self.announced = ahead;
        self.next_window_bytes = (window_bytes as usize).saturating_mul(2).min(max_bytes);
        is_announced
    }

    fn grows(&self) -> bool {
        matches!(self.options.readahead, Readahead::Growing(_))
    }

    /// A block read ahead may go to the cache: this walk has not put in its share yet, or there is room anyway.
    fn may_fill(&self, block: usize, length: usize) -> bool {
        self.cache_budget_bytes >= length || self.table.cache_has_room(block, length)
    }

    fn context(&self, fill_cache: bool) -> ReadContext {
        ReadContext {
            fill_cache,
            verify_checksums: self.options.verify_checksums,
            order: self.options.order,
            io: self.options.io,
        }
    }

    fn in_window(&self, handle: &BlockHandle) -> Option<Range<usize>> {
        let range = &self.window_range;
        let end = handle.range().end;
        if handle.offset_bytes < range.start || end > range.end {
            return None;
        }
        let start = (handle.offset_bytes - range.start) as usize;
        Some(start..start + handle.length_bytes as usize)
    }

    /// Reads whole blocks, beginning or ending with `block`, of about `bytes`.
    fn fill_window(&mut self, block: usize, bytes: u64, direction: Direction) -> Result<(), Error> {
        let index = &self.table.index;
        let handle = index.handle(block);
        let (mut start, mut end) = match direction {
            Direction::Forward => {
                let last = index.block_at(handle.offset_bytes + bytes).max(block + 1);
                let end = if last >= index.blocks() { index.data_end() } else { index.handle(last).offset_bytes };
                (handle.offset_bytes, end)
            }
            Direction::Backward => {
                let end = handle.range().end;
                let first = index.block_at(end.saturating_sub(bytes)).min(block);
                (index.handle(first).offset_bytes, end)
            }
        };
        // Past the edges rather than let the store copy; what is read too much is not looked at.
        let alignment = self.table.read_alignment_bytes as u64;
        start -= start % alignment;
        end = end.next_multiple_of(alignment).min(self.table.size_bytes);
        let length = (end - start) as usize;
        self.window_range = 0..0;
        if self.window.len() < length {
            self.window = AlignedBuffer::empty();
            self.window = AlignedBuffer::zeroed(length, alignment as usize).ok_or_else(|| {
                Decoder::damage(0, "a window there is memory for", format!("{length} bytes")).in_file(
                    &self.table.name,
                    start,
                    "data block",
                )
            })?;
        }
        self.table.env.charge(cost::REQUEST + cost::of_bytes(cost::COPY_KIB, length as u64));
        self.table.file.read_at(start, &mut self.window[..length], &self.options.io)?;
        self.window_range = start..end;
        Ok(())
    }

    /// Takes a block that was read; looks for another answer to the read if it is damaged.
    fn take_from_window(
        &mut self,
        block: usize,
        handle: &BlockHandle,
        range: Range<usize>,
    ) -> Result<(Source, Layout), Error> {
        self.take_answer(block, handle, range).or_else(|damage| {
            let found = self.table.find_sound_block(block, damage, &self.context(false))?;
            let layout = *found.layout();
            Ok((Source::Cached(found), layout))
        })
    }

    fn take_answer(
        &mut self,
        block: usize,
        handle: &BlockHandle,
        range: Range<usize>,
    ) -> Result<(Source, Layout), Error> {
        let length = range.len();
        if self.options.fill_cache && self.grows() && self.may_fill(block, length) {
            self.cache_budget_bytes = self.cache_budget_bytes.saturating_sub(length);
            let found = match self.table.cached_block(block) {
                Some(found) => found,
                None => {
                    let bytes = DataBlockBuffer::copy_of(&self.window[range]);
                    self.table.keep_block(block, bytes, &self.context(true))?
                }
            };
            let layout = *found.layout();
            return Ok((Source::Cached(found), layout));
        }
        let context = self.table.block_context(self.options.verify_checksums, self.options.order);
        let stored = &self.window[range.clone()];
        let take = || {
            if context.verify_checksum {
                verify_block(stored, context.table_id, handle.offset_bytes)?;
            }
            let (contents, compression) = split_block(stored)?;
            if compression == Compression::None {
                let layout = context.layout(contents)?;
                self.table.check_keys(block, &layout, contents, self.options.order)?;
                return Ok((Source::Window(range.start..range.start + contents.len()), layout));
            }
            let bytes = compress::decompress(contents, compression, context.largest_block_bytes)?;
            let layout = context.layout(&bytes)?;
            self.table.check_keys(block, &layout, &bytes, self.options.order)?;
            Ok((Source::Decompressed(bytes), layout))
        };
        let taken = take().map_err(|damage: crate::encoding::Damage| {
            damage.in_file(&self.table.name, handle.offset_bytes, "data block")
        })?;
        let unpacked = Self::bytes(&taken.0, &self.window).len();
        self.table.charge_block(length as u64, unpacked as u64, context.verify_checksum);
        Ok(taken)
    }

    /// Before a seek: what was learnt from walking no longer holds.
    fn begin_seek(&mut self) {
        self.error = None;
        self.valid = false;
        if !std::mem::take(&mut self.goes_on) {
            self.misses = 0;
            self.waits = Waits::default();
            self.next_window_bytes = self.options.readahead.first_bytes();
        }
    }

    /// To the first entry of the next block, if there is one.
    #[inline(never)]
    fn next_block(&mut self) {
        self.valid = false;
        if self.block + 1 < self.table.index.blocks() && self.enter(self.block + 1, Direction::Forward) {
            self.stand_on(0);
        }
    }

    /// To the last entry of the block before, if there is one.
    #[inline(never)]
    fn previous_block(&mut self) {
        self.valid = false;
        if self.block > 0 && self.enter(self.block - 1, Direction::Backward) {
            self.stand_on_last();
        }
    }

    fn stand_on_last(&mut self) {
        if let Some(layout) = &self.layout {
            self.stand_on(layout.entry_count() - 1);
        }
    }
}

impl InternalIterator for TableIterator {
    #[inline]
    fn valid(&self) -> bool {
        self.valid
    }

    fn seek_to_first(&mut self) {
        self.begin_seek();
        if self.enter(0, Direction::Forward) {
            self.stand_on(0);
        }
    }

    fn seek_to_last(&mut self) {
        self.begin_seek();
        if self.enter(self.table.index.blocks() - 1, Direction::Backward) {
            self.stand_on_last();
        }
    }

    fn seek(&mut self, internal_key: &[u8]) {
        self.begin_seek();
        let (user_key, trailer) = (key::user_key(internal_key), key::trailer(internal_key));
        let block = self.table.find_block(user_key, trailer);
        if !self.enter(block, Direction::Forward) {
            return;
        }
        self.table.env.charge(cost::BLOCK_SEARCH);
        let Some(layout) = &self.layout else { return };
        let position = layout.search(Self::bytes(&self.source, &self.window), user_key, trailer);
        if position.entry < layout.entry_count() {
            self.stand_on(position.entry);
        } else {
            self.next_block();
        }
    }

    fn seek_for_previous(&mut self, internal_key: &[u8]) {
        self.begin_seek();
        let (user_key, trailer) = (key::user_key(internal_key), key::trailer(internal_key));
        let block = self.table.find_block(user_key, trailer);
        if !self.enter(block, Direction::Backward) {
            return;
        }
        self.table.env.charge(cost::BLOCK_SEARCH);
        let Some(layout) = &self.layout else { return };
        let position = layout.search(Self::bytes(&self.source, &self.window), user_key, trailer);
        if position.exact {
            self.stand_on(position.entry);
        } else if position.entry > 0 {
            self.stand_on(position.entry - 1);
        } else {
            self.previous_block();
        }
    }

    #[inline]
    fn next(&mut self) {
        let Some(layout) = &self.layout else { return };
        let entry = self.entry + 1;
        if entry >= layout.entry_count() {
            return self.next_block();
        }
        let bytes = Self::bytes(&self.source, &self.window);
        let record = layout.record(bytes, entry);
        // Forward, an entry shares no more with its restart point than the one before it did, so
        // what it shares is still in place.
        self.key.truncate(record.shared);
        self.key.extend_from_slice(&bytes[self.key_end..record.key_end]);
        self.key.extend_from_slice(&record.trailer.to_le_bytes());
        self.entry = entry;
        self.key_end = record.key_end;
        self.value = self.value.end..record.value_end;
    }

    #[inline]
    fn previous(&mut self) {
        match self.entry.checked_sub(1) {
            Some(entry) => self.stand_on(entry),
            None => self.previous_block(),
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        &self.key
    }

    #[inline]
    fn value(&self) -> &[u8] {
        &Self::bytes(&self.source, &self.window)[self.value.clone()]
    }

    fn block(&self) -> Option<BlockPlace<'_>> {
        let handle = self.table.index.handle(self.block);
        let records = self.table.file.records();
        Some(BlockPlace { table: &self.table.name, offset_bytes: handle.offset_bytes, records })
    }

    fn status(&self) -> Result<(), Error> {
        match &self.error {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

impl Table {
    /// A walk over the entries.
    pub(crate) fn iterator(self: &Arc<Self>, options: TableIteratorOptions) -> TableIterator {
        TableIterator::new(self.clone(), options)
    }
}
