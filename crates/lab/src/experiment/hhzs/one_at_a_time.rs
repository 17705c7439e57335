//! Workloads under one scheme at a time, so that no more than one load is in memory: for the full size.

use super::fig2::{described, how};
use super::fig5::told;
use super::load::loads;
use super::runs::{Begin, Task, run_tasks};
use super::scheme::Scheme;
use super::settings::Setup;
use super::workload::Workload;
use crate::error::LabError;
use crate::experiment::{Experiment, Run, Scale, Settings, SharedResults};
use crate::report::Report;

/// C, D and E of exp 1, W2 and W4 of exp 2.
const WITH_DEBT: [Workload; 5] =
    [Workload::YCSB[2], Workload::BREAKDOWN[3], Workload::BREAKDOWN[1], Workload::YCSB[4], Workload::YCSB[3]];

/// Of these, with nothing left to compact.
const AFTER_REST: [Workload; 4] = [Workload::YCSB[2], Workload::BREAKDOWN[3], Workload::YCSB[4], Workload::YCSB[3]];

pub(in crate::experiment) const FULL_B3: Experiment =
    alone("hhzs/full-b3", "C, D, E, W2 and W4 under B3", |run| run_alone(run, Scheme::Basic(3)));

pub(in crate::experiment) const FULL_AUTO: Experiment =
    alone("hhzs/full-auto", "C, D, E, W2 and W4 under AUTO", |run| run_alone(run, Scheme::Auto));

pub(in crate::experiment) const FULL_HHZS: Experiment =
    alone("hhzs/full-hhzs", "C, D, E, W2 and W4 under HHZS", |run| run_alone(run, Scheme::Hhzs));

pub(in crate::experiment) const FULL_OURS: Experiment =
    alone("hhzs/full-ours", "C, D, E, W2 and W4 under ours", |run| run_alone(run, Scheme::Adaptive));

const fn alone(id: &'static str, title: &'static str, run: fn(&Run<'_>) -> Result<Report, LabError>) -> Experiment {
    Experiment {
        id,
        title,
        description: "For `--scale 1`, where nothing is converted: every get stands for itself. With the load's debt, C, D, E and W4 after \
                      rest too, and E with scans that begin as ours and as RocksDB's. In full it takes about an hour of one processor \
                      and 16 GB of memory.",
        default_scale: super::MANY_RUNS_SCALE,
        run,
    }
}

fn run_alone(run: &Run<'_>, scheme: Scheme) -> Result<Report, LabError> {
    // In full the load is given back before the next experiment begins.
    let own = Settings { shared: SharedResults::default(), ..run.settings.clone() };
    let alone = Run { settings: if run.scale == Scale::FULL { &own } else { run.settings }, ..*run };
    let loaded = loads(&alone, &[scheme])?;
    let mut report = described(run, &loaded);
    for loaded in &loaded {
        how(&mut report, loaded);
        report.condition("event hash of the load", format!("{:016x}", loaded.event_hash));
        let setup = &loaded.setup;
        let otherwise = Setup { scans_begin_large: !setup.scans_begin_large, ..setup.clone() };
        let task = |begin: Begin| {
            move |workload: &Workload| Task {
                setup: setup.clone(),
                begin,
                workload: workload.at(setup.scale),
                warm_up: None,
            }
        };
        let mut tasks: Vec<Task> = WITH_DEBT.iter().map(task(Begin::Debt)).collect();
        tasks.push(Task { setup: otherwise.clone(), ..task(Begin::Debt)(&Workload::YCSB[4]) });
        tasks.extend(AFTER_REST.iter().map(task(Begin::Rest)));
        tasks.push(Task { setup: otherwise.clone(), ..task(Begin::Rest)(&Workload::YCSB[4]) });
        // One after the other, and those after rest last: in full each needs some gigabytes beside what it begins with.
        for task in tasks {
            run_tasks(&alone, vec![task])?.iter().for_each(|ran| told(&mut report, ran));
        }
    }
    Ok(report)
}
