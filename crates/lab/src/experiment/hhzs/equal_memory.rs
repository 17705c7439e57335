//! Schemes with a block cache enlarged by the size of Adaptive's index of copies, and Adaptive without each of its smaller techniques.

use super::fig2::described;
use super::load::loads;
use super::runs::{Begin, Ran, Task, run_tasks};
use super::scheme::{Scheme, Term};
use super::settings::Setup;
use super::steady::{steady_task, steady_task_with};
use super::workload::{Memory, Workload};
use crate::experiment::Experiment;
use crate::experiment::comparison::ours;
use crate::report::Report;
use std::sync::Arc;

/// Schemes under comparison; only the last one has an index of copies.
const SCHEMES: [Scheme; 5] =
    [Scheme::Basic(3), Scheme::Auto, Scheme::WriteGuidedMigrating, Scheme::Hhzs, Scheme::Adaptive];

/// Reports throughput, disk reads, and the full-size memory of the index and of the block cache of one run.
fn rows(report: &mut Report, ran: &Ran) {
    let (name, workload) = (ran.name(), ran.task.workload.workload.name);
    let what = match (&ran.task.warm_up, ran.task.begin) {
        (Some(_), _) => format!("{workload}, steady"),
        (None, Begin::Rest) => format!("{workload} after rest"),
        (None, Begin::Debt) => workload.to_owned(),
    };
    ours(report, &name, &format!("{what}: throughput (full size)"), "op/s", ran.throughput());
    ours(report, &name, &format!("{what}: disk reads to a get"), "1", ran.disk_reads());
    let scale = ran.task.setup.scale.denominator() as f64;
    let index_bytes = ran.to.stored("memory for what is known of cached blocks") as f64 * scale;
    ours(report, &name, &format!("{what}: memory for copies (full size)"), "MB", index_bytes / 1e6);
    let cache_bytes = ran.task.workload.memory.cache_bytes() as f64;
    ours(report, &name, &format!("{what}: block cache (full size)"), "MB", cache_bytes / 1e6);
}

pub(in crate::experiment) const EQUAL_MEMORY: Experiment = Experiment {
    id: "hhzs/equal-memory",
    title: "B3, AUTO, P+M and HHZS with a block cache larger by Adaptive's index of copies",
    description: "YCSB C after rest, W4 after rest, and A and C once they went on for half a get to a pair, each with the paper's block cache \
                  of 8 MiB and with 282 MB more, which is what Adaptive's index takes when copies of records fill all zones they may have.",
    default_scale: super::MANY_RUNS_SCALE,
    run: |run| {
        let mut report = described(run, &loads(run, &SCHEMES)?);
        let tasks = SCHEMES.iter().flat_map(|&scheme| {
            let setup = Setup::new(scheme, run.scale, run.settings.seed);
            let memories: &[Memory] = match scheme {
                Scheme::Adaptive => &[Memory::Paper],
                _ => &[Memory::Paper, Memory::OfIndex],
            };
            memories.iter().flat_map(move |&memory| {
                let short = |workload: &Workload| Task {
                    workload: workload.at_with(setup.scale, memory),
                    warm_up: None,
                    begin: Begin::Rest,
                    setup: setup.clone(),
                };
                [
                    short(&Workload::YCSB[2]),
                    short(&Workload::BREAKDOWN[3]),
                    steady_task_with(&setup, &Workload::YCSB[0], memory),
                    steady_task_with(&setup, &Workload::YCSB[2], memory),
                ]
            })
        });
        run_tasks(run, tasks.collect())?.iter().for_each(|ran| rows(&mut report, ran));
        Ok(report)
    },
};

/// Adaptive, and Adaptive without each technique that `hhzs/ablation` leaves in.
const TECHNIQUES: [Scheme; 5] = [
    Scheme::Adaptive,
    Scheme::Without(Term::KeptCopies),
    Scheme::Without(Term::FollowedRecords),
    Scheme::Without(Term::IdlePromotion),
    Scheme::Without(Term::RequestOrder),
];

pub(in crate::experiment) const TECHNIQUES_OF_OURS: Experiment = Experiment {
    id: "hhzs/techniques",
    title: "Adaptive without kept copies, records that follow compactions, idle promotion, and the order of requests",
    description: "YCSB A and C with debt and after rest, and A, B and C once they went on for half a get to a pair: with and without updates.",
    default_scale: super::MANY_LOADS_SCALE,
    run: |run| {
        let mut report = described(run, &loads(run, &TECHNIQUES)?);
        let tasks = TECHNIQUES.iter().flat_map(|&scheme| {
            let setup = Setup::new(scheme, run.scale, run.settings.seed);
            let short = |workload: &Workload, begin| Task {
                workload: workload.at(setup.scale),
                warm_up: None,
                begin,
                setup: setup.clone(),
            };
            let [a, b, c] = [Workload::YCSB[0], Workload::YCSB[1], Workload::YCSB[2]];
            let mut tasks = Vec::new();
            for begin in [Begin::Debt, Begin::Rest] {
                tasks.extend([short(&a, begin), short(&c, begin)]);
            }
            tasks.extend([a, b, c].map(|workload| steady_task(&setup, &workload)));
            tasks
        });
        let all: Vec<Arc<Ran>> = run_tasks(run, tasks.collect())?;
        for ran in &all {
            rows(&mut report, ran);
            if ran.task.warm_up.is_none() {
                let workload = ran.task.workload.workload.name;
                let what = if ran.task.begin == Begin::Rest { " after rest" } else { "" };
                let metric = format!("{workload}{what}: p99.9 of reads (full size)");
                ours(&mut report, &ran.name(), &metric, "ms", ran.read_millis(0.999));
            }
        }
        Ok(report)
    },
};
