//! Tracks of interlaced disks: which overlap which.

use crate::device::Facet;
use crate::error::MediaError;
use crate::layer::{Layer, OverlayTracks};
use std::ops::Range;
use std::sync::Arc;

/// Number of a track, from 0 at the outer edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrackId(pub u32);

impl std::fmt::Display for TrackId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Position of a track in the interlaced stack (KVIMR, section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TrackTier {
    /// Overlapped by its neighbours: writing it destroys the same span of both.
    Bottom,
    /// Freely updatable.
    Top,
}

impl std::fmt::Display for TrackTier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            TrackTier::Bottom => "bottom",
            TrackTier::Top => "top",
        })
    }
}

/// Track sizes of a device, by value, and what follows from them.
///
/// Tracks lie one after the other in address order and alternate: even ones are bottom tracks, odd
/// ones top tracks. So track 0, the outermost, is a bottom track with one neighbour, and so is the
/// last when the number of tracks is odd. Track sizes are whole physical sectors and not 0; methods
/// answer without panic for others and for tracks that are not there, but mean nothing then.
///
/// ```
/// # use varve_media::{TrackGeometry, TrackId, TrackTier};
/// let tracks = TrackGeometry::fit(100_000_000_000, 2 << 20, 2 << 20).unwrap();
/// assert_eq!((tracks.track_count, tracks.tracks_of(TrackTier::Bottom)), (47_683, 23_842));
/// let neighbours: Vec<TrackId> = tracks.neighbours(TrackId(2)).collect();
/// assert_eq!(neighbours, [TrackId(1), TrackId(3)]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackGeometry {
    /// Tracks on the device.
    pub track_count: u32,
    /// Bytes of a top track.
    pub top_track_bytes: u64,
    /// Bytes of a bottom track.
    pub bottom_track_bytes: u64,
    /// Tops overlap bottoms. If not, the disk is a conventional one: tracks alternate by name only, none has a
    /// neighbour, and no write destroys anything.
    pub interlaced: bool,
}

impl TrackGeometry {
    /// Most tracks of a device: what is live on them is held in memory, up to some tens of bytes for each. Tracks
    /// of 2 MiB are 32 TiB then.
    pub const TRACKS_MAX: u32 = 1 << 24;

    /// As many whole tracks as fit in `capacity_bytes`; `None` when none does, when a size is 0, or
    /// when they are more than [`TrackGeometry::TRACKS_MAX`].
    pub fn fit(capacity_bytes: u64, bottom_track_bytes: u64, top_track_bytes: u64) -> Option<Self> {
        let pair_bytes = bottom_track_bytes.checked_add(top_track_bytes)?;
        if bottom_track_bytes == 0 || top_track_bytes == 0 {
            return None;
        }
        let pairs = capacity_bytes / pair_bytes;
        let last = u64::from(capacity_bytes % pair_bytes >= bottom_track_bytes);
        let track_count = u32::try_from(pairs.checked_mul(2)?.checked_add(last)?).ok()?;
        (1..=Self::TRACKS_MAX).contains(&track_count).then_some(TrackGeometry {
            track_count,
            top_track_bytes,
            bottom_track_bytes,
            interlaced: true,
        })
    }

    /// The same tracks on a conventional disk.
    pub fn conventional(self) -> Self {
        TrackGeometry { interlaced: false, ..self }
    }

    /// Bytes of all tracks together: the capacity of the device.
    pub fn capacity_bytes(&self) -> u64 {
        self.tier_bytes(TrackTier::Bottom).saturating_add(self.tier_bytes(TrackTier::Top))
    }

    /// Tracks of a tier.
    pub fn tracks_of(&self, tier: TrackTier) -> u32 {
        match tier {
            TrackTier::Bottom => self.track_count.div_ceil(2),
            TrackTier::Top => self.track_count / 2,
        }
    }

    /// Bytes of one track of a tier.
    pub fn track_bytes(&self, tier: TrackTier) -> u64 {
        match tier {
            TrackTier::Bottom => self.bottom_track_bytes,
            TrackTier::Top => self.top_track_bytes,
        }
    }

    /// Bytes of all tracks of a tier together.
    pub fn tier_bytes(&self, tier: TrackTier) -> u64 {
        self.track_bytes(tier).saturating_mul(u64::from(self.tracks_of(tier)))
    }

    /// Whether there is such a track.
    pub fn contains(&self, track: TrackId) -> bool {
        track.0 < self.track_count
    }

    /// Tier of a track.
    pub fn tier(&self, track: TrackId) -> TrackTier {
        if track.0.is_multiple_of(2) { TrackTier::Bottom } else { TrackTier::Top }
    }

    /// First byte of a track on the device.
    pub fn start_bytes(&self, track: TrackId) -> u64 {
        let (bottoms, tops) = (track.0.div_ceil(2), track.0 / 2);
        let bottom_bytes = self.bottom_track_bytes.saturating_mul(u64::from(bottoms));
        bottom_bytes.saturating_add(self.top_track_bytes.saturating_mul(u64::from(tops)))
    }

    /// Bytes of a track.
    pub fn length_bytes(&self, track: TrackId) -> u64 {
        self.track_bytes(self.tier(track))
    }

    /// Bytes of the device a track covers.
    pub fn range(&self, track: TrackId) -> Range<u64> {
        let start = self.start_bytes(track);
        start..start.saturating_add(self.length_bytes(track))
    }

    /// The track that byte `offset_bytes` of the device lies in; `None` behind the last.
    pub fn track_at(&self, offset_bytes: u64) -> Option<TrackId> {
        let pair_bytes = self.bottom_track_bytes.checked_add(self.top_track_bytes)?;
        let pairs = offset_bytes.checked_div(pair_bytes)?;
        let in_top = u64::from(offset_bytes % pair_bytes >= self.bottom_track_bytes);
        let track = TrackId(u32::try_from(pairs.checked_mul(2)?.checked_add(in_top)?).ok()?);
        self.contains(track).then_some(track)
    }

    /// The tracks beside a track, the outer one first: the tops that overlap a bottom track, or the
    /// bottoms under a top track. None on a conventional disk.
    pub fn neighbours(&self, track: TrackId) -> impl Iterator<Item = TrackId> + use<> {
        let track_count = if self.interlaced { self.track_count } else { 0 };
        let both = [track.0.checked_sub(1), track.0.checked_add(1)];
        both.into_iter().flatten().filter(move |&other| other < track_count).map(TrackId)
    }

    /// Every track with the part of `range` (bytes of the device) that lies in it, as bytes within
    /// the track. What lies behind the last track is left out.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = (TrackId, Range<u64>)> + '_ {
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let track = self.track_at(at)?;
            let Range { start, end } = self.range(track);
            let piece = at - start..end.min(range.end) - start;
            at = end;
            Some((track, piece))
        })
    }

    /// The tracks that writing bytes `within` of the track `bottom` destroys a part of, with that
    /// part as bytes of the device: the same span of each neighbour. Nothing for a top track.
    ///
    /// The disk writes whole physical sectors, so the span is rounded outwards to them. Where tracks
    /// differ in size they still begin and end at the same angle, so bytes correspond in proportion,
    /// rounded outwards again.
    pub fn overlapped_span(
        &self,
        bottom: TrackId,
        within: Range<u64>,
        physical_sector_bytes: u64,
    ) -> impl Iterator<Item = (TrackId, Range<u64>)> + use<> {
        let sector = physical_sector_bytes.max(1);
        let (from, to) = (self.bottom_track_bytes.max(1), self.top_track_bytes);
        let start = within.start / sector * sector;
        let end = within.end.div_ceil(sector).saturating_mul(sector).min(from);
        // Within the track: no product of two lengths of tracks exceeds 128 bits.
        let proportion = |bytes: u64| u128::from(bytes) * u128::from(to);
        let start = (proportion(start) / u128::from(from)) as u64 / sector * sector;
        let end = (proportion(end).div_ceil(u128::from(from)) as u64).div_ceil(sector).saturating_mul(sector).min(to);
        let destroys = self.tier(bottom) == TrackTier::Bottom && !within.is_empty() && start < end;
        let starts = self.neighbours(bottom).map({
            let geometry = self.clone();
            move |track| (track, geometry.start_bytes(track))
        });
        starts.filter(move |_| destroys).map(move |(track, at)| (track, at + start..at + end))
    }

    /// Every part of a top track that is lost once bytes `written` of the device have been written in
    /// ascending order, with its track. A part of `written` itself is in it where a later sector
    /// destroyed an earlier one; what is written after it was destroyed is not.
    pub fn destroyed_by_write(
        &self,
        written: Range<u64>,
        physical_sector_bytes: u64,
    ) -> impl Iterator<Item = (TrackId, Range<u64>)> + '_ {
        let until = written.end;
        self.pieces(written)
            .flat_map(move |(bottom, within)| {
                self.overlapped_span(bottom, within, physical_sector_bytes).map(move |(track, span)| {
                    let start = if track > bottom { span.start.max(until) } else { span.start };
                    (track, start..span.end)
                })
            })
            .filter(|(_, span)| !span.is_empty())
    }

    /// Whether a description is that of a track. Allocates nothing.
    pub fn is_described_by(&self, track: TrackId, found: &TrackDescription) -> bool {
        if !self.contains(track) {
            return false;
        }
        let tier = self.tier(track);
        let sizes = (self.start_bytes(track), self.length_bytes(track), tier);
        let overlaps = match tier {
            TrackTier::Bottom => found.overlaps.iter().copied().eq(self.neighbours(track)),
            TrackTier::Top => found.overlaps.is_empty(),
        };
        (found.start_bytes, found.length_bytes, found.tier) == sizes && overlaps
    }

    /// One track by value; `None` when there is no such track.
    pub fn describe(&self, track: TrackId) -> Option<TrackDescription> {
        self.contains(track).then(|| {
            let tier = self.tier(track);
            let overlaps = match tier {
                TrackTier::Bottom => self.neighbours(track).collect(),
                TrackTier::Top => Vec::new(),
            };
            let (start_bytes, length_bytes) = (self.start_bytes(track), self.length_bytes(track));
            TrackDescription { start_bytes, length_bytes, tier, overlaps }
        })
    }
}

/// One track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackDescription {
    /// First byte on the device.
    pub start_bytes: u64,
    /// Bytes of the track.
    pub length_bytes: u64,
    /// Tier.
    pub tier: TrackTier,
    /// Tracks whose same span a write to this one destroys: none for a top track.
    pub overlaps: Vec<TrackId>,
}

/// What writes to bottom tracks destroyed although it was worth keeping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DestroyedData {
    /// Writes that destroyed live data.
    pub writes: u64,
    /// Live bytes they destroyed.
    pub bytes: u64,
}

/// Host-side commands of a host-managed interlaced disk: with reading, writing and syncing of
/// [`crate::BlockDevice`] the library KVIMR wishes for ("IMRLib", section 3.1). The track sizes are in
/// [`crate::Capabilities::tracks`].
///
/// *Live* is what was written to a top track and since then not discarded, destroyed or marked free.
/// Any thread may call any method at any time; none of them takes device time.
pub trait TrackControl: Send + Sync {
    /// Description of one track.
    ///
    /// # Errors
    /// [`MediaError::Rule`] when there is no such track.
    fn describe(&self, track: TrackId) -> Result<TrackDescription, MediaError>;

    /// Descriptions of `count` tracks from `first`; fewer where the device ends.
    ///
    /// # Errors
    /// [`MediaError::Rule`] when there is no track `first`.
    fn report(&self, first: TrackId, count: u32) -> Result<Vec<TrackDescription>, MediaError>;

    /// Says that a track holds nothing worth keeping: writes may destroy it without being counted
    /// or refused. Its data stays readable until then. Not durable: after a power cut, or when the
    /// device is opened again, everything on it may count as live until it is marked free again.
    ///
    /// # Errors
    /// [`MediaError::Rule`] when there is no such track.
    fn mark_free(&self, track: TrackId) -> Result<(), MediaError>;

    /// Live data destroyed since the device was made or opened. Monotonic.
    fn destroyed(&self) -> DestroyedData;

    /// Whether a write that would destroy live data is refused ([`MediaError::Rule`], nothing
    /// changed) and not only counted.
    fn is_strict(&self) -> bool;
}

impl Facet for dyn TrackControl {
    /// Track commands move no data: faults and traces are none of theirs.
    fn through(inner: &Arc<Self>, layer: &Layer<'_>) -> Option<Arc<Self>> {
        match layer {
            Layer::Fault { .. } | Layer::Trace { .. } | Layer::Crash(_) => Some(inner.clone()),
            Layer::Overlay(_) => Some(OverlayTracks::facet(inner)),
            Layer::CrashImage(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    const SECTOR: u64 = 4096;

    fn random_geometry(random: &mut Random) -> TrackGeometry {
        let mut bytes = || (1 + random.below(40)) * SECTOR;
        let (bottom_track_bytes, top_track_bytes) = (bytes(), bytes());
        TrackGeometry {
            track_count: 1 + random.below(12) as u32,
            top_track_bytes,
            bottom_track_bytes,
            interlaced: true,
        }
    }

    #[test]
    fn tracks_cover_the_device_in_order_and_alternate() {
        let seed = 1;
        let mut random = Random::seeded(seed);
        for round in 0..200 {
            let tracks = random_geometry(&mut random);
            let mut at = 0;
            for number in 0..tracks.track_count {
                let track = TrackId(number);
                let described = tracks.describe(track).unwrap();
                assert_eq!(described.start_bytes, at, "seed {seed} round {round}");
                assert_eq!(tracks.range(track), at..at + described.length_bytes);
                assert_eq!(described.tier == TrackTier::Bottom, number % 2 == 0);
                assert_eq!(described.length_bytes, tracks.track_bytes(described.tier));
                assert_eq!(tracks.track_at(at), Some(track));
                at += described.length_bytes;
                assert_eq!(tracks.track_at(at - 1), Some(track));
                for other in &described.overlaps {
                    assert!(other.0.abs_diff(number) == 1 && tracks.tier(*other) == TrackTier::Top);
                }
                let expected = u32::from(number > 0) + u32::from(number + 1 < tracks.track_count);
                assert_eq!(tracks.neighbours(track).count() as u32, expected);
                assert_eq!(described.overlaps.len() as u32, if number % 2 == 0 { expected } else { 0 });
                assert!(tracks.is_described_by(track, &described));
                let mut others = [described.clone(), described.clone(), described.clone(), described.clone()];
                others[0].start_bytes += 1;
                others[1].length_bytes += 1;
                others[2].tier = if number % 2 == 0 { TrackTier::Top } else { TrackTier::Bottom };
                others[3].overlaps.push(track);
                assert!(others.iter().all(|other| !tracks.is_described_by(track, other)));
                assert!(!tracks.is_described_by(TrackId(tracks.track_count), &described));
            }
            assert_eq!((tracks.capacity_bytes(), tracks.track_at(at)), (at, None));
            assert!(tracks.describe(TrackId(tracks.track_count)).is_none());
            let tiers = [TrackTier::Bottom, TrackTier::Top].map(|tier| tracks.tracks_of(tier));
            assert_eq!(tiers[0] + tiers[1], tracks.track_count);
            let (bottom, top) = (tracks.bottom_track_bytes, tracks.top_track_bytes);
            let next = tracks.length_bytes(TrackId(tracks.track_count));
            for spare in [0, 1, next - 1] {
                assert_eq!(TrackGeometry::fit(at + spare, bottom, top).as_ref(), Some(&tracks));
            }
            assert_ne!(TrackGeometry::fit(at + next, bottom, top).as_ref(), Some(&tracks));
            let start = random.below(at);
            let range = start..start + random.below(at - start + 1);
            let mut next = range.start;
            for (track, piece) in tracks.pieces(range.clone()) {
                assert_eq!(tracks.start_bytes(track) + piece.start, next);
                next += piece.end - piece.start;
            }
            assert_eq!(next, range.end);
        }
    }

    #[test]
    fn tracks_of_a_conventional_disk_lie_where_they_would_and_leave_each_other_alone() {
        let seed = 4;
        let mut random = Random::seeded(seed);
        for round in 0..50 {
            let interlaced = random_geometry(&mut random);
            let tracks = interlaced.clone().conventional();
            for track in (0..tracks.track_count).map(TrackId) {
                assert_eq!(
                    (tracks.range(track), tracks.tier(track)),
                    (interlaced.range(track), interlaced.tier(track))
                );
                assert_eq!(tracks.neighbours(track).count(), 0, "seed {seed} round {round}");
                assert!(tracks.describe(track).unwrap().overlaps.is_empty());
            }
            assert_eq!(tracks.destroyed_by_write(0..tracks.capacity_bytes(), SECTOR).count(), 0);
        }
    }

    #[test]
    fn nothing_fits_in_nothing_and_no_number_panics() {
        assert_eq!(TrackGeometry::fit(4095, 4096, 4096), None);
        assert_eq!(TrackGeometry::fit(1 << 20, 0, 4096), None);
        assert_eq!(TrackGeometry::fit(u64::MAX, 1, 1), None);
        let most = u64::from(TrackGeometry::TRACKS_MAX);
        let fit = TrackGeometry::fit(most * 4096, 4096, 4096);
        assert_eq!(fit.map(|tracks| tracks.track_count), Some(TrackGeometry::TRACKS_MAX));
        assert_eq!(TrackGeometry::fit((most + 1) * 4096, 4096, 4096), None);
        assert_eq!(TrackGeometry::fit(u64::MAX, u64::MAX, u64::MAX), None);
        for bytes in [0, 1, u64::MAX] {
            let tracks = TrackGeometry {
                track_count: u32::MAX,
                top_track_bytes: bytes,
                bottom_track_bytes: bytes,
                interlaced: true,
            };
            for track in [TrackId(0), TrackId(1), TrackId(u32::MAX)] {
                let _ = (tracks.range(track), tracks.describe(track), tracks.neighbours(track).count());
            }
            let _ = (tracks.capacity_bytes(), tracks.track_at(u64::MAX), tracks.pieces(0..10).take(20).count());
        }
    }

    /// The same span, said differently: a top sector is destroyed exactly when the arc it covers
    /// shares an angle with the arc of a written bottom sector.
    #[test]
    fn overlapped_sectors_are_those_at_the_same_angle() {
        let seed = 2;
        let mut random = Random::seeded(seed);
        for round in 0..300 {
            let tracks = random_geometry(&mut random);
            let bottom = TrackId(random.below(u64::from(tracks.track_count)) as u32 / 2 * 2);
            let start = random.below(tracks.bottom_track_bytes / 512) * 512;
            let end = start + (1 + random.below((tracks.bottom_track_bytes - start) / 512)) * 512;
            let found: Vec<_> = tracks.overlapped_span(bottom, start..end, SECTOR).collect();
            let neighbours: Vec<TrackId> = tracks.neighbours(bottom).collect();
            assert_eq!(found.iter().map(|(track, _)| *track).collect::<Vec<_>>(), neighbours);
            for (track, span) in found {
                let base = tracks.start_bytes(track);
                for sector in 0..tracks.top_track_bytes / SECTOR {
                    let (from, until) = (sector * SECTOR, (sector + 1) * SECTOR);
                    // Angles in units of 1 / (bottom x top).
                    let (from, until) = (from * tracks.bottom_track_bytes, until * tracks.bottom_track_bytes);
                    let hit = (start / SECTOR..end.div_ceil(SECTOR)).any(|written| {
                        let begin = written * SECTOR * tracks.top_track_bytes;
                        let end = (written + 1) * SECTOR * tracks.top_track_bytes;
                        begin < until && from < end
                    });
                    let at = base + sector * SECTOR;
                    assert_eq!(span.contains(&at), hit, "seed {seed} round {round} track {track} sector {sector}");
                }
                assert!(span.start.is_multiple_of(SECTOR) && span.end.is_multiple_of(SECTOR));
            }
            assert_eq!(tracks.overlapped_span(TrackId(bottom.0 + 1), start..end, SECTOR).count(), 0);
        }
    }

    /// One long write is many short ones in ascending order.
    #[test]
    fn a_long_write_destroys_what_its_sectors_destroy_one_by_one() {
        let seed = 3;
        let mut random = Random::seeded(seed);
        for round in 0..200 {
            let tracks = random_geometry(&mut random);
            let sectors = tracks.capacity_bytes() / SECTOR;
            let first = random.below(sectors);
            let last = first + 1 + random.below(sectors - first);
            let mut expected = vec![false; sectors as usize];
            for sector in first..last {
                for (_, span) in tracks.destroyed_by_write(sector * SECTOR..(sector + 1) * SECTOR, SECTOR) {
                    expected[(span.start / SECTOR) as usize..(span.end / SECTOR) as usize].fill(true);
                }
                expected[sector as usize] = false;
            }
            let mut found = vec![false; sectors as usize];
            for (track, span) in tracks.destroyed_by_write(first * SECTOR..last * SECTOR, SECTOR) {
                assert!(tracks.range(track).start <= span.start && span.end <= tracks.range(track).end);
                found[(span.start / SECTOR) as usize..(span.end / SECTOR) as usize].fill(true);
            }
            assert!(found == expected, "seed {seed} round {round}: {tracks:?}, sectors {first} to {last}");
        }
    }

    #[test]
    fn a_ratio_maps_in_proportion() {
        let tracks = TrackGeometry {
            track_count: 5,
            top_track_bytes: 8 * SECTOR,
            bottom_track_bytes: 10 * SECTOR,
            interlaced: true,
        };
        let span = |within: Range<u64>| tracks.overlapped_span(TrackId(0), within, SECTOR).next().unwrap().1;
        let top = tracks.start_bytes(TrackId(1));
        assert_eq!(span(0..SECTOR), top..top + SECTOR);
        assert_eq!(span(5 * SECTOR..10 * SECTOR), top + 4 * SECTOR..top + 8 * SECTOR);
        // 1.0 to 2.0 sectors of the bottom are 0.8 to 1.6 of the top.
        assert_eq!(span(SECTOR..2 * SECTOR), top..top + 2 * SECTOR);
        assert_eq!(span(10 * SECTOR - 512..10 * SECTOR), top + 7 * SECTOR..top + 8 * SECTOR);
    }
}
