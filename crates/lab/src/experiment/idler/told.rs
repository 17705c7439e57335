//! Conditions and rows that the reports of these experiments share.

use super::drive::{Control, Drive, Ran};
use crate::experiment::Run;
use crate::experiment::comparison::ours;
use crate::report::{Axis, Figure, Lines, Plot, Report};
use std::sync::Arc;

/// The medium.
pub(super) const MEDIUM: &str = "emulated ST8000AS0022, in virtual time";

/// An empty report with the drive's constants.
pub(super) fn described(run: &Run<'_>, drive: &Drive) -> Report {
    let mut report = run.report();
    report.condition("medium", MEDIUM);
    report.condition("zones", format!("{} of 256 MiB", drive.zone_count));
    let translation = &drive.translation;
    let cache = translation.media_cache;
    report.condition("media cache", format!("{} bytes, {} extents", cache.bytes, cache.extents_max));
    report.condition("idle trigger", format!("{} ms, fitted to table 4.1", translation.idle_trigger_nanos / 1_000_000));
    report.condition("Idler's reports", format!("each {} s", drive.idler.report_nanos as f64 / 1e9));
    report.condition(
        "fitted to measurements (idler/calibration)",
        format!(
            "bytes of the media cache, order {:?}, space comes back by {:?}, blocking steps of {} bytes, blocking until {} % are in use",
            translation.order, translation.reclaim, translation.blocking_step_bytes, translation.blocking_stop_percent
        ),
    );
    report.condition(
        "assumed",
        format!(
            "idle steps of {} bytes, {} requests between steps, an idle cleaning at a command: {:?}",
            translation.idle_step_bytes, translation.requests_between_steps, translation.interrupted
        ),
    );
    report
}

/// Rows of a replay that the paper does not compare.
pub(super) fn told(report: &mut Report, what: &str, ran: &Ran) {
    let scheme = ran.task.control.name();
    let replayed = &ran.replayed;
    let mut tell =
        |metric: &str, unit: &str, number: f64| ours(report, &scheme, &format!("{what}: {metric}"), unit, number);
    tell("median", "s", replayed.seconds(0.5));
    tell("P99.9, exact", "s", replayed.seconds(0.999));
    tell("longest", "s", replayed.seconds(1.0));
    tell("finish", "s", replayed.finish_nanos as f64 / 1e9);
    let cleaning = &ran.cleaning;
    tell("times blocked", "1", cleaning.blocking_cleanings as f64);
    tell("blocked", "s", cleaning.blocking_cleaning_nanos as f64 / 1e9);
    tell("zones cleaned idle", "1", cleaning.idle_cleaned_zones as f64);
    tell("zones cleaned blocking", "1", cleaning.blocking_cleaned_zones as f64);
    tell("held back", "1", ran.statistics.delayed as f64);
    if ran.task.control == Control::Relocating {
        let relocation = &ran.relocation;
        tell("zones relocated", "1", relocation.relocated_zones as f64);
        tell("relocations given up", "1", relocation.given_up as f64);
        tell("steps", "1", relocation.steps as f64);
        tell("steps took", "s", relocation.step_nanos as f64 / 1e9);
        tell("longest step", "s", relocation.longest_step_nanos as f64 / 1e9);
        tell("writes held", "1", relocation.held_writes as f64);
        tell("longest hold", "s", relocation.longest_hold_nanos as f64 / 1e9);
    }
}

/// Response times as distributions.
pub(super) fn cdf(name: &str, title: &str, all: &[Arc<Ran>]) -> Plot {
    let series = all.iter().map(|ran| {
        let sorted = ran.replayed.sorted_nanos();
        let count = sorted.len().max(1);
        // A few hundred points, more of them in the tail.
        let shares =
            (0..=200).map(|step| f64::from(step) / 200.0).chain((0..100).map(|step| 0.99 + f64::from(step) / 1e4));
        let mut points: Vec<(f64, f64)> = shares
            .filter_map(|share| {
                let rank = ((count as f64 * share).ceil() as usize).clamp(1, count);
                sorted.get(rank - 1).map(|&nanos| (nanos as f64 / 1e9, share))
            })
            .collect();
        points.sort_by(|a, b| a.1.total_cmp(&b.1));
        (ran.task.control.name(), points)
    });
    let lines = Lines { x: Axis::logarithmic("response time (s)"), series: series.collect(), paper: Vec::new() };
    Plot {
        name: name.to_owned(),
        title: title.to_owned(),
        medium: MEDIUM.to_owned(),
        y: Axis::linear("share of requests"),
        figure: Figure::Lines(lines),
    }
}
