//! In which order a table reaches its tracks (KVIMR section 3.3).
//!
//! Writing a bottom track destroys what the tops beside it hold. A *rewrite* saves it: the tops are
//! backed up, the bottom is written, the tops are restored, with a sync of the device between these,
//! because a device orders nothing within a sync. A plan is a pure function of the tracks; an executor
//! does the I/O.

use super::bitmap::TrackBitmap;
use std::collections::BTreeSet;
use varve_media::{TrackGeometry, TrackId, TrackTier};

/// How tops are saved when a bottom beside them is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RewriteName {
    /// Track by track (algorithm 1): up to three syncs for a bottom, and a top between two bottoms of
    /// the table is saved twice.
    Naive,
    /// All at once (algorithm 2): at most five syncs for a table, each top saved once.
    #[default]
    Merged,
}

/// A step of persisting a table. Steps happen in order; what one step does is unordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PersistStep {
    /// Copy what these tops hold into the backup region.
    BackUp(Vec<TrackId>),
    /// Write these pieces of the table: positions in its list of tracks.
    Write(Vec<usize>),
    /// Copy what was backed up into these tops.
    Restore(Vec<TrackId>),
    /// Everything so far becomes durable.
    Sync,
}

/// What persisting costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PersistCost {
    /// Tops restored.
    pub(crate) rewrites: u64,
    pub(crate) syncs: u64,
}

impl PersistCost {
    pub(crate) fn of(steps: &[PersistStep]) -> PersistCost {
        steps.iter().fold(PersistCost::default(), |cost, step| match step {
            PersistStep::Restore(tops) => PersistCost { rewrites: cost.rewrites + tops.len() as u64, ..cost },
            PersistStep::Sync => PersistCost { syncs: cost.syncs + 1, ..cost },
            PersistStep::BackUp(_) | PersistStep::Write(_) => cost,
        })
    }
}

impl RewriteName {
    /// Both.
    pub const ALL: &[RewriteName] = &[RewriteName::Naive, RewriteName::Merged];

    /// The name in lower case.
    pub fn text(self) -> &'static str {
        match self {
            RewriteName::Naive => "naive",
            RewriteName::Merged => "merged",
        }
    }

    /// How a table gets to `tracks`, of which none is valid and none comes twice. `valid` tracks hold
    /// data that counts. No more than `copies_max` tops, at least two, are backed up at once: a table larger than
    /// what the backup region is for takes three more syncs for every part that fits.
    pub(crate) fn plan(
        self,
        geometry: &TrackGeometry,
        valid: &TrackBitmap,
        tracks: &[TrackId],
        copies_max: usize,
    ) -> Vec<PersistStep> {
        match self {
            RewriteName::Naive => naive(geometry, valid, tracks),
            RewriteName::Merged => merged(geometry, valid, tracks, copies_max),
        }
    }
}

/// The valid tops beside a bottom; none of a top.
fn endangered(geometry: &TrackGeometry, valid: &TrackBitmap, track: TrackId) -> Vec<TrackId> {
    if geometry.tier(track) == TrackTier::Top {
        return Vec::new();
    }
    geometry.neighbours(track).filter(|&neighbour| valid.contains(neighbour)).collect()
}

fn naive(geometry: &TrackGeometry, valid: &TrackBitmap, tracks: &[TrackId]) -> Vec<PersistStep> {
    let mut valid = valid.clone();
    let mut unsynced = BTreeSet::new();
    let mut steps = Vec::new();
    for (position, &track) in tracks.iter().enumerate() {
        // Either order could reach the medium: a bottom landing after a top beside it would destroy it.
        if geometry.neighbours(track).any(|neighbour| unsynced.contains(&neighbour)) {
            steps.push(PersistStep::Sync);
            unsynced.clear();
        }
        let tops = endangered(geometry, &valid, track);
        if tops.is_empty() {
            steps.push(PersistStep::Write(vec![position]));
            unsynced.insert(track);
        } else {
            steps.extend([
                PersistStep::BackUp(tops.clone()),
                PersistStep::Sync,
                PersistStep::Write(vec![position]),
                PersistStep::Sync,
                PersistStep::Restore(tops),
                PersistStep::Sync,
            ]);
            unsynced.clear();
        }
        valid.insert(track);
    }
    if steps.last() != Some(&PersistStep::Sync) {
        steps.push(PersistStep::Sync);
    }
    steps
}

fn merged(geometry: &TrackGeometry, valid: &TrackBitmap, tracks: &[TrackId], copies_max: usize) -> Vec<PersistStep> {
    // Bottoms that are written together, and the tops that this endangers.
    let mut parts: Vec<(Vec<usize>, BTreeSet<TrackId>)> = Vec::new();
    let (mut bottoms, mut rest) = (Vec::new(), Vec::new());
    for (position, &track) in tracks.iter().enumerate() {
        let endangered = endangered(geometry, valid, track);
        if !endangered.is_empty() {
            let fits = |tops: &BTreeSet<TrackId>| {
                tops.len() + endangered.iter().filter(|top| !tops.contains(top)).count() <= copies_max
            };
            match parts.last_mut().filter(|(_, tops)| fits(tops)) {
                Some((positions, tops)) => {
                    positions.push(position);
                    tops.extend(endangered);
                }
                None => parts.push((vec![position], endangered.into_iter().collect())),
            }
        } else if geometry.interlaced && geometry.tier(track) == TrackTier::Bottom {
            bottoms.push(position);
        } else {
            rest.push(position);
        }
    }
    let mut steps = Vec::new();
    for (positions, tops) in parts {
        let tops: Vec<TrackId> = tops.into_iter().collect();
        steps.extend([
            PersistStep::BackUp(tops.clone()),
            PersistStep::Sync,
            PersistStep::Write(positions),
            PersistStep::Sync,
            PersistStep::Restore(tops),
            PersistStep::Sync,
        ]);
    }
    // Bottoms before tops: a bottom written later would destroy a top just written.
    for positions in [bottoms, rest] {
        if !positions.is_empty() {
            steps.extend([PersistStep::Write(positions), PersistStep::Sync]);
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    fn geometry(track_count: u32) -> TrackGeometry {
        TrackGeometry { track_count, top_track_bytes: 1 << 20, bottom_track_bytes: 1 << 20, interlaced: true }
    }

    #[test]
    fn a_conventional_disk_takes_one_sync_in_the_order_of_the_file() {
        let geometry = geometry(20).conventional();
        let valid = bitmap(20, &[1, 3, 5, 9]);
        for rewrite in [RewriteName::Naive, RewriteName::Merged] {
            let steps = rewrite.plan(&geometry, &valid, &ids(&[2, 4, 7, 6]), 8);
            assert_eq!(PersistCost::of(&steps), PersistCost { rewrites: 0, syncs: 1 }, "{rewrite:?}");
            let written: Vec<usize> = steps
                .iter()
                .flat_map(|step| match step {
                    PersistStep::Write(positions) => positions.clone(),
                    _ => Vec::new(),
                })
                .collect();
            assert_eq!(written, [0, 1, 2, 3]);
        }
    }

    fn bitmap(track_count: u32, tracks: &[u32]) -> TrackBitmap {
        let mut bitmap = TrackBitmap::new(track_count);
        for &track in tracks {
            bitmap.insert(TrackId(track));
        }
        bitmap
    }

    fn ids(tracks: &[u32]) -> Vec<TrackId> {
        tracks.iter().map(|&track| TrackId(track)).collect()
    }

    #[test]
    fn the_steps_are_those_of_the_algorithms() {
        use PersistStep::{BackUp, Restore, Sync, Write};
        let geometry = geometry(16);
        // Bottoms 4 and 6 share the valid top 5; bottom 10 is free of neighbours; 13 is a top.
        let valid = bitmap(16, &[5, 7]);
        let tracks = ids(&[4, 6, 10, 13]);
        let steps = RewriteName::Merged.plan(&geometry, &valid, &tracks, 64);
        let expected = [
            BackUp(ids(&[5, 7])),
            Sync,
            Write(vec![0, 1]),
            Sync,
            Restore(ids(&[5, 7])),
            Sync,
            Write(vec![2]),
            Sync,
            Write(vec![3]),
            Sync,
        ];
        assert_eq!(steps, expected);
        assert_eq!(PersistCost::of(&steps), PersistCost { rewrites: 2, syncs: 5 });
        let steps = RewriteName::Naive.plan(&geometry, &valid, &tracks, 64);
        let expected = [
            BackUp(ids(&[5])),
            Sync,
            Write(vec![0]),
            Sync,
            Restore(ids(&[5])),
            Sync,
            BackUp(ids(&[5, 7])),
            Sync,
            Write(vec![1]),
            Sync,
            Restore(ids(&[5, 7])),
            Sync,
            Write(vec![2]),
            Write(vec![3]),
            Sync,
        ];
        assert_eq!(steps, expected);
        assert_eq!(PersistCost::of(&steps), PersistCost { rewrites: 3, syncs: 7 });
        // Neighbours of one table, in the order of the tracks: the top is synced before it is endangered.
        let steps = RewriteName::Naive.plan(&geometry, &TrackBitmap::new(16), &ids(&[1, 2]), 64);
        let rewrite = [BackUp(ids(&[1])), Sync, Write(vec![1]), Sync, Restore(ids(&[1])), Sync];
        assert_eq!(steps, [&[Write(vec![0]), Sync][..], &rewrite].concat());
        let steps = RewriteName::Merged.plan(&geometry, &TrackBitmap::new(16), &ids(&[1, 2]), 64);
        assert_eq!(steps, [Write(vec![1]), Sync, Write(vec![0]), Sync]);
        let steps = RewriteName::Merged.plan(&geometry, &TrackBitmap::new(16), &ids(&[1, 3]), 64);
        assert_eq!(steps, [Write(vec![0, 1]), Sync]);
    }

    /// Between two syncs anything may reach the medium in any order; whatever the order, at the end
    /// every valid top and every piece is there.
    #[test]
    fn no_order_within_a_sync_loses_anything() {
        for name in [RewriteName::Naive, RewriteName::Merged] {
            for seed in 0..2000 {
                let mut random = Random::seeded(seed);
                let track_count = 4 + random.below(20) as u32;
                let geometry = geometry(track_count);
                let mut all: Vec<u32> = (0..track_count).collect();
                random.shuffle(&mut all);
                let (held, free) = all.split_at(random.below(u64::from(track_count)) as usize);
                let valid = bitmap(track_count, held);
                let tracks = ids(&free[..free.len().min(1 + random.below(8) as usize)]);
                let copies_max = 2 + random.below(20) as usize;
                let steps = name.plan(&geometry, &valid, &tracks, copies_max);
                // What each track holds: the number of its content, or nothing.
                let old = |track: TrackId| 1000 + track.0;
                let mut medium: Vec<Option<u32>> =
                    (0..track_count).map(|track| valid.contains(TrackId(track)).then(|| old(TrackId(track)))).collect();
                let mut backup = std::collections::BTreeMap::new();
                let mut pending: Vec<(TrackId, u32)> = Vec::new();
                for step in &steps {
                    match step {
                        PersistStep::BackUp(tops) => {
                            assert!(tops.len() <= copies_max);
                            for &top in tops {
                                let beside = |&(track, _): &(TrackId, u32)| track.0.abs_diff(top.0) <= 1;
                                assert!(!pending.iter().any(beside), "a backup of what is being written");
                                backup.insert(top, medium[top.0 as usize].expect("a top lost before its backup"));
                            }
                        }
                        PersistStep::Write(positions) => {
                            pending.extend(positions.iter().map(|&position| (tracks[position], position as u32)));
                        }
                        PersistStep::Restore(tops) => {
                            pending.extend(tops.iter().map(|&top| (top, backup[&top])));
                        }
                        PersistStep::Sync => {
                            random.shuffle(&mut pending);
                            for (track, content) in pending.drain(..) {
                                medium[track.0 as usize] = Some(content);
                                if geometry.tier(track) == TrackTier::Bottom {
                                    for top in geometry.neighbours(track) {
                                        medium[top.0 as usize] = None;
                                    }
                                }
                            }
                        }
                    }
                }
                assert!(pending.is_empty(), "{name:?}, seed {seed}: not all is synced");
                for track in valid.iter() {
                    assert_eq!(medium[track.0 as usize], Some(old(track)), "{name:?}, seed {seed}, track {track:?}");
                }
                for (position, track) in tracks.iter().enumerate() {
                    assert_eq!(medium[track.0 as usize], Some(position as u32), "{name:?}, seed {seed}");
                }
                if name == RewriteName::Merged {
                    let cost = PersistCost::of(&steps);
                    let whole = PersistCost::of(&name.plan(&geometry, &valid, &tracks, 64));
                    assert!((1..=5).contains(&whole.syncs) && whole.rewrites <= cost.rewrites);
                    let naive = PersistCost::of(&RewriteName::Naive.plan(&geometry, &valid, &tracks, 64));
                    assert!(cost.rewrites <= naive.rewrites);
                }
            }
        }
    }
}
