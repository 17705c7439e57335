//! `db_bench/*`: the db_bench set on emulated media and on this machine's file system.

use super::{Experiment, Run, Scale, emulated, simulate};
use crate::bench::{Bench, WorkloadName, name_apart, phase_plots};
use crate::error::LabError;
use crate::host;
use crate::report::Report;
use crate::runner::PhaseResult;
use crate::workload::{DbBenchKind, DbBenchOptions};
use std::path::PathBuf;
use std::sync::Arc;
use varve::env::Env;

/// Keys at full scale.
const NUM: u64 = 8_000_000;

/// Reads of each reading workload at full scale.
const READS: u64 = 320_000;

/// Bytes of a value.
const VALUE_BYTES: usize = 1024;

/// Pairs read after a seek.
const SEEK_NEXTS: u64 = 10;

/// Where the store on this machine's file system is made, below the current directory.
const DIRECTORY: &str = "varve-lab-data";

/// Workloads, each list on a store of its own.
const STORES: [&[DbBenchKind]; 3] = [
    &[DbBenchKind::FillSeq, DbBenchKind::ReadSeq],
    &[DbBenchKind::FillSync],
    &[
        DbBenchKind::FillRandom,
        DbBenchKind::Overwrite,
        DbBenchKind::ReadRandom,
        DbBenchKind::ReadMissing,
        DbBenchKind::SeekRandom,
        DbBenchKind::ReadSeq,
        DbBenchKind::ReadReverse,
        DbBenchKind::ReadWhileWriting,
        DbBenchKind::DeleteRandom,
    ],
];

pub(super) const ON_DISK: Experiment = Experiment {
    id: "db_bench/disk",
    title: "the db_bench set on an emulated 7200 rpm disk",
    description: "fillseq, readseq; fillsync; fillrandom, overwrite, readrandom, readmissing, seekrandom with 10 nexts, \
                  readseq, readreverse, readwhilewriting, deleterandom; each group on a new store, 8 million pairs of \
                  16 + 1024 bytes at full scale, in virtual time. Scale shrinks counts, buffers, tables, levels and \
                  caches, but not the device.",
    default_scale: Scale::one_in(64),
    run: |run| on_emulated(run, emulated::DISK),
};

pub(super) const ON_SSD: Experiment = Experiment {
    id: "db_bench/ssd",
    title: "the db_bench set on an emulated SATA solid-state drive",
    description: "The same as db_bench/disk on a solid-state drive.",
    default_scale: Scale::one_in(64),
    run: |run| on_emulated(run, emulated::SSD),
};

pub(super) const ON_FILES: Experiment = Experiment {
    id: "db_bench/file",
    title: "the db_bench set on this machine's file system",
    description: "The same in a directory varve-lab-data below the current one, made and removed again, in real time. \
                  One run is no measurement: for medians, spread and other stores beside it use peers/db_bench.",
    default_scale: Scale::one_in(16),
    run: on_files,
};

fn bench(run: &Run<'_>, kinds: &[DbBenchKind]) -> Bench {
    Bench {
        workloads: kinds.iter().copied().map(WorkloadName::DbBench).collect(),
        options: DbBenchOptions {
            num: run.scale.of(NUM),
            reads: Some(run.scale.of(READS)),
            sync_writes: Some(run.scale.of(READS)),
            value_size: VALUE_BYTES,
            seek_nexts: SEEK_NEXTS,
            seed: run.settings.seed,
            ..DbBenchOptions::default()
        },
        verify: run.settings.verify,
        ..Bench::default()
    }
}

fn report(run: &Run<'_>, spec: &str, options: &varve::Options, mut phases: Vec<PhaseResult>) -> Report {
    name_apart(&mut phases);
    let mut report = run.report();
    emulated::describe(&mut report, spec, options);
    bench(run, &[]).describe(&mut report);
    report.plots = phase_plots(&phases, spec);
    for phase in phases {
        report.add_phase("varve", phase);
    }
    report
}

fn on_emulated(run: &Run<'_>, spec: &'static str) -> Result<Report, LabError> {
    let options = emulated::scaled_options(run.scale);
    let mut phases = Vec::new();
    for kinds in STORES {
        let (bench, options) = (bench(run, kinds), options.clone());
        let progress = Arc::clone(&run.settings.progress);
        phases.extend(simulate(run.settings.seed, move |env| {
            let target = emulated::open(env, spec, &options)?;
            bench.run(env, &target, &progress)
        })?);
    }
    Ok(report(run, spec, &options, phases))
}

fn on_files(run: &Run<'_>) -> Result<Report, LabError> {
    let options = emulated::scaled_options(run.scale);
    let directory = PathBuf::from(DIRECTORY);
    let spec = format!("file:{DIRECTORY}");
    if host::exists(&directory) {
        let reason = "is there already; remove it, or run this in another directory";
        return Err(LabError::file(DIRECTORY, reason));
    }
    let env = Env::real();
    let mut phases = Vec::new();
    for kinds in STORES {
        let target = emulated::open(&env, &spec, &options)?;
        let result = bench(run, kinds).run(&env, &target, &run.settings.progress);
        drop(target);
        host::remove_directory(&directory)?;
        phases.extend(result?);
    }
    let mut report = report(run, &spec, &options, phases);
    report.condition("machine", host::description());
    Ok(report)
}

#[cfg(test)]
mod tests {
    use crate::experiment::{Scale, Settings, run, select};

    #[test]
    fn the_set_runs_verified_on_emulated_media() {
        for id in ["db_bench/disk", "db_bench/ssd"] {
            let experiment = select(&[id.to_owned()]).unwrap()[0];
            let settings = Settings { scale: Some(Scale::one_in(8000)), verify: true, ..Settings::default() };
            let report = run(experiment, &settings).unwrap();
            let names: std::collections::BTreeSet<_> = report.phases.iter().map(|phase| &phase.name).collect();
            assert_eq!(names.len(), 12);
            assert!(report.phases.iter().all(|phase| phase.operations > 0 && phase.is_virtual));
            let missing = report.phases.iter().find(|phase| phase.name == "readmissing").unwrap();
            assert_eq!(missing.kind("read").unwrap().found, 0);
        }
    }
}
