//! Which table moves to the other tier: pure functions of what is where and how it is read.
//!
//! A new policy is its file, its module, and its line in [`MigrationName`].

mod amortized;
mod workload_aware;

pub(super) use amortized::Amortized;
pub(super) use workload_aware::WorkloadAware;

use super::levels::Tier;
use super::placement::{PlacementView, Tiering};

/// A table as a migration sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableView {
    /// Number of the file.
    pub(super) file: u64,
    /// Row of its level.
    pub(super) level: usize,
    pub(super) tier: Tier,
    /// Zones of the fast tier that it has, or would have.
    pub(super) zones: u64,
    /// Reads of users that reached the store; where zones are divided by worth, less those that cached blocks and records answered.
    pub(super) reads: u64,
    pub(super) age_nanos: u64,
    /// It is not written any more, not an input of a compaction, not on its way already.
    pub(super) is_movable: bool,
}

impl TableView {
    /// Reads in 2^20 seconds of its life.
    fn read_rate(&self) -> u128 {
        (u128::from(self.reads) << 20) * 1_000_000_000 / u128::from(self.age_nanos.max(1))
    }

    /// Whether it has a higher priority than another (section 3.4): a lower level, or more reads for its age.
    fn precedes(&self, other: &TableView) -> bool {
        (std::cmp::Reverse(self.level), self.read_rate()) > (std::cmp::Reverse(other.level), other.read_rate())
    }
}

/// What a migration looks at.
#[derive(Clone, Debug)]
pub(super) struct MigrationView<'a> {
    pub(super) tables: &'a [TableView],
    pub(super) tiering: Tiering,
    /// Empty zones of the fast tier that tables may have.
    pub(super) empty_table_zones: u64,
    pub(super) load: SlowLoad,
    /// Reads of the slow tier that take as long there as moving what one zone of a table has.
    pub(super) reads_of_zone: u64,
}

/// What moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// To the slow tier.
    Down { file: u64 },
    /// To the fast tier.
    Up { file: u64 },
    /// One takes the place of another, which goes to the slow tier first: so a zone is free when the first comes.
    Swap { up: u64, down: u64 },
}

/// What the slow tier is busy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlowLoad {
    /// Nobody flushes or compacts, and little is read.
    Idle,
    /// Reads do not wait for it.
    Some,
    /// Reads wait for it.
    Reads,
}

/// Says what moves next; none is a good answer.
pub(super) trait Migration: Send + Sync {
    /// Whether a table might move, told from counts alone: false only where [`plan`](Self::plan) would say none.
    fn may_move(&self, view: &PlacementView, tiering: Tiering, load: SlowLoad) -> bool;

    fn plan(&self, view: &MigrationView<'_>) -> Option<Move>;
}

/// A migration by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MigrationName {
    /// Tables stay where they were placed.
    None,
    /// HHZS' workload-aware migration.
    WorkloadAware,
    /// The same, but a table comes up only when the slow tier spent as long on reads of it as moving it takes.
    Amortized,
}

impl MigrationName {
    /// Every migration.
    pub const ALL: &'static [MigrationName] =
        &[MigrationName::None, MigrationName::WorkloadAware, MigrationName::Amortized];

    /// Its name in a spec.
    pub fn name(self) -> &'static str {
        match self {
            MigrationName::None => "none",
            MigrationName::WorkloadAware => "workload-aware",
            MigrationName::Amortized => "amortized",
        }
    }

    /// The policy.
    pub(super) fn policy(self) -> Option<Box<dyn Migration>> {
        match self {
            MigrationName::None => None,
            MigrationName::WorkloadAware => Some(Box::new(WorkloadAware)),
            MigrationName::Amortized => Some(Box::new(Amortized)),
        }
    }
}
