//! A tree that is only read, perhaps while another process writes it.
//!
//! Nothing is written, no lock is taken, nothing runs in the background: the manifest says which tables there are, and
//! what the logs hold becomes memtables, all of it, beyond the size at which a writer would flush.
//!
//! Beside a writer it is read as [`read_beside_writer`] says: the manifest, then the tables it names, then the logs it needs.
//! The tables are held open from then on, as far as `max_open_files` goes.
//!
//! On a set of devices without one of its members the tables on it are [unreadable](crate::unreadable): every key outside their
//! ranges is read. A log that is known to be needed and is missing fails the opening, since it may hold any key. Of logs begun
//! after the last one that is there nothing is known: `check` and the property `varve.unreadable` say so.

use super::catalog::{InDoubt, ManifestState};
use super::inspect;
use super::parts::{Found, TreeParts};
use super::read;
use super::recovery;
use super::tables::Tables;
use crate::batch::WriteBatch;
use crate::cache::BlockCache;
use crate::db_iterator::DbIterator;
use crate::error::Error;
use crate::file_name;
use crate::inventory::{logs_from, read_beside_writer, recover_manifest};
use crate::key::Sequence;
use crate::manifest::Recovered;
use crate::media::FileMedia;
use crate::operation::{ReadOptions, WriteOptions};
use crate::options::Options;
use crate::shape::{CompactionPolicy, Garbage};
use crate::snapshot::Snapshot;
use crate::statistics::{Statistics, Totals};
use crate::tree::Tree;
use crate::unreadable::{LostTables, UnreadableRanges};
use crate::value::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_env::Env;
use varve_store::{FileStore, Finding, IoClass, IoContext, OpenOptions, ReadOnlyStore, Severity, StoreError};

/// A tree of tables of which nothing changes.
pub(crate) struct ReadOnlyTree {
    parts: Arc<TreeParts>,
}

impl ReadOnlyTree {
    /// Opens the database on `media` for reading; see [`crate::Db::open_read_only`].
    pub(crate) fn open(
        env: &Env,
        media: FileMedia,
        options: Options,
        policy_of: impl Fn(&Options) -> Box<dyn CompactionPolicy>,
    ) -> Result<Self, Error> {
        let read = |media: FileMedia, files: &ReadOnlyStore| read_all(env, media, files, &options, policy_of(&options));
        let parts = read_beside_writer(env, &media, read, |parts| tail(parts))?;
        Ok(ReadOnlyTree { parts })
    }

    fn refuse<T>(&self, operation: &'static str) -> Result<T, Error> {
        self.parts.board.refuse_if_closed()?;
        Err(Error::ReadOnly { store: self.parts.files.media.files.name().to_owned(), operation })
    }
}

/// Bytes of records that are not whole, and the newest sequence number before them.
fn tail(parts: &TreeParts) -> (&AtomicU64, Sequence) {
    (&parts.catalog.counters.recovery_dropped_bytes, parts.snapshots.visible())
}

/// True if a store is without one of its devices. Such a store cannot tell whether a file exists.
fn missing_device(files: &dyn FileStore) -> Option<StoreError> {
    let error = files.open(&file_name::table(0), &OpenOptions::default()).err()?;
    matches!(error, StoreError::MissingDevice { .. }).then_some(error)
}

/// The tables of a manifest that lie on a device that is not there, or a part of which does.
fn lost_tables(files: &dyn FileStore, manifest: &Recovered) -> LostTables {
    let mut lost = LostTables::new();
    if missing_device(files).is_none() {
        return lost;
    }
    let context = IoContext::of(IoClass::UserRead);
    for added in manifest.contents.files.values() {
        let opened = files.open(&file_name::table(added.number), &OpenOptions::default());
        let read = opened.and_then(|file| {
            let ends = [0, added.size_bytes.saturating_sub(1)];
            ends.into_iter().try_for_each(|at| file.read_at(at, &mut [0], &context))
        });
        if let Err(error @ StoreError::MissingDevice { .. }) = read {
            lost.insert(added.number, error);
        }
    }
    lost
}

/// One reading, from CURRENT on.
fn read_all(
    env: &Env,
    media: FileMedia,
    files: &ReadOnlyStore,
    options: &Options,
    policy: Box<dyn CompactionPolicy>,
) -> Result<Arc<TreeParts>, Error> {
    let garbage = Arc::new(Garbage::default());

    let manifest = recover_manifest(&media, policy.name())?;
    let listing = files.list()?;
    let lost = lost_tables(&*media.files, &manifest);
    let recovered = recovery::compare_with_files(&manifest, &*policy, &*media.files, &listing, &lost, &garbage)?;
    let opening = OpenOptions { direct: options.use_direct_reads };
    let there = recovered.version.files().filter(|(_, file)| !lost.contains_key(&file.number));
    for (_, file) in there.take(options.max_open_files) {
        files.hold(&file_name::table(file.number), &opening)?;
    }
    let log_numbers = logs_from(&media, recovered.log_number)?;

    let blocks = Arc::new(BlockCache::new(options.block_cache_capacity, options.block_cache_shard_bits, None));
    let tables = Tables::new(env, &media, options, blocks, garbage);
    tables.set_lost(lost);
    let state = ManifestState {
        manifest: None,
        named: Some(manifest.number),
        log_number: recovered.log_number,
        last_sequence: recovered.last_sequence,
        totals: recovered.totals,
        flushed: recovered.flushed,
        in_doubt: InDoubt::default(),
    };
    let found = Found {
        database: recovered.database,
        tables,
        version: recovered.version,
        manifest: state,
        next_file_number: recovered.next_file_number,
        last_sequence: recovered.last_sequence,
    };
    let parts = Arc::new(TreeParts::new(env, media, options.clone(), policy, found));
    let replayed = parts.logs.replay_of(&log_numbers, recovered.logs);
    recovery::replay_into_memory(&parts, &replayed)?;
    Ok(parts)
}

impl Tree for ReadOnlyTree {
    fn write(&self, _batch: WriteBatch, _options: &WriteOptions) -> Result<(), Error> {
        self.refuse("write")
    }

    fn get(&self, key: &[u8], options: &ReadOptions<'_>) -> Result<Option<Value>, Error> {
        self.parts.board.refuse_if_closed()?;
        read::get(&self.parts, key, options)
    }

    fn multi_get(&self, keys: &[&[u8]], options: &ReadOptions<'_>) -> Vec<Result<Option<Value>, Error>> {
        if let Err(error) = self.parts.board.refuse_if_closed() {
            return keys.iter().map(|_| Err(error.clone())).collect();
        }
        read::multi_get(&self.parts, keys, options)
    }

    fn iterator(&self, options: &ReadOptions<'_>) -> Result<DbIterator, Error> {
        self.parts.board.refuse_if_closed()?;
        read::iterator(&self.parts, options)
    }

    fn snapshot(&self) -> Snapshot {
        self.parts.snapshots.take()
    }

    fn flush(&self) -> Result<(), Error> {
        self.refuse("flush")
    }

    fn compact_range(&self, _begin: Option<&[u8]>, _end: Option<&[u8]>) -> Result<(), Error> {
        self.refuse("compact")
    }

    fn wait_idle(&self) -> Result<(), Error> {
        Ok(())
    }

    fn checkpoint(&self, _target: &dyn FileStore) -> Result<(), Error> {
        self.refuse("make a checkpoint, which flushes first")
    }

    fn statistics(&self) -> Statistics {
        inspect::statistics(&self.parts)
    }

    fn totals(&self) -> Option<Totals> {
        self.parts.catalog.manifest().totals
    }

    fn property(&self, name: &str) -> Option<String> {
        if name == "varve.unreadable" {
            let error = missing_device(&*self.parts.files.media.files)?;
            let version = self.parts.catalog.version();
            let ranges =
                self.parts.files.tables.lost().map(|lost| UnreadableRanges::of(&version, lost)).unwrap_or_default();
            let lines = ranges.errors().map(|error| error.to_string());
            let last = self.parts.snapshots.visible();
            let logs =
                format!("of writes behind sequence number {last} nothing is known: their log may be missing ({error})");
            return Some(lines.chain([logs]).collect::<Vec<_>>().join("\n"));
        }
        inspect::property(&self.parts, name)
    }

    fn approximate_bytes(&self, begin: &[u8], end: &[u8]) -> Result<u64, Error> {
        self.parts.board.refuse_if_closed()?;
        inspect::approximate_bytes(&self.parts, begin, end)
    }

    fn check(&self) -> Result<Vec<Finding>, Error> {
        self.parts.board.refuse_if_closed()?;
        let mut findings = inspect::check(&self.parts)?;
        if let Some(error) = missing_device(&*self.parts.files.media.files) {
            let message = format!(
                "of writes behind sequence number {} nothing is known: their log may be on the missing device ({error})",
                self.parts.snapshots.visible()
            );
            findings.push(Finding { severity: Severity::Error, code: "log-unknown", message });
        }
        let (bytes, sequence) = tail(&self.parts);
        let bytes = bytes.load(Ordering::Relaxed);
        if bytes > 0 {
            findings.push(Finding {
                severity: Severity::Warning,
                code: "log-tail-torn",
                message: format!(
                    "the last {bytes} bytes of the logs, behind sequence number {sequence}, are not a whole record: a write that did \
                     not end, as a crash leaves it, or a damaged one, which the log cannot tell apart; the next opening for \
                     writing drops them"
                ),
            });
        }
        Ok(findings)
    }

    fn close(&self) -> Result<(), Error> {
        self.parts.board.close();
        Ok(())
    }
}
