//! Files in memory, for tests.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use varve_env::Env;
use varve_store::{
    CreateOptions, FileEntry, FileMapping, FileStore, Finding, Hint, IoContext, Location, Occupancy, OpenOptions,
    ReadRange, ReadableFile, RecordCache, Space, StoreError, StoreLock, StoreMeasure, StoreProperties, WritableFile,
};

/// A file in memory that can be written, read, damaged and told to fail. Clones are the same file.
#[derive(Clone, Default)]
pub(crate) struct ObservedFile {
    shared: Arc<ObservedContent>,
}

#[derive(Default)]
struct ObservedContent {
    bytes: Mutex<Vec<u8>>,
    /// Calls that read, and bytes they read.
    reads: AtomicU64,
    read_bytes: AtomicU64,
    /// Appends that still succeed; 0 is no limit, 1 fails the next one.
    appends_left: AtomicU64,
    reads_left: AtomicU64,
    /// Reads must be aligned so; 0 is not checked.
    alignment: AtomicU64,
}

fn failure() -> StoreError {
    StoreError::InvalidRequest { store: "memory".to_owned(), reason: "told to fail".to_owned() }
}

/// Counts down to the failure.
fn spend(left: &AtomicU64) -> Result<(), StoreError> {
    match left.load(Ordering::Relaxed) {
        0 => Ok(()),
        1 => Err(failure()),
        more => {
            left.store(more - 1, Ordering::Relaxed);
            Ok(())
        }
    }
}

impl ObservedFile {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let file = ObservedFile::default();
        file.shared.bytes.lock().extend_from_slice(bytes);
        file
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.shared.bytes.lock().clone()
    }

    pub(crate) fn reads(&self) -> u64 {
        self.shared.reads.load(Ordering::Relaxed)
    }

    pub(crate) fn read_bytes(&self) -> u64 {
        self.shared.read_bytes.load(Ordering::Relaxed)
    }

    /// The append after `successes` more, and every later one, fails.
    pub(crate) fn fail_appends_after(&self, successes: u64) {
        self.shared.appends_left.store(successes + 1, Ordering::Relaxed);
    }

    /// The read after `successes` more, and every later one, fails.
    pub(crate) fn fail_reads_after(&self, successes: u64) {
        self.shared.reads_left.store(successes + 1, Ordering::Relaxed);
    }

    pub(crate) fn reads_succeed(&self) {
        self.shared.reads_left.store(0, Ordering::Relaxed);
    }

    /// From now on reads must be so aligned, but for their ends at the end of the file.
    pub(crate) fn require_alignment(&self, bytes: u64) {
        self.shared.alignment.store(bytes, Ordering::Relaxed);
    }

    fn read(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), StoreError> {
        spend(&self.shared.reads_left)?;
        self.shared.reads.fetch_add(1, Ordering::Relaxed);
        self.shared.read_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        let bytes = self.shared.bytes.lock();
        let start = offset_bytes as usize;
        let Some(found) = bytes.get(start..start + data.len()) else {
            return Err(StoreError::PastEnd {
                store: "memory".to_owned(),
                name: "file".to_owned(),
                offset_bytes,
                length_bytes: data.len() as u64,
                size_bytes: bytes.len() as u64,
            });
        };
        let alignment = self.shared.alignment.load(Ordering::Relaxed);
        if alignment > 0 {
            let end = offset_bytes + data.len() as u64;
            assert_eq!(offset_bytes % alignment, 0, "offset {offset_bytes}");
            assert!(end.is_multiple_of(alignment) || end == bytes.len() as u64, "end {end}");
            assert_eq!(data.as_ptr().align_offset(alignment as usize), 0, "buffer");
        }
        data.copy_from_slice(found);
        Ok(())
    }
}

impl ReadableFile for ObservedFile {
    fn size_bytes(&self) -> u64 {
        self.shared.bytes.lock().len() as u64
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8], _: &IoContext) -> Result<(), StoreError> {
        self.read(offset_bytes, data)
    }

    fn read_many(&self, ranges: &mut [ReadRange<'_>], _: &IoContext) -> Result<(), StoreError> {
        let mut result = Ok(());
        for range in ranges {
            range.outcome = self.read(range.offset_bytes, range.data);
            if result.is_ok() {
                result = range.outcome.clone();
            }
        }
        result
    }

    fn prefetch(&self, _: u64, _: u64, _: &IoContext) {}

    fn map(&self) -> Option<FileMapping> {
        None
    }

    fn records(&self) -> Option<&dyn RecordCache> {
        None
    }
}

impl WritableFile for ObservedFile {
    fn append(&mut self, data: &[u8], _: &IoContext) -> Result<(), StoreError> {
        spend(&self.shared.appends_left)?;
        self.shared.bytes.lock().extend_from_slice(data);
        Ok(())
    }

    fn flush(&mut self, _: &IoContext) -> Result<(), StoreError> {
        Ok(())
    }

    fn write_back(&mut self, _: &IoContext) -> Result<(), StoreError> {
        Ok(())
    }

    fn sync(&mut self, _: &IoContext) -> Result<(), StoreError> {
        spend(&self.shared.appends_left)
    }

    fn set_level(&mut self, _: u8) {}

    fn size_bytes(&self) -> u64 {
        self.shared.bytes.lock().len() as u64
    }

    fn finish(self: Box<Self>, _: &IoContext) -> Result<(), StoreError> {
        spend(&self.shared.appends_left)
    }
}

/// A store of such files, enough for opening tables. Opening takes virtual time, so that others come
/// in between.
pub(crate) struct SlowStore {
    env: Env,
    files: Mutex<BTreeMap<String, ObservedFile>>,
    opens: AtomicU64,
    fails: AtomicU64,
    properties: StoreProperties,
}

impl SlowStore {
    pub(crate) fn new(env: &Env) -> Self {
        SlowStore {
            env: env.clone(),
            files: Mutex::default(),
            opens: AtomicU64::new(0),
            fails: AtomicU64::new(0),
            properties: StoreProperties {
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
            },
        }
    }

    pub(crate) fn put(&self, name: &str, file: ObservedFile) {
        self.files.lock().insert(name.to_owned(), file);
    }

    /// Successful opens so far.
    pub(crate) fn opens(&self) -> u64 {
        self.opens.load(Ordering::Relaxed)
    }

    /// The next `count` opens fail.
    pub(crate) fn fail_opens(&self, count: u64) {
        self.fails.store(count, Ordering::Relaxed);
    }
}

struct NoLock;

impl StoreLock for NoLock {}

impl FileStore for SlowStore {
    fn name(&self) -> &str {
        "memory"
    }

    fn properties(&self) -> &StoreProperties {
        &self.properties
    }

    fn create(&self, name: &str, _: &CreateOptions) -> Result<Box<dyn WritableFile>, StoreError> {
        let file = ObservedFile::default();
        self.put(name, file.clone());
        Ok(Box::new(file))
    }

    fn open(&self, name: &str, _: &OpenOptions) -> Result<Arc<dyn ReadableFile>, StoreError> {
        self.env.sleep(Duration::from_micros(100));
        let left = self.fails.load(Ordering::Relaxed);
        if left > 0 {
            self.fails.store(left - 1, Ordering::Relaxed);
            return Err(failure());
        }
        self.opens.fetch_add(1, Ordering::Relaxed);
        match self.files.lock().get(name) {
            Some(file) => Ok(Arc::new(file.clone())),
            None => Err(StoreError::NotFound { store: "memory".to_owned(), name: name.to_owned() }),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let file = self.files.lock().remove(from);
        file.map(|file| self.put(to, file)).ok_or_else(failure)
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.files.lock().remove(name).map(drop).ok_or_else(failure)
    }

    fn sync_names(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn list(&self) -> Result<Vec<FileEntry>, StoreError> {
        let entry = |(name, file): (&String, &ObservedFile)| FileEntry {
            name: name.clone(),
            size_bytes: ReadableFile::size_bytes(file),
        };
        Ok(self.files.lock().iter().map(entry).collect())
    }

    fn lock(&self, _: &str) -> Result<Box<dyn StoreLock>, StoreError> {
        Ok(Box::new(NoLock))
    }

    fn share(&self, _: &str, _: &Location, _: &str) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn space(&self) -> Result<Space, StoreError> {
        Err(failure())
    }

    fn reclaim_space(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn hint(&self, _: &Hint<'_>) {}

    fn counters(&self) -> Vec<(String, varve_media::Counters)> {
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
