//! The shape of the tree: what readers see of it, and the manifest that makes it durable.

use super::board::{JobBoard, JobState};
use super::files::TableFiles;
use super::relief::Scans;
use crate::error::Error;
use crate::inventory::Needed;
use crate::key::Sequence;
use crate::manifest::{FlushedRange, FlushedRanges, Manifest, ManifestIdentity, VersionEdit};
use crate::memtable::Partition;
use crate::shape::{CompactionPolicy, FileMeta, Garbage, Version};
use crate::statistics::{Counters, Totals};
use crate::throttle::{Pressure, Throttle};
use arc_swap::ArcSwap;
use std::sync::Arc;
use varve_env::{Env, Mutex, MutexGuard};
use varve_store::FileStore;

/// What a reader needs, replaced as a whole. Readers get it together with a sequence number by
/// [`crate::snapshot::SnapshotList::view`].
pub(super) struct ReadState {
    /// What is written.
    pub(super) active: Arc<Partition>,
    /// What waits for its flush, the newest first.
    pub(super) immutables: Vec<Arc<Partition>>,
    pub(super) version: Arc<Version>,
    /// Receiver of the reports of its scans.
    pub(super) scans: Arc<Scans>,
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
    /// Of keys in logs from `log_number` on.
    pub(super) flushed: FlushedRanges,
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
    /// Ranges of keys that logs still needed hold too.
    pub(super) flushed: Vec<FlushedRange>,
    /// What waited for its flush and is in tables now: this many leave the front of the queue.
    pub(super) flushed_memtables: usize,
    /// What the job did: counted if the change becomes durable, and with it.
    pub(super) work: Totals,
}

/// Versions, their manifest, and what is counted. Thread-safe.
pub(super) struct Catalog {
    pub(super) read_state: ArcSwap<ReadState>,
    manifest: Mutex<ManifestState>,
    manifest_bytes_max: u64,
    pub(super) policy: Box<dyn CompactionPolicy>,
    pub(super) counters: Counters,
    throttle: Arc<Throttle>,
}

impl Catalog {
    /// Of a tree that was found so. Manifests of more than `manifest_bytes_max` are replaced by new ones.
    pub(super) fn new(
        env: &Env,
        state: ReadState,
        manifest: ManifestState,
        manifest_bytes_max: u64,
        policy: Box<dyn CompactionPolicy>,
        throttle: Arc<Throttle>,
    ) -> Catalog {
        let catalog = Catalog {
            read_state: ArcSwap::from_pointee(state),
            manifest: Mutex::new(env, "manifest", manifest),
            manifest_bytes_max,
            policy,
            counters: Counters::default(),
            throttle,
        };
        catalog.tell_throttle(&catalog.version());
        catalog
    }

    /// The newest version.
    pub(super) fn version(&self) -> Arc<Version> {
        self.read_state.load().version.clone()
    }

    /// Held across I/O on manifests.
    pub(super) fn manifest(&self) -> MutexGuard<'_, ManifestState> {
        self.manifest.lock()
    }

    fn tell_throttle(&self, version: &Version) {
        self.throttle.update(&Pressure {
            level0_tables: self.policy.level0_tables(version),
            pending_compaction_bytes: self.policy.pending_bytes(version),
        });
    }

    /// Makes a change of shape durable, then visible. Nothing changed when it fails; whether a crash would then find the
    /// change may be open until the next success: until then files it names stay.
    pub(super) fn install(&self, files: &TableFiles, board: &JobBoard, change: Change) -> Result<(), Error> {
        let mut manifest = self.manifest();
        let version = self.version();
        let is_in_tree = |number: u64| version.files().any(|(_, file)| file.number == number);
        // A moved table is in the tree.
        let new_tables = || change.added.iter().map(|(_, file)| file).filter(|file| !is_in_tree(file.number)).cloned();
        let removed: Vec<(usize, u64)> = change.removed.iter().map(|(level, file)| (*level, file.number)).collect();
        let next = version.with(&removed, &change.added);
        let (log_number, last_sequence) = change.log_start.unwrap_or((manifest.log_number, manifest.last_sequence));
        let totals = manifest.totals.map(|totals| totals.plus(&change.work));
        let mut flushed = manifest.flushed.clone();
        change.flushed.iter().for_each(|range| flushed.insert(range));
        flushed.retire(last_sequence);
        match manifest.manifest.take() {
            Some(mut current) if !current.is_overgrown(self.manifest_bytes_max) => {
                let edit = VersionEdit {
                    next_file_number: Some(files.numbers.next_file()),
                    last_sequence: change.log_start.map(|start| start.1),
                    log_number: change.log_start.map(|start| start.0),
                    removed: removed.iter().map(|(level, number)| (*level as u8, *number)).collect(),
                    added: change.added.iter().map(|(level, file)| file.to_added(*level)).collect(),
                    totals,
                    flushed: change.flushed,
                    ..VersionEdit::default()
                };
                if let Err(error) = current.append(&edit) {
                    manifest.in_doubt.tables.extend(new_tables());
                    return Err(error);
                }
                manifest.manifest = Some(current);
            }
            _ => {
                let number = files.numbers.file();
                let edit = VersionEdit {
                    flushed: flushed.iter().collect(),
                    ..self.snapshot_edit(&next, log_number, files.numbers.next_file(), last_sequence, totals)
                };
                let store = &*files.media.files;
                let prepared = match self.prepare_manifest(files, store, files.numbers.database, number, &edit) {
                    Ok(prepared) => prepared,
                    Err(error) => {
                        // Nothing names it, so the change is nowhere.
                        new_tables().for_each(|table| table.mark_obsolete());
                        return Err(error);
                    }
                };
                if let Err(error) = prepared.switch(store) {
                    manifest.in_doubt.tables.extend(new_tables());
                    manifest.in_doubt.manifests.push(number);
                    return Err(error);
                }
                manifest.manifest = Some(prepared);
                manifest.in_doubt.give_up(&files.tables.garbage);
                if let Some(old) = manifest.named.replace(number) {
                    files.tables.garbage.push_manifest(old);
                }
            }
        }
        manifest.log_number = log_number;
        manifest.last_sequence = last_sequence;
        manifest.totals = totals;
        manifest.flushed = flushed;
        {
            let mut jobs = board.lock();
            for _ in 0..change.flushed_memtables {
                jobs.immutables.pop_front();
            }
            self.publish(&jobs, None, Some(Arc::new(next)));
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
    /// Errors: those of [`Catalog::install`]; then the doubt stays.
    pub(super) fn settle_doubts(&self, files: &TableFiles, board: &JobBoard) -> Result<(), Error> {
        if self.manifest().in_doubt.is_empty() {
            return Ok(());
        }
        self.install(files, board, Change::default())?;
        files.tables.collect();
        Ok(())
    }

    /// A durable manifest of this kind of tree in `target` that begins with `edit`; the file CURRENT does not name it
    /// before it is switched to.
    pub(super) fn prepare_manifest(
        &self,
        files: &TableFiles,
        target: &dyn FileStore,
        database: u64,
        number: u64,
        edit: &VersionEdit,
    ) -> Result<Manifest, Error> {
        let identity = ManifestIdentity { database, salt: files.numbers.random() };
        Manifest::prepare(target, number, self.policy.name(), edit, identity)
    }

    /// The edit that says everything about `version`, for the start of a manifest.
    pub(super) fn snapshot_edit(
        &self,
        version: &Version,
        log_number: u64,
        next_file_number: u64,
        last_sequence: u64,
        totals: Option<Totals>,
    ) -> VersionEdit {
        VersionEdit {
            num_levels: Some(self.policy.level_count() as u8),
            next_file_number: Some(next_file_number),
            last_sequence: Some(last_sequence),
            log_number: Some(log_number),
            added: version.files().map(|(level, file)| file.to_added(level)).collect(),
            totals,
            ..VersionEdit::default()
        }
    }

    /// Of the files of this kind of database.
    pub(super) fn needed_files(&self) -> Needed {
        let manifest = self.manifest();
        let version = self.version();
        Needed {
            tables: version.files().map(|(_, file)| file.number).collect(),
            oldest_log: manifest.log_number,
            manifest: manifest.named,
        }
    }

    /// Replaces the readers' state. The lock of jobs orders replacements.
    pub(super) fn publish(&self, jobs: &JobState, active: Option<Arc<Partition>>, version: Option<Arc<Version>>) {
        let old = self.read_state.load();
        let version = version.unwrap_or_else(|| old.version.clone());
        self.tell_throttle(&version);
        self.read_state.store(Arc::new(ReadState {
            active: active.unwrap_or_else(|| old.active.clone()),
            immutables: jobs.immutables.iter().rev().map(|immutable| immutable.memtables.clone()).collect(),
            version,
            scans: old.scans.clone(),
        }));
    }
}
