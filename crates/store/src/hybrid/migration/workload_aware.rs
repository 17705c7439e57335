//! HHZS' workload-aware migration (section 3.4): what a low level needs is freed, and what is read is brought near.

use super::{Migration, MigrationView, Move, SlowLoad, TableView};
use crate::hybrid::levels::{LevelZones, Tier};
use crate::hybrid::placement::{PlacementView, Tiering};

/// Capacity migration, then popularity migration.
#[derive(Clone, Copy, Debug)]
pub(in crate::hybrid) struct WorkloadAware;

impl Migration for WorkloadAware {
    fn may_move(&self, view: &PlacementView, tiering: Tiering, load: SlowLoad) -> bool {
        let has_surplus = |(level, zones): (usize, &LevelZones)| match level.cmp(&tiering.level) {
            std::cmp::Ordering::Less => false,
            // What is coming may be there already.
            std::cmp::Ordering::Equal => zones.fast + zones.demand > tiering.zones,
            std::cmp::Ordering::Greater => zones.fast > 0,
        };
        load == SlowLoad::Reads || view.levels.iter().enumerate().any(has_surplus)
    }

    fn plan(&self, view: &MigrationView<'_>) -> Option<Move> {
        capacity(view).or_else(|| popularity(view))
    }
}

pub(super) fn lowest<'a>(tables: impl Iterator<Item = &'a TableView>) -> Option<&'a TableView> {
    tables.reduce(|lowest, table| if lowest.precedes(table) { table } else { lowest })
}

pub(super) fn highest<'a>(tables: impl Iterator<Item = &'a TableView>) -> Option<&'a TableView> {
    tables.reduce(|highest, table| if table.precedes(highest) { table } else { highest })
}

pub(super) fn movable<'a>(view: &MigrationView<'a>, tier: Tier) -> impl Iterator<Item = &'a TableView> + use<'a> {
    view.tables.iter().filter(move |table| table.is_movable && table.tier == tier)
}

fn fast_zones(view: &MigrationView<'_>, level: usize) -> u64 {
    let there = view.tables.iter().filter(|table| table.tier == Tier::Fast && table.level == level);
    there.map(|table| table.zones).sum()
}

/// The tiering level has more than its share of the fast tier, or a level above it has any.
pub(super) fn capacity(view: &MigrationView<'_>) -> Option<Move> {
    let tiering = view.tiering.level;
    let has_too_much = fast_zones(view, tiering) > view.tiering.zones;
    // What has no reason to go stays, though it be the lowest of those that may.
    let surplus = |table: &&TableView| table.level > tiering || (has_too_much && table.level == tiering);
    lowest(movable(view, Tier::Fast).filter(surplus)).map(|table| Move::Down { file: table.file })
}

/// Whether a table may take an empty zone: it is of a level that has a share of them left, and lower ones leave one.
pub(super) fn has_place(view: &MigrationView<'_>, up: &TableView) -> bool {
    let tiering = view.tiering;
    let has_share = up.level < tiering.level || fast_zones(view, up.level) + up.zones <= tiering.zones;
    has_share && view.empty_table_zones >= up.zones && view.empty_table_zones > tiering.lower_demand
}

/// The slow tier is what reads wait for: its highest priority comes up.
fn popularity(view: &MigrationView<'_>) -> Option<Move> {
    if view.load != SlowLoad::Reads {
        return None;
    }
    // What does not belong on the fast tier would have to go down again.
    let tiering = view.tiering;
    let up = highest(movable(view, Tier::Slow).filter(|table| table.level <= tiering.level))?;
    if has_place(view, up) {
        return Some(Move::Up { file: up.file });
    }
    let down = lowest(movable(view, Tier::Fast)).filter(|down| up.precedes(down) && up.zones <= down.zones)?;
    Some(Move::Swap { up: up.file, down: down.file })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hybrid::levels::LEVELS;
    use crate::hybrid::migration::Amortized;
    use varve_env::Random;

    fn table(file: u64, level: usize, tier: Tier, reads: u64) -> TableView {
        TableView { file, level, tier, zones: 1, reads, age_nanos: 1_000_000_000, is_movable: true }
    }

    fn plan(
        tables: &[TableView],
        (level, zones, lower_demand): (usize, u64, u64),
        empty: u64,
        load: SlowLoad,
    ) -> Option<Move> {
        let tiering = Tiering { level, zones, lower_demand };
        WorkloadAware.plan(&MigrationView { tables, tiering, empty_table_zones: empty, load, reads_of_zone: 10 })
    }

    #[test]
    fn what_a_low_level_needs_is_freed() {
        let tables = [table(1, 1, Tier::Fast, 0), table(2, 3, Tier::Fast, 9), table(3, 3, Tier::Fast, 4)];
        assert_eq!(plan(&tables, (3, 2, 0), 0, SlowLoad::Idle), None);
        assert_eq!(plan(&tables, (3, 1, 0), 0, SlowLoad::Idle), Some(Move::Down { file: 3 }));
        // A level above the tiering level goes first, whatever is read of it.
        let with_higher = [tables.as_slice(), &[table(4, 4, Tier::Fast, 100)]].concat();
        assert_eq!(plan(&with_higher, (3, 1, 0), 0, SlowLoad::Idle), Some(Move::Down { file: 4 }));
        assert_eq!(plan(&with_higher, (3, 9, 0), 0, SlowLoad::Idle), Some(Move::Down { file: 4 }));
        // Inputs of compactions stay.
        let inputs = tables.map(|table| TableView { is_movable: table.file != 3, ..table });
        assert_eq!(plan(&inputs, (3, 1, 0), 0, SlowLoad::Idle), Some(Move::Down { file: 2 }));
    }

    #[test]
    fn what_is_read_comes_up_when_the_slow_tier_is_what_reads_wait_for() {
        let tables = [table(1, 3, Tier::Slow, 50), table(2, 3, Tier::Slow, 70), table(3, 3, Tier::Fast, 60)];
        assert_eq!(plan(&tables, (3, 5, 0), 3, SlowLoad::Some), None);
        assert_eq!(plan(&tables, (3, 5, 0), 3, SlowLoad::Reads), Some(Move::Up { file: 2 }));
        // Zones for what lower levels are about to have are left to them.
        assert_eq!(plan(&tables, (3, 5, 3), 3, SlowLoad::Reads), Some(Move::Swap { up: 2, down: 3 }));
        assert_eq!(plan(&tables, (3, 1, 0), 3, SlowLoad::Reads), Some(Move::Swap { up: 2, down: 3 }));
        assert_eq!(plan(&tables[..1], (3, 0, 0), 0, SlowLoad::Reads), None);
        // A low level first, and never one above the tiering level.
        let low = [tables.as_slice(), &[table(4, 1, Tier::Slow, 0)]].concat();
        assert_eq!(plan(&low, (3, 5, 0), 3, SlowLoad::Reads), Some(Move::Up { file: 4 }));
        assert_eq!(plan(&tables, (2, 0, 0), 3, SlowLoad::Reads), Some(Move::Down { file: 3 }));
        assert_eq!(plan(&tables[..2], (2, 0, 0), 3, SlowLoad::Reads), None);
    }

    /// With the same reads nothing moves for ever: each table goes one way at most before all is quiet.
    #[test]
    fn there_is_no_ping_pong() {
        let policies: [(&dyn Migration, SlowLoad); 3] =
            [(&WorkloadAware, SlowLoad::Reads), (&Amortized, SlowLoad::Reads), (&Amortized, SlowLoad::Idle)];
        for (seed, (policy, load)) in (0..300).flat_map(|seed| policies.map(|policy| (seed, policy))) {
            let mut random = Random::seeded(seed);
            let (fast_zones, reserved_zones) = (4 + random.below(20), random.below(3));
            let mut tables: Vec<TableView> = (0..10 + random.below(60))
                .map(|file| TableView {
                    reads: random.below(50),
                    zones: 1 + u64::from(random.chance(1, 8)),
                    is_movable: random.chance(7, 8),
                    ..table(file, random.index(5), Tier::Slow, 0)
                })
                .collect();
            let mut left = fast_zones - reserved_zones;
            for table in &mut tables {
                if random.chance(1, 2) && table.zones <= left {
                    table.tier = Tier::Fast;
                    left -= table.zones;
                }
            }
            let demand: Vec<u64> = (0..LEVELS).map(|_| if random.chance(1, 4) { random.below(4) } else { 0 }).collect();
            let mut moves = 0;
            loop {
                let used: u64 = tables.iter().filter(|table| table.tier == Tier::Fast).map(|table| table.zones).sum();
                let mut seen = PlacementView {
                    fast_zones,
                    reserved_zones,
                    empty_zones: fast_zones - used,
                    ..PlacementView::default()
                };
                for table in &tables {
                    let LevelZones { fast, slow, .. } = &mut seen.levels[table.level];
                    *if table.tier == Tier::Fast { fast } else { slow } += table.zones;
                }
                seen.levels.iter_mut().zip(&demand).for_each(|(level, demand)| level.demand = *demand);
                let view = MigrationView {
                    tables: &tables,
                    tiering: Tiering::of(&seen),
                    empty_table_zones: seen.empty_table_zones(),
                    load,
                    reads_of_zone: 10,
                };
                // What needs no reads can be told from counts.
                let at_rest = MigrationView { load: SlowLoad::Some, ..view.clone() };
                if policy.plan(&at_rest).is_some() {
                    assert!(policy.may_move(&seen, view.tiering, SlowLoad::Some), "seed {seed}: {seen:?}");
                }
                let Some(next) = policy.plan(&view) else { break };
                assert!(policy.may_move(&seen, view.tiering, load), "seed {seed}, {load:?}: {seen:?}");
                let mut send = |file: u64, tier| {
                    let table = tables.iter_mut().find(|table| table.file == file).expect("a table that is there");
                    assert!(table.is_movable && table.tier != tier, "seed {seed}");
                    table.tier = tier;
                };
                match next {
                    Move::Down { file } => send(file, Tier::Slow),
                    Move::Up { file } => send(file, Tier::Fast),
                    Move::Swap { up, down } => {
                        send(down, Tier::Slow);
                        send(up, Tier::Fast);
                    }
                }
                moves += 1;
                assert!(moves <= 2 * tables.len(), "seed {seed}: tables go to and fro");
                let used: u64 = tables.iter().filter(|table| table.tier == Tier::Fast).map(|table| table.zones).sum();
                assert!(used <= fast_zones, "seed {seed}: more than there are zones");
            }
        }
    }
}
