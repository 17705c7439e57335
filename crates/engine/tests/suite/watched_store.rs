//! A store that has every append to its files looked at, and every hint.

use std::sync::Arc;
use varve_media::{Counters, Space};
use varve_store::{
    CreateOptions, FileEntry, FileStore, Finding, Hint, IoContext, Location, Occupancy, OpenOptions, ReadableFile,
    StoreError, StoreLock, StoreMeasure, StoreProperties, WritableFile,
};

/// An append to a file.
#[allow(dead_code)]
pub(crate) struct Append<'a> {
    pub(crate) name: &'a str,
    pub(crate) length_bytes: u64,
    pub(crate) context: &'a IoContext,
    /// It was made; each is looked at before and after.
    pub(crate) is_done: bool,
}

type Watch = dyn Fn(&Append<'_>) -> Result<(), StoreError> + Send + Sync;

type WatchHint = dyn Fn(&Hint<'_>) + Send + Sync;

/// A store where `watch` may refuse an append, or panic.
pub(crate) struct WatchedStore {
    inner: Arc<dyn FileStore>,
    properties: StoreProperties,
    watch: Arc<Watch>,
    watch_hint: Option<Arc<WatchHint>>,
}

impl WatchedStore {
    #[allow(dead_code)]
    pub(crate) fn new(
        inner: Arc<dyn FileStore>,
        watch: impl Fn(&Append<'_>) -> Result<(), StoreError> + Send + Sync + 'static,
    ) -> WatchedStore {
        let properties = inner.properties().clone();
        WatchedStore { inner, properties, watch: Arc::new(watch), watch_hint: None }
    }

    /// One that wants every hint there is.
    #[allow(dead_code)]
    pub(crate) fn of_hints(
        inner: Arc<dyn FileStore>,
        watch: impl Fn(&Hint<'_>) + Send + Sync + 'static,
    ) -> WatchedStore {
        let properties = StoreProperties { wants_evictions: true, wants_rewrites: true, ..inner.properties().clone() };
        WatchedStore { inner, properties, watch: Arc::new(|_| Ok(())), watch_hint: Some(Arc::new(watch)) }
    }
}

struct WatchedFile {
    inner: Box<dyn WritableFile>,
    name: String,
    watch: Arc<Watch>,
}

impl WritableFile for WatchedFile {
    fn append(&mut self, data: &[u8], context: &IoContext) -> Result<(), StoreError> {
        let append = |is_done| Append { name: &self.name, length_bytes: data.len() as u64, context, is_done };
        (self.watch)(&append(false))?;
        self.inner.append(data, context)?;
        (self.watch)(&append(true))
    }

    fn flush(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.inner.flush(context)
    }

    fn write_back(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.inner.write_back(context)
    }

    fn sync(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.inner.sync(context)
    }

    fn set_level(&mut self, level: u8) {
        self.inner.set_level(level);
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn finish(self: Box<Self>, context: &IoContext) -> Result<(), StoreError> {
        self.inner.finish(context)
    }
}

impl FileStore for WatchedStore {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn properties(&self) -> &StoreProperties {
        &self.properties
    }

    fn create(&self, name: &str, options: &CreateOptions) -> Result<Box<dyn WritableFile>, StoreError> {
        let inner = self.inner.create(name, options)?;
        Ok(Box::new(WatchedFile { inner, name: name.to_owned(), watch: self.watch.clone() }))
    }

    fn open(&self, name: &str, options: &OpenOptions) -> Result<Arc<dyn ReadableFile>, StoreError> {
        self.inner.open(name, options)
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
        self.inner.list()
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
        if let Some(watch) = &self.watch_hint {
            watch(hint);
        }
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
