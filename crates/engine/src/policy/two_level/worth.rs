//! Selection by worth: of groups of tables that could be merged the one that gives most order and space for what is moved.
//!
//! [`super::depth`] merges what has most layers, which is what takes most off the depth where it works. It leaves tables out that are much narrower than
//! the others, as they are in order already, so these gather in layers of their own, with older versions of one key in several of them. Merging with them costs more
//! for as much depth, and frees what is older.
//!
//! A group's *worth* counts both: the layers that it takes off, in the bytes of the database over which it does, and [`SPACE_WORTH`] times the bytes it frees,
//! relative to the bytes read and written. Small groups give more of both for a byte than large ones, and leave as much to be done again: so each counts as if it moved
//! a [`MOVED_PART`] of the database more.
//!
//! How much a merge frees is not known before. It is told as if keys of different tables were drawn independently of each other, from as many as the tables have
//! together in the range: a table that has the share `s` of these has as much of what any other one has. Where no key was written twice nothing is
//! freed, and what is merged was only more than would have been needed for the depth. Deleted pairs whose deletions are merged with them
//! ([`super::deletions`]) are freed as well and are not written.
//!
//! Groups are those under one table, the seed, as there. A group has its widest tables, down to one of the places where the next is much narrower.
//!
//! A merge that takes many tables takes long, and readers look through all of them until it ends, unless its outputs take their place one by one
//! (`compact_in_pieces`). With them it is selected so; without them by layers alone.

use super::depth::{Span, Table};
use super::selection::{overlap, within};
use super::sequentiality::Density;
use std::cmp::Reverse;

/// Worth of a freed byte, relative to removing one layer over one byte of the database.
///
/// No model gives it: it trades random puts (smaller) for space (larger). It was tuned on seeds 1 to 3 of `smrdb/seeds`, where 42 takes more
/// space than SMRDB-SOC on one and 44 misses the goal for puts on two (`docs/design/0001-order-and-pace.md`), and judged on seeds 11 to 13, which
/// reach every goal: puts 1.61 times those of SMRDB-SOC with the same I/O (at least 1.5), rewritten bytes 0.50 (at most 0.6), tables' bytes
/// 0.96 (at most 1). `smrdb/robust` has the loads on which it misses one (docs/smrdb.md).
const SPACE_WORTH: f64 = 43.0;

/// Divisor of the database's size that is added to the bytes a merge moves (1/10): a small merge leaves as much to be done again. No
/// trial of other values is recorded; judged together with [`SPACE_WORTH`].
const MOVED_PART: f64 = 10.0;

/// Ratio of the widths of two neighbours by which a group may end between them, in tenths. As [`MOVED_PART`] it was judged with [`SPACE_WORTH`].
const NARROWER_TENTHS: u64 = 13;

/// State besides its tables that the choice of a group depends on.
pub(super) struct Rules<'a> {
    /// Bytes that a merge reads, but for two tables.
    pub(super) bytes_max: u64,
    /// Totals over all tables of the tree.
    pub(super) total_bytes: u64,
    /// Bytes that a merge of a group frees because they were deleted.
    pub(super) freed_bytes: &'a dyn Fn(&[&Table]) -> f64,
    pub(super) is_accepted: &'a dyn Fn(&[&Table]) -> bool,
}

/// Numbers of the tables of the accepted group under one of `seeds`, which overlap each other, that is worth most; of equals the
/// first.
///
/// Cost: that of [`Density`] over the tables that overlap a seed, and for each seed a walk over these to each place where a group may end.
pub(super) fn most_worth(idle: &[(usize, &Table)], seeds: &[&Table], rules: &Rules<'_>) -> Option<Vec<u64>> {
    let near: Vec<&Table> =
        idle.iter().map(|(_, file)| *file).filter(|file| seeds.iter().any(|seed| overlap(seed, file))).collect();
    let density = Density::new(&near);
    let spans: Vec<Span> = near.iter().map(|file| Span::of(&density, file)).collect();
    let mut best: Option<(f64, Vec<u64>)> = None;
    for (seed, seed_span) in near.iter().zip(&spans) {
        if !seeds.iter().any(|file| file.number == seed.number) {
            continue;
        }
        let is_member = |file: &Table, span: &Span| {
            file.number == seed.number || (overlap(file, seed) && span.is_within(seed_span))
        };
        let mut members: Vec<(&Table, &Span)> = near.iter().copied().zip(&spans).collect();
        members.retain(|(file, span)| is_member(file, span));
        members.sort_by_key(|(file, span)| (file.number != seed.number, Reverse(span.width()), file.number));
        members.truncate(within(members.iter().map(|(file, _)| *file), 2, rules.bytes_max).len());
        for count in 2..=members.len() {
            let (_, last) = members[count - 1];
            let is_narrower =
                |next: &Span| u128::from(next.width()) * u128::from(NARROWER_TENTHS) <= u128::from(last.width()) * 10;
            if members.get(count).is_some_and(|(_, next)| !is_narrower(next)) {
                continue;
            }
            let group: Vec<&Table> = members[..count].iter().map(|(file, _)| *file).collect();
            if !(rules.is_accepted)(&group) {
                continue;
            }
            let worth = worth(&members[..count], (rules.freed_bytes)(&group), rules.total_bytes);
            if best.as_ref().is_none_or(|(most, _)| worth > *most) {
                best = Some((worth, members[..count].iter().map(|(file, _)| file.number).collect()));
            }
        }
    }
    best.map(|(_, numbers)| numbers)
}

fn worth(group: &[(&Table, &Span)], deleted_bytes: f64, total_bytes: u64) -> f64 {
    let begin = group.iter().map(|(_, span)| span.begin).min().unwrap_or(0);
    let end = group.iter().map(|(_, span)| span.end).max().unwrap_or(0);
    let width = end.saturating_sub(begin).max(1) as f64;
    let widths: f64 = group.iter().map(|(_, span)| span.width() as f64).sum();
    let read: f64 = group.iter().map(|(file, _)| file.size_bytes as f64).sum();
    let absent: f64 = group.iter().map(|(file, _)| 1.0 - (file.size_bytes as f64 / width).min(1.0)).product();
    let written = ((width * (1.0 - absent)).min(read) - deleted_bytes).max(0.0);
    (widths - width + SPACE_WORTH * (read - written)) / (read + written + total_bytes as f64 / MOVED_PART)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::two_level::tests::shape;

    fn rules(bytes_max: u64, total_bytes: u64) -> Rules<'static> {
        Rules { bytes_max, total_bytes, freed_bytes: &|_| 0.0, is_accepted: &|_| true }
    }

    fn chosen(text: &str, seeds: &[u64], bytes_max: u64) -> Option<Vec<u64>> {
        let version = shape(text);
        let idle: Vec<(usize, &Table)> = version.files().collect();
        let seeds: Vec<&Table> =
            idle.iter().map(|(_, file)| *file).filter(|file| seeds.contains(&file.number)).collect();
        let total_bytes = idle.iter().map(|(_, file)| file.size_bytes).sum();
        most_worth(&idle, &seeds, &rules(bytes_max, total_bytes))
    }

    /// Wide ones over two that lie in the middle of them.
    const OVER_TWO: &str = "
        9 a:4 h:4 p:4 z:4
        8 a:4 h:4 p:4 z:4
        --
        7 a:4 h:4 p:4 z:4
        3 h:9 i:9
        2 h:9 i:9";

    #[test]
    fn narrow_tables_are_merged_too_where_that_frees_enough() {
        assert_eq!(chosen(OVER_TWO, &[9, 8, 7], u64::MAX), Some(vec![9, 7, 8, 2, 3]));
        // Of them alone no more may be read, ...
        assert_eq!(chosen(OVER_TWO, &[9, 8, 7], 50), Some(vec![9, 7, 8]));
        // and two in any case.
        assert_eq!(chosen(OVER_TWO, &[9, 8, 7], 1), Some(vec![9, 7]));
    }

    #[test]
    fn what_lies_elsewhere_is_left_out() {
        let text = "
            4 a:9 c:9 h:9
            3 a:9 c:9 h:9
            --
            1 h:1 p:40 z:40";
        assert_eq!(chosen(text, &[4, 3], u64::MAX), Some(vec![4, 3]));
        assert_eq!(chosen(text, &[], u64::MAX), None, "no seed");
        assert_eq!(chosen("4 a:9 z:9\n--\n", &[4], u64::MAX), None, "no other table");
    }

    /// What tables say of themselves may be anything.
    #[test]
    fn sums_do_not_overflow() {
        let most = (u64::MAX / 4).to_string();
        let text = format!("2 a:{most} z:{most}\n1 a:{most} z:{most}\n--\n");
        let version = shape(&text);
        let idle: Vec<(usize, &Table)> = version.files().collect();
        let seeds: Vec<&Table> = idle.iter().map(|(_, file)| *file).collect();
        assert!(most_worth(&idle, &seeds, &rules(u64::MAX, u64::MAX)).is_some_and(|numbers| numbers.len() == 2));
    }
}
