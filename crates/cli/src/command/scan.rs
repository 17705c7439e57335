//! `varve scan`

use crate::arguments::{Access, Database, Global, Range};
use crate::console::Console;
use crate::failure::{Failure, Status};
use crate::text::{Encoding, json_field};
use crate::unreadable::Skipped;

/// Print pairs in the order of their keys
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve scan /tmp/db
  varve scan /tmp/db --prefix user/ --limit 10
  varve scan /tmp/db --from a --to m --keys-only   keys from a up to, not including, m
  varve scan /tmp/db --reverse --limit 1           the last pair
  varve scan /tmp/db --count                       how many there are
  varve scan /tmp/db --json | jq .value

Key, tab, value, one pair to a line; what cannot be shown is escaped (\\n, \\xff). 'varve dump'
writes the same in a form that is promised to load again.")]
pub(crate) struct Scan {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    range: Range,
    /// Stop after this many
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<u64>,
    /// From the last key to the first
    #[arg(short, long)]
    reverse: bool,
    /// Without the values
    #[arg(short, long)]
    keys_only: bool,
    /// Only count pairs and bytes
    #[arg(short, long)]
    count: bool,
    /// How keys and values are printed, and the keys of the range written
    #[arg(short, long, value_enum, default_value_t = Encoding::Text)]
    encoding: Encoding,
    /// Leave out ranges of keys whose tables are on a missing device, and list them at the end
    #[arg(long)]
    skip_unreadable: bool,
}

impl Scan {
    pub(crate) fn run(&self, global: &Global, console: &mut Console) -> Result<Status, Failure> {
        let options = self.range.read_options(self.encoding)?;
        let db = self.database.open(global, Access::Read, console)?;
        let mut progress = self.count.then(|| console.progress().count(self.range.expected_pairs(&db), "pairs"));
        let mut walk = db.cursor(&options)?;
        if self.reverse {
            walk.seek_to_last()
        } else {
            walk.seek_to_first()
        }
        let (mut pairs, mut bytes) = (0u64, 0u64);
        let mut line = Vec::new();
        let mut skipped = Skipped::new(self.skip_unreadable);
        while self.limit.is_none_or(|limit| pairs < limit) && (walk.valid() || skipped.passes(&mut walk)) {
            if !walk.valid() {
                continue;
            }
            pairs += 1;
            bytes += (walk.key().len() + walk.value().len()) as u64;
            if let Some(progress) = &mut progress {
                if pairs.is_multiple_of(4096) {
                    progress.set(pairs);
                }
            } else if console.json {
                let (field, key) = json_field("key", walk.key(), self.encoding);
                let mut object = serde_json::Map::from_iter([(field, key)]);
                if !self.keys_only {
                    object.extend([json_field("value", walk.value(), self.encoding)]);
                }
                console.json(&object.into())?;
            } else {
                line.clear();
                self.encoding.encode(walk.key(), &mut line);
                if !self.keys_only {
                    line.push(b'\t');
                    self.encoding.encode(walk.value(), &mut line);
                }
                line.push(b'\n');
                console.write(&line)?;
            }
            if self.reverse { walk.previous() } else { walk.next() }
        }
        walk.status()?;
        drop(walk);
        if let Some(progress) = progress {
            progress.finish();
            if console.json {
                console.json(&serde_json::json!({"pairs": pairs, "bytes": bytes}))?;
            } else {
                console.line(format!("{pairs} pairs, {bytes} bytes of keys and values"))?;
            }
        }
        db.close()?;
        Ok(skipped.report(console))
    }
}
