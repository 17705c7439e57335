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
    /// Another one whose background has transfers as large as ours.
    Transferring(&'static Scheme),
    /// Ours: HHZS with blocks cached by how often they are read, in zones divided by what those are worth, and with large
    /// transfers of what is done in the background.
    Adaptive,
    /// Ours without one of its terms.
    Without(Term),
}

/// What ours has and HHZS has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Term {
    /// Blocks and records are admitted and kept by frequency; without it blocks first in, first out.
    Frequency,
    /// Records are kept apart from their blocks; without it whole blocks by frequency.
    Records,
    /// Zones are divided by worth; without it two are kept for logs and blocks.
    Division,
    /// Tables move by how they are read.
    Migration,
    /// They come up when that is paid for; without it as HHZS has it.
    Amortization,
    /// Flushes and compactions read and write the disk in large requests; without it in RocksDB's.
    LargeTransfers,
    /// Frequently read copies are rewritten when their cache zone is reclaimed.
    KeptCopies,
    /// A record's copy is renewed when a compaction rewrites the record.
    FollowedRecords,
    /// Tables of low levels migrate to the drive while the disk is idle.
    IdlePromotion,
    /// User requests go before background requests.
    RequestOrder,
}

/// A scheme as options of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SchemeOptions {
    pub(super) placement: String,
    pub(super) migration: &'static str,
    pub(super) caching: &'static str,
    pub(super) division: &'static str,
    /// How much of a table is written, and read by a compaction, at once.
    pub(super) write_mebibytes: u64,
    pub(super) read_ahead_mebibytes: u64,
    /// Scans begin with large reads; else as RocksDB's do.
    pub(super) scans_begin_large: bool,
    /// Technique to leave out, by its name in the store's option `without`.
    pub(super) without: Option<&'static str>,
}

impl SchemeOptions {
    /// The paper's: RocksDB's buffers.
    fn new(placement: &str, migration: &'static str, caching: &'static str) -> SchemeOptions {
        SchemeOptions {
            placement: placement.to_owned(),
            migration,
            caching,
            division: "fixed",
            write_mebibytes: 1,
            read_ahead_mebibytes: 2,
            scans_begin_large: false,
            without: None,
        }
    }

    fn with_large_transfers(self) -> SchemeOptions {
        SchemeOptions { write_mebibytes: 16, read_ahead_mebibytes: 16, ..self }
    }

    /// Ours, with the paper's transfers.
    fn ours_in_small() -> SchemeOptions {
        let base = SchemeOptions::new("write-guided", "amortized", "records");
        SchemeOptions { division: "by-worth", scans_begin_large: true, ..base }
    }
}

impl Scheme {
    /// Those of the paper, in its order.
    pub(super) const ALL: [Scheme; 21] = [
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
        Scheme::Transferring(&Scheme::Hhzs),
        Scheme::Without(Term::Frequency),
        Scheme::Without(Term::Records),
        Scheme::Without(Term::Division),
        Scheme::Without(Term::Migration),
        Scheme::Without(Term::Amortization),
        Scheme::Without(Term::LargeTransfers),
        Scheme::Without(Term::KeptCopies),
        Scheme::Without(Term::FollowedRecords),
        Scheme::Without(Term::IdlePromotion),
        Scheme::Without(Term::RequestOrder),
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
            Scheme::Transferring(scheme) => format!("{}, large transfers", scheme.name()),
            Scheme::Adaptive => "Adaptive".to_owned(),
            Scheme::Without(Term::Frequency) => "Adaptive, blocks first in first out".to_owned(),
            Scheme::Without(Term::Records) => "Adaptive, whole blocks".to_owned(),
            Scheme::Without(Term::Division) => "Adaptive, two zones for logs and blocks".to_owned(),
            Scheme::Without(Term::Migration) => "Adaptive, no migration".to_owned(),
            Scheme::Without(Term::Amortization) => "Adaptive, HHZS' migration".to_owned(),
            Scheme::Without(Term::LargeTransfers) => "Adaptive, small transfers".to_owned(),
            Scheme::Without(Term::KeptCopies) => "Adaptive, no kept copies".to_owned(),
            Scheme::Without(Term::FollowedRecords) => "Adaptive, records not followed".to_owned(),
            Scheme::Without(Term::IdlePromotion) => "Adaptive, no idle promotion".to_owned(),
            Scheme::Without(Term::RequestOrder) => "Adaptive, requests not ordered".to_owned(),
        }
    }

    /// The same as options say it.
    pub(super) fn options(self) -> SchemeOptions {
        let ours = SchemeOptions::ours_in_small().with_large_transfers();
        match self {
            Scheme::Basic(levels) => SchemeOptions::new(&format!("basic-{levels}"), "none", "none"),
            Scheme::Basic3Migrating => SchemeOptions::new("basic-3", "workload-aware", "none"),
            Scheme::Auto => SchemeOptions::new("auto", "none", "none"),
            Scheme::WriteGuided => SchemeOptions::new("write-guided", "none", "none"),
            Scheme::WriteGuidedMigrating => SchemeOptions::new("write-guided", "workload-aware", "none"),
            Scheme::Hhzs => SchemeOptions::new("write-guided", "workload-aware", "fifo"),
            Scheme::Transferring(scheme) => scheme.options().with_large_transfers(),
            Scheme::Adaptive => ours,
            Scheme::Without(Term::Frequency) => SchemeOptions { caching: "fifo", division: "fixed", ..ours },
            Scheme::Without(Term::Records) => SchemeOptions { caching: "frequency", ..ours },
            Scheme::Without(Term::Division) => SchemeOptions { division: "fixed", ..ours },
            Scheme::Without(Term::Migration) => SchemeOptions { migration: "none", ..ours },
            Scheme::Without(Term::Amortization) => SchemeOptions { migration: "workload-aware", ..ours },
            Scheme::Without(Term::LargeTransfers) => SchemeOptions::ours_in_small(),
            Scheme::Without(Term::KeptCopies) => SchemeOptions { without: Some("kept-copies"), ..ours },
            Scheme::Without(Term::FollowedRecords) => SchemeOptions { without: Some("followed-records"), ..ours },
            Scheme::Without(Term::IdlePromotion) => SchemeOptions { without: Some("idle-promotion"), ..ours },
            Scheme::Without(Term::RequestOrder) => SchemeOptions { without: Some("request-order"), ..ours },
        }
    }
}
