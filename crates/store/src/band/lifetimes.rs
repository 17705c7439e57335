//! How long tables live, by level, counted in bytes written to the store.
//!
//! A tree compacts because something was written: a table is gone when about as many bytes were written since it was made as with
//! others of its level. Time says nothing of that, for a tree that rests keeps everything. Pure bookkeeping: of each level the mean
//! and the mean deviation of the lifetimes that were seen, of which the latest count most.

/// Levels that are told apart. Tables of higher levels are of the last one, those of unknown level have a row of their own.
const LEVELS: usize = 16;
/// The latest lifetime counts as one in so many.
const SMOOTHING: u64 = 32;
/// A level has so many times the bytes of the one below it, in most trees, and its tables live as much longer.
const GROWTH: u64 = 10;
/// What is still there when it should be gone lives on for one in so many of a lifetime, at least.
const REST_PART: u64 = 16;

/// What is known of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lifetime {
    mean_bytes: u64,
    deviation_bytes: u64,
    /// Tables that died, no more than [`SMOOTHING`].
    deaths: u64,
}

/// Lifetimes of tables by level.
#[derive(Debug)]
pub(crate) struct Lifetimes {
    rows: [Lifetime; LEVELS + 1],
    /// How long tables of level 0 live while nobody knows anything.
    usual_bytes: u64,
    written_bytes: u64,
}

fn row(level: Option<u8>) -> usize {
    level.map_or(LEVELS, |level| usize::from(level).min(LEVELS - 1))
}

fn grown(bytes: u64, levels: usize) -> u64 {
    bytes.saturating_mul(GROWTH.saturating_pow(levels as u32))
}

impl Lifetimes {
    /// Nothing is known: tables of level 0 live for `usual_bytes`, and those of each level ten times as long as those of the one
    /// below it. The clock begins at `written_bytes`, so that what was made before has a time.
    pub(crate) fn new(usual_bytes: u64, written_bytes: u64) -> Lifetimes {
        Lifetimes { rows: Default::default(), usual_bytes: usual_bytes.max(1), written_bytes }
    }

    /// Bytes written to the store: the clock by which tables live.
    pub(crate) fn now(&self) -> u64 {
        self.written_bytes
    }

    /// A table was written.
    pub(crate) fn written(&mut self, bytes: u64) {
        self.written_bytes = self.written_bytes.saturating_add(bytes);
    }

    /// A table of a level is gone, which was made at `born_bytes` of the clock.
    pub(crate) fn died(&mut self, level: Option<u8>, born_bytes: u64) {
        let age_bytes = self.written_bytes.saturating_sub(born_bytes);
        let lifetime = &mut self.rows[row(level)];
        lifetime.deaths = (lifetime.deaths + 1).min(SMOOTHING);
        // The first says nothing of how much they differ.
        let difference = if lifetime.deaths == 1 { 0 } else { lifetime.mean_bytes.abs_diff(age_bytes) };
        let deaths = u128::from(lifetime.deaths);
        let weighted = |before: u64, now: u64| ((u128::from(before) * (deaths - 1) + u128::from(now)) / deaths) as u64;
        lifetime.mean_bytes = weighted(lifetime.mean_bytes, age_bytes);
        lifetime.deviation_bytes = weighted(lifetime.deviation_bytes, difference);
    }

    /// Mean of a level, and how much tables differ from it: from the nearest level of which something is known.
    fn of(&self, level: Option<u8>) -> (u64, u64) {
        let row = row(level);
        let Lifetime { mean_bytes, deviation_bytes, deaths } = self.rows[row];
        if deaths > 0 {
            return (mean_bytes, deviation_bytes);
        }
        let Some(level) = level.map(|_| row) else { return (self.usual_bytes, 0) };
        let is_known = |other: &usize| self.rows[*other].deaths > 0;
        if let Some(lower) = (0..level).rev().find(is_known) {
            let Lifetime { mean_bytes, deviation_bytes, .. } = self.rows[lower];
            return (grown(mean_bytes, level - lower), grown(deviation_bytes, level - lower));
        }
        if let Some(higher) = (level..LEVELS).find(is_known) {
            let shrunk = grown(1, higher - level);
            return (self.rows[higher].mean_bytes / shrunk, self.rows[higher].deviation_bytes / shrunk);
        }
        (grown(self.usual_bytes, level), 0)
    }

    /// Bytes that are expected to be written until a table is gone, which was made at `born_bytes` of the clock: at least one.
    pub(crate) fn remaining_bytes(&self, level: Option<u8>, born_bytes: u64) -> u64 {
        let (mean, deviation) = self.of(level);
        let rest = deviation.max(mean / REST_PART).max(1);
        let age_bytes = self.written_bytes.saturating_sub(born_bytes);
        mean.saturating_sub(age_bytes).max(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_live_ten_times_as_long_as_those_below_while_nothing_is_known() {
        let lifetimes = Lifetimes::new(100, 5000);
        assert_eq!(
            [Some(0), Some(1), Some(3), None].map(|level| lifetimes.remaining_bytes(level, 5000)),
            [100, 1000, 100_000, 100]
        );
        // Of a level that cannot be the numbers do not overflow.
        assert_eq!(lifetimes.remaining_bytes(Some(254), 5000), 100 * 10_u64.pow(15));
    }

    #[test]
    fn what_died_says_how_long_others_live() {
        let mut lifetimes = Lifetimes::new(100, 0);
        for _ in 0..100 {
            let born = lifetimes.now();
            lifetimes.written(400);
            lifetimes.died(Some(1), born);
        }
        let now = lifetimes.now();
        assert_eq!(lifetimes.remaining_bytes(Some(1), now), 400);
        assert_eq!(lifetimes.remaining_bytes(Some(1), now - 300), 100);
        // Levels of which nothing is known, by those beside them.
        assert_eq!([Some(0), Some(2)].map(|level| lifetimes.remaining_bytes(level, now)), [40, 4000]);
        // One that should be gone lives on for a while.
        assert_eq!(lifetimes.remaining_bytes(Some(1), 0), 400 / 16);
        // A tree that changes is followed.
        for _ in 0..300 {
            let born = lifetimes.now();
            lifetimes.written(2000);
            lifetimes.died(Some(1), born);
        }
        let now = lifetimes.now();
        assert!(lifetimes.remaining_bytes(Some(1), now) > 1900);
    }

    #[test]
    fn tables_that_differ_much_are_expected_to_stay_longer_than_the_mean() {
        let mut lifetimes = Lifetimes::new(100, 0);
        for round in 0..200 {
            let born = lifetimes.now();
            lifetimes.written(if round % 2 == 0 { 200 } else { 1000 });
            lifetimes.died(Some(2), born);
        }
        let now = lifetimes.now();
        let rest = lifetimes.remaining_bytes(Some(2), now - 2000);
        assert!((300..500).contains(&rest), "{rest}");
    }
}
