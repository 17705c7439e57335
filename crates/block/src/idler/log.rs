//! Positions of zones in the log of a media cache, estimated from the writes that a host sends.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use varve_media::ZoneId;

/// Zones that have pieces in the log of a media cache, each with the position of its first piece.
///
/// A drive writes its cache round as a log. It can reuse the space from the tail on, so one zone pins everything that was written after the
/// zone's first piece, whatever else was cleaned. Positions are bytes that were appended so far.
///
/// 43 bytes for each zone in the log.
#[derive(Clone, Debug, Default)]
pub(super) struct CachedLog {
    head_bytes: u64,
    first: BTreeMap<ZoneId, u64>,
    by_age: BTreeSet<(u64, ZoneId)>,
    /// Head at the last report of all zones.
    reported_bytes: u64,
}

/// Memory of one zone in the log: nodes of both trees are three quarters full.
pub(super) const BYTES_PER_ZONE: usize = (size_of::<(ZoneId, u64)>() + size_of::<(u64, ZoneId)>()) * 4 / 3;

impl CachedLog {
    /// Position of the next byte.
    pub(super) fn head_bytes(&self) -> u64 {
        self.head_bytes
    }

    /// Bytes from the first piece of the oldest zone on.
    pub(super) fn occupied_bytes(&self) -> u64 {
        self.by_age.first().map_or(0, |&(first, _)| self.head_bytes - first)
    }

    /// Bytes from the first piece of a zone on; 0 where it has none.
    pub(super) fn pinned_bytes(&self, zone: ZoneId) -> u64 {
        self.first.get(&zone).map_or(0, |first| self.head_bytes - first)
    }

    /// Bytes from the first piece of each zone on, the oldest zone first.
    pub(super) fn pinned_from_tail(&self) -> impl Iterator<Item = u64> {
        self.by_age.iter().map(|&(first, _)| self.head_bytes - first)
    }

    /// Appends a piece of a zone.
    pub(super) fn append(&mut self, zone: ZoneId, length_bytes: u64) {
        self.insert(zone, self.head_bytes);
        self.head_bytes = self.head_bytes.saturating_add(length_bytes);
    }

    /// Adds a zone that a report shows in the cache without a known piece: it was in order at the last report.
    pub(super) fn insert_since_last_report(&mut self, zone: ZoneId) {
        self.insert(zone, self.reported_bytes);
    }

    fn insert(&mut self, zone: ZoneId, position: u64) {
        if let Entry::Vacant(first) = self.first.entry(zone) {
            first.insert(position);
            self.by_age.insert((position, zone));
        }
    }

    /// Moves the first piece of a zone back to `position`, where the zone is in the log.
    pub(super) fn extend_back(&mut self, zone: ZoneId, position: u64) {
        if self.first.get(&zone).is_some_and(|&first| position < first) {
            self.remove(zone);
            self.insert(zone, position);
        }
    }

    /// Removes a zone that was cleaned.
    pub(super) fn remove(&mut self, zone: ZoneId) {
        if let Some(first) = self.first.remove(&zone) {
            self.by_age.remove(&(first, zone));
        }
    }

    /// Follows a report of all zones.
    pub(super) fn reported(&mut self) {
        self.reported_bytes = self.head_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ZoneId = ZoneId(1);
    const TWO: ZoneId = ZoneId(2);
    const THREE: ZoneId = ZoneId(3);

    #[test]
    fn space_comes_back_at_the_tail() {
        let mut log = CachedLog::default();
        log.append(ONE, 10);
        log.append(TWO, 60);
        log.append(THREE, 20);
        assert_eq!(log.occupied_bytes(), 90);
        log.remove(TWO);
        assert_eq!((log.occupied_bytes(), log.pinned_bytes(TWO)), (90, 0));
        log.append(TWO, 10);
        log.append(ONE, 5);
        log.remove(ONE);
        assert_eq!([ONE, TWO, THREE].map(|zone| log.pinned_bytes(zone)), [0, 15, 35]);
        assert_eq!(log.occupied_bytes(), 35);
        log.remove(THREE);
        log.remove(TWO);
        assert_eq!(log.occupied_bytes(), 0);
    }

    #[test]
    fn an_unknown_zone_pins_the_log_from_the_last_report_on() {
        let mut log = CachedLog::default();
        log.append(ONE, 10);
        log.reported();
        log.append(TWO, 30);
        log.insert_since_last_report(THREE);
        log.insert_since_last_report(ONE);
        assert_eq!([ONE, TWO, THREE].map(|zone| log.pinned_bytes(zone)), [40, 30, 30]);
        log.extend_back(TWO, 25);
        log.extend_back(TWO, 39);
        log.extend_back(ZoneId(9), 0);
        assert_eq!((log.pinned_bytes(TWO), log.pinned_bytes(ZoneId(9))), (30, 0));
        log.extend_back(TWO, 5);
        log.remove(ONE);
        assert_eq!(log.occupied_bytes(), 35);
    }
}
