//! How many zones of the fast tier cached blocks have, and how many tables: by what another zone would be worth to each.
//!
//! A zone is worth what it saves the slow tier. One of blocks: a positioning for each read that finds its block there. One of tables:
//! the reads of a table that would not be cached either, and writing and reading it once, which a compaction does to each. All
//! is counted by intervals in which as much was asked of the store as would be of the slow tier in a number of positionings: so
//! what rests keeps its zones, and it is the same at every scale.

use super::levels::{LEVELS, Tier};
use super::placement::PlacementView;

/// Reads of the sample of blocks in the time of an interval, were everything a read: the zone of a rank that answers one read in a
/// hundred is seen five times.
const INTERVAL_SAMPLES: u64 = 512;

/// One part in so many of what is known follows from the last interval.
const SMOOTHING: u64 = 8;

/// Zones that blocks have at least.
const CACHE_ZONES_MIN: u64 = 1;

/// What the slow tier needs for what the fast one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlowCosts {
    /// A read of a block.
    pub(super) read_nanos: u64,
    /// A mebibyte of a table, written and read once.
    pub(super) mebibyte_nanos: u64,
}

impl SlowCosts {
    /// Of devices that do so many reads a second together, and write so many bytes. What promises nothing is taken for a disk.
    pub(super) fn of(reads_per_second: u64, bytes_per_second: u64) -> SlowCosts {
        let usual = |promised: u64, usual: u64| if promised == 0 { usual } else { promised };
        SlowCosts {
            read_nanos: 1_000_000_000 / usual(reads_per_second, 100),
            mebibyte_nanos: 2 * (1_000_000_000 << 20) / usual(bytes_per_second, 200 << 20),
        }
    }
}

impl SlowCosts {
    /// Reads that take as long as so many bytes of a table that are written and read.
    pub(super) fn reads_of(&self, bytes: u64) -> u64 {
        let nanos = (u128::from(bytes) * u128::from(self.mebibyte_nanos)) >> 20;
        (nanos / u128::from(self.read_nanos.max(1))).min(u128::from(u64::MAX)) as u64
    }
}

/// How zones of the fast tier are divided between tables and cached blocks, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DivisionName {
    /// A number of zones is for logs and cached blocks.
    Fixed,
    /// By what another zone is worth to each. Where it is not known how often blocks are read, as `Fixed`.
    ByWorth,
}

impl DivisionName {
    /// Every division.
    pub const ALL: &'static [DivisionName] = &[DivisionName::Fixed, DivisionName::ByWorth];

    /// Its name in a spec.
    pub fn name(self) -> &'static str {
        match self {
            DivisionName::Fixed => "fixed",
            DivisionName::ByWorth => "by-worth",
        }
    }
}

/// What was asked of the store in an interval.
#[derive(Clone, Debug, Default)]
struct Activity {
    reads_fast: [u64; LEVELS],
    written_bytes: [u64; LEVELS],
    cached: u64,
    missed: u64,
}

/// What zones are worth, in nanoseconds of the slow tier in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Worth {
    /// Of the cache, by the rank of what is in them.
    cache: Vec<u64>,
    /// Of tables, by level.
    tables: [u64; LEVELS],
}

/// How zones are divided.
#[derive(Debug)]
pub(super) struct Division {
    costs: SlowCosts,
    /// Positionings of the slow tier to an interval.
    interval_positionings: u64,
    activity: Activity,
    activity_nanos: u64,
    worth: Option<Worth>,
    cache_zones: u64,
}

impl Division {
    /// Where the hits of cache zones are known by one block in so many.
    pub(super) fn new(costs: SlowCosts, sampled_one_in: u64) -> Division {
        Division {
            costs,
            interval_positionings: sampled_one_in.saturating_mul(INTERVAL_SAMPLES),
            activity: Activity::default(),
            activity_nanos: 0,
            worth: None,
            cache_zones: CACHE_ZONES_MIN,
        }
    }

    /// Zones that blocks may have.
    pub(super) fn cache_zones(&self) -> u64 {
        self.cache_zones
    }

    /// A user reads a block of a table.
    pub(super) fn read(&mut self, level: usize, tier: Tier, was_cached: bool) {
        self.activity_nanos += self.costs.read_nanos;
        match tier {
            Tier::Fast => self.activity.reads_fast[level] += 1,
            Tier::Slow if was_cached => self.activity.cached += 1,
            Tier::Slow => self.activity.missed += 1,
        }
    }

    /// A table was written.
    pub(super) fn written(&mut self, level: usize, bytes: u64) {
        self.activity_nanos += ((bytes >> 10) * self.costs.mebibyte_nanos) >> 10;
        self.activity.written_bytes[level] += bytes;
    }

    /// Whether enough happened to look again.
    pub(super) fn is_due(&self) -> bool {
        self.activity_nanos >= self.costs.read_nanos.max(1).saturating_mul(self.interval_positionings)
    }

    /// An interval ends: `hits` is how many reads the cache's zone of each rank would have answered.
    pub(super) fn interval_ends(&mut self, view: &PlacementView, hits: &[u64]) {
        let activity = std::mem::take(&mut self.activity);
        self.activity_nanos = 0;
        let slow = (activity.cached + activity.missed).max(1);
        let cache = hits.iter().map(|hits| hits * self.costs.read_nanos).collect();
        let mut worth = Worth { cache, ..Worth::default() };
        for (level, zones) in view.levels.iter().enumerate() {
            let read_nanos = activity.reads_fast[level] * self.costs.read_nanos / zones.fast.max(1);
            let written_nanos = ((activity.written_bytes[level] >> 10) * self.costs.mebibyte_nanos) >> 10;
            // Of those reads the cache would answer as many as it does of others.
            worth.tables[level] = read_nanos * activity.missed / slow + written_nanos / zones.wanted().max(1);
        }
        let worth = match self.worth.take() {
            None => worth,
            Some(before) => before.smoothed(&worth),
        };
        self.cache_zones = worth.cache_zones(view, self.cache_zones);
        self.worth = Some(worth);
    }
}

fn smoothed(before: u64, now: u64) -> u64 {
    (before * (SMOOTHING - 1) + now) / SMOOTHING
}

impl Worth {
    fn smoothed(&self, now: &Worth) -> Worth {
        let of = |before: &[u64], now: &[u64]| -> Vec<u64> {
            // A rank of which nothing was known is worth what is known now.
            let known = |at: usize, now: u64| before.get(at).copied().filter(|before| *before > 0).unwrap_or(now);
            now.iter().enumerate().map(|(at, now)| smoothed(known(at, *now), *now)).collect()
        };
        let mut tables = self.tables;
        tables.iter_mut().zip(now.tables).for_each(|(before, now)| *before = smoothed(*before, now));
        Worth { cache: of(&self.cache, &now.cache), tables }
    }

    /// Tables have zones from the lowest level on, as write-guided placement gives them: the last of them is what another zone
    /// of blocks takes. The number that is worth most to both together; who has a zone keeps it until the other is worth clearly
    /// more. One rank alone decides nothing: what a sample says of it is mostly chance.
    fn cache_zones(&self, view: &PlacementView, now: u64) -> u64 {
        let shared = view.fast_zones.saturating_sub(kept_for_logs(view));
        let least = CACHE_ZONES_MIN.min(shared);
        let (mut best, mut most, mut sum) = (least, 0, 0);
        for zones in least..shared {
            let of_blocks = self.cache.get(zones as usize).copied().unwrap_or(0);
            let of_tables = self.of_table_zone(view, shared - zones);
            let (mine, theirs) = if zones < now { (5, 4) } else { (4, 5) };
            sum += i128::from(of_blocks) * mine - i128::from(of_tables) * theirs;
            // What is worth nothing to anybody stays as it is.
            let is_kept = zones < now && of_blocks == of_tables && sum >= most;
            if sum > most || is_kept {
                (best, most) = (zones + 1, sum);
            }
        }
        best
    }

    /// What the zone of this rank, counted from 1, is worth to the tables that have it.
    fn of_table_zone(&self, view: &PlacementView, rank: u64) -> u64 {
        let mut below = 0;
        for (level, zones) in view.levels.iter().enumerate() {
            below += zones.wanted();
            if rank <= below {
                return self.tables[level];
            }
        }
        0
    }
}

/// Zones that neither blocks nor tables have: those of logs, and one that is empty for whoever needs it first.
pub(super) fn kept_for_logs(view: &PlacementView) -> u64 {
    view.log_zones.max(1) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hybrid::levels::LevelZones;

    const COSTS: SlowCosts = SlowCosts { read_nanos: 1000, mebibyte_nanos: 500 };

    fn view(levels: &[(u64, u64)]) -> PlacementView {
        let mut view = PlacementView { fast_zones: 20, log_zones: 1, ..PlacementView::default() };
        for (row, (fast, slow)) in view.levels.iter_mut().zip(levels) {
            *row = LevelZones { fast: *fast, slow: *slow, demand: 0 };
        }
        view
    }

    /// So many intervals of so many reads of fast tables of each level, and hits and misses of slow ones.
    fn run(division: &mut Division, view: &PlacementView, reads: &[u64], cached: u64, missed: u64, hits: &[u64]) {
        for _ in 0..40 {
            for (level, reads) in reads.iter().enumerate() {
                (0..*reads).for_each(|_| division.read(level, Tier::Fast, false));
            }
            (0..cached).for_each(|_| division.read(2, Tier::Slow, true));
            (0..missed).for_each(|_| division.read(2, Tier::Slow, false));
            assert!(division.is_due());
            division.interval_ends(view, hits);
        }
    }

    #[test]
    fn blocks_have_the_zones_that_are_worth_more_to_them() {
        let seen = view(&[(1, 0), (2, 0), (14, 180)]);
        let mut division = Division::new(COSTS, 2);
        assert_eq!((division.cache_zones(), division.is_due()), (1, false));
        let hits: Vec<u64> = (0..20).map(|rank| 400 / (rank + 1)).collect();
        // A zone of level 2 has 5 reads, of which half would not be cached: less than any zone of blocks.
        run(&mut division, &seen, &[0, 10, 70], 500, 500, &hits);
        assert_eq!(division.cache_zones(), 18, "tables of level 0 are not read");
        // With 100 of them, only the first zones of blocks are worth more.
        run(&mut division, &seen, &[0, 2000, 1400], 500, 500, &hits);
        assert!((6..=10).contains(&division.cache_zones()), "{}", division.cache_zones());
        // Nobody reads, and level 2 is written: it has all.
        for _ in 0..40 {
            division.written(2, 4 << 30);
            assert!(division.is_due());
            division.interval_ends(&seen, &[0; 20]);
        }
        assert_eq!(division.cache_zones(), CACHE_ZONES_MIN);
    }

    #[test]
    fn who_has_a_zone_keeps_it_while_it_is_worth_about_as_much() {
        let seen = view(&[(0, 0), (0, 0), (14, 180)]);
        let mut division = Division::new(COSTS, 2);
        let flat = |worth| vec![worth; 20];
        run(&mut division, &seen, &[0, 0, 14 * 100], 500, 500, &flat(55));
        assert_eq!(division.cache_zones(), 1);
        run(&mut division, &seen, &[0, 0, 14 * 100], 500, 500, &flat(70));
        assert_eq!(division.cache_zones(), 18);
        run(&mut division, &seen, &[0, 0, 14 * 100], 500, 500, &flat(45));
        assert_eq!(division.cache_zones(), 18);
        run(&mut division, &seen, &[0, 0, 14 * 100], 500, 500, &flat(35));
        assert_eq!(division.cache_zones(), 1);
    }

    #[test]
    fn a_tier_of_few_zones_is_divided_as_well() {
        for fast_zones in 0..5 {
            let seen = PlacementView { fast_zones, ..view(&[(1, 1), (1, 1)]) };
            let mut division = Division::new(COSTS, 2);
            run(&mut division, &seen, &[1, 1], 600, 600, &[1000, 900, 800]);
            assert!(division.cache_zones() <= fast_zones.saturating_sub(2), "{fast_zones}");
        }
    }
}
