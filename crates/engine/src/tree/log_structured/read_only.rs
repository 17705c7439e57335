//! A tree that is only read, perhaps while another process writes it.
//!
//! Nothing is written, no lock is taken, nothing runs in the background: the manifest says which tables there are, and
//! what the logs hold becomes memtables, all of it, beyond the size at which a writer would flush.
//!
//! **Beside a writer.** What a writer acknowledged is in files that can be read, so the state is the manifest, then the
//! files it names, then the logs it needs, in this order: each is at least as new as the one before. What a newer
//! manifest made needless may be gone by the time it is looked for, and what is being written may be met half way. So
//! what is missing or damaged counts only when it is found so twice: everything is read again, from CURRENT on, until
//! two readings fail alike. The tables are held open from then on, as far as `max_open_files` goes.
//!
//! **Where a log ends** is said by the log, as for an opening that writes: before the first record that is not whole,
//! unless something proves that it was synced, which is damage. A record that is not whole is being written, or was when its
//! process or machine stopped. The first is nothing; the second is counted and told, so where a log ends
//! within a record it is read again: the same end twice is one that nobody writes on.

use super::inspect;
use super::read;
use super::recovery;
use super::shared::{InDoubt, ManifestState, Shared};
use super::tables::Tables;
use crate::batch::WriteBatch;
use crate::cache::BlockCache;
use crate::db_iterator::DbIterator;
use crate::error::{Error, ErrorKind};
use crate::file_name;
use crate::inventory::{self, NO_LOG};
use crate::key::Sequence;
use crate::manifest::Manifest;
use crate::media::Media;
use crate::memtable::MemTable;
use crate::operation::{ReadOptions, WriteOptions};
use crate::options::Options;
use crate::shape::{CompactionPolicy, Garbage};
use crate::snapshot::Snapshot;
use crate::space::Sizes;
use crate::statistics::{Statistics, Totals};
use crate::tree::Tree;
use crate::value::Value;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use varve_env::Env;
use varve_store::{FileStore, Finding, OpenOptions, ReadOnlyStore, Severity};

/// Readings from the start before a state that changes each time is given up.
const READINGS_MAX: u32 = 200;

/// Between two readings: what a writer has in hand is done by then, mostly.
const PAUSE: Duration = Duration::from_millis(1);

/// A tree of tables of which nothing changes.
pub(crate) struct ReadOnlyTree {
    shared: Arc<Shared>,
}

impl ReadOnlyTree {
    /// Opens the database on `media` for reading; see [`crate::Db::open_read_only`].
    pub(crate) fn open(
        env: &Env,
        media: Media,
        options: Options,
        policy_of: impl Fn(&Options) -> Box<dyn CompactionPolicy>,
    ) -> Result<Self, Error> {
        let mut failure = None;
        let mut torn = None;
        let mut readings = 0;
        loop {
            readings += 1;
            match read_all(env, &media, &options, policy_of(&options)) {
                Ok(shared) => {
                    let found = torn_tail(&shared);
                    if found.is_none() || found == torn {
                        return Ok(ReadOnlyTree { shared });
                    }
                    if torn.is_some() || readings == READINGS_MAX {
                        // The end moved on: somebody writes, and what he was writing is not lost.
                        shared.counters.recovery_dropped_bytes.store(0, Ordering::Relaxed);
                        return Ok(ReadOnlyTree { shared });
                    }
                    torn = found;
                }
                Err(error) if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Foreign) => {
                    let text = error.to_string();
                    if readings == READINGS_MAX || failure.as_ref() == Some(&text) {
                        return Err(error);
                    }
                    failure = Some(text);
                }
                Err(error) => return Err(error),
            }
            env.sleep(PAUSE);
        }
    }

    fn refuse<T>(&self, operation: &'static str) -> Result<T, Error> {
        self.shared.refuse_if_closed()?;
        Err(Error::ReadOnly { store: self.shared.media.files.name().to_owned(), operation })
    }
}

/// Bytes of records that are not whole, and the newest sequence number before them.
fn torn_tail(shared: &Shared) -> Option<(u64, Sequence)> {
    let bytes = shared.counters.recovery_dropped_bytes.load(Ordering::Relaxed);
    (bytes > 0).then(|| (bytes, shared.snapshots.visible()))
}

/// One reading, from CURRENT on.
fn read_all(
    env: &Env,
    media: &Media,
    options: &Options,
    policy: Box<dyn CompactionPolicy>,
) -> Result<Arc<Shared>, Error> {
    let files = Arc::new(ReadOnlyStore::new(media.files.clone()));
    let logs: Option<Arc<dyn FileStore>> = match &media.logs {
        Some(logs) => Some(Arc::new(ReadOnlyStore::new(logs.clone()))),
        None => None,
    };
    let media = Media { files: files.clone(), logs };
    let garbage = Arc::new(Garbage::default());

    let manifest = match Manifest::recover(&*media.files, policy.name()) {
        Err(missing @ Error::Missing { .. }) => {
            let (file_names, log_names) =
                (inventory::names(&files.list()?), inventory::names(&media.log_store().list()?));
            inventory::refuse_orphans(&media, &file_names, &inventory::log_numbers(&log_names))?;
            return Err(missing);
        }
        manifest => manifest?,
    };
    let listing = files.list()?;
    let recovered = recovery::compare_with_files(&manifest, &*policy, &listing, &garbage)?;
    let opening = OpenOptions { direct: options.use_direct_reads };
    for (_, file) in recovered.version.files().take(options.max_open_files) {
        files.hold(&file_name::table(file.number), &opening)?;
    }
    let mut log_numbers = inventory::log_numbers(&inventory::names(&media.log_store().list()?));
    inventory::retain_needed(&mut log_numbers, recovered.log_number, manifest.number)?;

    let blocks = Arc::new(BlockCache::new(options.block_cache_capacity, options.block_cache_shard_bits, None));
    let tables = Tables::new(env, &media, options, blocks);
    let memtable = Arc::new(MemTable::new(NO_LOG, Sizes::new(options, &*media.files).memtable_bytes, 0));
    let state = ManifestState {
        manifest: None,
        named: Some(manifest.number),
        log_number: recovered.log_number,
        last_sequence: recovered.last_sequence,
        totals: recovered.totals,
        in_doubt: InDoubt::default(),
    };
    let shared = Arc::new(Shared::new(
        env,
        recovered.database,
        media,
        options.clone(),
        policy,
        tables,
        garbage,
        memtable,
        recovered.version,
        state,
        recovered.next_file_number,
        recovered.last_sequence,
    ));
    let replayed = shared.logs.replay_of(&log_numbers, recovered.log_number, recovered.last_sequence);
    recovery::replay_into_memory(&shared, &replayed)?;
    files.settle();
    Ok(shared)
}

impl Tree for ReadOnlyTree {
    fn write(&self, _batch: WriteBatch, _options: &WriteOptions) -> Result<(), Error> {
        self.refuse("write")
    }

    fn get(&self, key: &[u8], options: &ReadOptions<'_>) -> Result<Option<Value>, Error> {
        self.shared.refuse_if_closed()?;
        read::get(&self.shared, key, options)
    }

    fn multi_get(&self, keys: &[&[u8]], options: &ReadOptions<'_>) -> Vec<Result<Option<Value>, Error>> {
        if let Err(error) = self.shared.refuse_if_closed() {
            return keys.iter().map(|_| Err(error.clone())).collect();
        }
        read::multi_get(&self.shared, keys, options)
    }

    fn iterator(&self, options: &ReadOptions<'_>) -> Result<DbIterator, Error> {
        self.shared.refuse_if_closed()?;
        read::iterator(&self.shared, options)
    }

    fn snapshot(&self) -> Snapshot {
        self.shared.snapshots.take()
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
        inspect::statistics(&self.shared)
    }

    fn totals(&self) -> Option<Totals> {
        self.shared.manifest.lock().totals
    }

    fn property(&self, name: &str) -> Option<String> {
        inspect::property(&self.shared, name)
    }

    fn approximate_bytes(&self, begin: &[u8], end: &[u8]) -> Result<u64, Error> {
        self.shared.refuse_if_closed()?;
        inspect::approximate_bytes(&self.shared, begin, end)
    }

    fn check(&self) -> Result<Vec<Finding>, Error> {
        self.shared.refuse_if_closed()?;
        let mut findings = inspect::check(&self.shared)?;
        if let Some((bytes, sequence)) = torn_tail(&self.shared) {
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
        self.shared.closed.store(true, Ordering::Release);
        Ok(())
    }
}
