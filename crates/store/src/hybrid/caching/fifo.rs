//! Cache zones, first in, first out (HHZS, section 3.5). Pure bookkeeping.

use super::BlockKey;
use std::collections::{BTreeMap, VecDeque};

/// A block in a cache zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    zone: u64,
    offset_bytes: u64,
    length_bytes: u32,
}

/// A zone with blocks.
struct CacheZone<R> {
    number: u64,
    /// Reads it; whoever reads keeps it.
    reader: R,
    blocks: Vec<BlockKey>,
}

/// The zones of a cache, the oldest first, and which blocks are in them.
pub(in crate::hybrid) struct CacheZones<R> {
    zones: VecDeque<CacheZone<R>>,
    places: BTreeMap<BlockKey, Place>,
}

impl<R> Default for CacheZones<R> {
    fn default() -> Self {
        CacheZones { zones: VecDeque::new(), places: BTreeMap::new() }
    }
}

impl<R: Clone> CacheZones<R> {
    pub(in crate::hybrid) fn len(&self) -> usize {
        self.zones.len()
    }

    /// Blocks in all zones.
    #[cfg(test)]
    pub(in crate::hybrid) fn blocks(&self) -> usize {
        self.places.len()
    }

    pub(in crate::hybrid) fn contains(&self, key: BlockKey) -> bool {
        self.places.contains_key(&key)
    }

    /// Where so many bytes of a block are; none where it has fewer.
    pub(in crate::hybrid) fn find(&self, key: BlockKey, length_bytes: usize) -> Option<(R, u64)> {
        let place = self.places.get(&key).filter(|place| place.length_bytes as usize >= length_bytes)?;
        let zone = self.zones.iter().find(|zone| zone.number == place.zone)?;
        Some((zone.reader.clone(), place.offset_bytes))
    }

    /// A new zone is the youngest.
    pub(in crate::hybrid) fn begin(&mut self, number: u64, reader: R) {
        self.zones.push_back(CacheZone { number, reader, blocks: Vec::new() });
    }

    /// Blocks were written to the youngest zone, one after the other.
    pub(in crate::hybrid) fn add(&mut self, mut offset_bytes: u64, keys: &[(BlockKey, u32)]) {
        let Some(zone) = self.zones.back_mut() else { return };
        for (key, length_bytes) in keys {
            let place = Place { zone: zone.number, offset_bytes, length_bytes: *length_bytes };
            self.places.insert(*key, place);
            zone.blocks.push(*key);
            offset_bytes += u64::from(*length_bytes);
        }
    }

    /// Forgets the oldest zone and its blocks; says its number.
    pub(in crate::hybrid) fn drop_oldest(&mut self) -> Option<u64> {
        let zone = self.zones.pop_front()?;
        for key in &zone.blocks {
            if self.places.get(key).is_some_and(|place| place.zone == zone.number) {
                self.places.remove(key);
            }
        }
        Some(zone.number)
    }

    /// Forgets the blocks of a file that is gone.
    pub(in crate::hybrid) fn forget(&mut self, file: u64) {
        let keys: Vec<BlockKey> = self.places.range((file, 0)..=(file, u64::MAX)).map(|(key, _)| *key).collect();
        keys.iter().for_each(|key| {
            self.places.remove(key);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_zone_goes_with_its_blocks() {
        let mut zones = CacheZones::default();
        zones.add(0, &[((1, 0), 10)]);
        assert_eq!((zones.drop_oldest(), zones.len()), (None, 0));
        zones.begin(7, "first");
        zones.add(0, &[((1, 0), 10), ((1, 10), 20)]);
        zones.begin(8, "second");
        zones.add(100, &[((2, 0), 30), ((1, 0), 10)]);
        assert_eq!((zones.len(), zones.blocks()), (2, 3));
        assert_eq!(zones.find((1, 10), 20), Some(("first", 10)));
        assert_eq!(zones.find((1, 10), 21), None);
        assert_eq!(zones.find((1, 0), 10), Some(("second", 130)));
        assert_eq!(zones.drop_oldest(), Some(7));
        assert_eq!(zones.find((1, 10), 1), None);
        assert_eq!(zones.find((1, 0), 10), Some(("second", 130)), "it was written again");
        zones.forget(2);
        assert!(!zones.contains((2, 0)) && zones.contains((1, 0)));
        assert_eq!((zones.drop_oldest(), zones.blocks(), zones.drop_oldest()), (Some(8), 0, None));
    }
}
