//! `dix/*`: what protection information costs an array and what it finds (Zhang, chapter 5).

mod array;
mod detect;
mod faults;
mod link;
mod overheads;

use super::{Experiment, Run, Scale, emulated};
use crate::error::LabError;
use crate::report::{Axis, Figure, Lines, Plot, Report, Row};
use array::{Cell, Dix, Job, Pattern, measure};
use varve::block::raid::cost;

/// In the order they are listed.
pub(super) const EXPERIMENTS: &[Experiment] =
    &[FIGURE_5_6, FIGURE_5_7, link::EXPERIMENT, FIGURE_5_9, JOURNAL, overheads::EXPERIMENT, detect::EXPERIMENT];

const ARRAY: &str =
    "RAID 6 of 8+2 ST6000NM0034 with their caches off, chunks of 512 KiB, type 1, 24 processors; no data are kept.";

const FIGURE_5_6: Experiment = Experiment {
    id: "dix/fig5.6",
    title: "latency and bandwidth at depth 1 by request size: off, paper, on",
    description: "The paper's figure 5.6: sequential and random reads and writes of 2 KiB to 8 MiB, one at a time, with the Internet checksum and, \
                  for the explanation, with the CRC and with the read caches on. A row gives how much more a request takes than without protection \
                  information, and the bound of guards that overlap nothing: the time of a request without, and the processor time of its guards. \
                  Scale divides the requests of a cell, not the disks.",
    default_scale: Scale::one_in(16),
    run: run_5_6,
};

const FIGURE_5_7: Experiment = Experiment {
    id: "dix/fig5.7",
    title: "latency and bandwidth by queue depth: off, paper, on",
    description: "The paper's figure 5.7: the same at depths 1, 4, 16 and 32. Scale divides the requests of a cell, not the disks.",
    default_scale: Scale::one_in(16),
    run: run_5_7,
};

const FIGURE_5_9: Experiment = Experiment {
    id: "dix/fig5.9",
    title: "processor time of a request by its size: off, paper, on",
    description: "The paper's figure 5.9: processor time from the versioned table of varve::block::raid::cost. Scale divides the requests of a cell.",
    default_scale: Scale::one_in(64),
    run: run_5_9,
};

const JOURNAL: Experiment = Experiment {
    id: "dix/journal",
    title: "what the journal of stripes costs writes",
    description: "Ours: sequential and random writes on the array of figure 5.6 with dix=on, without a journal, with journal=members, and with the \
                  journal on a SATA solid-state drive, by size and depth. Scale divides the requests of a cell, not the disks.",
    default_scale: Scale::one_in(64),
    run: run_journal,
};

const KIB: u64 = 1 << 10;
/// The paper's request sizes, in bytes.
const SIZES: [u64; 11] = [
    2 * KIB,
    4 * KIB,
    16 * KIB,
    32 * KIB,
    128 * KIB,
    256 * KIB,
    512 * KIB,
    1024 * KIB,
    2048 * KIB,
    4096 * KIB,
    8192 * KIB,
];
/// Sizes at each depth, in bytes.
const SIZES_BY_DEPTH: [u64; 4] = [4 * KIB, 128 * KIB, 1024 * KIB, 8192 * KIB];
const DEPTHS: [u64; 4] = [1, 4, 16, 32];

fn conditions(report: &mut Report, run: &Run<'_>) {
    report.condition("array", ARRAY);
    let costs: Vec<String> = cost::ALL.iter().map(|(name, nanos)| format!("{name} {nanos}")).collect();
    report.condition("processor time (ns)", format!("table {}: {}", cost::VERSION, costs.join(", ")));
    report.condition("requests of a cell", Job::requests_of(run.scale, SIZES[0]));
}

fn ms(nanos: f64) -> f64 {
    nanos / 1e6
}

/// Growth over another value, in percent.
fn growth(value: f64, of: f64) -> f64 {
    (value / of - 1.0) * 100.0
}

/// The three schemes on one job.
fn compare(run: &Run<'_>, job: &Job) -> Result<[Cell; 3], LabError> {
    let cell = |dix| measure(run.settings.seed, &Job { dix, ..*job });
    Ok([cell(Dix::Off)?, cell(Dix::Paper)?, cell(Dix::On)?])
}

fn run_5_6(run: &Run<'_>) -> Result<Report, LabError> {
    let mut report = run.report();
    conditions(&mut report, run);
    let settings = [("", "ip", "off"), (", crc", "crc", "off"), (", caches on", "ip", "on")];
    run.settings.progress.begin("measuring", Some((settings.len() * Pattern::ALL.len() * SIZES.len()) as u64));
    let mut done = 0;
    for (setting, guard, caches) in settings {
        for pattern in Pattern::ALL {
            let mut lines: Vec<(String, Vec<(f64, f64)>)> =
                ["paper", "on", "bound"].map(|name| (name.to_owned(), Vec::new())).into();
            let mut largest = [(0.0_f64, 0.0_f64, 0.0_f64); 2];
            for bytes in SIZES {
                let requests = Job::requests_of(run.scale, bytes);
                let job = Job { dix: Dix::Off, pattern, bytes, depth: 1, requests, guard, caches, journal: "none" };
                let [off, paper, on] = compare(run, &job)?;
                let scheme = format!("{}{setting}", pattern.name());
                let size = format!("{} KiB", bytes / KIB);
                let bound = off.latency_nanos + paper.cpu_nanos - off.cpu_nanos;
                report.rows.push(Row::new(&scheme, format!("off, {size}"), "ms", ms(off.latency_nanos)));
                for ((name, latency), line) in
                    [("paper", paper.latency_nanos), ("on", on.latency_nanos), ("bound", bound)]
                        .into_iter()
                        .zip(&mut lines)
                {
                    let percent = growth(latency, off.latency_nanos);
                    line.1.push((bytes as f64 / KIB as f64, percent));
                    let note = format!("{:+.4} ms", ms(latency - off.latency_nanos));
                    report
                        .rows
                        .push(Row::new(&scheme, format!("{name}, latency, {size}"), "%", percent).with_note(note));
                }
                for (name, cell, most) in [("paper", &paper, 0), ("on", &on, 1)] {
                    let percent = growth(cell.bytes_per_second, off.bytes_per_second);
                    let note =
                        format!("{:.1} MB/s, {:.1} off", cell.bytes_per_second / 1e6, off.bytes_per_second / 1e6);
                    report
                        .rows
                        .push(Row::new(&scheme, format!("{name}, bandwidth, {size}"), "%", percent).with_note(note));
                    let (latency, added, bandwidth) = &mut largest[most];
                    *latency = latency.max(growth(cell.latency_nanos, off.latency_nanos));
                    *added = added.max(ms(cell.latency_nanos - off.latency_nanos));
                    *bandwidth = bandwidth.min(percent);
                }
                done += 1;
                run.settings.progress.advance(done);
            }
            for ((latency, added, bandwidth), name) in largest.into_iter().zip(["paper", "on"]) {
                let scheme = format!("{}{setting}", pattern.name());
                let [paper_latency, paper_added, paper_bandwidth] = pattern.largest_in_paper();
                let rows = [
                    ("largest latency growth", "%", latency, paper_latency),
                    ("largest added latency", "ms", added, paper_added),
                    ("largest bandwidth drop", "%", bandwidth, -paper_bandwidth),
                ];
                for (metric, unit, ours, printed) in rows {
                    report.rows.push(Row::new(&scheme, format!("{name}, {metric}"), unit, ours).with_paper(printed));
                }
            }
            if setting.is_empty() {
                report.plots.push(Plot {
                    name: pattern.file_name().to_owned(),
                    title: format!("latency that protection information adds, {}", pattern.name()),
                    medium: "RAID 6 of 8+2 disks with their caches off".to_owned(),
                    y: Axis::linear("latency growth (%)"),
                    figure: Figure::Lines(Lines {
                        x: Axis::logarithmic("request (KiB)"),
                        series: lines,
                        paper: Vec::new(),
                    }),
                });
            }
        }
    }
    run.settings.progress.end();
    report.notes.push(
        "paper: the text gives, for all sizes together, reads +2-14 % and +0.02-0.7 ms, writes +2-7 % and +0.02-5 ms, random +4-15 %; bandwidth reads \
         -3-20 %, writes -2-13 %, sequential -4-20 %, random -4-5 %; the column has the larger end of what applies"
            .to_owned(),
    );
    Ok(report)
}

fn run_5_7(run: &Run<'_>) -> Result<Report, LabError> {
    let mut report = run.report();
    conditions(&mut report, run);
    run.settings.progress.begin("measuring", Some((Pattern::ALL.len() * SIZES_BY_DEPTH.len() * DEPTHS.len()) as u64));
    let mut done = 0;
    for pattern in Pattern::ALL {
        for bytes in SIZES_BY_DEPTH {
            for depth in DEPTHS {
                let requests = Job::requests_of(run.scale, bytes).max(2 * depth);
                let job =
                    Job { dix: Dix::Off, pattern, bytes, depth, requests, guard: "ip", caches: "off", journal: "none" };
                let [off, paper, on] = compare(run, &job)?;
                for (name, cell) in [("paper", &paper), ("on", &on)] {
                    let scheme = format!("{}, {name}", pattern.name());
                    let at = format!("{} KiB, depth {depth}", bytes / KIB);
                    let latency = growth(cell.latency_nanos, off.latency_nanos);
                    let note = format!("{:.3} ms, {:.3} off", ms(cell.latency_nanos), ms(off.latency_nanos));
                    report.rows.push(Row::new(&scheme, format!("latency, {at}"), "%", latency).with_note(note));
                    let bandwidth = growth(cell.bytes_per_second, off.bytes_per_second);
                    report.rows.push(Row::new(&scheme, format!("bandwidth, {at}"), "%", bandwidth));
                }
                done += 1;
                run.settings.progress.advance(done);
            }
        }
    }
    run.settings.progress.end();
    Ok(report)
}

fn run_5_9(run: &Run<'_>) -> Result<Report, LabError> {
    let mut report = run.report();
    conditions(&mut report, run);
    for guard in ["ip", "crc"] {
        for pattern in [Pattern::SequentialRead, Pattern::SequentialWrite] {
            for bytes in SIZES {
                let requests = Job::requests_of(run.scale, bytes);
                let job =
                    Job { dix: Dix::Off, pattern, bytes, depth: 1, requests, guard, caches: "off", journal: "none" };
                let [off, paper, on] = compare(run, &job)?;
                let scheme = format!("{}, {guard}", pattern.name());
                let size = format!("{} KiB", bytes / KIB);
                report.rows.push(Row::new(&scheme, format!("off, {size}"), "us", off.cpu_nanos / 1e3));
                for (name, cell) in [("paper", &paper), ("on", &on)] {
                    let note = format!("{:+.1} %", growth(cell.cpu_nanos, off.cpu_nanos));
                    report
                        .rows
                        .push(Row::new(&scheme, format!("{name}, {size}"), "us", cell.cpu_nanos / 1e3).with_note(note));
                }
            }
        }
    }
    Ok(report)
}

/// Places of the journal: how a row names them, and as in a spec.
const JOURNALS: [(&str, &str); 2] =
    [("", "members"), (", on a solid-state drive", "(ssd:1TB?model=sata-ssd,backing=none)")];

fn run_journal(run: &Run<'_>) -> Result<Report, LabError> {
    let mut report = run.report();
    conditions(&mut report, run);
    for pattern in [Pattern::SequentialWrite, Pattern::RandomWrite] {
        for bytes in SIZES_BY_DEPTH {
            for depth in [1, 16] {
                let requests = Job::requests_of(run.scale, bytes).max(2 * depth);
                let job =
                    Job { dix: Dix::On, pattern, bytes, depth, requests, guard: "ip", caches: "off", journal: "none" };
                let without = measure(run.settings.seed, &job)?;
                let at = format!("{} KiB, depth {depth}", bytes / KIB);
                for (place, journal) in JOURNALS {
                    let with = measure(run.settings.seed, &Job { journal, ..job })?;
                    let scheme = format!("{}{place}", pattern.name());
                    let note = format!("{:.3} ms, {:.3} without", ms(with.latency_nanos), ms(without.latency_nanos));
                    let latency = with.latency_nanos / without.latency_nanos;
                    report.rows.push(Row::new(&scheme, format!("latency, {at}"), "1", latency).with_note(note));
                    let bandwidth = with.bytes_per_second / without.bytes_per_second;
                    report.rows.push(Row::new(&scheme, format!("bandwidth, {at}"), "1", bandwidth));
                }
            }
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(pattern: Pattern, bytes: u64) -> Job {
        Job { dix: Dix::Off, pattern, bytes, depth: 1, requests: 24, guard: "crc", caches: "off", journal: "none" }
    }

    #[test]
    fn protection_information_costs_time_and_no_more_than_its_guards() {
        for pattern in Pattern::ALL {
            for bytes in [4 * KIB, 1024 * KIB, 8192 * KIB] {
                let cell = |dix| measure(1, &Job { dix, ..job(pattern, bytes) }).unwrap();
                let [off, paper, on] = [Dix::Off, Dix::Paper, Dix::On].map(cell);
                assert!(paper.cpu_nanos > off.cpu_nanos && on.cpu_nanos > off.cpu_nanos, "{pattern:?} {bytes}");
                assert!(paper.latency_nanos >= off.latency_nanos, "{pattern:?} {bytes}");
            }
        }
    }

    #[test]
    fn depth_gives_bandwidth() {
        let cell = |depth| measure(1, &Job { depth, requests: 64, ..job(Pattern::RandomRead, 4 * KIB) }).unwrap();
        assert!(cell(16).bytes_per_second > 4.0 * cell(1).bytes_per_second);
    }
}
