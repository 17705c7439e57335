//! The schemes that are compared.

use crate::experiment::Scale;

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

    /// The medium with its store. `table_bytes` is already scaled, the other sizes are not.
    pub(super) fn spec(self, disk_bytes: u64, track_bytes: u64, scale: Scale, table_bytes: u64, logs: &str) -> String {
        let model = format!("model=st500dm002,scale={scale}");
        let (allocation, rewrite) = match self {
            Scheme::Cmr => return format!("disk:{disk_bytes}B?{model},{logs}"),
            Scheme::Seq => ("sequential", "naive"),
            Scheme::ThreePhase => ("three-phase", "naive"),
            Scheme::KvimrN => ("compaction-aware", "naive"),
            Scheme::KvimrM => ("compaction-aware", "merged"),
        };
        format!(
            "imr:{disk_bytes}B?track={track_bytes}B,strict,{model},allocation={allocation},rewrite={rewrite},\
             table-size={table_bytes}B,{logs}"
        )
    }
}
