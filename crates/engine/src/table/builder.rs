//! Writes a table, front to back.

use super::filter::{FilterBuilder, key_hash};
use super::format::{BlockHandle, FOOTER_BYTES, Footer};
use super::histogram::HistogramBuilder;
use super::index::IndexBuilder;
use super::properties::TableProperties;
use crate::block::compress::Compressor;
use crate::block::{BLOCK_SIZE_MAX, BLOCK_TRAILER_BYTES, BlockBuilder, block_trailer, compression_number};
use crate::checksum;
use crate::cost;
use crate::error::Error;
use crate::key::{self, EntryKind, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::options::{Compression, Options};
use std::cmp::Ordering;
use std::sync::Arc;
use varve_env::Env;
use varve_store::{IoContext, WritableFile};

/// Values from this size on go to the file without a copy in between.
const DIRECT_VALUE_BYTES: usize = 512;

/// Contents up to this size are compressed; the formats do not take much more at once.
const COMPRESSED_BYTES_MAX: usize = 1 << 30;

/// An entry this many times larger than a block gets a block of its own, so that its small
/// neighbours can be read without it.
const LONE_ENTRY_BLOCKS: u64 = 16;

/// Bytes of the properties but for both ends and the histogram, at most.
const PROPERTIES_BYTES_MAX: usize = 512;

/// How to build a table.
#[derive(Clone, Debug)]
pub(crate) struct TableBuildOptions {
    /// Size at which a block is cut, in bytes.
    pub(crate) block_size: usize,
    pub(crate) block_restart_interval: usize,
    /// Blocks begin and end at multiples of this, in bytes; 0 and 1 are none.
    pub(crate) block_align: usize,
    /// 0 is no filter.
    pub(crate) bloom_bits_per_key: u32,
    pub(crate) compression: Compression,
    /// A number no other table has: neither can their blocks be taken for each other's, nor they themselves.
    pub(crate) table_id: u64,
    /// Bytes of the histogram; 0 is none.
    pub(crate) histogram_bytes: usize,
}

impl TableBuildOptions {
    /// The options of a database for a table of `level`.
    pub(crate) fn new(options: &Options, level: usize, table_id: u64) -> Self {
        TableBuildOptions {
            block_size: options.block_size,
            block_restart_interval: options.block_restart_interval,
            block_align: options.block_align,
            bloom_bits_per_key: options.bloom_bits_per_key,
            compression: options.compression_of_level(level),
            table_id,
            histogram_bytes: 0,
        }
    }
}

/// A table that was built.
#[derive(Clone, Debug)]
pub(crate) struct TableSummary {
    pub(crate) size_bytes: u64,
    pub(crate) table_id: u64,
    /// Smallest and largest internal key are in the properties.
    pub(crate) properties: TableProperties,
}

/// Writes a table. After an error it is of no use but to be abandoned.
pub(crate) struct TableBuilder {
    file: Box<dyn WritableFile>,
    name: Arc<str>,
    options: TableBuildOptions,
    context: IoContext,
    env: Env,
    offset: u64,
    block: BlockBuilder,
    /// Values of the block that were not given to the file yet; all of them when blocks are compressed.
    pending: Vec<u8>,
    /// Checksum of the values that were given to the file.
    checksum: u32,
    compressor: Compressor,
    compressed: Vec<u8>,
    index: IndexBuilder,
    filter: Option<FilterBuilder>,
    histogram: Option<HistogramBuilder>,
    properties: TableProperties,
    last_key: Vec<u8>,
    failed: bool,
    /// Where the last block begins and what it is, where somebody [follows](Self::follow).
    followed: Option<(u64, Vec<u8>)>,
    has_followed: bool,
}

impl TableBuilder {
    /// Builds into an empty file. `name` is for messages.
    pub(crate) fn new(
        file: Box<dyn WritableFile>,
        name: &str,
        options: &TableBuildOptions,
        context: IoContext,
        env: Env,
    ) -> Self {
        let mut options = options.clone();
        options.block_align = options.block_align.clamp(1, BLOCK_SIZE_MAX);
        options.block_size = options.block_size.clamp(64, BLOCK_SIZE_MAX).next_multiple_of(options.block_align);
        TableBuilder {
            name: name.into(),
            offset: file.size_bytes(),
            file,
            context,
            env,
            block: BlockBuilder::new(options.block_restart_interval),
            pending: Vec::with_capacity(options.block_size.min(1 << 20) + 256),
            checksum: 0,
            compressor: Compressor::new(options.compression),
            compressed: Vec::new(),
            index: IndexBuilder::default(),
            filter: (options.bloom_bits_per_key > 0).then(|| FilterBuilder::new(options.bloom_bits_per_key)),
            histogram: (options.histogram_bytes > 0).then(|| HistogramBuilder::new(options.histogram_bytes)),
            properties: TableProperties {
                block_align: options.block_align as u64,
                compression: u64::from(compression_number(options.compression)),
                job: context.job.map(|job| job.0),
                level: context.level.map(u64::from),
                oldest_sequence: u64::MAX,
                ..TableProperties::default()
            },
            last_key: Vec::new(),
            failed: false,
            followed: None,
            has_followed: false,
            options,
        }
    }

    /// Keeps each block for whoever [asks](Self::take_block) for it before the next one is written.
    pub(crate) fn follow(&mut self) {
        self.followed = Some((0, Vec::new()));
    }

    /// The block that the last entry added made full: where it begins, and what it is on the medium.
    pub(crate) fn take_block(&mut self) -> Option<(u64, &[u8])> {
        let (offset_bytes, bytes) = self.followed.as_ref()?;
        std::mem::take(&mut self.has_followed).then_some((*offset_bytes, bytes.as_slice()))
    }

    /// Entries added.
    #[inline]
    pub(crate) fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// What its blocks and records are told by from those of other tables.
    pub(crate) fn table_id(&self) -> u64 {
        self.options.table_id
    }

    /// Bytes of blocks that were given to the file. Never falls, and is no more than the table's size in the end.
    #[inline]
    pub(crate) fn written_bytes(&self) -> u64 {
        self.offset
    }

    /// About how large the table would be if it were finished now; falls when a block is compressed. Cheap enough to ask for every entry.
    #[inline]
    pub(crate) fn estimated_bytes(&self) -> u64 {
        let open_block = if self.block.is_empty() { 0 } else { self.block.bytes_estimate() };
        let filter = self.filter.as_ref().map_or(0, FilterBuilder::bytes);
        let histogram = self.options.histogram_bytes;
        self.offset + open_block + (filter + self.index.bytes_estimate() + histogram + 512) as u64
    }

    /// At most how large the table would be with one more entry of these lengths, wherever that goes: to the open
    /// block or to one of its own.
    #[inline]
    pub(crate) fn bytes_bound_with(&self, internal_key_length: usize, value_length: usize) -> u64 {
        let user_key_length = internal_key_length.saturating_sub(key::TRAILER_BYTES);
        let alignment = self.options.block_align.max(1) as u64;
        let in_file = |contents: u64| (contents + BLOCK_TRAILER_BYTES as u64).next_multiple_of(alignment);
        let together = in_file(self.block.bytes_bound_after_any(user_key_length, value_length));
        let lone = BlockBuilder::new(1).bytes_bound_after_any(user_key_length, value_length);
        let open = if self.block.is_empty() { 0 } else { in_file(self.block.bytes_bound()) };
        let filter = self.filter.as_ref().map_or(0, FilterBuilder::bytes_with_key);
        let index = self.index.bytes_bound_with(user_key_length);
        let ends = self.properties.smallest.len().max(internal_key_length) + internal_key_length;
        let behind = filter + index + ends + self.options.histogram_bytes + PROPERTIES_BYTES_MAX + FOOTER_BYTES;
        self.offset + together.max(open + in_file(lone)) + (behind + 3 * BLOCK_TRAILER_BYTES) as u64
    }

    /// Adds an entry, which must come after the last one.
    pub(crate) fn add(&mut self, internal_key: &[u8], value: &[u8]) -> Result<(), Error> {
        let result = self.try_add(internal_key, value);
        self.failed |= result.is_err();
        result
    }

    #[inline]
    fn try_add(&mut self, internal_key: &[u8], value: &[u8]) -> Result<(), Error> {
        if internal_key.len() < key::TRAILER_BYTES || internal_key.len() - key::TRAILER_BYTES > KEY_BYTES_MAX {
            return Err(Error::KeyTooLong { found_bytes: internal_key.len(), limit_bytes: KEY_BYTES_MAX });
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLong { found_bytes: value.len(), limit_bytes: VALUE_BYTES_MAX });
        }
        let user_key = key::user_key(internal_key);
        let trailer = key::trailer(internal_key);
        let mut new_user_key = true;
        if self.properties.entries > 0 {
            let order = user_key.cmp(key::user_key(&self.last_key));
            new_user_key = order != Ordering::Equal;
            let order = order.then_with(|| key::trailer(&self.last_key).cmp(&trailer));
            if order != Ordering::Greater {
                return Err(self.out_of_order(internal_key));
            }
            if !self.block.is_empty() && self.is_full(user_key.len(), value.len()) {
                self.finish_block()?;
            }
        } else {
            self.properties.smallest.extend_from_slice(internal_key);
        }
        if self.block.is_empty() && self.index.blocks() > 0 {
            self.index.begin_block(&self.last_key, internal_key);
        }
        self.block.add(user_key, trailer, value.len());
        let is_whole = self.options.compression != Compression::None || self.followed.is_some();
        let gathered = is_whole && value.len() <= COMPRESSED_BYTES_MAX;
        if value.len() < DIRECT_VALUE_BYTES || gathered {
            self.pending.extend_from_slice(value);
        } else {
            self.write_value(value)?;
        }
        if new_user_key {
            self.properties.distinct_keys += 1;
            if let Some(filter) = &mut self.filter {
                filter.add(key_hash(user_key));
            }
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(internal_key);
        let properties = &mut self.properties;
        properties.entries += 1;
        properties.raw_key_bytes += internal_key.len() as u64;
        properties.raw_value_bytes += value.len() as u64;
        properties.deletions += u64::from(trailer as u8 == EntryKind::Delete as u8);
        properties.oldest_sequence = properties.oldest_sequence.min(trailer >> 8);
        properties.newest_sequence = properties.newest_sequence.max(trailer >> 8);
        Ok(())
    }

    #[cold]
    fn out_of_order(&self, internal_key: &[u8]) -> Error {
        let shown = |internal_key: &[u8]| format!("'{}'", key::user_key(internal_key).escape_ascii());
        Error::Corruption {
            file: self.name.to_string(),
            offset_bytes: self.offset,
            structure: "entries for a new table".to_owned(),
            expected: format!("a key after {}, the last one", shown(&self.last_key)),
            found: shown(internal_key),
        }
    }

    /// The block is to be cut before an entry of these lengths.
    #[inline]
    fn is_full(&self, user_key_length: usize, value_length: usize) -> bool {
        let limit = self.options.block_size as u64;
        if value_length as u64 >= limit * LONE_ENTRY_BLOCKS {
            return true;
        }
        let with = self.block.bytes_bound_with(user_key_length, value_length);
        if self.options.block_align > 1 {
            return with + BLOCK_TRAILER_BYTES as u64 > limit;
        }
        // Overshoot rather than leave a block more than a tenth below its size.
        let now = self.block.bytes_estimate();
        now >= limit || (with > limit && now * 10 > limit * 9)
    }

    /// Gives a large value to the file at once, after those that wait.
    fn write_value(&mut self, value: &[u8]) -> Result<(), Error> {
        if !self.pending.is_empty() {
            self.checksum = checksum::extend(self.checksum, &self.pending);
            self.file.append(&self.pending, &self.context)?;
            self.pending.clear();
        }
        self.checksum = checksum::extend(self.checksum, value);
        self.file.append(value, &self.context)?;
        Ok(())
    }

    fn finish_block(&mut self) -> Result<(), Error> {
        let align = self.options.block_align as u64;
        let padding = |length: u64| {
            (length + BLOCK_TRAILER_BYTES as u64).next_multiple_of(align) - (length + BLOCK_TRAILER_BYTES as u64)
        };
        let values_length = self.block.values_length();
        let written = values_length - self.pending.len() as u64;
        let compressing = self.options.compression != Compression::None && written == 0;
        // Contents that may be compressed get their padding afterwards.
        let inner_padding = |length| if compressing { 0 } else { padding(length) };
        let entries = self.block.finish(inner_padding, &mut self.pending);
        let mut compression = Compression::None;
        let mut length = written + self.pending.len() as u64;
        let plain_length = length;
        if compressing {
            match self.compressor.compress(&self.pending, &mut self.compressed) {
                Some(chosen) => {
                    compression = chosen;
                    std::mem::swap(&mut self.pending, &mut self.compressed);
                    let padded = self.pending.len() + padding(self.pending.len() as u64) as usize;
                    self.pending.resize(padded, 0);
                }
                None => {
                    let zeros = std::iter::repeat_n(0, padding(length) as usize);
                    let at = values_length as usize;
                    self.pending.splice(at..at, zeros);
                }
            }
            length = self.pending.len() as u64;
        }
        let largest = plain_length.max(length) + BLOCK_TRAILER_BYTES as u64;
        self.properties.largest_block_bytes = self.properties.largest_block_bytes.max(largest);
        let contents_checksum = checksum::extend(self.checksum, &self.pending);
        let trailer = block_trailer(compression, contents_checksum, self.options.table_id, self.offset);
        self.pending.extend_from_slice(&trailer);
        self.file.append(&self.pending, &self.context)?;
        let handle = BlockHandle { offset_bytes: self.offset, length_bytes: length + BLOCK_TRAILER_BYTES as u64 };
        if let Some((offset_bytes, block)) = &mut self.followed
            && written == 0
        {
            *offset_bytes = self.offset;
            std::mem::swap(block, &mut self.pending);
            self.has_followed = true;
        }
        self.pending.clear();
        self.checksum = 0;
        if let Some(histogram) = &mut self.histogram {
            histogram.add_block(key::user_key(&self.last_key), handle.length_bytes);
        }
        self.index.end_block(handle.length_bytes);
        self.offset += handle.length_bytes;
        // Whoever wants to follow a table block by block (shipping it while it is built) hooks in here.
        self.charge(entries as u64, plain_length, compressing);
        Ok(())
    }

    fn charge(&self, entries: u64, bytes: u64, compressing: bool) {
        if self.env.is_virtual() {
            let per_kib = cost::CHECKSUM_KIB + 2 * cost::COPY_KIB + if compressing { cost::COMPRESS_KIB } else { 0 };
            self.env.charge(entries * cost::ENTRY_ADD + cost::of_bytes(per_kib, bytes));
        }
    }

    /// Writes a block that is not data.
    fn write_block(&mut self, mut contents: Vec<u8>) -> Result<BlockHandle, Error> {
        let trailer = block_trailer(Compression::None, checksum::crc32c(&contents), self.options.table_id, self.offset);
        contents.extend_from_slice(&trailer);
        self.file.append(&contents, &self.context)?;
        self.charge(0, contents.len() as u64, false);
        let handle = BlockHandle { offset_bytes: self.offset, length_bytes: contents.len() as u64 };
        self.offset += handle.length_bytes;
        Ok(handle)
    }

    /// Has the medium write down what it has of the file: see [`WritableFile::write_back`].
    pub(crate) fn write_back(&mut self) -> Result<(), Error> {
        self.file.write_back(&self.context).map_err(Error::from)
    }

    /// Writes what follows the data, and makes the file durable.
    pub(crate) fn finish(mut self) -> Result<TableSummary, Error> {
        if self.failed || self.properties.entries == 0 {
            return Err(Error::InvalidArgument {
                what: format!("table '{}'", self.name),
                reason: if self.failed { "an earlier error left it incomplete" } else { "it has no entries" }
                    .to_owned(),
            });
        }
        self.finish_block()?;
        self.properties.data_bytes = self.offset;
        self.properties.data_blocks = self.index.blocks();
        self.properties.largest = std::mem::take(&mut self.last_key);
        self.properties.histogram = self.histogram.take().map(HistogramBuilder::finish).unwrap_or_default();
        let filter = match self.filter.take() {
            Some(filter) => self.write_block(filter.finish())?,
            None => BlockHandle { offset_bytes: self.offset, length_bytes: 0 },
        };
        let index = std::mem::take(&mut self.index).finish();
        let index = self.write_block(index)?;
        self.properties.filter_bytes = filter.length_bytes;
        self.properties.index_bytes = index.length_bytes;
        let properties = self.write_block(self.properties.encode())?;
        let footer = Footer { properties, index, filter, table_id: self.options.table_id };
        self.file.append(&footer.encode(), &self.context)?;
        self.file.sync(&self.context)?;
        let size_bytes = self.offset + FOOTER_BYTES as u64;
        self.file.finish(&self.context)?;
        Ok(TableSummary { size_bytes, table_id: self.options.table_id, properties: self.properties })
    }

    /// Gives up. The caller removes the file.
    pub(crate) fn abandon(self) {
        drop(self.file);
    }
}
