//! `varve put`

use crate::arguments::{Access, Database, Global, Making, decode_argument};
use crate::console::Console;
use crate::failure::{Failure, Status};
use crate::input::{self, Value};
use crate::text::{Encoding, json_field};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use varve::{WriteBatch, WriteOptions};

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
returns, unless --no-sync says otherwise. A value has at most 4 GiB - 1 bytes; a larger file is
refused before it is read. Storing a value takes about twice its size in memory.")]
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

/// A value and where it comes from.
enum Source {
    Read(Value),
    Argument(Vec<u8>),
}

impl Put {
    pub(crate) fn run(&self, global: &Global, console: &mut Console) -> Result<Status, Failure> {
        let key = decode_argument("KEY", &self.key, self.encoding)?;
        let value = match (&self.file, &self.value) {
            (Some(path), _) => Source::Read(read_file(path)?),
            (None, Some(value)) if value == "-" => {
                let size_bytes = varve::media::remaining_bytes(std::io::stdin());
                Source::Read(input::read_value("standard input", std::io::stdin().lock(), size_bytes)?)
            }
            (None, Some(value)) => Source::Argument(decode_argument("VALUE", value, self.encoding)?),
            (None, None) => return Err(Failure::usage("give a value, or --file")),
        };
        let bytes: &[u8] = match &value {
            Source::Read(value) => value,
            Source::Argument(value) => value,
        };
        self.making.allow(&self.database.spec, console)?;
        let db = self.database.open(global, Access::Write, console)?;
        let value_bytes = bytes.len();
        let mut batch = WriteBatch::with_capacity(key.len() + value_bytes + 16);
        batch.put(&key, bytes)?;
        // The batch and the memtable hold it twice; a third copy is not needed.
        drop(value);
        db.write_with(batch, &WriteOptions { sync: !self.no_sync })?;
        db.close()?;
        if console.json {
            let (field, key) = json_field("key", &key, Encoding::Text);
            console.json(&serde_json::json!({field: key, "value_bytes": value_bytes, "synced": !self.no_sync}))?;
        }
        Ok(Status::Done)
    }
}

/// Reads a value from a file.
fn read_file(path: &Path) -> Result<Value, Failure> {
    let name = path.display().to_string();
    let failed = |error| Failure::io(name.clone(), error);
    let file = std::fs::File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let size_bytes = metadata.is_file().then_some(metadata.len());
    input::read_value(&name, file, size_bytes)
}
