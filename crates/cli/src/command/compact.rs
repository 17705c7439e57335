//! `varve compact`

use crate::arguments::{Access, Database, Global, Range};
use crate::console::Console;
use crate::failure::{Failure, Status};
use crate::progress::bytes_read;
use crate::text::Encoding;
use std::ops::Bound;

/// Merge tables until each key is there once
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve compact /tmp/db                            everything
  varve compact /tmp/db --from a --to m            tables with keys from a to m
  varve compact /tmp/db --prefix user/

Overwritten and deleted values give their space back. Tables at the ends of the range are
compacted whole.")]
pub(crate) struct Compact {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    range: Range,
    /// How the keys of the range are written
    #[arg(short, long, value_enum, default_value_t = Encoding::Raw)]
    encoding: Encoding,
}

impl Compact {
    pub(crate) fn run(&self, global: &Global, console: &mut Console) -> Result<Status, Failure> {
        let range = self.range.read_options(self.encoding)?;
        let db = self.database.open(global, Access::Change, console)?;
        let table_bytes = |db: &varve::Varve| db.statistics().table_bytes();
        let flushing = console.progress().busy("flushing");
        let flushed = db.flush();
        drop(flushing);
        flushed?;
        let before = table_bytes(&db);
        let progress = console.progress().bytes(range_is_all(&range).then(|| bytes_to_read(&db))).named("compacting");
        let busy = progress.watch(bytes_read(db.stack(), db.env()));
        let from = range.lower_bound.as_deref().map_or(Bound::Unbounded, Bound::Included);
        let to = range.upper_bound.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let outcome =
            db.compact_range::<&[u8], _>((from, to)).and_then(|()| db.wait_idle()).map(|()| (before, table_bytes(&db)));
        drop(busy);
        let (before, after) = outcome?;
        db.close()?;
        if console.json {
            console.json(&serde_json::json!({"table_bytes_before": before, "table_bytes_after": after}))?;
        } else {
            let human = |bytes| crate::report::human_bytes(varve::spec::ByteSize(bytes));
            console.note(format!("tables: {} before, {} now", human(before), human(after)));
        }
        Ok(Status::Done)
    }
}

fn range_is_all(range: &varve::ReadOptions) -> bool {
    range.lower_bound.is_none() && range.upper_bound.is_none()
}

/// About how much is read when each level is merged into the next, down to the last that holds
/// something; tables that only change their level are not read, which shortens it.
fn bytes_to_read(db: &varve::Varve) -> u64 {
    let levels: Vec<u64> = db.statistics().levels().iter().map(|level| level.bytes).collect();
    let held = |at: &usize| levels[*at] > 0;
    let first = (0..levels.len()).find(held).unwrap_or(0);
    let last = (0..levels.len()).rfind(held).unwrap_or(0);
    let down_to = |level: usize| levels[..=level].iter().sum::<u64>();
    (first + 1..=last.max(first + 1)).filter(|level| *level < levels.len()).map(down_to).sum()
}
