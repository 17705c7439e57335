//! What each term of ours contributes, and what others gain by the part of it that they can have.

use super::fig2::{described, how};
use super::load::loads;
use super::runs::{Begin, Task, run_tasks};
use super::scheme::{Scheme, Term};
use super::settings::Setup;
use super::steady::steady_task;
use super::workload::Workload;
use crate::experiment::Experiment;
use crate::experiment::comparison::ours;

/// The basic scheme that loads fastest, SpanDB's, HHZS, each with RocksDB's transfers and with large ones; ours, and ours without each term.
const SCHEMES: [Scheme; 13] = [
    Scheme::Basic(3),
    Scheme::Transferring(&Scheme::Basic(3)),
    Scheme::Auto,
    Scheme::Transferring(&Scheme::Auto),
    Scheme::Hhzs,
    Scheme::Transferring(&Scheme::Hhzs),
    Scheme::Adaptive,
    Scheme::Without(Term::Frequency),
    Scheme::Without(Term::Records),
    Scheme::Without(Term::Division),
    Scheme::Without(Term::Migration),
    Scheme::Without(Term::Amortization),
    Scheme::Without(Term::LargeTransfers),
];

/// Those whose terms matter to reads.
const READING: [Scheme; 8] = [
    Scheme::Basic(3),
    Scheme::Hhzs,
    Scheme::Adaptive,
    Scheme::Without(Term::Frequency),
    Scheme::Without(Term::Records),
    Scheme::Without(Term::Division),
    Scheme::Without(Term::Migration),
    Scheme::Without(Term::Amortization),
];

pub(in crate::experiment) const ABLATION: Experiment = Experiment {
    id: "hhzs/ablation",
    title: "ours without each of its terms, and the others with the one they can have",
    description: "Loads 200 GiB under each scheme, and runs YCSB C after rest: at once, and once it went on for half a get to a pair.",
    default_scale: super::MANY_RUNS_SCALE,
    run: |run| {
        let loaded = loads(run, &SCHEMES)?;
        let mut report = described(run, &loaded);
        loaded.iter().for_each(|loaded| how(&mut report, loaded));
        let base = loaded[0].throughput();
        for loaded in &loaded {
            let gain = loaded.throughput() / base;
            ours(&mut report, &loaded.setup.scheme.name(), "load: throughput to that of B3", "1", gain);
        }
        let tasks = READING.iter().flat_map(|&scheme| {
            let setup = Setup::new(scheme, run.scale, run.settings.seed);
            let short = Task {
                workload: Workload::YCSB[2].at(setup.scale),
                warm_up: None,
                begin: Begin::Rest,
                setup: setup.clone(),
            };
            [short, steady_task(&setup, &Workload::YCSB[2])]
        });
        for ran in run_tasks(run, tasks.collect())? {
            let scheme = ran.task.setup.scheme.name();
            let what = if ran.task.warm_up.is_some() { "C, steady" } else { "C after rest" };
            ours(&mut report, &scheme, &format!("{what}: throughput (full size)"), "op/s", ran.throughput());
            ours(&mut report, &scheme, &format!("{what}: disk reads to a get"), "1", ran.disk_reads());
        }
        Ok(report)
    },
};
