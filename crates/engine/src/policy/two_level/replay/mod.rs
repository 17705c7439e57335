//! Loads replayed without a medium: the policy, tables that are lists of keys, and how much is rewritten for which depth.

mod hotness;
mod keys;
mod warm;

use super::*;
use crate::key;
use crate::manifest::AddedFile;
use crate::shape::Garbage;
use crate::table::{Bucket, Histogram};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use varve_env::Random;

/// Buckets of a full table.
const BUCKETS: usize = 32;

/// Pairs of a table of the loads of figures 9 and 10, of a byte each.
const TABLE_PAIRS: usize = 64;

/// The level of warm tables, in replays that have some.
const WARM: usize = 2;

/// A key, and the sequence number of its put.
type Pair = (u64, u64);

/// Pairs for tables of each level.
type Streams = [Vec<Pair>; WARM + 1];

/// What came of a load. Means are over samples in the later three quarters of its puts.
#[derive(Clone, Debug, Default)]
struct Outcome {
    /// Pairs written by compactions to a pair put.
    rewritten: f64,
    /// Share of them that was dropped the next time it was read, for a newer version.
    in_vain: f64,
    /// Mean number of tables that overlap in the key of a pair, ...
    depth: f64,
    /// at the end, ...
    depth_after: f64,
    /// and in the key of a get, when keys of gets are drawn as those of puts are.
    depth_of_gets: f64,
    /// Tables that a get looks for its key in, until what it found is newer than all others have.
    asked: f64,
    /// Pairs in tables to a key of the database.
    space: f64,
    /// Tables at the end.
    tables: usize,
}

/// A version of a key as a compaction reads it.
struct Read {
    key: u64,
    sequence: u64,
    level: usize,
    /// From a table that a memtable was written as.
    is_flushed: bool,
    /// From a table that a compaction wrote among those that count.
    is_counted: bool,
}

struct Table {
    pairs: Vec<Pair>,
    is_flushed: bool,
}

/// The tree without a medium.
struct Replay {
    version: Version,
    table_pairs: usize,
    tables: BTreeMap<u64, Table>,
    next_number: u64,
    sequence: u64,
    /// Number of the first table that counts.
    counted_from: u64,
    rewritten: u64,
    in_vain: u64,
}

impl Replay {
    fn new(table_pairs: usize) -> Replay {
        Replay {
            version: Version::empty(WARM + 1, WARM + 1),
            table_pairs,
            tables: BTreeMap::new(),
            next_number: 1,
            sequence: 0,
            counted_from: 0,
            rewritten: 0,
            in_vain: 0,
        }
    }

    /// Counts from here on.
    fn count(&mut self) {
        self.counted_from = self.next_number;
        (self.rewritten, self.in_vain) = (0, 0);
    }

    /// A table of pairs in order of their keys.
    fn table(&mut self, pairs: &[Pair], is_flushed: bool) -> Arc<FileMeta> {
        let number = self.next_number;
        self.next_number += 1;
        let internal = |key: u64| {
            let mut out = Vec::new();
            key::append_internal_key(&mut out, &user_key(key), 1, 1);
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
            table_id: number,
            begin: None,
        };
        let file = FileMeta::new(&added, &Arc::new(Garbage::default()));
        let bucket =
            |chunk: &[Pair]| Bucket { last: user_key(chunk[chunk.len() - 1].0).into(), bytes: chunk.len() as u64 };
        let _ = file.histogram.set(Histogram::of(pairs.chunks(self.table_pairs / BUCKETS).map(bucket).collect()));
        self.tables.insert(number, Table { pairs: pairs.to_vec(), is_flushed });
        file
    }

    /// Writes a memtable of puts of `keys`.
    fn put(&mut self, keys: impl IntoIterator<Item = u64>) {
        let mut pairs: BTreeMap<u64, u64> = BTreeMap::new();
        for key in keys {
            self.sequence += 1;
            pairs.insert(key, self.sequence);
        }
        let pairs: Vec<Pair> = pairs.into_iter().collect();
        let file = self.table(&pairs, true);
        self.version = self.version.with(&[], &[(0, file)]);
    }

    /// Moves a table to level 1.
    fn move_down(&mut self, level: usize, file: &Arc<FileMeta>) {
        self.version = self.version.with(&[(level, file.number)], &[(1, file.clone())]);
    }

    /// All versions in some tables, by key, the newest first.
    fn read(&self, tables: &[(usize, u64)]) -> Vec<Read> {
        let mut read: Vec<Read> = Vec::new();
        for &(level, number) in tables {
            let Table { pairs, is_flushed } = &self.tables[&number];
            let (is_flushed, is_counted) = (*is_flushed, !*is_flushed && number >= self.counted_from);
            read.extend(pairs.iter().map(|&(key, sequence)| Read { key, sequence, level, is_flushed, is_counted }));
        }
        read.sort_by_key(|version| (version.key, Reverse(version.sequence)));
        read
    }

    /// Replaces tables, all whose pairs are `read`, by tables of the newest versions; returns the pairs moved.
    fn replace(&mut self, tables: &[(usize, u64)], read: &[Read], streams: Streams) -> u64 {
        let written: usize = streams.iter().map(Vec::len).sum();
        let older = read.windows(2).filter(|pair| pair[0].key == pair[1].key && pair[1].is_counted).count();
        let mut added = Vec::new();
        for (level, pairs) in streams.iter().enumerate() {
            added.extend(pairs.chunks(self.table_pairs).map(|pairs| (level, self.table(pairs, false))));
        }
        self.version = self.version.with(tables, &added);
        tables.iter().for_each(|(_, number)| drop(self.tables.remove(number)));
        self.rewritten += written as u64;
        self.in_vain += older as u64;
        (read.len() + written) as u64
    }

    /// Tables whose ranges hold a key, and of those, how many a get looks into.
    fn get(&self, key: u64) -> (usize, usize) {
        let over = self.version.overlapping_with(&user_key(key));
        let mut found = 0;
        let mut asked = 0;
        for (_, file) in &over {
            if found >= file.newest_sequence {
                break;
            }
            asked += 1;
            let pairs = &self.tables[&file.number].pairs;
            if let Ok(position) = pairs.binary_search_by_key(&key, |(key, _)| *key) {
                found = found.max(pairs[position].1);
            }
        }
        (over.len(), asked)
    }
}

fn user_key(key: u64) -> Vec<u8> {
    format!("{key:012}").into_bytes()
}

/// What is compacted, and to where.
trait Compactions {
    /// Does the next compaction; returns the pairs it moved, and nothing when none is due.
    fn compact(&mut self, replay: &mut Replay) -> Option<u64>;
}

/// The tables of a plan with their levels.
fn inputs_of(plan: &CompactionPlan) -> Vec<(usize, u64)> {
    let of = |level: usize, files: &[Arc<FileMeta>]| -> Vec<(usize, u64)> {
        files.iter().map(|file| (level, file.number)).collect()
    };
    [of(plan.input_level, &plan.inputs), of(plan.output_level, &plan.overlapping)].concat()
}

impl Compactions for TwoLevel {
    fn compact(&mut self, replay: &mut Replay) -> Option<u64> {
        let plan = self.pick(&replay.version, &Busy::default(), u64::MAX, u64::MAX)?;
        if plan.is_trivial_move() {
            plan.inputs.iter().for_each(|file| replay.move_down(0, file));
            return Some(0);
        }
        let inputs = inputs_of(&plan);
        let read = replay.read(&inputs);
        let newest = read.chunk_by(|a, b| a.key == b.key).map(|versions| (versions[0].key, versions[0].sequence));
        let streams = [Vec::new(), newest.collect(), Vec::new()];
        Some(replay.replace(&inputs, &read, streams))
    }
}

/// A load: its puts, and how it is looked at.
struct Load {
    table_pairs: usize,
    /// Keys in the order they are put.
    puts: Vec<u64>,
    /// The first of them that counts.
    counted_from: usize,
    /// Keys put at all, or in the database from the beginning.
    keys: u64,
    /// Memtables between two samples.
    sampled: usize,
    /// Compactions move at most as many pairs to a pair put, but for one that was begun, and all that is due when that is
    /// nothing.
    moved: Option<u64>,
}

/// Gets in a sample.
const GETS: usize = 100;

impl Load {
    fn run(&self, compactions: &mut dyn Compactions) -> Outcome {
        let mut replay = Replay::new(self.table_pairs);
        let (mut owed, mut samples, mut gets, mut outcome) = (0i64, 0.0, 0.0, Outcome::default());
        let counted = (self.puts.len() - self.counted_from) / self.table_pairs;
        let sampled_from = self.counted_from / self.table_pairs + counted / 4;
        for (position, memtable) in self.puts.chunks(self.table_pairs).enumerate() {
            let begin = position * self.table_pairs;
            if begin == self.counted_from {
                replay.count();
            }
            replay.put(memtable.iter().copied());
            owed += self.moved.map_or(0, |moved| moved as i64 * memtable.len() as i64);
            while self.moved.is_none() || owed > 0 {
                match compactions.compact(&mut replay) {
                    Some(pairs) => owed -= pairs as i64,
                    None => {
                        owed = owed.min(0);
                        break;
                    }
                }
            }
            if position >= sampled_from && position.is_multiple_of(self.sampled) {
                samples += 1.0;
                outcome.depth += replay.version.mean_depth();
                let pairs: usize = replay.tables.values().map(|table| table.pairs.len()).sum();
                outcome.space += pairs as f64 / self.keys as f64;
                // Of a load whose gets are drawn as its puts are, the next puts are as good as gets.
                let next = self.puts[begin + memtable.len()..].iter().take(GETS);
                for (over, asked) in next.map(|key| replay.get(*key)) {
                    outcome.depth_of_gets += over as f64;
                    outcome.asked += asked as f64;
                    gets += 1.0;
                }
            }
        }
        let mean = |sum: f64| sum / samples;
        let mean_of_gets = |sum: f64| sum / gets;
        Outcome {
            rewritten: replay.rewritten as f64 / (self.puts.len() - self.counted_from) as f64,
            in_vain: replay.in_vain as f64 / replay.rewritten.max(1) as f64,
            depth: mean(outcome.depth),
            depth_after: replay.version.mean_depth(),
            depth_of_gets: mean_of_gets(outcome.depth_of_gets),
            asked: mean_of_gets(outcome.asked),
            space: mean(outcome.space),
            tables: replay.tables.len(),
        }
    }
}

fn paper() -> TwoLevel {
    TwoLevel {
        level0_trigger: 4,
        level0_tables_max: 8,
        overlap_trigger: 8,
        compaction_bytes_max: u64::MAX,
        depth_max: 0,
        level0_urgent: 8,
        counts_layers: false,
        by_worth: false,
    }
}

fn bounded(depth_max: usize) -> TwoLevel {
    TwoLevel { depth_max, ..paper() }
}

/// The load of figures 9 and 10: 137 memtables, keys drawn from as many as are put. With time on their hands compactions
/// of the paper's selection rewrite most; under writers as fast as the medium they are few and large.
#[test]
fn a_bound_on_the_depth_rewrites_less() {
    const TABLES: usize = 137;
    let keys = (TABLES * TABLE_PAIRS) as u64;
    for (moved, depth_max, share) in [(None, 5, 0.6), (Some(8), 10, 0.8)] {
        let mut random = Random::seeded(1);
        let puts = (0..keys).map(|_| random.below(keys)).collect();
        let load = Load { table_pairs: TABLE_PAIRS, puts, counted_from: 0, keys, sampled: 1, moved };
        let paper = load.run(&mut paper());
        println!("moved {moved:?}, paper: {paper:?}");
        for other in [3, 4, 6, 8, 12] {
            println!("moved {moved:?}, depth {other}: {:?}", load.run(&mut bounded(other)));
        }
        let found = load.run(&mut bounded(depth_max));
        println!("moved {moved:?}, depth {depth_max}: {found:?}");
        assert!(found.rewritten <= share * paper.rewritten, "{found:?} {paper:?}");
        assert!(found.depth <= depth_max as f64 && found.depth_after <= depth_max as f64 + 2.0, "{found:?}");
        assert!(found.tables <= TABLES, "{found:?} {paper:?}");
    }
}

/// What is worth most frees more of what is older than what has most layers, where as much is moved.
#[test]
fn selection_by_worth_takes_less_space() {
    const TABLES: usize = 137;
    let keys = (TABLES * TABLE_PAIRS) as u64;
    let mut random = Random::seeded(1);
    let puts: Vec<u64> = (0..keys).map(|_| random.below(keys)).collect();
    for moved in [4, 8] {
        let load = Load {
            table_pairs: TABLE_PAIRS,
            puts: puts.clone(),
            counted_from: 0,
            keys,
            sampled: 1,
            moved: Some(moved),
        };
        let layers = load.run(&mut bounded(10));
        let worth = load.run(&mut TwoLevel { by_worth: true, ..bounded(10) });
        println!("moved {moved}, by layers: {layers:?}\nmoved {moved}, by worth: {worth:?}");
        assert!(worth.space < layers.space, "{worth:?} {layers:?}");
    }
}

/// In order there is nothing to rewrite, and nothing stays in level 0.
#[test]
fn what_is_put_in_order_is_moved() {
    let mut replay = Replay::new(TABLE_PAIRS);
    let mut policy = bounded(4);
    for number in 0..50 {
        replay.put(number * 64..(number + 1) * 64);
        while policy.compact(&mut replay).is_some() {}
    }
    assert_eq!(replay.rewritten, 0);
    assert!(replay.version.levels[0].len() < 4 && replay.version.levels[1].len() > 46);
}
