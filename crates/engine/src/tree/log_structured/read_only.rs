//! A tree that is only read, perhaps while another process writes it.
//!
//! Nothing is written, no lock is taken, nothing runs in the background: the manifest says which tables there are, and
//! what the logs hold becomes memtables, all of it, beyond the size at which a writer would flush.
//!
//! Beside a writer it is read as [`read_beside_writer`] says: the manifest, then the tables it names, then the logs it needs.
//! The tables are held open from then on, as far as `max_open_files` goes.

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
use crate::inventory::{needed_logs, read_beside_writer, recover_manifest};
use crate::key::Sequence;
use crate::media::FileMedia;
use crate::operation::{ReadOptions, WriteOptions};
use crate::options::Options;
use crate::shape::{CompactionPolicy, Garbage};
use crate::snapshot::Snapshot;
use crate::statistics::{Statistics, Totals};
use crate::tree::Tree;
use crate::value::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_env::Env;
use varve_store::{FileStore, Finding, OpenOptions, ReadOnlyStore, Severity};

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
    let recovered = recovery::compare_with_files(&manifest, &*policy, &*media.files, &listing, &garbage)?;
    let opening = OpenOptions { direct: options.use_direct_reads };
    for (_, file) in recovered.version.files().take(options.max_open_files) {
        files.hold(&file_name::table(file.number), &opening)?;
    }
    let log_numbers = needed_logs(&media, recovered.log_number, manifest.number)?;

    let blocks = Arc::new(BlockCache::new(options.block_cache_capacity, options.block_cache_shard_bits, None));
    let tables = Tables::new(env, &media, options, blocks, garbage);
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
    let replayed = parts.logs.replay_of(&log_numbers, recovered.log_number, recovered.last_sequence);
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
        inspect::property(&self.parts, name)
    }

    fn approximate_bytes(&self, begin: &[u8], end: &[u8]) -> Result<u64, Error> {
        self.parts.board.refuse_if_closed()?;
        inspect::approximate_bytes(&self.parts, begin, end)
    }

    fn check(&self) -> Result<Vec<Finding>, Error> {
        self.parts.board.refuse_if_closed()?;
        let mut findings = inspect::check(&self.parts)?;
        let (bytes, sequence) = tail(&self.parts);
        let bytes = bytes.load(Ordering::Relaxed);
        if bytes > 0 {
            findings.push(Finding {
                severity: Severity::Warning,
                code: "log-tail-torn",
                message: format!(
                    "the last {bytes} bytes of the logs, behind sequence number {sequence}, are of a write that did not \
                     end and was never acknowledged as durable; the next opening for writing drops them"
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
