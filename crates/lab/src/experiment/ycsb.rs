//! `ycsb/*`: YCSB Load and A to F on emulated media.

use super::{Experiment, Run, Scale, emulated, simulate};
use crate::bench::{Bench, WorkloadName, phase_plots};
use crate::error::LabError;
use crate::report::Report;
use crate::runner::Finish;
use crate::workload::{DbBenchOptions, YcsbMix};
use std::sync::Arc;

/// Records at full scale.
const RECORDS: u64 = 8_000_000;

/// Operations of each workload at full scale.
const OPERATIONS: u64 = 640_000;

/// Bytes of a value: ten fields of 100.
const VALUE_BYTES: usize = 1000;

/// Threads.
const THREADS: usize = 4;

/// YCSB's order: the workloads that insert come last.
const ORDER: [YcsbMix; 7] = [YcsbMix::Load, YcsbMix::A, YcsbMix::B, YcsbMix::C, YcsbMix::F, YcsbMix::D, YcsbMix::E];

pub(super) const ON_DISK: Experiment = Experiment {
    id: "ycsb/disk",
    title: "YCSB Load, A, B, C, F, D, E on an emulated 7200 rpm disk",
    description: "Loads 8 million records of 1000 bytes at full scale and runs 640,000 operations of each workload from \
                  four threads, in virtual time. Point reads dominate, so scale shrinks counts, buffers, tables, levels \
                  and caches, but not the device: a seek takes what it takes.",
    default_scale: Scale::one_in(64),
    run: |run| measure(run, emulated::DISK),
};

pub(super) const ON_SSD: Experiment = Experiment {
    id: "ycsb/ssd",
    title: "YCSB Load, A, B, C, F, D, E on an emulated SATA solid-state drive",
    description: "The same as ycsb/disk on a solid-state drive.",
    default_scale: Scale::one_in(64),
    run: |run| measure(run, emulated::SSD),
};

fn measure(run: &Run<'_>, spec: &'static str) -> Result<Report, LabError> {
    let options = emulated::scaled_options(run.scale);
    let seed = run.settings.seed;
    let bench = Bench {
        workloads: ORDER.map(WorkloadName::Ycsb).into(),
        options: DbBenchOptions {
            num: run.scale.of(RECORDS),
            reads: Some(run.scale.of(OPERATIONS)),
            value_size: VALUE_BYTES,
            seed,
            ..DbBenchOptions::default()
        },
        threads: THREADS,
        verify: run.settings.verify,
        finish: Finish::Idle,
        ..Bench::default()
    };
    let mut report = run.report();
    emulated::describe(&mut report, spec, &options);
    bench.describe(&mut report);
    let progress = Arc::clone(&run.settings.progress);
    let phases = simulate(seed, move |env| {
        let target = emulated::open(env, spec, &options)?;
        bench.run(env, &target, &progress)
    })?;
    report.plots = phase_plots(&phases, spec);
    for phase in phases {
        report.add_phase("varve", phase);
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use crate::experiment::{Scale, Settings, run, select};

    #[test]
    fn every_workload_runs_verified_on_both_media() {
        for experiment in select(&["ycsb/*".to_owned()]).unwrap() {
            let settings = Settings { scale: Some(Scale::one_in(8000)), verify: true, ..Settings::default() };
            let report = run(experiment, &settings).unwrap();
            let names: Vec<&str> = report.phases.iter().map(|phase| phase.name.as_str()).collect();
            assert_eq!(names, ["ycsb-load", "ycsb-a", "ycsb-b", "ycsb-c", "ycsb-f", "ycsb-d", "ycsb-e"]);
            let read = report.phases[3].kind("read").unwrap();
            assert_eq!((read.operations, read.found), (80, 80), "{}", experiment.id);
        }
    }
}
