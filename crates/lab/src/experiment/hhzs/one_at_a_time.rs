//! Workloads under one scheme after the other, so that no more than one load is in memory: for the full size.

use super::fig2::{described, how};
use super::fig5::told;
use super::load::loads;
use super::runs::{Begin, Task, run_tasks};
use super::scheme::Scheme;
use super::workload::Workload;
use crate::experiment::{Experiment, Run, Settings, SharedResults};

/// C of exp 1, W2 and W4 of exp 2.
const WORKLOADS: [Workload; 3] = [Workload::YCSB[2], Workload::BREAKDOWN[1], Workload::BREAKDOWN[3]];

/// Of these, with nothing left to compact.
const AFTER_REST: [Workload; 2] = [Workload::YCSB[2], Workload::BREAKDOWN[3]];

pub(in crate::experiment) const FULL: Experiment = Experiment {
    id: "hhzs/full",
    title: "C, W2 and W4 under B3, AUTO, HHZS and ours, one load in memory at a time",
    description: "For `--scale 1`, where nothing is converted: every get stands for itself. With the load's debt, C and W4 after rest \
                  too. In full it takes about half an hour of one processor and 11 GB of memory for each scheme.",
    default_scale: super::MANY_LOADS_SCALE,
    run: |run| {
        let mut report = None;
        for scheme in Scheme::COMPARED_WITH_OURS {
            let settings = Settings { shared: SharedResults::default(), ..run.settings.clone() };
            let alone = Run { settings: &settings, ..*run };
            let loaded = loads(&alone, &[scheme])?;
            let report = report.get_or_insert_with(|| described(run, &loaded));
            for loaded in &loaded {
                how(report, loaded);
                let name = format!("event hash of {}'s load", scheme.name());
                report.condition(&name, format!("{:016x}", loaded.event_hash));
                let setup = &loaded.setup;
                let task = |begin: Begin| {
                    move |workload: &Workload| Task {
                        setup: setup.clone(),
                        begin,
                        workload: workload.at(setup.scale),
                        warm_up: None,
                    }
                };
                let with_debt = WORKLOADS.iter().map(task(Begin::Debt));
                let tasks = with_debt.chain(AFTER_REST.iter().map(task(Begin::Rest)));
                run_tasks(&alone, tasks.collect())?.iter().for_each(|ran| told(report, ran));
            }
        }
        Ok(report.unwrap_or_else(|| run.report()))
    },
};
