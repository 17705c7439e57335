//! `varve delete`

use crate::arguments::{Access, Database, Global, decode_argument};
use crate::console::Console;
use crate::failure::{Failure, Status};
use crate::text::Encoding;
use std::ffi::OsString;
use varve::{WriteBatch, WriteOptions};

/// Remove keys
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve delete /tmp/db colour
  varve delete /tmp/db colour shape                both or none
  varve delete /tmp/db 00ff --encoding hex

Removing a key that is not there is no error.")]
pub(crate) struct Delete {
    #[command(flatten)]
    database: Database,
    /// The keys
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,
    /// How keys are written
    #[arg(short, long, value_enum, default_value_t = Encoding::Raw)]
    encoding: Encoding,
    /// Do not wait for stable media
    #[arg(long)]
    no_sync: bool,
}

impl Delete {
    pub(crate) fn run(&self, global: &Global, console: &mut Console) -> Result<Status, Failure> {
        let mut batch = WriteBatch::new();
        for key in &self.keys {
            batch.delete(&decode_argument("KEY", key, self.encoding)?)?;
        }
        // What is not there need not be made to remove something from it.
        let db = self.database.open(global, Access::Change, console)?;
        db.write_with(batch, &WriteOptions { sync: !self.no_sync })?;
        db.close()?;
        if console.json {
            console.json(&serde_json::json!({"deleted": self.keys.len(), "synced": !self.no_sync}))?;
        }
        Ok(Status::Done)
    }
}
