//! `varve load`

use crate::arguments::{Access, Database, Global, Making};
use crate::console::Console;
use crate::failure::{Failure, Status};
use crate::input::{Line, Lines};
use crate::pairs::Format;
use crate::text::Encoding;
use std::io::Read;
use std::path::{Path, PathBuf};
use varve::spec::ByteSize;
use varve::{ErrorKind, Varve, WriteBatch, WriteOptions};

/// Maximum number of skipped lines that are reported one by one.
const REPORTED_ERRORS_MAX: u64 = 20;

/// Memory of a line that is kept for the next one while a batch is written, in bytes.
const LINE_BYTES_KEPT: usize = 1 << 20;

/// Largest batch: it is in memory at once.
const BATCH_BYTES_MAX: u64 = 1 << 30;

/// Largest line: the longest value there is, each byte of it as four characters, and its key.
const LINE_BYTES_MAX: u64 = 17 << 30;

/// Store pairs from lines of text
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve load /tmp/db pairs.tsv                     key, tab, value
  varve load /tmp/db pairs.jsonl                   {\"key\": \"a\", \"value\": \"b\"} on each line
  zcat pairs.tsv.gz | varve load /tmp/db           from standard input
  varve load /tmp/db pairs.tsv --encoding hex      keys and values in hexadecimal
  varve dump /tmp/db | varve load /tmp/copy        an exact copy, whatever the bytes

In text, \\t \\n \\r \\0 \\\\ and \\xHH stand for bytes; --encoding raw takes backslashes as they are.
In JSON, key_hex and key_base64 (value_hex, value_base64) hold bytes that are no text.
Lines end with a line feed, or with a carriage return and a line feed; empty lines are passed
over. Text is UTF-8; a byte order mark at the start of the input is dropped, and that of UTF-16
is refused. A line that cannot be read, or is longer than --line-limit, ends the command with its
number; the pairs before it are stored. --skip-errors continues after such lines and ends with
exit code 1.")]
pub(crate) struct Load {
    #[command(flatten)]
    database: Database,
    /// The lines; - or nothing is standard input
    file: Option<PathBuf>,
    /// How a line is written [default: by the name of the file, else tsv]
    #[arg(short, long, value_enum)]
    format: Option<Format>,
    /// How keys and values are written
    #[arg(short, long, value_enum, default_value_t = Encoding::Text)]
    encoding: Encoding,
    /// Go on after lines that cannot be read
    #[arg(long)]
    skip_errors: bool,
    /// Bytes stored at once
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    batch: ByteSize,
    /// Longest line, without its end; bounds memory
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    line_limit: ByteSize,
    #[command(flatten)]
    making: Making,
    /// Wait for stable media after every batch instead of at the end
    #[arg(long)]
    sync: bool,
}

impl Load {
    pub(crate) fn run(&self, global: &Global, console: &mut Console) -> Result<Status, Failure> {
        for (name, size, most) in
            [("--batch", self.batch, BATCH_BYTES_MAX), ("--line-limit", self.line_limit, LINE_BYTES_MAX)]
        {
            if size.0 > most {
                return Err(Failure::usage(format!("{name}: expected at most {}, found {size}", ByteSize(most))));
            }
        }
        let file = self.file.as_deref().filter(|path| *path != Path::new("-"));
        let name = file.map_or_else(|| "standard input".to_owned(), |path| path.display().to_string());
        let failed = |error| Failure::io(name.clone(), error);
        let (input, total_bytes): (Box<dyn Read>, _) = match file {
            None => (Box::new(std::io::stdin().lock()), None),
            Some(path) => {
                let file = std::fs::File::open(path).map_err(failed)?;
                let metadata = file.metadata().map_err(failed)?;
                (Box::new(file), metadata.is_file().then_some(metadata.len()))
            }
        };
        let format = self.format.unwrap_or_else(|| Format::of_file(file));
        // A file may end its lines with a carriage return and a line feed; escaped text has no bare return.
        let keeps_returns = self.encoding == Encoding::Raw;
        let mut lines = Lines::new(input, self.line_limit.0, keeps_returns);
        // Standard input is read once the database is open: its writer may take long, and a question may be answered there.
        if file.is_some() {
            lines.begin(&name)?;
        }
        self.making.allow(&self.database.spec, console)?;
        let db = self.database.open(global, Access::Write, console)?;
        lines.begin(&name)?;
        let mut progress = console.progress().bytes(total_bytes);
        let (mut pairs, mut payload_bytes, mut skipped) = (0u64, 0u64, 0u64);
        let mut batch = WriteBatch::new();
        while let Some(line) = lines.next_line().map_err(failed)? {
            let stored = match line {
                Line::Whole([]) => continue,
                Line::Whole(line) => format.read(self.encoding, line).and_then(|(key, value)| {
                    let put = batch.put(&key, &value).map(|()| (key.len() + value.len()) as u64);
                    put.map_err(|error| {
                        debug_assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                        error.to_string()
                    })
                }),
                Line::TooLong => Err(format!("longer than --line-limit, which is {}", self.line_limit)),
            };
            match stored {
                Ok(bytes) => {
                    pairs += 1;
                    payload_bytes += bytes;
                }
                Err(reason) if self.skip_errors => {
                    skipped += 1;
                    if skipped <= REPORTED_ERRORS_MAX {
                        progress.print(&format!("varve: {name}:{}: {reason}", lines.number()));
                    }
                }
                Err(reason) => {
                    self.commit(&db, &mut batch, true)?;
                    db.close()?;
                    let number = lines.number();
                    let message = format!("{name}:{number}: {reason} ({pairs} pairs before it are stored)");
                    return Err(Failure::usage(message));
                }
            }
            if batch.size_bytes() as u64 >= self.batch.0 {
                lines.release_beyond(LINE_BYTES_KEPT);
                self.commit(&db, &mut batch, self.sync)?;
                progress.set(lines.read_bytes());
            }
        }
        self.commit(&db, &mut batch, true)?;
        db.close()?;
        let elapsed = progress.finish();
        if console.json {
            console.json(&serde_json::json!({
                "lines": lines.number(), "pairs": pairs, "bytes": payload_bytes, "skipped": skipped,
                "seconds": elapsed.as_secs_f64(),
            }))?;
        } else {
            let bytes = crate::report::human_bytes(ByteSize(payload_bytes));
            console.note(format!("{pairs} pairs, {bytes} of keys and values, in {:.1} s", elapsed.as_secs_f64()));
            if skipped > 0 {
                let all = skipped <= REPORTED_ERRORS_MAX;
                let shown =
                    if all { "named above".to_owned() } else { format!("the first {REPORTED_ERRORS_MAX} named above") };
                console.note(format!("{skipped} lines skipped, {shown}"));
            }
        }
        Ok(if skipped > 0 { Status::Negative } else { Status::Done })
    }

    fn commit(&self, db: &Varve, batch: &mut WriteBatch, sync: bool) -> Result<(), Failure> {
        if !batch.is_empty() || sync {
            db.write_with(std::mem::take(batch), &WriteOptions { sync })?;
        }
        Ok(())
    }
}
