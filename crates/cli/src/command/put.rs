//! `varve put`

use crate::arguments::{Access, Database, Global, Making, decode_argument};
use crate::console::Console;
use crate::failure::{Failure, Status};
use crate::text::{Encoding, json_field};
use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;
use varve::WriteOptions;

/// Store a value under a key
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve put /tmp/db colour blue
  varve put /tmp/db report --file report.pdf       the value is what the file holds
  date | varve put /tmp/db now -                   the value comes from standard input
  varve put /tmp/db 00ff 0102 --encoding hex       bytes that are no text
  varve put 'disk:10GB?backing=file:/tmp/disk.img' key value

The database is made when there is none. The value is on stable media when the command
returns, unless --no-sync says otherwise.")]
pub(crate) struct Put {
    #[command(flatten)]
    database: Database,
    /// The key
    key: OsString,
    /// The value; - reads standard input
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    value: Option<OsString>,
    /// Take the value from this file
    #[arg(long)]
    file: Option<PathBuf>,
    /// How KEY and VALUE are written
    #[arg(short, long, value_enum, default_value_t = Encoding::Raw)]
    encoding: Encoding,
    #[command(flatten)]
    making: Making,
    /// Do not wait for stable media
    #[arg(long)]
    no_sync: bool,
}

impl Put {
    pub(crate) fn run(&self, global: &Global, console: &mut Console) -> Result<Status, Failure> {
        let key = decode_argument("KEY", &self.key, self.encoding)?;
        let value = match (&self.file, &self.value) {
            (Some(path), _) => std::fs::read(path).map_err(|error| Failure::io(path.display().to_string(), error))?,
            (None, Some(value)) if value == "-" => {
                let mut bytes = Vec::new();
                std::io::stdin()
                    .lock()
                    .read_to_end(&mut bytes)
                    .map_err(|error| Failure::io("standard input", error))?;
                bytes
            }
            (None, Some(value)) => decode_argument("VALUE", value, self.encoding)?,
            (None, None) => return Err(Failure::usage("give a value, or --file")),
        };
        self.making.allow(&self.database.spec, console)?;
        let db = self.database.open(global, Access::Write, console)?;
        db.put_with(&key, &value, &WriteOptions { sync: !self.no_sync })?;
        db.close()?;
        if console.json {
            let (field, key) = json_field("key", &key, Encoding::Text);
            console.json(&serde_json::json!({field: key, "value_bytes": value.len(), "synced": !self.no_sync}))?;
        }
        Ok(Status::Done)
    }
}
