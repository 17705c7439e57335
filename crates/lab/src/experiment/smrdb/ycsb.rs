//! Figures 14 and 15: YCSB with every put synced, and the load over time.

use super::scheme::Scheme;
use super::settings::{COMPRESSION_RATIO, Setup};
use crate::error::LabError;
use crate::experiment::comparison::{drawn, goal, ours};
use crate::experiment::{Experiment, Run, Scale, emulated, simulate};
use crate::report::{Axis, Bars, Figure, Lines, Plot, Report};
use crate::runner::{Finish, Group, Phase, PhaseResult, run_phase};
use crate::target::{Durability, Target};
use crate::workload::{Workload, Ycsb, YcsbMix, YcsbOptions};
use std::sync::Arc;

/// "2 million entries" of "4 KB values".
const RECORDS: u64 = 2_000_000;
const VALUE_BYTES: usize = 4096;

/// "The workloads each performed 200,000 operations".
const OPERATIONS: u64 = 200_000;

/// The paper's workloads and what the text calls them.
const MIXES: [(YcsbMix, &str); 4] =
    [(YcsbMix::Load, "load"), (YcsbMix::A, "update heavy"), (YcsbMix::B, "read heavy"), (YcsbMix::D, "read latest")];

/// "SMRDB outperforms LevelDB by 8.8-123.6%."
const GAINS: std::ops::RangeInclusive<f64> = 1.088..=2.236;

/// A synced put costs a turn of the disk whatever the scale.
const DEFAULT_SCALE: Scale = Scale::one_in(8);

const DESCRIPTION: &str = "Loads 2 million records of 4 KiB and does 200,000 operations of each workload, from one thread, \
                           every put synced, with an 8 MiB cache. A sync costs a turn of the disk whatever the scale, so scale \
                           divides the number of records and operations only.";

pub(in crate::experiment) const FIG_14: Experiment = Experiment {
    id: "smrdb/fig14",
    title: "SMRDB, figure 14: YCSB load, update heavy, read heavy, read latest",
    description: DESCRIPTION,
    default_scale: DEFAULT_SCALE,
    run: |run| {
        let (all, mut report) = phases(run)?;
        let mut series = Vec::new();
        for (scheme, phases) in &all {
            let rates: Vec<f64> = phases.iter().map(|phase| phase.operations_per_second).collect();
            for ((_, name), rate) in MIXES.iter().zip(&rates) {
                drawn(&mut report, scheme.name(), &format!("{name}: throughput"), "op/s", *rate);
            }
            series.push((scheme.name().to_owned(), rates.into_iter().map(Some).collect::<Vec<_>>()));
        }
        if let [(_, leveldb), (scheme, soc)] = &all[..] {
            for (place, (_, name)) in MIXES.iter().enumerate() {
                let ratio = soc[place].operations_per_second / leveldb[place].operations_per_second;
                let metric = format!("{name}: throughput / LevelDB-like");
                goal(&mut report, scheme.name(), &metric, ratio, "1.088 to 2.236", GAINS.contains(&ratio));
            }
        }
        report.plots.push(Plot {
            name: "throughput".to_owned(),
            title: "YCSB, every put synced".to_owned(),
            y: Axis::linear("throughput (op/s)"),
            figure: Figure::Bars(Bars { groups: MIXES.map(|(_, name)| name.to_owned()).into(), series }),
        });
        Ok(report)
    },
};

pub(in crate::experiment) const FIG_15: Experiment = Experiment {
    id: "smrdb/fig15",
    title: "SMRDB, figure 15: throughput of YCSB's load over time",
    description: DESCRIPTION,
    default_scale: DEFAULT_SCALE,
    run: |run| {
        let (all, mut report) = phases(run)?;
        let mut series = Vec::new();
        for (scheme, phases) in &all {
            let load = &phases[0];
            let points: Vec<(f64, f64)> = load
                .groups
                .iter()
                .flat_map(|group| &group.timeline)
                .map(|point| (point.start_seconds, point.operations_per_second))
                .collect();
            let slowest = points.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
            let mean = load.operations_per_second;
            ours(&mut report, scheme.name(), "load: slowest stretch / mean throughput", "1", slowest / mean);
            let latency = load.groups.iter().flat_map(|group| &group.kinds).find_map(|kind| kind.latency);
            if let Some(latency) = latency {
                ours(&mut report, scheme.name(), "load: mean latency of a put", "ms", latency.mean_nanos as f64 / 1e6);
                ours(&mut report, scheme.name(), "load: p99.9 latency of a put", "ms", latency.p999_nanos as f64 / 1e6);
                ours(&mut report, scheme.name(), "load: longest put", "ms", latency.max_nanos as f64 / 1e6);
            }
            drawn(&mut report, scheme.name(), "load: time", "s", load.elapsed_nanos as f64 / 1e9);
            series.push((scheme.name().to_owned(), points));
        }
        report.plots.push(Plot {
            name: "time".to_owned(),
            title: "YCSB's load, every put synced".to_owned(),
            y: Axis::linear("throughput (op/s)"),
            figure: Figure::Lines(Lines { x: Axis::linear("time (s)"), series }),
        });
        Ok(report)
    },
};

type OfSchemes = Vec<(Scheme, Arc<Vec<PhaseResult>>)>;

/// The load and the three workloads on both stores.
fn phases(run: &Run<'_>) -> Result<(OfSchemes, Report), LabError> {
    let options = YcsbOptions {
        records: run.scale.of(RECORDS),
        operations: run.scale.of(OPERATIONS),
        value_bytes: VALUE_BYTES,
        compression_ratio: COMPRESSION_RATIO,
        durability: Durability::Synced,
        seed: run.settings.seed,
        ..YcsbOptions::default()
    };
    let mut report = run.report();
    Setup::new(Scheme::Soc, Scale::FULL, run.settings.seed).describe(&mut report);
    report.condition("records", options.records);
    report.condition("operations", options.operations);
    let mut all = Vec::new();
    for scheme in Scheme::PAIR {
        let setup = Setup::new(scheme, Scale::FULL, run.settings.seed);
        let key = format!("smrdb ycsb {options:?} {setup:?}");
        let found = match run.settings.shared.get::<Vec<PhaseResult>>(&key) {
            Some(found) => found,
            None => {
                run.settings.progress.begin(&format!("YCSB, {}", scheme.name()), None);
                let options = options.clone();
                let measured = simulate(run.settings.seed, move |env| {
                    let target: Arc<dyn Target> = Arc::new(emulated::open_varve(env, &setup.spec(), &setup.options())?);
                    let mut results = Vec::new();
                    for (mix, name) in MIXES {
                        let workload = Arc::new(Ycsb::new(mix, options.clone())?);
                        let group = Group::new(Arc::clone(&workload) as Arc<dyn Workload>, 1, workload.operations());
                        // What a workload leaves behind is its own: the next one begins on an idle store.
                        let phase = Phase { finish: Finish::Idle, ..Phase::new(name, group) };
                        results.push(run_phase(env, &target, &phase)?);
                    }
                    Ok(results)
                });
                run.settings.progress.end();
                let measured = Arc::new(measured?);
                run.settings.shared.insert(&key, Arc::clone(&measured));
                measured
            }
        };
        all.push((scheme, found));
    }
    Ok((all, report))
}
