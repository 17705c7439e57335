//! The schemes that are compared.

/// A placement of tables, with or without migration and caching (HHZS, sections 2.3 and 4.1).
///
/// One more scheme is a line here and its options below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scheme {
    /// Levels below this number go to the solid-state drive while a zone is empty.
    Basic(u8),
    /// B3 that moves tables of its levels to the solid-state drive.
    Basic3Migrating,
    /// SpanDB's automated placement.
    Auto,
    /// Write-guided placement.
    WriteGuided,
    /// Write-guided placement and workload-aware migration.
    WriteGuidedMigrating,
    /// Both and application-hinted caching: HHZS.
    Hhzs,
    /// Ours: the same with blocks cached by how often they are read, in zones divided by what those are worth.
    Adaptive,
}

impl Scheme {
    /// Those of the paper, in its order.
    pub(super) const ALL: [Scheme; 10] = [
        Scheme::Basic(1),
        Scheme::Basic(2),
        Scheme::Basic(3),
        Scheme::Basic(4),
        Scheme::Basic3Migrating,
        Scheme::Auto,
        Scheme::WriteGuided,
        Scheme::WriteGuidedMigrating,
        Scheme::Hhzs,
        Scheme::Adaptive,
    ];

    /// The basic schemes.
    pub(super) const BASIC: [Scheme; 4] = [Scheme::Basic(1), Scheme::Basic(2), Scheme::Basic(3), Scheme::Basic(4)];

    /// What HHZS is compared with in most figures, and HHZS.
    pub(super) const COMPARED: [Scheme; 3] = [Scheme::Basic(3), Scheme::Auto, Scheme::Hhzs];

    /// The same and ours.
    pub(super) const COMPARED_WITH_OURS: [Scheme; 4] = [Scheme::Basic(3), Scheme::Auto, Scheme::Hhzs, Scheme::Adaptive];

    /// Those of the breakdown.
    pub(super) const BREAKDOWN: [Scheme; 5] =
        [Scheme::Basic(3), Scheme::Basic3Migrating, Scheme::WriteGuided, Scheme::WriteGuidedMigrating, Scheme::Hhzs];

    /// Those of the sizes of the solid-state drive.
    pub(super) const OF_SIZES: [Scheme; 7] = [
        Scheme::Basic(1),
        Scheme::Basic(2),
        Scheme::Basic(3),
        Scheme::Basic(4),
        Scheme::Auto,
        Scheme::WriteGuided,
        Scheme::Hhzs,
    ];

    /// The paper's name.
    pub(super) fn name(self) -> String {
        match self {
            Scheme::Basic(levels) => format!("B{levels}"),
            Scheme::Basic3Migrating => "B3+M".to_owned(),
            Scheme::Auto => "AUTO".to_owned(),
            Scheme::WriteGuided => "P".to_owned(),
            Scheme::WriteGuidedMigrating => "P+M".to_owned(),
            Scheme::Hhzs => "HHZS".to_owned(),
            Scheme::Adaptive => "Adaptive".to_owned(),
        }
    }

    /// The same as the store's options say it: placement, migration, caching.
    pub(super) fn options(self) -> (String, &'static str, &'static str) {
        let (placement, migration, caching) = match self {
            Scheme::Basic(levels) => return (format!("basic-{levels}"), "none", "none"),
            Scheme::Basic3Migrating => ("basic-3", "workload-aware", "none"),
            Scheme::Auto => ("auto", "none", "none"),
            Scheme::WriteGuided => ("write-guided", "none", "none"),
            Scheme::WriteGuidedMigrating => ("write-guided", "workload-aware", "none"),
            Scheme::Hhzs => ("write-guided", "workload-aware", "fifo"),
            Scheme::Adaptive => ("write-guided", "workload-aware", "frequency"),
        };
        (placement.to_owned(), migration, caching)
    }
}
