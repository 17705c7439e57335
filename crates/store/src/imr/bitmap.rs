//! A set of tracks.

use varve_media::TrackId;

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

    /// The tracks, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = TrackId> + '_ {
        (0..self.track_count).map(TrackId).filter(|&track| self.contains(track))
    }
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
        assert!(bitmap.iter().eq(model.into_iter()));
    }
}
