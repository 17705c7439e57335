//! Figure 9: size of the drive (exp 5).

use super::fig2::described;
use super::load::{Loaded, loads_of};
use super::runs::{Begin, Ran, Task, run_tasks};
use super::scheme::Scheme;
use super::settings::{SSD_ZONES, Setup};
use super::workload::Workload;
use crate::error::LabError;
use crate::experiment::comparison::{compare, drawn, ours};
use crate::experiment::{Experiment, Run};
use std::sync::Arc;

/// "From 20 zones to 80 zones".
const ZONES: [u64; 4] = [20, 40, 60, 80];

const HALF: Workload = Workload::mix("50 % reads", 1_000_000, 50, 0.9);

/// Percent by which P is above the best of the others, and HHZS above P (load), or above the best of the others (mix).
const LOAD: ([f64; 4], [f64; 4]) = ([5.5, 1.1, 7.9, 6.6], [2.2, 5.3, 7.7, 10.8]);
const MIX: ([f64; 4], [f64; 4]) = ([18.8, 2.6, 12.5, 6.2], [34.8, 15.5, 28.5, 13.6]);

const fn experiment(
    id: &'static str,
    title: &'static str,
    run: fn(&Run<'_>) -> Result<crate::report::Report, LabError>,
) -> Experiment {
    let description = "Loads 200 GiB onto 20, 40, 60 and 80 zones of the drive under B1 to B4, AUTO, P and HHZS, and runs 1 million \
                       operations, half of them reads of Zipf 0.9, on it.";
    Experiment { id, title, description, default_scale: super::MANY_RUNS_SCALE, run }
}

fn setups(run: &Run<'_>, zones: u64) -> Vec<Setup> {
    let setup = |scheme| Setup { ssd_zones: zones, ..Setup::new(scheme, run.scale, run.settings.seed) };
    Scheme::OF_SIZES.map(setup).to_vec()
}

pub(in crate::experiment) const FIG_9A: Experiment =
    experiment("hhzs/fig9a", "HHZS, figure 9a (exp 5): throughput of the load by size of the drive", |run| {
        let mut all: Vec<Vec<Arc<Loaded>>> = Vec::new();
        for zones in ZONES {
            all.push(loads_of(run, &setups(run, zones))?);
        }
        let mut report = described(run, &all[0]);
        for (place, zones) in ZONES.into_iter().enumerate() {
            let rates: Vec<f64> = all[place].iter().map(|loaded| loaded.throughput()).collect();
            for (scheme, rate) in Scheme::OF_SIZES.iter().zip(&rates) {
                drawn(&mut report, &scheme.name(), &format!("{zones} zones: load"), "op/s", *rate);
            }
            let (others, [p, hhzs]) = (&rates[..5], [rates[5], rates[6]]);
            let best = others.iter().copied().fold(0.0, f64::max);
            let (paper_p, paper_hhzs) = (LOAD.0[place], LOAD.1[place]);
            compare(
                &mut report,
                "P",
                &format!("{zones} zones: load above the best of the others"),
                "%",
                paper_p,
                (p / best - 1.0) * 100.0,
            );
            compare(
                &mut report,
                "HHZS",
                &format!("{zones} zones: load above P"),
                "%",
                paper_hhzs,
                (hhzs / p - 1.0) * 100.0,
            );
        }
        Ok(report)
    });

pub(in crate::experiment) const FIG_9B: Experiment =
    experiment("hhzs/fig9b", "HHZS, figure 9b (exp 5): half reads by size of the drive", |run| {
        let mut report = described(run, &loads_of(run, &setups(run, SSD_ZONES))?);
        for (place, zones) in ZONES.into_iter().enumerate() {
            let task = |setup: Setup| Task { workload: HALF.at(setup.scale), setup, begin: Begin::Debt, warm_up: None };
            let all: Vec<Arc<Ran>> = run_tasks(run, setups(run, zones).into_iter().map(task).collect())?;
            let rates: Vec<f64> = all.iter().map(|ran| ran.throughput()).collect();
            for (ran, rate) in all.iter().zip(&rates) {
                let scheme = ran.task.setup.scheme.name();
                drawn(&mut report, &scheme, &format!("{zones} zones: throughput (full size)"), "op/s", *rate);
                ours(&mut report, &scheme, &format!("{zones} zones: disk reads to a get"), "1", ran.disk_reads());
            }
            let best = rates[..5].iter().copied().fold(0.0, f64::max);
            for (name, rate, paper) in [("P", rates[5], MIX.0[place]), ("HHZS", rates[6], MIX.1[place])] {
                let metric = format!("{zones} zones: throughput above the best of the others");
                compare(&mut report, name, &metric, "%", paper, (rate / best - 1.0) * 100.0);
            }
        }
        Ok(report)
    });
