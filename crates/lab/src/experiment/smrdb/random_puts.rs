//! Figures 9 to 11 and 13: 11 GB put at random, what compactions cost, and reading everything in order afterwards.

use super::driver::{Measurement, Phase, measure_all};
use super::scheme::Scheme;
use super::settings::{BAND_BYTES, KEY_BYTES, RANDOM_BYTES, Setup};
use crate::error::LabError;
use crate::experiment::comparison::{drawn, goal, ours, words};
use crate::experiment::{Experiment, Run, Scale};
use crate::report::{Axis, Bars, Figure, Plot, Report};
use crate::target::TargetStatistics;
use std::sync::Arc;

/// "All the tests here use 16 byte keys and 4 KB values".
pub(super) const VALUE_BYTES: usize = 4096;

/// Sizes and positioning times are divided alike.
const DEFAULT_SCALE: Scale = Scale::one_in(32);

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
            scan.from.space_bytes.unwrap_or(0) as f64 / scan.user_bytes as f64
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

/// The paper's best as it is and with ours' input and output, and ours, where one thing is varied.
const BESIDE_SOC: [Scheme; 3] = [Scheme::Soc, Scheme::SocSameIo, Scheme::Ours];

/// Tables in level 0 that start a compaction, and those that slow writers down.
const TRIGGERS: [(usize, usize); 4] = [(4, 8), (8, 16), (16, 32), (32, 64)];

pub(in crate::experiment) const FIG_11: Experiment = Experiment {
    id: "smrdb/fig11",
    title: "SMRDB, figure 11: random puts with delayed compactions",
    description: "The puts and gets of smrdb/fig9 under SMRDB-SOC and ours, with more bands in level 0 before a compaction begins; the \
                  values of the figure's axis after the first are not in the text.",
    default_scale: DEFAULT_SCALE,
    run: |run| {
        let of = |scheme: Scheme| {
            move |level0_triggers| Setup { level0_triggers, ..Setup::new(scheme, run.scale, run.settings.seed) }
        };
        let last = TRIGGERS[TRIGGERS.len() - 1];
        let terms = Scheme::without_terms().map(|scheme| of(scheme)(last));
        let setups: Vec<Setup> =
            BESIDE_SOC.into_iter().flat_map(|scheme| TRIGGERS.map(of(scheme))).chain(terms).collect();
        let (all, mut report) = loads(run, &setups)?;
        let name = |setup: &Setup| format!("{}/{}", setup.level0_triggers.0, setup.level0_triggers.1);
        beside_soc(&mut report, &all, name, |one, other| one.level0_triggers == other.level0_triggers);
        let paper = "the random insert performance increases as the number of bands to trigger compaction increases";
        rising(&mut report, &all, Scheme::Soc, 0, "random puts rise with each step", paper);
        Ok(report)
    },
};

/// Sizes of bands in MiB.
const BANDS: [u64; 4] = [40, 80, 160, 320];

pub(in crate::experiment) const FIG_13: Experiment = Experiment {
    id: "smrdb/fig13",
    title: "SMRDB, figure 13: random puts by size of the bands",
    description: "The puts of smrdb/fig9 with bands, tables and memtables of other sizes; the sizes on the figure's axis are not \
                  in the text.",
    default_scale: DEFAULT_SCALE,
    run: |run| {
        let of = |scheme: Scheme, mebibytes: u64| Setup { band_bytes: mebibytes << 20, ..setup(run, scheme) };
        let setups: Vec<Setup> = BANDS
            .iter()
            .flat_map(|&size| [Scheme::Loc].into_iter().chain(BESIDE_SOC).map(move |scheme| of(scheme, size)))
            .chain(Scheme::without_terms().map(|scheme| of(scheme, BANDS[BANDS.len() - 1])))
            .collect();
        let (all, mut report) = loads(run, &setups)?;
        let name = |setup: &Setup| format!("{} MiB", setup.band_bytes >> 20);
        beside_soc(&mut report, &all, name, |one, other| one.band_bytes == other.band_bytes);
        for (scheme, paper) in [
            (Scheme::Loc, "better performance as band size increased even for old LevelDB style compaction"),
            (Scheme::Soc, "SMRDB with SMR friendly compactions performed much better as band size increased"),
        ] {
            rising(&mut report, &all, scheme, 0, "random puts rise with each size", paper);
        }
        let paper = "Bigger bands have larger sequential regions and are also good for sequential reads";
        rising(&mut report, &all, Scheme::Soc, 1, "sequential gets rise with each size", paper);
        Ok(report)
    },
};

/// What each load of a varied setup comes to, and ours beside SMRDB-SOC with the same input and output in the same setup.
fn beside_soc(
    report: &mut Report,
    all: &[Loaded],
    name: impl Fn(&Setup) -> String,
    is_same: impl Fn(&Setup, &Setup) -> bool,
) {
    type Measure = fn(&Loaded) -> f64;
    let measures: [(&str, &str, Measure); 4] = [
        ("random puts", "MB/s", |loaded| loaded.phases[0].megabytes_per_second()),
        ("sequential gets", "MB/s", |loaded| loaded.phases[1].megabytes_per_second()),
        ("rewritten to a user byte", "1", |loaded| loaded.phases[0].rewritten()),
        ("tables over a key", "1", |loaded| loaded.phases[0].overlap_depth.unwrap_or(f64::NAN)),
    ];
    for loaded in all {
        for (metric, unit, of) in measures {
            let metric = format!("{}: {metric}", name(&loaded.setup));
            match unit {
                "MB/s" => drawn(report, loaded.setup.scheme.name(), &metric, unit, of(loaded)),
                _ => ours(report, loaded.setup.scheme.name(), &metric, unit, of(loaded)),
            }
        }
    }
    for own in all.iter().filter(|loaded| loaded.setup.scheme == Scheme::Ours) {
        let is_base = |other: &&Loaded| other.setup.scheme == Scheme::SocSameIo && is_same(&other.setup, &own.setup);
        let Some(base) = all.iter().find(is_base) else { continue };
        for (metric, _, of) in measures {
            let metric = format!("{}: {metric} / {}", name(&own.setup), Scheme::SocSameIo.name());
            ours(report, Scheme::Ours.name(), &metric, "1", of(own) / of(base));
        }
    }
}

/// In how many steps a phase of a scheme becomes faster, in the order of the setups.
fn rising(report: &mut Report, all: &[Loaded], scheme: Scheme, phase: usize, metric: &str, paper: &str) {
    let own = all.iter().filter(|loaded| loaded.setup.scheme == scheme);
    let rates: Vec<f64> = own.map(|loaded| loaded.phases[phase].megabytes_per_second()).collect();
    let steps = rates.windows(2).filter(|pair| pair[1] > pair[0]).count();
    let metric = format!("{metric}, of {}", rates.len().saturating_sub(1));
    words(report, scheme.name(), &metric, (steps as f64, "1"), paper, steps + 1 == rates.len());
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

fn setup(run: &Run<'_>, scheme: Scheme) -> Setup {
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
