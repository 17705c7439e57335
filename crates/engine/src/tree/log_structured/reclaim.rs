//! What may give room back when little is left: deletions that did not reach what they delete, and tables that are
//! partly empty where each takes a band of its own. Pure functions of the tree's shape.

use crate::error::Error;
use crate::key::Sequence;
use crate::shape::{CompactionPlan, FileMeta, Reason, Version, filled_bytes, in_place};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Tables that are packed at once, at most: more would be rewritten for little.
const PACKED_MAX: usize = 8;

/// Compactions that are remembered to have lacked room.
const LACKING_MAX: usize = 16;

/// Compactions that ended for want of room: while there is no more of it they would again. Of each the numbers of its
/// inputs, the bytes it was given and how it ended; the last ones only.
#[derive(Debug, Default)]
pub(super) struct Lacking {
    ended: VecDeque<(Vec<u64>, u64, Error)>,
}

impl Lacking {
    pub(super) fn note(&mut self, inputs: Vec<u64>, room_bytes: u64, error: Error) {
        self.ended.retain(|(of, _, _)| *of != inputs);
        self.ended.truncate(LACKING_MAX - 1);
        self.ended.push_front((inputs, room_bytes, error));
    }

    /// How a plan would end with so much room, where that is known.
    pub(super) fn error_of(&self, plan: &CompactionPlan, room_bytes: u64) -> Option<&Error> {
        let is_of_plan = |of: &[u64]| of.iter().copied().eq(plan.inputs.iter().map(|file| file.number));
        let mut known = self.ended.iter().filter(|(of, given_bytes, _)| room_bytes <= *given_bytes && is_of_plan(of));
        known.next().map(|(_, _, error)| error)
    }
}

/// About how many bytes the deletions in tables delete, if each deletes a pair of mean size; `more_deletions` are not
/// in tables yet. Tables that are newer than `oldest_view` do not count: what they delete is still to be seen.
pub(super) fn deleted_bytes(version: &Version, more_deletions: u64, oldest_view: Sequence) -> u64 {
    let (mut bytes, mut entries, mut deletions) = (0u64, 0u64, more_deletions);
    for (_, file) in version.files() {
        bytes = bytes.saturating_add(file.size_bytes);
        entries = entries.saturating_add(file.entries.saturating_sub(file.deletions));
        let counts = file.newest_sequence <= oldest_view;
        deletions = deletions.saturating_add(if counts { file.deletions } else { 0 });
    }
    let deleted = u128::from(bytes) * u128::from(deletions.min(entries)) / u128::from(entries.max(1));
    u64::try_from(deleted).unwrap_or(u64::MAX)
}

/// Neighbours of one level that overlap nothing there and need fewer tables of `table_bytes` than they are, rewritten
/// where they are: those that give back most for what they write. Never the ones in `settled`.
pub(super) fn packing(
    version: &Version,
    table_bytes: u64,
    room_bytes: u64,
    settled: &BTreeSet<u64>,
) -> Option<CompactionPlan> {
    let mut best: Option<(u64, CompactionPlan)> = None;
    for (level, files) in version.levels.iter().enumerate().skip(1) {
        for stretch in stretches(files, settled) {
            for begin in 0..stretch.len() {
                let mut bytes = 0u64;
                for (count, file) in (1..=PACKED_MAX as u64).zip(&stretch[begin..]) {
                    bytes = bytes.saturating_add(file.size_bytes);
                    if bytes > room_bytes {
                        break;
                    }
                    let needed = bytes.div_ceil(filled_bytes(table_bytes).max(1));
                    let Some(saved) = count.checked_sub(needed).filter(|saved| *saved > 0) else { continue };
                    let cost = bytes / saved;
                    if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                        let inputs = stretch[begin..begin + count as usize].to_vec();
                        best = Some((cost, CompactionPlan { reason: Reason::Packing, ..in_place(level, inputs) }));
                    }
                }
            }
        }
    }
    best.map(|(_, plan)| plan)
}

/// Tables of a level in key order that neither overlap another of it nor are in `settled`, parted where one that does
/// or is lies between.
fn stretches(files: &[Arc<FileMeta>], settled: &BTreeSet<u64>) -> Vec<Vec<Arc<FileMeta>>> {
    let mut sorted: Vec<&Arc<FileMeta>> = files.iter().collect();
    sorted.sort_by(|a, b| a.smallest_user_key().cmp(b.smallest_user_key()));
    let mut stretches: Vec<Vec<Arc<FileMeta>>> = vec![Vec::new()];
    let mut end: Option<&[u8]> = None;
    for (position, file) in sorted.iter().enumerate() {
        let is_behind = end.is_none_or(|end| end < file.smallest_user_key());
        let is_before = sorted.get(position + 1).is_none_or(|next| file.largest_user_key() < next.smallest_user_key());
        end = end.max(Some(file.largest_user_key()));
        match stretches.last_mut() {
            Some(last) if is_behind && is_before && !settled.contains(&file.number) => last.push((*file).clone()),
            _ => stretches.push(Vec::new()),
        }
    }
    stretches
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::key;
    use crate::manifest::AddedFile;
    use crate::shape::Garbage;

    pub(in super::super) fn table(number: u64, range: &str, size_bytes: u64, deletions: u64) -> Arc<FileMeta> {
        let (first, last) = range.split_once('-').unwrap();
        let internal = |user: &str| {
            let mut out = Vec::new();
            key::append_internal_key(&mut out, user.as_bytes(), number, 1);
            out
        };
        let added = AddedFile {
            level: 1,
            number,
            size_bytes,
            smallest: internal(first),
            largest: internal(last),
            oldest_sequence: number,
            newest_sequence: number,
            entries: 100,
            deletions,
            table_id: number,
        };
        FileMeta::new(&added, &Arc::new(Garbage::default()))
    }

    fn packed(files: Vec<Arc<FileMeta>>, room_bytes: u64, settled: &[u64]) -> Option<Vec<u64>> {
        let version = Version::new(vec![Vec::new(), files], 2);
        let plan = packing(&version, 184, room_bytes, &settled.iter().copied().collect())?;
        assert_eq!((plan.input_level, plan.output_level, plan.overlapping.len()), (1, 1, 0));
        Some(plan.inputs.iter().map(|file| file.number).collect())
    }

    #[test]
    fn neighbours_that_need_fewer_tables_are_packed() {
        let half = |number, range| table(number, range, 80, 0);
        let halves = || vec![half(1, "a-b"), half(2, "c-d"), half(3, "e-f"), half(4, "g-h")];
        // Two halves and what is lost at the end need two, three need two.
        assert_eq!(packed(halves(), 1000, &[]), Some(vec![1, 2, 3]));
        assert_eq!(packed(halves(), 239, &[]), None, "no room");
        assert_eq!(packed(halves(), 1000, &[2]), None, "tried before");
        let thirds = vec![table(1, "a-b", 140, 0), table(2, "c-d", 50, 0), table(3, "e-f", 50, 0)];
        assert_eq!(packed(thirds, 1000, &[]), Some(vec![2, 3]));
        assert_eq!(packed(vec![table(1, "a-e", 10, 0), table(2, "b-c", 10, 0), half(3, "f-g")], 1000, &[]), None);
        let around = vec![table(1, "a-b", 10, 0), table(2, "c-d", 10, 0), half(3, "d-x"), table(4, "e-f", 10, 0)];
        assert_eq!(packed(around, 1000, &[]), None, "what overlaps is merged, not packed");
    }

    #[test]
    fn what_lacked_room_is_known_until_there_is_more() {
        let plan = in_place(1, vec![table(1, "a-b", 80, 0), table(2, "c-d", 80, 0)]);
        let mut lacking = Lacking::default();
        assert!(lacking.error_of(&plan, 100).is_none());
        lacking.note(vec![1, 2], 100, Error::Closed);
        assert!(lacking.error_of(&plan, 100).is_some() && lacking.error_of(&plan, 101).is_none());
        assert!(lacking.error_of(&in_place(1, vec![table(1, "a-b", 80, 0)]), 100).is_none());
        lacking.note(vec![1, 2], 120, Error::Closed);
        assert!(lacking.error_of(&plan, 110).is_some());
        (3..3 + LACKING_MAX as u64).for_each(|number| lacking.note(vec![number], 100, Error::Closed));
        assert!(lacking.error_of(&plan, 110).is_none() && lacking.ended.len() == LACKING_MAX);
    }

    #[test]
    fn deletions_count_as_pairs_of_mean_size() {
        let version = Version::new(vec![vec![table(9, "a-z", 10, 100)], vec![table(1, "a-z", 990, 0)]], 1);
        assert_eq!(deleted_bytes(&version, 0, 9), 1000);
        assert_eq!(deleted_bytes(&version, 0, 8), 0, "a reader still sees what they delete");
        assert_eq!(deleted_bytes(&Version::new(vec![Vec::new(), vec![table(1, "a-z", 990, 0)]], 1), 10, 9), 99);
        assert_eq!(deleted_bytes(&Version::empty(2, 1), 10, 9), 0);
    }
}
