//! Spread of results over seeds.

use super::load::loads_of;
use super::runs::{Begin, run_all_of};
use super::scheme::Scheme;
use super::settings::{Setting, Setup};
use super::workload::Workload;
use crate::experiment::Experiment;
use crate::experiment::comparison::ours;
use crate::report::Report;

/// Number of seeds, starting at the seed of the run.
const SEEDS: u64 = 3;

/// Schemes of figure 5a, and ours.
const SCHEMES: [Scheme; 4] = Scheme::COMPARED_WITH_OURS;

/// Reports the least, the middle and the most of the values.
fn range(report: &mut Report, scheme: &str, metric: &str, unit: &str, values: &[f64]) {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    for (what, at) in [("least", 0), ("middle", last / 2), ("most", last)] {
        let Some(value) = sorted.get(at) else { return };
        ours(report, scheme, &format!("{metric}: {what} of {SEEDS} seeds"), unit, *value);
    }
}

pub(in crate::experiment) const SEEDS_OF_TIERS: Experiment = Experiment {
    id: "hhzs/seeds",
    title: "the load, A, C, W2 and W4 with three seeds, under both settings",
    description: "Loads 200 GiB under B3, AUTO, HHZS and ours with three seeds, and runs A and C of YCSB, W2 and W4 on what each load left \
                  behind, with the authors' settings and with filters: the least, the middle and the most of each number, and of HHZS and \
                  ours over the others.",
    default_scale: super::MANY_LOADS_SCALE,
    run: |run| {
        let workloads = [Workload::YCSB[0], Workload::YCSB[2], Workload::BREAKDOWN[1], Workload::BREAKDOWN[3]];
        let mut report = run.report();
        Setup::under(Setting::AUTHORS, Scheme::Hhzs, run.scale, run.settings.seed).describe(&mut report);
        for setting in [Setting::WITH_FILTERS, Setting::AUTHORS] {
            // By metric, then by scheme, then by seed.
            let mut rates = vec![vec![Vec::new(); SCHEMES.len()]; workloads.len() + 1];
            for seed in (0..SEEDS).map(|step| run.settings.seed + step) {
                let setups = SCHEMES.map(|scheme| Setup::under(setting, scheme, run.scale, seed));
                let loaded = loads_of(run, &setups.each_ref().map(Setup::of_load))?;
                for (scheme, loaded) in loaded.iter().enumerate() {
                    rates[0][scheme].push(loaded.throughput());
                }
                let all = run_all_of(run, &setups, &workloads, Begin::Debt)?;
                for (scheme, of_scheme) in all.iter().enumerate() {
                    for (workload, ran) in of_scheme.iter().enumerate() {
                        rates[workload + 1][scheme].push(ran.throughput());
                    }
                }
            }
            let names = std::iter::once("load").chain(workloads.iter().map(|workload| workload.name));
            for (what, of_metric) in names.zip(&rates) {
                for (scheme, values) in SCHEMES.iter().zip(of_metric) {
                    let name = format!("{}, {}", scheme.name(), setting.name);
                    range(&mut report, &name, &format!("{what}: throughput (full size)"), "op/s", values);
                }
                for (scheme, base) in [(2, 0), (2, 1), (3, 2)] {
                    let pairs = of_metric[scheme].iter().zip(&of_metric[base]);
                    let gains: Vec<f64> = pairs.map(|(rate, base)| (rate / base - 1.0) * 100.0).collect();
                    let name = format!("{}, {}", SCHEMES[scheme].name(), setting.name);
                    let metric = format!("{what}: throughput above {}", SCHEMES[base].name());
                    range(&mut report, &name, &metric, "%", &gains);
                }
            }
        }
        Ok(report)
    },
};
