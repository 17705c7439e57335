//! Figure 6: the load in pieces of a million pairs.

use super::load::{Loaded, loads};
use super::mark::{Mark, Span};
use super::overall::DEFAULT_SCALE;
use super::scheme::Scheme;
use super::settings::{INTERVAL_PAIRS, Setup};
use crate::error::LabError;
use crate::experiment::comparison::{MUCH, compare, drawn, goal, ours, words};
use crate::experiment::{Experiment, Run};
use crate::report::{Axis, Figure, Lines, Plot, Report};
use std::sync::Arc;

/// Intervals whose numbers are rows too; all are in the plot.
const ROWS_EVERY: usize = 5;

pub(in crate::experiment) const FIG_6A: Experiment = Experiment {
    id: "kvimr/fig6a",
    title: "KVIMR, figure 6a: throughput of each million pairs of the load",
    description: "The load of kvimr/fig5a in pieces of a million pairs of the full size: throughput over the pairs \
                  loaded, when bottoms and every other top were in use, and from where on KVIMR-M is the fastest on an \
                  interlaced disk.",
    default_scale: DEFAULT_SCALE,
    run: |run| {
        let (all, mut report) = begin(run)?;
        draw(&mut report, &all, "throughput", "op/s", |span| span.throughput());
        for (scheme, base, paper) in [
            (Scheme::KvimrM, Scheme::KvimrN, 1.2627),
            (Scheme::KvimrM, Scheme::Seq, 2.01),
            (Scheme::KvimrM, Scheme::ThreePhase, 2.17),
        ] {
            if let (Some(of), Some(by)) = (last_rate(&all, scheme), last_rate(&all, base)) {
                let metric = format!("throughput of the last million / {}", base.name());
                compare(&mut report, &scheme.name(), &metric, "1", paper, of / by);
            }
        }
        ends_as_seq(&mut report, &all);
        phases(&mut report, &all);
        order(&mut report, &all);
        lead(&mut report, &all);
        Ok(report)
    },
};

pub(in crate::experiment) const FIG_6B: Experiment = Experiment {
    id: "kvimr/fig6b",
    title: "KVIMR, figure 6b: top tracks rewritten in each million pairs of the load",
    description: "The load of kvimr/fig5a in pieces of a million pairs of the full size: top tracks restored.",
    default_scale: DEFAULT_SCALE,
    run: |run| {
        let (all, mut report) = begin(run)?;
        draw(&mut report, &all, "top tracks rewritten", "1", |span| span.rewrites());
        much_fewer(&mut report, &all, "top tracks rewritten", |span| span.rewrites());
        fewer(&mut report, &all, "rewrites", |span| span.rewrites(), |span| span.rewrites() > 0.0);
        Ok(report)
    },
};

pub(in crate::experiment) const FIG_6C: Experiment = Experiment {
    id: "kvimr/fig6c",
    title: "KVIMR, figure 6c: syncs of the disk in each million pairs of the load",
    description: "The load of kvimr/fig5a in pieces of a million pairs of the full size: syncs that persisting tables \
                  made.",
    default_scale: DEFAULT_SCALE,
    run: |run| {
        let (all, mut report) = begin(run)?;
        draw(&mut report, &all, "syncs", "1", |span| span.syncs());
        much_fewer(&mut report, &all, "syncs", |span| span.syncs());
        let several = |span: &Span<'_>| span.tables_of_many_syncs() > 0.0;
        fewer(&mut report, &all, "syncs", |span| span.syncs(), several);
        // A million pairs make more tables with one scheme than with the other when a compaction ends a
        // little earlier; what a table costs is free of that.
        fewer(&mut report, &all, "syncs to a table", |span| span.syncs() / span.tables().max(1.0), several);
        Ok(report)
    },
};

fn begin(run: &Run<'_>) -> Result<(Vec<Arc<Loaded>>, Report), LabError> {
    let setups = Scheme::ALL.map(|scheme| Setup::new(scheme, run.scale, run.settings.seed));
    let all = loads(run, &setups)?;
    let mut report = run.report();
    if let Some(last) = all.last() {
        last.setup.describe(&mut report);
    }
    Ok((all, report))
}

/// Pairs of the full size, in millions.
fn millions(loaded: &Loaded, operations: u64) -> f64 {
    operations as f64 * loaded.setup.scale.denominator() as f64 / 1e6
}

fn draw(report: &mut Report, all: &[Arc<Loaded>], metric: &str, unit: &str, of: impl Fn(&Span<'_>) -> f64) {
    let mut series = Vec::new();
    for loaded in all {
        let name = loaded.setup.scheme.name();
        let points: Vec<(f64, f64)> =
            loaded.intervals().map(|span| (millions(loaded, span.to.operations), of(&span))).collect();
        let last = points.len().saturating_sub(1);
        for (index, &(at, value)) in points.iter().enumerate() {
            if index % ROWS_EVERY == ROWS_EVERY - 1 || index == last {
                drawn(report, &name, &format!("{metric} of the million up to {at:.0}"), unit, value);
            }
        }
        series.push((name, points));
    }
    let each = INTERVAL_PAIRS / 1_000_000;
    report.plots.push(Plot {
        name: "intervals".to_owned(),
        title: format!("loading 75 million pairs: {metric} of every {each} million"),
        medium: super::settings::PLOTTED_MEDIUM.to_owned(),
        y: Axis::linear(if unit == "1" { format!("{metric} (number)") } else { format!("{metric} ({unit})") }),
        figure: Figure::Lines(Lines { x: Axis::linear("pairs loaded (million)"), series, paper: Vec::new() }),
    });
}

/// When 3Phase came to every other top, and to the rest: "50 million" in the paper's text for the first.
fn phases(report: &mut Report, all: &[Arc<Loaded>]) {
    let Some(loaded) = all.iter().find(|loaded| loaded.setup.scheme == Scheme::ThreePhase) else { return };
    let first = |reached: &dyn Fn(&Mark) -> bool| {
        loaded.marks.iter().find(|mark| reached(mark)).map_or(f64::NAN, |mark| millions(loaded, mark.operations))
    };
    let name = Scheme::ThreePhase.name();
    let tops_begun = first(&|mark| mark.tiers.top_used > 0);
    compare(report, &name, "pairs when the bottoms were full", "million", 50.0, tops_begun);
    let half = first(&|mark| mark.tiers.top_used > 0 && mark.tiers.top_used * 2 >= mark.tiers.top_tracks);
    drawn(report, &name, "pairs when every other top was full", "million", half);
    let peak = loaded.marks.iter().map(|mark| mark.tiers.used_share()).fold(0.0, f64::max);
    ours(report, &name, "largest share of tracks in use at the end of a million", "1", peak);
}

/// A number of every million pairs under a scheme; nothing when it was not loaded.
fn series(all: &[Arc<Loaded>], scheme: Scheme, of: impl Fn(&Span<'_>) -> f64) -> Vec<f64> {
    let loaded = all.iter().find(|loaded| loaded.setup.scheme == scheme);
    loaded.map(|loaded| loaded.intervals().map(|span| of(&span)).collect()).unwrap_or_default()
}

/// Throughput of the last million.
fn last_rate(all: &[Arc<Loaded>], scheme: Scheme) -> Option<f64> {
    series(all, scheme, |span| span.throughput()).last().copied()
}

/// How often the schemes stand as the paper says they do.
fn order(report: &mut Report, all: &[Arc<Loaded>]) {
    let series = |scheme: Scheme| series(all, scheme, |span| span.throughput());
    let [seq, three_phase, naive, merged] =
        [Scheme::Seq, Scheme::ThreePhase, Scheme::KvimrN, Scheme::KvimrM].map(series);
    let share = |holds: &dyn Fn(usize) -> bool| {
        (0..seq.len()).filter(|&index| holds(index)).count() as f64 / seq.len().max(1) as f64
    };
    let lowest = share(&|index| [&three_phase, &naive, &merged].iter().all(|other| seq[index] <= other[index]));
    let paper = "Seq achieves the lowest throughput almost during the whole loading process";
    let metric = "share of the millions in which it is the slowest";
    words(report, &Scheme::Seq.name(), metric, (lowest, "1"), paper, lowest >= 0.8);
    let ahead = share(&|index| naive[index].min(merged[index]) > seq[index].max(three_phase[index]));
    let paper = "KVIMR-N and KVIMR-M lead to the much higher throughputs, almost for every 1 million";
    let metric = "share of the millions in which both are ahead of Seq and 3Phase";
    words(report, "KVIMR-N, -M", metric, (ahead, "1"), paper, ahead >= 0.8);
}

/// What the paper says of the end of the load under 3Phase.
fn ends_as_seq(report: &mut Report, all: &[Arc<Loaded>]) {
    if let (Some(three_phase), Some(seq)) = (last_rate(all, Scheme::ThreePhase), last_rate(all, Scheme::Seq)) {
        let (metric, ratio) = (format!("throughput of the last million / {}", Scheme::Seq.name()), three_phase / seq);
        let paper = "suffers very low throughput as Seq at the very end of the loading process";
        words(report, &Scheme::ThreePhase.name(), &metric, (ratio, "1"), paper, ratio <= 1.1);
    }
}

/// In how many of the millions both KVIMR-N and KVIMR-M do much less of it than Seq, and than 3Phase.
fn much_fewer(report: &mut Report, all: &[Arc<Loaded>], metric: &str, of: impl Fn(&Span<'_>) -> f64) {
    let series = |scheme: Scheme| series(all, scheme, &of);
    let [seq, three_phase, naive, merged] =
        [Scheme::Seq, Scheme::ThreePhase, Scheme::KvimrN, Scheme::KvimrM].map(series);
    let paper = "KVIMR-N and KVIMR-M incur much less number of top track rewrites and sync calls during the whole loading process";
    for (base, theirs) in [(Scheme::Seq, seq), (Scheme::ThreePhase, three_phase)] {
        let is_much = |&index: &usize| naive[index].max(merged[index]) * MUCH <= theirs[index] && theirs[index] > 0.0;
        let share = (0..theirs.len()).filter(is_much).count() as f64 / theirs.len().max(1) as f64;
        let metric = format!("share of the millions with {MUCH} times fewer {metric} than {}", base.name());
        words(report, "KVIMR-N, -M", &metric, (share, "1"), paper, share >= 0.9);
    }
}

/// From where on KVIMR-M stays the fastest of the interlaced schemes of the paper: "about 60 million".
fn lead(report: &mut Report, all: &[Arc<Loaded>]) {
    let series = |scheme: Scheme| series(all, scheme, |span| span.throughput());
    let merged = series(Scheme::KvimrM);
    let others = [Scheme::Seq, Scheme::ThreePhase, Scheme::KvimrN].map(series);
    let leads = |index: usize| others.iter().all(|other| other.get(index).is_none_or(|&rate| rate < merged[index]));
    let from = (0..merged.len()).rev().take_while(|&index| leads(index)).last();
    let (name, metric) = (Scheme::KvimrM.name(), "million pairs from where it stays the fastest");
    match from {
        Some(from) => compare(report, &name, metric, "million", 60.0, from as f64),
        None => {
            let paper =
                "after inserting about 60 millions of KV pairs, KVIMR-M starts to achieve the highest throughput";
            words(
                report,
                &name,
                &format!("{metric}: never, of so many"),
                (merged.len() as f64, "million"),
                paper,
                false,
            );
        }
    }
}

/// Intervals in which CostAware did more than KVIMR-M, and those in which it should have done fewer and did not.
fn fewer(
    report: &mut Report,
    all: &[Arc<Loaded>],
    metric: &str,
    of: impl Fn(&Span<'_>) -> f64,
    should: impl Fn(&Span<'_>) -> bool,
) {
    let find = |scheme: Scheme| all.iter().find(|loaded| loaded.setup.scheme == scheme);
    let (Some(merged), Some(own)) = (find(Scheme::KvimrM), find(Scheme::CostAware)) else { return };
    let pairs: Vec<(Span<'_>, Span<'_>)> = merged.intervals().zip(own.intervals()).collect();
    let more = pairs.iter().filter(|(merged, own)| of(own) > of(merged)).count();
    let not_fewer = pairs.iter().filter(|(merged, own)| should(merged) && of(own) >= of(merged)).count();
    let name = Scheme::CostAware.name();
    goal(report, &name, &format!("intervals with more {metric} than KVIMR-M"), more as f64, "0", more == 0);
    let metric = format!("intervals with not fewer {metric} than KVIMR-M where it has any to save");
    goal(report, &name, &metric, not_fewer as f64, "0", not_fewer == 0);
}
