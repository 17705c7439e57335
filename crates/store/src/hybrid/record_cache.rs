//! Keeping records of tables of the slow tier in cache zones of the fast one, beside blocks.
//!
//! A copy of a record has its length before it, for who looks for it knows no more than where it begins.

use super::caching::batch::{self, CHECK_BYTES};
use super::caching::record_key;
use super::core::Core;
use super::file::HybridFile;
use super::options::HybridTechnique;
use crate::file_store::ReadableFile;
use crate::record_cache::RECORD_BYTES_MAX;
use std::sync::atomic::Ordering;
use varve_media::IoContext;

/// Bytes before a record: its length, little-endian.
const LENGTH_BYTES: usize = 4;

/// What devices read at least.
const SECTOR_BYTES: u64 = 4096;

impl Core {
    /// Whether there is a tier that records are kept on for another one.
    pub(super) fn keeps_records(&self) -> bool {
        self.options.caching.keeps_records() && self.cache.is_some() && self.has_tiers()
    }

    /// Takes a record of a table of the slow tier, if it is read often enough. Never waits for I/O.
    pub(super) fn admit_record(&self, file: &HybridFile, label: u64, record: &[u8]) {
        let Some(cache) = self.cache.as_ref() else { return };
        let Some((number, _)) = self.slow_block(file, 0) else {
            if file.is_removed() {
                return;
            }
            // It is on the fast tier, and will be read as much once it is written to the slow one. A copy would be an older version.
            let mut zones = cache.zones.lock();
            zones.read_for_record(record_key(0, label));
            zones.forget(record_key(0, label));
            return;
        };
        let (key, length) = (record_key(number, label), LENGTH_BYTES + record.len());
        let is_wanted = {
            let mut zones = cache.zones.lock();
            zones.read_bytes(length as u64);
            zones.wants_record(key, length)
        };
        if is_wanted {
            self.keep(cache, key, &copy_of(record));
        }
    }

    /// Whether a record of a table that is written again seems to be kept, or is read so much that it would be.
    pub(super) fn follows_record(&self, file: &HybridFile, label: u64, length_bytes: usize) -> bool {
        let Some(cache) = self.cache.as_ref().filter(|_| self.options.has(HybridTechnique::FollowedRecords)) else {
            return false;
        };
        let key = record_key(file.stamp.load(Ordering::Acquire), label);
        let is_kept = {
            let zones = cache.zones.lock();
            zones.contains(key) || zones.admits_record(key, LENGTH_BYTES + length_bytes)
        };
        is_kept || cache.queue.lock().get(key).is_some()
    }

    /// A compaction wrote a record that [follows](Self::follows_record) from one of its tables to another one: it is kept of that.
    /// Never waits for I/O.
    pub(super) fn inherit_record(&self, file: &str, label: u64, record: &[u8]) {
        let Some(cache) = self.cache.as_ref().filter(|_| self.keeps_records()) else { return };
        let key = {
            let files = self.files.read();
            let Some(file) = files.get(file) else { return };
            let Some((number, _)) = self.slow_block(file, 0) else { return };
            record_key(number, label)
        };
        if record.len() <= RECORD_BYTES_MAX {
            self.keep(cache, key, &copy_of(record));
        }
    }

    /// A user looks for a record of a table of the slow tier. True when it was there.
    pub(super) fn read_cached_record(
        &self,
        file: &HybridFile,
        label: u64,
        record: &mut Vec<u8>,
        context: &IoContext,
    ) -> bool {
        let Some(cache) = self.cache.as_ref() else { return false };
        let key = record_key(file.stamp.load(Ordering::Acquire), label);
        let (found, usual_bytes) = {
            let mut zones = cache.zones.lock();
            zones.read(key, false);
            (zones.find(key), zones.usual_bytes())
        };
        if let Some(copy) = cache.queue.lock().get(key) {
            return take(copy, record);
        }
        for (reader, at) in found {
            // What cannot be read of a copy, or is of another record, is found in its block.
            let Some(copy) = read_copy(&*reader, at, usual_bytes, context) else { continue };
            if let Some(found) = batch::block_of(key, &copy)
                && take(found, record)
            {
                cache.zones.lock().read_bytes(found.len() as u64);
                return true;
            }
        }
        false
    }
}

/// A record and its length.
fn copy_of(record: &[u8]) -> Vec<u8> {
    let mut copy = Vec::with_capacity(LENGTH_BYTES + record.len());
    copy.extend_from_slice(&(record.len() as u32).to_le_bytes());
    copy.extend_from_slice(record);
    copy
}

/// The record of a copy. False when that is none.
fn take(copy: &[u8], record: &mut Vec<u8>) -> bool {
    let Some((length, found)) = copy.split_first_chunk::<LENGTH_BYTES>() else { return false };
    record.clear();
    record.extend_from_slice(found);
    u32::from_le_bytes(*length) as usize == found.len()
}

/// The copy that begins somewhere in a cache zone, check included: mostly by one read of the sectors that one of the usual size
/// would be in.
fn read_copy(reader: &dyn ReadableFile, at: u64, usual_bytes: u64, context: &IoContext) -> Option<Vec<u8>> {
    let space_bytes = reader.size_bytes().checked_sub(at)?;
    let usual_end = (at + usual_bytes + CHECK_BYTES as u64).next_multiple_of(SECTOR_BYTES);
    let mut copy = vec![0; (usual_end - at).min(space_bytes) as usize];
    reader.read_at(at, &mut copy, context).ok()?;
    let length = u32::from_le_bytes(*copy.first_chunk()?) as usize;
    let whole = LENGTH_BYTES + length + CHECK_BYTES;
    if length > RECORD_BYTES_MAX || whole as u64 > space_bytes {
        return None;
    }
    let known = copy.len();
    copy.resize(whole, 0);
    if whole > known {
        reader.read_at(at + known as u64, &mut copy[known..], context).ok()?;
    }
    Some(copy)
}
