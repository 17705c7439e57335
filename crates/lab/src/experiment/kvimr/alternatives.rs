//! `kvimr/alternatives`: orders of tracks beside those of the figures, and disks whose bottoms are larger than their tops.

use super::load::{Loaded, loads};
use super::overall::MANY_LOADS_SCALE;
use super::scheme::Scheme;
use super::settings::{Setup, Variation};
use crate::experiment::Experiment;
use crate::experiment::comparison::{ours, words};
use crate::report::Report;

/// Bytes of a top in full and the size of a bottom to it. At the default scale a track of 2 MiB is one sector, which no ratio but a whole number divides.
const TRACKS: [(&str, u64, &str); 3] = [
    ("tracks of 2 MiB", 2 << 20, "1"),
    ("tracks of 8 MiB", 8 << 20, "1"),
    ("tops of 8 MiB, bottoms of 10", 8 << 20, "5/4"),
];

/// Of an alternative that section 3.3 does not follow.
const WASTE: &str = "it might inevitably waste the disk space";

pub(in crate::experiment) const ALTERNATIVES: Experiment = Experiment {
    id: "kvimr/alternatives",
    title: "KVIMR's load with a region for each table, with zigzag order, and on larger bottoms (not in the paper's figures)",
    description: "The load of kvimr/fig5a under a region of tracks for each table (what section 3.3 argues against, for what it wastes), and under \
                  three phases of which the second goes outwards again, each beside the schemes it is nearest to; on a disk whose tracks are alike \
                  and on one whose bottoms are a quarter larger than its tops.",
    default_scale: MANY_LOADS_SCALE,
    run: |run| {
        let setups = TRACKS.map(|(_, track_bytes, ratio)| {
            Scheme::ALTERNATIVES.map(|scheme| {
                let setup = Setup::new(scheme, run.scale, run.settings.seed);
                let variation = Variation { track_bytes, ratio, ..setup.variation };
                Setup { variation, ..setup }
            })
        });
        let all = loads(run, &setups.concat())?;
        let mut report = run.report();
        setups[0][0].describe(&mut report);
        for ((tracks, ..), loaded) in TRACKS.iter().zip(all.chunks(Scheme::ALTERNATIVES.len())) {
            loaded.iter().for_each(|loaded| told(&mut report, tracks, loaded));
        }
        Ok(report)
    },
};

fn told(report: &mut Report, tracks: &str, loaded: &Loaded) {
    let (setup, span, name) = (&loaded.setup, loaded.whole(), loaded.setup.scheme.name());
    let mut add = |metric: &str, unit: &str, value: f64| {
        ours(report, &name, &format!("{tracks}: {metric}"), unit, value);
    };
    add("throughput", "op/s", span.throughput());
    add("top tracks rewritten", "1", span.rewrites());
    add("syncs", "1", span.syncs());
    let tables = span.tables().max(1.0);
    let table_bytes = (span.flush_bytes() + span.compaction_written_bytes()) as f64 / tables;
    add("bytes of a table, mean (full size)", "B", table_bytes * setup.scale.denominator() as f64);
    if setup.scheme == Scheme::Region {
        let empty = 1.0 - table_bytes / setup.region_bytes() as f64;
        let metric = format!("{tracks}: share of a region that its table leaves empty");
        words(report, &name, &metric, (empty, "1"), WASTE, empty > 0.0);
    }
}
