//! What is read off a run, and what happened between two readings.

use crate::media::Counters;
use crate::target::TargetStatistics;
use varve::store::{Occupancy, PieceUsage};

/// Names under which a store tells what it did, see [`TargetStatistics::properties`].
const REWRITES: &str = "store rewrites";
const SYNCS: &str = "store syncs";
const TABLES: &str = "store tables";
const TABLES_OF_MANY_SYNCS: &str = "store tables of many syncs";
const PERSIST_NANOS: &str = "store persist time";
const REWRITE_NANOS: &str = "store rewrite time";

/// The state of a run at one moment.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) operations: u64,
    /// Virtual time since the first operation.
    pub(super) nanos: u64,
    pub(super) statistics: TargetStatistics,
    pub(super) tiers: Tiers,
}

/// Tracks that tables may have, and those that have one (or had one whose removal is not durable yet).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tiers {
    pub(super) bottom_used: u64,
    pub(super) bottom_tracks: u64,
    pub(super) top_used: u64,
    pub(super) top_tracks: u64,
}

impl Tiers {
    pub(super) fn of(occupancy: &Occupancy) -> Tiers {
        let mut tiers = Tiers::default();
        for piece in occupancy.pieces.iter().filter(|piece| piece.device == 0) {
            let used = matches!(piece.usage, PieceUsage::Table | PieceUsage::Removed);
            if !used && piece.usage != PieceUsage::Free {
                continue;
            }
            match piece.part {
                "bottom" => {
                    tiers.bottom_tracks += 1;
                    tiers.bottom_used += u64::from(used);
                }
                "top" => {
                    tiers.top_tracks += 1;
                    tiers.top_used += u64::from(used);
                }
                _ => {}
            }
        }
        tiers
    }

    /// Of the tracks that tables may have.
    pub(super) fn used_share(&self) -> f64 {
        (self.bottom_used + self.top_used) as f64 / (self.bottom_tracks + self.top_tracks).max(1) as f64
    }
}

/// What happened between two marks.
#[derive(Clone, Copy)]
pub(super) struct Span<'a> {
    pub(super) from: &'a Mark,
    pub(super) to: &'a Mark,
}

impl Span<'_> {
    pub(super) fn operations(&self) -> u64 {
        self.to.operations - self.from.operations
    }

    pub(super) fn seconds(&self) -> f64 {
        (self.to.nanos - self.from.nanos) as f64 / 1e9
    }

    /// Operations per second; a scaled run does `1/N` of them in `1/N` of the time.
    pub(super) fn throughput(&self) -> f64 {
        self.operations() as f64 / self.seconds()
    }

    fn grown(&self, of: impl Fn(&TargetStatistics) -> Option<u64>) -> u64 {
        of(&self.to.statistics).unwrap_or(0).saturating_sub(of(&self.from.statistics).unwrap_or(0))
    }

    pub(super) fn compactions(&self) -> u64 {
        self.grown(|statistics| statistics.compactions)
    }

    pub(super) fn compaction_seconds(&self) -> f64 {
        self.grown(|statistics| statistics.compaction_nanos) as f64 / 1e9
    }

    pub(super) fn stall_seconds(&self) -> f64 {
        self.grown(|statistics| statistics.stall_nanos) as f64 / 1e9
    }

    pub(super) fn flush_bytes(&self) -> u64 {
        self.grown(|statistics| statistics.flush_bytes)
    }

    pub(super) fn compaction_read_bytes(&self) -> u64 {
        self.grown(|statistics| statistics.compaction_read_bytes)
    }

    pub(super) fn compaction_written_bytes(&self) -> u64 {
        self.grown(|statistics| statistics.compaction_written_bytes)
    }

    /// Growth of a property of the store; 0 when it has none of that name.
    fn property(&self, name: &str) -> f64 {
        let of = |mark: &Mark| mark.statistics.properties.get(name).copied().unwrap_or(0.0);
        of(self.to) - of(self.from)
    }

    /// Tops restored.
    pub(super) fn rewrites(&self) -> f64 {
        self.property(REWRITES)
    }

    /// Syncs of the disk made to persist tables.
    pub(super) fn syncs(&self) -> f64 {
        self.property(SYNCS)
    }

    /// Tables persisted.
    pub(super) fn tables(&self) -> f64 {
        self.property(TABLES)
    }

    /// Tables whose persisting needed more than one sync.
    pub(super) fn tables_of_many_syncs(&self) -> f64 {
        self.property(TABLES_OF_MANY_SYNCS)
    }

    pub(super) fn persist_seconds(&self) -> f64 {
        self.property(PERSIST_NANOS) / 1e9
    }

    pub(super) fn rewrite_seconds(&self) -> f64 {
        self.property(REWRITE_NANOS) / 1e9
    }

    /// Counters of the disk, the first device.
    pub(super) fn disk(&self, of: impl Fn(&Counters) -> u64) -> u64 {
        self.grown(|statistics| statistics.devices.first().map(|(_, counters)| of(counters)))
    }
}
