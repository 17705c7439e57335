//! Which tables share a zone, and which zone is emptied.
//!
//! Pure functions. Where tables are much smaller than zones several lie in each, one behind the other. A zone is free when the
//! last of them is gone: until then what the others had is waste. So tables should share a zone that are expected to be gone at
//! about the same time. How long that is nobody knows but from others of their level, so it is a *remaining life* in bytes
//! written to the store, and two are alike where one is no more than three times the other: the tables of a level live about ten
//! times as long as those of the level below it.
//!
//! What is left of waste is given back by *emptying* zones: what lives in one is copied elsewhere. The best one to empty saves most
//! waste, for the longest time, for the fewest bytes copied. Copies share zones with copies: what has outlived its like says
//! nothing of when it will go, and would leave holes among tables of which more is known.
//!
//! Without need no more is copied than one byte for twenty that are written, so that a device that is full of tables without
//! order is not copied round and round.

/// A zone that is partly filled, and that nobody writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenZone {
    pub(super) band: u32,
    pub(super) free_bytes: u64,
    /// Remaining life of what is in it, on average.
    pub(super) remaining_bytes: u64,
    /// What was copied out of other zones is in it.
    pub(super) has_copies: bool,
}

/// A table that is to be written, or goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewTable {
    pub(super) remaining_bytes: u64,
    /// It is a copy of one that was in another zone.
    pub(super) is_copy: bool,
}

/// Zones that nobody writes and that are kept open: one in so many of a device, ...
const OPEN_PART: usize = 32;
/// ... as many as there are levels and writers of tables of one level at a time, ...
const OPEN_ZONES_MAX: usize = 32;
/// ... and enough to tell some of them apart.
const OPEN_ZONES_MIN: usize = 3;
/// Two are expected to be gone at about the same time where one lives no more than so many times as long as the other.
const ALIKE: u64 = 3;
/// While no more than one in so many zones is empty any zone with space is taken.
const FEW_PART: usize = 64;

/// How many times as long one of two lives as the other, in 1/256.
fn ratio(one: u64, other: u64) -> u128 {
    let (short, long) = (one.min(other).max(1), one.max(other).max(1));
    u128::from(long) * 256 / u128::from(short)
}

/// Zones that nobody writes and that are kept open, at most.
pub(super) fn open_zones_max(zones: usize) -> usize {
    (zones / OPEN_PART).clamp(OPEN_ZONES_MIN, OPEN_ZONES_MAX)
}

/// The zone behind whose tables one goes; `None` when it should begin an empty zone. `empty_zones` may be taken for it, of `zones`
/// in all. Where too many zones are open the nearest has to do: closing one would waste more than a table leaves.
pub(super) fn share(table: NewTable, open: &[OpenZone], empty_zones: usize, zones: usize) -> Option<u32> {
    let distance = |zone: &OpenZone| {
        let times = ratio(zone.remaining_bytes, table.remaining_bytes);
        let is_alike = times <= u128::from(ALIKE) * 256 && zone.has_copies == table.is_copy;
        // Of those that are alike the fullest is filled up first.
        (!is_alike, zone.has_copies != table.is_copy, if is_alike { 0 } else { times }, zone.free_bytes, zone.band)
    };
    let nearest = open.iter().min_by_key(|zone| distance(zone))?;
    let (is_unlike, ..) = distance(nearest);
    let must_share = empty_zones <= zones / FEW_PART || open.len() >= open_zones_max(zones);
    (!is_unlike || must_share).then_some(nearest.band)
}

/// The zones that are open to tables that are no copies while no empty zone is left for copies: what copies have begun, or else the
/// zone with most space, is kept, or nothing could ever be emptied again.
pub(super) fn beside_copies(open: &[OpenZone]) -> Vec<OpenZone> {
    let has_copies = open.iter().any(|zone| zone.has_copies);
    let emptiest = open.iter().max_by_key(|zone| (zone.free_bytes, zone.band)).map(|zone| zone.band);
    let is_kept = |zone: &OpenZone| if has_copies { zone.has_copies } else { Some(zone.band) == emptiest };
    open.iter().filter(|zone| !is_kept(zone)).copied().collect()
}

/// Bytes that copies find whatever tables take meanwhile, with so many empty zones that copies may have. A zone is begun to be
/// emptied only when all of its tables have space: one that is half empty gives nothing back, and what was copied is space that the
/// rest needs.
pub(super) fn room_for_copies(open: &[OpenZone], empty_zones: usize, zone_bytes: u64) -> u64 {
    if empty_zones > 0 {
        // Of those tables leave one, and take what is open.
        return zone_bytes;
    }
    let left = beside_copies(open);
    open.iter().filter(|zone| !left.contains(zone)).map(|zone| zone.free_bytes).sum()
}

/// Whether, where the device lets no more zones be written, one that is open is closed for a table of so many bytes to begin another:
/// where it wastes less than the table would among others.
pub(super) fn closed_for(table_bytes: u64, open: &[OpenZone]) -> Option<u32> {
    let first = open.iter().min_by_key(|zone| (zone.free_bytes, zone.band));
    first.filter(|zone| zone.free_bytes < table_bytes).map(|zone| zone.band)
}

/// Of the zones that are open the one that is closed for somebody who shares none: with least to lose.
pub(super) fn closed_first(open: &[OpenZone]) -> Option<u32> {
    open.iter().min_by_key(|zone| (zone.free_bytes, zone.band)).map(|zone| zone.band)
}

/// A zone with tables, to which nothing more is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClosedZone {
    pub(super) band: u32,
    /// Bytes in it of tables that are not gone.
    pub(super) live_bytes: u64,
    /// Bytes that are copied to empty it: all of its tables, also what they have in other zones.
    pub(super) copy_bytes: u64,
    /// Remaining life of the table in it that lives longest.
    pub(super) remaining_bytes: u64,
}

/// Who asks for a zone to be emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nobody waits: only what is worth it.
    None,
    /// Somebody has no space there, and may have some on another device: only what is worth it.
    Worthwhile,
    /// Somebody has no space anywhere.
    Space,
}

/// What the zones of a device are filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fill {
    /// Bytes of a zone.
    pub(super) zone_bytes: u64,
    /// All zones.
    pub(super) zones: u64,
    /// Those that tables may take.
    pub(super) empty_zones: u64,
    /// Those that tables share.
    pub(super) shared_zones: u64,
    /// Bytes in those of tables that are not gone.
    pub(super) live_bytes: u64,
}

/// While more than one in so many zones is empty nothing is emptied without need: waste costs nobody anything.
const EMPTY_PART: u64 = 16;
/// Waste of one byte for so many that live is no reason to empty anything without need.
const WASTE_PART: u64 = 24;
/// A zone with less waste than one in so many bytes is not emptied without need.
const LEAST_WASTE_PART: u64 = 8;

impl Fill {
    /// Bytes of shared zones in which nothing lives.
    fn waste_bytes(&self) -> u64 {
        self.shared_zones.saturating_mul(self.zone_bytes).saturating_sub(self.live_bytes)
    }

    /// Whether a zone should be emptied.
    pub(super) fn is_due(&self, need: Need) -> bool {
        match need {
            Need::None => {
                self.empty_zones <= self.zones / EMPTY_PART && self.waste_bytes() > self.live_bytes / WASTE_PART
            }
            Need::Worthwhile | Need::Space => self.waste_bytes() >= self.zone_bytes,
        }
    }
}

/// Whether emptying a zone gains enough.
pub(super) fn is_worth(live_bytes: u64, zone_bytes: u64, need: Need) -> bool {
    let waste_bytes = zone_bytes.saturating_sub(live_bytes);
    match need {
        Need::None | Need::Worthwhile => waste_bytes >= zone_bytes / LEAST_WASTE_PART,
        Need::Space => waste_bytes > 0,
    }
}

/// The zone that is emptied next, of those that are worth it.
pub(super) fn emptied_first(zones: &[ClosedZone], zone_bytes: u64) -> Option<u32> {
    // Waste times how long it would stay, for each byte that is copied. In 128 bits: sizes of zones have fewer than 40.
    let worth = |zone: &ClosedZone| {
        let waste_bytes = u128::from(zone_bytes.saturating_sub(zone.live_bytes));
        let saved = (waste_bytes >> 4).max(1) * u128::from(zone.remaining_bytes.clamp(1, 1 << 52));
        saved * 64 / (u128::from(zone.copy_bytes) >> 4).max(1)
    };
    let best = zones.iter().reduce(|best, zone| if worth(zone) > worth(best) { zone } else { best });
    best.map(|zone| zone.band)
}

/// Copied for each byte that is written, at most, without need.
const COPIED_PART: u64 = 20;
/// Zones of which the budget is saved up.
const SAVED_ZONES: u64 = 8;

/// How much may be copied without need.
#[derive(Debug)]
pub(super) struct Budget {
    zone_bytes: u64,
    /// Bytes that may be copied; below zero when the last copy was larger than what was left.
    left_bytes: i64,
    /// What was written and does not make a byte to be copied yet.
    rest_bytes: u64,
}

impl Budget {
    pub(super) fn new(zone_bytes: u64) -> Budget {
        Budget { zone_bytes, left_bytes: 0, rest_bytes: 0 }
    }

    /// Whether something may be copied.
    pub(super) fn allows(&self) -> bool {
        self.left_bytes > 0
    }

    /// Tables were written, and no copies.
    pub(super) fn wrote(&mut self, bytes: u64) {
        let written_bytes = self.rest_bytes.saturating_add(bytes);
        let earned = written_bytes / COPIED_PART;
        self.rest_bytes = written_bytes % COPIED_PART;
        let most = self.zone_bytes.saturating_mul(SAVED_ZONES).min(1 << 60) as i64;
        self.left_bytes = self.left_bytes.saturating_add(earned.min(1 << 60) as i64).min(most);
    }

    pub(super) fn copied(&mut self, bytes: u64) {
        self.left_bytes = self.left_bytes.saturating_sub(bytes.min(1 << 60) as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(band: u32, free_bytes: u64, remaining_bytes: u64) -> OpenZone {
        OpenZone { band, free_bytes, remaining_bytes, has_copies: false }
    }

    fn table(remaining_bytes: u64) -> NewTable {
        NewTable { remaining_bytes, is_copy: false }
    }

    #[test]
    fn a_table_joins_those_that_go_when_it_goes() {
        let zones = [open(3, 50, 1000), open(4, 90, 10_000), open(5, 40, 12_000)];
        let shared = |remaining_bytes| share(table(remaining_bytes), &zones, 60, 640);
        assert_eq!(
            [100, 400, 3000, 5000, 30_000, 40_000].map(shared),
            [None, Some(3), Some(3), Some(5), Some(5), None]
        );
        // With few empty zones the nearest has to do.
        assert_eq!([100, 90_000].map(|remaining| share(table(remaining), &zones, 10, 640)), [Some(3), Some(5)]);
        assert_eq!(share(table(100), &[], 0, 640), None);
        // And where as many are open as may be.
        let many: Vec<OpenZone> = (0..20).map(|band| open(band, 50, 1000)).collect();
        assert_eq!([&many[..19], &many].map(|open| share(table(90_000), open, 60, 640)), [None, Some(0)]);
    }

    #[test]
    fn copies_share_zones_with_copies() {
        let zones = [open(3, 50, 1000), OpenZone { has_copies: true, ..open(4, 90, 1000) }];
        let copy = |remaining_bytes| NewTable { remaining_bytes, is_copy: true };
        assert_eq!(share(copy(900), &zones, 60, 640), Some(4));
        assert_eq!(share(copy(900), &zones[..1], 60, 640), None);
        assert_eq!(share(table(900), &zones, 60, 640), Some(3));
        assert_eq!(share(table(900), &zones[1..], 60, 640), None);
        assert_eq!(share(table(900), &zones[1..], 2, 640), Some(4), "the last space there is");
    }

    #[test]
    fn what_copies_need_is_left_to_them() {
        let (one, other) = (open(3, 50, 1000), open(4, 90, 1000));
        let of_copies = OpenZone { has_copies: true, ..open(5, 10, 1000) };
        assert_eq!(beside_copies(&[one, of_copies, other]), [one, other]);
        assert_eq!(beside_copies(&[one, other]), [one]);
        assert_eq!(beside_copies(&[]), []);
        let room = |open: &[OpenZone], empty_zones| room_for_copies(open, empty_zones, 1000);
        assert_eq!([room(&[one, of_copies, other], 0), room(&[one, other], 0), room(&[], 0)], [10, 90, 0]);
        assert_eq!([room(&[one, of_copies, other], 1), room(&[], 7)], [1000, 1000]);
    }

    #[test]
    fn the_fullest_is_closed_first() {
        let zones = [open(3, 50, 1), open(4, 20, 9)];
        assert_eq!([20, 21].map(|bytes| closed_for(bytes, &zones)), [None, Some(4)]);
        assert_eq!(closed_first(&[open(3, 50, 1), open(4, 20, 9), open(5, 20, 1)]), Some(4));
        assert_eq!(closed_first(&[]), None);
    }

    #[test]
    fn the_zone_is_emptied_that_saves_most_for_what_is_copied() {
        let zone = |band, live_bytes, remaining_bytes| ClosedZone {
            band,
            live_bytes,
            copy_bytes: live_bytes,
            remaining_bytes,
        };
        let zones = [zone(1, 800, 1000), zone(2, 300, 1000), zone(3, 500, 1000)];
        assert_eq!(emptied_first(&zones, 1024), Some(2));
        // What is gone soon without anybody's doing is left alone, though it be cheap.
        assert_eq!(emptied_first(&[zone(1, 500, 100_000), zone(2, 300, 1000)], 1024), Some(1));
        // What a table has in another zone costs as well.
        let spread = ClosedZone { copy_bytes: 900, ..zone(2, 300, 1000) };
        assert_eq!(emptied_first(&[spread, zone(3, 500, 1000)], 1024), Some(3));
        // Numbers of full size, which no product overflows.
        let large = |band, live_bytes| ClosedZone { remaining_bytes: u64::MAX, ..zone(band, live_bytes, 0) };
        assert_eq!(emptied_first(&[large(1, 900 << 20), large(2, 90 << 20)], 1077 << 20), Some(2));
        assert_eq!(emptied_first(&[], 1024), None);
        assert!(is_worth(0, 1024, Need::None) && is_worth(896, 1024, Need::None) && !is_worth(897, 1024, Need::None));
        assert!(is_worth(1023, 1024, Need::Space) && !is_worth(1024, 1024, Need::Space));
        assert!(is_worth(896, 1024, Need::Worthwhile) && !is_worth(897, 1024, Need::Worthwhile));
    }

    #[test]
    fn nothing_is_emptied_while_zones_are_empty_or_little_is_wasted() {
        let full = Fill { zone_bytes: 1000, zones: 160, empty_zones: 10, shared_zones: 100, live_bytes: 90_000 };
        assert!(full.is_due(Need::None) && full.is_due(Need::Space));
        assert!(!Fill { empty_zones: 11, ..full }.is_due(Need::None));
        assert!(!Fill { live_bytes: 96_001, ..full }.is_due(Need::None));
        // Where somebody waits for a zone, whatever gives one back in the end.
        assert!(Fill { live_bytes: 99_000, ..full }.is_due(Need::Space));
        assert!(!Fill { live_bytes: 99_001, ..full }.is_due(Need::Space));
    }

    #[test]
    fn one_byte_is_copied_for_twenty_that_are_written() {
        let mut budget = Budget::new(1000);
        let mut allows = |written: u64, copied: u64| {
            budget.wrote(written);
            budget.copied(copied);
            budget.allows()
        };
        assert!(!allows(19, 0) && allows(1, 0) && !allows(0, 1));
        assert!(!allows(1000, 50) && !allows(2000, 200) && allows(2020, 0));
        // What is saved up has an end.
        assert!(allows(10_000_000, 0) && allows(0, 7999) && !allows(0, 1));
    }
}
