//! State shared by writers, readers and background workers of one tree.
//!
//! Locks, in the order they are taken; none is taken while a later one is held:
//! `queue` (writers' turn) - `writer` (log and active memtable; held across log I/O) -
//! `manifest` (held across manifest I/O) - `core` (scheduling; never held across I/O).

use super::tables::Tables;
use crate::error::Error;
use crate::inventory::Needed;
use crate::key::Sequence;
use crate::log_chain::{LogChain, LogChainOptions};
use crate::manifest::{Manifest, ManifestIdentity, VersionEdit};
use crate::media::Media;
use crate::memtable::MemTable;
use crate::options::Options;
use crate::shape::{Busy, CompactionPolicy, FileMeta, Garbage, Version};
use crate::snapshot::SnapshotList;
use crate::space::SpaceBudget;
use crate::statistics::{Counters, Totals};
use crate::table::TableBuildOptions;
use crate::throttle::{Pressure, Throttle};
use arc_swap::ArcSwap;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use varve_env::{Condvar, Env, Mutex, Random};
use varve_store::{FileStore, JobId};

/// What a reader needs, replaced as a whole. Readers get it together with a sequence number by
/// [`SnapshotList::view`].
pub(super) struct ReadState {
    pub(super) memtable: Arc<MemTable>,
    /// Newest first.
    pub(super) immutables: Vec<Arc<MemTable>>,
    pub(super) version: Arc<Version>,
}

/// A memtable that takes no more writes and waits for its flush.
pub(super) struct Immutable {
    pub(super) memtable: Arc<MemTable>,
    /// The oldest log still needed once this memtable is in a table.
    pub(super) next_log_number: u64,
}

/// What is running and what is due.
pub(super) struct Core {
    /// Oldest first.
    pub(super) immutables: VecDeque<Immutable>,
    pub(super) flush_running: bool,
    /// Recovery found no space: its memtables wait for a log to go on with.
    pub(super) flush_held: bool,
    /// What running compactions touch.
    pub(super) busy: Busy,
    pub(super) running_compactions: usize,
    /// Those who make plans without the lock, and keep the tables of a version meanwhile.
    pub(super) planning: usize,
    /// A worker reads histograms that plans wait for.
    pub(super) sampling: bool,
    /// Manual compactions waiting or running: automatic ones are not started meanwhile.
    pub(super) manual: usize,
    /// Last failure of a flush, until one succeeds.
    pub(super) flush_error: Option<Error>,
    /// Last failure of a compaction, until one succeeds.
    pub(super) compaction_error: Option<Error>,
    /// A compaction runs that needs all the space there is: no other begins.
    pub(super) compacts_alone: bool,
    /// Finished flush attempts and compaction attempts, for those who wait for the next one.
    pub(super) flush_attempts: u64,
    pub(super) compaction_attempts: u64,
    /// Counts requests not to wait out the delay after a failure.
    pub(super) retries: u64,
    pub(super) closing: bool,
    /// A worker panicked: no job begins any more, and whoever waits for one is told this.
    pub(super) halted: Option<Error>,
}

impl Core {
    /// Someone looks at tables to plan what to do with them. Once they are replaced their space is not free before that ends;
    /// while a compaction runs alone, or a manual one is there, none begins to look.
    pub(super) fn holds_tables(&self) -> bool {
        self.planning > 0 || self.sampling
    }

    /// What decides about the next job but the version: equal when nothing changed.
    pub(super) fn outlook(&self) -> impl PartialEq + use<> {
        (
            (self.immutables.len(), self.flush_running, self.flush_held, self.busy.changes()),
            (self.running_compactions, self.sampling, self.manual, self.compacts_alone),
            (self.retries, self.closing, self.halted.is_some()),
        )
    }
}

pub(super) struct Shared {
    pub(super) env: Env,
    /// Id of the database: logs and manifests of others are not taken for its own.
    pub(super) database: u64,
    pub(super) media: Media,
    pub(super) options: Options,
    pub(super) policy: Box<dyn CompactionPolicy>,
    pub(super) tables: Arc<Tables>,
    pub(super) garbage: Arc<Garbage>,
    pub(super) read_state: ArcSwap<ReadState>,
    pub(super) snapshots: Arc<SnapshotList>,
    pub(super) next_file_number: AtomicU64,
    pub(super) next_job: AtomicU64,
    /// How fast writers and jobs may go.
    pub(super) throttle: Throttle,
    pub(super) manifest: Mutex<ManifestState>,
    pub(super) core: Mutex<Core>,
    /// Workers wait here for something to do.
    pub(super) work: Condvar,
    /// Writers, flushers and closers wait here for workers.
    pub(super) done: Condvar,
    pub(super) counters: Counters,
    pub(super) compaction_readahead_bytes: usize,
    /// What is free on the medium, and who may have it.
    pub(super) space: SpaceBudget,
    /// Write-ahead logs.
    pub(super) logs: LogChain,
    salts: parking_lot::Mutex<Random>,
    pub(super) closed: AtomicBool,
    /// Running jobs give up soon.
    pub(super) cancel: AtomicBool,
    /// Why writes are refused, once they are.
    pub(super) poisoned: parking_lot::Mutex<Option<String>>,
}

/// The manifest and what it says beside the tables.
pub(super) struct ManifestState {
    /// `None` when there is none yet, or when the last append failed and what the file holds is
    /// unknown: the next change then starts a new manifest, whose switch settles it.
    pub(super) manifest: Option<Manifest>,
    /// Number of the one that CURRENT names, if there is one: removed when another takes its place.
    pub(super) named: Option<u64>,
    /// Oldest log recovery needs.
    pub(super) log_number: u64,
    /// Newest sequence number that no log from `log_number` on holds: they continue after it.
    pub(super) last_sequence: Sequence,
    /// What was done since the database was created; `None` when it is not known.
    pub(super) totals: Option<Totals>,
    /// What changes that failed have left.
    pub(super) in_doubt: InDoubt,
}

/// Files of changes that failed: whether a crash would find them in use is open until the next manifest, which does not
/// name them.
#[derive(Default)]
pub(super) struct InDoubt {
    tables: Vec<Arc<FileMeta>>,
    manifests: Vec<u64>,
}

impl InDoubt {
    fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.manifests.is_empty()
    }

    /// They are not in use, and will not be.
    fn give_up(&mut self, garbage: &Garbage) {
        self.tables.drain(..).for_each(|table| table.mark_obsolete());
        self.manifests.drain(..).for_each(|number| garbage.push_manifest(number));
    }
}

/// A change of the tree's shape.
#[derive(Default)]
pub(super) struct Change {
    pub(super) removed: Vec<(usize, Arc<FileMeta>)>,
    pub(super) added: Vec<(usize, Arc<FileMeta>)>,
    /// Oldest log needed afterwards, and the newest sequence number before its first.
    pub(super) log_start: Option<(u64, Sequence)>,
    /// Memtables that are in tables now: this many leave the front of the queue.
    pub(super) flushed_memtables: usize,
    /// What the job did: counted if the change becomes durable, and with it.
    pub(super) work: Totals,
}

impl Shared {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn new(
        env: &Env,
        database: u64,
        media: Media,
        options: Options,
        policy: Box<dyn CompactionPolicy>,
        tables: Arc<Tables>,
        garbage: Arc<Garbage>,
        memtable: Arc<MemTable>,
        version: Version,
        manifest: ManifestState,
        next_file_number: u64,
        last_sequence: u64,
    ) -> Shared {
        let compaction_readahead_bytes = options.compaction_readahead_bytes(media.files.properties());
        let space = SpaceBudget::new(&media.files, &options, policy.histogram_bytes());
        let throttle = Throttle::new(env, &options, space.sizes().memtable_bytes);
        let log_options = LogChainOptions {
            database,
            buffer_bytes: options.log_buffer_bytes(media.log_store().properties()) as u64,
            expected_bytes: space.sizes().memtable_bytes as u64 * 9 / 8,
        };
        let logs = LogChain::new(env, media.log_store(), log_options, throttle.log_backlog(), manifest.log_number);
        let shared = Shared {
            env: env.clone(),
            database,
            media,
            options,
            policy,
            tables,
            garbage,
            read_state: ArcSwap::from_pointee(ReadState {
                memtable,
                immutables: Vec::new(),
                version: Arc::new(version),
            }),
            snapshots: SnapshotList::new(last_sequence),
            next_file_number: AtomicU64::new(next_file_number),
            next_job: AtomicU64::new(1),
            throttle,
            manifest: Mutex::new(env, "manifest", manifest),
            core: Mutex::new(
                env,
                "tree core",
                Core {
                    immutables: VecDeque::new(),
                    flush_running: false,
                    flush_held: false,
                    busy: Busy::default(),
                    running_compactions: 0,
                    planning: 0,
                    sampling: false,
                    manual: 0,
                    flush_error: None,
                    compaction_error: None,
                    compacts_alone: false,
                    flush_attempts: 0,
                    compaction_attempts: 0,
                    retries: 0,
                    closing: false,
                    halted: None,
                },
            ),
            work: Condvar::new(env, "background work"),
            done: Condvar::new(env, "background progress"),
            counters: Counters::default(),
            compaction_readahead_bytes,
            space,
            logs,
            salts: parking_lot::Mutex::new(salts(env, database, next_file_number)),
            closed: AtomicBool::new(false),
            cancel: AtomicBool::new(false),
            poisoned: parking_lot::Mutex::new(None),
        };
        shared.update_stall(&shared.read_state.load().version);
        shared
    }

    pub(super) fn new_file_number(&self) -> u64 {
        self.next_file_number.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn new_job(&self) -> JobId {
        JobId(self.next_job.fetch_add(1, Ordering::Relaxed))
    }

    /// Refuses writes from now on.
    pub(super) fn poison(&self, cause: &Error) {
        let mut poisoned = self.poisoned.lock();
        if poisoned.is_none() {
            *poisoned = Some(cause.to_string());
        }
    }

    /// After a panic that left nobody knows what half done: refuses writes and begins no job from now
    /// on, and tells all who wait.
    pub(super) fn halt(&self, cause: String) {
        self.poisoned.lock().get_or_insert_with(|| cause.clone());
        let mut core = self.core.lock();
        core.halted.get_or_insert(Error::Poisoned { cause });
        self.work.notify_all();
        self.done.notify_all();
    }

    pub(super) fn refuse_if_poisoned(&self) -> Result<(), Error> {
        match &*self.poisoned.lock() {
            Some(cause) => Err(Error::Poisoned { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    fn update_stall(&self, version: &Version) {
        self.throttle.update(&Pressure {
            level0_tables: version.levels[0].len(),
            pending_compaction_bytes: self.policy.pending_bytes(version),
        });
    }

    /// Whether a memtable takes no batch of `batch_bytes` more: it has its size, or its table would outgrow the one the
    /// medium likes.
    pub(super) fn is_full(&self, memtable: &MemTable, batch_bytes: usize) -> bool {
        let memory_bytes = memtable.memory_bytes();
        let outgrows = |most_bytes: u64| {
            let bytes = (memory_bytes + batch_bytes) as u64;
            bytes.saturating_add(padding_bytes(bytes, memtable.entries() + 1, &self.options)) > most_bytes
        };
        memory_bytes >= self.space.sizes().memtable_bytes
            || self.media.files.properties().preferred_table_bytes.is_some_and(outgrows)
    }

    /// Makes a change of shape durable, then visible. Nothing changed when it fails; whether a crash would then find the
    /// change may be open until the next success: until then files it names stay.
    pub(super) fn install(&self, change: Change) -> Result<(), Error> {
        let mut manifest = self.manifest.lock();
        let version = self.read_state.load().version.clone();
        let is_in_tree = |number: u64| version.files().any(|(_, file)| file.number == number);
        // A moved table is in the tree.
        let new_tables = || change.added.iter().map(|(_, file)| file).filter(|file| !is_in_tree(file.number)).cloned();
        let removed: Vec<(usize, u64)> = change.removed.iter().map(|(level, file)| (*level, file.number)).collect();
        let next = version.with(&removed, &change.added);
        let (log_number, last_sequence) = change.log_start.unwrap_or((manifest.log_number, manifest.last_sequence));
        let totals = manifest.totals.map(|totals| totals.plus(&change.work));
        match manifest.manifest.take() {
            Some(mut current) if !current.is_overgrown(self.space.sizes().manifest_bytes_max) => {
                let edit = VersionEdit {
                    next_file_number: Some(self.next_file_number.load(Ordering::Relaxed)),
                    last_sequence: change.log_start.map(|start| start.1),
                    log_number: change.log_start.map(|start| start.0),
                    removed: removed.iter().map(|(level, number)| (*level as u8, *number)).collect(),
                    added: change.added.iter().map(|(level, file)| file.to_added(*level)).collect(),
                    totals,
                    ..VersionEdit::default()
                };
                if let Err(error) = current.append(&edit) {
                    manifest.in_doubt.tables.extend(new_tables());
                    return Err(error);
                }
                manifest.manifest = Some(current);
            }
            _ => {
                let number = self.new_file_number();
                let edit = snapshot_edit(
                    &next,
                    log_number,
                    self.next_file_number.load(Ordering::Relaxed),
                    last_sequence,
                    totals,
                    &*self.policy,
                );
                let files = &*self.media.files;
                let prepared = match self.prepare_manifest(files, self.database, number, &edit) {
                    Ok(prepared) => prepared,
                    Err(error) => {
                        // Nothing names it, so the change is nowhere.
                        new_tables().for_each(|table| table.mark_obsolete());
                        return Err(error);
                    }
                };
                if let Err(error) = prepared.switch(files) {
                    manifest.in_doubt.tables.extend(new_tables());
                    manifest.in_doubt.manifests.push(number);
                    return Err(error);
                }
                manifest.manifest = Some(prepared);
                manifest.in_doubt.give_up(&self.garbage);
                if let Some(old) = manifest.named.replace(number) {
                    self.garbage.push_manifest(old);
                }
            }
        }
        manifest.log_number = log_number;
        manifest.last_sequence = last_sequence;
        manifest.totals = totals;
        {
            let mut core = self.core.lock();
            for _ in 0..change.flushed_memtables {
                core.immutables.pop_front();
            }
            self.publish(&core, None, Some(Arc::new(next)));
        }
        // A moved table is both removed and added: it lives on.
        for (_, file) in &change.removed {
            if !change.added.iter().any(|(_, added)| added.number == file.number) {
                file.mark_obsolete();
            }
        }
        Ok(())
    }

    /// Settles what changes that failed have left in doubt, if they did: it is given up. Jobs do that before they write more
    /// that they may leave. Cost: a manifest, then.
    ///
    /// Errors: those of [`Shared::install`]; then the doubt stays.
    pub(super) fn settle_doubts(&self) -> Result<(), Error> {
        if self.manifest.lock().in_doubt.is_empty() {
            return Ok(());
        }
        self.install(Change::default())?;
        self.tables.collect(&self.garbage);
        Ok(())
    }

    /// A durable manifest of this kind of tree that begins with `edit`; the file CURRENT does not name it before it is
    /// switched to.
    pub(super) fn prepare_manifest(
        &self,
        files: &dyn FileStore,
        database: u64,
        number: u64,
        edit: &VersionEdit,
    ) -> Result<Manifest, Error> {
        let identity = ManifestIdentity { database, salt: self.random_number() };
        Manifest::prepare(files, number, self.policy.name(), edit, identity)
    }

    /// Of the files of this kind of database.
    pub(super) fn needed_files(&self) -> Needed {
        let manifest = self.manifest.lock();
        let version = self.read_state.load().version.clone();
        Needed {
            tables: version.files().map(|(_, file)| file.number).collect(),
            oldest_log: manifest.log_number,
            manifest: manifest.named,
        }
    }

    /// Replaces the readers' state. The core lock orders replacements.
    pub(super) fn publish(&self, core: &Core, memtable: Option<Arc<MemTable>>, version: Option<Arc<Version>>) {
        let old = self.read_state.load();
        let version = version.unwrap_or_else(|| old.version.clone());
        self.update_stall(&version);
        self.read_state.store(Arc::new(ReadState {
            memtable: memtable.unwrap_or_else(|| old.memtable.clone()),
            immutables: core.immutables.iter().rev().map(|immutable| immutable.memtable.clone()).collect(),
            version,
        }));
    }

    /// A number for a new log or table that nobody who writes records knows.
    pub(super) fn random_number(&self) -> u64 {
        self.salts.lock().next_u64()
    }

    /// How tables of a level are built.
    pub(super) fn table_build_options(&self, level: usize) -> TableBuildOptions {
        TableBuildOptions {
            histogram_bytes: self.policy.histogram_bytes(),
            ..TableBuildOptions::new(&self.options, level, self.random_number())
        }
    }

    /// An error once the tree is being closed: whoever waits gives up.
    #[inline]
    pub(super) fn refuse_if_cancelled(&self) -> Result<(), Error> {
        if self.cancel.load(Ordering::Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }

    pub(super) fn refuse_if_closed(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }
}

/// Random numbers no other database has, and not this one at another opening: numbers of files only grow.
fn salts(env: &Env, database: u64, next_file_number: u64) -> Random {
    env.random(&format!("salts of {database:016x} from {next_file_number}"))
}

/// About how many bytes aligned blocks add to so many bytes in so many entries, if these are alike, and to what follows
/// the data.
fn padding_bytes(bytes: u64, entries: u64, options: &Options) -> u64 {
    /// What a block has beside its entries.
    const BLOCK_BYTES: u64 = 64;
    /// A histogram, properties and a footer.
    const BEHIND_BYTES: u64 = 5 << 10;
    let alignment = options.block_align as u64;
    if alignment < 2 {
        return 0;
    }
    let entry_bytes = (bytes / entries.max(1)).max(1);
    let limit_bytes = (options.block_size as u64).next_multiple_of(alignment);
    let block_entries = (limit_bytes.saturating_sub(BLOCK_BYTES) / entry_bytes).max(1);
    let block_bytes = (block_entries * entry_bytes + BLOCK_BYTES).next_multiple_of(alignment);
    let padding_bytes = (block_bytes - block_entries * entry_bytes).saturating_mul(entries.div_ceil(block_entries));
    padding_bytes.saturating_add(BEHIND_BYTES + 2 * block_bytes)
}

/// The edit that says everything about `version`, for the start of a manifest.
pub(super) fn snapshot_edit(
    version: &Version,
    log_number: u64,
    next_file_number: u64,
    last_sequence: u64,
    totals: Option<Totals>,
    policy: &dyn CompactionPolicy,
) -> VersionEdit {
    VersionEdit {
        num_levels: Some(policy.level_count() as u8),
        next_file_number: Some(next_file_number),
        last_sequence: Some(last_sequence),
        log_number: Some(log_number),
        added: version.files().map(|(level, file)| file.to_added(level)).collect(),
        totals,
        ..VersionEdit::default()
    }
}
