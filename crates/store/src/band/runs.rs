//! Where a table lies: runs of bands, in file order.

use super::change::Run;

/// The runs of one table, and which of them the band table knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RunMap {
    /// Byte of the file at which each run starts, and the run.
    runs: Vec<(u64, Run)>,
    /// What the band table says, committed or waiting for a commit.
    recorded: Vec<Run>,
}

impl RunMap {
    /// The runs of a table as the band table says them.
    pub(super) fn recorded(runs: &[Run]) -> RunMap {
        let mut map = RunMap { runs: Vec::with_capacity(runs.len()), recorded: runs.to_vec() };
        runs.iter().for_each(|run| map.runs.push((map.size_bytes(), *run)));
        map
    }

    /// Bytes of the file.
    pub(super) fn size_bytes(&self) -> u64 {
        self.runs.last().map_or(0, |(at, run)| at + run.length_bytes)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Run> {
        self.runs.iter().map(|(_, run)| *run)
    }

    /// Bands with a part of the file, each once.
    pub(super) fn bands(&self) -> Vec<u32> {
        let mut bands: Vec<u32> = self.runs.iter().map(|(_, run)| run.band).collect();
        bands.sort_unstable();
        bands.dedup();
        bands
    }

    /// Adds what was written behind the end.
    pub(super) fn push(&mut self, run: Run) {
        if run.length_bytes == 0 {
            return;
        }
        let size_bytes = self.size_bytes();
        match self.runs.last_mut() {
            Some((_, last)) if last.band == run.band && last.offset_bytes + last.length_bytes == run.offset_bytes => {
                last.length_bytes += run.length_bytes;
            }
            _ => self.runs.push((size_bytes, run)),
        }
    }

    /// Forgets what lies behind the first `size_bytes`.
    pub(super) fn truncate(&mut self, size_bytes: u64) {
        while let Some((at, run)) = self.runs.last_mut() {
            if *at >= size_bytes {
                self.runs.pop();
                continue;
            }
            run.length_bytes = run.length_bytes.min(size_bytes - *at);
            break;
        }
    }

    /// Where a byte of the file is: the band, the offset in it, and how many bytes from there on follow each other.
    #[inline]
    pub(super) fn locate(&self, offset_bytes: u64) -> Option<(u32, u64, u64)> {
        let index = match &self.runs[..] {
            [_] => 0,
            runs => runs.partition_point(|(at, _)| *at <= offset_bytes).checked_sub(1)?,
        };
        let (at, run) = self.runs[index];
        let within = offset_bytes - at;
        (within < run.length_bytes).then(|| (run.band, run.offset_bytes + within, run.length_bytes - within))
    }

    /// What the band table must hear for it to know the first `size_bytes`: how many of its runs stay, and those that
    /// follow them; `None` when it knows that.
    pub(super) fn unrecorded(&self, size_bytes: u64) -> Option<(u32, Vec<Run>)> {
        let wanted: Vec<Run> = self
            .runs
            .iter()
            .filter(|(at, _)| *at < size_bytes)
            .map(|(at, run)| Run { length_bytes: run.length_bytes.min(size_bytes - at), ..*run })
            .collect();
        let keep = wanted.iter().zip(&self.recorded).take_while(|(run, recorded)| run == recorded).count();
        let is_known = keep == wanted.len() && keep == self.recorded.len();
        (!is_known).then(|| (keep as u32, wanted[keep..].to_vec()))
    }

    /// The band table has heard it.
    pub(super) fn record(&mut self, keep: u32, runs: &[Run]) {
        self.recorded.truncate(keep as usize);
        self.recorded.extend(runs);
    }

    /// Runs the band table knows.
    pub(super) fn recorded_runs(&self) -> &[Run] {
        &self.recorded
    }

    /// Bytes of them.
    pub(super) fn recorded_bytes(&self) -> u64 {
        self.recorded.iter().map(|run| run.length_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(band: u32, offset_bytes: u64, length_bytes: u64) -> Run {
        Run { band, offset_bytes, length_bytes }
    }

    #[test]
    fn merges_locates_and_truncates() {
        let mut map = RunMap::default();
        assert_eq!((map.locate(0), map.unrecorded(u64::MAX)), (None, None));
        [run(3, 0, 8192), run(3, 8192, 100), run(3, 12_288, 50), run(9, 0, 4096), run(9, 0, 0)]
            .into_iter()
            .for_each(|run| map.push(run));
        assert_eq!((map.iter().count(), map.size_bytes(), map.bands()), (3, 12_438, vec![3, 9]));
        assert_eq!(map.locate(0), Some((3, 0, 8292)));
        assert_eq!(map.locate(8292), Some((3, 12_288, 50)));
        assert_eq!(map.locate(12_437), Some((9, 4095, 1)));
        assert_eq!(map.locate(12_438), None);
        assert_eq!(map.unrecorded(u64::MAX), Some((0, vec![run(3, 0, 8292), run(3, 12_288, 50), run(9, 0, 4096)])));
        assert_eq!(map.unrecorded(8293), Some((0, vec![run(3, 0, 8292), run(3, 12_288, 1)])));
        let (keep, runs) = map.unrecorded(u64::MAX).unwrap();
        map.record(keep, &runs);
        assert_eq!((map.unrecorded(u64::MAX), map.recorded_bytes()), (None, 12_438));
        map.push(run(9, 4096, 1));
        assert_eq!(map.unrecorded(u64::MAX), Some((2, vec![run(9, 0, 4097)])));
        map.truncate(8300);
        assert_eq!(map.iter().collect::<Vec<_>>(), [run(3, 0, 8292), run(3, 12_288, 8)]);
        assert_eq!(map.unrecorded(u64::MAX), Some((1, vec![run(3, 12_288, 8)])));
        map.truncate(8292);
        assert_eq!((map.iter().count(), map.unrecorded(u64::MAX)), (1, Some((1, vec![]))));
        map.truncate(0);
        assert_eq!(map.size_bytes(), 0);
        let found = RunMap::recorded(&[run(1, 0, 5), run(2, 0, 7)]);
        assert_eq!((found.size_bytes(), found.unrecorded(u64::MAX)), (12, None));
    }
}
