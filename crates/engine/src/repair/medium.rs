//! The stores of a repair, and what of them could not be read.
//!
//! A medium that fails now says nothing about what is on it. Whoever reads through these stores may take an error for
//! damage, as iterators and checks do: the first error that is none is kept, and nothing is done for good before
//! [`MediumFailures::check`] finds there was none.

use crate::error::Error;
use crate::media::FileMedia;
use parking_lot::Mutex;
use std::sync::Arc;
use varve_store::{
    Counters, CreateOptions, FileEntry, FileMapping, FileStore, Finding, Hint, IoContext, Location, Occupancy,
    OpenOptions, ReadRange, ReadableFile, RecordCache, Space, StoreError, StoreErrorKind, StoreLock, StoreMeasure,
    StoreProperties, WritableFile,
};

/// How often sectors that the medium calls unreadable are read again.
const REPEATS: usize = 2;

/// The first error that says nothing about what is on the medium. Shared by the stores of one repair; thread-safe.
#[derive(Default)]
pub(crate) struct MediumFailures {
    first: Mutex<Option<StoreError>>,
}

impl MediumFailures {
    /// `media`, watched. Costs an allocation for every file opened.
    pub(crate) fn watch(media: &FileMedia) -> (FileMedia, Arc<MediumFailures>) {
        let failures = Arc::new(MediumFailures::default());
        let watch = |store: &Arc<dyn FileStore>| -> Arc<dyn FileStore> {
            Arc::new(WatchedStore { inner: store.clone(), failures: failures.clone() })
        };
        let watched = FileMedia { files: watch(&media.files), logs: media.logs.as_ref().map(watch) };
        (watched, failures)
    }

    /// Errs with the first failure, if there was one.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.first.lock().clone().map_or(Ok(()), |error| Err(error.into()))
    }

    fn note(&self, error: &StoreError) {
        self.first.lock().get_or_insert_with(|| error.clone());
    }
}

/// Bytes that were read are wrong, or fewer than they must be.
fn is_damage(error: &StoreError) -> bool {
    matches!(error, StoreError::Corruption { .. } | StoreError::Foreign { .. } | StoreError::PastEnd { .. })
}

struct WatchedStore {
    inner: Arc<dyn FileStore>,
    failures: Arc<MediumFailures>,
}

impl FileStore for WatchedStore {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn properties(&self) -> &StoreProperties {
        self.inner.properties()
    }

    fn create(&self, name: &str, options: &CreateOptions) -> Result<Box<dyn WritableFile>, StoreError> {
        self.inner.create(name, options)
    }

    fn open(&self, name: &str, options: &OpenOptions) -> Result<Arc<dyn ReadableFile>, StoreError> {
        let inner = self.inner.open(name, options).inspect_err(|error| {
            // Absence is known; of a file that does not open nothing is.
            if error.kind() != StoreErrorKind::NotFound && !is_damage(error) {
                self.failures.note(error);
            }
        })?;
        Ok(Arc::new(WatchedFile { inner, failures: self.failures.clone() }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.inner.remove(name)
    }

    fn sync_names(&self) -> Result<(), StoreError> {
        self.inner.sync_names()
    }

    fn list(&self) -> Result<Vec<FileEntry>, StoreError> {
        self.inner.list().inspect_err(|error| self.failures.note(error))
    }

    fn lock(&self, name: &str) -> Result<Box<dyn StoreLock>, StoreError> {
        self.inner.lock(name)
    }

    fn share(&self, name: &str, target: &Location, target_name: &str) -> Result<bool, StoreError> {
        self.inner.share(name, target, target_name)
    }

    fn space(&self) -> Result<Space, StoreError> {
        self.inner.space()
    }

    fn reclaim_space(&self) -> Result<bool, StoreError> {
        self.inner.reclaim_space()
    }

    fn hint(&self, hint: &Hint<'_>) {
        self.inner.hint(hint);
    }

    fn counters(&self) -> Vec<(String, Counters)> {
        self.inner.counters()
    }

    fn statistics(&self) -> Vec<StoreMeasure> {
        self.inner.statistics()
    }

    fn layout(&self) -> Vec<(&'static str, String)> {
        self.inner.layout()
    }

    fn occupancy(&self) -> Occupancy {
        self.inner.occupancy()
    }

    fn check(&self) -> Result<Vec<Finding>, StoreError> {
        self.inner.check()
    }
}

struct WatchedFile {
    inner: Arc<dyn ReadableFile>,
    failures: Arc<MediumFailures>,
}

impl WatchedFile {
    /// Reads again what the medium called unreadable, and notes what is not known to be lost.
    fn settle(
        &self,
        first: StoreError,
        offset_bytes: u64,
        data: &mut [u8],
        context: &IoContext,
    ) -> Result<(), StoreError> {
        let mut error = first;
        for _ in 0..REPEATS {
            if !error.is_loss() {
                break;
            }
            match self.inner.read_at(offset_bytes, data, context) {
                Ok(()) => return Ok(()),
                Err(again) => error = again,
            }
        }
        // Short of a size that the store knows is no end.
        let is_short = matches!(error, StoreError::PastEnd { .. })
            && offset_bytes.saturating_add(data.len() as u64) <= self.inner.size_bytes();
        if is_short || !error.is_loss() && !is_damage(&error) {
            self.failures.note(&error);
        }
        Err(error)
    }
}

impl ReadableFile for WatchedFile {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<(), StoreError> {
        self.inner.read_at(offset_bytes, data, context).or_else(|error| self.settle(error, offset_bytes, data, context))
    }

    fn read_many(&self, ranges: &mut [ReadRange<'_>], context: &IoContext) -> Result<(), StoreError> {
        let Err(first) = self.inner.read_many(ranges, context) else { return Ok(()) };
        let mut is_told = false;
        let mut result = Ok(());
        for range in ranges {
            if let Err(error) = range.outcome.clone() {
                is_told = true;
                range.outcome = self.settle(error, range.offset_bytes, range.data, context);
                result = result.and(range.outcome.clone());
            }
        }
        if !is_told {
            self.failures.note(&first);
            return Err(first);
        }
        result
    }

    fn prefetch(&self, offset_bytes: u64, length_bytes: u64, context: &IoContext) {
        self.inner.prefetch(offset_bytes, length_bytes, context);
    }

    fn map(&self) -> Option<FileMapping> {
        // Reads of a mapping would not be watched.
        None
    }

    fn records(&self) -> Option<&dyn RecordCache> {
        None
    }
}
