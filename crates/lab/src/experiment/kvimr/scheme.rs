//! The schemes that are compared.

/// A way to place tables and to save top tracks (KVIMR, sections 2.3 and 4.1; the last two are ours).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scheme {
    /// Three-phase order on a conventional disk.
    Cmr,
    /// One track after the other, naive rewrites.
    Seq,
    /// Bottoms, every other top, the other tops; naive rewrites.
    ThreePhase,
    /// Compaction-aware, naive rewrites.
    KvimrN,
    /// Compaction-aware, merged rewrites.
    KvimrM,
    /// Tracks by what they cost later, merged rewrites.
    CostAware,
    /// The same without one of its terms, by the term's name in specs.
    CostAwareWithout(&'static str),
}

impl Scheme {
    /// Those of the paper's figures, in their order, and ours.
    pub(super) const ALL: [Scheme; 6] =
        [Scheme::Cmr, Scheme::Seq, Scheme::ThreePhase, Scheme::KvimrN, Scheme::KvimrM, Scheme::CostAware];

    /// Ours with all its terms and without each of them.
    pub(super) const ABLATION: [Scheme; 8] = [
        Scheme::CostAware,
        Scheme::CostAwareWithout("cover"),
        Scheme::CostAwareWithout("lifetime"),
        Scheme::CostAwareWithout("relief"),
        Scheme::CostAwareWithout("reserve"),
        Scheme::CostAwareWithout("whole"),
        Scheme::CostAwareWithout("locality"),
        Scheme::CostAwareWithout("contiguity"),
    ];

    /// The paper's name.
    pub(super) fn name(self) -> String {
        match self {
            Scheme::Cmr => "CMR".to_owned(),
            Scheme::Seq => "Seq".to_owned(),
            Scheme::ThreePhase => "3Phase".to_owned(),
            Scheme::KvimrN => "KVIMR-N".to_owned(),
            Scheme::KvimrM => "KVIMR-M".to_owned(),
            Scheme::CostAware => "CostAware".to_owned(),
            Scheme::CostAwareWithout(term) => format!("without {term}"),
        }
    }

    /// Where tables go and how tops are saved, as the store's options say it; `None` on a conventional disk.
    pub(super) fn policies(self) -> Option<(String, &'static str)> {
        let (allocation, rewrite) = match self {
            Scheme::Cmr => return None,
            Scheme::Seq => ("sequential", "naive"),
            Scheme::ThreePhase => ("three-phase", "naive"),
            Scheme::KvimrN => ("compaction-aware", "naive"),
            Scheme::KvimrM => ("compaction-aware", "merged"),
            Scheme::CostAware => ("cost-aware", "merged"),
            Scheme::CostAwareWithout(term) => return Some((format!("cost-aware-without-{term}"), "merged")),
        };
        Some((allocation.to_owned(), rewrite))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Scale;
    use crate::experiment::kvimr::settings::{Logs, Setup};

    #[test]
    fn every_scheme_is_a_medium() {
        for scheme in Scheme::ALL.into_iter().chain(Scheme::ABLATION) {
            for logs in [Logs::Apart, Logs::Inside] {
                let setup = Setup { logs, ..Setup::new(scheme, Scale::one_in(64), 1) };
                setup.spec().parse::<varve::Spec>().unwrap_or_else(|error| panic!("{}: {error}", scheme.name()));
            }
        }
    }
}
