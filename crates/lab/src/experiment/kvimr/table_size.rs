//! Figure 8: the load with larger tables.

use super::load::loads;
use super::overall::MANY_LOADS_SCALE;
use super::scheme::Scheme;
use super::settings::Setup;
use crate::experiment::Experiment;
use crate::experiment::comparison::{compare, drawn, words};
use crate::report::{Axis, Bars, Figure, Plot};

/// Table sizes in MiB, and by how much KVIMR-M was faster than KVIMR-N with them, in percent.
const SIZES: [(u64, f64); 4] = [(64, 7.0), (128, 5.9), (256, 13.0), (512, 16.8)];

pub(in crate::experiment) const FIG_8: Experiment = Experiment {
    id: "kvimr/fig8",
    title: "KVIMR, figure 8: throughput of the load with tables of 64 to 512 MiB",
    description: "The load of kvimr/fig5a with larger tables and memtables, which become tables; level 1 stays at 256 MiB.",
    default_scale: MANY_LOADS_SCALE,
    run: |run| {
        let setup = |scheme: Scheme, mebibytes: u64| Setup {
            table_bytes: mebibytes << 20,
            ..Setup::new(scheme, run.scale, run.settings.seed)
        };
        let setups: Vec<Setup> =
            SIZES.iter().flat_map(|&(size, _)| Scheme::FAIR.map(|scheme| setup(scheme, size))).collect();
        let all = loads(run, &setups)?;
        let mut report = run.report();
        if let Some(first) = setups.first() {
            first.describe(&mut report);
        }
        report.condition("write_buffer_size", "the table size");
        report.condition("target_file_size_base", "as the rows say; backup region accordingly");
        report.condition("max_compaction_bytes", "25 times the table size");
        let throughput = |scheme: Scheme, mebibytes: u64| {
            let wanted = setup(scheme, mebibytes);
            all.iter().find(|loaded| loaded.answers(&wanted)).map(|loaded| loaded.whole().throughput())
        };
        let mut series = Vec::new();
        for scheme in Scheme::FAIR {
            let values: Vec<Option<f64>> = SIZES.iter().map(|&(size, _)| throughput(scheme, size)).collect();
            for (&(size, _), &value) in SIZES.iter().zip(&values) {
                let metric = format!("{size} MiB: throughput");
                drawn(&mut report, &scheme.name(), &metric, "op/s", value.unwrap_or(f64::NAN));
            }
            series.push((scheme.name(), values));
        }
        for (size, faster) in SIZES {
            if let (Some(merged), Some(naive)) = (throughput(Scheme::KvimrM, size), throughput(Scheme::KvimrN, size)) {
                let metric = format!("{size} MiB: throughput / KVIMR-N");
                compare(&mut report, &Scheme::KvimrM.name(), &metric, "1", 1.0 + faster / 100.0, merged / naive);
            }
        }
        let rates = |scheme: Scheme| SIZES.map(|(size, _)| throughput(scheme, size).unwrap_or(f64::NAN));
        let rises = |scheme: &&Scheme| rates(**scheme).windows(2).all(|pair| pair[1] > pair[0]);
        let count = Scheme::FAIR.iter().filter(rises).count();
        let paper = "all the schemes achieve higher throughput with larger SSTable sizes";
        let metric = "schemes whose throughput rises with each size";
        words(&mut report, "all", metric, (count as f64, "1"), paper, count == Scheme::FAIR.len());
        let [seq, three_phase, naive, merged] =
            [Scheme::Seq, Scheme::ThreePhase, Scheme::KvimrN, Scheme::KvimrM].map(rates);
        let ahead = (0..SIZES.len())
            .map(|place| naive[place].min(merged[place]) / seq[place].max(three_phase[place]))
            .fold(f64::INFINITY, f64::min);
        let paper = "KVIMR still effectively and stably achieves better throughput than that of Seq and 3Phase";
        let metric = "throughput at least, / Seq and 3Phase, at any size";
        words(&mut report, "KVIMR-N, -M", metric, (ahead, "1"), paper, ahead > 1.0);
        report.plots.push(Plot {
            name: "throughput".to_owned(),
            title: "loading 75 million pairs by table size".to_owned(),
            medium: super::settings::PLOTTED_MEDIUM.to_owned(),
            y: Axis::linear("throughput (op/s)"),
            figure: Figure::Bars(Bars {
                groups: SIZES.iter().map(|(size, _)| format!("{size} MiB")).collect(),
                series,
            }),
        });
        Ok(report)
    },
};
