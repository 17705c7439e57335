//! What the totals of a database say, held against the tables that are there.

use varve_engine::{Db, Totals};

/// Readings between which a background job may change something.
const READINGS_MAX: u32 = 1000;

/// The totals, once it is sure that they are those of the tables there: what flushes and compactions wrote less what
/// compactions replaced, to the byte; and that each entry was flushed once, if none waits. Nothing was written since the
/// database was opened, and it was neither made by a checkpoint nor salvaged.
pub(crate) fn verify_totals(db: &Db) -> Result<Totals, String> {
    for _ in 0..READINGS_MAX {
        let is_flushed = db.statistics().tables.is_none_or(|tables| tables.immutable_memtables == 0);
        let totals = db.totals().ok_or("the totals are not known")?;
        let Some(tables) = db.property("varve.tables") else {
            // A tree that has none.
            return if totals == Totals::default() { Ok(totals) } else { Err(format!("without tables: {totals:?}")) };
        };
        if db.totals() != Some(totals) {
            continue;
        }
        let bytes = |line: &str| line.split(' ').nth(2).and_then(|bytes| bytes.parse::<u64>().ok());
        let bytes: Vec<u64> = tables.lines().filter_map(bytes).collect();
        let left = |flushed: u64, written: u64, read: u64| (flushed + written).checked_sub(read);
        let Totals { flush_written_tables, compaction_written_tables, compaction_read_tables, .. } = totals;
        let tables = left(flush_written_tables, compaction_written_tables, compaction_read_tables);
        let Totals { flush_written_bytes, compaction_written_bytes, compaction_read_bytes, .. } = totals;
        let table_bytes = left(flush_written_bytes, compaction_written_bytes, compaction_read_bytes);
        if (tables, table_bytes) != (Some(bytes.len() as u64), Some(bytes.iter().sum())) {
            return Err(format!("there are tables of {bytes:?} bytes, and the totals are {totals:?}"));
        }
        let (flushed, written) = (totals.flush_user_entries, db.statistics().last_sequence);
        if flushed > written || (is_flushed && flushed < written) {
            return Err(format!("of {written} entries {flushed} were flushed: {totals:?}"));
        }
        return Ok(totals);
    }
    Err("the totals never stay".to_owned())
}
