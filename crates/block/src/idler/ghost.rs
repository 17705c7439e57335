//! The ghost media cache: what the cache of the disk is taken to hold.

use super::controller::{Arrival, Work};
use super::extents::CachedExtents;
use super::log::{self, CachedLog};
use varve_media::{MediaCache, ZoneDescription, ZoneGeometry, ZoneId, ZoneType};

/// What is thought of a zone.
#[derive(Clone, Copy, Debug, Default)]
struct Zone {
    /// Next byte to write in order, from the start of the zone.
    pointer_bytes: u64,
    cached_bytes: u64,
    entries: u32,
    non_sequential: bool,
    is_conventional: bool,
}

/// An estimate of the media cache of a disk that does not say how full it is (Zhang, section 4.4.2): the sums of what was written beside
/// write pointers, by zone. What is written twice counts twice. A report says which zones were cleaned since the last.
///
/// 24 bytes for each zone; [with its map](GhostCache::with_map) 32 for each extent that is followed, of which there are at most twice as many as the
/// map of the disk holds; [with its log](GhostCache::with_log) about 43 for each zone in the cache.
#[derive(Clone, Debug)]
pub struct GhostCache {
    limits: MediaCache,
    geometry: ZoneGeometry,
    zones: Vec<Zone>,
    cached_bytes: u64,
    entries: u64,
    /// How many are non-sequential: asked for with each request, and there are thousands of zones.
    non_sequential: usize,
    /// What lies in the cache, where extents are not each write.
    map: Option<CachedExtents>,
    /// Where zones lie in the log, where its space comes back at its tail.
    log: Option<CachedLog>,
}

/// Extents that are followed for each that the map of the disk holds: beyond its end the disk has cleaned some, and did not say which.
const FOLLOWED_TO_HELD: usize = 2;

impl GhostCache {
    /// Of a disk with these zones and this cache, of which nothing is known: all zones are empty.
    pub fn new(geometry: &ZoneGeometry, limits: MediaCache) -> Self {
        let zones = (0..geometry.zone_count).map(|zone| Zone {
            is_conventional: geometry.zone_type(ZoneId(zone)) == ZoneType::Conventional,
            ..Zone::default()
        });
        let (geometry, zones) = (geometry.clone(), zones.collect());
        GhostCache { limits, geometry, zones, cached_bytes: 0, entries: 0, non_sequential: 0, map: None, log: None }
    }

    /// The same, whose extents are counted as the map of the disk has them: what is written over takes none any more. Bytes count twice all the
    /// same. A write costs a search in the map.
    #[must_use]
    pub fn with_map(self) -> Self {
        let extents_max = (self.limits.extents_max as usize).saturating_mul(FOLLOWED_TO_HELD);
        GhostCache { map: Some(CachedExtents::new(extents_max)), ..self }
    }

    /// The same for a disk that reuses the space of its cache from the tail of the log on (docs/idler.md, "Calibration"): all bytes from the
    /// first piece of the oldest zone on are in use. On a disk that reuses the space of each cleaned zone this overestimates.
    #[must_use]
    pub fn with_log(self) -> Self {
        GhostCache { log: Some(CachedLog::default()), ..self }
    }

    /// Bytes of the cache that cannot be written.
    fn occupied_bytes(&self) -> u64 {
        self.cached_bytes.max(self.log.as_ref().map_or(0, CachedLog::occupied_bytes))
    }

    /// The shares of space and of the map that these take.
    fn shares(&self, bytes: u64, entries: u64) -> (f64, f64) {
        let of = |used: u64, limit: u64| used as f64 / limit.max(1) as f64;
        (of(bytes, self.limits.bytes), of(entries, self.limits.extents_max.into()))
    }

    /// Whether the map is nearer to its end than space.
    fn is_short_of_entries(&self) -> bool {
        let (space, map) = self.shares(self.occupied_bytes(), self.entries);
        map > space
    }

    /// The share of the cache that these take, of the resource that is nearer to its end in all.
    fn share(&self, bytes: u64, entries: u64) -> f64 {
        let (space, map) = self.shares(bytes, entries);
        if self.is_short_of_entries() { map } else { space }
    }

    /// Memory that it takes at most, however full it is.
    pub fn memory_bytes_max(&self) -> usize {
        let map = self.map.as_ref().map_or(0, CachedExtents::memory_bytes_max);
        let log = self.log.as_ref().map_or(0, |_| self.zones.len() * log::BYTES_PER_ZONE);
        size_of::<Self>() + self.zones.capacity() * size_of::<Zone>() + map + log
    }

    /// How full it is taken to be: the share of space or of entries in use, whichever is larger. May be above 1.
    pub fn utilization(&self) -> f64 {
        self.share(self.occupied_bytes(), self.entries)
    }

    /// True if the space of the log runs out before the map does.
    pub fn is_short_of_log(&self) -> bool {
        self.log.is_some() && !self.is_short_of_entries()
    }

    /// Share of the cache's bytes that a zone keeps from being reused: from its first piece in the log to the head. 0 without
    /// [a log](GhostCache::with_log).
    pub fn pinned_share(&self, zone: ZoneId) -> f64 {
        let pinned_bytes = self.log.as_ref().map_or(0, |log| log.pinned_bytes(zone));
        self.shares(pinned_bytes, 0).0
    }

    /// The shares of the cache's bytes that zones in the log [keep from being reused](GhostCache::pinned_share), the oldest zone first.
    pub fn pinned_from_tail(&self) -> impl Iterator<Item = f64> {
        let pinned = self.log.iter().flat_map(CachedLog::pinned_from_tail);
        pinned.map(|bytes| self.shares(bytes, 0).0)
    }

    /// Share of the cache's bytes that were written to the log since it was at `position`.
    pub fn log_share_since(&self, position: u64) -> f64 {
        self.shares(self.log_position().saturating_sub(position), 0).0
    }

    /// True if a zone has data in the cache by this estimate.
    pub fn is_in_cache(&self, zone: ZoneId) -> bool {
        self.zone_share(zone).1 > 0 || self.pinned_share(zone) > 0.0
    }

    /// Position of the next byte in the log.
    pub fn log_position(&self) -> u64 {
        self.log.as_ref().map_or(0, CachedLog::head_bytes)
    }

    /// Follows a zone whose first piece in the cache was written when the log was at `position`, and reported here later.
    pub fn was_written_since(&mut self, zone: ZoneId, position: u64) {
        if let Some(log) = &mut self.log {
            log.extend_back(zone, position);
        }
    }

    /// Zones that are taken to be non-sequential.
    pub fn non_sequential_zones(&self) -> usize {
        self.non_sequential
    }

    /// Whether a write here is in order.
    pub fn is_at_pointer(&self, offset_bytes: u64) -> bool {
        let Some(id) = self.geometry.zone_at(offset_bytes) else { return false };
        let at = offset_bytes - self.geometry.start_bytes(id);
        self.zones
            .get(id.0 as usize)
            .is_some_and(|zone| !zone.is_conventional && !zone.non_sequential && zone.pointer_bytes == at)
    }

    /// Bytes from the start of a zone that may hold something: all of it where there is no pointer to go by. `None` of a conventional one.
    pub fn extent_bytes(&self, zone: ZoneId) -> Option<u64> {
        let found = self.zones.get(zone.0 as usize).filter(|zone| !zone.is_conventional)?;
        Some(if found.non_sequential { self.geometry.zone_bytes } else { found.pointer_bytes })
    }

    /// Takes a zone for non-sequential: nobody knows where its pointer is.
    pub fn distrust(&mut self, zone: u32) {
        if let Some(zone) = self.zones.get_mut(zone as usize).filter(|zone| !zone.is_conventional) {
            self.non_sequential += usize::from(!std::mem::replace(&mut zone.non_sequential, true));
        }
    }

    /// How much of the cache a write would take.
    pub fn would_take(&self, offset_bytes: u64, length_bytes: u64) -> f64 {
        if self.is_at_pointer(offset_bytes) { 0.0 } else { self.share(length_bytes, 1) }
    }

    /// The share of the cache that a zone takes, of the resource that is nearer to its end in all; and its entries.
    pub fn zone_share(&self, zone: ZoneId) -> (f64, u32) {
        let Some(zone) = self.zones.get(zone.0 as usize) else { return (0.0, 0) };
        (self.share(zone.cached_bytes, zone.entries.into()), zone.entries)
    }

    /// Follows a write, and gives how much of the cache it takes.
    pub fn written(&mut self, offset_bytes: u64, length_bytes: u64) -> f64 {
        let range = offset_bytes..offset_bytes.saturating_add(length_bytes);
        let (mut bytes, mut entries) = (0, 0i64);
        for id in self.geometry.zones_in(&range) {
            let own = self.geometry.range(id);
            let piece = range.start.max(own.start)..range.end.min(own.end);
            let (from, to) = (piece.start - own.start, piece.end - own.start);
            let Some(zone) = self.zones.get_mut(id.0 as usize).filter(|zone| !zone.is_conventional) else { continue };
            if !zone.non_sequential && from == zone.pointer_bytes {
                zone.pointer_bytes = to;
                continue;
            }
            self.non_sequential += usize::from(!std::mem::replace(&mut zone.non_sequential, true));
            zone.cached_bytes += to - from;
            if let Some(log) = &mut self.log {
                log.append(id, to - from);
            }
            let more = self.map.as_mut().map_or(1, |map| map.written(&piece, &own));
            let before = zone.entries;
            zone.entries = before.saturating_add_signed(i32::try_from(more).unwrap_or(i32::MIN));
            (bytes, entries) = (bytes + to - from, entries + i64::from(zone.entries) - i64::from(before));
        }
        self.cached_bytes += bytes;
        self.entries = self.entries.saturating_add_signed(entries);
        self.share(bytes, entries.max(0) as u64)
    }

    /// Follows a request that goes to the disk, and gives how much of the cache it takes.
    pub fn follow(&mut self, arrival: &Arrival) -> f64 {
        match arrival.work {
            Work::Write => return self.written(arrival.offset_bytes, arrival.length_bytes),
            Work::Forget => self.reset(arrival.offset_bytes, arrival.length_bytes),
            Work::Read | Work::Command => {}
        }
        0.0
    }

    fn give_back(&mut self, id: usize) -> (u64, u64) {
        if let Some(map) = &mut self.map {
            map.remove(&self.geometry.range(ZoneId(id as u32)));
        }
        if let Some(log) = &mut self.log {
            log.remove(ZoneId(id as u32));
        }
        let Some(zone) = self.zones.get_mut(id) else { return (0, 0) };
        let (bytes, entries) = (zone.cached_bytes, u64::from(zone.entries));
        self.non_sequential -= usize::from(zone.non_sequential);
        (zone.cached_bytes, zone.entries, zone.non_sequential) = (0, 0, false);
        self.cached_bytes -= bytes;
        self.entries -= entries;
        (bytes, entries)
    }

    /// Follows a reset of all zones that lie in these bytes.
    pub fn reset(&mut self, offset_bytes: u64, length_bytes: u64) {
        let range = offset_bytes..offset_bytes.saturating_add(length_bytes);
        for id in self.geometry.zones_in(&range) {
            let own = self.geometry.range(id);
            if range.start <= own.start && own.end <= range.end {
                self.give_back(id.0 as usize);
                self.zones[id.0 as usize].pointer_bytes = 0;
            }
        }
    }

    /// Follows a zone that is in order now, up to `pointer_bytes` from its start.
    pub fn cleaned(&mut self, zone: ZoneId, pointer_bytes: u64) {
        self.give_back(zone.0 as usize);
        if let Some(zone) = self.zones.get_mut(zone.0 as usize) {
            zone.pointer_bytes = pointer_bytes;
        }
    }

    /// Takes it that what lies in the cache of zones that are not sequential, of which nothing else is known, fills so much of it, of space as of the
    /// map: each as much as the others. In the log they are taken to lie one behind the other, in the order of their numbers.
    pub fn suppose(&mut self, utilization: f64) {
        let is_unknown = |zone: &Zone| zone.non_sequential && zone.cached_bytes == 0 && zone.entries == 0;
        let zones = self.zones.iter().filter(|zone| is_unknown(zone)).count() as u64;
        // No less than nothing, and no more than all.
        let each = |limit: u64| (limit as f64 * utilization.clamp(0.0, 1.0)) as u64 / zones.max(1);
        let (bytes, entries) = (each(self.limits.bytes), each(self.limits.extents_max.into()));
        for (zone, id) in self.zones.iter_mut().zip((0..).map(ZoneId)).filter(|(zone, _)| is_unknown(zone)) {
            (zone.cached_bytes, zone.entries) = (bytes, entries as u32);
            if let Some(log) = &mut self.log {
                log.remove(id);
                log.append(id, bytes);
            }
            self.cached_bytes += bytes;
            self.entries += entries;
        }
    }

    /// Takes over what a report of all zones says; gives how much of the cache the cleaned zones give back. `None` where the report is of
    /// other zones than these, which changes nothing.
    pub fn reported(&mut self, zones: &[ZoneDescription]) -> Option<f64> {
        let is_of_these = zones.len() == self.zones.len()
            && zones.iter().enumerate().all(|(id, zone)| {
                zone.start_bytes == self.geometry.start_bytes(ZoneId(id as u32))
                    && zone.write_pointer_bytes >= zone.start_bytes
            });
        if !is_of_these {
            return None;
        }
        // By the resource that was nearer to its end.
        let by_entries = self.is_short_of_entries();
        let (mut bytes, mut entries) = (0, 0);
        for (id, found) in zones.iter().enumerate() {
            let was_cleaned = self.zones[id].non_sequential && !found.non_sequential;
            if was_cleaned {
                let (freed_bytes, freed_entries) = self.give_back(id);
                (bytes, entries) = (bytes + freed_bytes, entries + freed_entries);
            }
            let zone = &mut self.zones[id];
            self.non_sequential -= usize::from(zone.non_sequential);
            self.non_sequential += usize::from(found.non_sequential);
            zone.non_sequential = found.non_sequential;
            zone.is_conventional = found.zone_type == ZoneType::Conventional;
            match &mut self.log {
                _ if !found.non_sequential => zone.pointer_bytes = found.write_pointer_bytes - found.start_bytes,
                Some(log) => log.insert_since_last_report(ZoneId(id as u32)),
                None => {}
            }
        }
        if let Some(log) = &mut self.log {
            log.reported();
        }
        let (space, map) = self.shares(bytes, entries);
        Some(if by_entries { map } else { space })
    }
}
