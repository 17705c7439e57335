//! Figure 7: reads and updates after the load.

use super::load::{Loaded, Mixed, loads};
use super::overall::FINER_SCALE;
use super::scheme::Scheme;
use super::settings::{MIX_OPERATIONS, MIXES, READS_TO_ONE, Setup, Work};
use crate::error::LabError;
use crate::experiment::comparison::{compare, drawn, ours, words};
use crate::experiment::{Experiment, Run};
use crate::report::{Axis, Bars, Figure, Plot, Report};
use std::sync::Arc;

/// What KVIMR-N and KVIMR-M gain at least over Seq and 3Phase, in percent, by the share of reads.
const GAINS: [(u64, f64); 3] = [(90, 2.28), (50, 10.22), (10, 28.93)];

pub(in crate::experiment) const FIG_7A: Experiment = Experiment {
    id: "kvimr/fig7a",
    title: "KVIMR, figure 7a: throughput of reads and updates after the load",
    description: "Loads as kvimr/fig5a does and then does 7.5 million operations each with 90, 50 and 10 % reads, zipfian, \
                  one mix after the other on one load, each from when the store was idle. Scale divides the updates like everything else, but not the reads: \
                  each moves the arm for 1/N of the time. What it transfers and computes is not divided and so counts N \
                  times as much, as its rows say. While no flush and no compaction runs, one read of \
                  eight is done and the time of the others passes: nothing else can happen meanwhile.",
    default_scale: FINER_SCALE,
    run: |run| {
        let (all, mut report) = begin(run)?;
        let factor = run.scale.denominator() as f64;
        let throughput = |mixed: &Mixed| MIX_OPERATIONS as f64 / (mixed.span().seconds() * factor);
        draw(&mut report, &all, "throughput", "op/s", throughput);
        for (percent, gain) in GAINS {
            let of = |scheme: Scheme| {
                let loaded = all.iter().find(|loaded| loaded.setup.scheme == scheme)?;
                loaded.mixes.iter().find(|mixed| mixed.read_percent == percent).map(throughput)
            };
            let rates = [Scheme::KvimrN, Scheme::KvimrM, Scheme::Seq, Scheme::ThreePhase].map(of);
            if let [Some(naive), Some(merged), Some(seq), Some(three_phase)] = rates {
                let least = naive.min(merged) / seq.max(three_phase);
                let metric = format!("{percent} % reads: throughput at least, / Seq and 3Phase");
                compare(&mut report, "KVIMR-N, -M", &metric, "1", 1.0 + gain / 100.0, least);
            }
        }
        rising(
            &mut report,
            &all,
            "throughput",
            "the throughputs of all the evaluated schemes increase as the write intensity increases",
            throughput,
        );
        more_effective(&mut report, &all, throughput);
        for loaded in &all {
            for mixed in &loaded.mixes {
                let metric = format!("{} % reads: disk transferring, of the time of what was done", mixed.read_percent);
                let span = mixed.span();
                let seconds = span.seconds() - mixed.passed_nanos as f64 / 1e9;
                let share = span.disk(|disk| disk.time.transfer_nanos) as f64 / 1e9 / seconds;
                ours(&mut report, &loaded.setup.scheme.name(), &metric, "1", share);
            }
        }
        Ok(report)
    },
};

pub(in crate::experiment) const FIG_7B: Experiment = Experiment {
    id: "kvimr/fig7b",
    title: "KVIMR, figure 7b: compactions during reads and updates after the load",
    description: "The mixes of kvimr/fig7a: compactions that ended during each.",
    default_scale: FINER_SCALE,
    run: |run| {
        let (all, mut report) = begin(run)?;
        let compactions = |mixed: &Mixed| mixed.span().compactions() as f64;
        draw(&mut report, &all, "compactions", "1", compactions);
        let paper = "the number of incurred compactions increases as the write intensity increases";
        rising(&mut report, &all, "compactions", paper, compactions);
        Ok(report)
    },
};

/// Whether a number rises from mix to mix under every scheme, as the paper says.
fn rising(report: &mut Report, all: &[Arc<Loaded>], metric: &str, paper: &str, of: impl Fn(&Mixed) -> f64) {
    let rises = |loaded: &Arc<Loaded>| loaded.mixes.windows(2).all(|pair| of(&pair[1]) > of(&pair[0]));
    let count = all.iter().filter(|loaded| rises(loaded)).count();
    let metric = format!("schemes whose {metric} rises with each mix");
    words(report, "all", &metric, (count as f64, "1"), paper, count == all.len());
}

/// What KVIMR-N and KVIMR-M gain at least over the faster of Seq and 3Phase in each mix, and in how many steps it grows.
fn more_effective(report: &mut Report, all: &[Arc<Loaded>], of: impl Fn(&Mixed) -> f64) {
    let rates = |scheme: Scheme| -> Vec<f64> {
        let loaded = all.iter().find(|loaded| loaded.setup.scheme == scheme);
        loaded.map(|loaded| loaded.mixes.iter().map(&of).collect()).unwrap_or_default()
    };
    let [seq, three_phase, naive, merged] =
        [Scheme::Seq, Scheme::ThreePhase, Scheme::KvimrN, Scheme::KvimrM].map(rates);
    let gains: Vec<f64> =
        (0..seq.len()).map(|mix| naive[mix].min(merged[mix]) / seq[mix].max(three_phase[mix])).collect();
    let steps = gains.windows(2).filter(|pair| pair[1] > pair[0]).count();
    let paper =
        "KVIMR-N and KVIMR-M are more effective in improving the throughput as the write intensity keeps increasing";
    let metric = format!("what they gain rises with each mix, of {}", gains.len().saturating_sub(1));
    words(report, "KVIMR-N, -M", &metric, (steps as f64, "1"), paper, steps + 1 == gains.len());
}

fn begin(run: &Run<'_>) -> Result<(Vec<Arc<Loaded>>, Report), LabError> {
    let work = Work::LoadAndMixes { reads_to_one: READS_TO_ONE };
    let setups = Scheme::PAPER.map(|scheme| Setup { work, ..Setup::new(scheme, run.scale, run.settings.seed) });
    let all = loads(run, &setups)?;
    let mut report = run.report();
    if let Some(last) = all.last() {
        last.setup.describe(&mut report);
        let counts = last.mixes.iter().map(|mixed| {
            let Mixed { reads, updates, passed, .. } = mixed;
            format!("{reads} reads, the time of {passed} of which passed while nothing else ran, and {updates} updates")
        });
        let name = last.setup.scheme.name();
        report.condition(&format!("mixes (under {name})"), counts.collect::<Vec<_>>().join("; then "));
        report.condition("mixes are", "zipfian (0.99, scattered) over the loaded keys; a write replaces a value");
    }
    Ok((all, report))
}

fn draw(report: &mut Report, all: &[Arc<Loaded>], metric: &str, unit: &str, of: impl Fn(&Mixed) -> f64) {
    let mut series = Vec::new();
    for loaded in all {
        let values: Vec<f64> = loaded.mixes.iter().map(&of).collect();
        for (mixed, &value) in loaded.mixes.iter().zip(&values) {
            let name = format!("{} % reads: {metric}", mixed.read_percent);
            drawn(report, &loaded.setup.scheme.name(), &name, unit, value);
        }
        series.push((loaded.setup.scheme.name(), values.into_iter().map(Some).collect()));
    }
    report.plots.push(Plot {
        name: metric.to_owned(),
        title: format!("7.5 million reads and updates after the load: {metric}"),
        medium: super::settings::PLOTTED_MEDIUM.to_owned(),
        y: Axis::linear(if unit == "1" { format!("{metric} (number)") } else { format!("{metric} ({unit})") }),
        figure: Figure::Bars(Bars {
            groups: MIXES.iter().map(|percent| format!("R{percent} % : W{} %", 100 - percent)).collect(),
            series,
        }),
    });
}
