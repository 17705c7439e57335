//! Cache zones, the oldest first: which blocks have copies where. Pure bookkeeping.

use super::batch::CopyEntry;
use super::index::{BlockIndex, COPY_UNIT_BYTES, CopyPlace, SLOTS_MAX, ZONE_BYTES_MAX};
use super::sample::ReadSample;
use super::sketch::{COUNT_MAX, Sketch};
use super::{BlockKey, BytesByDensity, Caching, Density, Kept, counted, density_of, is_record};
use std::collections::VecDeque;

/// Reads over which the usual size of what is read is an average.
const READS_OF_AVERAGE: u64 = 1024;

/// The usual size of what is read.
#[derive(Clone, Copy, Debug)]
struct Average {
    /// Times 2^16.
    bytes: u64,
    reads: u64,
}

impl Average {
    fn add(&mut self, bytes: u64) {
        self.reads = (self.reads + 1).min(READS_OF_AVERAGE);
        self.bytes = self.bytes - self.bytes / self.reads + (bytes.min(1 << 32) << 16) / self.reads;
    }

    fn bytes(&self) -> u64 {
        (self.bytes >> 16).max(1)
    }
}

/// Copies that a [sweep](CacheZones::sweep) looks at while others wait: about a millisecond.
pub(in crate::hybrid) const SWEPT_AT_ONCE: usize = 1 << 16;

/// A zone with copies.
struct CacheZone<R> {
    number: u64,
    slot: u16,
    /// Reads it; whoever reads keeps it.
    reader: R,
}

/// The zones of a cache, the oldest first, which blocks are in them, and how often blocks are read.
pub(in crate::hybrid) struct CacheZones<R> {
    policy: Box<dyn Caching>,
    zones: VecDeque<CacheZone<R>>,
    /// Slots that no zone has.
    slots: Vec<u16>,
    slots_given: u16,
    index: BlockIndex,
    reads: Option<(Sketch, ReadSample)>,
    zone_bytes: u64,
    average: Average,
    /// What was not admitted since copies were written last.
    refused_bytes: u64,
}

impl<R: Clone> CacheZones<R> {
    /// A cache of up to so many zones of so many bytes, with blocks of about so many.
    pub(in crate::hybrid) fn new(
        policy: Box<dyn Caching>,
        zones_max: u64,
        zone_bytes: u64,
        block_bytes: u64,
    ) -> CacheZones<R> {
        let blocks_of_zone = (zone_bytes / block_bytes.max(1)).max(1);
        let blocks = zones_max.saturating_mul(blocks_of_zone);
        let reads = policy.counts_reads();
        CacheZones {
            policy,
            zones: VecDeque::new(),
            slots: Vec::new(),
            slots_given: 0,
            index: BlockIndex::new(blocks),
            reads: reads.then(|| (Sketch::new(blocks_of_zone), ReadSample::new(zones_max, blocks_of_zone))),
            zone_bytes,
            average: Average { bytes: block_bytes << 16, reads: 0 },
            refused_bytes: 0,
        }
    }

    pub(in crate::hybrid) fn len(&self) -> usize {
        self.zones.len()
    }

    /// Copies in all zones.
    pub(in crate::hybrid) fn blocks(&self) -> u64 {
        self.index.len()
    }

    /// Bytes of memory for what is known of copies.
    pub(in crate::hybrid) fn memory_bytes(&self) -> u64 {
        self.index.memory_bytes() + self.reads.as_ref().map_or(0, |(sketch, _)| sketch.memory_bytes())
    }

    /// How often a block or record was read lately.
    pub(in crate::hybrid) fn count(&self, key: BlockKey) -> u8 {
        self.reads.as_ref().map_or(0, |(sketch, _)| sketch.count(counted(key)))
    }

    /// The usual size of what is read.
    pub(in crate::hybrid) fn usual_bytes(&self) -> u64 {
        self.average.bytes()
    }

    /// A user reads so many bytes of the slow tier, wherever they are found.
    pub(in crate::hybrid) fn read_bytes(&mut self, bytes: u64) {
        self.average.add(bytes);
        if let Some((_, sample)) = &mut self.reads {
            sample.set_blocks_of_zone(self.zone_bytes / self.average.bytes());
        }
    }

    /// A user reads a block of the slow tier, wherever it is found. It [was told](Self::inherit) how that was written, or not.
    pub(in crate::hybrid) fn read(&mut self, key: BlockKey, is_known: bool) {
        if let Some((_, sample)) = &mut self.reads {
            sample.read(counted(key), is_known);
        }
        self.read_for_record(key);
    }

    /// The same of one that is read for a record which is not there alone: what another zone would be worth is known by the record.
    pub(in crate::hybrid) fn read_for_record(&mut self, key: BlockKey) {
        if let Some((sketch, _)) = &mut self.reads
            && sketch.read(counted(key))
        {
            self.policy.counts_were_halved();
        }
    }

    /// A block was written with entries of others, each with how many of it came from there: it will be read as they were. Whether
    /// it is to be kept.
    pub(in crate::hybrid) fn inherit(
        &mut self,
        key: BlockKey,
        origins: &[(BlockKey, u32)],
        entries: u64,
        length_bytes: usize,
    ) -> bool {
        let Some((sketch, sample)) = &mut self.reads else { return false };
        let read =
            |(origin, entries): &(BlockKey, u32)| u64::from(sketch.count(counted(*origin))) * u64::from(*entries);
        let reads: u64 = origins.iter().map(read).sum();
        let count = (reads + entries / 2) / entries.max(1);
        let (hash, count) = (counted(key), count.min(u64::from(COUNT_MAX)) as u8);
        sketch.raise(hash, count);
        sample.replace(hash, entries, origins.iter().map(|(origin, entries)| (counted(*origin), *entries)));
        self.wants(key, length_bytes)
    }

    /// Whether a block of so many bytes that was evicted is to be kept, and is not.
    pub(in crate::hybrid) fn wants(&mut self, key: BlockKey, length_bytes: usize) -> bool {
        let is_admitted = self.policy.admits(density_of(self.count(key), length_bytes));
        !self.contains(key) && self.note(is_admitted, length_bytes)
    }

    /// Notes whether what is not there is admitted; says it again.
    fn note(&mut self, is_admitted: bool, length_bytes: usize) -> bool {
        self.refused_bytes += if is_admitted { 0 } else { length_bytes as u64 };
        if self.refused_bytes >= self.zone_bytes {
            self.refused_bytes = 0;
            self.policy.too_little_comes();
        }
        is_admitted
    }

    /// Whether a record of so many bytes that was read elsewhere is to be kept.
    pub(in crate::hybrid) fn wants_record(&mut self, key: BlockKey, length_bytes: usize) -> bool {
        let is_admitted = self.admits_record(key, length_bytes);
        self.note(is_admitted, length_bytes)
    }

    /// Whether a record of so many bytes is read enough for its bytes.
    pub(in crate::hybrid) fn admits_record(&self, key: BlockKey, length_bytes: usize) -> bool {
        let count = self.count(key);
        count > 0 && self.policy.admits_record(count, density_of(count, length_bytes))
    }

    /// Whether there seems to be a copy; of a record, of any version.
    pub(in crate::hybrid) fn contains(&self, key: BlockKey) -> bool {
        self.index.contains(counted(key))
    }

    /// Copies of a record are of no more use.
    pub(in crate::hybrid) fn forget(&mut self, key: BlockKey) {
        self.index.remove_all(counted(key));
    }

    /// Whether a copy at a place of a zone is one that is known.
    pub(in crate::hybrid) fn knows(&self, zone: u64, at_bytes: u64, key: BlockKey) -> bool {
        let Some(slot) = self.slot_of(zone) else {
            return false;
        };
        let is_it = |place: CopyPlace| place.slot == slot && u64::from(place.unit) == at_bytes / COPY_UNIT_BYTES;
        self.index.find(counted(key)).any(is_it)
    }

    /// Where copies of a block may be: who reads one finds out whether it is.
    pub(in crate::hybrid) fn find(&self, key: BlockKey) -> Vec<(R, u64)> {
        let place = |place: CopyPlace| {
            let zone = self.zones.iter().find(|zone| zone.slot == place.slot)?;
            Some((zone.reader.clone(), u64::from(place.unit) * COPY_UNIT_BYTES))
        };
        self.index.find(counted(key)).filter_map(place).collect()
    }

    /// The slot of a zone that is known.
    fn slot_of(&self, zone: u64) -> Option<u16> {
        self.zones.iter().find(|known| known.number == zone).map(|zone| zone.slot)
    }

    fn slot(&mut self) -> Option<u16> {
        if self.slots.is_empty() && self.slots_given == SLOTS_MAX {
            // There are thousands: what is gone is swept long before they are needed.
            self.sweep(usize::MAX);
        }
        if self.slots.is_empty() && self.slots_given < SLOTS_MAX {
            self.slots_given += 1;
            return Some(self.slots_given);
        }
        self.slots.pop()
    }

    /// A new zone is the youngest. False when there are too many to tell apart.
    pub(in crate::hybrid) fn begin(&mut self, number: u64, reader: R) -> bool {
        let Some(slot) = self.slot() else { return false };
        self.zones.push_back(CacheZone { number, slot, reader });
        true
    }

    /// A zone that was there before all others is the oldest. False when there are too many to tell apart.
    pub(in crate::hybrid) fn begin_oldest(&mut self, number: u64, reader: R) -> bool {
        let Some(slot) = self.slot() else { return false };
        self.zones.push_front(CacheZone { number, slot, reader });
        true
    }

    /// One more zone is had than before: nothing has to go for what comes.
    pub(in crate::hybrid) fn grew(&mut self) {
        self.policy.zone_was_added(self.first_read());
    }

    /// How dense is what is read for the first time, be it somewhat larger than usual.
    fn first_read(&self) -> Density {
        let bytes = self.average.bytes();
        density_of(1, (bytes + bytes / 4) as usize)
    }

    /// The oldest zone that is not the youngest: its number, and what reads it.
    pub(in crate::hybrid) fn oldest(&self) -> Option<(u64, R)> {
        let oldest = self.zones.front().filter(|_| self.zones.len() > 1)?;
        Some((oldest.number, oldest.reader.clone()))
    }

    /// A batch with copies was written to a zone. A record has one copy: that in the youngest zone, and there the last.
    pub(in crate::hybrid) fn add(&mut self, zone: u64, batch_offset_bytes: u64, entries: &[CopyEntry]) {
        let Some(slot) = self.slot_of(zone) else { return };
        let is_youngest = self.zones.back().is_some_and(|youngest| youngest.number == zone);
        for entry in entries {
            let at = batch_offset_bytes + entry.offset_bytes;
            if at >= ZONE_BYTES_MAX {
                continue;
            }
            let hash = counted(entry.key);
            if is_record(entry.key) {
                if is_youngest {
                    self.index.remove_all(hash);
                } else if self.index.contains(hash) {
                    continue;
                }
            }
            self.index.insert(hash, CopyPlace { slot, unit: (at / COPY_UNIT_BYTES) as u32 });
            if let Some((sketch, _)) = &mut self.reads {
                sketch.raise(counted(entry.key), entry.count);
            }
        }
        self.refused_bytes = 0;
        if let Some((sketch, _)) = &mut self.reads
            && sketch.grow(self.index.len())
        {
            self.policy.counts_were_halved();
        }
    }

    /// A copy at a place of a zone is none any more. False when it was not: its block has another one, or none.
    pub(in crate::hybrid) fn remove(&mut self, zone: u64, at_bytes: u64, key: BlockKey) -> bool {
        let Some(slot) = self.slot_of(zone) else {
            return false;
        };
        let unit = u32::try_from(at_bytes / COPY_UNIT_BYTES);
        unit.is_ok_and(|unit| self.index.remove(counted(key), CopyPlace { slot, unit }))
    }

    /// Which copies of a zone that goes are written again, of so many bytes by how much they are read, into so much space.
    pub(in crate::hybrid) fn keep(&mut self, bytes_by_density: &BytesByDensity, space_bytes: u64) -> Kept {
        self.policy.keep(bytes_by_density, space_bytes, self.first_read())
    }

    /// Forgets a zone and what is in it.
    pub(in crate::hybrid) fn drop_zone(&mut self, number: u64) -> bool {
        let Some(at) = self.zones.iter().position(|zone| zone.number == number) else { return false };
        if let Some(zone) = self.zones.remove(at) {
            self.index.remove_zone(zone.slot);
        }
        true
    }

    /// Goes on taking away what is known of copies in zones that are gone: of so many of all copies, about. True when there is
    /// more.
    pub(in crate::hybrid) fn sweep(&mut self, entries_max: usize) -> bool {
        self.index.sweep(entries_max, &mut self.slots);
        self.index.has_gone()
    }

    /// Forgets the oldest zone and its copies; says its number.
    pub(in crate::hybrid) fn drop_oldest(&mut self) -> Option<u64> {
        let number = self.zones.front()?.number;
        self.drop_zone(number).then_some(number)
    }

    /// Reads that the zone of each rank would have answered since this was last asked; none where nobody counts.
    pub(in crate::hybrid) fn take_hits(&mut self) -> Vec<u64> {
        self.reads.as_mut().map_or_else(Vec::new, |(_, sample)| sample.take_hits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hybrid::caching::CachingName;

    fn entries(file: u64, blocks: std::ops::Range<u64>) -> Vec<CopyEntry> {
        let entry =
            |block| CopyEntry { key: (file, block * 100), length_bytes: 100, count: 0, offset_bytes: block * 112 };
        blocks.map(entry).collect()
    }

    #[test]
    fn the_oldest_zone_goes_with_its_copies() {
        let mut zones = CacheZones::new(CachingName::Fifo.policy().expect("a policy"), 4, 100 * 4096, 4096);
        zones.add(7, 0, &entries(1, 0..2));
        assert_eq!((zones.drop_oldest(), zones.len(), zones.blocks()), (None, 0, 0));
        assert!(zones.begin(7, "first"));
        assert_eq!(zones.oldest(), None, "the youngest is written");
        zones.add(7, 0, &entries(1, 0..2));
        assert!(zones.begin(8, "second"));
        zones.add(8, 1600, &entries(2, 0..1));
        assert_eq!((zones.len(), zones.blocks()), (2, 3));
        assert_eq!(zones.find((1, 100)), [("first", 112)]);
        assert_eq!(zones.find((2, 0)), [("second", 1600)]);
        assert!(!zones.wants((2, 0), 4000) && zones.wants((2, 100), 4000));
        assert_eq!(zones.oldest(), Some((7, "first")));
        // A copy that is written again is found there.
        assert!(zones.remove(7, 112, (1, 100)) && !zones.remove(7, 112, (1, 100)));
        zones.add(8, 3200, &entries(1, 1..2));
        assert_eq!(zones.drop_oldest(), Some(7));
        assert_eq!(zones.find((1, 0)), []);
        assert_eq!(zones.find((1, 100)), [("second", 3200 + 112)]);
        assert!(zones.begin(9, "third"));
        assert!(!zones.sweep(usize::MAX) && zones.begin(10, "fourth"));
        assert_eq!(zones.find((1, 0)), [], "its slot is another zone's now");
        assert_eq!(zones.slots_given, 3);
        assert_eq!([(); 4].map(|()| zones.drop_oldest()), [Some(8), Some(9), Some(10), None]);
    }

    #[test]
    fn only_what_is_read_more_than_what_went_comes_in() {
        let mut zones = CacheZones::new(CachingName::Frequency.policy().expect("a policy"), 4, 1000 * 4096, 4096);
        assert!(zones.begin(1, ()));
        assert!(!zones.wants((1, 0), 4000));
        (0..3).for_each(|_| zones.read((1, 0), false));
        zones.read((1, 100), false);
        assert!(zones.wants((1, 0), 4000) && zones.wants((1, 100), 4000));
        let mut bytes = [0; crate::hybrid::caching::DENSITY_MAX as usize + 1];
        let once = density_of(1, 4000);
        (bytes[usize::from(once)], bytes[usize::from(density_of(3, 4000))]) = (700, 800);
        assert_eq!(zones.keep(&bytes, u64::MAX), Kept { above: once, bytes_of_equal: 512 });
        assert!(zones.wants((1, 0), 4000) && !zones.wants((1, 100), 4000));
        zones.grew();
        assert!(zones.wants((1, 100), 4000));
        // What an earlier open knew of a copy counts.
        zones.add(1, 0, &[CopyEntry { key: (5, 0), length_bytes: 8, count: 9, offset_bytes: 64 }]);
        assert_eq!(zones.count((5, 0)), 9);
    }

    #[test]
    fn a_record_has_the_copy_that_was_written_last() {
        let mut zones = CacheZones::new(CachingName::Records.policy().expect("a policy"), 4, 1000 * 4096, 4096);
        let entry = |file, label, at| CopyEntry {
            key: crate::hybrid::caching::record_key(file, label),
            length_bytes: 100,
            count: 1,
            offset_bytes: at,
        };
        let key = |file, label| entry(file, label, 0).key;
        assert!(zones.begin(1, "first"));
        zones.add(1, 0, &[entry(1, 5, 0), entry(1, 6, 112), entry(2, 5, 224)]);
        assert_eq!((zones.find(key(2, 5)), zones.blocks()), (vec![("first", 224)], 2));
        assert!(zones.begin(2, "second"));
        zones.add(2, 0, &[entry(3, 6, 0)]);
        // Whichever version is asked for: who reads the copy sees whether it is that.
        assert_eq!((zones.find(key(1, 6)), zones.blocks()), (vec![("second", 0)], 2));
        assert!(zones.knows(2, 0, key(3, 6)) && !zones.knows(1, 112, key(1, 6)) && !zones.knows(9, 0, key(3, 6)));
        assert!(!zones.remove(1, 112, key(1, 6)));
        // Of zones that an earlier open left the youngest is loaded first.
        assert!(zones.begin_oldest(3, "left"));
        zones.add(3, 0, &[entry(0, 6, 0), entry(0, 7, 112)]);
        assert_eq!((zones.find(key(0, 6)), zones.find(key(0, 7))), (vec![("second", 0)], vec![("left", 112)]));
        zones.forget(key(0, 7));
        assert_eq!((zones.find(key(0, 7)), zones.blocks()), (vec![], 2));
    }

    /// Issue: no more than 16 bytes of memory to a cached block.
    #[test]
    fn a_copy_takes_no_more_than_sixteen_bytes_of_memory() {
        let mut zones = CacheZones::new(CachingName::Frequency.policy().expect("a policy"), 20, 20_000 * 4096, 4096);
        for zone in 0..20 {
            assert!(zones.begin(zone, ()));
            (0..20).for_each(|batch| {
                zones.add(zone, batch * 1_200_000, &entries(zone + 1, batch * 1000..(batch + 1) * 1000))
            });
            let of_copy = zones.memory_bytes() as f64 / zones.blocks() as f64;
            assert!(of_copy <= 16.0, "{of_copy} bytes with {} zones", zone + 1);
        }
        // One zone takes the place of another, while what is known of that is swept as batches are written.
        for zone in 20..60 {
            assert!(zones.drop_zone(zone - 20) && zones.begin(zone, ()));
            for batch in 0..20 {
                zones.add(zone, batch * 1_200_000, &entries(zone + 1, batch * 1000..(batch + 1) * 1000));
                zones.sweep(SWEPT_AT_ONCE);
            }
            let of_copy = zones.memory_bytes() as f64 / zones.blocks() as f64;
            assert!(of_copy <= 16.0, "{of_copy} bytes with zone {zone}");
        }
    }
}
