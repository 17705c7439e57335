//! `varve compact`

use crate::arguments::{Access, Database, Global, Range};
use crate::console::Console;
use crate::failure::{Failure, Status};
use crate::text::Encoding;

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
        let db = self.database.open(global, Access::Read, console)?;
        let table_bytes = |db: &varve::Varve| db.statistics().levels.iter().map(|level| level.bytes).sum::<u64>();
        let busy = console.progress().busy("compacting");
        let outcome = db.flush().map(|()| table_bytes(&db)).and_then(|before| {
            db.compact_range(range.lower_bound.as_deref(), range.upper_bound.as_deref())?;
            db.wait_idle()?;
            Ok((before, table_bytes(&db)))
        });
        drop(busy);
        let (before, after) = outcome?;
        db.close()?;
        if console.json {
            console.json(&serde_json::json!({"table_bytes_before": before, "table_bytes_after": after}))?;
        } else {
            let human = |bytes| crate::report::human_bytes(varve::ByteSize(bytes));
            console.note(format!("tables: {} before, {} now", human(before), human(after)));
        }
        Ok(Status::Done)
    }
}
