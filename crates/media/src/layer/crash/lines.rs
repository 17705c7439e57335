//! Lines of memory with stores that are not durable: which there are, every image of them, and
//! which flushes were missing or needless.

use super::content::{Content, ContentChange, Pending};
use super::device::{CrashContent, DeviceCrashState};
use crate::device::Device;
use crate::sectors::SectorSlice;
use std::collections::BTreeMap;
use std::ops::Range;
use varve_env::Random;

/// Open lines up to which every image is made.
const OPEN_LINES_MAX: usize = 8;
/// Images up to which every one is made.
const IMAGES_MAX: u64 = 4096;
const WORD_BYTES: u64 = 8;

/// Flushes and fences of memory that its users left out, or could have left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushAudit {
    /// Lines that were flushed although nothing was stored to them since they were flushed last, or
    /// made durable.
    pub needless_flushes: u64,
    /// Fences of queues into which nothing was flushed.
    pub needless_fences: u64,
    /// Lines, now, with a store that no flush follows.
    pub missing_flushes: u64,
    /// Lines, now, whose last store is flushed and not fenced.
    pub missing_fences: u64,
}

/// What happened last to a line that is not durable.
#[derive(Clone, Copy)]
struct OpenLine {
    /// Sequence number of the last store.
    stored: u64,
    /// Stores before this sequence number were flushed.
    flushed: u64,
}

/// Follows stores, flushes and fences, line by line.
pub(super) struct LineLedger {
    line_bytes: u64,
    /// By number of the line.
    open: BTreeMap<u64, OpenLine>,
    needless_flushes: u64,
    needless_fences: u64,
}

impl LineLedger {
    pub(super) fn new(line_bytes: u64) -> Self {
        LineLedger { line_bytes: line_bytes.max(1), open: BTreeMap::new(), needless_flushes: 0, needless_fences: 0 }
    }

    fn lines_of(&self, range: &Range<u64>) -> Range<u64> {
        if range.is_empty() {
            return 0..0;
        }
        range.start / self.line_bytes..range.end.div_ceil(self.line_bytes)
    }

    pub(super) fn stored(&mut self, offset_bytes: u64, sequence: u64) {
        let line = self.open.entry(offset_bytes / self.line_bytes).or_insert(OpenLine { stored: 0, flushed: 0 });
        line.stored = sequence;
    }

    /// A flush of a range began when the next sequence number was `mark`.
    pub(super) fn flushed(&mut self, range: &Range<u64>, mark: u64) {
        let lines = self.lines_of(range);
        let mut needed = 0;
        for (_, line) in self.open.range_mut(lines.clone()) {
            if line.stored >= line.flushed {
                needed += 1;
            }
            line.flushed = mark;
        }
        self.needless_flushes += lines.end - lines.start - needed;
    }

    /// A fence waited for these flushes.
    pub(super) fn fenced(&mut self, flushed: &[(Range<u64>, u64)]) {
        self.needless_fences += u64::from(flushed.is_empty());
        for (range, mark) in flushed {
            self.remove(range, |line| line.stored < *mark);
        }
    }

    /// Blocks were written or discarded: whatever was stored there is of no matter.
    pub(super) fn overwritten(&mut self, range: &Range<u64>) {
        self.remove(range, |_| true);
    }

    fn remove(&mut self, range: &Range<u64>, is_durable: impl Fn(&OpenLine) -> bool) {
        let lines = self.lines_of(range);
        let durable: Vec<u64> =
            self.open.range(lines).filter(|(_, line)| is_durable(line)).map(|(number, _)| *number).collect();
        durable.iter().for_each(|number| {
            self.open.remove(number);
        });
    }

    pub(super) fn audit(&self) -> FlushAudit {
        let unflushed = self.open.values().filter(|line| line.stored >= line.flushed).count() as u64;
        FlushAudit {
            needless_flushes: self.needless_flushes,
            needless_fences: self.needless_fences,
            missing_flushes: unflushed,
            missing_fences: self.open.len() as u64 - unflushed,
        }
    }
}

/// Images of memory in which each open line has a beginning of its stores.
pub struct LineImages {
    state: DeviceCrashState,
    line_bytes: u64,
    /// Number of each open line, and how many steps its stores have.
    lines: Vec<(u64, u64)>,
    /// A step is a word; otherwise a store.
    by_words: bool,
    /// Where images are drawn at random.
    random: Option<Random>,
    next: u64,
    count: u64,
}

impl LineImages {
    /// True if there is every image: each combination of beginnings of the open lines.
    pub fn is_complete(&self) -> bool {
        self.random.is_none()
    }

    /// Numbers of the open lines: those with stores that are not durable.
    pub fn open_lines(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.lines.iter().map(|(number, _)| *number)
    }
}

impl Iterator for LineImages {
    type Item = Device;

    fn next(&mut self) -> Option<Device> {
        if self.next == self.count {
            return None;
        }
        let mut rest = self.next;
        self.next += 1;
        let steps = self.lines.iter().map(|&(number, steps)| {
            let kept = match &mut self.random {
                Some(random) => random.below(steps + 1),
                None => {
                    let kept = rest % (steps + 1);
                    rest /= steps + 1;
                    kept
                }
            };
            (number, kept)
        });
        let steps: BTreeMap<u64, u64> = steps.collect();
        let content = self.state.crash().content_of_lines(&steps, self.line_bytes, self.by_words);
        Some(self.state.image_of(content))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.count - self.next) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for LineImages {}

/// Words that a store touches.
fn words_of(offset_bytes: u64, length: usize) -> u64 {
    (offset_bytes + length as u64).div_ceil(WORD_BYTES) - offset_bytes / WORD_BYTES
}

impl DeviceCrashState {
    /// Images of memory, each open line with any beginning of its stores that are not durable,
    /// whatever the other lines have.
    ///
    /// Every combination where there are at most 8 open lines and 4096 of them, with stores cut
    /// between any two words where that many suffice for it, else between any two stores. Otherwise
    /// `samples` are drawn with `seed`, cut between words. Blocks that were written and are not
    /// durable are lost. A device without memory has one image.
    ///
    /// Cost of an image: proportional to the stores that are not durable.
    pub fn line_images(&self, seed: u64, samples: u64) -> LineImages {
        let line_bytes = self.line_bytes().unwrap_or(1);
        let mut open: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for pending in self.crash().pending.values() {
            if let ContentChange::Store { offset_bytes, data } = &pending.change {
                let (stores, words) = open.entry(offset_bytes / line_bytes).or_default();
                *stores += 1;
                *words += words_of(*offset_bytes, data.len());
            }
        }
        let combinations = |steps: fn(&(u64, u64)) -> u64| {
            let all = open.values().try_fold(1_u64, |all, line| all.checked_mul(steps(line) + 1));
            all.filter(|&all| open.len() <= OPEN_LINES_MAX && all <= IMAGES_MAX)
        };
        let (count, by_words, random) = match (combinations(|line| line.1), combinations(|line| line.0)) {
            (Some(count), _) => (count, true, None),
            (None, Some(count)) => (count, false, None),
            (None, None) => (samples, true, Some(Random::named(seed, "lines"))),
        };
        let lines = open.iter().map(|(&number, &(stores, words))| (number, if by_words { words } else { stores }));
        LineImages { state: self.clone(), line_bytes, lines: lines.collect(), by_words, random, next: 0, count }
    }
}

impl CrashContent {
    /// Content in which each line has the first `steps` of its stores, counted in words or in whole
    /// stores.
    fn content_of_lines(&self, steps: &BTreeMap<u64, u64>, line_bytes: u64, by_words: bool) -> Content {
        let mut content = self.durable.clone();
        let mut left = steps.clone();
        // Parts of blocks that are lost unless something later reaches their line.
        let mut lost: BTreeMap<u64, Vec<&Pending>> = BTreeMap::new();
        for pending in self.pending.values() {
            match &pending.change {
                ContentChange::Store { offset_bytes, data } => {
                    let line = offset_bytes / line_bytes;
                    let left = left.entry(line).or_default();
                    if *left == 0 {
                        continue;
                    }
                    for earlier in lost.remove(&line).unwrap_or_default() {
                        apply_within(&mut content, &earlier.change, line * line_bytes..(line + 1) * line_bytes);
                    }
                    let data = data.as_slice().data;
                    let kept = match by_words {
                        false => {
                            *left -= 1;
                            data.len()
                        }
                        true => {
                            let words = words_of(*offset_bytes, data.len()).min(*left);
                            *left -= words;
                            let end = (offset_bytes / WORD_BYTES + words) * WORD_BYTES;
                            ((end - offset_bytes) as usize).min(data.len())
                        }
                    };
                    content.write(*offset_bytes, SectorSlice::from(&data[..kept]));
                }
                change if pending.certain => content.apply(change),
                ContentChange::Write { .. } | ContentChange::Clear { .. } => {
                    let range = pending.change.block_range();
                    for line in range.start / line_bytes..range.end.div_ceil(line_bytes) {
                        if steps.contains_key(&line) {
                            lost.entry(line).or_default().push(pending);
                        }
                    }
                }
                _ => {}
            }
        }
        content
    }
}

/// Applies the part of a write or discard that lies in one line.
fn apply_within(content: &mut Content, change: &ContentChange, line: Range<u64>) {
    let range = change.block_range();
    let part = range.start.max(line.start)..range.end.min(line.end);
    if part.is_empty() {
        return;
    }
    match change {
        ContentChange::Write { data, .. } => {
            let within = (part.start - range.start) as usize..(part.end - range.start) as usize;
            content.write(part.start, data.as_slice().part(within));
        }
        _ => content.clear(part.start, part.end - part.start),
    }
}

#[cfg(test)]
mod tests;
