//! What no allocation can take less than: the outermost tracks are the fastest, and only so much fits there.

use super::super::floor::Least;
use super::super::lives::{Life, Lives};
use std::collections::BTreeMap;

/// Seconds of a disk that no allocation takes less than for these tables, a table alone in each step. `places` are what a track
/// costs at the outer end of as many equal parts of the disk, outermost first.
pub(super) fn least_seconds(lives: &Lives, places: &[Least]) -> f64 {
    let tracks = lives.first.len();
    // Further in may be faster by chance: of what lies inside the least.
    let from = |of: fn(&Least) -> f64, place: usize| places[place..].iter().map(of).fold(f64::INFINITY, f64::min);
    let written = |_: &Life| true;
    let read = |life: &Life| life.to < lives.looks;
    let mut millis = 0.0;
    let sides: [(&dyn Fn(&Life) -> bool, fn(&Least) -> f64); 2] =
        [(&written, |least| least.write_ms), (&read, |least| least.read_ms)];
    for (is_of, cost) in sides {
        let all: usize = lives.tables.iter().filter(|life| is_of(life)).map(|life| life.tracks).sum();
        let mut within = 0;
        for place in 0..places.len() {
            let until = match place + 1 == places.len() {
                true => all,
                false => most_within(lives, is_of, tracks * (place + 1) / places.len()),
            };
            millis += (until - within) as f64 * from(cost, place);
            within = until;
        }
    }
    millis / 1e3
}

/// Most tracks of tables that can have been written within so many tracks of the disk: when there are too many at a
/// time, those that go last are left out, which is best (Carlisle and Lloyd, "On the k-coloring of intervals", 1995).
fn most_within(lives: &Lives, is_of: impl Fn(&Life) -> bool, tracks: usize) -> usize {
    let mut came: Vec<&Life> = lives.tables.iter().filter(|life| is_of(life)).collect();
    came.sort_by_key(|life| life.from);
    let mut there: BTreeMap<usize, usize> = BTreeMap::new();
    let (mut live, mut all) = (0, 0);
    for life in came {
        // Those that go at this look are still there.
        while let Some(first) = there.first_entry().filter(|first| *first.key() < life.from) {
            live -= first.remove();
        }
        *there.entry(life.to).or_default() += life.tracks;
        (live, all) = (live + life.tracks, all + life.tracks);
        while live > tracks {
            let Some(mut last) = there.last_entry() else { break };
            let less = (live - tracks).min(*last.get());
            *last.get_mut() -= less;
            if *last.get() == 0 {
                last.remove();
            }
            (live, all) = (live - less, all - less);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve::env::Random;

    fn lives(tables: &[(usize, usize, usize)]) -> Lives {
        let life = |&(from, to, tracks): &(usize, usize, usize)| Life { from, to, tracks, bytes: tracks as u64 };
        Lives { tables: tables.iter().map(life).collect(), looks: 20, ..Lives::default() }
    }

    /// Every way to leave tracks out, for tables of one track.
    fn by_force(lives: &Lives, tracks: usize) -> usize {
        let fits = |chosen: u32| {
            let is_chosen = |table: &usize| chosen >> table & 1 == 1;
            let there = |look: usize| {
                let tables = (0..lives.tables.len()).filter(is_chosen).map(|table| lives.tables[table]);
                tables.filter(|life| (life.from..=life.to).contains(&look)).count()
            };
            (0..lives.looks).all(|look| there(look) <= tracks)
        };
        let choices = (0..1u32 << lives.tables.len()).filter(|chosen| fits(*chosen));
        choices.map(|chosen| chosen.count_ones() as usize).max().unwrap()
    }

    #[test]
    fn no_choice_has_more() {
        for seed in 0..60 {
            let mut random = Random::seeded(seed);
            let table = |random: &mut Random| {
                let from = random.below(15) as usize;
                (from, from + random.below(8) as usize, 1)
            };
            let tables: Vec<_> = (0..9).map(|_| table(&mut random)).collect();
            let lives = lives(&tables);
            for tracks in 1..4 {
                assert_eq!(most_within(&lives, |_| true, tracks), by_force(&lives, tracks), "seed {seed}: {tables:?}");
            }
        }
    }

    #[test]
    fn the_outermost_part_is_filled_first() {
        // Two tables of two tracks at a time on four tracks, then one: three fit outside, one after the other.
        let tables = [(0, 2, 2), (0, 30, 2), (3, 5, 2), (6, 8, 2)];
        let places = [(1.0, 0.5), (10.0, 5.0)].map(|(write_ms, read_ms)| Least { write_ms, read_ms });
        let mut lives = lives(&tables);
        lives.first = vec![super::super::super::lives::FirstTrack { is_bottom: true, is_usable: true, table: None }; 4];
        // Written 6 outside and 2 inside, read 6 outside.
        assert_eq!(least_seconds(&lives, &places), (6.0 + 20.0 + 3.0) / 1e3);
    }
}
