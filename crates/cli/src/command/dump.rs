//! `varve dump`

use crate::arguments::{Access, Database, Global, Range};
use crate::console::Console;
use crate::failure::{Failure, Status};
use crate::pairs::Format;
use crate::text::Encoding;
use crate::unreadable::Skipped;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Write all pairs as lines of text that load reads
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve dump /tmp/db > pairs.tsv
  varve dump /tmp/db pairs.jsonl                   JSON lines, by the name of the file
  varve dump /tmp/db --prefix user/ --encoding base64
  varve dump /tmp/db | varve load /tmp/copy        an exact copy, whatever the bytes

Give load the --format and --encoding that dump was given.

Of a set of which a device is missing, what is left can be written:
  varve dump 'zns:1TB?backing=dev:/dev/nvme0n1,store=hybrid,missing-devices=read-only' --skip-unreadable
The ranges that were left out are listed on standard error, and the exit code is 1.")]
pub(crate) struct Dump {
    #[command(flatten)]
    database: Database,
    /// Where to; - or nothing is standard output
    file: Option<PathBuf>,
    #[command(flatten)]
    range: Range,
    /// How a line is written [default: by the name of the file, else tsv]
    #[arg(short, long, value_enum)]
    format: Option<Format>,
    /// How keys and values, and the keys of the range, are written
    #[arg(short, long, value_enum, default_value_t = Encoding::Text)]
    encoding: Encoding,
    /// Leave out ranges of keys whose tables are on a missing device, and list them at the end
    #[arg(long)]
    skip_unreadable: bool,
}

impl Dump {
    pub(crate) fn run(&self, global: &Global, console: &mut Console) -> Result<Status, Failure> {
        let file = self.file.as_deref().filter(|path| *path != Path::new("-"));
        let by_default = if console.json { Format::Jsonl } else { Format::of_file(file) };
        let format = self.format.unwrap_or(by_default);
        if format == Format::Tsv && self.encoding == Encoding::Raw {
            return Err(Failure::usage(
                "raw bytes with tabs or line ends could not be read back; use another --encoding",
            ));
        }
        let options = self.range.read_options(self.encoding)?;
        let db = self.database.open(global, Access::Read, console)?;
        let name = file.map_or_else(|| "standard output".to_owned(), |path| path.display().to_string());
        let mut output = match file {
            None => None,
            Some(path) => {
                let file = std::fs::File::create(path).map_err(|error| Failure::io(name.clone(), error))?;
                Some(BufWriter::with_capacity(1 << 20, file))
            }
        };
        let mut progress = console.progress().count(self.range.expected_pairs(&db), "pairs");
        let mut pairs = 0u64;
        let mut line = Vec::new();
        let mut walk = db.cursor(&options)?;
        walk.seek_to_first();
        let mut skipped = Skipped::new(self.skip_unreadable);
        while walk.valid() || skipped.passes(&mut walk) {
            if !walk.valid() {
                continue;
            }
            pairs += 1;
            line.clear();
            format.write(self.encoding, walk.key(), walk.value(), &mut line);
            match &mut output {
                Some(output) => output.write_all(&line).map_err(|error| Failure::io(name.clone(), error))?,
                None => console.write(&line)?,
            }
            // Lines on a terminal and a display of progress would be in each other's way.
            if pairs.is_multiple_of(1024) && (output.is_some() || !console.is_terminal()) {
                progress.set(pairs);
            }
            walk.next();
        }
        walk.status()?;
        drop(walk);
        if let Some(output) = output {
            let file = output.into_inner().map_err(|error| Failure::io(name.clone(), error.into_error()))?;
            file.sync_all().map_err(|error| Failure::io(name.clone(), error))?;
        }
        progress.finish();
        db.close()?;
        if file.is_some() {
            if console.json {
                let ranges = skipped.as_json();
                console.json(&serde_json::json!({"pairs": pairs, "file": name, "unreadable": ranges}))?;
            } else {
                console.note(format!("{pairs} pairs written to {name}"));
            }
        }
        Ok(skipped.report(console))
    }
}
