//! Where a table lies.

use varve_media::{TrackGeometry, TrackId};

/// The tracks of one table in file order. All but the last are full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TrackMap {
    tracks: Vec<TrackId>,
    /// Offset in the file at which each track begins, and the end of the last.
    starts: Vec<u64>,
    size_bytes: u64,
}

/// A part of a file that lies in one track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrackPiece {
    pub(super) track: TrackId,
    /// First byte within the track.
    pub(super) within_bytes: u64,
    pub(super) length_bytes: u64,
}

impl TrackMap {
    /// `None` when the tracks do not hold so many bytes, or more tracks than needed do.
    pub(super) fn new(geometry: &TrackGeometry, tracks: Vec<TrackId>, size_bytes: u64) -> Option<TrackMap> {
        let mut starts = Vec::with_capacity(tracks.len() + 1);
        let mut end = 0u64;
        for &track in &tracks {
            if end >= size_bytes {
                return None;
            }
            starts.push(end);
            end = end.checked_add(geometry.length_bytes(track))?;
        }
        starts.push(end);
        (end >= size_bytes).then_some(TrackMap { tracks, starts, size_bytes })
    }

    pub(super) fn tracks(&self) -> &[TrackId] {
        &self.tracks
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// How many tracks are full from the front, and the bytes in them: where what is added begins.
    pub(super) fn full(&self) -> (usize, u64) {
        let full = self.starts.partition_point(|&start| start <= self.size_bytes).saturating_sub(1);
        (full, self.starts.get(full).copied().unwrap_or(0))
    }

    /// Every track with the bytes of it that count.
    pub(super) fn used(&self) -> impl Iterator<Item = (TrackId, u64)> + '_ {
        let ends = self.starts.iter().skip(1).map(|&end| end.min(self.size_bytes));
        self.tracks.iter().zip(&self.starts).zip(ends).map(|((&track, &start), end)| (track, end - start))
    }

    /// The pieces of a range of the file. Ends early when the file does.
    pub(super) fn pieces(&self, offset_bytes: u64, length_bytes: u64) -> Vec<TrackPiece> {
        let end = offset_bytes.saturating_add(length_bytes).min(self.size_bytes);
        let mut pieces = Vec::new();
        let mut at = offset_bytes;
        let mut index = self.starts.partition_point(|&start| start <= at).saturating_sub(1);
        while at < end {
            let (Some(&track), Some(&start), Some(&next)) =
                (self.tracks.get(index), self.starts.get(index), self.starts.get(index + 1))
            else {
                break;
            };
            let until = end.min(next);
            pieces.push(TrackPiece { track, within_bytes: at - start, length_bytes: until - at });
            at = until;
            index += 1;
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracks_of_two_sizes_follow_each_other() {
        let geometry =
            TrackGeometry { track_count: 100, top_track_bytes: 1000, bottom_track_bytes: 1500, interlaced: true };
        let tracks: Vec<TrackId> = [4, 7, 6].map(TrackId).into();
        let map = TrackMap::new(&geometry, tracks.clone(), 2600).unwrap();
        let piece =
            |track, within_bytes, length_bytes| TrackPiece { track: TrackId(track), within_bytes, length_bytes };
        assert_eq!(map.pieces(0, 2600), [piece(4, 0, 1500), piece(7, 0, 1000), piece(6, 0, 100)]);
        assert_eq!(map.pieces(1499, 2), [piece(4, 1499, 1), piece(7, 0, 1)]);
        assert_eq!(map.pieces(2500, 1000), [piece(6, 0, 100)]);
        assert_eq!(map.pieces(2600, 1), []);
        assert_eq!(map.full(), (2, 2500));
        assert_eq!(map.used().map(|(_, used)| used).collect::<Vec<_>>(), [1500, 1000, 100]);
        assert_eq!(TrackMap::new(&geometry, tracks.clone(), 4000).unwrap().full(), (3, 4000));
        assert_eq!(TrackMap::new(&geometry, tracks.clone(), 4001), None);
        assert_eq!(TrackMap::new(&geometry, tracks, 2500), None);
        let empty = TrackMap::default();
        assert_eq!((empty.full(), empty.pieces(0, 5).len()), ((0, 0), 0));
        assert_eq!(TrackMap::new(&geometry, Vec::new(), 0).unwrap().full(), (0, 0));
    }
}
