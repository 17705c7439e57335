//! B_h (HHZS, section 2.3): low levels go to the fast tier while it has space; nothing is reserved.

use super::{NewTable, Placement, PlacementView, Tiering};
use crate::hybrid::levels::{Tier, row};

/// Tables of levels below `levels` to the fast tier.
#[derive(Clone, Copy, Debug)]
pub(in crate::hybrid) struct Basic {
    pub(in crate::hybrid) levels: u8,
}

impl Placement for Basic {
    fn reserves(&self) -> bool {
        false
    }

    fn place(&self, view: &PlacementView, table: NewTable) -> Tier {
        // A flush makes a table of level 0, whether it says so or not.
        let level = if table.is_flush { table.level.unwrap_or(0) } else { row(table.level) as u8 };
        match level < self.levels && view.empty_table_zones() > 0 {
            true => Tier::Fast,
            false => Tier::Slow,
        }
    }

    fn tiering(&self, view: &PlacementView) -> Tiering {
        // Levels below it may all be there; none of the level itself.
        Tiering {
            level: usize::from(self.levels),
            zones: 0,
            lower_demand: Tiering::demand_below(view, self.levels.into()),
        }
    }

    fn interval_ended(&self, _bytes_per_second: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_below_the_threshold_go_to_the_fast_tier() {
        let view = PlacementView { fast_zones: 20, empty_zones: 1, ..PlacementView::default() };
        let place = |levels, level, is_flush| Basic { levels }.place(&view, NewTable { level, is_flush });
        assert_eq!([place(3, Some(2), false), place(3, Some(3), false)], [Tier::Fast, Tier::Slow]);
        assert_eq!([place(1, None, true), place(4, None, false)], [Tier::Fast, Tier::Slow]);
        assert_eq!(place(1, Some(0), false), Tier::Fast);
    }
}
