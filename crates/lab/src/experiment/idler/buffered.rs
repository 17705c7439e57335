//! Figures 4.13 and 4.14: a write buffer of 64 MB before the drive.

use super::drive::{Control, Drive, Ran, Reading, Task, run_tasks};
use super::table4_2::full_finish;
use super::told::{cdf, described, told};
use super::traces::{PRN_1, PROJ_1, Published, THREADS, calibrated, finish, guesses, tail, tasks};
use crate::block::buffer::BufferParameters;
use crate::error::LabError;
use crate::experiment::comparison::{drawn, goal, ours};
use crate::experiment::{Experiment, Run};
use crate::replay::Calibrated;
use crate::report::Report;
use std::sync::Arc;

pub(in crate::experiment) const FIG_4_13: Experiment = Experiment {
    id: "idler/fig4.13",
    title: "Idler, figure 4.13: P99.9 and finish time of proj_1 (synthetic, calibrated) with a write buffer of 64 MB",
    description: "As idler/fig4.10 with a buffer of 4 KiB pages on an emulated SATA SSD, which leave by zones (zones with more than 400 \
                  are written anew) before room is needed; before a conventional disk by pages, least recently used. With 16 and 128 \
                  threads also where they leave when room is needed, as in the paper. Scale divides the buffer too.",
    default_scale: super::DEFAULT_SCALE,
    run: |run| buffered(run, PROJ_1, (71.3, 87.7)),
};

pub(in crate::experiment) const FIG_4_14: Experiment = Experiment {
    id: "idler/fig4.14",
    title: "Idler, figure 4.14: P99.9 and finish time of prn_1 (synthetic, calibrated) with a write buffer of 64 MB",
    description: "As idler/fig4.13 with 24.66 % writes.",
    default_scale: super::DEFAULT_SCALE,
    run: |run| buffered(run, PRN_1, (70.0, 85.2)),
};

/// Of the writes of a variant whose writes go where others went a short while ago.
const REWRITTEN_PERCENT: u64 = 80;

/// How much shorter than another's a tail is, in hundredths.
fn shorter(ran: &Ran, than: &Ran) -> f64 {
    (1.0 - tail(ran) / tail(than)) * 100.0
}

fn buffered(run: &Run<'_>, published: Published, paper: (f64, f64)) -> Result<Report, LabError> {
    let without = Drive::new(run.scale);
    let drive = without.clone().with_buffer(run.scale);
    let page_count = drive.buffer.as_ref().map_or(0, |buffer| buffer.page_count);
    let mut report = described(run, &drive);
    report.condition("write buffer", format!("{page_count} pages of 4 KiB, emulated SATA SSD"));
    let calibrated = calibrated(run, &without, published);
    guesses(&mut report, &calibrated);
    // The paper's buffer absorbs much, so its traces write again what they wrote; how much is not said.
    let again = Calibrated {
        rewritten_percent: REWRITTEN_PERCENT,
        rewritten_among: u64::from(page_count) / 4,
        ..calibrated.clone()
    };
    let of_local = |drive: &Drive| tasks(drive, &again, 16, Reading::Submission).into_iter();
    let local = run_tasks(run, of_local(&drive).chain(of_local(&without)).collect())?;
    let of_drives = |drive: &Drive| {
        let all = THREADS.iter().flat_map(|&threads| tasks(drive, &calibrated, threads, Reading::Submission)).collect();
        run_tasks(run, all)
    };
    let (all, bare) = (of_drives(&drive)?, of_drives(&without)?);
    let schemes = all.len() / THREADS.len();
    let names = THREADS.iter().map(|threads| format!("{threads} threads"));
    let names = names.chain([format!("16 threads, {REWRITTEN_PERCENT} % rewritten")]);
    let (with_local, bare_local) = local.split_at(schemes);
    let with_buffer = all.chunks(schemes).chain([with_local]);
    for ((what, of_threads), bare) in names.zip(with_buffer).zip(bare.chunks(schemes).chain([bare_local])) {
        for ran in of_threads {
            let scheme = ran.task.control.name();
            drawn(&mut report, &scheme, &format!("{what}: P99.9"), "s", tail(ran));
            drawn(&mut report, &scheme, &format!("{what}: finish (full size)"), "s", full_finish(run, ran));
            told(&mut report, &what, ran);
            let Some(buffer) = ran.buffer else { continue };
            let mut tell = |metric: &str, number: u64| {
                ours(&mut report, &scheme, &format!("{what}: {metric}"), "1", number as f64)
            };
            tell("pages taken in", buffer.absorbed_pages);
            tell("pages written over", buffer.overwritten_pages);
            tell("pages of reads in the buffer", buffer.read_hit_pages);
            tell("writes of pages that left", buffer.eviction_writes);
            tell("zones written anew by the buffer", buffer.rewritten_zones);
            tell("writes that found no room", buffer.waits);
            tell("evictions before room was needed", buffer.evictions_ahead);
        }
        compared(&mut report, &what, of_threads, bare, paper);
        let title = format!("response times with a write buffer, {what}");
        report.plots.push(cdf(&format!("threads-{}", report.plots.len()), &title, of_threads));
    }
    without_ahead(run, &mut report, &drive, &calibrated)?;
    Ok(report)
}

/// The same where pages leave when room is needed, one eviction at a time, as the paper says.
fn without_ahead(run: &Run<'_>, report: &mut Report, drive: &Drive, calibrated: &Calibrated) -> Result<(), LabError> {
    let page_count = drive.buffer.as_ref().map_or(0, |buffer| buffer.page_count);
    let buffer = Some(BufferParameters { page_count, ..BufferParameters::paper() });
    let drive = Drive { buffer, ..drive.clone() };
    let threads = [16, 128];
    let of_threads = |&threads: &usize| {
        let of_both = |task: &Task| matches!(task.control, Control::None | Control::Relocating);
        tasks(&drive, calibrated, threads, Reading::Submission)
            .into_iter()
            .filter(of_both)
            .map(move |task| (threads, task))
    };
    let (threads, tasks): (Vec<usize>, Vec<Task>) = threads.iter().flat_map(of_threads).unzip();
    for (threads, ran) in threads.into_iter().zip(run_tasks(run, tasks)?) {
        let scheme = format!("{}, evictions when room is needed", ran.task.control.name());
        let mut tell = |metric: &str, unit: &'static str, number: f64| {
            ours(report, &scheme, &format!("{threads} threads: {metric}"), unit, number);
        };
        tell("P99.9, exact", "s", tail(&ran));
        tell("longest", "s", ran.replayed.seconds(1.0));
        tell("finish", "s", finish(&ran) / 1e9);
        let Some(buffer) = ran.buffer else { continue };
        tell("writes of pages that left", "1", buffer.eviction_writes as f64);
        tell("writes that found no room", "1", buffer.waits as f64);
    }
    Ok(())
}

fn compared(report: &mut Report, what: &str, of_threads: &[Arc<Ran>], bare: &[Arc<Ran>], paper: (f64, f64)) {
    let of = |all: &[Arc<Ran>], control: Control| all.iter().find(|ran| ran.task.control == control).cloned();
    let (Some(none), Some(idler), Some(conventional), Some(endless)) = (
        of(of_threads, Control::None),
        of(of_threads, Control::Idler),
        of(of_threads, Control::Conventional),
        of(of_threads, Control::Endless),
    ) else {
        return;
    };
    let wanted = format!("the paper's: {} to {} by threads, of which two it does not say", paper.0, paper.1);
    let within = |gain: f64| (paper.0 * 0.9..=100.0).contains(&gain);
    let gain = shorter(&idler, &none);
    goal(report, "Idler", &format!("{what}: P99.9 below no control (%)"), gain, &wanted, within(gain));
    if let Some(bare) = of(bare, Control::Idler) {
        let gain = shorter(&idler, &bare);
        goal(report, "Idler", &format!("{what}: P99.9 below Idler without a buffer (%)"), gain, &wanted, within(gain));
    }
    if let Some(bare) = of(bare, Control::None) {
        let ratio = tail(&none) / tail(&bare);
        let holds = (0.75..1.33).contains(&ratio);
        goal(
            report,
            "no control",
            &format!("{what}: P99.9 to that without a buffer"),
            ratio,
            "the paper's: not less",
            holds,
        );
    }
    if let Some(ours) = of(of_threads, Control::Relocating) {
        let scheme = ours.task.control.name();
        let ratio = tail(&ours) / tail(&conventional);
        goal(report, &scheme, &format!("{what}: P99.9 to CMR with a buffer"), ratio, "at most 1.5", ratio <= 1.5);
        let ratio = finish(&ours) / finish(&endless);
        goal(report, &scheme, &format!("{what}: finish to an endless cache"), ratio, "within 3 %", ratio <= 1.03);
    }
}
