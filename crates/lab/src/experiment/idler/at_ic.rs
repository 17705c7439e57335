//! Figures 4.4 to 4.7: AT-IC by the share and by the length of its idle periods.

use super::drive::{Control, Drive, Ran, Reading, Task, run_tasks};
use super::table4_2::{full_finish, workload};
use super::told::{MEDIUM, cdf, described, told};
use crate::error::LabError;
use crate::experiment::comparison::{drawn, goal};
use crate::experiment::{Experiment, Run};
use crate::report::{Axis, Bars, Figure, Plot, Report};
use std::sync::Arc;

const THREADS: [usize; 3] = [1, 16, 128];

/// By share: 9.1, 28.6 and 50 %.
const RATIOS: [Control; 4] =
    [Control::None, Control::Fixed(20_000, 2000), Control::Fixed(5000, 2000), Control::Fixed(2000, 2000)];

/// By length, all of 28.6 % (28.75 by the text).
const LENGTHS: [Control; 4] =
    [Control::None, Control::Fixed(5000, 2000), Control::Fixed(2500, 1000), Control::Fixed(1250, 500)];

pub(in crate::experiment) const FIG_4_4: Experiment = Experiment {
    id: "idler/fig4.4",
    title: "Idler, figure 4.4: response times by share of idle time",
    description: "Requests of 1 MB, 10 to 100 ms apart, by 1, 16 and 128 threads; 35 GB are written out of order to 1,024 \
                  zones. Scale divides zones, cache, extents and requests; times stay.",
    default_scale: super::DEFAULT_SCALE,
    run: |run| distributions(run, &RATIOS),
};

pub(in crate::experiment) const FIG_4_5: Experiment = Experiment {
    id: "idler/fig4.5",
    title: "Idler, figure 4.5: P99.9 and finish time by share of idle time",
    description: "The runs of idler/fig4.4. By the text <5:2> and <2:2> take more than 90 % off the P99.9 of 16 and 128 \
                  threads, <5:2> finishes 10 to 15 % earlier and <2:2> later, and <20:2> makes the P99.9 of one thread \
                  longer.",
    default_scale: super::DEFAULT_SCALE,
    run: ratios,
};

pub(in crate::experiment) const FIG_4_6: Experiment = Experiment {
    id: "idler/fig4.6",
    title: "Idler, figure 4.6: response times by length of idle periods",
    description: "As idler/fig4.4, with idle periods of 2, 1 and 0.5 s and as much idle time. (The text says 28.75 %; 2 of 7 \
                  are 28.57.)",
    default_scale: super::DEFAULT_SCALE,
    run: |run| distributions(run, &LENGTHS),
};

pub(in crate::experiment) const FIG_4_7: Experiment = Experiment {
    id: "idler/fig4.7",
    title: "Idler, figure 4.7: P99.9 and finish time by length of idle periods",
    description: "The runs of idler/fig4.6. By the text <2.5:1> has a shorter tail than <5:2>, and <1.25:0.5> does as no \
                  control does and finishes after both.",
    default_scale: super::DEFAULT_SCALE,
    run: lengths,
};

/// Of each number of threads, all controls and a conventional disk.
fn run_all(run: &Run<'_>, controls: &[Control], reading: Reading) -> Result<Vec<Vec<Arc<Ran>>>, LabError> {
    let drive = Drive::new(run.scale);
    let each = controls.iter().copied().chain([Control::Conventional]);
    let tasks = THREADS.iter().flat_map(|&threads| {
        let (drive, workload) = (&drive, workload(run, &drive, (10, 100), 10, 1024));
        each.clone().map(move |control| Task {
            drive: drive.clone(),
            control,
            workload: workload.clone(),
            pace: reading.pace(threads),
        })
    });
    let all = run_tasks(run, tasks.collect())?;
    Ok(all.chunks(controls.len() + 1).map(<[_]>::to_vec).collect())
}

fn distributions(run: &Run<'_>, controls: &[Control]) -> Result<Report, LabError> {
    let mut report = described(run, &Drive::new(run.scale));
    for (threads, of_threads) in THREADS.iter().zip(run_all(run, controls, Reading::Submission)?) {
        for ran in &of_threads {
            for (name, share) in [("median", 0.5), ("P90", 0.9), ("P99", 0.99), ("P99.9", 0.999)] {
                let metric = format!("{threads} threads: {name}");
                drawn(&mut report, &ran.task.control.name(), &metric, "s", ran.replayed.seconds(share));
            }
        }
        let title = format!("response times, {threads} threads");
        report.plots.push(cdf(&format!("threads-{threads}"), &title, &of_threads));
    }
    Ok(report)
}

fn bars(report: &mut Report, name: &str, y: &str, all: &[Vec<Arc<Ran>>], number: impl Fn(&Ran) -> f64) {
    let schemes = all.first().map(Vec::as_slice).unwrap_or_default();
    let series = schemes.iter().enumerate().map(|(place, ran)| {
        let bars = all.iter().map(|of_threads| of_threads.get(place).map(|ran| number(ran))).collect();
        (ran.task.control.name(), bars)
    });
    let groups = THREADS.iter().map(|threads| format!("{threads} threads")).collect();
    let figure = Figure::Bars(Bars { groups, series: series.collect() });
    report.plots.push(Plot {
        name: name.to_owned(),
        title: report.title.clone(),
        medium: MEDIUM.to_owned(),
        y: Axis::linear(y),
        figure,
    });
}

fn tails_and_finishes(run: &Run<'_>, controls: &[Control]) -> Result<(Report, Vec<Vec<Arc<Ran>>>), LabError> {
    let mut report = described(run, &Drive::new(run.scale));
    for (threads, of_threads) in THREADS.iter().zip(run_all(run, controls, Reading::Arrival)?) {
        for ran in of_threads {
            let scheme = Reading::Arrival.scheme(ran.task.control);
            drawn(&mut report, &scheme, &format!("{threads} threads: P99.9"), "s", tail(&ran));
            drawn(&mut report, &scheme, &format!("{threads} threads: finish (full size)"), "s", full_finish(run, &ran));
        }
    }
    let all = run_all(run, controls, Reading::Submission)?;
    for (threads, of_threads) in THREADS.iter().zip(&all) {
        for ran in of_threads {
            let scheme = ran.task.control.name();
            let what = format!("{threads} threads");
            drawn(&mut report, &scheme, &format!("{what}: P99.9"), "s", ran.replayed.seconds(0.999));
            drawn(&mut report, &scheme, &format!("{what}: finish (full size)"), "s", full_finish(run, ran));
            told(&mut report, &what, ran);
        }
    }
    bars(&mut report, "tail", "P99.9 (s)", &all, |ran| ran.replayed.seconds(0.999));
    bars(&mut report, "finish", "finish (s)", &all, |ran| ran.replayed.finish_nanos as f64 / 1e9);
    Ok((report, all))
}

fn tail(ran: &Ran) -> f64 {
    ran.replayed.seconds(0.999)
}

fn finish(ran: &Ran) -> f64 {
    ran.replayed.finish_nanos as f64
}

fn ratios(run: &Run<'_>) -> Result<Report, LabError> {
    let (mut report, all) = tails_and_finishes(run, &RATIOS)?;
    for (threads, of_threads) in THREADS.iter().zip(&all) {
        let [none, rare, some, half, ..] = of_threads.as_slice() else { continue };
        let says = |report: &mut Report, ran: &Ran, metric: &str, ours: f64, wanted: &str, holds: bool| {
            goal(report, &ran.task.control.name(), &format!("{threads} threads: {metric}"), ours, wanted, holds);
        };
        if *threads > 1 {
            for ran in [some, half] {
                let ratio = tail(ran) / tail(none);
                says(&mut report, ran, "P99.9 to no control", ratio, "the paper's: below 0.1", ratio < 0.1);
            }
        } else {
            let ratio = tail(rare) / tail(none);
            says(&mut report, rare, "P99.9 to no control", ratio, "the paper's: above 1", ratio > 1.0);
        }
        let ratio = finish(some) / finish(none);
        let within = (0.85..=0.90).contains(&ratio);
        says(&mut report, some, "finish to no control", ratio, "the paper's: 0.85 to 0.90", within);
        let ratio = finish(half) / finish(none);
        says(&mut report, half, "finish to no control", ratio, "the paper's: above 1", ratio > 1.0);
        for ran in [rare, some, half] {
            let ratio = ran.replayed.seconds(0.5) / none.replayed.seconds(0.5);
            says(&mut report, ran, "median to no control", ratio, "the paper's: above 1", ratio > 1.0);
        }
    }
    Ok(report)
}

fn lengths(run: &Run<'_>) -> Result<Report, LabError> {
    let (mut report, all) = tails_and_finishes(run, &LENGTHS)?;
    for (threads, of_threads) in THREADS.iter().zip(&all) {
        let [none, long, middle, short, ..] = of_threads.as_slice() else { continue };
        let mut says = |ran: &Ran, metric: &str, ours: f64, wanted: &str, holds: bool| {
            goal(&mut report, &ran.task.control.name(), &format!("{threads} threads: {metric}"), ours, wanted, holds);
        };
        let ratio = tail(middle) / tail(long);
        says(middle, "P99.9 to <5:2>", ratio, "the paper's: below 1", ratio < 1.0);
        let ratio = tail(short) / tail(none);
        says(short, "P99.9 to no control", ratio, "the paper's: close to 1", (0.75..1.33).contains(&ratio));
        let ratio = finish(short) / finish(long).max(finish(middle));
        says(short, "finish to the later of the others", ratio, "the paper's: above 1", ratio > 1.0);
    }
    Ok(report)
}
