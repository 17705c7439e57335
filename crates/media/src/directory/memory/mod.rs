//! A directory in RAM with the durability of POSIX, for tests.

mod image;
mod state;
#[cfg(test)]
mod tests;

pub use image::DirectoryCrashState;

use super::{
    Directory, DirectoryEntry, DirectoryFile, DirectoryLock, FileMapping, OpenMode, Space, WritableMapping, check_name,
};
use crate::buffer::is_aligned;
use crate::context::IoContext;
use crate::error::{MediaError, Operation};
use crate::layer::crash::{ContentChange, PersistenceObserver, PersistencePoint};
use crate::sparse::PAGE_BYTES;
use parking_lot::{Mutex, MutexGuard};
use state::{Change, DirectoryState, FileId, NameChange};
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Longest file, as on Linux.
const SIZE_BYTES_MAX: u64 = i64::MAX as u64;

/// How a [`MemoryDirectory`] behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryDirectoryOptions {
    /// Space for files, each counted with its length rounded up to 4 KiB; a write that does not fit
    /// stores what fits and fails with [`MediaError::NoSpace`]. `None` is no limit.
    pub capacity_bytes: Option<u64>,
    /// Alignment that files opened `direct` insist on; 1 opens them buffered.
    pub direct_alignment_bytes: u32,
}

impl Default for MemoryDirectoryOptions {
    fn default() -> Self {
        MemoryDirectoryOptions { capacity_bytes: None, direct_alignment_bytes: 1 }
    }
}

/// A directory in RAM. Contents are volatile until [`DirectoryFile::sync`], names until
/// [`Directory::sync`], exactly as the contract of [`Directory`] says, and a crash at any moment
/// can be asked for ([`MemoryDirectory::capture`], [`MemoryDirectory::on_persistence_point`]).
///
/// Deterministic; takes no time; needs no env. A clone is another handle of the same directory.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use varve_media::{CrashVariant, Directory, MemoryDirectory};
///
/// let directory = MemoryDirectory::new("ram");
/// let states = Arc::new(Mutex::new(Vec::new()));
/// let sink = states.clone();
/// directory.on_persistence_point(move |point| sink.lock().unwrap().push(point.capture()));
/// // ... a workload on `directory` ...
/// for (point, state) in states.lock().unwrap().iter().enumerate() {
///     for variant in CrashVariant::OF_DIRECTORIES {
///         let found: MemoryDirectory = state.image(variant, point as u64);
///         // ... open the store in `found` and check it ...
///         # found.list().unwrap();
///     }
/// }
/// ```
#[derive(Clone)]
pub struct MemoryDirectory {
    shared: Arc<SharedDirectory>,
}

struct SharedDirectory {
    label: Arc<str>,
    options: MemoryDirectoryOptions,
    inner: Mutex<Inner>,
    locks: Mutex<BTreeSet<String>>,
}

struct Inner {
    state: Arc<DirectoryState>,
    points: u64,
    observer: Option<PersistenceObserver<DirectoryCrashState>>,
}

impl MemoryDirectory {
    /// An empty directory called `label` in messages.
    pub fn new(label: &str) -> Self {
        MemoryDirectory::with_options(label, MemoryDirectoryOptions::default())
    }

    /// An empty directory that behaves as `options` say.
    pub fn with_options(label: &str, options: MemoryDirectoryOptions) -> Self {
        MemoryDirectory::of_state(label.into(), options, DirectoryState::default())
    }

    fn of_state(label: Arc<str>, options: MemoryDirectoryOptions, state: DirectoryState) -> Self {
        let inner = Mutex::new(Inner { state: Arc::new(state), points: 0, observer: None });
        MemoryDirectory { shared: Arc::new(SharedDirectory { label, options, inner, locks: Mutex::default() }) }
    }

    /// The crash state now, with nothing in flight.
    pub fn capture(&self) -> DirectoryCrashState {
        self.shared.crash_state(&self.shared.inner.lock().state, None)
    }

    /// Calls `observer` before every persistence point from now on, in place of an earlier one.
    ///
    /// It runs under the directory's lock: it must not call this directory.
    pub fn on_persistence_point(
        &self,
        observer: impl FnMut(&PersistencePoint<'_, DirectoryCrashState>) + Send + 'static,
    ) {
        self.shared.inner.lock().observer = Some(Box::new(observer));
    }

    /// Persistence points so far.
    pub fn persistence_points(&self) -> u64 {
        self.shared.inner.lock().points
    }
}

/// Operation, name, offset and length of a persistence point.
struct PointFacts<'a>(Operation, &'a str, u64, u64);

impl SharedDirectory {
    fn crash_state(&self, state: &Arc<DirectoryState>, in_flight: Option<&Change>) -> DirectoryCrashState {
        DirectoryCrashState {
            label: self.label.clone(),
            options: self.options,
            state: state.clone(),
            in_flight: in_flight.cloned(),
        }
    }

    /// Counts a point and tells the observer.
    fn pass_point(&self, inner: &mut Inner, facts: PointFacts<'_>, in_flight: Option<&Change>) {
        let PointFacts(operation, name, offset_bytes, length_bytes) = facts;
        let index = inner.points;
        inner.points += 1;
        if let Some(observer) = &mut inner.observer {
            let state = || self.crash_state(&inner.state, in_flight);
            observer(&PersistencePoint { index, operation, name, offset_bytes, length_bytes, state: &state });
        }
    }

    /// Passes the point of a change, then makes the change.
    fn change(&self, inner: &mut Inner, facts: PointFacts<'_>, change: Change) {
        self.pass_point(inner, facts, Some(&change));
        Arc::make_mut(&mut inner.state).apply(change);
    }

    fn not_found(&self, operation: Operation, name: &str) -> MediaError {
        MediaError::NotFound { device: self.label.to_string(), operation, name: name.to_owned() }
    }

    /// Space for files.
    fn capacity_bytes(&self) -> u64 {
        self.options.capacity_bytes.unwrap_or(SIZE_BYTES_MAX)
    }

    /// Makes a new empty file called `name`.
    fn create_file(&self, inner: &mut Inner, name: &str) -> FileId {
        let file = Arc::make_mut(&mut inner.state).new_file_id();
        let change = Change::Name(NameChange::Create { name: name.into(), file });
        self.change(inner, PointFacts(Operation::Open, name, 0, 0), change);
        file
    }
}

impl Directory for MemoryDirectory {
    fn name(&self) -> &str {
        &self.shared.label
    }

    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn DirectoryFile>, MediaError> {
        let shared = &self.shared;
        check_name(&shared.label, Operation::Open, name)?;
        let inner = &mut *shared.inner.lock();
        let file = match inner.state.names.get(name).copied() {
            Some(file) => {
                let size_bytes = inner.state.file(file).map_or(0, |file| file.present.size_bytes);
                if mode.write && mode.truncate && size_bytes > 0 {
                    let change = Change::Content(file, ContentChange::Truncate { size_bytes: 0 });
                    shared.change(inner, PointFacts(Operation::Truncate, name, 0, 0), change);
                }
                file
            }
            None if mode.write && mode.create => shared.create_file(inner, name),
            None => return Err(shared.not_found(Operation::Open, name)),
        };
        Arc::make_mut(&mut inner.state).update_file(file, |file| file.handles += 1);
        let alignment_bytes = if mode.direct { shared.options.direct_alignment_bytes.max(1) } else { 1 };
        let label = format!("{}/{name}", shared.label);
        Ok(Arc::new(MemoryFile {
            shared: shared.clone(),
            name: name.to_owned(),
            label,
            file,
            writable: mode.write,
            alignment_bytes,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), MediaError> {
        let shared = &self.shared;
        check_name(&shared.label, Operation::Rename, from)?;
        check_name(&shared.label, Operation::Rename, to)?;
        let inner = &mut *shared.inner.lock();
        if !inner.state.names.contains_key(from) {
            return Err(shared.not_found(Operation::Rename, from));
        }
        if from != to {
            let change = Change::Name(NameChange::Rename { from: from.into(), to: to.into() });
            shared.change(inner, PointFacts(Operation::Rename, from, 0, 0), change);
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), MediaError> {
        let shared = &self.shared;
        check_name(&shared.label, Operation::Remove, name)?;
        let inner = &mut *shared.inner.lock();
        if !inner.state.names.contains_key(name) {
            return Err(shared.not_found(Operation::Remove, name));
        }
        let change = Change::Name(NameChange::Remove { name: name.into() });
        shared.change(inner, PointFacts(Operation::Remove, name, 0, 0), change);
        Ok(())
    }

    fn list(&self) -> Result<Vec<DirectoryEntry>, MediaError> {
        let inner = self.shared.inner.lock();
        let entry = |(name, file): (&Arc<str>, &FileId)| DirectoryEntry {
            name: name.to_string(),
            size_bytes: inner.state.file(*file).map_or(0, |file| file.present.size_bytes),
        };
        Ok(inner.state.names.iter().map(entry).collect())
    }

    fn sync(&self) -> Result<(), MediaError> {
        let inner = &mut *self.shared.inner.lock();
        self.shared.pass_point(inner, PointFacts(Operation::SyncDirectory, "", 0, 0), None);
        Arc::make_mut(&mut inner.state).sync_names();
        Ok(())
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DirectoryLock>, MediaError> {
        let shared = &self.shared;
        check_name(&shared.label, Operation::Lock, name)?;
        if !shared.locks.lock().insert(name.to_owned()) {
            return Err(MediaError::Locked { device: shared.label.to_string(), name: name.to_owned() });
        }
        let guard = MemoryLock { shared: shared.clone(), name: name.to_owned() };
        let inner = &mut *shared.inner.lock();
        if !inner.state.names.contains_key(name) {
            shared.create_file(inner, name);
        }
        Ok(Box::new(guard))
    }

    fn space(&self) -> Result<Space, MediaError> {
        let total_bytes = self.shared.capacity_bytes();
        let used_bytes = self.shared.inner.lock().state.used_bytes();
        let available_bytes = total_bytes.saturating_sub(used_bytes);
        Ok(Space { total_bytes, available_bytes, reserve_bytes: 0, block_bytes: PAGE_BYTES, zones: None })
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn link(&self, name: &str, _target: &Path, target_name: &str) -> Result<bool, MediaError> {
        check_name(&self.shared.label, Operation::Rename, name)?;
        check_name(&self.shared.label, Operation::Rename, target_name)?;
        match self.shared.inner.lock().state.names.contains_key(name) {
            true => Ok(false),
            false => Err(self.shared.not_found(Operation::Rename, name)),
        }
    }
}

struct MemoryLock {
    shared: Arc<SharedDirectory>,
    name: String,
}

impl DirectoryLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.shared.locks.lock().remove(&self.name);
    }
}

struct MemoryFile {
    shared: Arc<SharedDirectory>,
    /// Name it was opened by.
    name: String,
    label: String,
    file: FileId,
    writable: bool,
    alignment_bytes: u32,
}

impl MemoryFile {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.shared.inner.lock()
    }

    fn check_writable(&self, operation: Operation, offset_bytes: u64) -> Result<(), MediaError> {
        if self.writable {
            return Ok(());
        }
        let source = std::io::Error::new(std::io::ErrorKind::PermissionDenied, "the file was opened for reading only");
        Err(MediaError::io(&self.label, operation, offset_bytes, source))
    }

    fn check_size(&self, operation: Operation, size_bytes: Option<u64>) -> Result<u64, MediaError> {
        size_bytes.filter(|&size_bytes| size_bytes <= SIZE_BYTES_MAX).ok_or_else(|| {
            let source = std::io::Error::from(std::io::ErrorKind::FileTooLarge);
            MediaError::io(&self.label, operation, size_bytes.unwrap_or(u64::MAX), source)
        })
    }

    fn check_alignment(&self, operation: Operation, offset_bytes: u64, data: &[u8]) -> Result<(), MediaError> {
        let alignment = u64::from(self.alignment_bytes);
        let length_bytes = data.len() as u64;
        if !offset_bytes.is_multiple_of(alignment)
            || !length_bytes.is_multiple_of(alignment)
            || !is_aligned(data, self.alignment_bytes as usize)
        {
            return Err(MediaError::Misaligned {
                device: self.label.clone(),
                operation,
                offset_bytes,
                length_bytes,
                required_bytes: alignment,
            });
        }
        Ok(())
    }

    /// Refuses a growth to `size_bytes` that the capacity cannot give.
    fn check_space(&self, inner: &Inner, operation: Operation, size_bytes: u64) -> Result<(), MediaError> {
        let available_bytes = self.shared.capacity_bytes().saturating_sub(inner.state.used_bytes());
        let growth_bytes = inner.state.growth_bytes(self.file, size_bytes);
        if growth_bytes > available_bytes {
            return Err(MediaError::NoSpace {
                device: self.label.clone(),
                operation,
                offset_bytes: size_bytes,
                length_bytes: growth_bytes,
            });
        }
        Ok(())
    }

    /// Length up to which this file can grow.
    fn size_bytes_max(&self, inner: &Inner) -> u64 {
        let available_bytes = self.shared.capacity_bytes().saturating_sub(inner.state.used_bytes());
        let held_bytes = inner.state.file(self.file).map_or(0, state::File::used_bytes);
        held_bytes.saturating_add(available_bytes / PAGE_BYTES * PAGE_BYTES)
    }
}

impl DirectoryFile for MemoryFile {
    fn read_at(&self, offset_bytes: u64, data: &mut [u8], _context: &IoContext) -> Result<usize, MediaError> {
        self.check_alignment(Operation::Read, offset_bytes, data)?;
        let inner = self.inner();
        let Some(file) = inner.state.file(self.file) else { return Ok(0) };
        let rest = file.present.size_bytes.saturating_sub(offset_bytes);
        let count = usize::try_from(rest).map_or(data.len(), |rest| rest.min(data.len()));
        file.present.bytes.read(offset_bytes, &mut data[..count]);
        Ok(count)
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>], _context: &IoContext) -> Result<(), MediaError> {
        self.check_writable(Operation::Write, offset_bytes)?;
        let mut at = offset_bytes;
        for slice in data {
            self.check_alignment(Operation::Write, at, slice)?;
            at = self.check_size(Operation::Write, at.checked_add(slice.len() as u64))?;
        }
        let length_bytes = at - offset_bytes;
        if length_bytes == 0 {
            return Ok(());
        }
        let mut joined: Vec<u8> = data.concat_slices();
        let inner = &mut *self.inner();
        let space = self.check_space(inner, Operation::Write, at);
        if space.is_err() {
            // What fits is written, as a file system does.
            let fitting = self.size_bytes_max(inner).saturating_sub(offset_bytes);
            joined.truncate(usize::try_from(fitting).unwrap_or(usize::MAX));
        }
        if !joined.is_empty() {
            let facts = PointFacts(Operation::Write, &self.name, offset_bytes, joined.len() as u64);
            let change = ContentChange::Write { offset_bytes, data: Arc::new(joined.into()) };
            self.shared.change(inner, facts, Change::Content(self.file, change));
        }
        space
    }

    fn sync(&self, _context: &IoContext) -> Result<(), MediaError> {
        let inner = &mut *self.inner();
        self.shared.pass_point(inner, PointFacts(Operation::Sync, &self.name, 0, 0), None);
        Arc::make_mut(&mut inner.state).sync_file(self.file);
        Ok(())
    }

    fn size_bytes(&self) -> Result<u64, MediaError> {
        Ok(self.inner().state.file(self.file).map_or(0, |file| file.present.size_bytes))
    }

    fn truncate(&self, size_bytes: u64) -> Result<(), MediaError> {
        self.check_writable(Operation::Truncate, size_bytes)?;
        self.check_size(Operation::Truncate, Some(size_bytes))?;
        let inner = &mut *self.inner();
        self.check_space(inner, Operation::Truncate, size_bytes)?;
        if inner.state.file(self.file).is_some_and(|file| file.present.size_bytes != size_bytes) {
            let change = Change::Content(self.file, ContentChange::Truncate { size_bytes });
            self.shared.change(inner, PointFacts(Operation::Truncate, &self.name, size_bytes, 0), change);
        } else {
            // As ftruncate: what is reserved beyond the length goes even when the length stays.
            Arc::make_mut(&mut inner.state)
                .update_file(self.file, |file| file.reserved_bytes = file.reserved_bytes.min(size_bytes));
        }
        Ok(())
    }

    fn allocate(&self, size_bytes: u64) -> Result<(), MediaError> {
        self.check_writable(Operation::Truncate, size_bytes)?;
        self.check_size(Operation::Truncate, Some(size_bytes))?;
        let inner = &mut *self.inner();
        self.check_space(inner, Operation::Truncate, size_bytes)?;
        Arc::make_mut(&mut inner.state)
            .update_file(self.file, |file| file.reserved_bytes = file.reserved_bytes.max(size_bytes));
        Ok(())
    }

    fn prefetch(&self, _offset_bytes: u64, _length_bytes: u64) {}

    fn map(&self) -> Option<FileMapping> {
        None
    }

    fn map_for_writing(&self, _range: Range<u64>) -> Option<WritableMapping> {
        None
    }

    fn alignment_bytes(&self) -> u32 {
        self.alignment_bytes
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        Arc::make_mut(&mut self.inner().state).close_handle(self.file);
    }
}

trait ConcatSlices {
    fn concat_slices(&self) -> Vec<u8>;
}

impl ConcatSlices for [IoSlice<'_>] {
    fn concat_slices(&self) -> Vec<u8> {
        let mut joined = Vec::with_capacity(self.iter().map(|slice| slice.len()).sum());
        for slice in self {
            joined.extend_from_slice(slice);
        }
        joined
    }
}
