//! Where a file goes that is created: pure functions of what is where.
//!
//! A new policy is its file, its module, and its line in [`PlacementName`].

mod auto;
mod basic;
mod write_guided;

pub(super) use auto::Auto;
pub(super) use basic::Basic;
pub(super) use write_guided::{Tiering, WriteGuided};

use super::levels::{LEVELS, LevelZones, Tier};

/// What a placement looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PlacementView {
    /// By level.
    pub(super) levels: [LevelZones; LEVELS],
    /// Zones of the fast tier that can hold files.
    pub(super) fast_zones: u64,
    /// Those of them that are empty, and promised to nobody.
    pub(super) empty_zones: u64,
    /// With logs and other small files.
    pub(super) log_zones: u64,
    /// With blocks that were read from the slow tier.
    pub(super) cache_zones: u64,
    /// Kept for those two together, where the policy keeps any.
    pub(super) reserved_zones: u64,
}

impl PlacementView {
    /// Zones of the fast tier that tables may have (the paper's C).
    pub(super) fn table_zones(&self) -> u64 {
        self.fast_zones.saturating_sub(self.reserved_zones)
    }

    /// Empty zones that tables may take: some are kept for logs and cache, but those that these have.
    pub(super) fn empty_table_zones(&self) -> u64 {
        let kept = self.reserved_zones.saturating_sub(self.log_zones + self.cache_zones);
        self.empty_zones.saturating_sub(kept)
    }
}

/// A table that is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewTable {
    pub(super) level: Option<u8>,
    /// A flush writes it.
    pub(super) is_flush: bool,
}

/// Says where tables go. Logs and other small files go to the fast tier while they find space there, whatever the policy.
pub(super) trait Placement: Send + Sync {
    /// Whether zones of the fast tier are kept for logs and cached blocks.
    fn reserves(&self) -> bool;

    /// Where a table goes. The fast tier is chosen only when it has an empty zone.
    fn place(&self, view: &PlacementView, table: NewTable) -> Tier;

    /// The level that lies on both tiers, for those who migrate. Levels below it are to be on the fast one, and others are not.
    fn tiering(&self, view: &PlacementView) -> Tiering;

    /// Where a policy has a state that follows the device: an interval ended in which the fast tier read and wrote so many
    /// bytes a second.
    fn interval_ended(&self, bytes_per_second: u64);
}

/// A placement by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlacementName {
    /// B_h of the HHZS paper: tables of levels below this one go to the fast tier while it has an empty zone.
    Basic(u8),
    /// SpanDB's automated placement, as the HHZS paper has it.
    Auto,
    /// HHZS' write-guided placement.
    WriteGuided,
}

impl PlacementName {
    /// Every placement.
    pub const ALL: &'static [PlacementName] = &[
        PlacementName::Basic(1),
        PlacementName::Basic(2),
        PlacementName::Basic(3),
        PlacementName::Basic(4),
        PlacementName::Auto,
        PlacementName::WriteGuided,
    ];

    /// Its name in a spec.
    pub fn name(self) -> String {
        match self {
            PlacementName::Basic(levels) => format!("basic-{levels}"),
            PlacementName::Auto => "auto".to_owned(),
            PlacementName::WriteGuided => "write-guided".to_owned(),
        }
    }

    /// The policy, on a fast tier that writes so many bytes a second.
    pub(super) fn policy(self, fast_bytes_per_second: u64) -> Box<dyn Placement> {
        match self {
            PlacementName::Basic(levels) => Box::new(Basic { levels }),
            PlacementName::Auto => Box::new(Auto::new(fast_bytes_per_second)),
            PlacementName::WriteGuided => Box::new(WriteGuided),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_policy_puts_a_table_where_no_zone_is_empty() {
        let full = PlacementView { fast_zones: 20, reserved_zones: 2, log_zones: 2, ..PlacementView::default() };
        for name in PlacementName::ALL {
            let policy = name.policy(1000);
            for level in [None, Some(0), Some(1), Some(7), Some(254)] {
                for is_flush in [false, true] {
                    assert_eq!(policy.place(&full, NewTable { level, is_flush }), Tier::Slow, "{name:?}");
                }
            }
        }
    }

    #[test]
    fn tables_leave_the_zones_that_logs_and_cache_do_not_have_yet() {
        let view = |empty_zones, log_zones, cache_zones| {
            let view = PlacementView { fast_zones: 20, reserved_zones: 2, ..PlacementView::default() };
            PlacementView { empty_zones, log_zones, cache_zones, ..view }.empty_table_zones()
        };
        assert_eq!([view(20, 0, 0), view(2, 0, 0), view(2, 1, 0), view(1, 1, 1), view(3, 4, 0)], [18, 0, 1, 1, 3]);
    }
}
