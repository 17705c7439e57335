//! A store in memory for the tests of this crate's formats.

use crate::memory_file::MemoryFile;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use varve_media::Counters;
use varve_store::{
    CreateOptions, FileEntry, FileStore, Finding, Hint, IoContext, Location, Occupancy, OpenOptions, ReadableFile,
    Space, StoreError, StoreLock, StoreMeasure, StoreProperties, WritableFile,
};

/// A store in memory whose changes, counted, can be made to fail from one on.
pub(crate) struct MemoryStore {
    properties: StoreProperties,
    state: Arc<Mutex<StoreState>>,
}

#[derive(Default)]
struct StoreState {
    files: BTreeMap<String, MemoryFile>,
    changes: usize,
    fail_from: Option<usize>,
}

impl MemoryStore {
    pub(crate) fn new() -> Self {
        let properties = StoreProperties {
            read_alignment_bytes: 1,
            rotational: false,
            access: varve_store::AccessTimes::typical(false),
            places_by_level: false,
            preferred_transfer_bytes: None,
            preferred_table_bytes: None,
            table_bytes_max: u64::MAX,
            wants_evictions: false,
            wants_rewrites: false,
            flush_is_device_request: false,
            location: Location::Private,
        };
        MemoryStore { properties, state: Arc::default() }
    }

    /// The same, liking tables of one size.
    pub(crate) fn of_bands(band_bytes: u64) -> Self {
        let store = MemoryStore::new();
        let properties = StoreProperties { preferred_table_bytes: Some(band_bytes), ..store.properties.clone() };
        MemoryStore { properties, ..store }
    }

    /// A store on a device, where a flush is a request: logs hold back unsynced bytes.
    pub(crate) fn holding_back() -> Self {
        let store = MemoryStore::new();
        let properties = StoreProperties { flush_is_device_request: true, ..store.properties.clone() };
        MemoryStore { properties, ..store }
    }

    /// Changes so far: creates, appends, flushes, syncs, finishes, renames, removes.
    pub(crate) fn changes(&self) -> usize {
        self.state.lock().changes
    }

    /// Every change from number `change` on fails and changes nothing; `None` ends that.
    pub(crate) fn fail_from(&self, change: Option<usize>) {
        self.state.lock().fail_from = change;
    }

    pub(crate) fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        self.state.lock().files.get(name).map(MemoryFile::bytes)
    }

    pub(crate) fn put(&self, name: &str, bytes: Vec<u8>) {
        self.state.lock().files.insert(name.to_string(), MemoryFile::of(bytes));
    }

    fn not_found(name: &str) -> StoreError {
        StoreError::NotFound { store: "memory".to_string(), name: name.to_string() }
    }
}

fn count_change(state: &Mutex<StoreState>) -> Result<(), StoreError> {
    let mut state = state.lock();
    state.changes += 1;
    if state.fail_from.is_some_and(|from| state.changes >= from) {
        return Err(StoreError::NoSpace {
            store: "memory".to_string(),
            name: "any".to_string(),
            requested_bytes: 1,
            available_bytes: 0,
            zones: None,
        });
    }
    Ok(())
}

/// A file of a [`MemoryStore`] being written. A store on a device holds back appended bytes until a flush.
struct StoredFile {
    file: MemoryFile,
    holds_back: bool,
    held: Vec<u8>,
    state: Arc<Mutex<StoreState>>,
}

impl StoredFile {
    fn hand_over(&mut self, context: &IoContext) -> Result<(), StoreError> {
        count_change(&self.state)?;
        self.file.append(&std::mem::take(&mut self.held), context)
    }
}

impl WritableFile for StoredFile {
    fn append(&mut self, data: &[u8], context: &IoContext) -> Result<(), StoreError> {
        count_change(&self.state)?;
        if !self.holds_back {
            return self.file.append(data, context);
        }
        self.held.extend_from_slice(data);
        Ok(())
    }

    fn flush(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.hand_over(context)?;
        self.file.flush(context)
    }

    fn write_back(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.hand_over(context)?;
        self.file.write_back(context)
    }

    fn sync(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.hand_over(context)?;
        self.file.sync(context)
    }

    fn set_level(&mut self, _: u8) {}

    fn size_bytes(&self) -> u64 {
        WritableFile::size_bytes(&self.file) + self.held.len() as u64
    }

    fn finish(mut self: Box<Self>, context: &IoContext) -> Result<(), StoreError> {
        self.hand_over(context)?;
        Box::new(self.file).finish(context)
    }
}

impl FileStore for MemoryStore {
    fn name(&self) -> &str {
        "memory"
    }

    fn properties(&self) -> &StoreProperties {
        &self.properties
    }

    fn create(&self, name: &str, _: &CreateOptions) -> Result<Box<dyn WritableFile>, StoreError> {
        count_change(&self.state)?;
        let file = MemoryFile::default();
        self.state.lock().files.insert(name.to_string(), file.clone());
        Ok(Box::new(StoredFile {
            file,
            holds_back: self.properties.flush_is_device_request,
            held: Vec::new(),
            state: self.state.clone(),
        }))
    }

    fn open(&self, name: &str, _: &OpenOptions) -> Result<Arc<dyn ReadableFile>, StoreError> {
        self.state.lock().files.get(name).map(MemoryFile::reader).ok_or_else(|| Self::not_found(name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        count_change(&self.state)?;
        let mut state = self.state.lock();
        let file = state.files.remove(from).ok_or_else(|| Self::not_found(from))?;
        state.files.insert(to.to_string(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        count_change(&self.state)?;
        self.state.lock().files.remove(name).map(|_| ()).ok_or_else(|| Self::not_found(name))
    }

    fn sync_names(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn list(&self) -> Result<Vec<FileEntry>, StoreError> {
        let state = self.state.lock();
        let entry = |(name, file): (&String, &MemoryFile)| FileEntry {
            name: name.clone(),
            size_bytes: ReadableFile::size_bytes(file),
        };
        Ok(state.files.iter().map(entry).collect())
    }

    fn lock(&self, _: &str) -> Result<Box<dyn StoreLock>, StoreError> {
        struct Held;
        impl StoreLock for Held {}
        Ok(Box::new(Held))
    }

    fn share(&self, _: &str, _: &Location, _: &str) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn space(&self) -> Result<Space, StoreError> {
        Ok(Space { total_bytes: u64::MAX, available_bytes: u64::MAX, reserve_bytes: 0, block_bytes: 1, zones: None })
    }

    fn reclaim_space(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn hint(&self, _: &Hint<'_>) {}

    fn counters(&self) -> Vec<(String, Counters)> {
        Vec::new()
    }

    fn statistics(&self) -> Vec<StoreMeasure> {
        Vec::new()
    }

    fn layout(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy::default()
    }

    fn check(&self) -> Result<Vec<Finding>, StoreError> {
        Ok(Vec::new())
    }
}
