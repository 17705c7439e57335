//! What the store counts.

use super::rewrite::PersistCost;
use crate::occupancy::StoreMeasure;

/// Levels told apart: 0 to 6, and all above.
const LEVELS: usize = 8;

const TABLES_OF_LEVEL: [&str; LEVELS] = [
    "tables of level 0",
    "tables of level 1",
    "tables of level 2",
    "tables of level 3",
    "tables of level 4",
    "tables of level 5",
    "tables of level 6",
    "tables of level 7 and above",
];
const BYTES_OF_LEVEL: [&str; LEVELS] = [
    "bytes of level 0",
    "bytes of level 1",
    "bytes of level 2",
    "bytes of level 3",
    "bytes of level 4",
    "bytes of level 5",
    "bytes of level 6",
    "bytes of level 7 and above",
];
const REWRITES_OF_LEVEL: [&str; LEVELS] = [
    "rewrites of level 0",
    "rewrites of level 1",
    "rewrites of level 2",
    "rewrites of level 3",
    "rewrites of level 4",
    "rewrites of level 5",
    "rewrites of level 6",
    "rewrites of level 7 and above",
];

/// What a store did since it was opened. Monotonic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImrStatistics {
    /// Tops restored after a bottom beside them was written.
    pub rewrites: u64,
    /// Syncs of the disk made to persist tables; commits of the S2TMap are not among them.
    pub syncs: u64,
    /// Tables persisted.
    pub tables: u64,
    /// Tables whose persisting needed more than one sync.
    pub tables_of_many_syncs: u64,
    /// Tables whose persisting restored a top.
    pub tables_with_rewrites: u64,
    /// Bytes of the tables.
    pub bytes: u64,
    /// Bytes of them that went to bottoms.
    pub bottom_bytes: u64,
    /// Time persisting took, waiting for tracks excluded.
    pub persist_nanos: u64,
    /// Part of it spent on saving and restoring tops, syncs included.
    pub rewrite_nanos: u64,
    /// Time persists waited for tracks that others had locked, or for space.
    pub wait_nanos: u64,
    /// Commits of the S2TMap.
    pub commits: u64,
    /// Bytes of them, without what fills their sectors.
    pub commit_bytes: u64,
    /// Checkpoints of the S2TMap made in place of a commit.
    pub checkpoints: u64,
    /// Tops restored when the store was opened, after a power cut.
    pub restored_at_open: u64,
    /// Persisted tables of each level: 0 to 6, and all above.
    pub level_tables: [u64; LEVELS],
    /// Their bytes.
    pub level_bytes: [u64; LEVELS],
    /// Tops restored for them.
    pub level_rewrites: [u64; LEVELS],
}

impl ImrStatistics {
    /// Counts a table that was persisted.
    pub(super) fn note_table(&mut self, level: Option<u8>, bytes: u64, bottom_bytes: u64, cost: PersistCost) {
        self.rewrites += cost.rewrites;
        self.syncs += cost.syncs;
        self.tables += 1;
        self.tables_of_many_syncs += u64::from(cost.syncs > 1);
        self.tables_with_rewrites += u64::from(cost.rewrites > 0);
        self.bytes += bytes;
        self.bottom_bytes += bottom_bytes;
        if let Some(level) = level {
            let index = usize::from(level).min(LEVELS - 1);
            self.level_tables[index] += 1;
            self.level_bytes[index] += bytes;
            self.level_rewrites[index] += cost.rewrites;
        }
    }

    /// As every store says it: totals, then those of each level, in the same order always.
    pub(super) fn measures(&self) -> Vec<StoreMeasure> {
        let mut measures = vec![
            StoreMeasure::count("rewrites", self.rewrites),
            StoreMeasure::count("syncs", self.syncs),
            StoreMeasure::count("tables", self.tables),
            StoreMeasure::count("tables of many syncs", self.tables_of_many_syncs),
            StoreMeasure::count("tables with rewrites", self.tables_with_rewrites),
            StoreMeasure::bytes("bytes", self.bytes),
            StoreMeasure::bytes("bottom bytes", self.bottom_bytes),
            StoreMeasure::nanos("persist time", self.persist_nanos),
            StoreMeasure::nanos("rewrite time", self.rewrite_nanos),
            StoreMeasure::nanos("wait time", self.wait_nanos),
            StoreMeasure::count("commits", self.commits),
            StoreMeasure::bytes("commit bytes", self.commit_bytes),
            StoreMeasure::count("checkpoints", self.checkpoints),
            StoreMeasure::count("restored at open", self.restored_at_open),
        ];
        for level in 0..LEVELS {
            measures.extend([
                StoreMeasure::count(TABLES_OF_LEVEL[level], self.level_tables[level]),
                StoreMeasure::bytes(BYTES_OF_LEVEL[level], self.level_bytes[level]),
                StoreMeasure::count(REWRITES_OF_LEVEL[level], self.level_rewrites[level]),
            ]);
        }
        measures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_number_has_a_name_of_its_own() {
        let mut statistics = ImrStatistics::default();
        statistics.note_table(Some(9), 100, 60, PersistCost { rewrites: 3, syncs: 5 });
        statistics.note_table(None, 10, 0, PersistCost { rewrites: 0, syncs: 1 });
        let measures = statistics.measures();
        let names: BTreeSet<&str> = measures.iter().map(|measure| measure.name).collect();
        assert_eq!(names.len(), measures.len());
        let value = |name: &str| measures.iter().find(|measure| measure.name == name).unwrap().value;
        let found = ["rewrites", "syncs", "tables", "tables of many syncs", "bytes", "bottom bytes"].map(value);
        assert_eq!(found, [3, 6, 2, 1, 110, 60]);
        assert_eq!(value("tables of level 7 and above"), 1);
        assert_eq!(value("rewrites of level 7 and above"), 3);
    }
}
