//! How devices become a store, and how it is used.

use super::caching::CachingName;
use super::division::DivisionName;
use super::migration::MigrationName;
use super::placement::PlacementName;
use varve_media::Device;

/// The devices of a store: one to eight, each with zones that must be written in order, or with conventional ones before
/// them. In any order: tiers follow from how fast devices are.
pub type HybridDevices = Vec<Device>;

/// How devices become a [`HybridStore`](super::HybridStore).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HybridFormatOptions {
    /// Outputs of compactions for which zones of the slowest tier are kept, so that those can always finish; 1 or more.
    pub reserve_tables: u16,
    /// As in [`HybridOpenOptions::table_bytes`]: the slower devices have as many zones of a table next to each other.
    pub table_bytes: Option<u64>,
    /// As in [`HybridOpenOptions::tiers`]: only the slowest tier keeps a reserve.
    pub tiers: Option<Vec<u8>>,
    /// Format although a device holds something.
    pub overwrite: bool,
}

impl Default for HybridFormatOptions {
    fn default() -> Self {
        HybridFormatOptions { reserve_tables: 2, table_bytes: None, tiers: None, overwrite: false }
    }
}

/// Who does what is done in the background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HybridDriver {
    /// A thread of the store's own.
    #[default]
    Thread,
    /// Whoever changes something, in place and at once: for tests, which cut power at every step of it.
    Caller,
}

/// A technique of this store that is left out, so that a measurement can say what it contributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HybridTechnique {
    /// Copies that are read often are written again when their cache zone is given up.
    KeptCopies,
    /// A record with a copy gets a new copy when a compaction writes it to another table.
    FollowedRecords,
    /// Tables of low levels come up while the slow tier is idle.
    IdlePromotion,
    /// Requests of the background wait for those of users, and are divided where users read.
    RequestOrder,
}

impl HybridTechnique {
    /// All of them.
    pub const ALL: &'static [HybridTechnique] = &[
        HybridTechnique::KeptCopies,
        HybridTechnique::FollowedRecords,
        HybridTechnique::IdlePromotion,
        HybridTechnique::RequestOrder,
    ];

    /// Its name in specs.
    pub fn name(self) -> &'static str {
        match self {
            HybridTechnique::KeptCopies => "kept-copies",
            HybridTechnique::FollowedRecords => "followed-records",
            HybridTechnique::IdlePromotion => "idle-promotion",
            HybridTechnique::RequestOrder => "request-order",
        }
    }
}

/// What becomes of a set of which a device is not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingDevices {
    /// It is not opened.
    #[default]
    Refuse,
    /// What is on the others can be read, and nothing is written. Of a name that none of them has nobody can say that there is no
    /// such file.
    ReadOnly,
    /// The others become the store permanently, with the first change that cannot be taken back: a renamed pointer, or a change of
    /// a file that was there. From then on the missing device is refused, since it has older files; until then it can come back,
    /// and everything written without it is dropped. Files of which parts are missing stay; reading those parts is an error.
    GiveUp,
}

impl MissingDevices {
    /// All of them.
    pub const ALL: &'static [MissingDevices] =
        &[MissingDevices::Refuse, MissingDevices::ReadOnly, MissingDevices::GiveUp];

    /// Its name in specs.
    pub fn name(self) -> &'static str {
        match self {
            MissingDevices::Refuse => "refuse",
            MissingDevices::ReadOnly => "read-only",
            MissingDevices::GiveUp => "give-up",
        }
    }
}

/// How a [`HybridStore`](super::HybridStore) is used while it is open. Nothing of it is on the media.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HybridOpenOptions {
    /// Where files go.
    pub placement: PlacementName,
    /// Which tables move.
    pub migration: MigrationName,
    /// Which blocks of the slow tier are kept on the fast one.
    pub caching: CachingName,
    /// How zones of the fast tier are divided between tables and cached blocks.
    pub division: DivisionName,
    /// Zones of the fast tier for logs and cached blocks together, where the placement reserves any and they are not divided by
    /// what they are worth.
    pub log_and_cache_zones: u32,
    /// How fast tables move.
    pub migration_bytes_per_second: u64,
    /// Whether tables that are at most half as large as a zone share zones with others. Unset: on devices of which two tables of
    /// [`table_bytes`](Self::table_bytes) have space in a zone.
    pub shared_zones: Option<bool>,
    /// How fast tables are copied out of zones that are emptied while nobody waits for one; 0 empties none then.
    pub cleaning_bytes_per_second: u64,
    /// How often the automated placement looks at what the fast tier does.
    pub auto_interval_nanos: u64,
    /// Tier of each device, in the order in which they are given, 0 the fastest. Unset: from their rates of random reads, and
    /// where those are unknown disks are slower than solid-state devices. Where that does not decide, formatting and opening
    /// are refused.
    pub tiers: Option<Vec<u8>>,
    /// Count an output of a compaction among the tables of its level from its creation on (as the prototype of HHZS does), and
    /// not as demand until it is finished. Parallel compactions then see each other's outputs, and cannot place more tables of the
    /// tiering level than fit (R_t).
    pub counts_open_tables: bool,
    /// A technique to leave out, for measurements.
    pub without: Option<HybridTechnique>,
    /// Size of tables, at most a zone of the fastest tier. Unset: 64 MiB if a zone holds two such tables, which then share zones;
    /// otherwise a whole zone.
    pub table_bytes: Option<u64>,
    /// Bytes of a table that are written at once. Unset: 16 MiB where positioning costs time, 1 MiB elsewhere, and no more than
    /// a 16th of a zone.
    pub transfer_bytes: Option<u64>,
    /// What becomes of a set of which a device is not given.
    pub missing_devices: MissingDevices,
    /// Who migrates and caches.
    pub driver: HybridDriver,
}

impl HybridOpenOptions {
    /// Returns true unless the technique is left out.
    pub(super) fn has(&self, technique: HybridTechnique) -> bool {
        self.without != Some(technique)
    }
}

/// Default table size on large zones, in bytes: the size of the default memtable. With one table per zone, a drive of few large zones is
/// full after a few flushes.
pub(super) const SHARED_TABLE_BYTES: u64 = 64 << 20;

/// Returns the table size for a zone size; `None` if a table takes a whole zone.
pub(super) fn table_bytes_for(asked: Option<u64>, zone_bytes: Option<u64>) -> Option<u64> {
    asked.or_else(|| zone_bytes.filter(|bytes| holds_two_tables(*bytes)).map(|_| SHARED_TABLE_BYTES))
}

/// Returns true if tables share zones of this size by default.
pub(super) fn holds_two_tables(zone_bytes: u64) -> bool {
    zone_bytes / 2 >= SHARED_TABLE_BYTES
}

impl Default for HybridOpenOptions {
    fn default() -> Self {
        HybridOpenOptions {
            placement: PlacementName::WriteGuided,
            migration: MigrationName::Amortized,
            caching: CachingName::Records,
            division: DivisionName::ByWorth,
            log_and_cache_zones: 2,
            migration_bytes_per_second: 4 << 20,
            shared_zones: None,
            cleaning_bytes_per_second: 16 << 20,
            auto_interval_nanos: 1_000_000_000,
            tiers: None,
            counts_open_tables: false,
            without: None,
            table_bytes: None,
            transfer_bytes: None,
            missing_devices: MissingDevices::Refuse,
            driver: HybridDriver::Thread,
        }
    }
}
