//! The policy over years of writes, on paper: tables are lists of keys, a merge is a union, and what is counted is what a tree
//! would write and keep. A pair is a unit of size.

use super::*;
use crate::key;
use crate::manifest::AddedFile;
use crate::shape::Garbage;
use std::collections::BTreeMap;
use varve_env::Random;

/// Pairs of a memtable.
const MEMTABLE: usize = 256;

fn options(max_size_amplification_percent: u64) -> PolicyOptions {
    let memtable = MEMTABLE as u64;
    PolicyOptions {
        level0_file_num_compaction_trigger: 4,
        level0_score_by_bytes: false,
        level0_waiting_max: 12,
        max_bytes_for_level_base: 4 * memtable,
        max_bytes_for_level_multiplier: 10,
        dynamic_level_bytes: true,
        max_compaction_bytes: 25 * memtable,
        max_size_amplification_percent,
        priority: CompactionPriority::default(),
    }
}

/// A tree whose tables are lists of keys.
struct Paper {
    version: Version,
    keys: BTreeMap<u64, Vec<u32>>,
    options: PolicyOptions,
    garbage: Arc<Garbage>,
    next: u64,
    /// Pairs written into tables.
    written: u64,
    sequence: u64,
    largest_plan: u64,
    /// Of every flush so far: tables of level 0 and levels below it that hold any.
    runs_max: usize,
}

impl Paper {
    fn new(options: PolicyOptions) -> Self {
        Paper {
            version: Version::empty(7, 1),
            keys: BTreeMap::new(),
            options,
            garbage: Arc::new(Garbage::default()),
            next: 1,
            written: 0,
            sequence: 0,
            largest_plan: 0,
            runs_max: 0,
        }
    }

    fn table(&mut self, keys: Vec<u32>) -> Arc<FileMeta> {
        let internal = |user: u32, sequence: u64| {
            let mut out = Vec::new();
            key::append_internal_key(&mut out, format!("{user:010}").as_bytes(), sequence, 1);
            out
        };
        self.sequence += 1;
        let added = AddedFile {
            level: 0,
            number: self.next,
            size_bytes: keys.len() as u64,
            smallest: internal(keys[0], self.sequence),
            largest: internal(keys[keys.len() - 1], self.sequence),
            oldest_sequence: self.sequence,
            newest_sequence: self.sequence,
            entries: keys.len() as u64,
            deletions: 0,
            table_id: self.next,
            begin: None,
        };
        self.written += keys.len() as u64;
        self.keys.insert(self.next, keys);
        self.next += 1;
        FileMeta::new(&added, &self.garbage)
    }

    /// A memtable, and what is due after it.
    fn flush(&mut self, mut keys: Vec<u32>) {
        keys.sort_unstable();
        keys.dedup();
        let table = self.table(keys);
        self.version = self.version.with(&[], &[(0, table)]);
        let mut steps = 0;
        while let Some(plan) = pick_within(&self.version, &Busy::default(), &self.options, u64::MAX) {
            self.carry_out(&plan);
            steps += 1;
            assert!(steps < 10_000, "it does not come to rest");
        }
        let below = self.version.levels[1..].iter().filter(|level| !level.is_empty()).count();
        self.runs_max = self.runs_max.max(self.version.levels[0].len() + below);
    }

    fn carry_out(&mut self, plan: &CompactionPlan) {
        assert_takes_what_is_below(&self.version, plan);
        let removed: Vec<(usize, u64)> = plan.inputs_by_level().map(|(level, file)| (level, file.number)).collect();
        if plan.is_trivial_move() {
            let moved: Vec<_> = plan.inputs.iter().map(|file| (plan.output_level, file.clone())).collect();
            self.version = self.version.with(&removed, &moved);
            return;
        }
        self.largest_plan = self.largest_plan.max(plan.input_bytes());
        let mut keys: Vec<u32> = removed.iter().flat_map(|(_, number)| self.keys.remove(number).unwrap()).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut added = Vec::new();
        let number_of = |cut: &Vec<u8>| std::str::from_utf8(cut).unwrap().parse::<u32>().unwrap();
        let mut cuts = plan.cuts.iter().map(number_of).peekable();
        let mut open: Vec<u32> = Vec::new();
        for key in keys {
            let mut is_cut = false;
            while cuts.next_if(|cut| *cut <= key).is_some() {
                is_cut = true;
            }
            if !open.is_empty() && (is_cut || open.len() >= MEMTABLE) {
                added.push((plan.output_level, self.table(std::mem::take(&mut open))));
            }
            open.push(key);
        }
        added.push((plan.output_level, self.table(open)));
        self.version = self.version.with(&removed, &added);
        assert!(self.version.is_disjoint(), "tables of a level overlap");
    }

    fn pairs(&self) -> u64 {
        self.version.files().map(|(_, file)| file.size_bytes).sum()
    }
}

/// A table that overlaps what a plan takes and lies between its levels takes part, or older pairs would come to lie above
/// newer ones.
pub(super) fn assert_takes_what_is_below(version: &Version, plan: &CompactionPlan) {
    let taken: Vec<u64> = plan.all_inputs().map(|file| file.number).collect();
    for (level, file) in plan.inputs_by_level() {
        for below in level + 1..=plan.output_level {
            for other in version.overlapping(below, file.smallest_user_key(), file.largest_user_key()) {
                assert!(
                    taken.contains(&other.number),
                    "{other:?} of level {below} lies below {file:?} of level {level}"
                );
            }
        }
    }
    let (smallest, largest) = plan.key_range().unwrap();
    for other in version.overlapping(plan.output_level, smallest, largest) {
        assert!(taken.contains(&other.number) || plan.output_level == 0, "{other:?} lies where outputs may");
    }
}

/// What a tree of so many memtables comes to: pairs written into tables for each that was put, while it is filled and while it is
/// overwritten at random, and its mean size while it is, by that of what it holds.
#[derive(Debug)]
struct Curve {
    fill: f64,
    overwrite: f64,
    space: f64,
    runs_max: usize,
    largest_plan: u64,
}

fn curve(memtables: usize, percent: u64) -> Curve {
    let mut random = Random::seeded(memtables as u64);
    let mut paper = Paper::new(options(percent));
    let pairs = memtables * MEMTABLE;
    let mut keys: Vec<u32> = (0..pairs as u32).collect();
    for position in (1..keys.len()).rev() {
        keys.swap(position, random.index(position + 1));
    }
    keys.chunks(MEMTABLE).for_each(|chunk| paper.flush(chunk.to_vec()));
    let fill = paper.written as f64 / pairs as f64;
    let rounds = (256 / memtables).clamp(2, 16);
    let mut overwrite = |paper: &mut Paper| {
        paper.flush((0..MEMTABLE).map(|_| random.below(pairs as u64) as u32).collect());
        paper.pairs() as f64 / pairs as f64
    };
    for _ in 0..memtables {
        overwrite(&mut paper);
    }
    let before = paper.written;
    let flushes = rounds * memtables;
    let space = (0..flushes).map(|_| overwrite(&mut paper)).sum::<f64>() / flushes as f64;
    let overwrite = (paper.written - before) as f64 / (flushes * MEMTABLE) as f64;
    Curve { fill, overwrite, space, runs_max: paper.runs_max, largest_plan: paper.largest_plan }
}

/// Counts of a model, which has no noise: they move when the policy does. Levels of a fixed ratio come to 1.89, 2.94, 4.97, 8.37
/// and 12.7 at spaces of 1.33, 1.18, 1.09, 1.11 and 1.11.
#[test]
fn what_is_written_and_kept_stays_within_bounds() {
    let bounds =
        [(4, 2.0, 2.0, 1.40), (8, 2.6, 2.4, 1.40), (16, 3.1, 3.0, 1.33), (64, 5.4, 6.6, 1.14), (256, 7.4, 7.7, 1.14)];
    for (memtables, fill, overwrite, space) in bounds {
        let curve = curve(memtables, 12);
        assert!(curve.fill <= fill && curve.overwrite <= overwrite && curve.space <= space, "{memtables}: {curve:?}");
        assert!(curve.runs_max <= 8, "{memtables}: {curve:?}");
        assert!(curve.largest_plan <= 55 * MEMTABLE as u64, "{memtables}: {curve:?}");
    }
}

/// Trees that are merged whole give more space for less writing by letting level 0 wait. RocksDB's leveled style comes to 1.98, 2.91,
/// 4.01 and 5.97 at spaces of 2.16, 1.61, 1.31 and 1.16 (`cargo peers amplification`, without the log).
#[test]
fn level_0_waits_where_that_much_space_is_given() {
    let bounds = [(4, 200, 1.40, 1.95), (8, 125, 1.80, 1.57), (16, 80, 2.55, 1.41), (32, 40, 3.95, 1.21)];
    for (memtables, percent, overwrite, space) in bounds {
        let curve = curve(memtables, percent);
        assert!(curve.overwrite <= overwrite && curve.space <= space, "{memtables}, {percent} %: {curve:?}");
        assert!(curve.runs_max <= 13, "{memtables}, {percent} %: {curve:?}");
    }
}

/// More space for less writing, also where level 0 begins to wait.
#[test]
fn a_tree_that_is_merged_whole_writes_the_less_the_more_it_may_keep() {
    for (memtables, percents) in [(8, [12, 60, 100, 125]), (16, [12, 30, 60, 80]), (32, [12, 20, 30, 40])] {
        let of = percents.map(|percent| curve(memtables, percent));
        assert!(of.is_sorted_by(|a, b| a.overwrite >= b.overwrite - 0.06), "{memtables}: {of:#?}");
    }
}

/// More space for less writing.
#[test]
fn the_more_may_gather_the_less_is_written() {
    let of = [10, 15, 25].map(|percent| curve(128, percent));
    assert!(of.is_sorted_by(|a, b| a.overwrite > b.overwrite && a.space < b.space), "{of:?}");
}

/// Not a test: it prints what the policy comes to.
#[test]
#[ignore = "prints, asserts nothing; cargo test -p varve-engine --lib leveled::simulation -- --ignored --nocapture"]
fn the_curve() {
    for memtables in [4, 8, 16, 32, 64, 128, 256] {
        for percent in [0, 10, 12, 15, 20, 25] {
            println!("{memtables:4} memtables, {percent:2} %: {:.2?}", curve(memtables, percent));
        }
    }
}
