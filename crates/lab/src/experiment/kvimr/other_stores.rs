//! Figure 9: the load into trees shaped like LevelDB and HyperLevelDB.

use super::load::loads;
use super::overall::MANY_LOADS_SCALE;
use super::scheme::Scheme;
use super::settings::{Setup, Shape};
use crate::experiment::Experiment;
use crate::experiment::comparison::{compare, drawn, words};
use crate::report::{Axis, Bars, Figure, Plot};

/// The shapes, and what KVIMR-N and KVIMR-M gain at least over Seq and over 3Phase, in percent.
const SHAPES: [(&str, Shape, f64, f64); 2] =
    [("LevelDB", Shape::Level, 55.43, 21.16), ("HyperLevelDB", Shape::HyperLevel, 60.41, 23.59)];

pub(in crate::experiment) const FIG_9: Experiment = Experiment {
    id: "kvimr/fig9",
    title: "KVIMR, figure 9: throughput of the load in LevelDB and HyperLevelDB",
    description: "The load of kvimr/fig5a into the leveled tree shaped like LevelDB and like HyperLevelDB with the paper's \
                  settings for them: blocks of 2 MiB and no read-ahead. The conditions say what could not be expressed.",
    default_scale: MANY_LOADS_SCALE,
    run: |run| {
        let setup = |scheme: Scheme, shape: Shape| Setup { shape, ..Setup::new(scheme, run.scale, run.settings.seed) };
        let setups: Vec<Setup> =
            SHAPES.iter().flat_map(|&(_, shape, ..)| Scheme::FAIR.map(|scheme| setup(scheme, shape))).collect();
        let all = loads(run, &setups)?;
        let mut report = run.report();
        for &(name, shape, ..) in &SHAPES {
            let mut conditions = run.report();
            setup(Scheme::KvimrM, shape).describe(&mut conditions);
            for (key, value) in conditions.conditions {
                // What both have in common is said once.
                match report.conditions.get(&key) {
                    Some(same) if *same == value => {}
                    Some(_) => report.condition(&format!("{key} ({name})"), value),
                    None => report.condition(&key, value),
                }
            }
        }
        let throughput = |scheme: Scheme, shape: Shape| {
            let wanted = setup(scheme, shape);
            all.iter().find(|loaded| loaded.answers(&wanted)).map(|loaded| loaded.whole().throughput())
        };
        let mut series = Vec::new();
        for scheme in Scheme::FAIR {
            let values: Vec<Option<f64>> = SHAPES.iter().map(|&(_, shape, ..)| throughput(scheme, shape)).collect();
            for (&(name, ..), &value) in SHAPES.iter().zip(&values) {
                drawn(&mut report, &scheme.name(), &format!("{name}: throughput"), "op/s", value.unwrap_or(f64::NAN));
            }
            series.push((scheme.name(), values));
        }
        for (name, shape, over_seq, over_three_phase) in SHAPES {
            let of = |scheme: Scheme| throughput(scheme, shape).unwrap_or(f64::NAN);
            let least = of(Scheme::KvimrN).min(of(Scheme::KvimrM));
            for (base, paper) in [(Scheme::Seq, over_seq), (Scheme::ThreePhase, over_three_phase)] {
                let metric = format!("{name}: throughput at least, / {}", base.name());
                compare(&mut report, "KVIMR-N, -M", &metric, "1", 1.0 + paper / 100.0, least / of(base));
            }
        }
        for (name, shape, ..) in SHAPES {
            let of = |scheme: Scheme| throughput(scheme, shape).unwrap_or(f64::NAN);
            let order = [Scheme::Seq, Scheme::ThreePhase, Scheme::KvimrN, Scheme::KvimrM].map(of);
            let steps = order.windows(2).filter(|pair| pair[1] > pair[0]).count();
            let metric = format!("{name}: steps up of Seq, 3Phase, KVIMR-N, KVIMR-M");
            let paper = "the trends of overall throughputs are quite similar to what we can observe under RocksDB";
            words(&mut report, "all", &metric, (steps as f64, "1"), paper, steps == 3);
        }
        report.plots.push(Plot {
            name: "throughput".to_owned(),
            title: "loading 75 million pairs into trees shaped like other stores".to_owned(),
            medium: super::settings::PLOTTED_MEDIUM.to_owned(),
            y: Axis::linear("throughput (op/s)"),
            figure: Figure::Bars(Bars { groups: SHAPES.iter().map(|&(name, ..)| name.to_owned()).collect(), series }),
        });
        Ok(report)
    },
};
