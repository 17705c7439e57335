//! `smrdb/robust`: which conclusions of the random puts survive when disk and workload are otherwise.

use super::driver::{Measurement, Phase, PutOrder, measure_all};
use super::random_puts::{VALUE_BYTES, Wanted};
use super::scheme::{Scheme, Term};
use super::seeds::HELD_OUT_SEEDS;
use super::settings::{KEY_BYTES, OTHER_MODEL, RANDOM_BYTES, Setup};
use crate::experiment::comparison::{goal, ours};
use crate::experiment::{Experiment, Scale};
use crate::report::Report;
use std::sync::Arc;

/// The paper's, and those that have the same input and output, each slowest first.
const SCHEMES: [Scheme; 7] = [
    Scheme::LevelDb,
    Scheme::Loc,
    Scheme::Soc,
    Scheme::LevelDbSameIo,
    Scheme::SocSameIo,
    Scheme::OursWithout(Term::KeyRanges),
    Scheme::Ours,
];

/// What is otherwise.
#[derive(Clone)]
struct Variation {
    setup: Setup,
    value_bytes: usize,
    /// Bytes put in full.
    put_bytes: u64,
    order: PutOrder,
}

/// A name and what it changes of the load on seed 11, which nothing was tuned on.
type Change = (&'static str, fn(&mut Variation));

const CHANGES: [Change; 12] = [
    ("as elsewhere", |_| {}),
    ("another seed", |variation| variation.setup.seed += 1),
    ("a third seed", |variation| variation.setup.seed += 2),
    ("another disk", |variation| variation.setup.model = OTHER_MODEL),
    ("bands of 40 MiB", |variation| variation.setup.band_bytes /= 2),
    ("bands of 256 MiB", |variation| variation.setup.band_bytes = 256 << 20),
    ("values of 1,000 B", |variation| variation.value_bytes = 1000),
    ("values of 32 KiB", |variation| variation.value_bytes = 32 << 10),
    ("zipf of 0.99", |variation| variation.order = PutOrder::Zipf),
    ("zipf of 0.99, values of 1,000 B", |variation| {
        variation.order = PutOrder::Zipf;
        variation.value_bytes = 1000;
    }),
    ("one delete to four puts", |variation| variation.order = PutOrder::WithDeletes),
    ("twice as much", |variation| variation.put_bytes *= 2),
];

pub(in crate::experiment) const ROBUST: Experiment = Experiment {
    id: "smrdb/robust",
    title: "which conclusions of SMRDB's random puts survive on other disks and under other loads (not in the paper)",
    description: "The puts of smrdb/fig9 with one thing otherwise at a time: the seed, the disk, the size of bands and of values, skewed \
                  keys, deletes, how much is put; on seeds that nothing was tuned on (the run's and 10). What ours is to the others, and whether the goals of figures 9 and 10 are reached.",
    default_scale: Scale::one_in(128),
    run: |run| {
        let variations = CHANGES.map(|(_, change)| {
            SCHEMES.map(|scheme| {
                let mut variation = Variation {
                    setup: Setup::new(scheme, run.scale, run.settings.seed + HELD_OUT_SEEDS),
                    value_bytes: VALUE_BYTES,
                    put_bytes: RANDOM_BYTES,
                    order: PutOrder::Uniform,
                };
                change(&mut variation);
                variation
            })
        });
        let measurement = |variation: &Variation| {
            let Variation { setup, value_bytes, put_bytes, order } = variation.clone();
            let records = run.scale.of(put_bytes / (KEY_BYTES + value_bytes) as u64);
            Measurement::new(&setup, value_bytes, &format!("{order:?} puts of {put_bytes}"), move |driver| {
                Ok(vec![driver.put_in(order, records)?, driver.read_in_order()?])
            })
        };
        let wanted = variations.iter().flatten().map(measurement).collect();
        let all = measure_all(run, "random puts", wanted)?;
        let mut report = run.report();
        variations[0][0].setup.describe(&mut report);
        for ((change, _), phases) in CHANGES.iter().zip(all.chunks(SCHEMES.len())) {
            told(&mut report, change, phases);
        }
        Ok(report)
    },
};

/// What tables take of the disk to a byte that was put: the mean and the most of the puts.
fn space(phases: &[Phase]) -> (f64, f64) {
    let bytes = phases[0].user_bytes as f64;
    phases[0]
        .table_space
        .map_or((f64::NAN, f64::NAN), |space| (space.mean_bytes / bytes, space.most_bytes as f64 / bytes))
}

/// The schemes of one variation beside each other.
fn told(report: &mut Report, change: &str, all: &[Arc<Vec<Phase>>]) {
    type Measure = fn(&[Phase]) -> f64;
    let measures: [(&str, &str, Measure); 6] = [
        ("random puts", "MB/s", |phases| phases[0].megabytes_per_second()),
        ("rewritten to a user byte", "1", |phases| phases[0].rewritten()),
        ("tables over a key", "1", |phases| phases[0].overlap_depth.unwrap_or(f64::NAN)),
        ("sequential gets", "MB/s", |phases| phases[1].megabytes_per_second()),
        ("space of tables on the disk, mean of the puts", "1", |phases| space(phases).0),
        ("space of tables on the disk, most of the puts", "1", |phases| space(phases).1),
    ];
    for (metric, unit, of) in measures {
        for (scheme, phases) in SCHEMES.iter().zip(all) {
            ours(report, scheme.name(), &format!("{change}: {metric}"), unit, of(phases));
        }
    }
    let (puts, gets) = (measures[0].2, measures[3].2);
    let of = |scheme: Scheme| SCHEMES.iter().position(|other| *other == scheme).map(|position| &all[position][..]);
    let (Some(own), Some(base)) = (of(Scheme::Ours), of(Scheme::SocSameIo)) else { return };
    if let Some(leveldb) = of(Scheme::LevelDbSameIo) {
        let metric = format!("{change}: random puts / {}", Scheme::LevelDbSameIo.name());
        let ratio = puts(base) / puts(leveldb);
        goal(report, Scheme::SocSameIo.name(), &metric, ratio, "above 1", ratio > 1.0);
    }
    // The paper's order: random puts, and the gets behind them.
    for (scheme, base) in [(Scheme::Soc, Scheme::LevelDb), (Scheme::Soc, Scheme::Loc)] {
        let (Some(scheme_phases), Some(base_phases)) = (of(scheme), of(base)) else { continue };
        for (metric, of) in [("random puts", puts), ("sequential gets", gets)] {
            let (metric, ratio) =
                (format!("{change}: {metric} / {}", base.name()), of(scheme_phases) / of(base_phases));
            goal(report, scheme.name(), &metric, ratio, "above 1", ratio > 1.0);
        }
    }
    let wanted = [
        Wanted::AtLeast(1.5),
        Wanted::AtMost(0.6),
        Wanted::AtMost(1.0),
        Wanted::AtLeast(1.0),
        Wanted::AtMost(1.0),
        Wanted::AtMost(1.0),
    ];
    for ((metric, _, of), wanted) in measures.into_iter().zip(wanted) {
        let metric = format!("{change}: {metric} / {}", Scheme::SocSameIo.name());
        wanted.judge(report, &metric, of(own) / of(base));
    }
}
