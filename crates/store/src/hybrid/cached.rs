//! Keeping evicted blocks of the slow tier in cache zones of the fast one.

use super::caching::BlockKey;
use super::core::{Cache, CacheWriter, Core};
use super::file::HybridFile;
use super::levels::Tier;
use super::statistics::add;
use crate::band::Stamp;
use crate::error::StoreError;
use crate::file_store::{CreateOptions, FileKind};
use std::sync::atomic::Ordering;
use varve_media::{IoCause, IoClass, IoContext};

const FILLING: IoContext =
    IoContext { class: IoClass::Maintenance, cause: IoCause::CacheFill, level: None, job: None, deadline: None };

impl Core {
    /// Takes a block that the tree's cache gave up, unless it is there or its table is on the fast tier. Never waits for I/O.
    pub(super) fn admit(&self, file: &HybridFile, offset_bytes: u64, bytes: &[u8]) {
        let Some(cache) = self.cache.as_ref().filter(|_| self.has_tiers()) else { return };
        let parts = file.parts();
        let part = parts.iter().rev().find(|part| part.start_bytes <= offset_bytes);
        if file.is_removed() || part.is_none_or(|part| self.tier(part.device) == Tier::Fast) {
            return;
        }
        let key: BlockKey = (file.number, offset_bytes);
        if cache.zones.lock().contains(key) {
            return;
        }
        let (is_taken, is_due) = {
            let mut queue = cache.queue.lock();
            (queue.push(key, bytes), queue.bytes() >= cache.batch_bytes)
        };
        add(&self.counts.dropped_blocks, u64::from(!is_taken));
        if is_due {
            self.cacher.notify();
        }
    }

    /// Writes what waits, if it is enough. True when something was done, and there may be more.
    pub(super) fn fill_cache(&self) -> bool {
        let Some(cache) = &self.cache else { return false };
        let mut current = cache.writer.lock();
        if cache.queue.lock().bytes() < cache.batch_bytes {
            return false;
        }
        if current.is_none() {
            *current = self.begin_cache_zone(cache);
        }
        let Some(writer) = current.as_mut() else {
            self.drop_batch(cache, u64::MAX);
            return true;
        };
        let most = writer.space_bytes.min(4 * cache.batch_bytes as u64);
        let (bytes, keys) = cache.queue.lock().batch(most);
        if keys.is_empty() {
            if let Some(mut full) = current.take() {
                let _ = full.writer.close(&FILLING);
                self.zone_was_left();
            }
            // A block that no zone holds is kept by none.
            if most >= 4 * cache.batch_bytes as u64 {
                self.drop_batch(cache, u64::MAX);
            }
            return true;
        }
        let at = writer.writer.size_bytes();
        let appended = writer.writer.writable().append(&bytes, &FILLING);
        match appended.and_then(|()| writer.writer.writable().flush(&FILLING)) {
            Ok(()) => {
                writer.space_bytes -= bytes.len() as u64;
                cache.zones.lock().add(at, &keys);
                add(&self.counts.cached_blocks, keys.len() as u64);
                add(&self.counts.cached_bytes, bytes.len() as u64);
                cache.queue.lock().remove(&keys);
            }
            Err(_) => {
                // Nothing was promised: the zone holds what it holds.
                *current = None;
                self.zone_was_left();
                self.drop_batch(cache, most);
            }
        }
        true
    }

    fn drop_batch(&self, cache: &Cache, bytes_max: u64) {
        let mut queue = cache.queue.lock();
        let (_, keys) = queue.batch(bytes_max);
        queue.remove(&keys);
        add(&self.counts.dropped_blocks, keys.len() as u64);
    }

    /// A zone for more blocks: an empty one where there may be one more, else that of the oldest.
    fn begin_cache_zone(&self, cache: &Cache) -> Option<CacheWriter> {
        let view = self.view();
        let has_share = view.log_zones + view.cache_zones < view.reserved_zones && view.empty_zones > 0;
        if !has_share {
            if view.cache_zones == 0 {
                return None;
            }
            self.drop_oldest(cache).ok()?;
            let view = self.view();
            if view.log_zones + view.cache_zones >= view.reserved_zones || view.empty_zones == 0 {
                return None;
            }
        }
        let device = self.choose_other(FileKind::Table).into_iter().find(|device| self.tier(*device) == Tier::Fast)?;
        if !self.may_hold_zone(device) {
            return None;
        }
        let number = self.naming.lock().number();
        let files = &self.members[device].files;
        let zone_bytes = files.writable_zone_bytes();
        let options =
            CreateOptions { kind: FileKind::Table, expected_size_bytes: Some(zone_bytes), ..CreateOptions::default() };
        let stamp = Stamp { number: 0, start_bytes: 0 };
        let writer = files.create(&zone_name(number), &options, stamp, cache.batch_bytes).ok()?;
        let reader = files.open_file(&zone_name(number)).ok()?;
        cache.zones.lock().begin(number, reader);
        Some(CacheWriter { writer, space_bytes: zone_bytes })
    }

    /// Gives up the oldest cache zone. Who reads it reads it to the end.
    fn drop_oldest(&self, cache: &Cache) -> Result<bool, StoreError> {
        let Some(number) = cache.zones.lock().drop_oldest() else { return Ok(false) };
        add(&self.counts.dropped_zones, 1);
        for device in 0..self.members.len() {
            let files = &self.members[device].files;
            if files.remove(&zone_name(number))? {
                self.commit_on(device)?;
            }
        }
        Ok(true)
    }

    /// Makes space on a device for a small file by giving up a cache zone. False when there is none to give up.
    pub(super) fn make_space(&self, device: usize, kind: FileKind) -> bool {
        let Some(cache) = self.cache.as_ref().filter(|_| kind != FileKind::Table) else { return false };
        if self.tier(device) != Tier::Fast {
            return false;
        }
        let mut current = cache.writer.lock();
        if cache.zones.lock().len() == 1
            && let Some(mut last) = current.take()
        {
            let _ = last.writer.close(&FILLING);
        }
        matches!(self.drop_oldest(cache), Ok(true))
    }

    /// Devices for something beside the files that trees make: those with most space first.
    pub(super) fn choose_other(&self, kind: FileKind) -> Vec<usize> {
        let mut devices: Vec<usize> = (0..self.members.len()).collect();
        devices.sort_by_cached_key(|device| {
            let member = &self.members[*device];
            let zones = member.files.zone_use();
            let free = zones.free.saturating_sub(member.promised.load(Ordering::Relaxed));
            let has_space = free > 0 || (kind != FileKind::Table && member.files.log_space_bytes() > 0);
            (!has_space, member.tier, u64::MAX - u64::from(free) * member.files.writable_zone_bytes(), *device)
        });
        devices
    }
}

/// Name of a cache zone.
pub(super) fn zone_name(number: u64) -> String {
    format!("\0cache-{number}")
}
