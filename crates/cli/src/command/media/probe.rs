//! `varve media probe`

use crate::arguments::spec_parser;
use crate::console::Console;
use crate::failure::{Failure, Status};
use serde_json::json;
use std::fs::File;
use std::path::PathBuf;
use varve::Spec;
use varve::media::hole_bytes;
use varve::media::probe::{Pattern, Probe};
use varve::spec::ByteSize;
use varve::stack::{StackBuilder, StackDevice};

/// Requests in flight, each with a thread of its own.
const DEPTH_MAX: u32 = 1024;

/// Measure a device with jobs of equal requests, as fio does
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve media probe disk:100GB                     all patterns, in virtual time
  varve media probe 'nvme:?model=zn540' -p random-read --depth 32
  varve media probe dev:/dev/sdb -p sequential-read -p random-read
  varve media probe 'dev:/tmp/image?size=1GiB' --overwrite

On media whose bytes last, patterns that write are left out unless --overwrite allows them: they
destroy the data on the medium. Holes of a sparse file are never read from the medium; a warning
says so if a pattern reads some.")]
pub(crate) struct ProbeDevice {
    /// The medium
    #[arg(value_parser = spec_parser())]
    spec: Spec,
    /// What to do [default: all]
    #[arg(short, long = "pattern", value_enum)]
    patterns: Vec<PatternName>,
    /// Bytes of a request [default: 1MiB sequential, 4KiB random and synced]
    #[arg(short, long, value_name = "SIZE")]
    block: Option<ByteSize>,
    /// Requests in flight
    #[arg(short, long, default_value_t = 1)]
    depth: u32,
    /// Requests in all [default: 1024 sequential, 1000 random and synced]
    #[arg(short = 'n', long)]
    requests: Option<u64>,
    /// Part of the device to use, from its beginning [default: all]
    #[arg(long, value_name = "SIZE")]
    region: Option<ByteSize>,
    /// Seed of the random patterns
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write to media whose bytes last; what they hold is destroyed
    #[arg(long)]
    overwrite: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PatternName {
    /// One behind the other
    SequentialRead,
    /// One behind the other, and a sync at the end
    SequentialWrite,
    /// At random places
    RandomRead,
    /// At random places, and a sync at the end
    RandomWrite,
    /// One behind the other, each followed by a sync, as a log does
    SyncedWrite,
}

impl PatternName {
    fn pattern(self) -> Pattern {
        match self {
            PatternName::SequentialRead => Pattern::SequentialRead,
            PatternName::SequentialWrite => Pattern::SequentialWrite,
            PatternName::RandomRead => Pattern::RandomRead,
            PatternName::RandomWrite => Pattern::RandomWrite,
            PatternName::SyncedWrite => Pattern::SyncedWrite,
        }
    }

    fn name(self) -> &'static str {
        match self {
            PatternName::SequentialRead => "sequential-read",
            PatternName::SequentialWrite => "sequential-write",
            PatternName::RandomRead => "random-read",
            PatternName::RandomWrite => "random-write",
            PatternName::SyncedWrite => "synced-write",
        }
    }

    fn writes(self) -> bool {
        !matches!(self, PatternName::SequentialRead | PatternName::RandomRead)
    }
}

impl ProbeDevice {
    pub(crate) fn run(&self, console: &mut Console) -> Result<Status, Failure> {
        if self.depth == 0 || self.depth > DEPTH_MAX {
            let found = self.depth;
            return Err(Failure::usage(format!("--depth: expected at least 1 and at most {DEPTH_MAX}, found {found}")));
        }
        let env = self.spec.suitable_env(self.seed);
        let devices = StackBuilder::new(&env).devices(&self.spec)?;
        let mut sparse = self.spec.paths();
        for device in &devices {
            let keeps_bytes = device.description().keeps_bytes();
            let patterns = self.chosen(keeps_bytes, console)?;
            let probes = patterns.into_iter().map(|pattern| Ok((pattern, self.probe(pattern, device)?)));
            let probes = probes.collect::<Result<Vec<_>, Failure>>()?;
            if !console.json {
                console
                    .line("pattern            block  depth        MB/s   requests/s   mean us    p50 us    p99 us")?;
            }
            for (pattern, probe) in probes {
                if !pattern.writes() && !env.is_virtual() {
                    self.warn_of_holes(pattern, probe.region.end, &mut sparse, console);
                }
                let progress = console.progress().count(Some(probe.requests), "requests").named(pattern.name());
                let block = device.device().block.clone();
                // The clock of an emulated device in virtual time would notice being asked.
                let busy = match env.is_virtual() {
                    true => progress.busy(pattern.name()),
                    false => progress.watch(move || {
                        let counters = block.counters();
                        counters.reads + counters.writes
                    }),
                };
                let result = probe.run(&env, &device.device().block).map_err(varve::Error::from);
                drop(busy);
                let result = result?;
                let (rate, requests) = (result.bytes_per_second() / 1e6, result.requests_per_second());
                let mean = result.mean_latency_nanos();
                let (median, high) = (result.latency_nanos(50), result.latency_nanos(99));
                if console.json {
                    console.json(&json!({
                        "device": device.description().name, "pattern": pattern.name(),
                        "request_bytes": probe.request_bytes, "depth": probe.depth, "requests": result.requests,
                        "bytes": result.bytes, "elapsed_nanos": result.elapsed_nanos,
                        "bytes_per_second": result.bytes_per_second(), "requests_per_second": requests,
                        "mean_nanos": mean, "p50_nanos": median, "p99_nanos": high,
                        "virtual_time": env.is_virtual(),
                    }))?;
                } else {
                    let [mean, median, high] = [mean, median, high].map(|nanos| nanos as f64 / 1e3);
                    console.line(format!(
                        "{:<16} {:>7} {:>6} {rate:>11.1} {requests:>12.1} {mean:>9.1} {median:>9.1} {high:>9.1}",
                        pattern.name(),
                        ByteSize(probe.request_bytes).to_string(),
                        probe.depth
                    ))?;
                    console.flush()?;
                }
            }
        }
        Ok(Status::Done)
    }

    /// Warns if `pattern` reads holes in the first `region_bytes` of one of the files in `unreported`, and removes that file from it.
    fn warn_of_holes(&self, pattern: PatternName, region_bytes: u64, unreported: &mut Vec<PathBuf>, console: &Console) {
        unreported.retain(|path| {
            // Other faults of the file are for the probe to report.
            let Ok(bytes @ 1..) = File::open(path).and_then(|file| hole_bytes(file, region_bytes)) else { return true };
            let (path, name, holes, region) =
                (path.display(), pattern.name(), ByteSize(bytes), ByteSize(region_bytes));
            console.warn(format!(
                "{path}: {name} reads holes: {holes} of {region} were never written, and reading them does not reach the \
                 medium; write the file in full first, as with --pattern sequential-write --overwrite"
            ));
            false
        });
    }

    /// The patterns to run on a device.
    fn chosen(&self, keeps_bytes: bool, console: &Console) -> Result<Vec<PatternName>, Failure> {
        use clap::ValueEnum;
        let refused = |pattern: &PatternName| pattern.writes() && keeps_bytes && !self.overwrite;
        if let Some(pattern) = self.patterns.iter().find(|pattern| refused(pattern)) {
            let message = format!("{} destroys what {} holds; --overwrite allows it", pattern.name(), self.spec);
            return Err(Failure::usage(message));
        }
        if !self.patterns.is_empty() {
            return Ok(self.patterns.clone());
        }
        let (left_out, chosen): (Vec<PatternName>, Vec<PatternName>) =
            PatternName::value_variants().iter().partition(|pattern| refused(pattern));
        if !left_out.is_empty() {
            console.note("patterns that write are left out; --overwrite allows them");
        }
        Ok(chosen)
    }

    fn probe(&self, pattern: PatternName, device: &StackDevice) -> Result<Probe, Failure> {
        let sequential = matches!(pattern, PatternName::SequentialRead | PatternName::SequentialWrite);
        let geometry = device.geometry();
        let sector_bytes = u64::from(geometry.sector_bytes);
        let request_bytes =
            self.block.map_or(if sequential { 1 << 20 } else { sector_bytes.max(4096) }, |block| block.0);
        let region_bytes = self.region.map_or(geometry.capacity_bytes, |region| region.0);
        if region_bytes > geometry.capacity_bytes {
            let (found, most) = (ByteSize(region_bytes), ByteSize(geometry.capacity_bytes));
            return Err(Failure::usage(format!("--region: expected at most {most}, the whole device, found {found}")));
        }
        if request_bytes == 0
            || !request_bytes.is_multiple_of(sector_bytes)
            || request_bytes > region_bytes.min(1 << 30)
        {
            return Err(Failure::usage(format!(
                "--block {}: a multiple of the sector ({sector_bytes} bytes), at most 1GiB and the region of {region_bytes} bytes",
                ByteSize(request_bytes)
            )));
        }
        Ok(Probe {
            pattern: pattern.pattern(),
            request_bytes,
            depth: self.depth.clamp(1, 1024),
            requests: self.requests.unwrap_or(if sequential { 1024 } else { 1000 }),
            region: 0..region_bytes,
            seed: self.seed,
        })
    }
}
