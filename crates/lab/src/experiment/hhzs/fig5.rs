//! Figure 5: YCSB (exp 1).

use super::fig2::{described, how};
use super::load::{loads, rests};
use super::reading::LEVELS;
use super::runs::{Begin, Ran, Task, run_all, run_tasks};
use super::scheme::Scheme;
use super::settings::Setup;
use super::workload::Workload;
use crate::experiment::Experiment;
use crate::experiment::comparison::{compare, drawn, ours};
use crate::report::{Axis, Bars, Figure, Plot, Report};

/// What is drawn.
const MEDIUM: &str = "emulated ZN540 (20 zones) and ST14000NM0007, in virtual time";

/// By how many percent the text says HHZS is faster: the least and the most over A to F.
const OVER_B3: (f64, f64) = (21.0, 56.4);
const OVER_AUTO: (f64, f64) = (28.0, 69.3);

pub(in crate::experiment) const FIG_5A: Experiment = Experiment {
    id: "hhzs/fig5a",
    title: "HHZS, figure 5a (exp 1): load and YCSB A to F under B3, AUTO and HHZS",
    description: "Loads 200 GiB and runs each of YCSB's workloads, 1 million operations, on what the load left behind: with its \
                  debt, as the paper does, and after rest. Scale divides sizes, positioning times and puts; the cache and the \
                  number of gets are those that have the full size's shares of hits and first touches.",
    default_scale: super::DEFAULT_SCALE,
    run: |run| {
        let loaded = loads(run, &Scheme::COMPARED_WITH_OURS)?;
        let mut report = described(run, &loaded);
        loaded.iter().for_each(|loaded| how(&mut report, loaded));
        let [b3, auto, hhzs] = [0, 1, 2].map(|place: usize| loaded[place].throughput());
        compare(&mut report, "HHZS", "load: throughput above B3", "%", 7.8, (hhzs / b3 - 1.0) * 100.0);
        compare(&mut report, "HHZS", "load: throughput above AUTO", "%", 18.3, (hhzs / auto - 1.0) * 100.0);
        for (loaded, rested) in loaded.iter().zip(rests(run, &loaded)?) {
            let metric = "load: until no compaction was due (full size)";
            ours(&mut report, &loaded.setup.scheme.name(), metric, "s", rested.seconds);
        }
        for begin in [Begin::Debt, Begin::Rest] {
            let all = run_all(run, &Scheme::COMPARED_WITH_OURS, &Workload::YCSB, begin)?;
            for of_scheme in &all {
                of_scheme.iter().for_each(|ran| told(&mut report, ran));
            }
            gains(&mut report, &all[..Scheme::COMPARED.len()], OVER_B3, OVER_AUTO);
            // What the others' scans gain by beginning as ours.
            let begun_large = Scheme::COMPARED.map(|scheme| Task {
                setup: Setup { scans_begin_large: true, ..Setup::new(scheme, run.scale, run.settings.seed) },
                begin,
                workload: Workload::YCSB[4].at(run.scale),
                warm_up: None,
            });
            run_tasks(run, begun_large.to_vec())?.iter().for_each(|ran| told(&mut report, ran));
            let name = if begin == Begin::Debt { "throughput" } else { "throughput-rest" };
            report.plots.push(plot(name, "YCSB", &all));
        }
        Ok(report)
    },
};

pub(in crate::experiment) const FIG_5B: Experiment = Experiment {
    id: "hhzs/fig5b",
    title: "HHZS, figure 5b: where the tables of each level are at the end of workload A",
    description: "The runs of hhzs/fig5a: share of the bytes of each level that lie on the drive.",
    default_scale: super::DEFAULT_SCALE,
    run: |run| {
        let loaded = loads(run, &Scheme::COMPARED)?;
        let mut report = described(run, &loaded);
        for of_scheme in &run_all(run, &Scheme::COMPARED, &Workload::YCSB[..1], Begin::Debt)? {
            for ran in of_scheme {
                let found = &ran.whereabouts;
                for level in 0..LEVELS {
                    let (drive, disk) = (found.bytes[0][level] as f64, found.bytes[1][level] as f64);
                    if drive + disk > 0.0 {
                        let metric = format!("L{level}: share on the drive");
                        drawn(&mut report, &ran.task.setup.scheme.name(), &metric, "%", drive / (drive + disk) * 100.0);
                    }
                }
            }
        }
        Ok(report)
    },
};

/// Everything about one run.
pub(super) fn told(report: &mut Report, ran: &Ran) {
    rows_as(report, ran, &ran.name());
}

/// The same rows under the given scheme name.
pub(super) fn rows_as(report: &mut Report, ran: &Ran, name: &str) {
    let task = &ran.task;
    let what = match task.begin {
        Begin::Debt => task.workload.workload.name.to_owned(),
        Begin::Rest => format!("{} after rest", task.workload.workload.name),
    };
    drawn(report, name, &format!("{what}: throughput (full size)"), "op/s", ran.throughput());
    let grown = |name: &str| (ran.to.stored(name) - ran.from.stored(name)) as f64;
    let mut add = |metric: &str, unit: &str, value: f64| ours(report, name, &format!("{what}: {metric}"), unit, value);
    if let Some(bound) = task.workload.workload.bound() {
        add("bound", "op/s", bound);
        add("throughput / bound", "1", ran.throughput() / bound);
    }
    add("disk reads to a read", "1", ran.disk_reads());
    let cached = grown("user reads of cached blocks") / task.workload.reads.max(1) as f64;
    add("reads of cached blocks to a read", "1", cached);
    add("tables moved up", "1", grown("tables moved to the fast tier"));
    add("tables moved down", "1", grown("tables moved to the slow tier"));
    add("share of the tables' bytes on the drive at the end", "%", ran.whereabouts.drive_share() * 100.0);
    // A record that is kept alone brings no block into memory.
    let insertions =
        (ran.to.cache_insertions - ran.from.cache_insertions) as f64 + grown("user reads of records alone");
    // Without filters a get brings blocks of several tables into memory, and their number says nothing about gets.
    if task.workload.workload.scan_pairs_max == 0 && task.setup.setting.bloom_bits > 0 {
        add(
            "gets that the memory cache or memtables answered",
            "%",
            (1.0 - insertions / task.workload.reads.max(1) as f64) * 100.0,
        );
    }
    add("p99.9 of reads (full size)", "ms", ran.read_millis(0.999));
    let run = &task.workload;
    report.condition(
        &format!("{} as it was run", run.workload.name),
        format!(
            "{} reads, each for {:.1} of the full size, and {} writes, each for {}; cache of {} B; in full {:.1} % of the gets \
             are memory cache hits and {:.1} % of the operations first touches of a block",
            run.reads,
            run.reads_to_one(),
            run.writes,
            run.scale.denominator(),
            run.cache_bytes,
            run.cache_hits * 100.0,
            run.first_touches * 100.0
        ),
    );
}

/// By how much the last scheme is faster than the first and the second, per workload, beside the paper's least and most.
pub(super) fn gains(report: &mut Report, all: &[Vec<std::sync::Arc<Ran>>], first: (f64, f64), second: (f64, f64)) {
    let Some((last, others)) = all.split_last() else { return };
    for (base, (least, most)) in others.iter().zip([first, second]) {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        let mut suffix = "";
        for (ran, base) in last.iter().zip(base) {
            let gain = (ran.throughput() / base.throughput() - 1.0) * 100.0;
            (low, high) = (low.min(gain), high.max(gain));
            suffix = if ran.task.begin == Begin::Rest { " after rest" } else { "" };
            let (name, of) = (ran.task.workload.workload.name, base.task.setup.scheme.name());
            drawn(report, &ran.task.setup.scheme.name(), &format!("{name}{suffix}: throughput above {of}"), "%", gain);
        }
        let (name, of) = match (last.first(), base.first()) {
            (Some(ran), Some(base)) => (ran.task.setup.scheme.name(), base.task.setup.scheme.name()),
            _ => continue,
        };
        compare(report, &name, &format!("least throughput above {of}{suffix}"), "%", least, low);
        compare(report, &name, &format!("most throughput above {of}{suffix}"), "%", most, high);
    }
}

/// Throughput of each workload under each scheme.
pub(super) fn plot(name: &str, title: &str, all: &[Vec<std::sync::Arc<Ran>>]) -> Plot {
    let groups = all.first().map(|of| of.iter().map(|ran| ran.task.workload.workload.name.to_owned()).collect());
    let series = all.iter().filter_map(|of| {
        let scheme = of.first()?.task.setup.scheme.name();
        Some((scheme, of.iter().map(|ran| Some(ran.throughput())).collect()))
    });
    Plot {
        name: name.to_owned(),
        title: title.to_owned(),
        medium: MEDIUM.to_owned(),
        y: Axis::linear("throughput of the full size (op/s)"),
        figure: Figure::Bars(Bars { groups: groups.unwrap_or_default(), series: series.collect() }),
    }
}
