//! SpanDB's automated placement, as the HHZS paper builds it (section 4.1, "Schemes"): the highest level that goes to the
//! fast tier follows what that tier is doing.

use super::{NewTable, Placement, PlacementView, Tiering};
use crate::hybrid::levels::{Tier, row};
use std::sync::atomic::{AtomicI32, Ordering};

/// Below this share of the sequential write rate, in percent, one level more goes to the fast tier.
const IDLE_PERCENT: u64 = 40;
/// Above this one, one level less.
const BUSY_PERCENT: u64 = 65;
/// With less space than this share, in tenths of a percent, only the first two levels do.
const SCARCE_PERMILLE: u64 = 133;
/// With less than this one no table does.
const EXHAUSTED_PERMILLE: u64 = 80;
const LEVEL_MAX: i32 = 4;
const LEVEL_MIN: i32 = -1;

/// The highest level that goes to the fast tier, or -1.
#[derive(Debug)]
pub(in crate::hybrid) struct Auto {
    fast_bytes_per_second: u64,
    max_level: AtomicI32,
}

impl Auto {
    pub(in crate::hybrid) fn new(fast_bytes_per_second: u64) -> Auto {
        Auto { fast_bytes_per_second, max_level: AtomicI32::new(1) }
    }

    /// The highest level with this much space left.
    fn max_level(&self, view: &PlacementView) -> i32 {
        let permille = (view.empty_zones * 1000).checked_div(view.fast_zones).unwrap_or(0);
        if permille < EXHAUSTED_PERMILLE {
            LEVEL_MIN
        } else if permille < SCARCE_PERMILLE {
            1
        } else {
            self.max_level.load(Ordering::Relaxed)
        }
    }
}

impl Placement for Auto {
    fn reserves(&self) -> bool {
        true
    }

    fn place(&self, view: &PlacementView, table: NewTable) -> Tier {
        let level = if table.is_flush { usize::from(table.level.unwrap_or(0)) } else { row(table.level) };
        match level as i32 <= self.max_level(view) && view.empty_table_zones() > 0 {
            true => Tier::Fast,
            false => Tier::Slow,
        }
    }

    fn tiering(&self, view: &PlacementView) -> Tiering {
        let level = (self.max_level(view) + 1) as usize;
        Tiering { level, zones: 0, lower_demand: Tiering::demand_below(view, level) }
    }

    fn interval_ended(&self, bytes_per_second: u64) {
        let busy = bytes_per_second.saturating_mul(100);
        let level = self.max_level.load(Ordering::Relaxed);
        let next = if busy < self.fast_bytes_per_second.saturating_mul(IDLE_PERCENT) {
            level + 1
        } else if busy > self.fast_bytes_per_second.saturating_mul(BUSY_PERCENT) {
            level - 1
        } else {
            level
        };
        self.max_level.store(next.clamp(LEVEL_MIN, LEVEL_MAX), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_level_follows_what_the_tier_does_and_what_is_left() {
        let auto = Auto::new(1000);
        let view = |empty_zones| PlacementView { fast_zones: 1000, empty_zones, ..PlacementView::default() };
        let highest = |empty_zones| auto.max_level(&view(empty_zones));
        assert_eq!(highest(500), 1);
        auto.interval_ended(399);
        assert_eq!([highest(500), highest(133), highest(132), highest(80), highest(79)], [2, 2, 1, 1, -1]);
        [400, 650].into_iter().for_each(|rate| auto.interval_ended(rate));
        assert_eq!(highest(500), 2);
        (0..9).for_each(|_| auto.interval_ended(651));
        assert_eq!(highest(500), -1);
        let place = |level| auto.place(&view(500), NewTable { level, is_flush: level.is_none() });
        assert_eq!([place(Some(0)), place(None)], [Tier::Slow, Tier::Slow]);
        (0..9).for_each(|_| auto.interval_ended(0));
        assert_eq!(highest(500), 4);
        assert_eq!([place(Some(4)), place(Some(5)), place(None)], [Tier::Fast, Tier::Slow, Tier::Fast]);
    }
}
