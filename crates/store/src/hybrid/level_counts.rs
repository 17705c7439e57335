//! Zones that tables take, by level and tier, kept while tables come, move and go: whoever asks need not look at all of them.

use super::core::Core;
use super::file::{Counted, HybridFile};
use super::levels::{LEVELS, LevelZones, Tier};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Those of finished tables in numbers, and the tables that are written, of which it changes what they take.
#[derive(Default)]
pub(super) struct LevelCounts {
    zones: [LevelZones; LEVELS],
    writing: BTreeMap<u64, Arc<HybridFile>>,
}

impl LevelCounts {
    /// A table counts as something else than before, or as nothing.
    fn recount(&mut self, file: &HybridFile, counted: Option<Counted>) {
        if let Some(before) = file.state.counted() {
            let zones = self.of(before.row, before.tier);
            *zones = zones.saturating_sub(before.zones);
        }
        file.state.set_counted(counted);
        // As it is noted: what is taken off later is what was added.
        if let Some(now) = file.state.counted() {
            *self.of(now.row, now.tier) += now.zones;
        }
    }

    fn of(&mut self, row: usize, tier: Tier) -> &mut u64 {
        let level = &mut self.zones[row];
        if tier == Tier::Fast { &mut level.fast } else { &mut level.slow }
    }
}

impl Core {
    fn counted(&self, file: &HybridFile) -> Counted {
        let tier = file.parts().first().map_or(Tier::Slow, |part| self.tier(part.device));
        Counted { row: file.row(), tier, zones: self.zones_of(file.size_bytes()) }
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

    /// Zones of tables by level, but of those that are known to be coming by a hint.
    pub(super) fn level_zones(&self) -> [LevelZones; LEVELS] {
        let counts = self.level_counts.lock();
        let mut levels = counts.zones;
        let with_others = counts.writing.values();
        for file in with_others.filter(|file| file.state.counts_while_written.load(Ordering::Relaxed)) {
            if !file.is_removed() {
                let Counted { row, tier, zones } = self.counted(file);
                let level = &mut levels[row];
                *if tier == Tier::Fast { &mut level.fast } else { &mut level.slow } += zones;
            }
        }
        levels
    }

    /// The same by looking at every file.
    #[cfg(test)]
    pub(super) fn level_zones_of_all(&self) -> [LevelZones; LEVELS] {
        let mut levels = [LevelZones::default(); LEVELS];
        for file in self.files.read().values().filter(|file| file.is_table) {
            let state = &file.state;
            if !state.is_writing.load(Ordering::Relaxed) || state.counts_while_written.load(Ordering::Relaxed) {
                let Counted { row, tier, zones } = self.counted(file);
                let level = &mut levels[row];
                *if tier == Tier::Fast { &mut level.fast } else { &mut level.slow } += zones;
            }
        }
        levels
    }
}
