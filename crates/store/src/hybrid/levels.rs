//! What policies are told: how many tables each level has where, and how many more it is about to have.

use std::collections::BTreeMap;
use varve_media::JobId;

/// Levels that are told apart. Tables of a higher or an unknown level are of the last one: nothing below is known of them.
pub(super) const LEVELS: usize = 16;

/// Tiers there may be: each has a device.
pub(super) const TIERS_MAX: usize = crate::identity::MEMBERS_MAX;

/// The row of a level in tables of [`LEVELS`] rows.
pub(super) fn row(level: Option<u8>) -> usize {
    level.map_or(LEVELS - 1, |level| usize::from(level).min(LEVELS - 1))
}

/// Where a file lies. Devices of like speed are one tier; to a policy everything behind the first is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Tier {
    /// On the fastest devices.
    Fast,
    /// On the others.
    Slow,
}

/// Zones of the fast tier that tables of a level take, or would take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LevelZones {
    /// Of tables there.
    pub(super) fast: u64,
    /// Of tables elsewhere, were they there.
    pub(super) slow: u64,
    /// Of tables that running jobs are about to make (section 3.3, "storage demand").
    pub(super) demand: u64,
}

impl LevelZones {
    /// All of a level, wherever it is, and what is coming.
    pub(super) fn wanted(&self) -> u64 {
        self.fast + self.slow + self.demand
    }
}

/// What a compaction is still expected to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Expected {
    level: usize,
    zones: u64,
}

/// The storage demand of running compactions (HHZS, section 3.3, step 1). Pure bookkeeping.
#[derive(Debug, Default)]
pub(super) struct Demand {
    jobs: BTreeMap<JobId, Expected>,
}

/// Jobs remembered at once: a tree that never says that one ended costs no more than this.
pub(super) const JOBS_MAX: usize = 1024;

impl Demand {
    /// A compaction begins: it makes as many tables as it reads, at most.
    pub(super) fn compaction_begins(&mut self, job: JobId, level: Option<u8>, inputs: u64) {
        if self.jobs.len() < JOBS_MAX {
            self.jobs.insert(job, Expected { level: row(level), zones: inputs });
        }
    }

    /// It finished a table.
    pub(super) fn compaction_made(&mut self, job: JobId) {
        if let Some(expected) = self.jobs.get_mut(&job) {
            expected.zones = expected.zones.saturating_sub(1);
        }
    }

    /// It ended, well or not.
    pub(super) fn compaction_ends(&mut self, job: JobId) {
        self.jobs.remove(&job);
    }

    /// By level. That of level 0 is not here: it is the number of log zones.
    pub(super) fn zones(&self) -> [u64; LEVELS] {
        let mut zones = [0; LEVELS];
        self.jobs.values().for_each(|expected| zones[expected.level] += expected.zones);
        zones
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_is_what_running_compactions_may_still_write() {
        let mut demand = Demand::default();
        demand.compaction_begins(JobId(1), Some(2), 5);
        demand.compaction_begins(JobId(2), Some(2), 2);
        demand.compaction_begins(JobId(3), None, 1);
        assert_eq!((demand.zones()[2], demand.zones()[LEVELS - 1]), (7, 1));
        (0..3).for_each(|_| demand.compaction_made(JobId(2)));
        demand.compaction_made(JobId(9));
        assert_eq!(demand.zones()[2], 5, "one that made more than it read");
        // The rest goes at the end, also of one that failed.
        [1, 3, 7].into_iter().for_each(|job| demand.compaction_ends(JobId(job)));
        assert_eq!(demand.zones(), [0; LEVELS]);
    }

    #[test]
    fn hints_that_never_end_cost_no_more() {
        let mut demand = Demand::default();
        (0..5000).for_each(|job| demand.compaction_begins(JobId(job), Some(1), 1));
        assert_eq!(demand.zones()[1], JOBS_MAX as u64);
    }
}
