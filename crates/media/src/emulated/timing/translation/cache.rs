//! The media cache: what is in it, and what cleaning it takes.

use super::extents::ExtentMap;
use super::parameters::{CleaningOrder, SpaceReclaim};
use crate::zones::{MediaCache, ZoneGeometry, ZoneId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Sectors of the medium, which are written whole.
pub(super) const SECTOR_BYTES: u64 = 4096;

/// The smallest map.
pub(super) const EXTENTS_MIN: u32 = 8;

/// What is in the cache of one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CachedZone {
    /// Bytes of the log, written over or not.
    pub(super) bytes: u64,
    /// Position in the log, in bytes appended so far, of its first piece. Records of earlier builds
    /// count pieces here, which gives the same order.
    pub(super) since: u64,
}

/// A log of what was not written in order, as far as sizes and places go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cache {
    limits: MediaCache,
    map: ExtentMap,
    zones: BTreeMap<ZoneId, CachedZone>,
    /// The same zones by the position of their first piece: the first one holds the tail of the log.
    by_age: BTreeSet<(u64, ZoneId)>,
    used_bytes: u64,
    /// Where the next byte goes. The log goes round; what it comes upon is taken to be free.
    head_bytes: u64,
    /// Position in the log of the next piece.
    log_bytes: u64,
    is_endless: bool,
}

/// What is to be read, in this order, and then written to clean a part of a zone: bytes of the inner device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    /// The part of the zone, in bytes of the address space.
    pub(super) part: Range<u64>,
    pub(super) reads: Vec<Range<u64>>,
    pub(super) writes: Vec<Range<u64>>,
}

impl Cache {
    pub(super) fn new(limits: MediaCache, is_endless: bool) -> Self {
        let MediaCache { bytes, extents_max } = limits;
        Cache {
            // A write splits one extent and adds one: the map of an empty cache must take some.
            limits: MediaCache { bytes, extents_max: extents_max.max(EXTENTS_MIN) },
            map: ExtentMap::default(),
            zones: BTreeMap::new(),
            by_age: BTreeSet::new(),
            used_bytes: 0,
            head_bytes: 0,
            log_bytes: 0,
            is_endless,
        }
    }

    /// The same cache with these zones in it, a map, where the next byte goes, and its position in the log.
    pub(super) fn with(self, zones: BTreeMap<ZoneId, CachedZone>, map: ExtentMap, next: (u64, u64)) -> Self {
        let used_bytes = zones.values().map(|zone| zone.bytes).sum();
        let by_age = zones.iter().map(|(&zone, cached)| (cached.since, zone)).collect();
        Cache { map, zones, by_age, used_bytes, head_bytes: next.0, log_bytes: next.1, ..self }
    }

    pub(super) fn zones(&self) -> &BTreeMap<ZoneId, CachedZone> {
        &self.zones
    }

    /// Where the next byte goes, and its position in the log.
    pub(super) fn next(&self) -> (u64, u64) {
        (self.head_bytes, self.log_bytes)
    }

    /// Bytes of the log that are in use, written over or not.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(super) fn map(&self) -> &ExtentMap {
        &self.map
    }

    pub(super) fn is_empty(&self) -> bool {
        self.zones.is_empty()
    }

    pub(super) fn zone_count(&self) -> usize {
        self.zones.len()
    }

    pub(super) fn holds(&self, zone: ZoneId) -> bool {
        self.zones.contains_key(&zone)
    }

    /// Bytes of the log that cannot be written: by [`SpaceReclaim::Zone`] those of zones in the cache, by [`SpaceReclaim::LogTail`] all
    /// from the first piece of the oldest zone in the cache on.
    pub(super) fn occupied_bytes(&self, reclaim: SpaceReclaim) -> u64 {
        let from_tail = self.by_age.first().map_or(0, |&(since, _)| self.log_bytes.saturating_sub(since));
        match reclaim {
            SpaceReclaim::Zone => self.used_bytes,
            SpaceReclaim::LogTail => from_tail.max(self.used_bytes),
        }
    }

    /// True if `length_bytes` fit in one piece.
    pub(super) fn fits(&self, length_bytes: u64, reclaim: SpaceReclaim) -> bool {
        let MediaCache { bytes, extents_max } = self.limits;
        self.is_endless
            || (self.occupied_bytes(reclaim) + length_bytes <= bytes && self.map.len() + 2 <= extents_max as usize)
    }

    /// Longest piece, so that an empty cache takes any.
    pub(super) fn piece_bytes_max(&self) -> u64 {
        (self.limits.bytes / 4).max(1)
    }

    /// True if at most `percent` of the cache and of the map are in use.
    pub(super) fn is_below(&self, percent: u32, reclaim: SpaceReclaim) -> bool {
        let MediaCache { bytes, extents_max } = self.limits;
        let below = |used: u64, limit: u64| u128::from(used) * 100 <= u128::from(limit) * u128::from(percent);
        below(self.occupied_bytes(reclaim), bytes) && below(self.map.len() as u64, extents_max.into())
    }

    /// Takes a piece that fits, of one zone, and says which bytes of the cache it goes to. Pieces begin at whole sectors of the medium.
    pub(super) fn append(&mut self, zone: ZoneId, range: Range<u64>) -> Range<u64> {
        let length = range.end - range.start;
        if self.head_bytes + length > self.limits.bytes {
            self.head_bytes = 0;
        }
        let at = self.head_bytes;
        self.head_bytes += length.next_multiple_of(SECTOR_BYTES);
        self.used_bytes += length;
        self.map.insert(range, at);
        let since = self.log_bytes;
        let cached = self.zones.entry(zone).or_insert_with(|| {
            self.by_age.insert((since, zone));
            CachedZone { bytes: 0, since }
        });
        cached.bytes += length;
        self.log_bytes = self.log_bytes.saturating_add(length);
        at..at + length
    }

    /// Forgets what is cached of a part of a zone; its space is given back with the zone.
    pub(super) fn forget(&mut self, part: &Range<u64>) {
        self.map.remove(part);
    }

    /// Gives back the space of a zone of which nothing is needed any more; how much it was.
    pub(super) fn release(&mut self, zone: ZoneId, range: &Range<u64>) -> u64 {
        self.map.remove(range);
        let Some(CachedZone { bytes, since }) = self.zones.remove(&zone) else { return 0 };
        self.by_age.remove(&(since, zone));
        self.used_bytes -= bytes;
        bytes
    }

    /// Keeps of a zone what is left of it in the map after a cleaning during which it was written; how many bytes are given back. The zone then
    /// lies in the log where its oldest piece does.
    pub(super) fn keep_rest(&mut self, zone: ZoneId, own: &Range<u64>) -> u64 {
        let (head, limit) = (self.head_bytes, self.limits.bytes);
        let (mut live_bytes, mut oldest_bytes) = (0u64, 0u64);
        for (piece, at) in self.map.within(own) {
            live_bytes += piece.end - piece.start;
            let behind_head = if at < head { head - at } else { (head + limit).saturating_sub(at) };
            oldest_bytes = oldest_bytes.max(behind_head);
        }
        let Some(cached) = self.zones.get_mut(&zone).filter(|_| live_bytes > 0) else { return 0 };
        let released = cached.bytes.saturating_sub(live_bytes);
        cached.bytes -= released;
        self.used_bytes -= released;
        self.by_age.remove(&(cached.since, zone));
        cached.since = cached.since.max(self.log_bytes.saturating_sub(oldest_bytes));
        self.by_age.insert((cached.since, zone));
        released
    }

    /// What must be read and written to clean a zone whose pointer stood at byte `pointer` of the address space: from the first
    /// update to the pointer or the last update; from the pointer where that comes first, for nothing may be left out.
    pub(super) fn span(&self, own: &Range<u64>, pointer: u64) -> Range<u64> {
        let mut cached = self.map.within(own);
        let Some((first, _)) = cached.next() else { return pointer..pointer };
        let last = cached.last().map_or(first.end, |(last, _)| last.end);
        first.start.min(pointer)..last.max(pointer)
    }

    /// The zone to clean next. `pointer` gives where that of a zone stood.
    pub(super) fn next_zone(
        &self,
        order: CleaningOrder,
        zones: &ZoneGeometry,
        pointer: impl Fn(ZoneId) -> u64,
    ) -> Option<ZoneId> {
        let cost = |zone: ZoneId| {
            let span = self.span(&zones.range(zone), pointer(zone));
            span.end - span.start
        };
        let chosen = match order {
            CleaningOrder::Oldest => return self.by_age.first().map(|&(_, zone)| zone),
            CleaningOrder::Cheapest => self.zones.iter().min_by_key(|(zone, cached)| (cost(**zone), cached.since)),
            CleaningOrder::Fullest => {
                self.zones.iter().min_by_key(|(_, cached)| (u64::MAX - cached.bytes, cached.since))
            }
        };
        chosen.map(|(&zone, _)| zone)
    }

    /// The first `step_bytes` of `rest`: what lies in its place is read below `pointer` only, where something was written.
    pub(super) fn step(&self, rest: &Range<u64>, pointer: u64, step_bytes: u64, home: u64, unit_bytes: u64) -> Step {
        let part = rest.start..rest.end.min(rest.start.saturating_add(step_bytes.max(1)));
        let (mut reads, mut cached) = (Vec::new(), Vec::new());
        for piece in self.map.pieces(&part) {
            let Range { start, end } = piece.range;
            match piece.cached_at {
                Some(at) => cached.push(at..at + (end - start)),
                None => {
                    let end = end.min(pointer);
                    if start < end {
                        reads.push(home + start..home + end);
                    }
                }
            }
        }
        // The arm passes over short pieces that are not needed faster than it comes back for each.
        reads = joined(reads, unit_bytes);
        cached.sort_by_key(|piece| piece.start);
        let cut = |ranges: Vec<Range<u64>>| ranges.into_iter().flat_map(move |range| units(range, unit_bytes));
        let writes = units(home + part.start..home + part.end, unit_bytes).collect();
        Step { reads: cut(joined(cached, unit_bytes / 16)).chain(cut(reads)).collect(), writes, part }
    }
}

/// Ascending ranges, those with no more than `gap_bytes` between them as one.
fn joined(ranges: Vec<Range<u64>>, gap_bytes: u64) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(gap_bytes) => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// `range` in parts of at most `unit_bytes`.
fn units(range: Range<u64>, unit_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let unit = unit_bytes.max(1);
    (0..(range.end - range.start).div_ceil(unit)).map(move |index| {
        let start = range.start + index * unit;
        start..range.end.min(start + unit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTOR: u64 = 4096;
    const RECLAIMS: [SpaceReclaim; 2] = [SpaceReclaim::Zone, SpaceReclaim::LogTail];

    fn cache(bytes: u64, extents_max: u32) -> Cache {
        Cache::new(MediaCache { bytes, extents_max }, false)
    }

    #[test]
    fn space_counts_every_write_and_the_map_what_is_left() {
        let mut cache = cache(10 * SECTOR, 100);
        for _ in 0..5 {
            assert_eq!(cache.append(ZoneId(3), 0..SECTOR).end - SECTOR, (cache.used_bytes - SECTOR));
        }
        assert_eq!((cache.used_bytes, cache.map.len()), (5 * SECTOR, 1));
        for reclaim in RECLAIMS {
            assert!(cache.fits(5 * SECTOR, reclaim) && !cache.fits(6 * SECTOR, reclaim));
            assert!(!cache.is_below(49, reclaim) && cache.is_below(50, reclaim));
        }
        assert_eq!(cache.release(ZoneId(3), &(0..100 * SECTOR)), 5 * SECTOR);
        assert!(cache.is_empty());
        assert!(RECLAIMS.iter().all(|&reclaim| cache.is_below(0, reclaim) && cache.fits(10 * SECTOR, reclaim)));
    }

    #[test]
    fn a_full_map_takes_nothing() {
        let mut cache = cache(1 << 40, 10);
        for index in 0..9 {
            assert!(cache.fits(SECTOR, SpaceReclaim::Zone));
            cache.append(ZoneId(0), index * 2 * SECTOR..(index * 2 + 1) * SECTOR);
        }
        assert!(RECLAIMS.iter().all(|&reclaim| !cache.fits(SECTOR, reclaim)));
    }

    /// A log is written round: what lies between a zone that is in the cache and the head cannot be written, whatever was cleaned of it.
    #[test]
    fn space_comes_back_with_the_zone_or_at_the_tail_of_the_log() {
        let mut cache = cache(10 * SECTOR, 100);
        cache.append(ZoneId(1), 0..SECTOR);
        cache.append(ZoneId(2), 100 * SECTOR..106 * SECTOR);
        cache.append(ZoneId(3), 200 * SECTOR..202 * SECTOR);
        let occupied = |cache: &Cache| RECLAIMS.map(|reclaim| cache.occupied_bytes(reclaim) / SECTOR);
        assert_eq!(occupied(&cache), [9, 9]);
        cache.release(ZoneId(2), &(100 * SECTOR..200 * SECTOR));
        assert_eq!(occupied(&cache), [3, 9]);
        assert!(cache.fits(7 * SECTOR, SpaceReclaim::Zone) && !cache.fits(2 * SECTOR, SpaceReclaim::LogTail));
        // Written again, it lies at the head.
        cache.append(ZoneId(2), 100 * SECTOR..101 * SECTOR);
        cache.release(ZoneId(1), &(0..100 * SECTOR));
        assert_eq!(occupied(&cache), [3, 3]);
        cache.release(ZoneId(3), &(200 * SECTOR..300 * SECTOR));
        assert_eq!(occupied(&cache), [1, 1]);
    }

    #[test]
    fn a_zone_written_while_it_was_cleaned_keeps_what_is_left() {
        let mut cache = cache(10 * SECTOR, 100);
        let own = 0..100 * SECTOR;
        cache.append(ZoneId(0), 0..3 * SECTOR);
        cache.append(ZoneId(0), 2 * SECTOR..4 * SECTOR);
        cache.append(ZoneId(0), 9 * SECTOR..10 * SECTOR);
        cache.forget(&(0..8 * SECTOR));
        assert_eq!((cache.used_bytes(), cache.occupied_bytes(SpaceReclaim::LogTail)), (6 * SECTOR, 6 * SECTOR));
        assert_eq!(cache.keep_rest(ZoneId(0), &own), 5 * SECTOR);
        assert_eq!((cache.used_bytes(), cache.occupied_bytes(SpaceReclaim::LogTail)), (SECTOR, SECTOR));
        // Round the end of the log.
        cache.append(ZoneId(1), 100 * SECTOR..104 * SECTOR);
        cache.append(ZoneId(0), 20 * SECTOR..22 * SECTOR);
        assert_eq!(cache.keep_rest(ZoneId(0), &own), 0);
        assert_eq!(cache.occupied_bytes(SpaceReclaim::LogTail), 7 * SECTOR);
        cache.forget(&(9 * SECTOR..10 * SECTOR));
        assert_eq!(cache.keep_rest(ZoneId(0), &own), SECTOR);
        assert_eq!(cache.occupied_bytes(SpaceReclaim::LogTail), 6 * SECTOR);
        assert_eq!(cache.keep_rest(ZoneId(2), &(200 * SECTOR..300 * SECTOR)), 0);
    }

    #[test]
    fn a_zone_is_cleaned_from_its_first_update_to_its_pointer() {
        let mut cache = cache(1 << 30, 100);
        let own = 0..100 * SECTOR;
        cache.append(ZoneId(0), 30 * SECTOR..31 * SECTOR);
        cache.append(ZoneId(0), 40 * SECTOR..41 * SECTOR);
        assert_eq!(cache.span(&own, 90 * SECTOR), 30 * SECTOR..90 * SECTOR);
        // Behind the pointer: what is between must be written too.
        assert_eq!(cache.span(&own, 10 * SECTOR), 10 * SECTOR..41 * SECTOR);
        let step = cache.step(&(30 * SECTOR..90 * SECTOR), 90 * SECTOR, 20 * SECTOR, 1 << 40, 16 * SECTOR);
        assert_eq!(step.part, 30 * SECTOR..50 * SECTOR);
        let home = |from: u64, to: u64| (1 << 40) + from * SECTOR..(1 << 40) + to * SECTOR;
        // Two sectors of the cache, which lie together, and then what is in its place.
        assert_eq!(step.reads, [0..2 * SECTOR, home(31, 47), home(47, 50)]);
        assert_eq!(step.writes, [home(30, 46), home(46, 50)]);
        let behind = cache.step(&(10 * SECTOR..41 * SECTOR), 10 * SECTOR, 1 << 40, 1 << 40, 1 << 40);
        assert_eq!(behind.reads.first(), Some(&(0..2 * SECTOR)));
        assert_eq!(behind.reads.len(), 1);
        assert_eq!(behind.writes, [home(10, 41)]);
    }

    #[test]
    fn orders_differ() {
        let mut cache = cache(1 << 30, 100);
        let zones = ZoneGeometry::fit(300 * SECTOR, 100 * SECTOR).unwrap();
        cache.append(ZoneId(2), 210 * SECTOR..211 * SECTOR);
        cache.append(ZoneId(0), 90 * SECTOR..91 * SECTOR);
        cache.append(ZoneId(1), 150 * SECTOR..154 * SECTOR);
        let next = |order| cache.next_zone(order, &zones, |zone| zones.range(zone).end);
        assert_eq!(next(CleaningOrder::Oldest), Some(ZoneId(2)));
        assert_eq!(next(CleaningOrder::Cheapest), Some(ZoneId(0)));
        assert_eq!(next(CleaningOrder::Fullest), Some(ZoneId(1)));
    }
}
