//! Figure 6: what each technique contributes (exp 2).

use super::fig2::{described, how};
use super::fig5::{plot, told};
use super::load::loads;
use super::runs::{Begin, run_all};
use super::scheme::Scheme;
use super::workload::Workload;
use crate::experiment::Experiment;
use crate::experiment::comparison::{compare, ours};

/// By how many percent the text says a scheme (by its place in [`Scheme::BREAKDOWN`]) is above another one, in W1 to W4.
const GAINS: [(usize, usize, [f64; 4]); 3] =
    [(2, 0, [18.0, 18.8, -1.4, -5.9]), (3, 1, [14.5, 8.8, 9.4, 5.9]), (4, 3, [5.3, 6.8, 7.4, 173.7])];

pub(in crate::experiment) const FIG_6: Experiment = Experiment {
    id: "hhzs/fig6",
    title: "HHZS, figure 6 (exp 2): what placement, migration and caching contribute",
    description: "Loads 200 GiB under B3, B3+M, P, P+M and P+M+C (HHZS), and runs 5 million operations of W1 (10 % reads, 0.9), W2 \
                  (50 %, 0.9), W3 (50 %, 1.2) and W4 (100 %, 1.2) on what each load left behind, with its debt; ours too, and W4 under HHZS and ours after rest.",
    default_scale: super::MANY_RUNS_SCALE,
    run: |run| {
        let loaded = loads(run, &Scheme::BREAKDOWN)?;
        let mut report = described(run, &loaded);
        loaded.iter().for_each(|loaded| how(&mut report, loaded));
        let above = |scheme: f64, base: f64| (scheme / base - 1.0) * 100.0;
        let load = |place: usize| loaded[place].throughput();
        let (name, of) =
            (|place: usize| Scheme::BREAKDOWN[place].name(), |place: usize| Scheme::BREAKDOWN[place].name());
        compare(&mut report, &name(2), "load: throughput above B3", "%", 5.5, above(load(2), load(0)));
        ours(&mut report, &name(3), "load: throughput above P", "%", above(load(3), load(2)));
        ours(
            &mut report,
            &name(4),
            "load: throughput above P+M (the paper's is the same)",
            "%",
            above(load(4), load(3)),
        );
        let all = run_all(run, &Scheme::BREAKDOWN, &Workload::BREAKDOWN, Begin::Debt)?;
        all.iter().flatten().for_each(|ran| told(&mut report, ran));
        for (scheme, base, paper) in GAINS {
            for (place, paper) in paper.into_iter().enumerate() {
                let gain = above(all[scheme][place].throughput(), all[base][place].throughput());
                let metric = format!("{}: throughput above {}", Workload::BREAKDOWN[place].name, of(base));
                compare(&mut report, &name(scheme), &metric, "%", paper, gain);
            }
        }
        let ours_too = run_all(run, &[Scheme::Adaptive], &Workload::BREAKDOWN, Begin::Debt)?;
        ours_too.iter().flatten().for_each(|ran| told(&mut report, ran));
        let rested = run_all(run, &[Scheme::Hhzs, Scheme::Adaptive], &Workload::BREAKDOWN[3..], Begin::Rest)?;
        rested.iter().flatten().for_each(|ran| told(&mut report, ran));
        report.plots.push(plot("throughput", "W1 to W4", &[all, ours_too].concat()));
        Ok(report)
    },
};
