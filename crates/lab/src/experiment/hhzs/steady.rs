//! What schemes come to when a workload goes on.

use super::fig2::described;
use super::fig5::plot;
use super::load::loads;
use super::runs::{Begin, Ran, Task, run_tasks};
use super::scheme::Scheme;
use super::settings::{DISK_READ_SECONDS, PAIRS, RECORD_COPY_BYTES, SSD_ZONE_BYTES, SSD_ZONES, Setup};
use super::similarity::{Popularity, share_of_best_blocks};
use super::workload::{Memory, PAIRS_OF_BLOCK, ScaledWorkload, TABLES, Workload};
use crate::experiment::comparison::ours;
use crate::experiment::{Experiment, Scale};
use crate::media::IoClass;
use std::sync::Arc;

/// Gets to a pair before it is measured, and while it is, in tenths.
const WARM_UP_TENTHS: u64 = 5;
const MEASURED_TENTHS: u64 = 1;

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

/// Exponent of C's Zipf.
const C_EXPONENT: f64 = 0.9;

/// Size of a block on the drive, in bytes.
const SSD_BLOCK_BYTES: u64 = 4096;

/// A, B, C and F.
const WORKLOADS: [Workload; 4] = [Workload::YCSB[0], Workload::YCSB[1], Workload::YCSB[2], Workload::YCSB[5]];

/// A workload with `tenths` tenths of a get per pair.
fn lasting(workload: &Workload, tenths: u64) -> Workload {
    Workload { operations: PAIRS / 10 * tenths * 100 / workload.reads_percent, ..*workload }
}

/// A workload in its steady state, with the paper's memory.
pub(super) fn steady_task(setup: &Setup, workload: &Workload) -> Task {
    steady_task_with(setup, workload, Memory::Paper)
}

/// A workload in its steady state, with the given memory.
pub(super) fn steady_task_with(setup: &Setup, workload: &Workload, memory: Memory) -> Task {
    let workload = setup.setting.workload(workload);
    Task {
        workload: ScaledWorkload::long(&lasting(&workload, MEASURED_TENTHS), setup.scale, memory),
        warm_up: Some(ScaledWorkload::long(&lasting(&workload, WARM_UP_TENTHS), setup.scale, memory)),
        begin: Begin::Rest,
        setup: setup.clone(),
    }
}

/// Operations per second of C if disk reads alone take time and this share of the gets needs none.
fn rate_of(answered: f64) -> f64 {
    1.0 / ((1.0 - answered) * DISK_READ_SECONDS)
}

/// Operations per second of C at a scale if all zones of the drive held the most popular records, known beforehand.
fn best_records(scale: Scale) -> f64 {
    let records = scale.of(SSD_ZONES * SSD_ZONE_BYTES / RECORD_COPY_BYTES);
    rate_of(Popularity::new(scale.of(PAIRS), C_EXPONENT, PAIRS_OF_BLOCK).share_of_first(records as f64))
}

/// The same with the most popular blocks. Records are scattered over blocks at random, as hashed keys are.
fn best_blocks(scale: Scale) -> f64 {
    let blocks = scale.of(SSD_ZONES * SSD_ZONE_BYTES / SSD_BLOCK_BYTES);
    rate_of(share_of_best_blocks(scale.of(PAIRS), C_EXPONENT, PAIRS_OF_BLOCK as u64, blocks))
}

/// The same with tables, which are equally popular when keys are scattered, behind the memory cache.
fn best_tables() -> f64 {
    let memory = Workload::YCSB[2].at(Scale::FULL).cache_hits;
    rate_of(memory + (1.0 - memory) * SSD_ZONES as f64 / TABLES)
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
        let blocks = best_blocks(run.scale);
        ours(&mut report, "bound", "C: 20 zones of the best blocks, known beforehand", "op/s", blocks);
        ours(&mut report, "bound", "C: 20 zones of the best tables", "op/s", best_tables());
        ours(
            &mut report,
            "bound",
            "C: 20 zones of the best records, known beforehand",
            "op/s",
            best_records(run.scale),
        );
        // Measured throughput and the throughput of its disk reads alone, relative to the bound.
        for ran in all.iter().flatten().filter(|ran| ran.task.workload.workload.name == "C") {
            let scheme = ran.task.setup.scheme.name();
            let lone = rate_of(1.0 - ran.disk_reads());
            ours(&mut report, &scheme, "C: throughput / 20 zones of the best blocks", "1", ran.throughput() / blocks);
            ours(&mut report, &scheme, "C: disk reads alone / 20 zones of the best blocks", "1", lone / blocks);
        }
        report.plots.push(plot("throughput", "YCSB once it went on for long", &all));
        Ok(report)
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_blocks_and_records_follow_the_scale() {
        let at = |denominator| best_blocks(Scale::one_in(denominator));
        assert!((at(128) / 321.0 - 1.0).abs() < 0.02, "{}", at(128));
        // A smaller run repeats less of what it asked for.
        assert!(at(512) < at(128) && best_records(Scale::one_in(512)) < best_records(Scale::one_in(128)));
        assert!(at(128) < best_records(Scale::one_in(128)) && best_tables() < at(128));
        assert!((best_tables() / 143.0 - 1.0).abs() < 0.02, "{}", best_tables());
    }
}
