//! Which keys will be put again soon: estimates, and a look ahead, which no store has.

use super::{Read, Streams, WARM};
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What a key is called hot for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Estimate {
    /// Nothing: what the way of merging does by itself.
    Nothing,
    /// Two versions among the compaction's memtables.
    Versions,
    /// Two versions no further apart than the median of those keys that have two.
    Recency,
    /// So many puts lately, in a sketch of counts.
    Counts(u8),
    /// It is put again within so many memtables.
    Foresight(u64),
}

/// Divides what compactions write.
pub(super) struct Hotness {
    estimate: Estimate,
    /// Puts after which a warm key that was not put again has cooled.
    cooled_after: u64,
    table_pairs: u64,
    /// For each put the next one of its key.
    next_puts: Vec<u64>,
    puts: Vec<u64>,
    sketch: Sketch,
    /// Puts that the sketch has seen.
    counted: u64,
}

impl Hotness {
    /// For a replay of `puts`. A key that is not put for `cooled_after` memtables has cooled.
    pub(super) fn new(estimate: Estimate, cooled_after: u64, puts: &[u64], table_pairs: usize) -> Hotness {
        let mut next_puts = vec![u64::MAX; puts.len()];
        let mut later: HashMap<u64, u64> = HashMap::new();
        for (position, key) in puts.iter().enumerate().rev() {
            next_puts[position] = later.insert(*key, position as u64).unwrap_or(u64::MAX);
        }
        let table_pairs = table_pairs as u64;
        Hotness {
            estimate,
            cooled_after: cooled_after * table_pairs,
            table_pairs,
            next_puts,
            puts: puts.to_vec(),
            sketch: Sketch::new(4 * table_pairs as usize, 8 * table_pairs),
            counted: 0,
        }
    }

    /// The newest versions of what was read after `now` puts, those of hot keys for warm tables and the others for level 1.
    pub(super) fn divide(&mut self, read: &[Read], now: u64) -> Streams {
        if matches!(self.estimate, Estimate::Counts(_)) {
            self.puts[self.counted as usize..now as usize].iter().for_each(|key| self.sketch.count(*key));
            self.counted = now;
        }
        let by_key = || read.chunk_by(|a, b| a.key == b.key);
        let distance = |versions: &[Read]| versions[0].sequence - versions[1].sequence;
        let mut distances: Vec<u64> = match self.estimate {
            Estimate::Recency => by_key().filter(|versions| versions.len() > 1).map(distance).collect(),
            _ => Vec::new(),
        };
        distances.sort_unstable();
        let median = distances.get(distances.len() / 2).copied().unwrap_or(0);
        let mut streams = Streams::default();
        for versions in by_key() {
            let newest = &versions[0];
            let was_warm = versions.iter().any(|version| version.level == WARM);
            let stays = was_warm && now - newest.sequence <= self.cooled_after;
            let is_hot = match self.estimate {
                Estimate::Nothing => false,
                Estimate::Versions => stays || versions.iter().filter(|version| version.is_flushed).count() > 1,
                Estimate::Recency => stays || (versions.len() > 1 && distance(versions) <= median),
                Estimate::Counts(least) => self.sketch.estimate(newest.key) >= least,
                Estimate::Foresight(memtables) => {
                    self.next_puts[newest.sequence as usize - 1] < now + memtables * self.table_pairs
                }
            };
            streams[if is_hot { WARM } else { 1 }].push((newest.key, newest.sequence));
        }
        streams
    }
}

/// Rows of a sketch.
const ROWS: usize = 4;

/// Counts of keys, not too small (Cormode and Muthukrishnan, "An improved data stream summary: the count-min sketch and
/// its applications", 2005), halved now and then, so that what was put long ago counts less.
struct Sketch {
    rows: [Vec<u8>; ROWS],
    since_halved: u64,
    halved_after: u64,
}

impl Sketch {
    /// Rows of at least `counters`, halved after so many counts.
    fn new(counters: usize, halved_after: u64) -> Sketch {
        let row = vec![0; counters.next_power_of_two()];
        Sketch { rows: std::array::from_fn(|_| row.clone()), since_halved: 0, halved_after }
    }

    fn position(&self, row: usize, key: u64) -> usize {
        xxh3_64_with_seed(&key.to_le_bytes(), row as u64) as usize & (self.rows[row].len() - 1)
    }

    fn count(&mut self, key: u64) {
        for row in 0..ROWS {
            let position = self.position(row, key);
            self.rows[row][position] = self.rows[row][position].saturating_add(1);
        }
        self.since_halved += 1;
        if self.since_halved == self.halved_after {
            self.since_halved = 0;
            self.rows.iter_mut().flatten().for_each(|count| *count /= 2);
        }
    }

    fn estimate(&self, key: u64) -> u8 {
        (0..ROWS).map(|row| self.rows[row][self.position(row, key)]).min().unwrap_or(0)
    }
}

#[test]
fn the_sketch_counts_no_less_than_was_put_and_forgets() {
    let mut sketch = Sketch::new(64, 100);
    (0..99).for_each(|put| sketch.count(put % 3));
    assert!((0..3).all(|key| sketch.estimate(key) >= 33));
    assert!((3..100).filter(|key| sketch.estimate(*key) > 0).count() < 5);
    sketch.count(3);
    assert!((16..33).contains(&sketch.estimate(0)));
}
