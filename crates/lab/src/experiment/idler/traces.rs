//! Figures 4.8 to 4.12: Idler on the traces of Microsoft Research Cambridge, or on requests like theirs.

use super::drive::{Control, Drive, Ran, Reading, Recorded, Task, Workload, ZONE_BYTES, run_tasks};
use super::table4_2::full_finish;
use super::told::{MEDIUM, cdf, described, told};
use crate::error::LabError;
use crate::experiment::comparison::{compare, drawn, goal};
use crate::experiment::traces::{ReadTrace, read_trace};
use crate::experiment::{Experiment, Run, Scale};
use crate::host::{self, PathKind};
use crate::replay::{Calibrated, Pace, ParseOptions, Zones};
use crate::report::{Axis, Figure, Lines, Plot, Report};
use std::sync::Arc;

pub(super) const THREADS: [usize; 3] = [1, 16, 128];
const CONTROLS: [Control; 6] = [
    Control::None,
    Control::Fixed(5000, 2000),
    Control::Idler,
    Control::Conventional,
    Control::Relocating,
    Control::Endless,
];

/// What the paper says of a trace: writes, their bytes, zones, writes to ten thousand requests. Of three it has no writes: as many of
/// as many bytes as of proj_1 are taken.
pub(super) type Published = (&'static str, u64, u64, u64, u64);

pub(super) const PROJ_1: Published = ("proj_1", 2_496_935, 25_576_000_000, 1475, 1056);
pub(super) const PRN_1: Published = ("prn_1", 2_769_610, 30_785_000_000, 1222, 2466);
const OTHERS: [Published; 3] = [
    ("usr_1", 2_496_935, 25_576_000_000, 1886, 853),
    ("usr_2", 2_496_935, 25_576_000_000, 926, 1885),
    ("proj_2", 2_496_935, 25_576_000_000, 1474, 1239),
];

pub(in crate::experiment) const FIG_4_8: Experiment = Experiment {
    id: "idler/fig4.8",
    title: "Idler, figure 4.8: requests of proj_1 in each 100 s (synthetic, calibrated)",
    description: "Requests that have the sums the paper has of proj_1; how they come in bursts is a guess. Scale divides writes, \
                  zones and duration.",
    default_scale: super::DEFAULT_SCALE,
    run: bursts,
};

pub(in crate::experiment) const FIG_4_9: Experiment = Experiment {
    id: "idler/fig4.9",
    title: "Idler, figure 4.9: response times of proj_1 (synthetic, calibrated) before the cache is full, 128 threads",
    description: "The first 1,000 s of the runs of idler/fig4.10. By the text Idler's responses are mostly under a second, above \
                  those without control; AT-IC's are long where many requests come.",
    default_scale: super::DEFAULT_SCALE,
    run: before_blocking,
};

pub(in crate::experiment) const FIG_4_10: Experiment = Experiment {
    id: "idler/fig4.10",
    title: "Idler, figure 4.10: P99.9 and finish time of proj_1 (synthetic, calibrated)",
    description: "No control, AT-IC <5:2>, Idler and a conventional disk, by 1, 16 and 128 threads. Scale divides writes, zones, \
                  cache, extents and duration; times and intensity stay.",
    default_scale: super::DEFAULT_SCALE,
    run: |run| {
        let (mut report, all) = trace(run, PROJ_1)?;
        for (place, (threads, gain)) in THREADS.into_iter().zip([56.0, 83.2, 88.8]).enumerate() {
            let [none, _, idler, conventional, ..] = all[place].as_slice() else { continue };
            let scheme = Control::Idler.name();
            let shorter = (1.0 - tail(idler) / tail(none)) * 100.0;
            compare(&mut report, &scheme, &format!("{threads} threads: P99.9 below no control"), "%", gain, shorter);
            if threads == 1 {
                let earlier = (1.0 - finish(idler) / finish(none)) * 100.0;
                compare(&mut report, &scheme, "1 threads: finish before no control", "%", 23.0, earlier);
            }
            let later = (finish(idler) / finish(conventional) - 1.0) * 100.0;
            let metric = format!("{threads} threads: finish after CMR (%)");
            goal(&mut report, &scheme, &metric, later, "the paper's: 8 to 10", (7.2..=11.0).contains(&later));
        }
        Ok(report)
    },
};

pub(in crate::experiment) const FIG_4_11: Experiment = Experiment {
    id: "idler/fig4.11",
    title: "Idler, figure 4.11: P99.9 and finish time of prn_1 (synthetic, calibrated)",
    description: "As idler/fig4.10 with 24.66 % writes, where by the text neither AT-IC nor Idler helps.",
    default_scale: super::DEFAULT_SCALE,
    run: |run| {
        let (mut report, all) = trace(run, PRN_1)?;
        for (threads, of_threads) in THREADS.iter().zip(&all) {
            let [none, fixed, idler, ..] = of_threads.as_slice() else { continue };
            for ran in [fixed, idler] {
                let ratio = tail(ran) / tail(none);
                let metric = format!("{threads} threads: P99.9 to no control");
                let close = (0.75..1.33).contains(&ratio);
                goal(&mut report, &ran.task.control.name(), &metric, ratio, "the paper's: close to 1", close);
            }
        }
        Ok(report)
    },
};

pub(in crate::experiment) const FIG_4_12: Experiment = Experiment {
    id: "idler/fig4.12",
    title: "Idler, figure 4.12: P99.9 of usr_1, usr_2 and proj_2 (synthetic, calibrated), 16 threads",
    description: "Their shares of writes and their zones are published (8.53 %, 1,886; 18.85 %, 926; 12.39 %, 1,474), as many \
                  writes as of proj_1 are taken. By the text Idler helps where there are few writes.",
    default_scale: super::DEFAULT_SCALE,
    run: others,
};

pub(in crate::experiment) const TRACES: Experiment = Experiment {
    id: "idler/traces",
    title: "recorded traces on the host-aware drive, 16 threads (not in the paper)",
    description: "Every file in --traces DIR (or the file, if it is one) whose lines are requests, folded onto the drive. The format is \
                  detected by the first lines (msr: Microsoft Research Cambridge; fiu; spc: UMass; alibaba; tencent; blkparse; varve; \
                  ssdsim; disksim; csv with names of columns) unless --format names it; files may be plain, .gz or .zst. Header lines \
                  are skipped. Files that are not replayed are reported with the reason, and so are malformed lines, which \
                  --skip-malformed leaves out. Which thread makes a request follows from latencies, where the trace has them. Scale \
                  divides zones, cache and extents, not the traces.",
    default_scale: super::DEFAULT_SCALE,
    run: recorded,
};

fn recorded(run: &Run<'_>) -> Result<Report, LabError> {
    let drive = Drive::new(run.scale);
    let mut report = described(run, &drive);
    let Some(place) = &run.settings.traces else {
        report.skipped = Some("give --traces DIR, a directory with traces such as usr_1.csv.gz".to_owned());
        return Ok(report);
    };
    let paths = match host::path_kind(place)? {
        PathKind::Directory => host::list_directory(place)?,
        PathKind::File | PathKind::Special => vec![place.clone()],
    };
    let options = ParseOptions { skips_malformed: run.settings.skips_malformed, fold_bytes: drive.bytes() };
    let mut replayed = 0;
    for path in paths {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        match read_trace(&path, run.settings.trace_format, options) {
            Ok(read) => {
                replay_one(run, &drive, &name, read, &mut report)?;
                replayed += 1;
            }
            Err(reason) => report.left_out.push(format!("{name}: {reason}")),
        }
    }
    if replayed == 0 {
        let files = match report.left_out.as_slice() {
            [] => "it holds no file".to_owned(),
            left_out => left_out.join("; "),
        };
        return Err(LabError::invalid(place.display().to_string(), format!("no trace was replayed: {files}")));
    }
    Ok(report)
}

/// Replays the trace in the file `name` under every control.
fn replay_one(run: &Run<'_>, drive: &Drive, name: &str, read: ReadTrace, report: &mut Report) -> Result<(), LabError> {
    let ReadTrace { format, trace, header_lines } = read;
    let count = trace.requests.len();
    let writes = trace.requests.iter().filter(|request| request.is_write).count();
    let share = writes as f64 / count as f64 * 100.0;
    let mut said = format!("format {}, {count} requests, {share:.1} % writes", format.name());
    for (number, what) in [(header_lines as u64, "header lines"), (trace.out_of_order, "requests out of order")] {
        if number > 0 {
            said.push_str(&format!(", {number} {what}"));
        }
    }
    report.condition(name, said);
    if let Some(first) = trace.first_skipped {
        let skipped = trace.skipped;
        report.left_out.push(format!("{name}: {skipped} malformed lines, the first of them line {first}"));
    }
    let workload = Workload::Recorded(Recorded { name: name.to_owned(), requests: trace.requests.into() });
    let pace = Pace::Intervals { threads: 16 };
    let tasks = CONTROLS.map(|control| Task { drive: drive.clone(), control, workload: workload.clone(), pace });
    let all = run_tasks(run, tasks.to_vec())?;
    all.iter().for_each(|ran| told(report, name, ran));
    goals(report, name, &all);
    Ok(())
}

/// Requests like those of a trace, at the scale of a run.
pub(super) fn calibrated(run: &Run<'_>, drive: &Drive, published: Published) -> Calibrated {
    calibrated_at(run.scale, run.settings.seed, drive, published)
}

/// Requests like those of a trace, at a scale.
pub(super) fn calibrated_at(scale: Scale, seed: u64, drive: &Drive, published: Published) -> Calibrated {
    let (name, writes, written_bytes, zones, write_basis_points) = published;
    Calibrated {
        name,
        writes: scale.of(writes),
        written_bytes: scale.of(written_bytes),
        write_basis_points,
        zones: Zones { zone_bytes: ZONE_BYTES, zone_count: drive.zone_count.into(), non_sequential: scale.of(zones) },
        duration_seconds: scale.of(7 * 24 * 3600),
        burst_requests: 2,
        burst_interval_nanos: 500_000,
        window_deviation: 0.5,
        window_seconds: 100,
        read_bytes: 32 << 10,
        sequential_read_percent: 60,
        rewritten_percent: 0,
        rewritten_among: 0,
        zipfian_zones: false,
        seed,
    }
}

/// What of the requests is a guess.
pub(super) fn guesses(report: &mut Report, calibrated: &Calibrated) {
    let Calibrated { duration_seconds, burst_requests, burst_interval_nanos, window_deviation, read_bytes, .. } =
        calibrated;
    report.condition(
        "requests",
        format!(
            "synthetic: sums of {} as published; guessed: {duration_seconds} s, bursts of {burst_requests} \
             {burst_interval_nanos} ns apart, logarithm of their number in 100 s deviates by {window_deviation}, reads of \
             {read_bytes} bytes in the zones that are written, {} % of them in sequence, writes of 4 and 32 KiB",
            calibrated.name, calibrated.sequential_read_percent
        ),
    );
}

pub(super) fn tail(ran: &Ran) -> f64 {
    ran.replayed.seconds(0.999)
}

pub(super) fn finish(ran: &Ran) -> f64 {
    ran.replayed.finish_nanos as f64
}

/// What ours are to reach.
fn goals(report: &mut Report, what: &str, of_threads: &[Arc<Ran>]) {
    let [none, _, idler, conventional, relocating, endless] = of_threads else { return };
    goals_of(report, what, relocating, [none, idler, conventional, endless]);
}

fn goals_of(report: &mut Report, what: &str, ours: &Ran, [none, idler, conventional, endless]: [&Ran; 4]) {
    let scheme = ours.task.control.name();
    let mut says = |metric: &str, ours: f64, wanted: &str, holds: bool| {
        goal(report, &scheme, &format!("{what}: {metric}"), ours, wanted, holds);
    };
    if none.cleaning.blocking_cleanings == 0 {
        let ratio = tail(ours) / tail(none);
        return says("P99.9 to no control, which does not block", ratio, "at most 1.05", ratio <= 1.05);
    }
    let beyond = |ran: &Ran| (tail(ran) - tail(conventional)).max(0.0);
    let ratio = beyond(ours) / beyond(none).max(1e-9);
    says("P99.9 beyond CMR, to no control", ratio, "at most 0.1", ratio <= 0.1);
    let ratio = beyond(ours) / beyond(idler).max(1e-9);
    says("P99.9 beyond CMR, to Idler", ratio, "at most 0.5", ratio <= 0.5);
    let ratio = ours.replayed.seconds(0.5) / none.replayed.seconds(0.5);
    says("median to no control", ratio, "within 5 %", ratio <= 1.05);
    let ratio = finish(ours) / finish(endless);
    says("finish to an endless cache", ratio, "within 3 %", ratio <= 1.03);
}

pub(super) fn tasks(drive: &Drive, calibrated: &Calibrated, threads: usize, reading: Reading) -> Vec<Task> {
    let task = |&control: &Control| Task {
        drive: drive.clone(),
        control,
        workload: Workload::Calibrated(calibrated.clone()),
        pace: reading.pace(threads),
    };
    CONTROLS.iter().map(task).collect()
}

/// The other reading of the replay, with 16 threads.
fn held_on_arrival(run: &Run<'_>, report: &mut Report, drive: &Drive, calibrated: &Calibrated) -> Result<(), LabError> {
    let reading = Reading::Arrival;
    let of_paper = |task: &Task| matches!(task.control, Control::None | Control::Fixed(..) | Control::Idler);
    let all = tasks(drive, calibrated, 16, reading).into_iter().filter(of_paper).collect();
    for ran in run_tasks(run, all)? {
        let scheme = reading.scheme(ran.task.control);
        drawn(report, &scheme, "16 threads: P99.9", "s", tail(&ran));
        drawn(report, &scheme, "16 threads: finish (full size)", "s", full_finish(run, &ran));
        drawn(report, &scheme, "16 threads: median", "s", ran.replayed.seconds(0.5));
    }
    Ok(())
}

fn trace(run: &Run<'_>, published: Published) -> Result<(Report, Vec<Vec<Arc<Ran>>>), LabError> {
    let drive = Drive::new(run.scale);
    let mut report = described(run, &drive);
    let calibrated = calibrated(run, &drive, published);
    guesses(&mut report, &calibrated);
    held_on_arrival(run, &mut report, &drive, &calibrated)?;
    let tasks = THREADS.iter().flat_map(|&threads| tasks(&drive, &calibrated, threads, Reading::Submission));
    let all = run_tasks(run, tasks.collect())?;
    let all: Vec<Vec<Arc<Ran>>> = all.chunks(CONTROLS.len()).map(<[_]>::to_vec).collect();
    for (threads, of_threads) in THREADS.iter().zip(&all) {
        let what = format!("{threads} threads");
        for ran in of_threads {
            let scheme = ran.task.control.name();
            drawn(&mut report, &scheme, &format!("{what}: P99.9"), "s", tail(ran));
            drawn(&mut report, &scheme, &format!("{what}: finish (full size)"), "s", full_finish(run, ran));
            told(&mut report, &what, ran);
        }
        goals(&mut report, &what, of_threads);
        let title = format!("response times, {threads} threads");
        report.plots.push(cdf(&format!("threads-{threads}"), &title, of_threads));
    }
    Ok((report, all))
}

fn bursts(run: &Run<'_>) -> Result<Report, LabError> {
    let drive = Drive::new(run.scale);
    let mut report = described(run, &drive);
    let calibrated = calibrated(run, &drive, PROJ_1);
    guesses(&mut report, &calibrated);
    let mut counts = vec![0u64; 36];
    for request in calibrated.generate()? {
        if let Some(count) = counts.get_mut((request.arrival_nanos / 100_000_000_000) as usize) {
            *count += 1;
        }
    }
    let (least, most) = (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
    drawn(&mut report, "proj_1", "fewest requests in 100 s of an hour", "1", least as f64);
    drawn(&mut report, "proj_1", "most requests in 100 s of an hour", "1", most as f64);
    let points = counts.iter().enumerate().map(|(place, &count)| (place as f64 * 100.0, count as f64)).collect();
    report.plots.push(Plot {
        name: "bursts".to_owned(),
        title: "requests in each 100 s of an hour".to_owned(),
        medium: "synthetic, calibrated".to_owned(),
        y: Axis::linear("requests"),
        figure: Figure::Lines(Lines {
            x: Axis::linear("time (s)"),
            series: vec![("proj_1".to_owned(), points)],
            paper: Vec::new(),
        }),
    });
    Ok(report)
}

fn before_blocking(run: &Run<'_>) -> Result<Report, LabError> {
    let drive = Drive::new(run.scale);
    let mut report = described(run, &drive);
    let calibrated = calibrated(run, &drive, PROJ_1);
    guesses(&mut report, &calibrated);
    let all = run_tasks(run, tasks(&drive, &calibrated, 128, Reading::Submission))?;
    let mut series = Vec::new();
    for ran in &all[..3] {
        let early: Vec<(f64, f64)> = ran
            .replayed
            .responses
            .iter()
            .filter(|response| response.begun_nanos < 1_000_000_000_000)
            .map(|response| (response.begun_nanos as f64 / 1e9, response.nanos as f64 / 1e9))
            .collect();
        let share = early.iter().filter(|point| point.1 < 1.0).count() as f64 / early.len().max(1) as f64;
        let scheme = ran.task.control.name();
        match ran.task.control {
            Control::Idler => {
                goal(&mut report, &scheme, "share below 1 s", share, "the paper's: most", share > 0.5);
            }
            _ => drawn(&mut report, &scheme, "share below 1 s", "1", share),
        }
        let longest = early.iter().map(|point| point.1).fold(0.0, f64::max);
        drawn(&mut report, &scheme, "longest", "s", longest);
        // The longest of each second.
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut sorted = early;
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (at, took) in sorted {
            match points.last_mut() {
                Some(last) if last.0 == at.floor() => last.1 = last.1.max(took),
                _ => points.push((at.floor(), took)),
            }
        }
        series.push((scheme, points));
    }
    report.plots.push(Plot {
        name: "before".to_owned(),
        title: "longest response of each second".to_owned(),
        medium: MEDIUM.to_owned(),
        y: Axis::logarithmic("response time (s)"),
        figure: Figure::Lines(Lines { x: Axis::linear("time (s)"), series, paper: Vec::new() }),
    });
    Ok(report)
}

fn others(run: &Run<'_>) -> Result<Report, LabError> {
    let drive = Drive::new(run.scale);
    let mut report = described(run, &drive);
    let all: Vec<Calibrated> = OTHERS.iter().map(|&published| calibrated(run, &drive, published)).collect();
    all.iter().take(1).for_each(|calibrated| guesses(&mut report, calibrated));
    let ran =
        run_tasks(run, all.iter().flat_map(|calibrated| tasks(&drive, calibrated, 16, Reading::Submission)).collect())?;
    for (calibrated, of_trace) in all.iter().zip(ran.chunks(CONTROLS.len())) {
        for ran in of_trace {
            drawn(&mut report, &ran.task.control.name(), &format!("{}: P99.9", calibrated.name), "s", tail(ran));
            told(&mut report, calibrated.name, ran);
        }
        let [none, _, idler, ..] = of_trace else { continue };
        goals(&mut report, calibrated.name, of_trace);
        let ratio = tail(idler) / tail(none);
        let few = calibrated.write_basis_points < 1000;
        let (wanted, holds) = match few {
            true => ("the paper's: well below 1", ratio < 0.5),
            false => ("the paper's: less of a gain", ratio > 0.2),
        };
        goal(&mut report, "Idler", &format!("{}: P99.9 to no control", calibrated.name), ratio, wanted, holds);
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use crate::experiment::{Settings, run, select};
    use crate::host;
    use crate::report::Report;
    use std::path::Path;

    const LINES: &str =
        "128166372003061629,usr,0,Read,7014609920,24576,41286\n128166372003061700,usr,0,Write,0,4096,100\n";

    fn replayed(place: &Path, skips_malformed: bool) -> Result<Report, String> {
        let settings = Settings {
            scale: Some(crate::experiment::Scale::one_in(1024)),
            traces: Some(place.to_owned()),
            skips_malformed,
            ..Settings::default()
        };
        run(select(&["idler/traces".to_owned()]).unwrap()[0], &settings).map_err(|error| error.to_string())
    }

    /// Every file is in the report: as a condition if it was replayed, or among those left out.
    #[test]
    fn every_file_is_replayed_or_reported() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        assert!(replayed(place, false).unwrap_err().contains("no trace was replayed: it holds no file"));
        let write = |name: &str, bytes: &[u8]| host::write_file(&place.join(name), bytes).unwrap();
        write("README", b"where these come from\n");
        write("inner/usr_9.csv", LINES.as_bytes());
        let error = replayed(place, false).unwrap_err();
        assert!(error.contains("README: no known format fits") && error.contains("inner: a directory"), "{error}");
        write("usr_0.csv", LINES.as_bytes());
        write("anything", b"time,op,size,lbn\n1,w,512,0\n");
        write("bad.csv", format!("{LINES}12,usr\n").as_bytes());
        let report = replayed(place, false).unwrap();
        let names = |report: &Report| -> Vec<String> {
            let formats = report.conditions.iter().filter(|(_, said)| said.starts_with("format "));
            formats.map(|(name, said)| format!("{name}: {said}")).collect()
        };
        assert_eq!(
            names(&report),
            ["anything: format csv, 1 requests, 100.0 % writes", "usr_0.csv: format msr, 2 requests, 50.0 % writes"]
        );
        assert!(report.rows.iter().any(|row| row.metric.contains("usr_0.csv")), "{:?}", report.rows);
        let left_out: Vec<&str> = report.left_out.iter().map(|reason| reason.split_once(": ").unwrap().0).collect();
        assert_eq!(left_out, ["README", "bad.csv", "inner"]);
        assert!(report.left_out[1].contains("as msr: line 3: "), "{:?}", report.left_out);
        let text = report.to_text();
        assert!(report.left_out.iter().all(|reason| text.contains(&format!("left out: {reason}"))), "{text}");
        assert_eq!(Report::from_json(&report.to_json()).unwrap().left_out, report.left_out);
        // Skipped lines are reported too.
        let report = replayed(&place.join("bad.csv"), true).unwrap();
        assert_eq!(names(&report), ["bad.csv: format msr, 2 requests, 50.0 % writes"]);
        assert_eq!(report.left_out, ["bad.csv: 1 malformed lines, the first of them line 3"]);
        assert!(replayed(&place.join("nowhere"), false).is_err());
    }
}
