//! `kvimr/scales`: whether the conclusions of the load hold from scale to scale.

use super::load::{Loaded, loads};
use super::mark::Span;
use super::overall::DEFAULT_SCALE;
use super::scheme::Scheme;
use super::settings::Setup;
use crate::experiment::{Experiment, Scale};
use crate::report::{Axis, Figure, Lines, Plot, Row};
use std::sync::Arc;

/// Scales that are compared, when they are not finer than the one asked for.
const DENOMINATORS: [u64; 6] = [512, 256, 64, 16, 4, 1];

/// A conclusion as a number: what it is of, its base, the paper's value where it is the paper's, how it is measured.
type Conclusion = (&'static str, Scheme, Scheme, Option<f64>, fn(&Span<'_>) -> f64);

const CONCLUSIONS: [Conclusion; 17] = [
    ("throughput", Scheme::ThreePhase, Scheme::Seq, Some(1.53), |span| span.throughput()),
    ("throughput", Scheme::ThreePhase, Scheme::Cmr, Some(0.6103), |span| span.throughput()),
    ("throughput", Scheme::KvimrN, Scheme::Seq, Some(2.21), |span| span.throughput()),
    ("throughput", Scheme::KvimrN, Scheme::ThreePhase, Some(1.44), |span| span.throughput()),
    ("throughput", Scheme::KvimrM, Scheme::KvimrN, Some(1.07), |span| span.throughput()),
    ("throughput", Scheme::KvimrM, Scheme::Cmr, Some(0.945), |span| span.throughput()),
    ("compaction time", Scheme::Seq, Scheme::Cmr, Some(2.59), |span| span.compaction_seconds()),
    ("rewrites", Scheme::KvimrN, Scheme::Seq, Some(0.0889), |span| span.rewrites()),
    ("rewrites", Scheme::KvimrN, Scheme::ThreePhase, Some(0.3186), |span| span.rewrites()),
    ("rewrites", Scheme::KvimrM, Scheme::KvimrN, Some(0.6247), |span| span.rewrites()),
    ("syncs", Scheme::KvimrN, Scheme::Seq, Some(0.0501), |span| span.syncs()),
    ("syncs", Scheme::KvimrN, Scheme::ThreePhase, Some(0.2268), |span| span.syncs()),
    ("syncs", Scheme::KvimrM, Scheme::KvimrN, Some(0.3545), |span| span.syncs()),
    ("throughput", Scheme::KvimrM, Scheme::CmrContiguous, None, |span| span.throughput()),
    ("throughput", Scheme::CostAware, Scheme::KvimrM, None, |span| span.throughput()),
    ("throughput", Scheme::CostAware, Scheme::CmrNextFit, None, |span| span.throughput()),
    ("throughput", Scheme::CostAware, Scheme::CmrContiguous, None, |span| span.throughput()),
];

pub(in crate::experiment) const SCALES: Experiment = Experiment {
    id: "kvimr/scales",
    title: "the conclusions of KVIMR's load at several scales",
    description: "The load of kvimr/fig5a at 1/512, 1/256, 1/64, 1/16 and so on, as far as the scale asked for: every ratio the paper \
                  gives and those of CostAware, at each scale, and how far the coarsest is from the finest. Unless told otherwise it ends at \
                  1/256; '--scale 1/64' takes some minutes more, '--scale 1/16' half an hour.",
    default_scale: DEFAULT_SCALE,
    run: |run| {
        let finest = run.scale.denominator();
        let mut denominators: Vec<u64> = DENOMINATORS.into_iter().filter(|&denominator| denominator > finest).collect();
        denominators.push(finest);
        let mut all: Vec<Vec<Arc<Loaded>>> = Vec::new();
        for &denominator in &denominators {
            let setup = |scheme| Setup::new(scheme, Scale::one_in(denominator), run.settings.seed);
            all.push(loads(run, &Scheme::FAIR.map(setup))?);
        }
        let mut report = run.report();
        if let Some(loaded) = all.last().and_then(|loads| loads.last()) {
            loaded.setup.describe(&mut report);
        }
        let of = |loads: &[Arc<Loaded>], scheme: Scheme, take: fn(&Span<'_>) -> f64| {
            loads.iter().find(|loaded| loaded.setup.scheme == scheme).map_or(f64::NAN, |loaded| take(&loaded.whole()))
        };
        let (mut series, mut paper_series) = (Vec::new(), Vec::new());
        for (metric, scheme, base, paper, take) in CONCLUSIONS {
            let values: Vec<f64> = all.iter().map(|loads| of(loads, scheme, take) / of(loads, base, take)).collect();
            let name = format!("{metric} / {}", base.name());
            for (&denominator, &value) in denominators.iter().zip(&values) {
                let scale = Scale::one_in(denominator);
                let row = Row::new(scheme.name(), format!("{name} at {scale}"), "1", value);
                report.rows.push(match paper {
                    Some(paper) => row.with_paper(paper),
                    None => row,
                });
            }
            if let (Some(&coarsest), Some(&last)) = (values.first(), values.last()) {
                let off = coarsest / last;
                report.rows.push(Row::new(scheme.name(), format!("{name}: coarsest / finest scale"), "1", off));
            }
            if metric == "throughput" {
                let points = denominators.iter().zip(&values).map(|(&of, &value)| (of as f64, value)).collect();
                let name = format!("{} / {}", scheme.name(), base.name());
                paper_series.extend(paper.map(|paper| {
                    let points: Vec<(f64, f64)> = denominators.iter().map(|&of| (of as f64, paper)).collect();
                    (format!("{name}, paper"), points)
                }));
                series.push((name, points));
            }
        }
        report.plots.push(Plot {
            name: "throughput".to_owned(),
            title: "ratios of throughput by scale".to_owned(),
            medium: super::settings::PLOTTED_MEDIUM.to_owned(),
            y: Axis::linear("throughput / throughput (ratio)"),
            figure: Figure::Lines(Lines { x: Axis::logarithmic("N of the scale 1/N"), series, paper: paper_series }),
        });
        Ok(report)
    },
};
