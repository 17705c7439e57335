//! A store that is only read.

use crate::error::{StoreError, StoreErrorKind};
use crate::file_store::{
    CreateOptions, FileEntry, FileStore, Finding, Location, OpenOptions, ReadableFile, StoreLock, StoreProperties,
    WritableFile,
};
use crate::hint::Hint;
use crate::occupancy::{Occupancy, StoreMeasure};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use varve_media::{Counters, Space};

/// Another store, of which nothing can be changed: what would is [`StoreError::ReadOnly`], hints go nowhere, and no
/// lock is taken, as a lock is a file.
///
/// Somebody else may be writing the same files meanwhile. Those that are [held](ReadOnlyStore::hold) stay
/// readable whatever becomes of their names. Thread-safe.
pub struct ReadOnlyStore {
    inner: Arc<dyn FileStore>,
    properties: StoreProperties,
    held: RwLock<BTreeMap<String, Arc<dyn ReadableFile>>>,
    settled: AtomicBool,
}

impl ReadOnlyStore {
    /// Reads of `inner`.
    pub fn new(inner: Arc<dyn FileStore>) -> Self {
        let properties =
            StoreProperties { wants_evictions: false, wants_rewrites: false, ..inner.properties().clone() };
        ReadOnlyStore { inner, properties, held: RwLock::default(), settled: AtomicBool::new(false) }
    }

    /// Opens a file and keeps it open as long as the store: later opens give this one, even when its name is gone by
    /// then. Costs what an open file costs, in a directory a descriptor.
    ///
    /// # Errors
    /// As [`FileStore::open`].
    pub fn hold(&self, name: &str, options: &OpenOptions) -> Result<(), StoreError> {
        let file = self.inner.open(name, options)?;
        self.held.write().insert(name.to_owned(), file);
        Ok(())
    }

    /// Says that every file asked for from now on was there a moment ago: one that is missing was removed by whoever
    /// writes ([`StoreError::Superseded`]).
    pub fn settle(&self) {
        self.settled.store(true, Ordering::Release);
    }

    fn refuse<T>(&self, name: &str) -> Result<T, StoreError> {
        Err(StoreError::ReadOnly { store: self.inner.name().to_owned(), name: name.to_owned() })
    }
}

impl FileStore for ReadOnlyStore {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn properties(&self) -> &StoreProperties {
        &self.properties
    }

    fn create(&self, name: &str, _options: &CreateOptions) -> Result<Box<dyn WritableFile>, StoreError> {
        self.refuse(name)
    }

    fn open(&self, name: &str, options: &OpenOptions) -> Result<Arc<dyn ReadableFile>, StoreError> {
        let held = self.held.read().get(name).cloned();
        if let Some(file) = held {
            return Ok(file);
        }
        self.inner.open(name, options).map_err(|error| match error.kind() {
            StoreErrorKind::NotFound if self.settled.load(Ordering::Acquire) => {
                StoreError::Superseded { store: self.inner.name().to_owned(), name: name.to_owned() }
            }
            _ => error,
        })
    }

    fn rename(&self, from: &str, _to: &str) -> Result<(), StoreError> {
        self.refuse(from)
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.refuse(name)
    }

    fn sync_names(&self) -> Result<(), StoreError> {
        self.refuse("")
    }

    fn list(&self) -> Result<Vec<FileEntry>, StoreError> {
        self.inner.list()
    }

    fn lock(&self, name: &str) -> Result<Box<dyn StoreLock>, StoreError> {
        self.refuse(name)
    }

    fn share(&self, name: &str, _target: &Location, _target_name: &str) -> Result<bool, StoreError> {
        // A hard link is a change of the file it links to.
        self.refuse(name)
    }

    fn space(&self) -> Result<Space, StoreError> {
        self.inner.space()
    }

    fn reclaim_space(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn hint(&self, _hint: &Hint<'_>) {}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain::{PlainOptions, PlainStore};
    use varve_env::Env;
    use varve_media::{IoContext, MemoryDirectory};

    #[test]
    fn nothing_is_changed_and_held_files_stay() {
        let env = Env::sim(1);
        let directory = Arc::new(MemoryDirectory::new("directory"));
        let written = PlainStore::open(&env, directory.clone(), PlainOptions::default());
        let context = IoContext::default();
        for name in ["held", "free"] {
            let mut file = written.create(name, &CreateOptions::default()).unwrap();
            file.append(name.as_bytes(), &context).unwrap();
            file.sync(&context).unwrap();
            file.finish(&context).unwrap();
        }
        let store = ReadOnlyStore::new(Arc::new(PlainStore::open(&env, directory, PlainOptions::default())));
        let options = OpenOptions::default();
        store.hold("held", &options).unwrap();
        let before = store.list().unwrap();
        let mut refusals = vec![
            store.create("new", &CreateOptions::default()).err(),
            store.create("free", &CreateOptions::default()).err(),
            store.lock("LOCK").err(),
        ];
        refusals.extend([
            store.rename("free", "held").err(),
            store.remove("free").err(),
            store.sync_names().err(),
            store.share("free", &Location::Private, "other").err(),
        ]);
        for refusal in refusals {
            assert_eq!(refusal.map(|error| error.kind()), Some(StoreErrorKind::ReadOnly));
        }
        assert_eq!(store.list().unwrap(), before);
        for name in ["held", "free"] {
            written.remove(name).unwrap();
        }
        let mut data = [0; 4];
        store.open("held", &options).unwrap().read_at(0, &mut data, &context).unwrap();
        assert_eq!(&data, b"held");
        let missing = || store.open("free", &options).err().map(|error| error.kind());
        assert_eq!(missing(), Some(StoreErrorKind::NotFound));
        store.settle();
        assert_eq!(missing(), Some(StoreErrorKind::Locked));
    }
}
