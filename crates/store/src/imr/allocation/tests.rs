//! What every policy keeps, and what each is for.

use super::super::rewrite::PersistCost;
use super::*;
use varve_env::Random;

const TRACK_BYTES: u64 = 1 << 20;

fn geometry(track_count: u32, bottom_track_bytes: u64) -> TrackGeometry {
    TrackGeometry { track_count, top_track_bytes: TRACK_BYTES, bottom_track_bytes, interlaced: true }
}

fn bitmap(track_count: u32, tracks: impl IntoIterator<Item = u32>) -> TrackBitmap {
    let mut bitmap = TrackBitmap::new(track_count);
    for track in tracks {
        bitmap.insert(TrackId(track));
    }
    bitmap
}

/// Tracks of a store that was just opened.
fn fresh_view<'a>(
    geometry: &'a TrackGeometry,
    usable: &'a Range<u32>,
    valid: &'a TrackBitmap,
    locked: &'a TrackBitmap,
) -> TrackView<'a> {
    TrackView { geometry, usable, valid, locked, cursor: Cursor::default() }
}

fn policy(name: AllocationName, rewrite: RewriteName, geometry: &TrackGeometry) -> Box<dyn AllocationPolicy> {
    name.policy(&PolicySetting { rewrite, geometry, table_bytes_max: 8 * TRACK_BYTES })
}

/// The numbers of the tracks that `name` gives.
fn placed(name: AllocationName, view: &TrackView<'_>, request: &TrackRequest) -> Vec<u32> {
    let placement = policy(name, RewriteName::Merged, view.geometry).place(view, request).unwrap();
    placement.tracks.iter().map(|track| track.0).collect()
}

fn request(tracks: u64, level: Option<u8>, largest_level: Option<u8>) -> TrackRequest {
    TrackRequest { size_bytes: tracks * TRACK_BYTES, level, largest_level }
}

#[test]
fn every_policy_gives_free_tracks_that_hold_the_table_and_refuses_only_without_them() {
    let without = CostTerm::ALL.iter().map(|&term| AllocationName::CostAwareWithout(term));
    for name in AllocationName::ALL.iter().copied().chain(without) {
        for seed in 0..300 {
            let mut random = Random::seeded(seed);
            let track_count = 8 + random.below(60) as u32;
            let geometry = geometry(track_count, TRACK_BYTES + random.below(3) * TRACK_BYTES / 4);
            let usable = random.below(5) as u32..track_count - random.below(3) as u32;
            let policy = policy(name, RewriteName::Merged, &geometry);
            let mut valid = TrackBitmap::new(track_count);
            let mut tables: Vec<Vec<TrackId>> = Vec::new();
            let mut cursor = Cursor::default();
            for step in 0..200 {
                if random.chance(2, 5) && !tables.is_empty() {
                    for track in tables.swap_remove(random.index(tables.len())) {
                        assert!(valid.remove(track));
                    }
                    continue;
                }
                let level = random.chance(4, 5).then(|| random.below(4) as u8);
                let largest_level = random.chance(4, 5).then(|| random.below(4) as u8);
                let locked = bitmap(track_count, (0..track_count).filter(|_| random.chance(1, 20)));
                let request = TrackRequest { size_bytes: 1 + random.below(8 * TRACK_BYTES), level, largest_level };
                let view = TrackView { geometry: &geometry, usable: &usable, valid: &valid, locked: &locked, cursor };
                let free: u64 = usable
                    .clone()
                    .map(TrackId)
                    .filter(|&track| !valid.contains(track) && !locked.contains(track))
                    .map(|track| geometry.length_bytes(track))
                    .sum();
                let what = format!("{name:?}, seed {seed}, step {step}");
                let placement = policy.place(&view, &request);
                assert_eq!(placement.is_some(), free >= request.size_bytes, "{what}");
                let Some(placement) = placement else { continue };
                let bytes: u64 = placement.tracks.iter().map(|&track| geometry.length_bytes(track)).sum();
                let last = placement.tracks.last().map_or(0, |&track| geometry.length_bytes(track));
                assert!(bytes >= request.size_bytes && bytes - last < request.size_bytes, "{what}");
                for &track in &placement.tracks {
                    assert!(usable.contains(&track.0) && !locked.contains(track), "{what}");
                    assert!(valid.insert(track), "{what}: track {track} given twice");
                }
                cursor = placement.cursor;
                tables.push(placement.tracks);
            }
        }
    }
}

#[test]
fn every_policy_has_one_text() {
    let texts = || AllocationName::TEXTS.iter().chain(AllocationName::COMPARED_TEXTS);
    assert_eq!(texts().count(), NAMES.len());
    for (name, _, text) in NAMES {
        assert_eq!(texts().filter(|known| *known == text).count(), 1, "{text}");
        assert_eq!(AllocationName::of_text(text), Some(*name));
    }
}

#[test]
fn the_orders_are_those_of_the_paper() {
    let geometry = geometry(16, TRACK_BYTES);
    let (usable, valid, locked) = (0..16, TrackBitmap::new(16), TrackBitmap::new(16));
    let view = fresh_view(&geometry, &usable, &valid, &locked);
    let whole = request(16, None, None);
    assert_eq!(placed(AllocationName::Sequential, &view, &whole), (0..16).collect::<Vec<_>>());
    let bottoms = [0, 2, 4, 6, 8, 10, 12, 14];
    let three_phase = [&bottoms[..], &[1, 5, 9, 13], &[3, 7, 11, 15]].concat();
    assert_eq!(placed(AllocationName::ThreePhase, &view, &whole), three_phase);
    let zigzag = [&bottoms[..], &[13, 9, 5, 1], &[3, 7, 11, 15]].concat();
    assert_eq!(placed(AllocationName::Zigzag, &view, &whole), zigzag);
    let region = request(5, None, None);
    assert_eq!(placed(AllocationName::Region, &view, &region), [0, 2, 4, 6, 1]);
}

#[test]
fn the_largest_level_gets_bottoms_and_the_others_tops() {
    let geometry = geometry(16, TRACK_BYTES);
    let (usable, valid, locked) = (0..16, TrackBitmap::new(16), TrackBitmap::new(16));
    let view = fresh_view(&geometry, &usable, &valid, &locked);
    let name = AllocationName::CompactionAware;
    assert_eq!(placed(name, &view, &request(3, Some(3), Some(3))), [0, 2, 4]);
    for other in [request(3, Some(2), Some(3)), request(3, None, Some(3)), request(3, None, None)] {
        assert_eq!(placed(name, &view, &other), [1, 3, 5]);
    }
    // A table of a new largest level.
    assert_eq!(placed(name, &view, &request(2, Some(4), Some(3))), [0, 2]);
    // Each tier goes on where it stopped.
    let cursor = Cursor { track: 0, bottom: 11, top: 6 };
    let view = TrackView { cursor, ..view };
    assert_eq!(placed(name, &view, &request(4, Some(1), Some(1))), [12, 14, 0, 2]);
    assert_eq!(placed(name, &view, &request(2, Some(0), Some(1))), [7, 9]);
}

#[test]
fn rewrites_are_avoided_while_they_can_be_and_near_when_they_cannot() {
    let geometry = geometry(16, TRACK_BYTES);
    let (usable, locked) = (0..16, TrackBitmap::new(16));
    let name = AllocationName::CompactionAware;
    // Tops 1 and 7 are in use: bottoms 0, 2, 6 and 8 would cost a rewrite.
    let valid = bitmap(16, [1, 7]);
    let view = fresh_view(&geometry, &usable, &valid, &locked);
    assert_eq!(placed(name, &view, &request(4, Some(3), Some(3))), [4, 10, 12, 14]);
    let six = placed(name, &view, &request(6, Some(3), Some(3)));
    assert_eq!(six, [4, 10, 12, 14, 8, 6], "the nearest to the last track follow");
    // Every bottom costs one: the nearest to the last position.
    let valid = bitmap(16, [1, 3, 5, 7, 9, 11, 13, 15]);
    let cursor = Cursor { bottom: 9, ..Cursor::default() };
    let view = TrackView { valid: &valid, locked: &locked, cursor, ..view };
    assert_eq!(placed(name, &view, &request(2, Some(3), Some(3))), [10, 12]);
    // Tops are full: a smaller level takes bottoms rather than nothing.
    assert_eq!(placed(name, &view, &request(8, Some(0), Some(3))).len(), 8);
}

#[test]
fn a_region_is_for_one_table_until_there_is_none_left() {
    let geometry = geometry(16, TRACK_BYTES);
    let (usable, locked) = (0..16, TrackBitmap::new(16));
    let valid = bitmap(16, [0]);
    let view = fresh_view(&geometry, &usable, &valid, &locked);
    // Regions of 8 tracks: the first is not free.
    assert_eq!(placed(AllocationName::Region, &view, &request(1, None, None)), [8]);
    let valid = bitmap(16, [0, 8]);
    let view = TrackView { valid: &valid, ..view };
    assert_eq!(placed(AllocationName::Region, &view, &request(2, None, None)), [2, 4]);
}

#[test]
fn a_table_takes_tracks_of_both_tiers_as_they_lie() {
    let geometry = geometry(64, TRACK_BYTES);
    let (usable, locked) = (0..64, TrackBitmap::new(64));
    let place = |name: AllocationName, geometry: &TrackGeometry, rewrite: RewriteName, free: &[u32]| {
        let valid = bitmap(64, (0..64).filter(|track| !free.contains(track)));
        let view = fresh_view(geometry, &usable, &valid, &locked);
        let placement = policy(name, rewrite, geometry).place(&view, &request(3, Some(3), Some(3))).unwrap();
        placement.tracks.iter().map(|track| track.0).collect::<Vec<_>>()
    };
    let name = AllocationName::CostAware;
    let merged = |free: &[u32]| place(name, &geometry, RewriteName::Merged, free);
    assert_eq!(merged(&(0..64).collect::<Vec<_>>()), [0, 1, 2], "the outermost");
    // The hole between two bottoms costs nothing, beside the other one are two tops.
    let free = [2, 3, 4, 31, 32, 33, 50];
    assert_eq!(merged(&free), [31, 32, 33]);
    let naive = place(name, &geometry, RewriteName::Naive, &free);
    assert_eq!(naive, [32, 31, 33], "track by track it would rewrite its own tops");
    // A hole that is filled before one of which a part is left over; gaps before a rewrite.
    assert_eq!(merged(&[9, 10, 11, 12, 41, 42, 43]), [41, 42, 43]);
    assert_eq!(merged(&[9, 10, 11, 12, 13, 41, 42]), [9, 10, 11], "the outermost of those that are equal");
    assert_eq!(merged(&[5, 20, 21, 22, 41, 43, 51]), [41, 43, 51]);
    // Without a term that is otherwise.
    let without =
        |term, free: &[u32]| place(AllocationName::CostAwareWithout(term), &geometry, RewriteName::Merged, free);
    let free = [20, 21, 22, 31, 33, 35];
    assert_eq!(merged(&free), [31, 33, 35], "three for the syncs are more than two gaps");
    assert_eq!(without(CostTerm::Syncs, &free), [20, 21, 22]);
    assert_eq!(without(CostTerm::Cuts, &[9, 10, 11, 12, 41, 42, 43]), [9, 10, 11]);
    assert_eq!(without(CostTerm::Gaps, &[5, 15, 25, 30, 31, 32]), [5, 15, 25]);
    // A rewrite and no gap, or gaps and no rewrite.
    let seven = |name: AllocationName, others: [u32; 7]| {
        let free: Vec<u32> = (0..7).chain(others).collect();
        let valid = bitmap(64, (0..64).filter(|track| !free.contains(track)));
        placed(name, &fresh_view(&geometry, &usable, &valid, &locked), &request(7, Some(3), Some(3)))
    };
    let (few_gaps, gaps) = ([21, 22, 23, 25, 26, 27, 29], [21, 23, 25, 27, 29, 31, 33]);
    assert_eq!(seven(name, few_gaps), few_gaps);
    assert_eq!(seven(name, gaps), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(seven(AllocationName::CostAwareWithout(CostTerm::Syncs), few_gaps), [0, 1, 2, 3, 4, 5, 6]);
    // On a conventional disk the hole that fits best, and nothing costs a rewrite.
    let conventional = geometry.conventional();
    for rewrite in [RewriteName::Merged, RewriteName::Naive] {
        assert_eq!(place(name, &conventional, rewrite, &[2, 3, 4, 5, 32, 33, 34]), [32, 33, 34], "{rewrite:?}");
        assert_eq!(place(name, &conventional, rewrite, &[20, 21, 22, 41, 43, 51]), [20, 21, 22], "{rewrite:?}");
    }
}

/// Compared with every run of free tracks, its cost taken from the steps in which it would be written.
#[test]
fn tracks_as_they_lie_cost_no_more_than_any_others() {
    for seed in 0..1200 {
        let mut random = Random::seeded(seed);
        let geometry = geometry(8 + random.below(60) as u32, TRACK_BYTES + random.below(3) * TRACK_BYTES / 4);
        let count = geometry.track_count;
        let usable = random.below(4) as u32..count - random.below(3) as u32;
        // Nearly full, and with holes that hold many tables.
        let (valid_in_60, locked_in_60) = [(36, 3), (6, 1), (2, 0)][seed as usize % 3];
        let valid = bitmap(count, (0..count).filter(|_| random.chance(valid_in_60, 60)));
        let locked = bitmap(count, (0..count).filter(|_| random.chance(locked_in_60, 60)));
        let view = fresh_view(&geometry, &usable, &valid, &locked);
        let free: Vec<TrackId> = view.free().collect();
        let request = TrackRequest { size_bytes: 1 + random.below(6 * TRACK_BYTES), level: None, largest_level: None };
        let bytes = |tracks: &[TrackId]| tracks.iter().map(|&track| geometry.length_bytes(track)).sum::<u64>();
        let cost = |tracks: &[TrackId]| {
            let rewrites = PersistCost::of(&RewriteName::Merged.plan(&geometry, &valid, tracks, 64)).rewrites;
            let gaps = tracks.windows(2).filter(|pair| pair[0].0 + 1 < pair[1].0).count() as u64;
            let [first, last] = [tracks[0].0, tracks[tracks.len() - 1].0];
            let is_free = |track: Option<u32>| track.is_some_and(|track| view.is_free(TrackId(track)));
            let cuts = u64::from(is_free(first.checked_sub(1))) + u64::from(is_free(last.checked_add(1)));
            // Beyond the tracks in use two seeks over the distance, by the root of its share of the stroke.
            let in_use = usable.clone().rev().find(|&track| valid.contains(TrackId(track)));
            let beyond = (last + 1).saturating_sub(in_use.map_or(usable.start, |track| track + 1));
            let SeekTimes { shortest_nanos, longest_nanos, rotation_nanos } = SeekTimes::TYPICAL;
            let stroke = 2000 * (longest_nanos - shortest_nanos) / (shortest_nanos + rotation_nanos / 2);
            let seeks = (stroke as f64 * (f64::from(beyond) / f64::from(count)).sqrt()) as u64;
            1000 * (gaps + cuts + if rewrites > 0 { 3 } else { 0 }) + seeks
        };
        let runs = (0..free.len()).filter_map(|start| {
            let end = (start + 1..=free.len()).find(|&end| bytes(&free[start..end]) >= request.size_bytes)?;
            Some(&free[start..end])
        });
        let least = runs.map(|run| (cost(run), run)).min_by_key(|(cost, run)| (*cost, run[0]));
        let setting =
            PolicySetting { rewrite: RewriteName::Merged, geometry: &geometry, table_bytes_max: 8 * TRACK_BYTES };
        let found = CostAware::new(&setting, &SeekTimes::TYPICAL, None).cheapest(&view, &request, &free);
        assert_eq!(found.map(|run| (cost(run), run)), least, "seed {seed}");
    }
}

/// The second table of a fresh disk lay at its far end, as a guard track behind the first one cost more, and each read between the two moved the
/// arm over the whole stroke.
#[test]
fn tables_stay_near_the_tracks_in_use_on_a_mostly_empty_disk() {
    const TRACKS: u32 = 40_000;
    let geometry = geometry(TRACKS, TRACK_BYTES);
    let (usable, locked) = (16..TRACKS, TrackBitmap::new(TRACKS));
    for (used, largest) in [(0, 40), (0, 7), (0, 1), (TRACKS / 100, 33), (TRACKS / 2, 40)] {
        let mut random = Random::seeded(u64::from(used) + largest);
        let mut valid = bitmap(TRACKS, 16..16 + used);
        let mut tables = Vec::new();
        for number in 0..60 {
            let view = fresh_view(&geometry, &usable, &valid, &locked);
            let placed = placed(AllocationName::CostAware, &view, &request(1 + random.below(largest), None, None));
            for track in &placed {
                valid.insert(TrackId(*track));
            }
            tables.push(placed);
            // Every third goes again, as inputs of compactions do.
            if number % 3 == 2 {
                for track in tables.swap_remove(random.index(tables.len())) {
                    valid.remove(TrackId(track));
                }
            }
            // With a guard track for each, and a hole for each that went.
            let farthest = tables.iter().flatten().max().copied().unwrap_or(0);
            let most = 16 + used + 60 * (largest as u32 + 1);
            assert!(farthest < most, "{used} in use, tables of {largest}: track {farthest}");
        }
        let farthest = tables.iter().flatten().max().copied().unwrap_or(0);
        let occupied = tables.iter().flatten().count() as u32;
        assert!(farthest - 16 - used < occupied * 2 + 60, "{used} in use: {occupied} tracks up to {farthest}");
    }
}

/// Where the tracks in use reach to the end of the disk seeks change nothing, so that what is best there stays so.
#[test]
fn seeks_cost_nothing_where_tracks_in_use_reach_to_the_end() {
    for seed in 0..300 {
        let mut random = Random::seeded(seed);
        let count = 20 + random.below(300) as u32;
        let geometry = geometry(count, TRACK_BYTES);
        let valid = bitmap(count, (0..count - 1).filter(|_| random.chance(1, 2)).chain([count - 1]));
        let (usable, locked) = (2..count, TrackBitmap::new(count));
        let view = fresh_view(&geometry, &usable, &valid, &locked);
        let request = request(1 + random.below(8), None, None);
        let with = policy(AllocationName::CostAware, RewriteName::Merged, &geometry).place(&view, &request);
        let without = AllocationName::CostAwareWithout(CostTerm::Seeks);
        assert_eq!(with, policy(without, RewriteName::Merged, &geometry).place(&view, &request), "seed {seed}");
    }
}

/// The price follows from the disk: of a stroke that takes no longer than the shortest seek it is nothing, of a slower arm it is more.
#[test]
fn price_of_seeks_follows_from_the_disk() {
    let geometry = geometry(1000, TRACK_BYTES);
    let setting = PolicySetting { rewrite: RewriteName::Merged, geometry: &geometry, table_bytes_max: 8 * TRACK_BYTES };
    let (usable, valid, locked) = (0..1000, bitmap(1000, [0]), TrackBitmap::new(1000));
    let view = fresh_view(&geometry, &usable, &valid, &locked);
    let cost = |shortest_nanos, longest_nanos, rotation_nanos, last| {
        let seek = SeekTimes { shortest_nanos, longest_nanos, rotation_nanos };
        CostAware::new(&setting, &seek, None).seek_cost(&view, view.span_end(), TrackId(last))
    };
    assert_eq!(cost(1, 1, 8, 999), 0);
    assert_eq!(cost(0, 0, 0, 999), 0);
    assert_eq!(cost(1000, 11_000, 8000, 0), 0, "within the tracks in use");
    // Two seeks of 10 us beyond the shortest, to gaps of 5 us; a quarter of the stroke takes half of that.
    assert_eq!(cost(1000, 11_000, 8000, 1000), 4000);
    assert_eq!(cost(1000, 11_000, 8000, 250), 2000);
    assert_eq!(cost(1000, 21_000, 8000, 1000), 8000);
    assert_eq!(cost(0, u64::MAX, 1, 1000), 1 << 32, "bounded");
}

#[test]
fn names_are_told_apart_on_the_medium_and_in_text() {
    let without = CostTerm::ALL.iter().map(|&term| AllocationName::CostAwareWithout(term));
    for name in AllocationName::ALL.iter().copied().chain(without) {
        assert_eq!(AllocationName::of_text(name.text()), Some(name));
        assert_eq!(AllocationName::of_number(name.number()), Some(name));
    }
    assert_eq!(AllocationName::of_number(u8::MAX), None);
}
