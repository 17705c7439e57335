//! An allocation that knows when every table goes.
//!
//! What it rewrites on the tables of a run is a number an allocation could have reached, had it known the
//! future: how much of what others rewrite is owed to not knowing it. It is no lower bound, because it is
//! greedy. A lower bound from counting tracks is 0 as soon as two tables fit into what is free: an allocation
//! that always keeps as many tops free as a table has tracks writes bottoms at no cost, if these tops lie where it
//! needs them, and nothing in the count forbids that.

use super::lives::{Life, Lives};
use std::collections::BTreeSet;

/// What a track holds: the look at which its table goes, or nothing.
type Content = Option<usize>;

/// The disk while tables come and go.
struct Disk {
    is_bottom: Vec<bool>,
    is_usable: Vec<bool>,
    goes: Vec<Content>,
}

impl Disk {
    fn neighbours(&self, track: usize) -> impl Iterator<Item = usize> + use<> {
        let last = self.goes.len().saturating_sub(1);
        [track.checked_sub(1), (track < last).then_some(track + 1)].into_iter().flatten()
    }

    /// How good a free track is for a table that goes at `to`; less is better. The second part makes the best fit
    /// win: cover that lasts longer is kept for tables that stay longer.
    fn rank(&self, track: usize, to: usize, stays_long: bool) -> (u8, usize) {
        let beside = || self.neighbours(track).map(|other| self.goes[other]);
        if self.is_bottom[track] {
            return match beside().flatten().count() {
                0 => (if stays_long { 0 } else { 1 }, track),
                rewrites => (3 + rewrites as u8, track),
            };
        }
        match beside().map(|content| content.unwrap_or(0)).min() {
            Some(first) if first >= to => (if stays_long { 1 } else { 0 }, first),
            // The bottom below that goes first is not free of cost until this table goes too.
            first => (2, to - first.unwrap_or(0).min(to)),
        }
    }

    /// Places a table and returns what it rewrites; `None` when it does not fit.
    fn place(&mut self, life: &Life, stays_long: bool) -> Option<u64> {
        let free = (0..self.goes.len()).filter(|&track| self.is_usable[track] && self.goes[track].is_none());
        let mut ranked: Vec<((u8, usize), usize)> =
            free.map(|track| (self.rank(track, life.to, stays_long), track)).collect();
        if ranked.len() < life.tracks {
            return None;
        }
        if life.tracks < ranked.len() {
            ranked.select_nth_unstable(life.tracks);
        }
        let chosen: Vec<usize> = ranked.into_iter().take(life.tracks).map(|(_, track)| track).collect();
        let bottoms = chosen.iter().filter(|&&track| self.is_bottom[track]);
        let rewritten: BTreeSet<usize> =
            bottoms.flat_map(|&track| self.neighbours(track)).filter(|&top| self.goes[top].is_some()).collect();
        for track in chosen {
            self.goes[track] = Some(life.to);
        }
        Some(rewritten.len() as u64)
    }

    fn remove_until(&mut self, look: usize) {
        for content in &mut self.goes {
            *content = content.filter(|&to| to > look);
        }
    }
}

/// Tops rewritten by an allocation that knows when tables go, from where the run stood at its first look.
pub(super) fn rewrites_with_foresight(lives: &Lives) -> u64 {
    let goes = |table: Option<usize>| table.and_then(|table| lives.tables.get(table)).map(|life| life.to);
    let mut disk = Disk {
        is_bottom: lives.first.iter().map(|track| track.is_bottom).collect(),
        is_usable: lives.first.iter().map(|track| track.is_usable).collect(),
        goes: lives.first.iter().map(|track| goes(track.table)).collect(),
    };
    let mut rewrites = 0;
    let mut born: Vec<&Life> = lives.born().collect();
    born.sort_by_key(|life| life.from);
    let mut look = 0;
    for life in born {
        if life.from > look {
            // Outputs come while what they replace is still there.
            disk.remove_until(life.from - 1);
            look = life.from;
        }
        let mut there: Vec<usize> = disk.goes.iter().flatten().copied().collect();
        let middle = there.len() / 2;
        let stays_long = there.is_empty() || *there.select_nth_unstable(middle).1 <= life.to;
        rewrites += match disk.place(life, stays_long) {
            Some(rewrites) => rewrites,
            None => {
                disk.remove_until(life.from);
                disk.place(life, stays_long).unwrap_or(0)
            }
        };
    }
    rewrites
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::kvimr::lives::FirstTrack;

    fn lives(tracks: usize, tables: &[(usize, usize, usize)], first: &[(usize, usize)]) -> Lives {
        let track = |number: usize| FirstTrack {
            is_bottom: number.is_multiple_of(2),
            is_usable: true,
            table: first.iter().find(|(at, _)| *at == number).map(|(_, table)| *table),
        };
        Lives {
            tables: tables.iter().map(|&(from, to, tracks)| Life { from, to, tracks, bytes: tracks as u64 }).collect(),
            looks: 10,
            tracks,
            first: (0..tracks).map(track).collect(),
            ..Lives::default()
        }
    }

    #[test]
    fn a_table_that_stays_goes_to_bottoms_and_one_that_goes_on_top() {
        // Nothing there: the first stays and takes two of three bottoms, the second lies on it.
        let tables = [(1, usize::MAX, 2), (2, 4, 1), (5, usize::MAX, 1)];
        assert_eq!(rewrites_with_foresight(&lives(6, &tables, &[])), 0);
    }

    #[test]
    fn what_cannot_be_avoided_is_paid() {
        // Tops 1, 3 and 5 are taken for good: a bottom between two of them costs both, an outer one costs one.
        let tables = [(0, usize::MAX, 3), (1, usize::MAX, 1)];
        assert_eq!(rewrites_with_foresight(&lives(6, &tables, &[(1, 0), (3, 0), (5, 0)])), 1);
        let more = [(0, usize::MAX, 3), (1, usize::MAX, 3)];
        assert_eq!(rewrites_with_foresight(&lives(6, &more, &[(1, 0), (3, 0), (5, 0)])), 3);
    }
}
