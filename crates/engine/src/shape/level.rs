//! One level of a version: its tables, and what is known of all of them.

use super::file::FileMeta;
use crate::key;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// Disjoint tables in key order.
pub(crate) type Run = Vec<Arc<FileMeta>>;

/// First eight bytes, big-endian, of each table's largest user key: a compact array to search before
/// touching the tables themselves.
pub(super) type Prefixes = Vec<u64>;

fn prefixes(run: &[Arc<FileMeta>]) -> Prefixes {
    run.iter().map(|file| key::key_prefix(file.largest_user_key())).collect()
}

/// Position of the first table of a run whose largest user key is at or after `user_key`; the number of
/// tables when there is none.
#[inline]
pub(super) fn find_in(run: &[Arc<FileMeta>], prefixes: &Prefixes, user_key: &[u8]) -> usize {
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

/// The tables of one level, and what was found out about them when it came to be.
#[derive(Debug)]
pub(crate) struct Level {
    files: Vec<Arc<FileMeta>>,
    pub(super) bytes: u64,
    pub(super) largest_table_bytes: u64,
    pub(super) listed_bytes: u64,
    /// For blocks of so many bytes, what tables may come to take more at most.
    growth_bytes_max: OnceLock<(u64, u64)>,
    /// Of disjoint tables.
    pub(super) largest_prefixes: Prefixes,
    /// Tables that overlap, when those of other levels than level 0 do.
    pub(super) runs: Vec<(Run, Prefixes)>,
}

impl Deref for Level {
    type Target = [Arc<FileMeta>];

    fn deref(&self) -> &[Arc<FileMeta>] {
        &self.files
    }
}

impl Level {
    fn of(files: Vec<Arc<FileMeta>>, largest_prefixes: Prefixes, runs: Vec<(Run, Prefixes)>) -> Level {
        Level {
            bytes: files.iter().map(|file| file.size_bytes).sum(),
            largest_table_bytes: files.iter().map(|file| file.size_bytes).max().unwrap_or(0),
            listed_bytes: files.iter().map(|file| file.listed_bytes()).sum(),
            growth_bytes_max: OnceLock::new(),
            largest_prefixes,
            runs,
            files,
        }
    }

    /// Tables that do not overlap, in any order.
    pub(super) fn disjoint(mut files: Vec<Arc<FileMeta>>) -> Level {
        files.sort_by(|a, b| a.smallest_user_key().cmp(b.smallest_user_key()));
        let largest_prefixes = prefixes(&files);
        Level::of(files, largest_prefixes, Vec::new())
    }

    /// Tables that may, in any order.
    pub(super) fn overlapping(mut files: Vec<Arc<FileMeta>>, keeps_runs: bool) -> Level {
        files.sort_by_key(|file| Reverse((file.newest_sequence, file.number)));
        let runs = if keeps_runs { runs(&files) } else { Vec::new() };
        let with_prefixes = |run: Run| {
            let prefixes = prefixes(&run);
            (run, prefixes)
        };
        Level::of(files, Vec::new(), runs.into_iter().map(with_prefixes).collect())
    }

    /// Disjoint tables without those of ascending numbers and with others that do not overlap what is left. Cost: a look at each, and a search for each
    /// that is added.
    pub(super) fn disjoint_with(&self, removed: &[u64], added: &[&Arc<FileMeta>]) -> Level {
        let is_kept = |file: &FileMeta| removed.binary_search(&file.number).is_err();
        let kept = self.files.iter().zip(&self.largest_prefixes).filter(|(file, _)| is_kept(file));
        let (mut files, mut largest_prefixes) = (Vec::new(), Vec::new());
        files.reserve_exact(self.files.len() + added.len());
        largest_prefixes.reserve_exact(self.files.len() + added.len());
        for (file, prefix) in kept {
            files.push(file.clone());
            largest_prefixes.push(*prefix);
        }
        for file in added {
            let position = find_in(&files, &largest_prefixes, file.largest_user_key());
            files.insert(position, (*file).clone());
            largest_prefixes.insert(position, key::key_prefix(file.largest_user_key()));
        }
        Level::of(files, largest_prefixes, Vec::new())
    }

    pub(super) fn growth_bytes_max(&self, block_bytes: u64) -> u64 {
        let most_bytes = || {
            let more_bytes = self.files.iter().map(|file| file.size_bytes.saturating_sub(1) % block_bytes);
            more_bytes.fold(0, u64::saturating_add)
        };
        match self.growth_bytes_max.get_or_init(|| (block_bytes, most_bytes())) {
            (of, bytes) if *of == block_bytes => *bytes,
            _ => most_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::tests::table;
    use varve_env::Random;

    fn told(level: &Level) -> (Vec<u64>, u64, u64, u64, u64, &Prefixes) {
        let numbers = level.iter().map(|file| file.number).collect();
        let growth_bytes = level.growth_bytes_max(4096);
        (numbers, level.bytes, level.largest_table_bytes, level.listed_bytes, growth_bytes, &level.largest_prefixes)
    }

    /// Tables of random sizes in places of a hundred come and go.
    #[test]
    fn a_level_that_changed_is_as_one_made_anew() {
        for seed in 0..50 {
            let mut random = Random::seeded(seed);
            let mut level = Level::disjoint(Vec::new());
            let mut taken: Vec<(u64, Arc<FileMeta>)> = Vec::new();
            for number in 1..200 {
                let removed: Vec<(u64, Arc<FileMeta>)> = taken.extract_if(.., |_| random.chance(1, 8)).collect();
                let mut added = Vec::new();
                for part in 0..random.below(4) {
                    let place = random.below(100);
                    if taken.iter().all(|(of, _)| *of != place) {
                        let range = format!("{place:02}a-{place:02}z");
                        let fresh = table(number * 4 + part, &range, 1 + random.below(1 << 20), 0);
                        taken.push((place, fresh.clone()));
                        added.push(fresh);
                    }
                }
                let mut removed: Vec<u64> = removed.iter().map(|(_, file)| file.number).collect();
                removed.sort_unstable();
                level = level.disjoint_with(&removed, &added.iter().collect::<Vec<_>>());
                let anew = Level::disjoint(taken.iter().map(|(_, file)| file.clone()).collect());
                assert_eq!(told(&level), told(&anew), "seed {seed}");
            }
        }
    }
}
