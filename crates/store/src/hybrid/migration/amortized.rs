//! Tables come up once they would have paid for it: moving one keeps the slow tier from reads, which wait, and what it saves
//! comes later, if the table is still there and still read. Whoever moves when as much was lost as moving costs never loses more
//! than twice what one who knew the reads beforehand would (as for who may rent or buy).

use super::workload_aware::{capacity, has_place, highest, lowest, movable};
use super::{Migration, MigrationView, Move, SlowLoad, TableView, WorkloadAware};
use crate::hybrid::levels::{LEVELS, Tier};
use crate::hybrid::placement::{PlacementView, Tiering};

/// Capacity migration as HHZS has it, then popularity migration of what paid for it.
#[derive(Clone, Copy, Debug)]
pub(in crate::hybrid) struct Amortized;

impl Migration for Amortized {
    fn may_move(&self, view: &PlacementView, tiering: Tiering, load: SlowLoad) -> bool {
        let is_low = |level: usize| level < tiering.level && view.levels[level].slow > 0;
        WorkloadAware.may_move(view, tiering, load) || load == SlowLoad::Idle && (0..LEVELS).any(is_low)
    }

    fn plan(&self, view: &MigrationView<'_>) -> Option<Move> {
        capacity(view).or_else(|| idle(view)).or_else(|| popularity(view))
    }
}

/// While nobody is in the way, what belongs on the fast tier by its level comes up: it costs nobody anything.
fn idle(view: &MigrationView<'_>) -> Option<Move> {
    if view.load != SlowLoad::Idle || view.empty_table_zones <= view.tiering.lower_demand {
        return None;
    }
    let low = movable(view, Tier::Slow).filter(|table| table.level < view.tiering.level);
    let up = highest(low.filter(|table| table.zones <= view.empty_table_zones - view.tiering.lower_demand))?;
    Some(Move::Up { file: up.file })
}

fn popularity(view: &MigrationView<'_>) -> Option<Move> {
    if view.load != SlowLoad::Reads {
        return None;
    }
    let cost = |table: &TableView| table.zones.saturating_mul(view.reads_of_zone);
    let has_paid = |table: &&TableView| table.level <= view.tiering.level && table.reads >= cost(table);
    let up = highest(movable(view, Tier::Slow).filter(has_paid))?;
    if has_place(view, up) {
        return Some(Move::Up { file: up.file });
    }
    let down = lowest(movable(view, Tier::Fast)).filter(|down| up.precedes(down) && up.zones <= down.zones)?;
    // What the other one will be read on the slow tier is lost again.
    let lost = (down.read_rate().saturating_mul(u128::from(up.age_nanos)) / 1_000_000_000) >> 20;
    let gained = u128::from(up.reads).saturating_sub(lost);
    (gained >= u128::from(cost(up).saturating_add(cost(down)))).then_some(Move::Swap { up: up.file, down: down.file })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(file: u64, level: usize, tier: Tier, reads: u64) -> TableView {
        TableView { file, level, tier, zones: 1, reads, age_nanos: 1_000_000_000, is_movable: true }
    }

    fn plan(tables: &[TableView], empty_table_zones: u64) -> Option<Move> {
        plan_under(tables, empty_table_zones, SlowLoad::Reads)
    }

    fn plan_under(tables: &[TableView], empty_table_zones: u64, load: SlowLoad) -> Option<Move> {
        let tiering = Tiering { level: 3, zones: 5, lower_demand: 0 };
        let view = MigrationView { tables, tiering, empty_table_zones, load, reads_of_zone: 50 };
        let mut seen = PlacementView::default();
        tables.iter().filter(|table| table.tier == Tier::Slow).for_each(|table| seen.levels[table.level].slow += 1);
        let plan = Amortized.plan(&view);
        assert!(plan.is_none() || Amortized.may_move(&seen, tiering, load) || matches!(plan, Some(Move::Down { .. })));
        plan
    }

    #[test]
    fn low_levels_come_up_while_nothing_else_is_done() {
        let tables = [table(1, 2, Tier::Slow, 0), table(2, 1, Tier::Slow, 0), table(3, 3, Tier::Slow, 900)];
        assert_eq!(plan_under(&tables, 1, SlowLoad::Idle), Some(Move::Up { file: 2 }));
        assert_eq!(plan_under(&tables, 0, SlowLoad::Idle), None, "no zone is empty");
        assert_eq!(plan_under(&tables, 1, SlowLoad::Some), None);
        assert_eq!(plan_under(&tables[2..], 1, SlowLoad::Idle), None, "it has no place there by its level");
    }

    #[test]
    fn a_table_comes_up_when_its_reads_paid_for_it() {
        assert_eq!(plan(&[table(1, 3, Tier::Slow, 49)], 2), None);
        assert_eq!(plan(&[table(1, 3, Tier::Slow, 50)], 2), Some(Move::Up { file: 1 }));
        let large = TableView { zones: 2, ..table(1, 3, Tier::Slow, 99) };
        assert_eq!(plan(&[large], 2), None);
        assert_eq!(plan(&[TableView { reads: 100, ..large }], 2), Some(Move::Up { file: 1 }));
        // Of a low level too: a compaction may be about to take it.
        assert_eq!(plan(&[table(1, 1, Tier::Slow, 49), table(2, 3, Tier::Slow, 70)], 2), Some(Move::Up { file: 2 }));
    }

    #[test]
    fn one_takes_the_place_of_another_when_the_difference_paid_for_both() {
        let there = table(2, 3, Tier::Fast, 60);
        assert_eq!(plan(&[table(1, 3, Tier::Slow, 159), there], 0), None);
        assert_eq!(plan(&[table(1, 3, Tier::Slow, 160), there], 0), Some(Move::Swap { up: 1, down: 2 }));
        // Those that are read alike stay where they are, however long.
        let long = |table: TableView| TableView { age_nanos: 1 << 50, ..table };
        assert_eq!(
            plan(&[long(table(1, 3, Tier::Slow, 1_000_040)), long(table(2, 3, Tier::Fast, 1_000_000))], 0),
            None
        );
    }

    #[test]
    fn what_a_low_level_needs_is_freed_at_once() {
        let tables: Vec<TableView> = (0..6).map(|file| table(file, 3, Tier::Fast, 9 - file)).collect();
        assert_eq!(plan(&tables, 0), Some(Move::Down { file: 5 }));
    }
}
