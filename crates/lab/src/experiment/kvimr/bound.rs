//! `kvimr/bound`: how near the load comes to what an interlaced disk allows.

use super::floor;
use super::load::{Loaded, loads};
use super::mark::Span;
use super::overall::DEFAULT_SCALE;
use super::scheme::Scheme;
use super::settings::{Setup, Variation};
use crate::error::LabError;
use crate::experiment::comparison::{goal, ours};
use crate::experiment::{Experiment, Run, Scale};
use crate::report::Report;

/// What the distance from the conventional disk is told of.
const SCHEMES: [Scheme; 6] = [
    Scheme::CmrNextFit,
    Scheme::CmrContiguous,
    Scheme::KvimrM,
    Scheme::KvimrMForced,
    Scheme::CostAwareCached,
    Scheme::CostAware,
];

pub(in crate::experiment) const BOUND: Experiment = Experiment {
    id: "kvimr/bound",
    title: "how near the load comes to what an interlaced disk allows",
    description: "Ours. A table on an interlaced disk is written in two steps, bottoms and then tops, with a gap between any two \
                  tracks of a step. What that costs is measured on the disk alone, and the estimate is a \
                  conventional disk with contiguous tables that pays the least of it, wherever that is, for each table and nothing else. Beside it the load of \
                  kvimr/fig5a under several schemes, and what of its time is beyond that of the conventional disk; and CostAware and the conventional disk \
                  with twice the size, where free tracks follow each other for every table, which is all that an allocation that knows the future could see to.",
    default_scale: DEFAULT_SCALE,
    run: |run| distances(run, &SCHEMES, true),
};

/// Of [`BOUND`] what two goals are about, as few loads as that takes: in full each is half an hour of one processor.
pub(in crate::experiment) const FULL: Experiment = Experiment {
    id: "kvimr/full",
    title: "ours, KVIMR-M and a conventional disk with contiguous tables, for the full size",
    description: "The rows of kvimr/bound about these three. Made for `--scale 1`, where each load is half an hour of one processor and 5 GB.",
    default_scale: DEFAULT_SCALE,
    run: |run| distances(run, &[Scheme::CmrContiguous, Scheme::KvimrM, Scheme::CostAware], false),
};

/// How far the loads of these schemes are from the conventional disk, and, if `again`, that one with another seed from itself.
fn distances(run: &Run<'_>, schemes: &[Scheme], again: bool) -> Result<Report, LabError> {
    let seed = run.settings.seed;
    let mut setups: Vec<Setup> = schemes.iter().map(|scheme| Setup::new(*scheme, run.scale, seed)).collect();
    let last = setups.last().cloned();
    if again {
        setups.extend([Scheme::CostAware, Scheme::CmrContiguous].map(|scheme| twice_the_disk(run, scheme)));
        setups.push(Setup::new(Scheme::CmrContiguous, run.scale, seed + 1));
    }
    let mut all = loads(run, &setups)?;
    let roomy = if again { all.split_off(schemes.len()) } else { Vec::new() };
    let (roomy, again) = match &roomy[..] {
        [own, base, again] => (Some((own, base)), Some(again)),
        _ => (None, None),
    };
    let mut report = run.report();
    if let Some(last) = last {
        last.describe(&mut report);
    }
    let factor = run.scale.denominator() as f64;
    // Sectors do not shrink with the scale, so the coarsest disks turn further than the full one for a gap.
    let floors = floor::measure(run.scale)?;
    for (of, floors, factor) in [("this scale", floors, factor), ("full size", floor::measure(Scale::FULL)?, 1.0)] {
        for (metric, millis) in [
            ("a table of tracks behind each other", floors.contiguous),
            ("a table of two tiers, through the cache", floors.cached),
            ("a table of two tiers, by forced unit access", floors.forced),
            ("the last beyond the first, where that is least", floors.least_gaps),
        ] {
            ours(&mut report, "disk", &format!("{of}: {metric}"), "ms", millis * factor);
        }
    }
    let find = |scheme: Scheme| all.iter().find(|loaded| loaded.setup.scheme == scheme);
    let Some(conventional) = find(Scheme::CmrContiguous) else { return Ok(report) };
    let seconds = |loaded: &Loaded| loaded.whole().seconds() * factor;
    let gap_seconds = |loaded: &Loaded| floors.least_gaps * factor / 1e3 * loaded.whole().tables();
    let estimate = seconds(conventional) / (seconds(conventional) + gap_seconds(conventional));
    ours(&mut report, "estimate", "throughput / CMR contiguous", "1", estimate);
    let without_holes = roomy.map(|(own, base)| seconds(base) / seconds(own));
    if let (Some((own, base)), Some(share)) = (roomy, without_holes) {
        ours(&mut report, "CMR contiguous, twice the disk", "throughput", "op/s", base.whole().throughput());
        let name = "CostAware, twice the disk";
        ours(&mut report, name, "throughput", "op/s", own.whole().throughput());
        ours(&mut report, name, "throughput / CMR contiguous, twice the disk", "1", share);
    }
    for loaded in &all {
        let (name, span) = (loaded.setup.scheme.name(), loaded.whole());
        let interlaced = loaded.setup.scheme.is_interlaced();
        let share = seconds(conventional) / seconds(loaded);
        ours(&mut report, &name, "throughput", "op/s", span.throughput());
        match loaded.setup.scheme {
            Scheme::CostAware => {
                let metric = "throughput / CMR contiguous";
                goal(&mut report, &name, metric, share, "at least 0.95", share >= 0.95);
                ours(&mut report, &name, "the same / estimate", "1", share / estimate);
                if let Some(without_holes) = without_holes {
                    let (metric, share) = ("the same / that on twice the disk", share / without_holes);
                    goal(&mut report, &name, metric, share, "at least 0.95", share >= 0.95);
                }
            }
            _ => ours(&mut report, &name, "throughput / CMR contiguous", "1", share),
        }
        if loaded.setup.scheme == Scheme::CmrContiguous {
            continue;
        }
        let base = conventional.whole();
        let others = |span: &Span<'_>| (span.compaction_seconds() - span.persist_seconds()) * factor;
        for (what, seconds) in [
            ("time", seconds(loaded) - seconds(conventional)),
            ("persisting", (span.persist_seconds() - base.persist_seconds()) * factor),
            ("rewriting tops", span.rewrite_seconds() * factor),
            ("gaps of two tiers, where they cost least,", if interlaced { gap_seconds(loaded) } else { 0.0 }),
            ("compactions but for persisting", others(&span) - others(&base)),
        ] {
            ours(&mut report, &name, &format!("{what} beyond CMR contiguous"), "s", seconds);
        }
        ours(&mut report, &name, "syncs to a table", "1", span.syncs() / span.tables().max(1.0));
        ours(&mut report, &name, "top tracks rewritten", "1", span.rewrites());
    }
    if let (Some(own), Some(base)) = (find(Scheme::CostAware), find(Scheme::KvimrM)) {
        let name = own.setup.scheme.name();
        let ratio = base.whole().seconds() / own.whole().seconds();
        goal(&mut report, &name, "throughput / KVIMR-M", ratio, "at least 1", ratio >= 1.0);
        let slowest = slowest_interval(own, base);
        ours(&mut report, &name, "slowest interval of a million pairs / KVIMR-M", "1", slowest);
        let metric = "time to any number of million pairs, at worst: throughput / KVIMR-M";
        ours(&mut report, &name, metric, "1", latest(own, base));
    }
    for loaded in all.iter().filter(|loaded| loaded.setup.scheme != Scheme::CmrContiguous) {
        intervals(&mut report, &loaded.setup.scheme.name(), loaded, conventional);
    }
    if let Some(again) = again {
        intervals(&mut report, "CMR contiguous, another seed", again, conventional);
    }
    report.notes.push(
        "the estimate knows nothing of holes: it gives every table tracks that follow each other, of both tiers, and reads as fast \
         as on the conventional disk. What that one lost at holes of its own stands in its time already, so a scheme \
         with as few holes can pass the estimate by as much. On twice the disk both have no holes, and lie further out, where a disk \
         transfers faster, so that only what they are to each other is told of it. An interlaced disk could only do better where a step is of more than one table, which takes \
         those tables' memory, or where its firmware kept the order of writes"
            .to_owned(),
    );
    Ok(report)
}

/// A scheme where there is always a hole for a table: as many tracks free as in use at the end.
fn twice_the_disk(run: &Run<'_>, scheme: Scheme) -> Setup {
    let setup = Setup::new(scheme, run.scale, run.settings.seed);
    let variation = Variation { disk_bytes: 2 * setup.variation.disk_bytes, ..setup.variation };
    Setup { variation, ..setup }
}

/// The interval of a million pairs in which a load is furthest behind another one.
fn slowest_interval(loaded: &Loaded, other: &Loaded) -> f64 {
    let pairs = loaded.intervals().zip(other.intervals());
    pairs.map(|(own, base)| own.throughput() / base.throughput()).fold(f64::INFINITY, f64::min)
}

/// The moment at which a load is furthest behind another one, from its beginning on.
fn latest(loaded: &Loaded, other: &Loaded) -> f64 {
    let (mut own_seconds, mut base_seconds, mut least) = (0.0, 0.0, f64::INFINITY);
    for (own, base) in loaded.intervals().zip(other.intervals()) {
        (own_seconds, base_seconds) = (own_seconds + own.seconds(), base_seconds + base.seconds());
        least = least.min(base_seconds / own_seconds);
    }
    least
}

/// How far a load is behind the conventional disk in single millions of pairs, and in all up to one.
fn intervals(report: &mut Report, name: &str, loaded: &Loaded, conventional: &Loaded) {
    let least = slowest_interval(loaded, conventional);
    let metric = "slowest interval of a million pairs / CMR contiguous";
    match loaded.setup.scheme {
        Scheme::CostAware => goal(report, name, metric, least, "at least 0.90", least >= 0.90),
        _ => ours(report, name, metric, "1", least),
    }
    let metric = "time to any number of million pairs, at worst: throughput / CMR contiguous";
    ours(report, name, metric, "1", latest(loaded, conventional));
}
