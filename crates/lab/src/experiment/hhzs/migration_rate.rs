//! Figure 10: the rate of migration (exp 6).

use super::fig2::described;
use super::load::loads;
use super::runs::{Begin, Task, run_tasks};
use super::scheme::Scheme;
use super::settings::Setup;
use super::workload::Workload;
use crate::experiment::Experiment;
use crate::experiment::comparison::{compare, drawn, ours};

/// MiB a second.
const RATES: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The paper does not say how many operations.
const HALF: Workload = Workload::mix("50 % reads", 5_000_000, 50, 0.9);

pub(in crate::experiment) const FIG_10: Experiment = Experiment {
    id: "hhzs/fig10",
    title: "HHZS, figure 10 (exp 6): tail latencies of reads by rate of migration",
    description: "Loads 200 GiB under P+M and runs 5 million operations, half of them reads of Zipf 0.9, on it, with tables moving at 1 \
                  to 64 MiB/s.",
    default_scale: super::MANY_RUNS_SCALE,
    run: |run| {
        let mut report = described(run, &loads(run, &[Scheme::WriteGuidedMigrating])?);
        let task = |rate: u64| {
            let setup = Setup::new(Scheme::WriteGuidedMigrating, run.scale, run.settings.seed);
            let setup = Setup { migration_bytes_per_second: rate << 20, ..setup };
            Task { workload: HALF.at(setup.scale), setup, begin: Begin::Debt, warm_up: None }
        };
        let all = run_tasks(run, RATES.map(task).to_vec())?;
        for (rate, ran) in RATES.iter().zip(&all) {
            for (name, share) in [("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)] {
                let metric = format!("{rate} MiB/s: {name} of reads (full size)");
                drawn(&mut report, "P+M", &metric, "ms", ran.read_millis(share));
            }
            ours(&mut report, "P+M", &format!("{rate} MiB/s: throughput (full size)"), "op/s", ran.throughput());
            let moved = |name: &str| (ran.to.stored(name) - ran.from.stored(name)) as f64;
            let tables = moved("tables moved to the fast tier") + moved("tables moved to the slow tier");
            ours(&mut report, "P+M", &format!("{rate} MiB/s: tables moved"), "1", tables);
        }
        let at = |place: usize, share: f64| all[place].read_millis(share);
        let nines: Vec<f64> = (0..RATES.len()).map(|place| at(place, 0.99)).collect();
        let (low, high) = nines.iter().fold((f64::INFINITY, 0f64), |(low, high), &of| (low.min(of), high.max(of)));
        ours(&mut report, "P+M", "p99: most above least (the paper's within 10)", "%", (high / low - 1.0) * 100.0);
        for (place, paper) in [(1, 23.0), (2, 25.4)] {
            let above = (at(6, 0.999) / at(place, 0.999) - 1.0) * 100.0;
            compare(&mut report, "P+M", &format!("p99.9: 64 above {} MiB/s", RATES[place]), "%", paper, above);
        }
        compare(
            &mut report,
            "P+M",
            "p99.99: 64 above 1 MiB/s",
            "%",
            104.0,
            (at(6, 0.9999) / at(0, 0.9999) - 1.0) * 100.0,
        );
        report.condition("reads that the percentiles are of", all[0].read_nanos.len());
        Ok(report)
    },
};
