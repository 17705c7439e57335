//! Figures 14 and 15: YCSB with every put synced, and the load over time.

use super::floor::{self, DISK, Floors};
use super::scheme::{Scheme, Term};
use super::settings::{COMPRESSION_RATIO, MODEL, Setup};
use crate::error::LabError;
use crate::experiment::comparison::{MUCH, drawn, goal, ours, words};
use crate::experiment::{Experiment, Run, Scale, emulated, simulate, together};
use crate::report::{Axis, Bars, Figure, Lines, Plot, Report};
use crate::runner::{Finish, Group, LatencySummary, Phase, PhaseResult, run_phase};
use crate::target::{Durability, Target};
use crate::workload::{Workload, Ycsb, YcsbMix, YcsbOptions};
use std::sync::Arc;

/// "2 million entries" of "4 KB values".
const RECORDS: u64 = 2_000_000;
const VALUE_BYTES: usize = 4096;

/// "The workloads each performed 200,000 operations".
const OPERATIONS: u64 = 200_000;

/// The paper's workloads and what the text calls them.
pub(super) const MIXES: [(YcsbMix, &str); 4] =
    [(YcsbMix::Load, "load"), (YcsbMix::A, "update heavy"), (YcsbMix::B, "read heavy"), (YcsbMix::D, "read latest")];

const GAINS_TOLD: &str = "SMRDB outperforms LevelDB by 8.8-123.6%";
const GAINS: std::ops::RangeInclusive<f64> = 1.088..=2.236;

/// Goal of what goes past the paper: the most that SMRDB gains.
const GAIN: f64 = 2.24;

/// Share of the operations that put, of the workloads [`GAIN`] is for. What the others cost at least is not known.
const PUTS: [(usize, f64); 2] = [(0, 1.0), (1, 0.5)];

/// A synced put costs a revolution of the disk whatever the scale.
const DEFAULT_SCALE: Scale = Scale::one_in(8);

const DESCRIPTION: &str = "Loads 2 million records of 4 KiB and does 200,000 operations of each workload, from one thread, \
                           every put synced, with an 8 MiB cache; then the same with no put synced. A sync costs a revolution of the disk \
                           whatever the scale, so scale divides the number of records and operations only.";

pub(in crate::experiment) const FIG_14: Experiment = Experiment {
    id: "smrdb/fig14",
    title: "SMRDB, figure 14: YCSB load, update heavy, read heavy, read latest",
    description: DESCRIPTION,
    default_scale: DEFAULT_SCALE,
    run: |run| {
        let mut report = described(run);
        let all = phases(run, Durability::Synced)?;
        let rate = |phases: &[PhaseResult], place: usize| phases[place].operations_per_second;
        for (scheme, phases) in &all {
            for (place, (_, name)) in MIXES.iter().enumerate() {
                drawn(&mut report, scheme.name(), &format!("{name}: throughput"), "op/s", rate(phases, place));
            }
        }
        let floors = floor::measure(DISK)?;
        let (_, leveldb) = &all[0];
        for (scheme, phases) in &all[1..] {
            for (place, (_, name)) in MIXES.iter().enumerate() {
                let ratio = rate(phases, place) / rate(leveldb, place);
                let metric = format!("{name}: throughput / LevelDB-like");
                let puts = PUTS.iter().find(|(of, _)| *of == place);
                match puts.filter(|_| scheme.is_past_paper()) {
                    Some((_, puts)) => {
                        let most = 1e3 / (floors.append * puts) / rate(leveldb, place);
                        let wanted = format!("at least {GAIN}; the disk allows {most:.2}");
                        goal(&mut report, scheme.name(), &metric, ratio, &wanted, ratio >= GAIN.min(most));
                    }
                    None if *scheme == Scheme::Soc => {
                        words(&mut report, scheme.name(), &metric, (ratio, "1"), GAINS_TOLD, GAINS.contains(&ratio));
                    }
                    None => ours(&mut report, scheme.name(), &metric, "1", ratio),
                }
            }
        }
        let slowest_gain = (0..MIXES.len())
            .filter_map(|place| {
                Some(rate(&all.iter().find(|(scheme, _)| *scheme == Scheme::Soc)?.1, place) / rate(leveldb, place))
            })
            .fold(f64::INFINITY, f64::min);
        let paper = "SMRDB clearly performs better than LevelDB in all cases";
        let metric = "throughput / LevelDB-like, least of the workloads";
        words(&mut report, Scheme::Soc.name(), metric, (slowest_gain, "1"), paper, slowest_gain > 1.0);
        synced_puts(&mut report, &all, &floors);
        let unsynced = self::phases(run, Durability::Buffered)?;
        for (of, what) in [(&all, ""), (&unsynced, ", no put synced")] {
            not_below(&mut report, of, what);
        }
        for (scheme, phases) in &unsynced[1..] {
            for (place, (_, name)) in MIXES.iter().enumerate() {
                let ratio = rate(phases, place) / rate(&unsynced[0].1, place);
                let metric = format!("{name}, no put synced: throughput / LevelDB-like");
                match scheme {
                    Scheme::Soc => {
                        words(&mut report, scheme.name(), &metric, (ratio, "1"), GAINS_TOLD, GAINS.contains(&ratio));
                    }
                    _ => ours(&mut report, scheme.name(), &metric, "1", ratio),
                }
            }
        }
        let of_scheme = |(scheme, phases): &(Scheme, Arc<Vec<PhaseResult>>)| {
            let rates = (0..MIXES.len()).map(|place| Some(rate(phases, place))).collect();
            (scheme.name().to_owned(), rates)
        };
        report.plots.push(Plot {
            name: "throughput".to_owned(),
            title: "YCSB, every put synced".to_owned(),
            medium: super::settings::PLOTTED_MEDIUM.to_owned(),
            y: Axis::linear("throughput (op/s)"),
            figure: Figure::Bars(Bars {
                groups: MIXES.map(|(_, name)| name.to_owned()).into(),
                series: all.iter().map(of_scheme).collect(),
            }),
        });
        Ok(report)
    },
};

/// Ours, with bursts and without them, to SMRDB-SOC as it is and with the same input and output.
pub(super) fn not_below(report: &mut Report, of: &OfSchemes, what: &str) {
    let find = |wanted: Scheme| of.iter().find(|(scheme, _)| *scheme == wanted).map(|(_, phases)| phases);
    for (scheme, base) in own_schemes().flat_map(|own| [Scheme::Soc, Scheme::SocSameIo].map(|base| (own, base))) {
        let (Some(own), Some(its)) = (find(scheme), find(base)) else { continue };
        for (place, (_, name)) in MIXES.iter().enumerate() {
            let ratio = own[place].operations_per_second / its[place].operations_per_second;
            let metric = format!("{name}{what}: throughput / {}", base.name());
            goal(report, scheme.name(), &metric, ratio, "at least 1", ratio >= 1.0);
        }
    }
}

/// What a synced put of the load cost, beside what the disk takes for the least of it.
fn synced_puts(report: &mut Report, all: &OfSchemes, floors: &Floors) {
    ours(report, "disk", "append of 8 KiB and flush", "ms", floors.append);
    ours(report, "disk", "append of 4 KiB and sync on ext4", "ms", floors.journaled_append);
    for (scheme, phases) in all {
        let (load, name) = (&phases[0], scheme.name());
        let Some(latency) = latency_of(load) else { continue };
        let mean = latency.mean_nanos as f64 / 1e6;
        let (metric, ratio) = ("load: mean latency of a put / append and flush", mean / floors.append);
        match scheme.is_past_paper() {
            true => goal(report, name, metric, ratio, "at most 1.1", ratio <= 1.1),
            false => ours(report, name, metric, "1", ratio),
        }
        let median = latency.p50_nanos as f64 / 1e6;
        ours(report, name, "load: median latency of a put / append and flush", "1", median / floors.append);
        let syncs: u64 = load.devices.iter().map(|device| device.syncs).sum();
        ours(report, name, "load: flushes of the disk to a put", "1", syncs as f64 / load.operations as f64);
        let written = load.devices.iter().map(|device| &device.written_bytes_by_class);
        let metadata: u64 = written.filter_map(|classes| classes.get("metadata")).sum();
        let metric = "load: bytes of the store's metadata to a put";
        ours(report, name, metric, "B", metadata as f64 / load.operations as f64);
    }
}

pub(in crate::experiment) const FIG_15: Experiment = Experiment {
    id: "smrdb/fig15",
    title: "SMRDB, figure 15: throughput of YCSB's load over time",
    description: DESCRIPTION,
    default_scale: DEFAULT_SCALE,
    run: |run| {
        let mut report = described(run);
        let floors = floor::measure(DISK)?;
        ours(&mut report, "disk", "append of 8 KiB and flush", "ms", floors.append);
        let records = options(run.scale, run.settings.seed, Durability::Synced).records;
        let appends_millis = floor::slowest_appends_millis(DISK, records)?;
        ours(&mut report, "disk", "append of 8 KiB and flush, p99.9 of as many as puts", "ms", appends_millis);
        for (durability, name) in [(Durability::Synced, "load"), (Durability::Buffered, "load, no put synced")] {
            let all = phases(run, durability)?;
            for (scheme, phases) in &all {
                steadiness(&mut report, *scheme, name, &phases[0]);
            }
            if durability == Durability::Synced {
                let time = |wanted: Scheme| {
                    let found = all.iter().find(|(scheme, _)| *scheme == wanted);
                    found.map_or(f64::NAN, |(_, phases)| phases[0].elapsed_nanos as f64)
                };
                let ratio = time(Scheme::Soc) / time(Scheme::LevelDb);
                let paper = "completes in less than half the time it takes LevelDB";
                let metric = format!("{name}: time / LevelDB-like");
                words(&mut report, Scheme::Soc.name(), &metric, (ratio, "1"), paper, ratio < 0.5);
                over_time(&mut report, &all, name);
            }
            let floor = (durability == Durability::Synced).then_some((floors.append, appends_millis));
            beside(&mut report, &all, name, floor);
            let points = |(scheme, phases): &(Scheme, Arc<Vec<PhaseResult>>)| {
                let timeline = phases[0].groups.iter().flat_map(|group| &group.timeline);
                let points = timeline.map(|point| (point.start_seconds, point.operations_per_second)).collect();
                (scheme.name().to_owned(), points)
            };
            report.plots.push(Plot {
                name: if durability == Durability::Synced { "time" } else { "time-unsynced" }.to_owned(),
                title: format!("YCSB's {name}"),
                medium: super::settings::PLOTTED_MEDIUM.to_owned(),
                y: Axis::linear("throughput (op/s)"),
                figure: Figure::Lines(Lines {
                    x: Axis::linear("virtual time (s)"),
                    series: all.iter().map(points).collect(),
                    paper: Vec::new(),
                }),
            });
        }
        Ok(report)
    },
};

/// What the paper says of figure 15 in words.
fn over_time(report: &mut Report, all: &OfSchemes, name: &str) {
    let load = |wanted: Scheme| all.iter().find(|(scheme, _)| *scheme == wanted).map(|(_, phases)| &phases[0]);
    let (Some(own), Some(leveldb)) = (load(Scheme::Soc), load(Scheme::LevelDb)) else { return };
    let rates = |load: &PhaseResult| -> Vec<f64> {
        load.groups.iter().flat_map(|group| &group.timeline).map(|point| point.operations_per_second).collect()
    };
    let (own_rates, base_rates) = (rates(own), rates(leveldb));
    let ahead = own_rates.iter().zip(&base_rates).filter(|(own, base)| **own >= MUCH * **base).count();
    let share = ahead as f64 / own_rates.len().min(base_rates.len()).max(1) as f64;
    let paper = "SMRDB delivers much higher throughput than LevelDB most of the time";
    let metric = format!("{name}: share of its time in which it has {MUCH} times the rate of LevelDB-like");
    words(report, Scheme::Soc.name(), &metric, (share, "1"), paper, share > 0.5);
    let paper = "Similar to LevelDB, there are periodic drops in throughput, owing to background compactions";
    let metric = format!("{name}: share of its seconds below half of its mean");
    let dropped = |load: &PhaseResult, rates: &[f64]| {
        let count = rates.iter().filter(|rate| **rate < load.operations_per_second / 2.0).count();
        count as f64 / rates.len().max(1) as f64
    };
    let (share, of_leveldb) = (dropped(own, &own_rates), dropped(leveldb, &base_rates));
    words(report, Scheme::Soc.name(), &metric, (share, "1"), paper, share > 0.0 && of_leveldb > 0.0);
    ours(report, Scheme::LevelDb.name(), &metric, "1", of_leveldb);
    let slowest = own.groups.iter().find_map(|group| group.slowest_second_operations);
    let share = slowest.map_or(f64::NAN, |slowest| slowest as f64 / own.operations_per_second);
    let paper = "it does not deliver a consistent throughput";
    let metric = format!("{name}: slowest second / mean throughput, in the paper's words");
    words(report, Scheme::Soc.name(), &metric, (share, "1"), paper, share < 0.5);
}

/// How even a load was.
pub(super) fn steadiness(report: &mut Report, scheme: Scheme, name: &str, load: &PhaseResult) {
    let (of, is_past) = (scheme.name(), scheme.is_past_paper());
    drawn(report, of, &format!("{name}: time"), "s", load.elapsed_nanos as f64 / 1e9);
    let slowest = load.groups.iter().find_map(|group| group.slowest_second_operations);
    if let Some(slowest) = slowest {
        let (metric, share) =
            (format!("{name}: slowest second / mean throughput"), slowest as f64 / load.operations_per_second);
        match is_past {
            true => goal(report, of, &metric, share, "at least 0.5", share >= 0.5),
            false => ours(report, of, &metric, "1", share),
        }
    }
    if scheme.has(Term::Bursts) {
        let number = |name: &str| load.engine.properties.get(name).copied().unwrap_or(0.0);
        ours(report, of, &format!("{name}: bursts of background work"), "1", number("bursts"));
        let metric = format!("{name}: log writes that waited for a burst, to a thousand puts");
        ours(report, of, &metric, "1", number("log waits for bursts") * 1e3 / load.operations.max(1) as f64);
    }
    let Some(latency) = latency_of(load) else { return };
    for (what, nanos) in
        [("mean latency", latency.mean_nanos), ("p99.9 latency", latency.p999_nanos), ("longest", latency.max_nanos)]
    {
        ours(report, of, &format!("{name}: {what} of a put"), "ms", nanos as f64 / 1e6);
    }
}

/// Ours, with bursts and without them, beside the tree that does not pace: the paper's, that with the same input and output, and ours
/// without pacing. Where every put is synced no tree's puts are faster than appends and flushes: `floor` is the mean of these and their
/// p99.9.
pub(super) fn beside(report: &mut Report, all: &OfSchemes, name: &str, floor: Option<(f64, f64)>) {
    let find = |wanted: Scheme| all.iter().find(|(scheme, _)| *scheme == wanted).map(|(_, phases)| &phases[0]);
    let slow = |load: &PhaseResult| latency_of(load).map_or(f64::NAN, |latency| latency.p999_nanos as f64 / 1e6);
    for scheme in own_schemes() {
        let (of, Some(own)) = (scheme.name(), find(scheme)) else { continue };
        if let Some((append_millis, appends_millis)) = floor {
            let (metric, ratio) =
                (format!("{name}: p99.9 latency of a put / append and flush"), slow(own) / append_millis);
            goal(report, of, &metric, ratio, "at most 1.15", ratio <= 1.15);
            let metric = format!("{name}: p99.9 latency of a put / that of an append and flush");
            ours(report, of, &metric, "1", slow(own) / appends_millis);
        }
        for base in [Scheme::Soc, Scheme::SocSameIo, Scheme::OursWithout(Term::Pacing)] {
            let Some(its) = find(base) else { continue };
            let (metric, ratio) = (format!("{name}: p99.9 latency of a put / {}", base.name()), slow(own) / slow(its));
            match base == Scheme::SocSameIo && floor.is_none() {
                true => goal(report, of, &metric, ratio, "at most 0.1", ratio <= 0.1),
                false => ours(report, of, &metric, "1", ratio),
            }
            let (metric, ratio) =
                (format!("{name}: time / {}", base.name()), own.elapsed_nanos as f64 / its.elapsed_nanos as f64);
            match base {
                Scheme::Soc => ours(report, of, &metric, "1", ratio),
                _ => goal(report, of, &metric, ratio, "at most 1", ratio <= 1.0),
            }
        }
    }
}

/// Ours, without bursts, and with those of other lengths.
fn own_schemes() -> impl Iterator<Item = Scheme> {
    [Scheme::Ours, Scheme::OursWithout(Term::Bursts)].into_iter().chain(Scheme::OTHER_BURSTS)
}

/// Latency of the first kind of operation of a phase.
fn latency_of(phase: &PhaseResult) -> Option<LatencySummary> {
    phase.groups.iter().flat_map(|group| &group.kinds).find_map(|kind| kind.latency)
}

/// Results of the [`MIXES`] by scheme.
pub(super) type OfSchemes = Vec<(Scheme, Arc<Vec<PhaseResult>>)>;

pub(super) fn options(scale: Scale, seed: u64, durability: Durability) -> YcsbOptions {
    YcsbOptions {
        records: scale.of(RECORDS),
        operations: scale.of(OPERATIONS),
        value_bytes: VALUE_BYTES,
        compression_ratio: COMPRESSION_RATIO,
        durability,
        seed,
        ..YcsbOptions::default()
    }
}

/// One of the [`MIXES`]. What a workload leaves behind is its own: the next one begins on an idle store.
pub(super) fn mix_phase(place: usize, options: &YcsbOptions) -> Result<Phase, LabError> {
    let (mix, name) = MIXES[place];
    let workload = Arc::new(Ycsb::new(mix, options.clone())?);
    let group = Group::new(Arc::clone(&workload) as Arc<dyn Workload>, 1, workload.operations());
    Ok(Phase { finish: Finish::Idle, ..Phase::new(name, group) })
}

fn described(run: &Run<'_>) -> Report {
    let mut report = run.report();
    let options = options(run.scale, run.settings.seed, Durability::Synced);
    Setup::new(Scheme::Soc, Scale::FULL, run.settings.seed).describe(&mut report);
    report.condition("records", options.records);
    report.condition("operations", options.operations);
    report
}

/// The load and the three workloads on every scheme that is compared, LevelDB-like first.
fn phases(run: &Run<'_>, durability: Durability) -> Result<OfSchemes, LabError> {
    let schemes = match durability {
        Durability::Synced => Scheme::compared_with_bursts(),
        // Nobody waits for the log, so there are no bursts, whatever their length.
        Durability::Buffered => Scheme::compared(),
    };
    phases_of(run, schemes, MODEL, durability)
}

/// The same on these schemes and a disk of this model.
pub(super) fn phases_of(
    run: &Run<'_>,
    schemes: Vec<Scheme>,
    model: &'static str,
    durability: Durability,
) -> Result<OfSchemes, LabError> {
    let options = options(run.scale, run.settings.seed, durability);
    let wanted = |&scheme: &Scheme| {
        let setup = Setup { model, ..Setup::new(scheme, Scale::FULL, run.settings.seed) };
        let options = options.clone();
        together::Wanted {
            key: format!("smrdb ycsb {options:?} {setup:?}"),
            operations: 1,
            run: Box::new(move |advance: together::Advance| {
                let measured = simulate(setup.seed, move |env| {
                    let target: Arc<dyn Target> = Arc::new(emulated::open_varve(env, &setup.spec(), &setup.options())?);
                    let mut results = Vec::new();
                    for place in 0..MIXES.len() {
                        results.push(run_phase(env, &target, &mix_phase(place, &options)?)?);
                    }
                    Ok(results)
                });
                advance(1);
                measured
            }),
        }
    };
    let found = together::measure(run, "YCSB", schemes.iter().map(wanted).collect())?;
    Ok(schemes.into_iter().zip(found).collect())
}
