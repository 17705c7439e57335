//! An ordered map in memory, and a log of it: the example for whoever adds a tree.
//!
//! Everything is in one memtable, read at sequence numbers, and in a chain of logs ([`crate::log_chain`]) whose first begins with
//! what was there when it was begun. A log that has grown to twice that is written anew, as are one that broke and those an
//! opening found; on a full medium with the first write. A manifest says which log is the first. Data has to
//! fit in memory; versions nobody sees any more are let go of when the log is written anew.

use super::Tree;
use super::kinds::Kind;
use crate::batch::WriteBatch;
use crate::commit::{Commit, CommitFailure, CommitHead, Committer, Group, WriteGroup, panic_message};
use crate::cost;
use crate::db_iterator::DbIterator;
use crate::error::{Error, ErrorKind};
use crate::file_name;
use crate::inventory::{self, NO_LOG, Needed};
use crate::key::{self, EntryKind, KEY_BYTES_MAX, Sequence};
use crate::log::LogBacklog;
use crate::log_chain::{FreshLog, LogChain, LogChainOptions, LogHead, Replay, open_log, replay, write_log};
use crate::manifest::{Manifest, ManifestIdentity, Recovered, VersionEdit};
use crate::media::FileMedia;
use crate::memtable::MemTable;
use crate::operation::{ReadOptions, WriteOptions};
use crate::options::{Options, TreeKind};
use crate::repair::{self, Condition, Originals, Repair, RepairReport};
use crate::snapshot::{Snapshot, SnapshotList};
use crate::statistics::{Statistics, Totals, WriteState};
use crate::value::Value;
use arc_swap::{ArcSwap, Guard};
use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use varve_env::{Env, Mutex, Random};
use varve_store::{FileStore, Finding, ReadOnlyStore, Severity, StoreLock};

const NAME: &str = "memory";

pub(super) const KIND: Kind = Kind {
    tree: TreeKind::Memory,
    check_options: |_| Ok(()),
    open: |env, media, options| Ok(Box::new(MemoryTree::open(env, &media.file_media(&options)?, &options)?)),
    open_read_only: |env, media, options| {
        Ok(Box::new(MemoryTree::open_read_only(env, &media.file_media(&options)?, &options)?))
    },
    plan_repair: |_, media, options| {
        repair::plan_repair(&media.file_media(options)?, NAME, &|_| Box::new(table_condition))
    },
    repair: |env, media, options, originals| repair(env, media.file_media(&options)?, options, originals),
};

fn table_condition(number: u64, _: Option<&Recovered>) -> Condition {
    let (expected, found) = ("no tables: a tree in memory keeps everything in logs".to_owned(), "one".to_owned());
    let (file, structure) = (file_name::table(number), "database".to_owned());
    Condition::Unreadable(Error::Corruption { file, offset_bytes: 0, structure, expected, found })
}

fn repair(env: &Env, media: FileMedia, options: Options, originals: Originals) -> Result<RepairReport, Error> {
    let mut repair = Repair::begin(&media, originals, NAME, &|_| Box::new(table_condition))?;
    let fresh_from = repair.highest_number + 1;
    let new_database = inventory::new_database_id(env, &*media.files);
    let (mut last_sequence, entries) = (repair.last_sequence(), MemTable::new(NO_LOG, options.write_buffer_size, 0));
    repair.read_logs(&mut |batch| {
        // What a log that was never named repeats is in those before it.
        if batch.first_sequence > last_sequence {
            entries.apply(batch.iter(), batch.first_sequence);
            last_sequence = batch.last_sequence();
        }
        Ok(())
    })?;
    repair.mark()?;
    let database = repair.database.unwrap_or(new_database);
    let tree = MemoryTree::with(env, &repair.media, &options, database, fresh_from, entries, last_sequence);
    let mut writer = tree.writer.lock();
    tree.write_anew(&mut writer)?;
    let report = repair.finish(&needed(&writer), fresh_from)?;
    drop(writer);
    tree.close()?;
    Ok(RepairReport { entries: tree.entries.load().entries(), ..report })
}

/// What the leader of writers has in hand.
struct Writer {
    head: CommitHead,
    next_file_number: u64,
    salts: Random,
    /// The manifest that CURRENT names, and the first log it needs.
    manifest: Option<u64>,
    oldest_log: u64,
    /// Bytes of batches since the log was begun, and at which it is written anew.
    log_bytes: u64,
    log_bytes_max: u64,
    /// Why nothing is written any more.
    ended: Option<Error>,
}

impl Writer {
    fn new_number(&mut self) -> u64 {
        self.next_file_number += 1;
        self.next_file_number - 1
    }
}

/// See the module.
struct MemoryTree {
    env: Env,
    media: FileMedia,
    options: Options,
    database: u64,
    entries: ArcSwap<MemTable>,
    snapshots: Arc<SnapshotList>,
    group: WriteGroup,
    logs: LogChain,
    writer: Mutex<Writer>,
    /// Behind the ends of logs.
    dropped_bytes: AtomicU64,
    /// How often the log was written anew.
    compactions: AtomicU64,
    closed: AtomicBool,
    locks: parking_lot::Mutex<Vec<Box<dyn StoreLock>>>,
}

impl MemoryTree {
    /// A database with these entries, of which nothing is written.
    fn with(
        env: &Env,
        media: &FileMedia,
        options: &Options,
        database: u64,
        next_file_number: u64,
        entries: MemTable,
        last_sequence: Sequence,
    ) -> MemoryTree {
        let log_options = LogChainOptions {
            database,
            buffer_bytes: options.log_buffer_bytes(media.log_store().properties()) as u64,
            expected_bytes: options.write_buffer_size as u64,
        };
        let writer = Writer {
            // Without a log the first write writes one.
            head: CommitHead { log: LogHead::new(None), last_sequence },
            next_file_number,
            salts: env.random(&format!("salts of {database:016x} from {next_file_number}")),
            manifest: None,
            oldest_log: NO_LOG,
            log_bytes: 0,
            log_bytes_max: 0,
            ended: None,
        };
        MemoryTree {
            env: env.clone(),
            media: media.clone(),
            options: options.clone(),
            database,
            entries: ArcSwap::from_pointee(entries),
            snapshots: SnapshotList::new(last_sequence),
            group: WriteGroup::new(env),
            logs: LogChain::new(env, media.log_store(), log_options, &Arc::new(LogBacklog::new(0)), NO_LOG),
            writer: Mutex::new(env, "log", writer),
            dropped_bytes: AtomicU64::new(0),
            compactions: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            locks: parking_lot::Mutex::default(),
        }
    }

    /// Reads what is there, and writes nothing.
    fn read(env: &Env, media: &FileMedia, options: &Options) -> Result<MemoryTree, Error> {
        let mut logs = inventory::log_numbers(&inventory::names(&media.log_store().list()?));
        let manifest = match Manifest::recover(&*media.files, NAME) {
            Err(missing @ Error::Missing { .. }) => {
                inventory::refuse_orphans(media, &inventory::names(&media.files.list()?), &logs)?;
                return Err(missing);
            }
            manifest => manifest?,
        };
        let (oldest, next) = (manifest.contents.log_number, manifest.contents.next_file_number);
        inventory::retain_needed(&mut logs, oldest, manifest.number)?;
        let entries = Self::no_entries(env, options);
        let (store, database) = (&**media.log_store(), manifest.database);
        let last_sequence = manifest.contents.last_sequence;
        // One that was begun anew, and that no manifest names yet, continues none.
        let continues = |number: u64| {
            !open_log(store, number).is_ok_and(|log| log.header().is_some_and(|log| log.previous.is_none()))
        };
        let chain: Vec<u64> = logs.iter().copied().filter(|&number| number == oldest || continues(number)).collect();
        let replayed = replay(&Replay { store, database, logs: &chain, oldest, last_sequence }, &mut |batch| {
            entries.apply(batch.iter(), batch.first_sequence);
            Ok(())
        })?;
        let next = next.max(inventory::highest_number(media)? + 1);
        let tree = Self::with(env, media, options, database, next, entries, replayed.last_sequence);
        tree.logs.adopt(&logs);
        tree.dropped_bytes.store(replayed.dropped_bytes, Ordering::Relaxed);
        let mut writer = tree.writer.lock();
        (writer.manifest, writer.oldest_log) = (Some(manifest.number), oldest);
        drop(writer);
        Ok(tree)
    }

    fn open(env: &Env, media: &FileMedia, options: &Options) -> Result<MemoryTree, Error> {
        let locks = inventory::lock(media)?;
        let tree = match Self::read(env, media, options) {
            Ok(_) if options.error_if_exists => Err(Error::Exists { store: media.files.name().to_owned() }),
            Err(Error::Missing { .. }) if options.create_if_missing => {
                let database = inventory::new_database_id(env, &*media.files);
                let next = inventory::highest_number(media)? + 1;
                Ok(Self::with(env, media, options, database, next, Self::no_entries(env, options), 0))
            }
            read => read,
        }?;
        let mut writer = tree.writer.lock();
        // What was found stays, also what no sync had reached. Without space for that it does with the first write.
        match tree.write_anew(&mut writer) {
            Err(error) if error.kind() == ErrorKind::NoSpace && writer.manifest.is_some() => {}
            result => result?,
        }
        inventory::remove_strays(media, &needed(&writer), u64::MAX);
        drop(writer);
        *tree.locks.lock() = locks;
        Ok(tree)
    }

    fn no_entries(env: &Env, options: &Options) -> MemTable {
        MemTable::new(NO_LOG, options.write_buffer_size, env.random("memtable").next_u64())
    }

    fn open_read_only(env: &Env, media: &FileMedia, options: &Options) -> Result<MemoryTree, Error> {
        let read_only = |store: &Arc<dyn FileStore>| Arc::new(ReadOnlyStore::new(store.clone()));
        let read = || {
            let files = read_only(&media.files);
            let logs = media.logs.as_ref().map(|logs| read_only(logs) as Arc<dyn FileStore>);
            let tree = Self::read(env, &FileMedia { files: files.clone(), logs }, options)?;
            files.settle();
            let store = media.files.name().to_owned();
            tree.writer.lock().ended = Some(Error::ReadOnly { store, operation: "write" });
            Ok(tree)
        };
        let torn_tail = |tree: &MemoryTree| {
            let bytes = tree.dropped_bytes.load(Ordering::Relaxed);
            (bytes > 0).then(|| (bytes, tree.snapshots.visible()))
        };
        let forget_tail = |tree: &MemoryTree| tree.dropped_bytes.store(0, Ordering::Relaxed);
        inventory::read_beside_writer(env, read, torn_tail, forget_tail)
    }

    /// Makes a log of what readers see now, and the manifest that names it, which does not hold before it is switched to.
    fn prepare(
        &self,
        writer: &mut Writer,
        files: &dyn FileStore,
        logs: &dyn FileStore,
        database: u64,
    ) -> Result<(FreshLog, Manifest), Error> {
        let (number, manifest_number, sequence) = (writer.new_number(), writer.new_number(), writer.head.last_sequence);
        let walk = walk(self.entries.load_full(), &ReadOptions::default(), sequence);
        let log = write_log(logs, (number, writer.salts.next_u64()), database, sequence, walk)?;
        let edit = VersionEdit {
            num_levels: Some(0),
            next_file_number: Some(writer.next_file_number),
            last_sequence: Some(sequence),
            log_number: Some(number),
            totals: Some(Totals::default()),
            ..VersionEdit::default()
        };
        let identity = ManifestIdentity { database, salt: writer.salts.next_u64() };
        let manifest = Manifest::prepare(files, manifest_number, NAME, &edit, identity);
        let manifest = manifest.inspect_err(|_| drop(logs.remove(&file_name::log(number))))?;
        Ok((log, manifest))
    }

    /// Goes on in a log that begins with everything. Where that fails, in the one there is, unless that broke.
    fn write_anew(&self, writer: &mut Writer) -> Result<(), Error> {
        let (files, logs) = (&*self.media.files, &**self.media.log_store());
        let (fresh, manifest) = self.prepare(writer, files, logs, self.database)?;
        if let Err(error) = manifest.switch(files) {
            // A crash may find either log: what comes next has to be in one that is surely found.
            writer.head.log.break_off();
            return Err(error);
        }
        self.logs.retire(fresh.number).into_iter().for_each(|number| drop(logs.remove(&file_name::log(number))));
        self.logs.adopt(&[fresh.number]);
        if let Some(old) = writer.manifest.replace(manifest.number()) {
            let _ = files.remove(&file_name::manifest(old));
        }
        (writer.oldest_log, writer.log_bytes) = (fresh.number, 0);
        writer.log_bytes_max = fresh.log.size_bytes().max(self.options.write_buffer_size as u64);
        writer.head =
            CommitHead { log: LogHead::new(Some((fresh.number, fresh.log))), last_sequence: fresh.last_sequence };
        let boundaries = self.snapshots.boundaries();
        self.entries.store(Arc::new(self.entries.load().visible(boundaries)));
        self.snapshots.publish(fresh.last_sequence);
        self.compactions.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn refuse_if_closed(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }
}

fn needed(writer: &Writer) -> Needed {
    Needed { tables: BTreeSet::new(), oldest_log: writer.oldest_log, manifest: writer.manifest }
}

/// What readers see of `entries` at `sequence`.
fn walk(entries: Arc<MemTable>, options: &ReadOptions<'_>, sequence: Sequence) -> DbIterator {
    let (source, pinned) = (Box::new(entries.iterator()), Box::new(entries));
    DbIterator::new(source, sequence, options.lower_bound.clone(), options.upper_bound.clone(), pinned)
}

impl Committer for MemoryTree {
    fn commit(&self, group: &Group<'_>) -> Result<Commit, Error> {
        let writer = &mut *self.writer.lock();
        writer.ended.clone().map_or(Ok(()), Err)?;
        if writer.head.log.is_broken() || writer.log_bytes > writer.log_bytes_max {
            let result = self.write_anew(writer);
            if writer.head.log.is_broken() {
                result?;
            } else if result.is_err() {
                writer.log_bytes_max = writer.log_bytes.saturating_mul(2);
            }
        }
        let entries = self.entries.load();
        let apply = |batch: &WriteBatch, sequence| {
            entries.apply(batch.iter(), sequence);
        };
        match writer.head.commit(&self.env, &self.logs, &self.snapshots, group, apply) {
            Ok(_) => writer.log_bytes += group.bytes as u64,
            Err(CommitFailure::Refused(error)) => return Err(error),
            Err(CommitFailure::InDoubt(error)) => {
                writer.ended = Some(Error::Poisoned { cause: error.to_string() });
                return Err(error);
            }
        }
        Ok(Commit::Done)
    }

    fn is_short_of_space(&self) -> bool {
        false
    }

    fn delete_waits(&self) {}

    fn panicked(&self, payload: &(dyn Any + Send)) -> Error {
        let error = Error::Poisoned { cause: format!("a write panicked: {}", panic_message(payload)) };
        let mut writer = self.writer.lock();
        writer.head.log.break_off();
        writer.ended = Some(error.clone());
        error
    }
}

impl Tree for MemoryTree {
    fn write(&self, batch: WriteBatch, options: &WriteOptions) -> Result<(), Error> {
        if batch.is_empty() && !options.sync { Ok(()) } else { self.group.write(self, batch, options.sync) }
    }

    fn get(&self, key: &[u8], options: &ReadOptions<'_>) -> Result<Option<Value>, Error> {
        self.multi_get(&[key], options).remove(0)
    }

    fn multi_get(&self, keys: &[&[u8]], options: &ReadOptions<'_>) -> Vec<Result<Option<Value>, Error>> {
        let refused = self.refuse_if_closed().and_then(|()| options.check_snapshot(&self.snapshots));
        let (entries, sequence) = self.snapshots.view(&self.entries, options.snapshot);
        let get = |key: &&[u8]| {
            refused.clone()?;
            if key.len() > KEY_BYTES_MAX {
                return Err(Error::KeyTooLong { found_bytes: key.len(), limit_bytes: KEY_BYTES_MAX });
            }
            self.env.charge(cost::GET);
            let found = entries.get(&key::lookup_key(key, sequence));
            let put = found.filter(|found| found.kind == EntryKind::Put);
            Ok(put.map(|found| Value::owned(found.value.to_vec())))
        };
        keys.iter().map(get).collect()
    }

    fn iterator(&self, options: &ReadOptions<'_>) -> Result<DbIterator, Error> {
        self.refuse_if_closed()?;
        options.check_snapshot(&self.snapshots)?;
        self.env.charge(cost::ITERATOR);
        let (entries, sequence) = self.snapshots.view(&self.entries, options.snapshot);
        Ok(walk(Guard::into_inner(entries), options, sequence))
    }

    fn snapshot(&self) -> Snapshot {
        self.snapshots.take()
    }

    fn flush(&self) -> Result<(), Error> {
        self.group.write(self, WriteBatch::new(), true)
    }

    fn compact_range(&self, _begin: Option<&[u8]>, _end: Option<&[u8]>) -> Result<(), Error> {
        let mut writer = self.writer.lock();
        writer.ended.clone().map_or(Ok(()), Err)?;
        self.write_anew(&mut writer)
    }

    fn wait_idle(&self) -> Result<(), Error> {
        Ok(())
    }

    fn checkpoint(&self, target: &dyn FileStore) -> Result<(), Error> {
        let mut writer = self.writer.lock();
        writer.ended.clone().map_or(Ok(()), Err)?;
        inventory::refuse_target(&self.media, target)?;
        let database = inventory::new_database_id(&self.env, target);
        let (fresh, manifest) = self.prepare(&mut writer, target, target, database)?;
        fresh.log.finish()?;
        manifest.switch(target)
    }

    fn statistics(&self) -> Statistics {
        let (entries, counters) = (self.entries.load(), self.logs.counters());
        let write_state = if self.writer.lock().ended.is_some() { WriteState::Poisoned } else { WriteState::Open };
        let mut statistics =
            Statistics { write_state, memtable_bytes: entries.reserved_bytes() as u64, ..Statistics::default() };
        statistics.counters.log_bytes = counters.file_bytes.load(Ordering::Relaxed);
        statistics.counters.log_syncs = counters.syncs.load(Ordering::Relaxed);
        statistics.counters.compactions = self.compactions.load(Ordering::Relaxed);
        statistics.counters.recovery_dropped_bytes = self.dropped_bytes.load(Ordering::Relaxed);
        (statistics.last_sequence, statistics.snapshots) = (self.snapshots.visible(), self.snapshots.len());
        statistics
    }

    fn totals(&self) -> Option<Totals> {
        Some(Totals::default())
    }

    fn property(&self, name: &str) -> Option<String> {
        let entries = self.entries.load();
        match name {
            "varve.estimate-num-keys" => {
                Some((entries.entries() - 2 * entries.deletions().min(entries.entries() / 2)).to_string())
            }
            "varve.cur-size-all-mem-tables" => Some(entries.memory_bytes().to_string()),
            "varve.num-snapshots" => Some(self.snapshots.len().to_string()),
            "varve.stats" => {
                Some(format!("{} entries, {} bytes in memory\n", entries.entries(), entries.memory_bytes()))
            }
            _ => None,
        }
    }

    fn approximate_bytes(&self, _begin: &[u8], _end: &[u8]) -> Result<u64, Error> {
        self.refuse_if_closed().map(|()| 0)
    }

    fn check(&self) -> Result<Vec<Finding>, Error> {
        let writer = self.writer.lock();
        self.refuse_if_closed()?;
        let mut findings = self.media.files.check()?;
        if let Some(logs) = &self.media.logs {
            findings.extend(logs.check()?);
        }
        let read = Self::read(&self.env, &self.media, &self.options).map(drop);
        drop(writer);
        let (severity, code) = (Severity::Error, "log-damaged");
        findings.extend(read.err().map(|error| Finding { severity, code, message: error.to_string() }));
        Ok(findings)
    }

    fn close(&self) -> Result<(), Error> {
        let mut writer = self.writer.lock();
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        writer.ended.get_or_insert(Error::Closed);
        let next = (writer.new_number(), writer.salts.next_u64());
        let result = writer.head.log.close(&self.logs, || next);
        self.locks.lock().clear();
        result
    }
}
