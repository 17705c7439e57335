//! What one compaction does, and what running ones touch.

use super::file::FileMeta;
use super::level::{Run, runs};
use super::version::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Why a compaction was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    Level0Tables,
    LevelSize,
    Overlap,
    /// Little space is left, and it may give some back.
    Space,
    /// Tables are partly empty where each takes as much however little is in it.
    Coalescing,
    /// Scans step over deletions again and again.
    Tombstones,
    Manual,
}

/// What one compaction reads, and where it writes.
#[derive(Clone, Debug)]
pub(crate) struct CompactionPlan {
    pub(crate) reason: Reason,
    pub(crate) input_level: usize,
    pub(crate) output_level: usize,
    /// Tables of the input level, in its order.
    pub(crate) inputs: Vec<Arc<FileMeta>>,
    /// Tables of the output level that overlap, in its order.
    pub(crate) overlapping: Vec<Arc<FileMeta>>,
    /// Tables of the levels between the two that go along, with their levels: by level, in its order. What one of them overlaps
    /// of the levels below it, down to the output level, takes part too.
    pub(crate) between: Vec<(usize, Arc<FileMeta>)>,
    /// User keys, ascending, before which an output ends.
    pub(crate) cuts: Vec<Vec<u8>>,
}

impl CompactionPlan {
    /// Merges `inputs` of a level with what is `overlapping` in the output level, and nothing between; outputs end by their size.
    pub(crate) fn new(
        reason: Reason,
        (input_level, inputs): (usize, Vec<Arc<FileMeta>>),
        (output_level, overlapping): (usize, Vec<Arc<FileMeta>>),
    ) -> Self {
        let (between, cuts) = (Vec::new(), Vec::new());
        CompactionPlan { reason, input_level, output_level, inputs, overlapping, between, cuts }
    }

    /// The one input can change its level without being rewritten. Who asks for everything to be put in order wants
    /// deletions gone, which a table that is moved keeps.
    pub(crate) fn is_trivial_move(&self) -> bool {
        let keeps_deletions = self.reason == Reason::Manual && self.inputs.iter().any(|file| file.deletions > 0);
        self.overlapping.is_empty()
            && self.between.is_empty()
            && self.input_level != self.output_level
            && !keeps_deletions
            && (self.inputs.len() == 1 || self.input_level > 0 || disjoint(&self.inputs))
    }

    pub(crate) fn all_inputs(&self) -> impl Iterator<Item = &Arc<FileMeta>> {
        self.inputs.iter().chain(self.between.iter().map(|(_, file)| file)).chain(self.overlapping.iter())
    }

    /// The same with their levels.
    pub(crate) fn inputs_by_level(&self) -> impl Iterator<Item = (usize, &Arc<FileMeta>)> {
        let inputs = self.inputs.iter().map(|file| (self.input_level, file));
        let between = self.between.iter().map(|(level, file)| (*level, file));
        inputs.chain(between).chain(self.overlapping.iter().map(|file| (self.output_level, file)))
    }

    /// Smallest and largest user key it touches.
    pub(crate) fn key_range(&self) -> Option<(&[u8], &[u8])> {
        let smallest = self.all_inputs().map(|file| file.smallest_user_key()).min()?;
        let largest = self.all_inputs().map(|file| file.largest_user_key()).max()?;
        Some((smallest, largest))
    }

    /// The same without the tables of these numbers.
    pub(crate) fn without(&self, numbers: &BTreeSet<u64>) -> CompactionPlan {
        let mut plan = self.clone();
        plan.inputs.retain(|file| !numbers.contains(&file.number));
        plan.overlapping.retain(|file| !numbers.contains(&file.number));
        plan.between.retain(|(_, file)| !numbers.contains(&file.number));
        plan
    }

    /// What it writes at most: as much as it reads, or nothing.
    pub(crate) fn written_bytes_max(&self) -> u64 {
        if self.is_trivial_move() { 0 } else { self.input_bytes() }
    }

    /// Sum of the largest table of each level between, in bytes: one table per level may be partly merged at a time.
    pub(crate) fn between_bytes(&self) -> u64 {
        let levels = self.between.chunk_by(|(before, _), (after, _)| before == after);
        levels.filter_map(|files| files.iter().map(|(_, file)| file.size_bytes).max()).sum()
    }

    pub(crate) fn input_bytes(&self) -> u64 {
        self.all_inputs().map(|file| file.size_bytes).sum()
    }

    /// It is done in pieces if its outputs may take `space_bytes`.
    pub(crate) fn is_partial_within(&self, version: &Version, space_bytes: u64) -> bool {
        self.written_bytes_max() > space_bytes && self.is_divisible(version)
    }

    /// Its pieces free inputs before it ends.
    pub(crate) fn is_divisible(&self, version: &Version) -> bool {
        let passes_inputs = self.overlapping.is_empty() && self.input_level >= version.disjoint_from();
        self.output_level >= version.disjoint_from()
            && (self.overlapping.len() > 1 || (passes_inputs && self.inputs.len() > 1))
    }

    /// Tables of the version it was made for that may hold older versions of what it writes and take no part in it.
    pub(crate) fn older_runs(&self, version: &Version) -> Vec<Run> {
        let deeper = version.levels.iter().skip(version.disjoint_from().max(self.output_level + 1));
        let mut older: Vec<Run> = deeper.filter(|files| !files.is_empty()).map(|files| files.to_vec()).collect();
        if self.output_level < version.disjoint_from() {
            // Tables of overlapping levels have no order of age but the sequence numbers of their entries.
            let takes_part: BTreeSet<u64> = self.all_inputs().map(|file| file.number).collect();
            let overlapping = version.levels[..version.disjoint_from()].iter().flat_map(|level| level.iter());
            older.extend(runs(overlapping.filter(|file| !takes_part.contains(&file.number))));
        }
        older
    }

    /// What is left to know of it once its tables may be gone.
    pub(crate) fn claim(&self) -> JobClaim {
        JobClaim {
            input_level: self.input_level,
            output_level: self.output_level,
            is_trivial_move: self.is_trivial_move(),
            numbers: self.all_inputs().map(|file| file.number).collect(),
            key_range: self.key_range().map(|(smallest, largest)| (smallest.to_vec(), largest.to_vec())),
        }
    }
}

/// What a plan was, without its tables: who holds those keeps their space.
#[derive(Clone, Debug)]
pub(crate) struct JobClaim {
    pub(crate) input_level: usize,
    pub(crate) output_level: usize,
    pub(crate) is_trivial_move: bool,
    /// Numbers of all inputs.
    pub(crate) numbers: Vec<u64>,
    /// Smallest and largest user key.
    pub(crate) key_range: Option<(Vec<u8>, Vec<u8>)>,
}

/// A plan that rewrites tables of a level where they are.
pub(crate) fn in_place(level: usize, inputs: Vec<Arc<FileMeta>>) -> CompactionPlan {
    CompactionPlan::new(Reason::Space, (level, inputs), (level, Vec::new()))
}

fn disjoint(files: &[Arc<FileMeta>]) -> bool {
    let mut ranges: Vec<(&[u8], &[u8])> =
        files.iter().map(|file| (file.smallest_user_key(), file.largest_user_key())).collect();
    ranges.sort();
    ranges.windows(2).all(|pair| pair[0].1 < pair[1].0)
}

/// What running compactions read and where they write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Busy {
    files: BTreeSet<u64>,
    /// Output level, smallest and largest user key of each running compaction.
    outputs: Vec<(usize, Vec<u8>, Vec<u8>)>,
    /// Largest user key of the last compaction of each level.
    last_keys: BTreeMap<usize, Vec<u8>>,
    /// Plans that entered or left.
    changes: u64,
}

impl Busy {
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.files.contains(&number)
    }

    /// Enters a plan that starts to run.
    pub(crate) fn enter(&mut self, plan: &CompactionPlan) {
        self.changes += 1;
        self.files.extend(plan.all_inputs().map(|file| file.number));
        if let Some((smallest, largest)) = plan.key_range() {
            self.outputs.push((plan.output_level, smallest.to_vec(), largest.to_vec()));
        }
        if let Some(last) = plan.inputs.iter().map(|file| file.largest_user_key()).max() {
            self.last_keys.insert(plan.input_level, last.to_vec());
        }
    }

    /// Takes out a plan that ended.
    pub(crate) fn leave(&mut self, plan: &JobClaim) {
        self.changes += 1;
        for number in &plan.numbers {
            self.files.remove(number);
        }
        if let Some((smallest, largest)) = &plan.key_range
            && let Some(position) = self
                .outputs
                .iter()
                .position(|(level, low, high)| *level == plan.output_level && low == smallest && high == largest)
        {
            self.outputs.swap_remove(position);
        }
    }

    /// A number that is another one whenever this changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Largest user key of the last compaction of a level.
    pub(crate) fn last_key(&self, level: usize) -> Option<&[u8]> {
        self.last_keys.get(&level).map(Vec::as_slice)
    }

    /// A running compaction may put a table of `level` anywhere between its smallest and largest
    /// key, also where no input had one.
    pub(crate) fn writes_into(&self, level: usize, smallest: &[u8], largest: &[u8]) -> bool {
        self.outputs
            .iter()
            .any(|(output, low, high)| *output == level && low.as_slice() <= largest && high.as_slice() >= smallest)
    }
}

/// Splits a plan's key range for parallel work: user keys that begin a new part, so that the parts' input bytes are
/// about equal: where tables begin, and where buckets of their histograms do if they have one. At most `parts - 1` of
/// them.
pub(crate) fn subcompaction_boundaries(plan: &CompactionPlan, parts: usize) -> Vec<Vec<u8>> {
    if parts < 2 {
        return Vec::new();
    }
    let mut borders: Vec<(&[u8], u64)> = plan.all_inputs().flat_map(begins).collect();
    borders.sort();
    let total = borders.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    let share = (total / parts as u64).max(1);
    let mut boundaries: Vec<Vec<u8>> = Vec::new();
    let mut gathered = 0u64;
    for (key, bytes) in &borders {
        if gathered >= share.saturating_mul(boundaries.len() as u64 + 1)
            && boundaries.len() + 1 < parts
            && boundaries.last().is_none_or(|last| last.as_slice() < *key)
            && borders[0].0 < *key
        {
            boundaries.push(key.to_vec());
        }
        gathered = gathered.saturating_add(*bytes);
    }
    boundaries
}

/// Where parts of a table begin, and their bytes.
fn begins(file: &Arc<FileMeta>) -> impl Iterator<Item = (&[u8], u64)> {
    let buckets = file.histogram.get().map_or(&[][..], |histogram| histogram.buckets());
    let whole = buckets.is_empty().then_some((file.smallest_user_key(), file.size_bytes));
    let before = std::iter::once(file.smallest_user_key()).chain(buckets.iter().map(|bucket| &*bucket.last));
    whole.into_iter().chain(before.zip(buckets).map(|(key, bucket)| (key, bucket.bytes)))
}
