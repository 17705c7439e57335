//! `kvimr/reads`: random reads after the load, on a mostly empty, a half full and a full disk.

use super::load::{Driver, loads};
use super::mark::{Mark, Span, Tiers};
use super::overall::MANY_LOADS_SCALE;
use super::scheme::Scheme;
use super::settings::{READ_PERCENTS, READS as READ_COUNT, Setup};
use crate::error::LabError;
use crate::experiment::Experiment;
use crate::experiment::comparison::{goal, ours};
use varve::env::Random;

/// Time of a read under CostAware, to that of the best scheme of two tiers: what it may cost at most.
const WANTED: f64 = 1.1;

/// Reads at one share of the tracks in use.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) percent: u64,
    /// Share of the tracks that were in use.
    pub(super) used: f64,
    pub(super) reads: u64,
    pub(super) from: Mark,
    pub(super) to: Mark,
}

impl Read {
    /// Nanoseconds of the full size that the disk needs for a read: it moves the arm for `1/N` of the time at scale `1/N`, and transfers a block as in
    /// full.
    fn disk_nanos(&self, factor: f64) -> f64 {
        self.arm_nanos(factor)
            + self.span().disk(|disk| disk.time.transfer_nanos + disk.time.overhead_nanos) as f64
                / self.reads.max(1) as f64
    }

    /// Part of it that the arm takes: seeks and rotations.
    fn arm_nanos(&self, factor: f64) -> f64 {
        self.span().disk(|disk| disk.time.seek_nanos + disk.time.rotation_nanos) as f64 * factor
            / self.reads.max(1) as f64
    }

    fn span(&self) -> Span<'_> {
        Span { from: &self.from, to: &self.to }
    }
}

/// Loads the pairs in the order of the records, and reads records at random whenever the next share of the tracks is in use and the store is idle.
pub(super) fn fill_and_read<F: Fn(u64)>(driver: &mut Driver<'_, F>) -> Result<Vec<Read>, LabError> {
    let pairs = driver.setup.scaled_pairs();
    let most = READ_PERCENTS[READ_PERCENTS.len() - 1];
    let mut random = Random::named(driver.setup.seed, "kvimr reads");
    let (mut all, mut put) = (Vec::new(), 0);
    for percent in READ_PERCENTS {
        let until = pairs * percent / most;
        while put < until {
            driver.put(put, 0)?;
            put += 1;
        }
        let from = driver.idle()?;
        let used = Tiers::of(&driver.occupancy()).used_share();
        for _ in 0..READ_COUNT {
            driver.get(random.below(until.max(1)))?;
        }
        all.push(Read { percent, used, reads: READ_COUNT, from, to: driver.mark()? });
    }
    Ok(all)
}

pub(in crate::experiment) const READS: Experiment = Experiment {
    id: "kvimr/reads",
    title: "random reads after the load, on a mostly empty, a half full and a full disk",
    description: "Ours. Loads as many pairs as bring the tracks in use to 1, 50 and 90 %, and reads pairs at random by one thread each time the store is \
                  idle, under every allocation. Scale divides the pairs; of a read it divides what the arm takes, which is multiplied again, and \
                  not the transfer. The tree has dynamic levels, as in kvimr/usage.",
    default_scale: MANY_LOADS_SCALE,
    run: |run| {
        let setups = Scheme::ALLOCATIONS.map(|scheme| Setup::reading(scheme, run.scale, run.settings.seed));
        let all = loads(run, &setups)?;
        let mut report = run.report();
        if let Some(last) = setups.last() {
            last.describe(&mut report);
        }
        let factor = run.scale.denominator() as f64;
        for loaded in &all {
            let name = loaded.setup.scheme.name();
            for read in &loaded.read {
                let place = format!("{} % in use", read.percent);
                let mut add = |metric: &str, unit: &str, value: f64| {
                    ours(&mut report, &name, &format!("{place}: {metric}"), unit, value);
                };
                add("reads", "op/s", 1e9 / read.disk_nanos(factor));
                add("seek and rotation of a read", "ms", read.arm_nanos(factor) / 1e6);
                add("tracks in use", "1", read.used);
            }
        }
        for (place, percent) in READ_PERCENTS.into_iter().enumerate() {
            let nanos = |scheme: Scheme| {
                let loaded = all.iter().find(|loaded| loaded.setup.scheme == scheme)?;
                Some(loaded.read.get(place)?.disk_nanos(factor))
            };
            if let (Some(own), Some(tiers)) = (nanos(Scheme::CostAware), nanos(Scheme::KvimrM)) {
                let metric = format!("{percent} % in use: time of a read / that of KVIMR-M");
                goal(&mut report, "CostAware", &metric, own / tiers, "at most 1.1", own / tiers <= WANTED);
            }
        }
        Ok(report)
    },
};

#[cfg(test)]
mod tests {
    use super::super::load::load;
    use super::*;
    use crate::experiment::Scale;

    /// On a mostly empty disk the second table lay at its far end, and a read took twice as long as under KVIMR-M.
    #[test]
    fn reads_of_a_mostly_empty_disk_stay_near() {
        let read = |scheme: Scheme| {
            let scale = Scale::one_in(512);
            // A fiftieth of the disk when it is full by the setup's measure.
            let setup = Setup { pairs: 2_000_000, ..Setup::reading(scheme, scale, 1) };
            let loaded = load(&setup, |_| {}).unwrap();
            loaded.read.last().map_or(0.0, |read| read.disk_nanos(512.0))
        };
        let (own, tiers, contiguous) = (read(Scheme::CostAware), read(Scheme::KvimrM), read(Scheme::CmrContiguous));
        assert!(own > 0.0 && own < 1.1 * tiers && own < 1.1 * contiguous, "{own} {tiers} {contiguous}");
        let without = read(Scheme::CostAwareWithout("seeks"));
        assert!(own < 0.8 * without, "{own} {without}");
    }
}
