//! What tables take, by level and tier, kept while tables come, move and go: whoever asks need not look at all of them.
//!
//! It is counted in *places*: as many tables as share a zone of the fastest tier have one each, and policies are told zones.

use super::core::Core;
use super::file::{Counted, HybridFile};
use super::levels::{LEVELS, LevelZones, TIERS_MAX};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Places by row of the level and by tier, all of zones of the fastest.
pub(super) type PlacesByLevel = [[u64; TIERS_MAX]; LEVELS];

/// Of each level the zones on a tier, and on those behind it.
pub(super) fn seen_from(places: &PlacesByLevel, tier: usize, places_of_zone: u64) -> [LevelZones; LEVELS] {
    let zones = |places: u64| places.div_ceil(places_of_zone.max(1));
    places.map(|places| LevelZones {
        fast: zones(places[tier]),
        slow: zones(places[tier + 1..].iter().sum()),
        demand: 0,
    })
}

/// Those of finished tables in numbers, and the tables that are written, of which it changes what they take.
#[derive(Default)]
pub(super) struct LevelCounts {
    places: PlacesByLevel,
    writing: BTreeMap<u64, Arc<HybridFile>>,
}

impl LevelCounts {
    /// A table counts as something else than before, or as nothing.
    fn recount(&mut self, file: &HybridFile, counted: Option<Counted>) {
        if let Some(before) = file.state.counted() {
            let places = &mut self.places[before.row][before.tier];
            *places = places.saturating_sub(before.places);
        }
        file.state.set_counted(counted);
        // As it is noted: what is taken off later is what was added.
        if let Some(now) = file.state.counted() {
            self.places[now.row][now.tier] += now.places;
        }
    }
}

impl Core {
    fn counted(&self, file: &HybridFile) -> Counted {
        // What has no part yet is on no fast tier.
        let tier = file.parts().first().map_or(TIERS_MAX - 1, |part| self.members[part.device].tier);
        Counted { row: file.row(), tier, places: self.places_of(file.size_bytes()) }
    }

    /// A table is written from now on.
    pub(super) fn writing_begins(&self, file: &Arc<HybridFile>) {
        file.state.is_writing.store(true, Ordering::Release);
        if file.is_table {
            self.level_counts.lock().writing.insert(file.number(), file.clone());
        }
    }

    /// A file is not written any more.
    pub(super) fn writing_ends(&self, file: &HybridFile) {
        let mut counts = self.level_counts.lock();
        counts.writing.remove(&file.number());
        file.state.is_writing.store(false, Ordering::Release);
        self.recount_in(&mut counts, file);
    }

    /// A table has another level, lies elsewhere or is gone.
    pub(super) fn recount(&self, file: &HybridFile) {
        self.recount_in(&mut self.level_counts.lock(), file);
    }

    fn recount_in(&self, counts: &mut LevelCounts, file: &HybridFile) {
        let is_counted = file.is_table && !file.is_removed() && !file.state.is_writing.load(Ordering::Acquire);
        counts.recount(file, is_counted.then(|| self.counted(file)));
    }

    /// Places of tables by level, but of those that are known to be coming by a hint.
    pub(super) fn level_places(&self) -> PlacesByLevel {
        let counts = self.level_counts.lock();
        let mut places_by_level = counts.places;
        let with_others = counts.writing.values();
        for file in with_others.filter(|file| file.state.counts_while_written.load(Ordering::Relaxed)) {
            if !file.is_removed() {
                let Counted { row, tier, places } = self.counted(file);
                places_by_level[row][tier] += places;
            }
        }
        places_by_level
    }

    /// The same by looking at every file.
    #[cfg(test)]
    pub(super) fn level_places_of_all(&self) -> PlacesByLevel {
        let mut places_by_level = PlacesByLevel::default();
        for file in self.files.read().values().filter(|file| file.is_table) {
            let state = &file.state;
            if !state.is_writing.load(Ordering::Relaxed) || state.counts_while_written.load(Ordering::Relaxed) {
                let Counted { row, tier, places } = self.counted(file);
                places_by_level[row][tier] += places;
            }
        }
        places_by_level
    }
}
