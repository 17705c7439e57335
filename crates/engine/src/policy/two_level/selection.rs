//! Which tables a compaction takes (SMRDB, section 4.3).

use super::sequentiality::Density;
use crate::shape::{Busy, FileMeta, Version};
use std::sync::Arc;

type Table = Arc<FileMeta>;

pub(super) fn overlap(a: &FileMeta, b: &FileMeta) -> bool {
    a.smallest_user_key() <= b.largest_user_key() && b.smallest_user_key() <= a.largest_user_key()
}

/// The first tables of an order, as long as they have no more bytes than `bytes_max`, and `tables_min` in any case.
pub(super) fn within<'a>(
    tables: impl IntoIterator<Item = &'a Table>,
    tables_min: usize,
    bytes_max: u64,
) -> Vec<&'a Table> {
    let mut bytes = 0u64;
    let fits = |(position, table): &(usize, &Table)| {
        bytes = bytes.saturating_add(table.size_bytes);
        *position < tables_min || bytes <= bytes_max
    };
    tables.into_iter().enumerate().take_while(fits).map(|(_, table)| table).collect()
}

pub(super) fn bytes_of(tables: &[Table]) -> u64 {
    tables.iter().fold(0, |sum, table| sum.saturating_add(table.size_bytes))
}

/// The oldest idle table of level 0 and those newer ones that overlap it, up to `tables_max` and `bytes_max`, newest
/// first.
pub(super) fn level0(version: &Version, busy: &Busy, tables_max: usize, bytes_max: u64) -> Vec<Table> {
    let idle = |file: &&Table| !busy.contains(file.number);
    let mut by_age = version.levels[0].iter().rev().filter(idle);
    let Some(oldest) = by_age.next() else { return Vec::new() };
    let newer = by_age.filter(|file| overlap(file, oldest));
    let candidates = std::iter::once(oldest).chain(newer).take(tables_max.max(1));
    within(candidates, 1, bytes_max).into_iter().rev().cloned().collect()
}

/// The least sequential of `candidates`, tables of level 1, and the idle tables of level 1 that it overlaps and
/// that are newer, up to `bytes_max`, in the level's order. Of equals the oldest; of the newer ones the oldest first.
///
/// Cost: that of [`Density`] over the tables that overlap one of the candidates.
pub(super) fn pruned(version: &Version, busy: &Busy, candidates: &[Table], bytes_max: u64) -> Vec<Table> {
    let Some(least) = least_sequential(version, candidates) else { return Vec::new() };
    let is_newer = |file: &Table| (file.newest_sequence, file.number) > (least.newest_sequence, least.number);
    let by_age = version.levels[1].iter().rev();
    let newer = by_age.filter(|file| !busy.contains(file.number) && is_newer(file) && overlap(file, least));
    within(std::iter::once(least).chain(newer), 0, bytes_max).into_iter().rev().cloned().collect()
}

fn least_sequential<'a>(version: &Version, candidates: &'a [Table]) -> Option<&'a Table> {
    if candidates.len() < 2 {
        return candidates.first();
    }
    let smallest = candidates.iter().map(|file| file.smallest_user_key()).min()?;
    let largest = candidates.iter().map(|file| file.largest_user_key()).max()?;
    let is_near = |file: &&Table| file.smallest_user_key() <= largest && file.largest_user_key() >= smallest;
    let near: Vec<&Table> = version.files().map(|(_, file)| file).filter(is_near).collect();
    let density = Density::new(&near);
    candidates.iter().min_by_key(|file| (density.sequentiality(file), file.newest_sequence, file.number))
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
