//! When tables came and went, and what any allocation must do because of it.

use std::collections::{BTreeMap, BTreeSet};
use varve::store::{Occupancy, PieceUsage};

/// Tables of a run, from looks at its tracks. Times are the numbers of the looks.
#[derive(Clone, Debug, Default)]
pub(super) struct Lives {
    pub(super) tables: Vec<Life>,
    /// Of those that were there at the last look, the index in `tables`.
    pub(super) present: BTreeMap<String, usize>,
    pub(super) looks: usize,
    /// Tracks that tables may have.
    pub(super) tracks: usize,
    /// Every track of the disk as it was at the first look, in order.
    pub(super) first: Vec<FirstTrack>,
}

/// A track at the first look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FirstTrack {
    pub(super) is_bottom: bool,
    /// Tables may have it.
    pub(super) is_usable: bool,
    /// Number of the table that had it.
    pub(super) table: Option<usize>,
}

/// One table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    /// Look at which it was first there.
    pub(super) from: usize,
    /// Look at which it was not there any more; `usize::MAX` when it stayed.
    pub(super) to: usize,
    pub(super) tracks: usize,
    pub(super) bytes: u64,
}

impl Lives {
    /// Takes in what lies where now. A removed table counts as gone, although its tracks may not be given
    /// yet; one that came and went between two looks is not seen. Both make bounds lower, never higher.
    pub(super) fn see(&mut self, occupancy: &Occupancy) {
        let mut sizes = vec![(0, 0); occupancy.files.len()];
        self.tracks = 0;
        for piece in occupancy.pieces.iter().filter(|piece| piece.device == 0) {
            let usable = matches!(piece.usage, PieceUsage::Free | PieceUsage::Table | PieceUsage::Removed);
            self.tracks += usize::from(usable);
            if let (PieceUsage::Table, Some(file)) = (piece.usage, piece.file)
                && let Some((tracks, bytes)) = sizes.get_mut(file as usize)
            {
                *tracks += 1;
                *bytes += piece.used_bytes;
            }
        }
        let mut seen = BTreeSet::new();
        for (file, (tracks, bytes)) in occupancy.files.iter().zip(sizes).filter(|(_, (tracks, _))| *tracks > 0) {
            let name = &file.name;
            seen.insert(name);
            if !self.present.contains_key(name) {
                self.present.insert(name.clone(), self.tables.len());
                self.tables.push(Life { from: self.looks, to: usize::MAX, tracks, bytes });
            }
        }
        if self.looks == 0 {
            self.first = occupancy
                .pieces
                .iter()
                .filter(|piece| piece.device == 0)
                .map(|piece| {
                    let name = piece.file.and_then(|file| occupancy.files.get(file as usize)).map(|file| &file.name);
                    FirstTrack {
                        is_bottom: piece.part == "bottom",
                        is_usable: matches!(piece.usage, PieceUsage::Free | PieceUsage::Table | PieceUsage::Removed),
                        table: name
                            .and_then(|name| self.present.get(name).copied())
                            .filter(|_| piece.usage == PieceUsage::Table),
                    }
                })
                .collect();
        }
        let gone: Vec<String> = self.present.keys().filter(|name| !seen.contains(*name)).cloned().collect();
        for name in gone {
            if let Some(index) = self.present.remove(&name) {
                self.tables[index].to = self.looks;
            }
        }
        self.looks += 1;
    }

    /// Tables that came after the first look.
    pub(super) fn born(&self) -> impl Iterator<Item = &Life> {
        self.tables.iter().filter(|life| life.from > 0)
    }

    /// Fewest tracks free when a table came.
    pub(super) fn fewest_free(&self) -> usize {
        let free = |born: &Life| {
            let there = self.tables.iter().filter(|other| other.from < born.from && other.to > born.from);
            self.tracks.saturating_sub(there.map(|other| other.tracks).sum())
        };
        self.born().map(free).min().unwrap_or(self.tracks)
    }

    /// Bottoms that any allocation must write while all tops are in use: at every moment what does not fit
    /// into tops lies in bottoms, and tables that go must be replaced there. Counted in tracks, those that stay
    /// longest first, which needs the fewest.
    pub(super) fn bottom_writes_at_least(&self) -> u64 {
        let tops = self.tracks / 2;
        let mut events: BTreeMap<usize, Vec<&Life>> = BTreeMap::new();
        for life in &self.tables {
            events.entry(life.from).or_default().push(life);
        }
        // Live tables outside and inside bottoms, by when they go; the count of tracks.
        let (mut outside, mut inside): (BTreeMap<usize, usize>, BTreeMap<usize, usize>) = Default::default();
        let mut written = 0;
        for look in 0..self.looks {
            for side in [&mut outside, &mut inside] {
                *side = side.split_off(&(look + 1));
            }
            for life in events.get(&look).into_iter().flatten() {
                *outside.entry(life.to).or_default() += life.tracks;
            }
            let (live_outside, live_inside) = (outside.values().sum::<usize>(), inside.values().sum::<usize>());
            let mut missing = (live_outside + live_inside).saturating_sub(tops).saturating_sub(live_inside);
            while missing > 0 {
                let Some(mut last) = outside.last_entry() else { break };
                let taken = missing.min(*last.get());
                let to = *last.key();
                *last.get_mut() -= taken;
                if *last.get() == 0 {
                    last.remove();
                }
                *inside.entry(to).or_default() += taken;
                missing -= taken;
                // What was there at the first look was written before.
                written += if look > 0 { taken as u64 } else { 0 };
            }
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lives(tracks: usize, looks: usize, tables: &[(usize, usize, usize)]) -> Lives {
        let tables = tables.iter().map(|&(from, to, tracks)| Life { from, to, tracks, bytes: tracks as u64 }).collect();
        Lives { tables, looks, tracks, ..Lives::default() }
    }

    #[test]
    fn free_tracks_are_counted_when_a_table_comes() {
        let lives = lives(100, 4, &[(0, usize::MAX, 70), (0, 2, 20), (1, usize::MAX, 5), (3, usize::MAX, 20)]);
        assert_eq!(lives.fewest_free(), 10);
    }

    #[test]
    fn bottoms_are_written_again_only_when_what_lies_there_goes() {
        // 50 tops: of 80 tracks 30 lie in bottoms, and those that stay are there already.
        let stays = lives(100, 5, &[(0, usize::MAX, 40), (0, 2, 40), (2, usize::MAX, 40)]);
        assert_eq!(stays.bottom_writes_at_least(), 0);
        // Everything goes at once: 30 of the new ones must go to bottoms.
        let goes = lives(100, 5, &[(0, 2, 80), (2, usize::MAX, 80)]);
        assert_eq!(goes.bottom_writes_at_least(), 30);
        assert_eq!(lives(100, 5, &[(0, 2, 50), (2, 4, 50)]).bottom_writes_at_least(), 0);
    }
}
