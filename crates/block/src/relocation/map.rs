//! Which zone of the device each logical zone is in.

use varve_media::{ZoneGeometry, ZoneId};

/// Zones that the journal takes: the last two of the device.
pub(super) const JOURNAL_ZONES: u32 = 2;

/// A zone that no logical one is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spare {
    pub(super) zone: ZoneId,
    /// Nothing was written to it since its last reset.
    pub(super) is_empty: bool,
}

/// The zones of a device that are not the journal's: each is one logical zone, or a spare.
///
/// Conventional zones, which lie at the start, stay where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ZoneMap {
    zones: Vec<ZoneId>,
    spares: Vec<Spare>,
    conventional_zones: u32,
}

impl ZoneMap {
    /// That of a device to which nothing was written; `None` where there are too few zones.
    pub(super) fn new(geometry: &ZoneGeometry, spares: u32) -> Option<ZoneMap> {
        let taken = spares.checked_add(JOURNAL_ZONES)?;
        // One at least that can be moved.
        let logical = geometry.sequential_zones().checked_sub(taken).filter(|&left| left > 0 && spares > 0)?;
        let logical = geometry.conventional_zones + logical;
        let zones = (0..logical).map(ZoneId).collect();
        let spares = (logical..logical + spares).map(|zone| Spare { zone: ZoneId(zone), is_empty: false });
        Some(ZoneMap { zones, spares: spares.collect(), conventional_zones: geometry.conventional_zones })
    }

    /// That of a device that holds nothing: the spares come first, for what is moved to them must not be far from where a device that is
    /// not full has its data. A disk serves what is near before what is far, again and again.
    pub(super) fn of_blank(geometry: &ZoneGeometry, spares: u32) -> Option<ZoneMap> {
        let conventional = geometry.conventional_zones;
        let logical = ZoneMap::new(geometry, spares)?.len();
        let moved = |zone: u32| if zone < conventional { zone } else { zone + spares };
        let zones = (0..logical).map(|zone| ZoneId(moved(zone))).collect();
        let spares = (conventional..conventional + spares).map(|zone| Spare { zone: ZoneId(zone), is_empty: false });
        Some(ZoneMap { zones, spares: spares.collect(), conventional_zones: conventional })
    }

    /// The map with these zones, in the order of the logical ones. The error says what is wrong with it.
    pub(super) fn of(geometry: &ZoneGeometry, zones: Vec<ZoneId>) -> Result<ZoneMap, String> {
        let usable = geometry.zone_count.saturating_sub(JOURNAL_ZONES);
        let mut is_taken = vec![false; usable as usize];
        for (logical, zone) in zones.iter().enumerate() {
            let Some(taken) = is_taken.get_mut(zone.0 as usize) else {
                return Err(format!("logical zone {logical} in zone {zone}"));
            };
            if std::mem::replace(taken, true) {
                return Err(format!("two logical zones in zone {zone}"));
            }
            let is_conventional = |zone: u32| zone < geometry.conventional_zones;
            if (is_conventional(zone.0) || is_conventional(logical as u32)) && zone.0 as usize != logical {
                return Err(format!("logical zone {logical} in zone {zone}, one of them conventional"));
            }
        }
        let free = (0..usable).map(ZoneId).filter(|zone| !is_taken[zone.0 as usize]);
        let spares = free.map(|zone| Spare { zone, is_empty: false }).collect();
        Ok(ZoneMap { zones, spares, conventional_zones: geometry.conventional_zones })
    }

    /// Logical zones.
    pub(super) fn len(&self) -> u32 {
        self.zones.len() as u32
    }

    /// Where each logical zone is.
    pub(super) fn zones(&self) -> &[ZoneId] {
        &self.zones
    }

    /// Where a logical zone is.
    pub(super) fn zone(&self, logical: ZoneId) -> Option<ZoneId> {
        self.zones.get(logical.0 as usize).copied()
    }

    /// Zones to move to.
    pub(super) fn spares(&self) -> &[Spare] {
        &self.spares
    }

    /// The spare to move a zone to: the nearest, so that zones stay about where they were.
    pub(super) fn spare_for(&self, from: ZoneId) -> Option<Spare> {
        self.spares.iter().min_by_key(|spare| spare.zone.0.abs_diff(from.0)).copied()
    }

    /// Says of a spare whether it is empty.
    pub(super) fn set_empty(&mut self, zone: ZoneId, is_empty: bool) {
        self.spares.iter_mut().filter(|spare| spare.zone == zone).for_each(|spare| spare.is_empty = is_empty);
    }

    /// Takes a zone out of the spares for good.
    pub(super) fn retire(&mut self, zone: ZoneId) {
        self.spares.retain(|spare| spare.zone != zone);
    }

    /// Moves a logical zone to a spare; the one it was in becomes a spare, with its old contents. False, and nothing is
    /// changed, where it is not in `from`, is conventional, or `to` is none.
    #[must_use]
    pub(super) fn relocate(&mut self, logical: ZoneId, from: ZoneId, to: ZoneId) -> bool {
        let place = self.spares.iter().position(|spare| spare.zone == to);
        match (self.zones.get_mut(logical.0 as usize), place) {
            (Some(zone), Some(place)) if *zone == from && logical.0 >= self.conventional_zones => {
                *zone = to;
                // The newest last: of two as near the one that has been empty for longest is used.
                self.spares.remove(place);
                self.spares.push(Spare { zone: from, is_empty: false });
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> ZoneGeometry {
        ZoneGeometry { conventional_zones: 3, ..ZoneGeometry::fit(20 << 20, 1 << 20).unwrap() }
    }

    #[test]
    fn each_zone_is_one_logical_zone_or_a_spare() {
        let mut map = ZoneMap::new(&geometry(), 2).unwrap();
        assert_eq!((map.len(), map.spares().len()), (16, 2));
        assert_eq!(map.spares()[0], Spare { zone: ZoneId(16), is_empty: false });
        assert!(!map.relocate(ZoneId(5), ZoneId(6), ZoneId(16)), "it is in 5");
        assert!(!map.relocate(ZoneId(5), ZoneId(5), ZoneId(7)), "that is no spare");
        assert!(!map.relocate(ZoneId(99), ZoneId(5), ZoneId(16)));
        assert!(!map.relocate(ZoneId(0), ZoneId(0), ZoneId(16)), "that is conventional");
        assert!(map.relocate(ZoneId(5), ZoneId(5), ZoneId(16)));
        assert_eq!((map.zone(ZoneId(5)), map.spares()[1].zone), (Some(ZoneId(16)), ZoneId(5)));
        let again = ZoneMap::of(&geometry(), map.zones().to_vec()).unwrap();
        assert_eq!(again.zones(), map.zones());
        let mut spares: Vec<ZoneId> = map.spares().iter().map(|spare| spare.zone).collect();
        spares.sort();
        assert_eq!(again.spares().iter().map(|spare| spare.zone).collect::<Vec<_>>(), spares);
    }

    #[test]
    fn spares_of_a_blank_device_come_first_and_the_nearest_is_taken() {
        let mut map = ZoneMap::of_blank(&geometry(), 2).unwrap();
        assert_eq!((map.len(), map.spares().len()), (16, 2));
        assert_eq!([0, 2, 3, 15].map(|logical| map.zone(ZoneId(logical)).unwrap().0), [0, 2, 5, 17]);
        assert_eq!(map.spares().iter().map(|spare| spare.zone.0).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(map.spare_for(ZoneId(17)).unwrap().zone, ZoneId(4));
        assert!(map.relocate(ZoneId(15), ZoneId(17), ZoneId(4)));
        assert_eq!([16, 5].map(|from| map.spare_for(ZoneId(from)).unwrap().zone.0), [17, 3]);
        let again = ZoneMap::of(&geometry(), map.zones().to_vec()).unwrap();
        assert_eq!(again.zones(), map.zones());
        assert_eq!(ZoneMap::of_blank(&geometry(), 15), None);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let zones = |zones: &[u32]| ZoneMap::of(&geometry(), zones.iter().copied().map(ZoneId).collect());
        assert!(zones(&[0, 1, 2, 9, 17]).is_ok());
        for (bad, told) in [
            (&[0, 1, 2, 9, 9][..], "two logical zones in zone 9"),
            (&[0, 1, 2, 18], "logical zone 3 in zone 18"),
            (&[1, 0, 2], "conventional"),
            (&[0, 1, 4], "conventional"),
            (&[0, 1, 2, u32::MAX], "logical zone 3"),
        ] {
            assert!(zones(bad).unwrap_err().contains(told), "{bad:?}");
        }
        assert_eq!(ZoneMap::new(&geometry(), 15), None);
        assert_eq!(ZoneMap::new(&geometry(), 0), None);
        assert_eq!(ZoneMap::new(&geometry(), u32::MAX), None);
        assert_eq!(ZoneMap::new(&geometry(), 14).unwrap().len(), 4);
    }
}
