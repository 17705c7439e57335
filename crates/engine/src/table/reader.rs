//! An open table: point lookups.

use super::builder::TableSummary;
use super::filter::{Filter, LINE_BYTES};
use super::format::{BlockHandle, FOOTER_BYTES, Footer};
use super::identity::TableIdentity;
use super::index::Index;
use super::mapped::MappedBlocks;
use super::properties::TableProperties;
use crate::block::{
    AlignedBuffer, BlockContext, DataBlock, DataBlockBuffer, Layout, PinnedBytes, Position, compression_number,
    split_block, verify_block,
};
use crate::cache::{BlockCache, FileBlocks};
use crate::cost;
use crate::encoding::{Damage, Decoder};
use crate::error::Error;
use crate::key::{self, EntryKind, Sequence};
use crate::options::Compression;
use crate::value::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use varve_env::Env;
use varve_store::{IoContext, ReadRange, ReadableFile, find_sound_answer};

/// Bytes read from the end of a file before anything is known of it.
const FIRST_READ_BYTES: u64 = 4096;

/// Blocks of one [`Table::get_many`] in flight at once.
const BLOCKS_IN_FLIGHT: usize = 64;

/// How tables of one store are opened.
#[derive(Clone)]
pub(crate) struct TableReadOptions {
    pub(crate) env: Env,
    /// Alignment reads should have; 1 when any will do. The store says so.
    pub(crate) read_alignment_bytes: usize,
    /// Read blocks where the file lies in memory, if the medium has that.
    pub(crate) map: bool,
    /// Label of what opening reads.
    pub(crate) io: IoContext,
    /// Sum of [`Table::memory_bytes`] of all tables opened with these options and still open.
    pub(crate) memory: Arc<AtomicUsize>,
}

/// How to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadContext {
    /// Keep what is read in the block cache.
    pub(crate) fill_cache: bool,
    pub(crate) verify_checksums: bool,
    pub(crate) order: KeyOrder,
    pub(crate) io: IoContext,
}

/// What is done about keys that are not where they belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOrder {
    /// A block that holds such keys is damaged: searches, and walks that skip by searching, rely on the order.
    Checked,
    /// They are given as they are: for walks of those who check, or salvage. Such blocks are not cached.
    Any,
}

/// The newest visible version of a key.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) sequence: Sequence,
    pub(crate) kind: EntryKind,
    /// Empty for a deletion.
    pub(crate) value: Value,
}

/// One key of a [`Table::get_many`].
#[derive(Debug)]
pub(crate) struct Lookup<'a> {
    /// From [`key::lookup_key`].
    pub(crate) internal_key: &'a [u8],
    /// From [`super::key_hash`].
    pub(crate) key_hash: u64,
    /// The answer; a lookup that has one is passed over.
    pub(crate) found: Option<Found>,
}

/// An open table. Immutable and thread-safe. Its cached blocks leave the cache when it is dropped.
pub(crate) struct Table {
    pub(super) index: Index,
    pub(super) filter: Option<Filter>,
    blocks: Arc<FileBlocks>,
    pub(super) mapped: Option<MappedBlocks>,
    pub(super) env: Env,
    pub(super) file: Arc<dyn ReadableFile>,
    pub(super) cache: Arc<BlockCache>,
    pub(super) name: Arc<str>,
    pub(super) properties: TableProperties,
    pub(super) table_id: u64,
    pub(super) size_bytes: u64,
    pub(super) read_alignment_bytes: usize,
    memory_bytes: usize,
    memory: Arc<AtomicUsize>,
}

impl Table {
    /// Opens a table of `size_bytes` and verifies everything but its data blocks. Two device reads, three when
    /// the medium cannot do two at once.
    pub(crate) fn open(
        file: Arc<dyn ReadableFile>,
        name: &str,
        file_number: u64,
        size_bytes: u64,
        options: &TableReadOptions,
        cache: Arc<BlockCache>,
    ) -> Result<Arc<Self>, Error> {
        let present = file.size_bytes();
        if present < size_bytes || size_bytes < FOOTER_BYTES as u64 {
            return Err(Decoder::damage(
                0,
                format!("{} bytes", size_bytes.max(FOOTER_BYTES as u64)),
                format!("{} bytes", present.min(size_bytes)),
            )
            .in_file(name, 0, "table"));
        }
        let reading = Reading { file: &*file, name, options };
        let alignment = options.read_alignment_bytes.max(1) as u64;
        let first_read = FIRST_READ_BYTES.next_multiple_of(alignment).min(size_bytes);
        let end = reading.bytes(size_bytes - first_read, first_read, options.read_alignment_bytes)?;
        let footer_offset = size_bytes - FOOTER_BYTES as u64;
        let mut footer_bytes = [0; FOOTER_BYTES];
        footer_bytes.copy_from_slice(&end[end.len() - FOOTER_BYTES..]);
        if Footer::decode(&footer_bytes, size_bytes).is_err() {
            let is_sound =
                |bytes: &[u8]| bytes.first_chunk().is_some_and(|bytes| Footer::decode(bytes, size_bytes).is_ok());
            reading.find_sound(footer_offset, &mut footer_bytes, is_sound);
        }
        let footer = Footer::decode(&footer_bytes, size_bytes)
            .map_err(|damage| damage.in_file(name, footer_offset, "table footer"))?;
        drop(end);

        let (mut filter, mut index, mut properties) = reading.ends(&footer)?;
        let table_id = footer.table_id;
        let properties = {
            let contents = reading.contents(&mut properties, &footer.properties, table_id, "table properties")?;
            TableProperties::decode(contents)
                .map_err(|damage| damage.in_file(name, footer.properties.offset_bytes, "table properties"))?
        };
        let index = {
            let contents = reading.contents(&mut index, &footer.index, table_id, "table index")?;
            Index::decode(contents, footer.filter.offset_bytes)
                .map_err(|damage| damage.in_file(name, footer.index.offset_bytes, "table index"))?
        };
        if index.blocks() == 0 || index.blocks() as u64 != properties.data_blocks {
            return Err(Decoder::damage(
                0,
                format!("{} data blocks, at least one", properties.data_blocks),
                index.blocks().to_string(),
            )
            .in_file(name, footer.index.offset_bytes, "table index"));
        }
        let filter = if footer.filter.length_bytes == 0 {
            None
        } else {
            let length = reading.contents(&mut filter, &footer.filter, table_id, "table filter")?.len();
            let filter = Filter::decode(filter, length)
                .map_err(|damage| damage.in_file(name, footer.filter.offset_bytes, "table filter"))?;
            Some(filter)
        };
        let mapped = if options.map {
            MappedBlocks::new(&*file, size_bytes, properties.compression, index.blocks())
        } else {
            None
        };
        let name: Arc<str> = name.into();
        let blocks = FileBlocks::new(file_number, name.clone(), index.blocks());
        let memory_bytes = size_of::<Self>()
            + index.memory_bytes()
            + filter.as_ref().map_or(0, Filter::memory_bytes)
            + blocks.memory_bytes()
            + mapped.as_ref().map_or(0, MappedBlocks::memory_bytes)
            + properties.smallest.len()
            + properties.largest.len()
            + name.len();
        options.memory.fetch_add(memory_bytes, Ordering::Relaxed);
        Ok(Arc::new(Table {
            index,
            filter,
            blocks,
            mapped,
            env: options.env.clone(),
            file,
            cache,
            name,
            properties,
            table_id,
            size_bytes,
            read_alignment_bytes: options.read_alignment_bytes.max(1),
            memory_bytes,
            memory: options.memory.clone(),
        }))
    }

    /// The newest version of a key at or before the sequence of `lookup_internal_key` (from
    /// [`key::lookup_key`]). `key_hash` is [`super::key_hash`] of its user key.
    ///
    /// Touches the filter, then the index, then one block; takes no lock and allocates nothing when the
    /// block is cached.
    #[inline]
    pub(crate) fn get(
        &self,
        lookup_internal_key: &[u8],
        key_hash: u64,
        context: &ReadContext,
    ) -> Result<Option<Found>, Error> {
        if !self.may_contain(key_hash) {
            return Ok(None);
        }
        let user_key = key::user_key(lookup_internal_key);
        let trailer = key::trailer(lookup_internal_key);
        let number = self.find_block(user_key, trailer);
        let block = match self.blocks.get(number) {
            Some(block) => block,
            None => match self.find_mapped(number, user_key, trailer, context) {
                Some(found) => return Ok(found),
                None => match self.file.records() {
                    Some(records) => {
                        return self.find_by_record(records, number, (user_key, trailer), key_hash, context);
                    }
                    None => self.load_block(number, context)?,
                },
            },
        };
        self.find_in_block(block, user_key, trailer)
    }

    /// False when no version of a key with this hash is here.
    #[inline]
    pub(crate) fn may_contain(&self, key_hash: u64) -> bool {
        self.env.charge(cost::FILTER_PROBE);
        self.filter.as_ref().is_none_or(|filter| filter.may_contain(key_hash))
    }

    #[inline]
    pub(super) fn find_block(&self, user_key: &[u8], trailer: u64) -> usize {
        self.env.charge(cost::INDEX_SEARCH);
        self.index.find(user_key, trailer)
    }

    #[inline]
    pub(super) fn find_in_block(
        &self,
        block: DataBlock,
        user_key: &[u8],
        trailer: u64,
    ) -> Result<Option<Found>, Error> {
        self.env.charge(cost::BLOCK_SEARCH);
        let layout = block.layout();
        let Position { entry, same_user_key, .. } = layout.search(block.bytes(), user_key, trailer);
        if !same_user_key {
            return Ok(None);
        }
        let (range, found) = layout.value(block.bytes(), entry);
        let Some(kind) = EntryKind::from_number(found as u8) else {
            return Err(self.unknown_kind(block.offset_bytes(), entry, found));
        };
        Ok(Some(Found { sequence: found >> 8, kind, value: Value::pinned(PinnedBytes::in_block(block, range)) }))
    }

    #[cold]
    fn unknown_kind(&self, offset_bytes: u64, entry: usize, trailer: u64) -> Error {
        Decoder::damage(
            0,
            "kind 0 (delete) or 1 (put)",
            format!("{} in entry {entry}", key::kind_in_words(trailer as u8)),
        )
        .in_file(&self.name, offset_bytes, "data block")
    }

    /// Looks up several keys, sorted, reading all blocks they need at once.
    pub(crate) fn get_many(&self, lookups: &mut [Lookup<'_>], context: &ReadContext) -> Result<(), Error> {
        // Lookups whose block is not in memory, in order of blocks since the keys are sorted.
        let mut missing: Vec<(usize, usize)> = Vec::new();
        for (position, lookup) in lookups.iter_mut().enumerate() {
            if lookup.found.is_some() || !self.may_contain(lookup.key_hash) {
                continue;
            }
            let (user_key, trailer) = (key::user_key(lookup.internal_key), key::trailer(lookup.internal_key));
            let number = self.find_block(user_key, trailer);
            match self.blocks.get(number) {
                Some(block) => lookup.found = self.find_in_block(block, user_key, trailer)?,
                None => missing.push((position, number)),
            }
        }
        self.announce_mapped(missing.iter().map(|(_, number)| *number), context);
        let mut unread = Vec::with_capacity(missing.len());
        for (position, number) in missing {
            let lookup = &mut lookups[position];
            let (user_key, trailer) = (key::user_key(lookup.internal_key), key::trailer(lookup.internal_key));
            match self.find_mapped(number, user_key, trailer, context) {
                Some(found) => lookup.found = found,
                None => unread.push((position, number)),
            }
        }
        let mut rest = unread.as_slice();
        while !rest.is_empty() {
            let mut numbers: Vec<usize> = Vec::new();
            let mut taken = 0;
            while let Some((_, number)) = rest.get(taken) {
                if numbers.last() != Some(number) {
                    if numbers.len() == BLOCKS_IN_FLIGHT {
                        break;
                    }
                    numbers.push(*number);
                }
                taken += 1;
            }
            let blocks = self.load_blocks(&numbers, context)?;
            let mut at = 0;
            for (position, number) in &rest[..taken] {
                while numbers[at] != *number {
                    at += 1;
                }
                let lookup = &mut lookups[*position];
                let (user_key, trailer) = (key::user_key(lookup.internal_key), key::trailer(lookup.internal_key));
                lookup.found = self.find_in_block(blocks[at].clone(), user_key, trailer)?;
            }
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// The block from the cache, if it is there.
    #[inline]
    pub(super) fn cached_block(&self, number: usize) -> Option<DataBlock> {
        self.blocks.get(number)
    }

    /// The cache could take a block of about this length without dropping another.
    pub(super) fn cache_has_room(&self, number: usize, length_bytes: usize) -> bool {
        self.cache.has_room(&self.blocks, number, length_bytes)
    }

    pub(super) fn block_context(&self, verify_checksum: bool, order: KeyOrder) -> BlockContext {
        BlockContext {
            table_id: self.table_id,
            largest_block_bytes: self.properties.largest_block_bytes,
            verify_checksum,
            keep_stored: self.cache.wants_stored_bytes(),
            any_order: order == KeyOrder::Any,
        }
    }

    fn no_memory(&self, handle: &BlockHandle) -> Error {
        Decoder::damage(0, "a length there is memory for", format!("{} bytes", handle.length_bytes)).in_file(
            &self.name,
            handle.offset_bytes,
            "data block",
        )
    }

    pub(super) fn block_buffer(&self, handle: &BlockHandle) -> Result<DataBlockBuffer, Error> {
        let length = usize::try_from(handle.length_bytes).ok();
        length.and_then(DataBlockBuffer::new).ok_or_else(|| self.no_memory(handle))
    }

    /// Where reads of a block go first when they have to be aligned: cached blocks are not, because
    /// aligned allocations leave gaps.
    fn aligned_buffer(&self, handle: &BlockHandle) -> Result<Option<AlignedBuffer>, Error> {
        let alignment = self.read_alignment_bytes as u64;
        let aligned = handle.offset_bytes.is_multiple_of(alignment) && handle.length_bytes.is_multiple_of(alignment);
        if alignment == 1 || !aligned {
            return Ok(None);
        }
        let length = usize::try_from(handle.length_bytes).ok();
        let buffer = length.and_then(|length| AlignedBuffer::zeroed(length, self.read_alignment_bytes));
        buffer.map(Some).ok_or_else(|| self.no_memory(handle))
    }

    /// Reads a block: one device read, or a copy of it where it is mapped.
    #[cold]
    #[inline(never)]
    pub(super) fn load_block(&self, number: usize, context: &ReadContext) -> Result<DataBlock, Error> {
        if let Some(bytes) = self.copy_mapped(number, context)
            && let Ok(block) = self.keep_block(number, bytes, context)
        {
            return Ok(block);
        }
        let handle = self.index.handle(number);
        self.env.charge(cost::REQUEST);
        let bytes = match self.aligned_buffer(&handle)? {
            Some(mut aligned) => {
                self.file.read_at(handle.offset_bytes, &mut aligned, &context.io)?;
                DataBlockBuffer::copy_of(&aligned)
            }
            None => {
                let mut bytes = self.block_buffer(&handle)?;
                self.file.read_at(handle.offset_bytes, &mut bytes, &context.io)?;
                bytes
            }
        };
        self.keep_or_find_block(number, bytes, context)
    }

    /// Checks a block that was read and caches it; looks for another answer to the read if it is damaged.
    pub(super) fn keep_or_find_block(
        &self,
        number: usize,
        bytes: DataBlockBuffer,
        context: &ReadContext,
    ) -> Result<DataBlock, Error> {
        self.keep_block(number, bytes, context).or_else(|damage| self.find_sound_block(number, damage, context))
    }

    /// Looks for another answer to the read of a damaged block.
    ///
    /// # Errors
    /// `damage`, if there is no sound one.
    #[cold]
    #[inline(never)]
    pub(super) fn find_sound_block(
        &self,
        number: usize,
        damage: Error,
        context: &ReadContext,
    ) -> Result<DataBlock, Error> {
        let handle = self.index.handle(number);
        let is_sound = |bytes: &[u8]| verify_block(bytes, self.table_id, handle.offset_bytes).is_ok();
        let read = |bytes: &mut [u8], context: &IoContext| self.file.read_at(handle.offset_bytes, bytes, context);
        let find = |bytes: &mut [u8]| {
            self.env.charge(cost::REQUEST);
            let is_read = read(bytes, &context.io).is_ok();
            is_read && (is_sound(bytes) || find_sound_answer(bytes, &context.io, read, is_sound))
        };
        let found = match self.aligned_buffer(&handle)? {
            Some(mut aligned) => find(&mut aligned).then(|| DataBlockBuffer::copy_of(&aligned)),
            None => {
                let mut bytes = self.block_buffer(&handle)?;
                find(&mut bytes).then_some(bytes)
            }
        };
        match found {
            Some(bytes) => self.keep_block(number, bytes, context),
            None => Err(damage),
        }
    }

    /// Reads blocks, all in flight at once.
    fn load_blocks(&self, numbers: &[usize], context: &ReadContext) -> Result<Vec<DataBlock>, Error> {
        let mut buffers = Vec::with_capacity(numbers.len());
        for number in numbers {
            let handle = self.index.handle(*number);
            let aligned = self.aligned_buffer(&handle)?;
            let bytes = if aligned.is_some() { None } else { Some(self.block_buffer(&handle)?) };
            buffers.push((handle, aligned, bytes));
        }
        let mut ranges = Vec::with_capacity(numbers.len());
        for (handle, aligned, bytes) in &mut buffers {
            let data: Option<&mut [u8]> = match (aligned, bytes) {
                (Some(aligned), _) => Some(aligned),
                (None, bytes) => bytes.as_deref_mut(),
            };
            if let Some(data) = data {
                ranges.push(ReadRange { offset_bytes: handle.offset_bytes, data, outcome: Ok(()) });
            }
        }
        self.env.charge(cost::REQUEST * numbers.len() as u64);
        self.file.read_many(&mut ranges, &context.io)?;
        drop(ranges);
        let blocks = numbers.iter().zip(buffers).map(|(number, (_, aligned, bytes))| {
            let bytes = aligned.map(|aligned| DataBlockBuffer::copy_of(&aligned)).or(bytes);
            let bytes = bytes.unwrap_or_else(|| DataBlockBuffer::copy_of(&[]));
            self.keep_or_find_block(*number, bytes, context)
        });
        blocks.collect()
    }

    /// Checks a block that was read and caches it.
    pub(super) fn keep_block(
        &self,
        number: usize,
        bytes: DataBlockBuffer,
        context: &ReadContext,
    ) -> Result<DataBlock, Error> {
        let offset_bytes = self.index.handle(number).offset_bytes;
        let block =
            DataBlock::decode(bytes, offset_bytes, &self.block_context(context.verify_checksums, context.order))
                .and_then(|block| {
                    self.check_keys(number, block.layout(), block.bytes(), context.order)?;
                    Ok(block)
                })
                .map_err(|damage| damage.in_file(&self.name, offset_bytes, "data block"))?;
        self.charge_block(block.stored_bytes().len() as u64, block.bytes().len() as u64, context.verify_checksums);
        let keep = context.fill_cache && context.order == KeyOrder::Checked;
        Ok(if keep { self.cache.insert(&self.blocks, number, block) } else { block })
    }

    /// That a block, whose entries are in order, holds keys the index looks for there, and that the table begins and
    /// ends with the keys it says. So the entries of the whole table are in order.
    pub(super) fn check_keys(
        &self,
        number: usize,
        layout: &Layout,
        bytes: &[u8],
        order: KeyOrder,
    ) -> Result<(), Damage> {
        if order == KeyOrder::Any {
            return Ok(());
        }
        let mut internal = Vec::new();
        for (entry, is_end, end) in [
            (0, number == 0, &self.properties.smallest),
            (layout.entry_count() - 1, number + 1 == self.index.blocks(), &self.properties.largest),
        ] {
            layout.internal_key(bytes, entry, &mut internal);
            let (user_key, trailer) = (key::user_key(&internal), key::trailer(&internal));
            if !self.index.holds(number, user_key, trailer) || (is_end && internal != *end) {
                let home = self.index.find(user_key, trailer);
                return Err(misplaced_key(number, &internal, home, is_end.then_some(end)));
            }
        }
        Ok(())
    }

    /// Charges what taking a block into use costs.
    pub(super) fn charge_block(&self, stored_bytes: u64, bytes: u64, verified: bool) {
        if self.env.is_virtual() {
            let checksum = if verified { cost::of_bytes(cost::CHECKSUM_KIB, stored_bytes) } else { 0 };
            let compressed = self.properties.compression != u64::from(compression_number(Compression::None));
            let decompression = if compressed { cost::of_bytes(cost::DECOMPRESS_KIB, bytes) } else { 0 };
            self.env.charge(cost::BLOCK_DECODE + checksum + decompression);
        }
    }

    /// About how many bytes of the file lie before the key: the begin of its block.
    pub(crate) fn approximate_offset_of(&self, internal_key: &[u8]) -> u64 {
        if key::compare(internal_key, &self.properties.largest) == std::cmp::Ordering::Greater {
            return self.index.data_end();
        }
        let block = self.find_block(key::user_key(internal_key), key::trailer(internal_key));
        self.index.handle(block).offset_bytes
    }

    /// Data blocks.
    pub(crate) fn block_count(&self) -> usize {
        self.index.blocks()
    }

    /// As its builder told it.
    pub(crate) fn summary(&self) -> TableSummary {
        TableSummary { size_bytes: self.size_bytes, table_id: self.table_id, properties: self.properties.clone() }
    }

    /// What it says about which table it is.
    pub(crate) fn identity(&self) -> TableIdentity<'_> {
        let properties = &self.properties;
        TableIdentity {
            table_id: self.table_id,
            entries: properties.entries,
            deletions: properties.deletions,
            oldest_sequence: properties.oldest_sequence,
            newest_sequence: properties.newest_sequence,
            smallest: &properties.smallest,
            largest: &properties.largest,
        }
    }

    pub(crate) fn properties(&self) -> &TableProperties {
        &self.properties
    }

    /// Name of the file.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Memory it takes while open, without cached blocks.
    #[cfg_attr(not(test), allow(dead_code, reason = "the sum over all tables is what statistics print"))]
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.cache.erase(&self.blocks);
        self.memory.fetch_sub(self.memory_bytes, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table('{}', {} entries)", self.name, self.properties.entries)
    }
}

#[cold]
fn misplaced_key(number: usize, internal: &[u8], home: usize, end: Option<&Vec<u8>>) -> Damage {
    let user_key = |internal: &[u8]| key::user_key(internal).escape_ascii().to_string();
    let found = format!("'{}' in block {number}", user_key(internal));
    match end {
        _ if home != number => {
            Decoder::damage(0, format!("'{}' in block {home}, as the index says", user_key(internal)), found)
        }
        Some(end) => Decoder::damage(0, format!("'{}', which the properties name, at this end", user_key(end)), found),
        None => Decoder::damage(0, "a key the index looks for here", found),
    }
}

/// Memory for `length` bytes of a file.
fn buffer(length: u64, alignment: usize) -> Result<AlignedBuffer, Damage> {
    usize::try_from(length)
        .ok()
        .and_then(|length| AlignedBuffer::zeroed(length, alignment))
        .ok_or_else(|| Decoder::damage(0, "a length there is memory for", format!("{length} bytes")))
}

/// A file that is being opened as a table.
struct Reading<'a> {
    file: &'a dyn ReadableFile,
    name: &'a str,
    options: &'a TableReadOptions,
}

impl Reading<'_> {
    /// Reads a part of the file, whose size has been checked to contain it.
    fn bytes(&self, offset_bytes: u64, length_bytes: u64, alignment: usize) -> Result<AlignedBuffer, Error> {
        let mut bytes =
            buffer(length_bytes, alignment).map_err(|damage| damage.in_file(self.name, offset_bytes, "table"))?;
        self.options.env.charge(cost::REQUEST);
        self.file.read_at(offset_bytes, &mut bytes, &self.options.io)?;
        Ok(bytes)
    }

    /// Looks for another answer to the read of a damaged part.
    #[cold]
    fn find_sound(&self, offset_bytes: u64, bytes: &mut [u8], is_sound: impl FnMut(&[u8]) -> bool) {
        let read = |bytes: &mut [u8], context: &IoContext| self.file.read_at(offset_bytes, bytes, context);
        find_sound_answer(bytes, &self.options.io, read, is_sound);
    }

    /// Reads filter, index and properties. The filter begins at a cache line.
    fn ends(&self, footer: &Footer) -> Result<(AlignedBuffer, AlignedBuffer, AlignedBuffer), Error> {
        let memory = |handle: &BlockHandle, alignment| {
            buffer(handle.length_bytes, alignment)
                .map_err(|damage| damage.in_file(self.name, handle.offset_bytes, "table"))
        };
        let mut filter = memory(&footer.filter, LINE_BYTES)?;
        let mut index = memory(&footer.index, 1)?;
        let mut properties = memory(&footer.properties, 1)?;
        let mut ranges = Vec::with_capacity(3);
        for (handle, data) in
            [(&footer.filter, &mut filter), (&footer.index, &mut index), (&footer.properties, &mut properties)]
        {
            if handle.length_bytes > 0 {
                ranges.push(ReadRange { offset_bytes: handle.offset_bytes, data, outcome: Ok(()) });
            }
        }
        self.options.env.charge(cost::REQUEST);
        self.file.read_many(&mut ranges, &self.options.io)?;
        drop(ranges);
        Ok((filter, index, properties))
    }

    /// Verifies a block and returns its contents, which must not be compressed.
    fn contents<'b>(
        &self,
        block: &'b mut AlignedBuffer,
        handle: &BlockHandle,
        table_id: u64,
        structure: &str,
    ) -> Result<&'b [u8], Error> {
        if verify_block(block, table_id, handle.offset_bytes).is_err() {
            let is_sound = |bytes: &[u8]| verify_block(bytes, table_id, handle.offset_bytes).is_ok();
            self.find_sound(handle.offset_bytes, block, is_sound);
        }
        let contents = || {
            verify_block(block, table_id, handle.offset_bytes)?;
            let (contents, compression) = split_block(block)?;
            if compression != Compression::None {
                return Err(Decoder::damage(contents.len(), "no compression", format!("{compression:?}")));
            }
            Ok(contents)
        };
        self.options.env.charge(cost::of_bytes(cost::CHECKSUM_KIB, handle.length_bytes));
        contents().map_err(|damage| damage.in_file(self.name, handle.offset_bytes, structure))
    }
}
