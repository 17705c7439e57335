//! The drive beside a real one: non-sequential zones over time.

mod measured;
mod workload;

use super::drive::{Drive, fill};
use super::told::{MEDIUM, described};
use crate::block::idler::{Controller, FixedIdle, Unrestrained};
use crate::error::LabError;
use crate::experiment::comparison::{compare, ours};
use crate::experiment::together::{Wanted, measure};
use crate::experiment::{Experiment, Run, Scale};
use crate::media::emulated::{
    CleaningOrder, Interrupted, ST8000AS0022_PUBLISHED_CACHE_BYTES, SpaceReclaim, TranslationParameters,
};
use crate::media::{Device, MediaCache};
use crate::replay::{BlockRequest, Pace, ReplayOptions, replay_controlled};
use crate::report::{Axis, Figure, Lines, Plot, Report};
use measured::Reports;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use varve::env::Env;
use workload::{CONVENTIONAL_ZONES, Layout, MeasuredWorkload};

pub(in crate::experiment) const CALIBRATION: Experiment = Experiment {
    id: "idler/calibration",
    title: "the emulated host-aware drive beside a real one: non-sequential zones over time (not in the paper)",
    description: "Measurements of the thesis' author (public repository BaoquanZhang/SMReplay): a report of zones each 600 s of a replay by \
                  timestamp, one request at a time, with durable writes. The drive is fitted to the run without control alone; the runs with \
                  AT-IC and with fixed intervals are checks, and nothing is fitted to them. \
                  Scale divides zones, cache, requests and the time between reports.",
    default_scale: Scale::FULL,
    run: calibration,
};

/// A measured run.
#[derive(Clone, Copy)]
struct Measurement {
    name: &'static str,
    interval_millis: (u64, u64),
    layout: Layout,
    /// Execution and idle time of AT-IC as the program reads them, in seconds.
    control: Option<(u64, u64)>,
    reports: Reports,
}

const fn main_workload(name: &'static str, control: Option<(u64, u64)>, reports: Reports) -> Measurement {
    Measurement { name, interval_millis: (10, 150), layout: Layout::Strided, control, reports }
}

const fn fixed(name: &'static str, millis: u64, control: Option<(u64, u64)>, reports: Reports) -> Measurement {
    Measurement { name, interval_millis: (millis, millis), layout: Layout::Conventional, control, reports }
}

/// The run that the drive is fitted to.
const FITTED: Measurement = main_workload("no control", None, measured::NO_CONTROL);

/// Runs that nothing is fitted to.
const CHECKS: [Measurement; 11] = [
    main_workload("no control, another drive", None, measured::NO_CONTROL_AGAIN),
    main_workload("AT-IC <20:2>", Some((20, 2)), measured::IDLE_20_2),
    main_workload("AT-IC <5:2>", Some((5, 2)), measured::IDLE_5_2),
    main_workload("AT-IC <2:2>", Some((2, 2)), measured::IDLE_2_2),
    main_workload("AT-IC <2:1>", Some((2, 1)), measured::IDLE_2_1),
    fixed("30 ms, no control", 30, None, measured::EVERY_30_MS),
    fixed("50 ms, no control", 50, None, measured::EVERY_50_MS),
    fixed("100 ms, no control", 100, None, measured::EVERY_100_MS),
    fixed("30 ms, AT-IC <5:2>", 30, Some((5, 2)), measured::EVERY_30_MS_IDLE),
    fixed("50 ms, AT-IC <5:2>", 50, Some((5, 2)), measured::EVERY_50_MS_IDLE),
    fixed("100 ms, AT-IC <5:2>", 100, Some((5, 2)), measured::EVERY_100_MS_IDLE),
];

/// A candidate of the fit: what differs from the fitted drive.
type Candidate = (&'static str, fn(&mut TranslationParameters));

const CANDIDATES: [Candidate; 18] = [
    ("fitted", |_| {}),
    ("as assumed before", |drive| *drive = TranslationParameters::st8000as0022_assumed()),
    ("cache of 28 GB", |drive| drive.media_cache.bytes = ST8000AS0022_PUBLISHED_CACHE_BYTES),
    ("cache of 17.4 GB", |drive| drive.media_cache.bytes = 17_400_000_000),
    ("cache of 17.8 GB", |drive| drive.media_cache.bytes = 17_800_000_000),
    ("cache of 18.6 GB", |drive| drive.media_cache.bytes = 18_600_000_000),
    ("cache of 19.0 GB", |drive| drive.media_cache.bytes = 19_000_000_000),
    ("space comes back with the zone", |drive| drive.reclaim = SpaceReclaim::Zone),
    ("space comes back with the zone, until 50 %", |drive| {
        (drive.reclaim, drive.blocking_stop_percent) = (SpaceReclaim::Zone, 50);
    }),
    ("until the waiting write fits", |drive| drive.blocking_stop_percent = 100),
    ("until 80 %", |drive| drive.blocking_stop_percent = 80),
    ("until 50 %", |drive| drive.blocking_stop_percent = 50),
    ("cheapest zone first", |drive| drive.order = CleaningOrder::Cheapest),
    ("fullest zone first", |drive| drive.order = CleaningOrder::Fullest),
    ("blocking steps of 1 MiB", |drive| drive.blocking_step_bytes = 1 << 20),
    ("blocking steps of 4 MiB", |drive| drive.blocking_step_bytes = 4 << 20),
    ("blocking steps of 8 MiB", |drive| drive.blocking_step_bytes = 8 << 20),
    ("blocking steps of 256 MiB", |drive| drive.blocking_step_bytes = 256 << 20),
];

/// Latencies of `log-dependent-no`, the first 12,497 requests without control, in milliseconds: share and latency.
const MEASURED_LATENCIES: [(&str, f64, f64); 5] =
    [("P5", 0.05, 2.5), ("median", 0.5, 12.7), ("P90", 0.9, 25.5), ("P99", 0.99, 38.6), ("P99.9", 0.999, 336.4)];
const LATENCY_REQUESTS: usize = 12_497;

/// Zones of a modelled run at the times of the reports of the measured one, at full size; and its response times.
#[derive(Debug)]
struct Modelled {
    zones: Vec<f64>,
    /// Latencies of the first [`LATENCY_REQUESTS`] requests, in nanoseconds, ascending.
    early_nanos: Vec<u64>,
    finish_seconds: f64,
    blocked_seconds: f64,
}

fn wanted(run: &Run<'_>, measurement: Measurement, translation: TranslationParameters) -> Wanted<Modelled> {
    let (scale, seed) = (run.scale, run.settings.seed);
    let (from, to) = measurement.interval_millis;
    let interval_nanos: Range<u64> = from * 1_000_000..to * 1_000_000;
    let workload = MeasuredWorkload::new(interval_nanos, measurement.layout, scale, seed);
    let key = format!("idler/calibration {seed} {scale} {} {translation:?}", measurement.name);
    let operations = workload.request_count();
    let work = move |env: &Env| model(env, &measurement, &translation, &workload);
    Wanted {
        key,
        operations,
        run: Box::new(move |advance| {
            let modelled = crate::experiment::simulate(seed, work);
            advance(operations);
            modelled
        }),
    }
}

fn model(
    env: &Env,
    measurement: &Measurement,
    translation: &TranslationParameters,
    workload: &MeasuredWorkload,
) -> Result<Modelled, LabError> {
    let scale = workload.scale;
    let MediaCache { bytes, extents_max } = translation.media_cache;
    let media_cache = MediaCache { bytes: scale.of(bytes), extents_max: scale.of(extents_max.into()) as u32 };
    let translation = TranslationParameters { media_cache, ..translation.clone() };
    let drive = Drive { translation, conventional_zones: CONVENTIONAL_ZONES, ..Drive::new(scale) };
    let device = drive.build_bare(env, 0)?;
    fill(&device, &workload.full_zones())?;
    let trace: Arc<[BlockRequest]> = workload.generate().into();
    let controller: Box<dyn Controller> = match measurement.control {
        Some((execution, idle)) => Box::new(FixedIdle::new(execution * 1_000_000_000, idle * 1_000_000_000)),
        None => Box::new(Unrestrained),
    };
    let is_done = Arc::new(AtomicBool::new(false));
    let watcher = {
        let (env, device, is_done) = (env.clone(), device.clone(), Arc::clone(&is_done));
        let begin = env.now();
        let times: Vec<u64> =
            measurement.reports.iter().map(|report| scale.of(u64::from(report.0) * 1_000_000_000)).collect();
        env.clone().spawn("watcher", move || {
            let mut seen: Vec<f64> = Vec::new();
            for nanos in times {
                env.sleep_until(begin + Duration::from_nanos(nanos));
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                seen.push(non_sequential(&device) * scale.denominator() as f64);
            }
            seen
        })
    };
    let options = ReplayOptions { writes_durably: true, ..Pace::Timestamps { threads: 1 }.into() };
    let replayed = replay_controlled(env, &device, &trace, options, controller);
    is_done.store(true, Ordering::Relaxed);
    let zones = watcher.join()?;
    let (replayed, _) = replayed?;
    let mut early_nanos: Vec<u64> =
        replayed.responses.iter().take(LATENCY_REQUESTS).map(|response| response.nanos).collect();
    early_nanos.sort_unstable();
    let blocked_seconds = device.block.counters().cleaning.blocking_cleaning_nanos as f64 / 1e9;
    Ok(Modelled { zones, early_nanos, finish_seconds: replayed.finish_nanos as f64 / 1e9, blocked_seconds })
}

fn non_sequential(device: &Device) -> f64 {
    device.block.counters().cleaning.non_sequential_zones as f64
}

/// Root of the mean square, mean and largest of the errors, in zones.
fn errors(measurement: &Measurement, modelled: &Modelled) -> (f64, f64, f64) {
    let errors: Vec<f64> =
        measurement.reports.iter().zip(&modelled.zones).map(|(report, zones)| zones - f64::from(report.1)).collect();
    let count = errors.len().max(1) as f64;
    let square: f64 = errors.iter().map(|error| error * error).sum();
    let largest = errors.iter().fold(0.0, |largest: f64, error| largest.max(error.abs()));
    ((square / count).sqrt(), errors.iter().sum::<f64>() / count, largest)
}

fn summarise(report: &mut Report, scheme: &str, measurement: &Measurement, modelled: &Modelled) {
    let (root, mean, largest) = errors(measurement, modelled);
    ours(report, scheme, &format!("{}: error, root of mean square", measurement.name), "zones", root);
    ours(report, scheme, &format!("{}: error, mean", measurement.name), "zones", mean);
    ours(report, scheme, &format!("{}: error, largest", measurement.name), "zones", largest);
    ours(report, scheme, &format!("{}: reports compared", measurement.name), "1", modelled.zones.len() as f64);
    ours(report, scheme, &format!("{}: blocked", measurement.name), "s", modelled.blocked_seconds);
    ours(report, scheme, &format!("{}: finish", measurement.name), "s", modelled.finish_seconds);
}

fn calibration(run: &Run<'_>) -> Result<Report, LabError> {
    let mut report = described(run, &Drive::new(run.scale));
    let fitted = TranslationParameters::st8000as0022();
    let stops = TranslationParameters { interrupted: Interrupted::RepeatsStep, ..fitted.clone() };
    let candidates = CANDIDATES.map(|(name, change)| {
        let mut parameters = fitted.clone();
        change(&mut parameters);
        (name, parameters)
    });
    let fits = candidates.iter().map(|(_, parameters)| wanted(run, FITTED, parameters.clone()));
    let checks = CHECKS.iter().map(|&check| wanted(run, check, fitted.clone()));
    let controlled: Vec<Measurement> = CHECKS.into_iter().filter(|check| check.control.is_some()).collect();
    let stopped = controlled.iter().map(|&check| wanted(run, check, stops.clone()));
    let all = measure(run, "replaying", fits.chain(checks).chain(stopped).collect())?;
    let (fits, rest) = all.split_at(CANDIDATES.len());
    let (checks, stopped) = rest.split_at(CHECKS.len());
    let Some(found) = fits.first() else { return Ok(report) };

    for (name, share, millis) in MEASURED_LATENCIES {
        let rank = (found.early_nanos.len() as f64 * share) as usize;
        let nanos = found.early_nanos.get(rank).copied().unwrap_or(0);
        compare(
            &mut report,
            "fitted",
            &format!("latency before the cache is full: {name}"),
            "ms",
            millis,
            nanos as f64 / 1e6,
        );
    }
    for ((name, _), modelled) in CANDIDATES.iter().zip(fits) {
        summarise(&mut report, name, &FITTED, modelled);
    }
    let repeat = measured::NO_CONTROL.iter().zip(measured::NO_CONTROL_AGAIN);
    let squares: Vec<f64> = repeat.map(|(one, other)| (f64::from(one.1) - f64::from(other.1)).powi(2)).collect();
    let between = (squares.iter().sum::<f64>() / squares.len() as f64).sqrt();
    ours(&mut report, "two real drives", "no control: difference, root of mean square", "zones", between);
    for (check, modelled) in CHECKS.iter().zip(checks) {
        summarise(&mut report, "check", check, modelled);
    }
    for (check, modelled) in controlled.iter().zip(stopped) {
        summarise(&mut report, "check, idle cleanings stop at a command", check, modelled);
    }
    for (measurement, modelled) in [FITTED].iter().chain(&CHECKS).zip([found].into_iter().chain(checks)) {
        for (at, zones) in measurement.reports.iter().zip(&modelled.zones) {
            let metric = format!("{}: zones at {} s", measurement.name, at.0);
            ours(&mut report, "measured", &metric, "zones", f64::from(at.1));
            ours(&mut report, "modelled", &metric, "zones", *zones);
            ours(&mut report, "error", &metric, "zones", zones - f64::from(at.1));
        }
    }
    let modelled: Vec<&Modelled> = [found].into_iter().chain(checks).map(Arc::as_ref).collect();
    let measurements: Vec<Measurement> = [FITTED].into_iter().chain(CHECKS).collect();
    for (name, title, range) in
        [("main", "10 to 150 ms between requests", 0..6), ("fixed", "fixed intervals", 6..CHECKS.len() + 1)]
    {
        report.plots.push(drawing(name, title, &measurements[range.clone()], &modelled[range]));
    }
    Ok(report)
}

/// Modelled zones as lines, measured ones as broken lines of the same colour.
fn drawing(name: &str, title: &str, measurements: &[Measurement], modelled: &[&Modelled]) -> Plot {
    let both =
        measurements.iter().zip(modelled).filter(|(measurement, _)| measurement.name != "no control, another drive");
    let (mut series, mut paper) = (Vec::new(), Vec::new());
    for (measurement, modelled) in both {
        let times = measurement.reports.iter().map(|report| f64::from(report.0));
        let reported = measurement.reports.iter().map(|report| f64::from(report.1));
        series.push((measurement.name.to_owned(), times.clone().zip(modelled.zones.iter().copied()).collect()));
        paper.push((format!("{}, measured", measurement.name), times.zip(reported).collect()));
    }
    Plot {
        name: name.to_owned(),
        title: format!("non-sequential zones, {title}"),
        medium: MEDIUM.to_owned(),
        y: Axis::linear("zones"),
        figure: Figure::Lines(Lines { x: Axis::linear("time (s)"), series, paper }),
    }
}
