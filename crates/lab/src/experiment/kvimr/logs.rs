//! `kvimr/logs`: logs and metadata on the disk itself, or on a drive beside it.

use super::load::loads;
use super::overall::MANY_LOADS_SCALE;
use super::scheme::Scheme;
use super::settings::{Logs, Setup};
use crate::experiment::Experiment;
use crate::experiment::comparison::{ours, words};
use crate::report::{Axis, Bars, Figure, Plot};

/// Those compared: the disk that knows no rewrites, as the paper and as disks are allocated, the paper's best, and ours.
const SCHEMES: [Scheme; 4] = [Scheme::Cmr, Scheme::CmrContiguous, Scheme::KvimrM, Scheme::CostAware];

pub(in crate::experiment) const LOGS: Experiment = Experiment {
    id: "kvimr/logs",
    title: "KVIMR's load with logs and metadata on the disk itself",
    description: "The load of kvimr/fig5a with write-ahead logs, manifest and the store's map on reserved top tracks of the \
                  disk, beside the same on a solid-state drive, as the paper has it. The paper expects little impact; \
                  without a drive every flush of a log moves the arm.",
    default_scale: MANY_LOADS_SCALE,
    run: |run| {
        let setup = |scheme: Scheme, logs: Logs| Setup { logs, ..Setup::new(scheme, run.scale, run.settings.seed) };
        let places = [("apart", Logs::Apart), ("inside", Logs::Inside)];
        let setups: Vec<Setup> =
            SCHEMES.into_iter().flat_map(|scheme| places.map(|(_, logs)| setup(scheme, logs))).collect();
        let all = loads(run, &setups)?;
        let mut report = run.report();
        setup(Scheme::CostAware, Logs::Inside).describe(&mut report);
        for loaded in &all {
            let place = if loaded.setup.logs == Logs::Apart { "apart" } else { "inside" };
            let (name, span) = (loaded.setup.scheme.name(), loaded.whole());
            let mut add = |metric: &str, unit: &str, value: f64| {
                ours(&mut report, &name, &format!("logs {place}: {metric}"), unit, value);
            };
            add("throughput", "op/s", span.throughput());
            add("syncs of the disk", "1", span.disk(|disk| disk.syncs) as f64);
            add("seeks of the disk", "1", span.disk(|disk| disk.seeks) as f64);
            add("top tracks rewritten", "1", span.rewrites());
        }
        let throughput = |scheme: Scheme, logs: Logs| {
            let wanted = setup(scheme, logs);
            all.iter().find(|loaded| loaded.answers(&wanted)).map(|loaded| loaded.whole().throughput())
        };
        for scheme in SCHEMES {
            if let (Some(inside), Some(apart)) = (throughput(scheme, Logs::Inside), throughput(scheme, Logs::Apart)) {
                let (name, metric, ratio) = (scheme.name(), "throughput inside / apart", inside / apart);
                match scheme {
                    Scheme::KvimrM => {
                        let paper =
                            "these metadata can also be managed in a few IMR tracks with little performance impact";
                        words(&mut report, &name, metric, (ratio, "1"), paper, ratio >= 0.95);
                    }
                    _ => ours(&mut report, &name, metric, "1", ratio),
                }
            }
        }
        let series = places
            .map(|(name, logs)| (format!("logs {name}"), SCHEMES.map(|scheme| throughput(scheme, logs)).to_vec()));
        report.plots.push(Plot {
            name: "throughput".to_owned(),
            title: "loading 75 million pairs by the place of logs".to_owned(),
            medium: super::settings::PLOTTED_MEDIUM.to_owned(),
            y: Axis::linear("throughput (op/s)"),
            figure: Figure::Bars(Bars {
                groups: SCHEMES.iter().map(|scheme| scheme.name()).collect(),
                series: series.into(),
            }),
        });
        Ok(report)
    },
};
