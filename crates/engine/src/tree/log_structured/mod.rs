//! What trees of tables have in common (log-structured merge trees).
//!
//! Writes go to a log and a memtable; full memtables become tables of level 0, whose tables
//! overlap; compactions move data down. A [`CompactionPolicy`] says what to compact and where, as a pure
//! function; `compaction` and `flush` do it; `parts` holds what all of them see.

mod background;
mod board;
mod catalog;
mod checkpoint;
mod files;
mod inspect;
mod jobs;
mod level_iterator;
mod manual;
mod options;
mod parts;
mod pool;
mod read;
mod read_only;
mod recovery;
mod relief;
mod repair;
mod salvage;
mod tables;
mod write;
mod write_space;

pub(crate) use self::options::check_options;
pub(crate) use self::read_only::ReadOnlyTree;
pub(crate) use self::repair::{plan_repair, repair};

use self::parts::TreeParts;
use self::write::WritePath;
use crate::batch::WriteBatch;
use crate::cache::{BlockCache, EvictionQueue, EvictionSink};
use crate::db_iterator::DbIterator;
use crate::error::Error;
use crate::inventory;
use crate::media::FileMedia;
use crate::operation::{ReadOptions, WriteOptions};
use crate::options::Options;
use crate::shape::CompactionPolicy;
use crate::snapshot::Snapshot;
use crate::statistics::{Statistics, Totals};
use crate::tree::Tree;
use crate::value::Value;
use std::sync::Arc;
use varve_env::{Env, JoinHandle};
use varve_store::{FileStore, Finding, StoreLock};

/// Evicted blocks on their way to the store; more are dropped.
const EVICTIONS_WAITING_MAX: usize = 256;

/// A tree of tables; see the module.
pub(crate) struct LogStructuredTree {
    parts: Arc<TreeParts>,
    write_path: WritePath,
    workers: parking_lot::Mutex<Vec<JoinHandle<()>>>,
    locks: parking_lot::Mutex<Vec<Box<dyn StoreLock>>>,
}

impl LogStructuredTree {
    /// Opens or creates the database on `media`; see [`crate::Db::open`].
    pub(crate) fn open(
        env: &Env,
        media: FileMedia,
        options: Options,
        policy: Box<dyn CompactionPolicy>,
    ) -> Result<Self, Error> {
        let locks = inventory::lock(&media)?;
        let mut evictions = None;
        let mut sink: Option<Arc<dyn EvictionSink>> = None;
        if media.files.properties().wants_evictions {
            let (queue, receiver) = EvictionQueue::new(env, EVICTIONS_WAITING_MAX);
            sink = Some(queue);
            evictions = Some((media.files.clone(), receiver));
        }
        let blocks = Arc::new(BlockCache::new(options.block_cache_capacity, options.block_cache_shard_bits, sink));
        let (parts, writer) = recovery::open(env, media, options, policy, blocks)?;
        let write_path = WritePath::new(&parts, writer);
        let mut workers = background::start(&parts);
        if let Some((files, receiver)) = evictions {
            workers.push(background::pass_evictions(&parts, files, receiver));
        }
        inspect::announce_levels(&parts);
        parts.scans.relieve(&parts);
        Ok(LogStructuredTree {
            parts,
            write_path,
            workers: parking_lot::Mutex::new(workers),
            locks: parking_lot::Mutex::new(locks),
        })
    }
}

impl Tree for LogStructuredTree {
    fn write(&self, batch: WriteBatch, options: &WriteOptions) -> Result<(), Error> {
        if batch.is_empty() && !options.sync {
            return Ok(());
        }
        self.write_path.write(&self.parts, batch, options.sync)
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
        if self.parts.scans.is_flush_due() {
            self.write_path.flush_for_scans(&self.parts);
        }
        read::iterator(&self.parts, options)
    }

    fn snapshot(&self) -> Snapshot {
        self.parts.snapshots.take()
    }

    fn flush(&self) -> Result<(), Error> {
        self.write_path.flush(&self.parts)
    }

    fn compact_range(&self, begin: Option<&[u8]>, end: Option<&[u8]>) -> Result<(), Error> {
        self.write_path.flush(&self.parts)?;
        manual::compact_range(&self.parts, begin, end)
    }

    fn wait_idle(&self) -> Result<(), Error> {
        background::wait_until_idle(&self.parts)
    }

    fn checkpoint(&self, target: &dyn FileStore) -> Result<(), Error> {
        let version = self.write_path.flush_to_version(&self.parts)?;
        checkpoint::write(&self.parts, &version, target)
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
        inspect::check(&self.parts)
    }

    fn close(&self) -> Result<(), Error> {
        if self.parts.board.lock().closing {
            return Ok(());
        }
        // Workers are still there.
        let secured = self.write_path.secure(&self.parts);
        {
            let mut jobs = self.parts.board.lock();
            if jobs.closing {
                return Ok(());
            }
            jobs.closing = true;
            self.parts.board.cancel();
            self.parts.throttle.end();
            self.parts.board.work.notify_all();
            self.parts.board.done.notify_all();
        }
        let mut result = Ok(());
        let workers = std::mem::take(&mut *self.workers.lock());
        for worker in workers {
            if let Err(panicked) = worker.join() {
                result = Err(Error::Poisoned { cause: panicked.to_string() });
            }
        }
        {
            // A compaction a caller runs goes on with its current table; nothing may be written, and
            // above all nothing removed, once the lock is gone.
            let mut jobs = self.parts.board.lock();
            while jobs.manual > 0 {
                self.parts.board.done.wait(&mut jobs);
            }
        }
        let sealed = self.write_path.close(&self.parts);
        self.parts.board.close();
        self.parts.files.tables.collect();
        self.locks.lock().clear();
        result.and(secured).and(sealed)
    }
}

#[cfg(test)]
mod load_tests;
#[cfg(test)]
mod tests;
