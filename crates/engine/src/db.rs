//! The database people use.

use crate::batch::WriteBatch;
use crate::db_iterator::DbIterator;
use crate::error::Error;
use crate::key::VALUE_BYTES_MAX;
use crate::media::Media;
use crate::operation::{ReadOptions, WriteOptions};
use crate::options::{OptionWithoutEffect, Options};
use crate::repair::{Originals, RepairPlan, RepairReport};
use crate::snapshot::Snapshot;
use crate::statistics::{Statistics, Totals};
use crate::tree::{Tree, kind_of};
use crate::value::Value;
use std::sync::Arc;
use varve_env::Env;
use varve_store::{FileStore, Finding};

/// An ordered key-value database on some media.
///
/// Keys are byte strings up to 64 KiB in byte order; values are byte strings up to 4 GiB - 1.
/// Cloning is cheap and gives another handle of the same database; all calls may come from any
/// thread. The last handle to go closes it.
///
/// A write that returned is visible to every later read. A write with [`WriteOptions::sync`] that
/// returned survives a power cut; one without survives the end of the process.
#[derive(Clone)]
pub struct Db {
    handle: Arc<Handle>,
}

struct Handle {
    tree: Box<dyn Tree>,
    env: Env,
    options_without_effect: Vec<OptionWithoutEffect>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Nobody is left to tell; `Db::close` reports.
        let _ = self.tree.close();
    }
}

impl Db {
    /// Opens the database on `media`, creating or recovering it as needed.
    ///
    /// Errors: [`Error::Missing`] and [`Error::Exists`] as the options ask; [`Error::Foreign`] for
    /// files of another program or a newer version; [`Error::Corruption`] for damage;
    /// `Locked` (see [`Error::kind`]) when it is open elsewhere.
    pub fn open(env: &Env, media: Media, options: Options) -> Result<Db, Error> {
        let options_without_effect = media.without_effect(&options);
        let tree = (kind_of(&options)?.open)(env, media, options)?;
        Ok(Db { handle: Arc::new(Handle { tree, env: env.clone(), options_without_effect }) })
    }

    /// Opens the database on `media` for reading only, as it is now: not a byte is written, no lock is taken, nothing runs
    /// in the background, and what would change something is [`Error::ReadOnly`].
    ///
    /// Another process may have it open for writing on media that several can read, as directories: this one then
    /// sees one consistent state, which holds every write acknowledged before this call began, and goes on
    /// seeing that one. Of tables beyond `max_open_files` the writer may remove some meanwhile; reading one of them
    /// is then `Locked` (see [`Error::kind`]).
    ///
    /// Cost: reads the logs, whose entries stay in memory whatever `write_buffer_size` says. Options of creating and
    /// writing mean nothing.
    ///
    /// Errors: [`Error::Missing`] when there is none; as [`Db::open`] for the rest. Damage is told when two readings
    /// agree on it.
    pub fn open_read_only(env: &Env, media: Media, options: Options) -> Result<Db, Error> {
        let options_without_effect = media.without_effect(&options);
        let tree = (kind_of(&options)?.open_read_only)(env, media, options)?;
        Ok(Db { handle: Arc::new(Handle { tree, env: env.clone(), options_without_effect }) })
    }

    /// The environment it runs in.
    pub fn env(&self) -> &Env {
        &self.handle.env
    }

    fn tree(&self) -> &dyn Tree {
        &*self.handle.tree
    }

    /// Sets the value of a key.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.put_with(key, value, &WriteOptions::default())
    }

    /// Sets the value of a key.
    pub fn put_with(&self, key: &[u8], value: &[u8], options: &WriteOptions) -> Result<(), Error> {
        // What `put` is about to refuse needs no space.
        let space = if value.len() > VALUE_BYTES_MAX { 0 } else { key.len() + value.len() + 16 };
        let mut batch = WriteBatch::with_capacity(space);
        batch.put(key, value)?;
        self.tree().write(batch, options)
    }

    /// Removes a key; removing one that is not there is no error.
    pub fn delete(&self, key: &[u8]) -> Result<(), Error> {
        self.delete_with(key, &WriteOptions::default())
    }

    /// Removes a key; removing one that is not there is no error.
    pub fn delete_with(&self, key: &[u8], options: &WriteOptions) -> Result<(), Error> {
        let mut batch = WriteBatch::with_capacity(key.len() + 16);
        batch.delete(key)?;
        self.tree().write(batch, options)
    }

    /// Applies a batch atomically, entries in order.
    pub fn write(&self, batch: WriteBatch, options: &WriteOptions) -> Result<(), Error> {
        self.tree().write(batch, options)
    }

    /// Value of a key, if it has one, without copying it out of the block cache.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, Error> {
        self.get_with(key, &ReadOptions::default())
    }

    /// Value of a key, if it has one.
    pub fn get_with(&self, key: &[u8], options: &ReadOptions<'_>) -> Result<Option<Value>, Error> {
        self.tree().get(key, options)
    }

    /// Values of many keys, in the order asked, all as of one moment.
    pub fn multi_get(&self, keys: &[&[u8]], options: &ReadOptions<'_>) -> Vec<Result<Option<Value>, Error>> {
        self.tree().multi_get(keys, options)
    }

    /// A walk over live keys as of now, or of a snapshot.
    pub fn iterator(&self, options: &ReadOptions<'_>) -> Result<DbIterator, Error> {
        self.tree().iterator(options)
    }

    /// Holds the state of now for later reads.
    pub fn snapshot(&self) -> Snapshot {
        self.tree().snapshot()
    }

    /// Writes memtables to tables; everything written before is durable when this returns.
    pub fn flush(&self) -> Result<(), Error> {
        self.tree().flush()
    }

    /// Compacts all tables that hold keys in `[begin, end]` to the last level; open ends mean all.
    pub fn compact_range(&self, begin: Option<&[u8]>, end: Option<&[u8]>) -> Result<(), Error> {
        self.tree().compact_range(begin, end)
    }

    /// Waits until no flush or compaction runs or is due.
    pub fn wait_idle(&self) -> Result<(), Error> {
        self.tree().wait_idle()
    }

    /// Writes a database equal to the state of now into `target`, which must be empty. Shares
    /// files instead of copying where both stores can; what is copied is verified, and damage is an error.
    pub fn checkpoint(&self, target: &dyn FileStore) -> Result<(), Error> {
        self.tree().checkpoint(target)
    }

    /// What was done to the database since it was created, as its manifest says: after a crash too it is the exact sum over
    /// the flushes and compactions whose result is in the tree. What an opening for reading sees is as of that opening.
    ///
    /// A checkpoint is a new database and begins at zero. A repair goes on with what the manifest said and adds what it
    /// flushes and compacts itself. `None` when it is not known: the manifest was made by a version that did not count,
    /// or by a repair that could not read the one before.
    ///
    /// Cost: waits while a change of the tree is being made durable; reads nothing from the medium.
    pub fn totals(&self) -> Option<Totals> {
        self.tree().totals()
    }

    /// Counters since this opening, and shape of the tree.
    pub fn statistics(&self) -> Statistics {
        self.tree().statistics()
    }

    /// A property by name; `None` for any other, and for one that is not the tree's.
    ///
    /// - *Of any tree*: `varve.options-without-effect` (a line for each: name, a colon and the reason), `varve.stats`, `varve.estimate-num-keys`, `varve.cur-size-all-mem-tables`, `varve.num-snapshots`,
    ///   `varve.write-state` (which writes are taken now, and why).
    /// - *Of trees of tables*: `varve.levels`, `varve.num-files-at-levelN`, `varve.total-table-bytes`, `varve.tables` (a line for each
    ///   table: level, number, bytes, entries, smallest and largest key, escaped), `varve.overlap-depth` (tables that may hold
    ///   a key, the mean over all pairs), `varve.memtables` (a line for each group, in the order in which they are flushed: `waiting` or
    ///   `active`, `all` or `some` of the keys, bytes, entries, memtables that have entries), `varve.num-immutable-mem-table`, `varve.block-cache-usage`,
    ///   `varve.estimate-pending-compaction-bytes`, `varve.num-running-jobs` (flushes and compactions, told without looking
    ///   at tables).
    /// - *Without a device of its set*: `varve.unreadable` (a line for each range of keys that cannot be read, and one that says up
    ///   to which sequence number writes are known).
    pub fn property(&self, name: &str) -> Option<String> {
        if name == "varve.options-without-effect" {
            let lines = self.options_without_effect().iter();
            return Some(lines.map(|option| format!("{}: {}\n", option.name, option.reason)).collect());
        }
        self.tree().property(name)
    }

    /// Options of this opening that are not at their default and have no effect on this tree or medium.
    pub fn options_without_effect(&self) -> &[OptionWithoutEffect] {
        &self.handle.options_without_effect
    }

    /// About how many bytes of tables hold keys of `[begin, end)`, to within a block per table.
    /// What is still in memtables is not counted.
    pub fn approximate_bytes(&self, begin: &[u8], end: &[u8]) -> Result<u64, Error> {
        self.tree().approximate_bytes(begin, end)
    }

    /// Reads and verifies every table and the store below. Cost: reads everything.
    pub fn check(&self) -> Result<Vec<Finding>, Error> {
        self.tree().check()
    }

    /// Stops background work and releases the lock, and tells whether that went well. Other
    /// handles answer [`Error::Closed`] afterwards.
    pub fn close(&self) -> Result<(), Error> {
        self.tree().close()
    }
}

/// What [`repair`] would do with what is on `media`. Changes nothing, not even a lock.
///
/// Errors: as those of [`repair`]. Cost: reads everything.
pub fn plan_repair(env: &Env, media: &Media, options: &Options) -> Result<RepairPlan, Error> {
    (kind_of(options)?.plan_repair)(env, media, options)
}

/// Makes a database that opens out of whatever can still be read on `media`, which must not be open.
///
/// Repair uses every data block of a damaged table whose checksum matches, whatever else of the table is damaged or missing.
/// Cost: reads everything twice, damaged tables more often, and writes everything; memory for the largest damaged table. Keys whose
/// newest version was lost may show an older one, and deleted keys whose deletion was lost may come back: findings with the code
/// `keys-may-be-stale` say which. Nothing is removed: what is damaged, or not used, is kept, renamed
/// to `damaged-...`, and so are the sound files whose entries are in fresh ones, as `replaced-...`. They take as much space
/// as before; [`repair_and_discard`] gives back that of the sound ones. On a medium without space to write everything
/// again, sound tables and logs stay where they are, and a fresh manifest names what is left.
///
/// Errors: [`Error::Missing`] when there is nothing, [`Error::Foreign`] when nothing says that the files are of a
/// Varve database, or some are of another version of it: then nothing was changed. Others are those of the store: of a
/// medium that fails now, or a file that does not open, nothing is taken for damaged; every file stays, and the repair
/// is run again when the medium works. Sectors that the medium says are unreadable are read again, and are damage if
/// they stay so. Damage is in the report. [`ErrorKind::NoSpace`](crate::ErrorKind::NoSpace): the old database is as it was.
pub fn repair(env: &Env, media: Media, options: Options) -> Result<RepairReport, Error> {
    (kind_of(&options)?.repair)(env, media, options, Originals::SetAside)
}

/// [`repair`] that removes, once their entries are durable in fresh tables, the sound files it replaced, and those that
/// earlier repairs replaced and kept. What was damaged is kept.
pub fn repair_and_discard(env: &Env, media: Media, options: Options) -> Result<RepairReport, Error> {
    (kind_of(&options)?.repair)(env, media, options, Originals::Discard)
}
