//! `varve stats`

use crate::arguments::{Access, Database, Global};
use crate::console::Console;
use crate::failure::{Failure, Status};
use serde_json::json;
use varve::Varve;
use varve::spec::ByteSize;
use varve::statistics::Totals;

/// Show the shape of a database, and what was counted since this opening or since its creation
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve stats /tmp/db
  varve stats /tmp/db --json
  varve stats /tmp/db --since-creation
  varve stats /tmp/db --property varve.estimate-num-keys

The shape (levels, memtables, space) is that of now. Counters (block cache, store, devices) are held in memory and begin \
at zero with every opening, so here they tell what this opening took, not what was done to the database before.

What was flushed and compacted since it was created stands in the database: --since-creation shows that, exactly, after \
crashes too. Bytes that flushes read are those of keys and values; what is still in the logs counts when it is flushed. \
A checkpoint is a new database and begins at zero; only its sequence numbers go on.")]
pub(crate) struct Stats {
    #[command(flatten)]
    database: Database,
    /// Print this property and nothing else
    #[arg(long, value_name = "NAME")]
    property: Option<String>,
    /// Print what was flushed and compacted since the database was created, and nothing else
    #[arg(long, conflicts_with = "property")]
    since_creation: bool,
}

impl Stats {
    pub(crate) fn run(&self, global: &Global, console: &mut Console) -> Result<Status, Failure> {
        let db = self.database.open(global, Access::Read, console)?;
        if let Some(name) = &self.property {
            let Some(value) = db.property(name) else {
                return Err(Failure::usage(format!(
                    "there is no property '{name}'; 'varve.stats' shows what there is"
                )));
            };
            if console.json {
                console.json(&json!({name: value}))?
            } else {
                console.line(value)?
            }
            return Ok(Status::Done);
        }
        if self.since_creation {
            since_creation(&db, console)?;
            db.close()?;
            return Ok(Status::Done);
        }
        let statistics = db.statistics();
        let keys = db.property("varve.estimate-num-keys");
        let space = db.stack().files().space().ok();
        let devices = crate::report::devices(db.stack());
        if console.json {
            console.json(&json!({
                "stack": serde_json::to_value(db.stack().description()).unwrap_or_default(),
                "estimated_keys": keys.as_deref().and_then(|keys| keys.parse::<u64>().ok()),
                "space_total_bytes": space.map(|space| space.total_bytes),
                "space_available_bytes": space.map(|space| space.available_bytes),
                "counters_since": "opening",
                "statistics": serde_json::to_value(&statistics).unwrap_or_default(),
                "store": crate::report::store(db.stack()),
                "devices": devices.iter().map(crate::report::DeviceCounters::json).collect::<Vec<_>>(),
            }))?;
            db.close()?;
            return Ok(Status::Done);
        }
        console.write(db.stack().description().to_string().as_bytes())?;
        console.line(format!("about {} keys", keys.as_deref().unwrap_or("?")))?;
        if let Some(space) = space {
            let (available, total) = (human(space.available_bytes), human(space.total_bytes));
            console.line(format!("{available} of {total} available"))?;
        }
        console.line("")?;
        let memtables = human(statistics.memtable_bytes);
        match &statistics.tables {
            Some(of_tables) => {
                console.line("level  tables       bytes     entries   deletions")?;
                for level in &of_tables.levels {
                    let bytes = human(level.bytes);
                    let (number, tables, entries, deletions) =
                        (level.level, level.tables, level.entries, level.deletions);
                    console.line(format!("{number:>5} {tables:>7} {bytes:>11} {entries:>11} {deletions:>11}"))?;
                }
                console.line("")?;
                console
                    .line(format!("memtables {memtables}, {} waiting to be flushed", of_tables.immutable_memtables))?;
                let memory = human(of_tables.table_memory_bytes);
                console.line(format!("{} tables open, their indexes and filters {memory}", of_tables.open_tables))?;
                let pending = human(of_tables.pending_compaction_bytes);
                console.line(format!("{pending} to compact, {} jobs running", of_tables.running_jobs))?;
            }
            None => console.line(format!("{memtables} in memory"))?,
        }
        console.line(format!("writes are {}", db.property("varve.write-state").unwrap_or_default()))?;
        console.line("")?;
        console.line("counted since this opening:")?;
        if let Some(tables) = &statistics.tables {
            let cache = human(tables.block_cache_bytes);
            let (filled, dropped) = (tables.block_cache_insertions, tables.block_cache_evictions);
            console.line(format!("block cache {cache}, {filled} blocks put in, {dropped} dropped"))?;
        }
        for store in std::iter::once(db.stack().files()).chain(db.stack().logs()) {
            let measures = store.statistics();
            if measures.iter().any(|measure| measure.value > 0) {
                console.line("")?;
                console.line(format!("store {}", store.name()))?;
            }
            for measure in measures.iter().filter(|measure| measure.value > 0) {
                let value = crate::report::measure(measure);
                console.line(format!("  {} {value}", measure.name))?;
            }
        }
        for device in &devices {
            console.line("")?;
            console.write(device.to_string().as_bytes())?;
        }
        db.close()?;
        Ok(Status::Done)
    }
}

/// What the database says was done to it by all its openings.
fn since_creation(db: &Varve, console: &mut Console) -> Result<(), Failure> {
    let (totals, last_sequence) = (db.totals(), db.statistics().last_sequence);
    if console.json {
        return console.json(&json!({
            "counters_since": "creation",
            "last_sequence": last_sequence,
            "totals": totals.map(|totals| serde_json::to_value(totals).unwrap_or_default()),
        }));
    }
    let Some(totals) = totals else {
        console.line("what was done since the database was created is not known: its manifest was made by a")?;
        console.line("version that did not count, or by a repair that could not read the one before")?;
        return Ok(());
    };
    let Totals { flush_jobs, flush_user_entries, flush_written_tables, compactions, trivial_moves, .. } = totals;
    let (read_tables, written_tables) = (totals.compaction_read_tables, totals.compaction_written_tables);
    let row = |name: &str, jobs: u64, read: (&str, u64), written: (u64, u64)| {
        let (read_bytes, written_bytes) = (human(read.1), human(written.1));
        let (read_tables, written_tables) = (read.0, written.0);
        format!("{name:<11} {jobs:>8} {read_tables:>12} {read_bytes:>11} {written_tables:>15} {written_bytes:>13}")
    };
    console.line("counted since the database was created:")?;
    console.line("")?;
    console.line("                jobs  tables read  bytes read  tables written bytes written")?;
    let flushed = (flush_written_tables, totals.flush_written_bytes);
    console.line(row("flushes", flush_jobs, ("-", totals.flush_user_bytes), flushed))?;
    let (read, written) = (totals.compaction_read_bytes, totals.compaction_written_bytes);
    console.line(row("compactions", compactions, (&read_tables.to_string(), read), (written_tables, written)))?;
    console.line("")?;
    console.line(format!("{flush_user_entries} entries flushed, the newest sequence number is {last_sequence}"))?;
    console.line(format!("{trivial_moves} tables moved to another level without being rewritten"))?;
    let amplification = totals.table_write_amplification();
    console.line(format!("{amplification:.2} bytes of tables written per byte flushed"))?;
    Ok(())
}

fn human(bytes: u64) -> String {
    crate::report::human_bytes(ByteSize(bytes))
}
