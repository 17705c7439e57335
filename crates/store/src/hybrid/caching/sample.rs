//! What another cache zone would be worth, by a sample of the blocks that are read.
//!
//! Of one block in so many it is kept how often it was read. A block with a count lies, among all that were read, behind those with
//! a higher one: in the zone of that rank it is found when the cache has so many zones and those that are read most are in them.
//! (Counts of a spatial sample instead of all, as in Waldspurger and others, "Efficient MRC Construction with SHARDS".)

use std::collections::BTreeMap;

/// Blocks of the sample when every zone is full of cached blocks, about.
const BLOCKS_WANTED: u64 = 64 * 1024;

/// Blocks or records remembered at most. When there are more, all counts are halved, and those of none are forgotten.
const BLOCKS_MAX: usize = 8 * BLOCKS_WANTED as usize;

/// Reads of the sample after which that is done as well: what was read long ago counts less.
const WINDOW: u64 = 16 * BLOCKS_WANTED;

/// The highest count.
const COUNT_MAX: u8 = u8::MAX;

/// Of how many blocks one is sampled, in a tier of so many zones of so many blocks.
pub(in crate::hybrid) fn sampled_one_in(zones: u64, blocks_of_zone: u64) -> u64 {
    (zones * blocks_of_zone / BLOCKS_WANTED).max(1)
}

/// How often sampled blocks are read.
#[derive(Clone, Debug)]
pub(in crate::hybrid) struct ReadSample {
    one_in: u64,
    blocks_of_zone: u64,
    counts: BTreeMap<u64, u8>,
    /// Blocks of each count.
    by_count: Vec<u64>,
    /// Reads of blocks of the zone of each rank.
    hits: Vec<u64>,
    /// Blocks that were read for the first time since hits were last asked for.
    first_reads: u64,
    reads: u64,
}

impl ReadSample {
    /// For so many zones of so many blocks.
    pub(in crate::hybrid) fn new(zones: u64, blocks_of_zone: u64) -> ReadSample {
        let blocks_of_zone = blocks_of_zone.max(1);
        ReadSample {
            one_in: sampled_one_in(zones, blocks_of_zone),
            blocks_of_zone,
            counts: BTreeMap::new(),
            by_count: vec![0; usize::from(COUNT_MAX) + 1],
            hits: vec![0; zones as usize],
            first_reads: 0,
            reads: 0,
        }
    }

    fn chooses(&self, hash: u64) -> bool {
        (hash >> 8).is_multiple_of(self.one_in)
    }

    /// A block was written with entries of others, each with how many. One of the sample that most of it comes from is of no
    /// more use there, and goes on in it: so as many are in the sample as before, however they are written again.
    pub(in crate::hybrid) fn replace(&mut self, hash: u64, entries: u64, origins: impl Iterator<Item = (u64, u32)>) {
        let (mut is_new, mut count) = (true, None);
        for (origin, of_it) in origins {
            is_new = false;
            if u64::from(of_it) * 2 >= entries
                && let Some(reads) = self.counts.remove(&origin)
            {
                self.by_count[usize::from(reads)] -= u64::from(reads > 0);
                count = count.max(Some(reads));
            }
        }
        let is_chosen = is_new && self.chooses(hash);
        if let Some(count) = count.or(is_chosen.then_some(0))
            && self.counts.insert(hash, count).is_none()
        {
            self.by_count[usize::from(count)] += u64::from(count > 0);
        }
    }

    /// A zone has space for so many of what is read.
    pub(in crate::hybrid) fn set_blocks_of_zone(&mut self, blocks_of_zone: u64) {
        self.blocks_of_zone = blocks_of_zone.max(1);
    }

    /// A block or record is read, from wherever. Those of tables that compactions wrote are in the sample if
    /// [that](Self::replace) says so.
    pub(in crate::hybrid) fn read(&mut self, hash: u64, is_known: bool) {
        let known = self.counts.get(&hash).copied();
        if known.is_none() && (is_known || !self.chooses(hash)) {
            return;
        }
        let count = known.unwrap_or(0);
        self.first_reads += u64::from(count == 0);
        if count > 0 {
            let before: u64 = self.by_count[usize::from(count) + 1..].iter().sum();
            // Which of those with one count have a zone is all the same: each has its place among them.
            let among = ((hash >> 40) * self.by_count[usize::from(count)]) >> 24;
            let rank = (before + among) * self.one_in / self.blocks_of_zone;
            if let Some(hits) = self.hits.get_mut(rank as usize) {
                *hits += self.one_in;
            }
            self.by_count[usize::from(count)] -= 1;
        }
        let count = count.saturating_add(1);
        self.by_count[usize::from(count)] += 1;
        self.counts.insert(hash, count);
        self.reads += 1;
        if self.counts.len() > BLOCKS_MAX || self.reads >= WINDOW {
            self.halve();
            self.reads /= 2;
        }
    }

    fn halve(&mut self) {
        self.counts.values_mut().for_each(|count| *count /= 2);
        self.counts.retain(|_, count| *count > 0);
        self.by_count.fill(0);
        for count in self.counts.values() {
            self.by_count[usize::from(*count)] += 1;
        }
    }

    /// Reads that the zone of each rank would have answered since this was last asked.
    pub(in crate::hybrid) fn take_hits(&mut self) -> Vec<u64> {
        let zones = self.hits.len();
        let mut hits = std::mem::replace(&mut self.hits, vec![0; zones]);
        // What a zone would answer that more blocks than were read so far would fill is not known yet: half of what others do.
        let seen = (self.counts.len() as u64 * self.one_in / self.blocks_of_zone) as usize;
        let answered: u64 = hits.iter().take(seen + 1).sum();
        if std::mem::take(&mut self.first_reads) > 0
            && let Some(next) = hits.get_mut(seen + 1)
        {
            *next = (*next).max(answered / (seen as u64 + 1) / 2);
        }
        hits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hybrid::caching::hash_of;
    use varve_env::Random;

    /// Blocks of three kinds: each of the first 1,000 is read nine times as often as each of the next 1,000, and those as often
    /// as all others together.
    #[test]
    fn zones_are_worth_what_is_read_of_the_blocks_of_their_rank() {
        let mut random = Random::seeded(5);
        let mut sample = ReadSample::new(4, 1000);
        let mut draw = || match random.below(20) {
            0..=17 => random.below(1000),
            18 | 19 => 1000 + random.below(1000),
            _ => 0,
        };
        for step in 0..200_000u64 {
            if step == 100_000 {
                sample.take_hits();
            }
            sample.read(hash_of((1, draw() * 4096)), false);
        }
        let hits = sample.take_hits();
        assert!((80_000..=100_000).contains(&hits[0]), "{hits:?}");
        assert!((7_000..=13_000).contains(&hits[1]), "{hits:?}");
        assert!(hits[2] + hits[3] < 3_000, "{hits:?}");
        assert_eq!(sample.take_hits(), [0; 4]);
    }

    /// Every table is written again and again, and the zones are worth the same.
    #[test]
    fn what_is_written_again_is_worth_what_it_was() {
        let mut random = Random::seeded(6);
        let mut sample = ReadSample::new(20, 4000);
        let (mut generation, mut hits) = (0, vec![0; 20]);
        for step in 0..400_000u64 {
            if step % 10_000 == 9_999 {
                for block in 0..20_000 {
                    // A quarter of each comes from the one before.
                    let shift = generation % 4;
                    let own = if shift == 0 { 4 } else { 3 };
                    let origins =
                        [(block, own), ((block + 1) % 20_000, 4 - own)].into_iter().filter(|(_, entries)| *entries > 0);
                    sample.replace(
                        hash_of((generation + 2, block)),
                        4,
                        origins.map(|(block, entries)| (hash_of((generation + 1, block)), entries)),
                    );
                }
                generation += 1;
            }
            let block = if random.below(4) > 0 { random.below(4_000) } else { random.below(20_000) };
            sample.read(hash_of((generation + 1, block)), generation > 0);
            if step == 200_000 {
                sample.take_hits();
            }
        }
        hits.iter_mut().zip(sample.take_hits()).for_each(|(sum, now)| *sum += now);
        // Four fifths of 200,000 reads are of the first 4,000 blocks.
        assert!((120_000..=180_000).contains(&hits[0]), "{hits:?}");
        assert!(sample.counts.len() <= 25_000 / sample.one_in as usize, "{} of the sample", sample.counts.len());
    }

    /// The first reads say that blocks are read again, and not yet how many.
    #[test]
    fn one_zone_more_than_was_seen_is_worth_half_of_the_others() {
        let mut sample = ReadSample::new(4, 1000);
        (0..2).for_each(|_| (0..500).for_each(|block| sample.read(hash_of((1, block * 4096)), false)));
        assert_eq!(sample.take_hits(), [500, 250, 0, 0]);
        (0..500).for_each(|block| sample.read(hash_of((1, block * 4096)), false));
        assert_eq!(sample.take_hits(), [500, 0, 0, 0], "no more came");
    }

    #[test]
    fn blocks_that_are_read_once_are_worth_nothing_and_cost_no_more() {
        let mut sample = ReadSample::new(2, 10);
        (0..100_000u64).for_each(|block| sample.read(hash_of((1, block * 4096)), false));
        assert_eq!(sample.take_hits(), [0, 0]);
        assert!(sample.counts.len() <= BLOCKS_MAX + 1);
    }
}
