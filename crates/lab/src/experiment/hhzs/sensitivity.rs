//! Figures 7 and 8: how skewed and how mixed a workload is (exp 3 and 4).

use super::fig2::described;
use super::fig5::{gains, plot, told};
use super::load::loads;
use super::runs::{Begin, run_all};
use super::scheme::Scheme;
use super::workload::Workload;
use crate::error::LabError;
use crate::experiment::comparison::compare;
use crate::experiment::{Experiment, Run};
use crate::report::Report;

const OPERATIONS: u64 = 5_000_000;

const SKEWS: [Workload; 5] = [
    Workload::mix("0.8", OPERATIONS, 50, 0.8),
    Workload::mix("0.9", OPERATIONS, 50, 0.9),
    Workload::mix("1.0", OPERATIONS, 50, 1.0),
    Workload::mix("1.1", OPERATIONS, 50, 1.1),
    Workload::mix("1.2", OPERATIONS, 50, 1.2),
];

const SHARES: [Workload; 5] = [
    Workload::mix("10 % reads", OPERATIONS, 10, 0.9),
    Workload::mix("30 % reads", OPERATIONS, 30, 0.9),
    Workload::mix("50 % reads", OPERATIONS, 50, 0.9),
    Workload::mix("70 % reads", OPERATIONS, 70, 0.9),
    Workload::mix("90 % reads", OPERATIONS, 90, 0.9),
];

/// Percent above B3 and AUTO at 10 % and 30 % of reads.
const FEW_READS: [(f64, f64); 2] = [(40.4, 67.7), (42.4, 68.4)];

pub(in crate::experiment) const FIG_7: Experiment = Experiment {
    id: "hhzs/fig7",
    title: "HHZS, figure 7 (exp 3): skewness of the workload",
    description: "5 million operations, half of them reads, of Zipf 0.8 to 1.2 on what the loads of B3, AUTO and HHZS left behind.",
    default_scale: super::MANY_RUNS_SCALE,
    run: |run| measured(run, &SKEWS, (27.3, 43.3), (51.6, 77.1)),
};

pub(in crate::experiment) const FIG_8: Experiment = Experiment {
    id: "hhzs/fig8",
    title: "HHZS, figure 8 (exp 4): share of reads in the workload",
    description: "5 million operations, 10 to 90 % of them reads, of Zipf 0.9 on what the loads of B3, AUTO and HHZS left behind.",
    default_scale: super::MANY_RUNS_SCALE,
    run: |run| {
        let mut report = measured(run, &SHARES[2..], (42.5, 60.0), (54.1, 65.3))?;
        let few = run_all(run, &Scheme::COMPARED, &SHARES[..2], Begin::Debt)?;
        few.iter().flatten().for_each(|ran| told(&mut report, ran));
        for (place, (over_b3, over_auto)) in FEW_READS.into_iter().enumerate() {
            let throughput = |scheme: usize| few[scheme][place].throughput();
            for (base, of, paper) in [(0, "B3", over_b3), (1, "AUTO", over_auto)] {
                let gain = (throughput(2) / throughput(base) - 1.0) * 100.0;
                let metric = format!("{}: throughput above {of}", SHARES[place].name);
                compare(&mut report, "HHZS", &metric, "%", paper, gain);
            }
        }
        Ok(report)
    },
};

fn measured(run: &Run<'_>, workloads: &[Workload], first: (f64, f64), second: (f64, f64)) -> Result<Report, LabError> {
    let all = run_all(run, &Scheme::COMPARED, workloads, Begin::Debt)?;
    let mut report = described(run, &loads(run, &Scheme::COMPARED)?);
    all.iter().flatten().for_each(|ran| told(&mut report, ran));
    gains(&mut report, &all, first, second);
    report.plots.push(plot("throughput", "5 million operations", &all));
    Ok(report)
}
