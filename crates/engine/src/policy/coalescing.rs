//! Tables that are partly empty where each takes all of a size, however little is in it.

use crate::shape::{CompactionPlan, FileMeta, Reason, Version, filled_bytes, in_place};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Tables that are coalesced at once, at most: more would be rewritten for little.
const COALESCED_MAX: usize = 8;

/// Neighbours of one level that overlap nothing there and need fewer tables of `table_bytes` than they are, rewritten
/// where they are: those that give back most for what they write. Never the ones in `unhelpful`.
pub(crate) fn coalescing(
    version: &Version,
    table_bytes: u64,
    space_bytes: u64,
    unhelpful: &BTreeSet<u64>,
) -> Option<CompactionPlan> {
    let mut best: Option<(u64, CompactionPlan)> = None;
    for (level, files) in version.levels.iter().enumerate().skip(1) {
        for group in neighbours(files, unhelpful) {
            for begin in 0..group.len() {
                let mut bytes = 0u64;
                for (count, file) in (1..=COALESCED_MAX as u64).zip(&group[begin..]) {
                    bytes = bytes.saturating_add(file.size_bytes);
                    if bytes > space_bytes {
                        break;
                    }
                    let needed = bytes.div_ceil(filled_bytes(table_bytes).max(1));
                    let Some(saved) = count.checked_sub(needed).filter(|saved| *saved > 0) else { continue };
                    let cost = bytes / saved;
                    if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                        let inputs = group[begin..begin + count as usize].to_vec();
                        best = Some((cost, CompactionPlan { reason: Reason::Coalescing, ..in_place(level, inputs) }));
                    }
                }
            }
        }
    }
    best.map(|(_, plan)| plan)
}

/// Tables of a level in key order that neither overlap another of it nor are in `unhelpful`, parted where one that does
/// or is lies between.
fn neighbours(files: &[Arc<FileMeta>], unhelpful: &BTreeSet<u64>) -> Vec<Vec<Arc<FileMeta>>> {
    let mut sorted: Vec<&Arc<FileMeta>> = files.iter().collect();
    sorted.sort_by(|a, b| a.smallest_user_key().cmp(b.smallest_user_key()));
    let mut neighbours: Vec<Vec<Arc<FileMeta>>> = vec![Vec::new()];
    let mut end: Option<&[u8]> = None;
    for (position, file) in sorted.iter().enumerate() {
        let is_behind = end.is_none_or(|end| end < file.smallest_user_key());
        let is_before = sorted.get(position + 1).is_none_or(|next| file.largest_user_key() < next.smallest_user_key());
        end = end.max(Some(file.largest_user_key()));
        match neighbours.last_mut() {
            Some(last) if is_behind && is_before && !unhelpful.contains(&file.number) => last.push((*file).clone()),
            _ => neighbours.push(Vec::new()),
        }
    }
    neighbours
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::tests::table;

    fn coalesced(files: Vec<Arc<FileMeta>>, space_bytes: u64, unhelpful: &[u64]) -> Option<Vec<u64>> {
        let version = Version::new(vec![Vec::new(), files], 2);
        let plan = coalescing(&version, 184, space_bytes, &unhelpful.iter().copied().collect())?;
        assert_eq!((plan.input_level, plan.output_level, plan.overlapping.len()), (1, 1, 0));
        Some(plan.inputs.iter().map(|file| file.number).collect())
    }

    #[test]
    fn neighbours_that_need_fewer_tables_are_coalesced() {
        let half = |number, range| table(number, range, 80, 0);
        let halves = || vec![half(1, "a-b"), half(2, "c-d"), half(3, "e-f"), half(4, "g-h")];
        // Two halves and what is lost at the end need two, three need two.
        assert_eq!(coalesced(halves(), 1000, &[]), Some(vec![1, 2, 3]));
        assert_eq!(coalesced(halves(), 239, &[]), None, "no space");
        assert_eq!(coalesced(halves(), 1000, &[2]), None, "tried before");
        let thirds = vec![table(1, "a-b", 140, 0), table(2, "c-d", 50, 0), table(3, "e-f", 50, 0)];
        assert_eq!(coalesced(thirds, 1000, &[]), Some(vec![2, 3]));
        assert_eq!(coalesced(vec![table(1, "a-e", 10, 0), table(2, "b-c", 10, 0), half(3, "f-g")], 1000, &[]), None);
        let around = vec![table(1, "a-b", 10, 0), table(2, "c-d", 10, 0), half(3, "d-x"), table(4, "e-f", 10, 0)];
        assert_eq!(coalesced(around, 1000, &[]), None, "what overlaps is merged, not coalesced");
    }
}
