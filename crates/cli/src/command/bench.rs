//! `varve bench`

use crate::arguments::{Global, Making, spec_parser};
use crate::console::Console;
use crate::failure::{Failure, Status};
use crate::report::human_bytes;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use varve::env::Env;
use varve::spec::ByteSize;
use varve::{Options, ReadOptions, Spec};
use varve_lab::bench::{Bench, WorkloadName, phase_plots};
use varve_lab::report::Report;
use varve_lab::runner::{Finish, PhaseResult};
use varve_lab::target::{Durability, Target, VarveTarget};
use varve_lab::workload::DbBenchOptions;

/// Threads of one benchmark.
const THREADS_MAX: usize = 4096;

/// Bytes of one batch; all its pairs are in memory at once. One pair may be of any size.
const BATCH_BYTES_MAX: usize = 5 << 30;

/// Measure workloads on a medium: throughput, latencies, amplification, device counters
#[derive(Debug, clap::Args)]
#[command(after_help = after_help())]
pub(crate) struct BenchCommand {
    /// Medium: a path, or a spec such as disk:10GB ('varve media list' shows all)
    #[arg(value_name = "DB", value_parser = spec_parser())]
    spec: Spec,
    /// What to run, in this order [default: fillrandom readrandom seekrandom]
    #[arg(value_name = "WORKLOAD")]
    workloads: Vec<WorkloadName>,
    /// Pairs
    #[arg(short = 'n', long, default_value_t = 1_000_000)]
    num: u64,
    /// Operations of workloads that read, and of YCSB [default: --num]
    #[arg(long)]
    reads: Option<u64>,
    /// Bytes of a key
    #[arg(long, default_value_t = 16)]
    key_size: usize,
    /// Bytes of a value
    #[arg(long, value_name = "SIZE", default_value = "1KiB")]
    value_size: ByteSize,
    /// Pairs written at once
    #[arg(long, default_value_t = 1)]
    batch_size: usize,
    /// Pairs visited after each seek of seekrandom
    #[arg(long, default_value_t = 10)]
    seek_nexts: u64,
    /// Size of values after compression, as a share
    #[arg(long, default_value_t = 0.5)]
    compression_ratio: f64,
    /// Threads
    #[arg(short, long, default_value_t = 1)]
    threads: usize,
    /// End each workload after so many seconds
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
    /// Operations per second, all threads together [default: as fast as they can]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Operations before measuring
    #[arg(long, default_value_t = 0)]
    warmup: u64,
    /// Wait for stable media after every write
    #[arg(long)]
    sync: bool,
    /// Verify every value read
    #[arg(long)]
    verify: bool,
    /// Do not wait, and do not count, until compactions are done after each workload
    #[arg(long)]
    no_wait: bool,
    /// Everything random follows from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write JSON, text and SVG plots into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run on a database that holds something; what it holds changes
    #[arg(long)]
    use_existing: bool,
    #[command(flatten)]
    making: Making,
    /// Wall-clock time, as the devices would take it, instead of virtual time
    #[arg(long)]
    real_time: bool,
}

fn after_help() -> String {
    let mut text = "\
Examples:
  varve bench disk:10GB fillrandom readrandom      an emulated disk, in virtual time
  varve bench /tmp/bench fillseq overwrite --threads 2
  varve bench nvme:10GB ycsb-a ycsb-e --num 100000
  varve bench 'disk:10GB?model=st8000as0022' --json
  varve bench disk:10GB fillrandom --out results   SVG plots and JSON in results/

On emulated media time is virtual: the same seed gives the same numbers on every machine, and hours
of disk time pass in minutes. A workload that needs data loads it first if the database holds
none of its keys. A database that already holds something is refused, because workloads change it;
--use-existing allows that.

Workloads:
"
    .to_owned();
    for workload in WorkloadName::all() {
        text.push_str(&format!("  {:<18} {}\n", workload.to_string(), workload.summary()));
    }
    text
}

/// What has to be known of a phase whose reads found less than half of their keys.
fn hardly_found(phase: &PhaseResult) -> Option<String> {
    let read = phase.kind("read")?;
    let wanted = !phase.name.starts_with("readmissing") && read.found.saturating_mul(2) < read.operations;
    wanted.then(|| {
        format!("{}: {} of {} reads found a value; the others cost less", phase.name, read.found, read.operations)
    })
}

/// Where so many bytes of data lie whole in memory, so that a benchmark of them measures that; none when nowhere.
/// `page_cache_bytes` is what the system keeps of files, if they go through it.
fn held_in_memory(data_bytes: u64, options: &Options, page_cache_bytes: Option<u64>) -> Option<String> {
    let data = human_bytes(ByteSize(data_bytes));
    let places = [
        ("a memtable", options.write_buffer_size as u64, "they were not even flushed"),
        ("the block cache", options.block_cache_capacity as u64, "reads after the first do not reach the medium"),
        (
            "the memory of this machine",
            page_cache_bytes.unwrap_or(0),
            "the system keeps them there, and reads do not reach the medium (-o use_direct_reads=true passes it by)",
        ),
    ];
    let (place, bytes, so) = places.into_iter().find(|(_, bytes, _)| data_bytes <= *bytes)?;
    let least = places_most(options, page_cache_bytes);
    let (bytes, least) = (human_bytes(ByteSize(bytes)), human_bytes(ByteSize(least)));
    Some(format!("{data} of data fit in {place} ({bytes}): {so}; more than {least} fit in none, see --num"))
}

/// The largest of the places [`held_in_memory`] knows.
fn places_most(options: &Options, page_cache_bytes: Option<u64>) -> u64 {
    let own = (options.write_buffer_size as u64).max(options.block_cache_capacity as u64);
    own.max(page_cache_bytes.unwrap_or(0))
}

impl BenchCommand {
    pub(crate) fn run(&self, global: &Global, console: &mut Console) -> Result<Status, Failure> {
        let workloads = match self.workloads.as_slice() {
            [] => {
                ["fillrandom", "readrandom", "seekrandom"].iter().map(|name| name.parse()).collect::<Result<_, _>>()?
            }
            chosen => chosen.to_vec(),
        };
        let value_size = usize::try_from(self.value_size.0).ok().filter(|size| *size <= varve::VALUE_BYTES_MAX);
        let Some(value_size) = value_size else {
            return Err(Failure::usage(format!("--value-size: at most {} bytes", varve::VALUE_BYTES_MAX)));
        };
        // Each holds a session and a buffer, and real ones a stack.
        if self.threads > THREADS_MAX {
            return Err(Failure::usage(format!("--threads: expected at most {THREADS_MAX}, found {}", self.threads)));
        }
        if self.key_size > varve::KEY_BYTES_MAX {
            let (most, found) = (varve::KEY_BYTES_MAX, self.key_size);
            return Err(Failure::usage(format!("--key-size: expected at most {most} bytes, found {found}")));
        }
        if self.batch_size.saturating_mul(value_size + self.key_size) > BATCH_BYTES_MAX {
            let found = self.batch_size;
            return Err(Failure::usage(format!(
                "--batch-size: expected pairs of at most {} together, found {found} pairs of {} bytes",
                ByteSize(BATCH_BYTES_MAX as u64),
                value_size + self.key_size
            )));
        }
        let duration = self.duration.map(Duration::try_from_secs_f64).transpose();
        let duration = duration.map_err(|error| Failure::usage(format!("--duration: {error}")))?;
        let bench = Bench {
            workloads,
            options: DbBenchOptions {
                num: self.num,
                reads: self.reads,
                key_size: self.key_size,
                value_size,
                batch_size: self.batch_size,
                seek_nexts: self.seek_nexts,
                compression_ratio: self.compression_ratio,
                durability: if self.sync { Durability::Synced } else { Durability::Buffered },
                seed: self.seed,
                ..DbBenchOptions::default()
            },
            threads: self.threads,
            duration,
            operations_per_second: self.rate,
            warmup_operations: self.warmup,
            finish: if self.no_wait { Finish::AtOnce } else { Finish::Idle },
            verify: self.verify,
            ..Bench::default()
        };
        let env = if self.real_time { Env::real() } else { self.spec.suitable_env(self.seed) };
        let mut report = Report::new("bench", format!("workloads on {}", self.spec), 1, self.seed);
        bench.describe(&mut report);
        report.condition("medium", &self.spec);
        report.condition("time", if env.is_virtual() { "virtual" } else { "wall clock" });
        let options = global.options(&self.spec)?;
        self.making.allow(&self.spec, console)?;
        let target = VarveTarget::open(&env, &self.spec, options.clone())?;
        if !self.use_existing {
            let mut walk = target.varve().cursor(&ReadOptions::default())?;
            walk.seek_to_first();
            walk.status()?;
            if walk.valid() {
                let spec = &self.spec;
                return Err(Failure::usage(format!("{spec} holds data; --use-existing lets the workloads change it")));
            }
        }
        for device in target.varve().stack().devices() {
            report.condition(&format!("device {}", device.role().name()), &device.description().summary);
        }
        let in_memory = {
            let stack = target.varve().stack();
            let logs = stack.logs().unwrap_or(stack.files());
            let effective = options.on_stores(stack.files().properties(), logs.properties());
            let is_cached = stack.devices().is_empty() && !options.use_direct_reads;
            let page_cache_bytes = varve_lab::host::machine_memory_bytes().filter(|_| is_cached);
            let data_bytes = self.num.saturating_mul((value_size + self.key_size) as u64);
            held_in_memory(data_bytes, &effective, page_cache_bytes)
        };
        let target: Arc<dyn Target> = Arc::new(target);
        let progress = console.lab_progress();
        let phases = bench.run(&env, &target, &progress)?;
        report.plots = phase_plots(&phases, &self.spec.to_string());
        let scheme = target.name().to_owned();
        report.notes.extend(phases.iter().filter_map(hardly_found));
        report.notes.extend(in_memory);
        phases.into_iter().for_each(|phase| report.add_phase(&scheme, phase));
        console.report(&report, self.out.as_deref())?;
        Ok(Status::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_in_memory_is_told_by_the_first_place_it_fits_in() {
        let options = Options { write_buffer_size: 1 << 20, block_cache_capacity: 8 << 20, ..Options::default() };
        for (data_bytes, page_cache_bytes, expected) in [
            (1 << 20, None, Some("1.0 MiB of data fit in a memtable (1.0 MiB)")),
            (2 << 20, None, Some("fit in the block cache (8.0 MiB)")),
            (9 << 20, None, None),
            (9 << 20, Some(1 << 30), Some("fit in the memory of this machine (1.0 GiB)")),
            (2 << 30, Some(1 << 30), None),
        ] {
            let told = held_in_memory(data_bytes, &options, page_cache_bytes);
            match expected {
                Some(expected) => assert!(told.as_ref().is_some_and(|told| told.contains(expected)), "{told:?}"),
                None => assert_eq!(told, None),
            }
        }
    }
}
