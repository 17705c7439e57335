//! Properties that follow from statistics, by name, and what they say to people.

use super::{Statistics, WriteState, ZoneStatistics};
use std::fmt::Write;

impl Statistics {
    /// A property by name; `None` when it has no such property, or is of a tree that has none. See [`crate::Db::property`].
    pub(crate) fn property(&self, name: &str) -> Option<String> {
        let name = name.strip_prefix("varve.")?;
        if let Some(level) = name.strip_prefix("num-files-at-level") {
            let level: usize = level.parse().ok()?;
            return self.levels().get(level).map(|level| level.tables.to_string());
        }
        match (name, &self.tables) {
            ("cur-size-all-mem-tables", _) => Some(self.memtable_bytes.to_string()),
            ("num-snapshots", _) => Some(self.snapshots.to_string()),
            ("write-state", _) => Some(write_state_text(self)),
            ("stats", _) => Some(statistics_text(self)),
            ("total-table-bytes", Some(_)) => Some(self.table_bytes().to_string()),
            ("table-space-bytes", Some(_)) => Some(self.table_space_bytes().to_string()),
            ("zones", _) => self.space.as_ref().and_then(|space| space.zones).map(|zones| zones_text(&zones)),
            ("num-immutable-mem-table", Some(tables)) => Some(tables.immutable_memtables.to_string()),
            ("block-cache-usage", Some(tables)) => Some(tables.block_cache_bytes.to_string()),
            ("estimate-pending-compaction-bytes", Some(tables)) => Some(tables.pending_compaction_bytes.to_string()),
            ("levels", Some(_)) => Some(levels_text(self)),
            _ => None,
        }
    }
}

/// How many zones are free, and how many tables take: for people.
fn zones_text(zones: &ZoneStatistics) -> String {
    let ZoneStatistics { zone_bytes, total, free, kept, table_zones_bytes, is_shared } = zones;
    let sharing = if *is_shared { "several tables may share one" } else { "each table takes whole ones" };
    format!(
        "{free} of {total} zones of {zone_bytes} bytes free, {kept} kept for logs and compactions; {sharing}; \
         {table_zones_bytes} bytes of zones hold tables"
    )
}

/// Which writes are taken, and why: for people.
fn write_state_text(statistics: &Statistics) -> String {
    let mut text = statistics.write_state.advice().to_owned();
    if let (WriteState::DeletesOnly | WriteState::Full, Some(space)) = (statistics.write_state, &statistics.space) {
        let (puts, deletes) = (space.left_by_puts_bytes, space.left_by_deletes_bytes);
        let _ = write!(
            text,
            " ({} bytes are available; puts leave {puts}, deletes {deletes}, and compactions have {} more; \
             those that run take up to {})",
            space.available_bytes, space.reserve_bytes, space.compactions_reserved_bytes
        );
        if let Some(zones) = &space.zones {
            let _ = write!(text, "; {}", zones_text(zones));
        }
    }
    text
}

fn levels_text(statistics: &Statistics) -> String {
    let mut text = String::from("level  tables          bytes        entries      deletions\n");
    for level in statistics.levels() {
        let _ = writeln!(
            text,
            "{:>5}  {:>6}  {:>13}  {:>13}  {:>13}",
            level.level, level.tables, level.bytes, level.entries, level.deletions
        );
    }
    text
}

fn statistics_text(statistics: &Statistics) -> String {
    let counters = &statistics.counters;
    let mut text = statistics.tables.as_ref().map_or_else(String::new, |_| levels_text(statistics));
    let _ = writeln!(text, "user bytes written      {}", counters.user_written_bytes);
    let _ = writeln!(text, "log bytes               {}", counters.log_bytes);
    let _ = writeln!(text, "flushes                 {} ({} bytes)", counters.flushes, counters.flush_written_bytes);
    let _ = writeln!(
        text,
        "compactions             {} ({} bytes read, {} bytes written), {} moves",
        counters.compactions, counters.compaction_read_bytes, counters.compaction_written_bytes, counters.trivial_moves
    );
    let _ = writeln!(text, "write amplification     {:.2}", statistics.write_amplification());
    let _ = writeln!(text, "stalls                  {} ({} ms)", counters.stalls, counters.stall_nanos / 1_000_000);
    let _ = writeln!(text, "writes out of space     {}", counters.writes_out_of_space);
    let _ = writeln!(text, "writes now              {}", write_state_text(statistics));
    if let Some(zones) = statistics.space.as_ref().and_then(|space| space.zones) {
        let _ = writeln!(text, "zones                   {}", zones_text(&zones));
    }
    if let Some(tables) = &statistics.tables {
        let (bytes, blocks_in, out) =
            (tables.block_cache_bytes, tables.block_cache_insertions, tables.block_cache_evictions);
        let _ = writeln!(text, "block cache             {bytes} bytes, {blocks_in} blocks in, {out} out");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{LevelStatistics, SpaceStatistics, TableStatistics};

    #[test]
    fn a_tree_without_tables_has_what_any_tree_has() {
        let any = Statistics { memtable_bytes: 10, snapshots: 2, ..Statistics::default() };
        let levels = vec![LevelStatistics { tables: 3, bytes: 30, ..LevelStatistics::default() }];
        let tables = Some(TableStatistics { levels, ..TableStatistics::default() });
        let of_tables = Statistics { tables, ..any.clone() };
        for (name, value) in [("cur-size-all-mem-tables", "10"), ("num-snapshots", "2")] {
            let name = format!("varve.{name}");
            assert_eq!(
                (any.property(&name).as_deref(), of_tables.property(&name).as_deref()),
                (Some(value), Some(value))
            );
        }
        assert_eq!(any.property("varve.write-state").as_deref(), Some("taken as fast as they come"));
        let text = |statistics: &Statistics| statistics.property("varve.stats").expect("of any tree");
        assert!(text(&any).starts_with("user bytes written") && text(&of_tables).starts_with("level"));
        for (name, value) in [("total-table-bytes", "30"), ("num-files-at-level0", "3"), ("block-cache-usage", "0")] {
            let name = format!("varve.{name}");
            assert_eq!((any.property(&name), of_tables.property(&name).as_deref()), (None, Some(value)));
        }
        assert_eq!((any.property("varve.zones"), of_tables.property("varve.zones")), (None, None));
        for (is_shared, space_bytes) in [(false, "128"), (true, "30")] {
            let zones =
                ZoneStatistics { zone_bytes: 64, total: 9, free: 6, kept: 2, table_zones_bytes: 128, is_shared };
            let space = SpaceStatistics { zones: Some(zones), ..SpaceStatistics::default() };
            let zoned = Statistics { space: Some(space), write_state: WriteState::DeletesOnly, ..of_tables.clone() };
            assert_eq!(zoned.property("varve.table-space-bytes").as_deref(), Some(space_bytes));
            for name in ["varve.zones", "varve.write-state", "varve.stats"] {
                let text = zoned.property(name).expect("of any tree");
                assert!(text.contains("6 of 9 zones of 64 bytes free, 2 kept"), "{name}: {text}");
            }
        }
        for name in ["varve.levels", "varve.num-files-at-level1", "varve.nothing", "num-snapshots"] {
            assert_eq!(any.property(name), None, "{name}");
        }
    }
}
