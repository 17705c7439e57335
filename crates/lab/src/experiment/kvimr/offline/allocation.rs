//! Where tables lie under an allocation that is told when each of them goes.
//!
//! Like CostAware it takes free tracks that cost least, with a price on gaps and cuts, and none beside which a top would have to be
//! rewritten. What it knows more decides between holes: a table that goes early belongs outside, where a disk is faster and
//! where it makes room for the next, and one that stays belongs further inside; and a table belongs beside one that goes when it does, for
//! then their holes are one.

use super::super::lives::{Life, Lives};
use super::replay::{Places, changes};
use crate::error::LabError;

// What tracks cost, in gaps. Of the load at 1/512, for whose tables the disk takes 10,296 s under CostAware, these leave 9,650 s. Tried: 3 and 8 for
// PLACE, 0.5 and 2 for NEIGHBOUR and CUT, 0.01 to 0.3 for DIFFERENT, 9,648 to 9,671 s; in place of when tables go how long they
// stay, 10,078 s, and their levels, 10,193 s.

/// A part of a hole that is left over at an end.
const CUT: f64 = 1.0;

/// The whole disk between where a table lies and where it belongs.
const PLACE: f64 = 5.0;

/// A neighbour that goes at another time.
const NEIGHBOUR: f64 = 1.0;

/// Share of all looks between two moments that are as different as any.
const DIFFERENT: f64 = 0.1;

/// Tracks while tables come and go.
struct Tracks<'a> {
    lives: &'a Lives,
    is_interlaced: bool,
    /// The look at which what is on a track goes.
    goes: Vec<Option<usize>>,
}

/// The tracks of every table. A pure function of when tables come and go; no top is to be rewritten for any.
///
/// # Errors
/// [`LabError::Invalid`] when a table does not fit anywhere without a rewrite.
pub(super) fn with_foresight(lives: &Lives, is_interlaced: bool) -> Result<Places, LabError> {
    let mut tracks = Tracks { lives, is_interlaced, goes: vec![None; lives.first.len()] };
    let mut places = vec![Vec::new(); lives.tables.len()];
    for (look, (came, went)) in changes(lives).into_iter().enumerate() {
        // Outputs come while what they replace is still there.
        for table in came {
            let life = lives.tables[table];
            let Some(found) = tracks.cheapest(&life) else {
                let reason = format!("number {table} does not fit at look {look} without a rewrite");
                return Err(LabError::invalid("table", reason));
            };
            found.iter().for_each(|&track| tracks.goes[track] = Some(life.to));
            places[table] = found;
        }
        went.iter().flat_map(|table| &places[*table]).for_each(|&track| tracks.goes[track] = None);
    }
    Ok(places)
}

impl Tracks<'_> {
    fn is_usable(&self, track: usize) -> bool {
        self.lives.first.get(track).is_some_and(|first| first.is_usable)
    }

    /// Valid tops beside a free bottom.
    fn rewrites(&self, track: usize) -> usize {
        if !self.is_interlaced || !self.lives.first[track].is_bottom {
            return 0;
        }
        let beside = [track.checked_sub(1), Some(track + 1)].into_iter().flatten();
        beside.filter(|&top| self.goes.get(top).is_some_and(Option::is_some)).count()
    }

    /// Free tracks that follow each other in the list of them and cost least, of equal ones the outermost.
    fn cheapest(&self, life: &Life) -> Option<Vec<usize>> {
        let is_free = |track: &usize| self.is_usable(*track) && self.goes[*track].is_none();
        let free: Vec<usize> = (0..self.goes.len()).filter(is_free).collect();
        let rewrites: Vec<usize> = free.iter().map(|&track| self.rewrites(track)).collect();
        let gap = |index: usize| usize::from(free[index - 1] + 1 != free[index]);
        let before = self.goes.iter().flatten().filter(|&&to| to <= life.to).count();
        let usable = self.lives.tracks as f64;
        let target = before as f64 / usable;
        let count = life.tracks;
        if count == 0 || free.len() < count {
            return (count == 0).then(Vec::new);
        }
        let mut gaps: usize = (1..count).map(gap).sum();
        let mut rewritten: usize = rewrites[..count].iter().sum();
        let mut best: Option<(f64, usize)> = None;
        for start in 0..=free.len() - count {
            let end = start + count;
            if start > 0 {
                gaps = gaps + gap(end - 1) - gap(start);
                rewritten = rewritten + rewrites[end - 1] - rewrites[start - 1];
            }
            if rewritten > 0 {
                continue;
            }
            let distance = (free[start] as f64 / usable - target).abs();
            let ends = [free[start].checked_sub(1), Some(free[end - 1] + 1)];
            let beside: f64 = ends.into_iter().flatten().map(|track| self.beside(track, life)).sum();
            let cost = gaps as f64 + PLACE * distance + beside;
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, start));
            }
        }
        best.map(|(_, start)| free[start..start + count].to_vec())
    }

    /// What it costs to end beside this track.
    fn beside(&self, track: usize, life: &Life) -> f64 {
        if !self.is_usable(track) {
            return 0.0;
        }
        match self.goes[track] {
            None => CUT,
            Some(to) => {
                let looks = self.lives.looks as f64;
                let moment = |to: usize| to.min(self.lives.looks * 8) as f64;
                NEIGHBOUR * ((moment(to) - moment(life.to)).abs() / (DIFFERENT * looks)).min(1.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::lives::FirstTrack;
    use super::*;
    use varve::env::Random;

    const STAYS: usize = usize::MAX;

    fn lives(tracks: usize, tables: &[(usize, usize, usize)]) -> Lives {
        let track =
            |number: usize| FirstTrack { is_bottom: number.is_multiple_of(2), is_usable: number > 0, table: None };
        let life = |&(from, to, tracks): &(usize, usize, usize)| Life { from, to, tracks, bytes: tracks as u64 };
        let looks = 1 + tables.iter().map(|(from, ..)| *from).max().unwrap_or(0);
        Lives {
            tables: tables.iter().map(life).collect(),
            looks,
            tracks: tracks - 1,
            first: (0..tracks).map(track).collect(),
            ..Lives::default()
        }
    }

    /// Where a table of four tracks goes that goes itself at `to`: into one of two holes of that size, of which the outer one lies
    /// between tables that go at `outer`, the other between tables that go at `inner`.
    fn chosen(outer: usize, inner: usize, to: usize) -> usize {
        let lives = Lives { looks: 100, ..lives(101, &[]) };
        let goes = |track: usize| match track {
            20..24 | 70..74 => None,
            0..50 => Some(outer),
            _ => Some(inner),
        };
        let tracks = Tracks { lives: &lives, is_interlaced: false, goes: (0..101).map(goes).collect() };
        tracks.cheapest(&Life { from: 1, to, tracks: 4, bytes: 4 }).unwrap()[0]
    }

    #[test]
    fn a_table_lies_beside_those_that_go_when_it_does() {
        // By where they belong the inner hole is nearer, by a fiftieth of the disk.
        assert_eq!((chosen(60, 90, 60), chosen(90, 60, 60)), (20, 70));
        assert_eq!((chosen(30, 90, 30), chosen(30, 90, 90)), (20, 70));
    }

    #[test]
    fn what_goes_early_lies_outside() {
        assert_eq!((chosen(50, 50, 20), chosen(50, 50, 80)), (20, 70));
    }

    #[test]
    fn no_track_is_given_twice_and_no_top_destroyed() {
        for seed in 0..40 {
            let mut random = Random::seeded(seed);
            let table = |random: &mut Random| {
                let from = random.below(60) as usize;
                let to = if random.below(8) == 0 { STAYS } else { from + 1 + random.below(9) as usize };
                (from, to, 1 + random.below(7) as usize)
            };
            let tables: Vec<_> = (0..50).map(|_| table(&mut random)).collect();
            let lives = lives(260, &tables);
            for is_interlaced in [false, true] {
                let places = with_foresight(&lives, is_interlaced).unwrap();
                for (number, (place, life)) in places.iter().zip(&lives.tables).enumerate() {
                    assert_eq!(place.len(), life.tracks, "seed {seed}");
                    assert!(place.iter().all(|track| lives.first[*track].is_usable), "seed {seed}");
                    // Tables of one look come in the order of their numbers.
                    let before = |other: usize| (lives.tables[other].from, other) < (life.from, number);
                    let is_there = |other: &usize| before(*other) && lives.tables[*other].to >= life.from;
                    for other in (0..places.len()).filter(is_there) {
                        for track in &places[other] {
                            let beside = |bottom: &usize| bottom.is_multiple_of(2) && bottom.abs_diff(*track) == 1;
                            assert!(!place.contains(track), "seed {seed}: track {track}");
                            assert!(!is_interlaced || !place.iter().any(beside), "seed {seed}: track {track}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        assert!(with_foresight(&lives(8, &[(0, STAYS, 5), (1, STAYS, 4)]), false).is_err());
    }
}
