//! What schemes come to when a workload goes on.

use super::fig2::described;
use super::fig5::plot;
use super::load::loads;
use super::runs::{Begin, Ran, Task, run_tasks};
use super::scheme::Scheme;
use super::settings::{DISK_READ_SECONDS, PAIR_BYTES, PAIRS, SSD_ZONE_BYTES, SSD_ZONES, Setup};
use super::similarity::Popularity;
use super::workload::{PAIRS_OF_BLOCK, ScaledWorkload, Workload};
use crate::experiment::Experiment;
use crate::experiment::comparison::ours;
use crate::media::IoClass;
use std::sync::Arc;

/// Gets to a pair before it is measured, and while it is, in tenths.
const WARM_UP_TENTHS: u64 = 5;
const MEASURED_TENTHS: u64 = 1;

/// A pair that is kept alone, with what is said of it beside it.
const RECORD_COPY_BYTES: u64 = PAIR_BYTES + 64;

/// B1 to B4, AUTO, HHZS and ours.
const SCHEMES: [Scheme; 7] = [
    Scheme::Basic(1),
    Scheme::Basic(2),
    Scheme::Basic(3),
    Scheme::Basic(4),
    Scheme::Auto,
    Scheme::Hhzs,
    Scheme::Adaptive,
];

/// Of C with 20 zones of the best blocks, known beforehand, and with tables alone, in operations a second.
const BEST_BLOCKS: f64 = 348.0;
const BEST_TABLES: f64 = 143.0;

/// A, B, C and F.
const WORKLOADS: [Workload; 4] = [Workload::YCSB[0], Workload::YCSB[1], Workload::YCSB[2], Workload::YCSB[5]];

/// A workload with so many tenths of a get to a pair.
fn lasting(workload: &Workload, tenths: u64) -> Workload {
    Workload { operations: PAIRS / 10 * tenths * 100 / workload.reads_percent, ..*workload }
}

/// A workload once it went on for long.
pub(super) fn steady_task(setup: &Setup, workload: &Workload) -> Task {
    Task {
        workload: ScaledWorkload::long(&lasting(workload, MEASURED_TENTHS), setup.scale),
        warm_up: Some(ScaledWorkload::long(&lasting(workload, WARM_UP_TENTHS), setup.scale)),
        begin: Begin::Rest,
        setup: setup.clone(),
    }
}

/// Operations a second of C if the drive had nothing but the records that are asked for most, known beforehand, in all of its zones.
fn best_records() -> f64 {
    let records = SSD_ZONES * SSD_ZONE_BYTES / RECORD_COPY_BYTES;
    let missed = 1.0 - Popularity::new(PAIRS, 0.9, PAIRS_OF_BLOCK).share_of_first(records as f64);
    1.0 / (missed * DISK_READ_SECONDS)
}

pub(in crate::experiment) const STEADY: Experiment = Experiment {
    id: "hhzs/steady",
    title: "throughput of YCSB A, B, C and F once they went on for long",
    description: "On what the loads left after rest, half a get to a pair to warm up, and a tenth measured. Gets and puts are those of \
                  the full size divided by the scale; the cache has the full size's share of hits.",
    default_scale: super::MANY_RUNS_SCALE,
    run: |run| {
        let mut report = described(run, &loads(run, &SCHEMES)?);
        let tasks = SCHEMES.iter().flat_map(|&scheme| {
            let setup = Setup::new(scheme, run.scale, run.settings.seed);
            WORKLOADS.map(|workload| steady_task(&setup, &workload))
        });
        let all: Vec<Vec<Arc<Ran>>> = run_tasks(run, tasks.collect())?.chunks(4).map(<[_]>::to_vec).collect();
        for ran in all.iter().flatten() {
            let (scheme, name) = (ran.task.setup.scheme.name(), ran.task.workload.workload.name);
            ours(&mut report, &scheme, &format!("{name}: throughput (full size)"), "op/s", ran.throughput());
            ours(&mut report, &scheme, &format!("{name}: disk reads to a get"), "1", ran.disk_reads());
            let cached =
                (ran.to.stored("user reads of cached blocks") - ran.from.stored("user reads of cached blocks")) as f64;
            ours(
                &mut report,
                &scheme,
                &format!("{name}: reads of cached blocks to a get"),
                "1",
                cached / ran.task.workload.reads.max(1) as f64,
            );
            // Since the warm-up began: what was admitted, and what became of it.
            for count in
                ["blocks cached", "cached blocks written again", "evicted blocks dropped", "cache zones given up"]
            {
                let metric = format!("{name}: {count} with the warm-up");
                ours(&mut report, &scheme, &metric, "1", ran.to.stored(count) as f64);
            }
            let gets = ran.task.workload.workload.reads_percent as f64 / 100.0;
            let lone = 1.0 / (ran.disk_reads() * gets * DISK_READ_SECONDS).max(1e-9);
            ours(&mut report, &scheme, &format!("{name}: throughput if disk reads of 8.70 ms were all"), "op/s", lone);
            let class = IoClass::Maintenance.index();
            let moved = ran.to.disk.read_bytes_by_class[class] - ran.from.disk.read_bytes_by_class[class];
            ours(&mut report, &scheme, &format!("{name}: read of the disk for migration"), "B", moved as f64);
        }
        ours(&mut report, "bound", "C: 20 zones of the best blocks, known beforehand", "op/s", BEST_BLOCKS);
        ours(&mut report, "bound", "C: 20 zones of the best tables", "op/s", BEST_TABLES);
        ours(&mut report, "bound", "C: 20 zones of the best records, known beforehand", "op/s", best_records());
        report.plots.push(plot("throughput", "YCSB once it went on for long", &all));
        Ok(report)
    },
};
