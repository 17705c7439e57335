//! A version: which tables make up the tree at one moment. Immutable; readers hold it by `Arc`.

use super::file::FileMeta;
use crate::key;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The tables of every level. Levels up to some depth hold tables that may overlap, ordered newest first;
/// deeper levels hold disjoint ones, ordered by key.
///
/// A user key's versions within one level of disjoint tables are all in one table: outputs are never cut
/// between two versions of a key.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) levels: Vec<Vec<Arc<FileMeta>>>,
    bytes: Vec<u64>,
    largest_table_bytes: u64,
    listed_bytes: u64,
    /// For blocks of so many bytes.
    growth_bytes: OnceLock<(u64, u64)>,
    disjoint_from: usize,
    /// For disjoint levels.
    largest_prefixes: Vec<Prefixes>,
    /// The tables of overlapping levels, with their level, when level 0 is not the only one of them.
    runs: Vec<(usize, Run, Prefixes)>,
}

/// Where tables end in their last blocks is as good as random: of many, half a block of each is lost, give or take as many
/// blocks as the root of their number. At most each comes to end just behind the beginning of one.
fn growth_bytes(sizes_bytes: impl Iterator<Item = u64>, block_bytes: u64) -> u64 {
    let block_bytes = block_bytes.max(1);
    let (mut tables, mut most_bytes) = (0u64, 0u64);
    for size_bytes in sizes_bytes {
        tables += 1;
        most_bytes = most_bytes.saturating_add(size_bytes.saturating_sub(1) % block_bytes);
    }
    let expected_bytes = most_bytes.saturating_sub(tables.saturating_mul(block_bytes - 1) / 2);
    expected_bytes.saturating_add(tables.isqrt().saturating_mul(block_bytes)).min(most_bytes)
}

/// Disjoint tables in key order.
pub(crate) type Run = Vec<Arc<FileMeta>>;

/// First eight bytes, big-endian, of each table's largest user key: a compact array to search before
/// touching the tables themselves.
type Prefixes = Vec<u64>;

fn prefixes(run: &[Arc<FileMeta>]) -> Prefixes {
    run.iter().map(|file| key::key_prefix(file.largest_user_key())).collect()
}

/// Position of the first table of a run whose largest user key is at or after `user_key`; the number of
/// tables when there is none.
#[inline]
fn find_in(run: &[Arc<FileMeta>], prefixes: &Prefixes, user_key: &[u8]) -> usize {
    let prefix = key::key_prefix(user_key);
    let start = prefixes.partition_point(|&largest| largest < prefix);
    // Keys often share their first bytes: among equals the whole key decides.
    let equal = prefixes[start..].partition_point(|&largest| largest == prefix);
    start + run[start..start + equal].partition_point(|file| file.largest_user_key() < user_key)
}

/// As few runs as hold all these tables: as many as tables overlap at most in one key.
pub(crate) fn runs<'a>(files: impl IntoIterator<Item = &'a Arc<FileMeta>>) -> Vec<Run> {
    let mut files: Vec<&Arc<FileMeta>> = files.into_iter().collect();
    files.sort_by(|a, b| {
        let order = a.smallest_user_key().cmp(b.smallest_user_key());
        order.then_with(|| key::compare(&a.smallest, &b.smallest)).then(a.number.cmp(&b.number))
    });
    let mut runs: Vec<Run> = Vec::new();
    // Runs by the largest user key of their last table: the one that ends first is the first to be free.
    let mut ends: BinaryHeap<Reverse<(&[u8], usize)>> = BinaryHeap::new();
    for file in files {
        let run = match ends.peek() {
            Some(Reverse((end, run))) if *end < file.smallest_user_key() => {
                let run = *run;
                ends.pop();
                run
            }
            _ => {
                runs.push(Vec::new());
                runs.len() - 1
            }
        };
        runs[run].push(file.clone());
        ends.push(Reverse((file.largest_user_key(), run)));
    }
    runs
}

impl Version {
    pub(crate) fn empty(level_count: usize, disjoint_from: usize) -> Self {
        Version::new(vec![Vec::new(); level_count.max(2)], disjoint_from)
    }

    /// Orders the tables of each level and builds the search arrays. Tables of levels from `disjoint_from`,
    /// at least 1, are disjoint.
    pub(crate) fn new(mut levels: Vec<Vec<Arc<FileMeta>>>, disjoint_from: usize) -> Self {
        let disjoint_from = disjoint_from.clamp(1, levels.len());
        for level in levels.iter_mut().take(disjoint_from) {
            level.sort_by_key(|file| Reverse((file.newest_sequence, file.number)));
        }
        for level in levels.iter_mut().skip(disjoint_from) {
            level.sort_by(|a, b| key::compare(&a.smallest, &b.smallest));
            debug_assert!(level.windows(2).all(|pair| pair[0].largest_user_key() < pair[1].smallest_user_key()));
        }
        let bytes = levels.iter().map(|level| level.iter().map(|file| file.size_bytes).sum()).collect();
        let largest_table_bytes = levels.iter().flatten().map(|file| file.size_bytes).max().unwrap_or(0);
        let listed_bytes = levels.iter().flatten().map(|file| file.listed_bytes()).sum();
        let largest_prefixes = levels
            .iter()
            .enumerate()
            .map(|(level, files)| if level < disjoint_from { Vec::new() } else { prefixes(files) })
            .collect();
        let overlapping = if disjoint_from > 1 { disjoint_from } else { 0 };
        let runs = (0..overlapping)
            .flat_map(|level| runs(&levels[level]).into_iter().map(move |run| (level, run)))
            .map(|(level, run)| {
                let prefixes = prefixes(&run);
                (level, run, prefixes)
            })
            .collect();
        let growth_bytes = OnceLock::new();
        Version {
            levels,
            bytes,
            largest_table_bytes,
            listed_bytes,
            growth_bytes,
            disjoint_from,
            largest_prefixes,
            runs,
        }
    }

    /// The same for tables that come from a file; errs with the numbers of two tables of one level
    /// that overlap where they may not.
    pub(crate) fn checked(levels: Vec<Vec<Arc<FileMeta>>>, disjoint_from: usize) -> Result<Self, (u64, u64)> {
        for level in levels.iter().skip(disjoint_from) {
            let mut files: Vec<&Arc<FileMeta>> = level.iter().collect();
            files.sort_by(|a, b| key::compare(&a.smallest, &b.smallest));
            for pair in files.windows(2) {
                if pair[0].largest_user_key() >= pair[1].smallest_user_key() {
                    return Err((pair[0].number, pair[1].number));
                }
            }
        }
        Ok(Version::new(levels, disjoint_from))
    }

    /// This version with some tables removed and others added.
    pub(crate) fn with(&self, removed: &[(usize, u64)], added: &[(usize, Arc<FileMeta>)]) -> Self {
        let mut levels = self.levels.clone();
        for (level, number) in removed {
            if let Some(files) = levels.get_mut(*level) {
                files.retain(|file| file.number != *number);
            }
        }
        for (level, file) in added {
            if let Some(files) = levels.get_mut(*level) {
                files.push(file.clone());
            }
        }
        Version::new(levels, self.disjoint_from)
    }

    /// The first level whose tables are disjoint, as those of all deeper ones are.
    pub(crate) fn disjoint_from(&self) -> usize {
        self.disjoint_from
    }

    /// Tables that may hold `user_key`, the newest first, with their levels, when more levels than level 0 overlap;
    /// else none.
    pub(crate) fn overlapping_with(&self, user_key: &[u8]) -> Vec<(usize, &Arc<FileMeta>)> {
        let find = |(level, run, prefixes): &'_ (usize, Run, Prefixes)| {
            let position = find_in(run, prefixes, user_key);
            run.get(position).filter(|file| file.smallest_user_key() <= user_key).map(|_| (*level, position))
        };
        let mut found: Vec<(usize, &Arc<FileMeta>)> =
            self.runs.iter().filter_map(|run| find(run).map(|(level, position)| (level, &run.1[position]))).collect();
        found.sort_by_key(|(_, file)| Reverse((file.newest_sequence, file.number)));
        found
    }

    /// Most tables of a level that lie over one key.
    pub(crate) fn layers(&self, level: usize) -> usize {
        match level < self.disjoint_from && !self.runs.is_empty() {
            true => self.runs.iter().filter(|(of, _, _)| *of == level).count(),
            false => runs(&self.levels[level]).len(),
        }
    }

    /// Mean number of tables whose ranges hold the key of a pair, as far as histograms say where pairs are; 0 without
    /// tables.
    ///
    /// Cost: a sort of the tables' ends, and two binary searches for each bucket of their histograms.
    pub(crate) fn mean_depth(&self) -> f64 {
        let mut starts: Vec<&[u8]> = self.files().map(|(_, file)| file.smallest_user_key()).collect();
        let mut ends: Vec<&[u8]> = self.files().map(|(_, file)| file.largest_user_key()).collect();
        starts.sort_unstable();
        ends.sort_unstable();
        let depth = |key: &[u8]| {
            let begun = starts.partition_point(|start| *start <= key);
            (begun - ends.partition_point(|end| *end < key).min(begun)) as f64
        };
        let (mut bytes, mut weighted) = (0.0, 0.0);
        for (_, file) in self.files() {
            let buckets = file.histogram.get().map_or(&[][..], |histogram| histogram.buckets());
            let whole = buckets.is_empty().then(|| (file.largest_user_key(), file.size_bytes));
            for (key, of_bucket) in buckets.iter().map(|bucket| (&*bucket.last, bucket.bytes)).chain(whole) {
                bytes += of_bucket as f64;
                weighted += of_bucket as f64 * depth(key);
            }
        }
        if bytes > 0.0 { weighted / bytes } else { 0.0 }
    }

    pub(crate) fn level_bytes(&self, level: usize) -> u64 {
        self.bytes[level]
    }

    /// Size of the largest table; 0 without tables.
    pub(crate) fn largest_table_bytes(&self) -> u64 {
        self.largest_table_bytes
    }

    /// About how many bytes of a manifest name all tables.
    pub(crate) fn listed_bytes(&self) -> u64 {
        self.listed_bytes
    }

    /// Bytes that all tables may come to take more, in blocks of so many, once they were rewritten. Cost: that of a walk over
    /// all tables, the first time.
    pub(crate) fn growth_bytes(&self, block_bytes: u64) -> u64 {
        let sizes = || self.files().map(|(_, file)| file.size_bytes);
        match self.growth_bytes.get_or_init(|| (block_bytes, growth_bytes(sizes(), block_bytes))) {
            (of, bytes) if *of == block_bytes => *bytes,
            _ => growth_bytes(sizes(), block_bytes),
        }
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = (usize, &Arc<FileMeta>)> {
        self.levels.iter().enumerate().flat_map(|(level, files)| files.iter().map(move |file| (level, file)))
    }

    /// Position of the first table of a disjoint level whose largest user key is at or after
    /// `user_key`; the number of tables when there is none.
    #[inline]
    pub(crate) fn find(&self, level: usize, user_key: &[u8]) -> usize {
        find_in(&self.levels[level], &self.largest_prefixes[level], user_key)
    }

    /// Tables of a level that overlap `[smallest, largest]`, in the level's order.
    pub(crate) fn overlapping(&self, level: usize, smallest: &[u8], largest: &[u8]) -> Vec<Arc<FileMeta>> {
        self.overlapping_bounds(level, Some(smallest), Some(largest))
    }

    /// The same with open bounds.
    pub(crate) fn overlapping_bounds(
        &self,
        level: usize,
        smallest: Option<&[u8]>,
        largest: Option<&[u8]>,
    ) -> Vec<Arc<FileMeta>> {
        if level < self.disjoint_from {
            return self.levels[level].iter().filter(|file| file.overlaps(smallest, largest)).cloned().collect();
        }
        self.levels[level][self.disjoint_within(level, smallest, largest)].to_vec()
    }

    /// Where the tables overlapping the range are in a level whose tables are disjoint.
    pub(crate) fn disjoint_within(
        &self,
        level: usize,
        smallest: Option<&[u8]>,
        largest: Option<&[u8]>,
    ) -> Range<usize> {
        let start = smallest.map_or(0, |key| self.find(level, key));
        let rest = &self.levels[level][start..];
        let count = largest.map_or(rest.len(), |key| rest.partition_point(|file| file.smallest_user_key() <= key));
        start..start + count
    }

    /// Tables of a level overlapping the range, those overlapping these, and so on, in the level's order.
    pub(crate) fn closure(&self, level: usize, smallest: Option<&[u8]>, largest: Option<&[u8]>) -> Vec<Arc<FileMeta>> {
        let mut low = smallest.map(<[u8]>::to_vec);
        let mut high = largest.map(<[u8]>::to_vec);
        loop {
            let found = self.overlapping_bounds(level, low.as_deref(), high.as_deref());
            let mut grew = false;
            for file in &found {
                if low.as_deref().is_some_and(|low| file.smallest_user_key() < low) {
                    low = Some(file.smallest_user_key().to_vec());
                    grew = true;
                }
                if high.as_deref().is_some_and(|high| file.largest_user_key() > high) {
                    high = Some(file.largest_user_key().to_vec());
                    grew = true;
                }
            }
            if !grew {
                return found;
            }
        }
    }
}
