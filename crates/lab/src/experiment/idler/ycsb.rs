//! A leveled tree on the drive: YCSB (the paper's future work).

use super::told::MEDIUM;
use crate::error::LabError;
use crate::experiment::comparison::{goal, ours};
use crate::experiment::together::{Wanted, measure};
use crate::experiment::{Experiment, Run, Scale, emulated, simulate};
use crate::media::CleaningCounters;
use crate::report::{Axis, Bars, Figure, Plot, Report, format_bytes};
use crate::runner::{Finish, Group, Phase, PhaseResult, run_phase};
use crate::target::{Target, VarveTarget};
use crate::workload::{Workload, Ycsb, YcsbMix, YcsbOptions};
use std::sync::Arc;
use varve::options::{ExperimentOptions, Profile};
use varve::{Options, TreeKind};

pub(in crate::experiment) const YCSB: Experiment = Experiment {
    id: "idler/ycsb",
    title: "YCSB on a leveled tree on a host-aware drive, with and without control (not in the paper)",
    description: "Loads half a million records and runs YCSB's workloads from four threads on the stores extent and band, on a \
                  conventional disk and on the host-aware drive of the same mechanics. Scale is a similarity: it divides sizes \
                  (records, blocks, buffers, tables, levels, zones, media cache and map) and times alike; reports are of the full size.",
    default_scale: Scale::one_in(16),
    run: ycsb,
};

/// Records, and their bytes in full size: 32 GB, so that a load writes the media cache full several times.
const RECORDS: u64 = 500_000;
const VALUE_BYTES: u64 = 64_000;

/// The tree's, in full size.
const BLOCK_BYTES: u64 = 256 << 10;
const COMPACTION_AHEAD_BYTES: u64 = 2 << 20;
const SCAN_AHEAD_BYTES: u64 = 1 << 20;
const FIRST_AHEAD_BYTES: u64 = 256 << 10;
const BLOCK_CACHE_BYTES: u64 = 4 << 30;

/// Size of values where memory holds them compressed, as a share.
const COMPRESSION_RATIO: f64 = 0.012;

const THREADS: usize = 4;

/// YCSB's order, and operations of each: those that write most do most.
const MIXES: [(YcsbMix, u64); 7] = [
    (YcsbMix::Load, RECORDS),
    (YcsbMix::A, 200_000),
    (YcsbMix::B, 100_000),
    (YcsbMix::C, 50_000),
    (YcsbMix::F, 200_000),
    (YcsbMix::D, 50_000),
    (YcsbMix::E, 10_000),
];

/// The band table of `band` at any scale.
const BAND_TABLE_BYTES: u64 = 48 << 20;

/// What the tree is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    /// `extent` on a conventional disk.
    Conventional,
    /// `extent` on the drive by itself.
    None,
    /// `extent`, AT-IC.
    Fixed,
    /// `extent`, Idler.
    Idler,
    /// Ours, from the host: zones are moved in small steps.
    Relocating,
    /// `band` on the drive by itself: zones are written in order, and reset.
    Band,
}

impl Scheme {
    const ALL: [Scheme; 6] =
        [Scheme::Conventional, Scheme::None, Scheme::Fixed, Scheme::Idler, Scheme::Relocating, Scheme::Band];

    fn name(self) -> &'static str {
        match self {
            Scheme::Conventional => "CMR",
            Scheme::None => "no control",
            Scheme::Fixed => "AT-IC <5:2>",
            Scheme::Idler => "Idler",
            Scheme::Relocating => "ours, relocating",
            Scheme::Band => "band",
        }
    }

    fn spec(self, scale: Scale) -> String {
        let drive = format!("model=st8000as0022,scale={scale},backing=compressed");
        match self {
            Scheme::Conventional => format!("disk:8TB?{drive},store=extent"),
            Scheme::None => format!("hasmr:8TB?{drive},store=extent"),
            Scheme::Fixed => format!("hasmr:8TB?{drive},control=at-ic,store=extent"),
            Scheme::Idler => format!("hasmr:8TB?{drive},control=idler,store=extent"),
            Scheme::Relocating => format!("hasmr:8TB?{drive},relocate=on,store=extent"),
            Scheme::Band => {
                let conventional_bytes = BAND_TABLE_BYTES * scale.denominator();
                format!("hasmr:8TB?{drive},conventional={conventional_bytes}B,store=band")
            }
        }
    }
}

fn options(scale: Scale) -> Options {
    Options {
        profile: Profile::Paper,
        tree: Some(TreeKind::Leveled),
        block_size: scale.of(BLOCK_BYTES) as usize,
        block_cache_capacity: scale.of(BLOCK_CACHE_BYTES) as usize,
        compaction_readahead_size: Some(scale.of(COMPACTION_AHEAD_BYTES) as usize),
        iterator_readahead_size: Some(scale.of(SCAN_AHEAD_BYTES) as usize),
        experiment: ExperimentOptions {
            initial_auto_readahead_size: Some(scale.of(FIRST_AHEAD_BYTES) as usize),
            ..ExperimentOptions::default()
        },
        ..emulated::scaled_options(scale)
    }
}

/// A workload, and what the drive did meanwhile.
#[derive(Debug)]
struct Measured {
    phase: PhaseResult,
    cleaning: CleaningCounters,
}

/// Growth of what only grows.
fn between(before: &CleaningCounters, after: &CleaningCounters) -> CleaningCounters {
    CleaningCounters {
        cached_writes: after.cached_writes - before.cached_writes,
        cached_bytes: after.cached_bytes - before.cached_bytes,
        released_bytes: after.released_bytes - before.released_bytes,
        idle_cleaned_zones: after.idle_cleaned_zones - before.idle_cleaned_zones,
        blocking_cleaned_zones: after.blocking_cleaned_zones - before.blocking_cleaned_zones,
        interrupted_cleanings: after.interrupted_cleanings - before.interrupted_cleanings,
        blocking_cleanings: after.blocking_cleanings - before.blocking_cleanings,
        idle_cleaning_nanos: after.idle_cleaning_nanos - before.idle_cleaning_nanos,
        blocking_cleaning_nanos: after.blocking_cleaning_nanos - before.blocking_cleaning_nanos,
        ..*after
    }
}

fn cleaning_of(target: &VarveTarget) -> CleaningCounters {
    let device = target.varve().stack().devices().first();
    device.map_or_else(CleaningCounters::default, |device| device.device().block.counters().cleaning)
}

fn run_scheme(run: &Run<'_>, scheme: Scheme, shrink: u64) -> Wanted<Vec<Measured>> {
    let (seed, scale, verify) = (run.settings.seed, run.scale, run.settings.verify);
    let total = MIXES.iter().map(|(_, operations)| operations / shrink).sum();
    Wanted {
        key: format!("idler ycsb {seed} {scale} {scheme:?} {shrink}"),
        operations: total,
        run: Box::new(move |advance| {
            simulate(seed, move |env| {
                let target = Arc::new(emulated::open_varve(env, &scheme.spec(scale), &options(scale))?);
                let as_target: Arc<dyn Target> = Arc::clone(&target) as Arc<dyn Target>;
                let mut all = Vec::new();
                for (mix, operations) in MIXES {
                    let options = YcsbOptions {
                        records: RECORDS / shrink,
                        operations: operations / shrink,
                        value_bytes: scale.of(VALUE_BYTES) as usize,
                        compression_ratio: COMPRESSION_RATIO,
                        seed,
                        ..YcsbOptions::default()
                    };
                    let workload = Arc::new(Ycsb::new(mix, options)?);
                    let (operations, values) = (workload.operations(), workload.values());
                    let group = Group::new(workload as Arc<dyn Workload>, THREADS, operations);
                    let group = Group { verify: verify.then_some(values), ..group };
                    let phase = Phase { finish: Finish::Idle, ..Phase::new(mix.to_string(), group) };
                    let before = cleaning_of(&target);
                    let phase = run_phase(env, &as_target, &phase)?;
                    advance(operations);
                    all.push(Measured { phase, cleaning: between(&before, &cleaning_of(&target)) });
                }
                Ok(all)
            })
        }),
    }
}

fn ycsb(run: &Run<'_>) -> Result<Report, LabError> {
    let all = of_schemes(run, 1)?;
    let mut report = described(run);
    for (scheme, measured) in Scheme::ALL.into_iter().zip(&all) {
        measured.iter().for_each(|of| told(&mut report, run.scale, scheme, of));
    }
    goals(&mut report, &all);
    report.plots.push(tails(run.scale, &all));
    Ok(report)
}

/// All workloads on all schemes, with so many fewer records and operations.
fn of_schemes(run: &Run<'_>, shrink: u64) -> Result<Vec<Arc<Vec<Measured>>>, LabError> {
    measure(run, "YCSB", Scheme::ALL.map(|scheme| run_scheme(run, scheme, shrink)).into())
}

fn described(run: &Run<'_>) -> Report {
    let mut report = run.report();
    let (scale, options) = (run.scale, options(run.scale));
    for scheme in Scheme::ALL {
        report.condition(&format!("medium of {}", scheme.name()), scheme.spec(scale));
    }
    report.condition("processor cost constants", format!("version {}", varve::engine::cost::VERSION));
    let full = |bytes: u64| format_bytes(bytes * scale.denominator());
    for (name, bytes) in [
        ("value (full size)", scale.of(VALUE_BYTES)),
        ("block_size (full size)", options.block_size as u64),
        ("write_buffer_size (full size)", options.write_buffer_size as u64),
        ("target_file_size_base (full size)", options.target_file_size_base),
        ("max_bytes_for_level_base (full size)", options.max_bytes_for_level_base),
        ("block_cache_capacity (full size)", options.block_cache_capacity as u64),
    ] {
        report.condition(name, full(bytes));
    }
    report.condition("records", RECORDS);
    report.condition("threads", format!("{THREADS}, each as fast as it can"));
    report
        .condition("not scaled", "requests of 1 MiB in which tables are written, log buffers of 1 MiB, processor time");
    report
}

fn told(report: &mut Report, scale: Scale, scheme: Scheme, measured: &Measured) {
    let Measured { phase, cleaning } = measured;
    // A similar disk is faster by as much as it is smaller.
    let divisor = scale.denominator() as f64;
    let seconds = |nanos: u64| nanos as f64 * divisor / 1e9;
    let mut tell = |metric: &str, unit: &str, number: f64| {
        ours(report, scheme.name(), &format!("{}: {metric}", phase.name), unit, number);
    };
    tell("throughput", "op/s", phase.operations_per_second / divisor);
    for kind in phase.groups.iter().flat_map(|group| &group.kinds) {
        let Some(latency) = kind.latency else { continue };
        for (what, nanos) in [
            ("median", latency.p50_nanos),
            ("P99", latency.p99_nanos),
            ("P99.9", latency.p999_nanos),
            ("longest", latency.max_nanos),
        ] {
            tell(&format!("{} {what}", kind.kind), "s", seconds(nanos));
        }
    }
    let written: u64 = phase.devices.iter().map(|device| device.written_bytes).sum();
    tell("written", "GB", written as f64 * divisor / 1e9);
    if written > 0 && scheme != Scheme::Conventional {
        tell("share of it in the cache", "1", cleaning.cached_bytes as f64 / written as f64);
    }
    tell("times blocked", "1", cleaning.blocking_cleanings as f64);
    tell("blocked", "s", seconds(cleaning.blocking_cleaning_nanos));
    tell("cleaned idle", "s", seconds(cleaning.idle_cleaning_nanos));
    tell("until the tree was idle", "s", seconds(phase.idle_nanos));
}

/// The P99.9 of a kind of operation, in nanoseconds.
fn tail(measured: &Measured, kind: &str) -> Option<f64> {
    Some(measured.phase.kind(kind)?.latency?.p999_nanos as f64)
}

/// What ours is to reach.
fn goals(report: &mut Report, all: &[Arc<Vec<Measured>>]) {
    let of = |scheme: Scheme| Scheme::ALL.iter().position(|&other| other == scheme).and_then(|place| all.get(place));
    let (Some(conventional), Some(none)) = (of(Scheme::Conventional), of(Scheme::None)) else { return };
    if let Some(ours) = of(Scheme::Relocating) {
        goals_of(report, Scheme::Relocating.name(), ours, none, conventional);
    }
}

fn goals_of(report: &mut Report, name: &str, ours: &[Measured], none: &[Measured], conventional: &[Measured]) {
    let worst = |of: &[Measured]| of.iter().filter_map(|measured| tail(measured, "read")).fold(0.0, f64::max);
    let (of_conventional, of_none, of_ours) = (worst(conventional), worst(none), worst(ours));
    let beyond = |tail: f64| (tail - of_conventional).max(0.0);
    let ratio = beyond(of_ours) / beyond(of_none).max(1.0);
    let metric = "worst P99.9 of reads beyond CMR, to no control";
    goal(report, name, metric, ratio, "at most 0.1", ratio <= 0.1);
    let ratio = of_ours / of_conventional.max(1.0);
    goal(report, name, "worst P99.9 of reads to CMR", ratio, "at most 1.05", ratio <= 1.05);
    for ((of_ours, of_none), of_conventional) in ours.iter().zip(none.iter()).zip(conventional.iter()) {
        let workload = &of_ours.phase.name;
        let mut says = |metric: &str, ratio: f64, wanted: &str, holds: bool| {
            goal(report, name, &format!("{workload}: {metric}"), ratio, wanted, holds);
        };
        for (other, base) in [("no control", of_none), ("CMR", of_conventional)] {
            if let (Some(ours), Some(base)) = (tail(of_ours, "read"), tail(base, "read")) {
                let ratio = ours / base.max(1.0);
                says(&format!("P99.9 of reads to {other}"), ratio, "at most 1.05", ratio <= 1.05);
            }
        }
        let ratio = of_ours.phase.operations_per_second / of_none.phase.operations_per_second;
        says("throughput to no control", ratio, "at least 0.97", ratio >= 0.97);
        for kind in ["insert", "update"] {
            if let (Some(ours), Some(base)) = (tail(of_ours, kind), tail(of_none, kind)) {
                let ratio = ours / base.max(1.0);
                says(&format!("P99.9 of each {kind} to no control"), ratio, "at most 1.05", ratio <= 1.05);
            }
        }
    }
}

/// P99.9 of reads by workload.
fn tails(scale: Scale, all: &[Arc<Vec<Measured>>]) -> Plot {
    let divisor = scale.denominator() as f64;
    let read = |measured: &&Measured| tail(measured, "read").is_some();
    let bars = |of: &Arc<Vec<Measured>>| {
        of.iter().filter(read).map(|measured| tail(measured, "read").map(|nanos| nanos * divisor / 1e9)).collect()
    };
    let groups = all.first().map(|of| of.iter().filter(read).map(|measured| measured.phase.name.clone()).collect());
    let series = Scheme::ALL.iter().zip(all).map(|(scheme, of)| (scheme.name().to_owned(), bars(of))).collect();
    Plot {
        name: "tails".to_owned(),
        title: "P99.9 of reads".to_owned(),
        medium: MEDIUM.to_owned(),
        y: Axis::logarithmic("response time (s)"),
        figure: Figure::Bars(Bars { groups: groups.unwrap_or_default(), series }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Settings;

    #[test]
    fn what_is_written_out_of_order_goes_to_the_cache_and_bands_are_in_order() {
        let settings = Settings { verify: true, ..Settings::default() };
        let run = Run { experiment: &YCSB, scale: Scale::one_in(64), settings: &settings };
        let all = of_schemes(&run, 100).unwrap();
        for (scheme, measured) in Scheme::ALL.into_iter().zip(&all) {
            let cached: u64 = measured.iter().map(|of| of.cleaning.cached_bytes).sum();
            let written: u64 =
                measured.iter().flat_map(|of| &of.phase.devices).map(|device| device.written_bytes).sum();
            match scheme {
                Scheme::Conventional | Scheme::Band => assert_eq!(cached, 0, "{scheme:?}"),
                _ => assert!(cached * 2 > written, "{scheme:?}: {cached} of {written}"),
            }
            let read = measured[3].phase.kind("read").unwrap();
            assert_eq!((read.operations, read.found), (500, 500), "{scheme:?}");
        }
        let mut report = described(&run);
        goals(&mut report, &all);
        assert!(report.rows.iter().filter(|row| row.metric.contains("P99.9 of reads")).count() == 12);
    }
}
