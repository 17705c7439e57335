//! `defaults/*`: how far the default of a medium is behind the best configuration of it.

mod media;
mod sequence;

use super::comparison::ours;
use super::together::{Wanted, measure};
use super::{Experiment, Run, Scale, emulated, simulate};
use crate::error::LabError;
use crate::report::{Report, Row};
use crate::runner::PhaseResult;
use crate::target::Target;
use media::{Configuration, Medium, Set};
use std::collections::BTreeMap;
use std::sync::Arc;

/// In the order they are listed.
pub(super) const EXPERIMENTS: &[Experiment] = &[REGRET, TUNING];

const DESCRIPTION: &str = "Ours. Every medium under its default, the paper's configuration, a plain leveled tree and obvious alternatives: a load and \
                           YCSB A to F in sequence, each with the debt of those before; on another store a load, seeks, a full scan, overwriting, a \
                           queue, random deletes, and the scans again. Regret is how much better the best configuration of a medium is than its \
                           default. Sizes and times are those of the full size, divided; blocks and what scans read at once first are not. \
                           Where a store is full before its workloads end, their cells are missing and the stores are counted.";

const REGRET: Experiment = Experiment {
    id: "defaults/regret",
    title: "how far the default of each medium is behind its best configuration",
    description: DESCRIPTION,
    default_scale: Scale::one_in(256),
    run: |run| compare(run, Set::Judging, &Medium::ALL),
};

const TUNING: Experiment = Experiment {
    id: "defaults/tuning",
    title: "the same on the media, the seeds and the size that defaults were tuned on",
    description: DESCRIPTION,
    default_scale: Scale::one_in(256),
    run: |run| compare(run, Set::Tuning, &Medium::ALL),
};

/// Least gain of a configuration that counts as regret.
const THROUGHPUT_REGRET_MAX: f64 = 0.10;

/// Tail of the default to the best one's that is accepted.
const TAIL_RATIO_MAX: f64 = 1.5;

/// Which direction is better, and what is accepted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Better {
    /// More is better.
    More,
    /// Less is better; the default may be at most this multiple of the best.
    Less(f64),
}

impl Better {
    /// Largest regret that meets the goal, as a ratio.
    fn accepted(self) -> f64 {
        match self {
            Better::More => 1.0 + THROUGHPUT_REGRET_MAX,
            Better::Less(ratio) => ratio,
        }
    }
}

/// A number of one run.
#[derive(Clone, Debug)]
struct Measure {
    name: String,
    unit: &'static str,
    better: Better,
    value: f64,
}

/// What one configuration did on one medium from one seed.
#[derive(Debug, Default)]
struct Measured {
    all: Vec<Measure>,
    /// Stores that were full before their workloads ended. What those would have measured is missing.
    full_stores: u64,
}

/// Phases of a store, or none where it was full.
fn unless_full(
    phases: Result<Vec<PhaseResult>, LabError>,
    full_stores: &mut u64,
) -> Result<Vec<PhaseResult>, LabError> {
    match phases {
        Err(LabError::Target { error, .. }) if is_full(&*error) => {
            *full_stores += 1;
            Ok(Vec::new())
        }
        phases => phases,
    }
}

fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<varve::Error>().is_some_and(|error| error.kind() == varve::ErrorKind::NoSpace)
}

impl Measured {
    fn add(&mut self, name: String, unit: &'static str, better: Better, value: f64) {
        self.all.push(Measure { name, unit, better, value });
    }

    /// Throughput of each phase, until the store was idle where it was waited for, and tails of reads and writes.
    fn add_phases(&mut self, phases: &[PhaseResult]) {
        for phase in phases {
            let nanos = (phase.elapsed_nanos + phase.idle_nanos).max(1);
            let rate = phase.operations as f64 / nanos as f64 * 1e9;
            self.add(phase.name.clone(), "op/s", Better::More, rate);
            let kinds = || phase.groups.iter().flat_map(|group| &group.kinds);
            for (what, names) in [("reads", &["read", "scan"][..]), ("writes", &["insert", "update", "delete"][..])] {
                let of_kind = kinds().filter(|kind| names.contains(&kind.kind.as_str()));
                let tails = of_kind.filter_map(|kind| kind.latency.as_ref()).filter(|latency| latency.count >= 1000);
                if let Some(nanos) = tails.map(|latency| latency.p999_nanos).max() {
                    self.add(
                        format!("{} {what}, p99.9", phase.name),
                        "ms",
                        Better::Less(TAIL_RATIO_MAX),
                        nanos as f64 / 1e6,
                    );
                }
            }
        }
    }

    /// Bytes that the devices wrote in all phases.
    fn add_bytes(&mut self, name: &str, phases: &[PhaseResult]) {
        let devices = phases.iter().flat_map(|phase| &phase.devices);
        let bytes: u64 = devices.map(|device| device.media_written_bytes.max(device.written_bytes)).sum();
        self.add(name.to_owned(), "MB", Better::Less(1.0 + THROUGHPUT_REGRET_MAX), bytes as f64 / 1e6);
    }
}

fn wanted(run: &Run<'_>, set: Set, medium: Medium, configuration: Configuration, seed: u64) -> Wanted<Measured> {
    let scale = run.scale;
    let key = format!("defaults {set:?} {medium} {} {scale} {seed}", configuration.name);
    let work = move || {
        let options = configuration.options(medium, set, scale)?;
        let spec = medium.spec(set, scale, &configuration.store(scale));
        simulate(seed, move |env| {
            let mut measured = Measured::default();
            let of = (set, scale, seed);
            let mixes = {
                let target = emulated::open(env, &spec, &options)?;
                unless_full(sequence::run_mixes(env, &target, of), &mut measured.full_stores)?
            };
            measured.add_phases(&mixes);
            if !mixes.is_empty() {
                measured.add_bytes("bytes written, load and YCSB", &mixes);
            }
            let target: Arc<dyn Target> = emulated::open(env, &spec, &options)?;
            let others = unless_full(sequence::run_others(env, &target, of), &mut measured.full_stores)?;
            measured.add_phases(&others);
            if !others.is_empty() {
                measured.add_bytes("bytes written, the others", &others);
            }
            // After the overwriting: how much more than the data it takes.
            if let Some(space) =
                others.iter().find(|phase| phase.name == "overwrite").and_then(|phase| phase.amplification.space)
            {
                measured.add(
                    "space after overwriting".to_owned(),
                    "1",
                    Better::Less(1.0 + THROUGHPUT_REGRET_MAX),
                    space,
                );
            }
            Ok(measured)
        })
    };
    Wanted {
        key,
        operations: 1,
        run: Box::new(move |advance| {
            let found = work();
            advance(1);
            found
        }),
    }
}

/// The mean over the seeds, by name of what was measured.
fn means(all: &[Arc<Measured>]) -> Means {
    let mut sums: BTreeMap<String, (Measure, f64)> = BTreeMap::new();
    for one in all.iter().flat_map(|measured| &measured.all) {
        let entry = sums.entry(one.name.clone()).or_insert_with(|| (Measure { value: 0.0, ..one.clone() }, 0.0));
        entry.0.value += one.value;
        entry.1 += 1.0;
    }
    sums.into_iter().map(|(name, (sum, count))| (name, Measure { value: sum.value / count, ..sum })).collect()
}

/// Measures of a configuration, by name: means over the seeds.
type Means = BTreeMap<String, Measure>;

/// Ratio of the best configuration to `measure` in the cell `name`, at least 1 if `measure` is one of them, and the name of the best.
fn regret(name: &str, measure: &Measure, all: &[(&str, &Means)]) -> (f64, String) {
    let candidates = all.iter().filter_map(|(configuration, means)| {
        let value = means.get(name)?.value;
        let ratio = match measure.better {
            Better::More => value / measure.value,
            Better::Less(_) => measure.value / value,
        };
        Some((ratio, (*configuration).to_owned()))
    });
    candidates.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((1.0, "default".to_owned()))
}

/// How a configuration does on one medium as a whole.
#[derive(Clone, Debug, PartialEq)]
struct Standing {
    /// Cells beyond the goal.
    missed: usize,
    /// Largest regret of a throughput, as a ratio.
    throughput_regret: f64,
    /// Cell farthest beyond the goal, and its regret as a ratio. `None` if every cell meets the goal.
    worst: Option<(String, f64)>,
}

impl Standing {
    fn of(means: &Means, all: &[(&str, &Means)]) -> Standing {
        let mut standing = Standing { missed: 0, throughput_regret: 1.0, worst: None };
        let mut excess_max = 1.0;
        for (name, measure) in means {
            let (ratio, _) = regret(name, measure, all);
            if measure.better == Better::More {
                standing.throughput_regret = standing.throughput_regret.max(ratio);
            }
            let (accepted, excess) = (measure.better.accepted(), ratio / measure.better.accepted());
            standing.missed += usize::from(ratio > accepted);
            if excess > excess_max {
                excess_max = excess;
                standing.worst = Some((name.clone(), ratio));
            }
        }
        standing
    }

    /// Says whether the configuration that is best in a missed cell could be the default.
    fn reason(&self, configuration: &str) -> String {
        match &self.worst {
            None => format!("{configuration} meets the goal in every cell of the medium"),
            Some((cell, ratio)) => format!(
                "{configuration} misses the goal in {} of the medium's cells, most in '{cell}': regret {:.2}",
                self.missed,
                ratio - 1.0
            ),
        }
    }
}

/// Smallest scale at which tracks and bands are whole blocks.
const SMALLEST: Scale = Scale::one_in(512);

fn compare(run: &Run<'_>, set: Set, media: &[Medium]) -> Result<Report, LabError> {
    run.scale.at_least(SMALLEST)?;
    let first = run.settings.seed;
    let mut all = Vec::new();
    for &medium in media {
        for configuration in medium.configurations() {
            all.extend(set.seeds(first).map(|seed| wanted(run, set, medium, configuration, seed)));
        }
    }
    let measured = measure(run, "media and configurations", all)?;
    let mut report = run.report();
    report.condition("pairs", sequence::pairs(set, run.scale));
    report.condition("seeds", set.seeds(first).map(|seed| seed.to_string()).collect::<Vec<_>>().join(", "));
    report.condition("processor cost constants", format!("version {}", varve::engine::cost::VERSION));
    let seeds = set.seeds(first).count();
    let mut place = 0;
    let (mut cells, mut missed) = (0, 0);
    for &medium in media {
        report.condition(&format!("medium {medium}"), medium.spec(set, run.scale, ""));
        let configurations = medium.configurations();
        let mut by_name: Vec<(&str, Means)> = Vec::new();
        for configuration in &configurations {
            let of_seeds = &measured[place..place + seeds];
            by_name.push((configuration.name, means(of_seeds)));
            place += seeds;
            let full_stores: u64 = of_seeds.iter().map(|measured| measured.full_stores).sum();
            if full_stores > 0 {
                let scheme = format!("{medium}: {}", configuration.name);
                ours(&mut report, &scheme, "stores that were full before the end", "1", full_stores as f64);
            }
        }
        for (configuration, means) in &by_name {
            for measure in means.values() {
                ours(&mut report, &format!("{medium}: {configuration}"), &measure.name, measure.unit, measure.value);
            }
        }
        let all: Vec<(&str, &Means)> = by_name.iter().map(|(name, means)| (*name, means)).collect();
        let mut standings = BTreeMap::new();
        for (configuration, means) in &all {
            let standing = Standing::of(means, &all);
            let scheme = format!("{medium}: {configuration}");
            ours(&mut report, &scheme, "cells beyond the goal", "1", standing.missed as f64);
            ours(&mut report, &scheme, "largest regret of a throughput", "1", standing.throughput_regret - 1.0);
            standings.insert(*configuration, standing);
        }
        for (name, default) in &by_name[0].1 {
            let (ratio, best) = regret(name, default, &all);
            cells += 1;
            let is_missed = ratio > default.better.accepted();
            missed += usize::from(is_missed);
            let note = match standings.get(best.as_str()).filter(|_| is_missed) {
                Some(standing) => format!("beyond the goal; best: {best}; {}", standing.reason(&best)),
                None => format!("within the goal; best: {best}"),
            };
            report.rows.push(Row::new(format!("{medium}: regret"), name, "1", ratio - 1.0).with_note(note));
        }
    }
    ours(&mut report, "all media", "cells", "1", cells as f64);
    ours(&mut report, "all media", "cells beyond the goal", "1", missed as f64);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Settings;

    /// Every configuration of two media, in small: most of the time of a run is its data.
    #[test]
    fn media_run_under_every_configuration() {
        let experiment = &TUNING;
        let settings = Settings::default();
        let run = Run { experiment, scale: SMALLEST, settings: &settings };
        let report = compare(&run, Set::Smoke, &[Medium::Disk, Medium::Shingled]).unwrap();
        for medium in [Medium::Disk, Medium::Shingled] {
            let scheme = format!("{medium}: regret");
            let regrets: Vec<&Row> = report.rows.iter().filter(|row| row.scheme == scheme).collect();
            assert!(regrets.len() >= 15, "{medium}: {} cells", regrets.len());
            // The default is one of those it is compared with.
            assert!(regrets.iter().all(|row| row.ours >= Some(0.0)), "{medium}");
            let missed =
                regrets.iter().filter(|row| row.note.as_ref().is_some_and(|note| note.starts_with("beyond"))).count();
            let default = report
                .rows
                .iter()
                .find(|row| row.scheme == format!("{medium}: default") && row.metric == "cells beyond the goal");
            assert_eq!(default.and_then(|row| row.ours), Some(missed as f64), "{medium}");
        }
    }

    /// A full medium is a result, not the end of a run of hours.
    #[test]
    fn a_full_store_is_counted_and_other_errors_end_the_run() {
        let full = simulate(1, |env| {
            let db = varve::Varve::builder().env(env).open_spec(&"ram:4MiB".parse().unwrap()).unwrap();
            let error = (0..10_000_u32).find_map(|key| db.put(key.to_le_bytes(), [7; 4096]).err());
            let error = Box::new(error.expect("a full medium"));
            Ok(LabError::Target { target: "ram".to_owned(), operation: "put", error })
        });
        let mut full_stores = 0;
        assert!(unless_full(Err(full.unwrap()), &mut full_stores).unwrap().is_empty());
        assert_eq!(full_stores, 1);
        let other = LabError::invalid("medium", "of another kind".to_owned());
        assert!(unless_full(Err(other), &mut full_stores).is_err());
        assert_eq!(full_stores, 1);
    }

    /// Every medium of every set is one that a store stands on, at full size and at the smallest scale.
    #[test]
    fn media_can_be_opened_at_every_size() {
        for set in [Set::Tuning, Set::Judging] {
            for medium in Medium::ALL {
                for configuration in medium.configurations() {
                    let options = configuration.options(medium, set, SMALLEST).unwrap();
                    let spec = medium.spec(set, SMALLEST, &configuration.store(SMALLEST));
                    simulate(1, move |env| emulated::open(env, &spec, &options).map(drop)).unwrap();
                }
            }
        }
    }

    #[test]
    fn regret_is_that_of_the_best_configuration() {
        let of = |value, better| {
            let measure = Measure { name: "a".to_owned(), unit: "1", better, value };
            BTreeMap::from([("a".to_owned(), measure)])
        };
        for (better, values, expected) in
            [(Better::More, [10.0, 9.0, 15.0], 1.5), (Better::Less(1.5), [10.0, 5.0, 20.0], 2.0)]
        {
            let all = values.map(|value| of(value, better));
            let others: Vec<(&str, &Means)> = ["x", "y", "z"].into_iter().zip(&all).collect();
            let (ratio, best) = regret("a", &all[0]["a"], &others);
            assert_eq!((ratio, best.as_str()), (expected, if better == Better::More { "z" } else { "y" }));
        }
    }

    #[test]
    fn reason_names_the_worst_cell_of_the_best_configuration() {
        let means = |rate: f64, tail: f64| -> Means {
            [("load", Better::More, rate), ("reads, p99.9", Better::Less(TAIL_RATIO_MAX), tail)]
                .map(|(name, better, value)| {
                    (name.to_owned(), Measure { name: name.to_owned(), unit: "1", better, value })
                })
                .into()
        };
        let (default, writes) = (means(10.0, 4.0), means(20.0, 12.0));
        let all = [("default", &default), ("favour=writes", &writes)];
        let standing = Standing::of(&default, &all);
        assert_eq!((standing.missed, standing.throughput_regret), (1, 2.0));
        let reason = Standing::of(&writes, &all).reason("favour=writes");
        assert_eq!(
            reason,
            "favour=writes misses the goal in 1 of the medium's cells, most in 'reads, p99.9': regret 2.00"
        );
        let best = means(20.0, 4.0);
        let all = [("default", &default), ("best", &best)];
        assert_eq!(Standing::of(&best, &all).reason("best"), "best meets the goal in every cell of the medium");
    }
}
