//! Figures 2, 5a and 6 under the authors' settings and under the setting with filters, the effect of each setting alone, and C,
//! W2 and W4 at full size.

use super::fig2::{how_as, sizes_as, write_shares_as};
use super::fig5::rows_as;
use super::load::{Loaded, loads_of};
use super::runs::{Begin, Ran, Task, run_all_of, run_tasks};
use super::scheme::Scheme;
use super::settings::{Setting, Setup};
use super::workload::Workload;
use crate::error::LabError;
use crate::experiment::comparison::{compare, ours};
use crate::experiment::{Experiment, Run, Scale, Settings, SharedResults};
use crate::report::Report;
use std::sync::Arc;

/// Both settings, the one with filters first.
const SETTINGS: [Setting; 2] = [Setting::WITH_FILTERS, Setting::AUTHORS];

/// The schemes of figures 2, 5a and 6, and ours.
const LOADED: [Scheme; 10] = [
    Scheme::Basic(1),
    Scheme::Basic(2),
    Scheme::Basic(3),
    Scheme::Basic(4),
    Scheme::Basic3Migrating,
    Scheme::Auto,
    Scheme::WriteGuided,
    Scheme::WriteGuidedMigrating,
    Scheme::Hhzs,
    Scheme::Adaptive,
];

/// A scheme, its base, and the paper's gain over that base for workloads of [`Workload::BREAKDOWN`] by position, in percent.
type Gains = (Scheme, Scheme, &'static [(usize, f64)]);

/// Gains of figure 6, W1 to W4.
const BREAKDOWN_GAINS: [Gains; 3] = [
    (Scheme::WriteGuided, Scheme::Basic(3), &[(0, 18.0), (1, 18.8), (2, -1.4), (3, -5.9)]),
    (Scheme::WriteGuidedMigrating, Scheme::Basic3Migrating, &[(0, 14.5), (1, 8.8), (2, 9.4), (3, 5.9)]),
    (Scheme::Hhzs, Scheme::WriteGuidedMigrating, &[(0, 5.3), (1, 6.8), (2, 7.4), (3, 173.7)]),
];

/// Least and most gain of HHZS over A to F as the text on figure 5a gives them, in percent.
const OVER_B3: (f64, f64) = (21.0, 56.4);
const OVER_AUTO: (f64, f64) = (28.0, 69.3);

/// Difference of a rate from its base, in percent of the base.
fn above(rate: f64, base: f64) -> f64 {
    (rate / base - 1.0) * 100.0
}

/// Setups of schemes under one setting.
fn setups(run: &Run<'_>, setting: Setting, schemes: &[Scheme]) -> Vec<Setup> {
    schemes.iter().map(|&scheme| Setup::under(setting, scheme, run.scale, run.settings.seed)).collect()
}

/// Starts a report with the conditions of a setup.
fn described(run: &Run<'_>, setup: &Setup) -> Report {
    let mut report = run.report();
    setup.describe(&mut report);
    report
}

/// Loads under one setting and reports each load.
fn loaded_under(
    run: &Run<'_>,
    setting: Setting,
    schemes: &[Scheme],
    report: &mut Report,
) -> Result<Vec<Arc<Loaded>>, LabError> {
    let setups = setups(run, setting, schemes);
    let loaded = loads_of(run, &setups.iter().map(Setup::of_load).collect::<Vec<_>>())?;
    for (setup, loaded) in setups.iter().zip(&loaded) {
        let name = setup.name_with_setting();
        report.condition(&format!("event hash of the load of {name}"), format!("{:016x}", loaded.event_hash));
        how_as(report, loaded, &name);
    }
    Ok(loaded)
}

/// Runs workloads with debt under one setting and reports each run.
fn ran_under(
    run: &Run<'_>,
    setting: Setting,
    schemes: &[Scheme],
    workloads: &[Workload],
    report: &mut Report,
) -> Result<Vec<Vec<Arc<Ran>>>, LabError> {
    let all = run_all_of(run, &setups(run, setting, schemes), workloads, Begin::Debt)?;
    all.iter().flatten().for_each(|ran| rows_as(report, ran, &ran.task.setup.name_with_setting()));
    Ok(all)
}

pub(in crate::experiment) const AUTHORS_LOAD: Experiment = Experiment {
    id: "hhzs/authors-load",
    title: "HHZS, figures 2a to 2c and the loads of 5a and 6, with the authors' settings and with filters",
    description: "Loads 200 GiB under B1 to B4, B3+M, AUTO, P, P+M, HHZS and ours under both settings: sizes of the levels, what goes to \
                  which device, throughput.",
    default_scale: super::DEFAULT_SCALE,
    run: |run| {
        let mut report = described(run, &Setup::under(Setting::AUTHORS, Scheme::Hhzs, run.scale, run.settings.seed));
        for setting in SETTINGS {
            let all = loaded_under(run, setting, &LOADED, &mut report)?;
            let of = |scheme: Scheme| {
                let place = LOADED.iter().position(|other| *other == scheme).unwrap_or(0);
                (&all[place], format!("{}, {}", scheme.name(), setting.name))
            };
            let (b4, b4_name) = of(Scheme::Basic(4));
            sizes_as(&mut report, b4, &b4_name, [Some(40.3), Some(29.7), Some(49.1)]);
            for scheme in [Scheme::Basic(3), Scheme::Basic(4)] {
                let (loaded, name) = of(scheme);
                write_shares_as(&mut report, loaded, &name);
            }
            let rate = |scheme: Scheme| of(scheme).0.throughput();
            let (b3, b3_name) = of(Scheme::Basic(3));
            compare(&mut report, &b3_name, "load: hours (full size; \"about eight\")", "h", 8.0, b3.hours());
            let below = -above(rate(Scheme::Basic(4)), rate(Scheme::Basic(3)));
            compare(&mut report, &b4_name, "load: throughput below B3", "%", 11.3, below);
            for (scheme, base, paper) in [
                (Scheme::WriteGuided, Scheme::Basic(3), 5.5),
                (Scheme::Hhzs, Scheme::Basic(3), 7.8),
                (Scheme::Hhzs, Scheme::Auto, 18.3),
            ] {
                let metric = format!("load: throughput above {}", base.name());
                compare(&mut report, &of(scheme).1, &metric, "%", paper, above(rate(scheme), rate(base)));
            }
        }
        Ok(report)
    },
};

pub(in crate::experiment) const AUTHORS_YCSB: Experiment = Experiment {
    id: "hhzs/authors-ycsb",
    title: "HHZS, figure 5a with the authors' settings and with filters: YCSB A to F",
    description: "Loads 200 GiB under B3, AUTO, HHZS and ours, and runs YCSB A to F, 1 million operations each, on what each load left \
                  behind, under both settings.",
    default_scale: super::DEFAULT_SCALE,
    run: |run| {
        let mut report = described(run, &Setup::under(Setting::AUTHORS, Scheme::Hhzs, run.scale, run.settings.seed));
        for setting in SETTINGS {
            let schemes = Scheme::COMPARED_WITH_OURS;
            let all = ran_under(run, setting, &schemes, &Workload::YCSB, &mut report)?;
            let name = format!("HHZS, {}", setting.name);
            for (base, (least, most)) in [(0, OVER_B3), (1, OVER_AUTO)] {
                let gains: Vec<f64> = all[2]
                    .iter()
                    .zip(&all[base])
                    .map(|(ran, base)| above(ran.throughput(), base.throughput()))
                    .collect();
                let of = schemes[base].name();
                for (workload, gain) in Workload::YCSB.iter().zip(&gains) {
                    ours(&mut report, &name, &format!("{}: throughput above {of}", workload.name), "%", *gain);
                }
                let low = gains.iter().copied().fold(f64::INFINITY, f64::min);
                let high = gains.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                compare(&mut report, &name, &format!("least throughput above {of}"), "%", least, low);
                compare(&mut report, &name, &format!("most throughput above {of}"), "%", most, high);
            }
        }
        Ok(report)
    },
};

pub(in crate::experiment) const AUTHORS_BREAKDOWN: Experiment = Experiment {
    id: "hhzs/authors-breakdown",
    title: "HHZS, figure 6 with the authors' settings and with filters: W1 to W4",
    description: "Loads 200 GiB under B3, B3+M, P, P+M, HHZS and ours, and runs 5 million operations of W1 to W4 on what each load left \
                  behind, under both settings.",
    default_scale: super::MANY_RUNS_SCALE,
    run: |run| {
        let mut report = described(run, &Setup::under(Setting::AUTHORS, Scheme::Hhzs, run.scale, run.settings.seed));
        let schemes = [Scheme::BREAKDOWN.as_slice(), &[Scheme::Adaptive]].concat();
        for setting in SETTINGS {
            let all = ran_under(run, setting, &schemes, &Workload::BREAKDOWN, &mut report)?;
            let of = |scheme: Scheme| &all[schemes.iter().position(|other| *other == scheme).unwrap_or(0)];
            for (scheme, base, papers) in BREAKDOWN_GAINS {
                for &(place, paper) in papers {
                    let gain = above(of(scheme)[place].throughput(), of(base)[place].throughput());
                    let metric = format!("{}: throughput above {}", Workload::BREAKDOWN[place].name, base.name());
                    compare(&mut report, &format!("{}, {}", scheme.name(), setting.name), &metric, "%", paper, gain);
                }
            }
        }
        Ok(report)
    },
};

/// The setting with filters with one term of the authors' at a time, and the authors' setting without one term at a time.
fn one_term_each() -> Vec<Setting> {
    let (with, authors) = (Setting::WITH_FILTERS, Setting::AUTHORS);
    vec![
        with,
        Setting { name: "no filters", bloom_bits: authors.bloom_bits, ..with },
        Setting {
            name: "level-0 triggers of RocksDB",
            level0_trigger: authors.level0_trigger,
            level0_limits: authors.level0_limits,
            ..with
        },
        Setting { name: "no pending limits", has_pending_limits: false, ..with },
        Setting { name: "12 compactions at once", jobs: authors.jobs, ..with },
        Setting { name: "open tables counted", counts_open_tables: true, ..with },
        Setting { name: "ranks hashed", hashes_ranks: true, ..with },
        authors,
        Setting { name: "authors but filters", bloom_bits: with.bloom_bits, ..authors },
        Setting { name: "authors but pending limits", has_pending_limits: true, ..authors },
        Setting { name: "authors but open tables expected", counts_open_tables: false, ..authors },
    ]
}

pub(in crate::experiment) const AUTHORS_TERMS: Experiment = Experiment {
    id: "hhzs/authors-terms",
    title: "effect of each of the authors' settings on the gain of HHZS over B3",
    description: "Loads 200 GiB under B3 and HHZS with each of the authors' settings alone, and with all but one of them, and runs A and C \
                  of YCSB and W4 on what each load left behind.",
    default_scale: super::MANY_LOADS_SCALE,
    run: |run| {
        const SCHEMES: [Scheme; 2] = [Scheme::Basic(3), Scheme::Hhzs];
        let workloads = [Workload::YCSB[0], Workload::YCSB[2], Workload::BREAKDOWN[3]];
        let mut report = described(run, &Setup::under(Setting::AUTHORS, Scheme::Hhzs, run.scale, run.settings.seed));
        for setting in one_term_each() {
            let loaded = loaded_under(run, setting, &SCHEMES, &mut report)?;
            let name = format!("HHZS, {}", setting.name);
            let gain = above(loaded[1].throughput(), loaded[0].throughput());
            ours(&mut report, &name, "load: throughput above B3", "%", gain);
            let all = ran_under(run, setting, &SCHEMES, &workloads, &mut report)?;
            for (place, workload) in workloads.iter().enumerate() {
                let gain = above(all[1][place].throughput(), all[0][place].throughput());
                ours(&mut report, &name, &format!("{}: throughput above B3", workload.name), "%", gain);
            }
        }
        Ok(report)
    },
};

const fn alone(id: &'static str, title: &'static str, run: fn(&Run<'_>) -> Result<Report, LabError>) -> Experiment {
    Experiment {
        id,
        title,
        description: "For `--scale 1`, where nothing is converted: every get stands for itself. With the load's debt. One workload after \
                      the other; about an hour of one processor and 16 GB of memory in full.",
        default_scale: super::MANY_RUNS_SCALE,
        run,
    }
}

pub(in crate::experiment) const FULL_AUTHORS_B3: Experiment =
    alone("hhzs/full-authors-b3", "C, W2 and W4 under B3 with the authors' settings", |run| {
        run_alone(run, Scheme::Basic(3))
    });

pub(in crate::experiment) const FULL_AUTHORS_AUTO: Experiment =
    alone("hhzs/full-authors-auto", "C, W2 and W4 under AUTO with the authors' settings", |run| {
        run_alone(run, Scheme::Auto)
    });

pub(in crate::experiment) const FULL_AUTHORS_HHZS: Experiment =
    alone("hhzs/full-authors-hhzs", "C, W2 and W4 under HHZS with the authors' settings", |run| {
        run_alone(run, Scheme::Hhzs)
    });

pub(in crate::experiment) const FULL_AUTHORS_OURS: Experiment =
    alone("hhzs/full-authors-ours", "C, W2 and W4 under ours with the authors' settings", |run| {
        run_alone(run, Scheme::Adaptive)
    });

fn run_alone(run: &Run<'_>, scheme: Scheme) -> Result<Report, LabError> {
    // In full the load is given back before the next experiment begins.
    let own = Settings { shared: SharedResults::default(), ..run.settings.clone() };
    let alone = Run { settings: if run.scale == Scale::FULL { &own } else { run.settings }, ..*run };
    let setup = Setup::under(Setting::AUTHORS, scheme, alone.scale, alone.settings.seed);
    let mut report = described(&alone, &setup);
    loaded_under(&alone, Setting::AUTHORS, &[scheme], &mut report)?;
    for workload in [Workload::YCSB[2], Workload::BREAKDOWN[1], Workload::BREAKDOWN[3]] {
        let task = Task {
            setup: setup.clone(),
            begin: Begin::Debt,
            workload: setup.setting.workload(&workload).at(setup.scale),
            warm_up: None,
        };
        for ran in run_tasks(&alone, vec![task])? {
            rows_as(&mut report, &ran, &setup.name_with_setting());
        }
    }
    Ok(report)
}
