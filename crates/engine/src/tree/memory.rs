//! An ordered map in memory, and a log of it: the example for whoever adds a tree.
//!
//! Everything is in one memtable, read at sequence numbers, and in a chain of logs ([`crate::log_chain`]) whose first begins with
//! what was there when it was begun. A log that has grown to twice that is written anew, as are one that broke and those an
//! opening found; on a full medium with the first write. A manifest says which log is the first. Data has to
//! fit in memory; versions that no reader sees are dropped when the log is rewritten. Writes leave the space that this
//! takes ([`space`]).

mod space;

use super::Tree;
use super::kinds::Kind;
use crate::batch::{WriteBatch, check_key};
use crate::commit::{Commit, CommitHead, Committer, Group, WriteGroup, panic_message};
use crate::cost;
use crate::db_iterator::DbIterator;
use crate::error::{Error, ErrorKind};
use crate::inventory::{self, ApplyBatch, NO_LOG, Needed, RecoveredLogs};
use crate::key::{self, Sequence};
use crate::log_chain::{LogChain, LogRewrite, RewriteState, RewriteTarget};
use crate::media::FileMedia;
use crate::memtable::MemTable;
use crate::numbers::Numbers;
use crate::operation::{ReadOptions, WriteOptions};
use crate::options::{Options, TreeKind};
use crate::policy::tombstones;
use crate::repair::{self, Method, Originals, Repair, RepairReport, no_tables};
use crate::scans::{MemtableSteps, ScanTally};
use crate::snapshot::{Snapshot, SnapshotList};
use crate::statistics::{Counters, Statistics, Totals};
use crate::value::Value;
use arc_swap::{ArcSwap, Guard};
use space::{LogSpace, Look};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use varve_env::{Env, Mutex};
use varve_store::{FileStore, Finding, ReadOnlyStore, StoreLock};

const NAME: &str = "memory";

pub(super) const KIND: Kind = Kind {
    tree: TreeKind::Memory,
    check_options: |_| Ok(()),
    open: |env, media, options| Ok(Box::new(MemoryTree::open(env, &media.file_media(&options)?, &options)?)),
    open_read_only: |env, media, options| {
        Ok(Box::new(MemoryTree::open_read_only(env, &media.file_media(&options)?, &options)?))
    },
    plan_repair: |_, media, options| {
        repair::plan_repair(&media.file_media(options)?, NAME, Method::Rewrite, &no_tables)
    },
    repair: |env, media, options, originals| repair(env, &media.file_media(&options)?, &options, originals),
};

fn repair(env: &Env, media: &FileMedia, options: &Options, originals: Originals) -> Result<RepairReport, Error> {
    let mut repair = Repair::begin(media, originals, NAME, Method::Rewrite, &no_tables)?;
    let fresh_from = repair.highest_number + 1;
    let media = repair.media.clone();
    let tree = MemoryTree::load(env, &media, options, |apply| repair.read_all(env, apply))?;
    tree.write_anew(&mut tree.writer.lock())?;
    let report = repair.finish(&tree.needed(&tree.writer.lock()), fresh_from)?;
    tree.close()?;
    Ok(RepairReport { entries: tree.entries.load().entries(), ..report })
}

/// What the leader of writers has in hand.
struct Writer {
    head: CommitHead,
    rewrites: RewriteState,
    look: Look,
    /// Why nothing is written any more.
    ended: Option<Error>,
    locks: Vec<Box<dyn StoreLock>>,
}

/// See the module.
struct MemoryTree {
    env: Env,
    media: FileMedia,
    numbers: Numbers,
    entries: ArcSwap<MemTable>,
    snapshots: Arc<SnapshotList>,
    group: WriteGroup,
    logs: LogChain,
    writer: Mutex<Writer>,
    space: LogSpace,
    counters: Counters,
    /// Deletions that scans step over.
    scans: Arc<MemtableSteps>,
    closed: Arc<AtomicBool>,
}

impl MemoryTree {
    /// A tree that holds the batches `recover` finds. Writes nothing.
    fn load(
        env: &Env,
        media: &FileMedia,
        options: &Options,
        recover: impl FnOnce(ApplyBatch<'_>) -> Result<RecoveredLogs, Error>,
    ) -> Result<MemoryTree, Error> {
        let entries =
            MemTable::new(NO_LOG, options.write_buffer_size, env.random("memtable").next_u64()).counting_live();
        let found = recover(&mut |batch| {
            entries.apply(batch.iter(), batch.first_sequence);
            Ok(())
        })?;
        let rewrites = RewriteState::new(found.manifest, options.write_buffer_size as u64);
        let head = CommitHead::without_log(found.last_sequence);
        let writer = Writer { head, rewrites, look: Look::default(), ended: None, locks: Vec::new() };
        let snapshots = SnapshotList::new(found.last_sequence);
        Ok(MemoryTree {
            env: env.clone(),
            media: media.clone(),
            numbers: Numbers::new(env, found.database, found.next_file_number),
            entries: ArcSwap::from_pointee(entries),
            group: WriteGroup::new(env, &snapshots),
            scans: MemtableSteps::new(snapshots.clone()),
            snapshots,
            logs: found.chain(env, media, options),
            writer: Mutex::new(env, "log", writer),
            space: LogSpace::new(media, options),
            counters: Counters::after_recovery(found.dropped_bytes),
            closed: Arc::default(),
        })
    }

    fn open(env: &Env, media: &FileMedia, options: &Options) -> Result<MemoryTree, Error> {
        let locks = inventory::lock(media)?;
        let tree = Self::load(env, media, options, |apply| RecoveredLogs::open(env, media, NAME, options, apply))?;
        let mut writer = tree.writer.lock();
        writer.locks = locks;
        // What was found stays, also what no sync had reached. Without space for that it does with the first write.
        match tree.write_anew(&mut writer) {
            Err(error) if error.kind() == ErrorKind::NoSpace && writer.rewrites.manifest.is_some() => {}
            result => result?,
        }
        inventory::remove_strays(media, &tree.needed(&writer), u64::MAX);
        drop(writer);
        Ok(tree)
    }

    fn open_read_only(env: &Env, media: &FileMedia, options: &Options) -> Result<MemoryTree, Error> {
        let read = |read_only: FileMedia, _: &ReadOnlyStore| {
            let tree = Self::load(env, &read_only, options, |apply| RecoveredLogs::read(&read_only, NAME, apply))?;
            let store = media.files.name().to_owned();
            tree.writer.lock().ended = Some(Error::ReadOnly { store, operation: "write" });
            Ok(tree)
        };
        inventory::read_beside_writer(env, media, read, |tree| {
            (&tree.counters.recovery_dropped_bytes, tree.snapshots.visible())
        })
    }

    /// Begins a log of what readers see now.
    fn rewrite(&self, writer: &Writer, target: &RewriteTarget<'_>) -> Result<LogRewrite, Error> {
        let sequence = writer.head.last_sequence;
        writer.ended.clone().map_or(Ok(()), Err).and_then(|()| self.group.settle(sequence))?;
        let walk = DbIterator::of_memtable(self.entries.load_full(), sequence, &ReadOptions::default());
        LogRewrite::prepare(target, &self.numbers, sequence, walk)
    }

    /// Goes on in a log that begins with everything. Where that fails, in the one there is, unless that broke.
    fn write_anew(&self, writer: &mut Writer) -> Result<(), Error> {
        let (files, logs) = (&*self.media.files, &**self.media.log_store());
        let target = RewriteTarget { files, logs, tree: NAME, database: self.numbers.database };
        let rewrite = self.rewrite(writer, &target)?;
        let Writer { head, rewrites, .. } = writer;
        head.last_sequence = rewrite.switch(files, &self.logs, &mut head.log, rewrites)?;
        self.drop_hidden();
        self.snapshots.publish(head.last_sequence);
        self.counters.compactions.fetch_add(1, Ordering::Relaxed);
        self.note_rewritten(writer);
        Ok(())
    }

    /// Lets go of versions that no reader sees any more. All that was logged is in the memtable.
    fn drop_hidden(&self) {
        self.entries.store(Arc::new(self.entries.load().visible(self.snapshots.boundaries())));
        self.scans.reset();
    }

    fn needed(&self, writer: &Writer) -> Needed {
        Needed { tables: Default::default(), oldest_log: self.logs.oldest(), manifest: writer.rewrites.manifest }
    }

    fn refuse_if_closed(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }
}

impl Committer for MemoryTree {
    fn write_log(&self, group: &Group<'_>) -> Result<Commit, Error> {
        let writer = &mut *self.writer.lock();
        writer.ended.clone().map_or(Ok(()), Err)?;
        if writer.head.log.is_broken() || writer.rewrites.is_due() {
            let result = self.write_anew(writer);
            if writer.head.log.is_broken() {
                result?;
            } else if result.is_err() {
                writer.rewrites.postpone();
            }
        }
        if !self.find_space(writer, group)? {
            return Ok(Commit::Yields);
        }
        if tombstones::is_flush_due(self.scans.steps(), self.entries.load().entries()) {
            self.group.settle(writer.head.last_sequence)?;
            self.drop_hidden();
        }
        let logged = writer.head.write_log(&self.env, &self.logs, &self.counters, group);
        let logged = logged.map_err(|failure| failure.end(&mut writer.ended))?;
        writer.rewrites.note_written(group.bytes);
        Ok(logged)
    }

    fn apply(&self, group: &Group<'_>, first_sequence: Sequence) {
        let entries = self.entries.load();
        group.apply(&self.env, first_sequence, |batch, next| entries.apply(batch.iter(), next));
    }

    fn is_short_of_space(&self) -> bool {
        self.space.is_short()
    }

    fn delete_waits(&self) {}

    fn panicked(&self, payload: &(dyn Any + Send)) -> Error {
        let mut writer = self.writer.lock();
        writer.head.log.break_off();
        let cause = format!("a write panicked: {}", panic_message(payload));
        writer.ended.insert(Error::Poisoned { cause }).clone()
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
            check_key(key)?;
            self.env.charge(cost::GET);
            Ok(entries.get(&key::lookup_key(key, sequence)).and_then(|found| Value::in_memory(&found)))
        };
        let results: Vec<_> = keys.iter().map(get).collect();
        self.counters.note_gets(keys.len(), results.iter().flatten().flatten().count());
        results
    }

    fn iterator(&self, options: &ReadOptions<'_>) -> Result<DbIterator, Error> {
        self.refuse_if_closed()?;
        options.check_snapshot(&self.snapshots)?;
        self.counters.iterators.fetch_add(1, Ordering::Relaxed);
        self.env.charge(cost::ITERATOR);
        let (entries, sequence) = self.snapshots.view(&self.entries, options.snapshot);
        let walk = DbIterator::of_memtable(Guard::into_inner(entries), sequence, options);
        Ok(walk.of_tree(self.closed.clone(), Some(ScanTally::new(self.scans.clone()))))
    }

    fn snapshot(&self) -> Snapshot {
        self.snapshots.take()
    }

    fn flush(&self) -> Result<(), Error> {
        self.group.write(self, WriteBatch::new(), true)
    }

    fn compact_range(&self, _begin: Option<&[u8]>, _end: Option<&[u8]>) -> Result<(), Error> {
        self.write_anew(&mut self.writer.lock())
    }

    fn wait_idle(&self) -> Result<(), Error> {
        self.relieve(&mut self.writer.lock())
    }

    fn checkpoint(&self, target: &dyn FileStore) -> Result<(), Error> {
        let writer = self.writer.lock();
        writer.ended.clone().map_or(Ok(()), Err)?;
        inventory::refuse_target(&self.media, target)?;
        let database = inventory::new_database_id(&self.env, target);
        self.rewrite(&writer, &RewriteTarget { files: target, logs: target, tree: NAME, database })?.finish(target)
    }

    fn statistics(&self) -> Statistics {
        let (write_state, space) = self.write_state(&self.writer.lock());
        let memtable_bytes = self.entries.load().reserved_bytes() as u64;
        let mut of_any_tree =
            Statistics::of_any_tree(&self.counters, (self.logs.counters(), self.logs.gate()), &self.snapshots);
        of_any_tree.counters.scan_skipped_entries = self.scans.skipped_entries();
        Statistics { write_state, space, memtable_bytes, ..of_any_tree }
    }

    fn totals(&self) -> Option<Totals> {
        Some(Totals::default())
    }

    fn property(&self, name: &str) -> Option<String> {
        if name == "varve.estimate-num-keys" {
            return self.entries.load().live().map(|(keys, _)| keys.to_string());
        }
        self.statistics().property(name)
    }

    fn approximate_bytes(&self, _begin: &[u8], _end: &[u8]) -> Result<u64, Error> {
        self.refuse_if_closed().map(|()| 0)
    }

    fn check(&self) -> Result<Vec<Finding>, Error> {
        let _writer = self.writer.lock();
        self.refuse_if_closed()?;
        RecoveredLogs::check(&self.media, NAME)
    }

    fn close(&self) -> Result<(), Error> {
        let mut writer = self.writer.lock();
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        writer.ended.get_or_insert(Error::Closed);
        let result = writer.head.log.close(&self.logs, || (self.numbers.file(), self.numbers.random()));
        writer.locks.clear();
        result
    }
}
