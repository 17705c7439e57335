//! Figure 7: what the disk does without a store.

use super::floor::{self, BLOCK_BYTES, DISK};
use super::settings::SEQUENTIAL_BYTES;
use crate::error::LabError;
use crate::experiment::comparison::{drawn, ours, words};
use crate::experiment::emulated::bare;
use crate::experiment::{Experiment, Run, Scale, simulate};
use crate::media::ZoneId;
use crate::media::probe::{Pattern, Probe};
use crate::report::{Axis, Bars, Figure, Plot, format_bytes};

/// "Two block sizes (4 KB and 1 MB) were used".
const BLOCKS: [u64; 2] = [BLOCK_BYTES, 1 << 20];

/// Largest request of Linux' write-back (`max_sectors_kb`, the default), and how many are under way at once.
const WRITEBACK_BYTES: u64 = 512 << 10;
const WRITEBACK_DEPTH: u32 = 31;

/// The disk, written anywhere.
const CONVENTIONAL: &str = "disk";

/// The same disk in bands.
const BANDED: (&str, &str) = ("disk in bands", "smr:3TB?model=barracuda-3tb,backing=none");

/// How the blocks are written.
#[derive(Clone, Copy)]
struct Job {
    name: &'static str,
    pattern: Pattern,
    /// Whether the kernel's cache collects them.
    is_buffered: bool,
}

const JOBS: [Job; 3] = [
    Job { name: "direct", pattern: Pattern::SequentialWrite, is_buffered: false },
    Job { name: "buffered", pattern: Pattern::SequentialWrite, is_buffered: true },
    Job { name: "buffered, each synced", pattern: Pattern::SyncedWrite, is_buffered: false },
];

pub(in crate::experiment) const FIG_7: Experiment = Experiment {
    id: "smrdb/fig7",
    title: "SMRDB, figure 7: sequential writes to the raw disk, and what a synced append costs on it",
    description: "Writes 10 GB in order in blocks of 4 KiB and 1 MiB: directly, through the kernel's cache (requests of 512 KiB, 31 \
                  at once) and with a sync behind each block; on the disk, and on the same disk in bands. Then the floors \
                  of a synced put: one append and flush, and the requests of ext4 for one. Scale divides the number of \
                  blocks; the disk is in full.",
    default_scale: Scale::one_in(16),
    run: |run| {
        let mut report = run.report();
        report.condition("medium", DISK);
        report.condition("medium in bands", BANDED.1);
        report.condition("bytes of a job", format_bytes(run.scale.of(SEQUENTIAL_BYTES)));
        report.notes.push(
            "The figure has each job with the default and with a tuned I/O scheduler; processor time of the kernel is not \
             modelled, so ours stand for both."
                .to_owned(),
        );
        run.settings.progress.begin("writing to the raw disk", None);
        let mut series = vec![(CONVENTIONAL.to_owned(), Vec::new()), (BANDED.0.to_owned(), Vec::new())];
        let mut groups = Vec::new();
        for block_bytes in BLOCKS {
            for job in JOBS {
                let metric = format!("{}, {}", format_bytes(block_bytes), job.name);
                for (values, (scheme, spec)) in series.iter_mut().zip([(CONVENTIONAL, DISK), BANDED]) {
                    // Requests that overtake each other are no way to write to a band.
                    let rate = match (job.is_buffered, scheme == CONVENTIONAL) {
                        (true, false) => None,
                        _ => Some(write(run, spec, job, block_bytes)? / 1e6),
                    };
                    if let Some(rate) = rate {
                        drawn(&mut report, scheme, &metric, "MB/s", rate);
                    }
                    values.1.push(rate);
                }
                groups.push(metric);
            }
        }
        let conventional = &series[0].1;
        for (place, block_bytes) in BLOCKS.into_iter().enumerate() {
            let [direct, buffered, synced] =
                [0, 1, 2].map(|job| conventional[place * JOBS.len() + job].unwrap_or(f64::NAN));
            for (what, ratio, paper) in [
                ("buffered / direct", buffered / direct, "buffered IO outperforms direct IO"),
                (
                    "direct / each synced",
                    direct / synced,
                    "buffered IO with a sync for every IO is slower than direct IO",
                ),
            ] {
                let metric = format!("{}, {what}", format_bytes(block_bytes));
                words(&mut report, CONVENTIONAL, &metric, (ratio, "1"), paper, ratio > 1.0);
            }
        }
        let floors = floor::measure(DISK);
        run.settings.progress.end();
        let floors = floors?;
        for (metric, millis) in [
            ("8 KiB append and flush", floors.append),
            ("4 KiB append and sync of ext4, journal in the middle", floors.journaled_append),
            ("4 KiB append and sync of ext4, journal 128 MiB away", floors.journaled_append_nearby),
            ("8 KiB append, flushes not passed on", floors.unflushed_append),
            ("4 KiB append of ext4, flushes not passed on", floors.unflushed_journaled_append),
        ] {
            ours(&mut report, CONVENTIONAL, metric, "ms", millis);
        }
        report.plots.push(Plot {
            name: "writes".to_owned(),
            title: "sequential writes to the raw disk".to_owned(),
            medium: "emulated Barracuda of 3 TB, conventional and in bands".to_owned(),
            y: Axis::logarithmic("rate (MB/s)"),
            figure: Figure::Bars(Bars { groups, series }),
        });
        Ok(report)
    },
};

/// Bytes per second of a job.
fn write(run: &Run<'_>, spec: &'static str, job: Job, block_bytes: u64) -> Result<f64, LabError> {
    let bytes = run.scale.of(SEQUENTIAL_BYTES);
    let (request_bytes, depth) = match job.is_buffered {
        true => (WRITEBACK_BYTES, WRITEBACK_DEPTH),
        false => (block_bytes, 1),
    };
    simulate(run.settings.seed, move |env| {
        let device = bare(env, spec)?.block;
        let zones = device.capabilities().zones.as_ref();
        let start = zones.map_or(0, |zones| zones.start_bytes(ZoneId(zones.conventional_zones)));
        let requests = (bytes / request_bytes).max(1);
        let region = start..start + requests * request_bytes;
        let probe = Probe { pattern: job.pattern, request_bytes, depth, requests, region, seed: 1 };
        Ok(probe.run(env, &device)?.bytes_per_second())
    })
}
