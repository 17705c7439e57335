//! The schemes that are compared.

/// A way to place tables and to save top tracks (KVIMR, sections 2.3 and 4.1; those without a paper's name are ours).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scheme {
    /// Three-phase order on a conventional disk: the paper's, which there leaves out every second track.
    Cmr,
    /// One track after the other on a conventional disk, as a file system that goes on where it was.
    CmrNextFit,
    /// The hole that fits best on a conventional disk, as a file system that avoids gaps.
    CmrContiguous,
    /// One track after the other, naive rewrites.
    Seq,
    /// Bottoms, every other top, the other tops; naive rewrites.
    ThreePhase,
    /// The same with every other top from the inner edge outwards.
    Zigzag,
    /// A region of its own for each table (what KVIMR, section 3.3, argues against), merged rewrites.
    Region,
    /// Compaction-aware, naive rewrites.
    KvimrN,
    /// Compaction-aware, merged rewrites.
    KvimrM,
    /// The same with the track writes of CostAware.
    KvimrMForced,
    /// Tracks by what they cost later, merged rewrites.
    CostAware,
    /// CostAware through the disk's cache.
    CostAwareCached,
    /// CostAware without one of its terms, by the term's name in specs.
    CostAwareWithout(&'static str),
}

impl Scheme {
    /// The conventional disk as the paper allocates it, and as disks are allocated.
    pub(super) const CONVENTIONAL: [Scheme; 3] = [Scheme::Cmr, Scheme::CmrNextFit, Scheme::CmrContiguous];

    /// Those of the paper's figures, in their order, and ours.
    pub(super) const PAPER: [Scheme; 6] =
        [Scheme::Cmr, Scheme::Seq, Scheme::ThreePhase, Scheme::KvimrN, Scheme::KvimrM, Scheme::CostAware];

    /// The same with the conventional disk as disks are allocated.
    pub(super) const FAIR: [Scheme; 8] = [
        Scheme::Cmr,
        Scheme::CmrNextFit,
        Scheme::CmrContiguous,
        Scheme::Seq,
        Scheme::ThreePhase,
        Scheme::KvimrN,
        Scheme::KvimrM,
        Scheme::CostAware,
    ];

    /// The same with the paper's best written as ours is.
    pub(super) const ALL: [Scheme; 9] = [
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

    /// Orders of tracks that none of the paper's figures has, between those that they are nearest to.
    pub(super) const ALTERNATIVES: [Scheme; 5] =
        [Scheme::ThreePhase, Scheme::Zigzag, Scheme::Region, Scheme::KvimrM, Scheme::CostAware];

    /// Ours with all its terms and without each of them.
    pub(super) const ABLATION: [Scheme; 6] = [
        Scheme::CostAware,
        Scheme::CostAwareCached,
        Scheme::CostAwareWithout("syncs"),
        Scheme::CostAwareWithout("gaps"),
        Scheme::CostAwareWithout("cuts"),
        Scheme::CostAwareWithout("seeks"),
    ];

    /// Every allocation there is, and ours without the price of seeks.
    pub(super) const ALLOCATIONS: [Scheme; 9] = [
        Scheme::CmrNextFit,
        Scheme::CmrContiguous,
        Scheme::Seq,
        Scheme::ThreePhase,
        Scheme::Zigzag,
        Scheme::Region,
        Scheme::KvimrM,
        Scheme::CostAware,
        Scheme::CostAwareWithout("seeks"),
    ];

    /// The paper's name, where it has one.
    pub(super) fn name(self) -> String {
        match self {
            Scheme::Cmr => "CMR".to_owned(),
            Scheme::CmrNextFit => "CMR next-fit".to_owned(),
            Scheme::CmrContiguous => "CMR contiguous".to_owned(),
            Scheme::Seq => "Seq".to_owned(),
            Scheme::ThreePhase => "3Phase".to_owned(),
            Scheme::Zigzag => "zigzag".to_owned(),
            Scheme::Region => "Region".to_owned(),
            Scheme::KvimrN => "KVIMR-N".to_owned(),
            Scheme::KvimrM => "KVIMR-M".to_owned(),
            Scheme::KvimrMForced => "KVIMR-M, forced writes".to_owned(),
            Scheme::CostAware => "CostAware".to_owned(),
            Scheme::CostAwareCached => "CostAware, cached writes".to_owned(),
            Scheme::CostAwareWithout(term) => format!("without {term}"),
        }
    }

    /// Whether its disk is interlaced, or a conventional one.
    pub(super) fn is_interlaced(self) -> bool {
        !Scheme::CONVENTIONAL.contains(&self)
    }

    /// Where tables go, how tops are saved and how tracks are written, as the store's options say it.
    pub(super) fn policies(self) -> Policies {
        let (allocation, rewrite, track_writes) = match self {
            Scheme::Cmr | Scheme::ThreePhase => ("three-phase", "naive", CACHED),
            Scheme::CmrNextFit => ("sequential", "naive", FORCED),
            Scheme::CmrContiguous => ("cost-aware", "naive", FORCED),
            Scheme::Seq => ("sequential", "naive", CACHED),
            Scheme::Zigzag => ("zigzag", "naive", CACHED),
            Scheme::Region => ("region", "merged", CACHED),
            Scheme::KvimrN => ("compaction-aware", "naive", CACHED),
            Scheme::KvimrM => ("compaction-aware", "merged", CACHED),
            Scheme::KvimrMForced => ("compaction-aware", "merged", FORCED),
            Scheme::CostAware => ("cost-aware", "merged", FORCED),
            Scheme::CostAwareCached => ("cost-aware", "merged", CACHED),
            Scheme::CostAwareWithout(term) => {
                let allocation = format!("cost-aware-without-{term}");
                return Policies { allocation, rewrite: "merged", track_writes: FORCED };
            }
        };
        Policies { allocation: allocation.to_owned(), rewrite, track_writes }
    }
}

/// Through the cache of the disk and with a sync behind them, as in the paper.
const CACHED: &str = "cached";

/// By forced unit access where there are gaps.
const FORCED: &str = "forced";

/// Options of the store that a scheme is made of.
pub(super) struct Policies {
    pub(super) allocation: String,
    pub(super) rewrite: &'static str,
    pub(super) track_writes: &'static str,
}

impl Policies {
    /// As a spec has them.
    pub(super) fn options(&self) -> String {
        format!("allocation={},rewrite={},track-writes={}", self.allocation, self.rewrite, self.track_writes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Scale;
    use crate::experiment::kvimr::settings::{Logs, Setup};

    #[test]
    fn every_scheme_is_a_medium() {
        for scheme in Scheme::ALL.into_iter().chain(Scheme::ABLATION).chain(Scheme::ALTERNATIVES) {
            for logs in [Logs::Apart, Logs::Inside] {
                let setup = Setup { logs, ..Setup::new(scheme, Scale::one_in(64), 1) };
                varve::Spec::parse_for_lab(&setup.spec()).unwrap_or_else(|error| panic!("{}: {error}", scheme.name()));
            }
        }
    }
}
