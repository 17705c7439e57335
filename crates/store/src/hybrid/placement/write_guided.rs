//! HHZS' write-guided placement (section 3.3): zones of the fast tier are kept for low levels by what those have and are
//! about to have.

use super::{NewTable, Placement, PlacementView};
use crate::hybrid::levels::{LEVELS, Tier, row};

/// What reserves zones by level.
#[derive(Clone, Copy, Debug)]
pub(in crate::hybrid) struct WriteGuided;

/// The tiering level t, and what is left for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hybrid) struct Tiering {
    /// Tables of lower levels belong on the fast tier, those of higher ones on the slow one. Above every level when all
    /// fit.
    pub(in crate::hybrid) level: usize,
    /// Zones of the fast tier for tables of that level (R_t).
    pub(in crate::hybrid) zones: u64,
    /// Tables that lower levels are about to have.
    pub(in crate::hybrid) lower_demand: u64,
}

impl Tiering {
    /// Steps 2 and 3: levels have zones from the lowest on, all tables of each wherever they are, until one does not fit.
    pub(in crate::hybrid) fn of(view: &PlacementView) -> Tiering {
        let zones = view.table_zones();
        let mut below = 0;
        for (level, of_level) in view.levels.iter().enumerate() {
            let with = below + of_level.wanted();
            if with > zones {
                let lower_demand = Tiering::demand_below(view, level);
                return Tiering { level, zones: zones.saturating_sub(below), lower_demand };
            }
            below = with;
        }
        Tiering { level: LEVELS, zones: zones.saturating_sub(below), lower_demand: Tiering::demand_below(view, LEVELS) }
    }

    /// Tables that levels below one are about to have.
    pub(in crate::hybrid) fn demand_below(view: &PlacementView, level: usize) -> u64 {
        view.levels.iter().take(level).map(|of_level| of_level.demand).sum()
    }
}

impl Placement for WriteGuided {
    fn reserves(&self) -> bool {
        true
    }

    fn place(&self, view: &PlacementView, table: NewTable) -> Tier {
        let tiering = Tiering::of(view);
        let level = row(table.level);
        let belongs = table.is_flush
            || level < tiering.level
            || (level == tiering.level && view.levels[level].fast < tiering.zones);
        match belongs && view.empty_table_zones() > 0 {
            true => Tier::Fast,
            false => Tier::Slow,
        }
    }

    fn tiering(&self, view: &PlacementView) -> Tiering {
        Tiering::of(view)
    }

    fn interval_ended(&self, _bytes_per_second: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hybrid::levels::LevelZones;

    fn view(levels: &[(u64, u64, u64)]) -> PlacementView {
        let mut view = PlacementView { fast_zones: 20, reserved_zones: 2, empty_zones: 20, ..PlacementView::default() };
        for (row, (fast, slow, demand)) in view.levels.iter_mut().zip(levels) {
            *row = LevelZones { fast: *fast, slow: *slow, demand: *demand };
        }
        view
    }

    #[test]
    fn the_tiering_level_is_the_first_that_does_not_fit() {
        for (levels, expected) in [
            (&[(1, 0, 2), (3, 0, 0), (4, 0, 2), (2, 90, 5)][..], (3, 6)),
            // What of a low level lies on the slow tier counts as well: its place is kept.
            (&[(1, 0, 2), (3, 2, 0), (4, 3, 2), (2, 90, 5)][..], (3, 1)),
            (&[(1, 0, 2), (3, 9, 9)][..], (1, 15)),
            (&[(0, 30, 0)][..], (0, 18)),
            (&[(10, 0, 0), (8, 0, 0)][..], (LEVELS, 0)),
            (&[][..], (LEVELS, 18)),
        ] {
            let tiering = Tiering::of(&view(levels));
            assert_eq!((tiering.level, tiering.zones), expected, "{levels:?}");
        }
        // Of higher levels nothing is counted.
        let tiering = Tiering::of(&view(&[(1, 0, 2), (3, 0, 7), (9, 9, 9)]));
        assert_eq!((tiering.level, tiering.zones, tiering.lower_demand), (2, 5, 9));
    }

    #[test]
    fn flushes_and_low_levels_and_a_part_of_the_tiering_level_are_fast() {
        let seen = view(&[(1, 0, 2), (3, 0, 0), (4, 0, 2), (5, 90, 5)]);
        let place = |seen: &PlacementView, level, is_flush| WriteGuided.place(seen, NewTable { level, is_flush });
        assert_eq!(
            [Some(0), Some(2), Some(3), Some(4), None].map(|level| place(&seen, level, false)),
            [Tier::Fast, Tier::Fast, Tier::Fast, Tier::Slow, Tier::Slow]
        );
        let reached = view(&[(1, 0, 2), (3, 0, 0), (4, 0, 2), (6, 90, 5)]);
        assert_eq!(place(&reached, Some(3), false), Tier::Slow);
        assert_eq!(place(&reached, None, true), Tier::Fast);
        assert_eq!(place(&PlacementView { empty_zones: 2, ..reached }, Some(0), true), Tier::Slow);
    }
}
