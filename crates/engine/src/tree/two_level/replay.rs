//! A load replayed without a medium: the policy, tables that are lists of keys, and how much is rewritten for which depth.

use super::*;
use crate::key;
use crate::manifest::AddedFile;
use crate::table::{Bucket, Histogram};
use crate::tree::log_structured::Garbage;
use std::collections::BTreeMap;
use varve_env::Random;

/// Pairs of a table, of a byte each.
const TABLE_PAIRS: usize = 64;

/// Pairs of a bucket.
const BUCKET_PAIRS: usize = 2;

/// What came of a load.
#[derive(Debug)]
struct Outcome {
    /// Pairs written by compactions to a pair put.
    rewritten: f64,
    /// Mean number of tables that overlap in the key of a pair, over the later three quarters of the load, ...
    depth: f64,
    /// and at its end.
    depth_after: f64,
    /// Tables at the end.
    tables: usize,
}

struct Replay {
    policy: TwoLevel,
    version: Version,
    pairs: BTreeMap<u64, Vec<(u64, u64)>>,
    next_number: u64,
    sequence: u64,
    rewritten: u64,
}

impl Replay {
    fn new(policy: TwoLevel) -> Replay {
        let version = Version::empty(2, 2);
        Replay { policy, version, pairs: BTreeMap::new(), next_number: 1, sequence: 0, rewritten: 0 }
    }

    /// A table of pairs of key and sequence number, in order.
    fn table(&mut self, pairs: &[(u64, u64)]) -> Arc<FileMeta> {
        let number = self.next_number;
        self.next_number += 1;
        let internal = |key: u64| {
            let mut out = Vec::new();
            key::append_internal_key(&mut out, format!("{key:012}").as_bytes(), 1, 1);
            out
        };
        let newest = pairs.iter().map(|(_, sequence)| *sequence).max().unwrap();
        let added = AddedFile {
            level: 0,
            number,
            size_bytes: pairs.len() as u64,
            smallest: internal(pairs[0].0),
            largest: internal(pairs[pairs.len() - 1].0),
            oldest_sequence: 1,
            newest_sequence: newest,
            entries: pairs.len() as u64,
            deletions: 0,
        };
        let file = FileMeta::new(&added, &Arc::new(Garbage::default()));
        let bucket = |chunk: &[(u64, u64)]| Bucket {
            last: format!("{:012}", chunk[chunk.len() - 1].0).into_bytes().into(),
            bytes: chunk.len() as u64,
        };
        let _ = file.histogram.set(Histogram::of(pairs.chunks(BUCKET_PAIRS).map(bucket).collect()));
        self.pairs.insert(number, pairs.to_vec());
        file
    }

    fn put(&mut self, keys: impl Iterator<Item = u64>) {
        let mut pairs: BTreeMap<u64, u64> = BTreeMap::new();
        for key in keys {
            self.sequence += 1;
            pairs.insert(key, self.sequence);
        }
        let pairs: Vec<(u64, u64)> = pairs.into_iter().collect();
        let file = self.table(&pairs);
        self.version = self.version.with(&[], &[(0, file)]);
    }

    /// Does the next compaction; returns the pairs it moved, and nothing when none is due.
    fn compact(&mut self) -> Option<u64> {
        let plan = self.policy.pick(&self.version, &Busy::default(), u64::MAX)?;
        let of = |level: usize, files: &[Arc<FileMeta>]| -> Vec<(usize, u64)> {
            files.iter().map(|file| (level, file.number)).collect()
        };
        let removed = [of(plan.input_level, &plan.inputs), of(plan.output_level, &plan.overlapping)].concat();
        if plan.is_trivial_move() {
            let added: Vec<_> = plan.inputs.iter().map(|file| (1, file.clone())).collect();
            self.version = self.version.with(&removed, &added);
            return Some(0);
        }
        let read: Vec<(u64, u64)> = removed.iter().flat_map(|(_, number)| self.pairs.remove(number).unwrap()).collect();
        let mut merged: BTreeMap<u64, u64> = BTreeMap::new();
        for (key, sequence) in &read {
            let newest = merged.entry(*key).or_default();
            *newest = (*newest).max(*sequence);
        }
        let merged: Vec<(u64, u64)> = merged.into_iter().collect();
        let added: Vec<_> = merged.chunks(TABLE_PAIRS).map(|pairs| (1, self.table(pairs))).collect();
        self.version = self.version.with(&removed, &added);
        self.rewritten += merged.len() as u64;
        Some((read.len() + merged.len()) as u64)
    }
}

/// Puts `tables` times as many pairs as a table has, with keys drawn from `keys`. Compactions move at most `moved` pairs to
/// a pair put, but for one that was begun, and all that is due when that is nothing.
fn load(policy: TwoLevel, tables: u64, keys: u64, moved: Option<u64>) -> Outcome {
    let mut replay = Replay::new(policy);
    let mut random = Random::seeded(1);
    let (mut owed, mut depths) = (0i64, Vec::new());
    for _ in 0..tables {
        replay.put((0..TABLE_PAIRS).map(|_| random.below(keys)));
        owed += moved.map_or(0, |moved| moved as i64 * TABLE_PAIRS as i64);
        while moved.is_none() || owed > 0 {
            match replay.compact() {
                Some(pairs) => owed -= pairs as i64,
                None => {
                    owed = owed.min(0);
                    break;
                }
            }
        }
        depths.push(replay.version.mean_depth());
    }
    let late = &depths[depths.len() / 4..];
    Outcome {
        rewritten: replay.rewritten as f64 / (tables as f64 * TABLE_PAIRS as f64),
        depth: late.iter().sum::<f64>() / late.len() as f64,
        depth_after: depths[depths.len() - 1],
        tables: replay.version.files().count(),
    }
}

fn paper() -> TwoLevel {
    TwoLevel {
        level0_trigger: 4,
        level0_tables_max: 8,
        overlap_trigger: 8,
        compaction_bytes_max: u64::MAX,
        depth_max: 0,
    }
}

fn bounded(depth_max: usize) -> TwoLevel {
    TwoLevel { depth_max, ..paper() }
}

/// The load of figures 9 and 10: 137 memtables, keys drawn from as many as are put. With time on their hands compactions
/// of the paper's selection rewrite most; under writers as fast as the medium they are few and large.
#[test]
fn a_bound_on_the_depth_rewrites_less() {
    const TABLES: u64 = 137;
    let all = TABLES * TABLE_PAIRS as u64;
    for (moved, depth_max, share) in [(None, 5, 0.6), (Some(8), 10, 0.8)] {
        let paper = load(paper(), TABLES, all, moved);
        println!("moved {moved:?}, paper: {paper:?}");
        for other in [3, 4, 6, 8, 12] {
            println!("moved {moved:?}, depth {other}: {:?}", load(bounded(other), TABLES, all, moved));
        }
        let found = load(bounded(depth_max), TABLES, all, moved);
        println!("moved {moved:?}, depth {depth_max}: {found:?}");
        assert!(found.rewritten <= share * paper.rewritten, "{found:?} {paper:?}");
        assert!(found.depth <= depth_max as f64 && found.depth_after <= depth_max as f64 + 2.0, "{found:?}");
        assert!(found.tables as u64 <= TABLES, "{found:?} {paper:?}");
    }
}

/// In order there is nothing to rewrite, and nothing stays in level 0.
#[test]
fn what_is_put_in_order_is_moved() {
    let mut replay = Replay::new(bounded(4));
    for number in 0..50 {
        replay.put(number * 64..(number + 1) * 64);
        while replay.compact().is_some() {}
    }
    assert_eq!(replay.rewritten, 0);
    assert!(replay.version.levels[0].len() < 4 && replay.version.levels[1].len() > 46);
}
