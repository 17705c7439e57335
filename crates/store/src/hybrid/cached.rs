//! Keeping evicted blocks of the slow tier in cache zones of the fast one.

use super::caching::batch::{self, Batch, CHECK_BYTES, CopyEntry, HEADER_BYTES};
use super::caching::index::ZONE_BYTES_MAX;
use super::caching::{BlockKey, DENSITY_MAX, Kept, SWEPT_AT_ONCE, density_of};
use super::core::{Cache, CacheWriter, Core};
use super::division::kept_for_logs;
use super::file::HybridFile;
use super::levels::Tier;
use super::options::HybridTechnique;
use super::placement::PlacementView;
use super::statistics::add;
use crate::band::{Stamp, TableOrigin};
use crate::error::StoreError;
use crate::file_store::{CreateOptions, FileKind, ReadableFile};
use crate::hint::BlockOrigin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_media::{Attempt, IoCause, IoClass, IoContext};

const FILLING: IoContext = IoContext { cause: IoCause::CacheFill, ..IoContext::of(IoClass::Maintenance) };

/// What the names of cache zones begin with.
const ZONE_NAME: &str = "\0cache-";

/// Batches to one write, at most.
const BATCHES_OF_WRITE: u64 = 4;

/// A cache zone of an earlier open, of which nothing is known yet.
pub(super) struct FoundZone {
    pub(super) number: u64,
    pub(super) device: usize,
    pub(super) size_bytes: u64,
}

impl Core {
    /// The block of the slow tier that begins somewhere in a file. None where that is on the fast tier.
    pub(super) fn slow_block(&self, file: &HybridFile, offset_bytes: u64) -> Option<BlockKey> {
        let parts = file.parts();
        let part = parts.iter().rev().find(|part| part.start_bytes <= offset_bytes)?;
        (!file.is_removed() && self.tier(part.device) == Tier::Slow).then(|| file.block_key(offset_bytes))
    }

    /// Takes a block that the tree's cache gave up, unless it is there or its table is on the fast tier. Never waits for I/O.
    pub(super) fn admit(&self, file: &HybridFile, offset_bytes: u64, bytes: &[u8]) {
        let Some(cache) = self.cache.as_ref().filter(|_| self.has_tiers()) else { return };
        let Some(key) = self.slow_block(file, offset_bytes) else { return };
        if cache.zones.lock().wants(key, bytes.len()) {
            self.keep(cache, key, bytes);
        }
    }

    /// A compaction wrote a block of the slow tier: what was known of the reads of those it was made of is known of it, and what was
    /// cached of them is cached of it. Never waits for I/O.
    pub(super) fn inherit(&self, file: &str, offset_bytes: u64, bytes: &[u8], origins: &[BlockOrigin]) {
        let Some(cache) = self.cache.as_ref().filter(|_| self.has_tiers()) else { return };
        let (key, origins, entries) = {
            let files = self.files.read();
            let Some(file) = files.get(file) else { return };
            let Some(key) = self.slow_block(file, offset_bytes) else { return };
            file.is_rewritten.store(true, Ordering::Relaxed);
            let slow = |origin: &BlockOrigin| {
                let file = files.get(&*origin.file)?;
                Some((self.slow_block(file, origin.offset_bytes)?, origin.entries))
            };
            let entries: u64 = origins.iter().map(|origin| u64::from(origin.entries)).sum();
            (key, origins.iter().filter_map(slow).collect::<Vec<_>>(), entries)
        };
        if cache.zones.lock().inherit(key, &origins, entries, bytes.len()) {
            self.keep(cache, key, bytes);
        }
    }

    /// Takes a block for the next cache zone that is written.
    pub(super) fn keep(&self, cache: &Cache, key: BlockKey, bytes: &[u8]) {
        let (is_taken, is_due) = {
            let mut queue = cache.queue.lock();
            (queue.push(key, bytes), queue.bytes() >= cache.batch_bytes)
        };
        add(&self.counts.dropped_blocks, u64::from(!is_taken));
        if is_due {
            self.cacher.notify();
        }
    }

    /// A read of one block of the slow tier by a user, from the cache where it is there; `for_record` when it is read for a record
    /// that is not there alone. True when it was done.
    pub(super) fn read_cached(
        &self,
        file: &HybridFile,
        offset_bytes: u64,
        data: &mut [u8],
        context: &IoContext,
        for_record: bool,
    ) -> bool {
        // Who found a copy wrong asks for what it is a copy of.
        let is_first = context.attempt == Attempt::First;
        let Some(cache) = self.cache.as_ref().filter(|_| file.is_table && is_first) else { return false };
        let is_known = file.is_rewritten.load(Ordering::Relaxed);
        let key = file.block_key(offset_bytes);
        let found = {
            let mut zones = cache.zones.lock();
            if for_record {
                zones.read_for_record(key);
            } else {
                zones.read_bytes(data.len() as u64);
                zones.read(key, is_known);
            }
            zones.find(key)
        };
        if let Some(block) = cache.queue.lock().get(key).filter(|block| block.len() == data.len()) {
            data.copy_from_slice(block);
            return true;
        }
        let mut copy = Vec::new();
        for (reader, at) in found {
            copy.resize(data.len() + CHECK_BYTES, 0);
            // What cannot be read of a copy, or is of another block, is read where it is a copy of.
            if reader.read_at(at, &mut copy, context).is_ok()
                && let Some(block) = batch::block_of(key, &copy)
            {
                data.copy_from_slice(block);
                return true;
            }
        }
        false
    }

    /// Zones that the cache may have.
    fn cache_room(&self, view: &PlacementView) -> u64 {
        match &self.division {
            Some(division) => {
                let others = view.fast_zones.saturating_sub(kept_for_logs(view));
                division.lock().cache_zones().min(others)
            }
            None => view.reserved_zones.saturating_sub(view.log_zones),
        }
    }

    /// Does one thing of what waits, if it is enough. True when something was done, and there may be more.
    pub(super) fn fill_cache(&self) -> bool {
        let Some(cache) = self.cache.as_ref().filter(|_| self.has_tiers()) else { return false };
        self.divide();
        let has_more = cache.zones.lock().sweep(SWEPT_AT_ONCE);
        let mut current = cache.writer.lock();
        let found = cache.found.lock().pop();
        if let Some(found) = found {
            self.load_zone(cache, &found);
            return true;
        }
        if self.division.is_some() && self.shrink(cache, &mut current) {
            return true;
        }
        if cache.queue.lock().bytes() < cache.batch_bytes {
            return has_more;
        }
        self.write_waiting(cache, &mut current);
        true
    }

    /// Writes the oldest of what waits.
    fn write_waiting(&self, cache: &Cache, current: &mut Option<CacheWriter>) {
        let most_bytes = BATCHES_OF_WRITE * cache.batch_bytes as u64;
        let mut waiting = Batch::default();
        {
            let (queue, zones) = (cache.queue.lock(), cache.zones.lock());
            for (key, block) in queue.oldest() {
                if waiting.size_bytes() + batch::copy_bytes(block.len()) > most_bytes && !waiting.is_empty()
                    || !waiting.add(key, block, zones.count(key))
                {
                    break;
                }
            }
        }
        let keys = waiting.keys();
        if !self.write_batch(cache, current, waiting) {
            add(&self.counts.dropped_blocks, keys.len() as u64);
        }
        cache.queue.lock().remove(keys.into_iter());
    }

    /// The store is closed: what waits is written where there is space, for the next open.
    pub(super) fn end_cache(&self) {
        let Some(cache) = &self.cache else { return };
        let mut current = cache.writer.lock();
        if current.is_some() && cache.queue.lock().bytes() > 0 {
            self.write_waiting(cache, &mut current);
        }
        self.close_zone(&mut current);
    }

    /// Writes copies to the zone that is written, or another one when it is full. False when they found no place.
    fn write_batch(&self, cache: &Cache, current: &mut Option<CacheWriter>, batch: Batch) -> bool {
        let size_bytes = batch.size_bytes();
        if current.as_ref().is_some_and(|writer| writer.space_bytes < size_bytes) {
            self.close_zone(current);
        }
        if current.is_none() {
            self.next_zone(cache, current);
        }
        match current.as_ref() {
            Some(writer) if writer.space_bytes >= size_bytes => self.append_batch(cache, current, batch),
            _ => false,
        }
    }

    /// Writes copies to the zone that is written, which has space for them.
    fn append_batch(&self, cache: &Cache, current: &mut Option<CacheWriter>, batch: Batch) -> bool {
        let Some(writer) = current.as_mut() else { return false };
        let (bytes, entries) = batch.encode();
        let at = writer.writer.size_bytes();
        let appended = writer.writer.writable().append(&bytes, &FILLING);
        match appended.and_then(|()| writer.writer.writable().flush(&FILLING)) {
            Ok(()) => {
                writer.space_bytes = writer.space_bytes.saturating_sub(bytes.len() as u64);
                cache.zones.lock().add(writer.number, at, &entries);
                add(&self.counts.cached_blocks, entries.len() as u64);
                add(&self.counts.cached_bytes, bytes.len() as u64);
                true
            }
            Err(_) => {
                // Nothing was promised: the zone holds what it holds.
                *current = None;
                self.zone_was_left();
                false
            }
        }
    }

    fn close_zone(&self, current: &mut Option<CacheWriter>) {
        if let Some(mut full) = current.take() {
            // What of it is not written is in no copy that is known.
            let _ = full.writer.close(&FILLING);
            self.zone_was_left();
        }
    }

    /// A zone for more copies: one more where there may be, else in place of the oldest. What is read much of that is written
    /// again, where a zone is empty for it meanwhile.
    fn next_zone(&self, cache: &Cache, current: &mut Option<CacheWriter>) {
        let view = self.view();
        let has_room = view.cache_zones < self.cache_room(&view);
        if has_room && view.empty_zones > 0 {
            cache.zones.lock().grew();
            *current = self.begin_zone(cache);
            return;
        }
        if self.keeps_copies() && view.cache_zones > 0 && view.empty_zones > 0 {
            *current = self.begin_zone(cache);
            self.rewrite_oldest(cache, current);
            return;
        }
        if !matches!(self.drop_oldest(cache), Ok(true)) {
            return;
        }
        let view = self.view();
        if view.cache_zones < self.cache_room(&view) && view.empty_zones > 0 {
            *current = self.begin_zone(cache);
        }
    }

    /// Returns true if copies that are read often are written again when their zone goes.
    fn keeps_copies(&self) -> bool {
        self.division.is_some() && self.options.has(HybridTechnique::KeptCopies)
    }

    /// Gives up a zone when there are more than there may be.
    fn shrink(&self, cache: &Cache, current: &mut Option<CacheWriter>) -> bool {
        let view = self.view();
        if view.cache_zones <= self.cache_room(&view).max(1) {
            return false;
        }
        match current.is_some() && self.keeps_copies() {
            true => self.rewrite_oldest(cache, current),
            false => matches!(self.drop_oldest(cache), Ok(true)),
        }
    }

    fn begin_zone(&self, cache: &Cache) -> Option<CacheWriter> {
        let device = self.ordered(Tier::Fast, true).into_iter().find(|device| self.tier(*device) == Tier::Fast)?;
        if !self.may_hold_zone(device) {
            return None;
        }
        let number = self.naming.lock().number();
        let files = &self.members[device].files;
        let zone_bytes = files.writable_zone_bytes();
        let options =
            CreateOptions { kind: FileKind::Table, expected_size_bytes: Some(zone_bytes), ..CreateOptions::default() };
        let stamp = Stamp { number: 0, start_bytes: 0, goes_on: false };
        let writer =
            files.create(&zone_name(number), &options, stamp, TableOrigin::default(), cache.batch_bytes).ok()?;
        let reader = files.open_file(&zone_name(number)).ok()?;
        cache.zones.lock().begin(number, reader).then(|| CacheWriter {
            number,
            writer,
            space_bytes: zone_bytes.min(ZONE_BYTES_MAX),
        })
    }

    /// Writes again what is to stay of the oldest zone, and gives up the rest with the zone. False when there is none but the
    /// one that is written.
    fn rewrite_oldest(&self, cache: &Cache, current: &mut Option<CacheWriter>) -> bool {
        let Some((number, reader)) = cache.zones.lock().oldest() else { return false };
        let mut batches = read_batches(&*reader);
        // Nobody asks for copies of what is not there any more, however often that was done.
        let there = known_files(self.files.read().values().cloned());
        for found in &mut batches {
            let (zones, at_bytes) = (cache.zones.lock(), found.at_bytes);
            let is_known = |entry: &CopyEntry| zones.knows(number, at_bytes + entry.offset_bytes, entry.key);
            found.entries.retain(|entry| there.binary_search(&entry.key.0).is_ok() && is_known(entry));
        }
        let mut bytes_by_density = [0; DENSITY_MAX as usize + 1];
        let kept = {
            let mut zones = cache.zones.lock();
            for entry in batches.iter().flat_map(|found| &found.entries) {
                let length = entry.length_bytes as usize;
                bytes_by_density[usize::from(density_of(zones.count(entry.key), length))] += batch::copy_bytes(length);
            }
            // What is written next has space beside it.
            let space_bytes = current.as_ref().map_or(0, |writer| writer.space_bytes);
            zones.keep(&bytes_by_density, space_bytes - space_bytes / 8)
        };
        self.copy_kept(cache, current, number, &*reader, &batches, kept);
        let is_given_up = cache.zones.lock().drop_zone(number);
        is_given_up && self.remove_zone(number).is_ok()
    }

    fn copy_kept(
        &self,
        cache: &Cache,
        current: &mut Option<CacheWriter>,
        number: u64,
        reader: &dyn ReadableFile,
        batches: &[FoundBatch],
        kept: Kept,
    ) {
        let mut equal_bytes = kept.bytes_of_equal;
        let mut again = Batch::default();
        let most_bytes = BATCHES_OF_WRITE * cache.batch_bytes as u64;
        for found in batches {
            let stays = {
                let zones = cache.zones.lock();
                let mut stays = |entry: &CopyEntry| {
                    let length = entry.length_bytes as usize;
                    let (density, bytes) = (density_of(zones.count(entry.key), length), batch::copy_bytes(length));
                    let is_equal = density == kept.above && bytes <= equal_bytes;
                    equal_bytes -= if is_equal { bytes } else { 0 };
                    density > kept.above || is_equal
                };
                found.entries.iter().map(&mut stays).collect::<Vec<bool>>()
            };
            if !stays.contains(&true) {
                continue;
            }
            let mut bytes = vec![0; found.size_bytes as usize];
            if reader.read_at(found.at_bytes, &mut bytes, &FILLING).is_err() {
                continue;
            }
            for (entry, _) in found.entries.iter().zip(stays).filter(|(_, stays)| *stays) {
                let end = entry.offset_bytes + u64::from(entry.length_bytes) + CHECK_BYTES as u64;
                let copy = bytes.get(entry.offset_bytes as usize..end as usize);
                let Some(block) = copy.and_then(|copy| batch::block_of(entry.key, copy)) else { continue };
                let (is_there, count) = {
                    let mut zones = cache.zones.lock();
                    (zones.remove(number, found.at_bytes + entry.offset_bytes, entry.key), zones.count(entry.key))
                };
                if is_there {
                    again.add(entry.key, block, count);
                }
                if again.size_bytes() >= most_bytes && !self.append_again(cache, current, &mut again) {
                    return;
                }
            }
        }
        if !again.is_empty() {
            self.append_again(cache, current, &mut again);
        }
    }

    fn append_again(&self, cache: &Cache, current: &mut Option<CacheWriter>, again: &mut Batch) -> bool {
        let batch = std::mem::take(again);
        let (blocks, has_space) = (batch.keys().len() as u64, current.as_ref().map(|writer| writer.space_bytes));
        let is_written =
            has_space.is_some_and(|space| space >= batch.size_bytes()) && self.append_batch(cache, current, batch);
        add(if is_written { &self.counts.rewritten_blocks } else { &self.counts.dropped_blocks }, blocks);
        is_written
    }

    /// Gives up the oldest cache zone. Who reads it reads it to the end.
    fn drop_oldest(&self, cache: &Cache) -> Result<bool, StoreError> {
        let Some(number) = cache.zones.lock().drop_oldest() else { return Ok(false) };
        self.remove_zone(number).map(|()| true)
    }

    fn remove_zone(&self, number: u64) -> Result<(), StoreError> {
        add(&self.counts.dropped_zones, 1);
        // One that refuses keeps it until the next open.
        for device in self.writable() {
            let files = &self.members[device].files;
            if files.remove(&zone_name(number))? {
                self.commit_strictly_on(device)?;
            }
        }
        Ok(())
    }

    /// Takes in what an earlier open left in a cache zone.
    fn load_zone(&self, cache: &Cache, found: &FoundZone) {
        let opened = self.members[found.device].files.open_file(&zone_name(found.number));
        let Ok(reader) = opened else { return };
        let mut batches = read_batches(&*reader);
        // A copy of what is not there any more is never asked for; one whose number may be given again must not be known.
        for found in &mut batches {
            found.entries.retain(|entry| cache.known_files.binary_search(&entry.key.0).is_ok());
        }
        let mut zones = cache.zones.lock();
        if !zones.begin_oldest(found.number, reader) {
            return;
        }
        batches.iter().for_each(|batch| zones.add(found.number, batch.at_bytes, &batch.entries));
        add(&self.counts.found_blocks, batches.iter().map(|batch| batch.entries.len() as u64).sum());
    }

    /// Makes space on a device by giving up a cache zone. False when there is none to give up. Waits for no zone that is
    /// rewritten.
    pub(super) fn make_space(&self, device: usize) -> bool {
        let Some(cache) = &self.cache else { return false };
        if self.tier(device) != Tier::Fast {
            return false;
        }
        let oldest = cache.zones.lock().oldest().map(|(number, _)| number);
        if let Some(number) = oldest {
            return cache.zones.lock().drop_zone(number) && self.remove_zone(number).is_ok();
        }
        // The only one is the one that is written.
        let mut current = cache.writer.lock();
        if cache.zones.lock().len() == 1 {
            self.close_zone(&mut current);
        }
        matches!(self.drop_oldest(cache), Ok(true))
    }
}

/// A batch of a cache zone.
struct FoundBatch {
    at_bytes: u64,
    size_bytes: u64,
    entries: Vec<CopyEntry>,
}

/// The batches of a zone up to the first that is none: the last may have been cut by a crash.
fn read_batches(reader: &dyn ReadableFile) -> Vec<FoundBatch> {
    let (mut batches, mut at_bytes, size_bytes) = (Vec::new(), 0, reader.size_bytes());
    while let Some(found) = read_batch(reader, at_bytes, size_bytes) {
        at_bytes += found.size_bytes;
        batches.push(found);
    }
    batches
}

fn read_batch(reader: &dyn ReadableFile, at_bytes: u64, size_bytes: u64) -> Option<FoundBatch> {
    let space_bytes = size_bytes.checked_sub(at_bytes)?;
    let mut head = vec![0; HEADER_BYTES];
    if space_bytes < HEADER_BYTES as u64 {
        return None;
    }
    reader.read_at(at_bytes, &mut head, &FILLING).ok()?;
    let (head_bytes, batch_bytes) = batch::extent_of(&head, space_bytes)?;
    head.resize(head_bytes, 0);
    reader.read_at(at_bytes, &mut head, &FILLING).ok()?;
    let entries = batch::entries_of(&head, space_bytes)?;
    Some(FoundBatch { at_bytes, size_bytes: batch_bytes, entries })
}

/// Name of a cache zone.
pub(super) fn zone_name(number: u64) -> String {
    format!("{ZONE_NAME}{number}")
}

/// The number of a cache zone by its name.
pub(super) fn zone_number(name: &str) -> Option<u64> {
    name.strip_prefix(ZONE_NAME)?.parse().ok()
}

/// The numbers that blocks of these files are known by, ascending.
pub(super) fn known_files(files: impl Iterator<Item = Arc<HybridFile>>) -> Vec<u64> {
    let mut numbers: Vec<u64> = files.filter(|file| file.is_table).map(|file| file.block_key(0).0).collect();
    numbers.sort_unstable();
    numbers
}
