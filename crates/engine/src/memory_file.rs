//! A file in memory, for tests and fuzz entries.

use parking_lot::Mutex;
use std::sync::Arc;
use varve_store::{FileMapping, IoContext, ReadRange, ReadableFile, RecordCache, StoreError, WritableFile};

/// A file whose bytes a test can look at and change while it is written.
#[derive(Clone, Default)]
pub(crate) struct MemoryFile {
    state: Arc<Mutex<FileContent>>,
}

#[derive(Default)]
struct FileContent {
    bytes: Vec<u8>,
    synced_bytes: usize,
    /// Appends fail once the file is this long.
    space_bytes: Option<usize>,
    fail_sync: bool,
    finished: bool,
}

impl MemoryFile {
    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        let state = FileContent { synced_bytes: bytes.len(), bytes, ..FileContent::default() };
        MemoryFile { state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.state.lock().bytes.clone()
    }

    #[cfg(test)]
    pub(crate) fn synced_bytes(&self) -> usize {
        self.state.lock().synced_bytes
    }

    #[cfg(test)]
    pub(crate) fn finished(&self) -> bool {
        self.state.lock().finished
    }

    #[cfg(test)]
    pub(crate) fn replace(&self, bytes: Vec<u8>) {
        self.state.lock().bytes = bytes;
    }

    #[cfg(test)]
    pub(crate) fn limit_space(&self, bytes: usize) {
        self.state.lock().space_bytes = Some(bytes);
    }

    #[cfg(test)]
    pub(crate) fn fail_sync(&self) {
        self.state.lock().fail_sync = true;
    }

    pub(crate) fn writer(&self) -> Box<dyn WritableFile> {
        Box::new(self.clone())
    }

    pub(crate) fn reader(&self) -> Arc<dyn ReadableFile> {
        Arc::new(self.clone())
    }
}

impl WritableFile for MemoryFile {
    fn append(&mut self, data: &[u8], _: &IoContext) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let left_bytes = state.space_bytes.map_or(usize::MAX, |bytes| bytes.saturating_sub(state.bytes.len()));
        let taken = data.len().min(left_bytes);
        state.bytes.extend_from_slice(&data[..taken]);
        if taken == data.len() {
            return Ok(());
        }
        Err(StoreError::NoSpace {
            store: "memory".to_string(),
            name: "file".to_string(),
            requested_bytes: data.len() as u64,
            available_bytes: taken as u64,
            zones: None,
        })
    }

    fn flush(&mut self, _: &IoContext) -> Result<(), StoreError> {
        Ok(())
    }

    fn write_back(&mut self, _: &IoContext) -> Result<(), StoreError> {
        Ok(())
    }

    fn sync(&mut self, _: &IoContext) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if state.fail_sync {
            return Err(StoreError::Poisoned { store: "memory".to_string(), cause: "asked for".to_string() });
        }
        state.synced_bytes = state.bytes.len();
        Ok(())
    }

    fn set_level(&mut self, _: u8) {}

    fn size_bytes(&self) -> u64 {
        self.state.lock().bytes.len() as u64
    }

    fn finish(self: Box<Self>, _: &IoContext) -> Result<(), StoreError> {
        self.state.lock().finished = true;
        Ok(())
    }
}

impl ReadableFile for MemoryFile {
    fn size_bytes(&self) -> u64 {
        self.state.lock().bytes.len() as u64
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8], _: &IoContext) -> Result<(), StoreError> {
        let state = self.state.lock();
        let start = usize::try_from(offset_bytes).unwrap_or(usize::MAX);
        match start.checked_add(data.len()).and_then(|end| state.bytes.get(start..end)) {
            Some(bytes) => {
                data.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(StoreError::PastEnd {
                store: "memory".to_string(),
                name: "file".to_string(),
                offset_bytes,
                length_bytes: data.len() as u64,
                size_bytes: state.bytes.len() as u64,
            }),
        }
    }

    fn read_many(&self, ranges: &mut [ReadRange<'_>], context: &IoContext) -> Result<(), StoreError> {
        for range in ranges.iter_mut() {
            range.outcome = self.read_at(range.offset_bytes, range.data, context);
        }
        ranges.iter().try_for_each(|range| range.outcome.clone())
    }

    fn prefetch(&self, _: u64, _: u64, _: &IoContext) {}

    fn map(&self) -> Option<FileMapping> {
        None
    }

    fn records(&self) -> Option<&dyn RecordCache> {
        None
    }
}
