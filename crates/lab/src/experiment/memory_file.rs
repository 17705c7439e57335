//! `memory/file`: resident memory beside the budget that was configured.

use super::{Experiment, Run, Scale, emulated};
use crate::bench::{Bench, WorkloadName};
use crate::error::LabError;
use crate::host;
use crate::report::{Report, Row, format_bytes};
use crate::workload::{DbBenchKind, DbBenchOptions};
use std::path::PathBuf;
use varve::Options;
use varve::env::Env;

/// Pairs at full scale.
const NUM: u64 = 4_000_000;

/// Bytes of a value.
const VALUE_BYTES: usize = 1024;

/// Where the stores are made, below the current directory.
const DIRECTORY: &str = "varve-lab-memory";

/// What a store goes through, one after the other in one process.
const WORKLOADS: [DbBenchKind; 5] = [
    DbBenchKind::FillRandom,
    DbBenchKind::Overwrite,
    DbBenchKind::ReadRandom,
    DbBenchKind::ReadWhileWriting,
    DbBenchKind::ReadSeq,
];

pub(super) const LARGE_BUFFERS: Experiment = Experiment {
    id: "memory/buffers",
    title: "resident memory beside large write buffers and a small block cache",
    description: "fillrandom, overwrite, readrandom, readwhilewriting and readseq, one after the other in one process, \
                  on a directory varve-lab-memory below the current one, made and removed again; 4 million pairs of 16 \
                  + 1024 bytes at full scale; three write buffers of 64 MiB and a block cache of 32 MiB. The budget is \
                  every write buffer and the block cache, nothing else; rows give resident memory at the end of a phase \
                  and its peak during it as shares of that. Scale shrinks the data only. Run it alone: what an \
                  experiment before it left in the process counts too.",
    default_scale: Scale::one_in(4),
    run: |run| measure(run, &options(64 << 20, 3, 32 << 20)),
};

pub(super) const LARGE_CACHE: Experiment = Experiment {
    id: "memory/cache",
    title: "resident memory beside small write buffers and a large block cache",
    description: "The same as memory/buffers with two write buffers of 16 MiB and a block cache of 512 MiB.",
    default_scale: Scale::one_in(4),
    run: |run| measure(run, &options(16 << 20, 2, 512 << 20)),
};

fn options(write_buffer_size: usize, max_write_buffer_number: usize, block_cache_capacity: usize) -> Options {
    Options { write_buffer_size, max_write_buffer_number, block_cache_capacity, ..Options::default() }
}

fn measure(run: &Run<'_>, options: &Options) -> Result<Report, LabError> {
    let mut report = run.report();
    report.condition("machine", host::description());
    report.condition("pairs", run.scale.of(NUM));
    let budget_bytes = options.write_buffer_size * options.max_write_buffer_number + options.block_cache_capacity;
    report.condition("budget", format_bytes(budget_bytes as u64));
    let bench = Bench {
        workloads: WORKLOADS.into_iter().map(WorkloadName::DbBench).collect(),
        options: DbBenchOptions {
            num: run.scale.of(NUM),
            reads: Some(run.scale.of(NUM)),
            value_size: VALUE_BYTES,
            seed: run.settings.seed,
            ..DbBenchOptions::default()
        },
        verify: run.settings.verify,
        ..Bench::default()
    };
    let directory = PathBuf::from(DIRECTORY);
    host::remove_directory(&directory)?;
    let env = Env::real();
    let before = host::memory().map_or(0, |memory| memory.resident_bytes);
    report.condition("resident before", format_bytes(before));
    let target = emulated::open(&env, &format!("file:{DIRECTORY}"), options)?;
    let phases = bench.run(&env, &target, &run.settings.progress);
    drop(target);
    host::remove_directory(&directory)?;
    for phase in phases? {
        let share = |bytes: Option<u64>| bytes.map_or(f64::NAN, |bytes| bytes as f64 / budget_bytes as f64);
        let memory = phase.memory;
        let resident = share(memory.map(|memory| memory.resident_bytes));
        let peak = share(memory.map(|memory| memory.peak_bytes));
        report.rows.push(Row::new(&phase.name, "resident / budget", "1", resident));
        report.rows.push(Row::new(&phase.name, "peak / budget", "1", peak));
    }
    Ok(report)
}
