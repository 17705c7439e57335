//! The schemes that are compared.

/// A way to place tables and to save top tracks (KVIMR, sections 2.3 and 4.1).
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
}

impl Scheme {
    /// All, in the order of the paper's figures.
    pub(super) const ALL: [Scheme; 5] = [Scheme::Cmr, Scheme::Seq, Scheme::ThreePhase, Scheme::KvimrN, Scheme::KvimrM];

    /// The paper's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Scheme::Cmr => "CMR",
            Scheme::Seq => "Seq",
            Scheme::ThreePhase => "3Phase",
            Scheme::KvimrN => "KVIMR-N",
            Scheme::KvimrM => "KVIMR-M",
        }
    }

    /// Where tables go and how tops are saved, as the store's options say it; `None` on a conventional disk.
    pub(super) fn policies(self) -> Option<(&'static str, &'static str)> {
        match self {
            Scheme::Cmr => None,
            Scheme::Seq => Some(("sequential", "naive")),
            Scheme::ThreePhase => Some(("three-phase", "naive")),
            Scheme::KvimrN => Some(("compaction-aware", "naive")),
            Scheme::KvimrM => Some(("compaction-aware", "merged")),
        }
    }
}
