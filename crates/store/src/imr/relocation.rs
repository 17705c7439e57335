//! Where tops are while the bottoms beside them are written.
//!
//! Between the write of a bottom and the restoring of its tops, readers of these find the data in the
//! backup region. A reader asks where to read, reads, and asks whether that is still true: a track that
//! moved meanwhile is read again.

use std::collections::BTreeMap;
use varve_media::TrackId;

#[derive(Debug, Default)]
pub(super) struct Relocations {
    /// Moves so far.
    epoch: u64,
    /// First byte on the disk of the copy, of each top that is away.
    copies: BTreeMap<TrackId, u64>,
    /// The last move of each top that was ever away.
    moved: BTreeMap<TrackId, u64>,
}

impl Relocations {
    /// Moves so far, for [`has_moved`](Relocations::has_moved).
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Where the copy of a top is on the disk, when it is away.
    pub(super) fn copy_of(&self, track: TrackId) -> Option<u64> {
        self.copies.get(&track).copied()
    }

    /// Whether a track has moved since an epoch.
    pub(super) fn has_moved(&self, track: TrackId, since: u64) -> bool {
        self.epoch != since && self.moved.get(&track).is_some_and(|&epoch| epoch > since)
    }

    /// These tops are read from their copies from now on.
    pub(super) fn leave(&mut self, tops: impl Iterator<Item = (TrackId, u64)>) {
        self.epoch += 1;
        for (track, copy_offset) in tops {
            self.copies.insert(track, copy_offset);
            self.moved.insert(track, self.epoch);
        }
    }

    /// These tops are back.
    pub(super) fn come_back(&mut self, tops: &[TrackId]) {
        self.epoch += 1;
        for track in tops {
            self.copies.remove(track);
            self.moved.insert(*track, self.epoch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_in_between_is_noticed_even_when_it_was_undone() {
        let mut relocations = Relocations::default();
        let before = relocations.epoch();
        assert!(!relocations.has_moved(TrackId(3), before));
        relocations.leave([(TrackId(3), 4096)].into_iter());
        assert_eq!((relocations.copy_of(TrackId(3)), relocations.copy_of(TrackId(5))), (Some(4096), None));
        let away = relocations.epoch();
        relocations.come_back(&[TrackId(3)]);
        assert_eq!(relocations.copy_of(TrackId(3)), None);
        assert!(relocations.has_moved(TrackId(3), before) && relocations.has_moved(TrackId(3), away));
        assert!(!relocations.has_moved(TrackId(5), before));
        assert!(!relocations.has_moved(TrackId(3), relocations.epoch()));
    }
}
