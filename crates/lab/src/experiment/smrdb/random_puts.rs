//! Figures 9 and 10: 11 GB put at random, what compactions cost, and reading everything in order afterwards.

use super::driver::{Measurement, Phase, measure_all};
use super::scheme::Scheme;
use super::sequential_puts;
use super::settings::{BAND_BYTES, KEY_BYTES, RANDOM_BYTES, Setup};
use crate::error::LabError;
use crate::experiment::comparison::{MUCH, drawn, goal, ours, words};
use crate::experiment::{Experiment, Run, Scale};
use crate::report::{Axis, Bars, Figure, Plot, Report};
use crate::target::TargetStatistics;
use std::sync::Arc;

/// "All the tests here use 16 byte keys and 4 KB values".
pub(super) const VALUE_BYTES: usize = 4096;

/// Sizes and positioning times are divided alike.
pub(super) const DEFAULT_SCALE: Scale = Scale::one_in(32);

/// Of figures in which work is paced: how long it sleeps at least is not divided.
pub(super) const PACED_SCALE: Scale = Scale::one_in(8);

const DESCRIPTION: &str = "Puts 4 KiB values under keys drawn at random from as many as are put (11 GB), none synced, and \
                           then reads everything in order, at once. Scale divides every size and every positioning time.";

pub(in crate::experiment) const FIG_9: Experiment = Experiment {
    id: "smrdb/fig9",
    title: "SMRDB, figure 9: random puts, and sequential gets after them",
    description: DESCRIPTION,
    default_scale: PACED_SCALE,
    run: |run| {
        let (all, mut report) = loads(run, &setups_of(run, Scheme::all()))?;
        let rate = |loaded: &Loaded, phase: usize| loaded.phases[phase].megabytes_per_second();
        for (phase, metric) in [(0, "random puts"), (1, "sequential gets")] {
            for loaded in &all {
                drawn(&mut report, loaded.setup.scheme.name(), metric, "MB/s", rate(loaded, phase));
            }
            over_leveldb(&mut report, &all, metric, |loaded| rate(loaded, phase));
        }
        told(&mut report, &all, rate);
        for loaded in &all {
            let (name, ordered) = (loaded.setup.scheme.name(), &loaded.phases[2]);
            let rate = ordered.megabytes_per_second();
            ours(&mut report, name, "sequential gets after manual compaction", "MB/s", rate);
            let raw = &loaded.phases[3];
            let moved = ordered.device_read_bytes().min(raw.device_read_bytes());
            let share = moved as f64 / ordered.seconds / (raw.device_read_bytes() as f64 / raw.seconds);
            let metric = "the same, media bytes / reading the same addresses in order";
            match loaded.setup.scheme.is_past_paper() {
                true => goal(&mut report, name, metric, share, "at least 0.95", share >= 0.95),
                false => ours(&mut report, name, metric, "1", share),
            }
        }
        beside_order(run, &mut report, &all)?;
        report.plots.push(bars("throughput", "throughput (MB/s)", &["random puts", "sequential gets"], &all, rate));
        Ok(report)
    },
};

pub(in crate::experiment) const FIG_10: Experiment = Experiment {
    id: "smrdb/fig10",
    title: "SMRDB, figure 10: time and bytes of compactions during random puts",
    description: "Of the puts of smrdb/fig9: time spent in compactions, and bytes read and written but for the log.",
    default_scale: PACED_SCALE,
    run: |run| {
        let (all, mut report) = loads(run, &setups_of(run, Scheme::all()))?;
        let factor = run.scale.denominator() as f64;
        for loaded in &all {
            let (name, puts) = (loaded.setup.scheme.name(), &loaded.phases[0]);
            let full_seconds = puts.growth(|statistics| statistics.compaction_nanos) as f64 / 1e9 * factor;
            drawn(&mut report, name, "time of compactions", "s", full_seconds);
            let gigabytes = |bytes: u64| bytes as f64 * factor / 1e9;
            let read = puts.growth(|statistics| statistics.compaction_read_bytes);
            let written = puts.growth(|statistics| statistics.compaction_written_bytes);
            let flushed = puts.growth(|statistics| statistics.flush_bytes);
            drawn(&mut report, name, "read by compactions", "GB", gigabytes(read));
            drawn(&mut report, name, "written by flushes and compactions", "GB", gigabytes(flushed + written));
            let amplification = (flushed + written) as f64 / puts.user_bytes as f64;
            ours(&mut report, name, "written to a user byte", "1", amplification);
        }
        let time = |wanted: Scheme| {
            let found = all.iter().find(|loaded| loaded.setup.scheme == wanted);
            let nanos = found.map(|loaded| loaded.phases[0].growth(|statistics| statistics.compaction_nanos));
            nanos.map_or(f64::NAN, |nanos| nanos as f64)
        };
        let (ratio, paper) = (time(Scheme::Soc) / time(Scheme::Loc), "clearly better than LevelDB style compaction");
        let metric = "time of compactions, to SMRDB-LOC";
        words(&mut report, Scheme::Soc.name(), metric, (ratio, "1"), paper, ratio < 1.0);
        let bytes = |wanted: Scheme| {
            let found = all.iter().find(|loaded| loaded.setup.scheme == wanted);
            found.map_or(f64::NAN, |loaded| {
                let of = |take: fn(&TargetStatistics) -> Option<u64>| loaded.phases[0].growth(take) as f64;
                of(|of| of.compaction_read_bytes) + of(|of| of.compaction_written_bytes) + of(|of| of.flush_bytes)
            })
        };
        let ratio = bytes(Scheme::Soc) / bytes(Scheme::Loc);
        let metric = "read and written, to SMRDB-LOC";
        words(&mut report, Scheme::Soc.name(), metric, (ratio, "1"), paper, ratio < 1.0);
        rewriting(&mut report, &all);
        Ok(report)
    },
};

/// What the paper says of figure 9 in words.
fn told(report: &mut Report, all: &[Loaded], rate: impl Fn(&Loaded, usize) -> f64) {
    let of = |scheme: Scheme, phase: usize| {
        all.iter().find(|loaded| loaded.setup.scheme == scheme).map_or(f64::NAN, |loaded| rate(loaded, phase))
    };
    for (phase, scheme, base, paper, least, most) in [
        (0, Scheme::Loc, Scheme::LevelDb, "slightly less than LevelDB", 0.8, 1.0),
        (0, Scheme::Soc, Scheme::LevelDb, "it outperforms LevelDB", 1.0, f64::INFINITY),
        (1, Scheme::Loc, Scheme::LevelDb, "sequential read throughput is higher than LevelDB", 1.0, f64::INFINITY),
        (
            1,
            Scheme::Soc,
            Scheme::Loc,
            "even better for sequential reads than the LevelDB style compaction",
            1.0,
            f64::INFINITY,
        ),
    ] {
        let ratio = of(scheme, phase) / of(base, phase);
        let metric = format!("{}, to {}", ["random puts", "sequential gets"][phase], base.name());
        words(report, scheme.name(), &metric, (ratio, "1"), paper, ratio > least && ratio < most);
    }
}

/// What random puts are to those of figure 8 in order.
fn beside_order(run: &Run<'_>, report: &mut Report, all: &[Loaded]) -> Result<(), LabError> {
    let schemes = [Scheme::LevelDb, Scheme::Soc];
    let in_order = sequential_puts::unsynced_rates(run, VALUE_BYTES, schemes.to_vec())?;
    let paper = "The random write performance is much less than the sequential write performance on all setups";
    for (scheme, in_order) in schemes.into_iter().zip(in_order) {
        let Some(loaded) = all.iter().find(|loaded| loaded.setup.scheme == scheme) else { continue };
        let ratio = loaded.phases[0].megabytes_per_second() / in_order;
        let metric = "random puts, to sequential ones of figure 8 with no sync";
        words(report, scheme.name(), metric, (ratio, "1"), paper, ratio * MUCH <= 1.0);
    }
    Ok(())
}

/// What ours is to be, to SMRDB-SOC with the same input and output.
pub(super) struct Goal {
    metric: &'static str,
    unit: &'static str,
    pub(super) wanted: Wanted,
    of: fn(&Loaded) -> f64,
}

impl Goal {
    /// What the ratio of ours to SMRDB-SOC with the same input and output is called.
    pub(super) fn ratio_metric(&self) -> String {
        format!("{} / {}", self.metric, Scheme::SocSameIo.name())
    }

    pub(super) fn ratio(&self, own: &Loaded, base: &Loaded) -> f64 {
        (self.of)(own) / (self.of)(base)
    }
}

/// Of a ratio.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    AtMost(f64),
    AtLeast(f64),
}

impl Wanted {
    fn is_reached(self, ratio: f64) -> bool {
        match self {
            Wanted::AtMost(most) => ratio <= most,
            Wanted::AtLeast(least) => ratio >= least,
        }
    }

    /// Adds a ratio of ours, and whether it is what it is to be.
    pub(super) fn judge(self, report: &mut Report, metric: &str, ratio: f64) {
        goal(report, Scheme::Ours.name(), metric, ratio, &self.to_string(), self.is_reached(ratio));
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wanted::AtMost(most) => write!(formatter, "at most {most}"),
            Wanted::AtLeast(least) => write!(formatter, "at least {least}"),
        }
    }
}

/// All goals of random puts.
pub(super) fn goals() -> impl Iterator<Item = Goal> {
    [PUTS].into_iter().chain(REWRITING)
}

/// How fast random puts are.
const PUTS: Goal = Goal {
    metric: "random puts",
    unit: "MB/s",
    wanted: Wanted::AtLeast(1.5),
    of: |loaded| loaded.phases[0].megabytes_per_second(),
};

/// Bytes that compactions wrote, and what writing fewer of them must not cost: overlap, scans, space.
const REWRITING: [Goal; 6] = [
    Goal {
        metric: "rewritten to a user byte",
        unit: "1",
        wanted: Wanted::AtMost(0.6),
        of: |loaded| loaded.phases[0].rewritten(),
    },
    Goal {
        metric: "tables over a key, mean of the puts",
        unit: "1",
        wanted: Wanted::AtMost(1.0),
        of: |loaded| loaded.phases[0].overlap_depth.unwrap_or(f64::NAN),
    },
    Goal {
        metric: "sequential gets at once",
        unit: "MB/s",
        wanted: Wanted::AtLeast(1.0),
        of: |loaded| loaded.phases[1].megabytes_per_second(),
    },
    Goal {
        metric: "space of tables on the disk, mean of the puts",
        unit: "GB",
        wanted: Wanted::AtMost(1.0),
        of: |loaded| loaded.space_gigabytes().0,
    },
    Goal {
        metric: "space of tables on the disk, most of the puts",
        unit: "GB",
        wanted: Wanted::AtMost(1.0),
        of: |loaded| loaded.space_gigabytes().1,
    },
    Goal {
        metric: "tables' bytes to a byte of keys and values there are",
        unit: "1",
        wanted: Wanted::AtMost(1.0),
        of: |loaded| {
            let scan = &loaded.phases[1];
            scan.from.table_bytes.unwrap_or(0) as f64 / scan.user_bytes as f64
        },
    },
];

fn rewriting(report: &mut Report, all: &[Loaded]) {
    let find = |scheme: Scheme| all.iter().find(|loaded| loaded.setup.scheme == scheme);
    for rewriting in REWRITING {
        let Goal { metric, unit, wanted, of } = rewriting;
        for loaded in all {
            ours(report, loaded.setup.scheme.name(), metric, unit, of(loaded));
        }
        let Some(own) = find(Scheme::Ours) else { return };
        if let Some(base) = find(Scheme::Soc) {
            let metric = format!("{metric} / {}", Scheme::Soc.name());
            ours(report, Scheme::Ours.name(), &metric, "1", rewriting.ratio(own, base));
        }
        if let Some(base) = find(Scheme::SocSameIo) {
            wanted.judge(report, &rewriting.ratio_metric(), rewriting.ratio(own, base));
        }
    }
}

/// Random puts and what followed.
pub(super) struct Loaded {
    pub(super) setup: Setup,
    /// The puts, reading everything in order, the same after everything was put in order, and reading the same
    /// addresses past the store.
    pub(super) phases: Arc<Vec<Phase>>,
}

impl Loaded {
    /// What tables took of the disk, of the full size: the mean and the most of the puts.
    fn space_gigabytes(&self) -> (f64, f64) {
        let factor = self.setup.sizes.denominator() as f64;
        self.phases[0].table_space.map_or((f64::NAN, f64::NAN), |space| {
            (space.mean_bytes * factor / 1e9, space.most_bytes as f64 * factor / 1e9)
        })
    }
}

pub(super) fn setup(run: &Run<'_>, scheme: Scheme) -> Setup {
    Setup::new(scheme, run.scale, run.settings.seed)
}

fn setups_of(run: &Run<'_>, schemes: Vec<Scheme>) -> Vec<Setup> {
    schemes.into_iter().map(|scheme| setup(run, scheme)).collect()
}

/// The puts and what followed of these setups, in their order.
pub(super) fn loads(run: &Run<'_>, setups: &[Setup]) -> Result<(Vec<Loaded>, Report), LabError> {
    let records = run.scale.of(RANDOM_BYTES / (KEY_BYTES + VALUE_BYTES) as u64);
    let load = |setup: &Setup| {
        Measurement::new(setup, VALUE_BYTES, "random puts", move |driver| {
            let puts = driver.put_at_random(records)?;
            let at_once = driver.read_in_order()?;
            driver.compact()?;
            let ordered = driver.read_in_order()?;
            Ok(vec![puts, at_once, ordered, driver.read_tables_by_address()?])
        })
    };
    let phases = measure_all(run, "random puts", setups.iter().map(load).collect())?;
    let all: Vec<Loaded> =
        setups.iter().zip(phases).map(|(setup, phases)| Loaded { setup: setup.clone(), phases }).collect();
    let mut report = run.report();
    if let Some(paper) = setups.iter().rfind(|setup| setup.scheme == Scheme::Soc) {
        paper.describe(&mut report);
    }
    report.condition("puts", format!("{records} of {KEY_BYTES} + {VALUE_BYTES} B"));
    if setups.iter().any(|setup| setup.band_bytes != BAND_BYTES) {
        report.condition("band, memtable", "as the rows say");
    }
    Ok((all, report))
}

/// What each is to LevelDB-like, and ours to those with the same input and output.
fn over_leveldb(report: &mut Report, all: &[Loaded], metric: &str, of: impl Fn(&Loaded) -> f64) {
    let find = |scheme: Scheme| all.iter().find(|loaded| loaded.setup.scheme == scheme);
    let Some(leveldb) = find(Scheme::LevelDb) else { return };
    for loaded in all.iter().filter(|loaded| loaded.setup.scheme != Scheme::LevelDb) {
        let metric = format!("{metric} / LevelDB-like");
        ours(report, loaded.setup.scheme.name(), &metric, "1", of(loaded) / of(leveldb));
    }
    for base in [Scheme::LevelDbSameIo, Scheme::SocSameIo] {
        let (Some(own), Some(base)) = (find(Scheme::Ours), find(base)) else { continue };
        let (name, ratio) = (Scheme::Ours.name(), of(own) / of(base));
        let metric = format!("{metric} / {}", base.setup.scheme.name());
        match base.setup.scheme == Scheme::SocSameIo && metric.starts_with("random puts") {
            true => PUTS.wanted.judge(report, &metric, ratio),
            false => ours(report, name, &metric, "1", ratio),
        }
    }
}

fn bars(name: &str, label: &str, groups: &[&str], all: &[Loaded], of: impl Fn(&Loaded, usize) -> f64) -> Plot {
    let series = all
        .iter()
        .map(|loaded| {
            let values = (0..groups.len()).map(|group| Some(of(loaded, group))).collect();
            (loaded.setup.scheme.name().to_owned(), values)
        })
        .collect();
    Plot {
        name: name.to_owned(),
        title: "random puts of 11 GB, and sequential gets after them".to_owned(),
        medium: super::settings::PLOTTED_MEDIUM.to_owned(),
        y: Axis::linear(label),
        figure: Figure::Bars(Bars { groups: groups.iter().map(ToString::to_string).collect(), series }),
    }
}
