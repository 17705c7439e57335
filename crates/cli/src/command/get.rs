//! `varve get`

use crate::arguments::{Access, Database, Global, decode_argument};
use crate::console::Console;
use crate::failure::{Failure, Status};
use crate::text::{Encoding, json_field};
use std::ffi::OsString;

/// Print the value of a key
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve get /tmp/db colour
  varve get /tmp/db report > report.pdf            the bytes of the value, and nothing else
  varve get /tmp/db colour shape                   several: key, tab, value, escaped
  varve get /tmp/db 00ff --encoding hex            key and value in hexadecimal
  varve get /tmp/db colour --json

A single value is printed as it is, into files and pipes without a line end. On a terminal,
what cannot be shown there is escaped. Exit code 1: a key was not there.")]
pub(crate) struct Get {
    #[command(flatten)]
    database: Database,
    /// The keys
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,
    /// How keys are written, and values printed
    #[arg(short, long, value_enum, default_value_t = Encoding::Raw)]
    encoding: Encoding,
}

impl Get {
    pub(crate) fn run(&self, global: &Global, console: &mut Console) -> Result<Status, Failure> {
        let keys: Vec<Vec<u8>> =
            self.keys.iter().map(|key| decode_argument("KEY", key, self.encoding)).collect::<Result<_, _>>()?;
        let db = self.database.open(global, Access::Read, console)?;
        let values = db.multi_get(&keys);
        let mut status = Status::Done;
        for (key, value) in keys.iter().zip(values) {
            match value? {
                Some(value) => self.print(console, key, &value)?,
                None => {
                    status = Status::Negative;
                    if console.json {
                        let (field, key) = json_field("key", key, self.encoding);
                        console.json(&serde_json::json!({field: key, "found": false}))?;
                    } else {
                        console.note(format!("varve: no key '{}'", Encoding::Text.to_text(key)));
                    }
                }
            }
        }
        db.close()?;
        Ok(status)
    }

    fn print(&self, console: &mut Console, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        if console.json {
            let (key_field, key) = json_field("key", key, self.encoding);
            let (value_field, value) = json_field("value", value, self.encoding);
            return console.json(&serde_json::json!({key_field: key, "found": true, value_field: value}));
        }
        let encoding = match self.encoding {
            Encoding::Raw if self.keys.len() > 1 || console.is_terminal() && !is_printable(value) => Encoding::Text,
            encoding => encoding,
        };
        let exact = encoding == Encoding::Raw && !console.is_terminal();
        if exact && self.keys.len() == 1 {
            return console.write(value);
        }
        let mut line = Vec::new();
        if self.keys.len() > 1 {
            encoding.encode(key, &mut line);
            line.push(b'\t');
        }
        encoding.encode(value, &mut line);
        if !exact && line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        console.write(&line)
    }
}

/// Text that does nothing to a terminal but appear.
fn is_printable(value: &[u8]) -> bool {
    std::str::from_utf8(value).is_ok_and(|text| !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'))
}
