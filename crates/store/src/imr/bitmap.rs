//! A set of tracks.

use std::ops::Range;
use varve_media::TrackId;

const WORD_TRACKS: u32 = u64::BITS;

/// Which tracks are in a set, a bit each. Tracks beyond its size are never in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrackBitmap {
    words: Vec<u64>,
    track_count: u32,
}

impl TrackBitmap {
    /// An empty set of tracks below `track_count`.
    pub(crate) fn new(track_count: u32) -> TrackBitmap {
        TrackBitmap { words: vec![0; track_count.div_ceil(64) as usize], track_count }
    }

    #[inline]
    pub(crate) fn contains(&self, track: TrackId) -> bool {
        self.words.get((track.0 / 64) as usize).is_some_and(|word| word >> (track.0 % 64) & 1 == 1)
    }

    /// Adds a track; false when it was there or is beyond the set's size.
    pub(crate) fn insert(&mut self, track: TrackId) -> bool {
        if track.0 >= self.track_count || self.contains(track) {
            return false;
        }
        self.words[(track.0 / 64) as usize] |= 1 << (track.0 % 64);
        true
    }

    /// Removes a track; false when it was not there.
    pub(crate) fn remove(&mut self, track: TrackId) -> bool {
        if !self.contains(track) {
            return false;
        }
        self.words[(track.0 / 64) as usize] &= !(1 << (track.0 % 64));
        true
    }

    /// How many bottoms and tops it has. Cost: a look at each 64 tracks.
    pub(crate) fn tier_counts(&self) -> (u64, u64) {
        const BOTTOMS: u64 = u64::MAX / 3;
        let count = |mask: u64| self.words.iter().map(|word| u64::from((word & mask).count_ones())).sum();
        (count(BOTTOMS), count(!BOTTOMS))
    }

    /// The tracks, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = TrackId> + '_ {
        tracks(0..self.words.len() as u32, |index| self.word(index))
    }

    /// The tracks of `range` that are neither in this set nor in `other`, ascending. Cost: a look at each 64 tracks and
    /// a step for each found.
    pub(crate) fn absent<'a>(
        &'a self,
        other: &'a TrackBitmap,
        range: Range<u32>,
    ) -> impl Iterator<Item = TrackId> + 'a {
        let words = if range.is_empty() { 0..0 } else { range.start / WORD_TRACKS..range.end.div_ceil(WORD_TRACKS) };
        tracks(words, move |index| {
            let first = index * WORD_TRACKS;
            let below = |track: u32| match track.saturating_sub(first) {
                count if count < WORD_TRACKS => (1 << count) - 1,
                _ => u64::MAX,
            };
            !self.word(index) & !other.word(index) & below(range.end) & !below(range.start)
        })
    }

    /// The last track of `range` that is in this set. Cost: a look at each 64 tracks behind it.
    pub(crate) fn last_in(&self, range: Range<u32>) -> Option<TrackId> {
        if range.is_empty() {
            return None;
        }
        (range.start / WORD_TRACKS..range.end.div_ceil(WORD_TRACKS)).rev().find_map(|index| {
            let first = index * WORD_TRACKS;
            let below = |track: u32| match track.saturating_sub(first) {
                count if count < WORD_TRACKS => (1 << count) - 1,
                _ => u64::MAX,
            };
            let word = self.word(index) & below(range.end) & !below(range.start);
            word.checked_ilog2().map(|bit| TrackId(first + bit))
        })
    }

    fn word(&self, index: u32) -> u64 {
        self.words.get(index as usize).copied().unwrap_or(0)
    }
}

/// The tracks of these words, ascending. A loop, not words flattened: an allocation goes through all free tracks.
fn tracks(mut words: Range<u32>, word_at: impl Fn(u32) -> u64) -> impl Iterator<Item = TrackId> {
    let (mut first, mut word) = (0, 0);
    std::iter::from_fn(move || {
        while word == 0 {
            let index = words.next()?;
            (first, word) = (index * WORD_TRACKS, word_at(index));
        }
        let track = TrackId(first + word.trailing_zeros());
        word &= word - 1;
        Some(track)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use varve_env::Random;

    #[test]
    fn it_is_a_set() {
        let mut random = Random::seeded(3);
        let mut bitmap = TrackBitmap::new(200);
        let mut model = BTreeSet::new();
        for _ in 0..5000 {
            let track = TrackId(random.below(220) as u32);
            if random.chance(1, 2) {
                assert_eq!(bitmap.insert(track), track.0 < 200 && model.insert(track));
                if track.0 >= 200 {
                    model.remove(&track);
                }
            } else {
                assert_eq!(bitmap.remove(track), model.remove(&track));
            }
            assert_eq!(bitmap.contains(track), model.contains(&track));
        }
        let bottoms = model.iter().filter(|track| track.0.is_multiple_of(2)).count() as u64;
        assert_eq!(bitmap.tier_counts(), (bottoms, model.len() as u64 - bottoms));
        assert!(bitmap.iter().eq(model.into_iter()));
    }

    #[test]
    fn finds_last_track_of_every_range() {
        let mut random = Random::seeded(5);
        for _ in 0..200 {
            let mut bitmap = TrackBitmap::new(200);
            (0..random.below(8)).for_each(|_| _ = bitmap.insert(TrackId(random.below(200) as u32)));
            let (start, end) = (random.below(200) as u32, random.below(220) as u32);
            let model = (start..end.max(start)).rev().map(TrackId).find(|track| bitmap.contains(*track));
            assert_eq!(bitmap.last_in(start..end), model, "{start}..{end}");
        }
    }

    #[test]
    fn what_is_in_neither_is_found_in_every_range() {
        let mut random = Random::seeded(4);
        let (mut one, mut other) = (TrackBitmap::new(200), TrackBitmap::new(200));
        for round in 0..300 {
            one.insert(TrackId(random.below(200) as u32));
            other.insert(TrackId(random.below(200) as u32));
            let start = random.below(210) as u32;
            let end = random.below(210) as u32;
            let neither = |track: &TrackId| !one.contains(*track) && !other.contains(*track);
            let expected: Vec<TrackId> = (start..end).map(TrackId).filter(neither).collect();
            let found: Vec<TrackId> = one.absent(&other, start..end).collect();
            assert_eq!(found, expected, "round {round}: {start}..{end}");
        }
    }
}
