//! `kvimr/usage`: overwriting a disk that is nearly full.

use super::foresight::rewrites_with_foresight;
use super::load::{Loaded, Overwritten, loads};
use super::overall::MANY_LOADS_SCALE;
use super::scheme::Scheme;
use super::settings::Setup;
use crate::experiment::Experiment;
use crate::experiment::comparison::{goal, ours};
use crate::report::{Axis, Bars, Figure, Plot};

/// Shares of the tracks in use, in percent.
const PERCENTS: [u64; 3] = [80, 90, 95];

const SCHEMES: [Scheme; 3] = [Scheme::Cmr, Scheme::KvimrM, Scheme::CostAware];

/// Of what KVIMR-M needs beyond CMR, what CostAware may need at most.
const WANTED: f64 = 2.0 / 3.0;

pub(in crate::experiment) const USAGE: Experiment = Experiment {
    id: "kvimr/usage",
    title: "overwriting an interlaced disk that is 80, 90 and 95 % full",
    description: "Ours. Loads as many pairs as bring the tracks in use to 80, 90 and 95 % while they are overwritten, \
                  overwrites each pair once in another order, and measures the second half of that: the time beyond \
                  what a conventional disk needs, and rewrites beside those of an allocation that knows the future. The tree has \
                  dynamic levels and a low limit of pending bytes, or what is overwritten would not fit.",
    default_scale: MANY_LOADS_SCALE,
    run: |run| {
        let setup = |scheme: Scheme, percent: u64| Setup::overwriting(scheme, run.scale, run.settings.seed, percent);
        let setups: Vec<Setup> =
            PERCENTS.into_iter().flat_map(|percent| SCHEMES.map(|scheme| setup(scheme, percent))).collect();
        let all = loads(run, &setups)?;
        let mut report = run.report();
        setup(Scheme::CostAware, PERCENTS[0]).describe(&mut report);
        let factor = run.scale.denominator() as f64;
        let mut series: Vec<(String, Vec<Option<f64>>)> = Vec::new();
        let half =
            |loaded: &Loaded| loaded.overwritten.as_ref().map(|half: &Overwritten| half.span().seconds() * factor);
        for percent in PERCENTS {
            let found = |scheme: Scheme| all.iter().find(|loaded| loaded.setup == setup(scheme, percent));
            let time = |scheme: Scheme| found(scheme).and_then(|loaded| half(loaded)).unwrap_or(f64::NAN);
            let conventional = time(Scheme::Cmr);
            for scheme in SCHEMES {
                let Some((loaded, half)) =
                    found(scheme).and_then(|loaded| Some((loaded, loaded.overwritten.as_ref()?)))
                else {
                    continue;
                };
                let (name, span) = (scheme.name(), half.span());
                let mut add = |metric: &str, unit: &str, value: f64| {
                    ours(&mut report, &name, &format!("{percent} %: {metric}"), unit, value);
                };
                add("pairs of the full size", "million", loaded.setup.pairs as f64 / 1e6);
                add("tracks in use, mean", "1", half.used.iter().sum::<f64>() / half.used.len().max(1) as f64);
                add("tracks in use, most", "1", half.used.iter().copied().fold(0.0, f64::max));
                add("time of the second half", "s", time(scheme));
                add("time beyond CMR", "s", time(scheme) - conventional);
                add("throughput", "op/s", span.throughput());
                add("compactions wrote", "GB", span.compaction_written_bytes() as f64 * factor / 1e9);
                add("syncs to a table", "1", span.syncs() / span.tables().max(1.0));
                add("top tracks rewritten", "1", span.rewrites());
                // The tables are nearly the same under every scheme, and knowing the future takes a while.
                if scheme == Scheme::CostAware {
                    let foresight = rewrites_with_foresight(&half.lives) as f64;
                    add("top tracks rewritten, with foresight", "1", foresight);
                    add("top tracks rewritten beyond that", "1", span.rewrites() - foresight);
                }
                add("tracks free when a table came, fewest", "1", half.lives.fewest_free() as f64);
                add("bottoms written, at least", "1", half.lives.bottom_writes_at_least() as f64);
                let born: usize = half.lives.born().map(|life| life.tracks).sum();
                add("tracks written", "1", born as f64);
            }
            let share = (time(Scheme::CostAware) - conventional) / (time(Scheme::KvimrM) - conventional);
            let metric = format!("{percent} %: time beyond CMR / that of KVIMR-M");
            let wanted = "at most 2/3";
            goal(&mut report, &Scheme::CostAware.name(), &metric, share, wanted, share <= WANTED);
        }
        for scheme in SCHEMES {
            let of = |percent: u64| all.iter().find(|loaded| loaded.setup == setup(scheme, percent));
            let values = PERCENTS.map(|percent| of(percent).and_then(|loaded| half(loaded)));
            series.push((scheme.name(), values.to_vec()));
        }
        report.plots.push(Plot {
            name: "time".to_owned(),
            title: "overwriting the second half of a nearly full disk".to_owned(),
            medium: super::settings::PLOTTED_MEDIUM.to_owned(),
            y: Axis::linear("time (s)"),
            figure: Figure::Bars(Bars { groups: PERCENTS.map(|percent| format!("{percent} %")).to_vec(), series }),
        });
        report.notes.push(
            "with foresight: what a greedy allocation rewrites on the same tables, from where they lay at the beginning of \
             the second half, when it knows at which moment each goes. Counting tracks alone gives no lower bound above 0 \
             while two tables fit into the free tracks, so the least lies between 0 and that. Bottoms written, at least: what \
             does not fit into tops must lie in bottoms, those that stay longest first"
                .to_owned(),
        );
        Ok(report)
    },
};
