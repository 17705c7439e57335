//! `kvimr/robust`: which conclusions of the load survive when disk and workload are otherwise.

use super::load::{Loaded, loads};
use super::mark::Span;
use super::overall::MANY_LOADS_SCALE;
use super::scheme::Scheme;
use super::settings::{Keys, Setup};
use crate::experiment::Experiment;
use crate::experiment::comparison::{goal, ours};
use crate::report::Report;
use std::sync::Arc;

/// The conventional disk as the paper and as disks are allocated; then slowest first, as the paper has them, and ours; the paper's best also written
/// as ours is.
const SCHEMES: [Scheme; 9] = [
    Scheme::Cmr,
    Scheme::CmrNextFit,
    Scheme::CmrContiguous,
    Scheme::Seq,
    Scheme::ThreePhase,
    Scheme::KvimrN,
    Scheme::KvimrM,
    Scheme::KvimrMForced,
    Scheme::CostAware,
];

type Change = (&'static str, fn(&mut Setup));

const CHANGES: [Change; 9] = [
    ("as elsewhere", |_| {}),
    ("another seed", |setup| setup.seed += 1),
    ("tracks of 4 MiB", |setup| setup.variation.track_bytes *= 2),
    ("tracks of 8 MiB", |setup| setup.variation.track_bytes *= 4),
    ("values of 4,000 B", |setup| {
        setup.variation.value_bytes *= 4;
        setup.pairs = setup.pairs * 1023 / 4023;
    }),
    ("another disk", |setup| setup.variation.model = "barracuda-3tb"),
    ("zipfian keys", |setup| setup.variation.keys = Keys::Zipfian),
    ("half full", |setup| setup.pairs = setup.pairs * 2 / 3),
    ("one delete to four pairs", |setup| setup.variation.pairs_to_a_delete = Some(4)),
];

pub(in crate::experiment) const ROBUST: Experiment = Experiment {
    id: "kvimr/robust",
    title: "which conclusions of KVIMR's load survive on other disks and under other loads (not in the paper)",
    description: "The load of kvimr/fig5a with one thing otherwise at a time: the seed, the size of tracks, \
                  the size of values, the disk, skewed keys, how full the disk gets, deletes. Whether Seq, 3Phase, KVIMR-N, KVIMR-M and \
                  CostAware stand in that order, and what they are to each other.",
    default_scale: MANY_LOADS_SCALE,
    run: |run| {
        let setups = CHANGES.map(|(_, change)| {
            SCHEMES.map(|scheme| {
                let mut setup = Setup::new(scheme, run.scale, run.settings.seed);
                change(&mut setup);
                setup
            })
        });
        let all = loads(run, &setups.concat())?;
        let mut report = run.report();
        setups[0][0].describe(&mut report);
        for ((change, _), loaded) in CHANGES.iter().zip(all.chunks(SCHEMES.len())) {
            told(&mut report, change, loaded);
        }
        Ok(report)
    },
};

/// The schemes of one variation beside each other.
fn told(report: &mut Report, change: &str, loaded: &[Arc<Loaded>]) {
    for one in loaded {
        let name = one.setup.scheme.name();
        let mut add =
            |metric: &str, unit: &str, value: f64| ours(report, &name, &format!("{change}: {metric}"), unit, value);
        add("throughput", "op/s", one.whole().throughput());
        add("top tracks rewritten", "1", one.whole().rewrites());
        add("syncs", "1", one.whole().syncs());
    }
    let value = |scheme: Scheme, of: fn(&Span<'_>) -> f64| {
        let found = loaded.iter().find(|loaded| loaded.setup.scheme == scheme);
        found.map_or(f64::NAN, |loaded| of(&loaded.whole()))
    };
    let rate = |scheme: Scheme| value(scheme, |span| span.throughput());
    for (scheme, base) in [
        (Scheme::ThreePhase, Scheme::Seq),
        (Scheme::KvimrN, Scheme::ThreePhase),
        (Scheme::KvimrM, Scheme::KvimrN),
        (Scheme::CostAware, Scheme::KvimrM),
        (Scheme::CostAware, Scheme::KvimrMForced),
    ] {
        let ratio = rate(scheme) / rate(base);
        let metric = format!("{change}: throughput / {}", base.name());
        goal(report, &scheme.name(), &metric, ratio, "above 1", ratio > 1.0);
    }
    for base in [Scheme::Cmr, Scheme::CmrNextFit, Scheme::CmrContiguous] {
        for scheme in [Scheme::KvimrM, Scheme::CostAware] {
            let ratio = rate(scheme) / rate(base);
            ours(report, &scheme.name(), &format!("{change}: throughput / {}", base.name()), "1", ratio);
        }
    }
    for (metric, of) in
        [("top tracks rewritten", (|span| span.rewrites()) as fn(&Span<'_>) -> f64), ("syncs", |span| span.syncs())]
    {
        for (scheme, base) in [(Scheme::KvimrN, Scheme::ThreePhase), (Scheme::KvimrM, Scheme::KvimrN)] {
            // Who has none cannot have fewer.
            if value(base, of) == 0.0 {
                continue;
            }
            let ratio = value(scheme, of) / value(base, of);
            let metric = format!("{change}: {metric} / {}", base.name());
            goal(report, &scheme.name(), &metric, ratio, "below 1", ratio < 1.0);
        }
    }
}
