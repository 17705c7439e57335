//! `kvimr/ablation`: what each term of the policy `CostAware` is worth.

use super::load::loads;
use super::overall::MANY_LOADS_SCALE;
use super::scheme::Scheme;
use super::settings::{Overwriting, Setup};
use crate::experiment::Experiment;
use crate::experiment::comparison::ours;
use crate::report::{Axis, Bars, Figure, Plot};

/// How full the disk that is overwritten is, in percent, as in `kvimr/usage`.
const FULL_PERCENT: u64 = 95;

pub(in crate::experiment) const ABLATION: Experiment = Experiment {
    id: "kvimr/ablation",
    title: "the policy CostAware without each of its terms",
    description: "The load of kvimr/fig5a under CostAware, under it without one term at a time, and under KVIMR-M for \
                  comparison: throughput, rewrites, syncs. Then a disk that is 95 % full and overwritten as in kvimr/usage. The terms are explained in the documentation of the store.",
    default_scale: MANY_LOADS_SCALE,
    run: |run| {
        let schemes: Vec<Scheme> = [Scheme::KvimrM].into_iter().chain(Scheme::ABLATION).collect();
        let setups: Vec<Setup> =
            schemes.iter().map(|&scheme| Setup::new(scheme, run.scale, run.settings.seed)).collect();
        let all = loads(run, &setups)?;
        let mut report = run.report();
        if let Some(last) = setups.last() {
            last.describe(&mut report);
        }
        let factor = run.scale.denominator() as f64;
        for loaded in &all {
            let (name, span) = (loaded.setup.scheme.name(), loaded.whole());
            ours(&mut report, &name, "throughput", "op/s", span.throughput());
            ours(&mut report, &name, "compaction time", "s", span.compaction_seconds() * factor);
            ours(&mut report, &name, "persisting", "s", span.persist_seconds() * factor);
            ours(&mut report, &name, "rewriting tops", "s", span.rewrite_seconds() * factor);
            ours(&mut report, &name, "top tracks rewritten", "1", span.rewrites());
            ours(&mut report, &name, "syncs", "1", span.syncs());
            ours(&mut report, &name, "disk seeking and rotating", "s", {
                let nanos = span.disk(|disk| disk.time.seek_nanos + disk.time.rotation_nanos);
                nanos as f64 * factor / 1e9
            });
        }
        let full = |scheme: Scheme| Setup::overwriting(scheme, run.scale, run.settings.seed, FULL_PERCENT);
        let terms = Scheme::ABLATION.into_iter().filter(|scheme| *scheme != Scheme::CostAwareCached);
        for loaded in loads(run, &terms.map(full).collect::<Vec<Setup>>())? {
            let name = loaded.setup.scheme.name();
            for order in Overwriting::ALL {
                let Some(quarter) = loaded.overwritten.iter().find(|quarter| quarter.order == order) else { continue };
                let (place, span) = (format!("{FULL_PERCENT} % full, {}", order.name()), quarter.span());
                ours(&mut report, &name, &format!("{place}: time of the quarter"), "s", span.seconds() * factor);
                ours(&mut report, &name, &format!("{place}: top tracks rewritten"), "1", span.rewrites());
                let syncs = span.syncs() / span.tables().max(1.0);
                ours(&mut report, &name, &format!("{place}: syncs to a table"), "1", syncs);
            }
        }
        report.plots.push(Plot {
            name: "throughput".to_owned(),
            title: "loading 75 million pairs without one term at a time".to_owned(),
            medium: super::settings::PLOTTED_MEDIUM.to_owned(),
            y: Axis::linear("throughput (op/s)"),
            figure: Figure::Bars(Bars {
                groups: all.iter().map(|loaded| loaded.setup.scheme.name()).collect(),
                series: vec![(
                    "throughput".to_owned(),
                    all.iter().map(|loaded| Some(loaded.whole().throughput())).collect(),
                )],
            }),
        });
        Ok(report)
    },
};
