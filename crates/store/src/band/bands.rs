//! What every band is used for, and what the device says of it after a failed write.

use super::allocation::{BandView, Purpose, TableGrowth, cursor_behind};
use super::change::Retirement;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use varve_media::{JobId, MediaError, ZoneCondition, ZoneDescription, ZoneRefusal};

/// Compactions remembered at once: a tree that never says that one ended costs no more than this.
const COMPACTIONS_MAX: usize = 1024;

/// What a band is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BandUse {
    /// Nothing; it may have to be reset before it is written.
    Free,
    Table,
    Log,
    /// Nothing, for good: its zone is read-only or offline, or not one that can be a band.
    Retired,
}

/// Free bands beside those that are kept for somebody, so many that one that is emptied is not missed.
const EMPTYING_BANDS_MIN: usize = 64;

/// The bands of a device. Pure bookkeeping.
#[derive(Debug)]
pub(super) struct Bands {
    first: u32,
    uses: Vec<BandUse>,
    free: BTreeSet<u32>,
    /// Free bands that are not empty: they are reset when they are taken.
    dirty: BTreeSet<u32>,
    /// Those of them that were given back, oldest first, and some that were taken again since.
    freed: VecDeque<u32>,
    retired: BTreeMap<u32, Retirement>,
    /// Zones that cannot be bands.
    excluded: BTreeSet<u32>,
    /// Bands that are written: what a device limits.
    active: BTreeSet<u32>,
    /// Bands that are not written any more and that the device still counts: their zones could not be finished.
    unfinished: BTreeSet<u32>,
    /// Free bands that tables being written want next, by number of the file: none of zero length.
    aside: BTreeMap<u64, Range<u32>>,
    cursor: u32,
    reserve_bands: u32,
    cleaning_bands: u32,
    /// Bands that outputs of running compactions took, of each: as many of the reserve are not kept again.
    compactions: BTreeMap<JobId, u32>,
    log_reserve_bands: u32,
}

impl Bands {
    /// Bands of which nothing is known: all free, all to be reset.
    pub(super) fn new(bands: Range<u32>, reserve_bands: u32, log_reserve_bands: u32) -> Bands {
        Bands {
            first: bands.start,
            uses: vec![BandUse::Free; bands.len()],
            free: bands.clone().collect(),
            dirty: bands.clone().collect(),
            freed: VecDeque::new(),
            retired: BTreeMap::new(),
            excluded: BTreeSet::new(),
            active: BTreeSet::new(),
            unfinished: BTreeSet::new(),
            aside: BTreeMap::new(),
            cursor: bands.start,
            reserve_bands,
            cleaning_bands: 0,
            compactions: BTreeMap::new(),
            log_reserve_bands,
        }
    }

    /// Whether any are kept for the outputs of compactions.
    pub(super) fn keeps_reserve(&self) -> bool {
        self.reserve_bands > 0
    }

    /// Keeps so many for the outputs of compactions from now on, and one for logs.
    pub(super) fn keep_reserve(&mut self, reserve_bands: u32) {
        self.reserve_bands = reserve_bands;
        self.log_reserve_bands = self.log_reserve_bands.max(1);
    }

    /// Keeps none for the outputs of compactions from now on.
    pub(super) fn release_reserve(&mut self) {
        self.reserve_bands = 0;
    }

    fn use_of(&self, band: u32) -> BandUse {
        self.uses[(band - self.first) as usize]
    }

    fn set_use(&mut self, band: u32, band_use: BandUse) {
        self.uses[(band - self.first) as usize] = band_use;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, BandUse)> {
        (self.first..).zip(self.uses.iter().copied())
    }

    pub(super) fn retired(&self) -> &BTreeMap<u32, Retirement> {
        &self.retired
    }

    /// Zones that the device counts as active beside that of the log band.
    pub(super) fn active_beside_log(&self) -> usize {
        let tables = self.active.iter().filter(|band| self.use_of(**band) == BandUse::Table).count();
        tables + self.unfinished.len()
    }

    /// Bands whose zones are still to be finished, and that nobody has taken again.
    pub(super) fn unfinished(&self) -> Vec<u32> {
        self.unfinished.difference(&self.active).copied().collect()
    }

    /// Taken and not left yet: perhaps its owner does not know of it.
    pub(super) fn is_active(&self, band: u32) -> bool {
        self.active.contains(&band)
    }

    pub(super) fn view(&self) -> BandView<'_> {
        BandView {
            free: &self.free,
            aside: &self.aside,
            cursor: self.cursor,
            reserve_bands: self.reserve_left(),
            cleaning_bands: self.cleaning_bands,
            log_reserve_bands: self.log_reserve_bands,
        }
    }

    /// Keeps so many bands for what is copied out of zones that are emptied.
    pub(super) fn keep_for_cleaning(&mut self, bands: u32) {
        self.cleaning_bands = bands;
    }

    pub(super) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// True if fewer bands are free than are kept for logs, or none at all: log bands can be emptied only into a free one.
    pub(super) fn lacks_log_reserve(&self) -> bool {
        self.free.len() < self.log_reserve_bands.max(1) as usize
    }

    /// Free bands that are kept for somebody when no log is written in one of them.
    pub(super) fn kept_in_all(&self) -> usize {
        (self.reserve_left() + self.cleaning_bands + self.log_reserve_bands) as usize
    }

    /// What is left of the reserve: what compactions took of it comes back when they end.
    pub(super) fn reserve_left(&self) -> u32 {
        let taken = self.compactions.values().fold(0u32, |sum, bands| sum.saturating_add(*bands));
        self.reserve_bands.saturating_sub(taken)
    }

    /// Tables of this job are outputs of a compaction from now on, unless too many run.
    pub(super) fn compaction_begins(&mut self, job: JobId) {
        if self.compactions.len() < COMPACTIONS_MAX {
            self.compactions.entry(job).or_insert(0);
        }
    }

    pub(super) fn compaction_ends(&mut self, job: JobId) {
        self.compactions.remove(&job);
    }

    pub(super) fn is_compaction(&self, job: JobId) -> bool {
        self.compactions.contains_key(&job)
    }

    /// A free band is known to be empty.
    pub(super) fn set_clean(&mut self, band: u32) {
        self.dirty.remove(&band);
    }

    /// Takes a band for a log, and says whether it must be reset first; `None` when there is none.
    pub(super) fn take_for_log(&mut self, purpose: Purpose) -> Option<(u32, bool)> {
        let band = self.view().log_band(purpose)?;
        Some(self.take(band, BandUse::Log))
    }

    /// Takes the next band of a table, and says whether it must be reset first; `None` when there is none. What the table
    /// is expected to need behind it is set aside until [`release_aside`](Self::release_aside).
    pub(super) fn take_for_table(&mut self, purpose: Purpose, table: TableGrowth) -> Option<(u32, bool)> {
        let extent = self.view().extent(purpose, table)?;
        let (band, rest) = (extent.start, extent.start + 1..extent.end);
        if self.aside.get(&table.file).is_none_or(|own| *own != extent) {
            let used = self.uses.len() - self.free.len();
            self.cursor = cursor_behind(extent.end, self.first, used);
        }
        match rest.is_empty() {
            true => self.aside.remove(&table.file),
            false => self.aside.insert(table.file, rest),
        };
        if let Some(taken) = table.job.and_then(|job| self.compactions.get_mut(&job)) {
            *taken = taken.saturating_add(1);
        }
        Some(self.take(band, BandUse::Table))
    }

    /// A table needs no more bands. The next one begins where it ends.
    pub(super) fn release_aside(&mut self, file: u64) {
        if let Some(rest) = self.aside.remove(&file).filter(|rest| rest.end == self.cursor) {
            self.cursor = rest.start;
        }
    }

    fn take(&mut self, band: u32, band_use: BandUse) -> (u32, bool) {
        self.free.remove(&band);
        self.active.insert(band);
        self.set_use(band, band_use);
        (band, self.dirty.remove(&band))
    }

    /// A band that was found in use when the store was opened.
    pub(super) fn claim(&mut self, band: u32, band_use: BandUse) {
        self.free.remove(&band);
        self.dirty.remove(&band);
        self.set_use(band, band_use);
    }

    /// A band that was found in use is written on.
    pub(super) fn set_active(&mut self, band: u32) {
        self.active.insert(band);
    }

    /// Nothing more is written to a band, and the device does not count it any more.
    pub(super) fn set_inactive(&mut self, band: u32) {
        self.active.remove(&band);
        self.unfinished.remove(&band);
    }

    /// The device does not count a band any more for what was written to it before.
    pub(super) fn set_finished(&mut self, band: u32) {
        self.unfinished.remove(&band);
    }

    /// A band that was taken is not written after all; it is given back later.
    pub(super) fn set_aside(&mut self, band: u32) {
        self.active.remove(&band);
    }

    /// Nothing more is written to a band that the device still counts.
    pub(super) fn set_unfinished(&mut self, band: u32) {
        self.active.remove(&band);
        self.unfinished.insert(band);
    }

    /// A band is not used any more.
    pub(super) fn give_back(&mut self, band: u32) {
        self.active.remove(&band);
        if self.retired.contains_key(&band) || self.excluded.contains(&band) {
            self.set_use(band, BandUse::Retired);
            return;
        }
        assert!(self.free.insert(band), "bands are given back once");
        self.dirty.insert(band);
        self.freed.push_back(band);
        // Where nobody empties any, the oldest were taken again long ago.
        if self.freed.len() > self.uses.len() {
            self.freed.pop_front();
        }
        self.set_use(band, BandUse::Free);
    }

    /// Takes the free band that was given back first of those that were not emptied since, for it to be emptied; none where
    /// somebody could miss it meanwhile.
    pub(super) fn begin_emptying(&mut self) -> Option<u32> {
        if self.free.len() < self.kept_in_all() + EMPTYING_BANDS_MIN {
            return None;
        }
        while let Some(band) = self.freed.pop_front() {
            if self.dirty.contains(&band) && self.free.remove(&band) {
                return Some(band);
            }
        }
        None
    }

    /// A band that was to be emptied may be taken again.
    pub(super) fn end_emptying(&mut self, band: u32, is_empty: bool) {
        if self.retired.contains_key(&band) || self.excluded.contains(&band) {
            self.dirty.remove(&band);
            self.set_use(band, BandUse::Retired);
            return;
        }
        if is_empty {
            self.dirty.remove(&band);
            self.unfinished.remove(&band);
        }
        self.free.insert(band);
    }

    /// Never takes a band again. What is in it stays until it is given back.
    pub(super) fn retire(&mut self, band: u32, retirement: Retirement) {
        self.set_inactive(band);
        if self.free.remove(&band) {
            self.dirty.remove(&band);
            self.set_use(band, BandUse::Retired);
        }
        let known = self.retired.entry(band).or_insert(retirement);
        *known = retirement.max(*known);
    }

    /// A zone that cannot be a band: nothing is told of it in the band table. What is in it stays until it is given
    /// back.
    pub(super) fn exclude(&mut self, band: u32) {
        self.excluded.insert(band);
        self.free.remove(&band);
        self.dirty.remove(&band);
        self.set_use(band, BandUse::Retired);
    }
}

/// Whether the device gave a zone up.
pub(super) fn retirement_of(zone: &ZoneDescription) -> Option<Retirement> {
    match zone.condition {
        ZoneCondition::ReadOnly => Some(Retirement::ReadOnly),
        ZoneCondition::Offline => Some(Retirement::Offline),
        _ => None,
    }
}

/// What to do when a write to a band failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterFailure {
    /// Nothing arrived: once more at the same place.
    Retry,
    /// Something arrived, nobody knows what, or the band cannot be written any more: on in another band.
    Move(Option<Retirement>),
}

/// Whether a write was refused for what other zones are in: nothing arrived, and another band would not help.
pub(super) fn is_refused_by_limit(error: &MediaError) -> bool {
    matches!(error, MediaError::Zone { refusal: ZoneRefusal::OpenLimit { .. } | ZoneRefusal::ActiveLimit { .. }, .. })
}

/// Decides from what the device says of the zone. `written_bytes` of the band were written before.
pub(super) fn after_failure(zone: &ZoneDescription, written_bytes: u64) -> AfterFailure {
    let retirement = retirement_of(zone);
    // Also where writes are not bound to the pointer: a write behind it would make the zone non-sequential.
    let is_there = !zone.non_sequential && zone.write_pointer_bytes == zone.start_bytes + written_bytes;
    match retirement {
        None if is_there && zone.condition != ZoneCondition::Full => AfterFailure::Retry,
        retirement => AfterFailure::Move(retirement),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_media::ZoneType;

    const ONE: TableGrowth = TableGrowth { file: 1, bands: 1, shares: false, full_band: None, job: None };

    /// What is free is emptied in the order it became so, if it is still there and others are.
    #[test]
    fn what_is_free_is_emptied_before_it_is_taken() {
        let mut bands = Bands::new(0..100, 0, 0);
        let take = |bands: &mut Bands| bands.take_for_table(Purpose::Table, ONE).unwrap();
        assert_eq!(bands.begin_emptying(), None, "what was there before is nobody's business");
        let taken: Vec<u32> = (0..50).map(|_| take(&mut bands).0).collect();
        taken.iter().take(10).for_each(|band| bands.give_back(*band));
        assert_eq!(bands.begin_emptying(), None, "few are left");
        taken.iter().skip(10).for_each(|band| bands.give_back(*band));
        assert_eq!((bands.begin_emptying(), bands.begin_emptying()), (Some(0), Some(1)));
        assert_eq!(bands.free_count(), 98);
        bands.end_emptying(0, true);
        bands.end_emptying(1, false);
        assert_eq!(bands.free_count(), 100);
        bands.retire(2, Retirement::Offline);
        assert_eq!(bands.begin_emptying(), Some(3));
        bands.retire(3, Retirement::ReadOnly);
        bands.end_emptying(3, true);
        assert_eq!((bands.free_count(), bands.use_of(3)), (98, BandUse::Retired));
        // One that was emptied need not be when it is taken, one that could not be must.
        bands.cursor = 0;
        assert_eq!([take(&mut bands), take(&mut bands), take(&mut bands)], [(0, false), (1, true), (4, true)]);
        bands.give_back(0);
        assert_eq!(bands.begin_emptying(), Some(5));
    }

    #[test]
    fn tables_of_several_bands_follow_each_other() {
        let mut bands = Bands::new(3..30, 1, 1);
        let take = |bands: &mut Bands, file: u64| {
            bands.take_for_table(Purpose::Table, TableGrowth { file, bands: 4, ..ONE }).unwrap().0
        };
        // Two tables at once, and a log.
        assert_eq!([1, 2, 1, 2, 1].map(|file| take(&mut bands, file)), [3, 7, 4, 8, 5]);
        assert_eq!(bands.take_for_log(Purpose::Log), Some((11, true)));
        // The second ends early, too little is left of it for the third; the first outgrows what it expected.
        bands.release_aside(2);
        assert_eq!([3, 1, 1].map(|file| take(&mut bands, file)), [12, 6, 16]);
        // It ends early, and the fourth begins there.
        bands.release_aside(1);
        assert_eq!([4, 3, 3, 3].map(|file| take(&mut bands, file)), [17, 13, 14, 15]);
        // A band of an extent that is given up parts it.
        bands.retire(18, Retirement::Offline);
        assert_eq!(take(&mut bands, 4), 19);
        bands.release_aside(4);
        bands.release_aside(5);
        // What is left over is used when nothing else is.
        let mut left: Vec<u32> =
            std::iter::from_fn(|| bands.take_for_log(Purpose::Metadata)).map(|(band, _)| band).collect();
        left.sort_unstable();
        assert_eq!(left, [vec![9, 10], (20..30).collect()].concat());
    }

    #[test]
    fn bands_come_and_go() {
        let mut bands = Bands::new(3..9, 1, 1);
        bands.set_clean(3);
        assert_eq!(bands.take_for_log(Purpose::Log), Some((3, false)));
        assert_eq!(bands.take_for_table(Purpose::Table, ONE), Some((4, true)));
        assert_eq!(bands.take_for_table(Purpose::Table, ONE), Some((5, true)));
        assert_eq!((bands.active_beside_log(), bands.free_count()), (2, 3));
        bands.give_back(4);
        assert_eq!((bands.use_of(4), bands.use_of(5), bands.use_of(3)), (BandUse::Free, BandUse::Table, BandUse::Log));
        // Six is the next, then it goes round.
        assert_eq!(bands.take_for_table(Purpose::Table, ONE), Some((6, true)));
        bands.retire(6, Retirement::ReadOnly);
        bands.retire(7, Retirement::Offline);
        bands.retire(6, Retirement::Offline);
        assert_eq!((bands.use_of(6), bands.use_of(7)), (BandUse::Table, BandUse::Retired));
        bands.give_back(6);
        assert_eq!(bands.use_of(6), BandUse::Retired);
        assert_eq!(bands.retired().len(), 2);
        assert_eq!(bands.take_for_table(Purpose::Table, ONE), None);
        assert_eq!(bands.take_for_table(Purpose::CompactionOutput, ONE), Some((8, true)));
        assert_eq!(bands.take_for_log(Purpose::Metadata), Some((4, true)));
        assert_eq!(bands.take_for_log(Purpose::Metadata), None);
        bands.claim(7, BandUse::Log);
        assert_eq!(bands.use_of(7), BandUse::Log);
    }

    #[test]
    fn what_a_device_counts_is_counted_until_it_is_finished() {
        let mut bands = Bands::new(3..9, 1, 1);
        let (table, log) =
            (bands.take_for_table(Purpose::Table, ONE).unwrap().0, bands.take_for_log(Purpose::Log).unwrap().0);
        assert_eq!(bands.active_beside_log(), 1);
        bands.set_unfinished(table);
        assert_eq!((bands.active_beside_log(), bands.unfinished()), (1, vec![table]));
        // Also when nothing of it is needed any more.
        bands.give_back(table);
        bands.set_unfinished(log);
        assert_eq!(bands.active_beside_log(), 2);
        bands.set_inactive(table);
        bands.retire(log, Retirement::ReadOnly);
        assert_eq!(bands.active_beside_log(), 0);
    }

    #[test]
    fn excluded_zones_never_become_free() {
        let mut bands = Bands::new(3..9, 1, 1);
        bands.exclude(5);
        // A table was in it before the device said that it is something else.
        bands.claim(5, BandUse::Table);
        bands.give_back(5);
        assert_eq!((bands.use_of(5), bands.free_count()), (BandUse::Retired, 5));
    }

    #[test]
    fn a_failed_write_is_tried_again_only_where_nothing_arrived() {
        let zone = |condition, pointer| ZoneDescription {
            start_bytes: 1000,
            length_bytes: 1000,
            capacity_bytes: 1000,
            write_pointer_bytes: pointer,
            zone_type: ZoneType::SequentialWriteRequired,
            condition,
            non_sequential: false,
        };
        let (open, full) = (ZoneCondition::ImplicitlyOpened, ZoneCondition::Full);
        assert_eq!(after_failure(&zone(open, 1300), 300), AfterFailure::Retry);
        assert_eq!(after_failure(&zone(open, 1301), 300), AfterFailure::Move(None));
        assert_eq!(after_failure(&zone(full, 2000), 1000), AfterFailure::Move(None));
        let read_only = after_failure(&zone(ZoneCondition::ReadOnly, 1300), 300);
        assert_eq!(read_only, AfterFailure::Move(Some(Retirement::ReadOnly)));
        // Where writes may go anywhere, one behind the pointer would make the zone non-sequential.
        let zone_type = ZoneType::SequentialWritePreferred;
        let preferred = ZoneDescription { zone_type, ..zone(ZoneCondition::Closed, 1500) };
        assert_eq!(after_failure(&preferred, 300), AfterFailure::Move(None));
        assert_eq!(after_failure(&preferred, 500), AfterFailure::Retry);
        let out_of_order = ZoneDescription { non_sequential: true, ..preferred };
        assert_eq!(after_failure(&out_of_order, 500), AfterFailure::Move(None));
    }
}
