//! The stores that are compared.

/// A tree on a store (SMRDB, section 5; the last one is ours).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scheme {
    /// The leveled tree with LevelDB's defaults, on a conventional disk with the layout of a file system.
    LevelDb,
    /// The leveled tree with tables of a band.
    Loc,
    /// Two levels whose bands may overlap.
    Soc,
    /// SMRDB-SOC with what goes past the paper: see [`super::settings`].
    Ours,
}

impl Scheme {
    /// All of them, in the paper's order, and ours.
    pub(super) const ALL: [Scheme; 4] = [Scheme::LevelDb, Scheme::Loc, Scheme::Soc, Scheme::Ours];

    /// LevelDB and what is compared with it in most figures.
    pub(super) const COMPARED: [Scheme; 3] = [Scheme::LevelDb, Scheme::Soc, Scheme::Ours];

    /// Whether it is ours, with goals of its own, and not the paper's.
    pub(super) fn is_past_paper(self) -> bool {
        self == Scheme::Ours
    }

    /// The paper's name, but for ours.
    pub(super) fn name(self) -> &'static str {
        match self {
            Scheme::LevelDb => "LevelDB-like",
            Scheme::Loc => "SMRDB-LOC",
            Scheme::Soc => "SMRDB-SOC",
            Scheme::Ours => "ours",
        }
    }
}
