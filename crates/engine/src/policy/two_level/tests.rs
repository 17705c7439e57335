//! The policy on shapes written as text.

use super::*;
use crate::key;
use crate::manifest::AddedFile;
use crate::shape::{Garbage, subcompaction_boundaries};
use crate::table::{Bucket, Histogram};

/// A table `number` with buckets written as `last:bytes`; without any it ranges from a to z, of 64 bytes.
pub(super) fn table(number: u64, buckets: &str) -> Arc<FileMeta> {
    let buckets: Vec<Bucket> = buckets
        .split_whitespace()
        .map(|word| {
            let (last, bytes) = word.split_once(':').unwrap();
            Bucket { last: last.as_bytes().into(), bytes: bytes.parse().unwrap() }
        })
        .collect();
    let internal = |user: &[u8]| {
        let mut out = Vec::new();
        key::append_internal_key(&mut out, user, number, 1);
        out
    };
    let file = FileMeta::new(
        &AddedFile {
            level: 1,
            number,
            size_bytes: match &buckets[..] {
                [] => 64,
                known => known.iter().fold(0u64, |sum, bucket| sum.saturating_add(bucket.bytes)),
            },
            smallest: internal(buckets.first().map_or(b"a", |bucket| &bucket.last)),
            largest: internal(buckets.last().map_or(b"z", |bucket| &bucket.last)),
            oldest_sequence: number,
            newest_sequence: number,
            entries: 1000,
            deletions: 0,
            table_id: number,
            begin: None,
        },
        &Arc::new(Garbage::default()),
    );
    let _ = file.histogram.set(Histogram::of(buckets));
    file
}

/// Tables of both levels, `number first:bytes ... last:bytes`, one a line; a line of dashes divides the levels.
pub(super) fn shape(text: &str) -> Version {
    let level = |text: &str| {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines
            .map(|line| {
                let (number, buckets) = line.split_once(' ').unwrap();
                table(number.parse().unwrap(), buckets)
            })
            .collect()
    };
    let (level0, level1) = text.split_once("--").unwrap();
    Version::new(vec![level(level0), level(level1)], 2)
}

/// The same, where a table has deletions.
pub(super) fn with_deletions(text: &str, number: u64, deletions: u64) -> Version {
    let version = shape(text);
    let of = |file: &Arc<FileMeta>| {
        if file.number != number {
            return file.clone();
        }
        let entries = file.entries.max(deletions);
        let changed = FileMeta::new(&AddedFile { entries, deletions, ..file.to_added(0) }, &Default::default());
        file.histogram.get().cloned().into_iter().for_each(|histogram| drop(changed.histogram.set(histogram)));
        changed
    };
    Version::new(version.levels.iter().map(|level| level.iter().map(of).collect()).collect(), 2)
}

fn policy() -> TwoLevel {
    TwoLevel {
        level0_trigger: 4,
        level0_tables_max: 4,
        overlap_trigger: 3,
        compaction_bytes_max: u64::MAX,
        depth_max: 0,
        level0_urgent: usize::MAX,
        counts_layers: false,
        by_worth: false,
    }
}

pub(super) fn numbers(files: &[Arc<FileMeta>]) -> Vec<u64> {
    files.iter().map(|file| file.number).collect()
}

fn picked(version: &Version, busy: &Busy) -> Option<(usize, Vec<u64>, Vec<u64>)> {
    let plan = policy().pick(version, busy, u64::MAX, u64::MAX)?;
    assert_eq!(plan.output_level, 1);
    Some((plan.input_level, numbers(&plan.inputs), numbers(&plan.overlapping)))
}

#[test]
fn level_0_goes_oldest_first_with_what_overlaps_it() {
    let version = shape("14 a:1 z:1\n13 x:1 z:1\n12 a:1 c:1\n11 b:1 d:1\n10 c:1 e:1\n--\n");
    assert_eq!(picked(&version, &Busy::default()), Some((0, vec![14, 12, 11, 10], vec![])));
    let version = shape("13 x:1 z:1\n12 x:1 z:1\n11 x:1 z:1\n10 c:1 e:1\n--\n");
    let plan = policy().pick(&version, &Busy::default(), u64::MAX, u64::MAX).unwrap();
    assert!(plan.is_trivial_move() && numbers(&plan.inputs) == [10]);
    assert_eq!(picked(&shape("12 a:1\n11 a:1\n10 a:1\n--\n"), &Busy::default()), None);
}

#[test]
fn of_level_1_the_least_sequential_goes_and_the_newer_ones_it_overlaps() {
    // 3 interleaves with 4 most; 2 is older than 3 and stays, 5 does not overlap it.
    let version = shape(
        "13 a:1 z:1\n12 a:1 z:1\n11 a:1 z:1\n10 a:1 z:1\n--
         2 a:10 b:10 c:10 d:10 e:9
         3 e:10 f:10 g:10 h:10 i:10 j:10
         4 e:10 f:10 g:10 h:10 i:10 j:10 k:10 l:10
         5 p:10 q:10 r:10",
    );
    assert_eq!(picked(&version, &Busy::default()), Some((0, vec![13, 12, 11, 10], vec![4, 3])));
}

#[test]
fn tables_of_level_1_that_overlap_too_many_are_reordered_among_themselves() {
    let text = "--
         2 a:10 b:10 c:10 d:10
         3 a:10 b:10 c:10 d:10
         4 a:10 b:10 c:10 d:10";
    assert_eq!(picked(&shape(text), &Busy::default()), None);
    let version = shape(&format!("{text}\n5 b:10 c:10 d:10 e:10"));
    assert_eq!(picked(&version, &Busy::default()), Some((1, vec![5, 4, 3, 2], vec![])));
    let mut busy = Busy::default();
    busy.enter(&policy().pick(&version, &Busy::default(), u64::MAX, u64::MAX).unwrap());
    assert_eq!(picked(&version, &busy), None);
}

#[test]
fn what_does_not_fit_is_not_picked() {
    let version = shape("13 a:9 z:9\n12 a:9 z:9\n11 a:9 z:9\n10 a:9 z:9\n--\n");
    let plan = |space_bytes: u64| {
        policy().pick(&version, &Busy::default(), u64::MAX, space_bytes).map(|plan| numbers(&plan.inputs))
    };
    assert_eq!(plan(72), Some(vec![13, 12, 11, 10]));
    // The oldest alone is moved, which needs no space.
    assert_eq!(plan(71), Some(vec![10]));
}

#[test]
fn a_manual_compaction_merges_what_overlaps_and_leaves_the_rest() {
    let version = shape("12 b:1 c:1\n--\n2 a:1 b:1\n3 d:1 e:1\n4 f:1 h:1\n5 g:1 i:1\n6 k:1 l:1");
    let mut steps = Vec::new();
    let mut last = None;
    while let Some(plan) = policy().next_of_range(&version, None, None, last.as_ref()) {
        steps.push((plan.input_level, numbers(&plan.inputs), numbers(&plan.overlapping)));
        last = Some(plan.claim());
    }
    assert_eq!(steps, [(0, vec![12], vec![2]), (1, vec![4, 5], vec![])]);
    assert!(policy().next_of_range(&version, Some(b"j"), None, None).is_none());
}

/// Once one compaction could take all of level 1.
#[test]
fn no_compaction_reads_more_than_it_may_but_for_the_least_that_changes_anything() {
    let level0 = "13 a:9 z:9\n12 a:9 z:9\n11 a:9 z:9\n10 a:9 z:9\n--\n";
    let level1: String = (2..9).map(|number| format!("{number} b:10 c:10 d:10\n")).collect();
    let plan = |text: &str, compaction_bytes_max: u64| {
        let policy = TwoLevel { compaction_bytes_max, overlap_trigger: 6, ..policy() };
        let plan = policy.pick(&shape(text), &Busy::default(), u64::MAX, u64::MAX)?;
        Some((plan.input_level, numbers(&plan.inputs), numbers(&plan.overlapping)))
    };
    let both = format!("{level0}{level1}");
    assert_eq!(plan(&both, 72), Some((0, vec![13, 12, 11, 10], vec![])));
    assert_eq!(plan(&both, 71), Some((0, vec![12, 11, 10], vec![])));
    assert_eq!(plan(&both, 135), Some((0, vec![13, 12, 11, 10], vec![3, 2])));
    assert_eq!(plan(&both, 1), Some((0, vec![10], vec![])));
    let reordered = format!("--\n{level1}");
    assert_eq!(plan(&reordered, 100), Some((1, vec![4, 3, 2], vec![])));
    assert_eq!(plan(&reordered, 1), Some((1, vec![3, 2], vec![])));
}

/// Once its deletions went to level 1 with it.
#[test]
fn a_manual_compaction_rewrites_a_lone_table_with_deletions() {
    let of = |deletions: u64| {
        let file = table(1, "a:1 b:1");
        let added = AddedFile { deletions, ..file.to_added(0) };
        Version::new(vec![vec![FileMeta::new(&added, &Arc::new(Garbage::default()))], Vec::new()], 2)
    };
    let plan = |version: &Version| policy().next_of_range(version, None, None, None).unwrap();
    assert!(plan(&of(0)).is_trivial_move());
    assert!(!plan(&of(3)).is_trivial_move());
    assert!(plan(&of(3)).written_bytes_max() > 0, "a rewrite needs space");
}

/// Once parts began only where tables do, which all of these do at the same key.
#[test]
fn a_compaction_of_tables_that_overlap_is_divided_evenly() {
    let tables = || (1..5).map(|number| table(number, "a:1 b:10 c:10 d:10 e:10 f:10 g:10 h:10 i:10")).collect();
    let plan = CompactionPlan::new(Reason::Overlap, (1, tables()), (1, Vec::new()));
    let boundaries = subcompaction_boundaries(&plan, 4);
    assert_eq!(boundaries, [b"c".to_vec(), b"e".to_vec(), b"g".to_vec()]);
    let crafted = CompactionPlan { inputs: vec![table(1, &format!("a:{0} b:{0}", u64::MAX)), table(2, "a:1")], ..plan };
    assert!(subcompaction_boundaries(&crafted, 4).len() < 4);
}

/// Reordering tables of level 1 ends: whatever the shape and however little one compaction may read, each step leaves
/// less overlap.
#[test]
fn reordering_ends() {
    for seed in 0..400 {
        let mut random = varve_env::Random::seeded(seed);
        let policy = TwoLevel { compaction_bytes_max: [u64::MAX, 40, 1][random.index(3)], ..policy() };
        let mut tables: Vec<Arc<FileMeta>> = (0..12)
            .map(|number| {
                let mut ends: Vec<u64> = (0..1 + random.below(6)).map(|_| random.below(26)).collect();
                ends.sort_unstable();
                let buckets: Vec<String> =
                    ends.iter().map(|end| format!("{}:4", (b'a' + *end as u8) as char)).collect();
                table(number, &buckets.join(" "))
            })
            .collect();
        let mut next_number = 100;
        for step in 0.. {
            assert!(step < 200, "seed {seed}");
            let version = Version::new(vec![Vec::new(), tables.clone()], 2);
            let Some(plan) = policy.pick(&version, &Busy::default(), u64::MAX, u64::MAX) else { break };
            tables.retain(|file| !plan.inputs.iter().any(|input| input.number == file.number));
            // Outputs: the keys of the inputs in order, cut into tables of at most six buckets.
            let mut keys: Vec<char> = plan
                .inputs
                .iter()
                .flat_map(|file| file.histogram.get().unwrap().buckets().iter().map(|bucket| bucket.last[0] as char))
                .collect();
            keys.sort_unstable();
            keys.dedup();
            for piece in keys.chunks(6) {
                let buckets: Vec<String> = piece.iter().map(|key| format!("{key}:4")).collect();
                tables.push(table(next_number, &buckets.join(" ")));
                next_number += 1;
            }
        }
    }
}
