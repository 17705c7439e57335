//! The read cache of a disk: a few runs of consecutive bytes.

use std::ops::Range;

/// Segments of the track buffer, least recently used first.
#[derive(Debug)]
pub(super) struct Segments {
    runs: Vec<Range<u64>>,
    count_max: usize,
    bytes_max: u64,
}

impl Segments {
    pub(super) fn new(count_max: usize, bytes_max: u64) -> Self {
        Segments { runs: Vec::new(), count_max, bytes_max }
    }

    /// The segment that has the first byte of `range`, and says how far it goes.
    pub(super) fn holding_start(&self, range: &Range<u64>) -> Option<Range<u64>> {
        self.runs.iter().rev().find(|run| run.contains(&range.start)).cloned()
    }

    /// Whether one segment has all of `range`.
    pub(super) fn covers(&self, range: &Range<u64>) -> bool {
        self.runs.iter().any(|run| run.start <= range.start && range.end <= run.end)
    }

    /// Takes in bytes that were read or written. A segment that `range` continues grows, and loses
    /// its beginning when it is full; otherwise the segment used least recently is given up.
    pub(super) fn insert(&mut self, range: Range<u64>) {
        if self.count_max == 0 || range.is_empty() {
            return;
        }
        let continued = self.runs.iter().rposition(|run| run.start <= range.start && range.start <= run.end);
        let run = match continued {
            Some(number) => {
                let run = self.runs.remove(number);
                run.start..run.end.max(range.end)
            }
            None => {
                if self.runs.len() == self.count_max {
                    self.runs.remove(0);
                }
                range
            }
        };
        let start = run.start.max(run.end.saturating_sub(self.bytes_max));
        self.runs.push(start..run.end);
    }

    /// Marks the segment that has `byte` as used.
    pub(super) fn touch(&mut self, byte: u64) {
        if let Some(number) = self.runs.iter().rposition(|run| run.contains(&byte)) {
            let run = self.runs.remove(number);
            self.runs.push(run);
        }
    }

    /// Forgets `range`: it has been overwritten. Of a segment cut in two the longer part stays.
    pub(super) fn remove(&mut self, range: &Range<u64>) {
        for run in &mut self.runs {
            if range.start < run.end && run.start < range.end {
                let before = run.start..range.start.max(run.start);
                let behind = range.end.min(run.end)..run.end;
                *run = if before.end - before.start >= behind.end - behind.start { before } else { behind };
            }
        }
        self.runs.retain(|run| !run.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_grow_slide_and_are_replaced() {
        let mut segments = Segments::new(2, 100);
        segments.insert(0..60);
        segments.insert(60..120);
        assert_eq!(segments.holding_start(&(50..51)), Some(20..120));
        assert!(segments.covers(&(20..120)) && !segments.covers(&(19..120)));
        segments.insert(500..510);
        segments.touch(30);
        segments.insert(900..910);
        assert!(segments.covers(&(30..40)) && !segments.covers(&(500..510)));
        segments.remove(&(30..35));
        assert!(!segments.covers(&(20..30)) && segments.covers(&(35..120)));
    }
}
