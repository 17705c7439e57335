//! `kvimr/usage`: overwriting a disk that is nearly full.

use super::foresight::rewrites_with_foresight;
use super::load::loads;
use super::overall::MANY_LOADS_SCALE;
use super::scheme::Scheme;
use super::settings::{Overwriting, Setup};
use crate::experiment::Experiment;
use crate::experiment::comparison::{goal, ours};
use crate::report::{Axis, Bars, Figure, Plot};

/// Shares of the tracks in use, in percent.
const PERCENTS: [u64; 3] = [80, 90, 95];

/// The conventional disk as the paper and as disks are allocated, the paper's best as it is and written as ours is, and ours.
const SCHEMES: [Scheme; 6] =
    [Scheme::Cmr, Scheme::CmrNextFit, Scheme::CmrContiguous, Scheme::KvimrM, Scheme::KvimrMForced, Scheme::CostAware];

/// Of what KVIMR-M needs beyond a conventional disk with contiguous tables, what CostAware may need at most.
const WANTED: f64 = 0.5;

pub(in crate::experiment) const USAGE: Experiment = Experiment {
    id: "kvimr/usage",
    title: "overwriting an interlaced disk that is 80, 90 and 95 % full",
    description: "Ours. Loads as many pairs as bring the tracks in use to 80, 90 and 95 % while they are overwritten, \
                  overwrites half of them in another order, a quarter more so that each goes once, and a quarter drawn anew each time. Measured are the \
                  two quarters: the time beyond what a conventional disk needs, and rewrites beside those of an allocation that knows the future. The tree has \
                  dynamic levels and a low limit of pending bytes, or what is overwritten would not fit.",
    default_scale: MANY_LOADS_SCALE,
    run: |run| {
        let setup = |scheme: Scheme, percent: u64| Setup::overwriting(scheme, run.scale, run.settings.seed, percent);
        let cells = || Overwriting::ALL.into_iter().flat_map(|order| PERCENTS.map(|percent| (percent, order)));
        let setups: Vec<Setup> =
            PERCENTS.into_iter().flat_map(|percent| SCHEMES.map(|scheme| setup(scheme, percent))).collect();
        let all = loads(run, &setups)?;
        let mut report = run.report();
        setup(Scheme::CostAware, PERCENTS[0]).describe(&mut report);
        let factor = run.scale.denominator() as f64;
        let found = |scheme: Scheme, (percent, order): (u64, Overwriting)| {
            let loaded = all.iter().find(|loaded| loaded.setup == setup(scheme, percent))?;
            Some((loaded, loaded.overwritten.iter().find(|quarter| quarter.order == order)?))
        };
        let time = |scheme: Scheme, cell: (u64, Overwriting)| {
            found(scheme, cell).map_or(f64::NAN, |(_, quarter)| quarter.span().seconds() * factor)
        };
        for cell in cells() {
            let (percent, order) = cell;
            let place = format!("{percent} %, {}", order.name());
            let conventional = time(Scheme::CmrContiguous, cell);
            for scheme in SCHEMES {
                let Some((loaded, quarter)) = found(scheme, cell) else { continue };
                let (name, span) = (scheme.name(), quarter.span());
                let mut add = |metric: &str, unit: &str, value: f64| {
                    ours(&mut report, &name, &format!("{place}: {metric}"), unit, value);
                };
                add("pairs of the full size", "million", loaded.setup.pairs as f64 / 1e6);
                add("tracks in use, mean", "1", quarter.used.iter().sum::<f64>() / quarter.used.len().max(1) as f64);
                add("tracks in use, most", "1", quarter.used.iter().copied().fold(0.0, f64::max));
                add("time of the quarter", "s", time(scheme, cell));
                add("time beyond CMR contiguous", "s", time(scheme, cell) - conventional);
                add("throughput", "op/s", span.throughput());
                add("compactions wrote", "GB", span.compaction_written_bytes() as f64 * factor / 1e9);
                add("syncs to a table", "1", span.syncs() / span.tables().max(1.0));
                add("top tracks rewritten", "1", span.rewrites());
                // The tables are nearly the same under every scheme, and knowing the future takes a while.
                if scheme == Scheme::CostAware {
                    let foresight = rewrites_with_foresight(&quarter.lives) as f64;
                    add("top tracks rewritten, with foresight", "1", foresight);
                    add("top tracks rewritten beyond that", "1", span.rewrites() - foresight);
                }
                add("tracks free when a table came, fewest", "1", quarter.lives.fewest_free() as f64);
                add("bottoms written, at least", "1", quarter.lives.bottom_writes_at_least() as f64);
                let born: usize = quarter.lives.born().map(|life| life.tracks).sum();
                add("tracks written", "1", born as f64);
            }
            for base in [Scheme::KvimrM, Scheme::KvimrMForced] {
                let share = (time(Scheme::CostAware, cell) - conventional) / (time(base, cell) - conventional);
                let metric = format!("{place}: time beyond CMR contiguous / that of {}", base.name());
                let name = Scheme::CostAware.name();
                match base {
                    Scheme::KvimrM => goal(&mut report, &name, &metric, share, "at most 0.5", share <= WANTED),
                    _ => ours(&mut report, &name, &metric, "1", share),
                }
            }
        }
        let series = SCHEMES
            .map(|scheme| (scheme.name(), cells().map(|cell| Some(time(scheme, cell))).collect::<Vec<Option<f64>>>()));
        report.plots.push(Plot {
            name: "time".to_owned(),
            title: "overwriting a quarter of a nearly full disk".to_owned(),
            medium: super::settings::PLOTTED_MEDIUM.to_owned(),
            y: Axis::linear("time (s)"),
            figure: Figure::Bars(Bars {
                groups: cells().map(|(percent, order)| format!("{percent} %, {}", order.name())).collect(),
                series: series.into(),
            }),
        });
        report.notes.push(
            "with foresight: what a greedy allocation rewrites on the same tables, from where they lay at the beginning of \
             the quarter, when it knows at which moment each goes. Counting tracks alone gives no lower bound above 0 \
             while two tables fit into the free tracks, so the least lies between 0 and that. Bottoms written, at least: what \
             does not fit into tops must lie in bottoms, those that stay longest first"
                .to_owned(),
        );
        Ok(report)
    },
};
