//! The zones that several tables share: who has what in each, and how far each is written.
//!
//! Pure bookkeeping. A zone is *written* by one table at a time, and *open* when nobody writes it and another may go on in it; it
//! is *closed* when it is full, was finished, or is not to be written any more. It is free when it is not written and no table has
//! it. Bytes are those of whole units: what a table does not fill of its last one nobody gains by copying it. A table *has* a zone from when it takes it until it is gone and nobody reads it; what it has *lives* as long as it has a name.

use super::lifetimes::Lifetimes;
use super::sharing::{ClosedZone, Need, OpenZone, is_worth};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Written,
    Open,
    Closed,
}

#[derive(Debug)]
struct PoolZone {
    phase: Phase,
    written_bytes: u64,
    live_bytes: u64,
    has_copies: bool,
    /// Bytes that each table has in it; 0 of those that lost their names.
    owners: BTreeMap<u64, u64>,
}

/// A table that shares zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PooledTable {
    pub(super) level: Option<u8>,
    /// When it was made, by the clock of lifetimes.
    pub(super) born_bytes: u64,
    /// Bytes that it has in all zones.
    pub(super) size_bytes: u64,
}

/// What became of a zone that a table does not have any more, or that is not written any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Others have it.
    Kept,
    /// Nobody has it. It may still count as active.
    Free,
}

#[derive(Debug, Default)]
pub(super) struct Pool {
    zone_bytes: u64,
    zones: BTreeMap<u32, PoolZone>,
    /// Tables that have names, by number of the file.
    tables: BTreeMap<u64, PooledTable>,
    live_bytes: u64,
}

impl Pool {
    pub(super) fn new(zone_bytes: u64) -> Pool {
        Pool { zone_bytes, ..Pool::default() }
    }

    pub(super) fn has(&self, band: u32) -> bool {
        self.zones.contains_key(&band)
    }

    pub(super) fn zones(&self) -> u64 {
        self.zones.len() as u64
    }

    pub(super) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Bytes in which nothing lives, of zones in which something does: others are free soon.
    pub(super) fn waste_bytes(&self) -> u64 {
        let zones = self.zones.values().filter(|zone| zone.live_bytes > 0).count() as u64;
        zones.saturating_mul(self.zone_bytes).saturating_sub(self.live_bytes)
    }

    /// All of its zones.
    pub(super) fn bands(&self) -> impl Iterator<Item = u32> {
        self.zones.keys().copied()
    }

    /// How many have a zone.
    pub(super) fn owners(&self, band: u32) -> usize {
        self.zones.get(&band).map_or(0, |zone| zone.owners.len())
    }

    pub(super) fn is_written(&self, band: u32) -> bool {
        self.zones.get(&band).is_some_and(|zone| zone.phase == Phase::Written)
    }

    /// A zone that was found with so many bytes in it.
    pub(super) fn found(&mut self, band: u32, written_bytes: u64) {
        let zone =
            PoolZone { phase: Phase::Closed, written_bytes, live_bytes: 0, has_copies: false, owners: BTreeMap::new() };
        self.zones.insert(band, zone);
    }

    /// A table begins an empty zone.
    pub(super) fn begin(&mut self, band: u32, file: u64, is_copy: bool) {
        let owners = BTreeMap::from([(file, 0)]);
        let zone = PoolZone { phase: Phase::Written, written_bytes: 0, live_bytes: 0, has_copies: is_copy, owners };
        self.zones.insert(band, zone);
    }

    /// A table goes on in a zone that is open: behind so many bytes. `None` when it is not open.
    pub(super) fn join(&mut self, band: u32, file: u64) -> Option<u64> {
        let zone = self.zones.get_mut(&band).filter(|zone| zone.phase == Phase::Open)?;
        zone.phase = Phase::Written;
        zone.owners.entry(file).or_insert(0);
        Some(zone.written_bytes)
    }

    /// Somebody closes a zone that is open: nobody else may have it until that is done. How many bytes of it are written.
    pub(super) fn hold(&mut self, band: u32) -> Option<u64> {
        let zone = self.zones.get_mut(&band).filter(|zone| zone.phase == Phase::Open)?;
        zone.phase = Phase::Written;
        Some(zone.written_bytes)
    }

    /// A table has a name, and what it is like.
    pub(super) fn note_table(&mut self, file: u64, level: Option<u8>, born_bytes: u64) {
        self.tables.entry(file).or_insert(PooledTable { level, born_bytes, size_bytes: 0 });
    }

    /// What is known of a table.
    pub(super) fn table_mut(&mut self, file: u64) -> Option<&mut PooledTable> {
        self.tables.get_mut(&file)
    }

    /// A table has so many bytes more in a zone, which ends behind `written_bytes`.
    pub(super) fn wrote(&mut self, band: u32, file: u64, bytes: u64, written_bytes: u64) {
        let Some(zone) = self.zones.get_mut(&band) else { return };
        zone.written_bytes = zone.written_bytes.max(written_bytes);
        let owned = zone.owners.entry(file).or_insert(0);
        let Some(table) = self.tables.get_mut(&file) else { return };
        *owned += bytes;
        zone.live_bytes += bytes;
        table.size_bytes += bytes;
        self.live_bytes += bytes;
    }

    /// A zone is not written any more, and another table may go on in it.
    pub(super) fn stop(&mut self, band: u32, written_bytes: u64) -> Left {
        if let Some(zone) = self.zones.get_mut(&band) {
            zone.written_bytes = zone.written_bytes.max(written_bytes);
        }
        self.leave(band, Phase::Open)
    }

    /// A zone is never written again before it is free.
    pub(super) fn close(&mut self, band: u32) -> Left {
        self.leave(band, Phase::Closed)
    }

    fn leave(&mut self, band: u32, phase: Phase) -> Left {
        let Some(zone) = self.zones.get_mut(&band) else { return Left::Kept };
        zone.phase = phase;
        self.free_if_left(band)
    }

    fn free_if_left(&mut self, band: u32) -> Left {
        let is_left = |zone: &PoolZone| zone.owners.is_empty() && zone.phase != Phase::Written;
        if !self.zones.get(&band).is_some_and(is_left) {
            return Left::Kept;
        }
        self.zones.remove(&band);
        Left::Free
    }

    /// A table has a zone no more.
    pub(super) fn disown(&mut self, band: u32, file: u64) -> Left {
        let Some(zone) = self.zones.get_mut(&band) else { return Left::Kept };
        let bytes = zone.owners.remove(&file).unwrap_or(0);
        zone.live_bytes -= bytes;
        self.live_bytes -= bytes;
        self.free_if_left(band)
    }

    /// A table lost its name: nothing of what it has in these zones lives.
    pub(super) fn lost(&mut self, file: u64, bands: impl Iterator<Item = u32>) {
        self.tables.remove(&file);
        for band in bands {
            let Some(zone) = self.zones.get_mut(&band) else { continue };
            let Some(owned) = zone.owners.get_mut(&file) else { continue };
            let bytes = std::mem::take(owned);
            zone.live_bytes -= bytes;
            self.live_bytes -= bytes;
        }
    }

    /// Zones that are partly filled and that nobody writes.
    pub(super) fn open_zones(&self, lifetimes: &Lifetimes) -> Vec<OpenZone> {
        let open = self.zones.iter().filter(|(_, zone)| zone.phase == Phase::Open);
        open.map(|(band, zone)| {
            let lives = self.lives(zone, lifetimes);
            let (sum, count) = lives.fold((0u128, 0u128), |(sum, count), life| (sum + u128::from(life), count + 1));
            OpenZone {
                band: *band,
                free_bytes: self.zone_bytes.saturating_sub(zone.written_bytes),
                remaining_bytes: (sum / count.max(1)) as u64,
                has_copies: zone.has_copies,
            }
        })
        .collect()
    }

    fn live_tables<'a>(&'a self, zone: &'a PoolZone) -> impl Iterator<Item = (u64, &'a PooledTable)> + use<'a> {
        zone.owners.keys().filter_map(|file| self.tables.get(file).map(|table| (*file, table)))
    }

    fn lives<'a>(&'a self, zone: &'a PoolZone, lifetimes: &'a Lifetimes) -> impl Iterator<Item = u64> + use<'a> {
        self.live_tables(zone).map(|(_, table)| lifetimes.remaining_bytes(table.level, table.born_bytes))
    }

    /// Zones to which nothing more is written, and that are worth being emptied.
    pub(super) fn closed_zones(&self, lifetimes: &Lifetimes, need: Need) -> Vec<ClosedZone> {
        let candidates = self.zones.iter().filter(|(_, zone)| {
            zone.phase == Phase::Closed && zone.live_bytes > 0 && is_worth(zone.live_bytes, self.zone_bytes, need)
        });
        candidates
            .map(|(band, zone)| ClosedZone {
                band: *band,
                live_bytes: zone.live_bytes,
                copy_bytes: self.live_tables(zone).map(|(_, table)| table.size_bytes).sum(),
                remaining_bytes: self.lives(zone, lifetimes).max().unwrap_or(1),
            })
            .collect()
    }

    /// Numbers of the tables of a zone that have names.
    pub(super) fn tables_of(&self, band: u32) -> Vec<u64> {
        self.zones.get(&band).map_or_else(Vec::new, |zone| self.live_tables(zone).map(|(file, _)| file).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetimes() -> Lifetimes {
        Lifetimes::new(1000, 0)
    }

    #[test]
    fn a_zone_is_free_when_nobody_writes_it_and_nobody_has_it() {
        let mut pool = Pool::new(1000);
        pool.begin(3, 1, false);
        pool.note_table(1, Some(0), 0);
        pool.wrote(3, 1, 290, 300);
        assert_eq!(pool.join(3, 2), None, "one at a time");
        assert_eq!(pool.stop(3, 300), Left::Kept);
        assert_eq!(pool.join(3, 2), Some(300));
        pool.note_table(2, Some(0), 0);
        pool.wrote(3, 2, 100, 400);
        assert_eq!((pool.live_bytes(), pool.owners(3)), (390, 2));
        // It lost its name, and somebody still reads it.
        pool.lost(1, [3].into_iter());
        assert_eq!((pool.live_bytes(), pool.owners(3), pool.tables_of(3)), (100, 2, vec![2]));
        assert_eq!(pool.disown(3, 1), Left::Kept);
        pool.lost(2, [3].into_iter());
        // It is still written, by one that has no name.
        pool.wrote(3, 2, 50, 500);
        assert_eq!((pool.disown(3, 2), pool.live_bytes()), (Left::Kept, 0));
        assert_eq!(pool.stop(3, 500), Left::Free);
        assert!(!pool.has(3));
    }

    #[test]
    fn a_zone_that_somebody_closes_is_nobodys_meanwhile() {
        let mut pool = Pool::new(1000);
        pool.begin(3, 1, false);
        pool.wrote(3, 1, 290, 300);
        assert_eq!(pool.hold(3), None);
        pool.stop(3, 300);
        assert_eq!(pool.hold(3), Some(300));
        assert_eq!((pool.join(3, 2), pool.open_zones(&lifetimes()).len()), (None, 0));
        // All that it had goes meanwhile: who closes it finds out.
        assert_eq!(pool.disown(3, 1), Left::Kept);
        assert_eq!(pool.close(3), Left::Free);
    }

    #[test]
    fn zones_live_as_long_as_their_tables() {
        let mut pool = Pool::new(1000);
        for (file, level) in [(1, 0), (2, 1)] {
            pool.note_table(file, Some(level), 0);
        }
        pool.begin(3, 1, false);
        pool.wrote(3, 1, 300, 300);
        pool.stop(3, 300);
        assert_eq!(pool.join(3, 2), Some(300));
        pool.wrote(3, 2, 200, 500);
        pool.stop(3, 500);
        let open = OpenZone { band: 3, free_bytes: 500, remaining_bytes: (1000 + 10_000) / 2, has_copies: false };
        assert_eq!(pool.open_zones(&lifetimes()), [open]);
        assert_eq!(pool.closed_zones(&lifetimes(), Need::Space), []);
        // The second goes on in another zone: to empty the first all of it is copied.
        pool.begin(4, 2, true);
        pool.wrote(4, 2, 100, 100);
        pool.close(3);
        let closed = ClosedZone { band: 3, live_bytes: 500, copy_bytes: 600, remaining_bytes: 10_000 };
        assert_eq!(pool.closed_zones(&lifetimes(), Need::None), [closed]);
        pool.stop(4, 100);
        assert!(pool.open_zones(&lifetimes())[0].has_copies);
    }
}
