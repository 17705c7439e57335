//! `varve checkpoint`

use crate::arguments::{Access, Database, Global, Making, spec_parser};
use crate::console::Console;
use crate::failure::{Failure, Status};
use crate::progress::bytes_read;
use varve::Spec;

/// Write a database equal to this one, as of now
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve checkpoint /tmp/db /tmp/copy
  varve checkpoint /tmp/db 'disk:10GB?backing=file:/tmp/disk.img'

The target holds no database yet. Between directories of one file system tables are shared by hard
links, so it is quick and takes no space; elsewhere they are copied.")]
pub(crate) struct Checkpoint {
    #[command(flatten)]
    database: Database,
    /// Medium of the new database
    #[arg(value_parser = spec_parser())]
    target: Spec,
    #[command(flatten)]
    making: Making,
}

impl Checkpoint {
    pub(crate) fn run(&self, global: &Global, console: &mut Console) -> Result<Status, Failure> {
        self.making.allow(&self.target, console)?;
        let db = self.database.open(global, Access::Change, console)?;
        let table_bytes = db.statistics().table_bytes();
        let progress = console.progress().bytes(Some(table_bytes)).named("copying");
        let busy = progress.watch(bytes_read(db.stack(), db.env()));
        let outcome = db.checkpoint_spec(&self.target);
        drop(busy);
        outcome?;
        let sequence = db.statistics().last_sequence;
        db.close()?;
        if console.json {
            console.json(&serde_json::json!({"target": self.target.to_string(), "last_sequence": sequence}))?;
        } else {
            console.note(format!("{} written", self.target));
        }
        Ok(Status::Done)
    }
}
