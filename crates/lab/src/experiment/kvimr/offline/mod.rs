//! `kvimr/offline`: what an allocation reaches on the load that is told when each table goes.

mod allocation;
mod outermost;
mod replay;

use super::floor;
use super::lives::Lives;
use super::load::{Loaded, loads};
use super::overall::DEFAULT_SCALE;
use super::scheme::Scheme;
use super::settings::{INTERVAL_PAIRS, LOOK_PAIRS, Setup, Work};
use crate::error::LabError;
use crate::experiment::comparison::{goal, ours};
use crate::experiment::together::{self, Wanted};
use crate::experiment::{Experiment, Run};
use crate::report::Report;
use replay::{Replayed, by_place, places_of_store};
use std::sync::Arc;

/// Share of what foresight reaches that ours is to have.
const WANTED: f64 = 0.95;

/// Whose tables lie as the store places them, without knowing when they go; the first is compared with.
const UNTOLD: [Scheme; 2] = [Scheme::CmrContiguous, Scheme::CostAware];

/// Names in the report.
const OWN: &str = "CostAware";
const TOLD: &str = "with foresight";

pub(in crate::experiment) const OFFLINE: Experiment = Experiment {
    id: "kvimr/offline",
    title: "what an allocation reaches on the load that is told when each table goes",
    description: "Ours. When tables of the load of kvimr/fig5a come and go under CMR contiguous is written down, and they are written and \
                  read again in that order on a disk that does nothing else: where CMR contiguous and CostAware place them, and where an allocation places them that is \
                  told at which moment each of them goes, on both disks. What more than CMR contiguous' tables others \
                  take is added to the time of its load, and CostAware's load compared with that. Below all of them is what no allocation could avoid.",
    default_scale: DEFAULT_SCALE,
    run: offline,
};

fn offline(run: &Run<'_>) -> Result<Report, LabError> {
    let setup = |scheme: Scheme| Setup::new(scheme, run.scale, run.settings.seed);
    let work = Work::LoadUntilIdle { is_looked_at: true };
    let looked_at = Setup { work, ..setup(Scheme::CmrContiguous) };
    let all = loads(run, &[looked_at, setup(Scheme::CostAware)])?;
    let [conventional, own] = &all[..] else { return Err(LabError::invalid("load", "it left no result")) };
    let nothing = || LabError::invalid("load", "nobody looked at its tables");
    let lives = Arc::new(conventional.lives.clone().ok_or_else(nothing)?);
    let replays = replays(run, &lives)?;
    let [base, untold, told_base, told] = &replays[..] else {
        return Err(LabError::invalid("replay", "it left no result"));
    };
    let factor = run.scale.denominator() as f64;
    let found = Found { conventional, own, base, untold, told_base, told, factor };
    let mut report = run.report();
    setup(Scheme::CostAware).describe(&mut report);
    found.tables(&mut report, outermost::least_seconds(&lives, &floor::by_place(run.scale)?) * factor);
    found.load(&mut report);
    found.millions(&mut report);
    report.notes.push(
        "tables are those of one load, so no scheme can choose them: what a scheme takes longer for moves no job. A table is read whole when it \
         goes, the outputs that came by then are written, and it is removed; a compaction, which reads its inputs in turns and writes meanwhile, moves the arm more often, for all of them. \
         With foresight is greedy: other allocations could be better, but none takes less than the bound, \
         which lets as many tracks as possible be written in the outermost part of the disk, whatever its size, and has each pay what a table costs in its place at least"
            .to_owned(),
    );
    Ok(report)
}

/// The tables under each of [`UNTOLD`], and then as on their disks who is told when they go.
fn replays(run: &Run<'_>, lives: &Arc<Lives>) -> Result<Vec<Arc<Replayed>>, LabError> {
    let seed = run.settings.seed;
    let mut wanted = Vec::new();
    for is_told in [false, true] {
        for scheme in UNTOLD {
            let (setup, lives) = (Setup::new(scheme, run.scale, seed), Arc::clone(lives));
            let key = format!("kvimr offline {is_told} {setup:?}");
            wanted.push(Wanted::simulated(key, seed, move |env| {
                let places = match is_told {
                    false => places_of_store(env, &setup, &lives)?,
                    true => allocation::with_foresight(&lives, setup.scheme.is_interlaced())?,
                };
                by_place(env, &setup, &lives, &places)
            }));
        }
    }
    together::measure::<Replayed>(run, "placing the tables of a load", wanted)
}

/// Loads, and what the disk takes for the tables of the first.
struct Found<'a> {
    /// Of CMR contiguous.
    conventional: &'a Loaded,
    /// Of CostAware.
    own: &'a Loaded,
    base: &'a Replayed,
    untold: &'a Replayed,
    told_base: &'a Replayed,
    told: &'a Replayed,
    /// From the times of the scale to those of the full size.
    factor: f64,
}

impl Found<'_> {
    fn seconds(&self, nanos: u64) -> f64 {
        nanos as f64 / 1e9 * self.factor
    }

    fn beyond(&self, replayed: &Replayed) -> f64 {
        self.seconds(replayed.nanos()) - self.seconds(self.base.nanos())
    }

    fn tables(&self, report: &mut Report, bound_seconds: f64) {
        for (name, replayed) in [
            ("CMR contiguous", self.base),
            ("CMR, with foresight", self.told_base),
            (OWN, self.untold),
            (TOLD, self.told),
        ] {
            let mut add = |metric: &str, unit: &str, value: f64| ours(report, name, metric, unit, value);
            add("tables, written", "s", self.seconds(replayed.write_nanos.iter().sum()));
            add("tables, read", "s", self.seconds(replayed.read_nanos.iter().sum()));
            add("tables", "s", self.seconds(replayed.nanos()));
            add("tables beyond those of CMR contiguous", "s", self.beyond(replayed));
            add("tracks that do not follow the one before", "1", replayed.gaps as f64);
        }
        ours(report, "bound", "tables", "s", bound_seconds);
        for (name, replayed) in [(OWN, self.untold), (TOLD, self.told)] {
            ours(report, name, "tables / bound", "1", self.seconds(replayed.nanos()) / bound_seconds);
        }
    }

    fn load(&self, report: &mut Report) {
        let [base, own] = [self.conventional, self.own].map(|loaded| loaded.whole().seconds() * self.factor);
        let pairs = self.conventional.whole().operations() as f64 * self.factor;
        // What more a disk takes for tables is waited for in part only: other jobs go on meanwhile.
        let waited_for = (own - base) / self.beyond(self.untold);
        ours(report, OWN, "load beyond that of CMR contiguous / tables beyond", "1", waited_for);
        let mut least = f64::INFINITY;
        for (what, part) in [("all", 1.0), ("as much as under CostAware", waited_for)] {
            let told = base + part * self.beyond(self.told);
            let metric = |metric: &str| format!("load, if {what} is waited for: {metric}");
            ours(report, TOLD, &metric("throughput"), "op/s", pairs / told);
            ours(report, TOLD, &metric("throughput / CMR contiguous"), "1", base / told);
            least = least.min(told / own);
        }
        ours(report, OWN, "load: throughput", "op/s", pairs / own);
        ours(report, OWN, "load: throughput / CMR contiguous", "1", base / own);
        let metric = "load: throughput / with foresight, where that is higher";
        goal(report, OWN, metric, least, "at least 0.95", least >= WANTED);
    }

    fn millions(&self, report: &mut Report) {
        let base: Vec<f64> = self.conventional.intervals().map(|span| span.seconds()).collect();
        let [own, told] = [self.untold, self.told].map(|replayed| millions(self.conventional, self.base, replayed));
        let slowest =
            |of: &[f64], than: &[f64]| than.iter().zip(of).map(|(than, of)| than / of).fold(f64::INFINITY, f64::min);
        let [own_least, told_least] = [&own, &told].map(|millions| slowest(millions, &base));
        let metric = "slowest million pairs / CMR contiguous, if all is waited for in it";
        ours(report, OWN, metric, "1", own_least);
        ours(report, TOLD, metric, "1", told_least);
        ours(report, OWN, "slowest million pairs / with foresight in the same one", "1", slowest(&own, &told));
        let (metric, least) = ("slowest million pairs / that of with foresight", own_least / told_least);
        goal(report, OWN, metric, least, "at least 0.95", least >= WANTED);
    }
}

/// Seconds of each million pairs of the load, if each takes what it took and what the disk takes more for the tables of that time than
/// under the allocation of that load.
fn millions(conventional: &Loaded, base: &Replayed, replayed: &Replayed) -> Vec<f64> {
    let scale = conventional.setup.scale;
    let (interval, look) = (scale.of(INTERVAL_PAIRS).max(1), scale.of(LOOK_PAIRS).max(1));
    let mut millions: Vec<f64> = conventional.intervals().map(|span| span.seconds()).collect();
    let last = millions.len().saturating_sub(1);
    for (number, (of_base, of_other)) in base.each().zip(replayed.each()).enumerate() {
        // What a look finds came before it.
        let pair = (number as u64 * look).saturating_sub(1);
        if let Some(seconds) = millions.get_mut(((pair / interval) as usize).min(last)) {
            *seconds += (of_other as f64 - of_base as f64) / 1e9;
        }
    }
    millions
}
