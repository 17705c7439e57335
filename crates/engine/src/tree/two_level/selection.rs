//! Which tables a compaction takes (SMRDB, section 4.3).

use super::sequentiality::Density;
use crate::tree::log_structured::{Busy, FileMeta, Version};
use std::sync::Arc;

type Table = Arc<FileMeta>;

pub(super) fn overlap(a: &FileMeta, b: &FileMeta) -> bool {
    a.smallest_user_key() <= b.largest_user_key() && b.smallest_user_key() <= a.largest_user_key()
}

/// The oldest idle table of level 0 and those newer ones that overlap it, up to `tables_max`, newest first.
pub(super) fn level0(version: &Version, busy: &Busy, tables_max: usize) -> Vec<Table> {
    let idle = |file: &&Table| !busy.contains(file.number);
    let mut by_age = version.levels[0].iter().rev().filter(idle);
    let Some(oldest) = by_age.next() else { return Vec::new() };
    let newer = by_age.filter(|file| overlap(file, oldest));
    let mut selected: Vec<Table> = std::iter::once(oldest).chain(newer).take(tables_max.max(1)).cloned().collect();
    selected.reverse();
    selected
}

/// The least sequential of `candidates`, tables of level 1, and the idle tables of level 1 that it overlaps and
/// that are newer, in the level's order. Of equals the oldest.
pub(super) fn pruned(version: &Version, busy: &Busy, candidates: &[Table]) -> Vec<Table> {
    if candidates.is_empty() {
        return Vec::new();
    }
    let density = Density::new(version.files().map(|(_, file)| file));
    let order = |file: &&Table| (density.sequentiality(file), file.newest_sequence, file.number);
    let Some(least) = candidates.iter().min_by_key(order) else { return Vec::new() };
    let is_newer = |file: &Table| (file.newest_sequence, file.number) >= (least.newest_sequence, least.number);
    version.levels[1]
        .iter()
        .filter(|file| !busy.contains(file.number) && is_newer(file) && overlap(file, least))
        .cloned()
        .collect()
}

/// Tables of level 1 that overlap one of `tables` and are idle.
pub(super) fn level1_under(version: &Version, busy: &Busy, tables: &[Table]) -> Vec<Table> {
    version.levels[1]
        .iter()
        .filter(|file| !busy.contains(file.number) && tables.iter().any(|table| overlap(table, file)))
        .cloned()
        .collect()
}

/// The idle table of level 1 that overlaps most others there, and how many; of equals the oldest.
///
/// Cost: a sort of the level's smallest and largest keys and two binary searches for each table.
pub(super) fn most_overlapped<'a>(version: &'a Version, busy: &Busy) -> Option<(usize, &'a Table)> {
    let level = &version.levels[1];
    let mut starts: Vec<&[u8]> = level.iter().map(|file| file.smallest_user_key()).collect();
    let mut ends: Vec<&[u8]> = level.iter().map(|file| file.largest_user_key()).collect();
    starts.sort_unstable();
    ends.sort_unstable();
    let overlaps = |file: &Table| {
        // Those that begin up to its end, without those that end before its beginning, and itself.
        let begun = starts.partition_point(|start| *start <= file.largest_user_key());
        let ended = ends.partition_point(|end| *end < file.smallest_user_key());
        begun - ended - 1
    };
    let idle = level.iter().filter(|file| !busy.contains(file.number));
    idle.map(|file| (overlaps(file), file)).max_by_key(|(count, file)| (*count, std::cmp::Reverse(file.number)))
}
