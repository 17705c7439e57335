//! Space on a medium that has little left: tables are merged a few at a time, those with deletions first.

use super::selection::overlap;
use crate::shape::{Busy, CompactionPlan, FileMeta, Reason, Shortage, Version, in_place};
use std::cmp::Reverse;
use std::sync::Arc;

/// Tables that are tried, at most: each is compared with every other, and a writer waits.
const TRIED_MAX: usize = 256;

type Leveled = (usize, Arc<FileMeta>);

/// Of a plan that does not fit, tables that overlap and do; else the oldest of level 0, which is moved.
pub(super) fn split(plan: &CompactionPlan, space_bytes: u64) -> Option<CompactionPlan> {
    let inputs = plan.inputs.iter().map(|file| (plan.input_level, file.clone()));
    let tables: Vec<Leveled> =
        inputs.chain(plan.overlapping.iter().map(|file| (plan.output_level, file.clone()))).collect();
    let first = by_deletions(&tables).into_iter().take(TRIED_MAX);
    let merged = first.into_iter().find_map(|first| overlapping_within(&tables, first, space_bytes));
    let oldest = || plan.inputs.last().filter(|_| plan.input_level == 0);
    merged.or_else(|| oldest().map(|oldest| plan_of(Reason::Level0Tables, vec![(0, oldest.clone())])))
}

/// The next step: the table with most deletions is merged with as many of those that overlap it as fit. One that
/// overlaps none is rewritten, which drops its deletions if every reader has seen them. Then tables are merged that
/// overlap and need fewer than they are, and at last tables of level 0 go to level 1 as they are, where they can be packed.
///
/// It ends: merging leaves less overlap (see the module above), a rewrite fewer deletions, and a move less in level 0.
pub(super) fn reclaim(version: &Version, shortage: &Shortage) -> Option<CompactionPlan> {
    let tables: Vec<Leveled> = version.files().map(|(level, file)| (level, file.clone())).collect();
    let step = |first: &Leveled| {
        let (level, file) = first;
        let is_alone = || tables.iter().all(|(_, other)| other.number == file.number || !overlap(other, file));
        overlapping_within(&tables, first, shortage.space_bytes).or_else(|| match level {
            _ if !is_alone() => None,
            // Moved first.
            0 => Some(plan_of(Reason::Space, vec![first.clone()])),
            _ => Some(in_place(*level, vec![file.clone()])).filter(|plan| shortage.fits(version, plan)),
        })
    };
    let has_deletions =
        |(_, file): &&Leveled| shortage.brings_deletions && file.deletions > 0 && shortage.is_seen_by_all(file);
    let saves = |plan: &CompactionPlan| shortage.saves_tables(plan);
    let smallest_first = || {
        let mut sorted: Vec<&Leveled> = tables.iter().collect();
        sorted.sort_by_key(|(_, file)| (file.size_bytes, file.number));
        let first = sorted.into_iter().take(TRIED_MAX);
        first.filter_map(|first| overlapping_within(&tables, first, shortage.space_bytes)).find(saves)
    };
    let oldest = || Some(plan_of(Reason::Space, vec![(0, version.levels[0].last()?.clone())])).filter(saves);
    let bringing = by_deletions(&tables).into_iter().filter(has_deletions).take(TRIED_MAX).find_map(step);
    bringing.or_else(smallest_first).or_else(oldest)
}

/// One table merged with those that may hold what its deletions delete, the smallest first, up to `bytes_max`. One that overlaps none
/// of these is moved to level 1, and rewritten there. `None` while one of them is read by a compaction.
pub(super) fn relieve(
    version: &Version,
    busy: &Busy,
    (level, file): (usize, &Arc<FileMeta>),
    bytes_max: u64,
) -> Option<CompactionPlan> {
    let may_hold_older = |other: &FileMeta| other.oldest_sequence < file.newest_sequence && overlap(other, file);
    let is_near = |(_, other): &(usize, &Arc<FileMeta>)| other.number == file.number || may_hold_older(other);
    let near: Vec<Leveled> = version.files().filter(is_near).map(|(level, file)| (level, file.clone())).collect();
    if near.iter().any(|(_, other)| busy.contains(other.number)) {
        return None;
    }
    let first = (level, file.clone());
    let plan = match (near.len(), level) {
        (0..=1, 0) => plan_of(Reason::Tombstones, vec![first]),
        (0..=1, _) => in_place(level, vec![first.1]),
        _ => overlapping_within(&near, &first, bytes_max)?,
    };
    Some(CompactionPlan { reason: Reason::Tombstones, ..plan })
}

fn by_deletions(tables: &[Leveled]) -> Vec<&Leveled> {
    let mut sorted: Vec<&Leveled> = tables.iter().collect();
    sorted.sort_by_key(|(_, file)| (Reverse(file.deletions), file.number));
    sorted
}

/// A table and those that overlap it, the smallest first, as far as all of them have no more than `bytes_max`. `None`
/// when not even one more fits.
fn overlapping_within(tables: &[Leveled], first: &Leveled, bytes_max: u64) -> Option<CompactionPlan> {
    let mut others: Vec<&Leveled> =
        tables.iter().filter(|(_, file)| file.number != first.1.number && overlap(file, &first.1)).collect();
    others.sort_by_key(|(_, file)| (file.size_bytes, file.number));
    let mut bytes = first.1.size_bytes;
    let fits = |(_, file): &&Leveled| {
        bytes = bytes.saturating_add(file.size_bytes);
        bytes <= bytes_max
    };
    let taken: Vec<u64> = others.into_iter().take_while(fits).map(|(_, file)| file.number).collect();
    let is_taken = |(_, file): &&Leveled| file.number == first.1.number || taken.contains(&file.number);
    (!taken.is_empty()).then(|| plan_of(Reason::Space, tables.iter().filter(is_taken).cloned().collect()))
}

/// Tables of both levels to level 1.
fn plan_of(reason: Reason, tables: Vec<Leveled>) -> CompactionPlan {
    let (level0, level1): (Vec<Leveled>, Vec<Leveled>) = tables.into_iter().partition(|(level, _)| *level == 0);
    let files = |tables: Vec<Leveled>| tables.into_iter().map(|(_, file)| file).collect::<Vec<_>>();
    let (input_level, inputs, overlapping) = match level0.is_empty() {
        true => (1, files(level1), Vec::new()),
        false => (0, files(level0), files(level1)),
    };
    CompactionPlan::new(reason, (input_level, inputs), (1, overlapping))
}
