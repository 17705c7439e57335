//! Figures 11 and 13: the puts of figure 9 with later compactions, and with bands of other sizes.

use super::driver::{Driver, Measurement, Phase, measure_all};
use super::random_gets::READS;
use super::random_puts::{DEFAULT_SCALE, Loaded, VALUE_BYTES, loads, setup};
use super::scheme::Scheme;
use super::settings::{KEY_BYTES, RANDOM_BYTES, SEQUENTIAL_BYTES, Setup};
use crate::error::LabError;
use crate::experiment::comparison::{drawn, ours, words};
use crate::experiment::{Experiment, Run};
use crate::report::Report;

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
        let of = |scheme: Scheme| move |level0_triggers| Setup { level0_triggers, ..setup(run, scheme) };
        let last = TRIGGERS[TRIGGERS.len() - 1];
        let terms = Scheme::without_terms().map(|scheme| of(scheme)(last));
        let setups: Vec<Setup> =
            BESIDE_SOC.into_iter().flat_map(|scheme| TRIGGERS.map(of(scheme))).chain(terms).collect();
        let (all, mut report) = loads(run, &setups)?;
        let name = |setup: &Setup| format!("{}/{}", setup.level0_triggers.0, setup.level0_triggers.1);
        beside_soc(&mut report, &all, name);
        let paper = "the random insert performance increases as the number of bands to trigger compaction increases";
        rising(&mut report, Scheme::Soc, &rates(&all, Scheme::Soc, 0), "random puts rise with each step", paper);
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
        beside_soc(&mut report, &all, name);
        for (scheme, paper) in [
            (Scheme::Loc, "better performance as band size increased even for old LevelDB style compaction"),
            (Scheme::Soc, "SMRDB with SMR friendly compactions performed much better as band size increased"),
        ] {
            rising(&mut report, scheme, &rates(&all, scheme, 0), "random puts rise with each size", paper);
        }
        in_order_and_at_random(run, &mut report)?;
        let paper = "Bigger bands have larger sequential regions and are also good for sequential reads";
        rising(&mut report, Scheme::Soc, &rates(&all, Scheme::Soc, 1), "sequential gets rise with each size", paper);
        Ok(report)
    },
};

/// What each load of a varied setup comes to, and ours beside SMRDB-SOC with the same input and output in the same setup.
fn beside_soc(report: &mut Report, all: &[Loaded], name: impl Fn(&Setup) -> String) {
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
        let is_base =
            |other: &&Loaded| other.setup.scheme == Scheme::SocSameIo && name(&other.setup) == name(&own.setup);
        let Some(base) = all.iter().find(is_base) else { continue };
        for (metric, _, of) in measures {
            let metric = format!("{}: {metric} / {}", name(&own.setup), Scheme::SocSameIo.name());
            ours(report, Scheme::Ours.name(), &metric, "1", of(own) / of(base));
        }
    }
}

/// What figure 13's text says of sequential puts and of random gets, which the figure does not have.
fn in_order_and_at_random(run: &Run<'_>, report: &mut Report) -> Result<(), LabError> {
    let pair_bytes = (KEY_BYTES + VALUE_BYTES) as u64;
    let puts = run.scale.of(SEQUENTIAL_BYTES / pair_bytes);
    let (records, gets) = (run.scale.of(RANDOM_BYTES / pair_bytes), run.scale.of(READS));
    let setups = BANDS.map(|mebibytes| Setup { band_bytes: mebibytes << 20, ..setup(run, Scheme::Soc) });
    let in_order = setups.iter().map(|setup| {
        let work = move |driver: &mut Driver| Ok(vec![driver.put_in_order(puts, None)?]);
        Measurement::new(setup, VALUE_BYTES, "sequential puts by size of bands", work)
    });
    let at_random = setups.iter().map(|setup| {
        Measurement::new(setup, VALUE_BYTES, "gets by size of bands", move |driver| {
            driver.put_at_random(records)?;
            driver.idle()?;
            Ok(vec![driver.read_at_random(gets, records)?])
        })
    });
    let all = measure_all(run, "puts in order and gets by size of bands", in_order.chain(at_random).collect())?;
    let (in_order, at_random) = all.split_at(BANDS.len());
    for (size, (puts, gets)) in BANDS.iter().zip(in_order.iter().zip(at_random)) {
        let metric = format!("{size} MiB: sequential puts, no sync");
        ours(report, Scheme::Soc.name(), &metric, "MB/s", puts[0].megabytes_per_second());
        ours(report, Scheme::Soc.name(), &format!("{size} MiB: random gets"), "1/s", rate(&gets[0]));
    }
    let rates: Vec<f64> = in_order.iter().map(|phases| phases[0].megabytes_per_second()).collect();
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let ratio = least / rates.iter().copied().fold(0.0, f64::max);
    let paper = "Sequential writes are not affected by varying the band sizes";
    words(report, Scheme::Soc.name(), "sequential puts, slowest / fastest size", (ratio, "1"), paper, ratio >= 0.9);
    let rates: Vec<f64> = at_random.iter().map(|phases| rate(&phases[0])).collect();
    let paper = "bigger bands are better for random reads, as the number of bands to search decreases";
    rising(report, Scheme::Soc, &rates, "random gets rise with each size", paper);
    Ok(())
}

/// Operations per second.
fn rate(phase: &Phase) -> f64 {
    phase.operations as f64 / phase.seconds
}

/// Megabytes per second of a phase of a scheme, in the order of the setups.
fn rates(all: &[Loaded], scheme: Scheme, phase: usize) -> Vec<f64> {
    let own = all.iter().filter(|loaded| loaded.setup.scheme == scheme);
    own.map(|loaded| loaded.phases[phase].megabytes_per_second()).collect()
}

/// In how many steps a rate of a scheme rises.
fn rising(report: &mut Report, scheme: Scheme, rates: &[f64], metric: &str, paper: &str) {
    let steps = rates.windows(2).filter(|pair| pair[1] > pair[0]).count();
    let metric = format!("{metric}, of {}", rates.len().saturating_sub(1));
    words(report, scheme.name(), &metric, (steps as f64, "1"), paper, steps + 1 == rates.len());
}
