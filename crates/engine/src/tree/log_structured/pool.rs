//! One pool of memtables, of which ranges of keys are flushed (`flush_key_ranges`).
//!
//! A memtable of all keys becomes a table of all keys, which overlaps every other. Where the memtables together are
//! divided by keys, and what is flushed when they are full is the narrowest range that fills a table, the range of a table is as
//! narrow as what memory holds allows: with uniform keys, and two memtables of a table's size, about a third of all keys. Then as many
//! bytes lie in a third of the layers over a key, and what rewrites buy is three times as much. What is flushed was written
//! longest ago, as far as keys are uniform: ranges take turns by themselves.
//!
//! How wide a range is counts by the bytes of the tree that lie in it: they are what its table will be merged with.
//!
//! What is decided here is a pure function from sizes to a step; [`super::write`] does it.

use crate::key::Sequence;
use crate::memtable::{MemTable, Partition};
use crate::options::Options;
use crate::shape::Version;
use crate::space::Sizes;
use std::ops::Range;
use std::sync::Arc;

/// Memtables are divided when they have one part in so many of the pool.
const POOL_PARTS: usize = 48;

/// The smallest memtable that is divided: each takes some memory when it is empty.
const PART_BYTES_MIN: usize = 4 << 10;

/// Memtables there are at most.
const PARTS_MAX: usize = 128;

/// The pool is looked at when one part in so many of it was written.
const LOOK_PARTS: usize = 512;

/// Of a table one part in so many is left for writes while a flush runs, ...
const RESERVE_PART: usize = 4;

/// or in so many while a merge runs, ...
const RESERVE_PART_OF_MERGES: usize = 32;

/// and where ranges are narrow anyway, this much more than writes need at their rate, in percent.
const RESERVE_PERCENT: u64 = 125;

/// Ranges are narrow anyway, as where keys come in order, when they have one part in so many of the tree's bytes.
const NARROW_PART: u64 = 16;

/// So many parts tell whether keys come in order, where the tree does not.
const ORDERED_PARTS_MIN: usize = 8;

/// Size of logs to that of the pool at most, less on a small medium: beyond it what is oldest is flushed with its neighbours, however wide that is.
const LOG_POOLS: u64 = 4;

/// Buckets of histograms that widths are told by.
const BUCKETS_MAX: usize = 1 << 16;

/// A range that was flushed before is flushed again when it has so much of a table, ...
const FULL_ENOUGH_PERCENT: u64 = 70;

/// and is at most so much as wide for its bytes as the narrowest range that fills one.
const NARROW_ENOUGH_PERCENT: u128 = 130;

/// How fast a part is written is told from at least one part in so many of the pool.
const AGE_PART_MIN: usize = 8;

/// A range is as good as the fullest when it has all but one part in so many of its bytes.
const FULL_PART: u64 = 16;

/// What decides how much is left free for writes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    /// Ranges have little of the tree's bytes however little is flushed.
    pub(super) ranges_are_narrow: bool,
    /// A merge runs.
    pub(super) merges: bool,
    /// Bytes per second that users write, once that is known.
    pub(super) written_per_second: Option<u64>,
    /// The same of flushes.
    pub(super) flushed_per_second: Option<u64>,
}

/// Sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool {
    /// Of all memtables together.
    pub(super) bytes: usize,
    /// What a flush takes.
    table_bytes: usize,
    /// One memtable is divided when it has so many.
    pub(super) part_bytes: usize,
    /// Memtables there are at most.
    parts_max: usize,
    /// Of writes between two looks.
    pub(super) look_bytes: usize,
    /// Of logs.
    log_bytes_max: u64,
}

/// What is known of one memtable of the pool.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PartState {
    pub(super) bytes: u64,
    pub(super) entries: u64,
    /// Bytes of tables in its range, and its own.
    pub(super) width_bytes: u64,
    /// Bytes that were logged, of all parts, since it was without entries.
    pub(super) age_bytes: u64,
    /// Of its oldest entry.
    pub(super) first_sequence: Option<Sequence>,
}

/// What is done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is room.
    Nothing,
    /// Memtables that are too large are divided; then there is room.
    Divide,
    /// A range is flushed; one with the oldest entry, so that logs end.
    Flush { of_the_oldest: bool },
    /// There is no room before the flush that runs has ended.
    Wait,
}

impl Pool {
    /// The pool of a tree with these options, if it is to have one.
    pub(super) fn new(options: &Options, sizes: &Sizes) -> Option<Pool> {
        if !options.flush_key_ranges.unwrap_or_default() {
            return None;
        }
        let table_bytes = sizes.memtable_bytes;
        let bytes = table_bytes.saturating_mul(options.max_write_buffer_number.max(2));
        let part_bytes = (bytes / POOL_PARTS).max(PART_BYTES_MIN);
        Some(Pool {
            bytes,
            table_bytes,
            part_bytes,
            parts_max: PARTS_MAX.min(2 * bytes / part_bytes).max(1),
            look_bytes: bytes / LOOK_PARTS,
            log_bytes_max: (bytes as u64).saturating_mul(LOG_POOLS).min(sizes.log_bytes_max.max(bytes as u64)),
        })
    }

    /// What is left free for writes while a flush runs. The less, the narrower are ranges and the fuller their tables, and the more
    /// writers wait for flushes. While a merge runs that costs next to nothing: it has the medium meanwhile. Where ranges are narrow
    /// however little is flushed, writes have what they need at their rates: as fast as flushes, a whole table, and so they have as long as
    /// a rate is not known.
    pub(super) fn reserve_bytes(&self, demand: &Demand) -> usize {
        let least = self.table_bytes / if demand.merges { RESERVE_PART_OF_MERGES } else { RESERVE_PART };
        if !demand.ranges_are_narrow {
            return least;
        }
        let most = self.table_bytes.max(least);
        let (Some(written), Some(flushed)) = (demand.written_per_second, demand.flushed_per_second) else {
            return most;
        };
        let needed = u128::from(written) * self.table_bytes as u128 * u128::from(RESERVE_PERCENT);
        let needed = needed / (u128::from(flushed.max(1)) * 100);
        usize::try_from(needed).unwrap_or(usize::MAX).clamp(least, most)
    }

    /// What there is to do before more is written, while `reserve_bytes` are to be left free, and `waiting_bytes` wait for their flush. `log_bytes` are those of logs from an entry on.
    pub(super) fn step(
        &self,
        active: &Partition,
        (waiting_bytes, reserve_bytes): (u64, usize),
        log_bytes: impl FnOnce(Sequence) -> u64,
    ) -> Step {
        let active_bytes = active.memory_bytes();
        let largest_bytes = active.memtables().iter().map(|memtable| memtable.memory_bytes()).max().unwrap_or(0);
        if waiting_bytes > 0 && (active_bytes as u64).saturating_add(waiting_bytes) > self.bytes as u64 {
            return Step::Wait;
        }
        if waiting_bytes == 0 && !active.is_empty() {
            let is_old = active.first_sequence().is_some_and(|first| log_bytes(first) > self.log_bytes_max);
            if is_old || active_bytes >= self.bytes.saturating_sub(reserve_bytes) || largest_bytes >= self.table_bytes {
                return Step::Flush { of_the_oldest: is_old };
            }
        }
        if largest_bytes >= self.part_bytes { Step::Divide } else { Step::Nothing }
    }

    /// `active` with its memtables divided that are too large, as far as that goes; nothing when it goes nowhere.
    pub(super) fn divided(&self, active: &Partition) -> Option<Partition> {
        let mut divided: Option<Partition> = None;
        let mut part = 0;
        while let Some(memtable) = divided.as_ref().unwrap_or(active).memtables().get(part) {
            if memtable.memory_bytes() >= self.part_bytes {
                let now = divided.as_ref().unwrap_or(active);
                if now.memtables().len() >= self.parts_max {
                    // Two that are small, wherever they are, make place for one; the walk begins anew, as parts have other places then.
                    match now.joined(self.part_bytes / 2) {
                        Some(joined) => (divided, part) = (Some(joined), 0),
                        None => break,
                    }
                    continue;
                }
                if let Some(next) = now.divided(part) {
                    divided = Some(next);
                    // Both halves are small enough, or will be looked at next time.
                    part += 1;
                }
            }
            part += 1;
        }
        divided
    }
}

/// What is known of the memtables of `active` in a tree of this shape, when so many bytes were logged.
///
/// Cost: a binary search for each bucket of the tables' histograms, of which there are at most [`BUCKETS_MAX`] or one to a table.
pub(super) fn part_states(active: &Partition, version: &Version, logged_bytes: u64) -> Vec<PartState> {
    let state = |(memtable, begun): (&Arc<MemTable>, &u64)| {
        let bytes = memtable.entry_bytes() as u64;
        PartState {
            bytes,
            entries: memtable.entries(),
            width_bytes: bytes,
            age_bytes: logged_bytes.saturating_sub(*begun),
            first_sequence: memtable.first_sequence(),
        }
    };
    let mut states: Vec<PartState> = active.memtables().iter().zip(active.begun()).map(state).collect();
    let tables = version.files().count();
    let buckets_max = (BUCKETS_MAX / tables.max(1)).max(1);
    for (_, file) in version.files() {
        for (last, bytes) in file.buckets(buckets_max) {
            let behind = active.begins().partition_point(|begin| **begin <= *last);
            if let Some(state) = states.get_mut(behind.saturating_sub(1)) {
                state.width_bytes = state.width_bytes.saturating_add(bytes);
            }
        }
    }
    states
}

/// Whether a range has little of the tree's bytes, its own in memory not counted. A tree without bytes does not tell: there ranges will
/// be narrow if keys come in order.
pub(super) fn is_narrow(parts: &[PartState], range: &Range<usize>) -> bool {
    let in_tables = |parts: &[PartState]| {
        parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.width_bytes.saturating_sub(part.bytes)))
    };
    match in_tables(parts) {
        0 => are_in_order(parts.iter().filter_map(|part| part.first_sequence)),
        bytes => in_tables(&parts[range.clone()]) <= bytes / NARROW_PART,
    }
}

/// Whether keys come in order, up or down, as far as memory tells.
pub(super) fn keys_come_in_order(active: &Partition) -> bool {
    are_in_order(active.memtables().iter().filter_map(|memtable| memtable.first_sequence()))
}

/// Whether parts that begin with these entries, in the order of their keys, were written one after another. Keys in any order come to as
/// many parts like that once in tens of thousands of times.
fn are_in_order(first_sequences: impl Iterator<Item = Sequence> + Clone) -> bool {
    first_sequences.clone().count() >= ORDERED_PARTS_MIN
        && (first_sequences.clone().is_sorted() || first_sequences.is_sorted_by(|one, next| one >= next))
}

/// A range of parts that may be flushed.
#[derive(Clone, Debug)]
struct Candidate {
    range: Range<usize>,
    bytes: u64,
    width_bytes: u64,
    /// Of its oldest entry.
    first_sequence: Sequence,
}

impl Candidate {
    /// What the tree holds of its range to a byte of its own: the fewer the narrower it is.
    fn narrowness(&self) -> u128 {
        (u128::from(self.width_bytes) << 20) / u128::from(self.bytes.max(1))
    }

    /// The narrower before the wider, and of those that are as narrow the older: keys that come in order leave memory in order, and no
    /// range that is left behind lies around tables that came from beside it.
    fn rank(&self) -> impl Ord + use<> {
        (self.narrowness(), self.first_sequence, self.range.len(), self.range.start)
    }
}

impl Pool {
    /// The range of parts that is flushed; with `of_the_oldest` one with the oldest entry. `fits` says what bytes and entries a table has room
    /// for. At least one part has entries; a part that is larger than a table is a range of its own.
    ///
    /// Tables are merged for as little as can be when they lie over the same keys. So the ranges between `borders` are flushed again and again, as
    /// long as one of them nearly fills a table and is nearly as narrow as the narrowest that fills one; else that one is, and there are other
    /// borders from then on: those at which ranges come to be equally full, as fast as each part of the keys is written.
    pub(super) fn choose(
        &self,
        parts: &[PartState],
        of_the_oldest: bool,
        (active, borders): (&Partition, &mut Vec<Box<[u8]>>),
        fits: impl Fn(u64, u64) -> bool,
    ) -> Range<usize> {
        let begins: Vec<usize> =
            borders.iter().map(|border| active.begins().partition_point(|begin| begin < border)).collect();
        let narrowest = narrowest(parts, of_the_oldest, &fits);
        let again = ranges(parts.len(), &begins).filter_map(|range| candidate(parts, range));
        let is_good = |candidate: &Candidate| {
            let entries =
                parts[candidate.range.clone()].iter().fold(0u64, |sum, part| sum.saturating_add(part.entries));
            fits(candidate.bytes, entries)
                && candidate.bytes * 100 >= self.table_bytes as u64 * FULL_ENOUGH_PERCENT
                && candidate.narrowness() * 100 <= narrowest.narrowness() * NARROW_ENOUGH_PERCENT
                && (!of_the_oldest || candidate.range.contains(&oldest(parts)))
        };
        if let Some(again) = again.filter(is_good).min_by_key(Candidate::rank) {
            return again.range;
        }
        let bytes = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.bytes));
        *borders = self.borders(parts, bytes).into_iter().map(|part| active.begins()[part].clone()).collect();
        narrowest.range
    }

    /// Parts at which ranges begin that are written equally fast: as many as are a table each when they have taken turns, and memtables
    /// have so many bytes.
    fn borders(&self, parts: &[PartState], bytes: u64) -> Vec<usize> {
        // Of n ranges that take turns the fullest has all of a table, the next one n-th less, and so on: (n + 1) / 2 tables together.
        let ranges = (2 * bytes).div_ceil(self.table_bytes.max(1) as u64).saturating_sub(1).max(1);
        let age_min = (self.bytes / AGE_PART_MIN) as u64;
        let rate = |part: &PartState| (part.bytes << 20) / part.age_bytes.max(age_min).max(1);
        let all = parts.iter().fold(0u64, |sum, part| sum.saturating_add(rate(part)));
        let (mut sum, mut borders) = (0u64, Vec::new());
        for (number, part) in parts.iter().enumerate() {
            let next = all / ranges * (borders.len() as u64 + 1);
            if number > 0 && sum >= next && (borders.len() as u64) < ranges - 1 {
                borders.push(number);
            }
            sum = sum.saturating_add(rate(part));
        }
        borders
    }
}

/// The ranges between borders.
fn ranges(parts: usize, begins: &[usize]) -> impl Iterator<Item = Range<usize>> {
    let all = std::iter::once(0).chain(begins.iter().copied());
    all.zip(begins.iter().copied().chain([parts])).map(|(begin, end)| begin..end).filter(|range| !range.is_empty())
}

/// A range without parts at its ends that have no entries, which would only make it wider; nothing when none has.
fn candidate(parts: &[PartState], range: Range<usize>) -> Option<Candidate> {
    let has_entries = |part: &usize| parts[*part].entries > 0;
    let (first, last) = (range.clone().find(has_entries)?, range.rev().find(has_entries)?);
    let sum = |of: fn(&PartState) -> u64| parts[first..=last].iter().map(of).fold(0u64, u64::saturating_add);
    let (bytes, width_bytes) = (sum(|part| part.bytes), sum(|part| part.width_bytes));
    let first_sequence = parts[first..=last].iter().filter_map(|part| part.first_sequence).min();
    Some(Candidate { range: first..last + 1, bytes, width_bytes, first_sequence: first_sequence.unwrap_or(0) })
}

/// The part with the oldest entry.
fn oldest(parts: &[PartState]) -> usize {
    let age = |part: &usize| parts[*part].first_sequence.unwrap_or(Sequence::MAX);
    (0..parts.len()).min_by_key(age).unwrap_or(0)
}

/// The narrowest range of parts that fills a table.
fn narrowest(parts: &[PartState], of_the_oldest: bool, fits: impl Fn(u64, u64) -> bool) -> Candidate {
    let oldest = oldest(parts);
    let mut found: Vec<Candidate> = Vec::new();
    for begin in (0..parts.len()).filter(|begin| parts[*begin].entries > 0) {
        let (mut bytes, mut entries, mut end) = (0u64, 0u64, begin);
        while let Some(part) = parts.get(end) {
            (bytes, entries) = (bytes.saturating_add(part.bytes), entries.saturating_add(part.entries));
            if end > begin && !fits(bytes, entries) {
                break;
            }
            end += 1;
        }
        found.extend(candidate(parts, begin..end).filter(|found| !of_the_oldest || found.range.contains(&oldest)));
    }
    let fullest = found.iter().map(|candidate| candidate.bytes).max().unwrap_or(0);
    found.retain(|candidate| candidate.bytes >= fullest - fullest / FULL_PART);
    let narrowest = found.into_iter().min_by_key(Candidate::rank);
    narrowest.unwrap_or(Candidate { range: 0..parts.len(), bytes: 0, width_bytes: 0, first_sequence: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iterator::InternalIterator;
    use crate::key::EntryKind;

    fn parts(text: &str) -> Vec<PartState> {
        let number = |text: &str| text.parse().unwrap();
        let part = |word: &str| {
            let mut fields = word.split(':');
            let mut next = || fields.next().unwrap();
            let (bytes, width_bytes, first) = (number(next()), number(next()), number(next()));
            let first_sequence = Some(first).filter(|_| bytes > 0);
            PartState { bytes, entries: bytes, width_bytes, age_bytes: 100, first_sequence }
        };
        text.split_whitespace().map(part).collect()
    }

    /// Bytes, width and first sequence number of each part; a table has room for ten bytes.
    fn chosen(text: &str, of_the_oldest: bool) -> Range<usize> {
        narrowest(&parts(text), of_the_oldest, |bytes, _| bytes <= 10).range
    }

    #[test]
    fn the_narrowest_range_that_fills_a_table_is_flushed() {
        assert_eq!(chosen("5:10:1 5:10:1 5:4:9 5:4:9 5:10:1", false), 2..4);
        assert_eq!(chosen("5:10:1 5:10:1 5:4:9 5:4:9 5:10:1", true), 0..2);
        assert_eq!(chosen("5:0:1 5:0:1 4:0:1 6:0:1", false), 0..2, "where nothing lies the first");
        assert_eq!(chosen("1:1:1 9:90:1 10:50:1", false), 2..3, "fewest bytes of tables to a byte");
        assert_eq!(chosen("3:1:1 3:1:1 2:1:1", false), 0..3, "all of it where a table has room for all");
        assert_eq!(chosen("1:0:1 30:99:1 1:0:1", false), 1..2, "one part may be more than a table");
        assert_eq!(
            chosen("5:5:9 5:5:8 5:5:2 5:5:3 5:5:1 9:9:9", false),
            3..5,
            "the oldest of those that are as narrow"
        );
    }

    #[test]
    fn parts_without_entries_are_within_a_range_and_not_at_its_ends() {
        assert_eq!(chosen("0:9:0 5:1:1 0:1:0 5:1:1 0:9:0", false), 1..4);
        assert_eq!(chosen("0:0:0 1:0:1 0:0:0", false), 1..2);
        assert_eq!(chosen("0:0:0", false), 0..1, "nothing to choose from");
    }

    /// Uniform keys in a pool of two tables: after a few flushes three ranges take turns, the same ones all the time.
    #[test]
    fn ranges_come_again_where_keys_are_uniform() {
        let pool = pool();
        for (demand, kib_least) in [(Demand::default(), 60), (Demand { merges: true, ..Demand::default() }, 70)] {
            take_turns(&pool, pool.bytes - pool.reserve_bytes(&demand), kib_least);
        }
    }

    /// Ranges of uniform keys are flushed when memory has `full_bytes`; each has so many KiB at least.
    fn take_turns(pool: &Pool, full_bytes: usize, kib_least: u64) {
        let mut active = filled(pool, (0..).map(|key: u64| key * 7919 % 99_991), 40 << 10);
        let (mut borders, mut sequence, mut flushed) = (Vec::new(), 100_000, Vec::new());
        let mut logged_bytes = 40 << 10;
        while flushed.len() < 30 {
            let mut batch = crate::batch::WriteBatch::new();
            batch.put(format!("{:08}", sequence * 7919 % 99_991).as_bytes(), &[7; 100]).unwrap();
            active.apply(batch.iter(), sequence);
            (sequence, logged_bytes) = (sequence + 1, logged_bytes + 170);
            active = pool.divided(&active).unwrap_or(active);
            if active.memtables().iter().map(|memtable| memtable.entry_bytes()).sum::<usize>() >= full_bytes {
                let mut states = part_states(&active, &Version::empty(2, 2), logged_bytes);
                // As wide as it would be in a tree of uniform keys.
                let number =
                    |key: &[u8]| std::str::from_utf8(key).unwrap().get(..5).map_or(0, |text| text.parse().unwrap());
                let ends = active.begins().iter().skip(1).map(|begin| number(begin)).chain([100]);
                for ((state, begin), end) in states.iter_mut().zip(active.begins()).zip(ends) {
                    state.width_bytes = (end - number(begin)).max(1) << 10;
                }
                let fits = |bytes: u64, _| bytes <= 80 << 10;
                let range = pool.choose(&states, false, (&active, &mut borders), fits);
                let bytes: u64 = states[range.clone()].iter().map(|state| state.bytes).sum();
                flushed.push((number(&active.begins()[range.start]), bytes >> 10));
                active = active.take(range, (2, logged_bytes), pool.part_bytes / 4).1;
            }
        }
        println!("{flushed:?}");
        let settled = &flushed[9..];
        assert!(settled.windows(4).all(|four| four[0].0 == four[3].0 && four[0].0 != four[1].0), "{flushed:?}");
        assert!(settled.iter().all(|(_, kib)| (kib_least..=80).contains(kib)), "{flushed:?}");
    }

    /// Else what is left behind comes to a table that lies around others, which are merged with it for nothing.
    #[test]
    fn keys_in_order_leave_memory_in_order() {
        let pool = pool();
        let mut active = filled(&pool, 0.., 40 << 10);
        let (mut borders, mut sequence, mut flushed) = (Vec::new(), 100_000u64, Vec::<(u64, u64)>::new());
        let mut next = active.entries();
        while flushed.len() < 10 {
            let mut batch = crate::batch::WriteBatch::new();
            batch.put(format!("{next:08}").as_bytes(), &[7; 100]).unwrap();
            active.apply(batch.iter(), sequence);
            (sequence, next) = (sequence + 1, next + 1);
            active = pool.divided(&active).unwrap_or(active);
            if active.memtables().iter().map(|memtable| memtable.entry_bytes()).sum::<usize>() >= 140 << 10 {
                let states = part_states(&active, &Version::empty(2, 2), next * 170);
                let fits = |bytes: u64, _| bytes <= 80 << 10;
                let range = pool.choose(&states, false, (&active, &mut borders), fits);
                let entries = states[range.clone()].iter().map(|state| state.entries).sum();
                let mut first = active.memtables()[range.start].iterator();
                first.seek_to_first();
                let first_key = std::str::from_utf8(crate::key::user_key(first.key())).unwrap().parse().unwrap();
                flushed.push((first_key, entries));
                active = active.take(range, (2, next * 170), pool.part_bytes / 4).1;
            }
        }
        let expected: u64 = flushed.iter().take(9).map(|(_, entries)| entries).sum();
        assert!(flushed.windows(2).all(|two| two[0].0 + two[0].1 == two[1].0), "{flushed:?}");
        assert_eq!(flushed.last().map(|(first, _)| *first), Some(expected));
    }

    fn pool() -> Pool {
        let sizes = Sizes {
            memtable_bytes: 80 << 10,
            table_bytes: 1,
            flushed_table_bytes: 1,
            manifest_bytes_max: 1,
            log_bytes_max: u64::MAX,
        };
        let options = Options { flush_key_ranges: Some(true), max_write_buffer_number: 2, ..Options::default() };
        Pool::new(&options, &sizes).unwrap()
    }

    fn filled(pool: &Pool, user_keys: impl Iterator<Item = u64>, bytes: usize) -> Partition {
        let mut active = Partition::whole(Arc::new(MemTable::of_pool(pool.bytes, pool.part_bytes, 1)));
        for (user_key, sequence) in user_keys.zip(1..) {
            if active.memory_bytes() >= bytes {
                break;
            }
            let mut batch = crate::batch::WriteBatch::new();
            batch.put(format!("{user_key:08}").as_bytes(), &[7; 100]).unwrap();
            active.apply(batch.iter(), sequence);
            active = pool.divided(&active).unwrap_or(active);
        }
        active
    }

    #[test]
    fn a_pool_is_flushed_before_it_is_full_and_writers_wait_when_it_is() {
        let pool = pool();
        let reserve_bytes = pool.reserve_bytes(&Demand::default());
        let step = |active: &Partition, waiting_bytes, log_bytes| {
            pool.step(active, (waiting_bytes, reserve_bytes), |_| log_bytes)
        };
        let half = filled(&pool, (0..).map(|key: u64| key * 7919 % 100_000), 80 << 10);
        assert_eq!(step(&half, 0, 0), Step::Nothing);
        assert_eq!(step(&half, 0, u64::MAX), Step::Flush { of_the_oldest: true });
        assert_eq!(step(&half, 1, u64::MAX), Step::Nothing, "one flush at a time");
        assert_eq!(step(&half, 90 << 10, 0), Step::Wait);
        let full = filled(&pool, (0..).map(|key: u64| key * 7919 % 100_000), 141 << 10);
        assert_eq!(step(&full, 0, 0), Step::Flush { of_the_oldest: false });
        let one = Partition::whole(Arc::new(MemTable::of_pool(pool.bytes, pool.part_bytes, 1)));
        (1..1000).for_each(|sequence| one.memtables()[0].insert(sequence, EntryKind::Put, b"k", &[0; 100]));
        assert_eq!(step(&one, 0, 0), Step::Flush { of_the_oldest: false }, "a part as large as a table");
    }

    #[test]
    fn as_much_is_left_free_as_writers_need_while_a_flush_runs() {
        let pool = pool();
        let rates = |written_per_second, flushed_per_second| Demand {
            ranges_are_narrow: true,
            written_per_second,
            flushed_per_second,
            ..Demand::default()
        };
        let reserve_kib = |written, flushed| pool.reserve_bytes(&rates(Some(written), Some(flushed))) >> 10;
        assert_eq!((pool.reserve_bytes(&rates(None, Some(1))), reserve_kib(10, 100)), (80 << 10, 20));
        assert_eq!([reserve_kib(32, 100), reserve_kib(100, 100), reserve_kib(5, 0)], [32, 80, 80]);
        let wide = Demand { ranges_are_narrow: false, ..rates(Some(9), Some(1)) };
        assert_eq!((reserve_kib(u64::MAX, 1), pool.reserve_bytes(&wide)), (80, 20 << 10));
    }

    /// Else keys in order wait for the first flush, or others have it of nearly all keys.
    #[test]
    fn memory_tells_whether_keys_come_in_order_where_no_table_does() {
        let pool = pool();
        let orders: [(fn(u64) -> u64, bool); 4] = [
            (|key| key, true),
            (|key| 100_000 - key, true),
            (|key| key * 7919 % 100_000, false),
            (|key| key % 2 * 50_000 + key, false),
        ];
        for (order, (of, expected)) in orders.into_iter().enumerate() {
            let active = filled(&pool, (0..).map(of), 80 << 10);
            assert_eq!(keys_come_in_order(&active), expected, "order {order}");
            let states = part_states(&active, &Version::empty(2, 2), 1 << 20);
            assert_eq!(is_narrow(&states, &(0..1)), expected, "order {order}");
        }
        assert!(!keys_come_in_order(&filled(&pool, 0.., 10 << 10)), "too few to tell");
        let of_tables = parts("1:1:9 1:1:1 1:33:5");
        assert!(is_narrow(&of_tables, &(0..2)) && !is_narrow(&of_tables, &(1..3)), "whatever the order");
    }

    #[test]
    fn next_to_nothing_is_left_free_while_a_merge_has_the_medium() {
        let (pool, merges) = (pool(), Demand { merges: true, ..Demand::default() });
        assert_eq!(pool.reserve_bytes(&merges), (80 << 10) / 32);
        let narrow =
            Demand { ranges_are_narrow: true, written_per_second: Some(32), flushed_per_second: Some(100), ..merges };
        assert_eq!(pool.reserve_bytes(&narrow) >> 10, 32, "what writers need where ranges are narrow anyway");
    }

    #[test]
    fn keys_in_any_order_come_to_many_parts_of_about_a_size() {
        let pool = pool();
        let orders: [fn(u64) -> u64; 3] = [|key| key * 7919 % 100_000, |key| key, |key| 100_000 - key];
        for (order, of) in orders.into_iter().enumerate() {
            let active = filled(&pool, (0..).map(of), 120 << 10);
            let sizes: Vec<usize> = active.memtables().iter().map(|memtable| memtable.memory_bytes()).collect();
            assert!((15..=pool.parts_max).contains(&sizes.len()), "order {order}: {sizes:?}");
            assert!(sizes.iter().all(|bytes| *bytes <= 2 * pool.part_bytes), "order {order}: {sizes:?}");
        }
        let one = filled(&pool, (0..).map(|_: u64| 5), 60 << 10);
        assert!(one.memtables().len() <= 3, "one key cannot be divided");
    }

    /// Hot ranges that move leave no parts behind that keep others from being divided.
    #[test]
    fn there_are_never_too_many_parts() {
        let pool = pool();
        let user_keys = (0..40_000u64).map(|number| number / 100 * 1000 + number * 7919 % 1000);
        let active = filled(&pool, user_keys, 155 << 10);
        assert!(active.memtables().len() <= pool.parts_max);
    }
}
