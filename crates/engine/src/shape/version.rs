//! A version: which tables make up the tree at one moment. Immutable; readers hold it by `Arc`.

use super::file::FileMeta;
use super::level::{Level, Prefixes, Run, find_in, runs};
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

/// The tables of every level. Levels up to some depth hold tables that may overlap, ordered newest first;
/// deeper levels hold disjoint ones, ordered by key.
///
/// A user key's versions within one level of disjoint tables are all in one table: outputs are never cut
/// between two versions of a key.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// Those that a change leaves alone are shared with the version before it.
    pub(crate) levels: Vec<Arc<Level>>,
    disjoint_from: usize,
}

/// Where tables end in their last blocks is as good as random: of many, half a block of each is lost, give or take as many
/// blocks as the root of their number. `most_bytes`: each comes to end just behind the beginning of one.
fn growth_bytes(tables: u64, most_bytes: u64, block_bytes: u64) -> u64 {
    let expected_bytes = most_bytes.saturating_sub(tables.saturating_mul(block_bytes - 1) / 2);
    expected_bytes.saturating_add(tables.isqrt().saturating_mul(block_bytes)).min(most_bytes)
}

impl Version {
    pub(crate) fn empty(level_count: usize, disjoint_from: usize) -> Self {
        Version::new(vec![Vec::new(); level_count.max(2)], disjoint_from)
    }

    /// Orders the tables of each level and builds the search arrays. Tables of levels from `disjoint_from`,
    /// at least 1, are disjoint.
    pub(crate) fn new(levels: Vec<Vec<Arc<FileMeta>>>, disjoint_from: usize) -> Self {
        let disjoint_from = disjoint_from.clamp(1, levels.len());
        let of = |(level, files)| match level < disjoint_from {
            true => Arc::new(Level::overlapping(files, disjoint_from > 1)),
            false => Arc::new(Level::disjoint(files)),
        };
        let version = Version { levels: levels.into_iter().enumerate().map(of).collect(), disjoint_from };
        debug_assert!(version.is_disjoint());
        version
    }

    /// Tables of levels that are disjoint do not overlap, and are in the order of keys.
    pub(crate) fn is_disjoint(&self) -> bool {
        let mut disjoint = self.levels.iter().skip(self.disjoint_from);
        disjoint.all(|level| level.windows(2).all(|pair| pair[0].largest_user_key() < pair[1].smallest_user_key()))
    }

    /// The same for tables that come from a file; errs with the numbers of two tables of one level
    /// that overlap where they may not.
    pub(crate) fn checked(levels: Vec<Vec<Arc<FileMeta>>>, disjoint_from: usize) -> Result<Self, (u64, u64)> {
        for level in levels.iter().skip(disjoint_from) {
            let mut files: Vec<&Arc<FileMeta>> = level.iter().collect();
            files.sort_by(|a, b| a.smallest_user_key().cmp(b.smallest_user_key()));
            for pair in files.windows(2) {
                if pair[0].largest_user_key() >= pair[1].smallest_user_key() {
                    return Err((pair[0].number, pair[1].number));
                }
            }
        }
        Ok(Version::new(levels, disjoint_from))
    }

    /// This version with some tables removed and others added; those of a level that is not known are left out. Cost: that of the
    /// levels concerned, of which overlapping ones are sorted.
    pub(crate) fn with(&self, removed: &[(usize, u64)], added: &[(usize, Arc<FileMeta>)]) -> Self {
        let changed = |(level, before): (usize, &Arc<Level>)| {
            let mut removed: Vec<u64> =
                removed.iter().filter(|(of, _)| *of == level).map(|(_, number)| *number).collect();
            let added: Vec<&Arc<FileMeta>> =
                added.iter().filter(|(of, _)| *of == level).map(|(_, file)| file).collect();
            if removed.is_empty() && added.is_empty() {
                return before.clone();
            }
            removed.sort_unstable();
            if level >= self.disjoint_from {
                return Arc::new(before.disjoint_with(&removed, &added));
            }
            let kept = before.iter().filter(|file| removed.binary_search(&file.number).is_err());
            Arc::new(Level::overlapping(kept.chain(added).cloned().collect(), self.disjoint_from > 1))
        };
        let levels = self.levels.iter().enumerate().map(changed).collect();
        let version = Version { levels, disjoint_from: self.disjoint_from };
        debug_assert!(version.is_disjoint());
        version
    }

    /// The first level whose tables are disjoint, as those of all deeper ones are.
    pub(crate) fn disjoint_from(&self) -> usize {
        self.disjoint_from
    }

    /// Tables that may hold `user_key`, the newest first, with their levels, when more levels than level 0 overlap;
    /// else none.
    pub(crate) fn overlapping_with(&self, user_key: &[u8]) -> Vec<(usize, &Arc<FileMeta>)> {
        let find = |(level, (run, prefixes)): (usize, &'_ (Run, Prefixes))| {
            let position = find_in(run, prefixes, user_key);
            run.get(position).filter(|file| file.smallest_user_key() <= user_key).map(|_| (level, position))
        };
        let runs = self.levels.iter().enumerate().flat_map(|(level, of)| of.runs.iter().map(move |run| (level, run)));
        let mut found: Vec<(usize, &Arc<FileMeta>)> = runs
            .filter_map(|(level, run)| find((level, run)).map(|(level, position)| (level, &run.0[position])))
            .collect();
        found.sort_by_key(|(_, file)| Reverse((file.newest_sequence, file.number)));
        found
    }

    /// Most tables of a level that lie over one key.
    pub(crate) fn layers(&self, level: usize) -> usize {
        match level < self.disjoint_from && self.disjoint_from > 1 {
            true => self.levels[level].runs.len(),
            false => runs(self.levels[level].iter()).len(),
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
        self.levels[level].bytes
    }

    /// Size of the largest table; 0 without tables.
    pub(crate) fn largest_table_bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.largest_table_bytes).max().unwrap_or(0)
    }

    /// About how many bytes of a manifest name all tables.
    pub(crate) fn listed_bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.listed_bytes).sum()
    }

    /// Bytes that all tables may come to take more, in blocks of so many, once they were rewritten. Cost: that of a walk over
    /// the tables of levels that changed, the first time.
    pub(crate) fn growth_bytes(&self, block_bytes: u64) -> u64 {
        let block_bytes = block_bytes.max(1);
        let tables = self.levels.iter().map(|level| level.len() as u64).sum();
        let most_bytes = self.levels.iter().map(|level| level.growth_bytes_max(block_bytes));
        growth_bytes(tables, most_bytes.fold(0, u64::saturating_add), block_bytes)
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = (usize, &Arc<FileMeta>)> {
        self.levels.iter().enumerate().flat_map(|(level, files)| files.iter().map(move |file| (level, file)))
    }

    /// Position of the first table of a disjoint level whose largest user key is at or after
    /// `user_key`; the number of tables when there is none.
    #[inline]
    pub(crate) fn find(&self, level: usize, user_key: &[u8]) -> usize {
        find_in(&self.levels[level], &self.levels[level].largest_prefixes, user_key)
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
