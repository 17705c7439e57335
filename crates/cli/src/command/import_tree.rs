//! `varve import-tree`

use crate::arguments::{Access, Database, Global, Making, decode_argument, path_bytes};
use crate::console::Console;
use crate::failure::{Failure, Status};
use crate::input::Value;
use crate::progress::Progress;
use crate::text::Encoding;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use varve::spec::ByteSize;
use varve::{KEY_BYTES_MAX, VALUE_BYTES_MAX, Varve, WriteBatch, WriteOptions};

/// Bytes stored at once.
const BATCH_BYTES: usize = 1 << 20;

/// Store every file below a directory under its path
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve import-tree /tmp/doc /usr/share/doc
  varve scan /tmp/doc --prefix bash/ --keys-only
  varve get /tmp/doc bash/copyright
  varve import-tree /tmp/db src --prefix src/      keys src/main.rs, src/lib.rs, ...

The key is the path below the directory, byte for byte, with '/' between its parts; the value is
what the file holds. Symbolic links, sockets, pipes and devices are counted and left out. Files
that cannot be read, or are larger than a value can be (4 GiB - 1), are told and left out, and the
exit code is then 1. A database that lies within the tree is not stored in itself.")]
pub(crate) struct ImportTree {
    #[command(flatten)]
    database: Database,
    /// The directory
    directory: PathBuf,
    #[command(flatten)]
    making: Making,
    /// Put this before every key
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: OsString,
}

/// What was found and done.
#[derive(Debug, Default)]
struct Summary {
    files: u64,
    bytes: u64,
    directories: u64,
    links: u64,
    special: u64,
    refused: u64,
}

/// Something below the directory.
enum Found {
    File { path: PathBuf, size_bytes: u64 },
    Directory,
    Link,
    Special,
    Unreadable { path: PathBuf, error: std::io::Error },
}

impl ImportTree {
    pub(crate) fn run(&self, global: &Global, console: &mut Console) -> Result<Status, Failure> {
        let named = |error| Failure::io(self.directory.display().to_string(), error);
        // What the user named is followed, even if it is a link; a file is refused.
        std::fs::read_dir(&self.directory).map_err(named)?;
        let prefix = decode_argument("--prefix", &self.prefix, Encoding::Raw)?;
        let places = self.database.spec.paths();
        if Own::of(&places).has(&std::fs::metadata(&self.directory).map_err(named)?) {
            let directory = self.directory.display();
            return Err(Failure::usage(format!(
                "{directory} is the place of the database itself; name a directory with files to store"
            )));
        }
        self.making.allow(&self.database.spec, console)?;
        let db = self.database.open(global, Access::Write, console)?;
        let own = Own::of(&places);
        let mut progress = console.progress();
        let mut total_bytes = None;
        if progress.is_wanted() {
            let mut bytes = 0;
            walk(&self.directory, &own, &mut |found| {
                if let Found::File { size_bytes, .. } = found {
                    bytes += size_bytes;
                }
                Ok(())
            })?;
            total_bytes = Some(bytes);
        }
        progress = progress.bytes(total_bytes);
        let mut import = Import {
            db: &db,
            prefix,
            root: &self.directory,
            batch: WriteBatch::new(),
            progress,
            summary: Summary::default(),
        };
        walk(&self.directory, &own, &mut |found| import.take(found))?;
        import.commit(true)?;
        let Import { summary, progress, .. } = import;
        db.close()?;
        let elapsed = progress.finish();
        if console.json {
            console.json(&serde_json::json!({
                "files": summary.files, "bytes": summary.bytes, "directories": summary.directories,
                "links_skipped": summary.links, "special_skipped": summary.special, "refused": summary.refused,
                "seconds": elapsed.as_secs_f64(),
            }))?;
        } else {
            let bytes = crate::report::human_bytes(ByteSize(summary.bytes));
            let (files, directories, seconds) = (summary.files, summary.directories, elapsed.as_secs_f64());
            console.note(format!("{files} files, {bytes}, from {directories} directories in {seconds:.1} s"));
            if summary.links + summary.special > 0 {
                console.note(format!("left out: {} links, {} special files", summary.links, summary.special));
            }
            if summary.refused > 0 {
                console.note(format!("refused: {} files, told above", summary.refused));
            }
        }
        Ok(if summary.refused > 0 { Status::Negative } else { Status::Done })
    }
}

struct Import<'a> {
    db: &'a Varve,
    prefix: Vec<u8>,
    root: &'a Path,
    batch: WriteBatch,
    progress: Progress,
    summary: Summary,
}

impl Import<'_> {
    fn take(&mut self, found: Found) -> Result<(), Failure> {
        match found {
            Found::Directory => self.summary.directories += 1,
            Found::Link => self.summary.links += 1,
            Found::Special => self.summary.special += 1,
            Found::Unreadable { path, error } => self.refuse(&path, &error.to_string()),
            Found::File { path, size_bytes } => {
                let relative = path.strip_prefix(self.root).unwrap_or(&path).to_path_buf();
                let key = [self.prefix.as_slice(), &path_bytes(relative)].concat();
                if key.len() > KEY_BYTES_MAX {
                    self.refuse(&path, &format!("its path is longer than a key can be ({KEY_BYTES_MAX} bytes)"));
                    return Ok(());
                }
                if size_bytes > VALUE_BYTES_MAX as u64 {
                    self.refuse(&path, &format!("{size_bytes} bytes are more than a value can be ({VALUE_BYTES_MAX})"));
                    return Ok(());
                }
                match read_file(&path) {
                    Err(error) => self.refuse(&path, &error.to_string()),
                    Ok(None) => self.refuse(&path, "it grew beyond what a value can be"),
                    Ok(Some(value)) => {
                        self.batch.put(&key, &*value)?;
                        self.summary.files += 1;
                        self.summary.bytes += value.len() as u64;
                        // It may be large, and the batch and the memtable hold it too.
                        drop(value);
                        if self.batch.size_bytes() >= BATCH_BYTES {
                            self.commit(false)?;
                            self.progress.set(self.summary.bytes);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn refuse(&mut self, path: &Path, reason: &str) {
        self.summary.refused += 1;
        self.progress.print(&format!("varve: {}: {reason}", path.display()));
    }

    fn commit(&mut self, sync: bool) -> Result<(), Failure> {
        if sync || !self.batch.is_empty() {
            self.db.write_with(std::mem::take(&mut self.batch), &WriteOptions { sync })?;
        }
        Ok(())
    }
}

/// Reads a file; none if it is larger than a value can be.
fn read_file(path: &Path) -> std::io::Result<Option<Value>> {
    let file = std::fs::File::open(path)?;
    let size_bytes = file.metadata()?.len();
    Value::read(file, Some(size_bytes), VALUE_BYTES_MAX as u64)
}

/// The directories and files a database stands on, however they are reached.
struct Own(Vec<(u64, u64)>);

impl Own {
    fn of(paths: &[PathBuf]) -> Own {
        // What is not there cannot be met on the way.
        let metadata = paths.iter().filter_map(|path| std::fs::metadata(path).ok());
        Own(metadata.map(|metadata| (metadata.dev(), metadata.ino())).collect())
    }

    fn has(&self, metadata: &std::fs::Metadata) -> bool {
        self.0.contains(&(metadata.dev(), metadata.ino()))
    }
}

/// Visits everything below `root` in the order of the paths' parts, except what is the database's own.
fn walk(root: &Path, own: &Own, visit: &mut dyn FnMut(Found) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut waiting = vec![root.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let metadata = if path == root { std::fs::metadata(&path) } else { std::fs::symlink_metadata(&path) };
        let metadata = match metadata {
            Ok(metadata) => metadata,
            Err(error) => {
                visit(Found::Unreadable { path, error })?;
                continue;
            }
        };
        let kind = metadata.file_type();
        if own.has(&metadata) {
            continue;
        }
        if kind.is_dir() {
            let entries = std::fs::read_dir(&path).and_then(|entries| {
                entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()
            });
            match entries {
                Ok(mut entries) => {
                    entries.sort_unstable_by(|a, b| b.cmp(a));
                    waiting.extend(entries);
                    visit(Found::Directory)?;
                }
                Err(error) => visit(Found::Unreadable { path, error })?,
            }
        } else if kind.is_file() {
            visit(Found::File { path, size_bytes: metadata.len() })?;
        } else if kind.is_symlink() {
            visit(Found::Link)?;
        } else {
            visit(Found::Special)?;
        }
    }
    Ok(())
}
