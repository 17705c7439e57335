//! Files in a directory of a file system.
//!
//! Every file of the store is a file of the directory, under its own name where the directory can
//! hold it (see [`names`]). The file system does the rest; this store adds the order of its steps:
//!
//! - a new file replaces an old one by rename, so that readers of the old one go on reading and a
//!   failed create leaves it in place;
//! - the first sync of a created file also syncs the directory, and one directory sync serves all
//!   files created before it;
//! - a rename syncs the file first when it has unsynced data, then renames, then syncs the directory;
//! - after a failed sync the file takes no more of them, after a failed directory sync the store
//!   changes no more names, until it is opened again: what the medium holds is not known.

pub(crate) mod conformance;
mod names;
mod reader;
mod window;
mod writer;

#[cfg(test)]
mod tests;

use crate::access_times::AccessTimes;
use crate::error::StoreError;
use crate::file_store::{
    CreateOptions, FileEntry, FileKind, FileStore, Finding, Location, OpenOptions, ReadableFile, Severity, StoreLock,
    StoreProperties, WritableFile,
};
use crate::hint::Hint;
use crate::name;
use crate::occupancy::{Occupancy, StoreMeasure};
use parking_lot::Mutex as ShortMutex;
use reader::PlainReader;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use varve_env::{Env, Mutex};
use varve_media::{Counters, Directory, DirectoryFile, DirectoryLock, IoContext, MediaError, OpenMode, Space};
use writer::PlainWriter;

/// How a [`PlainStore`] behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainOptions {
    /// The medium below the directory is a disk; a directory cannot say so itself.
    pub rotational: bool,
    /// Alignment to promise for reads of files opened `direct`. Reads that keep it and turn out to be
    /// misaligned for the file system go through a buffer.
    pub read_alignment_bytes: u32,
    /// Reserve space for files created with an expected size, ahead of the writes.
    pub preallocate: bool,
}

impl Default for PlainOptions {
    fn default() -> Self {
        PlainOptions { rotational: false, read_alignment_bytes: 4096, preallocate: true }
    }
}

/// A [`FileStore`] over a [`Directory`]. See the module for the order of its steps.
pub struct PlainStore {
    shared: Arc<OpenDirectory>,
}

struct OpenDirectory {
    env: Env,
    directory: Arc<dyn Directory>,
    options: PlainOptions,
    properties: StoreProperties,
    /// Files created by this store that may have unsynced data. Held across changes of names, so
    /// that each is one step for the others.
    unsynced: Mutex<BTreeMap<String, Arc<WrittenFile>>>,
    /// Changes of names made so far.
    name_changes: AtomicU64,
    /// How many of them are durable.
    durable_name_changes: AtomicU64,
    /// Held across the sync of the directory, so that one serves all who wait.
    directory_sync: Mutex<()>,
    /// Why no name is changed any more.
    poisoned: ShortMutex<Option<String>>,
    temporary_names: AtomicU64,
}

/// A file this store created.
struct WrittenFile {
    file: Arc<dyn DirectoryFile>,
    /// Written since the last sync began.
    dirty: AtomicBool,
    /// Changes of names when its own creation was done.
    created_change: u64,
    /// Held across syncs; the cause of a failed one.
    sync: Mutex<Option<String>>,
    /// Length that readers see, while the file is kept longer than what was written to it;
    /// [`AS_LONG_AS_THE_FILE`] otherwise.
    visible_bytes: AtomicU64,
}

/// Readers see all of the file.
const AS_LONG_AS_THE_FILE: u64 = u64::MAX;

impl WrittenFile {
    /// Makes what was written durable. Once it failed it fails for ever.
    fn sync(&self, store: &str, name: &str, context: &IoContext) -> Result<(), StoreError> {
        let mut cause = self.sync.lock();
        if let Some(cause) = &*cause {
            return Err(poisoned(store, cause));
        }
        if !self.dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        self.file.sync(context).map_err(|error| {
            *cause = Some(error.to_string());
            media_error(store, name, error)
        })
    }

    fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    /// The part of `size_bytes` in the file that was written.
    fn visible(&self, size_bytes: u64) -> u64 {
        size_bytes.min(self.visible_bytes.load(Ordering::Acquire))
    }
}

impl PlainStore {
    /// The files of `directory`. Reads nothing; nothing is changed before the first call that changes
    /// something.
    pub fn open(env: &Env, directory: Arc<dyn Directory>, options: PlainOptions) -> Self {
        let location = directory.path().map_or(Location::Private, |path| Location::Directory(path.to_owned()));
        let properties = StoreProperties {
            read_alignment_bytes: options.read_alignment_bytes.max(1),
            rotational: options.rotational,
            access: AccessTimes::typical(options.rotational),
            places_by_level: false,
            preferred_transfer_bytes: None,
            preferred_table_bytes: None,
            table_bytes_max: i64::MAX as u64,
            wants_evictions: false,
            wants_rewrites: false,
            flush_is_device_request: false,
            location,
        };
        PlainStore {
            shared: Arc::new(OpenDirectory {
                env: env.clone(),
                directory,
                options,
                properties,
                unsynced: Mutex::new(env, "plain store names", BTreeMap::new()),
                name_changes: AtomicU64::new(0),
                durable_name_changes: AtomicU64::new(0),
                directory_sync: Mutex::new(env, "plain store directory sync", ()),
                poisoned: ShortMutex::new(None),
                temporary_names: AtomicU64::new(0),
            }),
        }
    }
}

/// Maximum preallocation of a log, as a fraction of the free space (1/32).
const LOG_AHEAD_PART: u64 = 32;

impl OpenDirectory {
    fn name(&self) -> &str {
        self.directory.name()
    }

    fn escape(&self, name: &str) -> Result<String, StoreError> {
        names::escape(name).map_err(|reason| name::invalid(self.name(), name, reason))
    }

    /// Maximum preallocation of a log, in bytes. Cost: asks the file system.
    fn room_ahead_bytes(&self) -> u64 {
        self.directory.space().map_or(u64::MAX, |space| space.available_bytes / LOG_AHEAD_PART)
    }

    fn media_error(&self, name: &str, error: MediaError) -> StoreError {
        media_error(self.name(), name, error)
    }

    /// Counts a change of names that was made; the number it has.
    fn count_name_change(&self) -> u64 {
        self.name_changes.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Refuses changes of names after a failed directory sync.
    fn check_names(&self) -> Result<(), StoreError> {
        match &*self.poisoned.lock() {
            Some(cause) => Err(poisoned(self.name(), cause)),
            None => Ok(()),
        }
    }

    /// Makes the first `change` changes of names durable.
    fn sync_names(&self, change: u64) -> Result<(), StoreError> {
        if self.durable_name_changes.load(Ordering::Acquire) >= change {
            return Ok(());
        }
        let _syncing = self.directory_sync.lock();
        self.check_names()?;
        if self.durable_name_changes.load(Ordering::Acquire) >= change {
            return Ok(());
        }
        let made = self.name_changes.load(Ordering::Acquire);
        self.directory.sync().map_err(|error| {
            *self.poisoned.lock() = Some(error.to_string());
            self.media_error("", error)
        })?;
        self.durable_name_changes.store(made, Ordering::Release);
        Ok(())
    }

    /// A new empty file under `escaped`, in place of an older one.
    fn create_file(&self, name: &str, escaped: &str, direct: bool) -> Result<Arc<dyn DirectoryFile>, StoreError> {
        let failed = |error| self.media_error(name, error);
        let create = OpenMode { write: true, create: true, truncate: true, direct };
        match self.directory.open(escaped, OpenMode::default()) {
            Err(MediaError::NotFound { .. }) => self.directory.open(escaped, create).map_err(failed),
            Err(error) => Err(failed(error)),
            Ok(_) => {
                let number = self.temporary_names.fetch_add(1, Ordering::Relaxed);
                let temporary = format!("{}{number}", names::TEMPORARY_PREFIX);
                let file = self.directory.open(&temporary, create).map_err(failed)?;
                if let Err(error) = self.directory.rename(&temporary, escaped) {
                    // The next lock removes it if this does not.
                    let _ = self.directory.remove(&temporary);
                    return Err(failed(error));
                }
                Ok(file)
            }
        }
    }

    /// Forgets a created file that has nothing unsynced.
    fn forget(&self, file: &Arc<WrittenFile>) {
        if !file.is_dirty() {
            self.unsynced.lock().retain(|_, other| !Arc::ptr_eq(other, file));
        }
    }
}

impl FileStore for PlainStore {
    fn name(&self) -> &str {
        self.shared.name()
    }

    fn properties(&self) -> &StoreProperties {
        &self.shared.properties
    }

    fn create(&self, name: &str, options: &CreateOptions) -> Result<Box<dyn WritableFile>, StoreError> {
        let shared = &self.shared;
        let escaped = shared.escape(name)?;
        shared.check_names()?;
        let mut unsynced = shared.unsynced.lock();
        let file = shared.create_file(name, &escaped, options.direct)?;
        let written = Arc::new(WrittenFile {
            file,
            dirty: AtomicBool::new(true),
            created_change: shared.count_name_change(),
            sync: Mutex::new(&shared.env, "plain store file sync", None),
            visible_bytes: AtomicU64::new(AS_LONG_AS_THE_FILE),
        });
        unsynced.insert(name.to_owned(), written.clone());
        drop(unsynced);
        Ok(Box::new(PlainWriter::new(shared.clone(), written, name, options)))
    }

    fn open(&self, name: &str, options: &OpenOptions) -> Result<Arc<dyn ReadableFile>, StoreError> {
        let escaped = self.shared.escape(name)?;
        let mode = OpenMode { direct: options.direct, ..OpenMode::default() };
        let unsynced = self.shared.unsynced.lock();
        let file = self.shared.directory.open(&escaped, mode).map_err(|error| self.shared.media_error(name, error))?;
        let written = unsynced.get(name).cloned();
        drop(unsynced);
        Ok(Arc::new(PlainReader::open(self.shared.clone(), file, written, name)?))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let shared = &self.shared;
        let (escaped_from, escaped_to) = (shared.escape(from)?, shared.escape(to)?);
        shared.check_names()?;
        let mut unsynced = shared.unsynced.lock();
        if let Some(file) = unsynced.get(from) {
            file.sync(shared.name(), from, &IoContext::default())?;
        }
        shared.directory.rename(&escaped_from, &escaped_to).map_err(|error| shared.media_error(from, error))?;
        if from != to {
            match unsynced.remove(from) {
                Some(file) => unsynced.insert(to.to_owned(), file),
                None => unsynced.remove(to),
            };
        }
        let change = shared.count_name_change();
        drop(unsynced);
        shared.sync_names(change)
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        let shared = &self.shared;
        let escaped = shared.escape(name)?;
        shared.check_names()?;
        let mut unsynced = shared.unsynced.lock();
        shared.directory.remove(&escaped).map_err(|error| shared.media_error(name, error))?;
        unsynced.remove(name);
        shared.count_name_change();
        Ok(())
    }

    fn sync_names(&self) -> Result<(), StoreError> {
        let change = self.shared.name_changes.load(Ordering::Acquire);
        self.shared.check_names()?;
        self.shared.sync_names(change)
    }

    fn list(&self) -> Result<Vec<FileEntry>, StoreError> {
        let unsynced = self.shared.unsynced.lock();
        let entries = self.shared.directory.list().map_err(|error| self.shared.media_error("", error))?;
        let mut files: Vec<FileEntry> = entries
            .into_iter()
            .filter_map(|entry| {
                let name = names::unescape(&entry.name)?;
                let size_bytes = unsynced.get(&name).map_or(entry.size_bytes, |file| file.visible(entry.size_bytes));
                Some(FileEntry { name, size_bytes })
            })
            .collect();
        drop(unsynced);
        files.sort();
        Ok(files)
    }

    fn lock(&self, name: &str) -> Result<Box<dyn StoreLock>, StoreError> {
        let shared = &self.shared;
        let escaped = shared.escape(name)?;
        let lock = shared.directory.lock(&escaped).map_err(|error| shared.media_error(name, error))?;
        // Whoever holds a lock owns the directory: what an ended process was replacing is nobody's.
        let unsynced = shared.unsynced.lock();
        let entries = shared.directory.list().map_err(|error| shared.media_error(name, error))?;
        for entry in entries.iter().filter(|entry| entry.name.starts_with(names::TEMPORARY_PREFIX)) {
            shared.directory.remove(&entry.name).map_err(|error| shared.media_error(name, error))?;
        }
        drop(unsynced);
        Ok(Box::new(PlainLock { _lock: lock }))
    }

    fn share(&self, name: &str, target: &Location, target_name: &str) -> Result<bool, StoreError> {
        let (escaped, escaped_target) = (self.shared.escape(name)?, self.shared.escape(target_name)?);
        match target {
            Location::Directory(path) => self
                .shared
                .directory
                .link(&escaped, path, &escaped_target)
                .map_err(|error| self.shared.media_error(name, error)),
            Location::Private => Ok(false),
        }
    }

    fn space(&self) -> Result<Space, StoreError> {
        self.shared.directory.space().map_err(|error| self.shared.media_error("", error))
    }

    fn reclaim_space(&self) -> Result<bool, StoreError> {
        // Nothing is held without need.
        Ok(false)
    }

    fn hint(&self, _hint: &Hint<'_>) {}

    fn counters(&self) -> Vec<(String, Counters)> {
        Vec::new()
    }

    fn statistics(&self) -> Vec<StoreMeasure> {
        Vec::new()
    }

    fn layout(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The file system places the files; it is not asked where.
    fn occupancy(&self) -> Occupancy {
        Occupancy::default()
    }

    fn check(&self) -> Result<Vec<Finding>, StoreError> {
        let entries = self.shared.directory.list().map_err(|error| self.shared.media_error("", error))?;
        let mut findings = Vec::new();
        for entry in entries {
            if entry.name.starts_with(names::TEMPORARY_PREFIX) {
                findings.push(Finding {
                    severity: Severity::Warning,
                    code: "temporary-left-over",
                    message: format!(
                        "{}: '{}' is left over from a replacement that did not end; the next open removes it",
                        self.name(),
                        entry.name
                    ),
                });
            } else if names::unescape(&entry.name).is_none() {
                findings.push(Finding {
                    severity: Severity::Warning,
                    code: "foreign-file",
                    message: format!("{}: '{}' is no file of this store; move it elsewhere", self.name(), entry.name),
                });
            }
        }
        Ok(findings)
    }
}

struct PlainLock {
    _lock: Box<dyn DirectoryLock>,
}

impl StoreLock for PlainLock {}

/// Buffer of a writer. Tables are written through in pieces that still fit a cache of the
/// processor; direct writes go to the medium as they are and want to be large.
fn buffer_bytes(options: &CreateOptions) -> usize {
    match options.kind {
        FileKind::Table if options.direct => 1 << 20,
        FileKind::Table => 256 << 10,
        _ => 64 << 10,
    }
}

fn poisoned(store: &str, cause: &str) -> StoreError {
    StoreError::Poisoned { store: store.to_owned(), cause: cause.to_owned() }
}

#[cold]
fn media_error(store: &str, name: &str, error: MediaError) -> StoreError {
    let (store, name) = (store.to_owned(), name.to_owned());
    match error {
        MediaError::NotFound { .. } => StoreError::NotFound { store, name },
        MediaError::Locked { .. } => StoreError::Locked { store, name },
        error => StoreError::Media { store, name, error },
    }
}
