//! What each term of ours contributes, and what others gain by the part of it that they can have.

use super::fig2::{described, how};
use super::load::loads;
use super::scheme::{Scheme, Term};
use crate::experiment::Experiment;
use crate::experiment::comparison::ours;

/// The basic scheme that loads fastest, SpanDB's, HHZS, each with RocksDB's transfers and with large ones; ours, and ours without each term.
const SCHEMES: [Scheme; 13] = [
    Scheme::Basic(3),
    Scheme::Transferring(&Scheme::Basic(3)),
    Scheme::Auto,
    Scheme::Transferring(&Scheme::Auto),
    Scheme::Hhzs,
    Scheme::Transferring(&Scheme::Hhzs),
    Scheme::Adaptive,
    Scheme::Without(Term::Frequency),
    Scheme::Without(Term::Records),
    Scheme::Without(Term::Division),
    Scheme::Without(Term::Migration),
    Scheme::Without(Term::Amortization),
    Scheme::Without(Term::LargeTransfers),
];

pub(in crate::experiment) const ABLATION: Experiment = Experiment {
    id: "hhzs/ablation",
    title: "ours without each of its terms, and the others with the one they can have",
    description: "Loads 200 GiB under each scheme.",
    default_scale: super::MANY_RUNS_SCALE,
    run: |run| {
        let loaded = loads(run, &SCHEMES)?;
        let mut report = described(run, &loaded);
        loaded.iter().for_each(|loaded| how(&mut report, loaded));
        let base = loaded[0].throughput();
        for loaded in &loaded {
            let gain = loaded.throughput() / base;
            ours(&mut report, &loaded.setup.scheme.name(), "load: throughput to that of B3", "1", gain);
        }
        Ok(report)
    },
};
