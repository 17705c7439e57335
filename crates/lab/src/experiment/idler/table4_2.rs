//! Table 4.2: what of a workload AT-IC depends on.

use super::drive::{Control, Drive, Ran, Reading, Task, Workload, ZONE_BYTES, run_tasks};
use super::told::{described, told};
use crate::error::LabError;
use crate::experiment::comparison::compare;
use crate::experiment::{Experiment, Run, Scale};
use crate::replay::{Synthetic, Zones};
use crate::report::Report;

/// A row: what differs, interval, hundredths out of order, zones; P99.9 and finish in seconds without control and with AT-IC.
type Paper = (&'static str, u64, u64, u64, [f64; 2], [f64; 2]);

const PAPER: [Paper; 9] = [
    ("interval 20 ms", 20, 10, 1024, [12.99, 14.37], [7617.0, 8832.0]),
    ("interval 50 ms", 50, 10, 1024, [9.22, 2.56], [24559.0, 22546.0]),
    ("interval 100 ms", 100, 10, 1024, [4.32, 2.12], [40375.0, 38861.0]),
    ("10 % out of order", 100, 10, 1024, [4.32, 2.12], [40375.0, 38861.0]),
    ("20 % out of order", 100, 20, 1024, [6.78, 3.03], [22112.0, 19356.0]),
    ("40 % out of order", 100, 40, 1024, [12.32, 10.22], [11018.0, 11128.0]),
    ("8 zones", 100, 10, 8, [1.1, 2.23], [36037.0, 38066.0]),
    ("1,024 zones", 100, 10, 1024, [4.32, 2.12], [40375.0, 38861.0]),
    ("2,048 zones", 100, 10, 2048, [4.66, 2.57], [41003.0, 39230.0]),
];

pub(in crate::experiment) const TABLE_4_2: Experiment = Experiment {
    id: "idler/table4.2",
    title: "Idler, table 4.2: AT-IC <5:2> by interval, share of writes out of order, and zones",
    description: "Requests of 1 MB by 16 threads, of which 35 GB are written out of order. Scale divides zones, cache, \
                  extents and requests; times stay. Rows of both readings of the replay (docs/idler.md). Of the \
                  interval of 20 ms the text says 30; the gain at 100 ms is 47.1 % by the text and 50.9 % by the table.",
    default_scale: super::DEFAULT_SCALE,
    run: |run| table(run),
};

/// Bytes written out of order: "35 GB" are 35 GiB in the author's traces, 35,840 writes of 1 MiB.
const NON_SEQUENTIAL_BYTES: u64 = 35 << 30;

/// The workload of a row.
pub(super) fn workload(run: &Run<'_>, drive: &Drive, interval_ms: (u64, u64), percent: u64, zones: u64) -> Workload {
    workload_of(run.scale, run.settings.seed, drive, interval_ms, percent, zones)
}

/// The workload of a row, of a seed.
pub(super) fn workload_of(
    scale: Scale,
    seed: u64,
    drive: &Drive,
    interval_ms: (u64, u64),
    percent: u64,
    zones: u64,
) -> Workload {
    Workload::Synthetic(Synthetic {
        request_bytes: 1 << 20,
        interval_nanos: interval_ms.0 * 1_000_000..interval_ms.1 * 1_000_000,
        non_sequential_percent: percent,
        sequential_percent: 10,
        non_sequential_bytes: scale.of(NON_SEQUENTIAL_BYTES),
        zones: Zones { zone_bytes: ZONE_BYTES, zone_count: drive.zone_count.into(), non_sequential: scale.of(zones) },
        seed,
    })
}

fn table(run: &Run<'_>) -> Result<Report, LabError> {
    let drive = Drive::new(run.scale);
    let mut report = described(run, &drive);
    let controls = [Control::None, Control::Fixed(5000, 2000), Control::Conventional];
    let mut tasks = Vec::new();
    for (_, interval, percent, zones, ..) in PAPER {
        for reading in Reading::ALL {
            for control in controls {
                let workload = workload(run, &drive, (interval, interval), percent, zones);
                tasks.push(Task { drive: drive.clone(), control, workload, pace: reading.pace(16) });
            }
        }
    }
    let all = run_tasks(run, tasks)?;
    let rows = PAPER.iter().flat_map(|row| Reading::ALL.map(|reading| (row, reading)));
    for (((what, .., tails, finishes), reading), row) in rows.zip(all.chunks(controls.len())) {
        for (place, ran) in row.iter().enumerate() {
            let scheme = reading.scheme(ran.task.control);
            let (tail, finish) = (ran.replayed.seconds(0.999), full_finish(run, ran));
            if let (Some(&paper_tail), Some(&paper_finish)) = (tails.get(place), finishes.get(place)) {
                compare(&mut report, &scheme, &format!("{what}: P99.9"), "s", paper_tail, tail);
                compare(&mut report, &scheme, &format!("{what}: finish (full size)"), "s", paper_finish, finish);
            }
            if reading == Reading::Submission {
                told(&mut report, what, ran);
            }
        }
    }
    Ok(report)
}

/// Seconds of the full size: as many times as many requests.
pub(super) fn full_finish(run: &Run<'_>, ran: &Ran) -> f64 {
    ran.replayed.finish_nanos as f64 / 1e9 * run.scale.denominator() as f64
}
