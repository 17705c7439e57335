//! Figure 2: what the basic schemes do while pairs are loaded, and to reads.

use super::load::{Loaded, loads, loads_of};
use super::reading::{LEVELS, Reading};
use super::runs::{Begin, run_all};
use super::scheme::Scheme;
use super::settings::Setup;
use super::workload::Workload;
use crate::error::LabError;
use crate::experiment::comparison::{compare, drawn, ours};
use crate::experiment::{Experiment, Run};
use crate::media::{Counters, IoClass};
use crate::report::Report;
use std::sync::Arc;

const DESCRIPTION: &str = "Loads 200 GiB of pairs of 24 + 1,000 bytes in random order onto 20 zones of a ZN540 and a 14 TB disk, \
                           tables of levels below a number on the drive while it has an empty zone. Scale divides every size \
                           and every positioning time.";

/// "Throttle the rate of writing KV objects to 6,000 OPS".
const THROTTLED: u64 = 6000;

/// Gets of figures 2g to 2i.
const GETS: [Workload; 2] =
    [Workload::mix("gets, 0.9", 1_000_000, 100, 0.9), Workload::mix("gets, 1.2", 1_000_000, 100, 1.2)];

const fn experiment(
    id: &'static str,
    title: &'static str,
    run: fn(&Run<'_>) -> Result<Report, LabError>,
) -> Experiment {
    Experiment { id, title, description: DESCRIPTION, default_scale: super::DEFAULT_SCALE, run }
}

pub(in crate::experiment) const FIG_2A: Experiment =
    experiment("hhzs/fig2a", "HHZS, figure 2a: sizes of the levels while B4 loads", |run| {
        let all = loads(run, &[Scheme::Basic(4)])?;
        let mut report = described(run, &all);
        sizes(&mut report, &all[0], [Some(40.3), Some(29.7), Some(49.1)]);
        Ok(report)
    });

pub(in crate::experiment) const FIG_2B: Experiment =
    experiment("hhzs/fig2b", "HHZS, figure 2b: what the basic schemes write to the drive, by level", |run| {
        let all = loads(run, &Scheme::BASIC)?;
        let mut report = described(run, &all);
        all.iter().for_each(|loaded| write_shares(&mut report, loaded));
        Ok(report)
    });

pub(in crate::experiment) const FIG_2C: Experiment =
    experiment("hhzs/fig2c", "HHZS, figure 2c: throughput of the load under the basic schemes", |run| {
        let all = loads(run, &Scheme::BASIC)?;
        let mut report = described(run, &all);
        all.iter().for_each(|loaded| how(&mut report, loaded));
        let [b1, b2, b3, b4] = [0, 1, 2, 3].map(|place: usize| all[place].throughput());
        compare(&mut report, "B3", "load: hours (full size; \"about eight\")", "h", 8.0, all[2].hours());
        compare(&mut report, "B4", "load: throughput below B3", "%", 11.3, (1.0 - b4 / b3) * 100.0);
        ours(&mut report, "B2", "load: throughput above B1 (the paper's is above)", "%", (b2 / b1 - 1.0) * 100.0);
        ours(&mut report, "B3", "load: throughput above B2 (the paper's is above)", "%", (b3 / b2 - 1.0) * 100.0);
        let [on_drive, on_disk] = [0, 1].map(|place: usize| all[3].whereabouts.tables[place][3] as f64);
        compare(&mut report, "B4", "end of the load: L3 on the drive", "tables", 5.0, on_drive);
        compare(&mut report, "B4", "end of the load: L3 on the disk", "tables", 98.0, on_disk);
        Ok(report)
    });

fn throttled(run: &Run<'_>, schemes: &[Scheme]) -> Result<Vec<Arc<Loaded>>, LabError> {
    let setup = |&scheme: &Scheme| Setup {
        puts_per_second: Some(THROTTLED),
        ..Setup::new(scheme, run.scale, run.settings.seed)
    };
    loads_of(run, &schemes.iter().map(setup).collect::<Vec<_>>())
}

pub(in crate::experiment) const FIG_2D: Experiment =
    experiment("hhzs/fig2d", "HHZS, figure 2d: sizes of the levels while B4 loads 6,000 pairs a second", |run| {
        let all = throttled(run, &[Scheme::Basic(4)])?;
        let mut report = described(run, &all);
        // By how much they exceed their targets the text lost.
        sizes(&mut report, &all[0], [None; 3]);
        Ok(report)
    });

pub(in crate::experiment) const FIG_2E: Experiment = experiment(
    "hhzs/fig2e",
    "HHZS, figure 2e: what the basic schemes write to the drive at 6,000 pairs a second",
    |run| {
        let all = throttled(run, &Scheme::BASIC)?;
        let mut report = described(run, &all);
        all.iter().for_each(|loaded| write_shares(&mut report, loaded));
        Ok(report)
    },
);

pub(in crate::experiment) const FIG_2F: Experiment =
    experiment("hhzs/fig2f", "HHZS, figure 2f: throughput of the load at 6,000 pairs a second", |run| {
        let all = throttled(run, &Scheme::BASIC)?;
        let mut report = described(run, &all);
        for loaded in &all {
            how(&mut report, loaded);
            // "Whose throughput is upper-bounded at 6,000 OPS".
            if matches!(loaded.setup.scheme, Scheme::Basic(2 | 3)) {
                let name = loaded.setup.scheme.name();
                compare(
                    &mut report,
                    &name,
                    "load: throughput at 6,000 op/s",
                    "op/s",
                    THROTTLED as f64,
                    loaded.throughput(),
                );
            }
        }
        Ok(report)
    });

pub(in crate::experiment) const FIG_2G: Experiment =
    experiment("hhzs/fig2g", "HHZS, figure 2g: reads of the tables of level 3 in B4", |run| {
        let all = run_all(run, &[Scheme::Basic(4)], &GETS[..1], Begin::Debt)?;
        let mut report = described(run, &loads(run, &[Scheme::Basic(4)])?);
        for ran in all.iter().flatten() {
            for (device, place) in [("drive", 0), ("disk", 1)] {
                let tables = ran.whereabouts.tables[place][3];
                drawn(&mut report, "B4", &format!("tables of L3 on the {device}"), "1", tables as f64);
                let reads = ran.device_reads(place) as f64;
                drawn(&mut report, "B4", &format!("reads of the {device}"), "1", reads);
                ours(&mut report, "B4", &format!("reads of the {device} to a table there"), "1", {
                    reads / (ran.whereabouts.tables[place].iter().sum::<u64>() as f64).max(1.0)
                });
            }
        }
        report.notes.push(
            "the store does not tell reads by table: those of the devices, by their tables, stand for it".to_owned(),
        );
        Ok(report)
    });

pub(in crate::experiment) const FIG_2H: Experiment =
    experiment("hhzs/fig2h", "HHZS, figure 2h: share of the reads that go to the disk", |run| {
        let all = run_all(run, &Scheme::BASIC, &GETS, Begin::Debt)?;
        let mut report = described(run, &loads(run, &Scheme::BASIC)?);
        for (place, (least, most)) in [(79.7, 98.2), (35.8, 49.5)].into_iter().enumerate() {
            let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
            for of_scheme in &all {
                let ran = &of_scheme[place];
                let (drive, disk) = (ran.device_reads(0) as f64, ran.device_reads(1) as f64);
                let (of_gets, of_devices) = (ran.disk_reads() * 100.0, disk / (drive + disk).max(1.0) * 100.0);
                let (scheme, name) = (ran.task.setup.scheme.name(), ran.task.workload.workload.name);
                drawn(&mut report, &scheme, &format!("{name}: disk reads to all gets"), "%", of_gets);
                ours(&mut report, &scheme, &format!("{name}: disk reads to all reads of devices"), "%", of_devices);
                // Of the skewed one the memory cache's are said to be among all reads.
                let share = if place == 0 { of_devices } else { of_gets };
                (low, high) = (low.min(share), high.max(share));
            }
            let name = GETS[place].name;
            compare(&mut report, "B1-B4", &format!("{name}: least share of disk reads"), "%", least, low);
            compare(&mut report, "B1-B4", &format!("{name}: most share of disk reads"), "%", most, high);
        }
        Ok(report)
    });

pub(in crate::experiment) const FIG_2I: Experiment =
    experiment("hhzs/fig2i", "HHZS, figure 2i: throughput of gets under the basic schemes", |run| {
        let all = run_all(run, &Scheme::BASIC, &GETS, Begin::Debt)?;
        let mut report = described(run, &loads(run, &Scheme::BASIC)?);
        all.iter().flatten().for_each(|ran| super::fig5::told(&mut report, ran));
        report.plots.push(super::fig5::plot("throughput", "1 million gets", &all));
        Ok(report)
    });

/// A report with the conditions of the last load.
pub(super) fn described(run: &Run<'_>, all: &[Arc<Loaded>]) -> Report {
    let mut report = run.report();
    if let Some(last) = all.last() {
        last.setup.describe(&mut report);
    }
    for loaded in all {
        let name = format!("event hash of {}'s load", loaded.setup.name());
        report.condition(&name, format!("{:016x}", loaded.event_hash));
    }
    report
}

/// Quartiles of the sizes of logs and levels, beside the largest of the paper.
fn sizes(report: &mut Report, loaded: &Loaded, paper: [Option<f64>; 3]) {
    sizes_as(report, loaded, &loaded.setup.name(), paper);
}

/// The same rows under the given scheme name.
pub(super) fn sizes_as(report: &mut Report, loaded: &Loaded, name: &str, paper: [Option<f64>; 3]) {
    let mut columns = vec![("WAL".to_owned(), loaded.samples.iter().map(|sizes| sizes.log_bytes).collect::<Vec<_>>())];
    for level in 0..LEVELS {
        let bytes = loaded.samples.iter().map(|sizes| sizes.level_bytes[level]).collect();
        columns.push((format!("L{level}"), bytes));
    }
    for (position, (what, mut bytes)) in columns.into_iter().enumerate() {
        bytes.sort_unstable();
        let last = bytes.len().saturating_sub(1);
        let at = |quarter: usize| loaded.gibibytes(bytes.get(last * quarter / 4).copied().unwrap_or(0));
        for (quarter, of) in ["least", "lower quartile", "median", "upper quartile"].into_iter().enumerate() {
            drawn(report, name, &format!("{what}: {of} (full size)"), "GiB", at(quarter));
        }
        let metric = format!("{what}: most (full size)");
        match position.checked_sub(1).and_then(|level| paper.get(level).copied().flatten()) {
            Some(most) => compare(report, name, &metric, "GiB", most, at(4)),
            None => drawn(report, name, &metric, "GiB", at(4)),
        }
    }
    ours(report, name, "samples", "1", loaded.samples.len() as f64);
}

/// Shares of what was written for logs and levels that went to the disk, as the text has B3's, and to the drive, as drawn.
fn write_shares(report: &mut Report, loaded: &Loaded) {
    write_shares_as(report, loaded, &loaded.setup.name());
}

/// The same rows under the given scheme name.
pub(super) fn write_shares_as(report: &mut Report, loaded: &Loaded, name: &str) {
    let paper = match (loaded.setup.scheme, loaded.setup.puts_per_second) {
        (Scheme::Basic(3), None) => [Some(68.2), Some(68.2), Some(49.4), Some(67.2)],
        (Scheme::Basic(4), None) => [None, Some(84.4), Some(89.1), None],
        _ => [None; 4],
    };
    let Reading { drive, disk, .. } = &loaded.end;
    let log = |of: &Counters| of.written_bytes_by_class[IoClass::Log.index()];
    let level = |of: &Counters, level: usize| of.written_bytes_by_level[level];
    let mut parts = vec![("WAL".to_owned(), log(drive), log(disk))];
    parts.extend((0..LEVELS).map(|number| (format!("L{number}"), level(drive, number), level(disk, number))));
    for (position, (what, to_drive, to_disk)) in parts.into_iter().enumerate() {
        let all = (to_drive + to_disk) as f64;
        if all == 0.0 {
            continue;
        }
        drawn(report, name, &format!("{what}: written to the drive"), "%", to_drive as f64 / all * 100.0);
        let (metric, share) = (format!("{what}: written to the disk"), to_disk as f64 / all * 100.0);
        match paper.get(position).copied().flatten() {
            Some(paper) => compare(report, name, &metric, "%", paper, share),
            None => drawn(report, name, &metric, "%", share),
        }
    }
}

/// How the load went: what explains the rest.
pub(super) fn how(report: &mut Report, loaded: &Loaded) {
    how_as(report, loaded, &loaded.setup.name());
}

/// The same rows under the given scheme name.
pub(super) fn how_as(report: &mut Report, loaded: &Loaded, name: &str) {
    let mut add = |metric: &str, unit: &str, value: f64| ours(report, name, metric, unit, value);
    add("load: throughput", "op/s", loaded.throughput());
    add("load: hours (full size)", "h", loaded.hours());
    add("load: stalls (full size)", "s", loaded.stall_seconds);
    add("load: compactions read (full size)", "GiB", loaded.gibibytes(loaded.end.engine.compaction_read_bytes));
    add("load: compactions wrote (full size)", "GiB", loaded.gibibytes(loaded.end.engine.compaction_written_bytes));
    let scale = loaded.setup.scale.denominator() as f64;
    let time = &loaded.end.disk.time;
    let positioning = (time.seek_nanos + time.rotation_nanos) as f64;
    let busy = positioning + (time.transfer_nanos + time.overhead_nanos + time.flush_nanos) as f64;
    add("load: disk busy (full size)", "s", busy / 1e9 * scale);
    add("load: disk positioning of its busy time", "1", positioning / busy.max(1.0));
    add("load: disk busy of the load", "1", busy / loaded.end.nanos.max(1) as f64);
    add("load: disk wrote (full size)", "GiB", loaded.gibibytes(loaded.end.disk.written_bytes));
    add("load: drive wrote (full size)", "GiB", loaded.gibibytes(loaded.end.drive.written_bytes));
    add("load: moved (full size)", "GiB", loaded.gibibytes(loaded.end.stored("bytes moved")));
    for (place, device) in ["drive", "disk"].into_iter().enumerate() {
        for level in 0..LEVELS {
            let tables = loaded.whereabouts.tables[place][level] as f64;
            add(&format!("end of the load: tables of L{level} on the {device}"), "1", tables);
        }
    }
    add("load: wall-clock time of the simulation", "s", loaded.wall_seconds);
}
